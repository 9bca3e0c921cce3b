"""The rows of one slice: which row groups, which columns, what is counted."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.expr.parser import bind
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice, LogFile
from lakedex.scan.slice_reader import WHOLE, Part, ReadCount, SliceReader, iter_slice_rows

PLACE = pa.struct([("x", pa.int64()), ("y", pa.string()), ("deep", pa.struct([("z", pa.int64())]))])
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("p", PLACE), ("new", pa.string())])
BASE = BaseFile("part", "f.parquet", 1, "f", "1")
SLICE = FileSlice("part", "f", "1", BASE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten row groups of ten rows; an older file: ``n`` is narrower, ``new`` and ``p.deep`` are not there."""
    found = tmp_path_factory.mktemp("slice")
    (found / "part").mkdir()
    places = [{"x": n, "y": "long " * 100} for n in range(100)]
    table = pa.table(
        {
            "id": [f"k{n:02d}" for n in range(100)],
            "n": pa.array(range(100), pa.int32()),
            "p": pa.array(places, pa.struct([("x", pa.int32()), ("y", pa.string())])),
        }
    )
    pq.write_table(table, found / "part" / "f.parquet", row_group_size=10, use_dictionary=False, compression="none")
    return found


def reader(folder: Path, where: str | None, *names: str, use_indexes: bool = True) -> SliceReader:
    predicate = None if where is None else bind(where, SCHEMA)
    return SliceReader(
        files=TableFiles(LocalStorage(), str(folder)),
        table_columns=SCHEMA,
        names=names,
        predicate=predicate,
        use_indexes=use_indexes,
    )


def read(made: SliceReader, part: Part = WHOLE) -> tuple[pa.Table, ReadCount]:
    count = ReadCount()
    return pa.Table.from_batches(list(iter_slice_rows(made, SLICE, part, count)), made.schema), count


@pytest.mark.parametrize(
    "where, groups, rows",
    [
        ("n = 42", 1, 1),
        ("n >= 85", 2, 15),
        ("id = 'k42'", 1, 1),
        ("p.x between 18 and 21", 2, 4),
        ("p.deep.z = 1", 0, 0),
        ("p.deep is null", 10, 100),
        ("new is null", 10, 100),
        ("new = 'a'", 0, 0),
        ("not (new is null) or n < 0", 0, 0),
        ("n is null", 0, 0),
        ("new is null and n = 5", 1, 1),
    ],
)
def test_row_groups_are_skipped(folder: Path, where: str, groups: int, rows: int) -> None:
    found, count = read(reader(folder, where, "id", "n"))
    assert (count.row_groups, count.row_groups_skipped, count.matched) == (groups, 10 - groups, rows)
    assert (count.rows, found.num_rows) == (10 * groups, rows)
    plain, whole = read(reader(folder, where, "id", "n", use_indexes=False))
    assert (plain, whole.row_groups) == (found, 10)
    assert found.schema == pa.schema([("id", pa.string()), ("n", pa.int64())])


def test_only_the_leaves_of_a_condition_are_read(folder: Path) -> None:
    by_leaf, leaf = read(reader(folder, "p.x = 42", "id"))
    whole, all_of_it = read(reader(folder, "p.x = 42", "id", "p"))
    assert by_leaf.to_pydict() == {"id": ["k42"]}
    assert whole.column("p").to_pylist() == [{"x": 42, "y": "long " * 100, "deep": None}]
    assert leaf.bytes_read < 500 < 5000 < all_of_it.bytes_read
    assert reader(folder, "p.x = 42 and p.deep.z = 1", "id").needed.field("p").type == pa.struct(
        [("x", pa.int64()), ("deep", pa.struct([("z", pa.int64())]))]
    )
    assert reader(folder, "p.x = 42 and p is null", "id").needed.field("p").type == PLACE


def test_no_columns_still_count(folder: Path) -> None:
    for where, rows in ((None, 100), ("n > 97", 2)):
        made = reader(folder, where)
        count = ReadCount()
        assert sum(batch.num_rows for batch in iter_slice_rows(made, SLICE, count=count)) == rows
        assert count.matched == rows
    made = reader(folder, None, "new")
    assert sum(batch.num_rows for batch in iter_slice_rows(made, SLICE)) == 100


@pytest.mark.parametrize("parts", [1, 3, 10, 13])
def test_parts_cover_all_rows_in_order(folder: Path, parts: int) -> None:
    tables = [read(reader(folder, "n <> 50", "n"), Part(number, parts))[0] for number in range(parts)]
    assert pa.concat_tables(tables).column("n").to_pylist() == [n for n in range(100) if n != 50]


def test_it_pickles(folder: Path) -> None:
    made = reader(folder, "n > 97 and p.x is not null", "id")
    again, item = pickle.loads(pickle.dumps((made, SLICE)))
    assert read(again)[0] == read(made)[0]
    assert item == SLICE


def test_log_files_need_the_tables_settings(folder: Path) -> None:
    item = FileSlice("part", "f", "1", BASE, (LogFile("part", ".f_1.log.1_0-0-0", 1, "1"),))
    with pytest.raises(InvalidInputError, match="f.parquet has log files"):
        list(iter_slice_rows(reader(folder, None, "id"), item))
    assert list(iter_slice_rows(reader(folder, None, "id"), FileSlice("part", "f", "1", None))) == []


def test_a_type_that_does_not_fit_names_the_column(folder: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    made = SliceReader(files=TableFiles(LocalStorage(), str(folder)), table_columns=schema, names=("id",))
    with pytest.raises(SchemaMismatchError, match="column 'id'"):
        list(iter_slice_rows(made, SLICE))
