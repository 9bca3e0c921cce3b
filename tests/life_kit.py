"""A table that lives a random life beside a dictionary of its rows: steps, and what must hold after each of them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from faults import run_child
from lakedex import Table
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.bloom import BloomBuilder
from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.index.bitmap.run_files import list_runs
from lakedex.io.local import LocalStorage
from lakedex.metadata.records import ALL_PARTITIONS, all_partitions_record, files_key, files_record
from lakedex.metadata.writer import write_delta_commit
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.active import complete, create_inflight, create_requested
from lakedex.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import update_table_config
from lakedex.types import META_COLUMNS

__all__ = ["FoldingLife", "Life", "MovingLife", "fields_of"]

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
    """What the table held at a commit."""

    rows: Rows
    has_extra: bool


@dataclass
class Model:
    """The rows, what they were at earlier commits, and what may be undone."""

    rows: Rows = field(default_factory=dict)
    has_extra: bool = False
    moving: bool = False
    """A key is unique in the whole table, and its row goes to the partition that the newest row names."""
    commits: list[tuple[str, State]] = field(default_factory=list)
    savepoints: list[str] = field(default_factory=list)
    cleaned: bool = False
    """A cleaner may have run: files of the past may be gone, so that undoing may be refused."""

    undone: bool = False
    """Whether commits ever were."""

    most: int = 0
    """How many commits there ever were."""

    @property
    def archived(self) -> bool:
        """Whether commits may have been archived; the last of them never are."""
        return self.most > KEPT_COMMITS

    def now(self) -> State:
        return State(dict(self.rows), self.has_extra)

    def done(self, instant: str | None) -> None:
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
        """Where the row of a key is, if it is anywhere."""
        return next((known for known in self.rows if known[1] == place[1]), place) if self.moving else place

    def batch(self, batch: Rows) -> Rows:
        """Rows that can come in one write: no key comes twice."""
        taken = {place[1]: place for place in reversed(batch)}
        return {place: row for place, row in batch.items() if not self.moving or taken[place[1]] == place}

    def put(self, place: tuple[str, str], row: Row) -> None:
        self.rows.pop(self.stored(place), None)
        self.rows[place] = row if self.has_extra else (*row[:2], None)

    def upsert(self, batch: Rows) -> None:
        for place, row in batch.items():
            known = self.rows.get(self.stored(place))
            if known is None or row[0] >= known[0]:
                self.put(place, row)


def fields_of(has_extra: bool) -> pa.Schema:
    """The table's columns."""
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


