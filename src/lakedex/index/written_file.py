"""A base file that a task has written, with all that its commit needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakedex.index.bitmap.runs import HeldBitmaps
from lakedex.index.column_stats.stats import ColumnStat
from lakedex.io.spilled import Spilled

__all__ = ["WrittenFile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """What became of one file group."""

    partition: str
    file_id: str
    file_name: str
    size: int
    rows: int
    inserted: int
    updated: int
    deleted: int
    previous: str | None
    previous_instant: str | None
    stats: tuple[ColumnStat, ...]
    bloom: bytes | None
    bloom_spilled: Spilled | None
    bloom_type: str
    seconds: float = field(default=0.0)
    moved: int = 0
    bitmaps: HeldBitmaps | None = None
