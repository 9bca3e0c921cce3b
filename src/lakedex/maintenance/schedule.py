"""Table services that are due after a write: compaction, cleaning, metadata compaction and cleaning, archival.

As in Hudi (``BaseHoodieWriteClient.postCommit``). The timelines tell what is due, without the lock; only a service that
is due takes the lock and looks at the table again. A service that fails is a note of the write: its rows are committed,
and the next write tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakedex.display.blocks import Card, notes
from lakedex.errors import LakedexError
from lakedex.io.locks import table_lock
from lakedex.maintenance.archive import archive_data, archive_metadata, data_to_archive, metadata_to_archive
from lakedex.maintenance.clean import clean_after_write
from lakedex.maintenance.compaction import compact_if_due
from lakedex.maintenance.metadata_cleaning import clean_metadata, cleaning_due
from lakedex.maintenance.metadata_compaction import CompactionDone, compact, compaction_due, plan_compaction
from lakedex.options import WriteOptions
from lakedex.reports import Report, counted
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import Instant
from lakedex.types import size_text

__all__ = [
    "ArchivalResult",
    "CompactionResult",
    "archive_if_due",
    "archive_table",
    "clean_metadata_if_due",
    "compact_metadata",
    "compact_metadata_if_due",
    "plan_archival",
    "plan_metadata_compaction",
    "run_services",
]


LAST_INSTANT = "9" * 17
"""After every instant."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionResult(Report):
    """The result of ``Maintenance.compact_metadata``.

    Attributes:
        instants: compactions of the metadata table that were completed; none where there was nothing to merge.
        found: those among them that a writer had begun that died.
        file_groups: base files written.
        log_files: log files that were merged into them.
        records: records that the base files hold.
        bytes_written: their size.
        seconds: the whole call.
        notes: what else the user should know.
        dry_run: whether nothing was merged.
    """

    instants: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    file_groups: int = 0
    log_files: int = 0
    records: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    def card(self) -> Card:
        """The files that were merged."""
        if self.dry_run and self.log_files:
            logs, bases = counted(self.log_files, "log file"), counted(self.file_groups, "base file")
            head = f"would merge {logs} of the metadata table into {bases}, {self.seconds:.2f} s"
            return Card("compact (dry run)", head, [notes(self.notes)])
        if not self.instants:
            return Card("compact", f"nothing to merge, {self.seconds:.2f} s", [notes(self.notes)])
        head = (
            f"{counted(self.log_files, 'log file')} of the metadata table merged into "
            f"{counted(self.file_groups, 'base file')} of {counted(self.records, 'record')}, "
            f"{size_text(self.bytes_written)}, {self.seconds:.2f} s"
        )
        finished = (f"finished {', '.join(self.found)} of a writer that died",) if self.found else ()
        return Card(f"compact {', '.join(self.instants)}", head, [notes((*self.notes, *finished))])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ArchivalResult(Report):
    """The result of ``Maintenance.archive``.

    Attributes:
        instants: archived instants of the table, ascending.
        metadata_instants: those of the metadata table.
        seconds: the whole call.
        notes: what else the user should know.
        dry_run: whether nothing was archived.
    """

    instants: tuple[str, ...] = ()
    metadata_instants: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    def card(self) -> Card:
        """The span of archived instants."""
        if not self.instants and not self.metadata_instants:
            return Card("archive", f"nothing is due, {self.seconds:.2f} s", [notes(self.notes)])
        span = f" ({self.instants[0]} to {self.instants[-1]})" if self.instants else ""
        head = (
            f"{counted(len(self.instants), 'instant')}{span}, and {len(self.metadata_instants):,} of the metadata "
            f"table, {self.seconds:.2f} s"
        )
        return Card("archive (dry run)" if self.dry_run else "archive", head, [notes(self.notes)])


# ------------------------------------------------------------------------------------------------------- compaction


def compact_metadata(handle: TableContext, options: WriteOptions) -> CompactionResult:
    """Merge all log files of the metadata table now.

    Raises:
        UnsupportedFeatureError: a table that lakedex does not write.
    """
    started = time.perf_counter()
    done = _compact(handle, options, on_request=True)
    return CompactionResult(
        instants=tuple(done.instants),
        found=tuple(done.found),
        file_groups=done.file_groups,
        log_files=done.log_files,
        records=done.records,
        bytes_written=done.size,
        seconds=time.perf_counter() - started,
        notes=options.notes,
    )


def plan_metadata_compaction(handle: TableContext, options: WriteOptions) -> CompactionResult:
    """The log files that :func:`compact_metadata` would merge; nothing is changed."""
    started = time.perf_counter()
    now = handle.snapshot()
    require_writable(now.config)
    operations = plan_compaction(now, LAST_INSTANT) if now.uses_metadata else ()
    return CompactionResult(
        file_groups=len(operations),
        log_files=sum(len(operation.logs) for operation in operations),
        seconds=time.perf_counter() - started,
        notes=options.notes,
        dry_run=True,
    )


