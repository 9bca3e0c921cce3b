"""Time travel: a table as of an instant or time, refused if the cleaner took files of that state."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection

from lakedex.errors import InvalidInputError
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.names import parse_log_file_name
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS, Timeline
from lakedex.timeline.commit_metadata import NO_PREVIOUS_COMMIT
from lakedex.timeline.compatibility import require_readable
from lakedex.timeline.instant import parse_as_of

__all__ = ["missing_versions", "require_settled", "require_versions", "snapshot_at"]


Group = tuple[str, str]


def snapshot_at(
    load: Callable[[str | None], Snapshot],
    as_of: str | datetime.datetime | datetime.date | None,
    *,
    pinned: str | None = None,
) -> Snapshot:
    """The table now, or as of an instant or time.

    Args:
        load: gives the newest snapshot for None, else that of an instant.
        as_of: an instant, a time, or None.
        pinned: the instant of a state that was found before, to be read again whatever was pending then.

    Raises:
        InvalidInputError: a time before the first commit that is still there, one whose files were cleaned, or one at
            which a write was pending that is so still.
    """
    newest = load(None)
    require_readable(newest.config)
    if pinned is not None:
        wanted = as_of = pinned
    elif as_of is None:
        return newest
    else:
        wanted = parse_as_of(as_of, newest.config.timezone)
        require_settled(newest, wanted, f"as of {as_of}")
    earlier = [i.requested for i in newest.timeline.completed(WRITE_ACTIONS) if i.requested <= wanted]
    if not earlier:
        commits = newest.timeline.completed(WRITE_ACTIONS)
        first = commits[0].requested if commits else "none yet"
        raise InvalidInputError(
            f"{newest.files} has no commit at or before {as_of} (instant {wanted}); the first one is {first}"
        )
    # A savepoint holds its commit on the timeline while later ones are archived: a time among those is no commit's.
    active = newest.timeline.first_active
    in_gap = active is not None and earlier[-1] < active.requested
    return require_versions(load(wanted if in_gap else earlier[-1]))


def require_settled(newest: Snapshot, moment: str, what: str) -> None:
    """Refuse to read up to a moment while a write is pending that was requested up to it.

    Once that write completes, its rows belong to what was read.

    Hudi refuses it too (``TimelineUtils.validateTimestampAsOf``, ``handleHollowCommitIfNeeded``). Clustering and
    compaction change no row.

    Args:
        newest: the table now.
        moment: requested time, itself included.
        what: what is to be read, for the message.

    Raises:
        InvalidInputError: names the pending instant.
    """
    timeline = newest.timeline
    for pending in timeline.pending(WRITE_ACTIONS):
        if pending.requested <= moment and not timeline.is_clustering(pending):
            raise InvalidInputError(
                f"{newest.files} cannot be read {what}: {pending.action} {pending.requested} is still pending, and "
                f"its rows belong there once it completes. Wait for it, or read what lies before {pending.requested}; "
                "if its writer is dead, the next write to the table rolls it back"
            )


def missing_versions(
    snapshot: Snapshot, newest: Snapshot | None = None, partitions: Collection[str] | None = None
) -> list[Group]:
    """File groups, as (partition, file id), whose version at ``snapshot.as_of`` is gone.

    A version can only have been cleaned if a later commit wrote a base file of the group or replaced it. Such commits
    name the version that they came upon; it has to be among the snapshot's slices. Log files are cleaned with it.

    Args:
        snapshot: the state.
        newest: the table now, where the state leaves out commits that were requested before ``snapshot.as_of``.
        partitions: those that matter; None for all.
    """
    if snapshot.as_of is None:
        return []
    found = _versions_overwritten(snapshot, snapshot.as_of, (newest or snapshot).timeline)
    needed = {group: version for group, version in found.items() if partitions is None or group[0] in partitions}
    if not needed:
        return []
    going = snapshot.timeline.files_being_cleaned()
    there = {
        (item.partition, item.file_id): _instants(item)
        for item in snapshot.slices(partitions)
        if going.isdisjoint((item.partition, file.name) for file in item.files)
    }
    return sorted(
        group
        for group, instant in needed.items()
        if group not in there or (instant is not None and instant not in there[group])
    )


def _instants(item: FileSlice) -> set[str]:
    """Instants by which a commit may name a slice that it came upon: without base file, those of its log files."""
    return {item.base_instant} if item.base_file is not None else {log.instant for log in item.log_files}


def _versions_overwritten(snapshot: Snapshot, as_of: str, timeline: Timeline) -> dict[Group, str | None]:
    """Groups of a state that later commits of ``timeline`` changed, with the instant of the version that they found.

    None where that is not known: replace commits do not say, and their predecessors may be archived.
    """
    needed: dict[Group, str | None] = {}
    younger: set[Group] = set()
    commits = timeline.completed(WRITE_ACTIONS)
    late = {i.requested for i in commits} - {i.requested for i in snapshot.timeline.completed(WRITE_ACTIONS)}
    for instant in commits:
        if instant.requested <= as_of and instant.requested not in late:
            continue
        commit = timeline.commit_metadata(instant)
        for partition, stats in commit.write_stats.items():
            for stat in stats:
                group = (partition, stat.file_id)
                if group in needed or group in younger or parse_log_file_name(stat.file_name) is not None:
                    continue
                if stat.prev_commit == NO_PREVIOUS_COMMIT or stat.prev_commit > as_of or stat.prev_commit in late:
                    younger.add(group)
                else:
                    needed[group] = stat.prev_commit
        for partition, file_ids in (commit.replaced or {}).items():
            for file_id in file_ids:
                if (partition, file_id) not in younger:
                    needed.setdefault((partition, file_id), None)
    _find_replaced(snapshot, as_of, needed)
    return needed


def _find_replaced(snapshot: Snapshot, as_of: str, needed: dict[Group, str | None]) -> None:
    """Which version a group had that was replaced later: that of the last commit that wrote a base file of it.

    An older one may be there without it, kept by a savepoint.
    """
    unknown = {group for group, version in needed.items() if version is None}
    for instant in reversed(snapshot.timeline.completed(WRITE_ACTIONS)):
        if not unknown:
            return
        if instant.requested > as_of:
            continue
        for partition, stats in snapshot.timeline.commit_metadata(instant).write_stats.items():
            bases = {(partition, stat.file_id) for stat in stats if parse_log_file_name(stat.file_name) is None}
            for group in unknown & bases:
                needed[group] = instant.requested
                unknown.discard(group)


def require_versions(snapshot: Snapshot, newest: Snapshot | None = None) -> Snapshot:
    """The snapshot itself, if all of its files are still there.

    Args:
        snapshot: the state to be read.
        newest: the table now, where ``snapshot`` is :meth:`Snapshot.completed_by` a time; None where it is one of an
            instant.

    Raises:
        InvalidInputError: the cleaner took some; the message has the earliest instant that is whole.
    """
    missing = missing_versions(snapshot, newest)
    if not missing:
        return snapshot
    partition, file_id = missing[0]
    raise InvalidInputError(
        f"{snapshot.files} cannot be read as of {snapshot.as_of} any more: the cleaner took files of that state "
        f"({len(missing)} file groups, among them {file_id} in {partition or 'the table'}). The earliest instant that "
        f"can be read is {_earliest_whole(snapshot, newest)}; a savepoint, or hoodie.clean.commits.retained, keeps "
        "older ones"
    )


def _earliest_whole(snapshot: Snapshot, newest: Snapshot | None) -> str | None:
    as_of = snapshot.as_of or ""
    if newest is None:
        commits = snapshot.timeline.completed(WRITE_ACTIONS)
        later = (i.requested for i in commits if i.requested > as_of)
        return next((instant for instant in later if not missing_versions(snapshot.at(instant))), None)
    times = sorted((newest.time_of(i), i.requested) for i in newest.timeline.completed(WRITE_ACTIONS))
    for moment, instant in times:
        if moment > as_of and not missing_versions(newest.completed_by(moment), newest):
            return instant
    return None
