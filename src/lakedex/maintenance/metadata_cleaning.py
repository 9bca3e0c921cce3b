"""Clean the metadata table: delete slices some time after a compaction has replaced them.

As in ``HoodieBackedTableMetadataWriter.cleanIfNecessary`` and ``CleanPlanner``, by commits: of each file group the
latest slice stays, the one before the earliest commit to retain, and everything since. Retained are 20 commits of the
metadata table, or 1.2 times those of the data table if that is more. Nothing is cleaned in the three actions after a
compaction, when readers may still use the slices before it. The policy counts commits whatever that of the data table
is, as only running readers use old slices of the metadata table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lakedex.codec.table_paths import last_part
from lakedex.errors import CorruptFileError
from lakedex.io.locks import Lock
from lakedex.layout.contained_files import delete_files
from lakedex.layout.names import parse_base_file_name, parse_log_file_name
from lakedex.maintenance.metadata_compaction import last_compaction
from lakedex.options import CleanOptions, WriteOptions
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS, Timeline, complete, create_inflight, create_requested, remove_pending
from lakedex.timeline.archived import archived_completion_times
from lakedex.timeline.commit_metadata import decode_body
from lakedex.timeline.instant import Instant, InstantClock, State
from lakedex.timeline.service_metadata import (
    CleanMetadata,
    CleanPlan,
    decode_compaction_plan,
    encode_clean_metadata,
    encode_clean_plan,
)

__all__ = ["clean_metadata", "cleaning_due", "commits_retained", "expired_files"]


LEAST_COMMITS = 20
"""``HoodieMetadataConfig.DEFAULT_METADATA_CLEANER_COMMITS_RETAINED``."""


ACTIONS_OF_REST = 3


_POLICY = "KEEP_LATEST_COMMITS"


_MADE_WITH_THE_TABLE = "00000000000000"
"""Instants of the first delta commits, which are not times; every compaction is later."""


ExpiredFiles = dict[str, list[str]]
"""Names of files to delete by metadata partition."""


@dataclass(slots=True)
class _Slice:
    """A slice by its base instant, or that of its first log file if there is no base file."""

    start: str
    names: list[str] = field(default_factory=list)


def commits_retained(options: CleanOptions) -> int:
    """Number of retained commits of the metadata table."""
    return max(LEAST_COMMITS, int(options.commits_retained * 1.2))


def cleaning_due(now: Snapshot, options: WriteOptions) -> bool:
    """Whether there may be something to clean, by the timeline alone."""
    timeline = now.metadata.timeline
    if not now.uses_metadata:
        return False
    if timeline.pending({"clean"}):
        return True
    compaction = last_compaction(timeline)
    earliest = _earliest_to_retain(timeline, commits_retained(options.clean))
    if compaction is None or earliest is None:
        return False
    later = [instant for instant in timeline.completed() if instant.requested > compaction.requested]
    # Otherwise more frequent compactions would prevent cleaning.
    if len(later) < min(ACTIONS_OF_REST, options.metadata.compact_commits - 1):
        return False
    # Only a base file before the earliest retained commit makes earlier slices deletable, and only once.
    before = [i.requested for i in timeline.completed({"commit"}) if i.requested < earliest.requested]
    return bool(before) and _cleaned_up_to(now) <= before[-1]


def _cleaned_up_to(now: Snapshot) -> str:
    """Earliest commit that the last clean retained; cached, so that not every write reads the file."""
    timeline, cache = now.metadata.timeline, now.cache
    last = next(reversed(timeline.completed({"clean"})), None)
    if last is None:
        return ""
    if cache.last_metadata_clean[0] != last.file_name:
        body = decode_body(timeline.read(last.file_name), f"{timeline.path}/{last.file_name}")
        cache.last_metadata_clean = (last.file_name, str(body.get("earliestCommitToRetain") or ""))
    return cache.last_metadata_clean[1]


def _earliest_to_retain(timeline: Timeline, retained: int) -> Instant | None:
    """``CleanerUtils.getEarliestCommitToRetain``: not later than the earliest pending write."""
    commits = timeline.completed(WRITE_ACTIONS)
    if len(commits) <= retained:
        return None
    nth = commits[len(commits) - retained]
    pending = timeline.pending({*WRITE_ACTIONS, "compaction", "logcompaction"})
    if not pending or nth <= pending[0]:
        return nth
    return next((i for i in reversed(commits) if i.requested < pending[0].requested), None)


def clean_metadata(now: Snapshot, options: WriteOptions, clock: InstantClock, lock: Lock) -> int:
    """Finish pending cleans and run a new one. Call under the table lock.

    Returns:
        Number of deleted files.
    """
    timeline = now.metadata.timeline
    deleted = 0
    for instant in timeline.pending({"clean"}):
        plan = _planned(timeline, instant)
        if plan is None:
            remove_pending(timeline, instant)
        else:
            deleted += _carry_out(now, instant, plan, clock, lock)
    earliest = _earliest_to_retain(timeline, commits_retained(options.clean))
    expired = expired_files(now, earliest.requested) if earliest is not None else {}
    if earliest is None or not expired:
        return deleted
    plan = _plan(now, earliest, expired)
    requested = clock.next(max(now.timeline.last_time, timeline.last_time))
    if timeline.layout < 2:
        requested = f"{timeline.completed({'deltacommit'})[-1].requested}002"
    instant = create_requested(timeline, requested, "clean", encode_clean_plan(plan))
    return deleted + _carry_out(now, instant, plan, clock, lock)


def _planned(timeline: Timeline, instant: Instant) -> CleanPlan | None:
    try:
        return timeline.clean_plan(instant.requested)
    except (CorruptFileError, FileNotFoundError):
        return None


def _plan(now: Snapshot, earliest: Instant, expired: ExpiredFiles) -> CleanPlan:
    own = now.files.metadata
    last = now.metadata.timeline.completed(WRITE_ACTIONS)[-1]
    return CleanPlan(
        policy=_POLICY,
        files={folder: tuple(own.path(folder, name) for name in names) for folder, names in expired.items()},
        earliest=(earliest.requested, earliest.action),
        last_completed=last.requested,
    )


def _carry_out(now: Snapshot, instant: Instant, plan: CleanPlan, clock: InstantClock, lock: Lock) -> int:
    timeline = now.metadata.timeline
    started = time.time()
    if instant.state is State.REQUESTED:
        instant = create_inflight(timeline, instant, is_new=True)
    lock.check()
    names = {folder: tuple(map(last_part, paths)) for folder, paths in plan.files.items()}
    expired = [(folder, name) for folder, found in names.items() for name in found]
    delete_files(now.files.metadata, expired)
    done = CleanMetadata(
        started=instant.requested,
        millis=int((time.time() - started) * 1000),
        policy=_POLICY,
        files=names,
        earliest=plan.earliest[0] if plan.earliest is not None else "",
        last_completed=plan.last_completed,
    )
    completion = clock.next(max(now.timeline.last_time, timeline.last_time, instant.requested))
    complete(timeline, instant, completion, encode_clean_metadata(done), is_new=True)
    return len(expired)


def expired_files(now: Snapshot, earliest: str) -> ExpiredFiles:
    """Files of expired slices."""
    store = now.metadata
    timeline = store.timeline
    needed = _needed_by_compactions(timeline)
    times = _CompletionTimes(timeline)
    expired: ExpiredFiles = {}
    for folder in store.folders():
        for file_id, slices in _slices(now, folder, times.of).items():
            before = [item.start for item in slices if item.start < earliest]
            kept = {slices[-1].start, before[-1] if before else ""}
            since = needed.get((folder, file_id))
            for item in slices:
                wanted = since is not None and item.start >= since
                if item.start < earliest and item.start not in kept and not wanted:
                    expired.setdefault(folder, []).extend(item.names)
    return {folder: sorted(names) for folder, names in expired.items()}


@dataclass(slots=True)
class _CompletionTimes:
    """Completion times of log files' commits, if necessary from the archive; they determine the slice of a file."""

    timeline: Timeline
    archived: dict[str, str] = field(default_factory=dict)
    since: str | None = None

    def of(self, instant: str) -> str:
        known = self.timeline.completion_time(instant)
        if known is not None or self.timeline.layout < 2 or instant.startswith(_MADE_WITH_THE_TABLE):
            return known or instant
        if self.since is None or instant < self.since:
            self.since = instant
            self.archived = archived_completion_times(self.timeline.storage, f"{self.timeline.path}/history", instant)
        return self.archived.get(instant, instant)


