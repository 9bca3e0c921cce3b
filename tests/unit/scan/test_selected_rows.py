"""Reading with the rows that an index selected: row groups, batches, parts, counts. R146, R148."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from lakedex.expr.parser import bind
from lakedex.index.bitmap.builder import RowGroup
from lakedex.index.protocol import RowSelection
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.scan import late_materialization as sifting
from lakedex.scan.slice_reader import WHOLE, Part, ReadCount, SliceReader, iter_slice_rows
from limits import Limits

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.string())])
BASE = BaseFile("part", "f.parquet", 1, "f", "1")
SLICE = FileSlice("part", "f", "1", BASE)
SIZES = (10, 1, 25, 4, 10)
ROWS = sum(SIZES)
GROUPS = tuple(RowGroup(rows, 1000 * at, 1000 if at != 2 else 500) for at, rows in enumerate(SIZES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("slice")
    (found / "part").mkdir()
    with pq.ParquetWriter(found / "part" / "f.parquet", SCHEMA) as writer:
        start = 0
        for size in SIZES:
            numbers = range(start, start + size)
            writer.write_table(pa.table([list(numbers), [f"t{n % 3}" for n in numbers]], schema=SCHEMA))
            start += size
    return found


def selection(rows: Sequence[int], *, exact: bool, groups: Sequence[RowGroup] = GROUPS) -> RowSelection:
    return RowSelection.of(BitMap(list(rows)), groups, is_exact=exact)


def read(
    folder: Path,
    rows: Sequence[int],
    *names: str,
    exact: bool = True,
    where: str = "t = 't1'",
    part: Part = WHOLE,
    **more: Any,
) -> tuple[pa.Table, ReadCount]:
    reader = SliceReader(
        files=TableFiles(LocalStorage(), str(folder)), table_columns=SCHEMA, names=names, predicate=bind(where, SCHEMA),
        selections={"f.parquet": selection(rows, exact=exact)}, **more,
    )  # fmt: skip
    count = ReadCount()
    batches = list(iter_slice_rows(reader, SLICE, part, count))
    if not names:
        return pa.table({"": pa.nulls(sum(batch.num_rows for batch in batches))}), count
    return pa.Table.from_batches(batches, reader.schema), count


def test_only_the_row_groups_of_the_rows_are_read(folder: Path) -> None:
    found, count = read(folder, [1, 10, 49], "n")
    assert found.column("n").to_pylist() == [1, 10, 49]
    assert (count.row_groups, count.row_groups_skipped, count.rows, count.matched) == (3, 2, 21, 3)


def test_exact_rows_are_not_judged_again_and_need_no_column_of_the_condition(folder: Path) -> None:
    """The condition speaks of ``t``, which is not read."""
    found, count = read(folder, [0, 11], "n", where="t = 'nowhere'")
    assert found.column("n").to_pylist() == [0, 11]
    _, other = read(folder, [0, 11], "n", exact=False, where="t = 'nowhere'")
    assert other.bytes_read == 0 and other.row_groups == 0, "but others are judged, by their row groups first"
    found, judged = read(folder, [0, 1, 11, 13], "n", exact=False)
    assert found.column("n").to_pylist() == [1, 13] and judged.bytes_read > count.bytes_read
    _, nothing = read(folder, [0, 11], "n", exact=False)
    assert nothing.row_groups == 2 and nothing.bytes_read == judged.bytes_read - count.bytes_read, "t alone"


def test_rows_that_may_match_are_judged(folder: Path) -> None:
    found, count = read(folder, range(8, 16), "n", exact=False)
    assert found.column("n").to_pylist() == [10, 13] and count.matched == 2


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("batch", [1, 7, 16, 65_536])
def test_batches_across_row_groups(folder: Path, exact: bool, batch: int, limits: Limits) -> None:
    limits(sifting, BATCH_ROWS=batch)
    rows = [9, 10, 11, 36, 37, 49]
    found, _ = read(folder, rows, "n", exact=exact)
    assert found.column("n").to_pylist() == [row for row in rows if exact or row % 3 == 1]


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 9])
def test_parts_share_the_rows(folder: Path, parts: int) -> None:
    rows = [0, 9, 10, 12, 20, 35, 36, 41, 49]
    tables = [read(folder, rows, "n", part=Part(number, parts)) for number in range(parts)]
    assert pa.concat_tables([table for table, _ in tables]).column("n").to_pylist() == rows
    assert sum(count.row_groups for _, count in tables) == 5


@pytest.mark.parametrize("exact", [True, False])
def test_counting_without_columns(folder: Path, exact: bool) -> None:
    found, count = read(folder, [1, 2, 4, 45], exact=exact)
    assert found.num_rows == count.matched == (4 if exact else 2)


def test_no_rows_at_all(folder: Path) -> None:
    found, count = read(folder, [], "n")
    assert (found.num_rows, count.row_groups, count.bytes_read) == (0, 0, 0)


def test_skipping_off_reads_everything(folder: Path) -> None:
    found, count = read(folder, [1], "n", use_indexes=False)
    assert found.column("n").to_pylist() == list(range(1, ROWS, 3)) and count.row_groups == 5


@pytest.mark.parametrize("sizes", [(10, 1, 25, 14), (11, 25, 4, 10), (10, 1, 25, 4, 11)])
def test_a_file_with_other_row_groups_is_read_whole(folder: Path, sizes: tuple[int, ...]) -> None:
    """Positions of another file mean nothing."""
    groups = [RowGroup(rows, 0, 0) for rows in sizes]
    reader = SliceReader(
        files=TableFiles(LocalStorage(), str(folder)), table_columns=SCHEMA, names=("n",), predicate=None,
        selections={"f.parquet": selection([1], exact=True, groups=groups)},
    )  # fmt: skip
    assert sum(batch.num_rows for batch in iter_slice_rows(reader, SLICE)) == ROWS


def test_other_files_are_read_whole(folder: Path) -> None:
    reader = SliceReader(
        files=TableFiles(LocalStorage(), str(folder)), table_columns=SCHEMA, names=("n",), predicate=None,
        selections={"other.parquet": selection([1], exact=True)},
    )  # fmt: skip
    assert sum(batch.num_rows for batch in iter_slice_rows(reader, SLICE)) == ROWS


# ------------------------------------------------------------------------------------------------------- selections
@given(st.sets(st.integers(0, ROWS - 1)))
def test_groups_and_masks(rows: set[int]) -> None:
    found = selection(sorted(rows), exact=True)
    ends = np.cumsum(SIZES).tolist()
    wanted = [n for n, (end, size) in enumerate(zip(ends, SIZES, strict=True)) if rows & set(range(end - size, end))]
    assert found.kept_groups() == wanted
    assert found.count == len(rows) and set(found.rows) == rows
    assert np.flatnonzero(found.mask(ROWS)).tolist() == sorted(rows)


def test_it_pickles() -> None:
    found = selection([1, 2, 3], exact=False)
    again = pickle.loads(pickle.dumps(found))
    assert again == found and list(again.rows) == [1, 2, 3]
    assert replace(again, is_exact=True) != found
