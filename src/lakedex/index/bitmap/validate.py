"""Compare the bitmap index with the data: which runs can be read, what they say of each current base file; repair it.

All is read from the store, past what this process caches of the index. One task a file makes its bitmaps again.

Memory: the driver holds the coverage of the index, the differences and, to repair, bitmaps of files that differ until
they make a run of ``RUN_BYTES``; a task holds the bitmaps of one file twice, as stored and as made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.errors import CommitConflictError, CorruptFileError, InvalidInputError
from lakedex.index.bitmap.build import logs_of_slices
from lakedex.index.bitmap.builder import FileBitmaps, column_of
from lakedex.index.bitmap.compare import (
    Compared,
    CompareFile,
    CompareLog,
    IndexedColumn,
    IndexedFile,
    IndexedValue,
    StoredLog,
)
from lakedex.index.bitmap.definitions import BitmapDefinition, indexed_limits
from lakedex.index.bitmap.keys import is_indexable, value_texts
from lakedex.index.bitmap.loaded_index import Coverage
from lakedex.index.bitmap.log_builder import BitmapsOfLog
from lakedex.index.bitmap.run_files import (
    BITMAP_FOLDER,
    IS_INDEXED,
    NO_ENTRY,
    RUN_BYTES,
    Manifest,
    Run,
    RunFolder,
    delete_runs,
    encode_run,
    list_runs,
    publish_manifest,
    publish_without,
    write_run,
)
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, DataFile, FileSlice
from lakedex.reports import Difference
from lakedex.snapshot.file_system_view import TableCache
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.instant import InstantClock
from lakedex.types import IntArray, Progress

__all__ = ["BitmapValidation", "Tasks"]


Tasks = Callable[[Callable[[Any], Any], Sequence[Any], str], list[Any]]
"""An engine's ``run``."""


LOOKS = 3


