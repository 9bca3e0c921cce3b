"""Map Spark's column types to Arrow's and back, by hand; any type that is not listed is refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakedex.arrow_types import normal_schema
from lakedex.codec.comments import check_comment, with_comments
from lakedex.errors import InvalidInputError, SchemaMismatchError

__all__ = [
    "align",
    "arrow_to_spark",
    "commented",
    "declared_schema",
    "nullable",
    "quoted",
    "spark_to_arrow",
    "store_assigned",
]


_TO_ARROW: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
    NullType: pa.null(),
}


_TO_SPARK: dict[pa.DataType, type[DataType]] = {arrow: spark for spark, arrow in _TO_ARROW.items()}


_COMMENT = "comment"


_CHAR_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark keeps ``char(n)`` and ``varchar(n)`` of a column that it calls a string (``CharVarcharUtils``)."""


def spark_to_arrow(schema: StructType) -> pa.Schema:
    """Arrow schema of a Spark schema.

    Raises:
        InvalidInputError: A column has a type that a table cannot hold, or a name is there twice. A string with a
            collation is such a type: files and indexes know one order of strings, and other rows would match.
    """
    return normal_schema(pa.schema([_arrow_field(field, field.name) for field in schema.fields]))


def _arrow_field(field: StructField, path: str) -> pa.Field[Any]:
    return pa.field(field.name, _arrow_type(field.dataType, path), field.nullable)


def declared_schema(schema: StructType) -> pa.Schema:
    """Arrow schema of columns that somebody declares, with their comments.

    Lengths count here: ``CHAR(n)`` and ``VARCHAR(n)`` are refused. Spark calls such columns of a DataFrame strings, and
    remembers the length beside the type.

    Raises:
        InvalidInputError: As :func:`spark_to_arrow`, and for a column with a length.
    """
    for field in schema.fields:
        length = (field.metadata or {}).get(_CHAR_LENGTH)
        if length is not None:
            raise _unheld(field.name, str(length))
    return with_comments(spark_to_arrow(schema), dict(_comments(schema, "")))


def _comments(type_: DataType, path: str) -> Iterator[tuple[str, str]]:
    """Path → comment, as :mod:`lakedex.codec.comments` has them."""
    if isinstance(type_, StructType):
        for field in type_.fields:
            below = f"{path}.{field.name}" if path else field.name
            text = (field.metadata or {}).get(_COMMENT)
            if text and isinstance(text, str):
                yield below, check_comment(text, f"column {below!r}")
            yield from _comments(field.dataType, below)
    elif isinstance(type_, ArrayType):
        yield from _comments(type_.elementType, f"{path}.element")
    elif isinstance(type_, MapType):
        yield from _comments(type_.valueType, f"{path}.value")


def commented(type_: Any, comments: Mapping[str, str], path: str = "") -> Any:
    """A schema, or a type in it, with comments put into the metadata of its fields."""
    if isinstance(type_, StructType):
        fields = []
        for field in type_.fields:
            below = f"{path}.{field.name}" if path else field.name
            said = {_COMMENT: comments[below]} if below in comments else {}
            kind = commented(field.dataType, comments, below)
            fields.append(StructField(field.name, kind, field.nullable, {**(field.metadata or {}), **said}))
        return StructType(fields)
    if isinstance(type_, ArrayType):
        return ArrayType(commented(type_.elementType, comments, f"{path}.element"), type_.containsNull)
    if isinstance(type_, MapType):
        value = commented(type_.valueType, comments, f"{path}.value")
        return MapType(type_.keyType, value, type_.valueContainsNull)
    return type_


def _unheld(path: str, type_: str) -> InvalidInputError:
    advice = "cast it"
    if "collate" in type_.lower():
        advice = "a table compares strings by their bytes only; make it a plain STRING"
    elif "char" in type_.lower():
        advice = "a table keeps no length of a string; make it STRING"
    return InvalidInputError(f"column '{path}' is {type_}, which a table cannot hold; {advice}", column=path)


