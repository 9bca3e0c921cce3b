"""Change feed: ``changes`` gives the rows that Java's incremental query gives, on tables that both wrote in turn.

Java takes ranges by completion time, open below and closed above, on tables of version 8 and 9.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_PLAIN, WRITE_INDEXED, JavaError, JavaJudge
from judging import OWN_FILE, create, keyed
from rust_judge import RustJudge

from lakedex import Table
from lakedex.errors import InvalidInputError
from lakedex.timeline.active import create_inflight, create_requested
from lakedex.timeline.instant import plus_millis
from lakedex.types import COMMIT_TIME

SHOWN = [COMMIT_TIME, "key", "ts", "part", "value"]
BEGINNING = "00000000000000000"


def incremental(java: JavaJudge, path: Path, since: str, until: str | None, **options: str) -> pa.Table:
    """What Java's incremental query finds."""
    asked = {
        **READ_PLAIN,
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": since,
        **({} if until is None else {"hoodie.datasource.read.end.instanttime": until}),
        **options,
    }
    return java.read(path, columns=SHOWN, options=asked)


def completions(path: Path) -> dict[str, str]:
    """Requested time → completion time of each commit."""
    found = Table.open(path).inspect.history().select(["commit_time", "state_transition_time"]).to_pylist()
    return {row["commit_time"]: row["state_transition_time"] for row in reversed(found)}


