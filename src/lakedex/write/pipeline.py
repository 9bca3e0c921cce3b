"""The pipeline of all writes: stage the input once, find its files, plan, write, commit; again after a conflict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.engine import Engine, Frame
from lakedex.errors import CommitConflictError, InvalidInputError, SchemaMismatchError
from lakedex.layout.base_file import iter_base_file
from lakedex.layout.key_generator import KeyGenerator, StoredKeys
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.timeline.table_config import TableConfig
from lakedex.types import RECORD_KEY, Operation
from lakedex.write.attempts import run_attempts
from lakedex.write.bitmap_columns import bitmap_columns
from lakedex.write.bitmap_runs import inline_limit
from lakedex.write.file_settings import file_schema, file_settings, indexed_columns
from lakedex.write.generations import require_unheld
from lakedex.write.merge import MergeRules
from lakedex.write.prepare import GROUP, KEY, PARTITION, POSITION, Summarise, check_keys, check_paths
from lakedex.write.result import TaggingReport, WriteResult
from lakedex.write.route import GroupTarget, Route, Targets, plan_inserts
from lakedex.write.stage import GroupResult, WriteGroups, decode_results
from lakedex.write.tagging import TagFile, find_key_ranges, nearest_first, tag
from lakedex.write.transaction import Change, Transaction

__all__ = ["Replace", "WritePlan", "key_generator", "run_write"]

PACKING = 5
"""How many times smaller rows are on disk than in memory, until the table's own files say."""


