"""Java Hudi 1.1.1 reads lakedex's tables, with data skipping and without: the same rows under every filter.

Java prunes by ``column_stats`` and ``partition_stats`` without a second look, so each wrong bound loses rows here.
"""

from __future__ import annotations

import datetime as dt
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same_rows
from java_judge import READ_PLAIN, READ_SKIPPING, WRITE_INDEXED, JavaError, JavaJudge
from judging import OWN_FILE, assert_all_see, assert_same_answers, create, definitions, files_kept, own_rows, properties
from rust_judge import RustJudge
from samples import all_types

from lakedex import InvalidInputError, Table

NAN, INF = float("nan"), float("inf")
TABLES = Path(__file__).parents[1] / "golden" / "tables"

KINDS = pa.schema(
    [
        ("key", pa.string()),
        ("ts", pa.int64()),
        ("part", pa.string()),
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("exact", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("w", pa.decimal128(20, 4)),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("tz", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("none", pa.string()),
        ("never", pa.int32()),
        ("bin", pa.binary()),
    ]
)
NULLABLE = [name for name in KINDS.names if name not in ("key", "ts", "part", "a")]


def row(number: int, **changed: Any) -> dict[str, Any]:
    """A row in which every column but the two all-null ones grows with ``number``."""
    values = {
        "key": f"k{number:02d}",
        "ts": 1,
        "part": "p" if number < 8 else "q",
        "a": number,
        "b": number * 10,
        "f": float(number),
        "d": float(number),
        "exact": float(number),
        "m": Decimal(number),
        "w": Decimal(number),
        "s": f"s{number}",
        "day": dt.date(2020, 1, 1) + dt.timedelta(number),
        "tz": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number),
        "ntz": dt.datetime(2020, 1, 1) + dt.timedelta(hours=number),
        "flag": number % 2 == 0,
        "none": None,
        "never": None,
        "bin": bytes([number]),
    }
    return {**values, **changed}


FILES = [
    [row(1), row(2)],
    [row(3, s="x" * 5000), row(4, s="y" * 5000)],
    [row(5, d=NAN, f=NAN), row(6)],
    [row(7, d=NAN, f=NAN), row(8, part="p", d=NAN, f=NAN)],
    [row(9, d=-0.0, f=-0.0, exact=-0.0)],
    [row(10, d=0.0, f=0.0, exact=0.0)],
    [row(11, **dict.fromkeys(NULLABLE))],
    [row(12, s="pre😀x", flag=True), row(13, s="preＡx", flag=True)],
    [row(14, d=INF), row(15, d=-INF)],
]

FILTERS = [
    # two columns at once, one of them with values too long for a footer's statistics
    "a >= 3 and b <= 40",
    "a = 4 and s > 'x'",
    "a = 9 and exact = 0",
    "s >= 'y'",
    "s = 'pre😀x'",
    "s >= 'preＡ' and a > 1",
    # NaN, infinities, zeros of both signs
    "d = double('NaN')",
    "d >= double('NaN')",
    "d > 1000",
    "d = double('Infinity') or d = 6",
    "not (d < 100)",
    "d = 0.0D",
    "f < 0 or f = float('NaN')",
    "exact = -0.0D",
    "exact = 0.0D",
    "exact < 3 and a > 1",
    "exact in (0.0D, 5.0D)",
    # decimals: the second one has no statistics in table version 8
    "m = 3.00 or m > 12.5",
    "w = 3.0000",
    # time
    "day = date'2020-01-04'",
    "tz = timestamp'2020-01-01 03:00:00'",
    "ntz > timestamp_ntz'2020-01-01 12:00:00'",
    # nulls
    "flag",
    "flag is null",
    "none is not null",
    "never is null and a = 1",
    "never > 5 or a = 2",
    "b is null and a = 11",
    "d <=> null",
    # the rest
    "a in (1, 9)",
    "bin = X'03'",
    "key = 'k03'",
    "not (a = 9 or d > 5)",
    "part = 'q' and a < 12",
]


@pytest.mark.parametrize("partition", [None, "part"])
def test_every_kind_of_column(java: JavaJudge, tmp_path: Path, partition: str | None) -> None:
    table = create(tmp_path, KINDS, partition_by=partition or ())
    for rows in FILES:
        table.insert(pa.Table.from_pylist(rows, KINDS))

    expected = pa.Table.from_pylist([one for rows in FILES for one in rows], KINDS)
    assert_all_see(tmp_path, java, expected=expected)
    assert_same_answers(tmp_path, java, FILTERS if partition is None else [*FILTERS[:10:2], *FILTERS[-4:]])

    # A column with NaN has left the list of what Java may prune by; one with zeros and numbers only has not.
    listed = definitions(tmp_path)["sourceFields"]
    assert {"exact", "m", "tz", "ntz", "s", "none"} <= set(listed)
    assert not {"d", "f", "w"} & set(listed)
    # Both prune by what is left in it.
    for where in ("a = 3", "tz = timestamp'2020-01-01 03:00:00'", "m = 3.00", "exact = 3", "a = 3 and s = 'x'"):
        count = len(java.files_read(tmp_path, where, READ_SKIPPING))
        assert count == files_kept(tmp_path, where) <= 1
    # lakedex goes on to prune the column with NaN.
    assert files_kept(tmp_path, "d = 2.0") < len(FILES)


def test_java_loses_prefix_filters_on_its_own_tables_too(java: JavaJudge, tmp_path: Path) -> None:
    """Java 1.1.1 keeps a file for ``LIKE 'p%'`` only if its bounds hold ``p`` itself: no bound of ours can help."""
    rows = pa.table({"key": ["k1", "k2"], "ts": [1, 1], "s": ["pre1", "pre2"]})
    for name in ("ours", "java"):
        path = tmp_path / name
        if name == "java":
            java.write(path, rows, "insert", ordering="ts", options=WRITE_INDEXED)
        else:
            create(path, rows.schema).insert(rows)
        assert java.read(path, "s like 'pre%'", options=READ_SKIPPING).num_rows == 0
        assert java.read(path, "s like 'pre%'", options=READ_PLAIN).num_rows == 2
        assert Table.open(path).scan("s like 'pre%'").count() == 2


def test_added_column_is_null_in_older_files(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    old = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("part", pa.string()), ("a", pa.int32())])
    new = old.append(pa.field("c", pa.int32())).append(pa.field("e", pa.string()))
    table = create(tmp_path, old, partition_by="part")
    table.insert(pa.table([["k1", "k2"], [1, 1], ["p", "q"], [1, 2]], schema=old))
    table.insert(pa.table([["k3", "k4"], [1, 1], ["p", "r"], [3, 1], [30, 40], ["x", None]], schema=new))
    table.upsert(pa.table([["k2"], [2], ["q"], [2], [20], ["x" * 3000]], schema=new))

    assert definitions(tmp_path)["sourceFields"][-2:] == ["c", "e"]
    assert_all_see(tmp_path, java, rust)
    filters = [
        "c is null and a = 1",
        "c is not null",
        "a >= 1 and c = 30",
        "c = 20 and e > 'x'",
        "e is null",
        "e = 'x'",
    ]
    assert_same_answers(tmp_path, java, [*filters, "part = 'p' and c is null"])


