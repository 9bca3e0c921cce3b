"""What a write did: ``WriteResult`` and the tagging report inside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from html import escape
from typing import Any

from lakedex.printing import printed
from lakedex.types import size_text

__all__ = ["IndexResult", "RebuildResult", "TaggingReport", "WriteResult"]


@dataclass(slots=True, kw_only=True, repr=False)
class TaggingReport:
    """How the index found the files of the incoming keys.

    Attributes:
        files_listed: base files of the touched partitions.
        files_after_ranges: files whose key range holds an incoming key.
        files_after_blooms: files whose filter may hold an incoming key.
        files_opened: files whose key column was read.
        keys_probed: distinct incoming keys.
        candidates: (file, key) pairs that the filters let through.
        matches: pairs that the key columns confirmed.
        false_positives: pairs that they did not.
        pairs_probed: pairs that were put to a filter; the others are of files without one.
        probed_matches, probed_in_vain: of these, pairs that the key columns confirmed, and pairs that the filter let
            through and they did not.
        false_positive_rate: the filters' observed rate; None where no filter was asked for a key that is not there.
        requests, bytes_read: what reading metadata and key columns took.
        seconds: per level ``ranges``, ``blooms``, ``keys``.
        source: ``metadata``, ``footers`` or ``none`` where nothing had to be looked up.
        notes: why a level could not use the metadata.
    """

    files_listed: int = 0
    files_after_ranges: int = 0
    files_after_blooms: int = 0
    files_opened: int = 0
    keys_probed: int = 0
    candidates: int = 0
    matches: int = 0
    pairs_probed: int = 0
    probed_matches: int = 0
    probed_in_vain: int = 0
    requests: int = 0
    bytes_read: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    source: str = "none"
    notes: list[str] = field(default_factory=list)

    @property
    def false_positives(self) -> int:
        """Pairs that a filter let through in vain."""
        return self.candidates - self.matches

    @property
    def false_positive_rate(self) -> float | None:
        """Share of the pairs put to a filter, their key not in the file, that it let through."""
        absent = self.pairs_probed - self.probed_matches
        return self.probed_in_vain / absent if absent else None

    def __str__(self) -> str:
        rate = "" if self.false_positive_rate is None else f" (rate {self.false_positive_rate:.1e})"
        times = ", ".join(f"{level} {seconds:.2f} s" for level, seconds in self.seconds.items())
        return (
            f"files {self.files_listed} → {self.files_after_ranges} after ranges"
            f" → {self.files_after_blooms} after blooms → {self.files_opened} opened;"
            f" {self.keys_probed:,} keys, {self.false_positives} false positives{rate};"
            f" {self.requests} requests, {size_text(self.bytes_read)}{f' ({times})' if times else ''}"
        )

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        rates = {"false_positives": self.false_positives, "false_positive_rate": self.false_positive_rate}
        return {**asdict(self), **rates}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WriteResult:
    """What one write did.

    Attributes:
        instant: the commit; None when nothing had to be written.
        latest: the commit whose rows the table had afterwards: ``instant``, or where nothing had to be written the
            newest one of others. ``scan(as_of=result.latest)`` reads that state again; None if there is no commit.
        operation: Hudi's name of the action.
        inserted, updated, deleted: rows.
        files_written: new base files.
        bytes_written: their size.
        metadata_bytes: size of the commit's metadata log files.
        bitmap_bytes: size of the runs of bitmaps that the write added, or put together from older ones.
        bitmap_seconds: time for bitmaps, added up over tasks.
        seconds: the whole call.
        tagging: what the index did.
        notes: options without effect, conflicts retried, indexes not kept …
    """

    instant: str | None
    operation: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files_written: int = 0
    bytes_written: int = 0
    metadata_bytes: int = 0
    bitmap_bytes: int = 0
    bitmap_seconds: float = 0.0
    seconds: float = 0.0
    tagging: TaggingReport = field(default_factory=TaggingReport)
    notes: tuple[str, ...] = ()
    latest: str | None = None

    def __str__(self) -> str:
        head = (
            f"{self.operation.lower()} {self.instant or '(nothing to write)'}: "
            f"{self.inserted:,} inserted, {self.updated:,} updated, {self.deleted:,} deleted; "
            f"{self.files_written} files, {size_text(self.bytes_written)} "
            f"(+{size_text(self.metadata_bytes)} metadata), {self.seconds:.2f} s"
        )
        lines = [head]
        if self.tagging.source != "none":
            lines.append(f"  index: {self.tagging}")
        if self.bitmap_bytes:
            lines.append(f"  bitmaps: {self._bitmap_text}")
        lines += [f"  note: {note}" for note in (*self.notes, *self.tagging.notes)]
        return printed(lines)

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "tagging"}
        return {**plain, "tagging": self.tagging.to_dict()}

    @property
    def _bitmap_text(self) -> str:
        return f"{size_text(self.bitmap_bytes)}, {self.bitmap_seconds:.2f} s over all tasks"

    def _repr_html_(self) -> str:
        report = self.tagging
        rows: Iterable[tuple[str, str]] = [
            ("instant", self.instant or "–"),
            ("rows", f"{self.inserted:,} inserted · {self.updated:,} updated · {self.deleted:,} deleted"),
            (
                "files",
                f"{self.files_written} · {size_text(self.bytes_written)} · metadata {size_text(self.metadata_bytes)}",
            ),
            ("seconds", f"{self.seconds:.2f}"),
            ("index", str(report) if report.source != "none" else "–"),
            *([("bitmaps", self._bitmap_text)] if self.bitmap_bytes else []),
            *(("note", note) for note in (*self.notes, *report.notes)),
        ]
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(k)}</th><td style='text-align:left'>{escape(v)}</td></tr>"
            for k, v in rows
        )
        return f"<table><caption>{escape(self.operation.lower())}</caption>{body}</table>"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexResult:
    """What creating or dropping an index did.

    Attributes:
        name: the index.
        columns: columns that were built.
        instant: the first delta commit of the metadata table; None when nothing was written.
        files: base files that were covered.
        entries: records written.
        bytes_written: size of the metadata files written.
        seconds: the whole call.
        notes: what else the user should know.
    """

    name: str
    columns: tuple[str, ...] = ()
    instant: str | None = None
    files: int = 0
    entries: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = (
            f"index {self.name}: {self.entries:,} entries of {self.files} files, {size_text(self.bytes_written)}, "
            f"{self.seconds:.2f} s"
        )
        return printed([head, *(f"  note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RebuildResult:
    """What making the metadata table anew did.

    Attributes:
        partitions, files: data partitions and files that it lists now.
        indexes: what building each index did.
        seconds: the whole call.
        notes: what else the user should know.
    """

    partitions: int
    files: int
    indexes: tuple[IndexResult, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"metadata table made anew: {self.files:,} files in {self.partitions:,} partitions, {self.seconds:.2f} s"
        return printed([head, *(f"  {index}" for index in self.indexes), *(f"  note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self)
