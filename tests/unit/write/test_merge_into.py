"""``merge``: its clauses, how it finds rows, what it refuses, and what it does under other writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.commit.transaction import Transaction
from lakedex.errors import CommitConflictError, InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.types import Operation
from seams import meanwhile
from table_kit import OWN_FILE, ROWS, make, own, rows

OLD = rows(("1", "a", 5, 10), ("2", "a", 5, 20), ("3", "b", 5, 30), ("4", "c", 5, 40))


def _made(path: Path) -> Table:
    made = make(path, OLD, partition_by="city", ordering_by="ts")
    made.insert(rows(("5", "a", 5, 50)), options=OWN_FILE)
    return made


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def test_an_upsert_by_a_merge(table: Table) -> None:
    """One commit; an update wins although its ordering value is smaller."""
    commits = table.inspect.history().num_rows
    source = rows(("1", "a", 1, 11), ("9", "d", 1, 90))
    result = table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 0)
    assert result.operation == Operation.UPSERT.value
    assert table.inspect.history().num_rows == commits + 1
    assert own(table) == own(pa.concat_tables([OLD.slice(1), source, rows(("5", "a", 5, 50))]))


def test_the_first_clause_that_takes_a_row(table: Table) -> None:
    source = rows(("1", "a", 1, -1), ("2", "a", 1, 0), ("3", "b", 1, 7), ("6", "a", 1, -1), ("7", "a", 1, 7))
    builder = (
        table.merge(source, "t.id = s.id AND t.city = s.city")
        .when_matched_delete("s.n < 0")
        .when_matched_update({"n": "t.n + 1"}, condition="s.n = 0")
        .when_matched_update_all()
        .when_not_matched_insert({"id": "s.id", "city": "'z'", "n": "s.n * 2"}, "s.n > 0")
    )
    result = builder.execute()
    assert (result.inserted, result.updated, result.deleted) == (1, 2, 1)
    assert own(table) == [
        ("2", "a", 5, 21),
        ("3", "b", 1, 7),
        ("4", "c", 5, 40),
        ("5", "a", 5, 50),
        ("7", "z", None, 14),
    ]
    assert repr(builder).splitlines() == [
        "MERGE INTO t USING s ON t.id = s.id AND t.city = s.city",
        "  WHEN MATCHED AND s.n < 0 THEN DELETE",
        "  WHEN MATCHED AND s.n = 0 THEN UPDATE SET n = t.n + 1",
        "  WHEN MATCHED THEN UPDATE SET *",
        "  WHEN NOT MATCHED AND s.n > 0 THEN INSERT (id, city, n) VALUES (s.id, 'z', s.n * 2)",
    ]


def test_rows_without_a_source(table: Table) -> None:
    result = (
        table.merge(rows(("1", "a", 1, 1)), "t.id = s.id")
        .when_not_matched_by_source_delete("t.n >= 40")
        .when_not_matched_by_source_update({"n": "0"})
        .execute()
    )
    assert (result.updated, result.deleted) == (2, 2)
    assert own(table, "id", "n") == [("1", 10), ("2", 0), ("3", 0)]


def test_only_files_with_a_key_are_read(table: Table) -> None:
    """R55: tagging by the indexes, as an upsert's."""
    merge = table.merge(rows(("5", "a", 1, 1), ("8", "a", 1, 8)), "t.id = s.id AND t.city = s.city")
    assert "looks up the record key in the partition of the row" in merge.explain()
    result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (result.tagging.source, result.tagging.files_listed, result.tagging.files_opened) == ("metadata", 2, 1)
    whole = table.merge(rows(("5", "a", 1, 2)), "t.id = s.id").when_matched_delete()
    assert "in the whole table" in whole.explain()
    assert whole.execute().tagging.files_opened == 1
    other = table.merge(rows(("x", "a", 1, 40)), "t.n = s.n").when_matched_delete()
    assert "does not set the record key (id) equal" in other.explain()
    assert other.execute().deleted == 1
    assert own(table, "id") == [("1",), ("2",), ("3",), ("8",)]


