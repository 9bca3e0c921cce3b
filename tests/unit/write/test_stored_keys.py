"""Keys and partition paths that another writer put into another text: nothing is written beside them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from golden_tables import unpack_java_1_2
from lakedex import Table
from lakedex.errors import UnsupportedFeatureError
from lakedex.layout import keys as key_generator
from lakedex.layout import keys as partition_path
from lakedex.layout.keys import value_text
from lakedex.snapshot import partitions as stored_keys
from table_kit import make, own, picture

NOON = dt.datetime(2025, 1, 2, 12, 0, tzinfo=dt.UTC)
TIME, DAY = pa.timestamp("us", "UTC"), pa.date32()
OTHER_TEXT: dict[str, tuple[pa.DataType, Any, Callable[[Any], str]]] = {
    "timestamp": (TIME, NOON, lambda value: f"{value:%Y-%m-%d %H:%M:%S.0}"),
    "timestamp without zone": (pa.timestamp("us"), NOON.replace(tzinfo=None), lambda value: str(value)),
    "date": (DAY, dt.date(2025, 1, 2), lambda value: str((value - dt.date(1970, 1, 1)).days)),
    "decimal": (pa.decimal128(20, 10), Decimal("0.0000000001"), lambda value: f"{value:E}"),
    "double": (pa.float64(), 2e-44, lambda value: f"{value:.17e}"),
}
"""Per type a value and how some other writer writes it."""


@contextmanager
def writer_of(other: Callable[[Any], str], kind: pa.DataType) -> Iterator[None]:
    """Keys and paths are built as the other writer does."""

    def text(column: pa.Array) -> pa.Array:
        if column.type != kind:
            return value_text(column)
        return pa.array([None if value is None else other(value) for value in column.to_pylist()], pa.string())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_generator, "value_text", text)
        patch.setattr(partition_path, "value_text", text)
        patch.setattr(stored_keys, "require_stored_text", lambda *_, **__: None)
        patch.setattr("lakedex.snapshot.partitions.require_stored_text", lambda *_, **__: None)
        patch.setattr("lakedex.write.pipeline.require_key_ranges", lambda *_, **__: None)
        yield


def frame(kind: pa.DataType, value: Any, number: int = 1) -> pa.Table:
    columns = {"k": pa.array([value], kind), "id": ["a"], "n": pa.array([number], pa.int32())}
    return pa.table(columns)


PLACES = {
    "key": {"record_key": "k"},
    "part of a key": {"record_key": ["id", "k"]},
    "partition": {"record_key": "id", "partition_by": "k"},
    "plain partition": {
        "record_key": "id",
        "partition_by": "k",
        "options": {
            "hoodie.datasource.write.hive_style_partitioning": "false",
            "hoodie.datasource.write.partitionpath.urlencode": "false",
        },
    },
}
EVERY_PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
EVERY_TYPE = pytest.mark.parametrize(("kind", "value", "other"), OTHER_TEXT.values(), ids=OTHER_TEXT)


@EVERY_TYPE
@EVERY_PLACE
def test_the_column_is_named_and_nothing_is_written(
    tmp_path: Path, kind: pa.DataType, value: Any, other: Callable[[Any], str], place: dict[str, Any]
) -> None:
    row = frame(kind, value)
    with writer_of(other, kind):
        make(tmp_path / "t", row, **place)
    table = Table.open(tmp_path / "t")
    before = picture(tmp_path / "t")
    with pytest.raises(UnsupportedFeatureError, match=r"table 't': column 'k' .* another text .*\.parquet"):
        table.upsert(row)
    assert picture(tmp_path / "t") == before


@EVERY_TYPE
@EVERY_PLACE
def test_our_own_text_goes_on(
    tmp_path: Path, kind: pa.DataType, value: Any, other: Callable[[Any], str], place: dict[str, Any]
) -> None:
    table = make(tmp_path / "t", frame(kind, value), **place)
    assert Table.open(tmp_path / "t").upsert(frame(kind, value, 2)).updated == 1
    assert own(table, "n") == [(2,)]


WRITES: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "insert": lambda table, rows: table.insert(rows),
    "insert_distinct": lambda table, rows: table.insert(rows, options={"hoodie.datasource.insert.dup.policy": "drop"}),
    "bulk_insert": lambda table, rows: table.bulk_insert(rows),
    "delete": lambda table, rows: table.delete(rows.select(["k"])),
    "merge": lambda table, rows: table.merge(rows, "t.k = s.k").when_matched_update_all().execute(),
    "erase": lambda table, rows: table.erase(rows.select(["k"])),
    "insert_overwrite": lambda table, rows: table.insert_overwrite(rows, scope="table"),
}


@pytest.fixture(scope="module")
def java_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_java_1_2("text_keys", tmp_path_factory.mktemp("keys"))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_table_of_javas_bulk_insert(java_table: Path, write: Callable[[Table, pa.Table], object]) -> None:
    table = Table.open(java_table)
    rows = table.scan(columns=table.schema.names).to_arrow()
    with pytest.raises(UnsupportedFeatureError, match="'2025-01-02 03:04:05.0', not '1735787045000000'.*of which zone"):
        write(table, rows)
    assert table.scan().count() == rows.num_rows == 2


def test_conditions_go_by_stored_keys(tmp_path: Path) -> None:
    table = Table.open(unpack_java_1_2("text_keys", tmp_path))
    assert table.update({"v": "'x'"}, "k < TIMESTAMP'2025-02-01 00:00:00Z'").updated == 1
    assert table.delete(where="v = 'x'").deleted == 1
    assert own(table, "_hoodie_record_key", "v") == [("2025-06-07 08:09:10.0", "java1")]


def test_keys_of_another_text_in_some_files_only(tmp_path: Path) -> None:
    """The first file tells nothing of the others; their least and greatest keys do."""
    places = {"record_key": "k", "partition_by": "id"}
    table = make(tmp_path / "t", frame(TIME, NOON), **places)
    with writer_of(OTHER_TEXT["timestamp"][2], TIME):
        table.insert(frame(TIME, NOON).set_column(1, "id", pa.array(["b"])))
    table = Table.open(tmp_path / "t")
    assert table.upsert(frame(TIME, NOON, 2)).updated == 1, "partition a is sound"
    with pytest.raises(UnsupportedFeatureError, match=r"column 'k' .*'2025-01-02 12:00:00.0' in id=b/"):
        table.upsert(frame(TIME, NOON).set_column(1, "id", pa.array(["b"])))


def test_one_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = stored_keys.iter_base_file

    def counted(storage: Any, path: str, *arguments: Any, **options: Any) -> Any:
        read.append(path)
        return plain(storage, path, *arguments, **options)

    monkeypatch.setattr(stored_keys, "iter_base_file", counted)
    table = make(tmp_path / "t", frame(TIME, NOON), record_key="k")
    for number in range(3):
        table.upsert(frame(TIME, NOON, number))
    assert len(read) == 1
    plain_keys = make(tmp_path / "plain", frame(TIME, NOON), record_key="id", partition_by="n")
    plain_keys.upsert(frame(TIME, NOON))
    assert len(read) == 1, "text and whole numbers have one text"
