"""Java 1.1.1 and lakedex write one table at the same time, under the lock file of FileSystemBasedLockProvider.

Each side commits twenty times (in CI eight), to a partition of its own and to one that both write. Whoever loses writes
again. At the end the table holds what the committed writes say, each key once (R40).
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from compare import assert_same_rows
from java_judge import READ_SKIPPING, WRITE_BLOOM, JavaError, JavaJudge
from judging import assert_all_see, create, own_rows
from rust_judge import RustJudge

from lakedex import Table
from lakedex.errors import CommitConflictError
from lakedex.timeline.active import WRITE_ACTIONS
from table_checks import rounds

COMMITS = rounds(20, 8)
"""Of each side; one of Java's takes seconds, and more when it has lost to another."""
LOCK = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
TOGETHER = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": LOCK,
    "hoodie.write.lock.wait_time_ms": "60000",
    "hoodie.write.lock.wait_time_ms_between_retry": "50",
    "hoodie.write.lock.client.num_retries": "600",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
}
SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("part", pa.string()), ("value", pa.string())])
Row = tuple[str, int, str, str]


def frame(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


@dataclass
class Committed:
    """What was committed, by whomever; the largest ``ts`` of a key wins."""

    rows: dict[str, Row] = field(default_factory=dict)
    times: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, rows: list[Row]) -> None:
        with self.guard:
            for row in rows:
                if row[0] not in self.rows or row[1] >= self.rows[row[0]][1]:
                    self.rows[row[0]] = row

    def batch(self, who: str, number: int, chance: random.Random) -> list[Row]:
        """Updates and a new key in the writer's own partition; in two of three writes also in the shared one."""
        with self.guard:
            ts = next(self.times)
        own = [f"{who}{chance.randrange(4)}", f"{who}-new{number}"]
        shared = [f"both{chance.randrange(6)}", f"both-{who}{number}"] if chance.random() < 0.66 else []
        return [(key, ts, who, f"{who} {ts}") for key in own] + [(key, ts, "both", f"{who} {ts}") for key in shared]


@dataclass
class Turns:
    """Lets the fast writer commit once while the slow one is in each of its writes, at a moment of chance."""

    begun: int = 0
    failed: bool = False
    change: threading.Condition = field(default_factory=threading.Condition)

    def begin(self, number: int) -> None:
        with self.change:
            self.begun = max(self.begun, number)
            self.change.notify_all()

    def wait(self, number: int, delay: float) -> None:
        with self.change:
            self.change.wait_for(lambda: self.begun >= number or self.failed, timeout=120)
            self.change.wait_for(lambda: self.begun > number or self.failed, timeout=delay)


def again(write: Callable[[], None], refused: Callable[[Exception], bool]) -> int:
    """Write until it is committed; how often it was not."""
    for tries in range(20):
        try:
            write()
        except Exception as error:
            if not refused(error):
                raise
        else:
            return tries
    raise AssertionError("lost twenty times")


def lost_to_another(error: Exception) -> bool:
    return isinstance(error, JavaError) and any("WriteConflict" in c or "onflicting writes" in c for c in error.causes)


def hidden_partitions(table: Table, before: Collection[str]) -> set[str]:
    """Where Java's last commit built on files of a larger instant than its own, so that nobody sees its files.

    It takes its instant, and looks for commits that it may conflict with some time later. lakedex waits for that, but
    a JVM that starts may need longer.
    """
    timeline = table.snapshot().timeline
    new = [instant for instant in timeline.completed(WRITE_ACTIONS) if instant.requested not in before]
    return {
        partition
        for instant in new
        for partition, stats in timeline.commit_metadata(instant).write_stats.items()
        if any(stat.prev_commit.isdigit() and stat.prev_commit > instant.requested for stat in stats)
    }


def test_commits_side_by_side(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    table = create(tmp_path, SCHEMA, partition_by="part", options={})
    state, turns = Committed(), Turns()
    first = [
        (f"{who}{n}", 0, who, "first") for who, count in (("java", 4), ("ours", 4), ("both", 6)) for n in range(count)
    ]
    table.insert(frame(first))
    state.take(first)
    lost = {"java": 0, "ours": 0}
    problems: list[BaseException] = []

    def java_writes(number: int, chance: random.Random) -> None:
        rows = state.batch("java", number, chance)
        before = {instant.requested for instant in Table.open(tmp_path).snapshot().timeline.completed(WRITE_ACTIONS)}
        java.write(tmp_path, frame(rows), partition="part", ordering="ts", options={**WRITE_BLOOM, **TOGETHER})
        hidden = hidden_partitions(Table.open(tmp_path), before)
        state.take([row for row in rows if f"part={row[2]}" not in hidden])

    def ours(number: int, chance: random.Random) -> None:
        rows = state.batch("ours", number, chance)
        Table.open(tmp_path).upsert(frame(rows), options=TOGETHER)
        state.take(rows)

    def slow() -> None:
        chance = random.Random(1)
        try:
            for number in range(1, COMMITS + 1):
                turns.begin(number)
                lost["java"] += again(lambda n=number: java_writes(n, chance), lost_to_another)
        except BaseException as error:
            problems.append(error)
            turns.failed = True
        turns.begin(COMMITS + 2)

    thread = threading.Thread(target=slow)
    thread.start()
    chance = random.Random(2)
    try:
        for number in range(1, COMMITS + 1):
            turns.wait(number, chance.uniform(0.1, 2.5))
            lost["ours"] += again(lambda n=number: ours(n, chance), lambda e: isinstance(e, CommitConflictError))
    finally:
        thread.join(600)
    if problems:
        raise problems[0]
    assert not thread.is_alive()
    read = assert_all_see(tmp_path, java, rust, frame(list(state.rows.values())))
    keys = read.column("key").to_pylist()
    assert len(keys) == len(set(keys)) == 14 + 2 * COMMITS + sum(key.startswith("both-") for key in keys)
    history = Table.open(tmp_path).inspect.history(limit=None, archived=True)
    assert len(history) == 1 + 2 * COMMITS
    assert not (tmp_path / ".hoodie" / "lock").exists()
    # What Java left of the writes that it lost is undone at once by a writer that is alone again.
    result = Table.open(tmp_path).upsert(frame([("ours0", 10_000, "ours", "last")]), options={
        "hoodie.clean.failed.writes.policy": "EAGER"})  # fmt: skip
    assert result.updated == 1
    timeline = {path.name for path in (tmp_path / ".hoodie" / "timeline").iterdir() if path.is_file()}
    done = {name.split("_")[0] for name in timeline if "_" in name}
    assert {name.split(".")[0] for name in timeline} - {name.split(".")[0] for name in timeline if "_" in name} <= done
    assert_same_rows(java.read(tmp_path, options=READ_SKIPPING), own_rows(tmp_path), "key")
