"""Run clusterings: rewrite the file groups of a plan into fewer or ordered ones, in one replace commit.

Rows move as they are, so queries of any instant find the same rows before and after. Where a plan has no order, the
files of a group are joined; else the engine brings its rows into order, as in a sorted bulk insert. The commit replaces
the old groups, whose files stay for older instants until they are cleaned.

Memory: on the driver a sample of 100,000 rows of each group, the order's columns only. The local engine orders one
group of the plan at a time and holds its rows (``hoodie.clustering.plan.strategy.max.bytes.per.group``); on Spark a
task holds those of one new file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakedex.commit.transaction import PendingCommit, Transaction, WriteContext, run_with_retries
from lakedex.commit.write_preconditions import require_no_buckets
from lakedex.display.blocks import Card, Facts, notes
from lakedex.errors import CommitError, InvalidInputError, LakedexError
from lakedex.index.bloom_filters import base_file_settings
from lakedex.index.protocol import CollectContext
from lakedex.index.registry import collectors
from lakedex.index.written_file import WrittenFile
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.names import new_file_id
from lakedex.maintenance.clustering import (
    ClusteringRequest,
    pending_clustering,
    plan_clustering,
    ready_clustering,
    schedule_clustering,
)
from lakedex.maintenance.rollback import rollback
from lakedex.options import WriteOptions
from lakedex.reports import Report, WriteResult, counted
from lakedex.scan.scan import Scan
from lakedex.scan.slice_reader import reader_for
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.keyed_rows import GROUP
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.clustering_plan import LAYOUT_STRATEGY, SORT_COLUMNS, ClusteringPlan
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import Instant
from lakedex.types import META_COLUMNS, RECORD_KEY, Operation, size_text
from lakedex.write.clustering_files import CURVE, ClusteredFileWriter, JoinSlices, ReadOrderedRows, SampleSlice
from lakedex.write.clustering_order import RowOrder, Sample, is_sortable
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.file_group_tasks import WriteFileGroups, decode_results
from lakedex.write.session import Session

__all__ = ["ClusteringResult", "cluster", "clustered_after"]


_SAMPLE_ROWS = 100_000


_SAMPLE_OF_SLICE = 64
"""Rows that are sampled of each slice at least."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClusteringResult(Report):
    """Result of :meth:`lakedex.Maintenance.cluster`.

    Attributes:
        instant: Instant of the clustering; None if there was nothing to do, and for a dry run of a new one.
        dry_run: Whether nothing was written.
        planned: Whether only the plan was made, which is pending now.
        order: Columns that order the rows; none if they lie as before.
        layout: ``linear`` or ``z-order``; empty without an order.
        partitions: Number of partitions.
        files_before: Number of file slices that are replaced.
        bytes_before: Their size.
        files_after: Number of new base files; of a plan and a dry run, the number that is asked for.
        bytes_after: Their size; 0 for a plan and a dry run.
        rows: Number of rows that moved; 0 for a plan and a dry run.
        seconds: Duration of the call.
        notes: Further remarks for the user.
    """

    instant: str | None = None
    dry_run: bool = False
    planned: bool = False
    order: tuple[str, ...] = ()
    layout: str = ""
    partitions: int = 0
    files_before: int = 0
    bytes_before: int = 0
    files_after: int = 0
    bytes_after: int = 0
    rows: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())

    def card(self) -> Card:
        """Files before and after, and the order."""
        if not self.files_before:
            return Card("cluster", f"no file group is worth it, {self.seconds:.2f} s", [notes(self.notes)])
        before = f"{counted(self.files_before, 'file')}, {size_text(self.bytes_before)}"
        after = counted(self.files_after, "file")
        after = f"about {after}" if self.planned or self.dry_run else f"{after}, {size_text(self.bytes_after)}"
        facts = [("before", before), ("after", after), ("partitions", f"{self.partitions:,}")]
        if self.order:
            facts.append(("order", f"{', '.join(self.order)} ({self.layout})"))
        if self.dry_run:
            head = f"would rewrite {before}"
        else:
            head = "planned" if self.planned else f"{counted(self.rows, 'row')} moved"
        title = f"cluster {self.instant or '(dry run)'}"
        return Card(title, f"{head}, {self.seconds:.2f} s", [Facts(facts), notes(self.notes)])


