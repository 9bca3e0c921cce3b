"""Write base files: Parquet with Hudi's meta columns, footer keys, bloom filter and column statistics."""

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
from lakedex.parquet.row_group_writer import RowGroupWriter, column_bytes, group_spans
from lakedex.types import COMMIT_SEQNO, RECORD_KEY

__all__ = ["BaseFileSettings", "BaseFileSummary", "BaseFileWriter", "write_parquet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSettings:
    """How base files are written.

    Attributes:
        avro_schema: Avro JSON of the file, meta columns included.
        compression: Parquet codec name as pyarrow spells it.
        bloom: which filters the files get.
        unique: columns with a value of its own in (nearly) each row, by their path: a dictionary only costs there.
        row_group_bytes: size of a row group before encoding.
    """

    avro_schema: str
    compression: str = "zstd"
    bloom: BloomSizing = field(default_factory=BloomSizing)
    unique: frozenset[str] = frozenset({RECORD_KEY, COMMIT_SEQNO})
    row_group_bytes: int = ROW_GROUP_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSummary:
    """What was written. Sizes in bytes.

    ``column_bytes`` is top-level column → (compressed, uncompressed), ``row_groups`` are (rows, first byte, bytes).
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
    """Writes one base file as a stream of batches. The file exists only once :meth:`close` returned."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        settings: BaseFileSettings,
        *,
        expected_rows: int,
        kept_bloom: bytes | None = None,
        stored: StoredChunks | None = None,
    ) -> None:
        """Begin a file.

        Args:
            storage: where.
            path: the file.
            schema: its columns; those of text may come as dictionaries.
            settings: how it is written.
            expected_rows: how many rows will come, to size the filter by.
            kept_bloom: text of a filter over the very keys that will come; they are not hashed then. See
                :meth:`hash_keys`.
            stored: chunks that :meth:`write_group` may take over.
        """
        self._settings = settings
        self._schema = schema.remove_metadata()
        self._storage = storage
        self._path = path
        self._bloom = settings.bloom.builder(expected_rows)
        self._kept_bloom = kept_bloom
        self._min: str | None = None
        self._max: str | None = None
        self._rows = 0
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0.0
        self._file = storage.open_output(path)
        # Arrow writes little by little, and would wait for Python's lock each time.
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), SINK_BYTES)
        self._stored = stored
        self._groups = RowGroupWriter(
            self._sink, self._schema, settings.compression, settings.unique, takes_over=stored is not None
        )

    def write(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str] | None:
        """Add rows in the file's schema, their keys ``hashed`` if they are; gives back the bounds of their keys."""
        if batch.num_rows == 0:
            return None
        bounds = self._take_note(batch, hashed)
        self._fill_groups(batch)
        return bounds

    def write_group(
        self, batches: Sequence[pa.RecordBatch], group: int, unchanged: Collection[str]
    ) -> list[tuple[str, str]]:
        """Add rows as a row group of their own, made from one that is stored.

        Args:
            batches: the rows, as many and in the same places as the stored ones.
            group: number of the stored row group.
            unchanged: columns in which they have the stored values; where it can be, their chunks are taken over.

        Returns:
            The bounds of the keys of each batch.
        """
        if self._stored is None:
            raise ValueError(f"{self._path}: begun without stored chunks")
        self.end_row_group()
        bounds = [self._take_note(batch) for batch in batches]
        taken = self._groups.takeable(self._stored, group, unchanged)
        fresh = [name for name in self._schema.names if name not in taken]
        self._groups.take_over(pa.Table.from_batches(batches, self._schema).select(fresh), self._stored, taken)
        return bounds

    def _take_note(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str]:
        """What the footer says of the rows of a batch."""
        keys = batch.column(batch.schema.get_field_index(RECORD_KEY))
        if self._kept_bloom is None:
            self._bloom.add(keys if hashed is None else hashed)
        bounds = pc.min_max(keys)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)
        self._rows += batch.num_rows
        return low, high

    def _fill_groups(self, batch: pa.RecordBatch) -> None:
        """A load comes as one batch a file, which is no reason for one row group."""
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
    def takes_over(self) -> bool:
        """Whether :meth:`write_group` may be called."""
        return self._stored is not None

    @property
    def keeps_bloom(self) -> bool:
        """Whether the filter is one that was given."""
        return self._kept_bloom is not None

    def hash_keys(self, written: Iterable[pa.Array]) -> None:
        """Build the filter after all: ``written`` are the keys of all rows so far, in their order."""
        self._kept_bloom = None
        for keys in written:
            self._bloom.add(keys)

    def end_row_group(self) -> None:
        """Write the rows so far as a row group; those that follow begin another one."""
        if self._buffer:
            self._groups.write(pa.Table.from_batches(self._buffer, self._schema))
            self._buffer, self._buffered = [], 0.0

    def close(self) -> BaseFileSummary:
        """Finish the file: durable once this returns."""
        self.end_row_group()
        text = self._bloom.finish().encode() if self._kept_bloom is None else self._kept_bloom
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
            row_groups=tuple(group_spans(written)),
        )

    def abort(self) -> None:
        """Give up: close and delete what was written."""
        self._groups.abort()
        with suppress(OSError):  # Of bytes that found no place; they are not wanted.
            self._sink.close()
        self._file.close()
        self._storage.delete(self._path)


def write_parquet(
    storage: Storage, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], footer: Mapping[str, str]
) -> None:
    """Write a Parquet file without Hudi's columns: gzip, plain pages, exactly these pairs in its footer."""
    # Only what is given explicitly gets into the footer: pyarrow drops a schema's metadata with store_schema=False.
    with (
        closing(storage.open_output(path)) as out,
        pq.ParquetWriter(out, schema, compression="gzip", use_dictionary=False, store_schema=False) as writer,
    ):
        writer.add_key_value_metadata(dict(footer))
        for batch in batches:
            writer.write_batch(batch)
