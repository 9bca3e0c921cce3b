"""Kinds of faults that users of table formats reported in public, each on rows of our own making.

Those of merge-on-read, several writers and cleaning lie in the tests of these.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError, LakedexError, OptionError, SchemaMismatchError
from lakedex.parquet.base_file_reader import read_footer
from table_kit import OWN_FILE, base_files, own

ID = pa.field("id", pa.string())


def lake(path: Path, *batches: list[dict[str, Any]], fields: list[pa.Field], **arguments: Any) -> Table:
    """A table keyed by ``id`` with a file for each batch, written with all indexes."""
    schema = pa.schema([ID, *fields])
    table = Table.create(path, schema, **{"record_key": "id", "options": OWN_FILE, **arguments})
    for number, batch in enumerate(batches):
        rows = [{"id": f"{number}-{place}", **row} for place, row in enumerate(batch)]
        table.insert(pa.Table.from_pylist(rows, schema))
    return table


def found(table: Table, where: str) -> set[str]:
    """Keys under a condition: the same with and without indexes, as rows and as a count."""
    with_indexes = own(table.scan(where).to_arrow(), "id")
    assert with_indexes == own(table.scan(where, use_indexes=False).to_arrow(), "id")
    assert table.scan(where).count() == len(with_indexes)
    return {key for (key,) in with_indexes}


def files_read(table: Table, where: str) -> int:
    return len(table.scan(where).plan().files_kept)


# ------------------------------------------------------------------------------------------------------- stats, reads
def test_nan_among_bounds(tmp_path: Path) -> None:
    """A NaN invents no bounds, not for its column, not for another, not for the partition."""
    fields = [pa.field("p", pa.string()), pa.field("s", pa.string()), pa.field("d", pa.float64())]
    nan = float("nan")
    first = [{"p": "x", "s": "u", "d": nan}, {"p": "x", "s": "v", "d": 7.0}]
    table = lake(tmp_path, first, [{"p": "x", "s": "w", "d": -1.0}], fields=fields, partition_by="p")
    assert found(table, "d > 2") == {"0-0", "0-1"}
    assert found(table, "s = 'v'") == {"0-1"}
    assert found(table, "d < 0") == {"1-0"} and files_read(table, "d < 0") <= 2
    assert found(table, "d = double('NaN')") == {"0-0"}


def test_text_too_long_for_a_footer(tmp_path: Path) -> None:
    """A file whose footer has no bounds is neither empty nor all null."""
    fields = [pa.field("c", pa.string())]
    table = lake(tmp_path, [{"c": "brief"}, {"c": "z" * 9000}], [{"c": None}], fields=fields)
    assert found(table, "c = 'brief'") == {"0-0"}
    assert found(table, "c > 'y'") == {"0-1"}
    assert found(table, "c is null") == {"1-0"}


@pytest.mark.parametrize(
    ("where", "keys", "files"),
    [
        ("c like 'def%'", {"0-0", "0-1"}, 1),
        ("c like 'de'", set(), 0),
        ("c not like 'def%'", {"1-0", "1-1"}, 2),
        ("c like 'xyz%'", {"1-1"}, 1),
        ("c like '%f1'", {"0-0"}, 2),
    ],
)
def test_prefixes(tmp_path: Path, where: str, keys: set[str], files: int) -> None:
    """A prefix keeps files that may hold it, its negation prunes only where every value has it."""
    fields = [pa.field("c", pa.string())]
    table = lake(tmp_path, [{"c": "def1"}, {"c": "def9"}], [{"c": "xaa"}, {"c": "xyz"}], fields=fields)
    assert found(table, where) == keys
    assert files_read(table, where) <= files


def test_nulls_of_files_older_than_a_column(tmp_path: Path) -> None:
    """Without a record a file is unknown, and unknown stays."""
    table = lake(tmp_path, [{"a": 1}], fields=[pa.field("a", pa.int32())])
    table.insert(pa.table({"id": ["new"], "a": pa.array([2], pa.int32()), "c": ["x"]}))
    for where in ("c is null", "c <=> null", "not c is not null", "coalesce(c, 'none') = 'none'"):
        assert found(table, where) == {"0-0"}
    assert found(table, "c is not null") == {"new"}


def test_columns_without_an_index_in_the_condition(tmp_path: Path) -> None:
    """Of an AND the part that can be judged prunes, an OR keeps all, and no record is no null."""
    fields = [pa.field("n", pa.int32()), pa.field("attrs", pa.map_(pa.string(), pa.string()))]
    table = lake(tmp_path, [{"n": 1, "attrs": [("c", "red")]}], [{"n": 2, "attrs": [("c", "blue")]}], fields=fields)
    # What is in a map only Spark evaluates; files are planned all the same.
    assert files_read(table, "n = 1 and attrs['c'] = 'red'") == 1
    assert files_read(table, "n = 1 or attrs['c'] = 'blue'") == 2
    assert files_read(table, "not (n = 1 and attrs['c'] = 'red')") == 2
    assert found(table, "n = 1 and attrs is not null") == {"0-0"}
    assert found(table, "attrs is not null") == {"0-0", "1-0"}
    assert found(table, "not (n = 3 and attrs is null)") == {"0-0", "1-0"}


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_units_of_time(tmp_path: Path, unit: str) -> None:
    """Values come back to the microsecond in one unit, through a schema change, and bounds hold."""
    moment = datetime.datetime(1850, 3, 1, 12, 0, 53, 80_758 if unit == "us" else 80_000, datetime.UTC)
    fields = [pa.field("t", pa.timestamp(unit, "UTC")), pa.field("local", pa.timestamp(unit))]
    one = {"t": moment, "local": moment.replace(tzinfo=None)}
    later = {name: value + datetime.timedelta(days=90_000) for name, value in one.items()}
    table = lake(tmp_path, [one], [later], fields=fields)
    table.add_columns(pa.schema([("extra", pa.int32())]))
    table.upsert(pa.Table.from_pylist([{"id": "1-0", **later, "extra": 1}], table.schema))
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    assert found(table, f"t = TIMESTAMP '{text}Z'") == {"0-0"}
    assert found(table, f"t > TIMESTAMP '{text}Z'") == {"1-0"}
    assert found(table, f"local = TIMESTAMP_NTZ '{text}'") == {"0-0"}
    assert files_read(table, f"t = TIMESTAMP '{text}Z'") == 1
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert (rows["0-0"]["t"], rows["0-0"]["local"]) == (one["t"], one["local"])


@pytest.mark.parametrize("digits", [8, 15, 30])
def test_decimals(tmp_path: Path, digits: int) -> None:
    """Bounds of decimals are numbers at the column's scale, whatever their physical type."""
    fields = [pa.field("d", pa.decimal128(digits, 2))]
    first = [{"d": Decimal("-2.50")}, {"d": Decimal("8.99")}, {"d": Decimal("11.00")}]
    table = lake(tmp_path, first, [{"d": Decimal("-7.25")}], fields=fields)
    bounded = 1 if digits <= 15 else 2  # version 8 has no record for more digits
    assert found(table, "d > 8.995") == {"0-2"}
    assert found(table, "d = -7.25") == {"1-0"} and files_read(table, "d = -7.25") <= bounded
    assert found(table, "d < -2.5") == {"1-0"}


