"""Read the active timeline, and move instants from requested to inflight to completed.

The timeline is one listing of ``.hoodie/timeline`` (layout 1: of ``.hoodie``). All files of an instant stay until it is
archived; its state is the highest one present. Archived instants are not read: instants before the active timeline are
committed (``BaseHoodieTimeline.isBeforeTimelineStarts``).

A restore undoes commits one by one, and files between the savepoint and the last commit may have been cleaned, so its
intermediate states never existed as tables. While a restore is inflight, all commits that it undoes count as pending.

Each state of an instant is a new file that only one writer can create. ``_FILES`` lists the states of each action and
the names of their files, which are equal in both layouts (InstantFileNameGeneratorV1 and V2) except that layout 2 has
the completion time in the name of the completed file. A state needs its predecessor
(ActiveTimelineV2.transitionPendingState). Completing takes effect in one put-if-absent; a failed call with unknown
effect raises :class:`~lakedex.errors.CommitStateUnknownError`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from lakedex.codec.table_paths import last_part
from lakedex.errors import CommitConflictError, CommitError, CommitStateUnknownError, CorruptFileError, LakedexError
from lakedex.io.storage import FileInfo, Storage, TableFiles
from lakedex.timeline.clustering_plan import ClusteringPlan, clustering_plan_of_record
from lakedex.timeline.commit_metadata import (
    CommitMetadata,
    CommitNotes,
    RollbackMetadata,
    RollbackPlan,
    decode_body,
    decode_commit_metadata,
    decode_commit_notes,
    decode_rollback_metadata,
    decode_rollback_plan,
)
from lakedex.timeline.instant import Instant, State, comparable_action, parse_instant_name
from lakedex.timeline.service_metadata import (
    CleanMetadata,
    CleanPlan,
    CompactionOperation,
    RestoreMetadata,
    RestorePlan,
    SavepointMetadata,
    decode_clean_metadata,
    decode_clean_plan,
    decode_compaction_plan,
    decode_restore_metadata,
    decode_restore_plan,
    decode_savepoint_metadata,
)

__all__ = [
    "TIMELINE_FOLDER",
    "WRITE_ACTIONS",
    "Plans",
    "Timeline",
    "complete",
    "create_inflight",
    "create_requested",
    "is_under_way",
    "remove_file",
    "remove_pending",
    "require_inflight",
    "revert_completed",
]


T = TypeVar("T")


_UNREAD: Final = object()


class Plans:
    """Cache of decoded ``.requested`` files; a damaged one is cached as its error.

    A file of the same size and time in a later listing is the same, so each file is read once.

    Args:
        storage: Storage of the table.
        path: Folder of the timeline.
        infos: Listing of the folder.
        known: Plans of an earlier listing.
    """

    __slots__ = ("_listed", "_path", "_read", "_storage")

    def __init__(self, storage: Storage, path: str, infos: Iterable[FileInfo], known: Plans | None = None) -> None:
        self._storage = storage
        self._path = path
        self._listed = {info.name: info for info in infos if info.name.endswith(".requested")}
        self._read: dict[FileInfo, object] = {}
        if known is not None:
            listed = set(self._listed.values())
            self._read = {info: plan for info, plan in tuple(known._read.items()) if info in listed}

    def read(self, name: str, decode: Callable[[bytes, str], T]) -> T:
        """Read a plan by its file's name.

        Raises:
            CorruptFileError: The file is damaged.
            FileNotFoundError: The file does not exist.
        """
        info = self._listed.get(name)
        found = _UNREAD if info is None else self._read.get(info, _UNREAD)
        if found is _UNREAD:
            path = f"{self._path}/{name}"
            try:
                found = decode(self._storage.read(path), path)
            except CorruptFileError as error:
                found = error.with_traceback(None)
            if info is not None:
                self._read[info] = found
        if isinstance(found, CorruptFileError):
            raise found
        return found  # type: ignore[return-value]  # A file is read by one decoder.


TIMELINE_FOLDER: Final = ".hoodie/timeline"


WRITE_ACTIONS: Final = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions whose completion changes the table's data."""


