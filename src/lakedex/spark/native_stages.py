"""Run batch maps of a large write as Spark's own expressions, so that its rows enter Python once: to be written.

A batch map costs two copies of all rows between the JVM and a Python worker. Preparing rows and sending them to their
file groups needs no Python where the frame's types are the table's, or hold them without a check, and where keys and
partition values are text, integers, booleans, dates or timestamps. What is not in that list stays a batch map:
:func:`in_spark` says so by None. Both give the same rows, but for new rows of a partition that goes to several file
groups by hash, as Spark's hash is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakedex.engine import BatchMap, SelectColumns
from lakedex.layout.keys import DEFAULT_PARTITION, EMPTY_PART, ESCAPED, NULL_PART, KeyGenerator, StoredKeys
from lakedex.lossless_cast import match_names
from lakedex.spark.schema import arrow_to_spark, nullable, quoted
from lakedex.tagging.keyed_rows import (
    FILE,
    GROUP,
    KEY,
    PARTITION,
    POSITION,
    TASK_BITS,
    PrepareRows,
    requires_values,
)
from lakedex.types import MISFIT, PARTITION_PATH, RECORD_KEY
from lakedex.write.file_assignment import AssignFileGroups, InsertBuckets

__all__ = ["in_spark"]


ToSpark: TypeAlias = Callable[[pa.Table], DataFrame]
"""Makes a DataFrame of a small table."""


_ROW_BITS = 33
"""``monotonically_increasing_id`` is the partition's number, then this many bits of the row's."""


_NARROWER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int32(): (pa.int8(), pa.int16()),
    pa.int64(): (pa.int8(), pa.int16(), pa.int32()),
    pa.float64(): (pa.float32(),),
}
"""Types whose values all have an equal in another."""


def in_spark(
    df: DataFrame, found: pa.Schema, fn: BatchMap, to_spark: ToSpark, *, case_sensitive: bool
) -> DataFrame | None:
    """The result of a batch map without Python workers; None if it needs them.

    Args:
        df: its rows.
        found: their schema outside of Spark.
        fn: the batch map.
        to_spark: makes a DataFrame of a few rows, to be joined.
        case_sensitive: whether Spark tells names apart that differ in case.
    """
    alike = (len({name.lower() for name in own}) < len(own) for own in (found.names, fn.schema.names))
    if not case_sensitive and any(alike):
        return None
    match fn:
        case SelectColumns():
            return df.select(*_columns(fn.schema.names))
        case PrepareRows():
            return _prepared(df, found, fn)
        case AssignFileGroups():
            return _grouped(df, found, fn, to_spark)
    return None


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


# ------------------------------------------------------------------------------------------------------- preparing rows


def _prepared(df: DataFrame, found: pa.Schema, fn: PrepareRows) -> DataFrame | None:
    """Rows in the table's types, with key, partition path and position."""
    target, keys = fn.assignment.target, fn.keys
    if MISFIT in found.names or any(_is_required(field, keys) for field in target):
        return None
    matches = match_names(target.names, found.names, case_sensitive=fn.assignment.case_sensitive)
    theirs = {ours: name for name, ours in matches.items()}
    columns = []
    for field in target:
        column = F.lit(None)
        if field.name in theirs:
            kind = found.field(theirs[field.name]).type
            column = F.col(quoted(theirs[field.name]))
            if _spark_type(kind) == _spark_type(field.type):
                columns.append(column.alias(field.name))
                continue
            if kind not in _NARROWER.get(field.type, ()) and not pa.types.is_null(kind):
                return None
        columns.append(column.cast(_spark_type(field.type)).alias(field.name))
    if isinstance(keys, StoredKeys):
        if RECORD_KEY not in found.names or PARTITION_PATH not in found.names:
            return None
        key, path = _columns([RECORD_KEY, PARTITION_PATH])
        return df.select(key.alias(KEY), path.alias(PARTITION), _position().alias(POSITION), *columns)
    made = _key(keys, target), _path(keys, target)
    if made[0] is None or made[1] is None:
        return None
    rows = df.select(_position().alias(POSITION), *columns)
    return rows.select(made[0].alias(KEY), made[1].alias(PARTITION), *_columns([POSITION, *target.names]))


def _is_required(field: pa.Field, keys: KeyGenerator | StoredKeys) -> bool:
    return requires_values(field.type) or not (field.nullable or field.name in keys.record_key)


def _spark_type(kind: pa.DataType) -> DataType:
    """Spark's type with everything in it nullable, as frames and tables differ in what they say of that."""
    return nullable(arrow_to_spark(pa.schema([("value", kind)])).fields[0].dataType)


def _position() -> Column:
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    return F.shiftleft(F.spark_partition_id().cast("bigint"), TASK_BITS) + row


def _key(keys: KeyGenerator, target: pa.Schema) -> Column | None:
    """:meth:`lakedex.layout.keys.KeyGenerator.keys`."""
    if not keys.record_key:
        return F.lit(None).cast("string")
    texts = [_text(field, target) for field in keys.record_key]
    found = [text for text in texts if text is not None]
    if len(found) < len(texts):
        return None
    if not keys.named_parts:
        return F.when(found[0] != "", found[0])
    parts: list[Column] = []
    given = F.lit(False)
    for field, text in zip(keys.record_key, found, strict=True):
        given = given | (text.isNotNull() & (text != ""))
        shown = F.when(text.isNull(), F.lit(NULL_PART)).when(text == "", F.lit(EMPTY_PART)).otherwise(text)
        parts += [F.lit(f"{',' if parts else ''}{field}:"), shown]
    return F.when(given, F.concat(*parts))