def cluster(
    handle: TableContext,
    session: Session,
    options: WriteOptions,
    *,
    order_by: Sequence[str] = (),
    zorder: Sequence[str] = (),
    max_file_bytes: int | None = None,
    where: Any = None,
    partitions: Sequence[str] | None = None,
    plan_only: bool = False,
    instant: str | None = None,
    dry_run: bool = False,
) -> ClusteringResult:
    """Plan a clustering and run it; see :meth:`lakedex.Maintenance.cluster`."""
    ctx = WriteContext.begin(options)
    if instant is not None:
        if order_by or zorder or max_file_bytes or where is not None or partitions is not None or plan_only:
            raise InvalidInputError("cluster: instant= runs a plan as it is; give no other argument with it")
        if dry_run:
            now = handle.snapshot()
            require_writable(now.config)
            _, plan = pending_clustering(now, instant)
            return replace(_of_plan(now, instant, plan, ctx), dry_run=True)
        found, plan = ready_clustering(handle, options, instant)
        return _run(handle, options, found, plan, ctx)
    before = handle.snapshot()
    require_writable(before.config)
    request = _request(before, options, order_by, zorder, max_file_bytes, partitions)
    if where is not None:
        chosen = _slices_under(handle, session, before, where)
        request = replace(request, groups=frozenset((item.partition, item.file_id) for item in chosen))
    if dry_run:
        return replace(_of_plan(before, None, plan_clustering(before, request, options), ctx), dry_run=True)
    return _scheduled(handle, options, request, ctx, plan_only=plan_only)


def _scheduled(
    handle: TableContext, options: WriteOptions, request: ClusteringRequest, ctx: WriteContext, *, plan_only: bool
) -> ClusteringResult:
    scheduled = schedule_clustering(handle, options, request)
    if scheduled is None:
        return ClusteringResult(seconds=ctx.seconds, notes=tuple(ctx.notes))
    found, plan = scheduled
    if plan_only:
        return replace(_of_plan(handle.snapshot(), found.requested, plan, ctx), planned=True)
    try:
        return _run(handle, options, found, plan, ctx)
    except Exception:
        # Nobody else knows of the plan: without it the groups are free again.
        if any(one.requested == found.requested for one in handle.snapshot().timeline.pending_clusterings()):
            rollback(handle, options, found.requested)
        raise


def _request(
    snapshot: Snapshot,
    options: WriteOptions,
    order_by: Sequence[str],
    zorder: Sequence[str],
    max_file_bytes: int | None,
    partitions: Sequence[str] | None,
) -> ClusteringRequest:
    if order_by and zorder:
        raise InvalidInputError("cluster takes order_by or zorder, one of the two")
    if max_file_bytes is not None and max_file_bytes < 1:
        raise InvalidInputError(f"cluster: max_file_bytes is a number of bytes from 1 on, not {max_file_bytes!r}")
    own = options.clustering
    columns = order_by or zorder or own.sort_columns or ()
    curve = bool(zorder) or (not order_by and own.layout == "z-order")
    _require_columns(snapshot, columns)
    if partitions is not None:
        known = {item.partition for item in snapshot.slices()}
        unknown = sorted(set(partitions) - known)
        if unknown:
            raise InvalidInputError(f"{snapshot.files} has no files in partition {unknown[0]!r}")
    return ClusteringRequest(
        columns=tuple(columns),
        curve=curve and len(columns) > 0,
        file_bytes=max_file_bytes or own.target_file_size or options.files.max_file_size,
        partitions=None if partitions is None else tuple(partitions),
    )


def _require_columns(snapshot: Snapshot, columns: Sequence[str]) -> None:
    schema = snapshot.schema
    for name in columns:
        if name not in schema.names and name not in META_COLUMNS:
            known = ", ".join(schema.names)
            raise InvalidInputError(f"table {snapshot.config.name} has no column {name!r}: {known}", column=name)
        if name in schema.names and not is_sortable(schema.field(name).type):
            kind = schema.field(name).type
            raise InvalidInputError(
                f"table {snapshot.config.name}: column {name!r} is a {kind}, by which rows have no order", column=name
            )


