"""Tables of version 9 without a JVM: what a new one says of itself, its stats, its ordering fields, and its refusals."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from samples import all_types

from lakedex import Table
from lakedex.codec.column_bounds import unwrap_stat, value_type, wrap_stat
from lakedex.errors import OptionError, UnsupportedFeatureError
from lakedex.index.column_stats.stats import ColumnStat, partition_stat_of, stat_of, stat_record
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.metadata.records import MERGE_RULES, Record
from lakedex.snapshot.snapshot import Snapshot
from table_kit import OWN_FILE, make, own, properties, rows, set_properties

NINE = {"hoodie.write.table.version": "9", **OWN_FILE}
US = 1704067200123456


def test_what_a_new_table_says(tmp_path: Path) -> None:
    """As Java 1.1.1 makes them: the merge mode alone, in both tables (format.md §10)."""
    make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", ordering_by="ts", options=NINE)
    found, metadata = properties(tmp_path), properties(tmp_path / ".hoodie" / "metadata")
    assert found["hoodie.record.merge.mode"] == "EVENT_TIME_ORDERING"
    assert (found["hoodie.table.version"], found["hoodie.table.initial.version"]) == ("9", "9")
    assert found["hoodie.table.ordering.fields"] == "ts"
    assert not found.keys() & {
        "hoodie.compaction.payload.class",
        "hoodie.record.merge.strategy.id",
        "hoodie.table.precombine.field",
    }
    assert (metadata["hoodie.table.version"], metadata["hoodie.table.initial.version"]) == ("9", "9")
    document = json.loads((tmp_path / ".hoodie" / ".index_defs" / "index.json").read_text())
    assert document["indexDefinitions"]["column_stats"]["version"] == "V2"


def records_of(path: Path) -> list[dict[str, Any]]:
    store = Snapshot.load(TableFiles(LocalStorage(), str(path))).metadata
    found = [*store.scan("column_stats").values(), *store.scan("partition_stats").values()]
    return [record["ColumnStatsMetadata"] for record in found]


def test_stats_of_all_types(tmp_path: Path) -> None:
    """Every column that is no list, map or struct, and each prunes (R71)."""
    data = all_types(local_timestamp=True)
    table = make(tmp_path, record_key="key", partition_by="part", ordering_by="ts", options=NINE)
    for place in range(4):
        table.upsert(data.slice(place, 1))
    found = records_of(tmp_path)
    kinds = {payload["columnName"]: payload["valueType"] for payload in found}
    assert {name for name in kinds if not name.startswith("_")} == set(data.column_names) - {"place", "list", "map"}
    assert kinds["wide"] == {"typeOrdinal": 10, "additionalInfo": "20,4"}
    assert kinds["ntz"]["typeOrdinal"] == 19
    assert len({(p["columnName"], p["valueType"]["typeOrdinal"]) for p in found}) == len(kinds)
    for where, files in {
        "wide < -1": 1,
        "money = 1.25": 1,
        "bytes = x'00ff'": 1,
        "day > date'2500-01-01'": 1,
        "moment = timestamp'2020-01-02 03:04:05.678901'": 1,
        "ntz = timestamp_ntz'1950-01-01 00:00:00'": 1,
        "flag = false": 1,
    }.items():
        scan = table.scan(where)
        assert len(scan.plan().files) == files, where
        assert scan.count() == table.scan(where, use_indexes=False).count() == 1, where


def test_java_does_not_prune_by_bytes(tmp_path: Path) -> None:
    """Java 1.1.1 fails on a filter on bytes by stats of V2, so it is not told of them, whoever listed them."""
    data = all_types()
    table = make(tmp_path, schema=data.schema, record_key="key", options=NINE)
    path = tmp_path / ".hoodie" / ".index_defs" / "index.json"

    def listed() -> list[str]:
        names: list[str] = json.loads(path.read_text())["indexDefinitions"]["column_stats"]["sourceFields"]
        return names

    assert "bytes" not in listed()
    assert "wide" in listed()
    table.upsert(data)
    document = json.loads(path.read_text())
    document["indexDefinitions"]["column_stats"]["sourceFields"].append("bytes")
    path.write_text(json.dumps(document))
    table.upsert(data)
    assert "bytes" not in listed()
    table.indexes.drop("column_stats")
    table.indexes.create("column_stats")
    assert "bytes" not in listed()
    assert "wide" in listed()
    assert len(table.scan("bytes = x'81'").plan().files) == 0


def test_an_upgraded_table_goes_on_in_v1(tmp_path: Path) -> None:
    """Java's upgrade changes the properties and leaves the definition, and with it the encoding, alone."""
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", ordering_by="ts", options=OWN_FILE)
    table.upsert(rows(("2", "b", 1, 2)))
    set_properties(tmp_path, {"hoodie.table.version": "9"})
    table.upsert(rows(("1", "a", 2, 9), ("3", "c", 1, 3)))
    assert {payload["valueType"] is None for payload in records_of(tmp_path)} == {True}
    assert own(table) == [("1", "a", 2, 9), ("2", "b", 1, 2), ("3", "c", 1, 3)]
    assert len(table.scan("n = 9").plan().files) == 1
    table.indexes.drop("column_stats")
    table.indexes.create("column_stats")
    assert None not in [payload["valueType"] for payload in records_of(tmp_path)]
    table.upsert(rows(("2", "b", 2, 20)))
    assert len(table.scan("n = 20").plan().files) == 1


