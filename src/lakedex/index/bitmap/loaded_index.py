"""The bitmap index as read so far: covered base files, the values of their columns, and recently read bitmaps.

A *file number* stands for a base file that a run covers. Each column has at most one entry per file, that of the newest
run. Runs never change, so what was read of one stays true, and columns are read when a query needs them.

Memory: for each covered file some 300 bytes, and for each column that a query needed 56 bytes a file and 24 bytes for
each of its values; runs that are gone count too, until most of them are (:attr:`Coverage.needs_reload`). Bitmaps that
were read stay, up to :data:`CACHED_BYTES`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.metadata_record import BitmapRecord, decode_bitmap_records
from lakedex.codec.roaring import decode_bitmap
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.definitions import BitmapDefinition, indexed_limits, known_bitmap_definitions
from lakedex.index.bitmap.keys import NULL_MARK, bitmap_key, coverage_prefix, logs_key, parse_type, typed_values
from lakedex.index.bitmap.log_coverage import LOGS_SCHEMA, CoveredLog, covered_logs, is_log
from lakedex.index.bitmap.run_files import (
    BITMAP_FOLDER,
    BITMAP_INDEX,
    COLUMN_SCHEMA,
    FILES_SCHEMA,
    IS_INDEXED,
    NO_ENTRY,
    Run,
    RunFolder,
    decode_block,
    list_runs,
    listed_runs,
)
from lakedex.io.storage import FileInfo, TableFiles
from lakedex.parquet.conform import conform_stored
from lakedex.snapshot.file_system_view import TableCache
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import IntArray

__all__ = [
    "CACHED_BYTES",
    "NULL",
    "BitmapCache",
    "ColumnCoverage",
    "Coverage",
    "CoveredFile",
    "LoadedBitmapIndex",
    "load_bitmap_index",
    "load_runs",
    "read_files_block",
    "read_logs_blocks",
    "run_records",
    "runs_of",
]


CACHED_BYTES = 32 << 20
"""Of a table's bitmaps; the ones asked for last stay."""


_ENTRY_BYTES = 400
"""Of a key, its place and an empty bitmap."""


class _CachedBitmap(NamedTuple):
    base_file: str
    bitmap: BitMap
    size: int


@dataclass(slots=True, eq=False)
class BitmapCache:
    """By run and key, each with the base file whose rows it tells. Not for several threads at once.

    Attributes:
        limit: of ``size``.
        size: bytes of all bitmaps.
    """

    limit: int = CACHED_BYTES
    size: int = 0
    _bitmaps: dict[tuple[str, bytes], _CachedBitmap] = field(default_factory=dict)

    def get(self, run: str, key: bytes, base_file: str, rows: int) -> BitMap | None:
        """A bitmap of a base file of this number of rows, if it is cached."""
        cached = self._bitmaps.pop((run, key), None)
        if cached is None:
            return None
        self._bitmaps[run, key] = cached
        return cached.bitmap if cached.base_file == base_file and len(cached.bitmap) == rows else None

    def put(self, run: str, key: bytes, base_file: str, bitmap: BitMap) -> None:
        """Hold a bitmap, which nobody changes from now on."""
        if (run, key) in self._bitmaps:
            return
        cached = _CachedBitmap(base_file, bitmap, _ENTRY_BYTES + len(key) + _bytes_of(bitmap))
        self._bitmaps[run, key] = cached
        self.size += cached.size
        while self.size > self.limit:
            self.size -= self._bitmaps.pop(next(iter(self._bitmaps))).size


def _bytes_of(bitmap: BitMap) -> int:
    """Bytes of the containers: one of 65,536 rows takes 8 KiB at most."""
    return min(2 * len(bitmap), 8192 * (1 + (bitmap.max() >> 16) if len(bitmap) else 0))


NULL = -1
"""Stands for null where a value's number is asked for."""


FEW_VALUES = 8
"""Up to this number of values each is compared with all of an entry's, beyond that they are sorted."""


GONE = -1
"""Rank of a run that is no more."""


COMPACT_THRESHOLD = 256
"""Runs that are gone, and still take memory, before coverage is loaded again."""


_FILES_PREFIX = f"{NULL_MARK}files$"


@dataclass(frozen=True, slots=True)
class CoveredFile:
    """A base file that a run speaks of; its row groups as (rows, first byte, bytes)."""

    partition: str
    file_id: str
    base_file: str
    rows: int
    groups: tuple[tuple[int, int, int], ...]


