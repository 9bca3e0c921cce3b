"""``insert_overwrite``: what goes, what stays, what is refused, and what the metadata says afterwards."""

from __future__ import annotations

import datetime as dt
import errno
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import CommitConflictError, CommitError, InvalidInputError, SchemaMismatchError
from lakedex.index.column_stats.stats import stat_of
from lakedex.metadata.records import partition_stats_key
from lakedex.testing import Faults, FaultyStorage
from lakedex.timeline.instant import State
from seams import ANNOUNCED, meanwhile, with_context
from table_kit import OWN_FILE, ROWS, base_files, make, own, rows

OLD = rows(("1", "a", 1, 10), ("2", "a", 1, 20), ("3", "b", 1, 30), ("4", "c", 1, 40))
EMPTY = ROWS.empty_table()


def _made(path: Path) -> Table:
    made = make(path, OLD, partition_by="city", ordering_by="ts")
    made.insert(rows(("5", "a", 1, 50)), options=OWN_FILE)
    return made


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def commit(table: Table) -> Any:
    timeline = table.snapshot().timeline
    last = timeline.last_changed
    assert last is not None
    return last, timeline.commit_metadata(last)


def test_partitions_of_the_rows_are_replaced(table: Table) -> None:
    before = {(row["partition"], row["file_id"]) for row in table.inspect.files().to_pylist()}
    result = table.insert_overwrite(rows(("1", "a", 0, 11), ("9", "d", 0, 90)))
    assert own(table) == [("1", "a", 0, 11), ("3", "b", 1, 30), ("4", "c", 1, 40), ("9", "d", 0, 90)]
    assert (result.operation, result.inserted, result.updated, result.files_written) == ("INSERT_OVERWRITE", 2, 0, 2)
    assert "replaced 2 file groups in 1 partitions" in result.notes
    instant, metadata = commit(table)
    assert (instant.action, metadata.operation) == ("replacecommit", "INSERT_OVERWRITE")
    assert {("city=a", file_id) for file_id in metadata.replaced["city=a"]} == {
        group for group in before if group[0] == "city=a"
    }
    assert set(metadata.replaced) == {"city=a"}
    assert metadata.schema is not None


def test_requested_body_is_that_of_a_replace_commit(table: Table, tmp_path: Path) -> None:
    result = table.insert_overwrite(rows(("1", "a", 0, 11)))
    requested = tmp_path / "t/.hoodie/timeline" / f"{result.instant}.replacecommit.requested"
    assert b"HoodieRequestedReplaceMetadata" in requested.read_bytes()


def test_table_scope(table: Table) -> None:
    result = table.insert_overwrite(rows(("7", "b", 0, 70)), scope="table")
    assert own(table) == [("7", "b", 0, 70)]
    _, metadata = commit(table)
    assert metadata.operation == result.operation == "INSERT_OVERWRITE_TABLE"
    assert set(metadata.replaced) == {"city=a", "city=b", "city=c"}


def test_empty_frame(table: Table) -> None:
    before = own(table)
    result = table.insert_overwrite(EMPTY)
    assert result.instant is None
    assert own(table) == before
    assert table.insert_overwrite(EMPTY, partitions="city=a").instant is not None
    assert own(table) == [("3", "b", 1, 30), ("4", "c", 1, 40)]
    assert table.insert_overwrite(EMPTY, partitions="city=a").instant is None, "it is empty already"
    assert table.insert_overwrite(EMPTY, scope="table").instant is not None
    assert own(table) == []
    assert table.scan("n > 0").to_arrow().num_rows == 0
    table.upsert(rows(("1", "a", 0, 1)))
    assert own(table) == [("1", "a", 0, 1)]


def test_named_partitions(table: Table) -> None:
    table.insert_overwrite(rows(("8", "b", 0, 80)), partitions=["city=b", {"city": "c"}])
    assert own(table, "id") == [("1",), ("2",), ("5",), ("8",)]
    with pytest.raises(InvalidInputError, match="'city=a'.*not among those"):
        table.insert_overwrite(rows(("1", "a", 0, 1)), partitions=["city=b"])
    with pytest.raises(InvalidInputError, match="no partition path of it; paths read city="):
        table.insert_overwrite(EMPTY, partitions="b")
    with pytest.raises(InvalidInputError, match="no partition column"):
        table.insert_overwrite(EMPTY, partitions={"city": "b", "n": 1})
    with pytest.raises(InvalidInputError, match="did you mean 'cit'"):
        table.insert_overwrite(EMPTY, partitions={"cit": "b"})
    with pytest.raises(InvalidInputError, match="scope is"):
        table.insert_overwrite(EMPTY, scope="partition")
    with pytest.raises(InvalidInputError, match="goes with scope='partitions'"):
        table.insert_overwrite(EMPTY, scope="table", partitions="city=b")
    assert own(table, "id") == [("1",), ("2",), ("5",), ("8",)]