WIDENINGS = {
    "int to long": (pa.int32(), pa.int64(), [1, 2], [100, 2**40]),
    "int to double": (pa.int32(), pa.float64(), [1, 2], [100.5, 1e300]),
    "float to double": (pa.float32(), pa.float64(), [1.0, 1.5], [100.5, 1e300]),
    "decimal": (
        pa.decimal128(10, 2),
        pa.decimal128(16, 2),
        [Decimal("1.00"), Decimal("99999999.99")],
        [Decimal("100.00"), Decimal("9999999999999.99")],
    ),
}


@pytest.mark.parametrize("name", WIDENINGS)
def test_widened_column(java: JavaJudge, rust: RustJudge, tmp_path: Path, name: str) -> None:
    before, after, first, second = WIDENINGS[name]

    def rows(keys: list[str], values: list[Any], kind: pa.DataType) -> pa.Table:
        return pa.table({"key": keys, "ts": [1] * len(keys), "a": [1] * len(keys), "v": pa.array(values, kind)})

    data = rows(["k1", "k2"], first, before)
    table = create(tmp_path, data.schema)
    table.insert(data)
    table.insert(rows(["k3", "k4"], second, after))

    expected = pa.concat_tables(
        [rows(["k1", "k2"], first, before), rows(["k3", "k4"], second, after)], promote_options="permissive"
    )
    assert_same_rows(own_rows(tmp_path), expected, "key")
    assert_all_see(tmp_path, java)
    filters = ["v = 1", "v > 1 and a = 1", "v >= 100", "v in (1, 100)", "v < 2", "v is null"]
    assert_same_answers(tmp_path, java, filters)
    assert files_kept(tmp_path, "v = 1") == 1


