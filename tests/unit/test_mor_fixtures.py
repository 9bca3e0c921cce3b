"""Merge-on-read tables and tables of version 6 that real Hudi wrote. What is expected here is what Java 1.1.1 reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows

from golden_tables import ALL, MERGE_ON_READ, VERSION_6, unpack
from lakedex import Table
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from table_kit import own, picture, set_properties

FOUR = [(1, "Alice", False), (2, "Bob", False), (3, "Carol", True), (4, "Diana", True)]
SNAPSHOT_AND_READ_OPTIMIZED = {
    "mor_v6_nonpartitioned": (4, 4),
    "mor_v6_nonpartitioned_rollback": (3, 3),
    "mor_v6_trips_8i3d": (5, 8),
    "mor_v8_trips_8i3u1d": (6, 6),
    "mor_v9_nonpartitioned_rollback": (4, 4),
    "mor_v9_timebasedkeygen_nonhivestyle": (6, 7),
    "mor_v9_txns_nonpart_nometa": (14, 14),
    "mor_v9_wide": (2, 2),
}
"""Rows of each table, with its log files and without."""
REFUSED = {
    "mor_v8_trips_8i3u1d": "record index",
    "mor_v9_nonpartitioned_rollback": "record index",
    "mor_v9_timebasedkeygen_nonhivestyle": "key generator is TIMESTAMP",
}


def test_all_are_there() -> None:
    assert sorted(SNAPSHOT_AND_READ_OPTIMIZED) == MERGE_ON_READ
    assert len(VERSION_6) == 7


@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_merge_on_read_tables_are_read_and_written(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    before = picture(path)
    table = Table.open(path)
    assert str(table)
    assert table.scan("1 = 1").count() == table.scan().count()
    assert table.scan("1 = 0").count() == table.scan("1 = 0").to_arrow().num_rows == 0
    counts = tuple(table.scan(query_type=kind).count() for kind in ("snapshot", "read_optimized"))
    rows = tuple(table.scan(query_type=kind).to_arrow().num_rows for kind in ("snapshot", "read_optimized"))
    assert counts == rows == SNAPSHOT_AND_READ_OPTIMIZED[name]
    assert table.to_arrow().num_rows == counts[0]
    assert table.to_arrow(query_type="read_optimized").num_rows == counts[1]
    with pytest.raises(InvalidInputError, match="query_type 'latest'"):
        table.scan(query_type="latest")
    if name in REFUSED:
        with pytest.raises(UnsupportedFeatureError, match=REFUSED[name]):
            table.delete(where="true")
    assert picture(path) == before
    if name not in REFUSED:
        deleted = table.delete(where="true")
        assert (deleted.deleted, table.scan().count()) == (counts[0], 0)
        assert table.scan(as_of=table.inspect.history().column("commit_time")[1].as_py()).count() == counts[0]
        table.maintenance.rollback(str(deleted.instant))
        assert table.scan().count() == counts[0]


def test_a_table_of_302_columns(tmp_path: Path) -> None:
    rows = Table.open(unpack("mor_v9_wide", tmp_path)).scan().to_arrow()
    assert own(rows, "id", "o", "c0", "c150", "c299") == [("a", 2, 300, 450, 599), ("b", 1, 0, 150, 299)]
    assert len(rows.schema) == 302


@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_conditions_do_not_depend_on_skipping(tmp_path: Path, name: str) -> None:
    table = Table.open(unpack(name, tmp_path))
    names = table.schema.names
    key = next(column for column in ("id", "txn_id", "uuid") if column in names)
    for value in sorted(set(table.scan().to_arrow().column(key).to_pylist())):
        where = f"{key} = '{value}'" if isinstance(value, str) else f"{key} = {value}"
        found = table.scan(where).to_arrow()
        assert found.num_rows
        assert_same_rows(found, table.scan(where, use_indexes=False).to_arrow())
        assert table.scan(where).count() == found.num_rows


def test_the_newer_value_is_in_the_log(tmp_path: Path) -> None:
    table = Table.open(unpack("mor_v6_nonpartitioned", tmp_path))
    assert own(table, "id", "name", "isActive") == FOUR
    base_only = table.scan(query_type="read_optimized").to_arrow()
    assert own(base_only, "id", "isActive") != own(table, "id", "isActive")
    newest, first = table.inspect.history().column("commit_time").to_pylist()
    assert own(table.scan(as_of=first).to_arrow(), "id", "isActive") == [(1, True), (2, False), (3, True)]
    assert_same_rows(table.scan(as_of=newest).to_arrow(), table.scan().to_arrow())


def test_rolled_back_blocks_of_version_6(tmp_path: Path) -> None:
    path = unpack("mor_v6_nonpartitioned_rollback", tmp_path)
    assert sum(1 for _ in path.glob(".*.log.*")) == 3
    table = Table.open(path)
    assert_same_rows(table.scan().to_arrow().select(["id"]), pa.table({"id": pa.array([1, 2, 3], pa.int32())}))


def test_time_travel_over_a_compaction(tmp_path: Path) -> None:
    table = Table.open(unpack("mor_v8_trips_8i3u1d", tmp_path))
    commits = table.inspect.history().column("commit_time").to_pylist()[::-1]
    assert [table.scan(as_of=instant).count() for instant in commits] == [8, 8, 7, 7, 6, 6, 6]


REFUSED_6 = {
    "v6_simplekeygen_hivestyle_no_metafields": "no meta columns",
    "v6_timebasedkeygen_nonhivestyle": "key generator is TIMESTAMP",
}


@pytest.mark.parametrize("name", VERSION_6)
def test_copy_on_write_of_version_6_is_read_and_written(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    before = picture(path)
    table = Table.open(path)
    expected = {"v6_empty": [], "v6_simplekeygen_nonhivestyle_overwritetable": [(4, "Diana", False)]}.get(name, FOUR)
    assert own(table, "id", "name", "isActive") == expected
    assert table.scan().count() == len(expected)
    assert table.scan("id = 4").count() == table.scan("id = 4", use_indexes=False).count() == (name != "v6_empty")
    assert picture(path) == before
    if name in REFUSED_6:
        with pytest.raises(UnsupportedFeatureError, match=REFUSED_6[name]):
            table.delete(where="id = 4")
        assert picture(path) == before
        return
    assert table.delete(where="id = 4").deleted == (name != "v6_empty")
    assert own(Table.open(path), "id", "name", "isActive") == [row for row in expected if row[0] != 4]


@pytest.mark.parametrize("name", ALL)
def test_the_metadata_table_lists_what_lies_in_storage(tmp_path: Path, name: str) -> None:
    """R17: the same slices in all partitions, whichever of both is asked."""
    path = unpack(name, tmp_path)
    snapshot = Table.open(path).snapshot()
    listed, count = snapshot.slices(), Table.open(path).scan().count()
    assert snapshot.uses_metadata == ("files" in snapshot.config.metadata_partitions)
    set_properties(path, {"hoodie.table.metadata.partitions": ""})
    plain = Table.open(path).snapshot()
    assert not plain.uses_metadata
    assert plain.slices() == listed
    assert Table.open(path).scan().count() == count


def test_partitions_of_version_6_are_pruned(tmp_path: Path) -> None:
    table = Table.open(unpack("v6_complexkeygen_hivestyle", tmp_path))
    plan = table.scan("byteField = 10 and id = 1").plan()
    assert plan.stage("partition").after < plan.files_total
    assert own(table.scan("byteField = 10 and id = 1").to_arrow(), "id") == [(1,)]


def test_a_number_that_became_text(tmp_path: Path) -> None:
    table = Table.open(unpack("v9_timebasedkeygen_epochmillis", tmp_path))
    assert table.schema.field("ts_millis").type == pa.string()
    found = own(table, "txn_id", "ts_millis")
    assert found[0] == found[1] == ("TXN-001", "1705311000000")
    assert len(found) == 6
    for text in {text for _, text in found}:
        for test in ("=", "<", ">", ">=", "<>"):
            where = f"ts_millis {test} '{text}'"
            assert_same_rows(table.scan(where).to_arrow(), table.scan(where, use_indexes=False).to_arrow())
        assert table.scan(f"ts_millis = '{text}'").count() == sum(1 for _, other in found if other == text)
