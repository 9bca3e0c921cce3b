"""Tables of version 9: Java 1.1.1 and lakedex go on with each other's, with column stats of index version V2.

Both sides tag by metadata blooms, keep bounds of every type, and skip data by the other's bounds (R62, R71; point 7).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same_rows
from java_judge import WRITE_BLOOM, JavaJudge
from judging import OWN_FILE, assert_all_see, assert_same_answers, create, definitions, keyed, own_rows, properties
from rust_judge import RustJudge

from lakedex import Table
from lakedex.errors import OptionError, UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.snapshot.snapshot import Snapshot
from table_checks import rounds

NINE = {"hoodie.write.table.version": "9"}
JAVA_NINE = {**WRITE_BLOOM, "hoodie.write.table.version": "9", "hoodie.write.auto.upgrade": "true"}
PARTS = ("a", "b")

FILTERS = (
    "flag = true",
    "small >= 40 and small < 60",
    "large = 5000000031",
    "single > 3.5",
    "double < -1.0",
    "money = 31.25",
    "wide > 12345678901234567890.000000000000000039",
    "text >= 'w3' and text < 'w5'",
    "bytes = x'0033'",
    "day = date'2024-02-03'",
    "moment < timestamp'2024-01-01 00:00:03.000004'",
    "moment = timestamp'2024-01-01 00:00:31.000031'",
    "wide is null",
    "text is null and part = 'a'",
    "key = 'k41'",
)


def typed(numbers: Sequence[int], ts: int, part: str, *, local: bool = False) -> pa.Table:
    """Rows whose values grow with their number; every tenth row is null wherever it may be."""

    def column(kind: pa.DataType, value: Any) -> pa.Array:
        return pa.array([None if n % 10 == 9 else value(n + ts) for n in numbers], kind)

    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    columns = {
        "key": pa.array([f"k{n}" for n in numbers]),
        "ts": pa.array([ts] * len(numbers), pa.int64()),
        "part": pa.array([part] * len(numbers)),
        "flag": column(pa.bool_(), lambda n: n % 2 == 0),
        "small": column(pa.int32(), lambda n: n),
        "large": column(pa.int64(), lambda n: 5_000_000_000 + n),
        "single": column(pa.float32(), lambda n: n / 4),
        "double": column(pa.float64(), lambda n: 10.5 - n),
        "money": column(pa.decimal128(10, 2), lambda n: Decimal(n) + Decimal("0.25")),
        "wide": column(pa.decimal128(38, 18), lambda n: Decimal(f"12345678901234567890.{n:018d}")),
        "text": column(pa.string(), lambda n: f"w{n}"),
        "bytes": column(pa.binary(), lambda n: bytes([0, n])),
        "day": column(pa.date32(), lambda n: dt.date(2024, 1, 1) + dt.timedelta(n)),
        "moment": column(pa.timestamp("us", "UTC"), lambda n: start + dt.timedelta(seconds=n, microseconds=n)),
    }
    if local:
        columns["ntz"] = column(pa.timestamp("us"), lambda n: start.replace(tzinfo=None) + dt.timedelta(seconds=n))
    return pa.table(columns)


def java_writes(java: JavaJudge, path: Path, rows: pa.Table, operation: str = "upsert", **more: Any) -> None:
    arguments = {"partition": "part", "ordering": "ts", "options": {**JAVA_NINE, **OWN_FILE}, **more}
    java.write(path, rows, operation, **arguments)


def alternate(java: JavaJudge, rust: RustJudge, table: Table, expected: dict[str, Any], count: int) -> None:
    """Rounds of Java, then lakedex, each with new rows, updates, and rows that are too old to win."""

    def taken(rows: pa.Table) -> pa.Table:
        for row in rows.to_pylist():
            if row["key"] not in expected or row["ts"] >= expected[row["key"]]["ts"]:
                expected[row["key"]] = row
        return rows

    path = Path(table.path)
    for number in range(1, count + 1):
        mine, theirs = 40 + 4 * number, 42 + 4 * number
        late = typed([2], 0, "a")
        new = pa.concat_tables([typed([mine, 3 + number, 9], number * 2 + 1, "a"), late])
        java_writes(java, path, taken(pa.concat_tables([typed([theirs, 33, 39], number * 2, "b"), late])))
        assert table.upsert(taken(new)).inserted == 1
        assert_same_rows(own_rows(path), pa.Table.from_pylist(list(expected.values()), schema=new.schema), "key")
    assert_all_see(path, java, rust)


def stats_of(path: Path) -> list[dict[str, Any]]:
    """All live records of column stats and partition stats."""
    store = Snapshot.load(TableFiles(LocalStorage(), str(path))).metadata
    records = [*store.scan("column_stats").values(), *store.scan("partition_stats").values()]
    return [r["ColumnStatsMetadata"] for r in records if not r["ColumnStatsMetadata"]["isDeleted"]]


@pytest.mark.proves("version 9, copy-on-write", "Hudi 1.1.1", "reads", "writes", "made")
@pytest.mark.proves("version 9, copy-on-write", "hudi-rs", "reads")
@pytest.mark.parametrize("maker", ["java", "lakedex"])
def test_rounds_of_both(java: JavaJudge, rust: RustJudge, tmp_path: Path, maker: str) -> None:
    """A table of either side; the stats of both are V2 of every type, and each skips files by them (R71).

    Three rounds; in CI two.
    """
    first = [typed(range(10), 1, "a"), typed(range(30, 40), 1, "b")]
    if maker == "java":
        java_writes(java, tmp_path, pa.concat_tables(first), "insert")
        table = Table.open(tmp_path, options=OWN_FILE)
    else:
        table = create(tmp_path, first[0].schema, partition_by="part", options={**OWN_FILE, **NINE})
        for rows in first:
            table.insert(rows)
    expected = {row["key"]: row for rows in first for row in rows.to_pylist()}
    alternate(java, rust, table, expected, rounds(3, 2))
    assert_same_answers(tmp_path, java, FILTERS if maker == "java" else FILTERS[::2])
    found = properties(tmp_path)
    assert (found["hoodie.table.version"], found["hoodie.table.initial.version"]) == ("9", "9")
    assert "hoodie.compaction.payload.class" not in found and "hoodie.record.merge.strategy.id" not in found
    assert definitions(tmp_path)["version"] == "V2"
    kinds = {(stat["columnName"], stat["valueType"]["typeOrdinal"]) for stat in stats_of(tmp_path)}
    own = {name: ordinal for name, ordinal in kinds if not name.startswith("_hoodie")}
    assert len(kinds) == len(own) + 3, "one type a column, whoever wrote the record"
    assert own == {
        "key": 7, "ts": 4, "part": 7, "flag": 2, "small": 3, "large": 4, "single": 5, "double": 6, "money": 10,
        "wide": 10, "text": 7, "bytes": 8, "day": 12, "moment": 16,
    }  # fmt: skip
    everything = len(Table.open(tmp_path).scan().plan().files)
    for where in FILTERS:
        if where.startswith(("large", "money", "wide >", "text >=", "day", "moment")):
            assert len(Table.open(tmp_path).scan(where).plan().files) < everything, f"{where} skips nothing"


def test_java_upgrades_under_us(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Between two writes of one Table object; its V1 stats stay V1, on both sides, and are read right."""
    first = [typed(range(10), 1, "a"), typed(range(30, 40), 1, "b")]
    table = create(tmp_path, first[0].schema, partition_by="part")
    for rows in first:
        table.insert(rows)
    assert properties(tmp_path)["hoodie.table.version"] == "8"
    upgrading = typed([33, 41], 2, "b")
    java_writes(java, tmp_path, upgrading, options={**WRITE_BLOOM, **OWN_FILE, "hoodie.write.table.version": "9",
                                                    "hoodie.write.auto.upgrade": "true"})  # fmt: skip
    assert properties(tmp_path)["hoodie.table.version"] == "9"
    assert definitions(tmp_path)["version"] == "V1"
    table.upsert(typed([3, 42], 3, "a"))  # The same object.
    expected = {row["key"]: row for rows in (*first, upgrading, typed([3, 42], 3, "a")) for row in rows.to_pylist()}
    alternate(java, rust, table, expected, 1)
    assert_same_answers(tmp_path, java, FILTERS[::4])
    assert {stat["valueType"] is None for stat in stats_of(tmp_path)} == {True}
    with pytest.raises(OptionError, match="has version 9, not 8"):
        Table.open(tmp_path, options={"hoodie.write.table.version": "8"}).upsert(typed([1], 9, "a"))
    # Made anew, the index is V2.
    table.indexes.drop("column_stats")
    table.indexes.create("column_stats")
    assert definitions(tmp_path)["version"] == "V2"
    assert None not in [stat["valueType"] for stat in stats_of(tmp_path)]
    java_writes(java, tmp_path, typed([4], 20, "a"))
    table.upsert(typed([5], 20, "a"))
    assert_same_answers(tmp_path, java, FILTERS[2::4])