def test_widened_floats_have_two_values_in_java(java: JavaJudge, tmp_path: Path) -> None:
    """Java's reader takes the decimal text of a float from an older file; its merge, Spark and hudi-rs the number."""
    single = pa.table({"key": ["k1"], "ts": [1], "v": pa.array([0.1], pa.float32())})
    double = pa.table({"key": ["k2"], "ts": [1], "v": pa.array([2.5], pa.float64())})
    table = create(tmp_path, single.schema)
    table.insert(single)
    table.insert(double)

    assert (
        table.scan("key = 'k1'", ["v"]).to_arrow().column(0)[0].as_py()
        == pc.cast(pa.scalar(0.1, pa.float32()), pa.float64()).as_py()
    )
    assert java.read(tmp_path, "key = 'k1'", ["v"]).column(0)[0].as_py() == 0.1
    java.write(
        tmp_path,
        double.set_column(0, "key", pa.array(["k1"])).set_column(1, "ts", pa.array([0])),
        ordering="ts",
        options=WRITE_INDEXED,
    )
    assert_all_see(tmp_path, java)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_names_of_other_scripts(java: JavaJudge, tmp_path: Path, kind: str) -> None:
    """Java's Avro takes letters of any script, hudi-rs does not: such tables are written, new names are refused."""
    inner = pa.struct([("ключ", pa.int32())])
    types = {"key": pa.string(), "ts": pa.int64(), "größe": pa.int32(), "名前": pa.string(), "s": inner}

    def batch(ts: int, *numbers: int) -> pa.Table:
        values = [{"key": f"k{n}", "ts": ts, "größe": n, "名前": f"n{n}", "s": {"ключ": n}} for n in numbers]
        return pa.Table.from_pylist(values, pa.schema(types))

    options = {"hoodie.datasource.write.table.type": kind, "hoodie.compact.inline": "false"}
    java.write(tmp_path, batch(1, 1, 2, 3), ordering="ts", options=options)
    table = Table.open(tmp_path)
    table.indexes.create("bitmap", ["größe"], name="sizes")
    table.upsert(batch(2, 2))
    table.update({"größe": "größe + 10"}, "名前 = 'n3'")
    table.add_columns(pa.schema([("more", pa.int32())]))
    assert_all_see(tmp_path, java)
    assert_same_answers(tmp_path, java, ["`größe` = 13", "`größe` < 2", "`名前` = 'n2'", "s.`ключ` = 1"])
    java.write(
        tmp_path, batch(3, 1, 4).append_column("more", pa.array([1, 2], pa.int32())), ordering="ts", options=options
    )
    table.upsert(batch(4, 4, 5), options={"hoodie.write.set.null.for.missing.columns": "true"})
    assert_all_see(tmp_path, java)
    with pytest.raises(InvalidInputError, match="'höhe' has a name that is invalid in Avro"):
        table.add_columns(pa.schema([("höhe", pa.int32())]))


BEYOND = ["a😀", "aＡ", "b\ud7ff", "b\ue000", "Ａk", "😀k", "z\U0010ffff", "zz"]