def test_typed_partition_values(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("x", pa.int32())])
    data = pa.table({"id": ["a", "b"], "day": pa.array([0, 1], pa.int32()).cast(pa.date32()), "x": [1, None]}, schema)
    table = make(tmp_path / "t", data, partition_by=["day", "x"])
    with pytest.raises(InvalidInputError, match="'x' is not in partitions="):
        table.insert_overwrite(schema.empty_table(), partitions={"day": data["day"][0].as_py()})
    with pytest.raises(InvalidInputError, match="no value of partition column 'x'"):
        table.insert_overwrite(schema.empty_table(), partitions={"day": data["day"][0].as_py(), "x": "one"})
    table.insert_overwrite(schema.empty_table(), partitions={"day": data["day"][1].as_py(), "x": None})
    assert own(table, "id") == [("a",)]


def test_without_partitions(tmp_path: Path) -> None:
    table = make(tmp_path / "t", OLD)
    with pytest.raises(InvalidInputError, match="has no partitions; use scope='table'"):
        table.insert_overwrite(EMPTY, partitions="city=a")
    table.insert_overwrite(rows(("9", "z", 1, 1)))
    assert own(table, "id") == [("9",)]
    table.insert_overwrite(EMPTY, scope="table")
    assert own(table) == []


def test_equal_keys_as_insert_has_them(table: Table) -> None:
    twice = rows(("1", "a", 5, 1), ("1", "a", 3, 2))
    assert table.insert_overwrite(twice).inserted == 2
    assert table.insert_overwrite(twice, options={"hoodie.combine.before.insert": "true"}).inserted == 1
    assert own(table.scan("id = '1'").to_arrow(), "ts", "n") == [(5, 1)]


def test_older_instants_stay_readable(table: Table) -> None:
    before, instant = own(table), table.snapshot().instant
    table.insert_overwrite(rows(("1", "a", 0, 11)), scope="table")
    assert own(table.scan(as_of=instant).to_arrow()) == before
    assert own(table.scan("n >= 50", as_of=instant).to_arrow(), "id") == [("5",)]


def test_metadata_follows(table: Table, tmp_path: Path) -> None:
    on_disk = set(base_files(tmp_path / "t"))
    table.insert_overwrite(rows(("1", "a", 0, 7)))
    snapshot = table.snapshot()
    listed = {f"{partition}/{name}" for partition, files in snapshot.listing().items() for name in files}
    assert on_disk < listed == set(base_files(tmp_path / "t")), "replaced files stay listed until they are cleaned"
    record = snapshot.metadata.get_many("partition_stats", [partition_stats_key("n", "city=a")])
    stat = stat_of(next(iter(record.values())), pa.int32())
    assert stat is not None
    assert (stat.minimum, stat.maximum, stat.value_count) == (7, 7, 1), "of the live files only"
    assert {row["partition"] for row in table.inspect.bloom_filters().to_pylist()} == {"city=a", "city=b", "city=c"}
    result = table.upsert(rows(("1", "a", 9, 8), ("2", "a", 9, 9)))
    assert (result.inserted, result.updated, result.tagging.files_listed) == (1, 1, 1)


def test_frame_is_checked_before_anything_is_written(table: Table) -> None:
    before = own(table)
    with pytest.raises(SchemaMismatchError):
        table.insert_overwrite(OLD.drop_columns(["n"]))
    with pytest.raises(InvalidInputError, match="null or empty record key"):
        table.insert_overwrite(rows((None, "a", 1, 1)))
    assert own(table) == before
    table.insert_overwrite(OLD.append_column("extra", pa.array([1, 2, 3, 4])), scope="table")
    assert table.schema.names[-1] == "extra"


def test_reads_the_table_it_replaces(table: Table) -> None:
    table.insert_overwrite(table.scan("n > 10").to_arrow(), scope="table")
    assert own(table, "id") == [("2",), ("3",), ("4",), ("5",)]


# ------------------------------------------------------------------------------------------------- several writers


NO_RETRY = {"hoodie.write.num.retries.on.conflict.failures": "0"}


