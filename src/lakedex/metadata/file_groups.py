"""Files of a metadata partition, put together into file groups.

Which files of a group are read differs by timeline layout, as for any merge-on-read table
(``HoodieTableFileSystemView``, ``FileGroupReader``):

2
    a log file is named by the delta commit that wrote it. It counts when that one does, and belongs to the slice with
    the largest base instant not after its completion.
1
    a log file is named by the instant that its slice begins with; which delta commits wrote into it, only its blocks
    tell. While a compaction is under way logs name it already, and its slice is read with the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakedex.io.storage import FileInfo
from lakedex.layout.names import LogFileName, parse_base_file_name, parse_log_file_name
from lakedex.timeline.timeline import Timeline

__all__ = ["MetadataFileGroup", "groups_by_completion", "groups_by_name"]

Logs = list[tuple[LogFileName, str, int]]


@dataclass(frozen=True, slots=True)
class MetadataFileGroup:
    """The newest slice of a metadata file group: ``(path, size)`` of its files, logs oldest first.

    Attributes:
        slice_instant: what the names of new log files have in layout 1; empty in layout 2.
        next_version: version of the next log file by that name.
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
    """File groups of layout 1, by file id. Which blocks of their log files count is left to the reader.

    Args:
        folder: the metadata partition's folder.
        entries: its listing.
        is_valid: whether what an instant wrote counts.
        timeline: the metadata table's.
        planned: instant of the pending compaction that will compact a file id; empty where there is none.
    """
    bases, logs, file_ids = _parsed(entries, is_valid)
    compacting = {instant.requested for instant in timeline.pending({"compaction"})}
    groups = []
    for file_id in file_ids:
        own_bases, own_logs = bases.get(file_id, {}), logs.get(file_id, [])
        named = {log.instant for log, _, _ in own_logs}
        begun = {instant for instant in named if is_valid(instant) or instant in compacting} | own_bases.keys()
        # A group that no completed instant has made yet belongs to an index that is being built.
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
    """The newest slice, and those before it as long as the base file that it begins with is not there yet."""
    read = slices[-1:]
    for instant in reversed(slices[:-1]):
        if read[0] not in compacting or read[0] in bases:
            break
        read.insert(0, instant)
    return read
