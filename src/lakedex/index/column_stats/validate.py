"""Compare ``column_stats`` with the values of base files and their log files, and ``partition_stats`` with both.

A log file without any entry is a note: Hudi and lakedex read its slice then.

Memory: the driver holds the stats of one step of files, those of each partition, and the differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex.index.column_stats.build import stats_types
from lakedex.index.column_stats.partition_stats import StatsOfFile
from lakedex.index.column_stats.stats import (
    ColumnStat,
    bounds_hold,
    merge_stats,
    partition_stat_of,
    stat_of,
    storable_stats,
)
from lakedex.index.metadata_index import MetadataValidation
from lakedex.index.protocol import file_difference
from lakedex.layout.file_slice import BaseFile, DataFile, LogFile
from lakedex.metadata.records import COLUMN_STATS, PARTITION_STATS, column_stats_key, is_deleted, partition_stats_key
from lakedex.reports import Difference
from lakedex.types import RECORD_KEY, Progress, TableType

__all__ = ["PartitionValidation", "StatsValidation"]


MISSING = "no entry, which Hudi takes for a column of nulls"


@dataclass(slots=True, kw_only=True)
class StatsValidation(MetadataValidation):
    """A comparison of ``column_stats``; ``exact`` are the stats of each partition over the files that were compared."""

    exact: dict[str, dict[str, ColumnStat]] = field(default_factory=dict)
    _untrusted: int = 0
    _bare_logs: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Counts of the entries that were not compared, and of log files without any."""
        found = []
        if self._untrusted:
            found.append(
                f"{self._untrusted:,} entries in a form that some writers of Hudi fill wrongly are not believed, and "
                "were not compared"
            )
        if self._bare_logs:
            found.append(f"{self._bare_logs:,} log files have no entries: no query leaves their slices out")
        return tuple(found)

    def compare_some(self, files: Sequence[BaseFile], label: str) -> None:
        """Compare some files."""
        snapshot, columns = self.ctx.snapshot, stats_types(self.ctx.snapshot)
        task = _Present(StatsOfFile(snapshot.files, columns, widened=False))
        slices = {(s.partition, s.base_file.name): s for s in snapshot.slices() if s.base_file is not None}
        whole = [file for base in files for file in slices[base.partition, base.name].files]
        keys = [column_stats_key(name, file.partition, file.name) for file in whole for name in columns]
        records = snapshot.metadata.get_many(COLUMN_STATS.name, keys)
        for base, exact in zip(whole, self.ctx.table.engine.run(task, whole, label), strict=True):
            if exact is None:
                continue
            self._add_up(base, exact)
            if isinstance(base, LogFile):
                own = (records.get(column_stats_key(name, base.partition, base.name)) for name in columns)
                if all(record is None or is_deleted(record) for record in own):
                    self._bare_logs += 1
                    continue
            else:
                self.checked += 1
            for stat in exact:
                record = records.get(column_stats_key(stat.column, base.partition, base.name))
                if record is None or is_deleted(record):
                    if stat.all_null:
                        continue  # So it is taken; a column that was added has no entries for older files.
                    if storable_stats([stat], snapshot.config.version):
                        self._differs(base, stat.column, "missing entry", _bounds(stat), MISSING)
                else:
                    self._compare(base, stat_of(record, columns[stat.column]), stat)

    def _add_up(self, base: DataFile, stats: Sequence[ColumnStat]) -> None:
        known = self.exact.setdefault(base.partition, {})
        for stat in stats:
            earlier = known.get(stat.column)
            known[stat.column] = stat if earlier is None else merge_stats(stat.column, [earlier, stat])

    def _compare(self, base: DataFile, stored: ColumnStat | None, exact: ColumnStat) -> None:
        if stored is None:
            self._untrusted += 1
            return
        self.entries += 1
        for kind, said, truth in _stat_differences(stored, exact):
            self._differs(base, exact.column, kind, truth, said)

    def _differs(self, base: DataFile, column: str, kind: str, expected: str, found: str) -> None:
        self.differences.append(file_difference(COLUMN_STATS.name, base, column, kind, expected, found))