def _slices_under(handle: TableContext, session: Session, snapshot: Snapshot, where: Any) -> Sequence[FileSlice]:
    """Slices that may hold a row under a condition."""
    text = session.sql(where, lambda: snapshot.schema)
    scan = Scan(snapshot=snapshot, where=text, rules=session.rules, engine=handle.engine, to_frame=session.to_frame)
    return scan.plan().slices


def clustered_after(handle: TableContext, options: WriteOptions, result: WriteResult) -> WriteResult:
    """Cluster, or plan to, if that is due after a write (``hoodie.clustering.inline``); its result with notes on that.

    Due after ``hoodie.clustering.inline.max.commits`` commits since the last clustering. A failure is a note: the
    write's rows are committed, and the next write tries again.
    """
    own = options.clustering
    if result.instant is None or not own.after_write:
        return result
    snapshot = handle.snapshot()
    timeline = snapshot.timeline
    commits = timeline.completed(WRITE_ACTIONS)
    clustered = [i.requested for i in commits if timeline.commit_notes(i).operation == Operation.CLUSTER.value]
    since = max([*clustered, *(i.requested for i in timeline.pending_clusterings())], default="")
    if sum(instant.requested > since for instant in commits) < own.commits:
        return result
    plain = replace(options, txn=None, notes=())
    try:
        request = _request(snapshot, plain, (), (), None, None)
        done = _scheduled(handle, plain, request, WriteContext.begin(plain), plan_only=not own.inline)
    except (LakedexError, OSError) as error:
        note = f"clustering after the write failed, the next write tries again ({error})"
        return replace(result, notes=(*result.notes, note))
    if done.instant is None:
        return result
    what = "planned the clustering" if done.planned else "clustered in"
    note = f"{what} {done.instant}: {counted(done.files_before, 'file')} into {done.files_after:,}"
    return replace(result, notes=(*result.notes, note, *done.notes))


# -------------------------------------------------------------------------------------------------------- execution


def _of_plan(snapshot: Snapshot, instant: str | None, plan: ClusteringPlan, ctx: WriteContext) -> ClusteringResult:
    sizes = {(item.partition, item.file_id): item.size for item in snapshot.slices({p for p, _ in plan.file_groups})}
    order = _order_of(plan)
    return ClusteringResult(
        instant=instant,
        order=order,
        layout="" if not order else "z-order" if _is_curve(plan) else "linear",
        partitions=len({partition for partition, _ in plan.file_groups}),
        files_before=len(plan.slices),
        bytes_before=sum(sizes.get(group, 0) for group in plan.file_groups),
        files_after=sum(group.outputs for group in plan.groups),
        seconds=ctx.seconds,
        notes=tuple(ctx.notes),
    )


def _order_of(plan: ClusteringPlan) -> tuple[str, ...]:
    return tuple(name.strip() for name in plan.params.get(SORT_COLUMNS, "").split(",") if name.strip())


def _is_curve(plan: ClusteringPlan) -> bool:
    return plan.params.get(LAYOUT_STRATEGY, "").strip().lower() in ("z-order", "zorder")


def _run(
    handle: TableContext, options: WriteOptions, instant: Instant, plan: ClusteringPlan, ctx: WriteContext
) -> ClusteringResult:
    base = handle.snapshot()
    expected = _of_plan(base, instant.requested, plan, ctx)
    done = run_with_retries(
        handle,
        replace(options, txn=None),
        Operation.CLUSTER,
        lambda transaction: _Clustering(handle, options, transaction, plan).run(),
        ctx,
        base,
        instant,
    )
    return replace(
        expected,
        files_after=done.files_written,
        bytes_after=done.bytes_written,
        rows=done.inserted,
        seconds=done.seconds,
        notes=done.notes,
    )


