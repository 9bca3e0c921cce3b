"""Analyze a plan: read and count its files, and on request those that it dropped.

Memory: one batch a thread. Large scans of a table that was opened with Spark are counted in Spark tasks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from lakedex.display.blocks import Card, Facts, Funnel
from lakedex.engine import Engine
from lakedex.errors import IndexInconsistentError
from lakedex.layout.file_slice import FileSlice
from lakedex.parallel import run_threads
from lakedex.reports import Report, counted
from lakedex.scan.plan import ScanPlan
from lakedex.scan.slice_reader import ReadCount, SliceReader, iter_slice_rows
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import RECORD_KEY, size_text

__all__ = ["AnalyzedPlan", "FileRead", "PlanAnalyzer"]


TASK_BYTES = 64 * 1024 * 1024
"""Slices that are larger together are read by the engine's tasks; a Spark job is not worth its start for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """One slice as it was read. ``stage`` is the index that had dropped it, None for a slice that was kept."""

    partition: str
    file: str
    rows_read: int
    rows_matched: int
    row_groups: int
    row_groups_skipped: int
    bytes_read: int
    seconds: float
    sample_key: str | None = None
    stage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AnalyzedPlan(Report):
    """A plan and what reading its files showed. The limit of a scan plays no part: each kept file is read.

    Attributes:
        plan: which files are kept, and why.
        files: each kept slice as it was read.
        verified: each dropped slice as it was read, None where that was not asked for.
        seconds: what reading took; the plan has its own.
    """

    plan: ScanPlan
    files: tuple[FileRead, ...]
    verified: tuple[FileRead, ...] | None = None
    seconds: float = 0.0

    @property
    def rows_read(self) -> int:
        """Rows of the row groups that were read."""
        return sum(file.rows_read for file in self.files)

    @property
    def rows_matched(self) -> int:
        """Rows for which the condition is true: what the scan returns."""
        return sum(file.rows_matched for file in self.files)

    @property
    def row_groups(self) -> int:
        """Row groups that were read."""
        return sum(file.row_groups for file in self.files)

    @property
    def row_groups_skipped(self) -> int:
        """Row groups of kept files that their own statistics ruled out."""
        return sum(file.row_groups_skipped for file in self.files)

    @property
    def bytes_read(self) -> int:
        """Stored size of the columns that were read."""
        return sum(file.bytes_read for file in self.files)

    @property
    def files_in_vain(self) -> tuple[str, ...]:
        """Kept files without a matching row."""
        return tuple(file.file for file in self.files if not file.rows_matched)

    def card(self) -> Card:
        """The plan's card with what reading its files showed."""
        plan = self.plan.card()
        groups = self.row_groups + self.row_groups_skipped
        facts = [
            (
                "read",
                f"{self.row_groups:,} of {counted(groups, 'row group')} · {size_text(self.bytes_read)} · "
                f"{self.rows_read:,} rows, {self.rows_matched:,} matched · {self.seconds * 1000:.0f} ms",
            ),
            ("kept without a match", f"{len(self.files_in_vain):,} of {counted(len(self.files), 'file')}"),
        ]
        if self.verified is not None:
            rows = sum(file.rows_read for file in self.verified)
            dropped = counted(len(self.verified), "dropped file")
            facts.append(("verified", f"no matching row in {dropped} ({counted(rows, 'row')} read)"))
        steps = [("of the table", self.plan.files_total), ("kept", len(self.files))]
        steps.append(("with a match", len(self.files) - len(self.files_in_vain)))
        rows_of = Funnel("rows", [("read", self.rows_read), ("matched", self.rows_matched)])
        return replace(plan, blocks=[*plan.blocks, Facts(facts), Funnel("files", steps), rows_of])

    def to_dict(self) -> dict[str, Any]:
        """Plan and figures as plain values, for JSON."""
        return {
            **self.plan.to_dict(),
            "rows_read": self.rows_read,
            "rows_matched": self.rows_matched,
            "row_groups": self.row_groups,
            "row_groups_skipped": self.row_groups_skipped,
            "data_bytes_read": self.bytes_read,
            "files_in_vain": list(self.files_in_vain),
            "read_seconds": self.seconds,
            "files_verified": None if self.verified is None else len(self.verified),
        }

    def to_arrow(self) -> pa.Table:
        """The plan's stages as a table; :meth:`files_table` has the files."""
        return self.plan.to_arrow()

    def files_table(self) -> pa.Table:
        """A row a file that was read, verified ones with the stage that had dropped them."""
        rows = [*self.files, *(self.verified or ())]
        return pa.Table.from_pylist([asdict(row) for row in rows], _FILES)


