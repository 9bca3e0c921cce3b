"""Parquet files as others see them: written from a stream of rows, described by their footer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import open_parquet

__all__ = ["ParquetStreamFile", "footer_facts"]


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


def footer_facts(storage: Storage, path: str) -> tuple[dict[str, Any], pa.Table]:
    """Facts of the file, and a row per column: type, codec, bytes, nulls.

    Raises:
        CorruptFileError: the file is no Parquet file, or is damaged.
    """
    with open_parquet(storage, path) as (parquet, _):
        metadata = parquet.metadata
        facts = {
            "rows": metadata.num_rows,
            "row_groups": metadata.num_row_groups,
            "rows_per_group": [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)],
            "columns": metadata.num_columns,
            "created_by": metadata.created_by,
            "format_version": metadata.format_version,
            "footer_bytes": metadata.serialized_size,
            "keys": {
                name.decode("utf-8", "replace"): len(value) for name, value in sorted((metadata.metadata or {}).items())
            },
        }
        sums: dict[str, dict[str, Any]] = defaultdict(lambda: {"bytes": 0, "uncompressed_bytes": 0, "nulls": 0})
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(index)
                own = sums[chunk.path_in_schema]
                own["type"], own["codec"] = chunk.physical_type, chunk.compression
                own["bytes"] += chunk.total_compressed_size
                own["uncompressed_bytes"] += chunk.total_uncompressed_size
                stats = chunk.statistics
                known = stats is not None and stats.has_null_count and own["nulls"] is not None
                own["nulls"] = own["nulls"] + stats.null_count if known else None
    kinds = [("column", pa.string()), ("type", pa.string()), ("codec", pa.string())]
    numbers = [(name, pa.int64()) for name in ("bytes", "uncompressed_bytes", "nulls")]
    rows = [{"column": name, **own} for name, own in sums.items()]
    return facts, pa.Table.from_pylist(rows, pa.schema([*kinds, *numbers]))
