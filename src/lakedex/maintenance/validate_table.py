"""Compare a table's metadata with its files, their footers and its timeline.

The listing is compared as a whole. Base files are opened by the engine's tasks, one each, and log files with them.

Memory: the driver holds the names of all files, the differences, and the stats of each partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakedex.errors import CorruptFileError
from lakedex.index.definitions import read_definitions, source_fields
from lakedex.index.protocol import CommitPolicy, Index, Validation, ValidationContext
from lakedex.index.registry import table_indexes
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.names import instant_of, parse_base_file_name, parse_log_file_name
from lakedex.maintenance.index_validation import chosen_files
from lakedex.maintenance.metadata_init import is_committed_file, list_storage, without_empty_strays
from lakedex.metadata.records import COLUMN_STATS, FILES, SUPPORTED
from lakedex.reports import Difference, TableReport
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.types import META_COLUMNS, RECORD_KEY, Progress

__all__ = ["TableListing", "compare_listing", "compare_timelines", "list_table", "timeline_notes", "validate_table"]


ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TableListing:
    """A table and its folders as of one moment.

    Attributes:
        storage: partition path → data file → bytes.
        listed: the same by ``files``; None where that cannot be used.
        is_consistent: whether nobody wrote while they were taken.
    """

    snapshot: Snapshot
    storage: Mapping[str, Mapping[str, int]]
    listed: Mapping[str, Mapping[str, int]] | None
    is_consistent: bool


def list_table(handle: TableContext) -> TableListing:
    """List storage and the metadata, again where somebody writes meanwhile."""
    for _ in range(ATTEMPTS):
        snapshot = handle.snapshot()
        snapshot.read_partitions()
        listed = snapshot.metadata.file_listing() if snapshot.uses_metadata else None
        storage = list_storage(handle)
        is_consistent = snapshot.timeline.reload().instants == snapshot.timeline.instants
        if is_consistent:
            break
    return TableListing(snapshot=snapshot, storage=storage, listed=listed, is_consistent=is_consistent)


def _differs(kind: str, partition: str, file: str, expected: str, found: str) -> Difference:
    return Difference(index=FILES.name, kind=kind, partition=partition, file=file, expected=expected, found=found)


def compare_listing(listing: TableListing) -> Iterator[Difference]:
    """Files that only one of the two knows, or with another size."""
    snapshot, storage, listed = listing.snapshot, listing.storage, listing.listed
    is_counted = is_committed_file(snapshot)
    pending = {instant.requested for instant in snapshot.timeline.pending()}
    lost, cleaned = _lost_files(snapshot, storage), snapshot.timeline.files_being_cleaned()
    for partition, name in sorted(lost):
        yield _differs(
            "lost file",
            partition=partition,
            file=name,
            expected="a file of the newest slice of its group",
            found="no such file in storage",
        )
    for partition, files in sorted(storage.items()):
        known = {} if listed is None else listed.get(partition, {})
        counted = without_empty_strays(
            snapshot, {name: size for name, size in files.items() if is_counted(partition, name)}
        )
        if listed is not None and partition not in listed and counted:
            yield _differs(
                "missing partition",
                partition=partition,
                file="",
                found="no such partition",
                expected=f"{len(counted)} files in storage",
            )
        for name, size in sorted(files.items()):
            if name not in counted and name not in known and instant_of(name) not in pending:
                yield _differs(
                    "stray file",
                    partition=partition,
                    file=name,
                    expected="no file, as no commit has it",
                    found=f"{size} bytes in storage",
                )
            elif name in counted and name not in known and listed is not None:
                yield _differs(
                    "missing file",
                    partition=partition,
                    file=name,
                    found="no such file",
                    expected=f"{size} bytes in storage",
                )
    for partition, known in sorted((listed or {}).items()):
        for name, size in sorted(known.items()):
            half_cleaned = (partition, name) in cleaned and name not in storage.get(partition, {})
            if (partition, name) not in lost and not half_cleaned:
                yield from _listed_file(storage, partition, name, size, is_counted(partition, name))
        if not known and partition not in storage:
            yield _differs(
                "partition gone",
                partition=partition,
                file="",
                found="a partition without files",
                expected="no such folder",
            )


def _listed_file(
    storage: Mapping[str, Mapping[str, int]], partition: str, name: str, size: int, counted: bool
) -> Iterator[Difference]:
    found = storage.get(partition, {}).get(name)
    if found is None:
        yield _differs(
            "file gone", partition=partition, file=name, found=f"{size} bytes", expected="no such file in storage"
        )
    elif found != size:
        yield _differs(
            "wrong size", partition=partition, file=name, found=f"{size} bytes", expected=f"{found} bytes in storage"
        )
    if not counted and found is not None:
        yield _differs(
            "uncommitted file",
            partition=partition,
            file=name,
            found=f"{size} bytes",
            expected="no entry, as no completed commit has it",
        )


def _lost_files(snapshot: Snapshot, storage: Mapping[str, Mapping[str, int]]) -> set[tuple[str, str]]:
    """Files of the newest slices of groups, by the active timeline, that storage lacks: no cleaner takes those."""
    newest: dict[tuple[str, str], str] = {}
    logs: dict[tuple[str, str], list[str]] = {}
    for instant in snapshot.timeline.completed(WRITE_ACTIONS):
        for partition, stats in snapshot.timeline.commit_metadata(instant).write_stats.items():
            for stat in stats:
                if parse_base_file_name(stat.file_name) is not None:
                    newest[(partition, stat.file_id)] = stat.file_name
                elif parse_log_file_name(stat.file_name) is not None:
                    logs.setdefault((partition, stat.file_id), []).append(stat.file_name)
    replaced = snapshot.timeline.replaced_file_groups()
    wanted = {(group[0], name) for group, name in newest.items() if group not in replaced}
    gone = {
        group: lost
        for group, names in logs.items()
        if group not in replaced and (lost := [name for name in names if name not in storage.get(group[0], {})])
    }
    current = {(s.partition, s.file_id): s.base_instant for s in snapshot.slices({path for path, _ in gone})}
    for group, names in gone.items():
        wanted |= {(group[0], name) for name in names if _is_in_slice(snapshot, name, current.get(group, ""))}
    return {(partition, name) for partition, name in wanted if name not in storage.get(partition, {})}


def _is_in_slice(snapshot: Snapshot, log: str, base_instant: str) -> bool:
    """Whether a log file belongs to the slice of a base file or to a later one."""
    instant = instant_of(log) or ""
    completed = snapshot.timeline.completion_time(instant) if snapshot.timeline.layout >= 2 else None
    return (completed or instant) >= base_instant


def compare_timelines(snapshot: Snapshot) -> Iterator[Difference]:
    """Commits whose metadata nobody sees: it is begun and not completed although they are."""
    if not snapshot.uses_metadata:
        return
    for instant in snapshot.metadata.timeline.pending({"deltacommit"}):
        if snapshot.timeline.is_completed(instant.requested):
            yield Difference(
                index="timeline",
                kind="unfinished metadata commit",
                found=f"{instant}",
                expected=f"{instant.requested} is completed on the data timeline",
            )


def timeline_notes(listing: TableListing) -> Iterator[str]:
    """Notes on what is legal on the timelines and worth knowing."""
    snapshot = listing.snapshot
    data, own = snapshot.timeline, snapshot.metadata.timeline
    if not listing.is_consistent:
        yield "somebody wrote all the while: differences may be theirs"
    for instant in data.pending():
        yield f"{instant.action} {instant.requested} is under way, or its writer died: its files were left out"
    if not snapshot.uses_metadata:
        yield "there is no usable metadata table: readers list storage"
        return
    first = next((instant.requested for instant in own.instants), "")
    alone = [i for i in own.completed() if not data.contains(i.requested)]
    if alone:
        yield f"{len(alone)} commits of the metadata table are its own: index builds, upkeep, archived commits"
    without = [i for i in data.completed(WRITE_ACTIONS) if i.requested > first and not own.contains(i.requested)]
    if without:
        some = ", ".join(instant.requested for instant in without[:3])
        yield f"{len(without)} commits have no commit in the metadata table, for example {some}"


def validate_table(
    handle: TableContext,
    *,
    files: int | None = None,
    footers: bool = True,
    progress: Progress | None = None,
) -> TableReport:
    """Compare a table's metadata with its files; see :meth:`lakedex.Maintenance.validate`."""
    started = time.perf_counter()
    handle.cache.recheck()
    listing = list_table(handle)
    snapshot = listing.snapshot
    check = _TableCheck(handle, snapshot, chosen_files(snapshot, files), progress)
    check.differences += [
        Difference(index=name, kind="damaged index", expected="a complete index", found=wrong)
        for name, wrong in snapshot.lost_metadata.items()
    ]
    check.differences += [*compare_listing(listing), *compare_timelines(snapshot)]
    check.notes += timeline_notes(listing)
    check.definitions()
    check.indexes(footers)
    return TableReport(
        table=snapshot.config.name,
        instant=snapshot.instant,
        files_total=len(snapshot.base_files()),
        files_compared=len(check.chosen) if footers else 0,
        files_listed=sum(len(found) for found in (listing.listed or {}).values()),
        indexes=tuple(check.compared),
        differences=tuple(check.differences),
        notes=tuple(check.notes),
        seconds=time.perf_counter() - started,
    )


