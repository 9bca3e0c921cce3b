"""All indexes that lakedex knows, and the questions that are asked of whichever a table has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import pyarrow as pa

from lakedex.errors import IndexInconsistentError, IndexNotFoundError, UnsupportedFeatureError
from lakedex.index.bitmap.index import BitmapIndex
from lakedex.index.bloom_filters import BloomFilters
from lakedex.index.column_stats.index import ColumnStatsIndex, PartitionStatsIndex
from lakedex.index.definitions import read_definitions
from lakedex.index.metadata_index import state_of
from lakedex.index.partition_values import PartitionValues
from lakedex.index.protocol import CollectContext, CommitContext, CommitPolicy, Index, IndexInfo, IndexUpdate
from lakedex.index.written_file import Collector, WrittenFile
from lakedex.metadata.records import FILES, SUPPORTED
from lakedex.reports import IndexStats
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import RECORD_KEY

__all__ = [
    "INDEXES",
    "collectors",
    "index_named",
    "index_stats",
    "list_indexes",
    "not_found",
    "registered",
    "require_readable",
    "table_indexes",
    "updates_of_commit",
]


_indexes: list[Index] = [PartitionValues(), PartitionStatsIndex(), ColumnStatsIndex(), BloomFilters(), BitmapIndex()]
INDEXES: Sequence[Index] = _indexes
"""All indexes, in the order of their cost to queries: each looks at the files that those before it left.

A method of an index that a table does not have does nothing, so nobody has to ask which are there.
"""


_FOREIGN = {"secondary_index_": "secondary_index", "expr_index_": "expression_index", "record_index": "record_index"}


_LISTED = pa.schema(
    [
        ("name", pa.string()),
        ("using", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("state", pa.string()),
        ("maintained", pa.bool_()),
    ]
)


@contextmanager
def registered(index: Index) -> Iterator[None]:
    """Know one more index, after all others, for a while."""
    _indexes.append(index)
    try:
        yield
    finally:
        _indexes.remove(index)


def collectors(ctx: CollectContext) -> dict[str, Collector]:
    """Collectors of the files of a write, by index."""
    found = {index.name: index.collector(ctx) for index in INDEXES}
    return {name: collector for name, collector in found.items() if collector is not None}


def updates_of_commit(
    ctx: CommitContext, files: Sequence[WrittenFile], what: str
) -> Iterator[tuple[Index, IndexUpdate]]:
    """Additions of each index to a commit.

    One that is not required may fail: it does not cover the commit then, and the update's note says so.

    Args:
        ctx: the commit.
        files: what it writes.
        what: it is, in the note.
    """
    for index in INDEXES:
        try:
            update = index.records_of_commit(ctx, files)
        except Exception as error:
            if index.commit_policy is CommitPolicy.REQUIRED:
                raise
            update = IndexUpdate(notes=(f"the index {index.name} does not cover this {what} ({error})",))
        yield index, update


def table_indexes(snapshot: Snapshot) -> dict[str, Index | None]:
    """The indexes that a table has, by name; None for those that lakedex does not know."""
    found: dict[str, Index | None] = dict.fromkeys(_foreign_names(snapshot))
    return found | {name: index for index in INDEXES for name in index.names(snapshot)}


def _foreign_names(snapshot: Snapshot) -> list[str]:
    present = snapshot.config.metadata_partitions | snapshot.config.metadata_partitions_inflight
    return sorted(present - SUPPORTED.keys())


def _foreign(snapshot: Snapshot, name: str) -> IndexInfo:
    using = next((using for prefix, using in _FOREIGN.items() if name.startswith(prefix)), name)
    document = read_definitions(snapshot.files)
    fields = (document["indexDefinitions"].get(name) or {}).get("sourceFields") or ()
    columns = (RECORD_KEY,) if name == "record_index" else tuple(fields)
    return IndexInfo(name=name, using=using, columns=columns, state=state_of(snapshot, name), maintained=False)


def list_indexes(snapshot: Snapshot) -> pa.Table:
    """Indexes of a table: name, kind, columns, state, and whether lakedex maintains it.

    The state is ``complete``, ``inflight``, or ``damaged`` with the reason; of a bitmap index also how many files are
    covered.
    """
    infos = [_foreign(snapshot, name) for name in _foreign_names(snapshot)]
    infos += [info for index in INDEXES for info in index.listed(snapshot)]
    in_metadata = {info.name for info in infos} & (SUPPORTED.keys() | set(_foreign_names(snapshot)))
    infos.sort(key=lambda info: (info.name not in in_metadata, info.name))
    return pa.Table.from_pylist([asdict(info) | {"columns": list(info.columns)} for info in infos], _LISTED)


def index_named(snapshot: Snapshot, name: str) -> Index:
    """The index of a name.

    Raises:
        IndexNotFoundError: the table does not have it.
        UnsupportedFeatureError: an index whose records lakedex does not read.
    """
    found = table_indexes(snapshot)
    index = found.get(name)
    if index is not None:
        return index
    if name in found:
        raise UnsupportedFeatureError(
            f"{snapshot.files}: lakedex does not read the index {name!r}", feature=f"index {name}"
        )
    raise not_found(snapshot, name)


def not_found(snapshot: Snapshot, name: str) -> IndexNotFoundError:
    """The error for a name that no index of the table has."""
    present = ", ".join(sorted(table_indexes(snapshot))) or "none"
    return IndexNotFoundError(f"{snapshot.files} has no index {name!r}; it has {present}", index=name)


def require_readable(snapshot: Snapshot, name: str) -> None:
    """Refuse an index of the metadata table that others are building, or whose files are missing or damaged.

    Raises:
        IndexNotFoundError: it is not there yet.
        IndexInconsistentError: files of it are missing or damaged.
    """
    if name not in SUPPORTED:
        return
    if name not in snapshot.metadata.partitions:
        raise IndexNotFoundError(f"{snapshot.files} has no complete index {name!r}", index=name)
    wrong = snapshot.metadata.damage_of(FILES.name) or snapshot.metadata.damage_of(name)
    if wrong:
        raise IndexInconsistentError(
            f"{snapshot.files}: the index {name!r} is damaged: {wrong}; maintenance.rebuild_metadata() builds it again",
            table=snapshot.files.base_path,
            index=name,
        )


def index_stats(snapshot: Snapshot, name: str) -> IndexStats:
    """Entries and coverage of an index.

    Raises:
        IndexNotFoundError: the table does not have it.
        IndexInconsistentError: files of it are missing or damaged.
        UnsupportedFeatureError: an index whose records lakedex does not read.
        CorruptFileError: definitions or the manifest of a bitmap index are damaged.
    """
    index = index_named(snapshot, name)
    require_readable(snapshot, name)
    return index.stats(snapshot, name)