def test_several_ordering_fields(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Compared one after the other; of equal ones the later commit wins. Local timestamps have a stat, too."""

    def rows(*values: tuple[str, int, int | None, int]) -> pa.Table:
        kinds = {"key": pa.string(), "major": pa.int64(), "minor": pa.int32(), "value": pa.int32()}
        columns = zip(*values, strict=True)
        table = pa.table([pa.array(c, k) for c, k in zip(columns, kinds.values(), strict=True)], names=list(kinds))
        moments = [dt.datetime(2024, 1, 1, 0, 0, value[3]) for value in values]
        return table.append_column("ntz", pa.array(moments, pa.timestamp("us")))

    table = create(
        tmp_path,
        rows(("x", 1, 1, 1)).schema,
        ordering_by=["major", "minor"],
        options=NINE,
    )
    table.upsert(rows(("same", 1, 5, 1), ("less", 1, 5, 1), ("more", 1, 5, 1), ("first", 2, 5, 1), ("null", 1, 5, 1)))
    second = rows(("same", 1, 5, 2), ("less", 1, 4, 2), ("more", 1, 6, 2), ("first", 1, 9, 2), ("null", 1, None, 2))
    wanted = {"same": 2, "less": 1, "more": 2, "first": 1, "null": 1}

    def values() -> dict[str, int]:
        read = own_rows(tmp_path)
        return dict(zip(read.column("key").to_pylist(), read.column("value").to_pylist(), strict=True))

    # Each side writes the same rows into its own copy of the question.
    table.upsert(second)
    assert values() == wanted
    # Java 1.1.1 fails on a null among several ordering fields (ArrayComparable), so it gets none.
    again = (
        rows(("same", 1, 5, 1), ("less", 1, 5, 1), ("more", 1, 5, 1), ("first", 2, 5, 1)),
        second.filter(pc.not_equal(second["key"], "null")),
    )
    renamed = [
        rows(*((f"j{r['key']}", r["major"], r["minor"], r["value"]) for r in batch.to_pylist())) for batch in again
    ]
    for batch in renamed:
        java_writes(java, tmp_path, batch, partition=None, ordering="major,minor")
    found = values()
    assert found == {**wanted, **{f"j{key}": value for key, value in wanted.items() if key != "null"}}
    # And each decides about rows of the other.
    java_writes(java, tmp_path, rows(("less", 1, 4, 3), ("more", 1, 6, 3)), partition=None, ordering="major,minor")
    table.upsert(rows(("jless", 1, 4, 3), ("jmore", 1, 6, 3)))
    assert {key: values()[key] for key in ("less", "more", "jless", "jmore")} == {
        "less": 1, "more": 3, "jless": 1, "jmore": 3,
    }  # fmt: skip
    assert properties(tmp_path)["hoodie.table.ordering.fields"] == "major,minor"
    assert_same_rows(java.read(tmp_path), own_rows(tmp_path), "key")
    assert_same_answers(tmp_path, java, ["ntz = timestamp_ntz'2024-01-01 00:00:03'", "value = 1", "minor < 5"])


def test_a_complex_key_of_one_field(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Is always ``field:value`` there, and Java does not ask for leave any more."""
    rows = keyed(["k1", "k2"]).append_column("town", pa.array(["x", "y"]))
    table = create(tmp_path, rows.schema, partition_by=["part", "town"], options={**OWN_FILE, **NINE})
    table.upsert(rows)
    more = keyed(["k1", "k3"], 2).append_column("town", pa.array(["x", "x"]))
    java_writes(java, tmp_path, more, partition=["part", "town"])
    table.upsert(keyed(["k3"], 3).append_column("town", pa.array(["x"])))
    read = java.read(tmp_path, meta=True)
    assert sorted(zip(read["key"].to_pylist(), read["ts"].to_pylist(), strict=True)) == [
        ("k1", 2),
        ("k2", 1),
        ("k3", 3),
    ]
    assert_same_rows(own_rows(tmp_path), rust.read(tmp_path), "key")
    keys = read.column("_hoodie_record_key").to_pylist()
    assert sorted(keys) == ["key:k1", "key:k2", "key:k3"]


def test_what_merges_by_other_rules_is_refused(java: JavaJudge, tmp_path: Path) -> None:
    """A payload of before version 9 that Java translates to partial updates."""
    payload = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
    options = {**JAVA_NINE, "hoodie.datasource.write.payload.class": payload}
    java_writes(java, tmp_path, keyed(["k1"]), ordering=None, options=options)
    assert json.dumps(properties(tmp_path)).count("IGNORE_DEFAULTS") == 1
    with pytest.raises(UnsupportedFeatureError, match=r"partial\.update\.mode=IGNORE_DEFAULTS"):
        Table.open(tmp_path).upsert(keyed(["k2"]))
    assert Table.open(tmp_path).scan().count() == 1
