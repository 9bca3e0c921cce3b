"""The change feed and time travel: ranges, bounds, and what is not there any more."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import unpack
from lakedex import Table
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.timeline.instant import plus_millis
from table_kit import complete_later, make, own, rows, set_properties


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, list[str]]:
    """Insert 1 2; upsert 1 3; upsert 2 4; delete 3. With the instants of the four commits."""
    table = make(tmp_path_factory.mktemp("changes") / "t", schema=rows().schema, partition_by="city", ordering_by="ts")
    instants = [
        table.insert(rows(("1", "a", 1, 1), ("2", "b", 1, 2))).instant,
        table.upsert(rows(("1", "a", 2, 5), ("3", "a", 1, 3))).instant,
        table.upsert(rows(("2", "b", 1, 9), ("4", "c", 2, 5))).instant,
        table.delete(where="id = '3'").instant,
    ]
    return table, instants


def found(table: Table, since: object, until: object = None, **options: object) -> list[tuple[object, ...]]:
    scan = table.changes(since, until, columns=["id", "n"], **options)  # type: ignore[arg-type]
    got = own(scan.to_arrow())
    assert scan.count() == len(got)
    return got


def overlapping(path: Path, version: int = 8) -> tuple[Table, list[str], str]:
    """Insert 1 2; update 1 and overwrite city b with 4, both under way while 3 comes. With three's completion time."""
    options = {"hoodie.write.table.version": str(version)}
    table = make(path, schema=rows().schema, partition_by="city", options=options)
    one = table.insert(rows(("1", "a", 1, 1), ("2", "b", 1, 1))).instant
    update = table.upsert(rows(("1", "a", 2, 2))).instant
    overwrite = table.insert_overwrite(rows(("4", "b", 2, 2))).instant
    three = table.insert(rows(("3", "c", 1, 1))).instant
    history = table.inspect.history().select(["commit_time", "state_transition_time"]).to_pylist()
    done: str = {row["commit_time"]: row["state_transition_time"] for row in history}[three]
    if version >= 8:
        complete_later(path, update, plus_millis(done, 1))
        complete_later(path, overwrite, plus_millis(done, 2))
    return Table.open(path), [one, update, overwrite, three], done


def test_ranges_by_instants(story: tuple[Table, list[str]]) -> None:
    table, (one, two, three, four) = story
    assert found(table, "earliest") == [("1", 5), ("2", 9), ("4", 5)]
    assert found(table, "earliest", one) == [("1", 1), ("2", 2)]
    assert found(table, "EARLIEST", two) == [("1", 5), ("2", 2), ("3", 3)]
    assert found(table, one) == [("1", 5), ("2", 9), ("4", 5)]
    assert found(table, one, two) == [("1", 5), ("3", 3)]
    assert found(table, one, three) == [("1", 5), ("2", 9), ("3", 3), ("4", 5)]
    assert found(table, two, three) == [("2", 9), ("4", 5)]
    assert found(table, three) == found(table, four) == found(table, two, two) == []


@pytest.mark.parametrize("version", [8, 9])
def test_updates_that_complete_after_the_end_leave_rows_as_they_were(tmp_path: Path, version: int) -> None:
    table, (one, update, overwrite, three), done = overlapping(tmp_path, version)
    assert found(table, "earliest", three) == found(table, "earliest", done) == [("1", 1), ("2", 1), ("3", 1)]
    assert found(table, one, three) == found(table, plus_millis(done, -1), done) == [("3", 1)]
    assert found(table, "earliest", update) == [("1", 2), ("2", 1), ("3", 1)]
    assert found(table, "earliest", overwrite) == found(table, "earliest") == [("1", 2), ("3", 1), ("4", 2)]
    assert found(table, three, update) == [("1", 2)]
    assert found(table, three) == [("1", 2), ("4", 2)]
    # Time travel goes by requested times.
    assert own(table.scan(columns=["id", "n"], as_of=three).to_arrow()) == found(table, "earliest")
    assert own(table.scan(columns=["id", "n"], as_of=one).to_arrow()) == [("1", 1), ("2", 1)]


