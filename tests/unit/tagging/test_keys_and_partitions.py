"""Keys and folders of rows, and what is refused before a byte is written."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from table_kit import OWN_FILE, ROWS, base_files, make, own, picture, rows, set_properties

NAMES = [
    "a/b",
    "50%",
    "x=y",
    "k:v",
    "<tag>",
    "a b",
    "é",
    "北京",
    "",
    None,
    "it's",
    "tab\t",
    "#1",
    "+&",
    "😀",
    "a.b",
    "__HIVE_DEFAULT_PARTITION__",
]
HIVE = "hoodie.datasource.write.hive_style_partitioning"
ENCODE = "hoodie.datasource.write.partitionpath.urlencode"


def folders(path: Path) -> set[str]:
    return {str(Path(file).parent) for file in base_files(path)}


@pytest.mark.parametrize("hive", [True, False])
def test_strange_partition_values(tmp_path: Path, hive: bool) -> None:
    data = rows(*((str(n), name, 1, n) for n, name in enumerate(NAMES)))
    table = make(tmp_path, data, partition_by="city", options={HIVE: hive})
    wanted = {
        "a%2Fb",
        "50%25",
        "x%3Dy",
        "k%3Av",
        "<tag>",
        "a b",
        "é",
        "北京",
        "__HIVE_DEFAULT_PARTITION__",
        "it%27s",
        "tab%09",
        "%231",
        "+&",
        "😀",
        "a.b",
    }
    assert folders(tmp_path) == {f"city={name}" if hive else name for name in wanted}
    assert own(table) == own(data)
    result = table.upsert(data)
    assert (result.updated, result.inserted) == (len(NAMES), 0)
    for name in NAMES:
        where = "city is null" if name is None else "city = '{}'".format(name.replace("\\", "\\\\").replace("'", "\\'"))
        scan = table.scan(where)
        assert scan.count() == 1, name
        # Null, the empty string and the default's own name share a folder.
        assert len(scan.plan().files) <= 2
    table.delete(data.select(["id", "city"]).slice(0, 5))
    assert table.scan().count() == len(NAMES) - 5
    table.delete(data.select(["id"]).slice(5), all_partitions=True)
    assert own(table) == []


def test_values_as_they_are(tmp_path: Path) -> None:
    table = make(
        tmp_path,
        rows(("1", "a b", 1, 1), ("2", "x=y", 1, 1)),
        partition_by="city",
        options={HIVE: False, ENCODE: False},
    )
    assert folders(tmp_path) == {"a b", "x=y"}
    assert table.scan("city = 'x=y'").count() == 1
    assert table.upsert(rows(("2", "x=y", 1, 5))).updated == 1


def test_slashes_without_encoding_stay_findable(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "2018/09/23", 1, 1)), partition_by="city", options={ENCODE: False})
    assert table.scan("city = '2018/09/23'").count() == 1
    assert table.scan("city <> '2018/09/23'").count() == 0
    assert table.upsert(rows(("1", "2018/09/23", 2, 2))).updated == 1
    assert own(table) == [("1", "2018/09/23", 2, 2)]
    assert own(Table.open(tmp_path)) == own(table)


@pytest.mark.parametrize("url", ["a/../../b", "..", ".", "a//b", "/a"])
def test_a_path_cannot_leave_the_table(tmp_path: Path, url: str) -> None:
    path = tmp_path / "deep" / "t"
    table = make(path, schema=ROWS, partition_by="city", options={HIVE: False, ENCODE: False})
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match="partition"):
        table.upsert(rows(("1", url, 1, 1)))
    assert picture(tmp_path) == before


PARTITIONS: list[tuple[pa.DataType, list[Any], list[str], str]] = [
    (pa.date32(), [dt.date(2023, 2, 26), None], ["2023-02-26", "__HIVE_DEFAULT_PARTITION__"], "date'2023-02-26'"),
    (pa.int32(), [-5, 0], ["-5", "0"], "-5"),
    (pa.int64(), [2**60, 1], [str(2**60), "1"], str(2**60)),
    (pa.bool_(), [True, False], ["true", "false"], "true"),
    (pa.decimal128(6, 2), [Decimal("1.50"), Decimal(2)], ["1.50", "2.00"], "1.5"),
    (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None],
        ["1577836800000000", "__HIVE_DEFAULT_PARTITION__"],
        "timestamp'2020-01-01 00:00:00'",
    ),
    (pa.float64(), [1.5, -0.0], ["1.5", "-0.0"], "1.5"),
]


@pytest.mark.parametrize("kind, values, names, literal", PARTITIONS, ids=[str(kind) for kind, *_ in PARTITIONS])
def test_typed_partition_columns(
    tmp_path: Path, kind: pa.DataType, values: list[Any], names: list[str], literal: str
) -> None:
    data = pa.table({"id": ["1", "2"], "p": pa.array(values, kind)})
    table = make(tmp_path, data, partition_by="p")
    assert folders(tmp_path) == {f"p={name}" for name in names}
    assert own(table) == own(data)
    for where, keys in (
        (f"p = {literal}", ["1"]),
        (f"p <=> {literal}", ["1"]),
        (f"not (p <=> {literal})", ["2"]),
        ("p is null", ["2"] if values[1] is None else []),
    ):
        assert [key for (key,) in own(table.scan(where).to_arrow(), "id")] == keys, where
        assert len(table.scan(where).plan().files) <= 2
    assert len(table.scan(f"p = {literal}").plan().files) == 1
    if pa.types.is_floating(kind):
        assert table.scan("p = 0.0").count() == 1
    assert table.upsert(data).updated == 2
    assert table.delete(pa.table({"id": ["1"], "p": pa.array(values[:1], kind)})).deleted == 1


KEYS: list[tuple[pa.DataType, list[Any], list[str]]] = [
    (pa.int32(), [1, -2], ["1", "-2"]),
    (pa.int64(), [2**60, 0], [str(2**60), "0"]),
    (pa.date32(), [dt.date(2023, 2, 26), dt.date(1969, 1, 1)], ["2023-02-26", "1969-01-01"]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], ["1577836800000000"]),
    (pa.decimal128(6, 2), [Decimal("1.50")], ["1.50"]),
    (pa.float64(), [1.0, 1e10], ["1.0", "1.0E10"]),
    (pa.bool_(), [True, False], ["true", "false"]),
    (pa.string(), ["x,y:z", "😀\uff21", " "], ["x,y:z", "😀\uff21", " "]),
]


@pytest.mark.parametrize("kind, values, texts", KEYS, ids=[str(kind) for kind, *_ in KEYS])
def test_typed_keys(tmp_path: Path, kind: pa.DataType, values: list[Any], texts: list[str]) -> None:
    data = pa.table({"id": pa.array(values, kind), "v": [1] * len(values)})
    table = make(tmp_path, data)
    assert sorted(table.scan(meta_columns=True).to_arrow().column("_hoodie_record_key").to_pylist()) == sorted(texts)
    assert table.upsert(data).updated == len(values)
    assert table.bulk_insert(data.slice(0, 0)).instant is None
    assert table.delete(data.select(["id"])).deleted == len(values)


def test_composite_keys(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int32())])
    data = rows(("x,y", "1:2", 1), (None, "1", 2), ("", "1", 3), ("1", None, 4), schema=schema)
    table = make(tmp_path, data, record_key=["a", "b"])
    keys = {"a:x,y,b:1:2", "a:__null__,b:1", "a:__empty__,b:1", "a:1,b:__null__"}
    assert set(table.scan(meta_columns=True).to_arrow().column("_hoodie_record_key").to_pylist()) == keys
    result = table.upsert(rows(("x,y", "1:2", 9), (None, "1", 9), ("", "1", 9), ("1", None, 9), schema=schema))
    assert (result.updated, result.inserted) == (4, 0)
    assert table.delete(rows((None, "1"), schema=pa.schema([("a", pa.string()), ("b", pa.string())]))).deleted == 1
    assert table.scan().count() == 3
    assert table.scan("a = 'x,y' and b = '1:2'").count() == 1


@pytest.mark.parametrize("stored, prefix", [(True, "id:"), (False, "")])
def test_one_field_under_the_complex_generator(tmp_path: Path, stored: bool, prefix: str) -> None:
    # Releases differ in how they write such a key; the stored keys say how this table has them.
    table = make(tmp_path, schema=ROWS, partition_by=["city", "n"])
    if stored:
        table.upsert(rows(("k1", "a", 1, 1)))
        assert table.scan(meta_columns=True).to_arrow().column("_hoodie_record_key").to_pylist() == ["id:k1"]
    else:
        make_bare(table)
    result = table.upsert(rows(("k1", "a", 2, 1), ("k2", "a", 2, 1)))
    assert (result.updated, result.inserted) == (1, 1)
    keys = table.scan(meta_columns=True).to_arrow().column("_hoodie_record_key").to_pylist()
    assert sorted(keys) == [f"{prefix}k1", f"{prefix}k2"]
    assert table.scan("id = 'k2'").count() == 1


def make_bare(table: Table) -> None:
    """Write the first row with a bare key, as Hudi 1.0.2 and 0.14.1 do."""
    path = Path(table.path)
    set_properties(path, {"hoodie.table.keygenerator.type": "SIMPLE"})
    table.upsert(rows(("k1", "a", 1, 1)))
    set_properties(path, {"hoodie.table.keygenerator.type": "COMPLEX"})


# ------------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize("action", ["bulk_insert", "insert", "upsert", "delete"])
@pytest.mark.parametrize("keys, bad", [(["1", None], 1), (["", None, "2"], 2)], ids=str)
def test_keys_that_are_null_or_empty(tmp_path: Path, action: str, keys: list[str | None], bad: int) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city")
    before = picture(tmp_path)
    with pytest.raises(
        InvalidInputError, match=rf"{bad} of {len(keys)} rows have a null or empty record key \(column id\)"
    ) as caught:
        getattr(table, action)(rows(*((key, "a", 1, 1) for key in keys)))
    assert (caught.value.column, caught.value.count) == ("id", bad)
    assert picture(tmp_path) == before


def test_a_composite_key_without_any_part(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int32())])
    table = make(tmp_path, schema=schema, record_key=["a", "b"])
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match="column a, b") as caught:
        table.upsert(rows(("", None), ("x", None), schema=schema))
    assert caught.value.count == 1
    assert picture(tmp_path) == before


def test_nulls_in_required_fields(tmp_path: Path) -> None:
    """Also in a struct, as Spark makes them: ``named_struct('a', id)`` of a range has a field that is never null."""
    required = pa.field("b", pa.struct([pa.field("c", pa.int64(), False)]), False)
    schema = pa.schema([("id", pa.string()), ("s", pa.struct([("a", pa.int64()), required]))])
    table = make(tmp_path, schema=schema, record_key="id")
    loose = pa.schema(
        [("id", pa.string()), ("s", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.int64())]))]))]
    )
    fine: list[Any] = [{"id": "1", "s": None}, {"id": "2", "s": {"a": None, "b": {"c": 1}}}]
    table.upsert(pa.Table.from_pylist(fine, loose))
    before = picture(tmp_path)
    for bad, path in (({"a": 1, "b": {"c": None}}, "s.b.c"), ({"a": 1, "b": None}, "s.b")):
        with pytest.raises(InvalidInputError, match=f"column '{path}' has 1 nulls in one batch") as caught:
            table.upsert(pa.Table.from_pylist([*fine, {"id": "3", "s": bad}], loose))
        assert caught.value.column == path
    assert picture(tmp_path) == before


@pytest.mark.parametrize("column, what", [("id", "record key"), ("city", "partition"), ("ts", "ordering")])
@pytest.mark.parametrize("action", ["bulk_insert", "insert", "upsert"])
def test_missing_columns(tmp_path: Path, column: str, what: str, action: str) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", ordering_by="ts")
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match=f"{what} column '{column}' is not in the frame") as caught:
        getattr(table, action)(rows(("2", "a", 1, 1)).drop_columns([column]))
    assert caught.value.column == column
    assert picture(tmp_path) == before


def test_a_key_column_of_a_type_that_makes_no_key(tmp_path: Path) -> None:
    table = make(tmp_path)
    before = picture(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match="cannot be part of a record key"):
        table.upsert(pa.table({"id": pa.array([b"x"]), "v": pa.array([1], pa.int32())}))
    assert picture(tmp_path) == before


@pytest.mark.parametrize(
    "properties, reads, message",
    [
        ({"hoodie.table.version": "6"}, False, "timeline layout is 2, not 1 as in every table of version 6"),
        ({"hoodie.table.version": "10"}, False, "table version is 10"),
        ({"hoodie.table.base.file.format": "ORC"}, False, "ORC"),
        (
            {"hoodie.table.metadata.partitions": "files,record_index"},
            True,
            "record index.*hoodie.metadata.index.drop=record_index",
        ),
        (
            {"hoodie.table.metadata.partitions": "files,secondary_index_x"},
            True,
            "hoodie.metadata.index.drop=secondary_index_x",
        ),
        ({"hoodie.table.metadata.partitions": "files,expr_index_x"}, True, "hoodie.metadata.index.drop=expr_index_x"),
        ({"hoodie.table.metadata.partitions": "files,what"}, True, "'what', which is unknown to lakedex"),
        ({"hoodie.table.metadata.partitions.inflight": "record_index"}, True, "record index"),
        ({"hoodie.populate.meta.fields": "false"}, True, "no meta columns"),
        ({"hoodie.table.cdc.enabled": "true"}, True, "change data capture"),
        ({"hoodie.table.keygenerator.type": "TIMESTAMP"}, True, "key generator is TIMESTAMP"),
        ({"hoodie.record.merge.mode": "CUSTOM"}, True, "merge mode is CUSTOM"),
    ],
    ids=str,
)
def test_tables_that_are_not_written(tmp_path: Path, properties: dict[str, str], reads: bool, message: str) -> None:
    make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", options=OWN_FILE)
    set_properties(tmp_path, properties)
    before = picture(tmp_path)
    if not reads:
        with pytest.raises(UnsupportedFeatureError, match=message) as caught:
            Table.open(tmp_path)
        assert isinstance(caught.value, NotImplementedError)
        assert picture(tmp_path) == before
        return
    table = Table.open(tmp_path)
    assert own(table) == [("1", "a", 1, 1)]
    writes = (
        lambda: table.upsert(rows(("2", "a", 1, 1))),
        lambda: table.insert(rows(("2", "a", 1, 1))),
        lambda: table.bulk_insert(rows(("2", "a", 1, 1))),
        lambda: table.delete(where="id = '1'"),
        lambda: table.delete(pa.table({"id": ["1"]})),
        lambda: table.update({"n": "5"}),
    )
    for write in writes:
        with pytest.raises(UnsupportedFeatureError, match=message):
            write()
    assert picture(tmp_path) == before
