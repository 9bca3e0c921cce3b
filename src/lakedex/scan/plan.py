"""``ScanPlan``: which files a scan keeps, and what each index did for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.index.bitmap.selection import RowSelection
from lakedex.index.protocol import Unused
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.slice_table import SliceTable
from lakedex.printing import printed
from lakedex.types import size_text

__all__ = ["PruneStage", "ScanPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneStage:
    """One index's turn.

    Attributes:
        name: ``partition``, ``partition_stats``, ``column_stats``, ``bloom_filters`` or ``bitmap``.
        before, after: files that came in and files that were kept.
        bytes_before, bytes_after: their sizes.
        requests, bytes_read, seconds: what reading the index took.
        terms: conditions that it judged.
        note: what else is worth knowing (``unknown for 3 files, kept``).
    """

    name: str
    before: int
    after: int
    bytes_before: int
    bytes_after: int
    requests: int
    bytes_read: int
    seconds: float
    terms: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanPlan:
    """The files of a scan.

    Attributes:
        table: the table's name.
        instant: the commit that is read; None for a table without commits.
        where: the condition as SQL text, None for all rows.
        files_total, bytes_total: the snapshot's file slices; a slice is its base file, and log files of merge-on-read.
        slices: those that are kept.
        stages: one per index that was asked.
        unused: per index or column that could not be used, why.
        seconds: what planning took.
        selections: of kept base files, by name, the rows that may match, where bitmaps were read for that.
        candidates, dropped_by: all slices of the snapshot, and per slice the stage that dropped it (-1 for none).
    """

    table: str
    instant: str | None
    where: str | None
    files_total: int
    bytes_total: int
    slices: tuple[FileSlice, ...]
    stages: tuple[PruneStage, ...] = ()
    unused: tuple[Unused, ...] = ()
    seconds: float = 0.0
    candidates: SliceTable | None = field(default=None, compare=False)
    dropped_by: npt.NDArray[np.int8] | None = field(default=None, compare=False)
    selections: Mapping[str, RowSelection] = field(default_factory=dict, compare=False)

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """Base files of the kept slices."""
        return tuple(item.base_file for item in self.slices if item.base_file is not None)

    @property
    def files_kept(self) -> tuple[str, ...]:
        """Names of the kept slices' base files; of its first log file for a slice without one."""
        return tuple(item.name for item in self.slices)

    @property
    def bytes_kept(self) -> int:
        """Size of the kept slices."""
        return sum(item.size for item in self.slices)

    @property
    def dropped(self) -> list[tuple[FileSlice, str]]:
        """Slices that are not kept, each with the name of the stage that dropped it."""
        if self.candidates is None or self.dropped_by is None:
            return []
        rows = np.flatnonzero(self.dropped_by >= 0)
        by = self.dropped_by[rows].tolist()
        return [(item, self.stages[at].name) for item, at in zip(self.candidates.take(rows), by, strict=True)]

    def stage(self, name: str) -> PruneStage:
        """The stage of one index.

        Raises:
            KeyError: it was not asked; ``unused`` says why.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(f"no stage {name!r}; stages: {', '.join(stage.name for stage in self.stages) or 'none'}")

    @property
    def summary(self) -> str:
        """One line: what was kept of how much."""
        share = f" ({100 * self.bytes_kept / self.bytes_total:.2f} %)" if self.bytes_total else ""
        return (
            f"{len(self.slices)} of {self.files_total} files · {size_text(self.bytes_kept)} of "
            f"{size_text(self.bytes_total)}{share}"
        )

    def __str__(self) -> str:
        where = self.where.replace("\n)", ")") if self.where else "(all rows)"
        lines = [f"Scan  {self.table}  snapshot {self.instant or '(no commit)'}    where {where}"]
        if self.stages:
            lines.append(f"{'stage':<15}{'files':>7}{'kept':>7}{'pruned':>9}  {'read':<17}{'time':>8}  used for")
        for stage in self.stages:
            pruned = f"{100 * (stage.before - stage.after) / stage.before:.1f} %" if stage.before else "–"
            read = f"{stage.requests} req {size_text(stage.bytes_read)}" if stage.requests else "–"
            used = ", ".join(stage.terms) + (f"  ({stage.note})" if stage.note else "")
            lines.append(
                f"{stage.name:<15}{stage.before:>7}{stage.after:>7}{pruned:>9}  {read:<17}"
                f"{stage.seconds * 1000:>5.0f} ms  {used}"
            )
        lines.append(f"{'result':<15}{self.summary}")
        if self.unused:
            lines.append("not used: " + " · ".join(map(str, self.unused)))
        return printed(lines)

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {
            "table": self.table,
            "instant": self.instant,
            "where": self.where,
            "files_total": self.files_total,
            "bytes_total": self.bytes_total,
            "files_kept": list(self.files_kept),
            "bytes_kept": self.bytes_kept,
            "stages": [asdict(stage) for stage in self.stages],
            "unused": [asdict(item) for item in self.unused],
            "seconds": self.seconds,
        }

    def to_arrow(self) -> pa.Table:
        """The stages as a table."""
        return pa.Table.from_pylist([asdict(stage) for stage in self.stages], _STAGES)

    def _repr_html_(self) -> str:
        bars = "".join(_bar(stage.name, stage.after, self.files_total, ", ".join(stage.terms)) for stage in self.stages)
        rows = _bar("snapshot", self.files_total, self.files_total, "") + bars
        unused = f"<div>not used: {escape(' · '.join(map(str, self.unused)))}</div>" if self.unused else ""
        return (
            f"<div style='font-family:monospace'><b>{escape(self.table)}</b> {escape(self.instant or '')} · where "
            f"{escape(self.where or '(all rows)')}<table>{rows}</table>{escape(self.summary)}{unused}</div>"
        )


_STAGES = pa.schema(
    [
        ("name", pa.string()),
        ("before", pa.int64()),
        ("after", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("requests", pa.int64()),
        ("bytes_read", pa.int64()),
        ("seconds", pa.float64()),
        ("terms", pa.list_(pa.string())),
        ("note", pa.string()),
    ]
)


def _bar(name: str, files: int, total: int, terms: str) -> str:
    width = max(1, round(300 * files / total)) if total else 1
    bar = f"<div style='background:#4c78a8;height:12px;width:{width}px'></div>"
    return f"<tr><td>{escape(name)}</td><td>{bar}</td><td>{files}</td><td>{escape(terms)}</td></tr>"
