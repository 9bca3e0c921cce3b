"""Stages of a large write as Spark's own expressions: the rows that the batch maps give."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakedex.layout.keys import KeyGenerator, StoredKeys
from lakedex.local.engine import LocalEngine
from lakedex.lossless_cast import StoreAssignment
from lakedex.spark.engine import SparkEngine, SparkFrame
from lakedex.spark.native_stages import in_spark
from lakedex.tagging.keyed_rows import FILE, GROUP, KEY, PARTITION, POSITION, PrepareRows
from lakedex.types import PARTITION_PATH, RECORD_KEY
from lakedex.write.file_assignment import AssignFileGroups, InsertBuckets

TEXTS = ["", "a", "a/b", "%x", "é{/}\U0001f600=", "x\n\t", "'q\"^[]\\", None, "__null__"]
NUMBERS = [1, -5, None, 2**31 - 1, -(2**31), 0, 7, 8, 9]
DAYS = [0, 1, None, 2932896, -719162, 2932897, -719163, -800000, 19000]  # four years that do not have four digits
UTC = pa.timestamp("us", tz="UTC")

ROWS = pa.table(
    {
        "s": TEXTS,
        "i": pa.array(NUMBERS, pa.int32()),
        "l": pa.array(range(9), pa.int64()),
        "b": [True, False, None] * 3,
        "d": pa.array(DAYS, pa.int32()).cast(pa.date32()),
        "t": pa.array([0, 1, None, 10**15, -(10**15), 5, 6, 7, 8], UTC),
        "st": [{"x": text, "y": [{"z": 1}]} for text in TEXTS],
        "f": pa.array([1.5] * 9, pa.float32()),
        "sh": pa.array(range(9), pa.int16()),
        "N": pa.array([1.0] * 9),
    }
)
INNER = pa.struct([("x", pa.string()), ("y", pa.list_(pa.struct([("z", pa.int64())])))])
TABLE = pa.schema(
    [
        ("l", pa.int64()),
        ("s", pa.string()),
        ("i", pa.int32()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", UTC),
        ("st", INNER),
        ("f", pa.float64()),
        ("sh", pa.int32()),
        ("n", pa.float64()),
        ("missing", pa.list_(pa.string())),
    ]
)


def generator(key: str, path: str = "", **how: bool) -> KeyGenerator:
    return KeyGenerator(record_key=tuple(key.split()), partition_by=tuple(path.split()), **how)


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    return SparkEngine(spark, driver_rows=-1, driver_bytes=1)


def frame_of(engine: SparkEngine, rows: pa.Table) -> DataFrame:
    return engine.to_dataframe(engine.from_arrow(rows))


def natively(engine: SparkEngine, rows: pa.Table, prepare: PrepareRows) -> pa.Table | None:
    """The prepared rows, without a batch map; None if it takes one."""
    df, sent = frame_of(engine, rows), partial(frame_of, engine)
    found = in_spark(df, engine.schema_of(df), prepare, sent, case_sensitive=False)
    return None if found is None else engine.collect(SparkFrame(found, prepare.schema)).sort_by("l")


@pytest.mark.parametrize(
    "keys",
    [
        generator("s", "d"),
        generator("s i st.x d", "s b", named_parts=True),
        generator("l", "t st.x", hive_style=False),
        generator("t", "st.x", url_encode=False),
        generator("d"),
        generator("", "i"),
    ],
    ids=str,
)
def test_rows_get_the_keys_and_types_of_batch_maps(engine: SparkEngine, keys: KeyGenerator) -> None:
    prepare = PrepareRows(StoreAssignment(TABLE, "t"), keys)
    rows = natively(engine, ROWS, prepare)
    assert rows is not None
    local = LocalEngine(1)
    expected = local.collect(local.stage(ROWS, prepare)).sort_by("l")
    assert rows.drop_columns(POSITION).equals(expected.drop_columns(POSITION))
    positions = rows.column(POSITION).to_pylist()
    assert len(set(positions)) == len(positions)
    assert {position & ((1 << 40) - 1) for position in positions} <= set(range(9))


@pytest.mark.parametrize(
    ("column", "target", "keys"),
    [
        (pa.array([1.0]), pa.field("c", pa.int64()), generator("k")),  # may have a fraction
        (pa.array([1], pa.int64()), pa.field("c", pa.int32()), generator("k")),  # may be too large
        (pa.array([1], pa.int64()), pa.field("c", pa.int64(), nullable=False), generator("k")),
        (pa.array([{"x": 1}]), pa.field("c", pa.struct([pa.field("x", pa.int64(), False)])), generator("k")),
        (pa.array([1.5]), pa.field("c", pa.float64()), generator("c")),  # Java's text of a double
        (pa.array([1]), pa.field("c", pa.int64()), generator("k.x")),  # no such field
        (pa.array([1]), pa.field("c", pa.int64()), StoredKeys()),  # no stored keys
        (pa.array([1]), pa.field("K", pa.int64()), generator("k")),  # two names that Spark cannot tell apart
    ],
    ids=str,
)
def test_what_needs_a_look_at_values_stays_a_batch_map(
    engine: SparkEngine, column: pa.Array, target: pa.Field, keys: KeyGenerator | StoredKeys
) -> None:
    prepare = PrepareRows(StoreAssignment(pa.schema([("k", pa.string()), target]), "t"), keys)
    assert natively(engine, pa.table({"k": ["a"], "c": column}), prepare) is None


def test_stored_keys_are_taken_over(engine: SparkEngine) -> None:
    rows = pa.table({RECORD_KEY: ["a", None], PARTITION_PATH: ["p", "q"], "l": pa.array([1, 2])})
    prepare = PrepareRows(StoreAssignment(pa.schema([("l", pa.int64())]), "t"), StoredKeys())
    found = natively(engine, rows, prepare)
    assert found is not None
    assert found.select([KEY, PARTITION, "l"]).to_pydict() == {KEY: ["a", None], PARTITION: ["p", "q"], "l": [1, 2]}


@pytest.mark.parametrize("with_files", [True, False])
def test_rows_go_to_the_groups_of_batch_maps(engine: SparkEngine, with_files: bool) -> None:
    """New rows that are spread by hash go to any group of their partition, and each key to one."""
    keys = [f"k{number:03d}" for number in range(100)] + ["k01", "k", "k05\0", "k055x"]
    paths = [("one", "several", "by key", "none", None)[number % 5] for number in range(len(keys))]
    columns = {KEY: keys, PARTITION: paths, POSITION: list(range(len(keys)))}
    if with_files:
        files = [(number % 7) - 1 if number % 3 else None for number in range(len(keys))]
        columns[FILE] = pa.array(files, pa.int32())  # type: ignore[assignment]
    rows = pa.table(columns)
    edges = [int.from_bytes(text.ljust(8, b"\0"), "big") for text in (b"2", b"5", b"55", b"9")]
    inserts = {
        "one": InsertBuckets((7,)),
        "several": InsertBuckets((8, 9, 10), (2**29, 2**30)),
        "by key": InsertBuckets((11, 12, 13, 14, 15), tuple(edges), skip=2),
        "empty": InsertBuckets(()),
    }
    schema = pa.schema([(GROUP, pa.int32()), (KEY, pa.string()), (PARTITION, pa.string()), (POSITION, pa.int64())])
    assign = AssignFileGroups(schema, {0: 3, 1: -1, 2: 4, 3: 5, 4: 6, 5: 3}, inserts)
    local = LocalEngine(1)
    expected = local.collect(local.map(local.from_arrow(rows), assign)).sort_by(POSITION)
    frame = engine.map(SparkFrame(frame_of(engine, rows), rows.schema), assign)
    found = engine.collect(frame).sort_by(POSITION)
    assert found.drop_columns(GROUP).equals(expected.drop_columns(GROUP))
    ours, theirs = found.column(GROUP), expected.column(GROUP)
    spread = pc.is_in(theirs, pa.array([8, 9, 10], pa.int32()))
    assert pc.all(pc.if_else(spread, pc.is_in(ours, pa.array([8, 9, 10], pa.int32())), pc.equal(ours, theirs))).as_py()
    assert len(set(ours.to_pylist()) & {8, 9, 10}) > 1