def test_ranges_of_version_6_go_by_requested_times(tmp_path: Path) -> None:
    table, (one, update, overwrite, three), _ = overlapping(tmp_path, 6)
    assert found(table, "earliest", update) == [("1", 2), ("2", 1)]
    assert found(table, "earliest", three) == [("1", 2), ("3", 1), ("4", 2)]
    assert found(table, one, overwrite) == [("1", 2), ("4", 2)]
    assert found(table, overwrite, three) == [("3", 1)]


def test_a_version_that_was_cleaned_is_missed_though_its_successor_was_requested_before_the_end(tmp_path: Path) -> None:
    _, (one, update, *_, three), _ = overlapping(tmp_path)
    (gone,) = (tmp_path / "city=a").glob(f"*_{one}.parquet")
    gone.unlink()
    with pytest.raises(InvalidInputError, match=f"1 file groups.*city=a.*earliest instant.* {update};"):
        found(without_metadata(tmp_path), "earliest", three)
    assert found(Table.open(tmp_path), "earliest", update) == [("1", 2), ("2", 1), ("3", 1)]


def test_an_archived_commit_that_completed_after_the_end(tmp_path: Path) -> None:
    table, (one, update, _, three), _ = overlapping(tmp_path)
    archive(table, [one, update])
    with pytest.raises(InvalidInputError, match="is archived; the earliest until is") as caught:
        found(Table.open(tmp_path), "earliest", three)
    until = str(caught.value).split("'")[1]
    assert found(Table.open(tmp_path), "earliest", until) == [("1", 2), ("2", 1), ("3", 1)]


def test_ranges_by_times(story: tuple[Table, list[str]]) -> None:
    table, (one, two, *_) = story
    history = table.inspect.history().select(["commit_time", "state_transition_time"]).to_pylist()
    done = {row["commit_time"]: row["state_transition_time"] for row in history}
    assert found(table, done[one], done[two]) == found(table, one, two)
    # Hudi goes by completion: a millisecond before it the commit is not in the range yet.
    assert found(table, one, plus_millis(done[two], -1)) == []
    assert found(table, plus_millis(done[one], -1), done[one]) == [("1", 1), ("2", 2)]
    assert found(table, "2020-01-01") == found(table, dt.date(2020, 1, 1)) == [("1", 5), ("2", 9), ("4", 5)]
    assert found(table, dt.datetime(2999, 1, 1, tzinfo=dt.UTC)) == []
    assert found(table, "2020-01-01", "2020-01-02 00:00:00") == []
    assert found(table, "earliest", "2020-01-01") == []
    moment = dt.datetime.strptime(done[two] + "000", "%Y%m%d%H%M%S%f")
    zone = dt.timezone(dt.timedelta(hours=5))
    shifted = (moment.replace(tzinfo=dt.UTC)).astimezone(zone)
    assert found(table, one, shifted) == found(table, one, shifted.isoformat()) == found(table, one, two)


def test_chained_ranges_miss_and_double_nothing(story: tuple[Table, list[str]]) -> None:
    table, instants = story
    bounds = ["2020-01-01", "20200601100000", *instants[:2], instants[3], "2999-01-01"]
    pieces = [table.changes(a, b, ["_hoodie_commit_time"]).to_arrow() for a, b in zip(bounds, bounds[1:], strict=False)]
    seen = pa.concat_tables(pieces).column(0).to_pylist()
    assert sorted(set(seen)) == sorted(instants[:3])
    for a, b in zip(pieces, pieces[1:], strict=False):
        assert not set(a.column(0).to_pylist()) & set(b.column(0).to_pylist())


def test_conditions_columns_and_plans(story: tuple[Table, list[str]]) -> None:
    table, (one, _, three, _) = story
    assert found(table, one, three, where="n > 4 or id = '3'") == [("1", 5), ("2", 9), ("3", 3), ("4", 5)]
    scan = table.changes(one, three, where="city = 'c'")
    assert [file.partition for file in scan.plan().files] == ["city=c"]
    assert scan.plan().files_total == 3
    assert "_hoodie_commit_time IN" in str(scan.explain())
    assert scan.explain(analyze=True, verify="full").rows_matched == 1  # type: ignore[union-attr]
    assert own(scan.filter("n = 5").select("id").to_arrow()) == [("4",)]
    assert table.changes(one).limit(2).count() == 2
    assert table.changes(one).schema == table.schema
    assert table.changes(one, meta_columns=True).schema.names[0] == "_hoodie_commit_time"
    assert scan.snapshot.schema == table.schema


