"""The protocol of an index over its whole life: collected, recorded, undone, pruned, built, validated, dropped.

Rules for whoever implements :class:`Index`: an entry that is absent, stale, partial or not to be trusted keeps the
file; a file that was not looked at is unknown; and :attr:`PruneResult.unused` names what could not be used, and why.
Instances are stateless; tasks are module-level values that pickle. No method reads ``hoodie.properties`` or the clock:
both are in its context.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lakedex.codec.bloom import BloomFilter
from lakedex.codec.roaring import deserialize_bitmap, serialize_bitmap
from lakedex.errors import IndexNotFoundError, UnsupportedFeatureError
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.builder import RowGroup
from lakedex.index.written_file import Collector, WrittenFile
from lakedex.layout.file_slice import BaseFile, DataFile
from lakedex.metadata.records import FILES
from lakedex.metadata.store import MetadataStore
from lakedex.metadata.writer import Keyed
from lakedex.options import IndexOptions, WriteOptions
from lakedex.reports import Difference, IndexResult, IndexStats
from lakedex.snapshot.snapshot import Limits, Snapshot, TableContext
from lakedex.types import BoolArray, IntArray, Progress

__all__ = [
    "DAMAGED",
    "BuildContext",
    "BuildPlan",
    "CollectContext",
    "CommitContext",
    "CommitPolicy",
    "DropPlan",
    "Index",
    "IndexInfo",
    "IndexUpdate",
    "KeyFilters",
    "KeyRange",
    "LiveBuild",
    "PruneResult",
    "PruningIndex",
    "RemovedFiles",
    "RowSelection",
    "Run",
    "UndoContext",
    "UnindexedBase",
    "UnusedIndex",
    "Validation",
    "ValidationContext",
    "damaged",
    "file_difference",
    "index_missing",
    "merge_records",
    "unprunable_terms",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """Rows of a base file that may match. Pickles: tasks carry it.

    Attributes:
        positions: their ordinals in the file, portable roaring bytes.
        count: how many.
        is_exact: all of them do match, so the condition need not be looked at again.
        groups: row groups of the file.
        logs: names of the log files of its slice, oldest first: the rows are those of the base file that may match or
            that one of these has a record for. It holds for a slice with just these.
    """

    positions: bytes
    count: int
    is_exact: bool
    groups: tuple[RowGroup, ...]
    logs: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: BitMap, groups: Sequence[RowGroup], *, is_exact: bool, logs: Sequence[str] = ()) -> RowSelection:
        """The selection of a bitmap."""
        return cls(
            positions=serialize_bitmap(rows),
            count=len(rows),
            is_exact=is_exact,
            groups=tuple(groups),
            logs=tuple(logs),
        )

    def is_of(self, rows_per_group: Sequence[int]) -> bool:
        """Whether it holds for a file of these row groups, in a slice without log files."""
        return not self.logs and [group.rows for group in self.groups] == list(rows_per_group)

    @property
    def rows(self) -> BitMap:
        """The positions."""
        return deserialize_bitmap(self.positions)

    def kept_groups(self) -> list[int]:
        """Numbers of the row groups that have one of the rows."""
        rows, ends = self.rows, list(accumulate(group.rows for group in self.groups))
        starts = [0, *ends[:-1]]
        return [n for n, (a, b) in enumerate(zip(starts, ends, strict=True)) if rows.range_cardinality(a, b)]

    def mask(self, rows: int) -> npt.NDArray[np.bool_]:
        """Which of a file's rows are selected."""
        mask = np.zeros(rows, np.bool_)
        mask[np.asarray(self.rows.to_array(), np.int64)] = True
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedIndex:
    """Why an index, or an index on one column, did not take part in a plan.

    Attributes:
        index: its name, or ``all indexes``.
        reason: ``no index``, ``no entry``, ``no term``, ``type``, ``function``, ``key generator``, ``other instant``,
            ``switched off``, ``damaged``.
        detail: the reason as a sentence.
        column: the column concerned; empty for the index as a whole.
    """

    index: str
    reason: str
    detail: str
    column: str = ""

    @property
    def remedy(self) -> str:
        """The call that lets the index take part next time; empty if there is none."""
        if self.reason == "switched off":
            return "leave out use_indexes=False"
        if self.reason == "no index":
            return f'table.indexes.create("{self.index}")'
        if self.reason == "no entry" and self.index == "bitmap":
            return "table.indexes.list() names the index; table.indexes.refresh(name)"
        return ""

    def __str__(self) -> str:
        return f"{self.index}{f'({self.column})' if self.column else ''}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """An index's answer.

    Attributes:
        keep: per row asked about whether the file may hold a match; None when the index had no part in the query.
        terms: conditions that it evaluated, as SQL text.
        note: what else is worth knowing.
        unused: what it could not use, and why.
        selections: of kept rows of the view, the rows of their base files that may match, where the index knows them.
    """

    keep: BoolArray | None = None
    terms: tuple[str, ...] = ()
    note: str = ""
    unused: tuple[UnusedIndex, ...] = ()
    selections: Mapping[int, RowSelection] = field(default_factory=dict)


class PruningIndex(Protocol):
    """An index that takes part in planning."""

    @property
    def name(self) -> str:
        """The name that plans show."""

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Rule out slices, of those in ``rows`` of the snapshot's view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectContext:
    """A write that is about to make files.

    Attributes:
        snapshot: the table as the write reads it.
        schema: its columns once the write is done.
        options: of the write.
        limits: the table's.
        files: how many files it makes, at most.
        renames: columns that have another name once the write is done.
    """

    snapshot: Snapshot
    schema: pa.Schema
    options: WriteOptions
    limits: Limits
    files: int = 0
    renames: Mapping[str, str] = field(default_factory=dict)


class KeyRange(NamedTuple):
    """The least and the greatest record key of a base file, None where unknown, and its rows, -1 where unknown."""

    low: str | None = None
    high: str | None = None
    rows: int = -1


class KeyFilters(Protocol):
    """Reads the filters of base files, which are given by partition and name. It pickles into tasks."""

    def costs(self, files: Sequence[tuple[str, str]]) -> list[int]:
        """About how many bytes each filter is, without reading one."""

    def read(self, files: Sequence[tuple[str, str]]) -> Iterator[tuple[int, BloomFilter]]:
        """Filters with the places of their files; a file that does not come stays a candidate."""


class CommitPolicy(Enum):
    """The fate of a commit when one of its indexes cannot be kept up."""

    REQUIRED = "required"
    """The commit fails: other engines trust the index blindly."""
    BEST_EFFORT = "best effort"
    """The commit completes with a note: a file without the index is read by queries."""


Run = Callable[..., list[Any]]
"""An engine's ``run``: a task over items, and a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitContext:
    """A write that is about to commit, under the table lock.

    Attributes:
        snapshot: the table as it is under the lock.
        before: the table's columns as the write read them.
        schema: its columns from now on.
        instant: the commit's instant.
        collectors: those of the write, by index.
        run: an engine's ``run``.
        gone: (partition, file id) of groups whose present file does not count from this commit on. Replaced files stay
            listed, with all of their records, until a cleaner removes them.
        retired: columns that are in no live file any more from this commit on.
        renames: columns that have another name from this commit on.
    """

    snapshot: Snapshot
    before: pa.Schema
    schema: pa.Schema
    instant: str
    collectors: Mapping[str, Collector]
    run: Run
    gone: frozenset[tuple[str, str]] = frozenset()
    retired: Sequence[str] = ()
    renames: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoContext:
    """An action that takes files away: a rollback, a restore or a clean, under the table lock.

    Attributes:
        snapshot: the table; without the commits that are undone, once they are.
        instant: the action's instant.
        run: runs a task over items.
    """

    snapshot: Snapshot
    instant: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFiles:
    """Files that go.

    Attributes:
        names: names of files by partition.
        partitions: partitions that have no file any more.
        were_current: whether some may have been in current slices, as those of an undone commit; a cleaner's are not.
    """

    names: Mapping[str, Sequence[str]]
    partitions: Collection[str] = ()
    were_current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUpdate:
    """Additions of an index to one delta commit of the metadata table, and beside it.

    Attributes:
        records: by metadata partition; those that the table does not have are left out.
        definitions: path of a definitions file → its content. Written before the delta commit: right before and after.
        definitions_after: the same once the commit is complete; None deletes the file.
        notes: what the user should know.
        bytes_written: size of the files that were written beside the metadata table.
        seconds: what collecting and writing the index took, added up over tasks.
    """

    records: Mapping[str, Keyed] = field(default_factory=dict)
    definitions: Mapping[str, bytes | None] = field(default_factory=dict)
    definitions_after: Mapping[str, bytes | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bytes_written: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """A build of an index of a live table, or its repair.

    Attributes:
        table: storage, engine and caches.
        snapshot: the table as it is.
        options: of the call.
        instant: names what the build writes; a heartbeat beats for it.
        name: the index, as the user named it.
        columns: those that the user asked for; None for the index's own choice.
        settings: options of this index alone.
        partitions: partition paths that are covered; None for all.
        refresh: cover what an existing index does not cover, and change nothing else.
        recompute: compute parts that exist too.
    """

    table: TableContext
    snapshot: Snapshot
    options: WriteOptions
    instant: str
    name: str
    columns: Sequence[str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    partitions: Sequence[str] | None = None
    refresh: bool = False
    recompute: bool = False

    @property
    def temp(self) -> str:
        """The build's temp folder."""
        return self.snapshot.files.temp(self.instant)


@runtime_checkable
class BuildPlan(Protocol):
    """A build whose records are published together: files are read without the lock, records written under it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the index then has."""

    @property
    def basis(self) -> object:
        """A value that has to be the same when the records are published; else the build is in conflict."""

    @property
    def groups(self) -> Mapping[str, int]:
        """New metadata partitions, with their numbers of file groups."""

    def task(self, ctx: BuildContext) -> Callable[[Any], Any] | None:
        """A task that reads a file; None if no file is read."""

    def updates(self, ctx: BuildContext, parts: Mapping[Any, Any]) -> Iterator[IndexUpdate]:
        """The records, a delta commit's at a time."""


class LiveBuild(Protocol):
    """A build that counts file by file: one that dies keeps what it covered."""

    @property
    def definitions(self) -> Mapping[str, bytes | None]:
        """Definitions files that are written under the lock before the first file is covered; None deletes one."""

    @property
    def is_new(self) -> bool:
        """Whether the index was not there, or not as it was asked for."""

    def cover(self, snapshot: Snapshot, progress: Progress | None) -> int:
        """Cover the current files that the index does not cover, and say how many; call it without the lock."""

    def result(self) -> IndexResult:
        """Files, entries and bytes of the build so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPlan:
    """Parts of a table that go with an index, in this order.

    Attributes:
        partitions: metadata partitions that leave ``hoodie.properties``, and their folders.
        definitions: definitions files to replace; None deletes one.
        folders: others below ``.hoodie/metadata``.
        columns: those of the index.
    """

    partitions: frozenset[str] = frozenset()
    definitions: Mapping[str, bytes | None] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo:
    """An index that a table has: its name, its columns, and its state (``complete``, or what it lacks)."""

    name: str
    using: str
    columns: tuple[str, ...]
    state: str = "complete"
    maintained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """A comparison of an index with the data.

    Attributes:
        table: storage, engine and caches.
        snapshot: the table as it is compared.
        name: the index.
        instant: names what a best-effort index writes to repair itself; empty where nothing is repaired.
        of_table: the whole table is compared: a file without an entry is a difference too, and an entry that is the
            file's footer, bit for bit, need not be compared with the rows.
        reads_files: False compares what can be compared without opening a base file.
        earlier: validations of the same table, of the indexes that this one is made of.
    """

    table: TableContext
    snapshot: Snapshot
    name: str
    instant: str = ""
    of_table: bool = False
    reads_files: bool = True
    earlier: Mapping[str, Validation] = field(default_factory=dict)


def file_difference(
    index: str, base: DataFile, column: str, kind: str, expected: str, found: str = "", count: int = 1
) -> Difference:
    """A disagreement between an index and a file."""
    return Difference(
        index=index,
        kind=kind,
        partition=base.partition,
        file=base.name,
        column=column,
        expected=expected,
        found=found,
        count=count,
    )


class Validation(Protocol):
    """A comparison, which adds up over :meth:`compare`."""

    @property
    def differences(self) -> Sequence[Difference]:
        """Entries that do not agree with the data."""

    @property
    def checked(self) -> int:
        """Files that were compared."""

    @property
    def entries(self) -> int:
        """Entries that were compared."""

    @property
    def damage(self) -> tuple[str, ...]:
        """Files of the index that cannot be read or are missing."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the user."""

    @property
    def repaired(self) -> int:
        """Files that the index covered again by itself."""

    def compare(self, files: Sequence[BaseFile], progress: Progress | None) -> None:
        """Compare base files with what the index has of them."""

    def uncovered(self, files: Sequence[BaseFile]) -> int:
        """How many of the files the index does not know."""

    def stale(self, files: Sequence[BaseFile]) -> int:
        """Entries of files that are not among these, the current ones."""


def merge_records(listing: Keyed, updates: Iterable[IndexUpdate]) -> dict[str, Keyed]:
    """Records of one delta commit by metadata partition: those of ``files``, then those of the indexes."""
    records: dict[str, Keyed] = {}
    for update in updates:
        for name, own in update.records.items():
            records.setdefault(name, []).extend(own)
    return {FILES.name: listing, **dict(sorted(records.items()))}


class Index(Protocol):
    """One index of a table, over its whole life. Instances are stateless values.

    A method never reads ``hoodie.properties`` or the clock: both are in its context.
    """

    commit_policy: ClassVar[CommitPolicy]
    is_built: ClassVar[bool]
    """Whether users build and drop it."""
    own_options: ClassVar[frozenset[str]]
    """Options of a build that are no ``hoodie.*`` options."""
    made_of: ClassVar[frozenset[str]]
    """Indexes that this one is computed from: it is built and dropped with them."""
    covers_logs: ClassVar[bool]
    """Whether a build reads log files too."""

    @property
    def name(self) -> str:
        """The name of its part of a written file, and the one that plans show."""

    def collector(self, ctx: CollectContext) -> Collector | None:
        """A collector of the index's part of each file that a write makes; None for nothing."""

    def records_of_commit(self, ctx: CommitContext, files: Sequence[WrittenFile]) -> IndexUpdate:
        """Cover the files of a commit; what lies beside the metadata table is written at once."""

    def after_commit(self, table: TableContext, instant: str, before: Snapshot | None = None) -> IndexUpdate:
        """Do small upkeep once a commit is complete, without the lock; no records.

        Args:
            table: the table.
            instant: the commit's.
            before: the table as the commit found it; None looks at what is there now.
        """

    def discard(self, snapshot: Snapshot, instant: str) -> None:
        """Remove what lies beside the metadata table of a commit that failed or is undone."""

    def before_undo(
        self, ctx: UndoContext, target: Snapshot, partitions: Collection[str], options: WriteOptions
    ) -> IndexUpdate:
        """Prepare for a rollback or restore, so that readers are right before it and after it.

        Args:
            ctx: the table as it is.
            target: the table once the commits are undone.
            partitions: those whose records have to hold for both; none where the commits' own log files go.
            options: of the call.
        """

    def undo(self, ctx: UndoContext, removed: RemovedFiles) -> IndexUpdate:
        """Take files out of the index."""

    def build(self, ctx: BuildContext) -> BuildPlan | LiveBuild | None:
        """Plan a build, call it under the lock; a live one of a best-effort index, None if nothing is to do."""

    def is_wanted(self, options: IndexOptions) -> bool:
        """Whether the options ask for it in a metadata table that is made."""

    def columns_again(self, snapshot: Snapshot) -> Sequence[str] | None:
        """Columns that the index gets when it is built again; None for its own choice."""

    def key_ranges(self, snapshot: Snapshot, files: Sequence[BaseFile]) -> list[KeyRange] | None:
        """Key ranges of base files, by which tagging leaves out files; None if the index has none."""

    def key_filters(self, snapshot: Snapshot) -> KeyFilters | None:
        """Filters that tagging asks for keys; None if the index has none."""

    def validate(self, ctx: ValidationContext) -> Validation:
        """Compare the index with the data it is of."""

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Names of the indexes of this kind that the table has."""

    def listed(self, snapshot: Snapshot) -> tuple[IndexInfo, ...]:
        """The same with their columns and state."""

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Remove slices of the snapshot's view, given by row, that hold no matching row; unknown keeps the slice."""

    def stats(self, snapshot: Snapshot, name: str) -> IndexStats:
        """How much of the table an index covers."""

    def drop(self, snapshot: Snapshot, name: str) -> DropPlan:
        """Plan to take an index out of the table."""


class UnindexedBase:
    """The honest default of each method of :class:`Index`: an index that does nothing and removes nothing."""

    __slots__ = ()

    commit_policy: ClassVar[CommitPolicy] = CommitPolicy.REQUIRED
    is_built: ClassVar[bool] = True
    own_options: ClassVar[frozenset[str]] = frozenset()
    made_of: ClassVar[frozenset[str]] = frozenset()
    covers_logs: ClassVar[bool] = False

    def collector(self, ctx: CollectContext) -> Collector | None:
        """Collect nothing."""
        return None

    def records_of_commit(self, ctx: CommitContext, files: Sequence[WrittenFile]) -> IndexUpdate:
        """Add no records."""
        return IndexUpdate()

    def after_commit(self, table: TableContext, instant: str, before: Snapshot | None = None) -> IndexUpdate:
        """Do nothing."""
        return IndexUpdate()

    def discard(self, snapshot: Snapshot, instant: str) -> None:
        """Nothing lies beside the metadata table."""

    def before_undo(
        self, ctx: UndoContext, target: Snapshot, partitions: Collection[str], options: WriteOptions
    ) -> IndexUpdate:
        """Prepare nothing."""
        return IndexUpdate()

    def undo(self, ctx: UndoContext, removed: RemovedFiles) -> IndexUpdate:
        """Change nothing."""
        return IndexUpdate()

    def build(self, ctx: BuildContext) -> BuildPlan | LiveBuild | None:
        """Refuse: there is nothing to build."""
        raise UnsupportedFeatureError(f"{ctx.name} is no index that is built", feature=f"index {ctx.name}")

    def is_wanted(self, options: IndexOptions) -> bool:
        """It is not."""
        return False

    def columns_again(self, snapshot: Snapshot) -> Sequence[str] | None:
        """The index's own choice."""
        return None

    def key_ranges(self, snapshot: Snapshot, files: Sequence[BaseFile]) -> list[KeyRange] | None:
        """No ranges: all files stay candidates."""
        return None

    def key_filters(self, snapshot: Snapshot) -> KeyFilters | None:
        """No filters: all files stay candidates."""
        return None

    def validate(self, ctx: ValidationContext) -> Validation:
        """Refuse: there is nothing to compare."""
        raise UnsupportedFeatureError(f"{ctx.name} is no index that is validated", feature=f"validation of {ctx.name}")

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """None."""
        return ()

    def listed(self, snapshot: Snapshot) -> tuple[IndexInfo, ...]:
        """None."""
        return ()

    def stats(self, snapshot: Snapshot, name: str) -> IndexStats:
        """Refuse: the table has no such index."""
        raise IndexNotFoundError(f"{snapshot.files} has no index {name!r}", index=name)

    def drop(self, snapshot: Snapshot, name: str) -> DropPlan:
        """Take nothing away."""
        return DropPlan()

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Keep all files."""
        return PruneResult()


def index_missing(index: str, store: MetadataStore) -> UnusedIndex:
    """Why an index of the metadata table has no part: it is not there, or not whole."""
    wrong = store.damage_of(FILES.name) or store.damage_of(index)
    if wrong:
        return damaged(index, wrong)
    return UnusedIndex(index=index, reason="no index", detail="not in the table's metadata")


DAMAGED = "damaged"
"""Reason of an index that could not be read: it may be whole again at the next look."""


def damaged(index: str, wrong: str) -> UnusedIndex:
    """An index, or the listing of files, that cannot be used."""
    return UnusedIndex(
        index=index, reason=DAMAGED, detail=f"damaged ({wrong}); table.maintenance.rebuild_metadata() builds it again"
    )


def unprunable_terms(predicate: BoundPredicate) -> tuple[UnusedIndex, ...]:
    """The terms that no index evaluates, because of a function or a cast in them."""
    texts = dict.fromkeys(term.text for term in predicate.terms if not term.is_prunable)
    return tuple(
        UnusedIndex(index="all indexes", reason="function", detail=f"{text} cannot be evaluated by bounds")
        for text in texts
    )
