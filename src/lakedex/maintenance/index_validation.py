"""Compare indexes with the data they describe, and write fresh entries on request.

``validate_index`` of a bitmap index, and its repair.

A repair writes new runs for the base files that differ. They rank above all others, so what they say counts from then
on; runs that cannot be read are taken out, and what they covered is covered anew. All of it is put-if-absent or a new
name, so the lock is held for the name of the new runs only, and queries and writes go on.

Memory: the driver holds the bitmaps of the files that differ until they make a run of ``RUN_BYTES``.

Indexes against the data they are of: what differs, and fresh entries where that is wanted.

``column_stats`` and ``bloom_filters`` are compared here, one task a base file; bitmap indexes in
:mod:`lakedex.maintenance.index_validation`.

Memory: the driver holds the stats of one step of files, and the differences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import CommitConflictError, CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lakedex.index.bitmap.builder import FileBitmaps
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.bitmap.runs import (
    RUN_BYTES,
    Manifest,
    Run,
    delete_runs,
    encode_run,
    list_runs,
    publish_manifest,
    publish_without,
    write_run,
)
from lakedex.index.bitmap.validate import BitmapValidation
from lakedex.index.bloom_filters import load_filters
from lakedex.index.column_stats.partition_stats import StatsOfFile
from lakedex.index.column_stats.stats import ColumnStat, bounds_hold, covered_columns, stat_of, storable_stats
from lakedex.index.definitions import definitions_path, read_definitions
from lakedex.index.registry import index_named, require_readable
from lakedex.io.storage import Storage
from lakedex.layout.file_slice import BaseFile
from lakedex.maintenance.index_lifecycle import open_live, recompute_entries
from lakedex.metadata.records import BLOOM_FILTERS, COLUMN_STATS, bloom_key, column_stats_key
from lakedex.metadata.store import MetadataStore
from lakedex.options import WriteOptions
from lakedex.parquet.base_file_reader import iter_base_file, read_footer
from lakedex.reports import Difference, ValidationReport
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.instant import InstantClock
from lakedex.types import META_COLUMNS, RECORD_KEY, Progress

__all__ = ["Files", "IndexCheck", "chosen_files", "stat_differences", "validate_bitmap_index", "validate_index"]


Files = int | Sequence[str] | None
"""Which base files are compared: None for all, so many of them, or those of these names."""


PUBLISH_ATTEMPTS = 5


def chosen_files(snapshot: Snapshot, files: Files) -> list[BaseFile]:
    """Base files to compare; a sample is spread evenly over the table.

    Raises:
        InvalidInputError: a number below 1, or a name that no current base file has.
    """
    known = sorted(snapshot.base_files(), key=lambda base: (base.partition, base.name))
    if files is None:
        return known
    if isinstance(files, int):
        if files < 1:
            raise InvalidInputError(f"{snapshot.base_path}: files is a number of files from 1 on, not {files}")
        count = min(files, len(known))
        return [known[number * len(known) // count] for number in range(count)]
    names = {base.name for base in known}
    for name in files:
        if name not in names:
            raise InvalidInputError(
                f"{snapshot.base_path}: {name!r} is no current base file; t.inspect.files() has all"
            )
    wanted = set(files)
    return [base for base in known if base.name in wanted]


def validate_bitmap_index(
    handle: TableContext,
    options: WriteOptions,
    name: str,
    *,
    files: Files = None,
    repair: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ValidationReport:
    """Compare a bitmap index with the data; see :meth:`lakedex.Indexes.validate`."""
    started = time.perf_counter()
    mending = None
    with ExitStack() as beating:
        if repair:
            with open_live(handle, options, name) as (_, ctx, heartbeat):
                snapshot = ctx.snapshot
                mending = _Repair(handle, ctx.instant)
            beating.enter_context(heartbeat)
        else:
            snapshot = handle.snapshot()
        definitions = read_bitmap_definitions(snapshot.storage, snapshot.base_path)
        chosen = chosen_files(snapshot, files)
        check = BitmapValidation(
            snapshot=snapshot,
            definition=definitions[name],
            definitions=definitions,
            run=handle.engine.run,
            progress=progress,
            keep=repair,
        )
        found = check.compare(chosen)
        if mending is None:
            for _ in found:
                continue
        else:
            mending.mend(check, found, snapshot.base_files())
    everything = snapshot.base_files()
    uncovered = sum(not check.covers(base, check.columns) for base in chosen)
    return ValidationReport(
        name=name,
        using="bitmap",
        instant=snapshot.instant,
        files_total=len(everything),
        files_checked=check.checked,
        files_uncovered=uncovered,
        entries_checked=check.entries,
        entries_stale=check.stale_entries(everything),
        differences=tuple(check.differences),
        damage=check.damage,
        files_repaired=0 if mending is None else len(mending.repaired),
        notes=tuple(check.notes),
        seconds=time.perf_counter() - started,
    )


@dataclass(slots=True)
class _Repair:
    """Writes what was found wrong anew."""

    handle: TableContext
    instant: str
    repaired: set[tuple[str, str]] = field(default_factory=set)
    _runs: int = 0
    _held: list[FileBitmaps] = field(default_factory=list)
    _size: int = 0

    def mend(self, check: BitmapValidation, found: Iterable[FileBitmaps], files: Sequence[BaseFile]) -> None:
        """Cover what differs, then what damaged runs covered, then take these out."""
        self._name_after(check)
        for item in found:
            self._add(item)
        if check.lost_something:
            lost = [
                base
                for base in files
                if (base.partition, base.name) not in self.repaired
                and (check.uses_bad_run(base) or not check.covers(base, tuple(check.limits)))
            ]
            for item in check.make(lost):
                self._add(item)
        self._flush()
        if check.lost_something:
            self._take_out(check)

    def _name_after(self, check: BitmapValidation) -> None:
        """New runs have to sort after all that are there, also those of a machine whose clock is ahead."""
        newest = max((run.instant for run in check.folder.runs), default="")
        if newest >= self.instant:
            self.instant = InstantClock(check.snapshot.config.timezone).next(newest)

    def _add(self, item: FileBitmaps) -> None:
        self.repaired.add((item.partition, item.base_file))
        if self._held and self._size + item.size > RUN_BYTES:
            self._flush()
        self._held.append(item)
        self._size += item.size

    def _flush(self) -> None:
        if self._held:
            run = Run(self.instant, "build", self._runs)
            write_run(self.handle.storage, self.handle.base_path, run, encode_run(self._held))
            self._runs += 1
            self._held, self._size = [], 0

    def _take_out(self, check: BitmapValidation) -> None:
        """Publish which runs count without the damaged ones, and delete these.

        Raises:
            CommitConflictError: folds got in between again and again. What was mended counts all the same.
        """
        storage, base = self.handle.storage, self.handle.base_path
        gone = {*check.bad_runs, *check.missing_runs}
        if check.manifest_damage:
            gone |= {name for name in check.folder.idle if name.endswith(".hfile")}
            number, kept = check.folder.manifest.number, ()
            published = publish_manifest(
                storage, base, Manifest(number=number + 1, runs=kept, folded=tuple(sorted(gone)))
            )
        else:
            published = any(
                publish_without(storage, base, list_runs(storage, base), gone) for _ in range(PUBLISH_ATTEMPTS)
            )
        if not published:
            raise CommitConflictError(
                f"{base}: others changed the bitmap index meanwhile; run indexes.validate with repair=True again",
                ours=self.instant,
                theirs=None,
                file_groups=frozenset(),
                retryable=True,
            )
        delete_runs(storage, base, gone)


STEP = 64


def validate_index(
    handle: TableContext,
    options: WriteOptions,
    name: str,
    *,
    files: Files = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> ValidationReport:
    """Compare an index with the data; see :meth:`lakedex.Indexes.validate`."""
    if name in read_bitmap_definitions(handle.storage, handle.base_path):
        return validate_bitmap_index(handle, options, name, files=files, repair=repair, progress=progress)
    started = time.perf_counter()
    snapshot = handle.snapshot()
    index = index_named(snapshot, name)
    require_readable(snapshot, name)
    if name not in (COLUMN_STATS.name, BLOOM_FILTERS.name):
        raise UnsupportedFeatureError(
            f"{handle.base_path}: {name} are made of column_stats: validate those; indexes.drop({name!r}) and "
            f"indexes.create({name!r}) make them anew",
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
    repaired = recompute_entries(handle, options, index, wrong) if repair and wrong else 0
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

    handle: TableContext
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