def test_a_version_that_the_table_does_not_have(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), options=NINE)
    with pytest.raises(OptionError, match="has version 9, not 8"):
        table.upsert(rows(("2", "a", 1, 1)), options={"hoodie.write.table.version": "8"})
    assert table.upsert(rows(("2", "a", 1, 1)), options={"hoodie.write.table.version": "9"}).inserted == 1


TWO = pa.schema([("id", pa.string()), ("major", pa.int64()), ("minor", pa.float64()), ("n", pa.int32())])


@pytest.mark.parametrize("singly", [True, False])
def test_several_ordering_fields(tmp_path: Path, singly: bool) -> None:
    """One after the other; null is below every value, NaN above; of equal ones the later wins."""
    stored = rows(*((f"{n}", 1, 5.0, 0) for n in range(9)), schema=TWO)
    later = [(1, 5.0), (1, 4.0), (1, 6.0), (0, 9.0), (2, 0.0), (1, None), (None, 9.0), (1, float("nan")), (2, None)]
    wins = [1, 0, 1, 0, 1, 0, 0, 1, 1]
    new = rows(*((f"{n}", *values, 1) for n, values in enumerate(later)), schema=TWO)
    table = make(tmp_path, ordering_by=["major", "minor"], options=NINE)
    if singly:
        table.upsert(stored)
        table.upsert(new)
    else:
        table.upsert(pa.concat_tables([stored, new]))
    assert [row[0] for row in own(table, "n")] == sorted(wins)
    assert dict(own(table, "id", "n")) == {str(n): won for n, won in enumerate(wins)}


def test_a_complex_key_of_one_field(tmp_path: Path) -> None:
    """Is ``field:value``; bare keys, which Hudi would not find again, are not added to."""
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by=["city", "ts"], options=NINE)
    assert table.scan(meta_columns=True).to_arrow().column("_hoodie_record_key").to_pylist() == ["id:1"]
    bare = make(tmp_path / "bare", rows(("1", "a", 1, 1)), partition_by="city", options=NINE)
    set_properties(tmp_path / "bare", {"hoodie.table.keygenerator.type": "COMPLEX"})
    with pytest.raises(UnsupportedFeatureError, match="bare values of id"):
        Table.open(bare.path).upsert(rows(("1", "a", 2, 2)))


def stat(low: Any, high: Any, kind: pa.DataType, version: Any, nulls: int = 0) -> Record:
    found = ColumnStat(column="c", minimum=low, maximum=high, value_count=3, null_count=nulls)
    return stat_record(found, "f", kind, version)


