"""File slices as columns: what planning over many files works on instead of one object after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakedex.layout.file_slice import FileSlice

__all__ = ["SliceTable"]


@dataclass(frozen=True, slots=True, eq=False)
class SliceTable:
    """The slices of a snapshot, ordered by partition and file id; a *row* is a place in this order.

    Attributes:
        slices: the slices themselves.
        partitions: paths of the partitions that have slices, in order.
        starts: per partition its first row, and at the end the number of slices.
        sizes: bytes of each slice, log files included.
        has_logs: whether a slice has log files.
    """

    slices: tuple[FileSlice, ...]
    partitions: tuple[str, ...]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    has_logs: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, by_partition: Mapping[str, Sequence[FileSlice]]) -> SliceTable:
        """The slices of each partition, put one after the other."""
        partitions = tuple(path for path in sorted(by_partition) if by_partition[path])
        slices = tuple(item for path in partitions for item in by_partition[path])
        starts = np.zeros(len(partitions) + 1, np.int64)
        np.cumsum([len(by_partition[path]) for path in partitions], out=starts[1:])
        sizes = np.fromiter((item.size for item in slices), np.int64, len(slices))
        has_logs = np.fromiter((bool(item.log_files) for item in slices), np.bool_, len(slices))
        return cls(slices, partitions, starts, sizes, has_logs)

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def partition_of(self) -> npt.NDArray[np.int64]:
        """Per slice the place of its partition in :attr:`partitions`."""
        return np.repeat(np.arange(len(self.partitions)), np.diff(self.starts))

    def take(self, rows: npt.NDArray[np.int64]) -> list[FileSlice]:
        """The slices of some rows."""
        slices = self.slices
        return [slices[row] for row in rows.tolist()]

    def rows_in(self, older: SliceTable) -> npt.NDArray[np.int64]:
        """Per slice its row in an older table that holds the very same object; -1 where it is new."""
        known = {id(item): row for row, item in enumerate(older.slices)}
        return np.fromiter((known.get(id(item), -1) for item in self.slices), np.int64, len(self))
