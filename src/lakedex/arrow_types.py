"""Convert users' rows to types that tables can store, and hold rows on the driver in partitions.

Nothing is cast. Arrow infers types only for Python objects of pandas columns, and would then shift datetimes without a
zone among those with one, and truncate datetimes among dates. Such columns are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow.interchange import from_dataframe

from lakedex.errors import InvalidInputError

__all__ = [
    "LISTS",
    "ROWS_PER_PARTITION",
    "ArrowFrame",
    "as_table",
    "conform",
    "has_required",
    "is_pandas",
    "normal_schema",
    "require_one_time",
    "split",
]


def as_table(data: Any) -> pa.Table:
    """Read a user's rows as an Arrow table, in their own types.

    Args:
        data: pandas frame, a ``pyarrow`` table, record batch, reader, dataset or scanner, a list or an iterator of
            batches or tables, a polars ``LazyFrame``, or anything else that exports an Arrow stream, an Arrow array of
            structs (polars, duckdb …) or the dataframe interchange protocol.

    Raises:
        InvalidInputError: ``data`` is not a frame, or Arrow cannot read it.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if isinstance(data, pa.RecordBatchReader):
            return data.read_all()
        if isinstance(data, Iterator | list | tuple):
            return _joined(data)
        package = type(data).__module__.partition(".")[0]
        if package == "pyarrow" and hasattr(data, "to_table"):
            return data.to_table()  # A dataset or a scanner.
        if package == "polars" and hasattr(data, "collect"):
            return pa.table(data.collect(engine="streaming"))
        if is_pandas(data):
            return _pandas_table(data)
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            return pa.table(data)
        if hasattr(data, "__dataframe__"):
            return from_dataframe(data)
    except (pa.ArrowException, ArithmeticError) as error:
        raise InvalidInputError(f"the frame cannot be read as Arrow: {error}") from error
    if package == "pyspark":
        raise InvalidInputError(
            "a Spark DataFrame needs a table that was opened with Spark: Table.open(path, spark=spark)"
        )
    raise InvalidInputError(
        f"{type(data).__name__} is not a frame: pass a list of dicts, a Spark, pandas or polars DataFrame, a "
        "pyarrow.Table, batches or a dataset, or an object that exports Arrow"
    )


def _joined(parts: Iterable[Any]) -> pa.Table:
    """Batches or tables put together; they have the same columns."""
    tables = []
    for place, part in enumerate(parts):
        if not isinstance(part, pa.RecordBatch | pa.Table):
            raise InvalidInputError(
                f"element {place} of the rows is of type {type(part).__name__}: a list has dicts, or Arrow batches or "
                "tables"
            )
        tables.append(pa.table(part))
    if not tables:
        raise InvalidInputError("a list without batches has no columns; nothing is to be written")
    return pa.concat_tables(tables)


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """Convert a schema to types of tables: microsecond timestamps, strings, signed integers, no dictionaries.

    A column without a type keeps Arrow's ``null``.

    Raises:
        InvalidInputError: A column's type is unknown or cannot be stored; ``column`` names it.
    """
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise InvalidInputError(f"column '{name}' occurs twice; rename one", column=name)
        seen.add(name)
    return pa.schema([f.with_type(_normal_type(f.type, f.name)) for f in schema.remove_metadata()])


_SAME = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_null,
)


_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date64, pa.date32()),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_uint8, pa.int32()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.int64()),
)


LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
"""Tests for the kinds of lists that a user\'s rows may have."""


_MAX_DIGITS = 38


def _normal_type(type_: pa.DataType, column: str) -> pa.DataType:
    if any(same(type_) for same in _SAME):
        return type_
    for matches, plain in _SIMPLE:
        if matches(type_):
            return plain
    if pa.types.is_decimal(type_):
        digits = type_.precision - min(type_.scale, 0)
        return pa.decimal128(min(digits, _MAX_DIGITS), max(type_.scale, 0))
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC" if type_.tz is not None else None)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _normal_type(type_.value_type, column)
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name == "pandas.period":
            raise InvalidInputError(f"column {column!r} has pandas periods; cast them to timestamps", column=column)
        is_uuid = type_.extension_name == "arrow.uuid"
        return pa.string() if is_uuid else _normal_type(type_.storage_type, column)
    if pa.types.is_nested(type_):
        return _normal_nested(type_, column)
    raise InvalidInputError(f"column '{column}' is {type_}, which a table cannot hold; cast it", column=column)


def _normal_nested(type_: pa.DataType, column: str) -> pa.DataType:
    if any(matches(type_) for matches in LISTS):
        return pa.list_(pa.field("element", _normal_type(type_.value_type, f"{column}.element")))
    if pa.types.is_map(type_):
        # Of maps that are all empty nothing is known but that Arrow's keys are never null.
        key = pa.string() if pa.types.is_null(type_.key_type) else _normal_type(type_.key_type, f"{column}.key")
        return pa.map_(key, _normal_type(type_.item_type, f"{column}.value"))
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return pa.struct([f.with_type(_normal_type(f.type, f"{column}.{f.name}")) for f in fields])
    raise InvalidInputError(f"column '{column}' is {type_}, which a table cannot hold; cast it", column=column)


# --------------------------------------------------------------------------------------------------------- pandas


def is_pandas(data: object) -> bool:
    """Whether rows are a frame of pandas."""
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")


def _pandas_table(data: Any) -> pa.Table:
    """Columns of a pandas frame, preceded by the named levels of its index."""
    levels = [name for name in data.index.names if name is not None]
    columns = {str(name): data.index.get_level_values(name) for name in levels}
    for place, label in enumerate(data.columns):
        name = str(label)
        if name in columns:
            where = "a column and a level of the index" if label in levels else "two columns"
            raise InvalidInputError(f"the pandas frame has {where} named {name!r}; rename one", column=name)
        columns[name] = data.iloc[:, place]
    return pa.table({name: _pandas_column(name, column) for name, column in columns.items()})


