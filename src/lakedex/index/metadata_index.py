"""What the indexes in partitions of the metadata table have in common: listing, coverage, dropping."""

from __future__ import annotations

from typing import ClassVar

from lakedex.index.definitions import definitions_path, encode_definitions, read_definitions, without_indexes
from lakedex.index.protocol import DropPlan, IndexInfo, UnindexedBase
from lakedex.metadata.records import FILES, MetadataPartition, is_deleted
from lakedex.metadata.store import metadata_path
from lakedex.reports import ColumnIndexStats, IndexStats
from lakedex.snapshot.snapshot import Snapshot

__all__ = ["MetadataIndex", "drop_partitions", "state_of"]


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
        folder = f"{metadata_path(snapshot.base_path)}/{name}"
        return IndexStats(
            name=name,
            entries=sum(entries),
            files_covered=covered,
            files_uncovered=len(wanted) - covered,
            bytes=sum(entry.size for entry in snapshot.storage.list(folder) if not entry.is_dir),
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
    path = definitions_path(snapshot.base_path)
    if not snapshot.storage.exists(path):
        return DropPlan(partitions=names)
    document = read_definitions(snapshot.storage, path)
    return DropPlan(partitions=names, definitions={path: encode_definitions(without_indexes(document, names))})


def state_of(snapshot: Snapshot, name: str) -> str:
    """``complete``, ``inflight``, or ``damaged`` with the reason."""
    damaged = snapshot.lost_metadata
    if lost := damaged.get(name) or damaged.get(FILES.name):
        return f"damaged: {lost}"
    return "complete" if name in snapshot.config.metadata_partitions else "inflight"
