"""Archive completed instants of both timelines (``TimelineArchiverV2``, ``ArchivalUtils``; V1 for layout 1).

More than ``hoodie.keep.max.commits`` completed commits are reduced to ``hoodie.keep.min.commits``, but never past the
earliest pending write, the first savepoint, a replace commit whose replaced files are not cleaned, or the first commit
that no compaction of the metadata table includes. Cleans and rollbacks before the last archived commit are archived
with it. The metadata table's timeline follows the same rules, and never passes the data table's active timeline.

The archive is written first, then files of pending states are deleted, then those of completed states in ascending
order, so that no intermediate state has a gap or a completed action that looks pending. Instants that a dead writer
left on both timelines are not archived again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lakedex.io.locks import Lock
from lakedex.layout.contained_files import delete_temp, list_folder, require_folders
from lakedex.layout.names import parse_base_file_name, parse_log_file_name
from lakedex.maintenance.metadata_cleaning import commits_retained
from lakedex.maintenance.metadata_compaction import delta_commits_since, last_compaction
from lakedex.options import ArchiveOptions, WriteOptions
from lakedex.parallel import run_threads
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS, Timeline, remove_file
from lakedex.timeline.archived import ArchivedInstant, append_archive_log, append_history, merge_history, read_history
from lakedex.timeline.instant import Instant, State, comparable_action, parse_instant_name
from lakedex.timeline.table_config import read_table_config

__all__ = ["archive_data", "archive_metadata", "data_to_archive", "metadata_to_archive"]


_PENDING_WRITES = frozenset({*WRITE_ACTIONS, "compaction", "logcompaction", "clustering"})


_DELETE_THREADS = 8


@dataclass(frozen=True, slots=True)
class _Action:
    """All files of one completed action. ``pending`` is the action's name in its earliest pending state."""

    instant: Instant
    requested_file: str | None
    inflight_file: str | None
    completed_files: tuple[str, ...]
    pending: str | None


# ------------------------------------------------------------------------------------------------------ what goes


def data_to_archive(now: Snapshot, options: WriteOptions) -> list[Instant]:
    """Instants of the data timeline to archive, ascending."""
    timeline = now.timeline
    keep_min, keep_max = _limits(timeline, options)
    commits = timeline.completed(WRITE_ACTIONS)
    if len(commits) <= keep_max:
        return []
    limits = [_before_pending(timeline)]
    if now.config.table_type == "MERGE_ON_READ":
        limits.append(_first_for_compaction(timeline))
    if now.uses_metadata:
        compaction = last_compaction(now.metadata.timeline)
        if compaction is None:
            return []
        limits.append(_first_uncompacted(timeline, compaction.requested))
    limits.append(_first_unclean_replacement(now, commits[len(commits) - keep_min].requested))
    return _chosen(timeline, commits, limits, options.archive, len(commits) - keep_min, keep_min, keep_max)


def metadata_to_archive(now: Snapshot, options: WriteOptions) -> list[Instant]:
    """Instants of the metadata timeline to archive, ascending.

    Hudi retains one commit more than on the data timeline. lakedex retains at least two more than metadata cleaning,
    which counts commits and would never reach its number otherwise. Delta commits after the last compaction stay, as
    their completion times determine the slices of their log files.
    """
    if not now.uses_metadata:
        return []
    timeline = now.metadata.timeline
    keep_min = max(options.archive.min_commits + 1, commits_retained(options.clean) + 2)
    keep_max = keep_min + options.archive.max_commits - options.archive.min_commits
    commits = timeline.completed(WRITE_ACTIONS)
    if len(commits) <= keep_max:
        return []
    compaction = last_compaction(timeline)
    uncompacted = min((i.requested for i in delta_commits_since(timeline)), default=None)
    limits = [
        _before_pending(timeline),
        None if compaction is None else compaction.requested,
        uncompacted,
        _first_of_data(now.timeline, options.archive),
    ]
    return _chosen(timeline, commits, limits, options.archive, len(commits) - keep_min, keep_min, keep_max)


