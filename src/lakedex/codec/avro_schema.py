"""Convert table schemas between Arrow and Avro, and refuse Avro schemas that are too costly to read by.

Converted schemas have the names and shapes that Hudi's Spark writer gives them:

    ======================  ==================================================================
    record                  ``<table>_record`` in namespace ``hoodie.<table>``
    nullable column         ``["null", T]`` with default null
    struct in column *c*    record *c* in the namespace of the record around it
    decimal in column *c*   fixed ``fixed`` in namespace ``<record around>.c``, as short as can be
    date, timestamp         int ``date``, long ``timestamp-*`` or ``local-timestamp-*``
    list, map               array and map; a struct or decimal inside is named after the column
    ======================  ==================================================================

In Hudi: ``AvroConversionUtils.convertStructTypeToAvroSchema``, ``AvroSchemaUtils.getAvroRecordQualifiedName``,
``HoodieAvroUtils.addMetadataFields`` (1.1.1). Unsupported: unions of several types and recursive records.

Schemas come with the bytes, in containers, HFiles and log blocks. fastavro follows them in C without a limit, so a
damaged schema could exhaust memory, time or the stack:

* a record that contains itself overflows the stack, since the reader recurses once per level;
* lists and maps of values without bytes (``null``, a record of nulls, a ``fixed`` of size 0) declare a count that the
  remaining bytes do not bound;
* named types that each use the next one several times let a short schema describe millions of values.

:func:`check_shape` bounds the last two by the number of types that the schema spells out, so a table may have any
number of columns: the null of a nullable column takes the byte of its union branch. Schemas of Hudi and Spark stay far
below the limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from lakedex.codec.vectors import vector_type
from lakedex.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lakedex.types import META_COLUMNS

__all__ = [
    "PRIMITIVES",
    "arrow_to_avro",
    "avro_to_arrow",
    "check_names",
    "check_shape",
    "full_name",
    "sanitize_name",
    "with_meta_fields",
]


MAX_DEPTH = 100


MAX_TYPES = 1 << 16
"""Limit of types in a schema with all names expanded; above it, a schema must spell out a fixed share of them."""


MAX_TYPES_PER_NODE = 4


MAX_WITHOUT_BYTES = 256
"""Limit of expanded types whose values take no bytes: each adds a value to a datum without adding a byte."""


_FIXED_BYTES = {"null": 0, "float": 4, "double": 8}


class _Shape(NamedTuple):
    """Fewest bytes of a value, types within, those of them without bytes, and levels."""

    size: int
    types: int
    empty: int
    depth: int


def check_shape(schema: Any) -> int:
    """Refuse a schema whose values could cost far more than the bytes that encode them.

    Anything that is not a schema is left to the parser.

    Returns:
        Least number of bytes of a value. It is 0 only if values of this type never take any.

    Raises:
        ValueError: The schema exceeds a limit; the message names it.
    """
    return _Walk({}).shape(schema, "", 0).size


class _Walk:
    """Walk over one schema; ``named`` maps the types met so far, with None for a record that is still open."""

    __slots__ = ("named", "nodes")

    def __init__(self, named: dict[str, _Shape | None]) -> None:
        self.named = named
        self.nodes = 0

    def shape(self, node: Any, namespace: str, level: int) -> _Shape:
        self.nodes += 1
        if level > MAX_DEPTH:
            raise ValueError(f"the schema has more than {MAX_DEPTH} levels")
        found = self._shape(node, namespace, level)
        if found.depth > MAX_DEPTH:
            raise ValueError(f"the schema has more than {MAX_DEPTH} levels")
        if found.types > max(MAX_TYPES, MAX_TYPES_PER_NODE * self.nodes):
            raise ValueError(f"the schema has {self.nodes} nodes but describes {found.types} types")
        if found.empty > MAX_WITHOUT_BYTES:
            raise ValueError(f"the schema has more than {MAX_WITHOUT_BYTES} types whose values take no bytes")
        return found

    def _shape(self, node: Any, namespace: str, level: int) -> _Shape:
        if isinstance(node, list):
            branches = [self.shape(branch, namespace, level + 1) for branch in node]
            found = _around(branches, 1 + min((branch.size for branch in branches), default=0), 0)
            # The branch number takes one byte, and only one branch is present.
            return found._replace(empty=max((branch.empty for branch in branches if branch.types > 1), default=0))
        if isinstance(node, str):
            return self._by_name(node, namespace)
        if not isinstance(node, dict):
            return _leaf(1)
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.shape(kind, namespace, level + 1)
        if kind in ("array", "map"):
            element = self.shape(node.get("items" if kind == "array" else "values"), namespace, level + 1)
            if kind == "array" and not element.size:
                raise ValueError("the schema has a list of values without bytes")
            if kind == "map" and not element.size:
                raise ValueError("the schema has a map of values without bytes")
            return _around([element], 1, 0)
        if kind in ("record", "error", "fixed"):
            return self._named_type(node, kind, namespace, level)
        found = _leaf(1) if kind == "enum" else self._by_name(kind, namespace)
        if kind == "enum":
            self.named[full_name(node, namespace)] = found
        return found

    def _named_type(self, node: dict[str, Any], kind: str, namespace: str, level: int) -> _Shape:
        name = full_name(node, namespace)
        if kind == "fixed":
            size = node.get("size")
            found = _leaf(min(size, 1 << 40) if isinstance(size, int) and size > 0 else 0)
        else:
            self.named[name] = None
            inner = name.rpartition(".")[0]
            fields = node.get("fields")
            own = [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
            parts = [self.shape(part, inner, level + 1) for part in own]
            size = min(sum(part.size for part in parts), 1 << 40)
            found = _around(parts, size, 0 if parts else 1)
        self.named[name] = found
        return found

    def _by_name(self, name: Any, namespace: str) -> _Shape:
        if not isinstance(name, str):
            return _leaf(1)
        for full in (name, f"{namespace}.{name}"):
            if full in self.named:
                found = self.named[full]
                if found is None:
                    raise ValueError(f"the record {full!r} contains itself")
                return found
        return _leaf(_FIXED_BYTES.get(name, 1))


def _leaf(size: int) -> _Shape:
    return _Shape(size, 1, int(size == 0), 1)


def _around(parts: list[_Shape], size: int, empty: int) -> _Shape:
    return _Shape(
        size,
        1 + sum(part.types for part in parts),
        empty + sum(part.empty for part in parts),
        1 + max((part.depth for part in parts), default=0),
    )


def full_name(node: dict[str, Any], namespace: str) -> str:
    """Full name of a named type: the name if it has a dot, else prefixed by its own or the enclosing namespace."""
    name = str(node.get("name"))
    if "." in name:
        return name
    own = node.get("namespace", namespace)
    return f"{own}.{name}" if own else name


AvroType = str | dict[str, Any] | list[Any]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_NAME_RULE = "Avro names start with a letter A-Z, a-z or _, followed by letters, digits and _"


_INVALID = re.compile(r"[^A-Za-z0-9_]")


_INVALID_FIRST = re.compile(r"[^A-Za-z_]")


_MASK = "__"


_MAX_PRECISION = 38


_MAX_DEPTH = 100


def sanitize_name(name: str) -> str:
    """Convert a table's name into a valid Avro name (``HoodieAvroUtils.sanitizeName``)."""
    if name and _INVALID_FIRST.match(name):
        name = _MASK + name[1:]
    # Java replaces UTF-16 units, so a supplementary character yields two.
    return _INVALID.sub(lambda found: _MASK * (1 + (found.group() > "\uffff")), name)


