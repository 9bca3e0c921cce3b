"""Group the files of a metadata partition into file groups, and check that none is missing.

The files of a group that are read depend on the timeline layout, as for any merge-on-read table
(``HoodieTableFileSystemView``, ``FileGroupReader``):

2
    A log file is named by the delta commit that wrote it. It counts if that commit does, and belongs to the slice with
    the largest base instant not after its completion.
1
    A log file is named by the first instant of its slice; only its blocks record the delta commits in it. While a
    compaction is pending logs already name it, and its slice is read with the one before.

A partition is complete if the listing has the files that its own commits wrote. If files are lost, a metadata table
answers wrongly and silently: a lost log file of ``files`` hides rows, one of ``partition_stats`` restores older bounds.
Java checks only ``hoodie.properties`` and whether the metadata timeline has an instant
(``HoodieBackedTableMetadataWriter.isBootstrapNeeded``).

The check costs the folder's listing, which is needed anyway, and one small file per metadata commit since the base
files, read once while a process has the table open. It does not detect damage in a file of the right size, which is
found on reading, nor lost files of archived commits, which are older than the base files in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lakedex.io.storage import FileInfo
from lakedex.layout.names import LogFileName, parse_base_file_name, parse_log_file_name
from lakedex.metadata.records import FILES
from lakedex.parallel import run_threads
from lakedex.timeline.active import WRITE_ACTIONS, Timeline
from lakedex.timeline.commit_metadata import WriteStat
from lakedex.timeline.instant import Instant

__all__ = [
    "MetadataFileGroup",
    "commits_of",
    "groups_by_completion",
    "groups_by_name",
    "is_of_creation",
    "missing_file",
    "still_there",
]


Logs = list[tuple[LogFileName, str, int]]


@dataclass(frozen=True, slots=True)
class MetadataFileGroup:
    """Newest slice of a metadata file group: ``(path, size)`` of its files, logs oldest first.

    Attributes:
        slice_instant: Instant in the names of new log files in layout 1; empty in layout 2.
        next_version: Version of the next log file with that name.
    """

    file_id: str
    base: tuple[str, int] | None
    logs: tuple[tuple[str, int], ...]
    slice_instant: str = ""
    next_version: int = 1


def _parsed(
    entries: Iterable[FileInfo], is_valid: Callable[[str], bool]
) -> tuple[dict[str, dict[str, tuple[str, int]]], dict[str, Logs], list[str]]:
    """Valid base files by file id and instant, all log files by file id, and all file ids."""
    bases: dict[str, dict[str, tuple[str, int]]] = {}
    logs: dict[str, Logs] = {}
    file_ids: set[str] = set()
    for entry in entries:
        if (base := parse_base_file_name(entry.name)) is not None:
            file_ids.add(base.file_id)
            if is_valid(base.instant):
                bases.setdefault(base.file_id, {})[base.instant] = (entry.name, entry.size)
        elif (log := parse_log_file_name(entry.name)) is not None:
            file_ids.add(log.file_id)
            logs.setdefault(log.file_id, []).append((log, entry.name, entry.size))
    for found in logs.values():
        found.sort(key=lambda item: item[0].order)
    return bases, logs, sorted(file_ids)


def groups_by_completion(
    folder: str, entries: Iterable[FileInfo], is_valid: Callable[[str], bool], timeline: Timeline
) -> list[MetadataFileGroup]:
    """File groups of layout 2, by file id."""
    bases, logs, file_ids = _parsed(entries, is_valid)
    groups = []
    for file_id in file_ids:
        instant, (name, size) = max(bases.get(file_id, {}).items(), default=("", ("", 0)))
        later = tuple(
            (f"{folder}/{log_name}", log_size)
            for log, log_name, log_size in logs.get(file_id, [])
            if is_valid(log.instant) and (timeline.completion_time(log.instant) or log.instant) >= instant
        )
        groups.append(MetadataFileGroup(file_id, (f"{folder}/{name}", size) if name else None, later))
    return groups


def groups_by_name(
    folder: str,
    entries: Iterable[FileInfo],
    is_valid: Callable[[str], bool],
    timeline: Timeline,
    planned: Callable[[str], str],
) -> list[MetadataFileGroup]:
    """File groups of layout 1, by file id. The reader decides which blocks of their log files count.

    Args:
        folder: Folder of the metadata partition.
        entries: Listing of the folder.
        is_valid: Whether files of an instant count.
        timeline: Timeline of the metadata table.
        planned: Instant of the pending compaction of a file id; empty if there is none.
    """
    bases, logs, file_ids = _parsed(entries, is_valid)
    compacting = {instant.requested for instant in timeline.pending({"compaction"})}
    groups = []
    for file_id in file_ids:
        own_bases, own_logs = bases.get(file_id, {}), logs.get(file_id, [])
        named = {log.instant for log, _, _ in own_logs}
        begun = {instant for instant in named if is_valid(instant) or instant in compacting} | own_bases.keys()
        # A group that no completed instant has created belongs to an index under construction.
        slices = sorted(begun or named)
        newest = max(slices[-1] if slices else "", planned(file_id))
        read = _slices_read(slices, compacting, own_bases)
        base = own_bases.get(read[0]) if read else None
        groups.append(
            MetadataFileGroup(
                file_id,
                None if base is None else (f"{folder}/{base[0]}", base[1]),
                tuple((f"{folder}/{name}", size) for log, name, size in own_logs if log.instant in read),
                newest,
                max((log.version for log, _, _ in own_logs if log.instant == newest), default=0) + 1,
            )
        )
    return groups


def _slices_read(slices: list[str], compacting: set[str], bases: dict[str, tuple[str, int]]) -> list[str]:
    """The newest slice, and earlier ones while its base file does not exist yet."""
    read = slices[-1:]
    for instant in reversed(slices[:-1]):
        if read[0] not in compacting or read[0] in bases:
            break
        read.insert(0, instant)
    return read


_CREATES_PARTITION = "BULK_INSERT"
"""Operation of the commit that creates a partition, in both implementations (``initializeFilegroupsAndCommit``). Java
may request it at the very first instant, so its completion counts."""


_BEGINNING_OF_TIME = "0" * 14
"""Prefix of instants that create the partitions of a new metadata table (``SOLO_COMMIT_TIMESTAMP``)."""


def is_of_creation(instant: str) -> bool:
    """Whether an instant is one of those that create the partitions of a new metadata table."""
    return instant.startswith(_BEGINNING_OF_TIME)


def missing_file(
    partition: str, present: Mapping[str, int], timeline: Timeline, begun: Callable[[], str], threads: int = 1
) -> str:
    """Describe the first missing file of a metadata partition; empty if the partition is complete.

    Args:
        partition: Name of the partition.
        present: Sizes of the files in its folder, by name.
        timeline: Timeline of the metadata table.
        begun: First commit of the folder; called only if a file is missing. Earlier commits of an index that was
            dropped and built again wrote to the deleted folder.
        threads: Number of commits read in parallel.
    """
    completed = timeline.completed(WRITE_ACTIONS)
    if not completed:
        return "the metadata timeline has no commit"
    if not present:
        return f"the folder {partition} is empty or missing"
    newest = _newest_bases(present)
    wanted = commits_of(partition, present, timeline)
    # Cached ones need no thread: most of them, if a table is read repeatedly.
    unread = [instant for instant in wanted if not timeline.has_read(instant)]
    there = run_threads(partial(still_there, timeline), unread, threads)
    gone = {instant for instant, is_there in zip(unread, there, strict=True) if not is_there}
    stats: list[tuple[Instant, WriteStat]] = []
    for instant in wanted:
        if instant in gone:
            continue
        found = timeline.commit_metadata(instant)
        own = found.write_stats.get(partition, ())
        if own and (found.operation or "").startswith(_CREATES_PARTITION):
            stats.clear()
        stats.extend((instant, stat) for stat in own)
    layout = timeline.layout
    return _first_wrong(stats, present, newest, "", layout) and _first_wrong(stats, present, newest, begun(), layout)


def commits_of(partition: str, present: Mapping[str, int], timeline: Timeline) -> list[Instant]:
    """Commits that may have written files of a metadata partition which count, by completion.

    Args:
        partition: Name of the partition.
        present: Sizes of the files in its folder, by name.
        timeline: Timeline of the metadata table.
    """
    completed = timeline.completed(WRITE_ACTIONS)
    since = min(_newest_bases(present).values(), default="")
    nothing = _saying_nothing(partition, present, completed)
    return sorted((i for i in completed if _completed_at(i) >= since and i.requested not in nothing), key=_completed_at)


def still_there(timeline: Timeline, instant: Instant) -> bool:
    """Read a commit; False if it was undone or archived since the listing, so that its files do not count."""
    try:
        timeline.commit_metadata(instant)
    except FileNotFoundError:
        return False
    return True


def _saying_nothing(partition: str, present: Mapping[str, int], completed: Sequence[Instant]) -> set[str]:
    """Commits of a new metadata table that wrote no files of a partition except those seen in its folder.

    Each creates one partition, whose files have its instant, so any of them identifies the partition's commit.
    ``files`` has a single group, and its commit wrote only the base file.
    """
    first = {one.requested for one in completed if is_of_creation(one.requested)}
    bases = {base.instant for name in present if (base := parse_base_file_name(name)) is not None}
    logs = {log.instant for name in present if (log := parse_log_file_name(name)) is not None}
    own = first & (bases | logs)
    if not own:
        return set()
    return first - own | (first & bases if partition == FILES.name else set())


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
    """Instant of the newest base file by file group."""
    newest: dict[str, str] = {}
    for name in present:
        base = parse_base_file_name(name)
        if base is not None:
            newest[base.file_id] = max(newest.get(base.file_id, ""), base.instant)
    return newest


def _counts(instant: Instant, stat: WriteStat, base_instant: str, layout: int) -> bool:
    """Whether the file belongs to the newest slice; files of earlier ones may have been cleaned."""
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
