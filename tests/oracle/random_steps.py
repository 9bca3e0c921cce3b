"""Scripts of random steps: lakedex and Hudi's Java write one table in turn, beside a plain model of its rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from compare import assert_same_rows
from java_judge import READ_PLAIN, READ_SKIPPING, WRITE_BLOOM, WRITE_BLOOM_FOOTERS, JavaJudge, metadata_compaction
from judging import create
from rust_judge import RustJudge

from lakedex import Table
from lakedex.errors import CommitConflictError, CommitError, InvalidInputError, UnsupportedFeatureError
from lakedex.timeline.active import WRITE_ACTIONS

__all__ = ["Case", "Life", "Step", "case_of", "script_of", "shrunk"]

KEYS, PARTITIONS, LARGE = 40, "abc", 2**40
ORDERINGS = (-1, 0, 1, LARGE)
FIELDS = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("part", pa.string()), ("value", pa.int32())])
EXTRA = pa.field("extra", pa.string())
Row = tuple[int, int | None, str | None]
"""ts, value, extra."""
Rows = dict[int, Row]
"""Number of a key → row."""
FILTERS: Mapping[str, Callable[[str, str, Row], bool]] = {
    "value >= 4": lambda key, part, row: row[1] is not None and row[1] >= 4,
    "value = 3": lambda key, part, row: row[1] == 3,
    "value is null": lambda key, part, row: row[1] is None,
    "value in (0, 5) or ts > 1": lambda key, part, row: row[1] in (0, 5) or row[0] > 1,
    "part = 'b' and ts < 1": lambda key, part, row: part == "b" and row[0] < 1,
    "key in ('k01', 'k07')": lambda key, part, row: key in ("k01", "k07"),
    "not (value < 3 or part = 'a')": lambda key, part, row: row[1] is not None and row[1] >= 3 and part != "a",
}
STEPS = """
    upsert 8 insert 3 delete 3 delete_where 2 update 3 merge 3 overwrite 1 delete_partition 1 add_column 1 clean 1
    rollback 2 savepoint 1 restore 1 refresh 1 cluster 1 plan_cluster 1 run_plans 3
    java_upsert 6 java_insert 2 java_delete 3 java_cluster 1 java_plan_cluster 1 java_clean 1
