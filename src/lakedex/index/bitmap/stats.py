"""Statistics of a bitmap index, and its values as a table. All of it is read from coverage, without bitmaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.index.bitmap.build import logs_of_slices, number_of
from lakedex.index.bitmap.definitions import BitmapDefinition
from lakedex.index.bitmap.loaded_index import Coverage, LoadedBitmapIndex, load_bitmap_index
from lakedex.index.bitmap.log_coverage import is_log
from lakedex.index.bitmap.run_files import IS_INDEXED, RunFolder, state_text
from lakedex.reports import ColumnIndexStats, IndexStats
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import IntArray

__all__ = [
    "bitmap_index_stats",
    "bitmap_stats_table",
    "coverage_text",
    "covered_files",
]


_BITMAPS = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("base_file", pa.string()),
        ("column", pa.string()),
        ("value", pa.string()),
        ("cardinality", pa.int64()),
        ("row_groups", pa.int64()),
        ("run", pa.string()),
        ("current", pa.bool_()),
    ]
)


def covered_files(
    held: LoadedBitmapIndex, snapshot: Snapshot, columns: Sequence[str]
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """For the current base files their numbers in coverage (negative for none), and which have all of the columns.

    Call with the lock of the coverage held.
    """
    numbers = _current(held.coverage, snapshot)
    known = numbers >= 0
    for name in columns:
        known &= _entries_of(held.coverage, name, numbers) >= 0
    return numbers, known


def _current(coverage: Coverage, snapshot: Snapshot) -> IntArray:
    found = coverage.numbers
    return np.array([found.get((base.partition, base.name), -1) for base in snapshot.base_files()], np.int64)


def _entries_of(coverage: Coverage, name: str, numbers: IntArray) -> IntArray:
    """Entries of files in a column; negative where there is none."""
    # An entry is there only where a block had one: NO_ENTRY never takes a file's place.
    return coverage.column(name).entries_of(numbers)


def coverage_text(held: LoadedBitmapIndex, snapshot: Snapshot, columns: Sequence[str]) -> str:
    """``complete``, or how many files are covered, log files among them."""
    with held.coverage.lock:
        _, bases = covered_files(held, snapshot, columns)
        known = np.concatenate([bases, _covered_logs(held.coverage, snapshot, columns)])
    done = int(known.sum())
    return "complete" if done == len(known) else f"partial: {done} of {len(known)} files covered"


def _covered_logs(coverage: Coverage, snapshot: Snapshot, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which of the current log files have all of the columns."""
    numbers = np.array([number_of(coverage, item) for item in logs_of_slices(snapshot)], np.int64)
    known = numbers >= 0
    for name in columns:
        known &= _entries_of(coverage, name, numbers) >= 0
    return known


def bitmap_index_stats(snapshot: Snapshot, definition: BitmapDefinition) -> IndexStats:
    """Figures of one index.

    Raises:
        CorruptFileError: damaged definitions, or a damaged manifest.
    """
    held = load_bitmap_index(snapshot)
    if held is None:
        raise KeyError(definition.name)
    coverage, folder = held.coverage, held.folder
    with coverage.lock:
        numbers, known = covered_files(held, snapshot, definition.columns)
        figures = {name: _figures(coverage, name, numbers) for name in sorted(held.columns)}
        logs = _covered_logs(coverage, snapshot, definition.columns)
        rows = int(coverage.rows[numbers[known]].sum()) if known.any() else 0
        damage = tuple(f"{name}: {why}" for name, why in coverage.unread.items())
    own = [figures[name] for name in definition.columns]
    entries = sum(column.entries for column in own)
    return IndexStats(
        name=definition.name,
        entries=entries,
        files_covered=int(known.sum()) + int(logs.sum()),
        files_uncovered=int((~known).sum()) + int((~logs).sum()),
        bytes=_share(folder, entries, sum(column.entries for column in figures.values())),
        bytes_of_runs=folder.size,
        runs=len(folder.runs),
        rows_covered=rows,
        columns=tuple(own),
        damage=damage,
    )


def _share(folder: RunFolder, entries: int, total: int) -> int:
    return round(folder.size * entries / total) if total else 0


def _figures(coverage: Coverage, name: str, numbers: IntArray) -> ColumnIndexStats:
    column = coverage.column(name)
    entries = _entries_of(coverage, name, numbers)
    entries = entries[entries >= 0]
    states = column.states[entries]
    indexed = entries[states == IS_INDEXED]
    codes = column.codes[column.places(indexed)]
    reasons = {state_text(int(state)): int((states == state).sum()) for state in np.unique(states[states > IS_INDEXED])}
    return ColumnIndexStats(
        column=name,
        distinct=len(np.unique(codes)),
        entries=len(codes) + int((column.nulls[indexed] > 0).sum()),
        files_indexed=len(indexed),
        not_indexed=reasons,
    )


def bitmap_stats_table(snapshot: Snapshot, column: str | None = None, partition: str | None = None) -> pa.Table:
    """One row per file, column and value that the bitmap index has, null a value too.

    Files that are not current are there as long as their runs are. Memory: some 100 bytes a row.
    """
    held = load_bitmap_index(snapshot)
    if held is None:
        return _BITMAPS.empty_table()
    names = sorted(held.columns if column is None else held.columns & {column})
    with held.coverage.lock:
        current = np.zeros(len(held.coverage.files), np.bool_)
        numbers = _current(held.coverage, snapshot)
        current[numbers[numbers >= 0]] = True
        files = np.array(
            [
                n
                for n, item in enumerate(held.coverage.files)
                if not is_log(item.base_file) and (partition is None or item.partition == partition)
            ],
            np.int64,
        )
        parts = [_values_of_column(held.coverage, name, files, current) for name in names] if len(files) else []
    table = pa.concat_tables(parts) if parts else _BITMAPS.empty_table()
    order = [(name, "ascending") for name in ("partition", "base_file", "column", "value")]
    return table.sort_by(order).combine_chunks()


def _values_of_column(coverage: Coverage, name: str, files: IntArray, current: npt.NDArray[np.bool_]) -> pa.Table:
    entries = _entries_of(coverage, name, files)
    column = coverage.column(name)
    known = entries >= 0
    files, entries = files[known], entries[known]
    indexed = column.states[entries] == IS_INDEXED
    files, entries = files[indexed], entries[indexed]
    places = column.places(entries)
    texts = pa.array([text for _, text in column.values], pa.string())
    nulls = np.flatnonzero(column.nulls[entries] > 0)
    owner = np.concatenate([np.repeat(np.arange(len(entries)), column.sizes[entries]), nulls])
    values = pa.concat_arrays([texts.take(pa.array(column.codes[places])), pa.nulls(len(nulls), pa.string())])
    items = coverage.files
    file_names = [
        (items[number].partition, items[number].file_id, items[number].base_file) for number in files.tolist()
    ]
    own = pa.array(owner)
    runs = pa.array(coverage.run_names, pa.string()).take(pa.array(column.runs[entries]))
    return pa.table(
        [
            *(pa.array([row[at] for row in file_names], pa.string()).take(own) for at in range(3)),
            pa.repeat(pa.scalar(name), len(owner)),
            values,
            pa.array(np.concatenate([column.counts[places], column.nulls[entries][nulls]])),
            pa.array(np.concatenate([column.groups[places], column.null_groups[entries][nulls]])),
            runs.take(own),
            pa.array(current[files]).take(own),
        ],
        schema=_BITMAPS,
    )