_BEGINNING: Final = WRITE_ACTIONS | {"compaction", "logcompaction", "clustering"}
"""Actions that can start the active timeline. Others, such as restores, may outlast later commits."""


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Instants of a table at one listing. Immutable; :meth:`reload` returns a new one if the folder changed.

    ``instants`` are sorted by requested time. ``first_active`` is the start of the active timeline: the first write
    without a savepoint, since savepoints exclude old commits from archival and leave gaps after them, or the last write
    if all have savepoints, as after a restore. ``layout`` is the timeline layout: 1 for table version 6, 2 for 8 and 9.
    """

    storage: Storage
    path: str
    zone: str
    instants: tuple[Instant, ...]
    first_active: Instant | None
    _completed: dict[str, Instant] = field(repr=False)
    _known: frozenset[str] = field(repr=False)
    _plans: Plans = field(repr=False)
    _done: tuple[Instant, ...] = field(repr=False)
    _undone: tuple[Instant, ...] = field(repr=False)
    _metadata: dict[str, CommitMetadata] = field(default_factory=dict, repr=False)
    _notes: dict[str, CommitNotes] = field(default_factory=dict, repr=False)
    layout: int = 2
    _listing: tuple[FileInfo, ...] | None = field(default=None, repr=False)
    _written: dict[str, bytes] = field(default_factory=dict, repr=False)
    _cleans: dict[str, CleanMetadata] = field(default_factory=dict, repr=False)

    @classmethod
    def load(
        cls,
        files: TableFiles,
        subfolder: str = TIMELINE_FOLDER,
        *,
        zone: str = "UTC",
        layout: int = 2,
        listing: Iterable[FileInfo] | None = None,
    ) -> Timeline:
        """List the timeline.

        Args:
            files: the table's files.
            subfolder: Folder of the timeline below it.
            zone: ``hoodie.table.timeline.timezone`` of the table.
            layout: ``hoodie.timeline.layout.version`` of the table.
            listing: Entries of the folder; ``None`` lists it.
        """
        return cls._load(files.storage, files.path(subfolder), zone, layout, None, listing)

    @classmethod
    def _load(
        cls,
        storage: Storage,
        path: str,
        zone: str,
        layout: int,
        older: Timeline | None,
        listing: Iterable[FileInfo] | None,
    ) -> Timeline:
        latest: dict[tuple[str, str], Instant] = {}
        infos = tuple(storage.list(path) if listing is None else listing)
        if older is not None and infos == older._listing:
            return older
        for info in infos:
            found = None if info.is_dir else parse_instant_name(info.name, info.modified, zone)
            if found is None:
                continue
            key = (found.requested, comparable_action(found.action))
            known = latest.get(key)
            # Two completed files of one instant: others have acted on the earlier completion.
            if known is None or (-found.state, found.completed or "") < (-known.state, known.completed or ""):
                latest[key] = found
        plans = Plans(storage, path, infos, None if older is None else older._plans)
        instants = tuple(sorted(latest.values(), key=Instant.order))
        return replace(cls._of(storage, path, zone, layout, instants, plans)._without_restored(), _listing=infos)

    @classmethod
    def _of(
        cls, storage: Storage, path: str, zone: str, layout: int, instants: tuple[Instant, ...], plans: Plans
    ) -> Timeline:
        completed: dict[str, Instant] = {}
        done = tuple(i for i in instants if i.is_completed)
        undone = tuple(i for i in instants if not i.is_completed)
        pending = {i.requested for i in undone if i.action != "savepoint"}
        for instant in done:
            # A savepoint shares the requested time of its commit, and represents it once the commit is archived, but
            # not while it is being undone.
            known = instant.requested in completed or instant.requested in pending
            if not (instant.action == "savepoint" and known):
                completed[instant.requested] = instant
        savepointed = {instant.requested for instant in instants if instant.action == "savepoint"}
        writes = [instant for instant in instants if instant.action in _BEGINNING]
        first = next((i for i in writes if i.requested not in savepointed), writes[-1] if writes else None)
        known_times = frozenset(i.requested for i in instants)
        return cls(storage, path, zone, instants, first, completed, known_times, plans, done, undone, layout=layout)

    def _without_restored(self) -> Timeline:
        undone: set[str] = set()
        for restore in (i for i in self.pending({"restore"}) if i.state is State.INFLIGHT):
            with contextlib.suppress(FileNotFoundError):  # It was completed or archived since the listing.
                undone |= {requested for requested, _ in self.restore_plan(restore.requested).instants}
        return self.without(undone) if undone else self

    def without(self, undone: Collection[str]) -> Timeline:
        """Timeline in which these commits count as pending; their files stay listed."""
        instants = tuple(
            replace(instant, state=State.INFLIGHT, completed=None)
            if instant.requested in undone and instant.is_completed and instant.action in WRITE_ACTIONS
            else instant
            for instant in self.instants
        )
        return self._with_instants(instants)

    def with_completed(self, done: Instant, body: bytes | None = None) -> Timeline:
        """The timeline once an instant is completed, without another listing.

        Args:
            done: The completed instant.
            body: Content of its file; ``None`` reads it if it is needed.
        """
        key = (done.requested, done.action)
        others = (i for i in self.instants if (i.requested, comparable_action(i.action)) != key)
        found = self._with_instants(tuple(sorted((*others, done), key=Instant.order)))
        if body is not None:
            found._written[done.file_name] = body
        return found

    def _with_instants(self, instants: tuple[Instant, ...]) -> Timeline:
        found = Timeline._of(self.storage, self.path, self.zone, self.layout, instants, self._plans)
        found._metadata.update(self._metadata)
        found._notes.update(self._notes)
        found._cleans.update(self._cleans)
        return found

    def once_gone(self, undone: Collection[str]) -> Timeline:
        """Timeline without these commits."""
        instants = tuple(i for i in self.instants if i.requested not in undone or i.action not in WRITE_ACTIONS)
        return Timeline._of(self.storage, self.path, self.zone, self.layout, instants, self._plans)

    def reload(self, listing: Iterable[FileInfo] | None = None) -> Timeline:
        """List again; the same object if nothing changed. Cached content of instants that still exist is reused.

        Args:
            listing: Entries of the folder; ``None`` lists it.
        """
        fresh = Timeline._load(self.storage, self.path, self.zone, self.layout, self, listing)
        if fresh is self:
            return self
        names = {instant.file_name for instant in fresh.instants}
        fresh._metadata.update((name, known) for name, known in self._metadata.items() if name in names)
        fresh._notes.update((name, known) for name, known in self._notes.items() if name in names)
        fresh._cleans.update((name, known) for name, known in self._cleans.items() if name in names)
        fresh._written.update((name, body) for name, body in self._written.items() if name in names)
        return fresh

    def completed(self, actions: Collection[str] | None = None) -> tuple[Instant, ...]:
        """Completed instants of the given actions; None means all."""
        return self._done if actions is None else tuple(i for i in self._done if i.action in actions)

    def pending(self, actions: Collection[str] | None = None) -> tuple[Instant, ...]:
        """Requested and inflight instants of the given actions; None means all."""
        return self._undone if actions is None else tuple(i for i in self._undone if i.action in actions)

    @property
    def last_completed(self) -> Instant | None:
        """Completed commit, delta commit or replace commit with the largest requested time."""
        commits = self.completed(WRITE_ACTIONS)
        return commits[-1] if commits else None

    @property
    def last_changed(self) -> Instant | None:
        """Commit, delta commit or replace commit with the largest completion time, perhaps not the last requested."""
        commits = self.completed(WRITE_ACTIONS)
        return max(commits, key=lambda instant: instant.completed or instant.requested, default=None)

    @property
    def last_time(self) -> str:
        """Largest requested or completion time; new ones must be larger. Empty without instants.

        Layout 1 orders files by requested time only, and completion times are those of the store's clock.
        """
        if self.layout == 1:
            return self.instants[-1].requested if self.instants else ""
        return max((max(i.requested, i.completed or "") for i in self.instants), default="")

    def contains(self, requested: str, action: str | None = None) -> bool:
        """Whether there is an instant of this requested time, in any state."""
        if action is None:
            return requested in self._known
        return any(i.requested == requested and i.action == action for i in self.instants)

    def is_completed(self, requested: str) -> bool:
        """Whether the instant is completed on the active timeline."""
        return requested in self._completed

    def completion_time(self, requested: str) -> str | None:
        """Completion time of the instant; None if it is pending, archived or unknown."""
        instant = self._completed.get(requested)
        return instant.completed if instant is not None else None

    def is_committed(self, requested: str) -> bool:
        """Whether a file of this instant counts: completed, or earlier than the active timeline."""
        if requested in self._completed:
            return True
        first = self.first_active
        return first is not None and requested < first.requested and requested not in self._known

    def read(self, file_name: str) -> bytes:
        """Bytes of one of the timeline's files."""
        return self.storage.read(f"{self.path}/{file_name}")

    def commit_metadata(self, instant: Instant | str) -> CommitMetadata:
        """Decode a completed commit, delta commit or replace commit; cached.

        Raises:
            KeyError: No instant of this requested time is completed.
            CorruptFileError: The file is damaged, or empty in layout 2.
        """
        found = self._completed[instant] if isinstance(instant, str) else instant
        known = self._metadata.get(found.file_name)
        if known is None:
            body, path = self._commit_body(found)
            known = CommitMetadata(operation=None) if body is None else decode_commit_metadata(body, path)
            self._metadata[found.file_name] = known
        return known

    def _commit_body(self, instant: Instant) -> tuple[bytes | None, str]:
        """Body and path of a completed commit; None for an empty commit."""
        written = self._written.get(instant.file_name)
        body, path = self.read(instant.file_name) if written is None else written, f"{self.path}/{instant.file_name}"
        # CommitMetadataSerDeV1: in layout 1 a commit without a body is empty.
        return None if not body and instant.is_legacy else body, path

    def has_read(self, instant: Instant) -> bool:
        """Whether :meth:`commit_metadata` of the instant needs no read."""
        return instant.file_name in self._metadata or instant.file_name in self._written

    def commit_notes(self, instant: Instant | str) -> CommitNotes:
        """Decode :meth:`commit_metadata` without its files, much faster if there are many.

        Raises:
            KeyError: No instant of this requested time is completed.
            CorruptFileError: The file is damaged, or empty in layout 2.
        """
        found = self._completed[instant] if isinstance(instant, str) else instant
        cached = self._metadata.get(found.file_name)
        if cached is not None:
            return cached.notes
        known = self._notes.get(found.file_name)
        if known is None:
            body, path = self._commit_body(found)
            known = CommitNotes(operation=None) if body is None else decode_commit_notes(body, path)
            self._notes[found.file_name] = known
        return known

    def rollback_plan(self, requested: str) -> RollbackPlan:
        """Plan of a rollback, pending or completed.

        Raises:
            CorruptFileError: The plan is damaged, or names files outside of the table.
        """
        found = self._begun_rollback_plan(requested)
        if found is None:
            path = f"{self.path}/{requested}.rollback.requested"
            raise CorruptFileError(path, 0, "a rollback plan", "the beginning of one")
        return found

    def begun_rollback_plan(self, requested: str) -> RollbackPlan | None:
        """Plan of a pending rollback; None if it is gone, or incomplete because its writer died.

        Raises:
            CorruptFileError: The plan is complete, and names files outside of the table.
        """
        try:
            return self._begun_rollback_plan(requested)
        except FileNotFoundError:
            return None

    def _begun_rollback_plan(self, requested: str) -> RollbackPlan | None:
        return self._plans.read(f"{requested}.rollback.requested", _decode_rollback)

    def rollback_metadata(self, instant: Instant) -> RollbackMetadata:
        """Decode a completed rollback."""
        return decode_rollback_metadata(self.read(instant.file_name), f"{self.path}/{instant.file_name}")

    def clean_plan(self, requested: str) -> CleanPlan:
        """Plan of a clean, pending or completed."""
        return self._plans.read(f"{requested}.clean.requested", decode_clean_plan)

    def compaction_plan(self, instant: Instant) -> tuple[CompactionOperation, ...]:
        """Plan of a compaction or log compaction.

        Raises:
            CorruptFileError: The plan is damaged, or names a file outside of the table.
            FileNotFoundError: The plan was taken back since the listing.
        """
        return self._plans.read(f"{instant.requested}.{instant.action}.requested", decode_compaction_plan)

    def files_being_cleaned(self) -> set[tuple[str, str]]:
        """Partition and name of files that pending cleans delete; they stay in listings until then."""
        found: set[tuple[str, str]] = set()
        for instant in self.pending({"clean"}):
            with contextlib.suppress(FileNotFoundError, CorruptFileError):  # Just completed, or without a plan yet.
                files = self.clean_plan(instant.requested).files
                found.update((partition, last_part(path)) for partition, paths in files.items() for path in paths)
        return found

    def clean_metadata(self, instant: Instant) -> CleanMetadata:
        """Decode a completed clean; cached."""
        name = instant.file_name
        if name not in self._cleans:
            body = self._written[name] if name in self._written else self.read(name)
            self._cleans[name] = decode_clean_metadata(body, f"{self.path}/{name}")
        return self._cleans[name]

    def savepoint_metadata(self, instant: Instant) -> SavepointMetadata:
        """Decode a completed savepoint."""
        return decode_savepoint_metadata(self.read(instant.file_name), f"{self.path}/{instant.file_name}")

    def restore_plan(self, requested: str) -> RestorePlan:
        """Plan of a restore, pending or completed."""
        return self._plans.read(f"{requested}.restore.requested", decode_restore_plan)

    def restore_metadata(self, instant: Instant) -> RestoreMetadata:
        """Decode a completed restore."""
        return decode_restore_metadata(self.read(instant.file_name), f"{self.path}/{instant.file_name}")

    def pending_rollback_of(self, requested: str) -> Instant | None:
        """Pending rollback of an instant; None if there is none."""
        for rollback in self.pending({"rollback"}):
            plan = self.begun_rollback_plan(rollback.requested)
            if plan is not None and plan.instant == requested:
                return rollback
        return None

    def is_clustering(self, instant: Instant) -> bool:
        """Whether a pending action is a clustering, in layout 1 a replace commit with a plan."""
        if instant.action != "replacecommit":
            return instant.action == "clustering"
        name = f"{instant.requested}.replacecommit.requested"
        try:
            body = self._plans.read(name, decode_body)
        except (CorruptFileError, FileNotFoundError):
            return False  # its writer died while writing the plan, or it no longer exists
        return body.get("clusteringPlan") is not None

    def clustering_plan(self, instant: Instant) -> ClusteringPlan:
        """Plan of a pending clustering.

        Raises:
            CorruptFileError: The plan is damaged, or names files outside of the table.
            FileNotFoundError: The plan was rolled back since the listing.
        """
        name = f"{instant.requested}.{instant.action}.requested"
        return clustering_plan_of_record(self._plans.read(name, decode_body), f"{self.path}/{name}")

    def pending_clusterings(self) -> dict[Instant, ClusteringPlan]:
        """Pending clusterings with their plans, oldest first.

        Raises:
            CorruptFileError: A plan is damaged, or names files outside of the table.
        """
        found: dict[Instant, ClusteringPlan] = {}
        for instant in self.pending({"clustering", "replacecommit"}):
            if self.is_clustering(instant):
                with contextlib.suppress(FileNotFoundError):  # It was rolled back since the listing.
                    found[instant] = self.clustering_plan(instant)
        return found

    def replaced_file_groups(self, as_of: str | None = None) -> dict[tuple[str, str], str]:
        """Requested time of the first replace commit per hidden (partition, file id).

        Args:
            as_of: Latest replace commit that counts; None sets no limit.
        """
        replaced: dict[tuple[str, str], str] = {}
        for instant in self.completed({"replacecommit"}):
            if as_of is not None and instant.requested > as_of:
                break
            for partition, file_ids in (self.commit_metadata(instant).replaced or {}).items():
                for file_id in file_ids:
                    replaced.setdefault((partition, file_id), instant.requested)
        return replaced

    def state_of(self, requested: str, action: str) -> State | None:
        """State of an action; None if it is not on the timeline."""
        wanted = comparable_action(action)
        for instant in self.instants:
            if instant.requested == requested and comparable_action(instant.action) == wanted:
                return instant.state
        return None


