"""Let a table live a random life beside a dictionary of its rows, and compare them after each step."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.table.table import Table

__all__ = ["BATCHES", "EXTRA", "PARTITIONS", "Model", "Row", "Rows", "State", "TableMachine", "fields_of", "rows_of"]

KEYS = [f"k{number}" for number in range(12)]
PARTITIONS = ["a", "b", "c"]
EXTRA = "extra"
KEPT_COMMITS = 4
Row = tuple[int, int | None, str | None]
"""ts, n, extra."""
Rows = dict[tuple[str, str], Row]
"""(partition, key) → row."""


@dataclass
class State:
    """Rows of a table at a commit."""

    rows: Rows
    has_extra: bool


@dataclass
class Model:
    """Rows of a table now and at earlier commits, and what may be undone."""

    rows: Rows = field(default_factory=dict)
    has_extra: bool = False
    global_index: bool = False
    """Whether a key is unique in the whole table; its row goes to the partition that the newest row names."""
    commits: list[tuple[str, State]] = field(default_factory=list)
    savepoints: list[str] = field(default_factory=list)
    cleaned: bool = False
    """True after a cleaner may have run: undoing may be refused, as files of the past may be gone."""

    undone: bool = False
    """Whether commits ever were undone."""

    most: int = 0
    """Largest number of commits so far."""

    @property
    def archived(self) -> bool:
        """Whether commits may have been archived; the last of them never are."""
        return self.most > KEPT_COMMITS

    def now(self) -> State:
        """Copy what the table holds."""
        return State(dict(self.rows), self.has_extra)

    def done(self, instant: str | None) -> None:
        """Remember a commit; ``None`` is a write that had nothing to do."""
        if instant is not None:
            self.commits.append((instant, self.now()))
            self.most = max(self.most, len(self.commits))

    def back_to(self, count: int) -> None:
        """Forget all but the first ``count`` commits."""
        self.undone = True
        del self.commits[count:]
        state = self.commits[-1][1] if self.commits else State({}, False)
        self.rows, self.has_extra = dict(state.rows), state.has_extra

    def stored(self, place: tuple[str, str]) -> tuple[str, str]:
        """Place of the stored row of a key, or the given one."""
        return next((known for known in self.rows if known[1] == place[1]), place) if self.global_index else place

    def batch(self, batch: Rows) -> Rows:
        """Rows that one write may have: no key comes twice."""
        taken = {place[1]: place for place in reversed(batch)}
        return {place: row for place, row in batch.items() if not self.global_index or taken[place[1]] == place}

    def put(self, place: tuple[str, str], row: Row) -> None:
        """Store a row, in place of the one with its key."""
        self.rows.pop(self.stored(place), None)
        self.rows[place] = row if self.has_extra else (*row[:2], None)

    def upsert(self, batch: Rows) -> None:
        """Store rows, unless the stored one has a larger ordering value."""
        for place, row in batch.items():
            known = self.rows.get(self.stored(place))
            if known is None or row[0] >= known[0]:
                self.put(place, row)


def fields_of(has_extra: bool) -> pa.Schema:
    """Columns of the table.

    Args:
        has_extra: Whether the column that :meth:`TableMachine.evolve` adds is there.
    """
    fields = [("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("n", pa.int32())]
    return pa.schema([*fields, (EXTRA, pa.string())] if has_extra else fields)


BATCHES = st.dictionaries(
    st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(KEYS)),
    st.tuples(st.integers(0, 9), st.none() | st.integers(-3, 9), st.none() | st.sampled_from("xyz")),
    min_size=1,
    max_size=8,
)
CONDITIONS: dict[str, Callable[[tuple[str, str], Row], bool]] = {
    "n >= 4": lambda _, row: row[1] is not None and row[1] >= 4,
    "n is null": lambda _, row: row[1] is None,
    "p = 'b' and ts < 5": lambda place, row: place[0] == "b" and row[0] < 5,
    "id in ('k1', 'k7')": lambda place, _: place[1] in ("k1", "k7"),
    "not (n < 3 or p = 'a')": lambda place, row: row[1] is not None and row[1] >= 3 and place[0] != "a",
}
INDEXES = ("column_stats", "bloom_filters", "by_n")


class TableMachine(RuleBasedStateMachine):
    """Model test of a table: random operations on it and on a dictionary, which agree after each.

    Derive a class to test an engine, a version or options of your own: set the attributes below, or override
    :meth:`create_table`, :meth:`reopened` and :meth:`as_frame`; add rules and invariants as of any state machine of
    Hypothesis. Rules upsert, insert, merge, update, delete, overwrite, evolve the schema, make and drop indexes, and
    run the table services. ``table`` is the table, ``model`` its rows and history.

    Attributes:
        spark: Session that runs the operations; ``None`` takes the engine without Spark.
        version: Version of the table.
        global_index: Whether a key is unique in the whole table (``hoodie.index.type=GLOBAL_BLOOM``).
        validate_every: Number of steps between two calls of ``maintenance.validate()``.
        done: Number of operations of each kind.

    Example:
        >>> class MyMachine(TableMachine):
        ...     version = 9
        >>> TestMyTables = MyMachine.TestCase
    """

    spark: Any = None
    version: int = 8
    global_index: bool = False
    validate_every: int = 1
    done: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "t"
        self.model = Model(global_index=self.global_index)
        self.steps = 0

    def count(self, kind: str) -> None:
        """Count an operation."""
        self.done[kind] += 1

    def teardown(self) -> None:
        """Validate the table a last time and delete it."""
        if hasattr(self, "table") and self.steps % self.validate_every:
            report = Table.open(self.path).maintenance.validate()
            assert report.ok, str(report)
        self.folder.cleanup()

    # ------------------------------------------------------------------------------------------------- making
    @initialize(
        own_files=st.booleans(),
        automatic=st.booleans(),
        few=st.booleans(),
        stats=st.booleans(),
    )
    def make(self, own_files: bool, automatic: bool, few: bool, stats: bool) -> None:
        """Create the table with some options."""
        self.options = {
            "hoodie.write.table.version": str(self.version),
            "hoodie.parquet.small.file.limit": "0" if own_files else "104857600",
            "hoodie.clean.automatic": str(automatic).lower(),
            "hoodie.clean.commits.retained": "2",
            "hoodie.keep.min.commits": str(KEPT_COMMITS),
            "hoodie.keep.max.commits": "6",
            "hoodie.metadata.compact.max.delta.commits": "3" if few else "10",
            "hoodie.metadata.index.column.stats.enable": str(stats).lower(),
            "hoodie.index.type": "GLOBAL_BLOOM" if self.global_index else "BLOOM",
        }
        self.automatic = automatic
        self.table = self.create_table()

    def create_table(self) -> Table:
        """Create the table; override for other engines and options."""
        return Table.create(
            self.path,
            fields_of(False),
            record_key="id",
            partition_by="p",
            ordering_by="ts",
            options=self.options,
            spark=self.spark,
        )

    def frame(self, batch: Rows, names: tuple[str, ...] | None = None) -> Any:
        """Rows of the table's schema, or some of their columns, as the engine takes them."""
        schema = fields_of(self.model.has_extra)
        rows = [{"id": key, "p": path, "ts": ts, "n": n, EXTRA: extra} for (path, key), (ts, n, extra) in batch.items()]
        table = pa.Table.from_pylist(rows, schema)
        return self.as_frame(table.select(names) if names else table)

    def as_frame(self, rows: pa.Table) -> Any:
        """Convert rows to what the engine takes; override for another kind of frame."""
        return rows

    def committed(self, kind: str, result: Any) -> None:
        """Count a write and remember its commit."""
        self.count(kind)
        self.model.done(result.instant)
        self.model.cleaned |= self.automatic

    # -------------------------------------------------------------------------------------------------- rows
    @rule(batch=BATCHES)
    def upsert(self, batch: Rows) -> None:
        """Upsert rows."""
        batch = self.model.batch(batch)
        result = self.table.upsert(self.frame(batch))
        self.model.upsert(batch)
        self.committed("upsert", result)

    @rule(batch=BATCHES, bulk=st.booleans())
    def insert(self, batch: Rows, bulk: bool) -> None:
        """Insert rows whose keys are new."""
        batch = self.model.batch(batch)
        new = {place: row for place, row in batch.items() if self.model.stored(place) not in self.model.rows}
        if new:
            result = (self.table.bulk_insert if bulk else self.table.insert)(self.frame(new))
            self.model.upsert(new)
            self.committed("insert", result)

    @rule(batch=BATCHES)
    def delete(self, batch: Rows) -> None:
        """Delete rows by their keys."""
        result = self.table.delete(self.frame(batch, ("id", "p")))
        for place in batch:
            self.model.rows.pop(self.model.stored(place), None)
        self.committed("delete", result)

    @rule(condition=st.sampled_from(sorted(CONDITIONS)))
    def delete_where(self, condition: str) -> None:
        """Delete rows by a condition."""
        hits = [place for place, row in self.model.rows.items() if CONDITIONS[condition](place, row)]
        result = self.table.delete(where=condition)
        assert result.deleted == len(hits)
        for place in hits:
            del self.model.rows[place]
        self.committed("delete_where", result)

    @rule(condition=st.sampled_from(sorted(CONDITIONS)))
    def update(self, condition: str) -> None:
        """Update a column of the rows that a condition selects."""
        hits = [place for place, row in self.model.rows.items() if CONDITIONS[condition](place, row)]
        result = self.table.update({"n": "coalesce(n, 0) + 1"}, condition)
        for place in hits:
            ts, n, extra = self.model.rows[place]
            self.model.rows[place] = (ts, (n or 0) + 1, extra)
        self.committed("update", result)

    @rule(batch=BATCHES)
    def merge(self, batch: Rows) -> None:
        """Merge rows, with an unconditional and two conditional clauses."""
        batch = self.model.batch(batch)
        builder = self.table.merge(
            self.frame(batch), "t.id = s.id" if self.global_index else "t.id = s.id and t.p = s.p"
        )
        builder = builder.when_matched_delete(condition="s.n < 0").when_matched_update_all()
        result = builder.when_not_matched_insert_all(condition="s.n is not null").execute()
        for place, row in batch.items():
            stored, n = self.model.stored(place), row[1]
            if stored in self.model.rows and n is not None and n < 0:
                del self.model.rows[stored]
            elif stored in self.model.rows or n is not None:
                self.model.put(place, row)
        self.committed("merge", result)

    @rule(batch=BATCHES, whole=st.booleans())
    def overwrite(self, batch: Rows, whole: bool) -> None:
        """Overwrite the table, or the partitions of some rows."""
        batch = self.model.batch(batch)
        gone = set(PARTITIONS) if whole else {path for path, _ in batch}
        if any(
            self.model.stored(place)[0] not in gone for place in batch if self.model.stored(place) in self.model.rows
        ):
            return  # An overwrite looks nothing up: the key would be in two partitions.
        result = self.table.insert_overwrite(self.frame(batch), "table" if whole else "partitions")
        self.model.rows = {place: row for place, row in self.model.rows.items() if place[0] not in gone}
        self.model.upsert(batch)
        self.committed("overwrite", result)

    @rule(partition=st.sampled_from(PARTITIONS))
    def delete_partition(self, partition: str) -> None:
        """Delete a partition."""
        result = self.table.delete_partition({"p": partition})
        self.model.rows = {place: row for place, row in self.model.rows.items() if place[0] != partition}
        self.committed("delete_partition", result)

    # ------------------------------------------------------------------------------------------------ upkeep
    @rule(commits=st.integers(1, 3))
    def clean(self, commits: int) -> None:
        """Clean old files."""
        self.count("clean")
        self.table.maintenance.clean(commits=commits)
        self.model.cleaned = True

    @rule()
    def compact_metadata(self) -> None:
        """Compact the metadata table."""
        self.count("compact_metadata")
        self.table.maintenance.compact_metadata()

    @rule()
    def archive(self) -> None:
        """Archive old commits."""
        self.count("archive")
        self.table.maintenance.archive()

    @rule()
    def rebuild_metadata(self) -> None:
        """Rebuild the metadata table."""
        self.count("rebuild_metadata")
        self.table.maintenance.rebuild_metadata()

    @precondition(lambda self: bool(self.model.commits))
    @rule()
    def rollback(self) -> None:
        """Roll back the latest commit; a refusal has one of the known reasons."""
        self.count("rollback")
        instant = self.model.commits[-1][0]
        try:
            self.table.maintenance.rollback(instant)
        except InvalidInputError as error:
            refusal = str(error)
        else:
            self.model.back_to(len(self.model.commits) - 1)
            self.table = self.reopened()
            return
        self.count("rollback refused")
        if instant in self.model.savepoints:
            assert "has a savepoint" in refusal
        elif instant not in self.active_commits():
            assert self.model.archived
            assert f"has no commit {instant} to roll back" in refusal
        elif "the only one that is not archived" in refusal:
            assert self.model.archived
            assert self.active_commits() == [instant]
        else:
            assert self.model.cleaned
            assert "the cleaner took" in refusal

    @precondition(lambda self: bool(self.model.commits))
    @rule()
    def savepoint(self) -> None:
        """Make or forget the savepoint of the latest commit."""
        self.count("savepoint")
        instant = self.model.commits[-1][0]
        if instant in self.model.savepoints:
            self.model.savepoints.remove(instant)
        else:
            assert self.table.maintenance.savepoint() == instant
        self.model.savepoints.append(instant)

    @precondition(lambda self: bool(self.model.savepoints))
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        """Restore the table to a savepoint."""
        self._restore(data.draw(st.sampled_from(self.model.savepoints)))

    @precondition(lambda self: bool(self.model.commits))
    @rule(batch=BATCHES, all_of_it=st.booleans())
    def there_and_back(self, batch: Rows, all_of_it: bool) -> None:
        """Undo a write at once, which short runs seldom come to otherwise."""
        if all_of_it:
            self.savepoint()
            saved = self.model.savepoints[-1]
            self.upsert(batch)
            self._restore(saved)
        else:
            self.upsert(batch)
            self.rollback()

    def _restore(self, instant: str) -> None:
        self.count("restore")
        instants = [name for name, _ in self.model.commits]
        later = [name for name in self.model.savepoints if instants.index(name) > instants.index(instant)]
        if later:
            for name in later:
                self.table.maintenance.delete_savepoint(name)
                self.model.savepoints.remove(name)
        self.table.maintenance.restore(instant)
        self.model.back_to(instants.index(instant) + 1)
        self.table = self.reopened()

    @precondition(lambda self: bool(self.model.savepoints))
    @rule(data=st.data())
    def delete_savepoint(self, data: Any) -> None:
        """Delete a savepoint."""
        self.count("delete_savepoint")
        instant = data.draw(st.sampled_from(self.model.savepoints))
        self.table.maintenance.delete_savepoint(instant)
        self.model.savepoints.remove(instant)

    def active_commits(self) -> list[str]:
        """Commits on the active timeline."""
        return [row["requested"] for row in self.table.inspect.timeline().to_pylist() if _is_commit(row)]

    def reopened(self) -> Table:
        """Open the table again; override as :meth:`create_table`."""
        return Table.open(self.path, options=self.options, spark=self.spark)

    @rule()
    def reopen(self) -> None:
        """Go on with a table object that has cached nothing."""
        self.table = self.reopened()

    # -------------------------------------------------------------------------------------- indexes and schema
    @rule(name=st.sampled_from(INDEXES))
    def index(self, name: str) -> None:
        """Create an index, or drop it if it is there."""
        self.count("index")
        if name in self.table.indexes.list().column("name").to_pylist():
            self.table.indexes.drop(name)
        elif name == "by_n":
            self.table.indexes.create("bitmap", ["n", "p"], name=name)
        else:
            self.table.indexes.create(name)

    @rule()
    def evolve(self) -> None:
        """Add a column, or drop it and rewrite the files."""
        if self.model.has_extra:
            result = self.table.drop_columns(EXTRA)
            self.model.rows = {place: (*row[:2], None) for place, row in self.model.rows.items()}
            self.model.has_extra = False
            self.committed("evolve", result)
            self.committed("rewrite_files", self.table.maintenance.rewrite_files())
            return
        added = pa.schema([(EXTRA, pa.string())])
        try:
            result = self.table.add_columns(added)
        except SchemaMismatchError as error:
            # Undone: what took it out of the files.
            if "still hold it" not in str(error) or not self.model.undone:
                raise
            self.committed("rewrite_files", self.table.maintenance.rewrite_files())
            result = self.table.add_columns(added)
        self.model.has_extra = True
        self.committed("evolve", result)

    # ----------------------------------------------------------------------------------------------- invariants
    @invariant()
    def holds(self) -> None:
        """Check that scans, counts and validation agree with the model."""
        if not hasattr(self, "table"):
            return
        wanted = self.model.rows
        assert rows_of(self.table) == wanted
        # All of them within three steps: each is two more readings of a table that the first one has seen whole.
        for place in (2 * self.steps, 2 * self.steps + 1):
            text = list(CONDITIONS)[place % len(CONDITIONS)]
            test = CONDITIONS[text]
            right = {place: row for place, row in wanted.items() if test(place, row)}
            assert rows_of(self.table, text) == right, text
            assert self.table.scan(text).count() == len(right), text
        self.steps += 1
        if self.steps % self.validate_every == 0:
            report = Table.open(self.path).maintenance.validate()
            assert report.ok, str(report)

    def check_past(self) -> None:
        """Check that every commit that can still be read shows what it held."""
        for instant, state in self.model.commits:
            try:
                found = rows_of(self.table, as_of=instant)
            except InvalidInputError:
                assert self.model.cleaned or self.model.archived
                continue
            assert found == state.rows, instant

    @rule()
    def look_back(self) -> None:
        """Read earlier commits."""
        self.check_past()


def _is_commit(row: Mapping[str, Any]) -> bool:
    return row["state"] == "COMPLETED" and row["action"] in ("commit", "replacecommit")


def rows_of(table: Table, where: str | None = None, as_of: str | None = None) -> Rows:
    """Rows of a table by partition and key; a key that comes twice is an error.

    Args:
        table: Table of a :class:`TableMachine`.
        where: Predicate; ``None`` takes all rows.
        as_of: Instant to read; ``None`` reads the latest.
    """
    found = table.scan(where, as_of=as_of).to_arrow().to_pylist()
    rows = {(row["p"], row["id"]): (row["ts"], row["n"], row.get(EXTRA)) for row in found}
    assert len(rows) == len(found), "a key comes twice"
    return rows
