"""Create the metadata table again from the files in storage, or remove it (``HoodieTableMetadataUtil``).

Files of completed instants enter, as far as their commits name them: not those of a write that is under way, died or
lost a race between two attempts. Folders are listed without the table's lock; under it, those that changed since are
listed again. ``hoodie.properties`` comes first when the old table goes and last when the new one is there
(``deleteMetadataTable``), so that nobody ever trusts half of one. Readers list storage meanwhile.

Runs of bitmaps, which lie in the same folder, stay: they name the base files that they are of.

Memory: the driver holds names and sizes of all files, some 200 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from lakedex.errors import CommitConflictError
from lakedex.index.bitmap.run_files import BITMAP_INDEX
from lakedex.io.liveness import is_ours
from lakedex.io.locks import table_lock
from lakedex.io.storage import TableFiles
from lakedex.layout.contained_files import delete_entries, inner_folders, list_folder
from lakedex.layout.names import PARTITION_METAFILE, instant_of, join_path, parse_base_file_name
from lakedex.maintenance.recovery import INFLIGHT_PARTITIONS, recovered
from lakedex.metadata.records import FILES, metadata_partitions_property
from lakedex.metadata.writer import FIRST_BUILD_SUFFIX, create_metadata_table
from lakedex.options import WriteOptions
from lakedex.parallel import run_threads
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import WRITE_ACTIONS, Timeline
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import TableConfig, update_table_config

__all__ = [
    "REBUILDING",
    "Folders",
    "committed_files",
    "is_committed_file",
    "list_storage",
    "make_metadata_table",
    "remove_metadata_table",
    "require_no_pending_writes",
    "without_empty_strays",
]


REBUILDING = "lakedex.metadata.rebuilding"
"""A setting of lakedex's own, which others leave alone: who rebuilds, and the indexes that are not there yet."""


Folders = dict[str, dict[str, int]]
"""Partition path → name of a data file → size in bytes."""


FOLDERS_ON_DRIVER = 256


LISTING_THREADS = 16


def make_metadata_table(
    handle: TableContext, options: WriteOptions, memo: str | None = None, *, only_if_lost: bool = False
) -> Folders:
    """Make ``files`` from storage, in place of whatever metadata table there is; its other partitions are gone then.

    Args:
        handle: the table.
        options: lock, heartbeats.
        memo: kept in the settings as :data:`REBUILDING` from the moment that the old table goes.
        only_if_lost: leave a metadata table alone that another writer has made meanwhile.

    Returns:
        What ``files`` holds.

    Raises:
        CommitConflictError: a write of another engine is under way, which knows of no metadata table.
        UnsupportedFeatureError: lakedex does not write this table.
    """
    files = handle.files
    seen = handle.snapshot().timeline
    found = list_storage(handle)
    with table_lock(handle.files, options.lock) as lock:
        now, clock = recovered(handle, options, lock)
        if only_if_lost and now.uses_metadata:
            return {path: dict(sizes) for path, sizes in now.metadata.file_listing().items()}
        require_no_pending_writes(now, "the metadata table was not made")
        again = _changed_since(seen, now.timeline)
        if again is None:
            found = list_storage(handle)
        else:
            found |= {path: _listed(files, path) for path in again}
        listing = committed_files(now, found)
        lock.check()
        remove_metadata_table(files, now.config, memo)
        create_metadata_table(
            files,
            now.config,
            {FILES.name: 1},
            clock,
            listing=listing,
            instant=_first_instant(now, clock),
        )
        lock.check()
        update_table_config(files, metadata_partitions_property([FILES.name]))
    return listing


def _first_instant(now: Snapshot, clock: InstantClock) -> str:
    """A new instant; in layout 1 with the suffix by which Hudi 0.15 knows what the data timeline does not have."""
    instant = clock.next(now.last_time)
    return f"{instant}{FIRST_BUILD_SUFFIX:03d}" if now.timeline.layout == 1 else instant


def remove_metadata_table(files: TableFiles, config: TableConfig, memo: str | None = None) -> None:
    """Take the metadata table away: out of the settings, then its files. Call under the table lock."""
    if config.metadata_partitions or config.metadata_partitions_inflight or memo != config.raw.get(REBUILDING):
        changes = {**metadata_partitions_property(), INFLIGHT_PARTITIONS: "", REBUILDING: memo}
        update_table_config(files, changes)
    delete_entries(files, ".hoodie/metadata", keep={BITMAP_INDEX})