def _needed_by_compactions(timeline: Timeline) -> dict[tuple[str, str], str]:
    """First base instant that a pending compaction needs, by (partition, file id)."""
    needed: dict[tuple[str, str], str] = {}
    for instant in timeline.pending({"compaction", "logcompaction"}):
        name = f"{instant.requested}.{instant.action}.requested"
        for operation in decode_compaction_plan(timeline.read(name), f"{timeline.path}/{name}"):
            key = (operation.partition, operation.file_id)
            needed[key] = min(needed.get(key, operation.base_instant), operation.base_instant)
    return needed


def _slices(now: Snapshot, folder: str, completed: Callable[[str], str]) -> dict[str, list[_Slice]]:
    """All slices of committed files, oldest first, by file id (``HoodieFileGroup.addLogFile``)."""
    timeline = now.metadata.timeline
    pending = {instant.requested for instant in now.timeline.pending()}
    slices: dict[str, dict[str, _Slice]] = {}
    logs: dict[str, list[tuple[tuple[str, int, str, bool], str]]] = {}
    for entry in now.metadata.entries(folder):
        base, log = parse_base_file_name(entry.name), parse_log_file_name(entry.name)
        if base is not None and timeline.is_committed(base.instant):
            slices.setdefault(base.file_id, {}).setdefault(base.instant, _Slice(base.instant)).names.append(entry.name)
        # In layout 1 the name has the slice's base instant, possibly that of its first log file.
        elif log is not None and (
            timeline.layout < 2 or (log.instant not in pending and timeline.is_committed(log.instant))
        ):
            logs.setdefault(log.file_id, []).append((log.order, entry.name))
    for file_id, entries in logs.items():
        known = slices.setdefault(file_id, {})
        for (instant, *_), name in sorted(entries):
            until = instant if timeline.layout < 2 else completed(instant)
            start = max((s for s in known if s <= until), default=None) if timeline.layout >= 2 else instant
            known.setdefault(start or instant, _Slice(start or instant)).names.append(name)
    return {file_id: sorted(found.values(), key=lambda item: item.start) for file_id, found in slices.items()}