def test_text_past_the_basic_plane(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
    table = create(tmp_path, schema)
    for start in range(0, len(BEYOND), 2):
        pair = BEYOND[start : start + 2]
        table.insert(pa.table([pair, [1, 1], pair, [start, start + 1]], schema=schema))

    assert_all_see(tmp_path, java, rust)
    filters = [f"s = '{text}'" for text in BEYOND[:6]]
    filters += [f"key = '{text}'" for text in BEYOND[3:7]]
    assert_same_answers(tmp_path, java, [*filters, "s > 'z'", "s >= 'Ａ' and n >= 0", "key > 'Ａ'"])


def test_composite_keys(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "x": ["a,b", "a", None, ""],
            "y": pa.array([1, 2, 3, 4], pa.int32()),
            "ts": [1, 1, 1, 1],
            "key": ["k1", "k2", "k3", "k4"],
        }
    )
    table = create(tmp_path, rows.schema, record_key=["x", "y"])
    table.insert(rows.slice(0, 2))
    table.upsert(rows.slice(1, 3))

    assert_all_see(tmp_path, java, rust, rows)
    stored = java.read(tmp_path, columns=["_hoodie_record_key"]).column(0).to_pylist()
    assert sorted(stored) == ["x:__empty__,y:4", "x:__null__,y:3", "x:a,b,y:1", "x:a,y:2"]
    assert_same_answers(tmp_path, java, ["x = 'a'", "y = 3 and x is null", "x = 'a,b' and y > 0"])


AWKWARD = ["a/b", "50%", "k=v", "x:y", "with space", "plain", "é+&", "#'\"*?"]


@pytest.mark.parametrize("hive", [True, False])
@pytest.mark.parametrize("fields", [["part"], ["n", "part"]])
def test_awkward_partition_values(
    java: JavaJudge, rust: RustJudge, tmp_path: Path, fields: list[str], hive: bool
) -> None:
    rows = pa.table(
        {
            "key": [f"k{number}" for number in range(len(AWKWARD))],
            "ts": [1] * len(AWKWARD),
            "part": AWKWARD,
            "n": pa.array([number % 3 for number in range(len(AWKWARD))], pa.int32()),
        }
    )
    options = {"hoodie.datasource.write.hive_style_partitioning": hive}
    table = create(tmp_path, rows.schema, partition_by=fields, options=options)
    table.upsert(rows)

    assert_all_see(tmp_path, java, None, rows)
    filters = [
        "part = 'a/b'",
        "part = '50%' and n = 1",
        "part in ('k=v', 'with space')",
        "part > 'p'",
        "n = 2",
        "key = 'k3'",
    ]
    assert_same_answers(tmp_path, java, filters)
    assert files_kept(tmp_path, "part = 'a/b'") == 1


@pytest.mark.parametrize("encode", [True, False])
def test_plain_partition_values(java: JavaJudge, rust: RustJudge, tmp_path: Path, encode: bool) -> None:
    rows = pa.table(
        {"key": ["k1", "k2", "k3"], "ts": [1, 1, 1], "part": ["a", "b c", "a"], "n": pa.array([1, 2, 3], pa.int32())}
    )
    options = {"hoodie.datasource.write.partitionpath.urlencode": encode}
    table = create(tmp_path, rows.schema, partition_by="part", options=options)
    table.upsert(rows)

    assert_all_see(tmp_path, java, rust, rows)
    assert_same_answers(tmp_path, java, ["part = 'b c'", "part = 'a' and n > 1"])


def test_null_and_empty_partition_values(java: JavaJudge, tmp_path: Path) -> None:
    """They share a folder. Java's reader takes partition values from folders, so it shows null for both."""
    rows = pa.table(
        {"key": ["k1", "k2", "k3"], "ts": [1, 1, 1], "part": ["", None, "a"], "n": pa.array([1, 2, 3], pa.int32())}
    )
    table = create(tmp_path, rows.schema, partition_by="part")
    table.upsert(rows)

    assert_same_rows(own_rows(tmp_path), rows, "key")
    shown = rows.set_column(2, "part", pa.array([None, None, "a"]))
    for options in (READ_PLAIN, READ_SKIPPING):
        assert_same_rows(java.read(tmp_path, options=options), shown, "key")
        assert java.read(tmp_path, "n >= 2", ["key"], options).num_rows == 2
    assert [table.scan(where).count() for where in ("part is null", "part = ''", "part = 'a'")] == [1, 1, 1]
    with pytest.raises(JavaError, match="NullPointerException"):  # Java's pruning compares with the null it made.
        java.read(tmp_path, "part > 'A'", options=READ_SKIPPING)


