"""What an index is to a query: something that removes files which it proves to hold no matching row.

Rules for whoever implements :class:`PruningIndex`: what is absent, stale, partial or not to be trusted keeps the file;
nothing is said about a file that was not looked at; and what could not be used is said in :attr:`Verdict.unused`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lakedex.expr import is_judged, terms_used
from lakedex.expr.nodes import Column, Predicate
from lakedex.index.bitmap.selection import RowSelection
from lakedex.metadata.partitions import FILES
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import MetadataStore
from lakedex.types import BoolArray, IntArray

__all__ = [
    "DAMAGED",
    "PruningIndex",
    "Unused",
    "Verdict",
    "damaged",
    "not_there",
    "terms_on",
    "unjudged",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
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
class Verdict:
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
    unused: tuple[Unused, ...] = ()
    selections: Mapping[int, RowSelection] = field(default_factory=dict)


class PruningIndex(Protocol):
    """An index that takes part in planning."""

    @property
    def name(self) -> str:
        """The name that plans show."""

    def prune(self, snapshot: Snapshot, predicate: Predicate, rows: IntArray) -> Verdict:
        """Judge the slices in ``rows`` of the snapshot's view."""


def not_there(index: str, store: MetadataStore) -> Unused:
    """Why an index of the metadata table has no part: it is not there, or not whole."""
    wrong = store.why_lost(FILES.name) or store.why_lost(index)
    if wrong:
        return damaged(index, wrong)
    return Unused(index=index, reason="no index", detail="not in the table's metadata")


DAMAGED = "damaged"
"""Reason of an index that could not be read: it may be whole again at the next look."""


def damaged(index: str, wrong: str) -> Unused:
    """An index, or the listing of files, that cannot be used."""
    return Unused(index=index, reason=DAMAGED, detail=f"damaged ({wrong}); rebuild_metadata() makes it anew")


def terms_on(predicate: Predicate, wanted: Callable[[Column], bool]) -> tuple[str, ...]:
    """Conditions that bounds can judge and that speak of a wanted column."""
    found = (text for column, texts in terms_used(predicate).items() if wanted(column) for text in texts)
    return tuple(dict.fromkeys(found))


def unjudged(terms: Iterable[Predicate], text_of: Callable[[Predicate], str]) -> tuple[Unused, ...]:
    """The conditions that no index judges, because of a function or a cast in them."""
    texts = dict.fromkeys(text_of(term) for term in terms if not is_judged(term))
    return tuple(
        Unused(index="all indexes", reason="function", detail=f"{text} cannot be judged from bounds") for text in texts
    )