def _arrow_type(type_: DataType, path: str) -> pa.DataType:
    # By the value too: a string with a collation is of the same class.
    if type(type_) in _TO_ARROW and (not isinstance(type_, StringType) or type_ == StringType()):
        return _TO_ARROW[type(type_)]
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(type_.elementType, f"{path}.element"), type_.containsNull))
    if isinstance(type_, MapType):
        value: Any = pa.field("value", _arrow_type(type_.valueType, f"{path}.value"), type_.valueContainsNull)
        mapped: pa.DataType = pa.map_(_arrow_type(type_.keyType, f"{path}.key"), value)
        return mapped
    if isinstance(type_, StructType):
        return pa.struct([_arrow_field(field, f"{path}.{field.name}") for field in type_.fields])
    raise _unheld(path, type_.simpleString())


def arrow_to_spark(schema: pa.Schema) -> StructType:
    """Spark schema of an Arrow schema.

    Raises:
        InvalidInputError: A column has a type that Spark or a table lacks (unsigned, time of day …).
    """
    return StructType([_spark_field(field) for field in normal_schema(schema)])


def _spark_field(field: pa.Field[Any]) -> StructField:
    return StructField(field.name, _spark_type(field.type), field.nullable)


def _spark_type(type_: pa.DataType) -> DataType:
    if type_ in _TO_SPARK:
        return _TO_SPARK[type_]()
    if pa.types.is_decimal128(type_):
        return DecimalType(type_.precision, type_.scale)
    if pa.types.is_list(type_):
        return ArrayType(_spark_type(type_.value_type), type_.value_field.nullable)
    if pa.types.is_map(type_):
        return MapType(_spark_type(type_.key_type), _spark_type(type_.item_type), type_.item_field.nullable)
    return StructType([_spark_field(type_.field(i)) for i in range(type_.num_fields)])


def nullable(type_: DataType) -> DataType:
    """``type_`` with everything in it nullable, as Spark itself reads files."""
    if isinstance(type_, StructType):
        return StructType([StructField(f.name, nullable(f.dataType), True, f.metadata) for f in type_.fields])
    if isinstance(type_, ArrayType):
        return ArrayType(nullable(type_.elementType), True)
    if isinstance(type_, MapType):
        return MapType(nullable(type_.keyType), nullable(type_.valueType), True)
    return type_


def nullable_frame(frame: DataFrame) -> DataFrame:
    """A frame in which fields of structs may be null: those of a null struct are, which ``toArrow`` does not take."""
    kinds = {field.name: (field.dataType, nullable(field.dataType)) for field in frame.schema.fields}
    if all(kind == loose for kind, loose in kinds.values()):
        return frame
    return frame.select(*[F.col(quoted(name)).cast(loose).alias(name) for name, (_, loose) in kinds.items()])


# ----------------------------------------------------------------------------------------------- schema change