@dataclass(slots=True, kw_only=True)
class BitmapValidation:
    """One comparison.

    Attributes:
        snapshot: the table.
        definition: the index.
        definitions: all bitmap indexes of the table: runs hold their columns together.
        run: an engine's ``run``.
        clock: of the table.
        instant: names the runs that repair the index; empty where it is not repaired.
        step: files of one round of tasks.
    """

    snapshot: Snapshot
    definition: BitmapDefinition
    definitions: Mapping[str, BitmapDefinition]
    run: Tasks
    clock: InstantClock
    instant: str = ""
    step: int = 64
    repaired: int = 0
    folder: RunFolder = field(init=False)
    differences: list[Difference] = field(default_factory=list)
    entries: int = 0
    checked: int = 0
    bad_runs: dict[str, str] = field(default_factory=dict)
    missing_runs: tuple[str, ...] = ()
    manifest_damage: str = ""
    notes: list[str] = field(default_factory=list)
    _coverage: Coverage = field(init=False)
    _merge: MergeSettings | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._look()

    def _look(self) -> None:
        """Read the folder and the coverage of what counts; again if a fold took runs away meanwhile."""
        files = self.snapshot.files
        self.folder = self._listed()
        for _ in range(LOOKS):
            self._coverage = Coverage(files, TableCache())
            self._coverage.refresh(self.folder)
            for name in self.limits:
                self._coverage.column(name)
            present = {entry.name for entry in files.storage.list(files.path(BITMAP_FOLDER))}
            if all(name in present for name in self._coverage.unread):
                break
            self.folder = self._listed()
        self.bad_runs |= self._coverage.unread
        if self.bad_runs:
            # What else they say is not believed either: they will be taken out.
            self._coverage = Coverage(files, TableCache())
            self._coverage.refresh(replace(self.folder, runs=self._good_runs()))

    def _listed(self) -> RunFolder:
        files = self.snapshot.files
        try:
            found = list_runs(files)
        except CorruptFileError as error:
            # Which runs others had replaced is not known any more, so none of them counts.
            self.manifest_damage = str(error)
            names = tuple(entry.name for entry in files.storage.list(files.path(BITMAP_FOLDER)) if not entry.is_dir)
            last = max((name for name in names if name.startswith("manifest_")), default="manifest_0.json")
            number = int("".join(letter for letter in last if letter.isdigit()))
            return RunFolder(manifest=Manifest(number=number), runs=(), idle=names)
        self.manifest_damage = ""
        present = {run.name for run in found.runs}
        self.missing_runs = tuple(name for name in found.manifest.runs if name not in present)
        return found

    def _good_runs(self) -> tuple[Run, ...]:
        return tuple(run for run in self.folder.runs if run.name not in self.bad_runs)

    @property
    def limits(self) -> dict[str, int]:
        """Columns of all bitmap indexes that the table has now, with their caps."""
        return {name: limit for name, limit in indexed_limits(self.definitions).items() if self._has(name)}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of this index that the table has now."""
        return tuple(name for name in self.definition.columns if self._has(name))

    def _has(self, name: str) -> bool:
        try:
            column_of(name, self.snapshot.schema)
        except InvalidInputError:
            return False
        return True

    @property
    def lost_something(self) -> bool:
        """Whether runs cannot be read or are not there, so that files which were covered are not now."""
        return bool(self.bad_runs or self.missing_runs or self.manifest_damage)

    @property
    def damage(self) -> tuple[str, ...]:
        """Files of the index that cannot be read."""
        runs = [f"run {name}: {why}" for name, why in self.bad_runs.items()]
        missing = [f"run {name}: the manifest lists it and it is not there" for name in self.missing_runs]
        return (*([f"manifest: {self.manifest_damage}"] if self.manifest_damage else []), *runs, *missing)

    # --------------------------------------------------------------------------------------------------- comparing

    def compare(self, files: Sequence[BaseFile], progress: Progress | None) -> None:
        """Compare base files that the index covers; repair what differs if the context names an instant."""
        found = self._compared(files, progress)
        if not self.instant:
            for _ in found:
                continue
            return
        repair = _Repair(self.snapshot.files, self.instant)
        repair.repair(self, found, self.snapshot.base_files())
        self.repaired = len(repair.repaired)

    def _compared(self, files: Sequence[BaseFile], progress: Progress | None) -> Iterator[FileBitmaps]:
        """Compare base files; bitmaps of those that differ come out, if the index is repaired."""
        gone_columns = [name for name in self.definition.columns if name not in self.columns]
        if gone_columns:
            self.notes.append(f"not in the table any more, and not looked at: {', '.join(gone_columns)}")
        covered = [base for base in files if self.covers(base, self.columns)]
        done = 0
        for start in range(0, len(covered), self.step):
            part = covered[start : start + self.step]
            for _ in range(LOOKS):
                results = self._tasks([(base, self._stored(base, self.columns)) for base in part])
                yield from self._taken(results)
                again = [base for base, result in zip(part, results, strict=True) if result.gone]
                done += len(part) - len(again)
                part = again
                if not again:
                    break
                self._look()
                part = [base for base in again if self.covers(base, self.columns)]
            if progress is not None:
                progress(min(start + self.step, len(covered)), len(covered))
        self.checked += done
        found = [(item, self._stored_log(item)) for item in self._logs_above(files)]
        yield from self._taken(self._log_tasks([(item, stored) for item, stored in found if stored is not None]))

    def _logs_above(self, files: Sequence[BaseFile]) -> list[FileSlice]:
        """Slices of some base files, one for each log file, which is the last one there."""
        names = {(base.partition, base.name) for base in files}
        ends = logs_of_slices(self.snapshot)
        return [item for item in ends if item.base_file and (item.partition, item.base_file.name) in names]

    def _stored_log(self, item: FileSlice) -> StoredLog | None:
        """Coverage of the last log file of a slice; None if it is not covered."""
        file = item.log_files[-1]
        if not self.covers(file, self.columns):
            return None
        log = self._coverage.logs.get(self._coverage.numbers[file.partition, file.name])
        if log is None or item.base_file is None or log.base_file != item.base_file.name:
            return None
        # In version 6 a log file stays when its commit is undone, and no query takes its coverage then.
        is_undone = bool(log.instant) and not self._merging().counts(log.instant)
        return None if is_undone else (self._stored(file, self.columns), log)

    def _merging(self) -> MergeSettings:
        """How log records are merged: read off the timeline once, not for each log file."""
        self._merge = self._merge or MergeSettings.of(self.snapshot)
        return self._merge

    def _log_tasks(self, items: Sequence[tuple[FileSlice, StoredLog | None]]) -> list[Compared]:
        if not items:
            return []
        files, schema = self.snapshot.files, self.snapshot.schema
        merge = self._merging()
        task = CompareLog(
            index=self.definition.name,
            task=BitmapsOfLog(files=files, columns=self.limits, schema=schema, merge=merge),
            keep=bool(self.instant),
        )
        return self.run(task, items, f"lakedex {files}: comparing bitmaps of {len(items)} log files")

    def make(self, files: Sequence[BaseFile]) -> Iterator[FileBitmaps]:
        """Bitmaps of base files from the data."""
        for start in range(0, len(files), self.step):
            results = self._tasks([(base, None) for base in files[start : start + self.step]])
            yield from (result.bitmaps for result in results if result.bitmaps is not None)
        lost = [item for item in self._logs_above(self.snapshot.base_files()) if self._stored_log(item) is None]
        results = self._log_tasks([(item, None) for item in lost])
        yield from (result.bitmaps for result in results if result.bitmaps is not None)

    def _tasks(self, items: Sequence[tuple[BaseFile, IndexedFile | None]]) -> list[Compared]:
        task = CompareFile(
            index=self.definition.name,
            files=self.snapshot.files,
            limits=self.limits,
            schema=self.snapshot.schema,
            keep=bool(self.instant),
        )
        return self.run(task, items, f"lakedex {self.snapshot.files}: comparing bitmaps of {len(items)} files")

    def _taken(self, results: Sequence[Compared]) -> Iterator[FileBitmaps]:
        for result in results:
            if result.gone:
                continue
            self.differences += result.differences
            self.entries += result.entries
            for name in result.damaged:
                self.bad_runs.setdefault(name, "blocks of bitmaps cannot be read")
            if result.bitmaps is not None:
                yield result.bitmaps

    def covers(self, base: DataFile, columns: Sequence[str]) -> bool:
        """Whether the index has an entry for all of the columns in a file."""
        number = self._coverage.numbers.get((base.partition, base.name))
        return number is not None and all(self._entry(name, number) >= 0 for name in columns)

    def uses_bad_run(self, base: BaseFile) -> bool:
        """Whether something that counts of a file is in a run which will be taken out."""
        number = self._coverage.numbers.get((base.partition, base.name))
        if number is None:
            return False
        names = self._coverage.run_names
        entries = [(self._coverage.column(name), self._entry(name, number)) for name in self.limits]
        return any(entry >= 0 and names[int(column.runs[entry])] in self.bad_runs for column, entry in entries)

    def _entry(self, name: str, number: int) -> int:
        return int(self._coverage.column(name).entry_of[number])

    def _stored(self, base: DataFile, columns: Sequence[str]) -> IndexedFile:
        number = self._coverage.numbers[base.partition, base.name]
        item = self._coverage.files[number]
        found = tuple(self._stored_column(name, self._entry(name, number)) for name in columns)
        return IndexedFile(item.rows, item.groups, found)

    def _stored_column(self, name: str, entry: int) -> IndexedColumn:
        column = self._coverage.column(name)
        runs = {run.name: run for run in self.folder.runs}
        run = runs[self._coverage.run_names[int(column.runs[entry])]]
        state = int(column.states[entry])
        kind = column_of(name, self.snapshot.schema).type
        if state != IS_INDEXED or not is_indexable(kind):
            return IndexedColumn(name, run, NO_ENTRY if state == IS_INDEXED else state, ())
        span = column.span(entry)
        codes = column.codes[span]
        typed, good = column.typed(name, kind)
        present = value_texts(typed.take(pa.array(codes))).to_pylist()
        values = [
            IndexedValue(column.values[code][1], text, rows, groups, bool(good[code]))
            for code, text, rows, groups in zip(
                codes.tolist(), present, column.counts[span].tolist(), column.groups[span].tolist(), strict=True
            )
        ]
        if column.nulls[entry]:
            values.append(IndexedValue(None, None, int(column.nulls[entry]), int(column.null_groups[entry])))
        return IndexedColumn(name, run, state, tuple(values))

    def uncovered(self, files: Sequence[BaseFile]) -> int:
        """Files, their log files with them, that lack an entry for some column of the index."""
        logs = sum(self._stored_log(item) is None for item in self._logs_above(files))
        return logs + sum(not self.covers(base, self.columns) for base in files)

    def stale(self, files: Sequence[BaseFile]) -> int:
        """Entries of this index's columns in files that are none of the table's base files, or of their log files."""
        live = {(base.partition, base.name) for base in files}
        live |= {(log.partition, log.name) for item in self._logs_above(files) for log in item.log_files}
        stale: IntArray = np.array([number for name, number in self._coverage.numbers.items() if name not in live], int)
        total = 0
        for name in self.columns if len(stale) else ():
            column = self._coverage.column(name)
            entries = self._coverage.entries(name)[stale]
            entries = entries[entries >= 0]
            total += int(column.sizes[entries].sum()) + int((column.nulls[entries] > 0).sum())
        return total


PUBLISH_ATTEMPTS = 5


@dataclass(slots=True)
class _Repair:
    """Writes new runs for the base files that differ.

    They rank above all others, so what they say counts from then on; runs that cannot be read are taken out, and what
    they covered is covered again. All of it is put-if-absent or a new name, so the lock is held for the name of the new
    runs only, and queries and writes go on.
    """

    files: TableFiles
    instant: str
    repaired: set[tuple[str, str]] = field(default_factory=set)
    _runs: int = 0
    _pending: list[FileBitmaps] = field(default_factory=list)
    _size: int = 0

    def repair(self, check: BitmapValidation, found: Iterable[FileBitmaps], files: Sequence[BaseFile]) -> None:
        """Cover what differs, then what damaged runs covered, then take these out."""
        self._name_after(check)
        for item in found:
            self._add(item)
        if check.lost_something:
            damaged = [
                base
                for base in files
                if (base.partition, base.name) not in self.repaired
                and (check.uses_bad_run(base) or not check.covers(base, tuple(check.limits)))
            ]
            for item in check.make(damaged):
                self._add(item)
        self._flush()
        if check.lost_something:
            self._take_out(check)

    def _name_after(self, check: BitmapValidation) -> None:
        """New runs have to sort after all that are there, also those of a machine whose clock is ahead."""
        newest = max((run.instant for run in check.folder.runs), default="")
        if newest >= self.instant:
            self.instant = check.clock.next(newest)

    def _add(self, item: FileBitmaps) -> None:
        self.repaired.add((item.partition, item.base_file))
        if self._pending and self._size + item.size > RUN_BYTES:
            self._flush()
        self._pending.append(item)
        self._size += item.size

    def _flush(self) -> None:
        if self._pending:
            run = Run(self.instant, "build", self._runs)
            write_run(self.files, run, encode_run(self._pending))
            self._runs += 1
            self._pending, self._size = [], 0

    def _take_out(self, check: BitmapValidation) -> None:
        """Publish which runs count without the damaged ones, and delete these.

        Raises:
            CommitConflictError: compactions got in between again and again. What was repaired counts all the same.
        """
        files = self.files
        gone = {*check.bad_runs, *check.missing_runs}
        if check.manifest_damage:
            gone |= {name for name in check.folder.idle if name.endswith(".hfile")}
            number, kept = check.folder.manifest.number, ()
            published = publish_manifest(files, Manifest(number=number + 1, runs=kept, folded=tuple(sorted(gone))))
        else:
            published = any(publish_without(files, list_runs(files), gone) for _ in range(PUBLISH_ATTEMPTS))
        if not published:
            raise CommitConflictError(
                f"{files}: others changed the bitmap index meanwhile; run indexes.validate with repair=True again",
                ours=self.instant,
                theirs=None,
                file_groups=frozenset(),
                retryable=True,
            )
        delete_runs(files, gone)
