"""What a table's bitmap runs say, against what its files hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex import Table
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.bitmap.loaded_index import NULL, Coverage
from lakedex.index.bitmap.run_files import IS_INDEXED, list_runs, state_text
from lakedex.snapshot.file_system_view import TableCache

Said = dict[Any, list[int]] | str | None
"""Value → rows; why a column is not indexed; None for no entry."""


def run_names(table: Table) -> list[str]:
    """Runs that count."""
    return [run.name for run in list_runs(table.context.files).runs]


def files_in_folder(table: Table) -> set[str]:
    """All files of the index's folder."""
    folder = Path(table.path) / ".hoodie/metadata/bitmap_index"
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def coverage_of(table: Table) -> Coverage:
    """What the runs say, read anew."""
    coverage = Coverage(table.context.files, TableCache())
    coverage.refresh(list_runs(table.context.files))
    return coverage


def number_of(coverage: Coverage, base_file: str) -> int:
    """Number of a covered file; negative for none."""
    return next((number for (_, file), number in coverage.numbers.items() if file == base_file), -1)


def said(coverage: Coverage, name: str, base_file: str) -> Said:
    """What the runs say of a column in a file, texts of values → row numbers."""
    column = coverage.column(name)
    number = number_of(coverage, base_file)
    entry = -1 if number < 0 else int(column.entry_of[number])
    if entry < 0:
        return None
    if column.states[entry] != IS_INDEXED:
        return state_text(int(column.states[entry]))
    span = slice(int(column.starts[entry]), int(column.starts[entry] + column.sizes[entry]))
    codes = [*column.codes[span].tolist(), *([NULL] if column.nulls[entry] else [])]
    found = coverage.bitmaps(name, {number: codes})
    assert len(found) == len(codes), "a bitmap that coverage names is not there"
    return {None if code == NULL else column.values[code][1]: list(found[number, code]) for code in codes}


def held(path: Path, name: str) -> dict[Any, list[int]]:
    """Texts of values → row numbers, from the file itself. For strings and whole numbers."""
    table = pq.ParquetFile(path).read()
    top, *inner = name.split(".")
    values = table.column(top).to_pylist() if top in table.schema.names else [None] * table.num_rows
    for part in inner:
        values = [None if value is None else value.get(part) for value in values]
    rows: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        rows.setdefault(None if value is None else str(value), []).append(row)
    return rows


def uncovered(table: Table, *columns: str) -> list[str]:
    """Current base files that no run covers for all of these columns. What runs say of the others is the truth."""
    coverage = coverage_of(table)
    missing = []
    for base in table.snapshot().base_files():
        path = Path(table.path) / base.relative_path
        for name in columns:
            found = said(coverage, name, base.name)
            if found is None:
                missing.append(base.name)
                break
            if not isinstance(found, str):
                assert found == held(path, name), f"{name} in {base.name}"
        else:
            item = coverage.files[coverage.numbers[base.partition, base.name]]
            metadata = pq.ParquetFile(path).metadata
            groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
            assert [rows for rows, _, _ in item.groups] == [group.num_rows for group in groups]
            assert item.rows == metadata.num_rows
            assert (item.partition, item.file_id) == (base.partition, base.file_id)
    assert not coverage.unread, coverage.unread
    return missing


def same_answers(table: Table, *conditions: str) -> None:
    """Each condition gives the rows that it gives without any index."""
    fresh = Table.open(table.path)
    for where in conditions:
        with_indexes, without = fresh.scan(where).to_arrow(), fresh.scan(where, use_indexes=False).to_arrow()
        keys = [("id", "ascending")]
        assert with_indexes.sort_by(keys).equals(without.sort_by(keys)), where


def defined(table: Table) -> dict[str, tuple[str, ...]]:
    """Indexes and their columns."""
    found = read_bitmap_definitions(table.context.files)
    return {name: index.columns for name, index in found.items()}


ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("g", pa.string()),
        ("n", pa.int32()),
        ("s", pa.struct([("k", pa.int64())])),
    ]
)


def batch(first: int, count: int, ts: int = 1, **changed: Any) -> pa.Table:
    """Rows with keys from ``first`` on, in three partitions; ``changed`` sets columns."""
    numbers = range(first, first + count)
    columns = {
        "id": [f"k{i:04d}" for i in numbers],
        "city": ["abc"[i % 3] for i in numbers],
        "ts": [ts] * count,
        "g": [(None, "x", "y")[(i // 2) % 3] for i in numbers],
        "n": [i % 4 for i in numbers],
        "s": [None if i % 5 == 0 else {"k": i % 3} for i in numbers],
    }
    columns |= {name: [value] * count for name, value in changed.items()}
    return pa.table(columns, ROWS)