def _is_java_name(name: str) -> bool:
    plain = name.replace("_", "a")
    return plain[:1].isalpha() and all(char.isalpha() or char.isdecimal() for char in plain)


def check_names(schema: pa.Schema, *, is_new: bool = True) -> None:
    """Refuse columns (also nested ones) whose names are invalid in Avro.

    Args:
        schema: the columns.
        is_new: False if a table has them already: Java's Avro takes letters and decimal digits of any script
            (``Schema.validateName``), though hudi-rs does not.

    Raises:
        InvalidInputError: ``column`` names the first of them.
    """
    _check_fields(list(schema), "", _NAME.fullmatch if is_new else _is_java_name)


def _check_fields(fields: Iterable[pa.Field[Any]], parent: str, is_name: Callable[[str], object]) -> None:
    seen = set()
    for field in fields:
        path = f"{parent}.{field.name}" if parent else field.name
        if not is_name(field.name):
            raise InvalidInputError(f"column {path!r} has a name that is invalid in Avro: {_NAME_RULE}", column=path)
        if field.name in seen:
            raise InvalidInputError(f"column {path!r} occurs twice; rename one of them", column=path)
        seen.add(field.name)
        for struct in _structs(field.type):
            _check_fields([struct.field(i) for i in range(struct.num_fields)], path, is_name)


