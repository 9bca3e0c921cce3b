"""Which of many keys lie in which of many key ranges, by one sort over keys and bounds together.

RFC-37 builds an interval tree of the files' ranges and asks it key by key. With all keys of a task at hand, sorting
them once among the bounds gives each range the slice of sorted keys that lies in it: n keys and m files cost
O((n + m) log(n + m)), and no step is taken key by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.types import IntArray

__all__ = ["KeyRanges", "SortedKeys"]


@dataclass(frozen=True, slots=True, eq=False)
class SortedKeys:
    """Distinct keys, by the number of their data partition, then by UTF-8 bytes."""

    codes: npt.NDArray[np.int32]
    keys: pa.Array

    @classmethod
    def of(cls, keys: pa.Array, partitions: pa.Array | None, numbered: Sequence[str]) -> SortedKeys:
        """Sort keys; those of partitions that are not ``numbered``, and nulls, are left out.

        Args:
            keys: record keys, chunked or not.
            partitions: their partition paths; None if each may lie in any partition.
            numbered: partition paths; their places are the codes.
        """
        if partitions is None:
            codes = pa.repeat(pa.scalar(0, pa.int32()), len(keys))
        else:
            codes = pc.index_in(partitions, value_set=pa.array(numbered, pa.string()))
        table = pa.table({"code": codes, "key": keys}).group_by(["code", "key"], use_threads=False).aggregate([])
        table = table.select(["code", "key"]).drop_null()
        table = table.take(pc.sort_indices(table, sort_keys=[("code", "ascending"), ("key", "ascending")]))
        table = table.combine_chunks()
        whole = [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns]
        return cls(whole[0].to_numpy(), whole[1])

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True, eq=False)
class KeyRanges:
    """Files with the numbers of their data partitions and their key ranges; a null bound is unknown."""

    codes: npt.NDArray[np.int32]
    lows: pa.Array
    highs: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, places: npt.NDArray[np.intp]) -> KeyRanges:
        """Some of the files."""
        at = pa.array(places)
        return KeyRanges(self.codes[places], self.lows.take(at), self.highs.take(at))

    def without_bounds(self) -> KeyRanges:
        """All ranges unknown."""
        none = pa.nulls(len(self), pa.string())
        return KeyRanges(self.codes, none, none)

    def slices(self, keys: SortedKeys) -> tuple[IntArray, IntArray]:
        """Start and end, among ``keys``, of those that lie in each file's range.

        A file without both bounds, or with bounds the wrong way round, gets all keys of its partition.
        """
        starts = np.searchsorted(keys.codes, self.codes, side="left").astype(np.int64)
        ends = np.searchsorted(keys.codes, self.codes, side="right").astype(np.int64)
        known = pc.less_equal(self.lows, self.highs).fill_null(False)
        places = np.flatnonzero(known.to_numpy(zero_copy_only=False))
        if len(places) and len(keys):
            codes, at = self.codes[places], pa.array(places)
            starts[places], ends[places] = _bounded(keys, codes, self.lows.take(at), self.highs.take(at))
        return starts, ends


def _bounded(
    keys: SortedKeys, codes: npt.NDArray[np.int32], lows: pa.Array, highs: pa.Array
) -> tuple[IntArray, IntArray]:
    """The sweep: how many keys come before each bound. A lower bound sorts before an equal key, an upper one after."""
    count, files = len(keys), len(codes)
    table = pa.table(
        {
            "code": np.concatenate([keys.codes, codes, codes]),
            "text": pa.chunked_array([keys.keys, lows, highs]).combine_chunks(),
            "side": np.repeat(np.array([1, 0, 2], np.int8), [count, files, files]),
        }
    )
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.schema.names]).to_numpy()
    is_key = order < count
    before = np.cumsum(is_key) - is_key
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return before[place[count : count + files]], before[place[count + files :]]
