"""Plans, pruning, and rows: with and without skipping always the same."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from compare import assert_same_rows
from samples import all_types

from lakedex import Table
from lakedex.errors import FormatError, InvalidInputError, MissingEngineError, UnsupportedFeatureError
from lakedex.scan.plan import PruneStage, ScanPlan
from lakedex.scan.scan import Scan
from lakedex.types import size_text
from table_kit import OWN_FILE, ROWS, make, own, rows

NAN = float("nan")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Six files: cities a, b, c, two commits; ``n`` 0..11, null once."""
    made = make(tmp_path_factory.mktemp("scan") / "trips", schema=ROWS, partition_by="city", options=OWN_FILE)
    made.bulk_insert(rows(*((f"k{n:02d}", "abc"[n % 3], 1, n) for n in range(6))))
    made.bulk_insert(rows(*((f"k{n:02d}", "abc"[n % 3], 2, n if n != 8 else None) for n in range(6, 12))))
    return made


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A file for each row of all types."""
    made = make(tmp_path_factory.mktemp("typed"), record_key="key", options=OWN_FILE)
    data = all_types(local_timestamp=True)
    for n in range(data.num_rows):
        made.insert(data.slice(n, 1))
    return made


def same(table: Table, where: str, **arguments: Any) -> pa.Table:
    """Rows under a condition, which must not depend on skipping."""
    found = table.scan(where, **arguments).to_arrow()
    plain = table.scan(where, use_indexes=False, **arguments)
    assert_same_rows(found, plain.to_arrow())
    assert table.scan(where, **arguments).count() == plain.count() == found.num_rows
    assert len(plain.plan().files) == plain.plan().files_total
    return found


# ------------------------------------------------------------------------------------------------------- pruning
@pytest.mark.parametrize(
    "where, files, keys",
    [
        ("city = 'a'", 2, ["k00", "k03", "k06", "k09"]),
        ("city in ('a', 'b') and n < 3", 2, ["k00", "k01"]),
        ("city <> 'a'", 4, ["k01", "k02", "k04", "k05", "k07", "k08", "k10", "k11"]),
        ("city is null", 0, []),
        ("not (city = 'a' or city = 'b')", 2, ["k02", "k05", "k08", "k11"]),
        ("n = 4", 2, ["k04"]),
        ("n > 100", 0, []),
        ("n >= 10", 2, ["k10", "k11"]),
        ("n is null", 1, ["k08"]),
        ("n <=> null", 1, ["k08"]),
        ("n is not null and ts = 2 and city = 'c'", 1, ["k11"]),
        ("city = 'a' or n = 4", 4, ["k00", "k03", "k04", "k06", "k09"]),
        ("n between 3 and 4", 3, ["k03", "k04"]),
        ("id like 'k1%'", 2, ["k10", "k11"]),
        ("id = 'k07'", 1, ["k07"]),
        ("id in ('k07', 'k00', 'zz')", 2, ["k00", "k07"]),
        ("ts = 1", 3, ["k00", "k01", "k02", "k03", "k04", "k05"]),
        ("false", 0, []),
        ("_hoodie_record_key = 'k03'", 1, ["k03"]),
        ("_hoodie_partition_path = 'city=b'", 2, ["k01", "k04", "k07", "k10"]),
        ("CITY = 'a' AND N = 0", 1, ["k00"]),
    ],
)
def test_pruned(table: Table, where: str, files: int, keys: list[str]) -> None:
    found = same(table, where)
    assert sorted(found.column("id").to_pylist()) == keys
    plan = table.scan(where).plan()
    assert (len(plan.files), plan.files_total) == (files, 6)


def test_a_plan_tells_its_stages(table: Table) -> None:
    plan = table.scan("city = 'a' and n = 3 and id = 'k03'").plan()
    assert [stage.name for stage in plan.stages] == ["partition", "column_stats", "bloom_filters"]
    partition, stats, bloom = plan.stages
    assert (partition.before, partition.after, stats.before, stats.after) == (6, 2, 2, 1)
    assert (bloom.before, bloom.after) == (1, 1)
    assert partition.terms == ("city = 'a'",)
    assert "n = 3" in stats.terms
    assert bloom.terms == ("id = 'k03'",)
    assert partition.requests == 0
    assert partition.bytes_before == plan.bytes_total > partition.bytes_after == stats.bytes_before
    assert stats.bytes_after == plan.bytes_kept == plan.files[0].size
    assert plan.files_kept == (plan.files[0].name,)
    assert plan.instant == table.inspect.history().column("commit_time").to_pylist()[0]
    assert plan.table == "trips"
    assert plan.unused == ()
    assert plan.stage("partition") is partition
    with pytest.raises(KeyError, match="no stage 'bitmap'; stages: partition, column_stats, bloom_filters"):
        plan.stage("bitmap")


def test_a_plan_shows_itself(table: Table) -> None:
    plan = table.scan("city = 'a' and n < 3").plan()
    text = str(plan)
    assert text.startswith("scan of trips: 1 of 6 files")
    assert "  where     city = 'a' AND n < 3\n" in text and f"  snapshot  {plan.instant}\n" in text
    assert "partition" in text
    assert "66.7 %" in text
    assert str(table.scan("city = 'a' and n < 3").explain()).splitlines()[0] == text.splitlines()[0]
    html = plan._repr_html_()
    assert "n &lt; 3" in html
    assert "1 of 6 files" in html
    assert table.scan("city = 'a'")._repr_html_().startswith("<div")
    plain = json.loads(json.dumps(plan.to_dict()))
    assert plain["files_kept"] == list(plan.files_kept)
    assert [stage["name"] for stage in plain["stages"]] == ["partition", "column_stats"]
    arrow = plan.to_arrow()
    assert arrow.column("name").to_pylist() == ["partition", "column_stats"]
    assert arrow.column("after").to_pylist() == [2, 1]
    assert arrow.column("terms").to_pylist()[0] == ["city = 'a'"]


def test_a_plan_without_a_condition(table: Table) -> None:
    plan = table.scan().plan()
    assert (len(plan.files), plan.stages, plan.unused, plan.where) == (6, (), (), None)
    assert "where     (all rows)" in str(plan)
    assert plan.to_arrow().num_rows == 0


def why(scan: Scan) -> tuple[str, ...]:
    return tuple(map(str, scan.plan().unused))


def test_why_an_index_was_not_used(tmp_path: Path) -> None:
    options = {
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.bloom.filter.enable": "false",
    }
    bare = make(tmp_path / "bare", rows(("1", "a", 1, 1)), options=options)
    assert why(bare.scan("id = '2'")) == (
        "column_stats: not in the table's metadata", "bloom_filters: not in the table's metadata",
    )  # fmt: skip
    assert "not used: column_stats" in str(bare.scan("id = '2'").plan())
    assert "not used" in bare.scan("id = '2'").plan()._repr_html_()
    assert [item.remedy for item in bare.scan("id = '2'").plan().unused] == [
        'table.indexes.create("column_stats")',
        'table.indexes.create("bloom_filters")',
    ]
    assert why(bare.scan("n = 1", use_indexes=False)) == ("all indexes: use_indexes=False",)
    nested = make(tmp_path / "nested", pa.table({"id": ["1"], "l": [[1]], "s": [{"x": 1}]}))
    for where in ("s.x = 1", "s.x = 2", "l is null", "s is not null"):
        plan = nested.scan(where).plan()
        assert len(plan.files) == 1
        assert plan.unused, where
    assert nested.scan("s.x = 1").count() == 1
    assert nested.scan("s.x = 2").count() == 0


def test_sizes_for_people() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 5 * 1024**2, 3 * 1024**3, 2 * 1024**4)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 GiB", "2.0 TiB",
    ]  # fmt: skip
    empty = ScanPlan(table="t", instant=None, where="x < 1", files_total=0, bytes_total=0, slices=())
    assert "(no commit)" in str(empty)
    assert empty.summary == "0 of 0 files · 0 B of 0 B"
    stage = PruneStage(
        name="p", before=0, after=0, bytes_before=0, bytes_after=0, requests=0, bytes_read=0, seconds=0, terms=()
    )
    assert stage.note == ""


# ------------------------------------------------------------------------------------------------------ all types
CONDITIONS = [
    ("flag = true", 2), ("flag", 2), ("not flag", 1), ("small = 2147483647", 1), ("small < 0", 1), ("large = -9223372036854775808", 1),
    ("small <> 1", 2), ("small not in (1, 2)", 2), ("large > small", 1),
    ("single = 1.5", 1), ("double = 0.1", 1), ("double = 0.0", 1), ("double = -0.0", 1), ("double >= 0.0", 3), ("double > 1", 1),
    ("double = cast('NaN' as double)", 1), ("double <> 0.1", 2), ("not (double > 1)", 2), ("double > 1e308", 1), ("double is null", 1),
    ("single > 100", 1), ("single = cast('NaN' as float)", 1), ("isnan(double)", 1),
    ("money = 1.25", 1), ("money < 0", 1), ("money > 1.2499", 1), ("money = 0", 1), ("wide > 1", 1), ("wide = 1.25", 1),
    ("text = ''", 1), ("text like 'Z%'", 1), ("text > 'a'", 1), ("text like 'xxx%'", 1), ("text = 'Zürich 😀'", 1), ("text is null", 1),
    ("bytes = X'00FF'", 1), ("bytes > X'80'", 1), ("bytes = X''", 1),
    ("day = date'1970-01-01'", 1), ("day < date'1900-01-01'", 1), ("day > '2999-01-01'", 1), ("day is null", 1),
    ("moment = timestamp'2020-01-02 03:04:05.678901'", 1), ("moment > timestamp'2020-01-02 03:04:05.6789'", 2),
    ("moment < timestamp'1950-01-01 00:00:00.000002'", 1), ("ntz < timestamp_ntz'1951-01-01 00:00:00'", 1), ("ntz is not null", 3),
    ("place.x = 1", 1), ("place.x is null", 2), ("place.deep.y = 'a'", 1), ("place is null", 1), ("list is null", 1), ("map is not null", 3),
]  # fmt: skip


@pytest.mark.parametrize("where, count", CONDITIONS, ids=[where for where, _ in CONDITIONS])
def test_conditions_on_all_types(typed: Table, where: str, count: int) -> None:
    assert same(typed, where).num_rows == count


@pytest.mark.parametrize(
    "where, files",
    [
        ("flag = true", 2), ("small < 0", 1), ("large > 5", 1), ("money < 0", 1), ("text = ''", 1), ("bytes = X'00FF'", 1),
        ("day < date'1900-01-01'", 1), ("moment < timestamp'1951-01-01 00:00:00'", 1), ("double = 0.1", 1), ("double > 1", 1),
        ("double = -0.0", 1), ("key = 'k3'", 1), ("text like 'Z%'", 1), ("text is null", 1), ("text is not null", 3),
        ("ntz < timestamp_ntz'1951-01-01 00:00:00'", 1),
    ],
)  # fmt: skip
def test_files_are_skipped_by_all_types(typed: Table, where: str, files: int) -> None:
    assert len(typed.scan(where).plan().files) == files


# ---------------------------------------------------------------------------------------------------------- bloom
def test_blooms_prune_where_ranges_cannot(tmp_path: Path) -> None:
    table = make(tmp_path, options=OWN_FILE)
    for n in range(3):
        table.insert(rows(*((f"k{m:02d}", "a", 1, m) for m in range(n, 30, 3))))
    plan = table.scan("id = 'k10'").plan()
    stats, bloom = plan.stage("column_stats"), plan.stage("bloom_filters")
    assert (stats.after, bloom.before, bloom.after) == (3, 3, 1)
    assert same(table, "id = 'k10'").num_rows == 1
    assert len(table.scan("id in ('k10', 'k11')").plan().files) == 2
    assert len(table.scan("id = 'k10x'").plan().files) == 0
    assert table.scan("id = 'k10' or n = 5").plan().stages[-1].name == "column_stats"
    assert same(table, "id = 'k10' or n = 5").num_rows == 2
    assert same(table, "not (id = 'k10')").num_rows == 29
    assert bloom.requests >= 1


@pytest.mark.parametrize(
    "kind, values, literal",
    [
        (pa.int32(), [5, 6], "5"),
        (pa.int64(), [5, 6], "5.0"),
        (pa.date32(), [dt.date(2020, 1, 1), dt.date(2020, 1, 3)], "date'2020-01-01'"),
        (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None], "timestamp'2020-01-01 00:00:00'"),
        (pa.decimal128(6, 2), [Decimal("1.50"), Decimal("1.70")], "1.5"),
        (pa.float64(), [0.0, -0.0], "0.0"),
        (pa.bool_(), [True, False], "true"),
    ],
    ids=str,
)
def test_keys_of_other_types_are_found(tmp_path: Path, kind: pa.DataType, values: list[Any], literal: str) -> None:
    some = [value for value in values if value is not None]
    table = make(tmp_path, pa.table({"id": pa.array(some, kind), "v": [1] * len(some)}))
    assert same(table, f"id = {literal}").num_rows == sum(value == some[0] for value in some)
    assert same(table, f"id <=> {literal}").num_rows == sum(value == some[0] for value in some)
    assert same(table, f"id in ({literal})").num_rows == sum(value == some[0] for value in some)


def test_composite_keys_are_not_probed_by_a_part(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), record_key=["id", "city"])
    assert same(table, "id = '1'").num_rows == 1
    assert same(table, "_hoodie_record_key = 'id:1,city:a'").num_rows == 1
    assert table.scan("_hoodie_record_key = 'id:2,city:a'").plan().files == ()


# ---------------------------------------------------------------------------------------------------- time travel
def test_as_of(table: Table) -> None:
    second, first = table.inspect.history().column("commit_time").to_pylist()
    assert table.scan(as_of=first).count() == 6
    assert same(table, "n >= 4", as_of=first).num_rows == 2
    assert table.scan(as_of=second).count() == 12
    assert table.to_arrow(as_of=first).num_rows == 6
    # A time between two commits is the earlier one; one after the last is the last.
    assert table.scan(as_of=str(int(second) - 1)).count() == 6
    assert table.scan(as_of="2999-01-01").count() == 12
    assert table.scan(as_of=dt.datetime(2999, 1, 1, tzinfo=dt.UTC)).count() == 12
    for early in ("2000-01-01", dt.date(2000, 1, 1), str(int(first) - 1)):
        with pytest.raises(InvalidInputError, match="has no commit at or before"):
            table.scan(as_of=early)
    with pytest.raises(InvalidInputError):
        table.scan(as_of="yesterday")


def test_a_scan_stays_on_its_commit(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    scan = table.scan()
    table.upsert(rows(("1", "a", 2, 2), ("2", "a", 2, 2)))
    assert own(scan.to_arrow()) == [("1", "a", 1, 1)]
    assert scan.count() == 1
    assert len(own(table)) == 2
    other = Table.open(tmp_path)
    table.delete(where="true")
    assert own(other) == []


def test_as_of_an_older_schema(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    first = table.inspect.history().column("commit_time").to_pylist()[0]
    table.upsert(rows(("1", "a", 1, 1)).append_column("more", pa.array(["x"])))
    assert table.scan(as_of=first).schema.names == ROWS.names
    assert table.scan(as_of=first, where="n = 1").count() == 1
    with pytest.raises(InvalidInputError):
        table.scan("more = 'x'", as_of=first).count()


# ---------------------------------------------------------------------------------------------------------- rows
def test_columns(table: Table) -> None:
    assert table.scan(columns=["n", "id"]).to_arrow().schema.names == ["n", "id"]
    assert table.scan(columns=["N"]).schema.names == ["n"]
    assert table.scan("city = 'a'", ["n"]).to_arrow().num_rows == 4
    assert table.scan("n = 3", ["_hoodie_record_key"]).to_arrow().to_pydict() == {"_hoodie_record_key": ["k03"]}
    assert table.scan(columns=[]).count() == 12
    with pytest.raises(InvalidInputError, match="has no column 'nope'"):
        table.scan(columns=["nope"]).to_arrow()
    with pytest.raises(InvalidInputError, match="cityy"):
        table.scan("cityy = 'a'").to_arrow()
    with pytest.raises(InvalidInputError):
        table.scan("n = = 1").plan()


def test_scans_are_built_up(table: Table) -> None:
    scan = table.scan("n > 3").filter("city = 'a' or city = 'b'").select("id", "n")
    assert sorted(scan.to_arrow().column("id").to_pylist()) == ["k04", "k06", "k07", "k09", "k10"]
    assert table.scan().filter("n = 1").count() == 1
    assert str(scan).startswith("scan of trips")


def test_pandas(table: Table) -> None:
    pytest.importorskip("pandas")
    frame = table.scan("n = 3", ["id", "n"]).to_pandas()
    assert frame.to_dict("records") == [{"id": "k03", "n": 3}]


def test_count_needs_footers_only(table: Table) -> None:
    counted = table.context.files.storage.counted
    scan = table.scan()
    scan.plan()
    before = counted.copy()
    assert scan.count() == 12
    assert (counted - before).requests <= 2 * 6


def test_without_spark(table: Table) -> None:
    """The caller's choice of engine, not something that lakedex cannot do."""
    for call in (lambda: table.scan().to_spark(), lambda: table.create_view("v")):
        with pytest.raises(MissingEngineError, match="opened without Spark") as caught:
            call()
        assert not isinstance(caught.value, FormatError)


