"""What comparing a table's metadata with its files found: ``TableReport``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import pyarrow as pa

from lakedex.index.validation import Difference, difference_lines
from lakedex.printing import printable, printed

__all__ = ["TableDifference", "TableReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDifference:
    """One thing that the metadata says otherwise than it is.

    Attributes:
        index: ``files``, ``column_stats``, ``bloom_filters``, ``partition_stats``, a bitmap index, ``timeline``, or
            ``definitions``.
        kind: what is wrong. Of ``files``: ``missing file`` (storage has it and its commit is completed), ``file gone``,
            ``wrong size``, ``uncommitted file`` (listed), ``stray file`` (in storage, of no commit), ``lost file`` (the
            newest of its file group, and nowhere), ``missing partition``, ``partition gone``. Of an index: ``damaged
            index``, ``missing entry``, ``wrong bounds``, ``wrong counts``, ``missed keys``, ``damaged bytes``, and
            those of bitmap indexes. Else ``unfinished metadata commit``, ``missing definition``.
        partition, file, column: what it is about; empty where that does not apply.
        stored: what the metadata says.
        found: what is true.
    """

    index: str
    kind: str
    partition: str = ""
    file: str = ""
    column: str = ""
    stored: str = ""
    found: str = ""

    @classmethod
    def of(cls, index: str, found: Difference) -> TableDifference:
        """A difference between an index and a base file."""
        return cls(
            index=index,
            kind=found.kind,
            partition=found.partition,
            file=found.file,
            column=found.column,
            stored=found.stored,
            found=found.found or found.detail,
        )

    def __str__(self) -> str:
        subject = " ".join(filter(None, (f"{self.partition}/{self.file}".strip("/"), self.column)))
        says = f": metadata says {self.stored}" if self.stored else ""
        truth = f"{',' if says else ':'} found {self.found}" if self.found else ""
        return printable(f"{self.index}: {self.kind}{f' of {subject}' if subject else ''}{says}{truth}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableReport:
    """What :meth:`lakedex.Table.validate` found.

    Attributes:
        table, instant: the table, and the commit that was looked at.
        files_total: current base files.
        files_compared: those that were opened and compared with the indexes.
        files_listed: data files that the metadata lists, of earlier states too.
        indexes: what was compared.
        differences: what is not as the metadata says.
        notes: what is worth knowing and no fault.
        seconds: the whole call.
    """

    table: str
    instant: str | None
    files_total: int
    files_compared: int
    files_listed: int
    indexes: tuple[str, ...]
    differences: tuple[TableDifference, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    @property
    def kinds(self) -> dict[str, int]:
        """How many differences there are of each kind, as ``index: kind``."""
        return dict(Counter(f"{found.index}: {found.kind}" for found in self.differences))

    def __str__(self) -> str:
        verdict = "metadata agrees with the files" if self.ok else "metadata does NOT agree with the files"
        compared = f"{self.files_compared:,} of {self.files_total:,} current ones compared"
        lines = [
            f"table {self.table} at {self.instant or 'no commit'}: {verdict}",
            f"  {self.files_listed:,} files listed; {compared} with {', '.join(self.indexes) or 'nothing'}; "
            f"{self.seconds:.2f} s",
        ]
        lines += difference_lines(self.differences, self.kinds.items())
        if not self.ok:
            lines.append("  rebuild_metadata() makes the metadata anew")
        return printed([*lines, *(f"  note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**asdict(self), "ok": self.ok}

    def to_arrow(self) -> pa.Table:
        """The differences as a table."""
        names = ("index", "kind", "partition", "file", "column", "stored", "found")
        schema = pa.schema([(name, pa.string()) for name in names])
        return pa.Table.from_pylist([asdict(found) for found in self.differences], schema)

    def _repr_html_(self) -> str:
        head, *rest = str(self).split("\n")
        colour = "#2e7d32" if self.ok else "#c62828"
        body = escape("\n".join(rest))
        return f"<div><b style='color:{colour}'>{escape(head)}</b><pre>{body}</pre></div>"
