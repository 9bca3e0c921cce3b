"""Reports: the values that calls return, with a text for people and fields for programs.

What a write did: ``WriteResult`` and the tagging report inside it.

What comparing an index with the data found.

What comparing a table's metadata with its files found: ``TableReport``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, cast

import pyarrow as pa

from lakedex.display.blocks import ROWS, Bars, Block, Card, Code, Facts, Funnel, Grid, Notice, Notices, Tone, notes
from lakedex.display.html import card_html
from lakedex.display.text import card_text
from lakedex.printing import counted, printable
from lakedex.types import Operation, size_text

__all__ = [
    "Difference",
    "IndexResult",
    "RebuildResult",
    "Report",
    "TableReport",
    "TaggingReport",
    "ValidationReport",
    "WriteResult",
    "counted",
    "findings",
]


class Report:
    """Base of the results that calls return: a report prints as text, draws as HTML, and gives its fields as values."""

    __slots__ = ()

    def card(self) -> Card:
        """The result as building blocks, which ``str`` prints and notebooks draw."""
        facts = [(name, str(value)) for name, value in self.to_dict().items()]
        return Card(type(self).__name__, blocks=[Facts(facts)])

    def __str__(self) -> str:
        return card_text(self.card())

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as plain values; those of reports inside it too."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(cast("Any", self))}

    def _repr_html_(self) -> str:
        return card_html(self.card())


def _plain(value: Any) -> Any:
    if isinstance(value, Report):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (tuple, list) else value


@dataclass(slots=True, kw_only=True, repr=False)
class TaggingReport(Report):
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
        """Pairs that a filter let through and that are no match."""
        return self.candidates - self.matches

    @property
    def false_positive_rate(self) -> float | None:
        """Share of the pairs put to a filter, their key not in the file, that it let through."""
        absent = self.pairs_probed - self.probed_matches
        return self.probed_in_vain / absent if absent else None

    def funnel(self) -> Funnel:
        """The files that were left after each step of the lookup."""
        rate = "" if self.false_positive_rate is None else f" (rate {self.false_positive_rate:.1e})"
        times = ", ".join(f"{level} {seconds:.2f} s" for level, seconds in self.seconds.items())
        steps = (
            ("listed", self.files_listed),
            ("after ranges", self.files_after_ranges),
            ("after blooms", self.files_after_blooms),
            ("opened", self.files_opened),
        )
        note = (
            f"{counted(self.keys_probed, 'key')}, {counted(self.false_positives, 'false positive')}{rate}; "
            f"{counted(self.requests, 'request')}, {size_text(self.bytes_read)}{f' ({times})' if times else ''}"
        )
        return Funnel("key lookup in files", steps, note)

    def card(self) -> Card:
        """The lookup as a funnel."""
        return Card("key lookup", f"by {self.source}", [self.funnel(), notes(self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        rates = {"false_positives": self.false_positives, "false_positive_rate": self.false_positive_rate}
        return {**Report.to_dict(self), **rates}


SHORTEST = 0.005
"""Seconds of a phase that is worth showing."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WriteResult(Report):
    """Result of a write.

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
        phases: time of each phase of the call: preparing the rows, finding keys, writing files, committing, services.
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
    phases: dict[str, float] = field(default_factory=dict)

    def card(self) -> Card:
        """The rows and files written, how the keys were found, and where the time went."""
        facts, blocks = [], list[Block]()
        if self.files_written or self.metadata_bytes:
            written = f"{size_text(self.bytes_written)}, and {size_text(self.metadata_bytes)} of metadata"
            facts.append(("written", written))
        if self.bitmap_bytes:
            facts.append(("bitmaps", f"{size_text(self.bitmap_bytes)}, {self.bitmap_seconds:.2f} s over all tasks"))
        blocks.append(Facts(facts))
        if self.tagging.source != "none":
            blocks.append(self.tagging.funnel())
        blocks.append(
            Bars("time", [(name, spent, f"{spent:.2f} s") for name, spent in self.phases.items() if spent >= 0.005])
        )
        blocks.append(notes((*self.notes, *self.tagging.notes)))
        return Card(f"{self.operation.lower()} {self.instant or '(nothing to write)'}", self._sentence, blocks)

    @property
    def _sentence(self) -> str:
        """``1,000 rows updated in 5 files, 1.7 s``."""
        counts = [(self.inserted, "inserted"), (self.updated, "updated"), (self.deleted, "deleted")]
        changed = [(count, word) for count, word in counts if count]
        first, *others = [f"{count:,} {word}" for count, word in changed] or [
            "schema changed" if self.operation == Operation.ALTER_SCHEMA and self.instant else "no row changed"
        ]
        if changed:
            first = f"{counted(changed[0][0], 'row')} {changed[0][1]}"
        files = f" in {counted(self.files_written, 'file')}" if changed and self.files_written else ""
        if not changed and self.files_written:
            files = f", {counted(self.files_written, 'file')} rewritten"
        elif not changed and self.instant and self.operation == Operation.DELETE_PARTITION:
            first = "partitions deleted"
        return f"{', '.join([first, *others])}{files}, {self.seconds:.{1 if self.seconds >= 1 else 2}f} s"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IndexResult(Report):
    """Result of creating or dropping an index.

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

    def card(self) -> Card:
        """The size of the index."""
        head = (
            f"{self.entries:,} {'entry' if self.entries == 1 else 'entries'} of {counted(self.files, 'file')}, "
            f"{size_text(self.bytes_written)}, {self.seconds:.2f} s"
        )
        return Card(f"index {self.name}", head, [notes(self.notes)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnIndexStats:
    """One column of an index, over the current base files.

    Attributes:
        column: name, or dotted path.
        entries: records of the column; for a bitmap index bitmaps: a value and a file each, null counted as a value.
        files_indexed: files (partitions, for ``partition_stats``) with an entry of the column.
        distinct: distinct values in a bitmap index, null not counted; None for other indexes.
        not_indexed: files that a bitmap index covers without entries, by the reason.
    """

    column: str
    entries: int
    files_indexed: int
    distinct: int | None = None
    not_indexed: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        why = "; ".join(f"not indexed in {count} files: {reason}" for reason, count in self.not_indexed.items())
        values = "" if self.distinct is None else f"{self.distinct:,} values, "
        head = f"{self.column}: {values}{self.entries:,} entries in {self.files_indexed} files"
        return f"{head}; {why}" if why else head


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IndexStats(Report):
    """How much an index holds.

    Attributes:
        name: the index.
        entries: records of current files (of partitions, for ``partition_stats``); of a bitmap index, bitmaps.
        files_covered: current base files (partitions) with an entry for every column of the index. A bitmap index also
            covers a file by an entry that says why a column is not indexed there, and counts log files too.
        files_uncovered: those without, which queries read and upserts look into; files without rows have no entry.
        bytes: size of the index's files; of a bitmap index its share of ``bytes_of_runs``, by entries, since runs hold
            the columns of all bitmap indexes together.
        columns: figures of each column.
        bytes_of_runs: size of all runs of bitmaps that count.
        runs: number of these runs.
        rows_covered: rows of the files that a bitmap index covers.
        damage: what of a bitmap index cannot be read; :meth:`lakedex.Indexes.validate` says more.
    """

    name: str
    entries: int
    files_covered: int
    files_uncovered: int
    bytes: int
    columns: tuple[ColumnIndexStats, ...] = ()
    bytes_of_runs: int = 0
    runs: int = 0
    rows_covered: int = 0
    damage: tuple[str, ...] = ()

    def card(self) -> Card:
        """Coverage and size, and the figures of each column."""
        runs = f", of {size_text(self.bytes_of_runs)} in {counted(self.runs, 'run')}" if self.runs else ""
        rows = f", {self.rows_covered:,} rows" if self.rows_covered else ""
        head = (
            f"{self.entries:,} entries, {self.files_covered} covered, {self.files_uncovered} not{rows}, "
            f"{size_text(self.bytes)}{runs}"
        )
        grid = Grid(
            ("column", "values", "entries", "files", "not indexed"),
            [
                (
                    column.column,
                    "" if column.distinct is None else f"{column.distinct:,}",
                    f"{column.entries:,}",
                    f"{column.files_indexed:,}",
                    "; ".join(f"{count} files: {reason}" for reason, count in column.not_indexed.items()),
                )
                for column in self.columns[:ROWS]
            ],
            numbers=("values", "entries", "files"),
            total=len(self.columns),
            more="columns has all",
        )
        damage = Notices([Notice(text, "damage", "bad") for text in self.damage])
        tone: Tone = "bad" if self.damage else "warn" if self.files_uncovered else "good"
        return Card(f"index {self.name}", head, [grid, damage], tone)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RebuildResult(Report):
    """Result of rebuilding the metadata table.

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

    def card(self) -> Card:
        """The files that it lists now, and what each index took."""
        head = f"{counted(self.files, 'file')} in {counted(self.partitions, 'partition')} listed, {self.seconds:.2f} s"
        grid = Grid(
            ("index", "entries", "files", "size", "seconds"),
            [
                (one.name, f"{one.entries:,}", f"{one.files:,}", size_text(one.bytes_written), f"{one.seconds:.2f}")
                for one in self.indexes[:ROWS]
            ],
            numbers=("entries", "files", "size", "seconds"),
            total=len(self.indexes),
            more="indexes has all",
        )
        return Card(
            "metadata table rebuilt", head, [grid, notes((*self.notes, *(n for i in self.indexes for n in i.notes)))]
        )


HARMLESS = frozenset(
    ("stray file", "partition gone", "missing entry", "unfinished metadata commit", "missing definition")
)
"""Kinds of differences that cost time and no row: nothing is left out because of an entry that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Disagreement between an index, or the metadata table, and the data.

    Attributes:
        index: ``files``, ``column_stats``, ``bloom_filters``, ``partition_stats``, the name of a bitmap index,
            ``timeline``, or ``definitions``.
        kind: of ``files`` ``missing file`` (storage has it and its commit is completed), ``file gone``, ``wrong size``,
            ``uncommitted file`` (listed), ``stray file`` (in storage, of no commit), ``lost file`` (the newest of its
            file group, and nowhere), ``missing partition``, ``partition gone``. Of a bitmap index ``missing bitmap``,
            ``wrong positions``, ``wrong counts``, ``wrong values``, ``wrong row groups``, ``damaged bytes``; of other
            indexes ``missing entry``, ``wrong bounds``, ``wrong counts``, ``missed keys``, ``damaged bytes``,
            ``damaged index``. Else ``unfinished metadata commit``, ``missing definition``.
        partition, file, column: the place; empty where that does not apply.
        expected: the state of the data.
        found: the statement of the index or of the metadata table.
        count: number of values or keys that differ; ``expected`` names some of them.
    """

    index: str
    kind: str
    partition: str = ""
    file: str = ""
    column: str = ""
    expected: str = ""
    found: str = ""
    count: int = 1

    @property
    def severity(self) -> str:
        """``error`` for damage, and where a query may read wrong rows or fail; ``warning`` if it only takes longer."""
        return "warning" if self.kind in HARMLESS else "error"

    def __str__(self) -> str:
        subject = " ".join(filter(None, (f"{self.partition}/{self.file}".strip("/"), self.column)))
        times = f" ×{self.count}" if self.count > 1 else ""
        sides = (f"expected {self.expected}" if self.expected else "", f"found {self.found}" if self.found else "")
        detail = ", ".join(filter(None, sides))
        return printable(f"{self.index}: {self.kind}{times}{f' of {subject}' if subject else ''}: {detail}")


def findings(differences: Sequence[Difference]) -> Notices:
    """Differences as lines to read, errors before warnings."""
    ordered = sorted(differences, key=lambda found: found.severity)
    kinds = Counter(f"{found.index}: {found.kind}" for found in ordered)
    return Notices(
        [
            Notice(str(found), found.severity, "bad" if found.severity == "error" else "warn")
            for found in ordered[:ROWS]
        ],
        title="differences, " + ", ".join(f"{kind} {count:,}" for kind, count in kinds.items()) if kinds else "",
        left_out=max(len(ordered) - ROWS, 0),
        more="to_arrow() has all",
    )


def difference_table(differences: Sequence[Difference]) -> pa.Table:
    """Differences as a table, a column a field."""
    kinds = {field.name: pa.int64() if field.name == "count" else pa.string() for field in fields(Difference)}
    return pa.Table.from_pylist([asdict(found) for found in differences], pa.schema(list(kinds.items())))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ValidationReport(Report):
    """Result of :meth:`lakedex.Indexes.validate`.

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
        files_repaired: base files whose entries were written again.
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
        """Whether there is no difference and no damage; those that were repaired count."""
        return not self.differences and not self.damage

    def card(self) -> Card:
        """The verdict, and what was found, errors first."""
        verdict = "agrees with the data" if self.ok else "does NOT agree with the data"
        compared = f"{self.files_checked} of {counted(self.files_total, 'file')}, {self.entries_checked:,} entries"
        left = f"{self.files_uncovered} files not covered, {self.entries_stale:,} stale entries"
        blocks: list[Block] = [
            Facts([("compared", f"{compared}; {self.seconds:.2f} s"), ("passed over", left)]),
            Notices([Notice(text, "damage", "bad") for text in self.damage]),
            findings(self.differences),
        ]
        if self.files_repaired:
            text = f"entries of {counted(self.files_repaired, 'file')} written again"
            blocks.append(Notices([Notice(text, "repaired", "good")]))
        elif not self.ok:
            blocks.append(Code(f"table.indexes.validate({self.name!r}, repair=True)", "not repaired, which this does"))
        title = f"index {self.name} ({self.using}) at {self.instant or 'no commit'}"
        return Card(title, verdict, [*blocks, notes(self.notes)], "good" if self.ok else "bad")

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**Report.to_dict(self), "ok": self.ok}

    def to_arrow(self) -> pa.Table:
        """The differences as a table."""
        return difference_table(self.differences)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableReport(Report):
    """Result of :meth:`lakedex.Maintenance.validate`.

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
    differences: tuple[Difference, ...] = ()
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

    def card(self) -> Card:
        """The verdict, and what was found, errors first."""
        verdict = "metadata agrees with the files" if self.ok else "metadata does NOT agree with the files"
        compared = f"{self.files_compared:,} of {counted(self.files_total, 'current file')}"
        blocks: list[Block] = [
            Facts(
                [
                    ("compared", f"{compared} with {', '.join(self.indexes) or 'nothing'}; {self.seconds:.2f} s"),
                    ("listed", f"{counted(self.files_listed, 'file')}, those of earlier commits too"),
                ]
            ),
            findings(self.differences),
        ]
        if not self.ok:
            blocks.append(Code("table.maintenance.rebuild_metadata()", "rebuilds the metadata"))
        title = f"validation of {self.table} at {self.instant or 'no commit'}"
        return Card(title, verdict, [*blocks, notes(self.notes)], "good" if self.ok else "bad")

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**Report.to_dict(self), "ok": self.ok}

    def to_arrow(self) -> pa.Table:
        """The differences as a table."""
        return difference_table(self.differences)