def _path(keys: KeyGenerator, target: pa.Schema) -> Column | None:
    """:meth:`lakedex.layout.keys.KeyGenerator.partition_paths`."""
    if not keys.partition_by:
        return F.lit("")
    parts: list[Column] = []
    for field in keys.partition_by:
        text = _text(field, target)
        if text is None:
            return None
        value = _escaped(text) if keys.url_encode else text
        part = F.when(text.isNull() | (text == ""), F.lit(DEFAULT_PARTITION)).otherwise(value)
        parts += [F.lit(f"{'/' if parts else ''}{f'{field}=' if keys.hive_style else ''}"), part]
    return F.concat(*parts)


def _text(field: str, target: pa.Schema) -> Column | None:
    """:func:`lakedex.layout.keys.value_text` of a column, or of a struct's field; None for a type that needs Python."""
    if field in target.names:
        column, kind = F.col(quoted(field)), target.field(field).type
    else:
        head, *path = field.split(".")
        if head not in target.names:
            return None
        column, kind = F.col(quoted(head)), target.field(head).type
        for name in path:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                return None
            column, kind = column.getField(name), kind.field(name).type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast("string")
    if pa.types.is_date(kind):
        # Java has a sign before years of five digits.
        return F.regexp_replace(column.cast("string"), r"^\+", "")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return F.unix_micros(column).cast("string")
    return None


def _escaped(text: Column) -> Column:
    """:func:`lakedex.layout.keys.escape` of values that are not empty."""
    parts = F.regexp_extract_all(text, F.lit(f"[^{ESCAPED[1:]}+|{ESCAPED}"), F.lit(0))
    replaced = F.transform(
        parts, lambda part: F.when(part.rlike(ESCAPED), F.concat(F.lit("%"), F.hex(part))).otherwise(part)
    )
    return F.when(text.rlike(ESCAPED), F.array_join(replaced, "")).otherwise(text)


# --------------------------------------------------------------------------------------------------------- file groups


_NUMBER_BYTES = 8
"""Bytes of a key that say its place among others (:func:`lakedex.write.file_assignment.key_numbers`)."""


_OF_FILE, _OF_PATH = "__lakedex_group_of_file", "__lakedex_groups_of_path"


def _grouped(df: DataFrame, found: pa.Schema, fn: AssignFileGroups, to_spark: ToSpark) -> DataFrame:
    """Rows with the number of the group that they go to; without those that go nowhere."""
    group = F.lit(-1)
    if fn.inserts:
        df = df.join(F.broadcast(to_spark(_buckets(fn.inserts))), PARTITION, "left")
        group = F.coalesce(_bucket(F.col(KEY), F.col(_OF_PATH)), F.lit(-1))
    if FILE in found.names:
        numbers = pa.table(
            {FILE: pa.array(list(fn.by_file), pa.int32()), _OF_FILE: pa.array(list(fn.by_file.values()), pa.int32())}
        )
        df = df.join(F.broadcast(to_spark(numbers)), FILE, "left")
        group = F.when(F.col(FILE) >= 0, F.col(_OF_FILE)).otherwise(group)
    df = df.withColumn(GROUP, group.cast("int")).filter(F.col(GROUP) >= 0)
    return df.select(*_columns(fn.schema.names))


def _buckets(inserts: Mapping[str, InsertBuckets]) -> pa.Table:
    """Groups of each partition, with the first value of each but the first: of a hash, or of bytes of keys."""
    rows = [
        {
            "groups": list(own.groups),
            "skip": own.skip,
            "hashes": [] if own.skip >= 0 else list(own.edges),
            # Bytes that a key lacks count as zero.
            "texts": [edge.to_bytes(_NUMBER_BYTES, "big").rstrip(b"\0") for edge in own.edges] if own.skip >= 0 else [],
        }
        for own in inserts.values()
    ]
    kind = pa.struct(
        [
            ("groups", pa.list_(pa.int32())),
            ("skip", pa.int32()),
            ("hashes", pa.list_(pa.int64())),
            ("texts", pa.list_(pa.binary())),
        ]
    )
    return pa.table({PARTITION: pa.array(list(inserts), pa.string()), _OF_PATH: pa.array(rows, kind)})


def _bucket(key: Column, own: Column) -> Column:
    """The group of a new row: the only one, or that of its key's hash or place among keys; null for none."""
    number = F.pmod(F.xxhash64(key), F.lit(1 << 31))
    tail = F.encode(key, "UTF-8").substr(own["skip"] + 1, F.lit(_NUMBER_BYTES))
    by_hash = F.size(F.filter(own["hashes"], lambda edge: edge <= number))
    by_text = F.size(F.filter(own["texts"], lambda edge: edge <= tail))
    place = F.when(F.size(own["groups"]) == 1, F.lit(0)).when(own["skip"] >= 0, by_text).otherwise(by_hash)
    return F.get(own["groups"], place)