def compact_metadata_if_due(handle: TableContext, options: WriteOptions, seen: Snapshot) -> list[str] | None:
    """Compact when ``hoodie.metadata.compact.max.delta.commits`` are there. A note where a dead one was finished."""
    if not compaction_due(seen, options.metadata):
        return None
    done = _compact(handle, options, on_request=False)
    return [f"finished the compaction {instant} of the metadata table, whose writer died" for instant in done.found]


def _compact(handle: TableContext, options: WriteOptions, *, on_request: bool) -> CompactionDone:
    done = CompactionDone()
    with table_lock(handle.files, options.lock) as lock:
        now = handle.snapshot(is_locked=True)
        require_writable(now.config)
        if not now.uses_metadata or not (on_request or compaction_due(now, options.metadata)):
            return done
        clock = handle.clock(now.config.timezone)
        compact(handle, now, clock, lock, done, new=False)
        now = handle.snapshot(is_locked=True) if done.instants else now
        if on_request or compaction_due(now, options.metadata):
            compact(handle, now, clock, lock, done, new=True)
        return done


# --------------------------------------------------------------------------------------------- cleaning, archival


def clean_metadata_if_due(handle: TableContext, options: WriteOptions, seen: Snapshot) -> list[str] | None:
    """Delete slices of the metadata table that no reader needs any more."""
    if not cleaning_due(seen, options):
        return None
    with table_lock(handle.files, options.lock) as lock:
        now = handle.snapshot(is_locked=True)
        require_writable(now.config)
        if cleaning_due(now, options):
            clean_metadata(now, options, handle.clock(now.config.timezone), lock)
    return []


def archive_table(handle: TableContext, options: WriteOptions) -> ArchivalResult:
    """Archive what is due on both timelines now.

    Raises:
        UnsupportedFeatureError: a table that lakedex does not write.
    """
    started = time.perf_counter()
    with table_lock(handle.files, options.lock) as lock:
        now = handle.snapshot(is_locked=True)
        require_writable(now.config)
        data = archive_data(now, options, lock)
        metadata = archive_metadata(handle.snapshot(is_locked=True) if data else now, options, lock)
    return ArchivalResult(
        instants=_times(data),
        metadata_instants=_times(metadata),
        seconds=time.perf_counter() - started,
        notes=options.notes,
    )


def plan_archival(handle: TableContext, options: WriteOptions) -> ArchivalResult:
    """The instants that :func:`archive_table` would archive; nothing is changed."""
    started = time.perf_counter()
    now = handle.snapshot()
    require_writable(now.config)
    return ArchivalResult(
        instants=_times(data_to_archive(now, options)),
        metadata_instants=_times(metadata_to_archive(now, options)),
        seconds=time.perf_counter() - started,
        notes=options.notes,
        dry_run=True,
    )


def archive_if_due(handle: TableContext, options: WriteOptions, seen: Snapshot) -> list[str] | None:
    """Archive, unless ``hoodie.archive.automatic`` is off."""
    if not (options.archive.enabled and _archival_due(seen, options)):
        return None
    archive_table(handle, options)
    return []


def _archival_due(now: Snapshot, options: WriteOptions) -> bool:
    return bool(data_to_archive(now, options) or metadata_to_archive(now, options))


def _times(instants: list[Instant]) -> tuple[str, ...]:
    return tuple(instant.requested for instant in instants)


Service = Callable[[TableContext, WriteOptions, Snapshot], Sequence[str] | None]
"""Does what is due by a snapshot, without being asked. Takes the table's lock itself.

Returns what it did, in words for people; None if nothing was due, so that the snapshot still holds.
"""


SERVICES: tuple[tuple[str, Service], ...] = (
    ("compaction", compact_if_due),
    ("cleaning", clean_after_write),
    ("cleaning of the metadata table", clean_metadata_if_due),
    ("compaction of the metadata table", compact_metadata_if_due),
    ("archival", archive_if_due),
)
"""In the order in which they run, which is that of ``BaseHoodieTableServiceClient.runTableServicesInline`` and then of
``HoodieBackedTableMetadataWriter.performTableServices``.

Nothing of the metadata table is cleaned soon after a compaction: where each write makes several delta commits, a
compaction that came first would put cleaning off for ever. What is cleaned can be archived, but not before the metadata
table is compacted.
"""


def run_services(
    handle: TableContext,
    options: WriteOptions,
    seen: Snapshot,
    services: Sequence[tuple[str, Service]] = SERVICES,
) -> list[str]:
    """Run the services that are due after a write.

    Args:
        handle: the table.
        options: of the write.
        seen: the table as the write left it. It decides what is due; after a service did something the table is looked
            at again.
        services: names and services, in the order in which they run.

    Returns:
        Notes for the write's result.
    """
    notes: list[str] = []
    is_current = True
    for name, service in services:
        try:
            if not is_current:
                seen = handle.last = seen.refreshed()
                is_current = True
            done = service(handle, options, seen)
            if done is not None:
                notes += done
                is_current = False
        except (LakedexError, OSError) as error:
            is_current = False
            notes.append(f"{name} after the write failed, the next write tries again ({error})")
    return notes
