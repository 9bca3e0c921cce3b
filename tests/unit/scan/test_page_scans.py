"""Scans of files with a page index: the rows of a scan of whole chunks, from fewer bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from lakedex.expr.parser import bind
from lakedex.index.bitmap.builder import RowGroup
from lakedex.index.protocol import RowSelection
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.scan.slice_reader import WHOLE, ReadCount, SliceReader, iter_slice_rows

GROUPS = (9000, 75_000)
ROWS = sum(GROUPS)
NUMBERS = np.arange(ROWS)
STORED = pa.table(
    {
        "id": [f"k{number:06d}" for number in NUMBERS],
        "n": pa.array(NUMBERS, pa.int32()),
        "word": [f"w{number // 3000}" for number in NUMBERS],
        "maybe": pa.array([None if number // 1000 % 3 == 0 else number % 7 for number in NUMBERS], pa.int64()),
        "x": NUMBERS / 3,
        "flag": NUMBERS < 40,
        "p": pa.array([{"a": int(number), "b": f"{number % 5}"} for number in NUMBERS]),
        "many": pa.array([[int(number)] * (number % 3) for number in NUMBERS]),
    }
)
SCHEMA = pa.schema([*STORED.schema.set(1, pa.field("n", pa.int64())), ("absent", pa.string())])
LAYOUTS = {
    "same rows": {"max_rows_per_page": 500, "write_batch_size": 500},
    "same bytes": {"data_page_size": 4096, "write_batch_size": 100},
}


@pytest.fixture(scope="module", params=LAYOUTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp(request.param.replace(" ", "-"), numbered=False)
    with pq.ParquetWriter(
        found / "f.parquet",
        STORED.schema,
        write_page_index=True,
        store_schema=False,
        use_dictionary=["word"],
        **LAYOUTS[request.param],
    ) as writer:
        for start, rows in zip((0, GROUPS[0]), GROUPS, strict=True):
            writer.write_table(STORED.slice(start, rows), row_group_size=rows)
    return found


def read(
    folder: Path, where: str | None, names: tuple[str, ...], selection: RowSelection | None = None, indexes: bool = True
) -> tuple[pa.Table, ReadCount]:
    made = SliceReader(
        files=TableFiles(LocalStorage(), str(folder)),
        table_columns=SCHEMA,
        names=names,
        predicate=None if where is None else bind(where, SCHEMA),
        use_indexes=indexes,
        selections={} if selection is None else {"f.parquet": selection},
    )
    base = BaseFile("", "f.parquet", (folder / "f.parquet").stat().st_size, "f", "1")
    count = ReadCount()
    batches = iter_slice_rows(made, FileSlice("", "f", "1", base), WHOLE, count)
    return pa.Table.from_batches(list(batches), made.schema), count


def allowed(folder: Path, share: float) -> float:
    """Share of the bytes that may be read: columns of few bytes have one page where pages have the same size."""
    return share if folder.name == "same-rows" else 1


NAMES = tuple(SCHEMA.names)


@pytest.mark.parametrize(
    ("where", "share"),
    [
        ("id = 'k000007'", 0.25),
        ("id in ('k000007', 'k080000')", 0.25),
        ("n between 100 and 105", 0.25),
        ("n = 8999 or n = 9000", 0.25),
        ("n < 3 and word = 'w0' and x > 0.5", 0.25),
        ("word = 'w2' and n % 100 = 7", 0.6),
        ("flag", 0.25),
        ("maybe is null and n > 83000", 0.25),
        ("n > 83000 and p.b = '3'", 1),
        ("n = 5 and absent is null", 0.25),
        ("n = 5 and absent = 'x'", 0.25),
        ("maybe is null", 1),
        ("maybe = 3 and absent is null", 1),
        ("x = 7", 1),
        ("n % 50000 = 1", 1),
        ("n >= 0", 1),
        ("n is null", 0),
    ],
)
def test_bounds_of_pages_leave_out_what_cannot_match(folder: Path, where: str, share: float) -> None:
    for names in (NAMES, ("x",), ("id", "many", "absent")):
        right, _ = read(folder, where, names, indexes=False)
        found, count = read(folder, where, names)
        assert found.equals(right)
        assert count.matched == right.num_rows
        assert count.bytes_read <= allowed(folder, share) * (folder / "f.parquet").stat().st_size


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize(
    ("rows", "share"),
    [
        ([5], 0.2),
        ([8999, 9000, 9001], 0.2),
        ([9000 + 65_535, 9000 + 65_536], 0.2),
        ([100, *range(9000 + 66_000, 9000 + 70_000)], 1),
        ([9000, *range(9000 + 66_000, ROWS)], 1),
        (range(0, ROWS, 300), 1),
        (range(ROWS), 1),
    ],
)
def test_pages_of_selected_rows(folder: Path, rows: list[int], share: float, *, is_exact: bool) -> None:
    groups = [RowGroup(count, 0, 0) for count in GROUPS]
    selection = RowSelection.of(BitMap(rows), groups, is_exact=is_exact)
    where = "n >= 0" if is_exact else "maybe is not null"
    right = STORED.take(pa.array(list(rows)))
    right = right if is_exact else right.filter(pc.is_valid(right.column("maybe")))
    found, count = read(folder, where, NAMES, selection)
    assert found.drop_columns(["n", "absent"]).equals(right.drop_columns(["n"]))
    assert found.column("n").to_pylist() == right.column("n").to_pylist()
    assert count.bytes_read <= allowed(folder, share) * (folder / "f.parquet").stat().st_size
