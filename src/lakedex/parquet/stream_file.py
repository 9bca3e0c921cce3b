"""A plain Parquet file that takes record batches, for rows that leave the table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ParquetStreamFile"]


ROWS = 1 << 20
"""Rows of a row group at most; they are in memory."""


class ParquetStreamFile:
    """A Parquet file under way. Batches are put together to row groups, as many small ones are slow to read.

    Args:
        path: the local file.
        schema: of the batches.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROWS:
            self._write()

    def _write(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), row_group_size=ROWS)
        self._batches, self._rows = [], 0

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._write()
        self._writer.close()