@pytest.mark.parametrize(
    "other",
    [
        lambda t: t.upsert(rows(("1", "a", 5, 1))),
        lambda t: t.insert(rows(("n", "a", 5, 1)), options=OWN_FILE),
        lambda t: t.insert_overwrite(rows(("n", "a", 5, 1))),
        lambda t: t.insert_overwrite(EMPTY, scope="table"),
    ],
    ids=["upsert", "insert", "overwrite", "emptied"],
)
@pytest.mark.parametrize("scope", ["partitions", "table"])
def test_conflicts(table: Table, other: Any, scope: str) -> None:
    with pytest.raises(CommitConflictError):
        meanwhile(table, other).insert_overwrite(rows(("x", "a", 9, 9)), scope, options=NO_RETRY)
    table.upsert(OLD)
    result = meanwhile(table, other).insert_overwrite(rows(("x", "a", 9, 9)), scope)
    assert any("conflict with" in note for note in result.notes)
    assert own(table.scan("city = 'a'").to_arrow(), "id") == [("x",)]


def test_other_partition_is_no_conflict_unless_the_table_is_replaced(table: Table) -> None:
    meanwhile(table, lambda t: t.insert(rows(("n", "d", 5, 1)))).insert_overwrite(
        rows(("x", "a", 9, 9)), options=NO_RETRY
    )
    assert own(table, "id") == [("3",), ("4",), ("n",), ("x",)]
    again = meanwhile(table, lambda t: t.insert(rows(("m", "e", 5, 1))))
    with pytest.raises(CommitConflictError, match="whole table"):
        again.insert_overwrite(rows(("y", "a", 9, 9)), "table", options=NO_RETRY)
    assert ("m",) in own(table, "id")


@pytest.mark.parametrize("scope", ["partitions", "table"])
def test_upsert_meets_an_overwrite(table: Table, scope: str) -> None:
    first = meanwhile(table, lambda t: t.insert_overwrite(rows(("1", "a", 2, 100)), scope))
    with pytest.raises(CommitConflictError):
        first.upsert(rows(("1", "a", 9, 9)), options=NO_RETRY)
    result = meanwhile(table, lambda t: t.insert_overwrite(rows(("2", "a", 2, 100)), scope)).upsert(
        rows(("1", "a", 9, 9))
    )
    assert (result.inserted, result.updated) == (1, 0)
    assert own(table.scan("city = 'a'").to_arrow(), "id") == [("1",), ("2",)]


def test_failed_overwrite_leaves_nothing(table: Table, tmp_path: Path) -> None:
    before, files = own(table), base_files(tmp_path / "t")
    third = 3  # After the requested and the inflight file.
    full = FaultyStorage(Faults(third, error=OSError(errno.ENOSPC, "disk full"), only=("create", ".replacecommit")))
    with pytest.raises(CommitError, match="disk full"):
        with_context(table, storage=full).insert_overwrite(rows(("1", "a", 9, 9)))
    assert own(table) == before
    assert base_files(tmp_path / "t") == files
    timeline = table.snapshot().timeline
    assert {instant.state for instant in timeline.instants} == {State.COMPLETED}
    assert [instant.action for instant in timeline.instants][-1] == "rollback"


# ------------------------------------------------------------------------------------------------ delete_partition
@pytest.mark.parametrize(
    "kind, values, wrong",
    [
        (pa.int32(), [1, 2], 1.5),
        (pa.int32(), [1, 2], "1"),
        (pa.int32(), [1, 2], True),
        (pa.date32(), [dt.date(2024, 1, 1), dt.date(2024, 1, 2)], dt.datetime(2024, 1, 2, 13)),
        (pa.decimal128(5, 1), [Decimal("1.0"), Decimal("2.0")], Decimal("1.05")),
    ],
)
def test_a_value_that_a_partition_column_does_not_hold_names_none(
    tmp_path: Path, kind: pa.DataType, values: list[Any], wrong: Any
) -> None:
    data = pa.table({"id": ["a", "b"], "p": pa.array(values, kind)})
    table = make(tmp_path, data, partition_by="p")
    for write in (table.delete_partition, lambda partition: table.insert_overwrite([], partitions=partition)):
        with pytest.raises((InvalidInputError, SchemaMismatchError), match="column 'p'"):
            write({"p": wrong})
    assert own(table, "p") == [(value,) for value in values]
    done = table.delete_partition({"p": values[0]})
    assert "partitions deleted" in str(done) and own(table, "p") == [(values[1],)]


def test_delete_partition(table: Table, tmp_path: Path) -> None:
    before = base_files(tmp_path / "t")
    result = table.delete_partition(["city=a", {"city": "c"}])
    assert (result.operation, result.files_written) == ("DELETE_PARTITION", 0)
    assert "replaced 3 file groups in 2 partitions" in result.notes
    instant, metadata = commit(table)
    assert (instant.action, metadata.operation, set(metadata.replaced)) == (
        "replacecommit",
        "DELETE_PARTITION",
        {"city=a", "city=c"},
    )
    requested = tmp_path / "t/.hoodie/timeline" / f"{result.instant}.replacecommit.requested"
    assert b"DELETE_PARTITION" in requested.read_bytes()
    assert own(table, "id") == [("3",)]
    assert base_files(tmp_path / "t") == before, "files stay until they are cleaned"
    assert own(table.scan(as_of=table.inspect.history()["commit_time"][1].as_py()).to_arrow(), "id")[0] == ("1",)
    assert table.delete_partition("city=a").instant is None, "it is empty already"
    for wrong in ("b", {"n": 1}):
        with pytest.raises(InvalidInputError):
            table.delete_partition(wrong)
    assert table.upsert(rows(("1", "a", 0, 9))).inserted == 1
    assert own(table, "id", "n") == [("1", 9), ("3", 30)]


