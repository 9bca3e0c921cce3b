"""Whether a table can still be read as of an instant: the cleaner may have taken files that belong to it."""

from __future__ import annotations

from lakedex.errors import InvalidInputError
from lakedex.metadata.snapshot import Snapshot
from lakedex.timeline.commit_metadata import NO_PREVIOUS_COMMIT
from lakedex.timeline.timeline import WRITE_ACTIONS
from lakedex.types import TableType

__all__ = ["missing_versions", "require_versions"]

Group = tuple[str, str]


def missing_versions(snapshot: Snapshot) -> list[Group]:
    """File groups, as (partition, file id), whose version at ``snapshot.as_of`` is gone.

    A version can only have been cleaned if a later commit wrote the group anew or replaced it. Such commits name the
    version that they came upon; it has to be among the snapshot's slices.
    """
    if snapshot.as_of is None:
        return []
    needed = _versions_overwritten(snapshot, snapshot.as_of)
    if not needed:
        return []
    there = {(item.partition, item.file_id): item.base_instant for item in snapshot.slices()}
    return sorted(
        group for group, instant in needed.items() if group not in there or instant not in (None, there[group])
    )


def _versions_overwritten(snapshot: Snapshot, as_of: str) -> dict[Group, str | None]:
    """Groups of ``as_of`` that later commits changed, with the instant of the version that they found.

    None where that is not known: log files do not say, nor do replace commits.
    """
    exact = snapshot.config.table_type == TableType.COPY_ON_WRITE
    timeline = snapshot.timeline
    needed: dict[Group, str | None] = {}
    younger: set[Group] = set()
    for instant in timeline.completed(WRITE_ACTIONS):
        if instant.requested <= as_of:
            continue
        commit = timeline.commit_metadata(instant)
        for partition, stats in commit.write_stats.items():
            for stat in stats:
                group = (partition, stat.file_id)
                if group in needed or group in younger:
                    continue
                if stat.prev_commit == NO_PREVIOUS_COMMIT or stat.prev_commit > as_of:
                    younger.add(group)
                else:
                    needed[group] = stat.prev_commit if exact else None
        for partition, file_ids in (commit.replaced or {}).items():
            for file_id in file_ids:
                if (partition, file_id) not in younger:
                    needed.setdefault((partition, file_id), None)
    return needed


def require_versions(snapshot: Snapshot) -> Snapshot:
    """The snapshot itself, if all of its files are still there.

    Raises:
        InvalidInputError: the cleaner took some; the message has the earliest instant that is whole.
    """
    missing = missing_versions(snapshot)
    if not missing:
        return snapshot
    partition, file_id = missing[0]
    raise InvalidInputError(
        f"{snapshot.base_path} cannot be read as of {snapshot.as_of} any more: the cleaner took files of that state "
        f"({len(missing)} file groups, among them {file_id} in {partition or 'the table'}). The earliest instant that "
        f"can be read is {_earliest_whole(snapshot)}; a savepoint, or hoodie.clean.commits.retained, keeps older ones"
    )


def _earliest_whole(snapshot: Snapshot) -> str | None:
    later = (i.requested for i in snapshot.timeline.completed(WRITE_ACTIONS) if i.requested > (snapshot.as_of or ""))
    return next((instant for instant in later if not missing_versions(snapshot.at(instant))), None)
