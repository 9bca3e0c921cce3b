"""The bitmap index on storage: immutable HFiles, its *runs*, with bitmaps and coverage of base files, and a manifest.

Runs are those of an LSM tree, in ``.hoodie/metadata/bitmap_index``.

A writer adds a run before it completes its commit and never changes one. An entry of a base file counts only if that
file is its slice's base file, so a run of a commit that failed, or was rolled back, counts for nobody. Those runs count
that the newest *manifest* lists, and those in the folder that it neither lists nor names as compacted. A compaction
writes its outputs, then ``manifest_<number>.json`` by put-if-absent; of two at once one wins. The runs that it took
stay for a reader that is under way and go with the next compaction.

Coverage is the part of a run without its bitmaps, as Arrow streams. A *files* block lists base files, once for all
columns. A column's block has an entry for each file of the files block of the same number, in its order. Log files are
listed with them (:mod:`lakedex.index.bitmap.log_coverage`); they have no bitmaps.

    ============  ====================  ============================================================
    files block   type                  content
    ============  ====================  ============================================================
    partition     dictionary of string  partition path
    file_id       string                file group
    base_file     string                the base file that this run speaks of
    rows          int64                 its rows
    group_rows    list of int64         rows of each row group
    group_start   list of int64         byte in the file where the row group begins
    group_size    list of int64         bytes of the row group
    ============  ====================  ============================================================

    ============  ====================  ============================================================
    column block  type                  content
    ============  ====================  ============================================================
    state         int8                  0 no entry, 1 indexed, from 2 on not indexed: why
    kind          dictionary of string  type of the texts
    nulls         int64                 rows with null
    texts         list of dictionary    distinct values
    counts        list of int64         rows of each value
    groups        list of int64         row groups that hold each value
    null_groups   int64                 row groups that hold null
    ============  ====================  ============================================================

The bitmaps of one file come back with the result of the task that made them. Large ones are spilled as an Arrow stream
into the temp folder of the instant, and only the path and its SHA-256 come back. Runs are written from both, in batches
of up to ``RUN_BYTES``: by the driver if that is one batch of small ones, else by one engine task a batch.

Memory: the driver holds up to ``RUN_BYTES`` of bitmaps, whatever the number of files; a task one batch and its run.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.arrow_stream import unpacked_size
from lakedex.codec.hfile.blocks import Budget
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.metadata_record import (
    BitmapEntry,
    BitmapRecord,
    bitmap_cells,
    bitmap_schema_json,
    encode_bitmap_records,
)
from lakedex.codec.properties import decode_json_object
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.builder import INDEXED, NOT_INDEXED, ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.keys import column_prefix, coverage_key, escape_all, files_key, group_suffix, logs_key
from lakedex.index.bitmap.log_coverage import logs_block
from lakedex.io.storage import FileInfo, Storage, TableFiles
from lakedex.io.task_output import Spilled

__all__ = [
    "BITMAP_FOLDER",
    "BITMAP_INDEX",
    "COLUMN_SCHEMA",
    "FILES_SCHEMA",
    "IS_INDEXED",
    "NO_ENTRY",
    "RUN_BYTES",
    "Manifest",
    "Run",
    "RunFolder",
    "RunTasks",
    "TaskBitmaps",
    "column_block",
    "column_entries",
    "decode_block",
    "delete_runs",
    "encode_block",
    "encode_cells",
    "encode_run",
    "files_block",
    "inline_limit",
    "list_runs",
    "listed_runs",
    "publish_manifest",
    "publish_without",
    "record_cells",
    "remove_runs_of",
    "run_name",
    "spill_bitmaps",
    "state_text",
    "write_run",
    "write_runs",
]


_NAME = pa.dictionary(pa.int32(), pa.string())


FILES_SCHEMA = pa.schema(
    [
        ("partition", _NAME),
        ("file_id", pa.string()),
        ("base_file", pa.string()),
        ("rows", pa.int64()),
        ("group_rows", pa.list_(pa.int64())),
        ("group_start", pa.list_(pa.int64())),
        ("group_size", pa.list_(pa.int64())),
    ]
)


COLUMN_SCHEMA = pa.schema(
    [
        ("state", pa.int8()),
        ("kind", _NAME),
        ("nulls", pa.int64()),
        ("texts", pa.list_(_NAME)),
        ("counts", pa.list_(pa.int64())),
        ("groups", pa.list_(pa.int64())),
        ("null_groups", pa.int64()),
    ]
)


NO_ENTRY, IS_INDEXED = 0, 1


_STATES = (INDEXED, *NOT_INDEXED)


def state_text(state: int) -> str:
    """Why a column is not indexed in a file, from a block's state."""
    return _STATES[state - 1] if 0 < state <= len(_STATES) else "no entry"