@pytest.mark.parametrize("empty", ["delete_partition", "insert_overwrite"])
def test_an_emptied_partition_has_no_stats(table: Table, empty: str) -> None:
    """What the stats said of its rows is taken back, and said anew when rows come again."""

    def stats(city: str) -> Any:
        return table.snapshot().metadata.get_many("partition_stats", [partition_stats_key("n", city)])

    assert stats("city=b")
    if empty == "delete_partition":
        table.delete_partition("city=b")
    else:
        table.insert_overwrite(EMPTY, partitions="city=b")
    found = stats("city=b")
    assert all(record["ColumnStatsMetadata"]["isDeleted"] for record in found.values())
    assert table.scan("n >= 30").count() == 2
    table.insert(rows(("3", "b", 0, 1)))
    (again,) = stats("city=b").values()
    found_stat = stat_of(again, pa.int32())
    assert found_stat is not None
    assert (found_stat.minimum, found_stat.maximum, found_stat.value_count) == (1, 1, 1)
    assert table.scan("n = 1").count() == 1


def test_delete_partition_beside_another_writer(table: Table) -> None:
    result = meanwhile(table, lambda t: t.insert(rows(("8", "a", 1, 80))), ANNOUNCED).delete_partition("city=a")
    assert any("conflict" in note for note in result.notes)
    assert own(table, "id") == [("3",), ("4",)]


def test_a_replacement_changes_columns_and_rows_in_one_commit(table: Table) -> None:
    """Also where a column goes and comes back, and partitions lose all their rows at the same time."""
    before = table.snapshot().instant
    less = OLD.slice(0, 1).drop_columns(["n"]).append_column("v", pa.array([1.5]))
    assert table.insert_overwrite(less, "table", schema=less.schema).inserted == 1
    assert (table.schema.names, own(table, "id", "v")) == (["id", "city", "ts", "v"], [("1", 1.5)])
    assert table.insert_overwrite(OLD.slice(2, 1), "table", schema=OLD.schema).inserted == 1
    assert (table.schema.names, own(table, "id", "n")) == (OLD.schema.names, [("3", 30)])
    wide = pa.schema([*less.schema, pa.field("w", pa.int8(), metadata={"comment": "why"})])
    for schema in (wide, less.schema):
        assert table.insert_overwrite(schema.empty_table(), "table", schema=schema).instant
    assert (table.schema.names, table.scan().count()) == (["id", "city", "ts", "v"], 0)
    assert table.scan(as_of=before).count() == 5
    assert "metadata agrees with the files" in str(table.maintenance.validate())


@pytest.mark.parametrize("kind, found", [(pa.string(), "n"), (pa.int32(), "N")])
def test_a_replacement_keeps_the_type_of_a_name(table: Table, kind: pa.DataType, found: str) -> None:
    schema = pa.schema([*OLD.schema.remove(OLD.schema.get_field_index("n")), pa.field(found, kind)])
    with pytest.raises(SchemaMismatchError, match=rf"column 'n' is int32, and a replacement cannot make it '{found}'"):
        table.insert_overwrite(schema.empty_table(), "table", schema=schema)
    with pytest.raises(InvalidInputError, match="goes with scope='table'"):
        table.insert_overwrite(OLD, schema=OLD.schema)
    fewer = OLD.drop_columns(["city"])
    with pytest.raises(InvalidInputError, match="column 'city'"):
        table.insert_overwrite(fewer, "table", schema=fewer.schema)


def test_a_function_picks_the_partitions(table: Table) -> None:
    """Those that the table has, with rows for them or without, and new ones that rows go to."""

    def early(paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path < "city=c"]

    with pytest.raises(InvalidInputError, match="'city=z', are not under the condition"):
        table.insert_overwrite(rows(("8", "z", 1, 0)), partitions=early)
    table.insert_overwrite(rows(("7", "aa", 1, 70)), partitions=early)
    assert own(table, "id", "city") == [("4", "c"), ("7", "aa")]
    table.insert_overwrite(EMPTY, partitions=early)
    assert own(table, "id") == [("4",)]
