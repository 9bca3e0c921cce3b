"""Names fixed by Hudi and small value types that all packages share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import StrEnum

import numpy as np
import numpy.typing as npt

__all__ = [
    "COMMIT_SEQNO",
    "COMMIT_TIME",
    "DEFAULT_RULES",
    "FILE_NAME",
    "META_COLUMNS",
    "MISFIT",
    "PARTITION_PATH",
    "RECORD_KEY",
    "BoolArray",
    "IntArray",
    "IoCount",
    "Operation",
    "Progress",
    "SessionRules",
    "TableType",
    "decimal_of",
    "size_text",
]


BoolArray = npt.NDArray[np.bool_]


IntArray = npt.NDArray[np.int64]


Progress = Callable[[int, int], None]
"""Called with the completed and the total amount of work."""


COMMIT_TIME = "_hoodie_commit_time"


COMMIT_SEQNO = "_hoodie_commit_seqno"


RECORD_KEY = "_hoodie_record_key"


PARTITION_PATH = "_hoodie_partition_path"


FILE_NAME = "_hoodie_file_name"


META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""Hudi's five columns before those of the table, in this order (HoodieRecord.HOODIE_META_COLUMNS)."""


MISFIT = "__lakedex_misfit"
"""Column of rows computed by Spark: JSON of ``column``, ``expected`` and ``value`` if a value does not fit."""


class TableType(StrEnum):
    """``hoodie.table.type``."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class Operation(StrEnum):
    """``operationType`` of a commit: Hudi's enum names (WriteOperationType); Java refuses others."""

    BULK_INSERT = "BULK_INSERT"
    INSERT = "INSERT"
    UPSERT = "UPSERT"
    DELETE = "DELETE"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    DELETE_PARTITION = "DELETE_PARTITION"
    ALTER_SCHEMA = "ALTER_SCHEMA"
    CLUSTER = "CLUSTER"

    def action(self, table_type: str) -> str:
        """Timeline action of the operation in a table of a type (``CommitUtils.getCommitActionType``)."""
        if self.name.startswith("INSERT_OVERWRITE") or self in (Operation.DELETE_PARTITION, Operation.CLUSTER):
            return "replacecommit"
        return "deltacommit" if table_type == TableType.MERGE_ON_READ else "commit"


@dataclass(frozen=True, slots=True)
class SessionRules:
    """Rules by which a session reads SQL text.

    Attributes:
        case_sensitive: Whether column names that differ in case are different names (``spark.sql.caseSensitive``).
        timezone: Zone of timestamps without offset, and of casts between timestamps, dates and text
            (``spark.sql.session.timeZone``).
    """

    case_sensitive: bool = False
    timezone: str = "UTC"


DEFAULT_RULES = SessionRules()
"""Rules of a session without settings."""


@dataclass(slots=True)
class IoCount:
    """Number of read requests and bytes. Mutable: readers add to it."""

    requests: int = 0
    bytes_read: int = 0

    def add(self, requests: int, bytes_read: int) -> None:
        """Add ``requests`` requests for ``bytes_read`` bytes."""
        self.requests += requests
        self.bytes_read += bytes_read

    def __sub__(self, other: IoCount) -> IoCount:
        return IoCount(self.requests - other.requests, self.bytes_read - other.bytes_read)

    def copy(self) -> IoCount:
        """Copy, to compute a difference later."""
        return IoCount(self.requests, self.bytes_read)


_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """The decimal of an unscaled value, exactly: the default context rounds what it computes to 28 digits.

    Example:
        >>> decimal_of(12345, 2)
        Decimal('123.45')
    """
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def size_text(count: int) -> str:
    """Format a number of bytes."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
