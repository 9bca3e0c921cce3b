"""Run compaction: many runs become few, so that a table after a thousand small commits reads as after one.

Tiers by size: the newest runs are compacted as long as the next older one is not larger than twice the runs taken
already, or all are small. So a record is copied some log2 times, and there are about as many runs. A compaction keeps
entries of files of current slices only: a look back in time, which alone reads older ones, scans.

It runs after a commit, outside of the table lock. Runs are listed first and the timeline after them: so a run's commit
is on the timeline, or was rolled back, or was archived, and a run whose commit is under way is left alone. Of two
compactions at once one publishes; the next one removes the outputs of the other. Where one of the runs alone has
entries of current base files it stays as it is, and the manifest names the others as compacted.

Memory: the bitmaps of one shard, packed; a shard is a share of the columns and files, about ``SHARD_BYTES``.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.metadata_record import BitmapRecord, bitmap_schema_json, encode_bitmap_records
from lakedex.index.bitmap.definitions import indexed_limits, read_bitmap_definitions
from lakedex.index.bitmap.keys import coverage_key, coverage_prefix, files_key, group_suffix, logs_key, value_prefix
from lakedex.index.bitmap.loaded_index import read_files_block, read_logs_blocks, run_records, runs_of
from lakedex.index.bitmap.log_coverage import CoveredLog, covered_logs, is_log, logs_block
from lakedex.index.bitmap.run_files import (
    BITMAP_FOLDER,
    COLUMN_SCHEMA,
    FILES_PER_BLOCK,
    FILES_SCHEMA,
    NO_ENTRY,
    Manifest,
    Run,
    RunFolder,
    decode_block,
    delete_runs,
    encode_block,
    encode_cells,
    list_runs,
    publish_manifest,
    record_cells,
)
from lakedex.io.storage import TableFiles
from lakedex.metadata.files import open_hfile
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import Timeline

__all__ = [
    "CompactShard",
    "CompactedRuns",
    "compact_runs",
    "only_live",
    "publish_compaction",
    "runs_to_compact",
    "settled",
    "shards",
]


SMALL, SMALL_ON_DISK = 4 * 1024 * 1024, 64 * 1024
"""A run up to this size is always put together with newer ones, in bytes: where requests are slow, one more of them
takes longer than to read and write such a run; on a local disk it does not."""


SHARD_BYTES = 128 * 1024 * 1024


def runs_to_compact(folder: RunFolder, is_settled: Callable[[Run], bool], least: int, small: int = SMALL) -> list[Run]:
    """The runs that the next fold takes, oldest first; none where it is not yet time.

    Args:
        folder: the runs.
        is_settled: whether a run's commit is decided; others stay as they are.
        least: number of runs from which it is time.
        small: a run up to this size, in bytes, is taken in any case.
    """
    taken: list[Run] = []
    total = 0
    for run in reversed(folder.runs):
        if not is_settled(run):
            continue
        if run.size > max(2 * total, small):
            break
        taken.append(run)
        total += run.size
    return taken[::-1] if len(taken) >= least else []


def only_live(files: TableFiles, runs: Sequence[Run], live: Collection[str]) -> Run | None:
    """The only one of some runs that speaks of live base files, if they are at least half of what it speaks of.

    So it is where each commit rewrites the same files. What the fold would write is in it already. Files blocks are
    read, from the newest run on until a second one has live files.

    Raises:
        CorruptFileError: damaged bytes.
    """
    found = None
    for run in reversed(runs):
        path = files.path(BITMAP_FOLDER, run.name)
        blocks = read_files_block(open_hfile(files.storage, path, run.size), path)
        names = [name for block in blocks for name in block.column("base_file").to_pylist()]
        alive = sum(name in live for name in names)
        if alive and (found is not None or 2 * alive < len(names)):
            return None
        found = run if alive else found
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactShard:
    """Task: one output of a fold. Same runs and base files give the same bytes.

    Attributes:
        runs: what is put together, oldest first.
        live: names of the base files and log files that still count.
        columns: of these columns.
        part, parts: of the file groups that fall to number ``part`` of ``parts``.
    """

    files: TableFiles
    runs: tuple[Run, ...]
    live: frozenset[str]
    columns: tuple[str, ...]
    part: int = 0
    parts: int = 1

    def __call__(self, target: Run) -> Run:
        """Write the output under the name of ``target``; a size of 0 where there is nothing to write."""
        cells = self._cells()
        if not cells:
            return Run(target.instant, target.origin, target.number, 0)
        content = encode_cells(cells)
        path = self.files.path(BITMAP_FOLDER, target.name)
        self.files.storage.write(path, content)
        return Run(target.instant, target.origin, target.number, len(content))

    def _cells(self) -> list[tuple[bytes, bytes]]:
        sources = [_Source.open(self.files, run) for run in self.runs]
        entries = {name: self._entries(name, sources) for name in self.columns}
        files = sorted({key for found in entries.values() for key in found})
        items: list[tuple[str, BitmapRecord]] = []
        kept: list[tuple[bytes, bytes]] = []
        for block, start in enumerate(range(0, len(files), FILES_PER_BLOCK)):
            own = files[start : start + FILES_PER_BLOCK]
            places = _newest(own, entries)
            table = _taken([(sources[number].files[at], row) for number, at, row in places], FILES_SCHEMA)
            items.append((files_key(block), BitmapRecord(coverage=encode_block(table))))
            logs = logs_block([sources[number].log(at, row) for number, at, row in places])
            if logs is not None:
                items.append((logs_key(block), BitmapRecord(coverage=encode_block(logs))))
            for name, found in entries.items():
                table = _column_table(name, own, found, sources)
                items.append((coverage_key(name, block), BitmapRecord(coverage=encode_block(table))))
        for name, found in entries.items():
            kept += _bitmap_cells(name, found, sources)
        if not files:
            return []
        return [*record_cells(items), *kept]

    def _entries(self, name: str, sources: Sequence[_Source]) -> dict[_FileKey, tuple[int, int, int]]:
        """Newest entry of each live file for a column: (source, block, row)."""
        found: dict[_FileKey, tuple[int, int, int]] = {}
        for number in range(len(sources) - 1, -1, -1):
            source = sources[number]
            for block, table in source.column(name).items():
                states = table.column("state").to_numpy()
                for row in np.flatnonzero(states != NO_ENTRY).tolist():
                    key = source.keys[block][row]
                    if key[2] in self.live and zlib.crc32(key[1].encode()) % self.parts == self.part:
                        found.setdefault(key, (number, block, row))
        return found


_FileKey = tuple[str, str, str]
"""Partition, file id and name of a base file."""


@dataclass(slots=True)
class _Source:
    """A run that is read to be folded."""

    path: str
    reader: HFileReader
    files: list[pa.Table]
    keys: list[list[_FileKey]]
    _logs: dict[int, list[CoveredLog | None]]
    _columns: dict[str, dict[int, pa.Table]]

    @classmethod
    def open(cls, files: TableFiles, run: Run) -> _Source:
        path = files.path(BITMAP_FOLDER, run.name)
        reader = open_hfile(files.storage, path, run.size)
        blocks = read_files_block(reader, path)
        names = ("partition", "file_id", "base_file")
        keys = [list(zip(*(table.column(name).to_pylist() for name in names), strict=True)) for table in blocks]
        logs = {at: covered_logs(block) for at, block in read_logs_blocks(reader, blocks, path).items()}
        return cls(path, reader, blocks, keys, logs, {})

    def log(self, block: int, row: int) -> CoveredLog | None:
        """The entry of a log file, by its place in the files blocks; None of a base file."""
        return self._logs[block][row] if block in self._logs else None

    def column(self, name: str) -> dict[int, pa.Table]:
        """The column's blocks by number."""
        if name not in self._columns:
            cells = list(self.reader.scan(coverage_prefix(name).encode()))
            records = run_records(self.reader, [value for _, value in cells], self.path)
            self._columns[name] = {
                int(key.decode().rsplit("$", 1)[1]): decode_block(record.coverage or b"", COLUMN_SCHEMA, self.path)
                for (key, _), record in zip(cells, records, strict=True)
            }
        return self._columns[name]

    def cells(self, keys: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """Cells of bitmaps, as they are where the run has this release's schema."""
        found = self.reader.get_many(keys)
        if self.reader.info.get("schema") == bitmap_schema_json().encode():
            return found.items()
        records = run_records(self.reader, list(found.values()), self.path)
        return zip(found, encode_bitmap_records(records), strict=True)


def _newest(
    own: Sequence[_FileKey], entries: dict[str, dict[_FileKey, tuple[int, int, int]]]
) -> list[tuple[int, int, int]]:
    """The place of each file in the newest source: number of the source, block, row."""
    return [max(found[key] for found in entries.values() if key in found) for key in own]


def _column_table(
    name: str, own: Sequence[_FileKey], found: dict[_FileKey, tuple[int, int, int]], sources: Sequence[_Source]
) -> pa.Table:
    nothing = pa.Table.from_pylist([_NOTHING], COLUMN_SCHEMA)
    places = [found.get(key) for key in own]
    return _taken(
        [(nothing, 0) if p is None else (sources[p[0]].column(name)[p[1]], p[2]) for p in places], COLUMN_SCHEMA
    )


_NOTHING = {"state": NO_ENTRY, "kind": "", "nulls": 0, "texts": [], "counts": [], "groups": [], "null_groups": 0}


def _taken(rows: Sequence[tuple[pa.Table, int]], schema: pa.Schema) -> pa.Table:
    """Rows of several tables, in their order, with dictionaries of their own."""
    tables = list({id(table): table for table, _ in rows}.values())
    first, starts = 0, {}
    for table in tables:
        starts[id(table)] = first
        first += table.num_rows
    plain = pa.concat_tables([table.cast(_plain(schema)) for table in tables])
    taken = plain.take(pa.array([starts[id(table)] + row for table, row in rows], pa.int64())).combine_chunks()
    columns = [_encoded(column, field.type) for column, field in zip(taken.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return kind.value_type
        return pa.list_(plain(kind.value_type)) if pa.types.is_list(kind) else kind

    return pa.schema([field.with_type(plain(field.type)) for field in schema])


def _encoded(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    array = column.combine_chunks()
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(kind):
        return array.dictionary_encode()
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        return pa.ListArray.from_arrays(array.offsets, array.values.dictionary_encode())
    return array


def _bitmap_cells(
    name: str, found: dict[_FileKey, tuple[int, int, int]], sources: Sequence[_Source]
) -> list[tuple[bytes, bytes]]:
    wanted: dict[int, list[bytes]] = {}
    texts: dict[tuple[int, int], tuple[list[list[str]], list[int]]] = {}
    for (partition, file_id, file), (number, block, row) in found.items():
        if is_log(file):
            continue
        if (number, block) not in texts:
            table = sources[number].column(name)[block]
            texts[number, block] = table.column("texts").to_pylist(), table.column("nulls").to_pylist()
        own, nulls = texts[number, block]
        group = group_suffix(partition, file_id)
        values = [*own[row], *([None] if nulls[row] else [])]
        keys = [f"{value_prefix(name, value)}{group}".encode() for value in values]
        wanted.setdefault(number, []).extend(keys)
    return [cell for number, keys in wanted.items() for cell in sources[number].cells(keys)]


def shards(
    files: TableFiles, runs: Sequence[Run], live: Collection[str], columns: Collection[str]
) -> list[CompactShard]:
    """The tasks of a fold: one for all of a small index, else one or more a column. Others' columns are left out."""
    total = sum(run.size for run in runs)
    common = (files, tuple(runs), frozenset(live))
    if total <= SHARD_BYTES:
        return [_shard(common, tuple(sorted(columns)), 0, 1)]
    parts = max(1, -(-total // (SHARD_BYTES * max(len(columns), 1))))
    return [_shard(common, (name,), part, parts) for name in sorted(columns) for part in range(parts)]


def _shard(
    common: tuple[TableFiles, tuple[Run, ...], frozenset[str]], columns: tuple[str, ...], part: int, parts: int
) -> CompactShard:
    files, runs, live = common
    return CompactShard(files=files, runs=runs, live=live, columns=columns, part=part, parts=parts)


@dataclass(frozen=True, slots=True)
class CompactedRuns:
    """A compaction: the runs that it took, the bytes that it wrote, and its seconds."""

    runs: int = 0
    size: int = 0
    seconds: float = 0.0


def compact_runs(handle: TableContext, instant: str, before: Snapshot | None = None) -> CompactedRuns:
    """Fold what is due.

    Args:
        handle: the table.
        instant: of the commit or build that folds: what it writes is called by it, so it may fold once.
        before: the table before a commit, which has added one run or none.
    """
    started = time.perf_counter()
    listed = before is not None and before.metadata.listing is not None
    if before is not None and listed and len(runs_of(before).runs) + 1 < handle.limits.compact_at:
        return CompactedRuns()
    files = handle.files
    columns = indexed_limits(read_bitmap_definitions(files))
    folder = list_runs(files) if columns else None
    if folder is None or len(folder.runs) < handle.limits.compact_at:
        return CompactedRuns()
    snapshot = handle.snapshot()
    is_settled = settled(snapshot.timeline)
    small = SMALL if files.has_latency else SMALL_ON_DISK
    taken = runs_to_compact(folder, is_settled, handle.limits.compact_at, small)
    if not taken:
        return CompactedRuns()
    live = {file.name for item in snapshot.slices() for file in item.files}
    left = [run for run in folder.runs if run not in taken and is_settled(run)]
    alone = only_live(files, taken, live)
    if alone is not None:
        publish_compaction(handle, folder, [run for run in taken if run != alone], [*left, alone])
        return CompactedRuns(len(taken) - 1, 0, time.perf_counter() - started)
    parts = shards(files, taken, live, columns)
    targets = [_Target(shard, _output(taken, instant, number)) for number, shard in enumerate(parts)]
    if sum(run.size for run in taken) <= handle.limits.driver_run_bytes:
        written = [_fold(target) for target in targets]
    else:
        written = handle.engine.run(_fold, targets, f"lakedex {files}: folding {len(taken)} runs of bitmaps")
    publish_compaction(handle, folder, taken, [*left, *(run for run in written if run.size)])
    return CompactedRuns(len(taken), sum(run.size for run in written), time.perf_counter() - started)


def _output(taken: list[Run], instant: str, number: int) -> Run:
    """The name of a fold's output: not earlier than what it puts together, and used by no other fold.

    Another write may have begun after the one that folds and have completed before it.
    """
    newest = max(run.instant for run in taken)
    return Run(instant, "fold", number) if newest <= instant else Run(newest, "fold", int(instant) * 1000 + number)


def settled(timeline: Timeline) -> Callable[[Run], bool]:
    """Whether the commit of a run is decided, by a timeline that was read after the runs were listed."""
    pending = {instant.requested for instant in timeline.pending()}
    last = max((instant.requested for instant in timeline.instants), default="")

    def is_settled(run: Run) -> bool:
        if run.origin != "commit" or timeline.is_committed(run.instant):
            return True
        return run.instant not in pending and run.instant <= last

    return is_settled


def publish_compaction(handle: TableContext, folder: RunFolder, taken: list[Run], runs: list[Run]) -> None:
    """Publish the runs that count now, those that were left out first: the compacted ones may correct them."""
    files = handle.files
    gone = {run.name for run in taken}
    # What the fold before this one put together stays named until it is deleted: it must not count again.
    idle = [name for name in folder.idle if name.endswith(".hfile")]
    manifest = Manifest(
        number=folder.manifest.number + 1,
        runs=tuple(run.name for run in runs),
        folded=tuple(sorted({*gone, *idle})),
    )
    if publish_manifest(files, manifest):
        delete_runs(files, folder.idle)


@dataclass(frozen=True, slots=True)
class _Target:
    shard: CompactShard
    run: Run


def _fold(target: _Target) -> Run:
    return target.shard(target.run)