def test_a_schema_that_grew(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    first = table.inspect.history().column("commit_time").to_pylist()[0]
    table.insert(rows(("2", "a", 1, 2)).append_column("more", pa.array(["x"])))
    table.insert(rows(("3", "a", 1, 3)).append_column("more", pa.array(["y"])))
    assert own(table.changes("2020-01-01", first).to_arrow(), "id", "more") == [("1", None)]
    assert own(table.changes(first).to_arrow(), "id", "more") == [("2", "x"), ("3", "y")]


def test_arguments(story: tuple[Table, list[str]], tmp_path: Path) -> None:
    table, (one, two, *_) = story
    with pytest.raises(InvalidInputError, match="since .* is after until"):
        table.changes(two, one)
    with pytest.raises(InvalidInputError, match="since 'soon' is not a valid time"):
        table.changes("soon")
    with pytest.raises(InvalidInputError, match="until 'late' is not a valid time"):
        table.changes("earliest", "late")
    with pytest.raises(InvalidInputError, match="not None"):
        table.changes(None)
    with pytest.raises(InvalidInputError, match="fallback"):
        table.changes(one, fallback="half")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="format"):
        table.changes(one, format="avro")
    with pytest.raises(UnsupportedFeatureError, match="change data capture"):
        table.changes(one, format="cdc")
    empty = make(tmp_path, schema=rows().schema)
    for since in ("earliest", "2020-01-01"):
        for until in (None, "2021-01-01"):
            assert empty.changes(since, until).count() == 0
    bare = Table.open(unpack("v8_simplekeygen_hivestyle_no_metafields", tmp_path / "bare"))
    with pytest.raises(UnsupportedFeatureError, match="no meta columns"):
        bare.changes("earliest")


@pytest.mark.parametrize("name", ["v8_nonpartitioned", "v8_complexkeygen_hivestyle", "v9_txns_simple_overwrite"])
def test_tables_of_java(tmp_path: Path, name: str) -> None:
    table = Table.open(unpack(name, tmp_path))
    everything = table.scan(columns=["_hoodie_record_key", "_hoodie_commit_time"]).to_arrow()
    commits = table.inspect.history().column("commit_time").to_pylist()[::-1]
    assert table.changes("earliest").count() == everything.num_rows
    last = everything.filter(pa.compute.equal(everything.column("_hoodie_commit_time"), commits[-1]))
    since = commits[-2] if len(commits) > 1 else "2000-01-01"
    got = table.changes(since, columns=["_hoodie_record_key", "_hoodie_commit_time"]).to_arrow()
    assert own(got, "_hoodie_record_key") == own(last, "_hoodie_record_key")
    assert table.scan(as_of=commits[-1]).count() == everything.num_rows


# ------------------------------------------------------------------------------------------- what is not there any more
def without_metadata(path: Path) -> Table:
    """The table without its metadata table: what was deleted is seen in the listing."""
    shutil.rmtree(path / ".hoodie" / "metadata")
    set_properties(path, {"hoodie.table.metadata.partitions": ""})
    return Table.open(path)


@pytest.fixture
def cleaned(tmp_path: Path) -> tuple[Table, list[str]]:
    """Four versions of one file group, the second of which the cleaner took; the first is left."""
    table = make(tmp_path / "t", schema=rows().schema)
    instants = [table.upsert(rows(("1", "a", n, n), (f"x{n}", "a", n, n))).instant for n in range(1, 5)]
    (gone,) = (tmp_path / "t").glob(f"*_{instants[1]}.parquet")
    gone.unlink()
    return without_metadata(tmp_path / "t"), instants


def test_as_of_what_was_cleaned(cleaned: tuple[Table, list[str]]) -> None:
    table, (one, two, three, four) = cleaned
    with pytest.raises(InvalidInputError, match=f"as of {two} any more.*1 file groups.*earliest instant.* {three};"):
        table.scan(as_of=two)
    with pytest.raises(InvalidInputError, match="any more"):
        table.to_arrow(as_of=two)
    assert table.scan(as_of=one).count() == 2
    assert table.scan(as_of=three).count() == 4
    assert table.scan(as_of=four).count() == 5


