"""The pipeline of all writes: tag the prepared rows, assign file groups, write, commit; again after a conflict."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.commit.transaction import PendingCommit, Transaction, WriteContext, run_with_retries
from lakedex.commit.write_preconditions import require_no_buckets
from lakedex.engine import Engine, Frame, SelectColumns
from lakedex.errors import CommitConflictError, InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.index.protocol import CollectContext
from lakedex.index.registry import collectors
from lakedex.index.written_file import Collector, WrittenFile
from lakedex.layout.contained_files import require_folders
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.keys import KeyGenerator
from lakedex.layout.log_reader import log_keys
from lakedex.maintenance.compaction import run_pending_compactions
from lakedex.maintenance.compaction_plan import BESIDE_SERVICE, busy_group, groups_in_service
from lakedex.options import WriteOptions
from lakedex.reports import TaggingReport, WriteResult
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.partitions import require_key_ranges
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.snapshot.stored_versions import stored_versions
from lakedex.tagging.candidates import CandidateFile, by_key_distance, find_key_ranges
from lakedex.tagging.global_index import MatchedKeyPolicy, resolve_global_keys
from lakedex.tagging.keyed_rows import (
    ACTION,
    GROUP,
    KEY,
    MOVE,
    PARTITION,
    POSITION,
    Effects,
    GenerateKeys,
    SummarizeKeys,
    check_keys,
    check_paths,
    require_distinct_keys,
)
from lakedex.tagging.tagging import TaggedKeys, tag
from lakedex.timeline.active import WRITE_ACTIONS, Timeline
from lakedex.types import Operation, TableType
from lakedex.write.file_assignment import (
    AssignFileGroups,
    AttachFile,
    FileAssignment,
    FileGroupTarget,
    NewRows,
    assign_inserts,
)
from lakedex.write.file_group_tasks import WriteFileGroups, decode_results
from lakedex.write.file_group_writer import FileGroupWriter, file_group_writer
from lakedex.write.log_file_writer import LogFileGroupWriter
from lakedex.write.schema_evolution import require_free_names
from lakedex.write.spec import Lookup, Placement, WriteSpec

__all__ = ["run_write"]


PACKING = 5
"""How many times smaller rows are on disk than in memory, until the table's own files say."""


def run_write(handle: TableContext, spec: WriteSpec, options: WriteOptions, ctx: WriteContext) -> WriteResult:
    """Run a write, again after a conflict with another writer (``hoodie.write.num.retries.on.conflict.failures``).

    Where it has to rewrite or remove a file group whose compaction is pending, and writes compact
    (``hoodie.compact.inline``), that plan is run first: a failed compaction is in no later write's way.
    """
    summary = _summary(handle.engine, spec)
    paths = summary.column(PARTITION).to_pylist()
    _check_rows(handle, spec, summary)
    if spec.replace is not None:
        spec.replace.check(handle.files.base_path, paths)
    without_rows = options.txn is not None or (spec.replace is not None and spec.replace.without_rows)
    if not summary.num_rows and not without_rows:
        return WriteResult(
            instant=None,
            operation=spec.operation.value,
            notes=(*ctx.notes, "there are no rows to write"),
            seconds=ctx.seconds,
        )

    def write() -> WriteResult:
        return run_with_retries(
            handle,
            options,
            spec.operation,
            lambda begun: _Attempt(handle, _keyed(handle, spec, begun), options, begun, summary).run(),
            ctx,
            spec.rows.base,
        )

    try:
        return write()
    except (UnsupportedFeatureError, CommitConflictError) as refusal:
        pending = handle.snapshot().timeline.pending({"compaction"}) if options.compaction.inline else ()
        if isinstance(refusal, CommitConflictError):
            is_planned = refusal.theirs in {instant.requested for instant in pending}
        else:
            is_planned = bool(pending) and refusal.feature == BESIDE_SERVICE
        ran = run_pending_compactions(handle, options, pending if is_planned else ())
        if not ran.instants:
            raise
    result = write()
    note = f"ran the pending compaction {', '.join(ran.instants)} first"
    return replace(result, notes=(*ran.notes, *result.notes, note))


