"""The order of clustered rows, linear or along a z-order curve, and the files that it cuts them into.

A value's *code* is a 64-bit number in the order of its column: nulls first, NaN last, text by its first eight bytes
after those that all values of a sample share. On the curve, codes become ranks among the sample's quantiles, so that
each column is spread evenly, and the bits of the ranks are interleaved, the first column's highest first. Codes decide
where rows go, never whether: a coarse code costs order, not rows.

Memory: eight bytes a row and column, and the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.snapshot.ordering_values import sortable
from lakedex.types import RECORD_KEY, IntArray
from lakedex.write.file_assignment import key_numbers

__all__ = ["RowOrder", "Sample", "codes", "interleaved", "is_sortable"]


Codes = npt.NDArray[np.uint64]


_RANK_BITS = 16


_SIGN = np.uint64(1 << 63)


def is_sortable(kind: pa.DataType) -> bool:
    """Whether values of the type have codes."""
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def codes(column: pa.Array, skip: int = 0) -> Codes:
    """Numbers in the order of a column's values.

    Args:
        column: not nested.
        skip: bytes of text that are left out.
    """
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    numbers: Codes
    if _is_text(column.type):
        text = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
        numbers = key_numbers(pc.fill_null(text, b"" if pa.types.is_binary(text.type) else ""), skip)
    else:
        plain = column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
        if pa.types.is_time32(plain.type):
            plain = plain.view(pa.int32())
        signed = pc.fill_null(sortable(plain).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        numbers = signed.view(np.uint64) ^ _SIGN
    return np.where(nulls, np.uint64(0), numbers)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _shared_bytes(column: pa.Array) -> int:
    """How many bytes all values begin with."""
    bounds = pc.min_max(column) if _is_text(column.type) and not pa.types.is_fixed_size_binary(column.type) else None
    low, high = (None, None) if bounds is None else (bounds["min"].as_py(), bounds["max"].as_py())
    if low is None or high is None:
        return 0
    first, last = (value.encode() if isinstance(value, str) else value for value in (low, high))
    return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def interleaved(ranks: Sequence[Codes], bits: int) -> IntArray:
    """The bits of several ranks in turn, the highest bit of the first one first."""
    curve = np.zeros(len(ranks[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            curve = (curve << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
    return curve.view(np.int64)


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a file slice: the columns of an order, and how many rows the slice has."""

    rows: int
    columns: pa.RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """An order of rows, and where it is cut into files.

    Attributes:
        columns: those that order rows, the first one first; rows that are equal in them go by record key.
        skips: bytes of text that are left out, by column.
        quantiles: codes that cut each column's sample evenly, for a curve; empty for a linear order.
        edges: where the second file and each later one begins, as :meth:`_places`.
    """

    columns: tuple[str, ...]
    skips: tuple[int, ...]
    quantiles: tuple[Codes, ...] = ()
    edges: npt.NDArray[np.bytes_] | None = None

    @classmethod
    def of(cls, columns: Sequence[str], samples: Sequence[Sample], files: int, *, curve: bool) -> RowOrder:
        """The order of the rows that were sampled, cut into ``files`` of about as many rows.

        Args:
            columns: those that order rows, without the record key.
            samples: of all slices whose rows are ordered together, with the columns and the record key.
            files: how many files.
            curve: whether to follow a z-order curve.
        """
        names = (*columns, RECORD_KEY)
        found = [sample for sample in samples if sample.columns.num_rows]
        if not found:
            return cls(columns=tuple(columns), skips=(0,) * len(names))
        table = pa.Table.from_batches([sample.columns for sample in found]).combine_chunks()
        arrays = [table.column(name).chunk(0) for name in names]
        skips = tuple(_shared_bytes(array) for array in arrays)
        quantiles: tuple[Codes, ...] = ()
        if curve:
            most = (1 << _bits(len(columns))) - 1
            quantiles = tuple(
                _quantiles(codes(array, skip), most) for array, skip in zip(arrays[:-1], skips, strict=False)
            )
        whole = cls(columns=tuple(columns), skips=skips, quantiles=quantiles)
        places = whole._places(table.combine_chunks().to_batches()[0])
        weights = np.concatenate([np.full(s.columns.num_rows, s.rows / s.columns.num_rows) for s in found])
        by_place = np.argsort(places, kind="stable")
        share = np.cumsum(weights[by_place])
        cuts = np.searchsorted(share, share[-1] * np.arange(1, files) / files)
        edges = places[by_place][np.minimum(cuts, len(places) - 1)]
        return cls(columns=tuple(columns), skips=skips, quantiles=quantiles, edges=edges)

    def files(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """The file that each row goes to, by number from 0 on."""
        if self.edges is None or not len(self.edges):
            return np.zeros(batch.num_rows, np.int32)
        return np.searchsorted(self.edges, self._places(batch), side="right").astype(np.int32)

    def curve(self, batch: pa.RecordBatch) -> IntArray:
        """The place of each row on the curve; 0 for a linear order."""
        if not self.quantiles:
            return np.zeros(batch.num_rows, np.int64)
        bits = _bits(len(self.columns))
        found = []
        for name, skip, bounds in zip(self.columns, self.skips, self.quantiles, strict=False):
            rank = np.searchsorted(bounds, _column_codes(batch, name, skip), side="right").astype(np.uint64)
            # A column of few values takes the high bits too, else the others would decide alone.
            found.append((rank << np.uint64(bits)) // np.uint64(len(bounds) + 1))
        return interleaved(found, bits)

    def _places(self, batch: pa.RecordBatch) -> npt.NDArray[np.bytes_]:
        """Bytes that compare as the rows do, for cutting."""
        names = (*self.columns, RECORD_KEY)
        if self.quantiles:
            parts = [self.curve(batch).view(np.uint64), _column_codes(batch, RECORD_KEY, self.skips[-1])]
        else:
            parts = [_column_codes(batch, name, skip) for name, skip in zip(names, self.skips, strict=True)]
        wide = np.ascontiguousarray(np.stack(parts, axis=1).astype(">u8"))
        return wide.view(f"S{8 * len(parts)}").ravel()


def _column_codes(batch: pa.RecordBatch, name: str, skip: int) -> Codes:
    return codes(batch.column(batch.schema.get_field_index(name)), skip)


def _bits(columns: int) -> int:
    """Bits of each rank on a curve of that number of columns; all together leave the sign free."""
    return min(_RANK_BITS, 63 // columns)


def _quantiles(found: Codes, most: int) -> Codes:
    ordered = np.sort(found)
    places = np.linspace(0, len(ordered) - 1, min(most, len(ordered)) + 1).astype(np.int64)
    return np.unique(ordered[places])
