"""The Python Data Source as Spark's workers use it, without a JVM."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.cloudpickle import dumps
from pyspark.sql import datasource as spark_filters
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import pyspark_lakedex
from lakedex import Table
from lakedex.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.scan.slice_reader import OPEN_COST, PARTITION_BYTES, packed
from lakedex.spark import data_source
from lakedex.spark.data_source import LakedexDataSource
from lakedex.spark.schema import arrow_to_spark, nullable, spark_to_arrow
from table_kit import OWN_FILE, make, own, rows

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three cities of four rows, a file each; a fifth row of ``oslo`` in a file of its own."""
    made = make(
        tmp_path_factory.mktemp("source") / "t",
        rows(*((f"{city}-{i}", city, i, i * 10) for city in ("oslo", "rome", "lima") for i in range(4))),
        partition_by="city",
    )
    made.insert(rows(("oslo-9", "oslo", 9, None)), options=OWN_FILE)
    return made


@pytest.fixture
def spark_hands_filters_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, ModuleType(PUSHDOWN_WORKER))


def source(table: Table, **options: str) -> LakedexDataSource:
    return LakedexDataSource({"path": table.path, **options})


def read(made: LakedexDataSource, schema: StructType | None = None, filters: list[Any] | None = None) -> pa.Table:
    """What Spark does: schema, reader, filters, the reader pickled, then the partitions, each read on its own."""
    schema = made.schema() if schema is None else schema
    made = pickle.loads(pickle.dumps(made))
    reader = made.reader(schema)
    if filters is not None:
        assert reader.pushFilters(filters) == filters
    sent = dumps(reader)
    batches = [
        batch for part in reader.partitions() for batch in pickle.loads(sent).read(pickle.loads(pickle.dumps(part)))
    ]
    expected = to_arrow_schema(schema, timezone="UTC")
    assert all(expected.equals(batch.schema) for batch in batches), "Spark 4.2 compares the schemas"
    return pa.Table.from_batches(batches, expected)


def files(made: LakedexDataSource) -> int:
    return sum(len(part.value) for part in made.reader(made.schema()).partitions())


def test_spark_finds_it_by_its_module() -> None:
    assert issubclass(pyspark_lakedex.DefaultSource, LakedexDataSource)
    assert LakedexDataSource.name() == "lakedex"


def test_rows_and_schema_are_the_tables(table: Table) -> None:
    assert own(read(source(table))) == own(table)
    assert read(source(table)).schema.names == table.scan(meta_columns=True).schema.names


def test_columns_in_the_order_asked_for(table: Table) -> None:
    found = read(source(table, columns="N,id", where="city = 'rome'"))
    assert found.schema.names == ["n", "id"]
    assert sorted(found.column("id").to_pylist()) == [f"rome-{i}" for i in range(4)]
    with pytest.raises(InvalidInputError, match="no column 'none'"):
        source(table, columns="id,none").schema()


def test_a_condition_chooses_files_and_rows(table: Table) -> None:
    assert files(source(table)) == 4
    assert files(source(table, where="city = 'oslo' and n >= 0")) == 1
    assert files(source(table, where="city = 'oslo' and n >= 0", skipping="false")) == 4
    assert own(read(source(table, where="n >= 30")), "id") == [("lima-3",), ("oslo-3",), ("rome-3",)]
    assert read(source(table, where="n > 1000")).num_rows == 0


def test_a_schema_of_the_users_own(table: Table) -> None:
    asked = StructType().add("ID", "string").add("n", "integer")
    found = read(source(table), asked)
    assert found.schema.names == ["ID", "n"]
    assert found.num_rows == 13
    for wrong in (StructType().add("n", "long"), StructType().add("n", "integer", nullable=False)):
        with pytest.raises(SchemaMismatchError, match="'n'"):
            read(source(table), wrong)
    with pytest.raises(InvalidInputError, match="'z'"):
        read(source(table), StructType().add("z", "long"))


def test_a_frame_is_pinned_when_it_is_loaded(tmp_path: Path) -> None:
    table = make(tmp_path / "t", rows(("a", "x", 1, 1)))
    first = table.inspect.history().column("commit_time")[0].as_py()
    loaded = source(table)
    schema = loaded.schema()
    table.upsert(rows(("b", "x", 1, 2)))
    assert read(loaded, schema).num_rows == 1
    assert read(source(table)).num_rows == 2
    for option in ("asOf", "as_of", "as.of.instant"):
        assert read(source(table, **{option: first})).num_rows == 1
    with pytest.raises(InvalidInputError, match="no commit at or before 2001-01-01"):
        source(table, asOf="2001-01-01").schema()