def _decode_rollback(body: bytes, path: str) -> RollbackPlan | None:
    """None for an incomplete plan, whose writer died while writing it: it has deleted nothing."""
    try:
        decode_body(body, path)
    except CorruptFileError:
        return None
    return decode_rollback_plan(body, path)


def is_under_way(storage: Storage, timeline_path: str, requested: str) -> bool:
    """Whether a write is inflight and not completed, by the current files; for tasks, which have no timeline.

    The inflight file alone does not suffice, as it stays beside the completed one.
    """
    inflight = False
    for info in storage.list(timeline_path):
        found = parse_instant_name(info.name) if info.name.startswith(requested) else None
        if found is None or found.requested != requested or comparable_action(found.action) not in WRITE_ACTIONS:
            continue
        if found.is_completed:
            return False
        inflight = inflight or found.state is State.INFLIGHT
    return inflight


@dataclass(frozen=True, slots=True)
class _Files:
    """Name endings of an action's files."""

    requested: str
    inflight: str
    completed: str


_FILES: Final = {
    "commit": _Files(".commit.requested", ".inflight", ".commit"),
    "deltacommit": _Files(".deltacommit.requested", ".deltacommit.inflight", ".deltacommit"),
    "replacecommit": _Files(".replacecommit.requested", ".replacecommit.inflight", ".replacecommit"),
    "clustering": _Files(".clustering.requested", ".clustering.inflight", ".replacecommit"),
    "compaction": _Files(".compaction.requested", ".compaction.inflight", ".commit"),
    "logcompaction": _Files(".logcompaction.requested", ".logcompaction.inflight", ".deltacommit"),
    "clean": _Files(".clean.requested", ".clean.inflight", ".clean"),
    "rollback": _Files(".rollback.requested", ".rollback.inflight", ".rollback"),
    "restore": _Files(".restore.requested", ".restore.inflight", ".restore"),
    "indexing": _Files(".indexing.requested", ".indexing.inflight", ".indexing"),
    "savepoint": _Files("", ".savepoint.inflight", ".savepoint"),
}
"""A savepoint has no requested state."""