"""
MERGE_ON_READ_STEPS = "compact 1 plan_compact 2 java_compact 1 java_plan_compact 2"
"""Steps with their weights."""
CALLS = {
    "java_cluster": "run_clustering(table => 't', order => 'value')",
    "java_plan_cluster": "run_clustering(table => 't', op => 'schedule', order => 'ts')",
    "java_compact": "run_compaction(op => 'run', table => 't')",
    "java_plan_compact": "run_compaction(op => 'schedule', table => 't')",
    "java_clean": "run_clean(table => 't', retain_commits => 2)",
}
"""Hudi's procedures."""
SERVICES: Mapping[str, Callable[[Table], Any]] = {
    "compact": lambda table: table.maintenance.compact(),
    "plan_compact": lambda table: table.maintenance.compact(plan_only=True),
    "cluster": lambda table: table.maintenance.cluster(order_by="value"),
    "plan_cluster": lambda table: table.maintenance.cluster(plan_only=True),
    "clean": lambda table: table.maintenance.clean(commits=2),
    "refresh": lambda table: table.indexes.refresh("values"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of table."""

    version: int
    kind: str
    partitioned: bool
    by_event: bool
    own_files: bool
    cleans: bool
    metadata_every: int
    splits: bool
    partial: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A step; its rows come from the seed alone, so that those before it can be left out."""

    name: str
    seed: int


def case_of(seed: int) -> Case:
    """The table of a seed: twenty-four in a row are all kinds."""
    chance = random.Random(seed)
    version, kind = (6, 8, 9)[seed % 3], ("mor", "cow")[seed // 3 % 2]
    partitioned, by_event = seed // 6 % 2 == 0, seed // 12 % 2 == (kind == "cow")
    return Case(
        version,
        kind,
        partitioned,
        by_event,
        own_files=chance.random() < 0.6,
        cleans=chance.random() < 0.3,
        metadata_every=chance.choice((3, 50)),
        splits=chance.random() < 0.3,
        partial=chance.random() < 0.5,
    )


def script_of(seed: int, count: int) -> list[Step]:
    """The steps of a seed, an insert first."""
    chance = random.Random(seed)
    words = (STEPS + (MERGE_ON_READ_STEPS if case_of(seed).kind == "mor" else "")).split()
    names = chance.choices(words[::2], [int(weight) for weight in words[1::2]], k=count - 1)
    return [Step(name, chance.randrange(1 << 30)) for name in ("insert", *names)]


@dataclass(frozen=True, slots=True)
class State:
    """Rows of a table, and the ordering values of deletes; a delete of Java's has none."""

    rows: Rows = field(default_factory=dict)
    graves: dict[int, int | None] = field(default_factory=dict)
    has_extra: bool = False

    def copy(self) -> State:
        """The same, to be kept."""
        return State(dict(self.rows), dict(self.graves), self.has_extra)


class Life:
    """A table that takes steps."""

    def __init__(self, path: Path, case: Case, java: JavaJudge, rust: RustJudge) -> None:
        self.path, self.case, self.java, self.rust = path, case, java, rust
        self.options = {
            "hoodie.write.table.version": case.version,
            "hoodie.record.merge.mode": f"{'EVENT' if case.by_event else 'COMMIT'}_TIME_ORDERING",
            "hoodie.compact.inline": False,
            "hoodie.clean.automatic": case.cleans,
            "hoodie.clean.commits.retained": 2,
            **({"hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 6} if case.cleans else {}),
            "hoodie.metadata.compact.max.delta.commits": case.metadata_every,
            "hoodie.metadata.index.column.stats.enable": True,
            **({"hoodie.parquet.small.file.limit": 0} if case.own_files else {}),
            "hoodie.spark.sql.merge.into.partial.updates": case.partial,
            # Each block has a log file of its own.
            **({"hoodie.logfile.data.block.max.size": 200, "hoodie.logfile.max.size": 1} if case.splits else {}),
        }
        parts = "part" if case.partitioned else ()
        self.table = create(path, FIELDS, partition_by=parts, table_type=case.kind, options=self.options)
        self.table.indexes.create("bitmap", ["value", "part"], name="values")
        self.now = State()
        self.before: list[tuple[str, State]] = []
        self.saved: tuple[str, State, int] | None = None
        self.done: Counter[str] = Counter()

    def name_of(self, number: int) -> tuple[str, str]:
        """Key and partition; where there are partitions, a key is in each of them."""
        return f"k{number // 3 if self.case.partitioned else number:02d}", PARTITIONS[number % 3]

    def frame(self, rows: Mapping[int, Row], *, has_extra: bool | None = None) -> pa.Table:
        """Rows as a frame, with the table's columns if nothing else is said."""
        names = ("key", "part", "ts", "value", "extra")
        found = [dict(zip(names, (*self.name_of(n), *row), strict=True)) for n, row in rows.items()]
        return pa.Table.from_pylist(
            found, schema=FIELDS.append(EXTRA) if (self.now.has_extra if has_extra is None else has_extra) else FIELDS
        )

    def draw(self, chance: random.Random, most: int = 6) -> Rows:
        """Some rows."""
        extra = (None, "x", "y") if self.now.has_extra else (None,)
        numbers = chance.sample(range(KEYS), chance.randint(1, most))
        values = (None, *range(8))
        return {n: (chance.choice(ORDERINGS), chance.choice(values), chance.choice(extra)) for n in numbers}

    def stored(self) -> dict[int, int]:
        """Ordering values of the rows of base files, those that log files delete too."""
        found = Table.open(self.path).scan(query_type="read_optimized").to_arrow()
        places = {self.name_of(number): number for number in range(KEYS)}
        return {places[row["key"], row["part"]]: row["ts"] for row in found.to_pylist()}

    def least(self) -> dict[int, int]:
        """By event time, the ordering values that rows have to reach: those of stored rows and of deletes in log files.

        Java's delete has none: a row that comes later is compared with that of the base file.
        """
        if not self.case.by_event:
            return {}
        dead = {
            n: ts if self.now.graves[n] is None else self.now.graves[n]
            for n, ts in self.stored().items()
            if n not in self.now.rows
        }
        return {**dead, **{n: row[0] for n, row in self.now.rows.items()}}

    def upserted(self, rows: Rows, write: Callable[[], Any]) -> None:
        """Write, and let the model take rows that do not come too late."""
        least = self.least()
        if self.attempt(write):
            self.now.rows.update({n: row for n, row in rows.items() if row[0] >= least.get(n, row[0])})

    def deleted(self, numbers: Sequence[int], delete: Callable[[], Any], *, by_java: bool = False) -> bool:
        """Delete, and remember the ordering values; False if it is refused."""
        if not self.attempt(delete):
            return False
        for number in numbers:
            ts = self.now.rows.pop(number)[0]
            self.now.graves[number] = None if by_java else ts
        return True

    def hits(self, where: str) -> Rows:
        test = FILTERS[where]
        return {n: row for n, row in self.now.rows.items() if test(*self.name_of(n), row)}

    def attempt(self, write: Callable[[], Any], *known: str) -> bool:
        """Write; False if it is refused for the sake of a pending plan, or with one of the known texts."""
        try:
            write()
        except (CommitError, InvalidInputError, UnsupportedFeatureError) as refusal:
            timeline = Table.open(self.path).snapshot().timeline
            if isinstance(refusal, CommitConflictError):
                known = ("pending",) if timeline.pending_clusterings() or timeline.pending({"compaction"}) else ()
            elif isinstance(refusal, UnsupportedFeatureError):
                known = ("pending; run that first",) if timeline.pending({"compaction"}) else ()
            if not any(text in str(refusal) for text in known):
                raise
            self.done["refused"] += 1
            return False
        return True

    def take(self, step: Step) -> None:
        """Take a step and remember the commits that it made."""
        chance, before, known = random.Random(step.seed), self.now.copy(), self.commits()
        if chance.random() < 0.4:
            self.table = Table.open(self.path, options=self.options)
        self.done[step.name] += 1
        if step.name in CALLS:
            self.java_calls(chance, CALLS[step.name])
        elif step.name in SERVICES:
            self.attempt(lambda: SERVICES[step.name](self.table))
        else:
            getattr(self, step.name)(chance)
        if self.case.kind == "mor" and self.now.rows.keys() - self.stored().keys():
            # Java brought a deleted key back by an update, before a compaction that was planned earlier: the key is in
            # a log file alone, where neither looks it up.
            self.attempt(lambda: self.table.maintenance.compact())
        self.before += [(instant, before) for instant in sorted(self.commits() - known)]

    def commits(self) -> set[str]:
        return {i.requested for i in Table.open(self.path).snapshot().timeline.completed(WRITE_ACTIONS)}

    def upsert(self, chance: random.Random) -> None:
        rows = self.draw(chance)
        if chance.random() < 0.4:  # Stored and deleted keys come back more often.
            known = sorted({*self.now.rows, *self.now.graves})
            rows = dict(zip(chance.sample(known, min(len(known), len(rows))), rows.values(), strict=False)) or rows
        self.upserted(rows, lambda: self.table.upsert(self.frame(rows)))

    def unknown(self, rows: Rows) -> Rows:
        """Rows for an insert, which looks nothing up: a key that a log file deleted would be in two file groups."""
        taken = {*self.now.rows, *self.stored()}
        return {n: row for n, row in rows.items() if n not in taken}

    def insert(self, chance: random.Random) -> None:
        rows = self.unknown(self.draw(chance, 14))
        if rows:
            self.upserted(rows, lambda: self.table.insert(self.frame(rows)))

    def delete(self, chance: random.Random) -> None:
        rows = self.draw(chance)
        keys = self.frame(rows).select(["key", "part"])
        self.deleted([n for n in rows if n in self.now.rows], lambda: self.table.delete(keys))

    def delete_where(self, chance: random.Random) -> None:
        where = chance.choice(list(FILTERS))
        self.deleted(list(self.hits(where)), lambda: self.table.delete(where=where))

    def update(self, chance: random.Random) -> None:
        """Of the ordering value too, which wins even if it is smaller."""
        where, ts = chance.choice(list(FILTERS)), chance.choice((None, None, *ORDERINGS))
        change = {"value": "coalesce(value, 0) + 1"} if ts is None else {"ts": ts}
        if self.attempt(lambda: self.table.update(change, where)):
            for number, (old, value, extra) in self.hits(where).items():
                row = (old, (value or 0) + 1, extra) if ts is None else (ts, value, extra)
                self.now.rows[number] = row

    def merge(self, chance: random.Random) -> None:
        rows = self.draw(chance)
        gone = [n for n, row in rows.items() if n in self.now.rows and row[1] == 3]
        builder = self.table.merge(self.frame(rows), "t.key = s.key and t.part = s.part")
        builder = builder.when_matched_delete(condition="s.value = 3")
        if chance.random() < 0.5:
            builder = builder.when_matched_update({"value": "s.value"})
            rows = {n: (old[0], row[1], old[2]) if (old := self.now.rows.get(n)) else row for n, row in rows.items()}
        else:
            builder = builder.when_matched_update_all()
        if self.deleted(gone, builder.when_not_matched_insert_all(condition="s.value is not null").execute):
            rows = {n: row for n, row in rows.items() if n not in gone}
            self.now.rows.update({n: row for n, row in rows.items() if n in self.now.rows or row[1] is not None})

    def overwrite(self, chance: random.Random) -> None:
        rows = self.draw(chance)
        parts = {self.name_of(n)[1] for n in rows} if self.case.partitioned else set(PARTITIONS)
        self.replaced(parts, rows, lambda: self.table.insert_overwrite(self.frame(rows)))

    def delete_partition(self, chance: random.Random) -> None:
        part = chance.choice(PARTITIONS)
        if self.case.partitioned:
            self.replaced({part}, {}, lambda: self.table.delete_partition({"part": part}))

    def replaced(self, parts: set[str], rows: Rows, write: Callable[[], Any]) -> None:
        """Write rows in the place of partitions."""
        if self.attempt(write):
            kept = {n: row for n, row in self.now.rows.items() if self.name_of(n)[1] not in parts}
            self.now = State({**kept, **rows}, self.now.graves, self.now.has_extra)

    def add_column(self, chance: random.Random) -> None:
        # Once in a life: what was undone may be in files still.
        if self.done["add_column"] == 1 and self.attempt(lambda: self.table.add_columns(pa.schema([EXTRA]))):
            self.now = State(self.now.rows, self.now.graves, True)

    def run_plans(self, chance: random.Random) -> None:
        """Run them, or take them back."""
        timeline, maintenance = Table.open(self.path).snapshot().timeline, self.table.maintenance
        for instant in [i.requested for i in timeline.pending_clusterings()]:
            if chance.random() < 0.7:
                maintenance.cluster(instant=instant)
            else:
                maintenance.rollback(instant)
        for instant in [i.requested for i in timeline.pending({"compaction"})]:
            if chance.random() >= 0.7 and self.attempt(
                lambda instant=instant: maintenance.unschedule_compaction(instant), "writes came after"
            ):
                continue
            # Java's fault: beside a restore older than archived commits its plans leave log files out.
            if not self.attempt(lambda instant=instant: maintenance.compact(instant=instant), "leaves out"):
                maintenance.unschedule_compaction(instant)

    def rollback(self, chance: random.Random) -> None:
        known = ("the cleaner took", "has a savepoint", "has no commit", "not archived", "came after", "going to merge")
        if self.before and self.attempt(lambda: self.table.maintenance.rollback(self.before[-1][0]), *known):
            self.now = self.before.pop()[1].copy()

    def savepoint(self, chance: random.Random) -> None:
        # Version 6 goes back by requested times, and a compaction completes after writes that began after it.
        instant = self.before[-1][0] if self.before else ""
        newest = bool(instant) and instant == max(one for one, _ in self.before)
        if (newest and self.saved is None) and self.attempt(
            lambda: self.table.maintenance.savepoint(instant), "may have been cleaned", "which replaces files, began"
        ):
            self.saved = instant, self.now.copy(), len(self.before)

    def restore(self, chance: random.Random) -> None:
        if self.saved is not None:
            instant, state, count = self.saved
            if self.attempt(lambda: self.table.maintenance.restore(instant), "to cleaning"):
                self.now, self.saved = state.copy(), None
                del self.before[count:]
                self.table.maintenance.delete_savepoint(instant)

    def java_options(self, chance: random.Random) -> dict[str, str]:
        options = {
            **chance.choice((WRITE_BLOOM, WRITE_BLOOM_FOOTERS)),
            **metadata_compaction(self.case.metadata_every),
            **{name: str(value).lower() for name, value in self.options.items() if "merge.mode" not in name},
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if self.case.kind == "mor" else "COPY_ON_WRITE",
            "hoodie.compact.inline.max.delta.commits": "1",
        }
        # 1.1.1 mixes the column stats of log files up if a write makes several of one group.
        options = {name: value for name, value in options.items() if not name.startswith("hoodie.logfile.")}
        if self.case.version == 6:  # 1.1.1 writes no partition stats into it.
            options.pop("hoodie.metadata.index.partition.stats.enable")
        return options

    def java_writes(self, chance: random.Random, rows: Rows, operation: str) -> None:
        partition = "part" if self.case.partitioned else None
        options = self.java_options(chance)
        self.java.write(self.path, self.frame(rows), operation, partition=partition, ordering="ts", options=options)

    def is_beside_clustering(self, chance: random.Random) -> bool:
        """Beside a planned clustering Java's writes would fail half-way: it runs the plan instead."""
        if pending := bool(Table.open(self.path).snapshot().timeline.pending_clusterings()):
            self.java_calls(chance, "run_clustering(table => 't', op => 'execute')")
        return pending

    def java_calls(self, chance: random.Random, call: str) -> None:
        self.java.sql(f"CREATE TABLE IF NOT EXISTS t USING hudi LOCATION '{self.path}'", self.java_options(chance))
        try:
            self.java.sql(f"CALL {call}")
        finally:
            self.java.sql("DROP TABLE t")

    def java_upsert(self, chance: random.Random) -> None:
        # Java's fault: by event time a late row after a delete of its own brings back the row of the base file, since
        # it is merged with the delete first (docs/decisions.md).
        least, rows = self.least(), self.draw(chance)
        trapped = {n for n in rows if n not in self.now.rows and self.now.graves.get(n, 0) is None}
        rows = {n: row for n, row in rows.items() if n not in trapped or row[0] >= least.get(n, row[0])}
        if self.case.partial:
            # Late rows fill partial updates, and 1.1.1 fails on a deleted key that comes back beside one.
            stored = self.stored()
            rows = {
                n: r for n, r in rows.items() if r[0] >= least.get(n, r[0]) and (n in self.now.rows or n not in stored)
            }
        if rows and not self.is_beside_clustering(chance):
            self.upserted(rows, lambda: self.java_writes(chance, rows, "upsert"))

    def java_insert(self, chance: random.Random) -> None:
        rows = self.unknown(self.draw(chance, 14))
        if rows and not self.is_beside_clustering(chance):
            self.upserted(rows, lambda: self.java_writes(chance, rows, "insert"))

    def java_delete(self, chance: random.Random) -> None:
        rows = {n: row for n, row in self.draw(chance, 10).items() if n in self.now.rows}
        if rows and not self.is_beside_clustering(chance):
            self.deleted(list(rows), lambda: self.java_writes(chance, rows, "delete"), by_java=True)

    def check(self, *, judges: bool = False, at_end: bool = False) -> None:
        """lakedex reads what the model has, by each filter, with indexes and without; so do the judges, if asked."""
        table, expected = Table.open(self.path), self.frame(self.now.rows)
        filters = random.Random(self.done.total()).sample(list(FILTERS), 3)
        place = ["key", "part"]
        assert_same_rows(table.to_arrow(), expected, place)
        for opened in (table, self.table):
            assert opened.count() == len(self.now.rows)
            for where in filters:
                right = self.frame(self.hits(where))
                assert_same_rows(opened.scan(where).to_arrow(), right, place)
                assert opened.scan(where, cost_gate=False).count() == right.num_rows, where
        for where in filters[:2]:
            assert_same_rows(table.scan(where, use_indexes=False).to_arrow(), self.frame(self.hits(where)), place)
        self.check_past(random.Random(self.done.total()), table)
        report = table.maintenance.validate()
        assert report.ok, str(report)
        pending = {instant.requested for instant in table.snapshot().timeline.pending()}
        left = [file for folder in (".temp", ".heartbeat") for file in (self.path / ".hoodie" / folder).glob("[!.]*")]
        assert not [file for file in left if file.name not in pending], left
        if judges and self.now.rows:
            assert_same_rows(self.java.read(self.path, options=READ_SKIPPING), expected, place)
            # In version 6 hudi-rs 0.5 reads no log files that are named after a pending compaction.
            if self.case.version > 6 or not table.snapshot().timeline.pending({"compaction"}):
                assert_same_rows(self.rust.read(self.path), expected, place)
        if at_end and self.now.rows:
            assert_same_rows(self.java.read(self.path, options=READ_PLAIN), expected, place)
            found = self.java.matches(self.path, filters[-1:], "key", READ_SKIPPING)
            assert found == [sorted(self.name_of(n)[0] for n in self.hits(where)) for where in filters[-1:]]

    def check_past(self, chance: random.Random, table: Table) -> None:
        """One of the earlier commits still shows what the table had, unless it was cleaned."""
        instants = [instant for instant, _ in self.before]
        # Where plans ran beside writes, commits have not completed in the order in which they began.
        places = [n for n in range(1, len(instants)) if max(instants[:n]) < min(instants[n:])]
        if places:
            place = chance.choice(places)
            state = self.before[place][1]
            wanted = self.frame(state.rows, has_extra=state.has_extra)
            try:
                found = table.to_arrow(as_of=max(instants[:place]))
            except InvalidInputError as refusal:
                assert any(text in str(refusal) for text in ("clean", "no commit at or before"))  # noqa: PT017
            else:
                assert_same_rows(found, wanted, ["key", "part"])


def shrunk(script: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """A shorter script that fails too: the steps left out one by one, the last first."""
    steps = list(script)
    for place in reversed(range(1, len(script))):
        fewer = steps[:place] + steps[place + 1 :]
        if fails(fewer):
            steps = fewer
    return steps