def test_nested_columns(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    rows = all_types()
    table = create(tmp_path, rows.schema, partition_by="part")
    table.insert(rows.slice(0, 2))
    table.upsert(rows.slice(1, 3))

    assert_all_see(tmp_path, java, rust, rows)
    java_only = ["place.x = 3", "place.deep.y = 'a' and large > 0", "size(list) = 1 and small = 1"]
    found = java.matches(tmp_path, java_only, options=READ_SKIPPING)
    assert found == java.matches(tmp_path, java_only, options=READ_PLAIN) == [["k3"], ["k1"], []]
    assert Table.open(tmp_path).scan("place.x = 3").count() == 1


# ------------------------------------------------------------------------------------------- tables of other writers
V9 = {**WRITE_INDEXED, "hoodie.write.table.version": "9", "hoodie.write.auto.upgrade": "true"}


def test_table_of_version_9(java: JavaJudge, tmp_path: Path) -> None:
    """Java makes one with statistics of the second encoding: lakedex reads and prunes, and goes on writing."""
    small = KINDS.names[:-1]
    for rows in (FILES[0], FILES[1], FILES[2], FILES[6], FILES[7]):
        data = pa.Table.from_pylist(rows, KINDS).select(small)
        java.write(tmp_path, data, "insert", ordering="ts", partition="part", options={**V9, **OWN_FILE})

    assert properties(tmp_path)["hoodie.table.version"] == "9"
    assert definitions(tmp_path)["version"] == "V2"
    assert_all_see(tmp_path, java)
    table = Table.open(tmp_path)
    for where in FILTERS:
        if "bin" not in where:
            assert table.scan(where).count() == table.scan(where, use_indexes=False).count(), where
    for where in (
        "a = 3",
        "m = 3.00",
        "day = date'2020-01-04'",
        "tz = timestamp'2020-01-01 03:00:00'",
        "a = 3 and s = 'x'",
    ):
        assert files_kept(tmp_path, where) <= 1, where
    table.upsert(pa.Table.from_pylist(FILES[0], KINDS).select(small))
    assert_all_see(tmp_path, java)


def test_default_java_writer_upgrades_our_table(java: JavaJudge, tmp_path: Path) -> None:
    table = create(tmp_path, KINDS, partition_by="part")
    for rows in FILES[:4]:
        table.insert(pa.Table.from_pylist(rows, KINDS))
    defaults = {"hoodie.write.table.version": "9", "hoodie.write.auto.upgrade": "true"}
    changed = pa.Table.from_pylist([row(1, b=77), row(20)], KINDS)
    java.write(tmp_path, changed, "upsert", ordering="ts", partition="part", options=defaults)

    assert properties(tmp_path)["hoodie.table.version"] == "9"
    assert "bloom_filters" not in properties(tmp_path)["hoodie.table.metadata.partitions"]
    assert_all_see(tmp_path, java)
    assert own_rows(tmp_path).num_rows == 9
    fresh = Table.open(tmp_path)
    for where in FILTERS:
        assert fresh.scan(where).count() == fresh.scan(where, use_indexes=False).count(), where
    assert table.delete(where="a = 1").deleted == 1
    assert own_rows(tmp_path).num_rows == 8
    assert_all_see(tmp_path, java)


@pytest.mark.parametrize("name", sorted(path.stem for path in TABLES.glob("v[89]_*.zip")))
def test_tables_of_other_releases(java: JavaJudge, tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    path = tmp_path / name
    ours = own_rows(path)
    theirs = java.read(path, options=READ_PLAIN)
    if theirs.num_rows or ours.num_rows:
        assert_same_rows(ours, theirs)