_LAYOUT_2_ONLY: Final = frozenset({"clustering"})
"""In layout 1 clustering is a replace commit in all states."""


_NO_EFFECT: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.EMFILE,
        errno.ENFILE,
    }
)
"""Errors of the operating system that guarantee that nothing was created."""


def _files_of(timeline: Timeline, action: str) -> _Files:
    files = _FILES.get(action)
    if files is None or (timeline.layout == 1 and action in _LAYOUT_2_ONLY):
        raise CommitError(f"lakedex does not support the action '{action}' in timeline layout {timeline.layout}")
    return files


def _conflict(what: str, requested: str, theirs: str | None, *, retryable: bool) -> CommitConflictError:
    return CommitConflictError(what, ours=requested, theirs=theirs, file_groups=frozenset(), retryable=retryable)


def _gone(path: str, requested: str, name: str) -> CommitConflictError:
    what = (
        f"{path}/{name} does not exist: another writer considered {requested} failed and rolled it back. "
        "Nothing was committed; repeat the write"
    )
    return _conflict(what, requested, None, retryable=True)


def _completed_by_other(path: str, requested: str, name: str) -> CommitConflictError:
    what = f"{path}/{name} exists: the instant {requested} is already completed"
    return _conflict(what, requested, requested, retryable=False)