@dataclass(frozen=True, slots=True)
class Replace:
    """What an overwrite replaces: all file groups of some partitions.

    Attributes:
        partitions: partition paths that were named; None for those that the rows go to.
        whole_table: all of the table instead.
    """

    partitions: tuple[str, ...] | None = None
    whole_table: bool = False

    @property
    def without_rows(self) -> bool:
        """Whether there is something to replace even if there are no rows."""
        return self.whole_table or bool(self.partitions)

    def touched(self, written: Sequence[str]) -> frozenset[str] | None:
        """Partitions that are replaced when rows go to those ``written``; None for all."""
        if self.whole_table:
            return None
        return frozenset(written if self.partitions is None else self.partitions)

    def check(self, table: str, written: Sequence[str]) -> None:
        """Refuse rows that would lie beside the partitions that were named.

        Raises:
            InvalidInputError: names such a partition.
        """
        outside = sorted(set(written) - set(self.partitions)) if self.partitions is not None else []
        if outside:
            named = ", ".join(map(repr, self.partitions or ()))
            raise InvalidInputError(
                f"table {table}: {len(outside)} partitions of the rows, for example {outside[0]!r}, are not among "
                f"those to overwrite ({named}); name them too, or filter the frame"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What a write does with its rows.

    Attributes:
        operation: Hudi's name of the action.
        frame: prepared rows, kept by the engine; read again after a conflict.
        table_schema: the table's columns as the rows were prepared for them.
        schema: its columns after the write.
        keys: the table's key builder.
        rules: how rows meet stored rows.
        look_up: find the files of the keys first.
        any_partition: keys come without a partition path.
        fill_small_files: new rows go to small files first.
        sort: sort rows of new files by key.
        drop_known: rows whose key is stored are left out (``hoodie.datasource.insert.dup.policy=drop``).
        fail_known: they are an error (``fail``).
        read_at: the last change (``Snapshot.last_change``) that was seen when the rows were read from this table.
        replace: what the rows take the place of; None adds to what is there.
    """

    operation: Operation
    frame: Frame
    table_schema: pa.Schema
    schema: pa.Schema
    keys: KeyGenerator | StoredKeys
    rules: MergeRules
    look_up: bool = True
    any_partition: bool = False
    fill_small_files: bool = True
    sort: bool = False
    drop_known: bool = False
    fail_known: bool = False
    read_at: str | None = None
    replace: Replace | None = None


def key_generator(config: TableConfig, snapshot: Snapshot) -> KeyGenerator:
    """The table's key builder.

    A COMPLEX key of one field is written ``field:value`` by some releases and bare by others, and the table does not
    say which: stored keys do. A table without rows takes ``field:value``, the default of Hudi 1.1.
    """
    named = config.key_generator.startswith("COMPLEX") or len(config.record_key_fields) > 1
    if named and len(config.record_key_fields) == 1:
        named = _stored_keys_are_named(snapshot, config.record_key_fields[0])
    return KeyGenerator(
        record_key=config.record_key_fields,
        partition_by=config.partition_fields,
        named_parts=named,
        hive_style=config.hive_style,
        url_encode=config.url_encode,
    )


def _stored_keys_are_named(snapshot: Snapshot, key_field: str) -> bool:
    for base in snapshot.base_files():
        path = f"{snapshot.base_path}/{base.relative_path}"
        for batch in iter_base_file(snapshot.storage, path, [RECORD_KEY, key_field], batch_rows=64):
            if batch.num_rows:
                built = KeyGenerator(record_key=(key_field,), named_parts=True).keys(batch)
                return bool(batch.column(0)[0].as_py() == built[0].as_py())
    return True


def run_write(handle: TableHandle, plan: WritePlan, options: WriteOptions, started: float) -> WriteResult:
    """Run a write, again after a conflict with another writer (``hoodie.write.num.retries.on.conflict.failures``)."""
    summary = _summary(handle.engine, plan)
    check_keys(handle.base_path, plan.keys, summary)
    if plan.rules.insert_new:
        check_paths(handle.base_path, plan.keys, summary)
    if plan.replace is not None:
        plan.replace.check(handle.base_path, summary.column(PARTITION).to_pylist())
    if not summary.num_rows and not (plan.replace and plan.replace.without_rows):
        return WriteResult(
            instant=None,
            operation=plan.operation.value,
            notes=(*options.notes, "the frame has no rows"),
            seconds=time.perf_counter() - started,
        )
    return run_attempts(
        handle,
        options,
        plan.operation,
        lambda transaction: _Attempt(handle, plan, options, transaction, summary).run(),
        started,
    )


def _summary(engine: Engine, plan: WritePlan) -> pa.Table:
    """Rows, bad keys, bytes and sampled keys of each touched partition path."""
    table = engine.collect(engine.map(plan.frame, Summarise()))
    if not table.num_rows:
        return table
    totals: dict[str | None, dict[str, Any]] = {}
    for row in table.to_pylist():
        total = totals.setdefault(
            row[PARTITION], {PARTITION: row[PARTITION], "rows": 0, "bad_keys": 0, "bytes": 0, "keys": []}
        )
        for name in ("rows", "bad_keys", "bytes"):
            total[name] += row[name]
        total["keys"] += row["keys"]
    return pa.Table.from_pylist(list(totals.values()), Summarise().schema)


@dataclass(slots=True)
class _Attempt:
    """One attempt of a write, on one picture of the table."""

    handle: TableHandle
    plan: WritePlan
    options: WriteOptions
    transaction: Transaction
    summary: pa.Table
    report: TaggingReport = field(default_factory=TaggingReport)

    @property
    def _snapshot(self) -> Snapshot:
        return self.transaction.snapshot

    def run(self) -> WriteResult:
        """Tag, plan, write and commit."""
        plan = self.plan
        self._check_basis()
        partitions = None if plan.any_partition else [str(path) for path in self.summary.column(PARTITION).to_pylist()]
        files = self._files(partitions)
        frame, matched = self._tagged(files)
        targets, by_file = self._targets(files, matched)
        replaced = self._replaced()
        if not targets.groups and not replaced:
            return self._nothing_to_write()
        indexed = indexed_columns(self._snapshot, plan.schema, self.options)
        results = self._written(frame, targets, by_file, indexed) if targets.groups else []
        if not results and not replaced:
            return self._nothing_to_write()
        change = Change(
            results=results, schema=plan.schema, indexed=indexed, relied_on=self._relied_on(targets), replaced=replaced
        )
        logs = self.transaction.commit(change)
        return WriteResult(
            instant=self.transaction.instant,
            operation=plan.operation.value,
            inserted=sum(result.inserted for result in results),
            updated=sum(result.updated for result in results),
            deleted=sum(result.deleted for result in results),
            files_written=len(results),
            bytes_written=sum(result.size for result in results),
            metadata_bytes=sum(log.size for log in logs),
            tagging=self.report,
            notes=_replaced_note(replaced),
        )

    def _written(
        self, frame: Frame, targets: Targets, by_file: Mapping[int, int], indexed: Mapping[str, pa.DataType]
    ) -> list[GroupResult]:
        """Bring the rows of each file group together and write it."""
        engine, plan = self.handle.engine, self.plan
        routed = engine.map(frame, Route(self._routed_schema(), by_file, targets.inserts))
        busy = self.report.files_opened + sum(len(bins.groups) for bins in targets.inserts.values())
        tasks = max(1, min(busy, self.options.shuffle_tasks or 4 * engine.parallelism))
        grouped = engine.exchange(routed, GROUP, tasks, (KEY,) if plan.sort else (POSITION,))
        stage = WriteGroups(
            storage=self.handle.storage,
            base_path=self.handle.base_path,
            instant=self.transaction.instant,
            file_schema=file_schema(plan.schema),
            targets=tuple(targets.groups),
            rules=plan.rules,
            settings=file_settings(self._snapshot, plan.schema, self.options),
            indexed=indexed,
            bitmaps=bitmap_columns(self.handle.storage, self.handle.base_path, plan.schema),
            inline_bitmaps=inline_limit(len(targets.groups)),
        )
        return decode_results(engine.collect(engine.map(grouped, stage)))

    def _replaced(self) -> dict[str, tuple[str, ...]] | None:
        """File ids that an overwrite replaces, by partition; None for other writes."""
        if self.plan.replace is None:
            return None
        touched = self.plan.replace.touched(self.summary.column(PARTITION).to_pylist())
        groups: dict[str, tuple[str, ...]] = {}
        for item in self._snapshot.slices(touched):
            groups[item.partition] = (*groups.get(item.partition, ()), item.file_id)
        return groups

    def _relied_on(self, targets: Targets) -> frozenset[str] | None:
        if self.plan.replace is not None:
            return self.plan.replace.touched(self.summary.column(PARTITION).to_pylist())
        return frozenset(targets.inserts) if self.plan.look_up else frozenset()

    def _nothing_to_write(self) -> WriteResult:
        self.transaction.cancel()
        operation = self.plan.operation.value
        return WriteResult(instant=None, operation=operation, tagging=self.report, notes=("no row had to be written",))

    def _check_basis(self) -> None:
        """The input was read from, or prepared for, a state that another writer may have changed since."""
        if self.plan.read_at is not None and self._snapshot.last_change != self.plan.read_at:
            last = self._snapshot.timeline.last_changed
            theirs = None if last is None else last.requested
            raise CommitConflictError(
                f"{self.handle.base_path}: commit {theirs} came after the rows were read at {self.plan.read_at}; "
                "nothing was written, run the call again",
                ours=self.transaction.instant,
                theirs=theirs,
                file_groups=frozenset(),
                retryable=False,
            )
        # Another writer may have made the very change that this write makes.
        if not any(self._snapshot.schema.equals(fit) for fit in (self.plan.table_schema, self.plan.schema)):
            raise SchemaMismatchError(
                f"{self.handle.base_path}: another writer changed the table's schema while the input was prepared; "
                "run the write again",
                column="",
                expected=str(self.plan.table_schema),
                found=str(self._snapshot.schema),
            )
        require_unheld(self._snapshot, self.plan.schema)

    def _files(self, partitions: Sequence[str] | None) -> list[TagFile]:
        """Base files of the touched partitions; needed for tagging, and for filling small ones."""
        if not self.plan.look_up and not self.plan.fill_small_files:
            return []
        before, started = self.handle.storage.counted.copy(), time.perf_counter()
        files = find_key_ranges(self.handle.engine, self._snapshot, self.options, self.report, partitions)
        read = self.handle.storage.counted - before
        if self.plan.look_up:
            self.report.requests += read.requests
            self.report.bytes_read += read.bytes_read
            self.report.seconds["ranges"] = time.perf_counter() - started
        else:
            self.report = TaggingReport()
        return files

    def _tagged(self, files: Sequence[TagFile]) -> tuple[Frame, Mapping[str, int]]:
        """Rows with the number of the file that holds their key, and how many keys of each partition are known."""
        engine, plan = self.handle.engine, self.plan
        if not plan.look_up or not files:
            return plan.frame, {}
        tags = tag(
            engine, plan.frame, self._snapshot, files, self.options, self.report, any_partition=plan.any_partition
        )
        if plan.fail_known and self.report.matches:
            known = engine.collect(tags.frame).column(KEY)[0].as_py()
            raise InvalidInputError(
                f"{self.handle.base_path}: {self.report.matches} keys are in the table already, for example {known!r}; "
                "use upsert, or hoodie.datasource.insert.dup.policy=drop",
                column=", ".join(plan.keys.record_key),
                count=self.report.matches,
            )
        frame = engine.join(
            _without(engine, plan.frame, PARTITION) if plan.any_partition else plan.frame,
            tags.frame,
            [KEY] if plan.any_partition else [PARTITION, KEY],
        )
        return frame, tags.matched

    def _targets(self, files: Sequence[TagFile], matched: Mapping[str, int]) -> tuple[Targets, dict[int, int]]:
        """Number the groups that rows may go to."""
        targets = Targets()
        by_file: dict[int, int] = {}
        for item in files if self.plan.look_up else ():
            if self.plan.drop_known:
                by_file[item.number] = -1
            else:
                target = GroupTarget(item.base.partition, item.base.file_id, item.base, max(item.rows, 0))
                by_file[item.number] = targets.number(target)
        if self.plan.rules.insert_new:
            self._plan_inserts(targets, files, matched)
        return targets, by_file

    def _plan_inserts(self, targets: Targets, files: Sequence[TagFile], matched: Mapping[str, int]) -> None:
        row_bytes = self._row_bytes(files)
        for row in self.summary.to_pylist():
            path = row[PARTITION]
            # A key that lies in two files counts twice, so that this says too little then: never plan for no new row.
            fresh = max(row["rows"] - matched.get(path, 0), 1)
            own = [item for item in files if item.base.partition == path]
            small = [
                (item.base, item.rows if item.rows >= 0 else int(item.base.size / row_bytes))
                for item in nearest_first(own, row["keys"])
                if item.base.size < self.options.small_file_limit
            ]
            plan_inserts(
                targets,
                path,
                fresh,
                row_bytes,
                small if self.plan.fill_small_files else [],
                self.options,
                row["keys"] if self.plan.sort else (),
            )

    def _row_bytes(self, files: Sequence[TagFile]) -> float:
        """Size of a row on disk: the table's own where it has rows, else a share of what rows take in memory."""
        counted = [item for item in files if item.rows > 0]
        if counted:
            return max(sum(item.base.size for item in counted) / sum(item.rows for item in counted), 1.0)
        rows = pc.sum(self.summary.column("rows")).as_py() or 1
        in_memory = (pc.sum(self.summary.column("bytes")).as_py() or 0) / rows
        return float(min(max(in_memory / PACKING, 1.0), self.options.record_size_estimate))

    def _routed_schema(self) -> pa.Schema:
        return pa.schema(
            [
                (GROUP, pa.int32()),
                (KEY, pa.string()),
                (PARTITION, pa.string()),
                (POSITION, pa.int64()),
                *self._payload(),
            ]
        )

    def _payload(self) -> list[pa.Field]:
        return [] if self.plan.rules.delete_all else list(self.plan.schema)


def _replaced_note(replaced: Mapping[str, Sequence[str]] | None) -> tuple[str, ...]:
    if not replaced:
        return ()
    groups = sum(len(ids) for ids in replaced.values())
    return (f"replaced {groups} file groups in {len(replaced)} partitions",)


@dataclass(frozen=True, slots=True)
class _Without:
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(self.schema.names)


def _without(engine: Engine, frame: Frame, column: str) -> Frame:
    kept = pa.schema([field for field in frame.schema if field.name != column])
    return engine.map(frame, _Without(kept))