def _limits(timeline: Timeline, options: WriteOptions) -> tuple[int, int]:
    """``ArchivalUtils.getMinAndMaxInstantsToKeep``: instants that cleaning still needs are not archived."""
    keep_min, keep_max = options.archive.min_commits, options.archive.max_commits
    commits = timeline.completed(WRITE_ACTIONS)
    if len(commits) <= options.clean.commits_retained:
        return keep_min, keep_max
    earliest = commits[len(commits) - options.clean.commits_retained].requested
    pending = timeline.pending(_PENDING_WRITES)
    if pending and pending[0].requested < earliest:
        earliest = max((i.requested for i in commits if i.requested < pending[0].requested), default="")
        if not earliest:
            return keep_min, keep_max
    needed = sum(instant.requested > earliest for instant in commits) + 2
    return (keep_min, keep_max) if keep_min >= needed else (needed, needed + keep_max - keep_min)


def _before_pending(timeline: Timeline) -> str | None:
    """Last commit before the earliest pending write, so that the active timeline starts before that write.

    Whatever completed since that write began also stays, even if requested earlier, for its conflict check.
    """
    pending = timeline.pending(_PENDING_WRITES)
    if not pending:
        return None
    first = pending[0].requested
    commits = timeline.completed(WRITE_ACTIONS)
    since = [i.requested for i in commits if (i.completed or i.requested) > first]
    return min([max((i.requested for i in commits if i.requested < first), default=first), *since])


def _first_unclean_replacement(now: Snapshot, before: str) -> str | None:
    """Earliest commit whose replaced files are there: without it they would be current again.

    Java looks at the last clean instead (``ClusteringUtils.getEarliestInstantToRetainForClustering``), and overlooks
    what a savepoint retains.
    """
    for instant in now.timeline.completed({"replacecommit"}):
        if instant.requested >= before:
            break
        replaced = now.timeline.commit_metadata(instant).replaced or {}
        for partition, names in now.listing(replaced).items() if replaced else ():
            found = (parse_base_file_name(name) or parse_log_file_name(name) for name in names)
            if any(file is not None and file.file_id in replaced[partition] for file in found):
                return instant.requested
    return None


def _first_for_compaction(timeline: Timeline, enough: int = 5) -> str | None:
    """``CompactionUtils.getEarliestInstantToRetainForCompaction``: delta commits that trigger one must stay."""
    deltas = delta_commits_since(timeline)
    last = last_compaction(timeline)
    if len(deltas) < enough:
        return last.requested if last is not None else deltas[0].requested if deltas else None
    return deltas[len(deltas) - enough].requested


def _first_uncompacted(timeline: Timeline, compaction: str) -> str | None:
    """First commit completed after a compaction of the metadata table (layout 1: not requested before it)."""
    by_completion = timeline.layout >= 2
    commits = timeline.completed(WRITE_ACTIONS)
    return next(
        (i.requested for i in commits if ((i.completed if by_completion else None) or i.requested) > compaction), None
    )


def _first_of_data(data: Timeline, options: ArchiveOptions) -> str | None:
    """``TimelineUtils.getEarliestInstantForMetadataArchival``."""
    saved = _savepoints(data) if options.beyond_savepoint else frozenset()
    first = [i.requested for i in data.instants if i.action in _PENDING_WRITES and i.requested not in saved][:1]
    return min([*first, *(i.requested for i in data.pending()[:1])], default=None)


def _savepoints(timeline: Timeline) -> frozenset[str]:
    return frozenset(i.requested for i in timeline.instants if i.action == "savepoint")


def _chosen(
    timeline: Timeline,
    commits: Sequence[Instant],
    limits: Iterable[str | None],
    options: ArchiveOptions,
    most: int,
    keep_min: int,
    keep_max: int,
) -> list[Instant]:
    limit = min(filter(None, limits), default=None)
    saved = _savepoints(timeline)
    first_saved = min(saved, default=None)
    going = []
    for instant in commits:
        if limit is not None and instant.requested >= limit:
            continue
        if options.beyond_savepoint:
            if instant.requested in saved:
                continue
        elif first_saved is not None and instant.requested >= first_saved:
            continue
        going.append(instant)
    going = going[: max(most, 0)]
    along = _along(timeline, going, keep_min, keep_max, limit)
    return sorted([*going, *along])


def _along(
    timeline: Timeline, going: Sequence[Instant], keep_min: int, keep_max: int, limit: str | None
) -> Iterator[Instant]:
    """Cleans and rollbacks to archive with them."""
    if timeline.layout >= 2:
        if going:
            last = going[-1].requested
            yield from (i for i in timeline.completed({"clean", "rollback"}) if i.requested < last)
        return
    for action in ("clean", "rollback"):
        found = timeline.completed({action})
        if len(found) > keep_max:
            yield from (i for i in found[: len(found) - keep_min] if limit is None or i.requested < limit)


