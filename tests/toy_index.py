"""A whole index in one module: which values a text column has in each base file, kept in JSON beside the metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr.terms import BoundPredicate, equality_values
from lakedex.index.protocol import (
    BuildContext,
    CollectContext,
    CommitContext,
    CommitPolicy,
    DropPlan,
    IndexInfo,
    IndexUpdate,
    PruneResult,
    RemovedFiles,
    UndoContext,
    UnindexedBase,
    ValidationContext,
)
from lakedex.index.written_file import FinishedFile, WrittenFile
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile
from lakedex.parquet.base_file_reader import iter_base_file
from lakedex.reports import Difference, IndexResult, IndexStats
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import IntArray, Progress

TOY = "toy"

File = tuple[str, str]


def _definition(base_path: str) -> str:
    return f"{base_path}/.hoodie/.index_defs/toy.json"


def _folder(base_path: str) -> str:
    return f"{base_path}/.hoodie/metadata/{TOY}"


def _column(snapshot: Snapshot) -> str | None:
    try:
        return str(json.loads(snapshot.files.storage.read(_definition(snapshot.files.base_path))))
    except FileNotFoundError:
        return None


def _parts(snapshot: Snapshot) -> dict[str, dict[File, frozenset[str]]]:
    """What each file of the index says: its name → base files → their values."""
    found = {}
    for entry in snapshot.files.storage.list(_folder(snapshot.files.base_path)):
        rows = json.loads(snapshot.files.storage.read(f"{_folder(snapshot.files.base_path)}/{entry.name}"))
        found[entry.name] = {(path, name): frozenset(values) for path, name, values in rows}
    return found


def _entries(snapshot: Snapshot) -> dict[File, frozenset[str]]:
    return {file: values for part in _parts(snapshot).values() for file, values in part.items()}


def _write(files: TableFiles, name: str, entries: Mapping[File, frozenset[str]]) -> int:
    content = json.dumps([[*file, sorted(values)] for file, values in sorted(entries.items())]).encode()
    files.storage.write(f"{_folder(files.base_path)}/{name}", content)
    return len(content)


@dataclass(frozen=True, slots=True)
class CollectValues:
    """Collects the values of the column in each file."""

    column: str

    @property
    def repeating(self) -> frozenset[str]:
        return frozenset({self.column})

    @property
    def takes_logs(self) -> bool:
        """False: it has base files only."""
        return False

    def begin(self, schema: pa.Schema) -> FileValues:
        return FileValues(self.column)


@dataclass(slots=True)
class FileValues:
    """Values of one file."""

    column: str
    values: set[str] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch, bounds: Mapping[str, tuple[Any, Any]]) -> None:
        column = batch.column(batch.schema.get_field_index(self.column))
        self.values.update(pc.unique(column.cast(pa.string())).drop_null().to_pylist())

    def finish(self, file: FinishedFile) -> frozenset[str]:
        return frozenset(self.values)


@dataclass(frozen=True, slots=True)
class ValuesOfFile:
    """Task: the values of a base file."""

    files: TableFiles
    column: str

    def __call__(self, base: BaseFile) -> frozenset[str]:
        found = FileValues(self.column)
        for batch in iter_base_file(self.files.storage, self.files.path(base.relative_path), [self.column]):
            found.add(batch, {})
        return frozenset(found.values)


@dataclass(slots=True)
class ToyBuild:
    """Covers the files that the index lacks."""

    ctx: BuildContext
    column: str
    definitions: Mapping[str, bytes | None]
    is_new: bool
    files: int = 0

    def cover(self, snapshot: Snapshot, progress: Progress | None) -> int:
        known = _entries(snapshot)
        lacking = [base for base in snapshot.base_files() if (base.partition, base.name) not in known]
        task = ValuesOfFile(snapshot.files, self.column)
        values = self.ctx.table.engine.run(task, lacking, "toy")
        found = {(base.partition, base.name): own for base, own in zip(lacking, values, strict=True)}
        if found:
            _write(snapshot.files, f"{self.ctx.instant}_build.json", found)
        self.files += len(lacking)
        return len(lacking)

    def result(self) -> IndexResult:
        return IndexResult(name=self.ctx.name, columns=(self.column,), instant=self.ctx.instant, files=self.files)


@dataclass(slots=True)
class ToyValidation:
    """Compares values with files."""

    ctx: ValidationContext
    column: str
    differences: list[Difference] = field(default_factory=list)
    checked: int = 0
    entries: int = 0
    damage: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    repaired: int = 0

    def compare(self, files: Sequence[BaseFile], progress: Progress | None) -> None:
        known = _entries(self.ctx.snapshot)
        covered = [base for base in files if (base.partition, base.name) in known]
        task = ValuesOfFile(self.ctx.snapshot.files, self.column)
        for base, values in zip(covered, self.ctx.table.engine.run(task, covered, "toy"), strict=True):
            self.checked += 1
            if known[base.partition, base.name] != values:
                self.differences += self._differs(base, values ^ known[base.partition, base.name])

    def _differs(self, base: BaseFile, wrong: frozenset[str]) -> Iterator[Difference]:
        yield Difference(
            index=self.ctx.name,
            kind="wrong values",
            partition=base.partition,
            file=base.name,
            column=self.column,
            expected=", ".join(sorted(wrong)),
            count=len(wrong),
        )

    def uncovered(self, files: Sequence[BaseFile]) -> int:
        known = _entries(self.ctx.snapshot)
        return sum((base.partition, base.name) not in known for base in files)

    def stale(self, files: Sequence[BaseFile]) -> int:
        return len(_entries(self.ctx.snapshot).keys() - {(base.partition, base.name) for base in files})


class ToyIndex(UnindexedBase):
    """The index."""

    commit_policy: ClassVar[CommitPolicy] = CommitPolicy.BEST_EFFORT

    @property
    def name(self) -> str:
        return TOY

    def collector(self, ctx: CollectContext) -> CollectValues | None:
        column = _column(ctx.snapshot)
        return None if column is None else CollectValues(column)

    def records_of_commit(self, ctx: CommitContext, files: Sequence[WrittenFile]) -> IndexUpdate:
        parts = {(file.partition, file.file_name): file.part(self.name, frozenset) for file in files}
        found = {file: values for file, values in parts.items() if values is not None}
        if not found:
            return IndexUpdate()
        size = _write(ctx.snapshot.files, f"{ctx.instant}.json", found)
        return IndexUpdate(bytes_written=size)

    def discard(self, snapshot: Snapshot, instant: str) -> None:
        snapshot.files.storage.delete(f"{_folder(snapshot.files.base_path)}/{instant}.json")

    def undo(self, ctx: UndoContext, removed: RemovedFiles) -> IndexUpdate:
        gone = {(path, name) for path, names in removed.names.items() for name in names}
        for name, entries in _parts(ctx.snapshot).items():
            left = {file: values for file, values in entries.items() if file not in gone}
            if left != entries:
                _write(ctx.snapshot.files, name, left)
        return IndexUpdate()

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        column = _column(snapshot)
        wanted = None if column is None else equality_values(predicate.predicate, column)
        if wanted is None:
            return PruneResult()
        known = _entries(snapshot)
        keep = []
        for item in snapshot.view().table.take(rows):
            base = item.base_file
            values = None if base is None or item.log_files else known.get((base.partition, base.name))
            keep.append(values is None or bool(values & set(map(str, wanted))))
        return PruneResult(keep=np.array(keep, bool), terms=(f"{column} = …",))

    def build(self, ctx: BuildContext) -> ToyBuild:
        known = _column(ctx.snapshot)
        column = known or (ctx.columns or ("",))[0]
        definitions = {} if known else {_definition(ctx.snapshot.files.base_path): json.dumps(column).encode()}
        return ToyBuild(ctx, column, definitions, known is None)

    def validate(self, ctx: ValidationContext) -> ToyValidation:
        return ToyValidation(ctx, _column(ctx.snapshot) or "")

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        return () if _column(snapshot) is None else (TOY,)

    def listed(self, snapshot: Snapshot) -> tuple[IndexInfo, ...]:
        return tuple(
            IndexInfo(name=name, using=TOY, columns=(_column(snapshot) or "",)) for name in self.names(snapshot)
        )

    def stats(self, snapshot: Snapshot, name: str) -> IndexStats:
        known, files = _entries(snapshot), snapshot.base_files()
        covered = sum((base.partition, base.name) in known for base in files)
        return IndexStats(
            name=name, entries=len(known), files_covered=covered, files_uncovered=len(files) - covered, bytes=0
        )

    def drop(self, snapshot: Snapshot, name: str) -> DropPlan:
        return DropPlan(definitions={_definition(snapshot.files.base_path): None}, folders=(TOY,))
