"""Runs: the files of ``.hoodie/metadata/bitmap_index``, each an HFile with bitmaps and coverage of some base files.

A writer adds a run before it completes its commit and never changes one. What a run says of a base file counts only if
that file is its slice's base file, so a run of a commit that failed, or was rolled back, says nothing to anybody.

Which runs there are: those that the newest *manifest* lists, and those in the folder that it neither lists nor names as
folded. A fold writes its outputs, then ``manifest_<number>.json`` by put-if-absent; of two folds at once one wins. What
it folded stays for a reader that is under way and goes with the next fold.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

import pyarrow as pa

from lakedex.codec.bitmap_record import (
    BitmapEntry,
    BitmapRecord,
    bitmap_cells,
    bitmap_schema_json,
    encode_bitmap_records,
)
from lakedex.codec.hfile import write_hfile
from lakedex.codec.json_object import decode_json_object
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.blocks import column_block, encode_block, files_block
from lakedex.index.bitmap.builder import ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.keys import column_prefix, coverage_key, escape_all, files_key, group_suffix
from lakedex.io.storage import Storage
from lakedex.metadata.store import metadata_path

__all__ = [
    "BITMAP_INDEX",
    "Manifest",
    "Run",
    "RunFolder",
    "bitmap_folder",
    "column_entries",
    "delete_runs",
    "encode_cells",
    "encode_run",
    "list_runs",
    "publish_manifest",
    "publish_without",
    "record_cells",
    "remove_runs_of",
    "run_name",
    "write_run",
]

BITMAP_INDEX = "bitmap_index"
"""Folder below ``.hoodie/metadata``, as RFC-92 has it. Java takes it for no partition of its metadata table: it has no
partition metafile, and ``hoodie.table.metadata.partitions`` does not list it."""

FILES_PER_BLOCK = 4096
_LOOKS = 4
_BY_KEY = itemgetter(0)
_RUN = re.compile(r"run_(?P<instant>[0-9]{1,40})_(?P<origin>commit|build|fold)_(?P<number>[0-9]{1,60})\.hfile")
_MANIFEST = re.compile(r"manifest_([0-9]{10})\.json")


def bitmap_folder(base_path: str) -> str:
    """The index's folder."""
    return f"{metadata_path(base_path)}/{BITMAP_INDEX}"


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One run.

    Attributes:
        instant: of the commit, build or fold that wrote it.
        origin: ``commit``, ``build`` or ``fold``.
        number: tells runs of one instant apart.
        size: in bytes.
    """

    instant: str
    origin: str
    number: int
    size: int = field(compare=False, default=0)

    @property
    def name(self) -> str:
        """File name."""
        return run_name(self.instant, self.origin, self.number)


def run_name(instant: str, origin: str, number: int) -> str:
    """Name of a run's file."""
    return f"run_{instant}_{origin}_{number:05d}.hfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a fold published.

    Attributes:
        number: of manifests the largest number counts.
        runs: runs that count, of two that speak of the same base file the one that says the truth last.
        folded: runs that were put together, or were found damaged, and count no more.
    """

    number: int = 0
    runs: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The folder at one moment.

    Attributes:
        manifest: the newest one.
        runs: those that count, oldest first: as the manifest lists them, then by instant.
        idle: names of files that nobody needs once the next fold is published: folded runs, older manifests.
    """

    manifest: Manifest
    runs: tuple[Run, ...]
    idle: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the runs that count."""
        return sum(run.size for run in self.runs)


def list_runs(storage: Storage, base_path: str) -> RunFolder:
    """Look at the folder: one listing, and one read where a fold was published.

    Raises:
        CorruptFileError: a damaged manifest.
    """
    for _ in range(_LOOKS):
        try:
            return _list_once(storage, base_path)
        except FileNotFoundError:
            continue  # Folds came in between, and the second of them removed the manifest.
    return _list_once(storage, base_path)


def _list_once(storage: Storage, base_path: str) -> RunFolder:
    folder = bitmap_folder(base_path)
    present: dict[str, Run] = {}
    manifests: list[str] = []
    for entry in storage.list(folder):
        match = _RUN.fullmatch(entry.name)
        if match is not None:
            run = Run(match["instant"], match["origin"], int(match["number"]), entry.size)
            present[entry.name] = run
        elif _MANIFEST.fullmatch(entry.name):
            manifests.append(entry.name)
    manifest = _read_manifest(storage, folder, max(manifests)) if manifests else Manifest()
    folded, listed = set(manifest.folded), {name: place for place, name in enumerate(manifest.runs)}
    # An output of a fold that another fold beat to the manifest says nothing new.
    counted = [run for name, run in present.items() if name in listed or (name not in folded and run.origin != "fold")]
    # A fold is younger than what it left out, and older than what came since, whatever instant it is called by.
    runs = tuple(sorted(counted, key=lambda run: (listed.get(run.name, len(listed)), run)))
    idle = [name for name in present if name in folded or (name not in listed and present[name].origin == "fold")]
    return RunFolder(manifest=manifest, runs=runs, idle=(*idle, *sorted(manifests)[:-1]))


def _read_manifest(storage: Storage, folder: str, name: str) -> Manifest:
    path = f"{folder}/{name}"
    content = storage.read(path)
    what = "a manifest of bitmap runs"
    document = decode_json_object(content, what, path)
    number = int(name.removeprefix("manifest_").removesuffix(".json"))
    runs, folded = document.get("runs"), document.get("folded")
    for names in (runs, folded):
        if not isinstance(names, list) or not all(isinstance(item, str) and _RUN.fullmatch(item) for item in names):
            raise CorruptFileError(path, 0, what, content[:40].decode("utf-8", "replace"))
    return Manifest(number=number, runs=tuple(runs or ()), folded=tuple(folded or ()))


def publish_manifest(storage: Storage, base_path: str, manifest: Manifest) -> bool:
    """Put a manifest in place; False where another one of that number came first."""
    body = json.dumps({"runs": list(manifest.runs), "folded": list(manifest.folded)}, indent=1).encode()
    try:
        storage.create(f"{bitmap_folder(base_path)}/manifest_{manifest.number:010d}.json", body)
    except FileExistsError:
        return False
    return True


def publish_without(storage: Storage, base_path: str, found: RunFolder, gone: Collection[str]) -> bool:
    """Publish that some runs do not count any more; False where another manifest came first."""
    kept = tuple(name for name in found.manifest.runs if name not in gone)
    folded = tuple(sorted({*gone, *(name for name in found.idle if _RUN.fullmatch(name))}))
    return publish_manifest(storage, base_path, Manifest(number=found.manifest.number + 1, runs=kept, folded=folded))


def encode_run(files: Sequence[FileBitmaps]) -> bytes:
    """The bytes of a run over some base files; the same whatever order they come in.

    Memory: the bitmaps of the files, and the run.
    """
    ordered = sorted(files, key=lambda item: (item.partition, item.file_id, item.base_file))
    coverage = sorted(record_cells(_coverage_items(ordered)), key=_BY_KEY)
    entries = sorted(
        chain.from_iterable(column_entries(item, column) for item in ordered for column in item.columns), key=_BY_KEY
    )
    # No key of a bitmap comes before one of coverage.
    return _encoded(chain(coverage, bitmap_cells(entries)))


def encode_cells(cells: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A run of cells in any order."""
    return _encoded(sorted(cells, key=_BY_KEY))


