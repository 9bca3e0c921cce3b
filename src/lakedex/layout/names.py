"""Build and parse file names of data and metadata tables (``FSUtils`` of Hudi).

Patterns of data files are in :mod:`lakedex.codec.table_paths`; a direct marker is called
``<data file name>.marker.<CREATE|MERGE|APPEND>``.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from lakedex.codec.table_paths import BASE_FILE_NAME, LOG_FILE_NAME

__all__ = [
    "PARTITION_METAFILE",
    "BaseFileName",
    "LogFileName",
    "instant_of",
    "join_path",
    "marker_name",
    "new_file_id",
    "parse_base_file_name",
    "parse_log_file_name",
    "parse_marker_name",
]


PARTITION_METAFILE = ".hoodie_partition_metadata"


_MARKER = re.compile(r"^(.*)\.marker\.(CREATE|MERGE|APPEND)$")


@dataclass(frozen=True, slots=True, order=True)
class BaseFileName:
    """Parts of a base file's name."""

    file_id: str
    token: str
    instant: str
    extension: str = ".parquet"

    def __str__(self) -> str:
        return f"{self.file_id}_{self.token}_{self.instant}{self.extension}"


@dataclass(frozen=True, slots=True)
class LogFileName:
    """Parts of a log file's name. In version 8 ``instant`` is the delta commit that wrote it."""

    file_id: str
    instant: str
    version: int
    token: str
    cdc: bool = False

    def __str__(self) -> str:
        suffix = ".cdc" if self.cdc else ""
        return f".{self.file_id}_{self.instant}.log.{self.version}_{self.token}{suffix}"

    @property
    def order(self) -> tuple[str, int, str, bool]:
        """Hudi's order of a slice's log files (``HoodieLogFile.LogFileComparator``)."""
        return (self.instant, self.version, self.token, self.cdc)


def parse_base_file_name(name: str) -> BaseFileName | None:
    """Parse ``name``; None if it is not a base file's."""
    match = BASE_FILE_NAME.fullmatch(name)
    return BaseFileName(*match.groups()) if match else None


def parse_log_file_name(name: str) -> LogFileName | None:
    """Parse ``name``; None if it is not a log file's."""
    match = LOG_FILE_NAME.fullmatch(name)
    if match is None:
        return None
    file_id, instant, version, token, _, _, _, cdc = match.groups()
    return LogFileName(file_id, instant, int(version), token or "", cdc is not None)


def instant_of(name: str) -> str | None:
    """The instant in the name of a base or log file; None for any other name."""
    base = parse_base_file_name(name)
    if base is not None:
        return base.instant
    log = parse_log_file_name(name)
    return None if log is None else log.instant


def marker_name(file_name: str, kind: str) -> str:
    """Name of the empty file that precedes ``file_name``; ``kind`` is CREATE, MERGE or APPEND."""
    return f"{file_name}.marker.{kind}"


def parse_marker_name(name: str) -> tuple[str, str] | None:
    """``(file name, kind)`` of a direct marker, or None."""
    match = _MARKER.match(name)
    return (match.group(1), match.group(2)) if match else None


def new_file_id() -> str:
    """Create a file id: a random UUID and the running number that Hudi appends.

    It never starts with eight decimal digits, which mark buckets (``BucketIdentifier``).
    """
    found = str(uuid.uuid4())
    return new_file_id() if found[:8].isdecimal() else f"{found}-0"


def join_path(*parts: str) -> str:
    """Join path parts with ``/``, skipping empty ones (the partition path of a non-partitioned table)."""
    return "/".join(part for part in parts if part)
