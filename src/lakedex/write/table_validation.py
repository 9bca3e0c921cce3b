"""``validate``: a table's metadata against its files, their footers and its timeline.

The listing is compared whole. Base files are opened by the engine's tasks, one each: filters against footers (and
against all keys where the two are not the same), bounds and counts against the values.

Memory: the driver holds the names of all files, the differences, and the stats of each partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.column_stats import ColumnStat, merge_stats, partition_stat_of, stat_of
from lakedex.index.definitions import definitions_path, read_definitions, source_fields
from lakedex.index.table_report import TableDifference, TableReport
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    SUPPORTED,
    bloom_key,
    partition_stats_key,
)
from lakedex.metadata.records import is_deleted
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.types import META_COLUMNS, RECORD_KEY, Progress
from lakedex.write.bitmap_repairs import chosen_files, validate_bitmap_index
from lakedex.write.index_validation import IndexCheck, stat_differences
from lakedex.write.listing_validation import compare_listing, compare_timelines, take_pictures, timeline_notes

__all__ = ["validate_table"]

STEP = 64


def validate_table(
    handle: TableHandle,
    options: WriteOptions,
    *,
    files: int | None = None,
    footers: bool = True,
    progress: Progress | None = None,
) -> TableReport:
    """Compare a table's metadata with its files; see :meth:`lakedex.Table.validate`."""
    started = time.perf_counter()
    handle.cache.whole.clear()
    pictures = take_pictures(handle)
    snapshot = pictures.snapshot
    check = _TableCheck(handle, options, snapshot, chosen_files(snapshot, files), progress)
    check.differences += [
        TableDifference(index=name, kind="damaged index", stored="listed as complete", found=wrong)
        for name, wrong in snapshot.lost_metadata.items()
    ]
    check.differences += [*compare_listing(pictures), *compare_timelines(snapshot)]
    check.notes += timeline_notes(pictures)
    check.definitions()
    check.indexes(footers)
    if footers:
        check.bitmaps(files)
    return TableReport(
        table=snapshot.config.name,
        instant=snapshot.instant,
        files_total=len(snapshot.base_files()),
        files_compared=len(check.chosen) if footers else 0,
        files_listed=sum(len(found) for found in (pictures.listed or {}).values()),
        indexes=tuple(check.compared),
        differences=tuple(check.differences),
        notes=tuple(check.notes),
        seconds=time.perf_counter() - started,
    )