def _unknown(path: str, requested: str, error: Exception) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"{path}: completing the instant {requested} failed ({type(error).__name__}: {error}), and it may still take "
        "effect. Check whether the file exists before repeating the write; lakedex does not retry",
        instant=requested,
    )


def _create_pending(timeline: Timeline, instant: Instant, body: bytes) -> Instant:
    path = timeline.path
    try:
        timeline.storage.create(f"{path}/{instant.file_name}", body)
    except FileExistsError as error:
        what = f"{path}/{instant.file_name} exists: another writer uses the instant {instant.requested}"
        raise _conflict(what, instant.requested, instant.requested, retryable=True) from error
    return instant


def create_requested(timeline: Timeline, requested: str, action: str, body: bytes = b"") -> Instant:
    """Announce an action.

    Raises:
        CommitConflictError: Another writer uses the same instant.
    """
    ending = _files_of(timeline, action).requested
    if not ending:
        raise CommitError(f"a {action} has no requested state")
    name = f"{requested}{ending}"
    return _create_pending(timeline, Instant(requested, action, State.REQUESTED, None, name), body)


def create_inflight(timeline: Timeline, instant: Instant, body: bytes = b"", *, is_new: bool = False) -> Instant:
    """Set a requested action inflight.

    Args:
        timeline: Timeline of the action.
        instant: The requested action.
        body: Content of the file.
        is_new: The caller has just requested the action, so that there is no need to look for its file.

    Raises:
        CommitConflictError: Another writer has rolled the requested instant back, or also set it inflight.
    """
    files = _files_of(timeline, instant.action)
    name = f"{instant.requested}{files.requested}"
    if files.requested and not is_new and not timeline.storage.exists(f"{timeline.path}/{name}"):
        raise _gone(timeline.path, instant.requested, name)
    inflight = Instant(instant.requested, instant.action, State.INFLIGHT, None, f"{instant.requested}{files.inflight}")
    return _create_pending(timeline, inflight, body)