def require_no_pending_writes(now: Snapshot, what: str) -> None:
    """Refuse while a write of another engine is under way: it has read already which metadata partitions there are.

    Raises:
        CommitConflictError: names the write.
    """
    for instant in now.timeline.pending(WRITE_ACTIONS):
        if not is_ours(now.files, instant.requested):
            raise CommitConflictError(
                f"{now.files}: {instant.action} {instant.requested} of another engine is under way, so {what}; "
                "try again when it has ended, or roll it back",
                ours=None,
                theirs=instant.requested,
                file_groups=frozenset(),
                retryable=True,
            )


# ---------------------------------------------------------------------------------------------------------- listing


def list_storage(handle: TableContext) -> Folders:
    """Data files of all folders with a partition metafile (``FSUtils.getAllFoldersWithPartitionMetaFile``)."""
    task = _ListFolder(handle.files)
    found: Folders = {}
    level: Sequence[str] = [""]
    while level:
        label = f"lakedex {handle.files}: listing {len(level)} folders"
        few = len(level) <= FOLDERS_ON_DRIVER
        entries = run_threads(task, level, LISTING_THREADS) if few else handle.engine.run(task, level, label)
        found |= {path: files for path, (files, _) in zip(level, entries, strict=True) if files is not None}
        level = [inner for _, folders in entries for inner in folders]
    return found


@dataclass(frozen=True, slots=True)
class _ListFolder:
    """Task: data files of a partition; or, of a folder that is none, the folders in it."""

    files: TableFiles

    def __call__(self, path: str) -> tuple[dict[str, int] | None, list[str]]:
        entries = list_folder(self.files, path)
        if any(entry.name.startswith(PARTITION_METAFILE) for entry in entries):
            return {entry.name: entry.size for entry in entries if not entry.is_dir and _is_data(entry.name)}, []
        inner = inner_folders(self.files.path(path), entries)
        return None, [join_path(path, name) for name in inner]


def _is_data(name: str) -> bool:
    return instant_of(name) is not None


def _listed(files: TableFiles, path: str) -> dict[str, int]:
    return _ListFolder(files)(path)[0] or {}


def _changed_since(seen: Timeline, now: Timeline) -> set[str] | None:
    """Partitions that commits touched meanwhile; None where anything else happened, which may have removed files."""
    before = {instant.file_name for instant in seen.instants}
    if {instant.requested for instant in seen.instants} - {instant.requested for instant in now.instants}:
        return None
    changed: set[str] = set()
    for instant in now.instants:
        if instant.file_name in before or (instant.action in WRITE_ACTIONS and not instant.is_completed):
            continue
        if instant.action not in WRITE_ACTIONS:
            return None
        changed |= {partition for partition, _ in now.commit_metadata(instant).touched_file_groups()}
    return changed


def committed_files(now: Snapshot, found: Mapping[str, Mapping[str, int]]) -> Folders:
    """Those of the files that count: of completed instants, and named by their commits as far as these are there."""
    is_counted = is_committed_file(now)
    kept = {
        path: {name: size for name, size in files.items() if is_counted(path, name)} for path, files in found.items()
    }
    kept = {path: without_empty_strays(now, files) for path, files in kept.items()}
    return {path: files for path, files in kept.items() if files}


def without_empty_strays(now: Snapshot, files: Mapping[str, int]) -> dict[str, int]:
    """A partition's data files but for base files of no bytes, alone in their group, that no commit names any more.

    Such a file has no row, hides none, and nobody could read the table with it.
    """

    def is_stray(name: str, size: int) -> bool:
        base = None if size else parse_base_file_name(name)
        if base is None or now.timeline.is_completed(base.instant):
            return False
        return not any(base.file_id in other for other in files if other != name)

    return {name: size for name, size in files.items() if not is_stray(name, size)}


def is_committed_file(now: Snapshot) -> Callable[[str, str], bool]:
    """A test of (partition path, name of a data file)."""
    timeline, by_base = now.timeline, now.timeline.layout == 1
    # Version 6 names log files after the slice: until its compaction completes that is no instant of their own.
    opened = {i.requested for i in timeline.pending({"compaction"})} if by_base else set()
    named: dict[str, Collection[str]] = {}

    def names_of(instant: str) -> Collection[str]:
        if instant not in named:
            stats = timeline.commit_metadata(instant).write_stats
            named[instant] = frozenset(join_path(path, stat.file_name) for path, own in stats.items() for stat in own)
        return named[instant]

    def is_counted(partition: str, name: str) -> bool:
        instant = instant_of(name)
        shared = by_base and parse_base_file_name(name) is None
        if instant is None or not (timeline.is_committed(instant) or (shared and instant in opened)):
            return False
        if shared or not timeline.is_completed(instant):
            return True  # The other reason: archived.
        return join_path(partition, name) in names_of(instant)

    return is_counted
