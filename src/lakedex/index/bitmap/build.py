"""Build the bitmaps of a live table's files that no run covers, whoever wrote them.

The definition comes first: from then on every write of lakedex makes bitmaps of its files. Then the base files without
bitmaps are read, one task a file. A build that dies keeps what it did, and the same call goes on where it stopped.
Nothing is announced on a timeline: what others write meanwhile is covered by them, or stays to be refreshed.

Memory: the driver holds the bitmaps of one chunk, up to ``RUN_BYTES``; a task those of one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lakedex.errors import CorruptFileError, IndexNotFoundError, InvalidInputError, UnsupportedFeatureError
from lakedex.index.bitmap.builder import BitmapsOfFile, column_of
from lakedex.index.bitmap.definitions import (
    DEFAULT_MAX_DISTINCT,
    BitmapDefinition,
    definitions_file,
    in_schema,
    indexed_limits,
    lost_names,
    read_bitmap_definitions,
)
from lakedex.index.bitmap.keys import is_indexable
from lakedex.index.bitmap.loaded_index import Coverage
from lakedex.index.bitmap.log_builder import BitmapsOfLog
from lakedex.index.bitmap.log_coverage import merge_settings
from lakedex.index.bitmap.run_files import (
    BITMAP_INDEX,
    Manifest,
    Run,
    RunFolder,
    TaskBitmaps,
    inline_limit,
    list_runs,
    publish_without,
    spill_bitmaps,
    write_runs,
)
from lakedex.index.protocol import BuildContext
from lakedex.io.task_output import Spilled
from lakedex.layout.contained_files import delete_partition
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.metadata.records import SUPPORTED
from lakedex.reports import IndexResult
from lakedex.snapshot.file_system_view import TableCache
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import META_COLUMNS, Progress

__all__ = ["MAX_DISTINCT_VALUES", "BitmapBuild", "logs_of_slices", "number_of", "plan_bitmaps"]


MAX_DISTINCT_VALUES = "max_distinct_values"
"""The index's option: distinct values of a column in one file past which it is not indexed there."""


Missing = Sequence[tuple[tuple[str, ...], Sequence[BaseFile | FileSlice]]]
"""Columns → files that lack exactly these."""


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_TAKEN = frozenset({*SUPPORTED, BITMAP_INDEX, "record_index"})


_TAKEN_PREFIXES = ("secondary_index_", "expr_index_")


def plan_bitmaps(ctx: BuildContext) -> BitmapBuild:
    """Define an index, or find it.

    Raises:
        IndexNotFoundError: the index to refresh is not there.
        InvalidInputError: a name, a column or a cap that cannot be.
        UnsupportedFeatureError: a column that has no values to index.
    """
    snapshot = ctx.snapshot
    if not ctx.refresh:
        _check_name(snapshot.files.base_path, ctx.name)
    known = read_bitmap_definitions(snapshot.files)
    # What a schema change of others, or one that died, left of columns that are no more goes.
    present = in_schema(known, snapshot.schema)
    if not ctx.refresh:
        cap = ctx.settings.get(MAX_DISTINCT_VALUES)
        most = None if cap is None else _max_distinct(snapshot.files.base_path, cap)
        wish = _wish(present.get(ctx.name), ctx.name, _columns(snapshot, ctx.columns or ()), most)
    elif ctx.name in present:
        wish = _Wish(present[ctx.name], False)
    else:
        indexes = ", ".join(sorted(present)) or "none"
        raise IndexNotFoundError(f"{snapshot.files} has no bitmap index {ctx.name!r}; it has {indexes}", index=ctx.name)
    after = {**present, ctx.name: wish.index}
    return BitmapBuild(
        ctx=ctx,
        index=wish.index,
        definitions={} if after == known else definitions_file(snapshot.files, after),
        is_new=wish.is_new,
        again=wish.again,
        notes=[*lost_names(known, present), *(_shared(present, wish.index) if wish.is_new else ())],
    )


def _shared(known: Mapping[str, BitmapDefinition], index: BitmapDefinition) -> Iterator[str]:
    """The columns of a new index that others have: bitmaps are of columns, so they cost nothing twice."""
    for other in known.values():
        both = [repr(name) for name in index.columns if name in other.columns and other.name != index.name]
        if both:
            yield f"the index {other.name!r} has {', '.join(both)} already; the two share the bitmaps"


@dataclass(slots=True)
class _Wish:
    """The index that the caller asked for, against the index as it is."""

    index: BitmapDefinition
    is_new: bool
    again: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuildFile:
    """Task: bitmaps of one file; None for a file that is gone meanwhile. A log file is given as the end of a slice."""

    task: BitmapsOfFile
    of_log: BitmapsOfLog | None
    folder: str
    limit: int

    def __call__(self, item: BaseFile | FileSlice) -> TaskBitmaps | None:
        try:
            if isinstance(item, BaseFile):
                found = self.task(item)
            elif self.of_log is not None:
                found = self.of_log(item)
            else:
                return None
        except FileNotFoundError:
            return None  # A cleaner took it: it is in no slice any more.
        spill = partial(Spilled.write, self.task.files.storage, f"{self.folder}/{found.base_file}.bitmaps")
        return spill_bitmaps(found, spill, self.limit)