def test_the_two_zeros(tmp_path: Path) -> None:
    """Zero equals minus zero for ranges and bitmaps."""
    fields = [pa.field("d", pa.float64()), pa.field("f", pa.float32())]
    table = lake(tmp_path, [{"d": -0.0, "f": -0.0}], [{"d": 0.0, "f": 0.0}], [{"d": 4.0, "f": 4.0}], fields=fields)
    table.indexes.create("bitmap", ["d", "f"], name="zeros")
    for where in ("d = 0.0", "d = -0.0", "f in (0.0)", "d >= 0.0 and d < 1", "d <= 0 and f >= 0"):
        assert found(table, where) == {"0-0", "1-0"}


@pytest.mark.parametrize(
    "value",
    ["q" * 70 + "\ud7ff" * 3 + "tail", "\U0010ffff" * 90, "q" * 79 + "\U0001f600" * 30, "\uffff" * 400 + "a"],
    ids=["before the surrogates", "no successor", "past the basic plane", "last of the basic plane"],
)
def test_long_bounds(tmp_path: Path, value: str) -> None:
    """A bound that is cut short still holds, or there is none."""
    table = lake(tmp_path, [{"c": value}], [{"c": "a"}], fields=[pa.field("c", pa.string())])
    assert found(table, f"c = '{value}'") == {"0-0"}
    assert found(table, f"c >= '{value[:60]}'") == {"0-0"}
    assert found(table, "c < 'b'") == {"1-0"}