def align(frame: DataFrame, found: StructType, wanted: StructType) -> DataFrame:
    """Columns of ``frame``, which have the schema ``found``, as ``wanted``: missing ones null, changed ones cast.

    Names match exactly, or else by the only one that differs in case.

    Raises:
        SchemaMismatchError: A column cannot become the wanted one.
    """
    if nullable(found) == nullable(wanted):
        return frame
    columns = []
    for field in wanted.fields:
        old = _find(found, field.name)
        if old is None:
            column = F.lit(None).cast(field.dataType)
        else:
            column = _convert(frame[quoted(old.name)], old.dataType, field.dataType, field.name)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def quoted(name: str) -> str:
    """A column's name as Spark reads it back, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _find(schema: StructType, name: str) -> StructField | None:
    exact = [field for field in schema.fields if field.name == name]
    close = exact or [field for field in schema.fields if field.name.lower() == name.lower()]
    return close[0] if len(close) == 1 else None


def _convert(column: Column, found: DataType, wanted: DataType, path: str) -> Column:
    if nullable(found) == nullable(wanted):
        return column
    if isinstance(found, NullType):
        return F.lit(None).cast(wanted)
    if isinstance(wanted, StructType) and isinstance(found, StructType):
        fields = []
        for field in wanted.fields:
            old = _find(found, field.name)
            if old is None:
                child = F.lit(None).cast(field.dataType)
            else:
                child = _convert(column.getField(old.name), old.dataType, field.dataType, f"{path}.{field.name}")
            fields.append(child.alias(field.name))
        return F.when(column.isNull(), F.lit(None)).otherwise(F.struct(*fields))
    if isinstance(wanted, ArrayType) and isinstance(found, ArrayType):
        element, target = found.elementType, wanted.elementType
        return F.transform(column, lambda item: _convert(item, element, target, f"{path}.element"))
    if isinstance(wanted, MapType) and isinstance(found, MapType):
        value, target = found.valueType, wanted.valueType
        return F.transform_values(column, lambda _, item: _convert(item, value, target, f"{path}.value"))
    if isinstance(wanted, (StructType, ArrayType, MapType)) or isinstance(found, (StructType, ArrayType, MapType)):
        raise SchemaMismatchError(
            f"column '{path}' is {found.simpleString()} in some files and {wanted.simpleString()} in the table",
            column=path,
            expected=wanted.simpleString(),
            found=found.simpleString(),
        )
    return column.cast(wanted)


def store_assigned(name: str, found: DataType, kind: DataType, column: str) -> tuple[Column, Column]:
    """The values of a column as those of a table's column, and the first that does not fit, for ``MISFIT``.

    Sessions without ANSI mode wrap numbers around and make null of text. ``try_cast`` is ANSI's cast in any session.
    Fields of structs go by name; their values by the session's own cast.

    Args:
        name: the column that holds the values.
        found: its type.
        kind: the type of the table's column.
        column: its name.

    Raises:
        SchemaMismatchError: a nested value that is no value of the column: names the path.
    """
    own = F.col(quoted(name))
    if isinstance(kind, StructType | ArrayType | MapType):
        if isinstance(found, NullType):
            return F.lit(None).cast(kind), F.lit(None).cast("string")
        _require_same_fields(found, kind, column)
        return _convert(own, found, kind, column).cast(kind), F.lit(None).cast("string")
    fitted = F.expr(f"try_cast({quoted(name)} AS {kind.simpleString()})")
    value = F.coalesce(F.expr(f"try_cast({quoted(name)} AS STRING)"), F.lit("the value"))
    parts = [F.lit(column).alias("column"), F.lit(kind.simpleString()).alias("expected"), value.alias("value")]
    return fitted, F.when(own.isNotNull() & fitted.isNull(), F.to_json(F.struct(*parts)))


def _require_same_fields(found: DataType, wanted: DataType, path: str) -> None:
    if isinstance(wanted, StructType) and isinstance(found, StructType):
        pairs = [(field, _find(found, field.name)) for field in wanted.fields]
        lacking = [field.name for field, old in pairs if old is None]
        unknown = [field.name for field in found.fields if _find(wanted, field.name) is None]
        for name, what in [
            *((n, "is missing in the value") for n in lacking),
            *((n, "is not in the table") for n in unknown),
        ]:
            raise SchemaMismatchError(
                f"column '{path}': field '{path}.{name}' {what}; fields of structs go by name",
                column=f"{path}.{name}",
                expected=wanted.simpleString(),
                found=found.simpleString(),
            )
        for field, old in pairs:
            _require_same_fields(cast("StructField", old).dataType, field.dataType, f"{path}.{field.name}")
    elif isinstance(wanted, ArrayType) and isinstance(found, ArrayType):
        _require_same_fields(found.elementType, wanted.elementType, f"{path}.element")
    elif isinstance(wanted, MapType) and isinstance(found, MapType):
        _require_same_fields(found.valueType, wanted.valueType, f"{path}.value")
    elif not isinstance(found, NullType) and any(
        isinstance(one, StructType | ArrayType | MapType) for one in (found, wanted)
    ):
        raise SchemaMismatchError(
            f"column '{path}' is {wanted.simpleString()} in the table, but the value is {found.simpleString()}",
            column=path,
            expected=wanted.simpleString(),
            found=found.simpleString(),
        )