def _structs(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Structs in a type outside of other structs."""
    if pa.types.is_struct(kind):
        yield kind
    elif pa.types.is_map(kind):
        yield from _structs(kind.item_type)
    elif (item := _item_field(kind)) is not None:
        yield from _structs(item.type)


def _item_field(kind: pa.DataType) -> pa.Field[Any] | None:
    """Element field of a list type; None for other types."""
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return kind.value_field
    return None


# ------------------------------------------------------------------------------------------------ to Avro


def arrow_to_avro(schema: pa.Schema, table_name: str) -> dict[str, Any]:
    """Avro schema of a table, without meta fields, as stored in ``extraMetadata["schema"]`` of a commit.

    Raises:
        InvalidInputError: A column whose name or type Avro or Hudi cannot store; ``column`` names it.
    """
    check_names(schema, is_new=False)
    table = sanitize_name(table_name)
    return _record(list(schema), f"{table}_record", f"hoodie.{table}", "")


def with_meta_fields(avro_schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with Hudi's five meta fields in front (replacing any that are there)."""
    meta = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
    own = [field for field in avro_schema["fields"] if field["name"] not in META_COLUMNS]
    return {**avro_schema, "fields": meta + own}


def _record(fields: Iterable[pa.Field[Any]], name: str, namespace: str, parent: str) -> dict[str, Any]:
    inner = f"{namespace}.{name}"
    converted: list[dict[str, Any]] = []
    for field in fields:
        path = f"{parent}.{field.name}" if parent else field.name
        kind = _to_avro(field.type, field.name, inner, path)
        if field.nullable:
            converted.append({"name": field.name, "type": ["null", kind], "default": None})
        else:
            converted.append({"name": field.name, "type": kind})
    return {"type": "record", "name": name, "namespace": namespace, "fields": converted}


def _to_avro(kind: pa.DataType, name: str, namespace: str, path: str) -> AvroType:
    for test, avro in _PLAIN:
        if test(kind):
            return avro
    if pa.types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(kind) and kind.unit in _UNIT_NAMES:
        prefix = "local-timestamp" if kind.tz is None else "timestamp"
        return {"type": "long", "logicalType": f"{prefix}-{_UNIT_NAMES[kind.unit]}"}
    if pa.types.is_time(kind) and kind.unit in _UNIT_NAMES:
        return {"type": "int" if kind.unit == "ms" else "long", "logicalType": f"time-{_UNIT_NAMES[kind.unit]}"}
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": _decimal_size(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pa.types.is_dictionary(kind):
        return _to_avro(kind.value_type, name, namespace, path)
    if pa.types.is_struct(kind) and kind.num_fields:
        return _record([kind.field(i) for i in range(kind.num_fields)], name, namespace, path)
    if (item := _item_field(kind)) is not None:
        return {"type": "array", "items": _element(item, name, namespace, path)}
    if pa.types.is_map(kind):
        if not (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)):
            raise InvalidInputError(f"column {path!r}: map keys must be strings, not {kind.key_type}", column=path)
        return {"type": "map", "values": _element(kind.item_field, name, namespace, path)}
    raise InvalidInputError(f"column {path!r}: a Hudi table cannot store {kind}{_advice(kind)}", column=path)


def _element(field: pa.Field[Any], name: str, namespace: str, path: str) -> AvroType:
    kind = _to_avro(field.type, name, namespace, path)
    return ["null", kind] if field.nullable else kind


def _decimal_size(precision: int) -> int:
    """Least number of bytes for any signed number of that many digits."""
    largest: int = 10**precision - 1
    return largest.bit_length() // 8 + 1


def _advice(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "; cast it to timestamp[us]"
    if pa.types.is_unsigned_integer(kind):
        return "; cast it to a signed integer"
    if pa.types.is_null(kind):
        return "; give it a type"
    return ""


_UNIT_NAMES = {"ms": "millis", "us": "micros"}


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "int"),
    (pa.types.is_int16, "int"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
)


