"""The bitmap index against the data: which runs can be read, and what they say of each current base file.

Everything is read from the store anew, past what this process keeps of the index.

Memory: coverage of the index, and the differences. With ``keep`` also the bitmaps of the files that differ, handed on
as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.errors import CorruptFileError, InvalidInputError
from lakedex.index.bitmap.blocks import IS_INDEXED, NO_ENTRY
from lakedex.index.bitmap.builder import FileBitmaps, column_of
from lakedex.index.bitmap.comparing import Compared, CompareFile, StoredColumn, StoredFile, StoredValue
from lakedex.index.bitmap.coverage import Coverage
from lakedex.index.bitmap.definitions import BitmapDefinition, indexed_limits
from lakedex.index.bitmap.runs import Manifest, Run, RunFolder, bitmap_folder, list_runs
from lakedex.index.bitmap.values import is_indexable, value_texts
from lakedex.index.validation import Difference
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.table_cache import TableCache
from lakedex.types import IntArray

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
        step: files of one round of tasks.
        progress: called with the number of files done and of all.
        keep: hand on bitmaps of files that differ.
    """

    snapshot: Snapshot
    definition: BitmapDefinition
    definitions: Mapping[str, BitmapDefinition]
    run: Tasks
    step: int = 64
    progress: Callable[[int, int], None] | None = None
    keep: bool = False
    folder: RunFolder = field(init=False)
    differences: list[Difference] = field(default_factory=list)
    entries: int = 0
    checked: int = 0
    bad_runs: dict[str, str] = field(default_factory=dict)
    missing_runs: tuple[str, ...] = ()
    manifest_damage: str = ""
    notes: list[str] = field(default_factory=list)
    _coverage: Coverage = field(init=False)

    def __post_init__(self) -> None:
        self._look()

    def _look(self) -> None:
        """Read the folder and the coverage of what counts; again if a fold took runs away meanwhile."""
        storage, base = self.snapshot.storage, self.snapshot.base_path
        self.folder = self._listed()
        for _ in range(LOOKS):
            self._coverage = Coverage(storage, base, TableCache())
            self._coverage.refresh(self.folder)
            for name in self.limits:
                self._coverage.column(name)
            present = {entry.name for entry in storage.list(bitmap_folder(base))}
            if all(name in present for name in self._coverage.unread):
                break
            self.folder = self._listed()
        self.bad_runs |= self._coverage.unread
        if self.bad_runs:
            # What else they say is not believed either: they will be taken out.
            self._coverage = Coverage(storage, base, TableCache())
            self._coverage.refresh(replace(self.folder, runs=self._good_runs()))

    def _listed(self) -> RunFolder:
        storage, base = self.snapshot.storage, self.snapshot.base_path
        try:
            found = list_runs(storage, base)
        except CorruptFileError as error:
            # Which runs others had replaced is not known any more, so none of them counts.
            self.manifest_damage = str(error)
            names = tuple(entry.name for entry in storage.list(bitmap_folder(base)) if not entry.is_dir)
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
        """What of the index cannot be read."""
        runs = [f"run {name}: {why}" for name, why in self.bad_runs.items()]
        missing = [f"run {name}: the manifest lists it and it is not there" for name in self.missing_runs]
        return (*([f"manifest: {self.manifest_damage}"] if self.manifest_damage else []), *runs, *missing)

    # --------------------------------------------------------------------------------------------------- comparing

    def compare(self, files: Sequence[BaseFile]) -> Iterator[FileBitmaps]:
        """Compare base files that the index covers; bitmaps of those that differ come out, if they are kept."""
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
            if self.progress is not None:
                self.progress(min(start + self.step, len(covered)), len(covered))
        self.checked += done

    def make(self, files: Sequence[BaseFile]) -> Iterator[FileBitmaps]:
        """Bitmaps of base files from the data."""
        for start in range(0, len(files), self.step):
            results = self._tasks([(base, None) for base in files[start : start + self.step]])
            yield from (result.bitmaps for result in results if result.bitmaps is not None)

    def _tasks(self, items: Sequence[tuple[BaseFile, StoredFile | None]]) -> list[Compared]:
        base = self.snapshot.base_path
        task = CompareFile(
            storage=self.snapshot.storage,
            base_path=base,
            limits=self.limits,
            schema=self.snapshot.schema,
            keep=self.keep,
        )
        return self.run(task, items, f"lakedex {base}: comparing bitmaps of {len(items)} files")

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

    def covers(self, base: BaseFile, columns: Sequence[str]) -> bool:
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

    def _stored(self, base: BaseFile, columns: Sequence[str]) -> StoredFile:
        number = self._coverage.numbers[base.partition, base.name]
        item = self._coverage.files[number]
        found = tuple(self._stored_column(name, self._entry(name, number)) for name in columns)
        return StoredFile(item.rows, item.groups, found)

    def _stored_column(self, name: str, entry: int) -> StoredColumn:
        column = self._coverage.column(name)
        runs = {run.name: run for run in self.folder.runs}
        run = runs[self._coverage.run_names[int(column.runs[entry])]]
        state = int(column.states[entry])
        kind = column_of(name, self.snapshot.schema).type
        if state != IS_INDEXED or not is_indexable(kind):
            return StoredColumn(name, run, NO_ENTRY if state == IS_INDEXED else state, ())
        span = column.span(entry)
        codes = column.codes[span]
        typed, good = column.typed(name, kind)
        present = value_texts(typed.take(pa.array(codes))).to_pylist()
        values = [
            StoredValue(column.values[code][1], text, rows, groups, bool(good[code]))
            for code, text, rows, groups in zip(
                codes.tolist(), present, column.counts[span].tolist(), column.groups[span].tolist(), strict=True
            )
        ]
        if column.nulls[entry]:
            values.append(StoredValue(None, None, int(column.nulls[entry]), int(column.null_groups[entry])))
        return StoredColumn(name, run, state, tuple(values))

    def stale_entries(self, files: Sequence[BaseFile]) -> int:
        """Entries of this index's columns in base files that are not among the table's."""
        live = {(base.partition, base.name) for base in files}
        stale: IntArray = np.array([number for name, number in self._coverage.numbers.items() if name not in live], int)
        total = 0
        for name in self.columns if len(stale) else ():
            column = self._coverage.column(name)
            entries = self._coverage.entries(name)[stale]
            entries = entries[entries >= 0]
            total += int(column.sizes[entries].sum()) + int((column.nulls[entries] > 0).sum())
        return total