def test_changes_by_hudis_options(tmp_path: Path) -> None:
    table = make(tmp_path / "t", rows(("a", "x", 1, 1), ("b", "x", 1, 1)))
    first = str(table.snapshot().instant)
    second = str(table.upsert(rows(("b", "x", 2, 2))).instant)
    name = "hoodie.datasource.read.{}.instanttime".format

    def changes(begin: str, **more: str) -> list[Any]:
        options = {"hoodie.datasource.query.type": "incremental", name("begin"): begin, **more}
        frame = source(table, **options)
        schema = frame.schema()
        table.upsert(rows(("c", "x", 3, 3)))  # The frame is pinned: what comes later is not in it.
        found = own(read(frame, schema), "id")
        table.maintenance.rollback(str(table.snapshot().instant))
        return found

    assert changes(first) == [("b",)]
    assert changes("000") == changes("earliest") == [("a",), ("b",)]
    assert changes("0", **{name("end"): first}) == [("a",), ("b",)]
    assert changes(first, where="n > 5") == changes(second) == []


def test_a_table_without_rows(tmp_path: Path) -> None:
    table = make(tmp_path / "t", schema=rows().schema)
    assert read(source(table)).num_rows == 0
    assert len(source(table).reader(source(table).schema()).partitions()) == 1