def assert_same_changes(java: JavaJudge, path: Path, keep: int = 3) -> None:
    """For pairs of bounds out of all commits: by instants and by times lakedex gives what Java gives."""
    times = completions(path)
    instants = [None, *times][:: max(1, len(times) // keep)]
    for low, high in [*combinations(instants, 2), (instants[1], None), (None, None)]:
        if high is None and low is None:
            since, until = BEGINNING, None
        else:
            since, until = BEGINNING if low is None else times[low], None if high is None else times[high]
        right = incremental(java, path, since, until)
        table = Table.open(path)
        bounds = ("earliest" if low is None else low, high)
        assert_same_rows(table.changes(*bounds, columns=SHOWN).to_arrow(), right, "key")
        if low is not None:
            assert_same_rows(table.changes(since, until, columns=SHOWN).to_arrow(), right, "key")


def test_writers_in_turn(java: JavaJudge, tmp_path: Path) -> None:
    table = create(tmp_path, keyed([]).schema, partition_by="part")

    def java_writes(rows: pa.Table, operation: str = "upsert") -> None:
        java.write(tmp_path, rows, operation, partition="part", ordering="ts", options=WRITE_INDEXED)

    table.insert(pa.concat_tables([keyed(["a1", "a2"], 1, 1), keyed(["b1", "b2"], 1, 1, "b")]))
    java_writes(pa.concat_tables([keyed(["a1", "a3"], 2, 2), keyed(["b3"], 2, 2, "b")]))
    table.upsert(keyed(["a1", "a4"], 3, 3))
    table.delete(pa.table({"key": ["b1"]}), all_partitions=True)
    java_writes(keyed(["a2"], 9, 9), "delete")
    java_writes(keyed(["b2", "b5"], 4, 4, "b"), "insert_overwrite")
    table.update(set={"value": "value + 100"}, where="key = 'b5'")
    assert_same_changes(java, tmp_path)


def test_version_9_and_clustering(java: JavaJudge, tmp_path: Path) -> None:
    version_9 = {**WRITE_INDEXED, "hoodie.write.table.version": "9"}
    java.write(tmp_path, keyed(["a1", "a2"], 1, 1), "insert", partition="part", ordering="ts", options=version_9)
    java.write(tmp_path, keyed(["a3"], 2, 2), "upsert", partition="part", ordering="ts", options=version_9)
    clustering = {**version_9, "hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
    java.write(tmp_path, keyed(["b1"], 3, 3, "b"), "upsert", partition="part", ordering="ts", options=clustering)
    java.write(tmp_path, keyed(["a1"], 4, 4), "upsert", partition="part", ordering="ts", options=version_9)
    assert "CLUSTER" in Table.open(tmp_path).inspect.history().column("operation").to_pylist()
    assert_same_changes(java, tmp_path, keep=2)


def test_what_was_cleaned_and_archived(java: JavaJudge, tmp_path: Path) -> None:
    options = {
        **WRITE_INDEXED,
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.metadata.compact.max.delta.commits": "1",
    }
    for number in range(1, 8):
        java.write(tmp_path, keyed(["k1", f"n{number}"], number, number), ordering="ts", options=options)
    times = completions(tmp_path)
    assert len(times) < 7, "nothing was archived"
    table = Table.open(tmp_path)
    with pytest.raises(InvalidInputError, match="are archived.*The earliest since is '(\\d{17})'") as caught:
        table.changes("2020-01-01")
    earliest = str(caught.value).split("The earliest since is '")[1][:17]
    assert earliest < min(times.values())
    found = table.changes(earliest, columns=SHOWN).to_arrow()
    assert_same_rows(found, incremental(java, tmp_path, earliest, None), "key")
    assert sorted(set(found.column(COMMIT_TIME).to_pylist())) == sorted(times)

    full = table.changes("2020-01-01", columns=SHOWN, fallback="full").to_arrow()
    fallback = {"hoodie.datasource.read.incr.fallback.fulltablescan.enable": "true"}
    assert_same_rows(full, incremental(java, tmp_path, BEGINNING, None, **fallback), "key")
    assert full.num_rows == 8

    first = next(iter(times))
    with pytest.raises(InvalidInputError, match="the cleaner took 1 files"):
        table.changes(earliest, first)
    with pytest.raises(InvalidInputError, match="cannot be read as of .* any more"):
        table.scan(as_of=first)


def test_rust_finds_the_same_changes(rust: RustJudge, tmp_path: Path) -> None:
    table = create(tmp_path, keyed([]).schema, partition_by="part")
    table.insert(pa.concat_tables([keyed(["a1", "a2"], 1, 1), keyed(["b1"], 1, 1, "b")]))
    table.upsert(pa.concat_tables([keyed(["a1", "a3"], 2, 2), keyed(["c1"], 2, 2, "c")]))
    table.delete(pa.table({"key": ["a2"]}), all_partitions=True)
    table.upsert(pa.concat_tables([keyed(["a1"], 3, 3), keyed(["b1"], 0, 9, "b")]))
    times = completions(tmp_path)
    for low, high in combinations([*times, None], 2):
        right = rust.incremental(tmp_path, times[low], None if high is None else times[high], columns=SHOWN)
        for since, until in ((low, high), (times[low], None if high is None else times[high])):
            assert_same_rows(table.changes(since, until, columns=SHOWN).to_arrow(), right, "key")


@pytest.mark.parametrize("version", [6, 9])
def test_moments_and_ranges_over_a_pending_write(java: JavaJudge, tmp_path: Path, version: int) -> None:
    """Both refuse the same moments, and in version 6 the same ranges."""
    options = {**OWN_FILE, "hoodie.write.table.version": version}
    table = create(tmp_path, keyed([]).schema, options=options)
    one, two, three = (str(table.insert(keyed([key])).instant) for key in "abc")
    slow = plus_millis(two, 1)
    timeline = table.scan().snapshot.timeline
    create_inflight(timeline, create_requested(timeline, slow, "commit"))
    for moment, is_refused in ((one, False), (two, False), (slow, True), (three, True)):
        asked = {**READ_PLAIN, "as.of.instant": moment}
        if is_refused:
            with pytest.raises(JavaError, match="earlier than the first incomplete commit"):
                java.read(tmp_path, columns=SHOWN, options=asked)
            with pytest.raises(InvalidInputError, match=f"{slow} is still pending"):
                table.scan(as_of=moment)
        else:
            right = java.read(tmp_path, columns=SHOWN, options=asked)
            assert_same_rows(table.scan(columns=SHOWN, as_of=moment).to_arrow(), right, "key")
    if version == 6:
        with pytest.raises(JavaError, match="hollow commit"):
            incremental(java, tmp_path, one, None)
        with pytest.raises(InvalidInputError, match=f"{slow} is still pending"):
            table.changes(one)
    else:
        right = incremental(java, tmp_path, completions(tmp_path)[one], None)
        assert_same_rows(table.changes(one, columns=SHOWN).to_arrow(), right, "key")