@dataclass(slots=True, kw_only=True)
class PartitionValidation(MetadataValidation):
    """A comparison of ``partition_stats``, of partitions whose files were all compared."""

    notes: list[str] = field(default_factory=list)

    def compare(self, files: Sequence[BaseFile], progress: Progress | None) -> None:
        """Compare the partitions of files that were compared with ``column_stats``."""
        stats = self.ctx.earlier.get(COLUMN_STATS.name)
        if not isinstance(stats, StatsValidation) or not stats.exact:
            return
        snapshot, columns = self.ctx.snapshot, stats_types(self.ctx.snapshot)
        touched = {base.partition for base in files}
        compared = set(files)
        whole = touched - {item.partition for item in snapshot.slices() if item.base_file not in compared}
        if touched - whole:
            left_out = len(touched - whole)
            self.notes.append(f"{left_out} partitions were compared in part and left out")
        keys = [partition_stats_key(name, path) for path in whole for name in columns]
        records = snapshot.metadata.get_many(PARTITION_STATS.name, keys)
        for path in sorted(whole & stats.exact.keys()):
            self.differences += self._partition(path, stats.exact[path], columns, records)

    def _partition(
        self,
        path: str,
        stats: Mapping[str, ColumnStat],
        columns: Mapping[str, pa.DataType],
        records: Mapping[str, dict[str, object]],
    ) -> Iterator[Difference]:
        key_record = records.get(partition_stats_key(RECORD_KEY, path))
        for name, exact in stats.items():
            record = records.get(partition_stats_key(name, path))
            if record is None or is_deleted(record):
                if not exact.all_null:
                    yield _of_partition(path, name, "missing entry", _bounds(exact), MISSING)
                continue
            ours = partition_stat_of(record, key_record, columns[name])
            stored = ours or stat_of(record, columns[name])
            if ours is None and pa.types.is_binary(columns[name]):
                # Java merges them by signed bytes, and nobody else prunes by them.
                if stored is not None and not bounds_hold(stored, exact):
                    self.notes.append(
                        f"Hudi's own bounds of the binary column {name!r} are wrong in partition {path!r}; lakedex "
                        "does not use them"
                    )
                continue
            for kind, said, truth in _stat_differences(stored, exact) if stored is not None else ():
                # Java does not keep counts up with every kind of commit, nor does a compaction beside later writes, and
                # nobody prunes by them.
                if kind == "wrong bounds" or (ours is not None and self.ctx.snapshot.config.table_type == _COUNTED):
                    yield _of_partition(path, name, kind, truth, said)


_COUNTED = TableType.COPY_ON_WRITE


def _of_partition(path: str, column: str, kind: str, expected: str, found: str) -> Difference:
    return Difference(
        index=PARTITION_STATS.name, kind=kind, partition=path, column=column, expected=expected, found=found
    )


def _stat_differences(stored: ColumnStat, exact: ColumnStat) -> Iterator[tuple[str, str, str]]:
    """Kind of difference, what the entry says and what is true."""
    if (stored.value_count, stored.null_count) != (exact.value_count, exact.null_count):
        yield "wrong counts", _counts(stored), _counts(exact)
    if not bounds_hold(stored, exact):
        yield "wrong bounds", _bounds(stored), _bounds(exact)


def _counts(stat: ColumnStat) -> str:
    return f"{stat.value_count} rows and {stat.null_count} nulls"


def _bounds(stat: ColumnStat) -> str:
    return f"values from {stat.minimum!r} to {stat.maximum!r}"


@dataclass(frozen=True, slots=True)
class _Present:
    """Task: exact stats of a file; None for one that is gone meanwhile."""

    stats: StatsOfFile

    def __call__(self, file: DataFile) -> list[ColumnStat] | None:
        try:
            return self.stats(file)
        except FileNotFoundError:
            return None
