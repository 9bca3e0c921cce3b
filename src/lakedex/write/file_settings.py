"""How a write's base files look: columns, footer, compression, and which columns get statistics."""

from __future__ import annotations

import json

import pyarrow as pa

from lakedex.codec.avro_schema import arrow_to_avro, with_meta_fields
from lakedex.index.bloom_builds import bloom_sizing
from lakedex.index.column_stats import covered_columns, indexable_columns
from lakedex.index.definitions import definitions_path, read_definitions, source_fields, stats_version
from lakedex.layout.base_file import BaseFileSettings
from lakedex.metadata.partitions import COLUMN_STATS
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.types import COMMIT_SEQNO, META_COLUMNS, RECORD_KEY

__all__ = ["file_schema", "file_settings", "indexed_columns"]


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Columns of a base file: Hudi's meta columns, then the table's."""
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])


def indexed_columns(snapshot: Snapshot, schema: pa.Schema, options: WriteOptions) -> dict[str, pa.DataType]:
    """Columns that get a record, with their types: those that the table lists, and those that Java would choose."""
    document = read_definitions(snapshot.storage, definitions_path(snapshot.base_path))
    version = stats_version(document, snapshot.config.version)
    chosen = indexable_columns(schema, options.column_stats_columns, options.column_stats_limit, version)
    has_stats = snapshot.metadata.has(COLUMN_STATS.name)
    listed = covered_columns(document, schema, snapshot.config.version) if has_stats else source_fields(document)
    wanted = {*chosen, *listed}
    possible = indexable_columns(schema, limit=len(schema), version=version)
    types = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in schema}
    return {name: types[name] for name in possible if name in wanted}


def file_settings(snapshot: Snapshot, schema: pa.Schema, options: WriteOptions) -> BaseFileSettings:
    """How base files of this schema are written."""
    keys = snapshot.config.record_key_fields
    return BaseFileSettings(
        avro_schema=json.dumps(with_meta_fields(arrow_to_avro(schema, snapshot.config.name))),
        compression=options.compression,
        bloom=bloom_sizing(options),
        unique=frozenset({RECORD_KEY, COMMIT_SEQNO, *(keys if len(keys) == 1 else ())}),
        row_group_bytes=options.row_group_bytes,
    )
