"""Files in the calendar that was Julian until 1582: what they hold is read by its name, or refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import unpack_java_1_2
from lakedex import Table
from lakedex.errors import UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import open_for_merge, parquet_columns, read_base_file
from lakedex.parquet.base_file_reader import open_for_scan as open_row_groups
from table_kit import own

UTC = dt.UTC
SPARK_3 = {"org.apache.spark.version": "3.5.9", "org.apache.spark.legacyDateTime": ""}
IN_UTC = {**SPARK_3, "org.apache.spark.timeZone": "UTC"}
IN_OSLO = {**SPARK_3, "org.apache.spark.timeZone": "Europe/Oslo"}

SWITCHES = {
    -719164: 2,
    -682945: 1,
    -646420: 0,
    -609895: -1,
    -536845: -2,
    -500320: -3,
    -463795: -4,
    -390745: -5,
    -354220: -6,
    -317695: -7,
    -244645: -8,
    -208120: -9,
    -171595: -10,
    -141427: 0,
}
"""``RebaseDateTime``: from these days on so many are added."""


def stored(path: Path, columns: dict[str, pa.Array], told: dict[str, str]) -> str:
    """A file whose footer tells so."""
    file = path / "file.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(told), file)
    return str(file)


def dates(*values: str | None) -> pa.Array:
    return pa.array([None if value is None else dt.date.fromisoformat(value) for value in values], pa.date32())


def times(*values: str | None, zone: str | None = "UTC") -> pa.Array:
    found = [None if value is None else dt.datetime.fromisoformat(value) for value in values]
    return pa.array(found, pa.timestamp("us")).cast(pa.timestamp("us", zone))


def read(path: str) -> pa.Table:
    return read_base_file(LocalStorage(), path)


def test_every_day_is_moved_as_spark_moves_it(tmp_path: Path) -> None:
    days = np.arange(-719164, -140_000, dtype=np.int32)
    added = np.array(list(SWITCHES.values()))[np.searchsorted(list(SWITCHES), days, side="right") - 1]
    path = stored(tmp_path, {"d": pa.array(days).cast(pa.date32())}, SPARK_3)
    assert (read(path).column("d").cast(pa.int32()).to_numpy() == days + added).all()


RAW = ("1500-03-11", "1500-03-10", "1582-10-14", None, "1582-10-15", "2026-01-01")
RIGHT = ("1500-03-01", "1500-03-01", "1582-10-04", None, "1582-10-15", "2026-01-01")
"""The second was a 29th of February that our calendar has not."""


@pytest.mark.parametrize(
    ("told", "is_moved"),
    [
        (SPARK_3, True),
        ({"org.apache.spark.version": "2.4.8"}, True),
        ({"org.apache.spark.version": "3.5.9"}, False),
        ({"org.apache.spark.version": "3.5.9", "org.apache.spark.legacyINT96": ""}, False),
        ({"org.apache.spark.legacyDateTime": ""}, False),  # Not Spark's: its own reader does not look further.
        ({}, False),
    ],
)
def test_the_footer_decides_as_in_spark(tmp_path: Path, told: dict[str, str], is_moved: bool) -> None:
    path = stored(tmp_path, {"d": dates(*RAW)}, told)
    assert read(path).column("d").combine_chunks() == dates(*(RIGHT if is_moved else RAW))


def test_dates_at_every_depth(tmp_path: Path) -> None:
    raw, right = dates("1500-03-11", None, "2026-01-01"), dates("1500-03-01", None, "2026-01-01")

    def nested(days: pa.Array) -> dict[str, pa.Array]:
        offsets, missing = pa.array([0, 2, 2, 3], pa.int32()), pa.array([False, True, False])
        texts = pa.array(["a", "b", "c"])
        struct = pa.StructArray.from_arrays([days, texts], ["d", "t"], mask=missing)
        return {
            "struct": struct,
            "list": pa.ListArray.from_arrays(offsets, days, mask=missing),
            "map": pa.MapArray.from_arrays(offsets, texts, days, mask=missing),
            "lists": pa.ListArray.from_arrays(offsets, struct, mask=missing),
        }

    path = stored(tmp_path, nested(raw), SPARK_3)
    assert read(path).to_pylist() == pa.table(nested(right)).to_pylist()
    assert parquet_columns(Path(path).read_bytes(), ["struct", "list"], "log").to_pylist() == (
        pa.table(nested(right)).select(["struct", "list"]).to_pylist()
    )


def test_timestamps_of_zone_utc_are_moved_by_days(tmp_path: Path) -> None:
    raw = times("1500-03-11T23:59:59.999999", "1582-10-14T00:00:00", None, "1800-01-01T00:00:00.000001")
    right = times("1500-03-01T23:59:59.999999", "1582-10-04T00:00:00", None, "1800-01-01T00:00:00.000001")
    assert read(stored(tmp_path, {"t": raw}, IN_UTC)).column("t").combine_chunks() == right


@pytest.mark.parametrize("told", [IN_OSLO, SPARK_3])
def test_old_timestamps_of_other_zones_are_refused_and_new_ones_read(tmp_path: Path, told: dict[str, str]) -> None:
    new = times("1900-01-01T00:00:00", None, "2026-01-01T12:00:00")
    path = stored(tmp_path, {"id": pa.array(["a", "b", "c"]), "t": new}, told)
    assert read(path).column("t").combine_chunks() == new
    path = stored(
        tmp_path, {"id": pa.array(["a"]), "s": pa.StructArray.from_arrays([times("1899-12-31")], ["t"])}, told
    )
    with pytest.raises(UnsupportedFeatureError, match=r"file\.parquet: column 's\.t' has timestamps before 1900"):
        read(path)
    assert read_base_file(LocalStorage(), path, ["id"]).num_rows == 1, "the others can be read"


def test_timestamps_without_zone_are_of_no_other_calendar(tmp_path: Path) -> None:
    raw = times("1500-03-11T00:00:00", zone=None)
    assert read(stored(tmp_path, {"t": raw}, IN_OSLO)).column("t").combine_chunks() == raw


def test_neither_bounds_nor_chunks_of_such_a_file_are_used(tmp_path: Path) -> None:
    one = {"d": dates("1500-03-11", "1500-03-11"), "n": pa.array([7, 7])}
    for told, is_used in ((SPARK_3, False), ({}, True)):
        path = stored(tmp_path, one, told)
        with open_for_merge(LocalStorage(), path) as opened:
            assert (opened.chunks is not None) is is_used
        with open_row_groups(LocalStorage(), path) as source:
            stats = source.stats(["d"])
            assert stats is not None
            assert (stats.minimum.null_count == 0) is is_used
            assert source.constant_columns(["d", "n"], 0).keys() == ({"d", "n"} if is_used else {"n"})


# -------------------------------------------------------------------------------------------- a table that Hudi wrote
ROWS = [
    ("k0", dt.date(1, 1, 3), dt.datetime(1, 1, 3, tzinfo=UTC)),
    ("k1", dt.date(1000, 1, 1), dt.datetime(1000, 1, 1, tzinfo=UTC)),
    ("k2", dt.date(1500, 3, 1), dt.datetime(1500, 3, 1, tzinfo=UTC)),
    ("k3", dt.date(1582, 10, 4), dt.datetime(1582, 10, 4, tzinfo=UTC)),
    ("k4", dt.date(1582, 10, 15), dt.datetime(1582, 10, 15, tzinfo=UTC)),
    ("k5", dt.date(2000, 1, 1), dt.datetime(2000, 1, 1, tzinfo=UTC)),
]


def check_conditions(table: Table) -> None:
    for key, day, _ in ROWS[:-1]:
        assert own(table.scan(f"d = DATE'{day.isoformat()}'").to_arrow(), "id") == [(key,)]
        assert table.scan(f"t = TIMESTAMP'{day.isoformat()} 00:00:00Z'").count() == 1
    assert table.scan("d < DATE'1000-01-02'").count() == 2
    assert table.scan("d = DATE'1500-03-11'").count() == table.scan("d = DATE'1582-10-14'").count() == 0


def test_rows_conditions_and_changes_of_a_table(tmp_path: Path) -> None:
    """Java's column stats have the numbers of the old calendar and must not prune."""
    table = Table.open(unpack_java_1_2("legacy_dates", tmp_path))
    assert own(table) == own(table.to_arrow()) == own(table.changes("earliest").to_arrow()) == ROWS
    check_conditions(table)
    assert table.scan().min("d") == dt.date(1, 1, 3)


def test_a_write_makes_the_right_values_permanent(tmp_path: Path) -> None:
    path = unpack_java_1_2("legacy_dates", tmp_path)
    table = Table.open(path)
    table.upsert(pa.table({"id": ["k5"], "d": dates("2001-01-01"), "t": times("2001-01-01T00:00:00")}))
    assert own(table)[:-1] == ROWS[:-1]
    assert own(table)[-1][1] == dt.date(2001, 1, 1)
    check_conditions(table)
    newest = max(path.glob("*.parquet"), key=lambda file: file.name.rsplit("_", 1)[1])
    assert not [key for key in pq.read_metadata(newest).metadata if b"spark" in key]
    assert table.maintenance.validate().ok