_FILES = pa.schema(
    [
        ("partition", pa.string()),
        ("file", pa.string()),
        ("rows_read", pa.int64()),
        ("rows_matched", pa.int64()),
        ("row_groups", pa.int64()),
        ("row_groups_skipped", pa.int64()),
        ("bytes_read", pa.int64()),
        ("seconds", pa.float64()),
        ("sample_key", pa.string()),
        ("stage", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class _CountSlice:
    """Reads a slice for its figures. Where ``key`` is set the first matching row's record key is kept."""

    reader: SliceReader
    key: bool

    def __call__(self, item: FileSlice) -> FileRead:
        count, started = ReadCount(), time.perf_counter()
        sample: str | None = None
        for batch in iter_slice_rows(self.reader, item, count=count):
            if self.key and sample is None:
                sample = batch.column(0)[0].as_py()
        return FileRead(
            partition=item.partition,
            file=item.name,
            rows_read=count.rows,
            rows_matched=count.matched,
            row_groups=count.row_groups,
            row_groups_skipped=count.row_groups_skipped,
            bytes_read=count.bytes_read,
            seconds=time.perf_counter() - started,
            sample_key=sample,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnalyzer:
    """Reads the files of a plan, by threads or by the engine's tasks."""

    snapshot: Snapshot
    reader: SliceReader
    engine: Engine | None
    threads: int

    def analyze(self, plan: ScanPlan, *, verify: bool = False) -> AnalyzedPlan:
        """Read the kept files, with ``verify`` also the dropped ones.

        Raises:
            IndexInconsistentError: see :meth:`verify`.
        """
        started = time.perf_counter()
        reader = replace(self.reader, selections=plan.selections)
        files = self._read(plan.slices, reader, f"lakedex {plan.table}: {plan.summary}", key=False)
        seconds = time.perf_counter() - started
        verified = self.verify(plan) if verify else None
        return AnalyzedPlan(plan=plan, files=tuple(files), verified=verified, seconds=seconds)

    def verify(self, plan: ScanPlan) -> tuple[FileRead, ...]:
        """Read whole the dropped files, and the kept ones of which an index chose the rows.

        Returns:
            The dropped files.

        Raises:
            IndexInconsistentError: a dropped file, or a row that was not chosen, matches.
        """
        dropped = plan.dropped
        reader = replace(self.reader, names=(RECORD_KEY,), use_indexes=False)
        label = f"lakedex {plan.table}: verifying {len(dropped)} dropped files"
        reads = self._read([item for item, _ in dropped], reader, label, key=True)
        found = tuple(replace(read, stage=stage) for read, (_, stage) in zip(reads, dropped, strict=True))
        for read in found:
            if read.rows_matched:
                raise _inconsistent(plan, self.snapshot.files.base_path, read, found)
        self._verify_rows(plan, reader)
        return found

    def _verify_rows(self, plan: ScanPlan, reader: SliceReader) -> None:
        """As many rows match in a file read whole as in the rows that were chosen of it."""
        chosen = [item for item in plan.slices if item.name in plan.selections]
        label = f"lakedex {plan.table}: verifying rows of {len(chosen)} files"
        whole = self._read(chosen, reader, label, key=True)
        own = replace(reader, use_indexes=True, selections=plan.selections)
        for read, part in zip(whole, self._read(chosen, own, label, key=False), strict=True):
            if read.rows_matched != part.rows_matched:
                read = replace(read, stage="bitmap", rows_matched=abs(read.rows_matched - part.rows_matched))
                raise _inconsistent(plan, self.snapshot.files.base_path, read, [read])

    def _read(self, slices: Sequence[FileSlice], reader: SliceReader, label: str, *, key: bool) -> list[FileRead]:
        task = _CountSlice(reader, key)
        if self.engine is not None and self.engine.name == "spark" and sum(item.size for item in slices) > TASK_BYTES:
            return self.engine.run(task, slices, label)
        return run_threads(task, slices, self.threads)


def _inconsistent(plan: ScanPlan, path: str, read: FileRead, all_reads: Sequence[FileRead]) -> IndexInconsistentError:
    wrong = [other for other in all_reads if other.rows_matched]
    return IndexInconsistentError(
        f"table {plan.table} ({path}): the index {read.stage!r} dropped {read.file} in partition "
        f"{read.partition or '(none)'}, which holds {read.rows_matched} rows that match {plan.where}, among them the "
        f"record key {read.sample_key!r}; {len(wrong)} such files in all. Until the index is rebuilt, read with "
        "use_indexes=False, which asks no index",
        table=plan.table,
        path=path,
        file=read.file,
        partition=read.partition,
        stage=read.stage,
        record_key=read.sample_key,
        report=[asdict(read) for read in wrong],
    )
