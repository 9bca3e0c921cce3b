"""Whether the files of a metadata partition are all there: what its own commits say they wrote, against a listing.

A metadata table that lost files answers wrongly without a sign: a log file of ``files`` that is gone takes rows with
it, one of ``partition_stats`` brings older bounds back. Java looks at ``hoodie.properties`` and at whether the metadata
timeline has an instant (``HoodieBackedTableMetadataWriter.isBootstrapNeeded``), no further.

Cost: the partition's folder, which is listed anyhow, and one small file for each metadata commit since its base files,
read once for as long as a process has the table open. Not seen: damage inside of a file that has its length, and files
of archived commits. The first is met when the file is read; the second are older than the base files in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lakedex.arrow_frames import run_threads
from lakedex.layout.names import parse_base_file_name, parse_log_file_name
from lakedex.metadata.partitions import FILES
from lakedex.timeline.commit_metadata import WriteStat
from lakedex.timeline.instant import Instant
from lakedex.timeline.timeline import WRITE_ACTIONS, Timeline

__all__ = ["missing_file"]


_MAKES_ANEW = "BULK_INSERT"
"""Operation of the commit that makes a partition, on both sides (``initializeFilegroupsAndCommit``). Java may
request it at the very beginning of time, so what counts is when it completed."""

_BEGINNING_OF_TIME = "0" * 14
"""What instants begin with that make the partitions of a new metadata table (``SOLO_COMMIT_TIMESTAMP``)."""


def missing_file(
    partition: str, present: Mapping[str, int], timeline: Timeline, begun: Callable[[], str], threads: int = 1
) -> str:
    """What is wrong with a metadata partition; empty if nothing is.

    Args:
        partition: its name.
        present: names of the files in its folder → bytes.
        timeline: the metadata table's own.
        begun: the first commit of the folder; asked only where a file is missing. An index that was dropped and built
            again has earlier commits, whose files went with the old folder.
        threads: commits read at once.
    """
    completed = timeline.completed(WRITE_ACTIONS)
    if not completed:
        return "its timeline has no commit"
    if not present:
        return f"the folder {partition} is empty or missing"
    newest = _newest_bases(present)
    since = min(newest.values(), default="")
    nothing = _saying_nothing(partition, present, completed)
    wanted = sorted(
        (i for i in completed if _completed_at(i) >= since and i.requested not in nothing), key=_completed_at
    )
    # Those read before need no thread: most of them, wherever a table is looked at again and again.
    unread = [instant for instant in wanted if not timeline.has_read(instant)]
    there = run_threads(partial(_still_there, timeline), unread, threads)
    gone = {instant for instant, is_there in zip(unread, there, strict=True) if not is_there}
    stats: list[tuple[Instant, WriteStat]] = []
    for instant in wanted:
        if instant in gone:
            continue
        found = timeline.commit_metadata(instant)
        own = found.write_stats.get(partition, ())
        if own and (found.operation or "").startswith(_MAKES_ANEW):
            stats.clear()
        stats.extend((instant, stat) for stat in own)
    layout = timeline.layout
    return _first_wrong(stats, present, newest, "", layout) and _first_wrong(stats, present, newest, begun(), layout)


def _saying_nothing(partition: str, present: Mapping[str, int], completed: Sequence[Instant]) -> set[str]:
    """Commits of a new metadata table that wrote no file of a partition but what can be seen to be there.

    Each makes one partition; its files carry its instant, so that the partition's own is known by any of them.
    ``files`` has a single group, and all that its commit wrote is the base file.
    """
    first = {one.requested for one in completed if one.requested.startswith(_BEGINNING_OF_TIME)}
    bases = {base.instant for name in present if (base := parse_base_file_name(name)) is not None}
    logs = {log.instant for name in present if (log := parse_log_file_name(name)) is not None}
    own = first & (bases | logs)
    if not own:
        return set()
    return first - own | (first & bases if partition == FILES.name else set())


def _still_there(timeline: Timeline, instant: Instant) -> bool:
    """Read what a commit did. Not if it was undone or archived since the timeline was listed: no file of it counts."""
    try:
        timeline.commit_metadata(instant)
    except FileNotFoundError:
        return False
    return True


def _first_wrong(
    stats: Sequence[tuple[Instant, WriteStat]],
    present: Mapping[str, int],
    listed: Mapping[str, str],
    begun: str,
    layout: int,
) -> str:
    counted = [(instant, stat) for instant, stat in stats if instant.requested >= begun]
    newest = dict(listed)
    for instant, stat in counted:
        if parse_base_file_name(stat.file_name) is not None:
            newest[stat.file_id] = max(newest.get(stat.file_id, ""), instant.requested)
    for instant, stat in counted:
        if _counts(instant, stat, newest.get(stat.file_id, ""), layout) and (wrong := _wrong(stat, present)):
            return wrong
    return ""


def _completed_at(instant: Instant) -> str:
    return instant.completed or instant.requested


def _newest_bases(present: Mapping[str, int]) -> dict[str, str]:
    """File group → instant of its newest base file."""
    newest: dict[str, str] = {}
    for name in present:
        base = parse_base_file_name(name)
        if base is not None:
            newest[base.file_id] = max(newest.get(base.file_id, ""), base.instant)
    return newest


def _counts(instant: Instant, stat: WriteStat, base_instant: str, layout: int) -> bool:
    """Whether the newest slice has the file. Earlier ones may have been cleaned."""
    if parse_base_file_name(stat.file_name) is not None:
        return instant.requested == base_instant
    if layout == 1:
        # A log file is named by the base instant of its slice.
        log = parse_log_file_name(stat.file_name)
        return log is not None and log.instant >= base_instant
    return _completed_at(instant) >= base_instant


def _wrong(stat: WriteStat, present: Mapping[str, int]) -> str:
    size = present.get(stat.file_name)
    if size is None:
        return f"{stat.path} is missing"
    if size < stat.file_size:
        return f"{stat.path} has {size} of {stat.file_size} bytes"
    return ""
