"""The pruning protocol: an index removes file slices that it proves to hold no matching row, and may select rows.

The rows of a base file that a query needs, as an index knows them before the file is opened.

What an index is to a query: something that removes files which it proves to hold no matching row.

Rules for whoever implements :class:`PruningIndex`: what is absent, stale, partial or not to be trusted keeps the file;
nothing is said about a file that was not looked at; and what could not be used is said in :attr:`Verdict.unused`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lakedex.codec.roaring import deserialize_bitmap, serialize_bitmap
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.builder import RowGroup
from lakedex.index.written_file import Collector
from lakedex.metadata.records import FILES
from lakedex.metadata.store import MetadataStore
from lakedex.options import WriteOptions
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import BoolArray, IntArray

__all__ = [
    "DAMAGED",
    "CollectContext",
    "Index",
    "PruneResult",
    "PruningIndex",
    "RowSelection",
    "UnindexedBase",
    "UnusedIndex",
    "damaged",
    "index_missing",
    "unprunable_terms",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """Rows of a base file that may match. Pickles: tasks carry it.

    Attributes:
        positions: their ordinals in the file, portable roaring bytes.
        count: how many.
        is_exact: all of them do match, so the condition need not be looked at again.
        groups: row groups of the file.
    """

    positions: bytes
    count: int
    is_exact: bool
    groups: tuple[RowGroup, ...]

    @classmethod
    def of(cls, rows: BitMap, groups: Sequence[RowGroup], *, is_exact: bool) -> RowSelection:
        """The selection of a bitmap."""
        count = len(rows)
        return cls(positions=serialize_bitmap(rows), count=count, is_exact=is_exact, groups=tuple(groups))

    @property
    def rows(self) -> BitMap:
        """The positions."""
        return deserialize_bitmap(self.positions)

    def kept_groups(self) -> list[int]:
        """Numbers of the row groups that have one of the rows."""
        rows, ends = self.rows, list(accumulate(group.rows for group in self.groups))
        starts = [0, *ends[:-1]]
        return [n for n, (a, b) in enumerate(zip(starts, ends, strict=True)) if rows.range_cardinality(a, b)]

    def mask(self, rows: int) -> npt.NDArray[np.bool_]:
        """Which of a file's rows are selected."""
        mask = np.zeros(rows, np.bool_)
        mask[np.asarray(self.rows.to_array(), np.int64)] = True
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedIndex:
    """Why an index, or an index on one column, did not take part in a plan.

    Attributes:
        index: its name, or ``all indexes``.
        reason: ``no index``, ``no entry``, ``no term``, ``type``, ``function``, ``key generator``, ``other instant``,
            ``switched off``, ``damaged``.
        detail: the reason as a sentence.
        column: the column concerned; empty for the index as a whole.
    """

    index: str
    reason: str
    detail: str
    column: str = ""

    def __str__(self) -> str:
        return f"{self.index}{f'({self.column})' if self.column else ''}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """An index's answer.

    Attributes:
        keep: per row asked about whether the file may hold a match; None when the index had no part in the query.
        terms: conditions that it judged, as SQL text.
        note: what else is worth knowing.
        unused: what it could not use, and why.
        selections: of kept rows of the view, the rows of their base files that may match, where the index knows them.
    """

    keep: BoolArray | None = None
    terms: tuple[str, ...] = ()
    note: str = ""
    unused: tuple[UnusedIndex, ...] = ()
    selections: Mapping[int, RowSelection] = field(default_factory=dict)


class PruningIndex(Protocol):
    """An index that takes part in planning."""

    @property
    def name(self) -> str:
        """The name that plans show."""

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Rule out slices, of those in ``rows`` of the snapshot's view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectContext:
    """A write that is about to make files.

    Attributes:
        snapshot: the table as the write reads it.
        schema: its columns once the write is done.
        options: of the write.
        files: how many files it makes, at most.
        renames: columns that have another name once the write is done.
    """

    snapshot: Snapshot
    schema: pa.Schema
    options: WriteOptions
    files: int = 0
    renames: Mapping[str, str] = field(default_factory=dict)


class Index(Protocol):
    """One index of a table, over its whole life. Instances are stateless values.

    A method never reads ``hoodie.properties`` or the clock: both are in its context.
    """

    @property
    def name(self) -> str:
        """The name of its part of a written file, and the one that plans show."""

    def collector(self, ctx: CollectContext) -> Collector | None:
        """What collects the index's part of each file that a write makes; None for nothing."""


class UnindexedBase:
    """The honest default of each method of :class:`Index`: an index that does nothing and removes nothing."""

    __slots__ = ()

    def collector(self, ctx: CollectContext) -> Collector | None:
        """Collect nothing."""
        return None


def index_missing(index: str, store: MetadataStore) -> UnusedIndex:
    """Why an index of the metadata table has no part: it is not there, or not whole."""
    wrong = store.why_lost(FILES.name) or store.why_lost(index)
    if wrong:
        return damaged(index, wrong)
    return UnusedIndex(index=index, reason="no index", detail="not in the table's metadata")


DAMAGED = "damaged"
"""Reason of an index that could not be read: it may be whole again at the next look."""


def damaged(index: str, wrong: str) -> UnusedIndex:
    """An index, or the listing of files, that cannot be used."""
    return UnusedIndex(index=index, reason=DAMAGED, detail=f"damaged ({wrong}); rebuild_metadata() makes it anew")


def unprunable_terms(predicate: BoundPredicate) -> tuple[UnusedIndex, ...]:
    """The terms that no index evaluates, because of a function or a cast in them."""
    texts = dict.fromkeys(term.text for term in predicate.terms if not term.is_prunable)
    return tuple(
        UnusedIndex(index="all indexes", reason="function", detail=f"{text} cannot be judged from bounds")
        for text in texts
    )