# ------------------------------------------------------------------------------------------------------ archiving


def archive_data(now: Snapshot, options: WriteOptions, lock: Lock) -> list[Instant]:
    """Archive instants of the data timeline if due. Call under the table lock."""
    going = data_to_archive(now, options)
    if going:
        _archive(now.timeline, now.history_path, going, options.archive, lock)
        wanted = {instant.requested for instant in going}
        for entry in list_folder(now.files, ".hoodie/.temp"):
            if entry.name in wanted:
                delete_temp(now.files, entry.name)
    return going


def archive_metadata(now: Snapshot, options: WriteOptions, lock: Lock) -> list[Instant]:
    """Archive instants of the metadata timeline if due. Call under the table lock."""
    going = metadata_to_archive(now, options)
    if going:
        own = now.files.metadata
        if now.metadata.timeline.layout >= 2:
            folder = f"{now.config.timeline_path}/history"
        else:
            folder = read_table_config(own).archive_folder
        require_folders(own, [folder])
        _archive(now.metadata.timeline, own.path(folder), going, options.archive, lock)
    return going


def _archive(timeline: Timeline, path: str, going: Sequence[Instant], options: ArchiveOptions, lock: Lock) -> None:
    actions = _actions(timeline, going)
    storage = timeline.storage
    if timeline.layout >= 2:
        there = {
            (item.requested, comparable_action(item.action))
            for item in read_history(storage, path, going[0].requested, going[-1].requested)
        }
        new = (a for a in actions if (a.instant.requested, comparable_action(a.instant.action)) not in there)
        append_history(storage, path, (_archived(timeline, action) for action in new))
    else:
        append_archive_log(storage, path, _states(timeline, actions), timeline.path)
    lock.check()
    pending = [f for a in actions for f in (a.requested_file, a.inflight_file) if f is not None]
    run_threads(partial(remove_file, timeline), pending, _DELETE_THREADS)
    for action in actions:
        for name in action.completed_files:
            remove_file(timeline, name)
    if timeline.layout >= 2:
        merge_history(storage, path, options.merge_files)


def _actions(timeline: Timeline, going: Sequence[Instant]) -> list[_Action]:
    """Actions with all of their files, from one listing."""
    found: dict[tuple[str, str], list[Instant]] = {}
    for entry in timeline.storage.list(timeline.path):
        instant = None if entry.is_dir else parse_instant_name(entry.name, entry.modified, timeline.zone)
        if instant is not None:
            found.setdefault((instant.requested, comparable_action(instant.action)), []).append(instant)
    actions = []
    for instant in going:
        files = found.get((instant.requested, comparable_action(instant.action)), [])
        states = {state: [i for i in files if i.state is state] for state in State}
        requested, inflight = states[State.REQUESTED], states[State.INFLIGHT]
        actions.append(
            _Action(
                instant,
                requested[0].file_name if requested else None,
                inflight[0].file_name if inflight else None,
                tuple(sorted(i.file_name for i in states[State.COMPLETED])),
                next((i.action for i in (*requested, *inflight)), None),
            )
        )
    return actions


def _archived(timeline: Timeline, action: _Action) -> ArchivedInstant:
    """``MetadataConversionUtils.createLSMTimelineInstant``."""
    instant = action.instant
    requested = action.requested_file
    plan: bytes | None = None
    if action.pending in ("clean", "compaction", "logcompaction"):
        plan = timeline.read(requested) if requested is not None else None
    elif action.pending in ("replacecommit", "clustering"):
        plan = timeline.read(requested) if requested is not None else None
        # Java takes the body of the inflight file if it has one.
        plan = (timeline.read(action.inflight_file) if action.inflight_file is not None else None) or plan
    body = timeline.read(instant.file_name)
    return ArchivedInstant(
        instant.requested, instant.completed or instant.requested, instant.action, body or None, plan or None
    )


def _states(timeline: Timeline, actions: Iterable[_Action]) -> Iterator[tuple[Instant, bytes]]:
    """All files of all actions, as layout 1 archives them."""
    for action in actions:
        names = [action.requested_file, action.inflight_file, *action.completed_files]
        for name in filter(None, names):
            found = parse_instant_name(name)
            if found is not None:
                yield found, timeline.read(name)
