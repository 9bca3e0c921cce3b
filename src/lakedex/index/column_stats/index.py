"""What the metadata table says of files that are gone (``HoodieTableMetadataUtil.convertMetadataToRecords``).

The entry of a file is marked deleted in ``files``, ``bloom_filters`` and ``column_stats``; merging never brings it back
to life. A partition without files leaves the list of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lakedex.index.column_stats.stats import indexable_columns
from lakedex.index.definitions import definitions_path, read_definitions, source_fields
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    Record,
    all_partitions_record,
    bloom_key,
    bloom_record,
    column_stats_key,
    deleted_stats_record,
    files_key,
    files_record,
    is_deleted,
)
from lakedex.metadata.writer import Keyed
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.types import META_COLUMNS

__all__ = ["tombstones"]


KEYS_AT_ONCE = 100_000
"""Stats that are looked up at a time: some 50 MB of records."""


def tombstones(
    snapshot: Snapshot, files: Mapping[str, Sequence[str]], gone: Collection[str], instant: str
) -> dict[str, Keyed]:
    """Records by metadata partition that take files out, for those partitions that the table has.

    Args:
        snapshot: the table.
        files: names of the files by partition.
        gone: partitions that have no file any more.
        instant: the action that removes them.
    """
    store = snapshot.metadata
    if not store.has(FILES.name):
        return {}
    listed: Keyed = [(files_key(path), files_record({}, names)) for path, names in files.items() if names]
    if gone:
        listed.append((ALL_PARTITIONS, all_partitions_record((), map(files_key, gone))))
    updates = {FILES.name: listed}
    if store.has(BLOOM_FILTERS.name):
        keys = [bloom_key(path, name) for path, names in files.items() for name in names]
        known = store.get_many(BLOOM_FILTERS.name, keys)
        updates[BLOOM_FILTERS.name] = [(key, bloom_record("", instant, b"", deleted=True)) for key in _live(known)]
    if store.has(COLUMN_STATS.name):
        updates[COLUMN_STATS.name] = _stats(snapshot, files)
    return updates


def _live(records: Mapping[str, Record]) -> list[str]:
    return [key for key, record in records.items() if not is_deleted(record)]


def _stats(snapshot: Snapshot, files: Mapping[str, Sequence[str]]) -> Keyed:
    columns = _columns(snapshot)
    subjects = [
        (column_stats_key(column, path, name), name, column)
        for path, names in files.items()
        for name in names
        for column in columns
    ]
    found: Keyed = []
    for start in range(0, len(subjects), KEYS_AT_ONCE):
        part = {key: (name, column) for key, name, column in subjects[start : start + KEYS_AT_ONCE]}
        live = _live(snapshot.metadata.get_many(COLUMN_STATS.name, list(part)))
        found.extend((key, deleted_stats_record(*part[key])) for key in live)
    return found


def _columns(snapshot: Snapshot) -> list[str]:
    """Columns that a file may have stats of: those of every schema that the timeline still knows, and the listed."""
    names = {*META_COLUMNS, *source_fields(read_definitions(snapshot.storage, definitions_path(snapshot.base_path)))}
    names.update(indexable_columns(snapshot.schema, limit=len(snapshot.schema)))
    texts: dict[str, str] = {}
    for instant in snapshot.timeline.completed(WRITE_ACTIONS):
        text = snapshot.timeline.commit_notes(instant).schema
        if text is not None:
            texts.setdefault(text, instant.file_name)
    for text, source in texts.items():
        schema = snapshot.parse_schema(text, source)
        names.update(indexable_columns(schema, limit=len(schema)))
    return sorted(names)