def test_what_only_spark_can_judge_is_named(table: Table) -> None:
    with pytest.raises(UnsupportedFeatureError, match="(?i)soundex"):
        table.scan("soundex(city) = 'a'").to_arrow()
    assert len(table.scan("soundex(city) = 'a' and n = 3").plan().files) == 3


def test_a_missing_data_file_is_an_error(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    (tmp_path / table.inspect.files().column("file_name").to_pylist()[0]).unlink()
    with pytest.raises(FileNotFoundError):
        table.scan().to_arrow()


# ---------------------------------------------------------------------------------------------- without metadata
def test_a_table_without_metadata_lists_storage(tmp_path: Path) -> None:
    import shutil

    from table_kit import set_properties

    table = make(tmp_path, rows(("1", "a", 1, 1), ("2", "b", 1, 2)), partition_by="city")
    table.upsert(rows(("1", "a", 2, 5)))
    shutil.rmtree(tmp_path / ".hoodie" / "metadata")
    set_properties(tmp_path, {"hoodie.table.metadata.partitions": ""})
    bare = Table.open(tmp_path)
    assert own(bare) == [("1", "a", 2, 5), ("2", "b", 1, 2)]
    assert why(bare.scan("n = 5")) == ("column_stats: not in the table's metadata",)
    off = {"hoodie.metadata.enable": "false"}
    result = bare.upsert(rows(("2", "b", 3, 7), ("3", "c", 3, 7)), options=off)
    assert (result.updated, result.inserted) == (1, 1)
    assert result.tagging.source == "footers"
    assert own(bare) == [("1", "a", 2, 5), ("2", "b", 3, 7), ("3", "c", 3, 7)]
    assert bare.delete(pa.table({"id": ["1"]}), all_partitions=True).deleted == 1
    assert own(bare, "id") == [("2",), ("3",)]


def test_stray_files_are_not_rows(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city")
    (file,) = (tmp_path / "city=a").glob("*.parquet")
    parts = file.name.split("_")
    (tmp_path / "city=a" / f"{parts[0][:-3]}zzz_{parts[1]}_29990101000000000.parquet").write_bytes(file.read_bytes())
    (tmp_path / "city=a" / "_SUCCESS").write_bytes(b"")
    assert own(table) == [("1", "a", 1, 1)]
    assert table.scan().count() == 1