class Life(RuleBasedStateMachine):
    """A life. Subclasses say which engine runs it (``session``) and in which version (``version``)."""

    session: Any = None
    version = 8
    moving = False
    """The table has a global index (``hoodie.index.type=GLOBAL_BLOOM``)."""
    done: Counter[str]
    """Operations of each kind, and how many of them were refused."""
    thin = 1
    """``validate()`` is asked for after each so manieth step."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "t"
        self.model = Model(moving=self.moving)
        self.steps = 0

    def _count(self, kind: str) -> None:
        self.done[kind] += 1

    def teardown(self) -> None:
        if hasattr(self, "table") and self.steps % self.thin:
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
        self.options = {
            "hoodie.write.table.version": str(self.version),
            "hoodie.parquet.small.file.limit": "0" if own_files else "104857600",
            "hoodie.clean.automatic": str(automatic).lower(),
            "hoodie.clean.commits.retained": "2",
            "hoodie.keep.min.commits": str(KEPT_COMMITS),
            "hoodie.keep.max.commits": "6",
            "hoodie.metadata.compact.max.delta.commits": "3" if few else "10",
            "hoodie.metadata.index.column.stats.enable": str(stats).lower(),
            "hoodie.index.type": "GLOBAL_BLOOM" if self.moving else "BLOOM",
        }
        self.automatic = automatic
        self.table = self._made()

    def _made(self) -> Table:
        return Table.create(
            self.path,
            fields_of(False),
            record_key="id",
            partition_by="p",
            ordering_by="ts",
            options=self.options,
            spark=self.session,
        )

    def _frame(self, batch: Rows, names: tuple[str, ...] | None = None) -> Any:
        schema = fields_of(self.model.has_extra)
        rows = [{"id": key, "p": path, "ts": ts, "n": n, EXTRA: extra} for (path, key), (ts, n, extra) in batch.items()]
        table = pa.Table.from_pylist(rows, schema)
        return self.as_frame(table.select(names) if names else table)

    def as_frame(self, rows: pa.Table) -> Any:
        """Rows as the engine takes them."""
        return rows

    def _committed(self, kind: str, result: Any) -> None:
        self._count(kind)
        self.model.done(result.instant)
        self.model.cleaned |= self.automatic

    # -------------------------------------------------------------------------------------------------- rows
    @rule(batch=BATCHES)
    def upsert(self, batch: Rows) -> None:
        batch = self.model.batch(batch)
        result = self.table.upsert(self._frame(batch))
        self.model.upsert(batch)
        self._committed("upsert", result)

    @rule(batch=BATCHES, bulk=st.booleans())
    def insert(self, batch: Rows, bulk: bool) -> None:
        batch = self.model.batch(batch)
        new = {place: row for place, row in batch.items() if self.model.stored(place) not in self.model.rows}
        if new:
            result = (self.table.bulk_insert if bulk else self.table.insert)(self._frame(new))
            self.model.upsert(new)
            self._committed("insert", result)

    @rule(batch=BATCHES)
    def delete(self, batch: Rows) -> None:
        result = self.table.delete(self._frame(batch, ("id", "p")))
        for place in batch:
            self.model.rows.pop(self.model.stored(place), None)
        self._committed("delete", result)

    @rule(condition=st.sampled_from(sorted(CONDITIONS)))
    def delete_where(self, condition: str) -> None:
        hits = [place for place, row in self.model.rows.items() if CONDITIONS[condition](place, row)]
        result = self.table.delete(where=condition)
        assert result.deleted == len(hits)
        for place in hits:
            del self.model.rows[place]
        self._committed("delete_where", result)

    @rule(condition=st.sampled_from(sorted(CONDITIONS)))
    def update(self, condition: str) -> None:
        hits = [place for place, row in self.model.rows.items() if CONDITIONS[condition](place, row)]
        result = self.table.update({"n": "coalesce(n, 0) + 1"}, condition)
        for place in hits:
            ts, n, extra = self.model.rows[place]
            self.model.rows[place] = (ts, (n or 0) + 1, extra)
        self._committed("update", result)

    @rule(batch=BATCHES)
    def merge(self, batch: Rows) -> None:
        batch = self.model.batch(batch)
        builder = self.table.merge(self._frame(batch), "t.id = s.id" if self.moving else "t.id = s.id and t.p = s.p")
        builder = builder.when_matched_delete(condition="s.n < 0").when_matched_update_all()
        result = builder.when_not_matched_insert_all(condition="s.n is not null").execute()
        for place, row in batch.items():
            stored, n = self.model.stored(place), row[1]
            if stored in self.model.rows and n is not None and n < 0:
                del self.model.rows[stored]
            elif stored in self.model.rows or n is not None:
                self.model.put(place, row)
        self._committed("merge", result)

    @rule(batch=BATCHES, whole=st.booleans())
    def overwrite(self, batch: Rows, whole: bool) -> None:
        batch = self.model.batch(batch)
        gone = set(PARTITIONS) if whole else {path for path, _ in batch}
        if any(
            self.model.stored(place)[0] not in gone for place in batch if self.model.stored(place) in self.model.rows
        ):
            return  # An overwrite looks nothing up: the key would be in two partitions.
        result = self.table.insert_overwrite(self._frame(batch), "table" if whole else "partitions")
        self.model.rows = {place: row for place, row in self.model.rows.items() if place[0] not in gone}
        self.model.upsert(batch)
        self._committed("overwrite", result)

    @rule(partition=st.sampled_from(PARTITIONS))
    def delete_partition(self, partition: str) -> None:
        result = self.table.delete_partition({"p": partition})
        self.model.rows = {place: row for place, row in self.model.rows.items() if place[0] != partition}
        self._committed("delete_partition", result)

    # ------------------------------------------------------------------------------------------------ upkeep
    @rule(commits=st.integers(1, 3))
    def clean(self, commits: int) -> None:
        self._count("clean")
        self.table.maintenance.clean(commits=commits)
        self.model.cleaned = True

    @rule()
    def compact_metadata(self) -> None:
        self._count("compact_metadata")
        self.table.maintenance.compact_metadata()

    @rule()
    def archive(self) -> None:
        self._count("archive")
        self.table.maintenance.archive()

    @rule()
    def rebuild_metadata(self) -> None:
        self._count("rebuild_metadata")
        self.table.maintenance.rebuild_metadata()

    @precondition(lambda self: self.model.commits)
    @rule()
    def rollback(self) -> None:
        self._count("rollback")
        instant = self.model.commits[-1][0]
        try:
            self.table.maintenance.rollback(instant)
        except InvalidInputError as error:
            refusal = str(error)
        else:
            self.model.back_to(len(self.model.commits) - 1)
            self.table = self.reopened()
            return
        self._count("rollback refused")
        if instant in self.model.savepoints:
            assert "has a savepoint" in refusal
        elif instant not in self._active():
            assert self.model.archived
            assert f"has no commit {instant} to roll back" in refusal
        elif "the only one that is not archived" in refusal:
            assert self.model.archived and self._active() == [instant]
        else:
            assert self.model.cleaned
            assert "the cleaner took" in refusal

    @precondition(lambda self: self.model.commits)
    @rule()
    def savepoint(self) -> None:
        self._count("savepoint")
        instant = self.model.commits[-1][0]
        if instant in self.model.savepoints:
            self.model.savepoints.remove(instant)
        else:
            assert self.table.maintenance.savepoint() == instant
        self.model.savepoints.append(instant)

    @precondition(lambda self: self.model.savepoints)
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        self._restore(data.draw(st.sampled_from(self.model.savepoints)))

    @precondition(lambda self: self.model.commits)
    @rule(batch=BATCHES, all_of_it=st.booleans())
    def there_and_back(self, batch: Rows, all_of_it: bool) -> None:
        """A write that is undone at once: short lives come to it seldom otherwise."""
        if all_of_it:
            self.savepoint()
            saved = self.model.savepoints[-1]
            self.upsert(batch)
            self._restore(saved)
        else:
            self.upsert(batch)
            self.rollback()

    def _restore(self, instant: str) -> None:
        self._count("restore")
        instants = [name for name, _ in self.model.commits]
        later = [name for name in self.model.savepoints if instants.index(name) > instants.index(instant)]
        if later:
            for name in later:
                self.table.maintenance.delete_savepoint(name)
                self.model.savepoints.remove(name)
        self.table.maintenance.restore(instant)
        self.model.back_to(instants.index(instant) + 1)
        self.table = self.reopened()

    @precondition(lambda self: self.model.savepoints)
    @rule(data=st.data())
    def delete_savepoint(self, data: Any) -> None:
        self._count("delete_savepoint")
        instant = data.draw(st.sampled_from(self.model.savepoints))
        self.table.maintenance.delete_savepoint(instant)
        self.model.savepoints.remove(instant)

    def _active(self) -> list[str]:
        """Commits on the active timeline."""
        return [row["requested"] for row in self.table.inspect.timeline().to_pylist() if _is_commit(row)]

    def reopened(self) -> Table:
        """Somebody else's look at the table."""
        return Table.open(self.path, options=self.options, spark=self.session)

    @rule()
    def reopen(self) -> None:
        self.table = self.reopened()

    # -------------------------------------------------------------------------------------- indexes and schema
    @rule(name=st.sampled_from(INDEXES))
    def index(self, name: str) -> None:
        self._count("index")
        if name in self.table.indexes.list().column("name").to_pylist():
            self.table.indexes.drop(name)
        elif name == "by_n":
            self.table.indexes.create("bitmap", ["n", "p"], name=name)
        else:
            self.table.indexes.create(name)

    @rule()
    def evolve(self) -> None:
        if self.model.has_extra:
            result = self.table.drop_columns(EXTRA)
            self.model.rows = {place: (*row[:2], None) for place, row in self.model.rows.items()}
            self.model.has_extra = False
            self._committed("evolve", result)
            self._committed("rewrite_files", self.table.maintenance.rewrite_files())
            return
        added = pa.schema([(EXTRA, pa.string())])
        try:
            result = self.table.add_columns(added)
        except SchemaMismatchError as error:
            # Undone: what took it out of the files.
            if "still hold it" not in str(error) or not self.model.undone:
                raise
            self._committed("rewrite_files", self.table.maintenance.rewrite_files())
            result = self.table.add_columns(added)
        self.model.has_extra = True
        self._committed("evolve", result)

    # ------------------------------------------------------------------------------------------------- others
    @rule(batch=BATCHES, at=st.integers(1, 40), when=st.sampled_from(["before", "after", "during"]))
    def crash(self, batch: Rows, at: int, when: str) -> None:
        """A writer without Spark is killed at a change; its rows are there as a whole or not at all."""
        self._count("crash")
        before, batch = self.model.now(), self.model.batch(batch)
        frame = pa.Table.from_pylist(
            [{"id": k, "p": p, "ts": ts, "n": n, EXTRA: x} for (p, k), (ts, n, x) in batch.items()],
            fields_of(self.model.has_extra),
        )
        storage = FaultyStorage(Faults(at, when))
        with open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet):
            run_child(lambda: open_table(self.path, storage, options=self.options).upsert(frame))
        self.table = self.reopened()
        if rows_of(self.table) != before.rows:
            self.model.upsert(batch)
        instants = self._active()
        known = {name for name, _ in self.model.commits}
        new = [name for name in instants if name not in known and name > max(known, default="")]
        self.model.done(new[0] if new else None)
        self.model.cleaned = True

    @precondition(lambda self: self.version == 8)
    @rule(key=st.uuids(), partition=st.sampled_from(PARTITIONS), n=st.integers(-3, 9))
    def foreign_commit(self, key: uuid.UUID, partition: str, n: int) -> None:
        """A writer that knows of ``files`` alone drops the other indexes, as Java does, and adds a file."""
        self._count("foreign_commit")
        # It shares our lock, so what died is undone before it starts: here by a write of ours that finds nothing to do.
        self.table.delete(self._frame({("a", "nobody"): (0, 0, None)}, ("id", "p")))
        row = (5, n, None)
        instant = plain_commit(self.path, partition, f"f{key.hex[:6]}", row, fields_of(self.model.has_extra))
        self.model.rows[(partition, f"f{key.hex[:6]}")] = row
        self.model.done(instant)

    # ----------------------------------------------------------------------------------------------- invariants
    @invariant()
    def holds(self) -> None:
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
        if self.steps % self.thin == 0:
            report = Table.open(self.path).maintenance.validate()
            assert report.ok, str(report)

    def check_past(self) -> None:
        """Every commit that can still be read shows what it held."""
        for instant, state in self.model.commits:
            try:
                found = rows_of(self.table, as_of=instant)
            except InvalidInputError:
                assert self.model.cleaned or self.model.archived
                continue
            assert found == state.rows, instant

    @rule()
    def look_back(self) -> None:
        self.check_past()