@dataclass(slots=True, kw_only=True)
class BitmapBuild:
    """One build: every chunk of the files that the index lacks becomes a run of its own at once.

    Chunks do not depend on the engine: the same files give the same bytes on all of them.

    Attributes:
        ctx: the build.
        index: the index as it will be.
        definitions: its definitions file, where that changes.
        is_new: whether the index was not there, or not as it was asked for.
        again: columns whose files count as not covered where they are not indexed: their cap was raised.
        notes: what the user should know.
    """

    ctx: BuildContext
    index: BitmapDefinition
    definitions: Mapping[str, bytes | None]
    is_new: bool
    again: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    _runs: list[Run] = field(default_factory=list)
    _files: int = 0
    _entries: int = 0
    _not_indexed: dict[tuple[str, str], int] = field(default_factory=dict)

    def cover(self, snapshot: Snapshot, progress: Progress | None) -> int:
        """Cover the current files that no run covers, and say how many; call it without the lock."""
        groups = self._missing(snapshot)
        limits = indexed_limits(read_bitmap_definitions(snapshot.files)) if groups else {}
        total, done = sum(len(files) for _, files in groups), 0
        step = self.ctx.table.limits.files_per_chunk
        for names, files in groups:
            columns = {name: limits[name] for name in names if name in limits}
            for start in range(0, len(files) if columns else 0, step):
                chunk = files[start : start + step]
                self._cover_chunk(snapshot, columns, chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
        return total

    def _missing(self, snapshot: Snapshot) -> Missing:
        """Columns of the index → files of current slices that no run covers for exactly these."""
        coverage = self._coverage()
        lacking: dict[BaseFile | FileSlice, list[str]] = {}
        files: list[BaseFile | FileSlice] = [
            *sorted(snapshot.base_files(self.ctx.partitions), key=lambda base: (base.partition, base.file_id)),
            *logs_of_slices(snapshot, self.ctx.partitions),
        ]
        for name in self.index.columns:
            column = coverage.column(name)
            for item in files:
                number = number_of(coverage, item)
                entry = -1 if number < 0 else int(column.entry_of[number])
                if entry < 0 or (name in self.again and not column.is_indexed(entry)):
                    lacking.setdefault(item, []).append(name)
        if self._forget(coverage):
            return self._missing(snapshot)  # With what those runs still had to say gone too.
        groups: dict[tuple[str, ...], list[BaseFile | FileSlice]] = {}
        for item in files:
            if item in lacking:
                # All columns: the rows that a log file touches are in one entry with their values.
                names = lacking[item] if isinstance(item, BaseFile) else self.index.columns
                groups.setdefault(tuple(names), []).append(item)
        return sorted(groups.items(), key=lambda group: group[0])

    def _coverage(self) -> Coverage:
        """Coverage as the runs have it, past the cache: others do not have what this process remembers of lost runs."""
        files = self.ctx.snapshot.files
        try:
            folder = list_runs(files)
        except CorruptFileError as error:
            self.notes.append(f"built again: {error}")
            delete_partition(files.metadata, BITMAP_INDEX)
            folder = RunFolder(manifest=Manifest(), runs=(), idle=())
        coverage = Coverage(files, TableCache())
        coverage.refresh(folder)
        return coverage

    def _forget(self, coverage: Coverage) -> bool:
        """Take runs that cannot be read out of the index, for they keep all others from being compacted.

        Returns:
            Whether there were any.
        """
        files = self.ctx.snapshot.files
        folder = list_runs(files) if coverage.unread else None
        gone = {run.name for run in folder.runs if run.name in coverage.unread} if folder is not None else set()
        if folder is None or not gone:
            return False
        self.notes.append(f"{len(gone)} damaged runs left out, for example: {coverage.unread[min(gone)]}")
        publish_without(files, folder, gone)
        return True

    def _cover_chunk(
        self, snapshot: Snapshot, columns: Mapping[str, int], chunk: Sequence[BaseFile | FileSlice]
    ) -> None:
        """Cover a chunk: bitmaps of each file, then a run of them."""
        files, run = snapshot.files, self.ctx.table.engine.run
        task = BitmapsOfFile(files=files, columns=columns, schema=snapshot.schema)
        has_logs = any(isinstance(item, FileSlice) for item in chunk)
        merge = MergeSettings.of(snapshot) if has_logs else None
        build = _BuildFile(
            task=task,
            of_log=None
            if merge is None
            else BitmapsOfLog(files=files, columns=columns, schema=snapshot.schema, merge=merge),
            folder=f"{self.ctx.temp}/.bitmaps",
            limit=inline_limit(len(chunk), self.ctx.table.limits.build_inline_bytes),
        )
        label = f"lakedex {files}: building bitmaps of {len(chunk)} files"
        made = [item for item in run(build, chunk, label) if item is not None]
        first = Run(self.ctx.instant, "build", len(self._runs))
        self._runs += write_runs(files, first, made, run, label)
        self._files += len(made)
        for item in made:
            self._entries += item.entries
            for reason in item.not_indexed:
                self._not_indexed[reason] = self._not_indexed.get(reason, 0) + 1

    def result(self) -> IndexResult:
        """Files, entries and bytes of the build."""
        left_out = [
            f"column {column!r} is not indexed in {files} files: {why}"
            for (column, why), files in sorted(self._not_indexed.items())
        ]
        return IndexResult(
            name=self.index.name,
            columns=self.index.columns,
            instant=self.ctx.instant if self._runs else None,
            files=self._files,
            entries=self._entries,
            bytes_written=sum(run.size for run in self._runs),
            notes=(*self.notes, *left_out),
        )


def logs_of_slices(snapshot: Snapshot, partitions: Sequence[str] | None = None) -> list[FileSlice]:
    """For each log file above a base file its slice as it was when that was the last one.

    None where nothing can be said of merged rows (:func:`~lakedex.index.bitmap.log_coverage.merge_settings`).
    """
    slices = [item for item in snapshot.slices(partitions) if item.log_files and item.base_file is not None]
    if not slices or merge_settings(snapshot) is None:
        return []
    return [
        replace(item, log_files=item.log_files[: number + 1])
        for item in slices
        for number in range(len(item.log_files))
    ]


def number_of(coverage: Coverage, item: BaseFile | FileSlice) -> int:
    """The number of a file in coverage; negative where no run speaks of it, or of a log file in another slice."""
    if isinstance(item, BaseFile):
        return coverage.numbers.get((item.partition, item.name), -1)
    last = item.log_files[-1]
    number = coverage.numbers.get((item.partition, last.name), -1)
    log = coverage.logs.get(number)
    is_of_it = (
        log is not None and item.base_file is not None and (log.base_file, log.size) == (item.base_file.name, last.size)
    )
    return number if is_of_it else -1


def _wish(known: BitmapDefinition | None, name: str, columns: tuple[str, ...], cap: int | None) -> _Wish:
    if known is None:
        return _Wish(BitmapDefinition(name=name, columns=columns, max_distinct=cap or DEFAULT_MAX_DISTINCT), True)
    all_columns = tuple(dict.fromkeys([*known.columns, *columns]))
    index = replace(known, columns=all_columns, max_distinct=cap or known.max_distinct)
    # Where the cap is larger now, what had too many values may have a bitmap.
    again = known.columns if index.max_distinct > known.max_distinct else ()
    return _Wish(index, all_columns != known.columns or index.max_distinct != known.max_distinct, again)


def _check_name(table: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{table}: {name!r} is no name for an index: letters, digits and underscores, no digit first"
        )
    if name.lower() in _TAKEN or name.lower().startswith(_TAKEN_PREFIXES):
        raise InvalidInputError(f"{table}: {name!r} is one of Hudi's own indexes; name the bitmap index otherwise")


def _columns(snapshot: Snapshot, columns: Sequence[str]) -> tuple[str, ...]:
    """Columns in the table's spelling.

    Raises:
        InvalidInputError: none, an unknown one, or one of Hudi's own.
        UnsupportedFeatureError: a type that has no values to index.
    """
    base, schema = snapshot.files.base_path, snapshot.schema
    if not columns:
        raise InvalidInputError(f"{base}: a bitmap index needs columns=[…]")
    spelled = []
    for asked in columns:
        if asked.lower() in META_COLUMNS:
            raise InvalidInputError(
                f"{base}: column {asked!r} is Hudi's own: files are found by it without a bitmap index", column=asked
            )
        name = _spelled(schema, asked)
        try:
            kind = column_of(name, schema).type
        except InvalidInputError as error:
            known = ", ".join(schema.names) or "no columns yet"
            raise InvalidInputError(f"{base} has no column {asked!r}; it has {known}", column=asked) from error
        if not is_indexable(kind):
            raise UnsupportedFeatureError(
                f"{base}: column {asked!r} is {kind}, which a bitmap index cannot hold; name fields inside of a struct "
                "by their path",
                feature=f"bitmap index of {kind}",
            )
        spelled.append(name)
    return tuple(dict.fromkeys(spelled))


def _spelled(schema: pa.Schema, name: str) -> str:
    """A column's name, or a nested field's path, as the table spells it; as it was given where it has none."""
    parts: list[str] = []
    fields = list(schema)
    for part in name.split("."):
        match = next((own for own in fields if own.name == part), None)
        match = match or next((own for own in fields if own.name.lower() == part.lower()), None)
        if match is None:
            return name
        parts.append(match.name)
        fields = list(match.type) if pa.types.is_struct(match.type) else []
    return ".".join(parts)


def _max_distinct(table: str, value: object) -> int:
    """The option's value.

    Raises:
        InvalidInputError: no whole number above zero.
    """
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number <= 0:
        raise InvalidInputError(f"{table}: option {MAX_DISTINCT_VALUES} is a whole number above 0, not {value!r}")
    return number
