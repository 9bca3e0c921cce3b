"""In which schema each base file lies on disk, as far as it differs from the table's.

A column that was widened is narrower in older files, and PySpark 3.5 cannot read it as the table has it. A column that
a file lacks is no difference: every reader gives nulls there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.planner import read_columns

__all__ = ["physical_schemas"]


def physical_schemas(snapshot: Snapshot, files: Sequence[BaseFile]) -> list[pa.Schema]:
    """Schema to read each file by: the table's, with the file's own type where that differs."""
    wanted = read_columns(snapshot.schema)
    by_instant: dict[str, pa.Schema] = {}
    found = []
    for base in files:
        if base.instant not in by_instant:
            by_instant[base.instant] = _with_types_of(wanted, snapshot.stored_schema(base))
        found.append(by_instant[base.instant])
    return found


def _with_types_of(wanted: pa.Schema, stored: pa.Schema) -> pa.Schema:
    fields = []
    for column in wanted:
        position = stored.get_field_index(column.name)
        fields.append(column if position < 0 else column.with_type(stored.field(position).type))
    return pa.schema(fields)