def _is_commit(row: Mapping[str, Any]) -> bool:
    return row["state"] == "COMPLETED" and row["action"] in ("commit", "replacecommit")


def rows_of(table: Table, where: str | None = None, as_of: str | None = None) -> Rows:
    """Rows of a table; a key that comes twice is an error."""
    found = table.scan(where, as_of=as_of).to_arrow().to_pylist()
    rows = {(row["p"], row["id"]): (row["ts"], row["n"], row.get(EXTRA)) for row in found}
    assert len(rows) == len(found), "a key comes twice"
    return rows


def plain_commit(path: Path, partition: str, key: str, row: Row, schema: pa.Schema) -> str:
    """One commit of a writer that keeps ``files`` up and nothing else; written without lakedex's write path."""
    storage, folder = LocalStorage(), f"p={partition}"
    table = Table.open(path)
    snapshot = table.snapshot()
    clock = InstantClock(snapshot.config.timezone)
    instant = clock.next(max(snapshot.timeline.last_time, snapshot.metadata.timeline.last_time))
    dropped = snapshot.config.metadata_partitions - {"files"}
    if dropped and snapshot.uses_metadata:
        update_table_config(storage, str(path), {"hoodie.table.metadata.partitions": "files"})
        for name in dropped:
            storage.delete_tree(f"{path}/.hoodie/metadata/{name}")
        snapshot = Table.open(path).snapshot()
    line = snapshot.timeline
    inflight = create_inflight(line, create_requested(line, instant, "commit"))
    file_id = f"{uuid.uuid4()}-0"
    name = f"{file_id}_0-0-0_{instant}.parquet"
    size = _plain_file(path / folder, name, folder, instant, {"id": key, "p": partition, "row": row}, schema)
    if snapshot.uses_metadata:
        updates = {
            "files": [
                (files_key(folder), files_record({name: size})),
                (ALL_PARTITIONS, all_partitions_record([folder])),
            ]
        }
        floor = snapshot.metadata.timeline.last_time
        write_delta_commit(
            snapshot.metadata,
            instant,
            updates,
            lambda: clock.next(max(floor, instant)),
            lambda fn, items: [fn(i) for i in items],
        )
    stat = WriteStat(
        file_id=file_id, path=f"{folder}/{name}", partition_path=folder, file_size=size, num_writes=1, num_inserts=1
    )
    import json

    avro = json.dumps(arrow_to_avro(schema, snapshot.config.name))
    body = CommitMetadata(operation="INSERT", write_stats={folder: (stat,)}, extra={"schema": avro})
    complete(line, inflight, clock.next(max(line.last_time, instant)), encode_commit_metadata(body))
    return instant