def files_block(files: Sequence[FileBitmaps]) -> pa.Table:
    """The files block of some files."""
    return pa.table(
        [
            pa.array([item.partition for item in files], pa.string()).dictionary_encode().cast(_NAME),
            pa.array([item.file_id for item in files], pa.string()),
            pa.array([item.base_file for item in files], pa.string()),
            pa.array([item.rows for item in files], pa.int64()),
            pa.array([[group.rows for group in item.row_groups] for item in files], pa.list_(pa.int64())),
            pa.array([[group.start for group in item.row_groups] for item in files], pa.list_(pa.int64())),
            pa.array([[group.size for group in item.row_groups] for item in files], pa.list_(pa.int64())),
        ],
        schema=FILES_SCHEMA,
    )


def column_block(name: str, files: Sequence[FileBitmaps]) -> pa.Table:
    """A column's block over some files."""
    found = [next((column for column in item.columns if column.column == name), None) for item in files]
    texts = [[] if column is None else column.texts for column in found]
    flat = pa.array([text for own in texts for text in own], pa.string()).dictionary_encode()
    offsets = pa.array([0, *_ends(texts)], pa.int32())
    return pa.table(
        [
            pa.array([_state(column) for column in found], pa.int8()),
            pa.array(["" if column is None else column.kind for column in found], pa.string()).dictionary_encode(),
            pa.array([0 if column is None else column.nulls for column in found], pa.int64()),
            pa.ListArray.from_arrays(offsets, flat),
            pa.array([[] if column is None else column.cardinalities for column in found], pa.list_(pa.int64())),
            pa.array([[] if column is None else column.groups for column in found], pa.list_(pa.int64())),
            pa.array([0 if column is None else column.null_groups for column in found], pa.int64()),
        ],
        schema=COLUMN_SCHEMA,
    )


def _state(column: ColumnBitmaps | None) -> int:
    return NO_ENTRY if column is None else _STATES.index(column.state) + 1


def _ends(lists: Sequence[Sequence[Any]]) -> list[int]:
    ends, total = [], 0
    for own in lists:
        total += len(own)
        ends.append(total)
    return ends