@dataclass(slots=True)
class _TableCheck:
    """One comparison, after the listing."""

    handle: TableContext
    snapshot: Snapshot
    chosen: Sequence[BaseFile]
    progress: Progress | None
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    _earlier: dict[str, Validation] = field(default_factory=dict)

    def definitions(self) -> None:
        """``index.json`` against the settings and the schema."""
        config, store = self.snapshot.config, self.snapshot.metadata
        document = read_definitions(self.snapshot.files)
        listed = source_fields(document)
        if store.has(COLUMN_STATS.name) and RECORD_KEY not in listed:
            self.differences.append(
                Difference(
                    index="definitions",
                    kind="missing definition",
                    column=RECORD_KEY,
                    found=f"column_stats of {', '.join(listed) or 'no column'}",
                    expected="column_stats is listed as complete; readers take its columns from the definition",
                )
            )
        known = {*self.snapshot.schema.names, *META_COLUMNS}
        gone = [name for name in listed if name.split(".")[0] not in known]
        if gone:
            self.notes.append(f"column_stats is defined for columns that are no more: {', '.join(gone)}")
        unbuilt = sorted(document["indexDefinitions"].keys() - config.metadata_partitions)
        if unbuilt:
            self.notes.append(f"defined and not there: {', '.join(unbuilt)}")
        if config.metadata_partitions_inflight:
            self.notes.append(f"half-built by another engine: {', '.join(sorted(config.metadata_partitions_inflight))}")
        foreign = sorted(config.metadata_partitions - SUPPORTED.keys())
        if foreign:
            self.notes.append(f"not compared, lakedex does not read them: {', '.join(foreign)}")

    def indexes(self, footers: bool) -> None:
        """Each index against base files; those that are made of another one after it."""
        if self.snapshot.metadata.has(FILES.name):
            self.compared.append(FILES.name)
        found = [(name, index) for name, index in table_indexes(self.snapshot).items() if index is not None]
        live = {name for name, index in found if index.commit_policy is CommitPolicy.BEST_EFFORT}
        for name, index in sorted(found, key=lambda item: (item[0] in live, bool(item[1].made_of))):
            is_live = name in live
            if (is_live and footers) or self.snapshot.metadata.has(name):
                self.compared.append(name)
                self._compare(name, index, footers)

    def _compare(self, name: str, index: Index, footers: bool) -> None:
        ctx = ValidationContext(
            table=self.handle,
            snapshot=self.snapshot,
            name=name,
            of_table=True,
            reads_files=footers,
            earlier=self._earlier,
        )
        try:
            check = self._earlier[name] = index.validate(ctx)
            check.compare(self.chosen, self.progress)
        except CorruptFileError as error:
            self.differences.append(Difference(index=name, kind="damaged bytes", found=str(error)))
            return
        self.differences += check.differences
        self.differences += [Difference(index=name, kind="damaged bytes", found=text) for text in check.damage]
        self.notes += [f"{name}: {note}" for note in check.notes]
        if index.commit_policy is CommitPolicy.BEST_EFFORT and (lacking := check.uncovered(self.chosen)):
            self.notes.append(f"{name}: {lacking} files are not covered; indexes.refresh covers them")