class CoveredFiles(Sequence[CoveredFile]):
    """Covered base files by number. What is said of a file is taken out of its block when it is asked for."""

    def __init__(self) -> None:
        self._blocks: list[pa.Table] = []
        self._places: list[tuple[int, int]] = []
        self._made: dict[int, CoveredFile] = {}

    def add(self, block: pa.Table, rows: Sequence[int]) -> None:
        """Number some rows of a files block."""
        self._places += [(len(self._blocks), row) for row in rows]
        self._blocks.append(block)

    def replace(self, number: int, block: pa.Table, row: int) -> None:
        """Take what is said of a file from another block."""
        self._made.pop(number, None)
        self._places[number] = (len(self._blocks), row)
        self._blocks.append(block)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, number: int) -> CoveredFile: ...

    @overload
    def __getitem__(self, number: slice) -> list[CoveredFile]: ...

    def __getitem__(self, number: int | slice) -> CoveredFile | list[CoveredFile]:
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(len(self)))]
        if number in self._made:
            return self._made[number]
        block, row = self._places[number]
        values = [column[row].as_py() for column in self._blocks[block].columns]
        partition, file_id, base_file, rows, group_rows, starts, sizes = values
        groups = tuple(zip(group_rows, starts, sizes, strict=True))
        return self._made.setdefault(number, CoveredFile(partition, file_id, base_file, rows, groups))