def test_changes_of_what_was_cleaned(cleaned: tuple[Table, list[str]]) -> None:
    table, (one, two, three, _) = cleaned
    with pytest.raises(InvalidInputError, match="the cleaner took 1 files") as caught:
        table.changes(one, two)
    text = str(caught.value)
    assert "fallback='full'" in text
    offered = text.split("the earliest until with this since is '")[1][:17]
    assert found(table, one, offered) == found(table, one, three) == [("1", 3), ("x2", 2), ("x3", 3)]
    assert found(table, one) == [("1", 4), ("x2", 2), ("x3", 3), ("x4", 4)]
    # Row 1 was changed again, so the newest files do not have it any more.
    assert found(table, one, two, fallback="full") == [("x2", 2)]
    with pytest.raises(InvalidInputError, match="any more"):
        table.changes("earliest", two)


def test_a_replaced_group_that_was_cleaned(tmp_path: Path) -> None:
    path = unpack("v9_txns_simple_overwrite", tmp_path)
    table = Table.open(path)
    commits = table.inspect.history().select(["commit_time", "action"]).to_pylist()[::-1]
    replaced = next(row["commit_time"] for row in commits if row["action"] == "replacecommit")
    before = max(row["commit_time"] for row in commits if row["commit_time"] < replaced)
    rows_before = table.scan(as_of=before).count()
    assert rows_before > 0
    metadata = table.scan().snapshot.timeline.commit_metadata(replaced)
    partition, (file_id, *_) = next((p, ids) for p, ids in metadata.replaced.items() if ids)
    for file in (path / partition).glob(f"{file_id}*.parquet"):
        file.unlink()
    bare = without_metadata(path)
    with pytest.raises(InvalidInputError, match=f"{file_id} in {partition}"):
        bare.scan(as_of=before)
    assert bare.scan().count() == table.scan().count()


def archive(table: Table, instants: list[str]) -> None:
    """Move commits to the archived timeline, as Hudi lays it out."""
    timeline = Path(table.path) / ".hoodie" / "timeline"
    done = {row["commit_time"]: row["state_transition_time"] for row in table.inspect.history().to_pylist()}
    history = timeline / "history"
    history.mkdir(exist_ok=True)
    entries = pa.table(
        {
            "instantTime": instants,
            "completionTime": [done[instant] for instant in instants],
            "action": ["commit"] * len(instants),
            "metadata": [b""] * len(instants),
        }
    )
    name = f"{instants[0]}_{instants[-1]}_0.parquet"
    pq.write_table(entries, history / name)
    (history / "manifest_1").write_text(json.dumps({"files": [{"fileName": name, "fileLen": 1}]}))
    (history / "_version_").write_text("1")
    for instant in instants:
        for file in timeline.glob(f"{instant}*"):
            file.unlink()


def test_what_was_archived(tmp_path: Path) -> None:
    table = make(tmp_path, schema=rows().schema)
    instants = [table.upsert(rows(("1", "a", n, n), (f"x{n}", "a", n, n))).instant for n in range(1, 5)]
    done = {row["commit_time"]: row["state_transition_time"] for row in table.inspect.history().to_pylist()}
    archive(table, instants[:2])
    table = Table.open(tmp_path)
    assert table.scan().count() == 5
    with pytest.raises(
        InvalidInputError, match=f"1 commits after .* are archived.*{instants[1]}.*'{done[instants[1]]}'"
    ):
        table.changes(instants[0])
    with pytest.raises(InvalidInputError, match="2 commits after .* are archived"):
        table.changes("2020-01-01")
    # The last archived commit is a good start, by its instant and by its time.
    expected = [("1", 4), ("x3", 3), ("x4", 4)]
    assert found(table, instants[1]) == found(table, done[instants[1]]) == expected
    assert found(table, instants[1], instants[2]) == [("1", 3), ("x3", 3)]
    assert found(table, "earliest") == [("1", 4), *((f"x{n}", n) for n in range(1, 5))]
    assert found(table, "earliest", instants[2]) == [("1", 3), *((f"x{n}", n) for n in range(1, 4))]
    assert found(table, instants[0], fallback="full") == [("1", 4), *((f"x{n}", n) for n in range(2, 5))]
    with pytest.raises(InvalidInputError, match="is archived; the earliest until is"):
        table.changes("earliest", instants[1])
    with pytest.raises(InvalidInputError, match="no commit at or before"):
        table.scan(as_of=instants[1])


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", ["6", "8"])
def test_ranges_of_archived_commits(tmp_path: Path, version: str, table_type: str) -> None:
    """The same answers, whatever the archive looks like: an error, and with a fallback the rows of all commits."""
    options = {
        "hoodie.clean.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.write.table.version": version,
    }
    limits = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4"}
    table = make(tmp_path, table_type=table_type, options={**options, **limits})
    done = [str(table.upsert(rows((f"x{n}", "a", n, n))).instant) for n in range(8)]
    table.maintenance.archive()
    left = table.inspect.timeline().column("requested")[0].as_py()
    gone = done.index(left)
    assert 1 < gone < 7
    for since, until in ((0, gone - 1), (0, 7), (gone - 2, gone), ("2020-01-01", 7)):
        start = since if isinstance(since, str) else done[since]
        with pytest.raises(
            InvalidInputError, match=rf"commits after .* are archived, the last of them {done[gone - 1]}"
        ):
            table.changes(start, done[until])
        first = 0 if isinstance(since, str) else since + 1
        kept = [(f"x{n}", n) for n in range(first, until + 1)]
        assert found(table, start, done[until], fallback="full") == kept
    assert found(table, done[gone - 1]) == [(f"x{n}", n) for n in range(gone, 8)]


