"""Classify the types of predicates and the conversions that keep order, and resolve SQL names to column paths."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.expr.nodes import Column

__all__ = [
    "INTEGER_DIGITS",
    "Kind",
    "NotPrunableError",
    "common_decimal",
    "is_harmless_cast",
    "kind_of",
    "quote_name",
    "resolve_column",
]


INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Number of digits in Spark's decimal for an integer type, by its bits (``DecimalType.forType``)."""


_MAX_DIGITS = 38


class NotPrunableError(Exception):
    """The condition is unsupported. Caught where the condition becomes ``Unknown``."""


class Kind(Enum):
    """A class of Arrow types that compare alike."""

    NULL = "null"
    BOOL = "boolean"
    INT = "integer"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    LOCAL = "timestamp without time zone"

    @property
    def is_number(self) -> bool:
        """Whether it is integer, floating point or decimal."""
        return self in (Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)

    @property
    def is_float(self) -> bool:
        """Whether it is floating point."""
        return self in (Kind.FLOAT, Kind.DOUBLE)


_TESTS = (
    (pa.types.is_null, Kind.NULL),
    (pa.types.is_boolean, Kind.BOOL),
    (pa.types.is_signed_integer, Kind.INT),
    (pa.types.is_float32, Kind.FLOAT),
    (pa.types.is_float64, Kind.DOUBLE),
    (pa.types.is_date32, Kind.DATE),
    (pa.types.is_string, Kind.STRING),
    (pa.types.is_large_string, Kind.STRING),
    (pa.types.is_string_view, Kind.STRING),
    (pa.types.is_binary, Kind.BINARY),
    (pa.types.is_large_binary, Kind.BINARY),
    (pa.types.is_binary_view, Kind.BINARY),
    (pa.types.is_fixed_size_binary, Kind.BINARY),
)


def kind_of(data_type: pa.DataType) -> Kind:
    """Kind of a type.

    Raises:
        NotPrunableError: Spark lacks the type (unsigned, nanoseconds, decimals past 38 digits), or it is nested.
    """
    if pa.types.is_dictionary(data_type):
        return kind_of(data_type.value_type)
    if pa.types.is_decimal(data_type):
        if data_type.precision <= _MAX_DIGITS and 0 <= data_type.scale <= data_type.precision:
            return Kind.DECIMAL
    elif pa.types.is_timestamp(data_type):
        if data_type.unit != "ns":
            return Kind.LOCAL if data_type.tz is None else Kind.TIMESTAMP
    else:
        for test, kind in _TESTS:
            if test(data_type):
                return kind
    raise NotPrunableError


def common_decimal(left: pa.Decimal128Type, right: pa.Decimal128Type) -> pa.DataType:
    """Decimal type for exact values of both sides; raises NotPrunableError past 38 digits, where Spark rounds."""
    scale = max(left.scale, right.scale)
    integer_digits = max(left.precision - left.scale, right.precision - right.scale)
    if integer_digits + scale > _MAX_DIGITS:
        raise NotPrunableError
    return pa.decimal128(max(integer_digits + scale, 1), scale)


