"""Record keys and partition paths of rows: one builder for every operation.

In Hudi: ``SimpleKeyGenerator``, ``ComplexKeyGenerator``, ``NonpartitionedKeyGenerator``. A key is built, never parsed
back: values may hold ``:`` and ``,``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.layout.partition_path import partition_paths
from lakedex.layout.value_text import value_text
from lakedex.types import PARTITION_PATH, RECORD_KEY

__all__ = ["KeyGenerator", "StoredKeys", "field_column"]

NULL_PART = "__null__"
EMPTY_PART = "__empty__"


def field_column(batch: pa.RecordBatch | pa.Table, field: str) -> pa.Array:
    """Column ``field`` of a batch; ``a.b`` reaches into structs when no column has that whole name."""
    if field in batch.schema.names:
        column = batch.column(field)
    else:
        head, *path = field.split(".")
        if head not in batch.schema.names or not path:
            raise InvalidInputError(
                f"column {field!r} is not in the frame: {', '.join(batch.schema.names)}", column=field
            )
        column = pc.struct_field(batch.column(head), path)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGenerator:
    """How a table's rows are keyed.

    Attributes:
        record_key: fields of the key.
        partition_by: fields of the partition path; empty for a non-partitioned table.
        named_parts: keys read ``field:value,…`` (COMPLEX) instead of the bare value (SIMPLE, NON_PARTITION).
        hive_style: partition folders read ``field=value``.
        url_encode: partition values are escaped.
    """

    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    named_parts: bool = False
    hive_style: bool = True
    url_encode: bool = True

    def keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Key of each row as a string; null where the row has no valid key (null or empty)."""
        texts = [value_text(field_column(batch, field)) for field in self.record_key]
        if not self.named_parts:
            empty = pc.equal(texts[0], "")
            # The column itself, not a copy, where all of its values are keys.
            return pc.if_else(empty, pa.scalar(None, pa.string()), texts[0]) if pc.any(empty).as_py() else texts[0]
        parts = []
        missing = None
        for field, text in zip(self.record_key, texts, strict=True):
            absent = pc.or_(pc.is_null(text), pc.equal(text, "").fill_null(False))
            missing = absent if missing is None else pc.and_(missing, absent)
            shown = pc.if_else(pc.equal(text, ""), EMPTY_PART, text).fill_null(NULL_PART)
            parts.append(pc.binary_join_element_wise(pa.scalar(f"{field}:"), shown, ""))
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")
        return pc.if_else(missing, pa.scalar(None, pa.string()), joined)

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Partition path of each row."""
        if not self.partition_by:
            return pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
        columns = [field_column(batch, field) for field in self.partition_by]
        return partition_paths(columns, self.partition_by, hive_style=self.hive_style, url_encode=self.url_encode)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKeys:
    """Keys of rows that were read from the table: they stand in its meta columns."""

    record_key: tuple[str, ...] = (RECORD_KEY,)
    partition_by: tuple[str, ...] = (PARTITION_PATH,)

    def keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """The record-key column."""
        return field_column(batch, RECORD_KEY)

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """The partition-path column."""
        return field_column(batch, PARTITION_PATH)