def _plain_file(
    folder: Path, name: str, partition: str, instant: str, values: Mapping[str, Any], schema: pa.Schema
) -> int:
    key, row = values["id"], values["row"]
    folder.mkdir(exist_ok=True)
    if not (folder / ".hoodie_partition_metadata").exists():
        (folder / ".hoodie_partition_metadata").write_text(f"commitTime={instant}\npartitionDepth=1\n")
    meta = dict(zip(META_COLUMNS, [instant, f"{instant}_0_0", key, partition, name], strict=True))
    full = pa.schema([*((column, pa.string()) for column in META_COLUMNS), *schema])
    own = {"id": key, "p": values["p"], "ts": row[0], "n": row[1], EXTRA: row[2]}
    bloom = BloomBuilder(num_entries=10, fpp=1e-9, type_code="SIMPLE", max_entries=10)
    bloom.add(pa.array([key]))
    with pq.ParquetWriter(folder / name, full) as writer:
        writer.write_table(pa.Table.from_pylist([{**meta, **own}], full))
        writer.add_key_value_metadata(
            {
                "org.apache.hudi.bloomfilter": bloom.finish().encode().decode(),
                "hoodie_bloom_filter_type_code": "SIMPLE",
                "hoodie_min_record_key": key,
                "hoodie_max_record_key": key,
            }
        )
    return (folder / name).stat().st_size


class MovingLife(Life):
    """A life of a table whose keys are unique over all partitions."""

    moving = True

    @rule(batch=BATCHES)
    def archive(self, batch: Rows) -> None:
        """Short lives take this step often, and rows have to move in them."""
        self.upsert(batch)
        self._count("archive")
        self.table.maintenance.archive()


class FoldingLife(Life):
    """A life of a table with a bitmap index, most steps of which change what was folded."""

    def _made(self) -> Table:
        table = super()._made()
        table.indexes.create("bitmap", ["n", "p"], name="by_n")
        return table

    @rule(batch=BATCHES)
    def index(self, batch: Rows) -> None:
        """The index stays, and short lives undo commits often."""
        self.upsert(batch)
        self.rollback()

    @invariant()
    def manifest_lists_what_is_there(self) -> None:
        if hasattr(self, "table"):
            found = list_runs(LocalStorage(), str(self.path))
            assert set(found.manifest.runs) <= {run.name for run in found.runs}