def complete(timeline: Timeline, instant: Instant, completion: str, body: bytes, *, is_new: bool = False) -> Instant:
    """Complete an inflight action, under the table lock and with a new time from the clock.

    Layout 1 does not store that time: there the modification time of the completed file counts.

    Args:
        timeline: Timeline of the action.
        instant: The inflight action.
        completion: Its completion time.
        body: Content of the completed file.
        is_new: The action was begun since the lock was taken, so that nobody can have rolled it back, or was looked
            for by :func:`require_inflight`.

    Afterwards, files of the write may be removed only if one of the first two errors was raised.

    Raises:
        CommitConflictError: The instant was rolled back or completed by another writer. It did not take effect.
        CommitError: The file could not be created. It did not take effect.
        CommitStateUnknownError: The call failed with unknown effect.
            Leave all files of the write as they are.
    """
    requested, files = instant.requested, _files_of(timeline, instant.action)
    if not (completion.isdigit() and completion > requested):
        raise CommitError(
            f"completion time '{completion}' is not later than the instant {requested}; check clock and time zone"
        )
    action = comparable_action(instant.action)
    storage = timeline.storage
    if not is_new:
        require_inflight(timeline, instant)
    times = requested if timeline.layout == 1 else f"{requested}_{completion}"
    done = Instant(requested, action, State.COMPLETED, completion, f"{times}{files.completed}")
    path = f"{timeline.path}/{done.file_name}"
    try:
        storage.create(path, body)
    except Exception as error:
        _classify_failure(storage, path, requested, body, error)
    return done


