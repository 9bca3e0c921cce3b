"""What comparing an index with the data found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from lakedex.printing import printable, printed

__all__ = ["Difference", "ValidationReport", "difference_lines"]

SHOWN = 20
"""Differences that a printed report lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where an index does not agree with a base file.

    Attributes:
        partition, file: the base file; for ``partition_stats`` the partition, no file.
        column: the column; empty for the file as a whole.
        kind: of a bitmap index ``missing bitmap``, ``wrong positions``, ``wrong counts``, ``wrong values``,
            ``wrong row groups``, ``damaged bytes``; of others ``missing entry``, ``wrong bounds``, ``wrong counts``,
            ``missed keys``, ``damaged bytes``.
        count: how many values, or keys.
        detail: some of them, or what was expected and found.
        stored, found: the same apart, where both can be said: what the entry has, and what the file has.
    """

    partition: str
    file: str
    column: str
    kind: str
    count: int
    detail: str
    stored: str = ""
    found: str = ""

    def __str__(self) -> str:
        subject = f"{self.partition}/{self.file}".strip("/")
        times = f" ×{self.count}" if self.count > 1 else ""
        return printable(f"{subject}: {self.kind}{times}{f' of {self.column}' if self.column else ''}: {self.detail}")


def difference_lines(differences: Sequence[object], kinds: Iterable[tuple[str, int]]) -> list[str]:
    """How reports print differences: how many of each kind, and the first ones; no line where there are none."""
    if not differences:
        return []
    lines = ["  differences: " + ", ".join(f"{kind} {count}" for kind, count in kinds)]
    lines += [f"    {found}" for found in differences[:SHOWN]]
    if len(differences) > SHOWN:
        lines.append(f"    … and {len(differences) - SHOWN} more (to_arrow() has all)")
    return lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ValidationReport:
    """What :meth:`lakedex.Table.validate_index` found, and what it mended.

    Attributes:
        name: the index.
        using: its kind.
        instant: the commit whose files were looked at.
        files_total: base files of the table.
        files_checked: those that were compared.
        files_uncovered: those that the index does not know, which queries read: no fault.
        entries_checked: entries that were compared.
        entries_stale: entries of base files that are no longer current. Nobody asks for them: no fault.
        differences: what does not agree with the data.
        damage: files of the index that cannot be read or are missing.
        files_repaired: base files whose entries were written anew.
        notes: what else there is to know.
        seconds: the whole call.
    """

    name: str
    using: str
    instant: str | None = None
    files_total: int = 0
    files_checked: int = 0
    files_uncovered: int = 0
    entries_checked: int = 0
    entries_stale: int = 0
    differences: tuple[Difference, ...] = ()
    damage: tuple[str, ...] = ()
    files_repaired: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was found. What was mended counts as found."""
        return not self.differences and not self.damage

    def __str__(self) -> str:
        verdict = "agrees with the data" if self.ok else "does NOT agree with the data"
        lines = [
            f"index {self.name} ({self.using}) at {self.instant or 'no commit'}: {verdict}",
            f"  {self.files_checked} of {self.files_total} files compared, {self.entries_checked:,} entries; "
            f"{self.files_uncovered} files not covered, {self.entries_stale:,} stale entries; {self.seconds:.2f} s",
        ]
        lines += [f"  damage: {text}" for text in self.damage]
        lines += difference_lines(self.differences, sorted(Counter(found.kind for found in self.differences).items()))
        if self.files_repaired:
            lines.append(f"  repaired: entries of {self.files_repaired} files written anew")
        elif not self.ok:
            lines.append("  not repaired: validate_index with repair=True mends it")
        return printed([*lines, *(f"  note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**asdict(self), "ok": self.ok}

    def to_arrow(self) -> pa.Table:
        """The differences as a table."""
        return pa.Table.from_pylist([asdict(found) for found in self.differences], _DIFFERENCES)


_DIFFERENCES = pa.schema(
    [
        ("partition", pa.string()),
        ("file", pa.string()),
        ("column", pa.string()),
        ("kind", pa.string()),
        ("count", pa.int64()),
        ("detail", pa.string()),
    ]
)
