"""Some rows of a base file by their positions: only row groups that have one are read.

Memory: one batch, and a byte for each row of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import iter_base_file, open_for_scan

__all__ = ["BaseRows", "iter_base_rows"]


@dataclass(frozen=True, slots=True)
class BaseRows:
    """Rows of a base file.

    Attributes:
        positions: of the rows.
        rows_per_group: rows of each row group. In a file of other row groups positions mean nothing: it is read whole.
    """

    positions: BitMap
    rows_per_group: tuple[int, ...]


def iter_base_rows(
    storage: Storage, path: str, columns: Sequence[str], rows: BaseRows | None, *, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Read some rows of a base file in batches, in row order; None reads all.

    Columns that the file lacks are left out.
    """
    if rows is None:
        yield from iter_base_file(storage, path, columns, batch_rows=batch_rows)
        return
    with open_for_scan(storage, path) as source:
        if tuple(source.rows_per_group) != rows.rows_per_group:
            yield from source.batches(columns, range(source.row_groups), batch_rows)
            return
        mask = np.zeros(source.num_rows, bool)
        mask[np.asarray(rows.positions.to_array(), np.int64)] = True
        ends = np.cumsum(rows.rows_per_group)
        kept = [group for group, part in enumerate(np.split(mask, ends[:-1])) if part.any()]
        wanted = np.concatenate([mask[:0], *(mask[ends[n] - rows.rows_per_group[n] : ends[n]] for n in kept)])
        start = 0
        for stored in source.batches(columns, kept, batch_rows):
            own = wanted[start : start + stored.num_rows]
            start += stored.num_rows
            if own.any():
                yield stored.filter(pa.array(own))