def _keyed(handle: TableContext, spec: WriteSpec, transaction: Transaction) -> WriteSpec:
    """The write with keys for the new rows of a keyless table."""
    if spec.rows.keys.record_key or not spec.effects.inserts:
        return spec
    frame = spec.rows.frame
    frame = handle.engine.map(frame, GenerateKeys(transaction.instant, frame.schema))
    return replace(spec, rows=replace(spec.rows, frame=frame))


def _check_rows(handle: TableContext, spec: WriteSpec, summary: pa.Table) -> None:
    """Refuse bad keys and paths, and repeated keys where the write does not take them."""
    keys = spec.rows.keys
    check_keys(handle.files.base_path, keys, summary)
    if spec.effects.inserts:
        check_paths(handle.files.base_path, keys, summary)
        require_folders(handle.files, summary.column(PARTITION).to_pylist())
    if spec.refuses_duplicates and summary.num_rows:
        in_table = spec.lookup is Lookup.GLOBAL
        require_distinct_keys(
            handle.engine, spec.rows.frame, handle.files.base_path, keys.record_key, in_table=in_table
        )


def _summary(engine: Engine, spec: WriteSpec) -> pa.Table:
    """Rows, bad keys and sampled keys of each touched partition path."""
    summarize = SummarizeKeys(spec.rows.keys.separators)
    table = engine.collect(engine.map(spec.rows.frame, summarize))
    if not table.num_rows:
        return table
    totals: dict[str | None, dict[str, Any]] = {}
    for row in table.to_pylist():
        total = totals.setdefault(row[PARTITION], {**row, "rows": 0, "bad_keys": 0, "keys": []})
        total["unclear"] = total["unclear"] or row["unclear"]
        for name in ("rows", "bad_keys"):
            total[name] += row[name]
        total["keys"] += row["keys"]
    return pa.Table.from_pylist(list(totals.values()), summarize.schema)


@dataclass(frozen=True, slots=True)
class _Tagged:
    """Rows with the numbers of their files.

    Attributes:
        frame: the rows.
        holding: numbers of the files that have some.
        known: rows of known keys by partition path.
        deleted_in: numbers of files whose log files deleted the key of some.
    """

    frame: Frame
    holding: Collection[int] = ()
    known: Mapping[str, int] = field(default_factory=dict)
    deleted_in: Collection[int] = ()