def test_partition_values_are_typed(tmp_path: Path) -> None:
    """A folder of days since 1970, or of text, is compared as the date that it stands for."""
    day = datetime.date(2031, 5, 17)
    fields = [pa.field("dt", pa.date32()), pa.field("n", pa.int32())]
    table = lake(tmp_path, [{"dt": day, "n": 1}], [{"dt": None, "n": 2}], fields=fields, partition_by="dt")
    assert found(table, "dt = DATE '2031-05-17'") == {"0-0"}
    assert found(table, "dt > DATE '2031-01-01'") == {"0-0"}
    assert found(table, "dt is null") == {"1-0"}


def test_a_probe_in_the_type_of_the_column(tmp_path: Path) -> None:
    """After int to long every value is found, by ranges and by bitmaps."""
    table = lake(tmp_path, [{"c": 5}], fields=[pa.field("c", pa.int32())])
    table.indexes.create("bitmap", ["c"], name="by_c")
    wide = pa.schema([ID, ("c", pa.int64())])
    table.insert(pa.Table.from_pylist([{"id": "wide", "c": 5_000_000_000}], wide))
    assert found(table, "c = 5") == {"0-0"}
    assert found(table, "c = 5000000000") == {"wide"}
    assert found(table, "c = 705032704") == set()  # 5,000,000,000 cut to 32 bits


def test_names_in_any_case_and_nested(tmp_path: Path) -> None:
    """Letter case does not switch skipping off, and a plan says why an index was not used."""
    fields = [pa.field("Value", pa.int32()), pa.field("a", pa.struct([("b", pa.int32())]))]
    table = lake(tmp_path, [{"Value": 1, "a": {"b": 3}}], [{"Value": 2, "a": {"b": 4}}], fields=fields)
    assert (found(table, "value = 1"), files_read(table, "VALUE = 1")) == ({"0-0"}, 1)
    assert found(table, "A.B = 4") == {"1-0"}
    plan = table.scan("abs(value) = 1 and upper(id) = '0-0'").plan()
    assert plan.unused or plan.files_kept
    assert "abs" in str(table.scan("abs(value) = 1").explain()).lower()


def test_every_value_is_found(tmp_path: Path) -> None:
    """After several commits each value and key of the table is found with skipping on."""
    table = lake(
        tmp_path, *([{"c": f"v{n}"}, {"c": f"v{n + 3}"}] for n in range(4)), fields=[pa.field("c", pa.string())]
    )
    table.upsert(pa.table({"id": ["0-0", "9"], "c": ["v9", "v1"]}))
    table.delete(pa.table({"id": ["2-1"]}))
    everything = {row["id"]: row["c"] for row in table.scan(use_indexes=False).to_arrow().to_pylist()}
    for key, value in everything.items():
        assert found(table, f"id = '{key}'") == {key}
        assert found(table, f"c = '{value}'") == {name for name, c in everything.items() if c == value}


# --------------------------------------------------------------------------------------------------------- bloom, tags
def test_ranges_come_from_the_record_key(tmp_path: Path) -> None:
    """A key column of numbers has ranges of numbers; keys have ranges of text, and are always indexed."""
    schema = pa.schema([("a", pa.int32()), ("other", pa.int32())])
    options = {**OWN_FILE, "hoodie.metadata.index.column.stats.column.list": "other"}
    table = Table.create(tmp_path, schema, record_key="a", options=options)
    for start in (10, 20):
        numbers = [start, start + 1, start * 10]
        table.insert(pa.table({"a": numbers, "other": numbers}, schema))
    columns = set(table.inspect.column_stats().column("column_name").to_pylist())
    assert "_hoodie_record_key" in columns
    result = table.upsert(pa.table({"a": [100, 21, 7], "other": [1, 1, 1]}, schema))
    assert (result.updated, result.inserted) == (2, 1)