def require_inflight(timeline: Timeline, instant: Instant) -> None:
    """Check by one listing that the pending files of an inflight action exist, and no completed one.

    Raises:
        CommitConflictError: The instant was rolled back or completed by another writer.
    """
    requested, files, path = instant.requested, _files_of(timeline, instant.action), timeline.path
    action = comparable_action(instant.action)
    # A write sets its own request inflight without a look at it.
    wanted = (files.requested, files.inflight) if action in WRITE_ACTIONS else (files.inflight,)
    missing = {f"{requested}{ending}" for ending in wanted}
    for info in timeline.storage.list(path):
        found = parse_instant_name(info.name) if info.name.startswith(requested) else None
        if found is None or found.requested != requested:
            continue
        missing.discard(info.name)
        if found.is_completed and found.action == action:
            raise _completed_by_other(path, requested, info.name)
    if missing:
        raise _gone(path, requested, max(missing))


def _classify_failure(storage: Storage, path: str, requested: str, body: bytes, error: Exception) -> None:
    """Return if our file exists anyway; else raise the matching error.

    A client that repeats a request after losing the response finds its own file; bodies name files by random ids, so
    equal bytes are ours.
    """
    exists = isinstance(error, FileExistsError)
    try:
        found = storage.read(path)
    except FileNotFoundError:
        no_effect = error.errno in _NO_EFFECT if isinstance(error, OSError) else isinstance(error, LakedexError)
        # Stores of objects know whether they were answered, and have looked themselves.
        no_effect = no_effect or getattr(error, "effect", "unknown") == "none"
        if no_effect:
            raise CommitError(f"{path}: the commit could not be written and did not take effect ({error})") from error
        raise _unknown(path, requested, error) from error
    except Exception:
        raise _unknown(path, requested, error) from error
    if found == body:
        return
    if exists:
        folder, _, name = path.rpartition("/")
        raise _completed_by_other(folder, requested, name) from error
    raise _unknown(path, requested, error) from error


