"""``Table.inspect``: files, partitions, commits and index entries as tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from lakedex.codec.bloom import decode_bloom
from lakedex.codec.column_bounds import unwrap_stat
from lakedex.display.result_table import Column, ResultTable
from lakedex.errors import InvalidInputError
from lakedex.index.bitmap.stats import bitmap_stats_table
from lakedex.io.retries import with_one_budget
from lakedex.metadata.records import BLOOM_FILTERS, COLUMN_STATS, PARTITION_STATS, bloom_key, is_deleted
from lakedex.scan.time_travel import snapshot_at
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.table.hints import missing_attribute
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.archived import ArchivedInstant, archived_writes, read_history
from lakedex.timeline.commit_metadata import CommitMetadata, decode_commit_metadata

__all__ = ["Inspect"]


@with_one_budget
@dataclass(frozen=True, slots=True)
class Inspect:
    """The content of one snapshot, as Arrow tables; made by :attr:`lakedex.Table.inspect`.

    Attributes:
        snapshot: the snapshot.
    """

    snapshot: Snapshot

    if not TYPE_CHECKING:  # Type checkers are to refuse unknown names.

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(type(self), name)

    def files(self) -> ResultTable:
        """Base files of the snapshot.

        Returns:
            A row per file: partition, file_name, file_id, instant, size (bytes).

        Example:
            >>> table.inspect.files()["partition"].to_pylist()
            ['city=oslo', 'city=sf']
        """
        bases = self.snapshot.base_files()
        rows = [
            {"partition": b.partition, "file_name": b.name, "file_id": b.file_id, "instant": b.instant, "size": b.size}
            for b in bases
        ]
        schema = pa.schema(
            [
                ("partition", pa.string()),
                ("file_name", pa.string()),
                ("file_id", pa.string()),
                ("instant", pa.string()),
                ("size", pa.int64()),
            ]
        )
        return self._named("files", pa.Table.from_pylist(rows, schema))

    def partitions(self) -> ResultTable:
        """Partitions of the snapshot that hold files.

        Returns:
            A row per partition: partition (its path), file_slices, slices_with_logs, size (bytes).

        Example:
            >>> table.inspect.partitions()["partition"].to_pylist()
            ['city=oslo', 'city=sf']
        """
        slices = self.snapshot.view().table
        per_partition = partial(np.add.reduceat, indices=slices.starts[:-1], dtype=np.int64)
        has_any = len(slices) > 0
        columns = {
            "partition": pa.array(slices.partitions, pa.string()),
            "file_slices": pa.array(np.diff(slices.starts)),
            "slices_with_logs": pa.array(per_partition(slices.has_logs) if has_any else [], pa.int64()),
            "size": pa.array(per_partition(slices.sizes) if has_any else [], pa.int64()),
        }
        return self._named("partitions", pa.table(columns))

    def snapshots(self) -> ResultTable:
        """Commits of the active timeline, oldest first, and whether the table can be read as of them.

        Reading the state of each commit, it takes time in proportion to commits and files.

        Returns:
            A row per commit: instant (for ``as_of``), completed, action, operation, has_savepoint, is_readable.

        Example:
            >>> table.inspect.snapshots()["is_readable"].to_pylist()
            [True]
        """
        timeline, newest = self.snapshot.timeline, self.snapshot
        saved = {instant.requested for instant in timeline.completed({"savepoint"})}
        rows = [
            {
                "instant": instant.requested,
                "completed": instant.completed,
                "action": instant.action,
                "operation": timeline.commit_metadata(instant).operation,
                "has_savepoint": instant.requested in saved,
                "is_readable": _is_readable(newest, instant.requested),
            }
            for instant in timeline.completed(WRITE_ACTIONS)
        ]
        return self._named("snapshots", pa.Table.from_pylist(rows, _SNAPSHOTS))

    def history(self, limit: int | None = None, *, archived: bool = False) -> ResultTable:
        """Completed commits, newest first, with the columns of Hudi's ``show_commits``, rows inserted and deleted.

        Args:
            limit: number of commits at most; None shows all.
            archived: also show those of the archive.

        Returns:
            A row per commit.

        Raises:
            CorruptFileError: a damaged file of the timeline or the archive.

        Example:
            >>> table.inspect.history(1)["operation"].to_pylist()
            ['UPSERT']
        """
        return self._named("history", _history_table(self.snapshot, limit, archived=archived))

    def column_stats(self) -> ResultTable:
        """Entries of ``column_stats`` for the snapshot's files; bounds as text.

        Returns:
            A row per file and column, named as in Hudi's ``show_metadata_table_column_stats``, with partition, counts
            and sizes added.

        Example:
            >>> "fare" in table.inspect.column_stats()["column_name"].to_pylist()
            True
        """
        rows = []
        if self.snapshot.metadata.has(COLUMN_STATS.name):
            partitions = {base.name: base.partition for base in self.snapshot.base_files()}
            types = {column.name: column.type for column in read_columns(self.snapshot.schema)}
            for record in self.snapshot.metadata.scan(COLUMN_STATS.name).values():
                payload = record["ColumnStatsMetadata"]
                if not is_deleted(record) and payload["fileName"] in partitions:
                    rows.append(_stats_row(payload, partitions[payload["fileName"]], types.get(payload["columnName"])))
        rows.sort(key=lambda row: (row["partition"], row["file_name"], row["column_name"]))
        return self._named("column statistics", pa.Table.from_pylist(rows, _STATS))

    def partition_stats(self) -> pa.Table:
        """Entries of ``partition_stats`` for the snapshot's partitions; bounds as text.

        Returns:
            A row per partition and column: partition, column_name, min_value, max_value, null_count, value_count,
            total_size, total_uncompressed_size, and is_tight (whether some row has each of the bounds).

        Example:
            >>> "city=oslo" in table.inspect.partition_stats()["partition"].to_pylist()
            True
        """
        rows = []
        if self.snapshot.metadata.has(PARTITION_STATS.name):
            partitions = set(self.snapshot.view().table.partitions)
            types = {column.name: column.type for column in read_columns(self.snapshot.schema)}
            for record in self.snapshot.metadata.scan(PARTITION_STATS.name).values():
                payload = record["ColumnStatsMetadata"]
                # Hudi has the partition's path in the place of the file's name.
                if not is_deleted(record) and payload["fileName"] in partitions:
                    row = _stats_row(payload, payload["fileName"], types.get(payload["columnName"]))
                    rows.append({**row, "is_tight": payload.get("isTightBound")})
        rows.sort(key=lambda row: (row["partition"], row["column_name"]))
        return pa.Table.from_pylist(rows, _PARTITION_STATS)

    def properties(self) -> pa.Table:
        """Settings of the table in ``hoodie.properties``.

        Returns:
            A row per property, by name: key, value.

        Example:
            >>> settings = table.inspect.properties().to_pylist()
            >>> {"key": "hoodie.table.recordkey.fields", "value": "id"} in settings
            True
        """
        entries = sorted(self.snapshot.config.raw.items())
        return pa.table(
            {
                "key": pa.array([key for key, _ in entries], pa.string()),
                "value": pa.array([value for _, value in entries], pa.string()),
            }
        )

    def bloom_filters(self) -> pa.Table:
        """Entries of ``bloom_filters`` for the snapshot's files.

        Returns:
            A row per file: partition, file_name, type, hashes, bits, rows, bytes (of the filter's text), instant.

        Example:
            >>> table.inspect.bloom_filters().num_rows
            2
        """
        rows = []
        if self.snapshot.metadata.has(BLOOM_FILTERS.name):
            bases = {bloom_key(base.partition, base.name): base for base in self.snapshot.base_files()}
            for key, record in self.snapshot.metadata.get_many(BLOOM_FILTERS.name, list(bases)).items():
                payload = record["BloomFilterMetadata"]
                if is_deleted(record):
                    continue
                bloom = decode_bloom(payload["bloomFilter"], payload["type"], key)
                base = bases[key]
                rows.append(
                    {
                        "partition": base.partition,
                        "file_name": base.name,
                        "type": bloom.type_code,
                        "hashes": bloom.num_hashes,
                        "bits": bloom.bits,
                        "rows": len(bloom.rows),
                        "bytes": len(payload["bloomFilter"]),
                        "instant": payload["timestamp"],
                    }
                )
        rows.sort(key=lambda row: (str(row["partition"]), str(row["file_name"])))
        return self._named("bloom filters", pa.Table.from_pylist(rows, _BLOOMS))

    def bitmaps(self, column: str | None = None, partition: str | None = None) -> ResultTable:
        """Entries of the bitmap indexes.

        Args:
            column: entries of this column only; None shows all columns.
            partition: entries of this partition only, given by its path; None shows all partitions.

        Returns:
            A row per file, column and value (null is one too): ``cardinality`` rows hold the value, in ``row_groups``
            row groups; the entry is in the file ``run``. Queries ignore entries of files that are not ``current``.

        Example:
            >>> table.indexes.create("bitmap", ["rider"]).entries
            3
            >>> table.inspect.bitmaps("rider")["value"].to_pylist()
            ['bo', 'cy', 'ana']
        """
        return self._named("bitmaps", bitmap_stats_table(self.snapshot, column, partition))

    def timeline(self) -> ResultTable:
        """All instants of the active timeline.

        Returns:
            A row per instant: requested, action, state, completed.

        Example:
            >>> table.inspect.timeline()["action"].to_pylist()
            ['commit']
        """
        rows = [
            {"requested": i.requested, "action": i.action, "state": i.state.name, "completed": i.completed}
            for i in self.snapshot.timeline.instants
        ]
        schema = pa.schema(
            [("requested", pa.string()), ("action", pa.string()), ("state", pa.string()), ("completed", pa.string())]
        )
        return self._named("timeline", pa.Table.from_pylist(rows, schema))

    def _named(self, title: str, rows: pa.Table) -> ResultTable:
        return ResultTable(rows, f"{title} of {self.snapshot.config.name}", _PRINTED)


_PRINTED = {
    "size": Column(kind="size"),
    "total_size": Column("size", kind="size"),
    "total_uncompressed_size": Column("decoded", kind="size"),
    "commit_time": Column("instant"),
    "state_transition_time": Column("completed", kind="time"),
    "completed": Column(kind="time"),
    "total_bytes_written": Column("written", kind="size"),
    "total_files_added": Column("files added"),
    "total_files_updated": Column("files updated"),
    "total_insert_records_written": Column("inserted"),
    "total_update_records_written": Column("updated"),
    "total_records_deleted": Column("deleted"),
    **dict.fromkeys(("total_partitions_written", "total_records_written", "total_errors"), Column(shown=False)),
    "file_id": Column(shown=False),
    "file_name": Column("file"),
    "base_file": Column("file"),
    "column_name": Column("column"),
    "min_value": Column("least"),
    "max_value": Column("greatest"),
    "null_count": Column("nulls"),
    "value_count": Column("rows"),
    "bytes": Column(kind="size"),
}
"""How columns are printed; their names in the rows are Hudi's."""


_STATS = pa.schema(
    [
        ("partition", pa.string()),
        ("file_name", pa.string()),
        ("column_name", pa.string()),
        ("min_value", pa.string()),
        ("max_value", pa.string()),
        ("null_count", pa.int64()),
        ("value_count", pa.int64()),
        ("total_size", pa.int64()),
        ("total_uncompressed_size", pa.int64()),
    ]
)


_PARTITION_STATS = _STATS.remove(_STATS.get_field_index("file_name")).append(pa.field("is_tight", pa.bool_()))


_BLOOMS = pa.schema(
    [
        ("partition", pa.string()),
        ("file_name", pa.string()),
        ("type", pa.string()),
        ("hashes", pa.int64()),
        ("bits", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("instant", pa.string()),
    ]
)


_HISTORY = pa.schema(
    [
        ("commit_time", pa.string()),
        ("state_transition_time", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("total_bytes_written", pa.int64()),
        ("total_files_added", pa.int64()),
        ("total_files_updated", pa.int64()),
        ("total_partitions_written", pa.int64()),
        ("total_records_written", pa.int64()),
        ("total_update_records_written", pa.int64()),
        ("total_errors", pa.int64()),
        ("total_insert_records_written", pa.int64()),
        ("total_records_deleted", pa.int64()),
    ]
)


_SNAPSHOTS = pa.schema(
    [
        ("instant", pa.string()),
        ("completed", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("has_savepoint", pa.bool_()),
        ("is_readable", pa.bool_()),
    ]
)


def _is_readable(newest: Snapshot, instant: str) -> bool:
    """Whether ``as_of=instant`` reads the table."""
    try:
        snapshot_at(lambda as_of: newest if as_of is None else newest.at(as_of), instant)
    except InvalidInputError:
        return False
    return True


def _stats_row(payload: dict[str, Any], partition: str, kind: pa.DataType | None) -> dict[str, Any]:
    return {
        "partition": partition,
        "file_name": payload["fileName"],
        "column_name": payload["columnName"],
        "min_value": _text(payload["minValue"], payload.get("valueType"), kind),
        "max_value": _text(payload["maxValue"], payload.get("valueType"), kind),
        "null_count": payload["nullCount"],
        "value_count": payload["valueCount"],
        "total_size": payload["totalSize"],
        "total_uncompressed_size": payload["totalUncompressedSize"],
    }


def _text(wrapped: Any, value_type: Any, kind: pa.DataType | None) -> str | None:
    value = unwrap_stat(wrapped, value_type)
    if value is None:
        return None
    if kind is not None and (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        # As text by Arrow: Python's own dates end with the year 9999.
        physical = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return str(pa.scalar(value, physical).cast(kind).cast(pa.string()).as_py())
    if kind is not None and pa.types.is_decimal(kind) and isinstance(value, Decimal):
        return format(value, f".{kind.scale}f")
    return value.hex() if isinstance(value, bytes) else str(value)


def _history_table(snapshot: Snapshot, limit: int | None, *, archived: bool = False) -> pa.Table:
    """Completed commits, newest first; with ``archived`` those of the archive too."""
    timeline = snapshot.timeline
    commits = timeline.completed(WRITE_ACTIONS)[::-1]
    rows = [
        _commit_row(instant.requested, instant.completed, instant.action, timeline.commit_metadata(instant))
        for instant in commits[:limit]
    ]
    if archived and (limit is None or len(rows) < limit):
        rows += _archived_rows(snapshot, {instant.requested for instant in commits})[: _left(limit, len(rows))]
    return pa.Table.from_pylist(rows, _HISTORY)


def _left(limit: int | None, taken: int) -> int | None:
    return None if limit is None else limit - taken


def _archived_rows(snapshot: Snapshot, active: Collection[str]) -> list[dict[str, Any]]:
    """Rows of archived commits, newest first. An archival that was cut short leaves instants on both timelines."""
    if snapshot.timeline.layout < 2:
        folder = snapshot.history_path
        # One whose archival was cut short may be there twice.
        writes = {
            instant.requested: (instant, commit) for instant, commit in archived_writes(snapshot.files.storage, folder)
        }
        rows = [
            _commit_row(requested, instant.completed, instant.action, commit)
            for requested, (instant, commit) in writes.items()
            if requested not in active
        ]
    else:
        rows = [
            _commit_row(item.requested, item.completed, item.action, _archived_commit(snapshot, item))
            for item in read_history(snapshot.files.storage, snapshot.history_path)
            if item.action in WRITE_ACTIONS and item.requested not in active
        ]
    return sorted(rows, key=lambda row: str(row["commit_time"]), reverse=True)


def _archived_commit(snapshot: Snapshot, item: ArchivedInstant) -> CommitMetadata:
    if item.metadata is None:
        return CommitMetadata(operation=None)
    return decode_commit_metadata(item.metadata, f"{snapshot.history_path} ({item.requested})")


def _commit_row(requested: str, completed: str | None, action: str, commit: CommitMetadata) -> dict[str, Any]:
    stats = commit.all_stats()
    return {
        "commit_time": requested,
        "state_transition_time": completed,
        "action": action,
        "operation": commit.operation,
        "total_bytes_written": sum(stat.file_size for stat in stats),
        "total_files_added": sum(stat.prev_commit == "null" for stat in stats),
        "total_files_updated": sum(stat.prev_commit != "null" for stat in stats),
        "total_partitions_written": len(commit.write_stats),
        "total_records_written": sum(stat.num_writes for stat in stats),
        "total_update_records_written": sum(stat.num_updates for stat in stats),
        "total_errors": sum(stat.write_errors for stat in stats),
        "total_insert_records_written": sum(stat.num_inserts for stat in stats),
        "total_records_deleted": sum(stat.num_deletes for stat in stats),
    }