def test_a_failed_plan_is_no_empty_table(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark reads a reader whose ``partitions`` raises NotImplementedError as one task without a partition."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedFeatureError("not this one")

    reader = source(table).reader(source(table).schema())
    monkeypatch.setattr(data_source, "plan_scan", refuse)
    with pytest.raises(Exception, match="not this one") as caught:
        reader.partitions()
    assert not isinstance(caught.value, NotImplementedError)


def test_executors_get_no_snapshot(table: Table) -> None:
    reader = source(table).reader(source(table).schema())
    assert b"Snapshot" not in dumps(reader)


# -------------------------------------------------------------------------------------------------- pushed filters


def test_filters_are_taken_on_the_users_word_only(table: Table, spark_hands_filters_over: None) -> None:
    """Spark reads all scans of a frame by the filters of one of them."""
    base = spark_filters.DataSourceReader.pushFilters
    plain, taking = (source(table, singleQuery=word) for word in ("false", "true"))
    assert type(plain.reader(plain.schema())).pushFilters is base
    assert type(taking.reader(taking.schema())).pushFilters is not base


def test_a_reader_takes_no_filters_where_spark_hands_none_over(table: Table) -> None:
    """Spark refuses a reader with ``pushFilters`` in any other worker."""
    assert PUSHDOWN_WORKER not in sys.modules
    made = source(table, singleQuery="true")
    assert type(made.reader(made.schema())).pushFilters is spark_filters.DataSourceReader.pushFilters


def test_pushed_filters_choose_files_and_rows(table: Table, spark_hands_filters_over: None) -> None:
    made = source(table, singleQuery="true", where="n < 30")
    filters = [
        spark_filters.IsNotNull(("city",)),
        spark_filters.EqualTo(("city",), "oslo"),
        spark_filters.Not(spark_filters.EqualTo(("n",), 10)),
        spark_filters.EqualTo(("n",), "no integer"),
    ]
    assert own(read(made, filters=filters), "id") == [("oslo-0",), ("oslo-2",)]
    reader = made.reader(made.schema())
    reader.pushFilters(filters)
    assert sum(len(part.value) for part in reader.partitions()) == 1


VALUES = st.one_of(st.none(), st.integers(-1, 50), st.sampled_from([2**40, "x", True, 10.0]))
TEXTS = st.sampled_from(["oslo", "rome", "lima", "o", "", "lim%", "_", "zzz", None, 3])
FILTERS = st.one_of(
    st.builds(
        lambda kind, value: kind(("n",), value),
        st.sampled_from([spark_filters.EqualTo, spark_filters.EqualNullSafe, spark_filters.LessThan, spark_filters.GreaterThan,
                         spark_filters.LessThanOrEqual, spark_filters.GreaterThanOrEqual]),
        VALUES,
    ),
    st.builds(lambda values: spark_filters.In(("n",), tuple(values)), st.lists(VALUES, max_size=4)),
    st.builds(
        lambda kind, value: kind(("city",), value),
        st.sampled_from([spark_filters.EqualTo, spark_filters.StringStartsWith, spark_filters.StringEndsWith,
                         spark_filters.StringContains, spark_filters.GreaterThanOrEqual]),
        TEXTS,
    ),
    st.builds(lambda kind: kind(("n",)), st.sampled_from([spark_filters.IsNull, spark_filters.IsNotNull])),
)  # fmt: skip
OPERATIONS = {
    "EqualTo": lambda a, b: a == b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
}


def meaning(pushed: Any, row: dict[str, Any]) -> bool | None:
    """Spark's answer for a row, where the value has the column's type; else anything may be true."""
    name = type(pushed).__name__
    if name == "Not":
        inner = meaning(pushed.child, row)
        return None if inner is None else not inner
    found, value = row[pushed.attribute[0]], getattr(pushed, "value", None)
    if name in ("IsNull", "IsNotNull"):
        return (found is None) == (name == "IsNull")
    if name == "EqualNullSafe":
        return found == value if found is not None and value is not None else (found is None) == (value is None)
    if name == "In":
        if found is None:
            return None
        return True if found in [v for v in value if v is not None] else None if None in value else False
    return None if found is None or value is None else bool(OPERATIONS[name](found, value))


def typed(pushed: Any) -> bool:
    if type(pushed).__name__ == "Not":
        return typed(pushed.child)
    kind = int if pushed.attribute == ("n",) else str
    value = getattr(pushed, "value", None)
    values = value if isinstance(value, tuple) else [value]
    return all(v is None or (type(v) is kind and v != 2**40) for v in values) and value != ()


@given(filters=st.lists(st.one_of(FILTERS, FILTERS.map(spark_filters.Not)), min_size=1, max_size=3))
def test_no_row_is_lost_and_what_is_judged_is_judged_as_spark_does(table: Table, filters: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, PUSHDOWN_WORKER, ModuleType(PUSHDOWN_WORKER))
        found = read(source(table, singleQuery="true"), filters=filters).column("id").to_pylist()
    judged = [one for one in filters if typed(one)]
    wanted = [
        row["id"] for row in table.scan().to_arrow().to_pylist() if all(meaning(one, row) is True for one in judged)
    ]
    assert sorted(found) == sorted(wanted)


# ------------------------------------------------------------------------------------------------------- partitions


def base(size: int, number: int) -> FileSlice:
    name = f"{number:05d}_0-0-0_20260101000000000.parquet"
    instant = "20260101000000000"
    file = BaseFile(partition="", name=name, size=size, file_id=f"{number:05d}", instant=instant)
    return FileSlice("", file.file_id, instant, file)


@given(sizes=st.lists(st.integers(0, 300 << 20), max_size=60))
def test_every_file_is_read_once_and_small_ones_together(sizes: list[int]) -> None:
    made = [base(size, i) for i, size in enumerate(sizes)]
    groups = packed(made)
    assert sorted(item.name for group in groups for item in group) == [item.name for item in made]
    for group in groups:
        assert len(group) == 1 or sum(item.size + OPEN_COST for item in group) <= PARTITION_BYTES


def test_partitions_are_few_for_many_small_files_and_several_for_some() -> None:
    assert len(packed([base(1000, i) for i in range(1000)])) == 67
    assert len(packed([base(1000, i) for i in range(4)])) == 4
    assert [len(group) for group in packed([base(1000, i) for i in range(20)], 2)] == [10, 10]
    assert [len(group) for group in packed([base(500 << 20, 0), base(1, 1)])] == [1, 1]
    assert packed([]) == []


def test_the_arrow_schema_is_the_one_that_spark_builds() -> None:
    basic = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()]
    basic += [pa.decimal128(10, 2), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")]
    nested = [pa.struct([("a", pa.int32()), ("b.c", pa.list_(pa.string()))]), pa.list_(pa.decimal128(20, 4))]
    nested += [pa.map_(pa.string(), pa.struct([("z", pa.timestamp("us", "UTC"))]))]
    fields = [pa.field(f"c{i}", kind) for i, kind in enumerate([*basic, *nested])]
    schema = cast("StructType", nullable(arrow_to_spark(pa.schema(fields))))
    assert to_arrow_schema(schema, timezone="UTC").equals(spark_to_arrow(schema))
