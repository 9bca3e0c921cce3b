"""Write base files: Parquet with Hudi's meta columns, footer keys, bloom filter and column statistics.

Memory: one row group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakedex.codec.bloom import BloomSizing, HashedKeys
from lakedex.codec.column_bounds import key_bounds
from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import (
    BLOOM_FOOTER_KEY,
    BLOOM_TYPE_FOOTER_KEY,
    MAX_KEY_FOOTER_KEY,
    MIN_KEY_FOOTER_KEY,
    ROW_GROUP_BYTES,
    SINK_BYTES,
)
from lakedex.parquet.chunk_reuse import StoredChunks
from lakedex.parquet.footer import group_spans
from lakedex.parquet.row_group_writer import RowGroupWriter, column_bytes
from lakedex.types import COMMIT_SEQNO, RECORD_KEY

__all__ = ["BaseFileSettings", "BaseFileSummary", "BaseFileWriter", "write_parquet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSettings:
    """Settings of new base files.

    Attributes:
        avro_schema: Avro schema of the file as JSON, including meta columns.
        compression: Parquet codec, as named by pyarrow.
        bloom: Type and size of bloom filters.
        unique: Paths of columns with (nearly) unique values, which get no dictionary.
        row_group_bytes: Size of a row group before encoding.
    """

    avro_schema: str
    compression: str = "zstd"
    bloom: BloomSizing = field(default_factory=BloomSizing)
    unique: frozenset[str] = frozenset({RECORD_KEY, COMMIT_SEQNO})
    row_group_bytes: int = ROW_GROUP_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSummary:
    """Properties of a written file. Sizes are in bytes.

    ``column_bytes`` maps top-level columns to (compressed, uncompressed); ``row_groups`` are (rows, first byte, bytes).
    """

    size: int
    rows: int
    bloom: bytes
    bloom_type: str
    min_key: str | None
    max_key: str | None
    column_bytes: dict[str, tuple[int, int]] = field(default_factory=dict)
    row_groups: tuple[tuple[int, int, int], ...] = ()


class BaseFileWriter:
    """Writes one base file from a stream of batches. The file exists only after :meth:`close`."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        settings: BaseFileSettings,
        *,
        expected_rows: int,
        existing_bloom: bytes | None = None,
        stored: StoredChunks | None = None,
    ) -> None:
        """Start a file.

        Args:
            storage: Storage of the table.
            path: Path of the file.
            schema: Schema of the file; text columns may be dictionaries.
            settings: Settings of the file.
            expected_rows: Number of rows, to size the filter by.
            existing_bloom: Text of a filter over exactly the keys to be written, which are then not hashed; None builds
                one. See :meth:`hash_keys`.
            stored: Chunks that :meth:`write_group` may reuse; None if there are none.
        """
        self._settings = settings
        self._schema = schema.remove_metadata()
        self._storage = storage
        self._path = path
        self._bloom = settings.bloom.builder(expected_rows)
        self._existing_bloom = existing_bloom
        self._min: str | None = None
        self._max: str | None = None
        self._rows = 0
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0.0
        self._file = storage.open_output(path)
        # Arrow writes in small pieces and would wait for Python's lock each time.
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), SINK_BYTES)
        self._stored = stored
        self._groups = RowGroupWriter(
            self._sink, self._schema, settings.compression, settings.unique, reuses_chunks=stored is not None
        )

    def write(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str] | None:
        """Add rows in the file's schema, with their keys ``hashed`` if known; return the bounds of their keys."""
        if batch.num_rows == 0:
            return None
        bounds = self._take_note(batch, hashed)
        self._fill_groups(batch)
        return bounds

    def write_group(
        self, batches: Sequence[pa.RecordBatch], group: int, unchanged: Collection[str]
    ) -> list[tuple[str, str]]:
        """Add rows as a row group of their own, derived from a stored one.

        Args:
            batches: Rows, as many and in the same positions as the stored ones.
            group: Number of the stored row group.
            unchanged: Columns with the stored values; their chunks are reused if possible.

        Returns:
            Bounds of the keys of each batch.
        """
        if self._stored is None:
            raise ValueError(f"{self._path}: opened without stored chunks")
        self.end_row_group()
        bounds = [self._take_note(batch) for batch in batches]
        taken = self._groups.reusable_chunks(self._stored, group, unchanged)
        fresh = [name for name in self._schema.names if name not in taken]
        self._groups.reuse_chunks(pa.Table.from_batches(batches, self._schema).select(fresh), self._stored, taken)
        return bounds

    def _take_note(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str]:
        """Update the footer's key range and filter with a batch; return the bounds of its keys."""
        keys = batch.column(batch.schema.get_field_index(RECORD_KEY))
        if self._existing_bloom is None:
            self._bloom.add(keys if hashed is None else hashed)
        bounds = pc.min_max(keys)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)
        self._rows += batch.num_rows
        return low, high

    def _fill_groups(self, batch: pa.RecordBatch) -> None:
        """Split a batch into row groups: a load may arrive as one batch per file."""
        target, start = self._settings.row_group_bytes, 0
        row = max(batch.nbytes / batch.num_rows, 1e-9)
        while start < batch.num_rows:
            part = batch.slice(start, max(int((target - self._buffered) / row), 1))
            start += part.num_rows
            self._buffer.append(part)
            self._buffered += part.num_rows * row
            if self._buffered + row > target:
                self.end_row_group()

    @property
    def reuses_chunks(self) -> bool:
        """Whether :meth:`write_group` may be called."""
        return self._stored is not None

    @property
    def reuses_bloom(self) -> bool:
        """Whether the file gets the existing filter."""
        return self._existing_bloom is not None

    def hash_keys(self, written: Iterable[pa.Array]) -> None:
        """Build the filter after all; ``written`` are the keys of all rows so far, in order."""
        self._existing_bloom = None
        for keys in written:
            self._bloom.add(keys)

    def end_row_group(self) -> None:
        """Write the rows so far as a row group; those that follow begin another one."""
        if self._buffer:
            self._groups.write(pa.Table.from_batches(self._buffer, self._schema))
            self._buffer, self._buffered = [], 0.0

    def close(self) -> BaseFileSummary:
        """Finish the file, which is durable afterwards."""
        self.end_row_group()
        text = self._bloom.finish().encode() if self._existing_bloom is None else self._existing_bloom
        bloom_type = self._settings.bloom.type_code
        keys = {
            "parquet.avro.schema": self._settings.avro_schema,
            "writer.model.name": "avro",
            BLOOM_FOOTER_KEY.decode(): text.decode("ascii"),
            BLOOM_TYPE_FOOTER_KEY.decode(): bloom_type,
        }
        low: str | None = None
        high: str | None = None
        if self._min is not None and self._max is not None:
            low, high = key_bounds(self._min, self._max)
            keys |= {MIN_KEY_FOOTER_KEY.decode(): low, MAX_KEY_FOOTER_KEY.decode(): high}
        written = self._groups.close(keys)
        self._sink.flush()
        self._file.close()
        return BaseFileSummary(
            size=self._storage.size(self._path),
            rows=self._rows,
            bloom=text,
            bloom_type=bloom_type,
            min_key=low,
            max_key=high,
            column_bytes=column_bytes(written),
            row_groups=tuple(span for metadata in written for span in group_spans(metadata)),
        )

    def abort(self) -> None:
        """Close and delete the unfinished file."""
        self._groups.abort()
        with suppress(OSError):  # Flushing to a full disk may fail; the bytes are not needed.
            self._sink.close()
        self._file.close()
        self._storage.delete(self._path)


def write_parquet(
    storage: Storage, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], footer: Mapping[str, str]
) -> None:
    """Write a Parquet file without Hudi's columns: gzip, pages of version 1, exactly these pairs in its footer."""
    # Only explicit pairs are written to the footer: with store_schema=False pyarrow drops a schema's metadata.
    with (
        closing(storage.open_output(path)) as out,
        pq.ParquetWriter(out, schema, compression="gzip", use_dictionary=False, store_schema=False) as writer,
    ):
        writer.add_key_value_metadata(dict(footer))
        for batch in batches:
            writer.write_batch(batch)