def _encoded(cells: Iterable[tuple[bytes, bytes]]) -> bytes:
    return write_hfile(cells, compression="gz", info={"schema": bitmap_schema_json().encode()})


def record_cells(items: Iterable[tuple[str, BitmapRecord]]) -> list[tuple[bytes, bytes]]:
    """Cells of records by key."""
    keyed = list(items)
    values = encode_bitmap_records(record for _, record in keyed)
    return [(key.encode(), value) for (key, _), value in zip(keyed, values, strict=True)]


def _coverage_items(files: Sequence[FileBitmaps]) -> Iterable[tuple[str, BitmapRecord]]:
    names = sorted({column.column for item in files for column in item.columns})
    for block, start in enumerate(range(0, len(files), FILES_PER_BLOCK)):
        part = files[start : start + FILES_PER_BLOCK]
        yield files_key(block), BitmapRecord(coverage=encode_block(files_block(part)))
        for name in names:
            yield coverage_key(name, block), BitmapRecord(coverage=encode_block(column_block(name, part)))


def column_entries(item: FileBitmaps, column: ColumnBitmaps) -> list[BitmapEntry]:
    """The bitmaps of one column of one base file, with their keys."""
    null = [(column.null_bitmap, column.nulls)] if column.nulls else []
    parts = escape_all(pa.array([*column.texts, *(None for _ in null)], pa.string())).to_pylist()
    prefix, suffix = column_prefix(column.column), f"${group_suffix(item.partition, item.file_id)}"
    bitmaps = chain(zip(column.bitmaps, column.cardinalities, strict=True), null)
    return [
        (f"{prefix}{part}{suffix}".encode(), bitmap, cardinality, item.base_file)
        for part, (bitmap, cardinality) in zip(parts, bitmaps, strict=True)
    ]


def write_run(storage: Storage, base_path: str, run: Run, content: bytes) -> Run:
    """Write a run; one that is there already has the same content, since names tell their maker."""
    path = f"{bitmap_folder(base_path)}/{run.name}"
    try:
        storage.create(path, content)
    except FileExistsError:
        storage.write(path, content)
    return Run(run.instant, run.origin, run.number, len(content))


def delete_runs(storage: Storage, base_path: str, names: Iterable[str]) -> None:
    """Delete runs, and manifests that are no longer in force; other names are left alone."""
    for name in names:
        if _RUN.fullmatch(name) or _MANIFEST.fullmatch(name):
            storage.delete(f"{bitmap_folder(base_path)}/{name}")


def remove_runs_of(storage: Storage, base_path: str, instant: str) -> None:
    """Delete the runs of a commit that failed. Nobody reads them: their base files are in no slice.

    A fold may have listed them in the manifest, or be about to: the next manifest names them as folded, so that it
    lists nothing that is not there and the fold, which finds its number taken, publishes nothing.
    """
    gone = [entry.name for entry in storage.list(bitmap_folder(base_path)) if _is_run_of(entry.name, instant)]
    if gone:
        with contextlib.suppress(CorruptFileError):  # A damaged manifest is for validate_index to repair.
            while not publish_without(storage, base_path, list_runs(storage, base_path), gone):
                continue  # A fold came first.
    delete_runs(storage, base_path, gone)


def _is_run_of(name: str, commit: str) -> bool:
    match = _RUN.fullmatch(name)
    return match is not None and match["instant"] == commit and match["origin"] == "commit"