def is_harmless_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast preserves nulls and the order of values (ties allowed), and cannot fail."""
    a, b = kind_of(source), kind_of(target)
    if a is b:
        if a is Kind.INT:
            return bool(source.bit_width <= target.bit_width)
        return a is not Kind.DECIMAL or _fits(source.precision - source.scale, source.scale, target)
    if a is Kind.INT:
        return b.is_float or (b is Kind.DECIMAL and _fits(INTEGER_DIGITS[source.bit_width], 0, target))
    return (a is Kind.FLOAT and b is Kind.DOUBLE) or (a is Kind.DECIMAL and b is Kind.DOUBLE)


def _fits(integer_digits: int, scale: int, target: pa.DataType) -> bool:
    return bool(target.precision - target.scale >= integer_digits and target.scale >= scale)


_MAX_QUALIFIERS = 3  # catalog.schema.table


_WORDS_OF_SQL = frozenset(
    word
    for line in (
        "all and any array as between binary boolean case cast coalesce concat date div else end escape exists false",
        "from if ilike in interval is isnan like lower map not null or r regexp rlike select some string struct then x",
        "timestamp timestamp_ltz timestamp_ntz true try_cast unknown upper when where",
    )
    for word in line.split()
)


class NotAStructError(Exception):
    """The path leads into a map or a list, which Spark supports and lakedex does not."""


def resolve_column(parts: Sequence[str], schema: pa.Schema, *, case_sensitive: bool) -> Column:
    """Find the column that a dotted name refers to.

    The first part is looked up as a column; if there is none, leading parts are taken as qualifiers (catalog, schema,
    table) as long as a column follows.

    Raises:
        InvalidInputError: There is no such column (the message suggests similar names), or more than one.
        NotAStructError: The name leads into a map or a list.
    """
    for skipped in range(min(len(parts), _MAX_QUALIFIERS + 1)):
        found = _pick(parts[skipped], schema, case_sensitive, ".".join(parts))
        if found is not None:
            return _descend(found, parts[skipped + 1 :], case_sensitive, ".".join(parts))
    raise _no_such_column(".".join(parts), schema)


def _pick(name: str, fields: pa.Schema | pa.StructType, case_sensitive: bool, dotted: str) -> pa.Field[Any] | None:
    matches = [f for f in fields if f.name == name or (not case_sensitive and f.name.lower() == name.lower())]
    if len(matches) > 1:
        names = ", ".join(repr(f.name) for f in matches)
        raise InvalidInputError(f"column {dotted!r} is ambiguous: it could be {names}", column=dotted)
    return matches[0] if matches else None


def _descend(found: pa.Field[Any], rest: Sequence[str], case_sensitive: bool, dotted: str) -> Column:
    path = [found.name]
    for part in rest:
        if pa.types.is_map(found.type) or pa.types.is_list(found.type) or pa.types.is_large_list(found.type):
            raise NotAStructError
        if not pa.types.is_struct(found.type):
            raise InvalidInputError(
                f"{dotted!r}: column {'.'.join(path)!r} is {found.type}, it has no field {part!r}", column=dotted
            )
        inner = _pick(part, found.type, case_sensitive, dotted)
        if inner is None:
            names = ", ".join(repr(f.name) for f in found.type)
            where = ".".join(path)
            raise InvalidInputError(f"{dotted!r}: {where!r} has no field {part!r}; it has {names}", column=dotted)
        path.append(inner.name)
        found = inner
    return Column(tuple(path), found.type)


def _no_such_column(name: str, schema: pa.Schema) -> InvalidInputError:
    known = list(_leaf_names(schema))
    lower = {n.lower(): n for n in known}
    near = [lower[n] for n in difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.5)]
    if not near:  # a qualified or nested name: compare its last part
        near = [lower[n] for n in difflib.get_close_matches(name.lower().split(".")[-1], list(lower), n=3, cutoff=0.5)]
    columns = ", ".join(schema.names[:20]) + (", …" if len(schema.names) > 20 else "")
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"the columns are: {columns}"
    return InvalidInputError(f"no column {name!r}; {hint}", column=name)


def _leaf_names(fields: pa.Schema | pa.StructType, prefix: str = "") -> Iterator[str]:
    for item in fields:
        yield prefix + item.name
        if pa.types.is_struct(item.type):
            yield from _leaf_names(item.type, f"{prefix}{item.name}.")


def quote_name(path: Sequence[str]) -> str:
    """SQL text of a column path, with backquotes only where required."""

    def one(part: str) -> str:
        plain = part.isascii() and part.isidentifier() and part.lower() not in _WORDS_OF_SQL
        return part if plain else "`" + part.replace("`", "``") + "`"

    return ".".join(one(part) for part in path)
