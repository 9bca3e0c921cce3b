"""RFC-92's own upkeep of bitmaps, as a reference model: add and remove positions in the existing bitmaps.

No table is kept this way. A position is a row's ordinal in its base file, and copy-on-write replaces the whole base
file: one deleted row moves all rows behind it, so comparing values, as the RFC asks, is not enough. If moved rows count
as changed, as they do unless ``moved`` is False, most bitmaps are read, changed and written, on top of reading the
previous base file. A writer has all rows of the new file in memory anyway, so
:class:`~lakedex.index.bitmap.builder.BitmapsBuilder` builds their bitmaps in one pass, reads nothing and depends on no
earlier state. ``benchmarks/bench_bitmap_upkeep.py`` measures both.

All functions are pure: they take a mapping of bitmaps by key and return the bitmaps to write. Memory: the rows' values
and about 40 bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakedex.codec.roaring import bitmap_of
from lakedex.expr.evaluator import column_values
from lakedex.index.bitmap.builder import column_of
from lakedex.index.bitmap.keys import bitmap_key, normal_values, value_texts

__all__ = [
    "Positions",
    "SliceRows",
    "add_positions",
    "change",
    "initialize",
    "insert",
    "positions_of",
    "remove_positions",
    "replay",
]


Positions = Mapping[str, npt.NDArray[np.uint32]]
"""Key of a bitmap → row positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRows:
    """The rows of one file slice.

    Attributes:
        partition, file_id: its file group.
        keys: record keys; a row's place is its position.
        rows: the indexed columns of the same rows.
    """

    partition: str
    file_id: str
    keys: pa.Array
    rows: pa.RecordBatch


def positions_of(item: SliceRows, columns: Sequence[str]) -> Positions:
    """Key and positions for each value of each column."""
    found: dict[str, npt.NDArray[np.uint32]] = {}
    every = np.arange(len(item.keys), dtype=np.uint32)
    for name in columns:
        codes, texts = _encoded(_values(item, name))
        found.update(_by_key(item, name, texts, codes, every))
    return found


def add_positions(store: Mapping[str, BitMap], positions: Positions) -> dict[str, BitMap]:
    """The bitmaps with positions added; a key without a bitmap starts with an empty one."""
    return {key: store.get(key, BitMap()) | bitmap_of(own) for key, own in positions.items()}


def remove_positions(store: Mapping[str, BitMap], positions: Positions) -> dict[str, BitMap]:
    """The bitmaps with positions removed; without a bitmap there is nothing to do, and an emptied one stays."""
    return {key: store[key] - bitmap_of(own) for key, own in positions.items() if key in store}


def initialize(slices: Iterable[SliceRows], columns: Sequence[str]) -> dict[str, BitMap]:
    """The bitmaps of a table's file slices, where there are none yet."""
    return insert({}, slices, columns)


def insert(store: Mapping[str, BitMap], slices: Iterable[SliceRows], columns: Sequence[str]) -> dict[str, BitMap]:
    """The bitmaps that a commit's new base files change."""
    found: dict[str, BitMap] = {}
    for item in slices:
        found.update(add_positions(store, positions_of(item, columns)))
    return found


def change(
    store: Mapping[str, BitMap], before: SliceRows, after: SliceRows, columns: Sequence[str], *, moved: bool = True
) -> dict[str, BitMap]:
    """The bitmaps that an update or delete changes, by comparison of a slice with the one before it.

    Old and new rows of a key are taken in pairs: only where an indexed value changed, the old position is removed and
    the new one added. Rows that are gone are removed, new ones added.

    Args:
        store: the bitmaps now.
        before: the previous slice of the file group.
        after: the new one.
        columns: indexed columns.
        moved: a row that changed its place counts as changed. False is the RFC's text, which is right only where all
            rows keep their places.
    """
    pairs = _Pairs.of(before.keys, after.keys)
    found: dict[str, BitMap] = {}
    for name in columns:
        old, new = _values(before, name), _values(after, name)
        codes, texts = _encoded(pa.concat_arrays([old, new]))
        then, now = codes[: len(old)], codes[len(old) :]
        differs = then[pairs.old] != now[pairs.new]
        if moved:
            differs |= pairs.old != pairs.new
        gone = np.concatenate([pairs.old[differs], pairs.deleted])
        come = np.concatenate([pairs.new[differs], pairs.inserted])
        removed = remove_positions(store, dict(_by_key(before, name, texts, then[gone], gone.astype(np.uint32))))
        added = dict(_by_key(after, name, texts, now[come], come.astype(np.uint32)))
        # What was removed is the state that positions are added to.
        found.update(removed | add_positions({**_only(store, added), **removed}, added))
    return found


def replay(
    store: Mapping[str, BitMap], commit: Iterable[tuple[SliceRows | None, SliceRows]], columns: Sequence[str]
) -> dict[str, BitMap]:
    """The bitmaps that a commit changes: for each file that it names the slice before it, None for a new group."""
    found: dict[str, BitMap] = {}
    for before, after in commit:
        found.update(insert(store, [after], columns) if before is None else change(store, before, after, columns))
    return found


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows of two slices with the same record key, and those without a partner."""

    old: npt.NDArray[np.int64]
    new: npt.NDArray[np.int64]
    deleted: npt.NDArray[np.int64]
    inserted: npt.NDArray[np.int64]

    @classmethod
    def of(cls, before: pa.Array, after: pa.Array) -> _Pairs:
        place: Any = pc.index_in(after, value_set=before)
        partner = pc.fill_null(place, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        new = np.flatnonzero(partner >= 0)
        stays = np.zeros(len(before), np.bool_)
        stays[partner[new]] = True
        return cls(partner[new], new, np.flatnonzero(~stays), np.flatnonzero(partner < 0))


def _values(item: SliceRows, name: str) -> Any:
    return normal_values(column_values(column_of(name, item.rows.schema), item.rows))


def _encoded(values: Any) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    """A number for each value, and the texts that the numbers stand for."""
    encoded: Any = pc.dictionary_encode(values, null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, value_texts(encoded.dictionary).to_pylist()


def _by_key(
    item: SliceRows,
    name: str,
    texts: Sequence[str | None],
    codes: npt.NDArray[np.int64],
    positions: npt.NDArray[np.uint32],
) -> Iterator[tuple[str, npt.NDArray[np.uint32]]]:
    """Positions apart by the value that each has."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(texts)))
    start = 0
    for text, end in zip(texts, ends.tolist(), strict=True):
        if end > start:
            yield bitmap_key(name, text, item.partition, item.file_id), positions[order[start:end]]
        start = end


def _only(store: Mapping[str, BitMap], keys: Iterable[str]) -> dict[str, BitMap]:
    return {key: store[key] for key in keys if key in store}
