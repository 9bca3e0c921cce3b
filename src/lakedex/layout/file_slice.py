"""Group the files of a snapshot into file groups and slices, as objects and as columns.

As in ``HoodieTableFileSystemView``, a listing names files and the timeline decides which of them count: a base file
counts if the instant in its name is committed; a file group is gone once a completed replace commit names it. Log files
of change data (``.cdc``) are not part of a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lakedex.codec.table_paths import BASE_FILE_NAME
from lakedex.layout.names import join_path, parse_base_file_name, parse_log_file_name

__all__ = [
    "BaseFile",
    "DataFile",
    "FileSlice",
    "LogFile",
    "SliceRules",
    "SliceTable",
    "file_group_slices",
    "find_slices",
]


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file of a snapshot; ``size`` is in bytes."""

    partition: str
    name: str
    size: int
    file_id: str
    instant: str

    @property
    def relative_path(self) -> str:
        """Path below the table's folder."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file of a snapshot; ``size`` is in bytes, ``instant`` is the one in its name."""

    partition: str
    name: str
    size: int
    instant: str

    @property
    def relative_path(self) -> str:
        """Path below the table's folder."""
        return join_path(self.partition, self.name)


DataFile = BaseFile | LogFile
"""A file with rows."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A version of one file group: a base file and its log files, oldest first."""

    partition: str
    file_id: str
    base_instant: str
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...] = field(default=())

    @property
    def name(self) -> str:
        """Name of the base file, or of the first log file if there is none."""
        return self.base_file.name if self.base_file is not None else self.log_files[0].name

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All its files, the base file first."""
        return (*(() if self.base_file is None else (self.base_file,)), *self.log_files)

    @property
    def size(self) -> int:
        """Size of all its files in bytes."""
        if not self.log_files and self.base_file is not None:
            return self.base_file.size
        return (self.base_file.size if self.base_file else 0) + sum(log.size for log in self.log_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRules:
    """Rules by which the files of a listing count and become slices.

    Attributes:
        is_committed: Whether the instant in a file's name is committed.
        completion_time: Completion time of an instant; None if unknown (archived or pending).
        replaced: ``(partition, file id)`` of groups replaced in this snapshot.
        as_of: Latest instant of slices and of their log files; None sets no limit.
        logs_name_base: Version 6: the name of a log file has the base instant of its slice, not that of the commit that
            wrote it, which only its blocks record.
        pending_compactions: Version 6: instants of pending compactions, the base instants of logs written meanwhile.
        base_files_only: Ignore log files, for read-optimized queries.
    """

    is_committed: Callable[[str], bool]
    completion_time: Callable[[str], str | None]
    replaced: frozenset[tuple[str, str]] = frozenset()
    as_of: str | None = None
    logs_name_base: bool = False
    pending_compactions: frozenset[str] = frozenset()
    base_files_only: bool = False


def find_slices(listing: Mapping[str, Mapping[str, int]], rules: SliceRules) -> list[FileSlice]:
    """Newest slice of each file group, ordered by partition and file id.

    Args:
        listing: Partition path → file name → size in bytes.
        rules: Rules for files that count.

    Returns:
        Slices. A log file belongs to the slice with the largest base instant not after its completion time; in
        version 6 to the slice in its name.
    """
    slices = []
    committed = _Committed(rules.is_committed)
    for partition, files in sorted(listing.items()):
        plain = _plain_slices(partition, files, rules, committed)
        if plain is not None:
            slices += plain
            continue
        bases, logs = _group_files(partition, files, rules)
        for file_id in sorted(bases.keys() | logs.keys()):
            if (partition, file_id) in rules.replaced:
                continue
            found = _newest_slice(partition, file_id, bases.get(file_id, {}), logs.get(file_id, []), rules)
            if found is not None:
                slices.append(found)
    return slices


class _Committed(dict[str, bool]):
    """Cache of whether instants are committed."""

    def __init__(self, is_committed: Callable[[str], bool]) -> None:
        self._is_committed = is_committed

    def __missing__(self, instant: str) -> bool:
        found = self[instant] = self._is_committed(instant)
        return found


def _plain_slices(
    partition: str, files: Mapping[str, int], rules: SliceRules, committed: Mapping[str, bool]
) -> list[FileSlice] | None:
    """Slices of a partition without log files, in one step per file; None if there are log files."""
    newest: dict[str, tuple[str, str, int]] = {}
    match, limit = BASE_FILE_NAME.fullmatch, rules.as_of
    for name, size in files.items():
        found = match(name)
        if found is None:
            if not rules.base_files_only and parse_log_file_name(name) is not None:
                return None
            continue
        file_id, instant = found.group(1, 3)
        if not committed[instant] or (limit is not None and instant > limit):
            continue
        known = newest.get(file_id)
        # Only one of two attempts of a task is in the metadata; a listing may show both.
        if known is None or (instant, name) > known[:2]:
            newest[file_id] = (instant, name, size)
    return [
        FileSlice(partition, file_id, instant, BaseFile(partition, name, size, file_id, instant))
        for file_id, (instant, name, size) in sorted(newest.items())
        if (partition, file_id) not in rules.replaced
    ]


def file_group_slices(partition: str, files: Mapping[str, int], rules: SliceRules) -> dict[str, list[FileSlice]]:
    """All slices of one partition's file groups by file id, newest first, replaced groups included.

    A slice that a pending compaction of version 6 has opened stands for itself.
    """
    bases, logs = _group_files(partition, files, rules)
    found: dict[str, list[FileSlice]] = {}
    for file_id in sorted(bases.keys() | logs.keys()):
        own = bases.get(file_id, {})
        slots = _slots(own, logs.get(file_id, []), rules)
        found[file_id] = [
            FileSlice(partition, file_id, instant, own.get(instant), _in_order(slots[instant]))
            for instant in sorted(slots, reverse=True)
        ]
    return found


def _group_files(
    partition: str, files: Mapping[str, int], rules: SliceRules
) -> tuple[dict[str, dict[str, BaseFile]], dict[str, list[LogFile]]]:
    """Committed base files by file id and instant, and log files by file id."""
    bases: dict[str, dict[str, BaseFile]] = {}
    logs: dict[str, list[LogFile]] = {}
    for name, size in files.items():
        if (base := parse_base_file_name(name)) is not None:
            if not rules.is_committed(base.instant):
                continue
            known = bases.setdefault(base.file_id, {})
            # Only one of two attempts of a task is in the metadata; a listing may show both.
            if base.instant not in known or name > known[base.instant].name:
                known[base.instant] = BaseFile(partition, name, size, base.file_id, base.instant)
        elif (
            not rules.base_files_only
            and (log := parse_log_file_name(name)) is not None
            and not log.cdc
            and (rules.is_committed(log.instant) or log.instant in rules.pending_compactions)
        ):
            logs.setdefault(log.file_id, []).append(LogFile(partition, name, size, log.instant))
    return bases, logs


def _slots(bases: Mapping[str, BaseFile], logs: list[LogFile], rules: SliceRules) -> dict[str, list[LogFile]]:
    """Log files of each slice of a file group by base instant; those without a base file share one."""
    slots: dict[str, list[LogFile]] = {instant: [] for instant in bases}
    alone: list[LogFile] = []
    for log in logs:
        base_instant = log.instant if rules.logs_name_base else _base_instant(log.instant, bases, rules)
        (alone if base_instant is None else slots.setdefault(base_instant, [])).append(log)
    if alone:
        slots[min(log.instant for log in alone)] = alone
    return slots


def _newest_slice(
    partition: str, file_id: str, bases: dict[str, BaseFile], logs: list[LogFile], rules: SliceRules
) -> FileSlice | None:
    slots = _slots(bases, logs, rules)
    visible = sorted(instant for instant in slots if rules.as_of is None or instant <= rules.as_of)
    if not visible:
        return None
    base_instant = visible.pop()
    found = slots[base_instant]
    # HoodieFileGroup of version 6: until its compaction completes, a slice is read together with the one before it
    # (AbstractTableFileSystemView.fetchMergedFileSlice).
    while base_instant in rules.pending_compactions and base_instant not in bases and visible:
        base_instant = visible.pop()
        found = slots[base_instant] + found
    # In version 6 a log's name does not record its commits, and none is after the first instant of the slice.
    valid = [log for log in found if rules.as_of is None or log.instant <= rules.as_of]
    ordered = _in_order(valid)
    base = bases.get(base_instant)
    return FileSlice(partition, file_id, base_instant, base, ordered) if base is not None or ordered else None


def _in_order(logs: list[LogFile]) -> tuple[LogFile, ...]:
    return tuple(sorted(logs, key=lambda log: _log_order(log.name)))


def _base_instant(log_instant: str, bases: Mapping[str, BaseFile], rules: SliceRules) -> str | None:
    """Base instant of a log file's slice in version 8; None if no base file is old enough."""
    newest = max(bases, default="")
    if not newest or log_instant >= newest:
        return newest or None
    completed = rules.completion_time(log_instant) or log_instant
    return max((instant for instant in bases if instant <= completed), default=None)


