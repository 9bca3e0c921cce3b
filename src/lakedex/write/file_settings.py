"""How a write's base files look: columns, footer, compression, and which columns get statistics."""

from __future__ import annotations

import json

import pyarrow as pa

from lakedex.codec.avro_schema import arrow_to_avro, with_meta_fields
from lakedex.index.column_stats import indexable_columns
from lakedex.index.definitions import definitions_path, read_definitions, source_fields
from lakedex.layout.base_file import BaseFileSettings
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.types import META_COLUMNS

__all__ = ["file_schema", "file_settings", "indexed_columns"]


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Columns of a base file: Hudi's meta columns, then the table's."""
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])


def indexed_columns(snapshot: Snapshot, schema: pa.Schema, options: WriteOptions) -> dict[str, pa.DataType]:
    """Columns that get a record, with their types: those that the table lists, and those that Java would choose."""
    chosen = indexable_columns(schema, options.column_stats_columns, options.column_stats_limit)
    listed = source_fields(read_definitions(snapshot.storage, definitions_path(snapshot.base_path)))
    wanted = [name for name in indexable_columns(schema, limit=len(schema)) if name in {*chosen, *listed}]
    types = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in schema}
    return {name: types[name] for name in wanted}


def file_settings(snapshot: Snapshot, schema: pa.Schema, options: WriteOptions) -> BaseFileSettings:
    """How base files of this schema are written."""
    return BaseFileSettings(
        avro_schema=json.dumps(with_meta_fields(arrow_to_avro(schema, snapshot.config.name))),
        compression=options.compression,
        bloom_entries=options.bloom_entries,
        bloom_fpp=options.bloom_fpp,
        bloom_type=options.bloom_type,
        bloom_max_entries=options.bloom_max_entries,
        row_group_bytes=options.row_group_bytes,
    )