@dataclass(slots=True)
class _Attempt:
    """One attempt of a write, on one snapshot of the table."""

    handle: TableContext
    spec: WriteSpec
    options: WriteOptions
    transaction: Transaction
    summary: pa.Table
    report: TaggingReport = field(default_factory=TaggingReport)
    _cached: list[Frame] = field(default_factory=list)

    @property
    def _snapshot(self) -> Snapshot:
        return self.transaction.snapshot

    def run(self) -> WriteResult:
        """Tag, plan, write and commit."""
        try:
            return self._run()
        finally:
            for frame in self._cached:
                self.handle.engine.release(frame)

    def _run(self) -> WriteResult:
        spec = self.spec
        self._check_basis()
        partitions = (
            None if spec.lookup.everywhere else [str(path) for path in self.summary.column(PARTITION).to_pylist()]
        )
        with self.transaction.ctx.phase("find keys"):
            files = self._files(partitions)
        ids = [item.base.file_id for item in files]
        require_no_buckets(self._snapshot, ids, partitions, is_consistent=self.transaction.has_bucket_index)
        if self._is_merge_on_read and self.spec.is_tagged:
            self._require_indexed_keys(partitions)
        with self.transaction.ctx.phase("find keys", f"finding the files of keys in {self.handle.files}"):
            tagged = self._tagged(files)
        targets, by_file = self._targets(files, tagged)
        replaced = self._replaced()
        touched = {(group.partition, group.file_id) for group in targets.groups if group.base is not None}
        touched |= {(path, file_id) for path, ids in (replaced or {}).items() for file_id in ids}
        self.transaction.require_unplanned(touched)
        if not targets.groups and not replaced and not self._changes_columns():
            return self._nothing_to_write()
        collecting = self._collectors(len(targets.groups))
        with self.transaction.ctx.phase("write files", f"writing files of {self.handle.files}"):
            results = self._written(tagged.frame, targets, by_file, collecting) if targets.groups else []
        if not results and not replaced and not self._changes_columns():
            return self._nothing_to_write()
        change = PendingCommit(
            results=results,
            schema=spec.rows.schema,
            collectors=collecting,
            partitions_read=self._partitions_read(targets),
            replaced=replaced,
            comments=spec.comments,
        )
        with self.transaction.ctx.phase("commit", f"committing to {self.handle.files}"):
            logs = self.transaction.commit(change)
        return WriteResult(
            instant=self.transaction.instant,
            operation=spec.operation.value,
            inserted=sum(result.inserted for result in results),
            updated=sum(result.updated for result in results),
            deleted=sum(result.deleted for result in results),
            files_written=len(results),
            bytes_written=sum(result.size for result in results),
            metadata_bytes=sum(log.size for log in logs),
            tagging=self.report,
            notes=(*_replaced_note(replaced), *_moved_note(results)),
        )

    def _written(
        self, frame: Frame, targets: FileAssignment, by_file: Mapping[int, int], collecting: Mapping[str, Collector]
    ) -> list[WrittenFile]:
        """Bring the rows of each file group together and write it."""
        engine, spec = self.handle.engine, self.spec
        routed = engine.map(frame, AssignFileGroups(self._routed_schema(), by_file, targets.inserts))
        busy = self.report.files_opened + sum(len(bins.groups) for bins in targets.inserts.values())
        tasks = max(1, min(busy, self._asked_tasks() or 4 * engine.parallelism))
        instant = self.transaction.instant
        task = WriteFileGroups(
            files=self.handle.files,
            timeline_path=self._snapshot.timeline.path,
            instant=instant,
            targets=tuple(targets.groups),
            writer=self._writer(),
            collectors=collecting,
            repeats=engine.repeats_tasks,
        )
        order = (KEY,) if spec.placement is Placement.SORTED_FILES else (POSITION,)
        grouped = engine.exchange(routed, GROUP, tasks, order, {*task.writer.texts, PARTITION})
        return decode_results(engine.collect(engine.map(grouped, task)))

    def _writer(self) -> FileGroupWriter:
        spec, snapshot = self.spec, self._snapshot
        bases = file_group_writer(snapshot, spec.rows.schema, spec.policy, self.options, self.transaction.instant)
        if not self._is_merge_on_read:
            return bases
        return LogFileGroupWriter.of(snapshot, bases, self.options.files, spec.assigned)

    @property
    def _is_merge_on_read(self) -> bool:
        return self._snapshot.config.table_type == TableType.MERGE_ON_READ

    def _collectors(self, files: int = 0) -> dict[str, Collector]:
        return collectors(
            CollectContext(
                snapshot=self._snapshot,
                schema=self.spec.rows.schema,
                options=self.options,
                limits=self.handle.limits,
                files=files,
            )
        )

    def _asked_tasks(self) -> int | None:
        """``hoodie.*.shuffle.parallelism`` of the operation."""
        options = self.options
        match self.spec.operation:
            case Operation.DELETE:
                return options.tasks.delete
            case Operation.BULK_INSERT:
                return options.tasks.bulk_insert
            case Operation.INSERT | Operation.INSERT_OVERWRITE | Operation.INSERT_OVERWRITE_TABLE:
                return options.tasks.insert
        return options.tasks.upsert

    def _changes_columns(self) -> bool:
        """Whether the columns of the whole table are replaced by others, which needs a commit even without rows."""
        spec = self.spec
        return spec.comments is not None and not self._snapshot.schema.equals(spec.rows.schema)

    def _replaced(self) -> dict[str, tuple[str, ...]] | None:
        """File ids that an overwrite replaces, by partition; None for other writes."""
        if self.spec.replace is None:
            return None
        touched = self.spec.replace.touched(self.summary.column(PARTITION).to_pylist())
        groups: dict[str, tuple[str, ...]] = {}
        for item in self._snapshot.slices(touched):
            groups[item.partition] = (*groups.get(item.partition, ()), item.file_id)
        return groups

    def _partitions_read(self, targets: FileAssignment) -> frozenset[str] | None:
        if self.spec.replace is not None:
            return self.spec.replace.touched(self.summary.column(PARTITION).to_pylist())
        if self.spec.depends_on_table:
            return None
        return frozenset(targets.inserts) if self.spec.is_tagged else frozenset()

    def _nothing_to_write(self) -> WriteResult:
        operation = self.spec.operation.value
        if self.options.txn is not None:
            # Commits say which batches were done, those that changed nothing too.
            schema = self.spec.rows.schema
            self.transaction.commit(
                PendingCommit(results=[], schema=schema, collectors=self._collectors(), replaced=self._replaced())
            )
            notes = ("no row had to be written; the commit is there to remember the batch",)
            return WriteResult(instant=self.transaction.instant, operation=operation, tagging=self.report, notes=notes)
        self.transaction.cancel()
        return WriteResult(instant=None, operation=operation, tagging=self.report, notes=("no row had to be written",))

    def _check_basis(self) -> None:
        """The input was read from, or prepared for, a state that another writer may have changed since."""
        read_at, rows = self.spec.read_at, self.spec.rows
        if read_at is not None and not self._has_rows_of(read_at):
            last = self._snapshot.timeline.last_changed
            theirs = None if last is None else last.requested
            raise CommitConflictError(
                f"{self.handle.files}: commit {theirs} came after the rows were read at {read_at}; "
                "nothing was written, run the call again",
                ours=self.transaction.instant,
                theirs=theirs,
                file_groups=frozenset(),
                retryable=False,
            )
        # Another writer may have made the very change that this write makes.
        if not any(self._snapshot.schema.equals(fit) for fit in (rows.base.schema, rows.schema)):
            raise SchemaMismatchError(
                f"{self.handle.files}: another writer changed the table's schema while the input was prepared; "
                "run the write again",
                column="",
                expected=str(rows.base.schema),
                found=str(self._snapshot.schema),
            )
        require_free_names(self._snapshot, rows.schema)

    def _has_rows_of(self, read_at: str) -> bool:
        """Whether the rows are those of the table as of its last change then: compactions since have changed none."""
        timeline = self._snapshot.timeline
        times = {
            instant.completed or instant.requested: instant.action for instant in timeline.completed(WRITE_ACTIONS)
        }
        later = {action for time, action in times.items() if time > read_at}
        return read_at in times and (not later or (self._is_merge_on_read and later == {"commit"}))

    def _files(self, partitions: Sequence[str] | None) -> list[CandidateFile]:
        """Base files of the touched partitions; needed for tagging, and for filling small ones."""
        if not self.spec.is_tagged and self.spec.placement is not Placement.SMALL_FILES:
            return []
        # Without a look-up the ranges only say which small files to fill.
        report = TaggingReport() if self.spec.lookup is Lookup.NONE else self.report
        files = find_key_ranges(self.handle.engine, self._snapshot, self.options.tagging, report, partitions)
        if isinstance(self.spec.rows.keys, KeyGenerator):
            ranges = ((item.base.relative_path, item.low, item.high) for item in files)
            require_key_ranges(self._snapshot, self.spec.rows.keys, ranges)
        return files

    def _require_indexed_keys(self, partitions: Sequence[str] | None) -> None:
        """Refuse to look keys up where only log files have some (Hudi's bucket index, and Flink, insert into these).

        Hudi's upsert brings deleted keys back by an update in a log file; a compaction that was planned between the two
        takes them out of the base file.

        Raises:
            UnsupportedFeatureError: names a file group.
        """
        timeline = self._snapshot.timeline
        with_logs = [item for item in self._snapshot.slices(partitions) if item.log_files]
        if not with_logs:
            return
        inserts = _inserts_of_logs(timeline)
        # When compactions completed: layout 1 does not say so.
        ends = {i.requested: "~" if timeline.layout == 1 else i.completed or "" for i in timeline.completed({"commit"})}
        for item in with_logs:
            compacted = ends.get(item.base_instant, "")
            known = [inserts.get((log.partition, log.name), (None, "")) for log in item.log_files]
            # Of a log file of an archived commit only its keys say what they are.
            asks = any(count is None or written < compacted for count, written in known)
            inserted = any(count for count, _ in known)
            if item.base_file is None or inserted or (asks and _has_keys_of_its_own(self._snapshot, item)):
                raise UnsupportedFeatureError(
                    f"{self.handle.files}: file group {item.file_id} in partition {item.partition!r} has rows that its "
                    "log files alone have, whose keys are in no index; compact the table first",
                    feature="inserts in log files",
                )

    def _tagged(self, files: Sequence[CandidateFile]) -> _Tagged:
        """Rows with the number of the file that holds their key."""
        engine, lookup, rows = self.handle.engine, self.spec.lookup, self.spec.rows
        if self.spec.located is not None:
            return self._located(files, self.spec.located)
        if lookup is Lookup.NONE or not (files or lookup is Lookup.GLOBAL):
            return _Tagged(rows.frame)
        tags = self._tags(files)
        if self.spec.refuses_duplicates and self.report.matches:
            known = engine.collect(tags.frame).column(KEY)[0].as_py()
            raise InvalidInputError(
                f"{self.handle.files}: {self.report.matches} keys are in the table already, for example {known!r}; "
                "use upsert, or hoodie.datasource.insert.dup.policy=drop",
                column=", ".join(rows.keys.record_key),
                count=self.report.matches,
            )
        if lookup is Lookup.GLOBAL:
            return self._decided(tags)
        by_key = lookup is Lookup.BY_KEY
        frame = _without(engine, rows.frame, PARTITION) if by_key else rows.frame
        return _Tagged(
            engine.join(frame, tags.frame, [KEY] if by_key else [PARTITION, KEY]),
            tags.holding,
            tags.matched,
            tags.deleted_in,
        )

    def _tags(self, files: Sequence[CandidateFile]) -> TaggedKeys:
        """Files of the keys."""
        spec, schema = self.spec, self.spec.rows.schema
        names = spec.policy.ordering if spec.lookup is Lookup.GLOBAL and self._known is MatchedKeyPolicy.MOVE else ()
        snapshot = self._snapshot
        if spec.rewrites and self._is_merge_on_read:
            # A key that a log file has deleted is in the base file still.
            slices = snapshot.slices({file.base.partition for file in files})
            snapshot = snapshot.with_slices(replace(item, log_files=()) for item in slices)
        tags = tag(
            self.handle.engine,
            spec.rows.frame,
            snapshot,
            files,
            self.options.tagging,
            self.report,
            self.handle.limits,
            any_partition=spec.lookup.everywhere,
            ordering=schema.field(names[0]) if names and names[0] in schema.names else None,
            rows=pc.sum(self.summary.column("rows")).as_py() or 0,
            with_deleted=spec.effects.inserts,
        )
        self._cached.append(tags.cached)
        return tags

    @property
    def _known(self) -> MatchedKeyPolicy:
        if self.spec.effects is Effects.INSERT:
            return MatchedKeyPolicy.DROP
        return MatchedKeyPolicy.MOVE if self.options.tagging.update_partition_path else MatchedKeyPolicy.STAY

    def _decided(self, tags: TaggedKeys) -> _Tagged:
        """The same where a key is one row in the whole table."""
        engine, frame = self.handle.engine, self.spec.rows.frame
        decisions, inserts = resolve_global_keys(
            engine, frame, tags.frame, self.spec.policy, self._known, len(tags.files)
        )
        self._cached.append(decisions)
        frame = engine.join(_without(engine, frame, PARTITION), decisions, [POSITION])
        rows = zip(self.summary.column(PARTITION).to_pylist(), self.summary.column("rows").to_pylist(), strict=True)
        known = {path: count - inserts.get(path, 0) for path, count in rows}
        return _Tagged(frame, tags.holding, known, tags.deleted_in)

    def _located(self, files: Sequence[CandidateFile], known: Mapping[str, int]) -> _Tagged:
        """Rows with the number of the file that was read with them."""
        deleted: list[pa.Table] = []
        deleted_in: set[int] = set()
        engine, lookup, frame = self.handle.engine, self.spec.lookup, self.spec.rows.frame
        # A row that moves is still where it was: it must not be looked for there, as new rows are under a global index.
        for moved in (False, True) if lookup.everywhere else (None,):
            if lookup is Lookup.NONE or not files:
                break
            rows = engine.map(frame, NewRows(frame.schema, moved))
            everywhere = lookup.everywhere and not moved
            found = tag(
                engine,
                rows,
                self._snapshot,
                files,
                self.options.tagging,
                self.report,
                self.handle.limits,
                any_partition=everywhere,
                with_deleted=True,
            )
            self._cached.append(found.cached)
            if found.deleted_in and not self.report.matches:
                deleted.append(engine.collect(found.frame))
                deleted_in |= found.deleted_in
            if self.report.matches:
                key = engine.collect(found.frame).column(KEY)[0].as_py()
                raise InvalidInputError(
                    f"{self.handle.files}: {self.report.matches} rows that the merge inserts have a key that is in "
                    f"the table already, for example {key!r}: the condition did not match that row, or the row moved "
                    "there from another partition",
                    column=", ".join(self.spec.rows.keys.record_key),
                    count=self.report.matches,
                )
        # Rows of log files have the file id for their file name, and a compaction may have come since they were read.
        by_id = self._is_merge_on_read
        numbers = {item.base.file_id if by_id else item.base.name: item.number for item in files}
        attach = AttachFile(frame.schema, numbers, pa.concat_tables(deleted) if deleted else None, by_id)
        return _Tagged(engine.map(frame, attach), set(numbers.values()), known, deleted_in)

    def _targets(self, files: Sequence[CandidateFile], tagged: _Tagged) -> tuple[FileAssignment, dict[int, int]]:
        """Number the groups that rows may go to."""
        targets = FileAssignment()
        by_file: dict[int, int] = {}
        for number in sorted({*tagged.holding, *tagged.deleted_in}):
            item = files[number]
            target = FileGroupTarget(item.base.partition, item.base.file_id, item.base, max(item.rows, 0))
            # The key of a row that is inserted is stored, that of a row that is changed is deleted: it does not count.
            by_file[number] = -1 if self.spec.effects is Effects.INSERT else targets.number(target)
            if number in tagged.deleted_in:
                by_file[number + len(files)] = targets.number(target) if self.spec.effects.inserts else -1
        if self.spec.effects.inserts:
            self._plan_inserts(targets, files, tagged.known)
        if self._is_merge_on_read:
            self._append_to_slices(targets)
        return targets, by_file

    def _append_to_slices(self, targets: FileAssignment) -> None:
        """Let the rows of present groups go to log files of their slices, or to new base files of whole slices."""
        service = groups_in_service(self._snapshot.timeline)
        paths = {target.partition for target in targets.groups}
        slices = {(item.partition, item.file_id): item for item in self._snapshot.slices(paths)}
        for place, target in enumerate(targets.groups):
            if target.base is not None:
                group = target.partition, target.file_id
                planned = service[group].requested if group in service else None
                if self.spec.rewrites and planned is not None:
                    raise busy_group(self.handle.files, target.partition, target.file_id, planned)
                appends = not self.spec.rewrites
                targets.groups[place] = replace(target, item=slices[group], appends=appends, service=planned)

    def _plan_inserts(
        self, targets: FileAssignment, files: Sequence[CandidateFile], matched: Mapping[str, int]
    ) -> None:
        row_bytes = self._row_bytes(files)
        by_path: dict[str, list[CandidateFile]] = {}
        # New rows go to no slice that a table service is to rewrite, nor to one with log files, as no key of these is
        # looked up.
        busy = set(groups_in_service(self._snapshot.timeline))
        if self._is_merge_on_read:
            paths = sorted({item.base.partition for item in files})
            busy.update((item.partition, item.file_id) for item in self._snapshot.slices(paths) if item.log_files)
        for item in files:
            if (item.base.partition, item.base.file_id) not in busy:
                by_path.setdefault(item.base.partition, []).append(item)
        for row in self.summary.to_pylist():
            path = row[PARTITION]
            # A key that lies in two files counts twice, so that this says too little then: never plan for no new row.
            fresh = max(row["rows"] - matched.get(path, 0), 1)
            small = [
                (item.base, item.rows if item.rows >= 0 else int(item.base.size / row_bytes))
                for item in by_key_distance(by_path.get(path, []), row["keys"])
                if item.base.size < self.options.files.small_file_limit
            ]
            assign_inserts(
                targets,
                path,
                fresh,
                row_bytes,
                small if self.spec.placement is Placement.SMALL_FILES else [],
                self.options.files,
                row["keys"] if self.spec.placement is Placement.SORTED_FILES else (),
            )

    def _row_bytes(self, files: Sequence[CandidateFile]) -> float:
        """Size of a row on disk: the table's own where it has rows, else a share of what rows take in memory."""
        counted = [item for item in files if item.rows > 0]
        if counted:
            return max(sum(item.base.size for item in counted) / sum(item.rows for item in counted), 1.0)
        in_memory = self.handle.engine.row_bytes(self.spec.rows.frame)
        return float(min(max(in_memory / PACKING, 1.0), self.options.files.record_size_estimate))

    def _routed_schema(self) -> pa.Schema:
        return pa.schema(
            [
                (GROUP, pa.int32()),
                (KEY, pa.string()),
                (PARTITION, pa.string()),
                (POSITION, pa.int64()),
                *([(ACTION, pa.int32())] if self.spec.effects is Effects.BY_ACTION else []),
                *([] if self.spec.effects is Effects.DELETE else self.spec.rows.schema),
                *([(MOVE, pa.int32())] if self.spec.lookup is Lookup.GLOBAL else []),
            ]
        )