@pytest.mark.parametrize(
    "on", ["t.id = upper(s.id)", "t.id <=> s.id", "t.id = s.id OR t.n < 0", "CAST(t.id AS INT) = CAST(s.id AS INT)"]
)
def test_conditions_that_no_key_look_up_answers(table: Table, on: str) -> None:
    merge = table.merge(rows(("1", "a", 1, 77)), on).when_matched_update({"n": "s.n"})
    assert "joins the source with the table" in merge.explain()
    assert merge.execute().updated == 1
    assert own(table, "id", "n")[0] == ("1", 77)


def test_equal_numbers_whose_keys_differ(tmp_path: Path) -> None:
    """What SQL calls equal need not be one key text: -0.0 and 0.0, NaN."""
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    table = Table.create(tmp_path / "t", schema, record_key="k")
    table.insert(pa.table({"k": [0.0, float("nan"), 1.5], "v": [1, 2, 3]}, schema))
    source = pa.table({"k": [-0.0, float("nan")], "v": [10, 20]}, schema)
    assert table.merge(source, "t.k = s.k").when_matched_update({"v": "s.v"}).execute().updated == 2
    assert own(table, "v") == [(10,), (20,), (3,)]


def test_keys_of_two_columns_with_nulls_and_separators(tmp_path: Path) -> None:
    """A null part of a key equals nothing; values may hold what keys are joined with."""
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64())])
    table = Table.create(tmp_path / "t", schema, record_key=["a", "b"])
    table.insert(pa.table({"a": ["x,a:1", None, "y"], "b": [2, 3, None], "v": [1, 2, 3]}, schema))
    source = pa.table({"a": ["x,a:1", None, "y"], "b": pa.array([2, 3, None], pa.int32()), "v": [7, 8, 9]})
    merge = table.merge(source, "t.a = s.a AND t.b = s.b").when_matched_update({"v": "s.v"})
    assert "looks up the record key" in merge.explain()
    assert merge.execute().updated == 1
    assert own(table, "v") == [(2,), (3,), (7,)]
    with pytest.raises(InvalidInputError, match="in the table already"):  # SQL would insert the key a second time.
        merge.when_not_matched_insert_all().execute()


def test_a_row_moves_to_another_partition(table: Table) -> None:
    """One row a key, in the new partition."""
    result = table.merge(rows(("1", "c", 1, 1)), "t.id = s.id").when_matched_update_all().execute()
    assert (result.inserted, result.updated, result.deleted) == (0, 1, 0)
    assert "1 rows moved to another partition" in result.notes
    assert ("1", "c", 1, 1) in own(table)
    assert table.scan("id = '1'").count() == 1
    table.insert(rows(("1", "b", 2, 2)))
    with pytest.raises(InvalidInputError, match="in the table already.*moved"):
        table.merge(rows(("1", "b", 9, 9)), "t.id = s.id AND t.city = 'c'").when_matched_update_all().execute()
    assert sorted(own(table.scan("id = '1'").to_arrow(), "city", "n")) == [("b", 2), ("c", 1)]


def test_several_source_rows_for_one(table: Table) -> None:
    before = own(table)
    twice = rows(("1", "a", 1, 1), ("1", "a", 2, 2), ("9", "a", 1, 1))
    for builder in (
        table.merge(twice, "t.id = s.id").when_matched_update_all(),
        table.merge(twice, "t.id = s.id").when_matched_delete("s.n > 0"),
        table.merge(twice, "t.id = s.id").when_matched_delete("s.n > 1").when_matched_delete(),
        table.merge(twice, "t.n > 45 AND s.n > 0").when_matched_update({"n": "s.n"}),
    ):
        with pytest.raises(
            InvalidInputError, match="rows of the merge's source go to the row with key '[15]'"
        ) as error:
            builder.execute()
        assert error.value.count in (2, 3)
    assert own(table) == before
    assert not table.snapshot().timeline.pending()
    assert table.merge(twice, "t.id = s.id").when_matched_update_all("s.ts = 2").execute().updated == 1
    with pytest.raises(InvalidInputError, match="2 rows of the merge's source go to the row with key 'n'"):
        table.merge(rows(("n", "a", 1, 1), ("n", "a", 2, 2)), "t.id = s.id").when_not_matched_insert_all().execute()


