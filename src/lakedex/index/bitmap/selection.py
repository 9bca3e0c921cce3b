"""The rows of a base file that a query needs, as an index knows them before the file is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lakedex.codec.roaring import deserialize_bitmap, serialize_bitmap
from lakedex.index.bitmap.builder import RowGroup

__all__ = ["RowSelection"]


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