def _inserts_of_logs(timeline: Timeline) -> dict[tuple[str, str], tuple[int, str]]:
    """Number of new keys in log files and completion of the first write, as far as the active timeline says so."""
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for instant in timeline.completed({"deltacommit"}):
        for partition, stats in timeline.commit_metadata(instant).write_stats.items():
            for stat in stats:
                if stat.log_files is not None:
                    place = partition, stat.file_name
                    count, first = found.get(place, (0, instant.completed or ""))
                    found[place] = count + stat.num_inserts, first
    return found


def _has_keys_of_its_own(snapshot: Snapshot, item: FileSlice) -> bool:
    """Whether a slice has rows of keys that its base file does not have."""
    keys = pa.concat_arrays([log_keys(snapshot.files, log) for log in item.log_files]).unique()
    stored = stored_versions(snapshot.files, item, keys, MergeSettings.of(snapshot))
    return bool((stored.live & (stored.position < 0)).any())


def _replaced_note(replaced: Mapping[str, Sequence[str]] | None) -> tuple[str, ...]:
    if not replaced:
        return ()
    groups = sum(len(ids) for ids in replaced.values())
    return (f"replaced {groups} file groups in {len(replaced)} partitions",)


def _moved_note(results: Sequence[WrittenFile]) -> tuple[str, ...]:
    moved = sum(result.moved for result in results)
    if not moved:
        return ()
    return (f"{moved} rows moved to another partition: they count as deleted in the old one, as inserted in the new",)


def _without(engine: Engine, frame: Frame, column: str) -> Frame:
    left = pa.schema([field for field in frame.schema if field.name != column])
    return engine.map(frame, SelectColumns(left))
