"""The key builder of a table, and the partitions that a user names.

A value of one type can have several texts: Hudi's ``bulk_insert`` writes timestamps as ``2025-01-02 03:04:05.0`` in the
zone of its JVM (``BuiltinKeyGenerator.convertToLogicalDataType``) where its other writes, and lakedex, write the
microseconds; releases and options differ over dates and decimals, Java's over floats. No setting of the table tells.
Keys in another text are never found, so an upsert would store each row again. Stored rows tell, by the values next to
their keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.table_paths import is_partition_path
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.layout.keys import KeyGenerator, field_column, value_text
from lakedex.lossless_cast import assigned_value
from lakedex.parquet.base_file_reader import iter_base_file
from lakedex.snapshot.schema import require_columns, root_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.table_config import TableConfig
from lakedex.types import PARTITION_PATH, RECORD_KEY

__all__ = ["key_generator", "named_partitions", "require_key_ranges", "require_stored_text", "stored_rows"]


_OUR_TEXT = (
    (pa.types.is_timestamp, re.compile("-?[0-9]+")),
    (pa.types.is_date, re.compile("[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}")),
    (pa.types.is_decimal, re.compile(r"-?[0-9]+(\.[0-9]+)?")),
)
"""Floats are left out: Java's releases differ over some values only."""


_ROWS = 1024


def stored_rows(snapshot: Snapshot, fields: Iterable[str]) -> tuple[str, pa.RecordBatch] | None:
    """Path and first rows of a base file that has some fields, with their keys and paths; None if there is none."""
    columns = root_columns(snapshot.schema, fields)
    wanted = [RECORD_KEY, PARTITION_PATH, *columns]
    for base in snapshot.base_files():
        path = snapshot.files.path(base.relative_path)
        for batch in iter_base_file(snapshot.files.storage, path, wanted, batch_rows=_ROWS, size=base.size):
            if batch.num_rows and set(wanted) <= set(batch.schema.names):
                return base.relative_path, batch
            break
    return None


def require_stored_text(snapshot: Snapshot, keys: KeyGenerator, *, with_keys: bool = True) -> None:
    """Refuse to build keys or partition paths in another text than the stored ones have.

    Rows of one file are looked at, once per process, and none where all key fields are text or whole numbers.

    Args:
        snapshot: the table.
        keys: builds them.
        with_keys: keys will be built, and not only paths.

    Raises:
        UnsupportedFeatureError: names the column, the file and both texts.
    """
    with_keys = with_keys and bool(keys.record_key)
    fields = (*keys.record_key, *keys.partition_by) if with_keys else keys.partition_by
    if not any(_has_several_texts(snapshot, field) for field in fields):
        return
    cache = snapshot.cache
    if cache.stored_keys == (keys, with_keys):
        return
    found = stored_rows(snapshot, (*keys.record_key, *keys.partition_by))
    if found is not None:
        path, rows = found
        if with_keys:
            _compare(snapshot, path, rows, keys.record_key, keys.keys(rows), RECORD_KEY)
        _compare(snapshot, path, rows, keys.partition_by, keys.partition_paths(rows), PARTITION_PATH)
        cache.stored_keys = keys, with_keys


def require_key_ranges(
    snapshot: Snapshot, keys: KeyGenerator, ranges: Iterable[tuple[str, str | None, str | None]]
) -> None:
    """The same by the least and the greatest key of each file that a write looks at, where a key is one value.

    Args:
        snapshot: the table.
        keys: builds new keys.
        ranges: path of each file, and its bounds, if they are known.

    Raises:
        UnsupportedFeatureError: names the column, the file and the stored text.
    """
    if len(keys.record_key) != 1:
        return
    field, kind = keys.record_key[0], _type_of(snapshot, keys.record_key[0])
    ours = next((pattern for is_kind, pattern in _OUR_TEXT if is_kind(kind)), None)
    if ours is None:
        return
    for path, *bounds in ranges:
        for bound in bounds:
            if bound is not None and not ours.fullmatch(bound.removeprefix(f"{field}:") if keys.named_parts else bound):
                raise _other_text(snapshot, path, field, bound, None)


def _has_several_texts(snapshot: Snapshot, field: str) -> bool:
    kind = _type_of(snapshot, field)
    return not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))


def _type_of(snapshot: Snapshot, field: str) -> pa.DataType:
    none = snapshot.schema.empty_table()
    return field_column(none, field).type if none.num_columns else pa.string()


def _compare(
    snapshot: Snapshot, path: str, rows: pa.RecordBatch, fields: Sequence[str], built: pa.Array, column: str
) -> None:
    stored = rows.column(column)
    other = pc.index(pc.equal(built, stored).fill_null(False), False).as_py()
    if other >= 0:
        text = stored[other].as_py()
        one = rows.slice(other, 1)
        parts = {field: value_text(field_column(one, field))[0].as_py() for field in fields}
        several = [field for field in fields if _has_several_texts(snapshot, field)] or list(fields)
        guilty = next((field for field in several if str(parts[field]) not in text), several[0])
        raise _other_text(snapshot, path, guilty, text, built[other].as_py())


