"""Indexes against the data they are of: what differs, and fresh entries where that is wanted.

``column_stats`` and ``bloom_filters`` are compared here, one task a base file; bitmap indexes in
:mod:`lakedex.write.bitmap_repairs`.

Memory: the driver holds the stats of one step of files, and the differences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.bloom_filters import load_filters
from lakedex.index.column_stats import ColumnStat, bounds_hold, covered_columns, stat_of, storable_stats
from lakedex.index.definitions import definitions_path, read_definitions
from lakedex.index.listing import require_index
from lakedex.index.partition_stats import StatsOfFile
from lakedex.index.validation import Difference, ValidationReport
from lakedex.io.storage import Storage
from lakedex.layout.base_file import iter_base_file, read_footer
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS, bloom_key, column_stats_key
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import MetadataStore
from lakedex.options import WriteOptions
from lakedex.types import META_COLUMNS, RECORD_KEY, Progress
from lakedex.write.bitmap_repairs import Files, chosen_files, validate_bitmap_index
from lakedex.write.index_builds import renew_entries

__all__ = ["IndexCheck", "stat_differences", "validate_index"]

STEP = 64


def validate_index(
    handle: TableHandle,
    options: WriteOptions,
    name: str,
    *,
    files: Files = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> ValidationReport:
    """Compare an index with the data; see :meth:`lakedex.Table.validate_index`."""
    if name in read_bitmap_definitions(handle.storage, handle.base_path):
        return validate_bitmap_index(handle, options, name, files=files, repair=repair, progress=progress)
    started = time.perf_counter()
    snapshot = handle.snapshot()
    require_index(snapshot, name)
    if name not in (COLUMN_STATS.name, BLOOM_FILTERS.name):
        raise UnsupportedFeatureError(
            f"{handle.base_path}: {name} are made of column_stats: validate those; drop_index({name!r}) and "
            f"create_index({name!r}) make them anew",
            feature=f"validation of {name}",
        )
    chosen = chosen_files(snapshot, files)
    check = IndexCheck(handle, snapshot, name)
    for start in range(0, len(chosen), STEP):
        part = chosen[start : start + STEP]
        check.compare(part)
        if progress is not None:
            progress(start + len(part), len(chosen))
    wrong = {(found.partition, found.file) for found in check.differences}
    repaired = renew_entries(handle, options, name, wrong) if repair and wrong else 0
    return ValidationReport(
        name=name,
        using=name,
        instant=snapshot.instant,
        files_total=len(snapshot.base_files()),
        files_checked=check.checked,
        files_uncovered=check.uncovered,
        entries_checked=check.entries,
        differences=tuple(check.differences),
        files_repaired=repaired,
        notes=check.notes,
        seconds=time.perf_counter() - started,
    )


@dataclass(slots=True)
class IndexCheck:
    """One comparison of ``column_stats`` or ``bloom_filters`` with base files.

    Attributes:
        footers_do: a filter that is the footer's, bit for bit, is not asked for all keys.
        seen: told the exact stats of each file.
    """

    handle: TableHandle
    snapshot: Snapshot
    name: str
    checked: int = 0
    uncovered: int = 0
    entries: int = 0
    untrusted: int = 0
    footers_do: bool = False
    seen: Callable[[BaseFile, Sequence[ColumnStat]], None] | None = None
    differences: list[Difference] = field(default_factory=list)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not compared."""
        if not self.untrusted:
            return ()
        return (f"{self.untrusted:,} entries of other writers are not believed by lakedex, and were not compared",)

    def compare(self, files: Sequence[BaseFile]) -> None:
        """Compare some files."""
        label = f"lakedex {self.handle.base_path}: comparing {self.name} of {len(files)} files"
        if self.name == BLOOM_FILTERS.name:
            snapshot = self.snapshot
            task = _ProbeFile(snapshot.storage, snapshot.base_path, snapshot.metadata, self.footers_do)
            for probed in self.handle.engine.run(task, files, label):
                self.checked += probed.known
                self.uncovered += not probed.known
                self.entries += probed.known
                self.differences += probed.differences
            return
        columns = self.columns
        stats = StatsOfFile(self.snapshot.storage, self.snapshot.base_path, dict(columns), widened=False)
        keys = [column_stats_key(name, base.partition, base.name) for base in files for name in columns]
        records = self.snapshot.metadata.get_many(COLUMN_STATS.name, keys)
        for base, exact in zip(files, self.handle.engine.run(_Present(stats), files, label), strict=True):
            if exact is None:
                continue
            self.checked += 1
            if self.seen is not None:
                self.seen(base, exact)
            for stat in exact:
                record = records.get(column_stats_key(stat.column, base.partition, base.name))
                if record is None or record["ColumnStatsMetadata"]["isDeleted"]:
                    if stat.all_null:
                        continue  # So it is taken; a column that was added has no entries for older files.
                    if storable_stats([stat], self.snapshot.config.version):
                        self._differs(base, stat.column, "missing entry", "Hudi takes it for a column of nulls")
                else:
                    self._compare_stat(base, stat_of(record, columns[stat.column]), stat)

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """Columns of ``column_stats`` with their types."""
        document = read_definitions(self.snapshot.storage, definitions_path(self.snapshot.base_path))
        types = {name: pa.string() for name in META_COLUMNS} | {c.name: c.type for c in self.snapshot.schema}
        covered = covered_columns(document, self.snapshot.schema, self.snapshot.config.version)
        return {name: types[name] for name in covered if name in types}

    def _compare_stat(self, base: BaseFile, stored: ColumnStat | None, exact: ColumnStat) -> None:
        if stored is None:
            self.untrusted += 1
            return
        self.entries += 1
        for kind, said, truth in stat_differences(stored, exact):
            detail = f"{truth}, the entry has {said.removeprefix('values from ')}"
            self._differs(base, exact.column, kind, detail, said, truth)

    def _differs(self, base: BaseFile, column: str, kind: str, detail: str, stored: str = "", found: str = "") -> None:
        self.differences.append(
            Difference(
                partition=base.partition,
                file=base.name,
                column=column,
                kind=kind,
                count=1,
                detail=detail,
                stored=stored,
                found=found,
            )
        )