def remove_file(timeline: Timeline, name: str) -> None:
    """Remove one file of an instant.

    Raises:
        CommitError: The name is not that of an instant's file.
    """
    if parse_instant_name(name) is None:
        raise CommitError(f"{timeline.path}: {name!r} is not a file of an instant and was not deleted")
    timeline.storage.delete(f"{timeline.path}/{name}")


def remove_pending(timeline: Timeline, instant: Instant) -> None:
    """Remove the pending files of a rolled-back instant: inflight first, so that a crash leaves it pending."""
    files = _files_of(timeline, instant.action)
    remove_file(timeline, f"{instant.requested}{files.inflight}")
    if files.requested:
        remove_file(timeline, f"{instant.requested}{files.requested}")


def revert_completed(timeline: Timeline, instant: Instant, requested_body: bytes = b"") -> None:
    """Make a completed instant pending again, so that it no longer counts. Call under the table lock.

    Missing pending files are created first, since an instant without a file on the timeline would pass for an
    archived one.
    """
    files = _files_of(timeline, instant.action)
    pending = {
        f"{instant.requested}{name}": state
        for name, state in ((files.requested, State.REQUESTED), (files.inflight, State.INFLIGHT))
        if name
    }
    for name, state in pending.items():
        if not timeline.storage.exists(f"{timeline.path}/{name}"):
            body = requested_body if state is State.REQUESTED else b""
            _create_pending(timeline, Instant(instant.requested, instant.action, state, None, name), body)
    remove_file(timeline, instant.file_name)
