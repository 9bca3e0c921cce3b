"""The active timeline: one listing of ``.hoodie/timeline`` (layout 1: of ``.hoodie``), seen as instants.

All files of one instant stay until it is archived; its state is the highest one present. Archived instants are not
read: what is earlier than the active timeline was committed (BaseHoodieTimeline.isBeforeTimelineStarts).

A restore undoes commits one after the other, and files between the savepoint and the last commit may have been cleaned:
what the table holds in the middle was never there. So from the moment that a restore is inflight all commits that it
undoes count as pending, until it is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from lakedex.codec.table_paths import last_part
from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage
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
from lakedex.timeline.plans import Plans
from lakedex.timeline.service_metadata import (
    CleanMetadata,
    CleanPlan,
    RestoreMetadata,
    RestorePlan,
    SavepointMetadata,
    decode_clean_metadata,
    decode_clean_plan,
    decode_restore_metadata,
    decode_restore_plan,
    decode_savepoint_metadata,
)

__all__ = ["TIMELINE_FOLDER", "WRITE_ACTIONS", "Timeline", "is_under_way"]

TIMELINE_FOLDER: Final = ".hoodie/timeline"
WRITE_ACTIONS: Final = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions whose completion changes what the table holds."""

_BEGINNING: Final = WRITE_ACTIONS | {"compaction", "logcompaction", "clustering"}
"""Actions that the active timeline can begin with. Others, restores above all, stay while commits after them go."""


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The instants of a table, as one listing found them. Never changes; :meth:`reload` makes a new one.

    ``instants`` are sorted by requested time. ``first_active`` is where the active timeline begins: the first write
    that is not savepointed, since savepoints hold old commits back from archival and leave holes after them; where all
    writes are savepointed, as after a restore, the last one. ``layout`` is the timeline layout: 1 of table version 6, 2
    of 8 and 9.
    """

    storage: Storage
    path: str
    zone: str
    instants: tuple[Instant, ...]
    first_active: Instant | None
    _completed: dict[str, Instant] = field(repr=False)
    _known: frozenset[str] = field(repr=False)
    _plans: Plans = field(repr=False)
    _metadata: dict[str, CommitMetadata] = field(default_factory=dict, repr=False)
    _notes: dict[str, CommitNotes] = field(default_factory=dict, repr=False)
    layout: int = 2

    @classmethod
    def load(
        cls, storage: Storage, base_path: str, subfolder: str = TIMELINE_FOLDER, *, zone: str = "UTC", layout: int = 2
    ) -> Timeline:
        """List the timeline.

        Args:
            storage: Where the table lies.
            base_path: The table's folder; the metadata table's own folder for its timeline.
            subfolder: The timeline's folder in it.
            zone: The table's ``hoodie.table.timeline.timezone``.
            layout: The table's ``hoodie.timeline.layout.version``.
        """
        return cls._load(storage, f"{base_path}/{subfolder}", zone, layout)

    @classmethod
    def _load(cls, storage: Storage, path: str, zone: str, layout: int, known_plans: Plans | None = None) -> Timeline:
        latest: dict[tuple[str, str], Instant] = {}
        infos = list(storage.list(path))
        for info in infos:
            found = None if info.is_dir else parse_instant_name(info.name, info.modified, zone)
            if found is None:
                continue
            key = (found.requested, comparable_action(found.action))
            known = latest.get(key)
            # Two completed files of one instant: the earlier completion is the one that others have acted on.
            if known is None or (-found.state, found.completed or "") < (-known.state, known.completed or ""):
                latest[key] = found
        plans = Plans(storage, path, infos, known_plans)
        instants = tuple(sorted(latest.values(), key=Instant.order))
        return cls._of(storage, path, zone, layout, instants, plans)._without_restored()

    @classmethod
    def _of(
        cls, storage: Storage, path: str, zone: str, layout: int, instants: tuple[Instant, ...], plans: Plans
    ) -> Timeline:
        completed: dict[str, Instant] = {}
        for instant in instants:
            # A savepoint shares the requested time of the commit that it keeps.
            if instant.is_completed and (instant.action != "savepoint" or instant.requested not in completed):
                completed[instant.requested] = instant
        kept = {instant.requested for instant in instants if instant.action == "savepoint"}
        writes = [instant for instant in instants if instant.action in _BEGINNING]
        first = next((i for i in writes if i.requested not in kept), writes[-1] if writes else None)
        known_times = frozenset(i.requested for i in instants)
        return cls(storage, path, zone, instants, first, completed, known_times, plans, layout=layout)

    def _without_restored(self) -> Timeline:
        undone: set[str] = set()
        for restore in self.pending({"restore"}):
            if restore.state is State.INFLIGHT:
                try:
                    undone |= {requested for requested, _ in self.restore_plan(restore.requested).instants}
                except FileNotFoundError:
                    continue  # It was completed, or archived, since the listing.
        return self.without(undone) if undone else self

    def without(self, undone: Collection[str]) -> Timeline:
        """The timeline as it will be when these commits are undone: they count as pending. Their files stay named."""
        instants = tuple(
            replace(instant, state=State.INFLIGHT, completed=None)
            if instant.requested in undone and instant.is_completed and instant.action in WRITE_ACTIONS
            else instant
            for instant in self.instants
        )
        found = Timeline._of(self.storage, self.path, self.zone, self.layout, instants, self._plans)
        found._metadata.update(self._metadata)
        found._notes.update(self._notes)
        return found

    def once_gone(self, undone: Collection[str]) -> Timeline:
        """The timeline as it will be when nothing is left of these commits."""
        instants = tuple(i for i in self.instants if i.requested not in undone or i.action not in WRITE_ACTIONS)
        return Timeline._of(self.storage, self.path, self.zone, self.layout, instants, self._plans)

    def reload(self) -> Timeline:
        """List again. What was read of instants that are still there is kept."""
        fresh = Timeline._load(self.storage, self.path, self.zone, self.layout, self._plans)
        names = {instant.file_name for instant in fresh.instants}
        fresh._metadata.update((name, known) for name, known in self._metadata.items() if name in names)
        fresh._notes.update((name, known) for name, known in self._notes.items() if name in names)
        return fresh

    def completed(self, actions: Collection[str] | None = None) -> tuple[Instant, ...]:
        """Completed instants, of the given actions if any are given."""
        return tuple(i for i in self.instants if i.is_completed and (actions is None or i.action in actions))

    def pending(self, actions: Collection[str] | None = None) -> tuple[Instant, ...]:
        """Requested and inflight instants, of the given actions if any are given."""
        return tuple(i for i in self.instants if not i.is_completed and (actions is None or i.action in actions))

    @property
    def last_completed(self) -> Instant | None:
        """The completed commit, delta commit or replace commit with the largest requested time."""
        commits = self.completed(WRITE_ACTIONS)
        return commits[-1] if commits else None

    @property
    def last_changed(self) -> Instant | None:
        """The commit, delta commit or replace commit that completed last; another one may have been requested later."""
        commits = self.completed(WRITE_ACTIONS)
        return max(commits, key=lambda instant: instant.completed or instant.requested, default=None)

    @property
    def last_time(self) -> str:
        """The largest requested or completion time of all; new ones must be larger. Empty without instants.

        In layout 1 files are ordered by requested times alone, and completion times are those of the store's clock.
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
        """When the instant completed; ``None`` if it is pending, archived or unknown."""
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
        """What a completed commit, delta commit or replace commit did; read once.

        Raises:
            KeyError: A requested time without a completed instant.
            CorruptFileError: Its file is damaged; or empty, unless it is of layout 1.
        """
        found = self._completed[instant] if isinstance(instant, str) else instant
        known = self._metadata.get(found.file_name)
        if known is None:
            body, path = self._commit_body(found)
            known = CommitMetadata(operation=None) if body is None else decode_commit_metadata(body, path)
            self._metadata[found.file_name] = known
        return known

    def _commit_body(self, instant: Instant) -> tuple[bytes | None, str]:
        """Body and path of a completed commit; no body for one that did nothing."""
        body, path = self.read(instant.file_name), f"{self.path}/{instant.file_name}"
        # CommitMetadataSerDeV1: a commit of layout 1 without a body did nothing.
        return None if not body and instant.is_legacy else body, path

    def has_read(self, instant: Instant) -> bool:
        """Whether :meth:`commit_metadata` of the instant is at hand."""
        return instant.file_name in self._metadata

    def commit_notes(self, instant: Instant | str) -> CommitNotes:
        """What :meth:`commit_metadata` says besides the files, for a fraction of its time where there are many.

        Raises:
            KeyError: A requested time without a completed instant.
            CorruptFileError: Its file is damaged; or empty, unless it is of layout 1.
        """
        found = self._completed[instant] if isinstance(instant, str) else instant
        whole = self._metadata.get(found.file_name)
        if whole is not None:
            return whole.notes
        known = self._notes.get(found.file_name)
        if known is None:
            body, path = self._commit_body(found)
            known = CommitNotes(operation=None) if body is None else decode_commit_notes(body, path)
            self._notes[found.file_name] = known
        return known

    def rollback_plan(self, requested: str) -> RollbackPlan:
        """What a rollback, pending or completed, sets out to do.

        Raises:
            CorruptFileError: The plan is damaged, or leads out of the table.
        """
        plan = self._rollback_plan(requested)
        if isinstance(plan, CorruptFileError):
            raise plan
        return plan

    def begun_rollback_plan(self, requested: str) -> RollbackPlan | None:
        """The plan of a pending rollback; None if it is gone, or if its writer died while it wrote it.

        Raises:
            CorruptFileError: The plan is all there, and leads out of the table.
        """
        try:
            plan = self._rollback_plan(requested)
        except FileNotFoundError:
            return None
        return None if isinstance(plan, CorruptFileError) else plan  # Nothing was deleted by a torn one.

    def _rollback_plan(self, requested: str) -> RollbackPlan | CorruptFileError:
        """The plan, or what is wrong with a file that cannot be decoded."""
        found = self._plans.read(f"{requested}.rollback.requested", _decode_rollback)
        return found.error if isinstance(found, _Torn) else found

    def rollback_metadata(self, instant: Instant) -> RollbackMetadata:
        """What a completed rollback did."""
        return decode_rollback_metadata(self.read(instant.file_name), f"{self.path}/{instant.file_name}")

    def clean_plan(self, requested: str) -> CleanPlan:
        """What a clean, pending or completed, sets out to do."""
        return self._plans.read(f"{requested}.clean.requested", decode_clean_plan)

    def files_being_cleaned(self) -> set[tuple[str, str]]:
        """(partition, file name) of files that cleans under way delete; listings have them until it is done."""
        found: set[tuple[str, str]] = set()
        for instant in self.pending({"clean"}):
            with contextlib.suppress(FileNotFoundError, CorruptFileError):  # Just finished; or it has no plan yet.
                files = self.clean_plan(instant.requested).files
                found.update((partition, last_part(path)) for partition, paths in files.items() for path in paths)
        return found

    def clean_metadata(self, instant: Instant) -> CleanMetadata:
        """What a completed clean did."""
        return decode_clean_metadata(self.read(instant.file_name), f"{self.path}/{instant.file_name}")

    def savepoint_metadata(self, instant: Instant) -> SavepointMetadata:
        """What a completed savepoint keeps."""
        return decode_savepoint_metadata(self.read(instant.file_name), f"{self.path}/{instant.file_name}")

    def restore_plan(self, requested: str) -> RestorePlan:
        """What a restore, pending or completed, sets out to do."""
        return self._plans.read(f"{requested}.restore.requested", decode_restore_plan)

    def restore_metadata(self, instant: Instant) -> RestoreMetadata:
        """What a completed restore did."""
        return decode_restore_metadata(self.read(instant.file_name), f"{self.path}/{instant.file_name}")

    def pending_rollback_of(self, requested: str) -> Instant | None:
        """The pending rollback whose plan names the instant, if there is one."""
        for rollback in self.pending({"rollback"}):
            plan = self.begun_rollback_plan(rollback.requested)
            if plan is not None and plan.instant == requested:
                return rollback
        return None

    def is_clustering(self, instant: Instant) -> bool:
        """Whether a pending action is a clustering, which layout 1 announces as a replace commit with a plan."""
        if instant.action != "replacecommit":
            return instant.action == "clustering"
        name = f"{instant.requested}.replacecommit.requested"
        try:
            body = self._plans.read(name, decode_body)
        except (CorruptFileError, FileNotFoundError):
            return False  # its writer died while it wrote the plan, or is gone by now
        return body.get("clusteringPlan") is not None

    def replaced_file_groups(self, as_of: str | None = None) -> dict[tuple[str, str], str]:
        """File groups that replace commits hide: (partition, file id) → requested time of the first that does.

        Args:
            as_of: Only replace commits requested up to this instant count.
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
        """How far an action has come; ``None`` if it is not on the timeline."""
        wanted = comparable_action(action)
        for instant in self.instants:
            if instant.requested == requested and comparable_action(instant.action) == wanted:
                return instant.state
        return None


@dataclass(frozen=True, slots=True)
class _Torn:
    """A plan that its writer did not write to its end."""

    error: CorruptFileError


def _decode_rollback(body: bytes, path: str) -> RollbackPlan | _Torn:
    try:
        decode_body(body, path)
    except CorruptFileError as error:
        return _Torn(error.with_traceback(None))
    return decode_rollback_plan(body, path)


def is_under_way(storage: Storage, timeline_path: str, requested: str) -> bool:
    """Whether a write is inflight and not completed, as the store says now; for tasks, which hold no timeline.

    The inflight file alone does not tell: it stays beside the completed one.
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