def test_a_table_without_partitions_finds_its_filters(tmp_path: Path) -> None:
    """One function makes the key of a filter, so the second upsert finds what the first one wrote."""
    table = lake(tmp_path, [{"n": 1}], fields=[pa.field("n", pa.int32())])
    assert table.upsert(pa.table({"id": ["0-0", "z"], "n": pa.array([2, 3], pa.int32())})).updated == 1
    assert {row["file_name"] for row in table.inspect.bloom_filters().to_pylist()} == {
        row["file_name"] for row in table.inspect.files().to_pylist()
    }


def test_footers_hold_all_keys(tmp_path: Path) -> None:
    """The smallest and largest key of a footer are those of the rows, in whatever order these came."""
    schema = pa.schema([ID])
    table = Table.create(tmp_path, schema, record_key="id")
    for keys in (["m", "b", "x"], ["c", "zz", "a"]):
        table.upsert(pa.table({"id": keys}, schema))
        for file in base_files(tmp_path):
            stored = pq.read_table(tmp_path / file, columns=["id"]).column("id").to_pylist()
            footer = read_footer(table.snapshot().files.storage, str(tmp_path / file))
            assert (footer.min_key, footer.max_key) == (min(stored), max(stored))


def test_order_of_keys_past_the_basic_plane(tmp_path: Path) -> None:
    """Keys whose order differs between UTF-8 and UTF-16 are updated where they lie, and found."""
    keys = ["n\uff22", "n\U0001f601", "nz", "n\ue000"]
    table = lake(tmp_path, fields=[pa.field("n", pa.int32())])
    for _ in range(3):
        table.upsert(pa.table({"id": keys, "n": pa.array(range(4), pa.int32())}))
    assert sorted(key for (key,) in own(table, "id")) == sorted(keys)
    for key in keys:
        assert found(table, f"id = '{key}'") == {key}


@pytest.mark.parametrize("values", [[("p,q", "3:4"), (None, "4"), ("", "4"), ("p", "q,3:4")]])
def test_parts_of_keys(tmp_path: Path, values: list[tuple[Any, str]]) -> None:
    """Commas, colons, nulls and empty parts make one key each, the same in every operation."""
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int32())])
    table = Table.create(tmp_path, schema, record_key=["a", "b"])

    def batch(n: int) -> pa.Table:
        return pa.Table.from_pylist([{"a": a, "b": b, "n": n} for a, b in values], schema)

    table.bulk_insert(batch(0))
    assert table.upsert(batch(1)).updated == len(values)
    policy = {"hoodie.datasource.insert.dup.policy": "drop"}
    assert table.insert(batch(2), options=policy).inserted == 0
    keys = {row["_hoodie_record_key"] for row in table.scan(columns=["_hoodie_record_key"]).to_arrow().to_pylist()}
    assert keys == {"a:p,q,b:3:4", "a:__null__,b:4", "a:__empty__,b:4", "a:p,b:q,3:4"}
    assert table.delete(batch(3)).deleted == len(values)


def test_bad_keys_are_told_from_missing_columns(tmp_path: Path) -> None:
    """A null key names the column and the rows; a missing column is another error."""
    table = lake(tmp_path, fields=[pa.field("n", pa.int32())])
    with pytest.raises(InvalidInputError, match="2 of 3 rows have a null or empty record key .column id"):
        table.upsert(pa.table({"id": ["a", None, ""], "n": pa.array([1, 2, 3], pa.int32())}))
    with pytest.raises((InvalidInputError, SchemaMismatchError), match="id"):
        table.upsert(pa.table({"n": pa.array([1], pa.int32())}))


def test_filters_are_sized_by_their_rows(tmp_path: Path) -> None:
    """A small file has a small filter; metadata is read once a batch, not once a file."""
    table = lake(tmp_path, *([{"n": n}] for n in range(12)), fields=[pa.field("n", pa.int32())])
    sizes = table.inspect.bloom_filters().column("bytes").to_pylist()
    assert len(sizes) == 12 and max(sizes) < 2048
    one = table.upsert(pa.table({"id": ["0-0"], "n": pa.array([1], pa.int32())})).tagging
    many = table.upsert(pa.table({"id": [f"{n}-0" for n in range(12)], "n": pa.array([1] * 12, pa.int32())})).tagging
    assert many.matches == 12
    assert many.requests < 12 * (one.requests + 1)  # The list of files is read before keys are tagged.