def _pandas_column(name: str, column: Any) -> Any:
    try:
        found = pa.array(column, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(
            f"column {name!r} of the pandas frame cannot be read as values of one type: {error}; cast it", column=name
        ) from error
    if str(column.dtype) == "object":
        require_one_time(name, column, found.type, "of the pandas frame")
    return found


def require_one_time(name: str, values: Iterable[Any], kind: pa.DataType, whose: str) -> None:
    """Refuse Python objects of a column that Arrow has read with a loss: dates among datetimes, zones, nanoseconds.

    Args:
        name: The column.
        values: Its objects.
        kind: The type that Arrow found.
        whose: What the column is part of, for errors.

    Raises:
        InvalidInputError: Names the column and what it mixes.
    """
    if not _has_time(kind):
        return
    kinds = sorted(set(_time_kinds(values)))
    if "nanoseconds" in kinds:
        raise InvalidInputError(
            f"column {name!r} {whose} has Timestamps with nanoseconds among its objects, which "
            "would be truncated; convert it to datetime64[ns] and round it",
            column=name,
        )
    if len(kinds) > 1:
        raise InvalidInputError(
            f"column {name!r} {whose} mixes {' and '.join(kinds)}; convert it to one of them", column=name
        )


def _has_time(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
    return any(_has_time(kind.field(place).type) for place in range(kind.num_fields))


def _time_kinds(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, datetime | np.datetime64):
            if not pa.scalar(value, from_pandas=True).is_valid:
                continue
            if getattr(value, "nanosecond", 0):
                yield "nanoseconds"
            yield (
                "datetimes without a time zone"
                if getattr(value, "tzinfo", None) is None
                else "datetimes with a time zone"
            )
        elif isinstance(value, date):
            yield "dates"
        elif isinstance(value, dict):
            yield from _time_kinds(value.values())
        elif isinstance(value, list | tuple | np.ndarray):
            yield from _time_kinds(value)


ROWS_PER_PARTITION = 65_536
"""Fewer rows are not worth a second thread."""


@dataclass(frozen=True, slots=True)
class ArrowFrame:
    """Rows on the driver, as one table per partition (at least one).

    ``exchanged`` marks partitions made by :func:`exchange`: each is a task of its own, not an arbitrary slice.
    """

    partitions: tuple[pa.Table, ...]
    schema: pa.Schema
    exchanged: bool = False

    @classmethod
    def of(cls, table: pa.Table, threads: int = 1) -> ArrowFrame:
        """Slice a table for at most ``threads`` threads."""
        parts = max(1, min(threads, table.num_rows // ROWS_PER_PARTITION))
        return cls(split(table, parts), table.schema)

    @property
    def num_rows(self) -> int:
        """Number of rows in all partitions."""
        return sum(part.num_rows for part in self.partitions)

    @property
    def row_bytes(self) -> float:
        """Bytes that a row takes on average; 0 for no rows."""
        return float(sum(part.nbytes for part in self.partitions)) / max(self.num_rows, 1)

    def table(self) -> pa.Table:
        """All rows, in partition order."""
        return self.partitions[0] if len(self.partitions) == 1 else pa.concat_tables(self.partitions)


def split(table: pa.Table, parts: int) -> tuple[pa.Table, ...]:
    """Cut a table into ``parts`` zero-copy slices of about equal length."""
    edges = np.linspace(0, table.num_rows, parts + 1).astype(np.int64)
    return tuple(table.slice(int(a), int(b - a)) for a, b in pairwise(edges))


# ------------------------------------------------------------------------------------------------------- types


def _cast(array: Any, type_: pa.DataType) -> Any:
    if array.type == type_:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if not has_required(type_):
        return array.cast(type_)
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_cast_nested(chunk, type_) for chunk in array.chunks], type_)
    return _cast_nested(array, type_)


def has_required(type_: pa.DataType) -> bool:
    """Whether a struct in a type has a field that is never null."""
    if not pa.types.is_nested(type_):
        return False
    parts = [type_.field(i) for i in range(type_.num_fields)]
    return any((pa.types.is_struct(type_) and not part.nullable) or has_required(part.type) for part in parts)


def _cast_nested(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast to a type with required fields. Arrow's cast treats a null struct as one with null fields."""
    if array.type == type_:
        return array
    compact = pa.concat_arrays([array]) if array.offset else array
    if pa.types.is_struct(type_) and [f.name for f in array.type] == [f.name for f in type_]:
        parts = [_cast(compact.field(place), part.type) for place, part in enumerate(type_)]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=compact.is_null())
    if pa.types.is_list(type_) and pa.types.is_list(array.type):
        values = _cast(compact.values, type_.value_type)
        return pa.ListArray.from_arrays(compact.offsets, values, type=type_, mask=compact.is_null())
    if pa.types.is_map(type_) and pa.types.is_map(array.type):
        keys, items = _cast(compact.keys, type_.key_type), _cast(compact.items, type_.item_type)
        return pa.MapArray.from_arrays(compact.offsets, keys, items, type=type_, mask=compact.is_null())
    return array.cast(type_)


B = TypeVar("B", pa.Table, pa.RecordBatch)


def conform(batch: B, schema: pa.Schema) -> B:
    """Convert a record batch or table to exactly the columns of ``schema``, in its order and types.

    Spark returns timestamps in the session's time zone and has its own names for parts of nested types.
    """
    if batch.schema.equals(schema, check_metadata=False):
        return batch
    columns = [_cast(batch.column(field.name), field.type) for field in schema]
    return type(batch).from_arrays(columns, schema=schema)