def merged(older: Record, newer: Record) -> dict[str, Any]:
    payload: dict[str, Any] = MERGE_RULES["column_stats"](older, newer)["ColumnStatsMetadata"]
    return payload


def test_decimals_merge_by_their_value() -> None:
    """Their bytes do not sort: -1.25 is ``83``, 123.45 is ``3039`` (``mergeColumnStatsRecords``)."""
    kind = pa.decimal128(10, 2)
    older = stat(Decimal("-1.25"), Decimal("3.00"), kind, "V2")
    newer = stat(Decimal("0.10"), Decimal("123.45"), kind, "V2")
    for pair in ((older, newer), (newer, older)):
        found = merged(*pair)
        assert unwrap_stat(found["minValue"], found["valueType"]) == Decimal("-1.25")
        assert unwrap_stat(found["maxValue"], found["valueType"]) == Decimal("123.45")
    assert found["valueCount"] == 6


def test_an_older_encoding_takes_the_form_of_the_newer() -> None:
    for kind, low, high in [
        (pa.decimal128(10, 2), Decimal("-1.25"), Decimal("3.50")),
        (pa.date32(), 100, 200),
        (pa.int32(), -1, 5),
        (pa.string(), "a", "b"),
    ]:
        found = merged(stat(low, low, kind, "V1"), stat(high, high, kind, "V2"))
        assert found["minValue"] == wrap_stat(low, kind, "V2")
        assert found["maxValue"] == wrap_stat(high, kind, "V2")
        assert found["valueType"] == value_type(kind, "V2")
    # V1 does not say the unit of a timestamp: unknown, so nothing is pruned by it.
    moment = pa.timestamp("us", "UTC")
    found = merged(stat(1, 2, moment, "V1"), stat(3, 4, moment, "V2"))
    assert (found["minValue"], found["maxValue"]) == (None, None)
    assert stat_of({"ColumnStatsMetadata": found}, moment) is None
    # Only one of them has values, in another form.
    assert merged(stat(5, 5, pa.date32(), "V1"), stat(None, None, pa.date32(), "V2", 3))["minValue"] is None


@pytest.mark.parametrize(
    ("unit", "kind", "low", "high"),
    [
        ("ms", pa.timestamp("us", "UTC"), US // 1000 * 1000, (US // 1000 + 1) * 1000),
        ("us", pa.timestamp("ms", "UTC"), US // 1000, US // 1000 + 1),
        ("us", pa.timestamp("us"), US, US + 1),
    ],
)
def test_a_timestamp_is_read_in_the_columns_unit(unit: Any, kind: pa.DataType, low: int, high: int) -> None:
    """A lower bound is rounded down and an upper one up."""
    scale = 1000 if unit == "ms" else 1
    end = US // scale + 1
    record = stat(US // scale, end, pa.timestamp(unit, "UTC"), "V2")
    found = stat_of(record, kind)
    assert found is not None
    assert (found.minimum, found.maximum) == (low, high)


def test_partition_stats_are_marked_in_v2(tmp_path: Path) -> None:
    make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", options=NINE)
    store = Snapshot.load(TableFiles(LocalStorage(), str(tmp_path))).metadata
    by_column = {r["ColumnStatsMetadata"]["columnName"]: r for r in store.scan("partition_stats").values()}
    found = partition_stat_of(by_column["n"], by_column["_hoodie_record_key"], pa.int32())
    assert found is not None
    assert (found.minimum, found.maximum) == (1, 1)


def test_dates_before_the_epoch_and_far_away(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("d", pa.date32())])
    days = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]
    table = make(tmp_path, options=NINE)
    for number, day in enumerate(days):
        table.upsert(rows((str(number), day), schema=schema))
    for number, day in enumerate(days):
        scan = table.scan(f"d = date'{day.isoformat()}'")
        assert scan.to_arrow().column("id").to_pylist() == [str(number)]
        assert len(scan.plan().files) == 1