def test_new_rows_whose_key_is_stored(table: Table) -> None:
    source = rows(("1", "a", 1, 1))
    for on in ("t.id = s.id AND t.n > 10", "t.n = s.n", "t.id = s.id AND t.city = s.city AND s.n > 5"):
        with pytest.raises(InvalidInputError, match="1 rows that the merge inserts have a key that is in the table"):
            table.merge(source, on).when_not_matched_insert_all().execute()
    with pytest.raises(InvalidInputError, match="in the table already, for example '2'"):
        table.merge(rows(("0", "a", 1, 1)), "t.id = s.id").when_not_matched_insert(
            {"id": "'2'", "city": "'a'"}
        ).execute()
    # In another partition it is another row: keys are one within a partition.
    assert (
        table.merge(source, "t.n = s.n").when_not_matched_insert({"id": "s.id", "city": "'new'"}).execute().inserted
        == 1
    )


def test_null_keys(table: Table) -> None:
    """A source row without a key matches nothing; to insert it is an error that names the column."""
    source = rows((None, "a", 1, 1), ("", "a", 1, 1), ("1", "a", 1, 2))
    assert table.merge(source, "t.id = s.id").when_matched_update_all().execute().updated == 1
    with pytest.raises(InvalidInputError, match="2 of 2 rows have a null or empty record key"):
        table.merge(source, "t.id = s.id").when_not_matched_insert_all().execute()