@dataclass(frozen=True, slots=True)
class _Clustering:
    """One attempt to run a plan."""

    handle: TableContext
    options: WriteOptions
    transaction: Transaction
    plan: ClusteringPlan

    def run(self) -> WriteResult:
        """Rewrite the groups and commit."""
        plan, ctx = self.plan, self.transaction.ctx
        _require_columns(self._snapshot, _order_of(plan))
        slices = self._current_slices()
        require_no_buckets(self._snapshot, [item.file_id for item in slices.values()])
        groups = [[slices[(item.partition, item.file_id)] for item in group.slices] for group in plan.groups]
        outputs = [group.outputs for group in plan.groups]
        collecting = collectors(
            CollectContext(
                snapshot=self._snapshot,
                schema=self._snapshot.schema,
                options=self.options,
                limits=self.handle.limits,
                files=sum(outputs),
            )
        )
        with ctx.phase("write files", f"clustering files of {self.handle.files}"):
            writer = self._writer()
            task = WriteFileGroups(
                files=self.handle.files,
                timeline_path=self._snapshot.timeline.path,
                instant=self.transaction.instant,
                targets=(),
                writer=writer,
                collectors=collecting,
                repeats=self.handle.engine.repeats_tasks,
            )
            run = self._ordered if _order_of(plan) else self._joined
            results = run(task, writer, groups, outputs)
        replaced: dict[str, tuple[str, ...]] = {}
        for item in plan.slices:
            replaced[item.partition] = (*replaced.get(item.partition, ()), item.file_id)
        change = PendingCommit(results=results, schema=self._snapshot.schema, collectors=collecting, replaced=replaced)
        with ctx.phase("commit", f"committing to {self.handle.files}"):
            logs = self.transaction.commit(change)
        return WriteResult(
            instant=self.transaction.instant,
            operation=Operation.CLUSTER.value,
            inserted=sum(result.rows for result in results),
            files_written=len(results),
            bytes_written=sum(result.size for result in results),
            metadata_bytes=sum(log.size for log in logs),
        )

    @property
    def _snapshot(self) -> Snapshot:
        return self.transaction.snapshot

    def _current_slices(self) -> Mapping[tuple[str, str], FileSlice]:
        """The plan's slices as they are now.

        Raises:
            CommitError: one of them is not what the plan says.
        """
        wanted = {(item.partition, item.file_id): item for item in self.plan.slices}
        there = {
            (item.partition, item.file_id): item
            for item in self._snapshot.slices({partition for partition, _ in wanted})
        }
        for group, item in wanted.items():
            found = there.get(group)
            base = None if found is None or found.base_file is None else found.base_file.name
            logs = () if found is None else tuple(sorted(log.name for log in found.log_files))
            if found is None or base != item.base or logs != tuple(sorted(item.logs)):
                name = self.transaction.instant
                raise CommitError(
                    f"{self.handle.files}: the clustering {name} cannot be run: file group {group[1]} in partition "
                    f"{group[0]!r} is no longer what the plan says ({item.base}); remove the plan with "
                    f"maintenance.rollback('{name}')"
                )
        return {group: there[group] for group in wanted}

    def _writer(self) -> ClusteredFileWriter:
        snapshot, options = self._snapshot, self.options
        return ClusteredFileWriter(
            files=snapshot.files,
            instant=self.transaction.instant,
            reader=replace(reader_for(snapshot, None, (*META_COLUMNS, *snapshot.schema.names)), footers=None),
            settings=base_file_settings(snapshot, snapshot.schema, options),
            slices={},
        )

    def _joined(
        self,
        task: WriteFileGroups,
        writer: ClusteredFileWriter,
        groups: Sequence[Sequence[FileSlice]],
        outputs: Sequence[int],
    ) -> list[WrittenFile]:
        """Write the slices of each group one after the other, into files of about one size."""
        targets: dict[str, FileGroupTarget] = {}
        slices: dict[str, list[FileSlice]] = {}
        for group, count in zip(groups, outputs, strict=True):
            share = sum(item.size for item in group) / count
            size, current = 0.0, ""
            for item in group:
                if not current or size >= share:
                    size, current = 0.0, new_file_id()
                    targets[current] = FileGroupTarget(item.partition, current)
                    slices[current] = []
                slices[current].append(item)
                size += item.size
        join = JoinSlices(replace(task, writer=replace(writer, slices=slices)))
        label = f"lakedex {self._snapshot.config.name}: clustering {len(targets)} files"
        written = self.handle.engine.run(join, list(targets.values()), label)
        return [result for result in written if result is not None]

    def _ordered(
        self,
        task: WriteFileGroups,
        writer: ClusteredFileWriter,
        groups: Sequence[Sequence[FileSlice]],
        outputs: Sequence[int],
    ) -> list[WrittenFile]:
        """Write the rows of each group in order, cut into files by a sample."""
        columns = _order_of(self.plan)
        results: list[WrittenFile] = []
        # Executors hold rows of their own tasks; this process would hold those of all groups.
        together = len(groups) if self.handle.engine.name == "spark" else 1
        for first in range(0, len(groups), together):
            part = range(first, min(first + together, len(groups)))
            chosen, counts = [groups[n] for n in part], [outputs[n] for n in part]
            samples = self._samples(columns, chosen)
            orders, targets = self._orders(columns, chosen, counts, samples)
            written = self._exchanged(replace(task, targets=tuple(targets)), writer, columns, chosen, orders)
            expected = sum(sample.rows for group in samples for sample in group)
            found = sum(result.rows for result in written)
            if found != expected:
                raise CommitError(
                    f"{self.handle.files}: {found} rows were written of the {expected} that the clustered files hold; "
                    "nothing was committed"
                )
            results += written
        return results

    def _samples(self, columns: Sequence[str], groups: Sequence[Sequence[FileSlice]]) -> list[list[Sample]]:
        names = tuple(dict.fromkeys((*columns, RECORD_KEY)))
        reader = replace(reader_for(self._snapshot, None, names), footers=None)
        most = max(_SAMPLE_OF_SLICE, _SAMPLE_ROWS // max(len(group) for group in groups))
        slices = [item for group in groups for item in group]
        label = f"lakedex {self._snapshot.config.name}: sampling {len(slices)} files"
        found = iter(self.handle.engine.run(SampleSlice(reader, most), slices, label))
        return [[next(found) for _ in group] for group in groups]

    def _orders(
        self,
        columns: Sequence[str],
        groups: Sequence[Sequence[FileSlice]],
        outputs: Sequence[int],
        samples: Sequence[Sequence[Sample]],
    ) -> tuple[list[tuple[RowOrder, int]], list[FileGroupTarget]]:
        """The order of each group with the number of its first file, and the files."""
        orders: list[tuple[RowOrder, int]] = []
        targets: list[FileGroupTarget] = []
        for group, asked, found in zip(groups, outputs, samples, strict=True):
            rows = sum(sample.rows for sample in found)
            count = max(1, min(asked, rows))
            orders.append((RowOrder.of(columns, found, count, curve=_is_curve(self.plan)), len(targets)))
            targets += [FileGroupTarget(group[0].partition, new_file_id(), None, rows // count) for _ in range(count)]
        return orders, targets

    def _exchanged(
        self,
        task: WriteFileGroups,
        writer: ClusteredFileWriter,
        columns: Sequence[str],
        groups: Sequence[Sequence[FileSlice]],
        orders: Sequence[tuple[RowOrder, int]],
    ) -> list[WrittenFile]:
        """Bring the rows of each new file together, in order, and write it."""
        engine = self.handle.engine
        slices = [item for group in groups for item in group]
        rows = ReadOrderedRows(
            reader=writer.reader,
            slices=slices,
            order_of=[number for number, group in enumerate(groups) for _ in group],
            orders=orders,
        )
        spread = engine.numbers(len(slices))
        order = (CURVE, *columns, RECORD_KEY)
        tasks = max(1, min(len(task.targets), 4 * engine.parallelism))
        grouped = engine.exchange(engine.map(spread, rows), GROUP, tasks, tuple(dict.fromkeys(order)))
        return decode_results(engine.collect(engine.map(grouped, task)))
