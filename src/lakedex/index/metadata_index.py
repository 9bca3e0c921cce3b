"""Base of the indexes that are partitions of the metadata table: their listing, coverage and dropping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lakedex.index.definitions import DEFINITIONS, encode_definitions, read_definitions, without_indexes
from lakedex.index.protocol import DropPlan, IndexInfo, UnindexedBase, ValidationContext
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.records import FILES, MetadataPartition, is_deleted
from lakedex.reports import ColumnIndexStats, Difference, IndexStats
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import Progress

__all__ = ["MetadataIndex", "MetadataValidation", "drop_partitions", "state_of"]


class MetadataIndex(UnindexedBase):
    """An index that is one partition of Hudi's metadata table."""

    __slots__ = ()

    partition: ClassVar[MetadataPartition]

    def columns(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Columns of the index."""
        raise NotImplementedError

    def keys(self, snapshot: Snapshot) -> list[list[str]]:
        """For each current base file or partition the keys of a full index, one a column."""
        raise NotImplementedError

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The index, if the table has it or if somebody builds it."""
        present = snapshot.config.metadata_partitions | snapshot.config.metadata_partitions_inflight
        return (self.partition.name,) if self.partition.name in present else ()

    def listed(self, snapshot: Snapshot) -> tuple[IndexInfo, ...]:
        """The same with columns and state."""
        return tuple(
            IndexInfo(name=name, using=name, columns=self.columns(snapshot), state=state_of(snapshot, name))
            for name in self.names(snapshot)
        )

    def stats(self, snapshot: Snapshot, name: str) -> IndexStats:
        """Entries and coverage."""
        wanted = self.keys(snapshot)
        live = {key for key, record in snapshot.metadata.scan(name).items() if not is_deleted(record)}
        covered = sum(all(key in live for key in keys) for keys in wanted)
        columns = self.columns(snapshot)
        entries = [sum(keys[number] in live for keys in wanted) for number in range(len(columns))]
        folder = snapshot.files.metadata.path(name)
        return IndexStats(
            name=name,
            entries=sum(entries),
            files_covered=covered,
            files_uncovered=len(wanted) - covered,
            bytes=sum(entry.size for entry in snapshot.files.storage.list(folder) if not entry.is_dir),
            columns=tuple(
                ColumnIndexStats(column=column, entries=count, files_indexed=count)
                for column, count in zip(columns, entries, strict=True)
            ),
        )

    def drop(self, snapshot: Snapshot, name: str) -> DropPlan:
        """Its partition and its definition."""
        return drop_partitions(snapshot, frozenset({name}))


def drop_partitions(snapshot: Snapshot, names: frozenset[str]) -> DropPlan:
    """Take metadata partitions out of a table, with their definitions."""
    path = snapshot.files.path(DEFINITIONS)
    if not snapshot.files.storage.exists(path):
        return DropPlan(partitions=names)
    document = read_definitions(snapshot.files)
    return DropPlan(partitions=names, definitions={path: encode_definitions(without_indexes(document, names))})


def state_of(snapshot: Snapshot, name: str) -> str:
    """``complete``, ``inflight``, or ``damaged`` with the reason."""
    damaged = snapshot.lost_metadata
    if lost := damaged.get(name) or damaged.get(FILES.name):
        return f"damaged: {lost}"
    return "complete" if name in snapshot.config.metadata_partitions else "inflight"


STEP = 64


@dataclass(slots=True, kw_only=True)
class MetadataValidation:
    """A comparison of an index of the metadata table, in steps of files."""

    ctx: ValidationContext
    checked: int = 0
    entries: int = 0
    repaired: int = 0
    damage: tuple[str, ...] = ()
    differences: list[Difference] = field(default_factory=list)
    _uncovered: int = 0

    def compare(self, files: Sequence[BaseFile], progress: Progress | None) -> None:
        """Compare base files, one task a file."""
        for start in range(0, len(files) if self.ctx.reads_files else 0, STEP):
            some = files[start : start + STEP]
            base_path, name = self.ctx.snapshot.files.base_path, self.ctx.name
            self.compare_some(some, f"lakedex {base_path}: comparing {name} of {len(some)} files")
            if progress is not None:
                progress(start + len(some), len(files))

    def compare_some(self, files: Sequence[BaseFile], label: str) -> None:
        """Compare some files."""
        raise NotImplementedError

    def uncovered(self, files: Sequence[BaseFile]) -> int:
        """Files without an entry."""
        return self._uncovered

    def stale(self, files: Sequence[BaseFile]) -> int:
        """None: entries of files go with the files."""
        return 0