@dataclass(slots=True)
class _TableCheck:
    """One comparison, after the listing."""

    handle: TableHandle
    options: WriteOptions
    snapshot: Snapshot
    chosen: Sequence[BaseFile]
    progress: Progress | None
    differences: list[TableDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    _exact: dict[str, dict[str, ColumnStat]] = field(default_factory=dict)

    def definitions(self) -> None:
        """``index.json`` against the settings and the schema."""
        config, store = self.snapshot.config, self.snapshot.metadata
        document = read_definitions(self.snapshot.storage, definitions_path(self.snapshot.base_path))
        listed = source_fields(document)
        if store.has(COLUMN_STATS.name) and RECORD_KEY not in listed:
            self.differences.append(
                TableDifference(
                    index="definitions",
                    kind="missing definition",
                    column=RECORD_KEY,
                    stored=f"column_stats of {', '.join(listed) or 'no column'}",
                    found="column_stats is listed as complete; readers take its columns from the definition",
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
        """The metadata table's indexes against base files."""
        store = self.snapshot.metadata
        if store.has(FILES.name):
            self.compared.append(FILES.name)
        for name in (COLUMN_STATS.name, BLOOM_FILTERS.name):
            if not store.has(name):
                continue
            self.compared.append(name)
            try:
                self._presence(name)
                if footers:
                    self._values(name)
            except CorruptFileError as error:
                self.differences.append(TableDifference(index=name, kind="damaged bytes", found=str(error)))
        if store.has(PARTITION_STATS.name):
            self.compared.append(PARTITION_STATS.name)
            try:
                self.differences += self._partition_stats(footers)
            except CorruptFileError as error:
                found = TableDifference(index=PARTITION_STATS.name, kind="damaged bytes", found=str(error))
                self.differences.append(found)

    def _presence(self, name: str) -> None:
        """Entries of filters; those of stats are found missing with their values, for files without rows have none."""
        if name != BLOOM_FILTERS.name:
            return
        keys = {bloom_key(base.partition, base.name): base for base in self.chosen}
        records = self.snapshot.metadata.get_many(name, list(keys))
        for key, base in keys.items():
            if key not in records or is_deleted(records[key]):
                self.differences.append(
                    TableDifference(
                        index=name,
                        kind="missing entry",
                        partition=base.partition,
                        file=base.name,
                        column=RECORD_KEY,
                        stored="no filter",
                        found="a current base file",
                    )
                )

    def _values(self, name: str) -> None:
        check = IndexCheck(self.handle, self.snapshot, name, footers_do=True, seen=self._remember)
        for start in range(0, len(self.chosen), STEP):
            part = self.chosen[start : start + STEP]
            check.compare(part)
            if self.progress is not None:
                self.progress(start + len(part), len(self.chosen))
        self.differences += [TableDifference.of(name, found) for found in check.differences]
        self.notes += [f"{name}: {note}" for note in check.notes]

    def _remember(self, base: BaseFile, stats: Sequence[ColumnStat]) -> None:
        known = self._exact.setdefault(base.partition, {})
        for stat in stats:
            earlier = known.get(stat.column)
            known[stat.column] = stat if earlier is None else merge_stats(stat.column, [earlier, stat])

    def _partition_stats(self, footers: bool) -> Iterator[TableDifference]:
        """Bounds of partitions whose files were all compared."""
        chosen = {base.partition for base in self.chosen}
        whole = chosen - {base.partition for base in set(self.snapshot.base_files()) - set(self.chosen)}
        if not footers or not self._exact:
            return
        if chosen - whole:
            self.notes.append(f"partition_stats: {len(chosen - whole)} partitions were compared in part and left out")
        columns = IndexCheck(self.handle, self.snapshot, COLUMN_STATS.name).columns
        keys = [partition_stats_key(name, path) for path in whole for name in columns]
        records = self.snapshot.metadata.get_many(PARTITION_STATS.name, keys)
        for path in sorted(whole & self._exact.keys()):
            yield from self._partition(path, columns, records)

    def _partition(
        self, path: str, columns: Mapping[str, pa.DataType], records: Mapping[str, dict[str, object]]
    ) -> Iterator[TableDifference]:
        key_record = records.get(partition_stats_key(RECORD_KEY, path))
        for name, exact in self._exact[path].items():
            record = records.get(partition_stats_key(name, path))
            if record is None or is_deleted(record):
                if exact.all_null:
                    continue
                yield TableDifference(
                    index=PARTITION_STATS.name,
                    kind="missing entry",
                    partition=path,
                    column=name,
                    stored="nothing",
                    found="Hudi takes it for a column of nulls",
                )
                continue
            ours = partition_stat_of(record, key_record, columns[name])
            stored = ours or stat_of(record, columns[name])
            if ours is None and pa.types.is_binary(columns[name]):
                # Java merges them by signed bytes, and nobody else prunes by them.
                if stored is not None and any(kind == "wrong bounds" for kind, _, _ in stat_differences(stored, exact)):
                    self.notes.append(
                        f"partition_stats: Hudi's own bounds of the binary column {name!r} are wrong in partition "
                        f"{path!r}; lakedex does not use them"
                    )
                continue
            for kind, said, truth in stat_differences(stored, exact) if stored is not None else ():
                # Java does not keep counts up with every kind of commit, and nobody prunes by them.
                if ours is not None or kind == "wrong bounds":
                    yield TableDifference(
                        index=PARTITION_STATS.name, kind=kind, partition=path, column=name, stored=said, found=truth
                    )

    def bitmaps(self, files: int | None) -> None:
        """Bitmap indexes, as ``validate_index`` compares them."""
        for name in sorted(read_bitmap_definitions(self.snapshot.storage, self.snapshot.base_path)):
            report = validate_bitmap_index(self.handle, self.options, name, files=files, progress=self.progress)
            self.compared.append(name)
            self.differences += [TableDifference.of(name, found) for found in report.differences]
            self.differences += [
                TableDifference(index=name, kind="damaged bytes", found=text) for text in report.damage
            ]
            if report.files_uncovered:
                self.notes.append(f"{name}: {report.files_uncovered} files are not covered; refresh_index covers them")