def _grown(array: npt.NDArray[np.int64], size: int, fill: int) -> IntArray:
    if len(array) >= size:
        return array
    return np.concatenate([array, np.full(max(size - len(array), len(array) // 2), fill, np.int64)])


@dataclass(slots=True, eq=False)
class ColumnCoverage:
    """One column. ``entry_of`` is by file number, all other arrays are by entry or by value.

    Attributes:
        entry_of: the file's entry, negative for none.
        states: of each entry, as blocks have it.
        nulls: rows with null.
        starts, sizes: where the entry's values lie in ``codes`` and ``counts``.
        runs: the run that the entry comes from.
        totals: rows of all of its values together.
        codes: numbers of values, as :attr:`values` has them.
        owners: the entry that each of them belongs to.
        counts, groups: their rows, and the row groups that hold them.
        null_groups: row groups that hold null.
        values: (type, text) of each distinct value.
    """

    entry_of: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    states: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    nulls: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    starts: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    sizes: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    runs: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    totals: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    owners: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    codes: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    counts: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    groups: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    null_groups: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    values: list[tuple[str, str]] = field(default_factory=list)
    loaded: set[int] = field(default_factory=set)
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _typed: dict[pa.DataType, tuple[pa.Array, npt.NDArray[np.bool_]]] = field(default_factory=dict)

    def add(self, run: int, files: Sequence[IntArray], blocks: Sequence[pa.Table], ranks: IntArray) -> None:
        """Take in the blocks of a run: their entries replace those of runs that rank lower, or are gone.

        Runs come in any order: a repair may be known before the fold that puts older runs together.
        """
        found: list[dict[str, IntArray]] = []
        first, start = len(self.states), len(self.codes)
        for block in blocks:
            found.append(self._arrays(block, first, start))
            first, start = first + block.num_rows, start + len(found[-1]["codes"])
        first = len(self.states)
        for own, arrays in zip(files, found, strict=True):
            takes = arrays["states"] != NO_ENTRY
            self.entry_of = _grown(self.entry_of, int(own.max(initial=-1)) + 1, -1)
            if len(self.runs):
                known = self.entry_of[own]
                takes &= (known < 0) | (ranks[self.runs[np.maximum(known, 0)]] < ranks[run])
            self.entry_of[own[takes]] = first + np.flatnonzero(takes)
            self.runs = np.concatenate([self.runs, np.full(len(takes), run, np.int64)])
            first += len(takes)
        for name in found[0] if found else ():
            # Once for all blocks: a run of 100,000 files has dozens of them.
            setattr(self, name, np.concatenate([getattr(self, name), *(arrays[name] for arrays in found)]))

    def _arrays(self, block: pa.Table, first: int, start: int) -> dict[str, IntArray]:
        """A block's arrays. Its entries begin at ``first``, its values at ``start``."""
        states = block.column("state").to_numpy().astype(np.int64)
        texts = _chunk(block, "texts")
        lengths = np.diff(texts.offsets.to_numpy()).astype(np.int64)
        counts = _chunk(block, "counts").flatten().to_numpy()
        ends, last = np.concatenate([[0], np.cumsum(counts)]), np.cumsum(lengths)
        return {
            "states": states,
            "nulls": block.column("nulls").to_numpy(),
            "starts": start + last - lengths,
            "sizes": lengths,
            "totals": ends[last] - ends[last - lengths],
            "owners": np.repeat(first + np.arange(len(states)), lengths),
            "codes": self._codes(block, texts, lengths),
            "counts": counts,
            "groups": _chunk(block, "groups").flatten().to_numpy(),
            "null_groups": block.column("null_groups").to_numpy(),
        }

    def is_indexed(self, entry: int) -> bool:
        """Whether an entry has bitmaps."""
        return bool(self.states[entry] == IS_INDEXED)

    def _codes(self, block: pa.Table, texts: pa.Array, lengths: IntArray) -> IntArray:
        """Numbers of a block's values."""
        kinds = _chunk(block, "kind")
        flat = texts.flatten()
        names, words = kinds.dictionary.to_pylist(), flat.dictionary.to_pylist()
        kind_of_value = np.repeat(kinds.indices.to_numpy().astype(np.int64), lengths)
        pairs = kind_of_value * max(len(words), 1) + flat.indices.to_numpy()
        # Few words and fewer types: a table of all pairs is smaller than the pairs, which need no sorting then.
        numbers = np.full(max(len(names) * len(words), 1), -1, np.int64)
        numbers[pairs] = 0
        for pair in np.flatnonzero(numbers == 0).tolist():
            kind, word = divmod(pair, max(len(words), 1))
            numbers[pair] = self._number(names[kind], words[word])
        codes: IntArray = numbers[pairs]
        return codes

    def _number(self, kind: str, text: str) -> int:
        found = self._numbers.get((kind, text))
        if found is None:
            found = self._numbers[kind, text] = len(self.values)
            self.values.append((kind, text))
            self._typed.clear()
        return found

    def entries_of(self, files: IntArray) -> IntArray:
        """The entry of each file number, negative for none; negative numbers have none."""
        if not len(self.states):
            return np.full(len(files), -1, np.int64)
        return np.where(files >= 0, self.entry_of[np.maximum(files, 0)], -1)

    def span(self, entry: int) -> slice:
        """Where the values of an entry lie in arrays that are by value."""
        return slice(int(self.starts[entry]), int(self.starts[entry] + self.sizes[entry]))

    def places(self, entries: IntArray) -> IntArray:
        """Places of all values of some entries, one entry after the other."""
        sizes = self.sizes[entries]
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.asarray(np.repeat(self.starts[entries], sizes) + within, np.int64)

    def forget(self, ranks: IntArray) -> None:
        """Leave out the entries of runs that are gone."""
        if len(self.runs):
            self.entry_of[(self.entry_of >= 0) & (ranks[self.runs[np.maximum(self.entry_of, 0)]] == GONE)] = -1

    def typed(self, name: str, kind: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """The distinct values in the type that the column has now, a null after them; and which could be given."""
        found = self._typed.get(kind)
        if found is None:
            found = self._typed[kind] = _in_type(self.values, kind, name)
        return found


def _in_type(values: Sequence[tuple[str, str]], kind: pa.DataType, name: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Values of any earlier types as values of a column's present type, as its stored rows are read."""
    good = np.zeros(len(values) + 1, bool)
    good[-1] = True
    places = np.full(len(values) + 1, -1, np.int64)
    parts: list[pa.Array] = []
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", kind.tz)  # Texts are of microseconds, and a condition compares these.
    target = pa.schema([(name, kind)])
    for stored in {stored for stored, _ in values}:
        rows = [row for row, (own, _) in enumerate(values) if own == stored]
        try:
            typed = typed_values(pa.array([values[row][1] for row in rows], pa.string()), parse_type(stored))
            batch = pa.RecordBatch.from_arrays([typed], names=[name])
            column = conform_stored(batch, target).column(0)
        except (ValueError, pa.ArrowException):
            continue  # No value of the present type: what has it is unknown.
        places[rows] = sum(map(len, parts)) + np.arange(len(rows))
        parts.append(column)
        good[rows] = True
    whole = pa.concat_arrays([*parts, pa.nulls(1, kind)])
    return whole.take(pa.array(np.where(places < 0, len(whole) - 1, places))), good


def _chunk(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


class Coverage:
    """All that was read of a table's runs. Shared between threads; take :attr:`lock` around calls and arrays."""

    def __init__(self, files: TableFiles, cache: TableCache) -> None:
        self.lock = threading.RLock()
        self.files = CoveredFiles()
        self.numbers: dict[tuple[str, str], int] = {}
        self.columns: dict[str, ColumnCoverage] = {}
        self.unread: dict[str, str] = {}
        self.logs: dict[int, CoveredLog] = {}
        self.changes_of_logs = 0
        self.rows: IntArray = np.empty(0, np.int64)
        self.groups: IntArray = np.empty(0, np.int64)
        self._at, self._cache = files, cache
        self._runs: list[Run] = []
        self._known: dict[str, int] = {}
        self._order: dict[str, int] = {}
        self._ranks: IntArray = np.empty(0, np.int64)
        self._files_of: list[list[IntArray]] = []
        self._told_by: IntArray = np.empty(0, np.int64)
        self._cached = BitmapCache()

    @property
    def needs_reload(self) -> bool:
        """Whether most of the coverage comes from runs that are gone, so that loading it again takes less memory."""
        return len(self._runs) > COMPACT_THRESHOLD + 2 * int((self._ranks != GONE).sum())

    @property
    def run_names(self) -> list[str]:
        """Names of the runs by the numbers that :attr:`ColumnCoverage.runs` has."""
        return [run.name for run in self._runs]

    def entries(self, name: str) -> IntArray:
        """A column's entry of each file number, negative for none."""
        return self.column(name).entry_of[: len(self.files)]

    def refresh(self, folder: RunFolder) -> None:
        """Take in what the folder has now; runs that were seen before are not read again."""
        self._order = {run.name: rank for rank, run in enumerate(folder.runs)}
        # Before the new ones: the output of a fold takes the place of what it folded.
        gone = self._known.keys() - self._order.keys()
        self._known = {name: number for name, number in self._known.items() if name in self._order}
        ranks = [
            self._order[run.name] if self._known.get(run.name) == at else GONE for at, run in enumerate(self._runs)
        ]
        self._ranks = np.array(ranks, np.int64)
        for run in folder.runs:
            if run.name not in self._known and run.name not in self.unread:
                self._add(run)
        lost = [number for number in self.logs if self._ranks[self._told_by[number]] == GONE] if gone else []
        for number in lost:
            del self.logs[number]
        self.changes_of_logs += bool(lost)
        for column in self.columns.values() if gone else ():
            column.forget(self._ranks)
        self.unread = {name: why for name, why in self.unread.items() if name in self._order}

    def _add(self, run: Run) -> None:
        try:
            reader = self._reader(run)
            blocks = read_files_block(reader, self._path(run))
            logs = read_logs_blocks(reader, blocks, self._path(run))
        except (CorruptFileError, FileNotFoundError) as error:
            # Another process may have folded it since it was listed; and what is damaged covers nothing.
            self.unread[run.name] = str(error)
            return
        number = self._known[run.name] = len(self._runs)
        self._runs.append(run)
        self._ranks = np.append(self._ranks, self._order[run.name])
        self._files_of.append([self._file_numbers(number, block, logs.get(at)) for at, block in enumerate(blocks)])
        for name, column in self.columns.items():
            self._load(name, column, number)

    def _file_numbers(self, run: int, block: pa.Table, logs: pa.Table | None) -> IntArray:
        """Numbers of a block's files. With the partition: Hudi's bucket index may give two partitions one file id."""
        names = list(zip(block.column("partition").to_pylist(), block.column("base_file").to_pylist(), strict=True))
        numbers = self.numbers
        fresh = [row for row, name in enumerate(names) if name not in numbers]
        for row in fresh:
            numbers[names[row]] = len(numbers)
        self.files.add(block, fresh)
        rows = block.column("rows").to_numpy()
        groups = pc.list_value_length(block.column("group_rows")).cast(pa.int64()).to_numpy()
        self.rows = np.concatenate([self.rows, rows[fresh]])
        self.groups = np.concatenate([self.groups, groups[fresh]])
        self._told_by = np.concatenate([self._told_by, np.full(len(fresh), run, np.int64)])
        found = np.fromiter((numbers[name] for name in names), np.int64, len(names))
        for row in np.flatnonzero(self._ranks[self._told_by[found]] < self._ranks[run]).tolist():
            number = int(found[row])
            self.files.replace(number, block, row)
            self.rows[number], self.groups[number], self._told_by[number] = rows[row], groups[row], run
        for row, log in enumerate(() if logs is None else covered_logs(logs)):
            number = int(found[row])
            if log is not None and self._told_by[number] == run and self.logs.get(number) != log:
                self.changes_of_logs += number in self.logs
                self.logs[number] = log
        return found

    def _path(self, run: Run) -> str:
        return self._at.path(BITMAP_FOLDER, run.name)

    def _reader(self, run: Run) -> HFileReader:
        return self._cache.hfile(self._at.storage, self._path(run), run.size)

    def column(self, name: str) -> ColumnCoverage:
        """A column's coverage; what was not read yet is read."""
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = ColumnCoverage()
        for number in range(len(self._runs)):
            if self._ranks[number] != GONE and number not in column.loaded:
                self._load(name, column, number)
        column.entry_of = _grown(column.entry_of, len(self.files), -1)
        return column

    def _load(self, name: str, column: ColumnCoverage, number: int) -> None:
        run = self._runs[number]
        column.loaded.add(number)
        path = self._path(run)
        try:
            reader = self._reader(run)
            cells = list(reader.scan(coverage_prefix(name).encode()))
            records = run_records(reader, [value for _, value in cells], path)
            blocks = [decode_block(record.coverage or b"", COLUMN_SCHEMA, path) for record in records]
            places = [int(key.decode().rsplit("$", 1)[1]) for key, _ in cells]
            files = [self._files_of[number][place] for place in places]
            if min(places, default=0) < 0 or any(
                len(own) != block.num_rows for own, block in zip(files, blocks, strict=True)
            ):
                raise CorruptFileError(path, 0, f"an entry of {name} for each file", "another number of them")
        except (CorruptFileError, FileNotFoundError, IndexError, ValueError) as error:
            self.unread[run.name] = str(error)
            return
        column.add(number, files, blocks, self._ranks)

    def bitmaps(self, name: str, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], BitMap]:
        """Bitmaps of some values of a column.

        Args:
            name: the column.
            wanted: file number → numbers of values that coverage has for the file, :data:`NULL` for null.

        Returns:
            By (file number, value number). One that is missing, damaged, or of another size than coverage says is left
            out: it is unknown. They stay cached for the next query: nobody may change them.
        """
        column = self.column(name)
        found: dict[tuple[int, int], BitMap] = {}
        by_run: dict[int, dict[bytes, tuple[int, int, int]]] = {}
        for number, codes in wanted.items():
            entry = int(column.entry_of[number])
            if entry < 0 or column.states[entry] != IS_INDEXED:
                continue
            item = self.files[number]
            run = int(column.runs[entry])
            counts = self._counts(column, entry, codes)
            for code in codes:
                text = None if code == NULL else column.values[code][1]
                key = bitmap_key(name, text, item.partition, item.file_id).encode()
                count = int(column.nulls[entry]) if code == NULL else counts[code]
                cached = self._cached.get(self._runs[run].name, key, item.base_file, count)
                if cached is not None:
                    found[number, code] = cached
                else:
                    by_run.setdefault(run, {})[key] = (number, code, count)
        for run, keys in by_run.items():
            self._fetch(self._runs[run], keys, found)
        return found

    @staticmethod
    def _counts(column: ColumnCoverage, entry: int, wanted: Sequence[int]) -> dict[int, int]:
        """Rows of some values of an entry."""
        span = column.span(entry)
        codes = column.codes[span]
        if len(wanted) <= FEW_VALUES:
            places = np.flatnonzero(np.logical_or.reduce([codes == code for code in wanted] or [codes < NULL]))
        else:
            places = np.flatnonzero(np.isin(codes, np.asarray(wanted, np.int64)))
        return dict(zip(codes[places].tolist(), column.counts[span][places].tolist(), strict=True))

    def _fetch(
        self, run: Run, keys: Mapping[bytes, tuple[int, int, int]], found: dict[tuple[int, int], BitMap]
    ) -> None:
        path = self._path(run)
        try:
            reader = self._reader(run)
            cells = reader.get_many(list(keys))
            records = run_records(reader, list(cells.values()), path)
        except (CorruptFileError, FileNotFoundError) as error:
            self.unread[run.name] = str(error)
            return
        for key, record in zip(cells, records, strict=True):
            number, code, count = keys[key]
            item = self.files[number]
            if record.base_file != item.base_file or record.cardinality != count:
                continue
            try:
                bitmap = decode_bitmap(record.bitmap or "", rows=item.rows, path=path)
            except CorruptFileError as error:
                self.unread[run.name] = str(error)
                continue
            if len(bitmap) == count:
                found[number, code] = bitmap
                self._cached.put(run.name, key, item.base_file, bitmap)


def run_records(reader: HFileReader, values: Sequence[bytes], path: str) -> list[BitmapRecord]:
    """Records of a run from the values of its cells.

    Raises:
        CorruptFileError: damaged bytes.
    """
    schema = reader.info.get("schema")
    if schema is None:
        raise CorruptFileError(path, 0, "a run with the schema of its records", "none")
    return decode_bitmap_records(values, schema.decode("utf-8", "replace"), path)


def read_files_block(reader: HFileReader, path: str) -> list[pa.Table]:
    """The files blocks of a run, in their order.

    Raises:
        CorruptFileError: damaged bytes.
    """
    records = run_records(reader, [value for _, value in reader.scan(_FILES_PREFIX.encode())], path)
    return [decode_block(record.coverage or b"", FILES_SCHEMA, path) for record in records]


def read_logs_blocks(reader: HFileReader, files: Sequence[pa.Table], path: str) -> dict[int, pa.Table]:
    """The logs blocks of a run by number. Only a run whose files blocks name log files has some.

    Raises:
        CorruptFileError: damaged bytes, or a block of another number of files.
    """
    some = [at for at, block in enumerate(files) if any(map(is_log, block.column("base_file").to_pylist()))]
    if not some:
        return {}
    keys = {logs_key(at).encode(): at for at in some}
    cells = reader.get_many(list(keys))
    records = run_records(reader, list(cells.values()), path)
    found = {
        keys[key]: decode_block(record.coverage or b"", LOGS_SCHEMA, path)
        for key, record in zip(cells, records, strict=True)
    }
    for at, block in found.items():
        if block.num_rows != files[at].num_rows:
            raise CorruptFileError(path, 0, f"a logs block of {files[at].num_rows} files", f"one of {block.num_rows}")
    return found


@dataclass(frozen=True, slots=True)
class LoadedBitmapIndex:
    """The bitmap index of a snapshot.

    Attributes:
        definitions: by name.
        coverage: what its runs say. Take its lock for calls and arrays.
        folder: the runs as they were listed for that.
    """

    definitions: dict[str, BitmapDefinition]
    coverage: Coverage
    folder: RunFolder

    @property
    def columns(self) -> frozenset[str]:
        """Columns with bitmaps."""
        return frozenset(indexed_limits(self.definitions))


def load_bitmap_index(snapshot: Snapshot) -> LoadedBitmapIndex | None:
    """The bitmap index as it is now: one read and one listing, and what was not read before. None without one.

    On object stores the snapshot has the listing, and what is read is known until the listing changes.

    Raises:
        CorruptFileError: damaged definitions, or a damaged manifest.
    """
    definitions = known_bitmap_definitions(snapshot)
    return load_runs(snapshot, definitions) if definitions else None


def load_runs(snapshot: Snapshot, definitions: dict[str, BitmapDefinition]) -> LoadedBitmapIndex:
    """The bitmap index of definitions that were read already.

    Raises:
        CorruptFileError: a damaged manifest.
    """
    cache = snapshot.cache
    with cache.lock:
        coverage = cache.indexes.get(Coverage)
        if coverage is None or coverage.needs_reload:
            coverage = cache.indexes.put(Coverage(snapshot.files, cache))
    folder = runs_of(snapshot)
    with coverage.lock:
        coverage.refresh(folder)
    return LoadedBitmapIndex(definitions, coverage, folder)


@dataclass(frozen=True, slots=True)
class _ListedRuns:
    entries: Sequence[FileInfo]
    folder: RunFolder


def runs_of(snapshot: Snapshot) -> RunFolder:
    """The runs; where the snapshot has their listing, a manifest is read once for it."""
    listing, cache = snapshot.metadata.listing, snapshot.cache
    if listing is None:
        return list_runs(snapshot.files)
    entries = listing.get(BITMAP_INDEX, ())
    with cache.lock:
        known = cache.indexes.get(_ListedRuns)
    if known is None or known.entries != entries:
        manifest = None if known is None else known.folder.manifest
        known = _ListedRuns(entries, listed_runs(snapshot.files, entries, manifest))
        with cache.lock:
            cache.indexes.put(known)
    return known.folder