def test_as_of_between_a_savepoint_and_the_active_timeline(tmp_path: Path) -> None:
    table = make(tmp_path, schema=rows().schema)
    instants = [table.upsert(rows((f"x{n}", "a", n, n))).instant for n in range(1, 5)]
    archive(table, instants[1:2])
    timeline = tmp_path / ".hoodie" / "timeline"
    (timeline / f"{instants[0]}_{plus_millis(instants[3], 500)}.savepoint").write_bytes(b"")
    table = Table.open(tmp_path)
    assert table.scan(as_of=instants[0]).count() == 1
    assert table.scan(as_of=instants[1]).count() == 2
    assert table.scan(as_of=instants[2]).count() == 3


def test_as_of_times(story: tuple[Table, list[str]]) -> None:
    table, (one, two, *_) = story
    moment = dt.datetime.strptime(two + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=dt.UTC)
    zone = dt.timezone(dt.timedelta(hours=-7))
    assert table.scan(as_of=moment).count() == table.scan(as_of=moment.astimezone(zone)).count() == 3
    assert table.scan(as_of=moment - dt.timedelta(milliseconds=1)).count() == 2
    assert table.scan(as_of=moment.astimezone(zone).isoformat(timespec="milliseconds")).count() == 3
    assert table.scan(as_of=moment.replace(tzinfo=None)).count() == 3
    tomorrow = (moment + dt.timedelta(days=1)).date()
    assert table.scan(as_of=tomorrow).count() == 3
    assert table.scan(as_of=str(tomorrow)).count() == 3
    with pytest.raises(InvalidInputError, match=f"the first one is {one}"):
        table.scan(as_of=moment.date() - dt.timedelta(days=1))


@pytest.fixture
def new_york() -> Iterator[None]:
    """This machine's zone, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_times_in_the_zone_of_the_table(tmp_path: Path) -> None:
    make(tmp_path, schema=rows().schema)
    # As if made in this zone: nothing on any timeline yet.
    shutil.rmtree(tmp_path / ".hoodie" / "metadata")
    set_properties(tmp_path, {"hoodie.table.timeline.timezone": "LOCAL", "hoodie.table.metadata.partitions": ""})
    table = Table.open(tmp_path)
    before = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
    instant = table.upsert(rows(("1", "a", 1, 1))).instant
    after = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    assert instant < after.strftime("%Y%m%d%H%M%S") < plus_millis(instant, 6 * 3600 * 1000)
    for late in (after, after.isoformat(), after.astimezone().replace(tzinfo=None)):
        assert found(table, before, late) == [("1", 1)]
        assert table.scan(as_of=late).count() == 1
        assert found(table, late) == []
    for early in (before, before.isoformat(), before.astimezone().replace(tzinfo=None)):
        with pytest.raises(InvalidInputError, match="no commit at or before"):
            table.scan(as_of=early)
        assert found(table, "earliest", early) == []