def test_columns(table: Table) -> None:
    op = rows(("1", "a", 1, 1)).append_column("op", pa.array(["D"])).rename_columns(["ID", "City", "ts", "n", "op"])
    assert (
        table.merge(op, "t.id = s.ID").when_matched_delete("op = 'D'").when_matched_update_all().execute().deleted == 1
    )
    part = pa.table({"key": ["2"], "n": pa.array([5], pa.int32())})
    with pytest.raises(InvalidInputError, match="the source has no column 'id'"):
        table.merge(part, "t.id = s.key").when_matched_update_all().execute()
    assert table.merge(part, "id = key").when_matched_update({"N": "s.n"}).execute().updated == 1
    assert ("2", "a", 5, 5) in own(table)
    wide = rows(("2", "a", 1, 1)).set_column(3, "n", pa.array([2**40]))
    with pytest.raises(
        SchemaMismatchError, match="column 'n' is int32, which cannot hold 1099511627776 exactly, int64 in row 0"
    ):
        table.merge(wide, "t.id = s.id").when_matched_update_all().execute()
    for bad, why in (
        (lambda m: m.when_matched_update({"city": "'x'"}), "part of the record key or partition"),
        (lambda m: m.when_matched_update({"nope": "1"}), "'nope'"),
        (lambda m: m.when_matched_update({}), "update needs set="),
        (lambda m: m.when_not_matched_insert({"id": "s.id"}), "needs a value for 'city'"),
        (
            lambda m: m.when_not_matched_insert({"id": "s.id", "city": "'a'", "zip": "1"}),
            "column 'zip' is not in the table",
        ),
        (lambda m: m.when_matched_delete("t.zip = 1"), "zip"),
        (lambda m: m, "no clause"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            bad(table.merge(rows(("2", "a", 1, 1)), "t.id = s.id")).execute()
    with pytest.raises(UnsupportedFeatureError, match="cannot evaluate"):
        table.merge(part, "t.id RLIKE s.key").when_matched_delete().execute()


def test_clauses_that_would_never_count(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="UPDATE SET \\* takes all rows"):
        table.merge(OLD, "t.id = s.id").when_matched_update_all().when_matched_delete("s.n = 1")
    for aliases in ({"target": "s"}, {"source": "a.b"}, {"target": ""}):
        with pytest.raises(InvalidInputError, match="alias"):
            table.merge(OLD, "t.id = s.id", **aliases)


def test_other_aliases(table: Table) -> None:
    merge = table.merge(rows(("1", "a", 1, 5)), "target.id = source.id", target="target", source="source")
    assert merge.when_matched_update({"n": "target.n + source.n"}).execute().updated == 1
    assert ("1", "a", 5, 15) in own(table)


@pytest.mark.parametrize("on", ["t.id = s.id", "t.n > 45 AND s.n > 0"])
def test_several_source_rows_may_delete_one(table: Table, on: str) -> None:
    """All that becomes of a matched row is that it goes: it goes once, as in Delta."""
    before = own(table)
    twice = rows(("1", "a", 1, 1), ("1", "a", 2, 2), ("9", "a", 1, 1))
    merge = table.merge(twice, on).when_matched_delete()
    hit = [row for row in before if (row[0] == "1" if on == "t.id = s.id" else row[3] is not None and row[3] > 45)]
    assert hit
    assert merge.execute().deleted == len(hit)
    assert own(table) == [row for row in before if row not in hit]
    new = rows(("n", "a", 1, 1), ("n", "a", 2, 2))
    with pytest.raises(InvalidInputError, match="2 rows of the merge's source go to the row with key 'n'"):
        table.merge(new, "t.id = s.id").when_matched_delete().when_not_matched_insert_all().execute()


def test_columns_of_any_type(tmp_path: Path) -> None:
    nested = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    schema = pa.schema([("id", pa.string()), ("t", nested), ("m", pa.map_(pa.string(), pa.int64()))])
    table = Table.create(tmp_path / "t", schema, record_key="id")
    table.insert(pa.table({"id": ["1", "2"], "t": [{"a": 1, "b": ["x"]}, None], "m": [[("k", 1)], None]}, schema))
    source = pa.table({"id": ["2", "3"], "t": [{"a": 2, "b": []}, {"a": 3, "b": None}], "m": [[], None]}, schema)
    merge = table.merge(source, "d.id = s.id AND s.t.a < 3", target="d")
    merge.when_matched_update({"t": "s.t"}).when_not_matched_insert_all().execute()
    found = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert found["2"]["t"] == {"a": 2, "b": []}
    assert found["2"]["m"] is None
    assert found["3"]["t"] == {"a": 3, "b": None}
    assert found["1"]["m"] == [("k", 1)]


def test_nothing_to_do(table: Table) -> None:
    commits = table.inspect.history().num_rows
    result = table.merge(rows(("1", "a", 1, 1)), "t.id = s.id").when_matched_delete("s.n > 5").execute()
    assert result.instant is None
    assert table.merge(ROWS.empty_table(), "t.n = s.n").when_not_matched_insert_all().execute().instant is None
    assert table.inspect.history().num_rows == commits


def test_into_an_empty_table(tmp_path: Path) -> None:
    table = make(tmp_path / "t", schema=ROWS, partition_by="city")
    for on in ("t.id = s.id", "t.n = s.n"):
        merge = table.merge(rows((on[2], "a", 1, 1)), on).when_matched_delete("t.n > 1").when_not_matched_insert_all()
        result = merge.execute() if on == "t.id = s.id" else merge.when_not_matched_by_source_delete().execute()
        assert result.inserted == int(on == "t.id = s.id")
    bare = Table.create(tmp_path / "none", record_key="id").merge(rows(("1", "a", 1, 1)), "t.id = s.id")
    with pytest.raises(InvalidInputError, match="has no columns yet"):
        bare.when_not_matched_insert_all().execute()


def test_soft_deletes(tmp_path: Path) -> None:
    schema = ROWS.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = make(tmp_path / "t", rows(("1", "a", 1, 1, None), ("2", "a", 1, 1, False), schema=schema))
    source = rows(("1", "a", 1, 1, True), ("3", "a", 1, 1, True), ("4", "a", 1, 1, False), schema=schema)
    result = table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 1)
    assert own(table, "id") == [("2",), ("4",)]


def test_rows_of_one_key(tmp_path: Path) -> None:
    """Rows that ``insert`` doubled are hit together, as everywhere."""
    table = make(tmp_path / "t", rows(("1", "a", 1, 1), ("2", "a", 1, 1)))
    table.insert(rows(("1", "a", 1, 2)), options=OWN_FILE)
    assert table.merge(rows(("1", "a", 9, 9)), "t.id = s.id").when_matched_update_all().execute().updated == 2
    assert own(table, "id", "n") == [("1", 9), ("1", 9), ("2", 1)]


def test_widened_files_and_late_columns(table: Table) -> None:
    table.widen_column("n", pa.int64())
    table.add_columns(pa.schema([("x", pa.string())]))
    table.merge(rows(("1", "a", 1, 1)), "t.id = s.id AND t.x IS NULL").when_matched_update({"x": "s.city"}).execute()
    assert own(table, "id", "n", "x")[:2] == [("1", 10, "a"), ("2", 20, None)]


# -------------------------------------------------------------------------------------------------- other writers


def interrupt(monkeypatch: pytest.MonkeyPatch, write: Any, times: int = 1) -> None:
    """Let another writer in before a write announces itself."""
    begin, left = Transaction.begin, [times]

    def begin_late(self: Transaction) -> None:
        if left[0]:
            left[0] -= 1
            number, left[0] = left[0], 0
            write()
            left[0] = number
        begin(self)

    monkeypatch.setattr(Transaction, "begin", begin_late)


@pytest.mark.parametrize("on", ["t.id = s.id AND t.city = s.city", "t.id = s.id", "t.id = s.id OR t.n = -1"])
def test_another_writer_inserts_the_key(table: Table, monkeypatch: pytest.MonkeyPatch, on: str) -> None:
    """The key is matched again and updated, not inserted twice."""
    interrupt(monkeypatch, lambda: Table.open(table.path).insert(rows(("9", "a", 1, 1)), options=OWN_FILE))
    merge = table.merge(rows(("9", "a", 1, 2)), on).when_matched_update({"n": "t.n * 10"}).when_not_matched_insert_all()
    result = merge.execute()
    assert (result.inserted, result.updated) == (0, 1)
    assert "matched and wrote again" in result.notes[0]
    assert ("9", "a", 1, 10) in own(table)


def test_other_writers_again_and_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, lambda: Table.open(table.path).upsert(rows(("4", "c", 9, 1))), times=9)
    merge = table.merge(rows(("1", "a", 1, 2)), "t.id = s.id").when_matched_update_all()
    with pytest.raises(CommitConflictError):
        merge.execute(options={"hoodie.write.num.retries.on.conflict.failures": "1"})
    assert ("1", "a", 5, 10) in own(table)
    assert not table.snapshot().timeline.pending()


@pytest.mark.parametrize("on,conflict", [("t.id = s.id AND t.city = s.city", False), ("t.id = s.id", True)])
def test_a_commit_while_the_files_are_written(table: Table, on: str, conflict: bool) -> None:
    """What the rows depend on is looked at again under the lock: of the key's partition, or of the whole table."""
    mine = meanwhile(table, lambda t: t.insert(rows(("9", "z", 1, 1))))
    merge = mine.merge(rows(("9", "a", 1, 2)), on).when_matched_update({"n": "77"}).when_not_matched_insert_all()
    result = merge.execute()
    assert (result.updated, result.inserted) == ((1, 0) if conflict else (0, 1))
    assert table.scan("id = '9'").count() == (1 if conflict else 2)
