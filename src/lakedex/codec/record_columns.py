"""Many records of the metadata table at once, as Arrow columns: the fast way beside ``codec.metadata_record``.

Column statistics of 100,000 files are 100,000 records. What is not read here (a schema of another shape, a record
without the payload, damaged bytes) is left to ``decode_many``, which reads it or says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from lakedex.codec.avro import DATUM_FAILURES
from lakedex.codec.avro_vector import Datums, FlatType, arrow_of, flat_type, read_columns
from lakedex.codec.metadata_record import is_metadata_schema

__all__ = ["payload_columns", "wrapper_names"]


def payload_columns(
    values: Sequence[bytes], writer_schema_json: str, payload: str, fields: frozenset[str]
) -> pa.StructArray | None:
    """Some fields of the payload of each record; None if they cannot be read in this way.

    A field that the writer's release did not have is left out. A union of several wrappers is a dense union, whose
    branches are called by their places (:func:`wrapper_names`).

    Args:
        values: HFile values.
        writer_schema_json: the file's own schema.
        payload: name of the record's part that all of them have.
        fields: names of the fields.
    """
    record = _record(writer_schema_json)
    part = None if record is None else _part(record, payload)
    if record is None or part is None:
        return None
    types = {payload: arrow_of(part, fields)}
    try:
        found = read_columns(Datums.of(values), record, types, (payload,))[payload]
    except (pa.ArrowException, *DATUM_FAILURES):
        return None
    return found if isinstance(found, pa.StructArray) and not found.null_count else None


def wrapper_names(writer_schema_json: str, payload: str, field: str) -> tuple[str, ...]:
    """Bare names of the branches of a field that is a union of wrappers; empty if it is something else."""
    record = _record(writer_schema_json)
    part = None if record is None else _part(record, payload)
    if part is None or field not in part.names:
        return ()
    return tuple(child.name.rpartition(".")[2] for child in part.children[part.names.index(field)].children)


@lru_cache(maxsize=64)
def _record(writer_schema_json: str) -> FlatType | None:
    if not is_metadata_schema(writer_schema_json):
        return None
    try:
        found = flat_type(json.loads(writer_schema_json), partly=True)
    except DATUM_FAILURES:
        return None
    return found if found is not None and found.kind == "record" else None


def _part(record: FlatType, payload: str) -> FlatType | None:
    if payload not in record.names:
        return None
    part = record.children[record.names.index(payload)]
    part = part.children[0] if part.kind == "union" else part
    return part if part.kind == "record" else None