def _log_order(name: str) -> tuple[str, int, str, bool]:
    parsed = parse_log_file_name(name)
    return parsed.order if parsed is not None else (name, 0, "", False)


@dataclass(frozen=True, slots=True, eq=False)
class SliceTable:
    """Slices of a snapshot, ordered by partition and file id; a *row* is a position in this order.

    Attributes:
        slices: Slices in order.
        partitions: Paths of the partitions that have slices, in order.
        starts: First row of each partition, and finally the number of slices.
        sizes: Size of each slice in bytes, including log files.
        has_logs: Whether each slice has log files.
    """

    slices: tuple[FileSlice, ...]
    partitions: tuple[str, ...]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    has_logs: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, by_partition: Mapping[str, Sequence[FileSlice]]) -> SliceTable:
        """Concatenate the slices of all partitions."""
        partitions = tuple(path for path in sorted(by_partition) if by_partition[path])
        slices = tuple(item for path in partitions for item in by_partition[path])
        starts = np.zeros(len(partitions) + 1, np.int64)
        np.cumsum([len(by_partition[path]) for path in partitions], out=starts[1:])
        sizes = np.fromiter((item.size for item in slices), np.int64, len(slices))
        has_logs = np.fromiter((bool(item.log_files) for item in slices), np.bool_, len(slices))
        return cls(slices, partitions, starts, sizes, has_logs)

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def partition_of(self) -> npt.NDArray[np.int64]:
        """Index in :attr:`partitions` per slice."""
        return np.repeat(np.arange(len(self.partitions)), np.diff(self.starts))

    def take(self, rows: npt.NDArray[np.int64]) -> list[FileSlice]:
        """Slices of some rows."""
        slices = self.slices
        return [slices[row] for row in rows.tolist()]

    def rows_in(self, older: SliceTable) -> npt.NDArray[np.int64]:
        """Row per slice in an older table with the identical object; -1 if it is new."""
        known = {id(item): row for row, item in enumerate(older.slices)}
        return np.fromiter((known.get(id(item), -1) for item in self.slices), np.int64, len(self))