def encode_block(block: pa.Table) -> bytes:
    """An Arrow stream, its buffers packed with zstd."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", metadata_version=pa.ipc.MetadataVersion.V5, use_threads=False)
    with pa.ipc.new_stream(sink, block.schema, options=options) as writer:
        writer.write_table(block.combine_chunks())
    return bytes(sink.getvalue())


def decode_block(data: bytes, schema: pa.Schema, path: str) -> pa.Table:
    """A block from its stream.

    Raises:
        CorruptFileError: damaged bytes, columns of another block, or more than a block ever unpacks to.
    """
    try:
        Budget().spend(len(data), unpacked_size(data), path, 0)
        with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            # Before any name or row is looked at: damaged ones are not even text.
            fits = reader.schema.equals(schema)
            table = reader.read_all() if fits else None
        if table is not None:
            table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CorruptFileError(path, 0, "a coverage block", _first_line(error)) from error
    if table is None:
        raise CorruptFileError(path, 0, f"a coverage block with {', '.join(schema.names)}", "another schema")
    whole = table.combine_chunks()
    lists = [name for name in schema.names if pa.types.is_list(schema.field(name).type)]
    lengths = [pc.list_value_length(whole.column(name)) for name in lists]
    if any(column.null_count for column in whole.columns) or any(not own.equals(lengths[0]) for own in lengths[1:]):
        raise CorruptFileError(path, 0, f"{', '.join(lists)} of the same lengths, and no nulls", "others")
    return whole


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


BITMAP_INDEX = "bitmap_index"
"""Folder below ``.hoodie/metadata``, as RFC-92 has it. Java takes it for no partition of its metadata table: it has no
partition metafile, and ``hoodie.table.metadata.partitions`` does not list it."""


FILES_PER_BLOCK = 4096


_LOOKS = 4


_BY_KEY = itemgetter(0)


_RUN = re.compile(r"run_(?P<instant>[0-9]{1,40})_(?P<origin>commit|build|fold)_(?P<number>[0-9]{1,60})\.hfile")


_MANIFEST = re.compile(r"manifest_([0-9]{10})\.json")


BITMAP_FOLDER = f".hoodie/metadata/{BITMAP_INDEX}"
"""The index's folder."""


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
    """The runs that count, as a compaction published them.

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


def list_runs(files: TableFiles) -> RunFolder:
    """Look at the folder: one listing, and one read where a fold was published.

    Raises:
        CorruptFileError: a damaged manifest.
    """
    for _ in range(_LOOKS):
        try:
            return _list_once(files)
        except FileNotFoundError:
            continue  # Folds came in between, and the second of them removed the manifest.
    return _list_once(files)


def listed_runs(files: TableFiles, entries: Iterable[FileInfo], known: Manifest | None) -> RunFolder:
    """The same by a listing that was made with that of the metadata table; the folder is listed again if it is old.

    Args:
        files: the table's files.
        entries: the listing.
        known: a manifest that was read before, which is not read again.
    """
    try:
        return _list_once(files, entries, known)
    except FileNotFoundError:
        return list_runs(files)


def _list_once(
    files: TableFiles, entries: Iterable[FileInfo] | None = None, known: Manifest | None = None
) -> RunFolder:
    folder = files.path(BITMAP_FOLDER)
    present: dict[str, Run] = {}
    manifests: list[str] = []
    for entry in files.storage.list(folder) if entries is None else entries:
        match = _RUN.fullmatch(entry.name)
        if match is not None:
            run = Run(match["instant"], match["origin"], int(match["number"]), entry.size)
            present[entry.name] = run
        elif _MANIFEST.fullmatch(entry.name):
            manifests.append(entry.name)
    manifest = known if known is not None and manifests and _number_of(max(manifests)) == known.number else None
    if manifest is None:
        manifest = _read_manifest(files.storage, folder, max(manifests)) if manifests else Manifest()
    folded, listed = set(manifest.folded), {name: place for place, name in enumerate(manifest.runs)}
    # An output of a fold that another fold beat to the manifest says nothing new.
    counted = [run for name, run in present.items() if name in listed or (name not in folded and run.origin != "fold")]
    # A fold is younger than what it left out, and older than what came since, whatever instant it is called by.
    runs = tuple(sorted(counted, key=lambda run: (listed.get(run.name, len(listed)), run)))
    idle = [name for name in present if name in folded or (name not in listed and present[name].origin == "fold")]
    return RunFolder(manifest=manifest, runs=runs, idle=(*idle, *sorted(manifests)[:-1]))


def _number_of(manifest: str) -> int:
    return int(manifest.removeprefix("manifest_").removesuffix(".json"))


def _read_manifest(storage: Storage, folder: str, name: str) -> Manifest:
    path = f"{folder}/{name}"
    content = storage.read(path)
    what = "a manifest of bitmap runs"
    document = decode_json_object(content, what, path)
    number = _number_of(name)
    runs, folded = document.get("runs"), document.get("folded")
    for names in (runs, folded):
        if not isinstance(names, list) or not all(isinstance(item, str) and _RUN.fullmatch(item) for item in names):
            raise CorruptFileError(path, 0, what, content[:40].decode("utf-8", "replace"))
    return Manifest(number=number, runs=tuple(runs or ()), folded=tuple(folded or ()))


def publish_manifest(files: TableFiles, manifest: Manifest) -> bool:
    """Put a manifest in place; False where another one of that number came first."""
    body = json.dumps({"runs": list(manifest.runs), "folded": list(manifest.folded)}, indent=1).encode()
    try:
        files.storage.create(files.path(BITMAP_FOLDER, f"manifest_{manifest.number:010d}.json"), body)
    except FileExistsError:
        return False
    return True


def publish_without(files: TableFiles, found: RunFolder, gone: Collection[str]) -> bool:
    """Publish that some runs do not count any more; False where another manifest came first."""
    kept = tuple(name for name in found.manifest.runs if name not in gone)
    folded = tuple(sorted({*gone, *(name for name in found.idle if _RUN.fullmatch(name))}))
    return publish_manifest(files, Manifest(number=found.manifest.number + 1, runs=kept, folded=folded))


def encode_run(files: Sequence[FileBitmaps]) -> bytes:
    """The bytes of a run over some base files; the same whatever order they come in.

    Memory: the bitmaps of the files, and the run.
    """
    ordered = sorted(files, key=lambda item: (item.partition, item.file_id, item.base_file))
    coverage = sorted(record_cells(coverage_records(ordered)), key=_BY_KEY)
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


def coverage_records(files: Sequence[FileBitmaps]) -> Iterable[tuple[str, BitmapRecord]]:
    """The records of the coverage of files, by key."""
    names = sorted({column.column for item in files for column in item.columns})
    for block, start in enumerate(range(0, len(files), FILES_PER_BLOCK)):
        part = files[start : start + FILES_PER_BLOCK]
        yield files_key(block), BitmapRecord(coverage=encode_block(files_block(part)))
        logs = logs_block([item.log for item in part])
        if logs is not None:
            yield logs_key(block), BitmapRecord(coverage=encode_block(logs))
        for name in names:
            yield coverage_key(name, block), BitmapRecord(coverage=encode_block(column_block(name, part)))


def column_entries(item: FileBitmaps, column: ColumnBitmaps) -> list[BitmapEntry]:
    """The bitmaps of one column of one base file, with their keys; none of a log file."""
    if item.log is not None:
        return []
    null = [(column.null_bitmap, column.nulls)] if column.nulls else []
    parts = escape_all(pa.array([*column.texts, *(None for _ in null)], pa.string())).to_pylist()
    prefix, suffix = column_prefix(column.column), f"${group_suffix(item.partition, item.file_id)}"
    bitmaps = chain(zip(column.bitmaps, column.cardinalities, strict=True), null)
    return [
        (f"{prefix}{part}{suffix}".encode(), bitmap, cardinality, item.base_file)
        for part, (bitmap, cardinality) in zip(parts, bitmaps, strict=True)
    ]


def write_run(files: TableFiles, run: Run, content: bytes) -> Run:
    """Write a run; one that is there already has the same content, since names tell their maker."""
    path = files.path(BITMAP_FOLDER, run.name)
    try:
        files.storage.create(path, content)
    except FileExistsError:
        files.storage.write(path, content)
    return Run(run.instant, run.origin, run.number, len(content))


def delete_runs(files: TableFiles, names: Iterable[str]) -> None:
    """Delete runs, and manifests that are no longer in force; other names are left alone."""
    for name in names:
        if _RUN.fullmatch(name) or _MANIFEST.fullmatch(name):
            files.storage.delete(files.path(BITMAP_FOLDER, name))


def remove_runs_of(files: TableFiles, instant: str) -> None:
    """Delete the runs of a commit that failed. Nobody reads them: their base files are in no slice.

    A fold may have listed them in the manifest, or be about to: the next manifest names them as folded, so that it
    lists nothing that is not there and the fold, which finds its number taken, publishes nothing.
    """
    gone = [entry.name for entry in files.storage.list(files.path(BITMAP_FOLDER)) if _is_run_of(entry.name, instant)]
    if gone:
        with contextlib.suppress(CorruptFileError):  # A damaged manifest is for validate_index to repair.
            while not publish_without(files, list_runs(files), gone):
                continue  # A fold came first.
    delete_runs(files, gone)


def _is_run_of(name: str, commit: str) -> bool:
    match = _RUN.fullmatch(name)
    return match is not None and match["instant"] == commit and match["origin"] == "commit"


RUN_BYTES = 64 * 1024 * 1024


_SPILLED = pa.schema(
    [
        ("column", pa.string()),
        ("state", pa.string()),
        ("kind", pa.string()),
        ("texts", pa.list_(pa.string())),
        ("cardinalities", pa.list_(pa.int64())),
        ("groups", pa.list_(pa.int64())),
        ("bitmaps", pa.list_(pa.large_binary())),
        ("nulls", pa.int64()),
        ("null_groups", pa.int64()),
        ("null_bitmap", pa.binary()),
    ]
)
"""The fields of :class:`ColumnBitmaps`."""


RunTasks = Callable[[Callable[["_Bunch"], Run], Sequence["_Bunch"], str], list[Run]]
"""An engine's ``run``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBitmaps:
    """The bitmaps of one file, or where they lie.

    Attributes:
        size: about the bytes that they take.
        entries: bitmaps.
        not_indexed: columns that are not indexed in the file, and why.
        bitmaps: themselves; without columns if those are in a file.
        spilled: the columns, None if they are in ``bitmaps``.
        seconds: what making them took.
    """

    size: int
    entries: int
    not_indexed: tuple[tuple[str, str], ...]
    bitmaps: FileBitmaps
    spilled: Spilled | None
    seconds: float

    def load(self, storage: Storage) -> FileBitmaps:
        """The bitmaps.

        Raises:
            CorruptFileError: Somebody changed what the task had written.
        """
        if self.spilled is None:
            return self.bitmaps
        return replace(self.bitmaps, columns=_spilled_columns(self.spilled.read(storage)))


