"""File groups and their slices: which files a snapshot of a table has (``HoodieTableFileSystemView``).

A listing names files; the timeline says which of them count. Version 8 rules: a base file counts when the
instant in its name is committed; a file group that a completed replace commit names is gone from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lakedex.layout.names import join_path, parse_base_file_name, parse_log_file_name

__all__ = ["BaseFile", "FileSlice", "LogFile", "latest_slices"]


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file of a snapshot. ``size`` in bytes."""

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
    """A log file of a snapshot. ``size`` in bytes; ``instant`` is the one in its name."""

    partition: str
    name: str
    size: int
    instant: str

    @property
    def relative_path(self) -> str:
        """Path below the table's folder."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The newest version of one file group: a base file and the log files written on top of it, oldest first."""

    partition: str
    file_id: str
    base_instant: str
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...] = field(default=())

    @property
    def name(self) -> str:
        """Name of the base file; of the first log file where there is none."""
        return self.base_file.name if self.base_file is not None else self.log_files[0].name

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return (self.base_file.size if self.base_file else 0) + sum(log.size for log in self.log_files)


def latest_slices(
    listing: Mapping[str, Mapping[str, int]],
    is_committed: Callable[[str], bool],
    completion_time: Callable[[str], str | None],
    replaced: Mapping[tuple[str, str], str] | Iterable[tuple[str, str]] = (),
    as_of: str | None = None,
) -> list[FileSlice]:
    """Newest slice of each file group, ordered by partition and file id.

    Args:
        listing: partition path → file name → size in bytes.
        is_committed: whether the instant in a file's name is committed.
        completion_time: completion time of an instant, None when it is not known (archived or pending).
        replaced: ``(partition, file id)`` of groups that are replaced in this snapshot.
        as_of: only files of instants up to this one.

    Returns:
        Slices; a log file belongs to the slice with the largest base instant not after its completion time.
    """
    gone = set(replaced)
    slices = []
    for partition, files in sorted(listing.items()):
        bases, logs = _group_files(partition, files, is_committed, as_of)
        for file_id in sorted(bases.keys() | logs.keys()):
            if (partition, file_id) in gone:
                continue
            own_logs = logs.get(file_id, [])
            slices.append(_newest_slice(partition, file_id, bases.get(file_id), own_logs, completion_time))
    return slices


def _group_files(
    partition: str, files: Mapping[str, int], is_committed: Callable[[str], bool], as_of: str | None
) -> tuple[dict[str, BaseFile], dict[str, list[LogFile]]]:
    bases: dict[str, BaseFile] = {}
    logs: dict[str, list[LogFile]] = {}
    for name, size in files.items():
        if (base := parse_base_file_name(name)) is not None:
            if (as_of is not None and base.instant > as_of) or not is_committed(base.instant):
                continue
            known = bases.get(base.file_id)
            # Of two attempts of one task only one is in the metadata; a plain listing may show both.
            if known is None or (base.instant, name) > (known.instant, known.name):
                bases[base.file_id] = BaseFile(partition, name, size, base.file_id, base.instant)
        elif (
            (log := parse_log_file_name(name)) is not None
            and not log.cdc
            and (as_of is None or log.instant <= as_of)
            and is_committed(log.instant)
        ):
            logs.setdefault(log.file_id, []).append(LogFile(partition, name, size, log.instant))
    return bases, logs


def _newest_slice(
    partition: str,
    file_id: str,
    base: BaseFile | None,
    logs: list[LogFile],
    completion_time: Callable[[str], str | None],
) -> FileSlice:
    if base is not None:
        logs = [log for log in logs if (completion_time(log.instant) or log.instant) >= base.instant]
    ordered = tuple(sorted(logs, key=lambda log: _log_order(log.name)))
    base_instant = base.instant if base is not None else min((log.instant for log in logs), default="")
    return FileSlice(partition, file_id, base_instant, base, ordered)


def _log_order(name: str) -> tuple[str, int, str, bool]:
    parsed = parse_log_file_name(name)
    return parsed.order if parsed is not None else (name, 0, "", False)