# ------------------------------------------------------------------------------------------------ from Avro


def avro_to_arrow(avro_schema: dict[str, Any], path: str = "") -> pa.Schema:
    """Arrow schema of a record. Timestamps have the time zone UTC, local timestamps have none.

    Args:
        avro_schema: A record's schema.
        path: File that the schema comes from, for errors.

    Raises:
        CorruptFileError: ``avro_schema`` is not the schema of a record.
        UnsupportedFeatureError: The schema has a type without counterpart in Arrow; ``feature`` names it.
    """
    try:
        kind, _ = _FromAvro().convert(avro_schema, "", 0)
        check_shape(avro_schema)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, UnsupportedFeatureError):
            raise
        raise CorruptFileError(path, 0, "the Avro schema of a record", f"{type(error).__name__}: {error}") from error
    if not pa.types.is_struct(kind):
        raise CorruptFileError(path, 0, "the Avro schema of a record", str(kind))
    return pa.schema([kind.field(i) for i in range(kind.num_fields)])


class _FromAvro:
    """Converter of one schema; remembers its named types."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}

    def convert(self, node: Any, namespace: str, depth: int) -> tuple[pa.DataType, bool]:
        """Arrow type and whether it is nullable."""
        if depth > _MAX_DEPTH:
            raise UnsupportedFeatureError(f"Avro schema nested deeper than {_MAX_DEPTH}", feature="deep nesting")
        if isinstance(node, list):
            return self._union(node, namespace, depth)
        if isinstance(node, str):
            return self._by_name(node, namespace), node == "null"
        kind = node["type"]
        if isinstance(kind, dict | list):
            return self.convert(kind, namespace, depth + 1)
        if kind in ("record", "error"):
            return self._record(node, namespace, depth), False
        if kind == "array":
            items, nullable = self.convert(node["items"], namespace, depth + 1)
            return pa.list_(pa.field("element", items, nullable)), False
        if kind == "map":
            values, nullable = self.convert(node["values"], namespace, depth + 1)
            value = pa.field("value", values, nullable)
            return pa.map_(pa.string(), value), False
        if kind == "enum":
            return self._remember(node, namespace, pa.string()), False
        if kind == "fixed":
            return self._remember(
                node, namespace, _logical(node) or vector_type(node) or pa.binary(int(node["size"]))
            ), False
        return _logical(node) or self._by_name(kind, namespace), kind == "null"

    def _union(self, branches: list[Any], namespace: str, depth: int) -> tuple[pa.DataType, bool]:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise UnsupportedFeatureError(f"Avro union of {len(others)} types", feature="Avro union")
        kind, nullable = self.convert(others[0], namespace, depth + 1)
        return kind, nullable or len(others) < len(branches)

    def _record(self, node: dict[str, Any], namespace: str, depth: int) -> pa.DataType:
        name = full_name(node, namespace)
        self._named[name] = None
        inner = name.rpartition(".")[0]
        fields = []
        for field in node["fields"]:
            kind, nullable = self.convert(field["type"], inner, depth + 1)
            fields.append(pa.field(field["name"], kind, nullable))
        return self._remember(node, namespace, pa.struct(fields))

    def _remember(self, node: dict[str, Any], namespace: str, kind: pa.DataType) -> pa.DataType:
        self._named[full_name(node, namespace)] = kind
        return kind

    def _by_name(self, name: str, namespace: str) -> pa.DataType:
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        for full in (name, f"{namespace}.{name}"):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise UnsupportedFeatureError(
                        f"Avro record {full} contains itself", feature="recursive Avro record"
                    )
                return found
        raise ValueError(f"unknown Avro type {name!r}")


def _logical(node: dict[str, Any]) -> pa.DataType | None:
    """Arrow type of a logical type; unknown or misplaced ones are ignored, as Avro requires."""
    logical = node.get("logicalType")
    if logical == "decimal" and node["type"] in ("bytes", "fixed"):
        precision, scale = int(node["precision"]), int(node.get("scale", 0))
        if precision > _MAX_PRECISION:
            raise UnsupportedFeatureError(f"decimal of {precision} digits", feature="decimal256")
        return pa.decimal128(precision, scale)
    return _LOGICAL.get((node["type"], str(logical)))


PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
