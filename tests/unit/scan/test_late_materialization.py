"""Reading the columns of a condition first gives what reading all of them gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from lakedex.expr.evaluator import filter_rows
from lakedex.expr.parser import bind, parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.builder import RowGroup
from lakedex.index.protocol import RowSelection
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.parquet.base_file_reader import FooterCache
from lakedex.scan import late_materialization as sifting
from lakedex.scan.slice_reader import ReadCount, SliceReader, iter_slice_rows
from limits import Limits

STORED = pa.schema(
    [
        pa.field("n", pa.int32(), nullable=False),
        ("few", pa.string()),
        ("many", pa.string()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)
TABLE = pa.schema([pa.field("n", pa.int64(), nullable=False), *list(STORED)[1:], ("later", pa.string())])
"""``n`` was widened, and ``later`` came after the file was written."""
SIZES = (70, 1, 40)
ROWS = sum(SIZES)
SLICE = FileSlice("", "f", "1", BaseFile("", "f.parquet", 1, "f", "1"))
CONDITIONS = (
    "n % 17 = 3", "n = 69", "n >= 0", "n < 0", "few = 'v1'", "few IS NULL", "s.a > 60", "later = 'x'", "later IS NULL",
    "n > 50 AND many LIKE '%7'", "TRUE", "NULL", "s.b = 't3' OR n = 110",
)  # fmt: skip


def data() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "n": numbers,
            "few": [None if n % 11 == 0 else f"v{n % 3}" for n in numbers],
            "many": [f"{n:040d}" for n in numbers],
            "s": [None if n % 13 == 0 else {"a": n, "b": f"t{n % 5}"} for n in numbers],
        },
        schema=STORED,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("sifting")
    with pq.ParquetWriter(found / "f.parquet", STORED) as writer:
        for start, size in zip(np.cumsum([0, *SIZES]).tolist(), SIZES, strict=False):
            writer.write_table(data().slice(start, size))
    return found


@given(
    where=st.sampled_from(CONDITIONS),
    names=st.lists(st.sampled_from(TABLE.names), unique=True, min_size=1),
    rows=st.none() | st.sets(st.integers(0, ROWS - 1)),
    exact=st.booleans(),
    batch=st.sampled_from([1, 7, 40, 65_536]),
)
def test_the_rows_are_those_of_the_whole_table(
    folder: Path, where: str, names: list[str], rows: set[int] | None, exact: bool, batch: int
) -> None:
    predicate = parse_predicate(where, TABLE)
    whole = data().set_column(0, TABLE.field(0), data().column(0).cast(pa.int64()))
    whole = whole.append_column("later", pa.nulls(ROWS, pa.string())).combine_chunks().to_batches()[0]
    mask = filter_rows(predicate, whole).fill_null(False).to_numpy(zero_copy_only=False)
    groups = [RowGroup(size, 0, 0) for size in SIZES]
    selections = {}
    if rows is not None:
        # Rows of an exact selection do match, or a condition on text would not tell their values.
        rows = rows & set(np.flatnonzero(mask).tolist()) if exact else rows
        selections["f.parquet"] = RowSelection.of(BitMap(sorted(rows)), groups, is_exact=exact)
        mask = np.isin(np.arange(ROWS), sorted(rows)) & mask
    reader = SliceReader(
        files=TableFiles(LocalStorage(), str(folder)), table_columns=TABLE, names=tuple(names), predicate=BoundPredicate(predicate),
        selections=selections,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sifting, "BATCH_ROWS", batch)
        found = pa.Table.from_batches(iter_slice_rows(reader, SLICE), reader.schema)
    assert found.equals(pa.table(whole.filter(pa.array(mask)).select(names), schema=reader.schema))


def test_text_that_the_condition_demands_is_not_read_for_exact_rows(folder: Path) -> None:
    groups = [RowGroup(size, 0, 0) for size in SIZES]
    for exact, where, spared in ((True, "few = 'v1' AND n >= 0", True), (False, "few = 'v1' AND n >= 0", False),
                                 (True, "few = 'v1' OR n = 1", False)):  # fmt: skip
        reader = SliceReader(
            files=TableFiles(LocalStorage(), str(folder)), table_columns=TABLE, names=("few",),
            predicate=bind(where, TABLE),
            selections={"f.parquet": RowSelection.of(BitMap([1, 4, 100]), groups, is_exact=exact)},
        )  # fmt: skip
        count = ReadCount()
        found = pa.Table.from_batches(iter_slice_rows(reader, SLICE, count=count), reader.schema)
        assert found.column("few").to_pylist() == ["v1"] * 3 and (count.bytes_read == 0) == spared


def test_other_columns_are_not_read_without_a_match(folder: Path) -> None:
    def read(where: str) -> tuple[int, int]:
        reader = SliceReader(
            files=TableFiles(LocalStorage(), str(folder)), table_columns=TABLE, names=("many",),
            predicate=bind(where, TABLE),
        )  # fmt: skip
        count = ReadCount()
        list(iter_slice_rows(reader, SLICE, count=count))
        return count.matched, count.bytes_read

    (none, judged), (some, both) = read("n % 500 = 499"), read("n % 500 = 110")
    assert (none, some) == (0, 1) and 0 < judged < both


def test_footers_are_of_one_file_and_stay_at_home(folder: Path) -> None:
    footers = FooterCache()
    footer = pq.read_metadata(folder / "f.parquet")
    footers.put("a", 7, footer)
    found = footers.stats("a", 7)
    assert found is not None and found.metadata is footer
    assert footers.stats("a", 8) is None and footers.stats("b", 7) is None
    make, arguments = footers.__reduce__()
    assert make(*arguments).stats("a", 7) is None


def test_footers_that_were_opened_last_stay(folder: Path, limits: Limits) -> None:
    footer = pq.read_metadata(folder / "f.parquet")
    limits("lakedex.parquet.base_file_reader", FOOTERS_BYTES=2 * footer.serialized_size)
    footers = FooterCache()
    footers.put("a", 1, footer)
    footers.put("b", 1, footer)
    assert footers.stats("a", 1) is not None
    footers.put("c", 1, footer)
    assert [footers.stats(name, 1) is not None for name in "abc"] == [True, False, True]
