"""Every action on small tables: which rows there are afterwards, and what the result says."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same_rows
from samples import all_types

from lakedex import Table
from lakedex.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.reports import TaggingReport, WriteResult
from lakedex.types import META_COLUMNS
from table_kit import ROWS, base_files, make, own, picture, rows

TWO = rows(("1", "a", 1, 1), ("2", "b", 1, 2))
ACTIONS = ("bulk_insert", "insert", "upsert")


def write(table: Table, action: str, data: Any, **arguments: Any) -> WriteResult:
    result = getattr(table, action)(data, **arguments)
    assert isinstance(result, WriteResult)
    return result


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("partition_by", [(), "city", ["city", "n"]], ids=str)
@pytest.mark.parametrize("declared", [True, False])
def test_rows_come_back(tmp_path: Path, action: str, partition_by: Any, declared: bool) -> None:
    table = make(tmp_path, schema=ROWS if declared else None, partition_by=partition_by, ordering_by="ts")
    result = write(table, action, TWO)
    assert (result.inserted, result.updated, result.deleted) == (2, 0, 0)
    assert result.operation == action.upper()
    assert result.files_written == len(base_files(tmp_path)) == (2 if partition_by else 1)
    assert result.bytes_written == sum((tmp_path / f).stat().st_size for f in base_files(tmp_path))
    assert result.metadata_bytes > 0
    assert_same_rows(table.scan(columns=ROWS.names).to_arrow(), TWO, "id")
    assert table.scan().count() == 2


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("partition_by", [(), "part"], ids=str)
def test_all_types_come_back(tmp_path: Path, action: str, partition_by: Any) -> None:
    data = all_types(local_timestamp=True)
    table = make(tmp_path, record_key="key", partition_by=partition_by, ordering_by="ts")
    write(table, action, data)
    assert_same_rows(table.scan(columns=data.schema.names).to_arrow(), data, "key")
    later = data.set_column(1, "ts", pa.array([9] * 4, pa.int64()))
    table.upsert(later.slice(2))  # Through a merge with stored rows, too.
    table.update({"small": "7"}, "key = 'k1'")
    expected = pa.concat_tables([data.slice(1, 1), later.slice(2)])
    read = table.scan("key <> 'k1'", columns=data.schema.names).to_arrow()
    assert_same_rows(read, expected, "key")
    assert table.scan("small = 7").to_arrow().column("key").to_pylist() == ["k1"]


def test_meta_columns(tmp_path: Path) -> None:
    table = make(tmp_path, partition_by="city")
    first = table.upsert(TWO)
    second = table.upsert(rows(("1", "a", 2, 9), ("3", "a", 2, 3)))
    found = {row["id"]: row for row in table.scan(meta_columns=True).to_arrow().to_pylist()}
    assert found["1"]["_hoodie_commit_time"] == second.instant
    assert found["2"]["_hoodie_commit_time"] == first.instant
    for key, row in found.items():
        assert row["_hoodie_record_key"] == key
        assert row["_hoodie_partition_path"] == f"city={row['city']}"
        assert (tmp_path / row["_hoodie_partition_path"] / row["_hoodie_file_name"]).exists()
        assert row["_hoodie_commit_seqno"].startswith(f"{row['_hoodie_commit_time']}_")
    assert len({row["_hoodie_commit_seqno"] for row in found.values()}) == 3
    assert found["1"]["_hoodie_file_name"] == found["3"]["_hoodie_file_name"]


def test_a_frame_may_be_many_things(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = make(tmp_path, schema=ROWS)
    table.upsert(rows(("1", "a", 1, 1)).to_batches()[0])
    table.upsert(pa.RecordBatchReader.from_batches(ROWS, rows(("2", "a", 1, 1)).to_batches()))
    table.upsert(pandas.DataFrame({"id": ["3"], "city": ["a"], "ts": [1], "n": pandas.array([1], "int32")}))
    dictionary = rows(("4", "a", 1, 1)).set_column(1, "city", pa.array(["a"]).dictionary_encode())
    table.upsert(dictionary)
    assert own(table, "id") == [("1",), ("2",), ("3",), ("4",)]
    for nothing in (5, "text", None, pa.schema([])):
        with pytest.raises(InvalidInputError, match="is not a frame"):
            table.upsert(nothing)


# ------------------------------------------------------------------------------------------------------- upsert
def test_upsert_updates_and_inserts(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, partition_by="city")
    result = table.upsert(rows(("2", "b", 2, 20), ("3", "b", 2, 30)))
    assert (result.inserted, result.updated, result.deleted, result.files_written) == (1, 1, 0, 1)
    assert own(table) == [("1", "a", 1, 1), ("2", "b", 2, 20), ("3", "b", 2, 30)]
    report = result.tagging
    assert (report.files_listed, report.files_opened, report.keys_probed, report.matches) == (1, 1, 2, 1)
    assert report.source == "metadata"
    assert report.false_positives == report.candidates - report.matches


def test_upsert_looks_in_its_partition_only(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, partition_by="city")
    table.upsert(rows(("1", "b", 2, 5)))  # The same key elsewhere is another row, as with Hudi's BLOOM index.
    assert own(table) == [("1", "a", 1, 1), ("1", "b", 2, 5), ("2", "b", 1, 2)]


def test_an_upsert_may_read_its_own_table(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, partition_by="city")
    result = table.upsert(table.scan(columns=ROWS.names).to_arrow())
    assert (result.updated, result.inserted) == (2, 0)
    assert own(table) == own(TWO)


def test_rows_keep_their_place(tmp_path: Path) -> None:
    keys = [f"k{n:02d}" for n in range(10)]
    table = make(tmp_path, rows(*((key, "a", 1, 0) for key in keys)))
    before = table.scan().to_arrow().column("id").to_pylist()
    table.upsert(rows(("k05", "a", 2, 1), ("new", "a", 2, 1)))
    assert table.scan().to_arrow().column("id").to_pylist() == [*before, "new"]


# ------------------------------------------------------------------------------------------------------- insert
def test_insert_does_not_look(tmp_path: Path) -> None:
    table = make(tmp_path, TWO)
    result = table.insert(rows(("1", "x", 2, 9)))
    assert (result.inserted, result.updated) == (1, 0)
    assert own(table) == [("1", "a", 1, 1), ("1", "x", 2, 9), ("2", "b", 1, 2)]
    assert result.tagging.source == "none"


def test_insert_drops_known_keys(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, options={"hoodie.datasource.insert.dup.policy": "drop"})
    result = table.insert(rows(("1", "x", 2, 9), ("3", "c", 1, 3), ("3", "d", 1, 4)))
    assert result.inserted == 1
    assert own(table) == [("1", "a", 1, 1), ("2", "b", 1, 2), ("3", "d", 1, 4)]
    before = picture(tmp_path)
    assert table.insert(rows(("1", "x", 2, 9))).instant is None
    assert own(table, "id") == [("1",), ("2",), ("3",)]
    assert {k: v for k, v in picture(tmp_path).items() if not k.endswith("lock")} == before


def test_insert_fails_on_known_keys(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, options={"hoodie.datasource.insert.dup.policy": "fail"})
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match="1 keys are in the table already, for example '1'") as caught:
        table.insert(rows(("1", "x", 2, 9), ("3", "c", 1, 3)))
    assert caught.value.count == 1
    assert picture(tmp_path) == before
    table.insert(rows(("3", "c", 1, 3)))
    assert own(table, "id") == [("1",), ("2",), ("3",)]


@pytest.mark.parametrize("action", ["insert", "bulk_insert"])
@pytest.mark.parametrize("combine", [False, True])
def test_repeated_keys_of_an_insert(tmp_path: Path, action: str, combine: bool) -> None:
    table = make(tmp_path, ordering_by="ts")
    data = rows(("1", "a", 2, 2), ("1", "a", 1, 1))
    result = write(table, action, data, options={"hoodie.combine.before.insert": combine})
    assert result.inserted == (1 if combine else 2)
    assert own(table) == ([("1", "a", 2, 2)] if combine else [("1", "a", 1, 1), ("1", "a", 2, 2)])


# ------------------------------------------------------------------------------------------------------- delete
@pytest.mark.parametrize("partition_by", [(), "city"], ids=str)
@pytest.mark.parametrize("columns", [["id"], ["id", "city"], ["id", "city", "ts", "n"], ["n", "id"]], ids=str)
def test_delete_by_keys(tmp_path: Path, partition_by: Any, columns: list[str]) -> None:
    table = make(
        tmp_path,
        rows(("1", "a", 5, 1), ("2", "b", 5, 2), ("3", "b", 5, 3)),
        partition_by=partition_by,
        ordering_by="ts",
    )
    keys = rows(("1", "a", 1, 0), ("3", "b", 1, 0), ("9", "z", 1, 0)).select(columns)
    result = table.delete(keys, all_partitions="city" not in columns)
    assert (result.inserted, result.updated, result.deleted) == (0, 0, 2)
    assert result.operation == "DELETE"
    assert own(table) == [("2", "b", 5, 2)]  # Whatever the ordering value.


def test_delete_in_all_partitions_finds_a_key_everywhere(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1), ("1", "b", 1, 2), ("2", "b", 1, 3)), partition_by="city")
    assert table.delete(pa.table({"id": ["1"], "city": ["b"]})).deleted == 1
    assert own(table, "id", "city") == [("1", "a"), ("2", "b")]
    table.upsert(rows(("1", "b", 1, 2)))
    with pytest.raises(InvalidInputError, match=r"partition column 'city' is not in the frame.*all_partitions=True"):
        table.delete(pa.table({"id": ["1", "1"]}))
    assert table.delete(pa.table({"id": ["1", "1"]}), all_partitions=True).deleted == 2
    assert own(table, "id") == [("2",)]
    with pytest.raises(InvalidInputError, match="all_partitions goes with keys"):
        table.delete(where="n = 3", all_partitions=True)


def test_delete_with_half_of_the_partition(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, partition_by=["city", "n"])
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match="partition column 'n'"):
        table.delete(pa.table({"id": ["1"], "city": ["a"]}))
    assert picture(tmp_path) == before


@pytest.mark.parametrize(
    "where, left",
    [
        ("n = 1", ["2", "3"]),
        ("city = 'b' and n > 2", ["1", "2"]),
        ("n is null", ["1", "2", "3"]),
        ("true", []),
        ("id in ('1','3')", ["2"]),
    ],
)
def test_delete_where(tmp_path: Path, where: str, left: list[str]) -> None:
    table = make(
        tmp_path, rows(("1", "a", 1, 1), ("2", "b", 1, 2), ("3", "b", 1, 3)), partition_by="city", ordering_by="ts"
    )
    result = table.delete(where=where)
    assert result.deleted == 3 - len(left)
    assert [key for (key,) in own(table, "id")] == left
    assert (result.instant is None) == (len(left) == 3)


def test_a_table_emptied_is_filled_again(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, partition_by="city")
    table.delete(where="true")
    assert own(table) == []
    assert table.scan().count() == 0
    assert table.schema == ROWS
    assert table.upsert(TWO).inserted == 2
    assert table.upsert(TWO).updated == 2
    assert own(table) == own(TWO)


def test_delete_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    table = make(tmp_path, TWO)
    before = picture(tmp_path)
    result = table.delete(pa.table({"id": ["9"]}))
    assert (result.instant, result.deleted) == (None, 0)
    assert result.notes == ("no row had to be written",)
    assert {k: v for k, v in picture(tmp_path).items() if not k.endswith("lock")} == before


# ------------------------------------------------------------------------------------------------------- update
def test_update(tmp_path: Path) -> None:
    table = make(
        tmp_path, rows(("1", "a", 5, 1), ("2", "b", 5, None), ("3", "b", 5, 3)), partition_by="city", ordering_by="ts"
    )
    result = table.update({"n": "n + 10", "ts": "1"}, "n >= 1")
    assert (result.inserted, result.updated, result.deleted) == (0, 2, 0)
    assert own(table) == [
        ("1", "a", 1, 11),
        ("2", "b", 5, None),
        ("3", "b", 1, 13),
    ]  # Also to a smaller ordering value.
    assert table.update({"N": "null"}).updated == 3
    assert own(table, "n") == [(None,)] * 3
    before = picture(tmp_path)
    assert table.update({"n": "1"}, "n = 5").instant is None
    assert picture(tmp_path) == before


@pytest.mark.parametrize(
    "assignments, message",
    [
        ({}, "needs set="),
        ("n = 1", "needs set="),
        ({"n": "1", "N": "2"}, "sets column 'N' more than once"),
        ({"id": "'x'"}, "part of the record key"),
        ({"city": "'x'"}, "part of the record key or partition"),
        ({"nn": "1"}, "update column 'nn' .* did you mean 'n'"),
    ],
)
def test_update_refuses(tmp_path: Path, assignments: dict[str, str], message: str) -> None:
    table = make(tmp_path, TWO, partition_by="city")
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match=message):
        table.update(assignments, "n = 1")
    assert picture(tmp_path) == before


# ------------------------------------------------------------------------------------------------------- nothing
@pytest.mark.parametrize("action", [*ACTIONS, "delete"])
def test_an_empty_frame_writes_nothing(tmp_path: Path, action: str) -> None:
    table = make(tmp_path, TWO, partition_by="city", ordering_by="ts")
    before = picture(tmp_path)
    result = write(table, action, TWO.slice(0, 0))
    assert result.instant is None
    assert result.notes == ("there are no rows to write",)
    assert picture(tmp_path) == before


@pytest.mark.parametrize("action", [*ACTIONS, "delete"])
def test_the_first_frame_may_be_empty(tmp_path: Path, action: str) -> None:
    table = make(tmp_path, schema=ROWS)
    assert write(table, action, TWO.slice(0, 0)).instant is None
    assert own(table) == []
    table.upsert(TWO)
    assert own(table) == own(TWO)


def test_a_table_without_a_schema(tmp_path: Path) -> None:
    table = make(tmp_path)
    before = picture(tmp_path)
    assert table.upsert(TWO.slice(0, 0)).notes == ("there are no rows to write",)
    assert table.scan(meta_columns=True).to_arrow().schema.names == list(META_COLUMNS)
    assert table.scan().count() == 0
    assert table.delete(where="true").instant is None
    with pytest.raises(InvalidInputError, match="update column 'n' is not in the table; it has no columns"):
        table.update({"n": "1"})
    with pytest.raises(InvalidInputError, match="no column 'id'"):
        table.scan("id = '1'").count()
    assert picture(tmp_path) == before


# ---------------------------------------------------------------------------------------------------- the commit
def test_what_a_commit_says(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, partition_by="city")
    result = table.upsert(rows(("1", "a", 2, 9), ("3", "a", 2, 3), ("4", "c", 2, 3)))
    snapshot = table.snapshot()
    commit = snapshot.timeline.commit_metadata(snapshot.timeline.completed()[-1])
    assert commit.operation == "UPSERT"
    assert [field["name"] for field in json.loads(commit.schema or "")["fields"]] == ROWS.names
    stats = {stat.partition_path: stat for stat in commit.all_stats()}
    assert set(stats) == {"city=a", "city=c"}
    merged, created = stats["city=a"], stats["city=c"]
    assert (merged.num_writes, merged.num_updates, merged.num_inserts, merged.num_deletes) == (2, 1, 1, 0)
    assert merged.prev_commit == table.inspect.history().column("commit_time").to_pylist()[1]
    assert merged.prev_base_file in {Path(f).name for f in base_files(tmp_path)}
    assert (created.num_writes, created.num_inserts, created.prev_commit) == (1, 1, "null")
    for stat in stats.values():
        assert stat.file_size == (tmp_path / stat.path).stat().st_size
    assert result.instant == snapshot.instant
    assert not list((tmp_path / ".hoodie" / ".temp").iterdir())
    assert not (tmp_path / ".hoodie" / "lock").exists()
    names = {p.name for p in (tmp_path / ".hoodie" / "timeline").iterdir() if p.is_file()}
    assert {f"{result.instant}.commit.requested", f"{result.instant}.inflight"} <= names
    heartbeats = tmp_path / ".hoodie" / ".heartbeat"
    assert not heartbeats.exists() or not list(heartbeats.iterdir())


def test_partition_metafiles(tmp_path: Path) -> None:
    table = make(tmp_path, TWO, partition_by=["city", "n"])
    path = tmp_path / "city=a" / "n=1" / ".hoodie_partition_metadata"
    content = path.read_text()
    assert "partitionDepth=2" in content
    assert f"commitTime={table.snapshot().instant}" in content
    table.upsert(rows(("5", "a", 1, 1)))
    assert path.read_text() == content


def test_results_show_themselves(tmp_path: Path) -> None:
    table = make(tmp_path, TWO)
    result = table.upsert(rows(("1", "a", 2, 9)), options={"hoodie.metrics.<on>": "true"})
    text = str(result)
    assert text.startswith(f"upsert {result.instant}: 1 row updated in 1 file, ")
    assert "note: option hoodie.metrics.<on> has no effect" in text
    assert "key lookup in files: 1 listed → 1 after ranges" in text
    html = result._repr_html_()
    assert "&lt;on&gt;" in html
    assert "<on>" not in html
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["updated"] == 1
    assert plain["tagging"]["false_positives"] == 0
    assert str(WriteResult(instant=None, operation="DELETE")).startswith("delete (nothing to write)")
    assert "0 keys" in str(TaggingReport())
    assert all(name not in own(table)[0] for name in META_COLUMNS)


def test_a_new_key_beside_one_that_lies_in_two_files(tmp_path: Path) -> None:
    """The doubled key must not use up the room that was planned for the new one."""
    table = Table.create(tmp_path / "t", record_key="id", options={"hoodie.parquet.small.file.limit": 0})
    for _ in range(2):
        table.insert(pa.table({"id": ["a"], "n": [1]}))
    result = table.upsert(pa.table({"id": ["a", "b"], "n": [2, 2]}))
    assert (result.inserted, result.updated) == (1, 2)
    assert sorted(table.scan(columns=["id", "n"]).to_arrow().to_pylist(), key=str) == [
        {"id": "a", "n": 2},
        {"id": "a", "n": 2},
        {"id": "b", "n": 2},
    ]
    assert table.delete(pa.table({"id": ["a"]})).deleted == 2


def test_a_write_that_changes_nothing_says_which_state_it_left(tmp_path: Path) -> None:
    """Read by ``as_of``, that state stays the same whatever comes later."""
    table = make(tmp_path, schema=ROWS, partition_by="city")
    assert table.delete(where="n = 1").latest is None
    first = table.upsert(rows(("1", "a", 1, 1)))
    assert first.latest == first.instant
    for nothing in (
        table.delete(where="n = 7"),
        table.upsert(ROWS.empty_table()),
        table.delete_partition("city=z"),
        table.merge(rows(("9", "a", 1, 1)), "t.id = s.id and t.city = s.city").when_matched_delete().execute(),
        table.maintenance.rewrite_files(),
    ):
        assert (nothing.instant, nothing.latest) == (None, first.instant)
    table.upsert(rows(("1", "a", 2, 2)))
    assert own(table.scan(as_of=nothing.latest).to_arrow(), "n") == [(1,)]


def test_an_update_takes_values_and_expressions(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1), ("2", "b", 1, 2)))
    for value in ("bob", " Bob ", "cityy"):
        with pytest.raises(InvalidInputError, match=r"column 'city' is set to .*For the text write \"'\w+'\""):
            table.update({"city": value})
    for value, found in (
        ("'bob'", "bob"), ("id", "1"), ("CITY", "1"), ("null", None), (None, None), ("upper('x')", "X"),
    ):  # fmt: skip
        table.update({"city": value}, "id = '1'")
        assert own(table, "id", "city")[0] == ("1", found)
    table.update({"n": 7, "ts": Decimal(3)}, ("id", "=", "1"))
    assert own(table, "id", "n", "ts")[0] == ("1", 7, 3)
    table.update({"n": None}, pl.col("id") == "1")
    assert table.count(pc.field("n").is_null()) == 1


EXACT = pa.schema(
    [("id", pa.string()), ("i", pa.int32()), ("f", pa.float32()), ("d", pa.date32()), ("m", pa.decimal128(5, 2)),
     ("l", pa.list_(pa.int64())), ("s", pa.struct([("x", pa.int32())]))]
)  # fmt: skip


def test_an_update_does_not_cut_values(tmp_path: Path) -> None:
    """Expressions are cast as in SQL; what is given as a value is stored as it is, or refused."""
    noon = dt.datetime(2024, 1, 2, 12)
    row = {"id": "1", "i": 1, "f": 1.0, "d": dt.date(2024, 1, 1), "m": Decimal(1), "l": [1], "s": {"x": 1}}
    table = make(tmp_path, pa.Table.from_pylist([row], EXACT))
    for name, value in (
        ("i", 1.5),
        ("i", Decimal("2.5")),
        ("i", 2**40),
        ("f", 1e300),
        ("d", noon),
        ("m", Decimal("1.005")),
    ):
        with pytest.raises(SchemaMismatchError, match=f"column '{name}' is .*cannot hold"):
            table.update({name: value})
    assert table.to_arrow().to_pylist() == [row]
    values = {"i": 2.0, "f": 0.1, "d": noon.replace(hour=0), "m": 7, "l": None, "s": None}
    table.update(values)
    found = {**row, "i": 2, "f": pa.scalar(0.1, pa.float32()).as_py(), "d": dt.date(2024, 1, 2), "m": Decimal(7)}
    assert table.to_arrow().to_pylist() == [{**found, "l": None, "s": None}]
    table.update({"i": "3.7"})
    assert own(table, "i") == [(3,)]
    with pytest.raises(UnsupportedFeatureError, match="column 'l': cannot assign"):
        table.update({"l": "1"})


def test_keys_inside_of_a_struct_are_deleted(tmp_path: Path) -> None:
    kind = pa.struct([("a", pa.string()), ("b", pa.int64())])
    table = make(tmp_path, schema=pa.schema([("k", pa.int64()), ("s", kind)]), record_key="s.a")
    table.upsert([{"k": n, "s": {"a": f"x{n}", "b": n}} for n in range(4)])
    assert table.delete([{"s": {"a": "x0", "b": 0}}]).deleted == 1
    assert table.delete(pa.table({"s": pa.array([{"a": "x1", "b": 1}], kind)})).deleted == 1
    assert table.delete([]).deleted == 0
    with pytest.raises(InvalidInputError, match=r"s\.a lies inside of a struct: give dictionaries or a frame with s$"):
        table.delete(["x2"])
    assert own(table, "k") == [(2,), (3,)]