def test_an_overwrite_by_no_rows_empties(tmp_path: Path) -> None:
    """An empty overwrite empties the table, and no index speaks of what was there."""
    table = lake(tmp_path, [{"n": 1}], [{"n": 2}], fields=[pa.field("n", pa.int32())])
    table.insert_overwrite(pa.Table.from_pylist([], table.schema), scope="table")
    assert found(table, "n > 0") == set()
    assert table.insert(pa.table({"id": ["0-0"], "n": pa.array([9], pa.int32())})).inserted == 1
    assert found(table, "n > 0") == {"0-0"}


def test_instants_are_in_the_zone_of_the_table(tmp_path: Path) -> None:
    """A host in another time zone makes instants that sort after those before."""
    table = lake(tmp_path, [{"n": 1}], fields=[pa.field("n", pa.int32())])
    code = (
        "import pyarrow as pa; from lakedex import Table; "
        f"print(Table.open({str(tmp_path)!r}).upsert(pa.table({{'id': ['k'], 'n': pa.array([2], pa.int32())}})).instant)"
    )
    for zone in ("Asia/Seoul", "America/Los_Angeles"):
        environment = {"TZ": zone, "PYTHONPATH": ":".join(sys.path)}
        run = partial(subprocess.run, capture_output=True, text=True, check=True, timeout=60)
        done = run([sys.executable, "-c", code], env=environment)
        assert done.stdout.strip() == table.inspect.history(limit=1).column(0)[0].as_py()
    instants = [row["requested"] for row in table.inspect.timeline().to_pylist()]
    assert instants == sorted(instants)


@pytest.mark.parametrize("style", [{}, {"hoodie.datasource.write.hive_style_partitioning": "false"}])
def test_values_that_make_odd_folders(tmp_path: Path, style: dict[str, str]) -> None:
    """One folder a value, escaped once; the value is read from the data, null and empty share a folder."""
    values = ["x/y", "50%", "a=b", "t:1", "<z>", "two words", "café", "", None]
    fields = [pa.field("p", pa.string()), pa.field("n", pa.int32())]
    batches = [[{"p": value, "n": number}] for number, value in enumerate(values)]
    table = lake(tmp_path, *batches, fields=fields, partition_by="p", options={**OWN_FILE, **style})
    assert len({row["partition"] for row in table.inspect.files().to_pylist()}) == len(values) - 1
    for number, value in enumerate(values[:7]):
        assert found(table, f"p = '{value}'") == {f"{number}-0"}
    assert (found(table, "p = ''"), found(table, "p is null")) == ({"7-0"}, {"8-0"})
    assert table.upsert(pa.table({"id": ["0-0"], "p": ["x/y"], "n": pa.array([7], pa.int32())})).updated == 1


@pytest.mark.parametrize("name", ["$price", "360p", "a b", "x-y"])
def test_names_that_avro_lacks(tmp_path: Path, name: str) -> None:
    """A name that Hudi cannot keep is refused, with the rule, before anything is written."""
    with pytest.raises(LakedexError, match="Avro names start with a letter") as caught:
        Table.create(tmp_path / "t", pa.schema([ID, (name, pa.int32())]), record_key="id")
    assert name in str(caught.value)
    assert not Table.is_table(tmp_path / "t")


def test_three_lines_and_the_nearest_name(tmp_path: Path) -> None:
    """A first write takes three lines; an unknown option names the nearest one."""
    table = Table.create(tmp_path / "t", record_key="id")
    table.upsert(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    assert table.scan().count() == 2
    with pytest.raises(OptionError, match="did you mean 'hoodie.index.bloom.fpp'"):
        table.upsert(pa.table({"id": [3], "v": ["c"]}), options={"hoodie.index.bloom.fp": "0.1"})


def test_null_becomes_a_value(tmp_path: Path) -> None:
    """An update from null to a value is an update; a hundred thousand rows are arrays, not objects."""
    table = lake(tmp_path, fields=[pa.field("n", pa.int32())])
    keys = pa.array([f"{n:06d}" for n in range(100_000)])
    table.bulk_insert(pa.table({"id": keys, "n": pa.nulls(len(keys), pa.int32())}))
    result = table.upsert(pa.table({"id": keys, "n": pa.array(range(len(keys)), pa.int32())}))
    assert (result.updated, result.inserted) == (100_000, 0)
    assert table.scan("n is null").count() == 0