def stat_differences(stored: ColumnStat, exact: ColumnStat) -> Iterator[tuple[str, str, str]]:
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

    def __call__(self, base: BaseFile) -> list[ColumnStat] | None:
        try:
            return self.stats(base)
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class _Probed:
    """Whether a file has a filter, and what is wrong with it."""

    known: bool
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class _ProbeFile:
    """Task: ask a file's filter for each of the file's keys. Memory: the filter and a batch of keys."""

    storage: Storage
    base_path: str
    store: MetadataStore
    footers_do: bool = False

    def __call__(self, base: BaseFile) -> _Probed:
        def differs(kind: str, count: int, detail: str) -> _Probed:
            found = Difference(
                partition=base.partition, file=base.name, column=RECORD_KEY, kind=kind, count=count, detail=detail
            )
            return _Probed(True, (found,))

        try:
            loaded = list(load_filters(self.store, base.partition, [base.name]))
        except CorruptFileError as error:
            return differs("damaged bytes", 1, str(error))
        if not loaded:
            return _Probed(False)
        if self.footers_do and self._is_footers(base):
            return _Probed(True)
        missed: list[str] = []
        count = 0
        try:
            for batch in iter_base_file(self.storage, f"{self.base_path}/{base.relative_path}", [RECORD_KEY]):
                keys = batch.column(0).drop_null()
                lost = keys.filter(pc.invert(pa.array(loaded[0][1].probe(keys))))
                count += len(lost)
                missed += lost.slice(0, 3 - len(missed)).to_pylist() if len(missed) < 3 else []
        except FileNotFoundError:
            return _Probed(False)
        if count:
            return differs("missed keys", count, ", ".join(map(repr, missed)))
        return _Probed(True)

    def _is_footers(self, base: BaseFile) -> bool:
        """Whether the filter is the one of the file's footer."""
        key = bloom_key(base.partition, base.name)
        payload = self.store.get_many(BLOOM_FILTERS.name, [key])[key]["BloomFilterMetadata"]
        try:
            footer = read_footer(self.storage, f"{self.base_path}/{base.relative_path}")
        except FileNotFoundError:
            return True
        return (payload["type"], payload["bloomFilter"]) == (footer.bloom_type, footer.bloom)
