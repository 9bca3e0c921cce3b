"""Values of Parquet pages that their columns cannot hold: refused where rows leave the file."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.errors import CorruptFileError
from lakedex.io.local import LocalStorage
from lakedex.parquet import base_file_reader as base_file
from lakedex.parquet import base_file_reader as row_groups
from lakedex.parquet.stored_values import check_values, columns_to_validate
from table_kit import OWN_FILE, base_files

GOOD, BAD = b"letters", b"lett\xc7rs"
STORE = LocalStorage()
UNPACKED = {"hoodie.parquet.compression.codec": "uncompressed"}


def columns() -> dict[str, pa.Array]:
    """Columns with one damaged text each, and others before it."""
    texts = ["before", "Zürich", GOOD.decode()]
    return {
        "string": pa.array(texts),
        "large": pa.array(texts, pa.large_string()),
        "list": pa.array([[text] for text in texts], pa.list_(pa.string())),
        "struct": pa.array([{"n": 1, "s": text} for text in texts]),
        "key": pa.array([[(text, 1)] for text in texts], pa.map_(pa.string(), pa.int32())),
        "value": pa.array([[(1, text)] for text in texts], pa.map_(pa.int32(), pa.string())),
        "deep": pa.array([[{"s": [text]}] for text in texts]),
    }


def damaged(folder: Path, column: pa.Array) -> Path:
    """A file with one column, whose data page is damaged and nothing else."""
    path = folder / "f.parquet"
    pq.write_table(
        pa.table({"c": column}), path, compression="none", use_dictionary=False, write_statistics=False,
        store_schema=False,
    )  # fmt: skip
    data = path.read_bytes()
    assert data.count(GOOD) == 1
    path.write_bytes(data.replace(GOOD, BAD))
    return path


def by_groups(path: str) -> list[pa.RecordBatch]:
    with row_groups.open_for_scan(STORE, path) as source:
        return list(source.batches(["c"], [0], 10))


def with_footer(path: str) -> list[pa.RecordBatch]:
    with base_file.open_for_merge(STORE, path) as stored:
        return list(stored.batches())


READERS: list[Callable[[str], object]] = [
    lambda path: list(base_file.iter_base_file(STORE, path)),
    lambda path: list(base_file.iter_base_file(STORE, path, batch_rows=2)),
    lambda path: base_file.read_base_file(STORE, path),
    lambda path: base_file.parquet_columns(Path(path).read_bytes(), ["c"], path),
    by_groups,
    with_footer,
]


@pytest.mark.parametrize("name", columns())
def test_text_that_is_no_utf_8(tmp_path: Path, name: str) -> None:
    path = str(damaged(tmp_path, columns()[name]))
    for read in READERS:
        with pytest.raises(CorruptFileError, match="'c'.*UTF") as caught:
            read(path)
        assert caught.value.path == path


def test_only_the_rows_of_a_slice_are_looked_at() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xffa")]
    )
    lists = pa.ListArray.from_arrays([0, 1, 2], bad)
    pairs = pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "k"]), bad)
    structs = pa.StructArray.from_arrays([bad], ["s"])
    for array in (bad, lists, pairs, structs):
        rows = pa.record_batch({"c": array.slice(1)})
        check_values(rows, columns_to_validate(rows.schema))
    for array in (bad, lists, pairs, structs):
        with pytest.raises(pa.ArrowInvalid, match="'c'"):
            check_values(pa.record_batch({"c": array.slice(0, 1)}), (0,))


def test_later_rows_of_a_struct_are_looked_at() -> None:
    offsets = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"ab\xff")])
    rows = pa.record_batch({"c": pa.StructArray.from_arrays([bad], ["s"]).slice(2)})
    with pytest.raises(pa.ArrowInvalid, match="'c'"):
        check_values(rows, columns_to_validate(rows.schema))


def test_decimals_of_too_many_digits() -> None:
    stored = pa.array([Decimal(10**9)], pa.decimal128(38, 0)).buffers()
    rows = pa.record_batch({"d": pa.Array.from_buffers(pa.decimal128(4, 0), 1, stored), "n": pa.array([1])})
    assert columns_to_validate(rows.schema) == (0,)
    with pytest.raises(pa.ArrowInvalid, match="'d'.*precision"):
        check_values(rows, (0,))


def test_numbers_are_not_looked_at() -> None:
    kinds = (pa.int64(), pa.float32(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.list_(pa.int8()))
    assert columns_to_validate(pa.schema([(str(kind), kind) for kind in kinds])) == ()


@pytest.mark.parametrize("where", [None, "n = 1", "c > 'a'"])
def test_a_damaged_page_of_a_table(tmp_path: Path, where: str | None) -> None:
    """Found by fuzzing (``table.parquet``): rows came out, and the caller's look at them was an UnicodeDecodeError."""
    schema = pa.schema([("id", pa.string()), ("c", pa.string()), ("n", pa.int32())])
    table = Table.create(tmp_path / "t", schema, record_key="id", options=OWN_FILE | UNPACKED)
    # Of two values: one alone would be taken from the footer.
    texts = ["a" + GOOD.decode() * 40, "b"]
    table.insert(pa.table({"id": ["1", "2"], "c": texts, "n": pa.array([1, 2], pa.int32())}))
    (name,) = base_files(tmp_path / "t")
    path = tmp_path / "t" / name
    data = path.read_bytes()
    path.write_bytes(data.replace(GOOD * 40, GOOD * 20 + BAD + GOOD * 19, 1))
    with pytest.raises(CorruptFileError, match=path.name):
        table.scan(where).to_arrow()
    with pytest.raises(CorruptFileError, match=path.name):
        table.update({"n": "n + 1"}, "n = 1")
    assert table.scan("n = 1").select("n").to_arrow().to_pylist() == [{"n": 1}]