def inline_limit(files: int, most: int) -> int:
    """Size up to which bitmaps of one file of ``files`` come back with the result."""
    return min(most, RUN_BYTES // max(files, 1))


def spill_bitmaps(
    found: FileBitmaps, spill: Callable[[bytes], Spilled], limit: int, seconds: float = 0.0
) -> TaskBitmaps:
    """Bitmaps as a task's result; those that take more than ``limit`` bytes are spilled."""
    size = found.size
    spilled = spill(_spill_bytes(found.columns)) if size > limit else None
    return TaskBitmaps(
        size=size,
        entries=sum(len(column.texts) + bool(column.nulls) for column in found.columns),
        not_indexed=tuple((column.column, column.state) for column in found.columns if column.state != INDEXED),
        bitmaps=found if spilled is None else replace(found, columns=()),
        spilled=spilled,
        seconds=seconds,
    )


def _spill_bytes(columns: Sequence[ColumnBitmaps]) -> bytes:
    table = pa.table([[getattr(own, name) for own in columns] for name in _SPILLED.names], schema=_SPILLED)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _spilled_columns(content: bytes) -> tuple[ColumnBitmaps, ...]:
    rows: list[dict[str, Any]] = pa.ipc.open_stream(content).read_all().to_pylist()
    for row in rows:
        row.update([(name, tuple(own)) for name, own in row.items() if isinstance(own, list)])
    return tuple(ColumnBitmaps(**row) for row in rows)


@dataclass(frozen=True, slots=True)
class _Bunch:
    """The parts that one run is written from."""

    files: TableFiles
    run: Run
    held: tuple[TaskBitmaps, ...]


def _write_bunch(bunch: _Bunch) -> Run:
    content = encode_run([item.load(bunch.files.storage) for item in bunch.held])
    return write_run(bunch.files, bunch.run, content)


def write_runs(files: TableFiles, first: Run, held: Sequence[TaskBitmaps], run: RunTasks, label: str = "") -> list[Run]:
    """Write the bitmaps of some files as runs.

    Args:
        files: the table's files.
        first: instant, origin and number of the first run; the others count on from it.
        held: the bitmaps.
        run: an engine's ``run``.
        label: what the engine calls the work.
    """
    bunches = [
        _Bunch(files, Run(first.instant, first.origin, first.number + number), tuple(part))
        for number, part in enumerate(_bunched(held))
    ]
    small = len(bunches) <= 1 and all(item.spilled is None for item in held)
    return [_write_bunch(bunch) for bunch in bunches] if small else run(_write_bunch, bunches, label)


def _bunched(held: Sequence[TaskBitmaps]) -> Iterator[list[TaskBitmaps]]:
    part: list[TaskBitmaps] = []
    size = 0
    for item in held:
        if part and size + item.size > RUN_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part