def _other_text(snapshot: Snapshot, path: str, field: str, stored: str, ours: str | None) -> UnsupportedFeatureError:
    kind = _type_of(snapshot, field)
    instead = "" if ours is None else f", not {ours!r}"
    why = ""
    if pa.types.is_timestamp(kind):
        why = ". Hudi's bulk_insert writes timestamps in local time, and the table does not say of which zone"
    return UnsupportedFeatureError(
        f"table '{snapshot.config.name}': column {field!r} ({kind}) stands in stored keys or partition paths in "
        f"another text than lakedex gives it: {stored!r}{instead} in {path}{why}. Rows would not be found by their "
        "keys, and be doubled; copy them into a new table. update and delete by a condition go by stored keys and work",
        feature=f"stored text of key column {field}",
    )


PartitionName = str | Mapping[str, Any]


def named_partitions(
    snapshot: Snapshot, keys: KeyGenerator, partitions: Sequence[PartitionName] | PartitionName
) -> tuple[str, ...]:
    """Partition paths that a user named, as paths or as values of all partition columns.

    Raises:
        InvalidInputError: a table without partitions, a path that the table cannot have, or a missing column.
    """
    name, fields = snapshot.config.name, keys.partition_by
    if not fields:
        raise InvalidInputError(f"table {name} has no partitions; use scope='table' to replace all of it")
    if isinstance(partitions, str | Mapping):
        partitions = [partitions]
    paths = dict.fromkeys(
        _checked_path(name, keys, item) if isinstance(item, str) else _path_of(snapshot, keys, item)
        for item in partitions
    )
    for path in paths:
        if not is_partition_path(path):
            raise InvalidInputError(
                f"table {name}: {path!r} is no path of a partition ({', '.join(fields)})", column=", ".join(fields)
            )
    return tuple(paths)


def _checked_path(table: str, keys: KeyGenerator, path: str) -> str:
    parts = path.split("/")
    wrong = keys.url_encode and len(parts) != len(keys.partition_by)
    if keys.hive_style:
        wrong = wrong or any(
            not part.startswith(f"{field}=") for field, part in zip(keys.partition_by, parts, strict=False)
        )
    if wrong or not path:
        shape = "/".join(f"{field}=…" if keys.hive_style else f"<{field}>" for field in keys.partition_by)
        raise InvalidInputError(
            f"table {table}: {path!r} is no partition path of it; paths read {shape}, or give the values as a dict",
            column=", ".join(keys.partition_by),
        )
    return path


def _path_of(snapshot: Snapshot, keys: KeyGenerator, values: Mapping[str, Any]) -> str:
    name, schema = snapshot.config.name, snapshot.schema
    require_columns(
        pa.schema([(field, pa.null()) for field in values]), keys.partition_by, "partition", name, where="partitions="
    )
    unknown = sorted(set(values) - set(keys.partition_by))
    if unknown:
        raise InvalidInputError(
            f"table {name}: {unknown[0]!r} is no partition column: {', '.join(keys.partition_by)}", column=unknown[0]
        )
    columns = {}
    for field in keys.partition_by:
        if schema.names and field not in schema.names:
            raise InvalidInputError(
                f"table {name}: name the partition of nested column {field!r} by its path", column=field
            )
        kind = schema.field(field).type if schema.names else None
        value = values[field]
        try:
            columns[field] = pa.array([value]) if kind is None else assigned_value(value, schema.field(field), name)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"table {name}: {value!r} is no value of partition column {field!r} ({kind})", column=field
            ) from error
    return str(keys.partition_paths(pa.table(columns))[0].as_py())


def key_generator(config: TableConfig, snapshot: Snapshot, *, with_keys: bool = True) -> KeyGenerator:
    """The table's key builder; without ``with_keys`` it will build partition paths only.

    A COMPLEX key of one field is written ``field:value`` by some releases and bare by others, and the table does not
    say which: stored keys do. A table without rows takes ``field:value``, the default of Hudi 1.1, and its only form
    from table version 9 on.

    Raises:
        UnsupportedFeatureError: stored keys are bare in a table of version 9, where Hudi does not find them any more,
            or have values in another text than the builder gives them.
    """
    named = config.key_generator.startswith("COMPLEX") or len(config.record_key_fields) > 1
    if named and len(config.record_key_fields) == 1:
        named = _stored_keys_are_named(snapshot, config.record_key_fields[0])
        if not named and config.version >= 9:
            raise UnsupportedFeatureError(
                f"table {config.name}: its keys are bare values of {config.record_key_fields[0]}, but Hudi reads "
                "and writes them as field:value in a COMPLEX table of version 9; copy its rows to a new table",
                feature="bare record keys in version 9",
            )
    keys = KeyGenerator(
        record_key=config.record_key_fields,
        partition_by=config.partition_fields,
        named_parts=named,
        hive_style=config.hive_style,
        url_encode=config.url_encode,
    )
    require_stored_text(snapshot, keys, with_keys=with_keys)
    return keys


def _stored_keys_are_named(snapshot: Snapshot, key_field: str) -> bool:
    found = stored_rows(snapshot, [key_field])
    if found is None:
        return True
    stored = found[1].column(0)
    bare = KeyGenerator(record_key=(key_field,)).keys(found[1])
    return bool(stored[0] != bare[0] and stored[0].as_py().startswith(f"{key_field}:"))
