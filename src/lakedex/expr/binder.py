"""Coerce two sides to one type before they are compared, as Spark does with and without ANSI mode.

Where both rule sets give the same result for every value, the pair is coerced here; where they differ, or where an
order of values is not kept (a string column against a number), :class:`NotPrunableError` is raised and the condition
becomes :class:`~lakedex.expr.nodes.Unknown`. Casts that :class:`Binder` puts around a column never lose the order of
values and never fail, so pruning may look through them.

By the ANSI rules, Spark's default from version 4 on (``AnsiTypeCoercion``), text gives way to the other side's type:
next to an integer it is read as a long, next to any other number as a double, next to a date, timestamp, boolean or
binary as that. A literal that cannot be read as such stays a cast, which fails where there is a row for it, and only
there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce

import pyarrow as pa

from lakedex.expr.arithmetic import exact_decimal, float32
from lakedex.expr.casts import can_cast, fold_cast
from lakedex.expr.literals import date_days, date_text, session_zone
from lakedex.expr.nodes import Cast, Literal, Scalar
from lakedex.expr.signatures import Takes
from lakedex.expr.text_casts import timestamp_micros
from lakedex.expr.types import INTEGER_DIGITS, Kind, NotPrunableError, common_decimal, kind_of

__all__ = ["AnsiBinder", "Binder"]


_INTEGER = re.compile(r"[+-]?\d{1,30}")


_NUMBER = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")


_FLOAT32_EXACT = 2**24


_NUMBERS = frozenset({Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL})


_PLAIN_ARGUMENTS: dict[Takes, tuple[frozenset[Kind], pa.DataType | None]] = {
    Takes.TEXT: (frozenset({Kind.STRING, Kind.INT, Kind.BOOL, Kind.DATE, Kind.NULL}), pa.string()),
    Takes.TEXT_OR_BYTES: (frozenset({Kind.STRING, Kind.BINARY}), None),
    Takes.INT: (frozenset({Kind.INT, Kind.NULL}), pa.int32()),
    Takes.LONG: (frozenset({Kind.INT, Kind.NULL}), pa.int64()),
    Takes.DOUBLE: (_NUMBERS, pa.float64()),
    Takes.NUMBER: (_NUMBERS, None),
    Takes.NO_TEXT: (_NUMBERS, None),
    Takes.BOOLEAN: (frozenset({Kind.BOOL, Kind.NULL}), pa.bool_()),
    Takes.DATE: (frozenset({Kind.DATE, Kind.NULL}), pa.date32()),
    Takes.MOMENT: (frozenset({Kind.TIMESTAMP, Kind.LOCAL}), None),
    Takes.INSTANT: (frozenset({Kind.TIMESTAMP}), None),
}


@dataclass(frozen=True, slots=True)
class Binder:
    """Coercion within one session: its time zone, and whether its text comes from Catalyst."""

    timezone: str = "UTC"
    refuse_ambiguous: bool = False

    @property
    def ansi(self) -> bool:
        """Whether conditions may depend on ANSI mode."""
        return False

    def pair(self, left: Scalar, right: Scalar) -> tuple[Scalar, Scalar]:
        """Both sides in the type in which Spark compares them."""
        left, right = self._strings_to_other(left, right)
        common = self.common_type(left, right)
        return self.to(left, common), self.to(right, common)

    def many(self, scalars: Sequence[Scalar]) -> list[Scalar]:
        """All scalars in their common type: the branches of CASE, the arguments of COALESCE."""
        common = reduce(lambda a, b: self.common_type(a, b), scalars).type
        kinds = {kind_of(s.type) for s in scalars} - {Kind.NULL}
        if len(kinds) > 1 and Kind.STRING in kinds:
            raise NotPrunableError
        return [self.to(s, Literal(None, common)) for s in scalars]

    def in_list(self, operand: Scalar, values: Sequence[Scalar]) -> tuple[Scalar, list[Scalar]]:
        """Operand and values of an IN: Spark takes one type for all of them, and strings win there."""
        literals = [value for value in values if isinstance(value, Literal)]
        if len(literals) != len(values):
            raise NotPrunableError
        return self._literals_in(operand, literals)

    def _literals_in(self, operand: Scalar, values: Sequence[Literal]) -> tuple[Scalar, list[Scalar]]:
        if any(isinstance(v.value, str) for v in values):
            # Then Spark compares the texts of all of them, and 1.0D reads "1.0".
            kind = kind_of(operand.type)
            if any(
                v.value is not None and not isinstance(v.value, str) and kind_of(v.type) is not kind for v in values
            ):
                raise NotPrunableError
        values = [self._canonical_string(operand, v) for v in values]
        common: Scalar = reduce(lambda a, b: Literal(None, self.common_type(a, b).type), values, operand)
        return self.to(operand, common), [self.to(v, common) for v in values]

    def argument(self, scalar: Scalar, takes: Takes) -> Scalar:
        """An argument in the type that the function takes, where both of Spark's modes cast it alike."""
        kinds, target = _PLAIN_ARGUMENTS[takes]
        if kind_of(scalar.type) not in kinds:
            raise NotPrunableError
        if target is None:
            return scalar
        literal = Literal(None, target)
        return self.to(scalar, literal)

    def common_type(self, left: Scalar, right: Scalar) -> Scalar:
        """A scalar whose type is the common one."""
        a, b = kind_of(left.type), kind_of(right.type)
        if a is Kind.NULL or left.type == right.type:
            return right
        if b is Kind.NULL:
            return left
        if a is b and a is not Kind.DECIMAL and a is not Kind.INT:
            return left
        if a.is_number and b.is_number:
            return Literal(None, self._common_number(left, right))
        if {a, b} == {Kind.DATE, Kind.TIMESTAMP} or {a, b} == {Kind.DATE, Kind.LOCAL}:
            return right if a is Kind.DATE else left
        raise NotPrunableError

    def _common_number(self, left: Scalar, right: Scalar) -> pa.DataType:
        a, b = kind_of(left.type), kind_of(right.type)
        if a is Kind.INT and b is Kind.INT:
            return left.type if left.type.bit_width >= right.type.bit_width else right.type
        if a.is_float or b.is_float:
            if Kind.DOUBLE in (a, b) or Kind.DECIMAL in (a, b):
                return pa.float64()
            integer = left if a is Kind.INT else right
            # Spark compares int with float in float, ANSI Spark in double: the same where float holds the integer.
            value = integer.value if isinstance(integer, Literal) else None
            if (isinstance(value, int) and abs(value) <= _FLOAT32_EXACT) or integer.type.bit_width <= 16:
                return pa.float32()
            raise NotPrunableError
        return common_decimal(*(self.decimal_type(s) for s in (left, right)))

    def decimal_type(self, scalar: Scalar) -> pa.DataType:
        """The decimal type that Spark gives a number: a literal's own digits, an integer column's widest."""
        if kind_of(scalar.type) is Kind.DECIMAL:
            return scalar.type
        if isinstance(scalar, Literal) and isinstance(scalar.value, int):
            return exact_decimal(Decimal(scalar.value)).type
        return pa.decimal128(INTEGER_DIGITS[scalar.type.bit_width], 0)

    def to(self, scalar: Scalar, other: Scalar) -> Scalar:
        """The scalar in the other's type: a literal is converted, anything else wrapped in a cast."""
        target = other.type
        if isinstance(scalar, Literal):
            return fold_cast(scalar, target, self.timezone)
        if scalar.type == target or kind_of(target) is Kind.NULL:
            return scalar
        if kind_of(scalar.type) is kind_of(target) and kind_of(target) not in (Kind.INT, Kind.DECIMAL):
            return scalar  # string and large_string, timestamps of two units: one kind, one order
        return Cast(scalar, target, self.timezone)

    def _strings_to_other(self, left: Scalar, right: Scalar) -> tuple[Scalar, Scalar]:
        if isinstance(right, Literal) and isinstance(right.value, str) and not isinstance(left, Literal):
            return left, self._string_as(left.type, right.value)
        if isinstance(left, Literal) and isinstance(left.value, str) and not isinstance(right, Literal):
            return self._string_as(right.type, left.value), right
        return left, right

    def _string_as(self, target: pa.DataType, text: str) -> Literal:
        """A string literal compared with a column: Spark casts the text to the column's type."""
        kind = kind_of(target)
        value: object = None
        if kind in (Kind.STRING, Kind.NULL):
            return Literal(text, pa.string())
        if kind is Kind.INT and _INTEGER.fullmatch(text) and abs(int(text)) < 2 ** (target.bit_width - 1):
            value = int(text)
        elif kind.is_float and _NUMBER.fullmatch(text):
            value = float(text)
            if kind is Kind.FLOAT and float32(value) != value:
                raise NotPrunableError  # compared as float by Spark, as double by ANSI Spark
        elif kind is Kind.BOOL:
            value = {"true": True, "false": False}.get(text.lower())
        elif kind is Kind.DATE:
            value = date_days(text)
        elif kind is Kind.TIMESTAMP:
            return self.timestamp(text)
        elif kind is Kind.LOCAL:
            value, target = timestamp_micros(text, None), pa.timestamp("us")
        if value is None:
            raise NotPrunableError
        return Literal(value, target)  # type: ignore[arg-type]

    def timestamp(self, text: str) -> Literal:
        """A timestamp's text, read in the session's zone."""
        micros = timestamp_micros(text, session_zone(self.timezone), refuse_ambiguous=self.refuse_ambiguous)
        if micros is None:
            raise NotPrunableError
        return Literal(micros, pa.timestamp("us", "UTC"))

    def _canonical_string(self, operand: Scalar, value: Literal) -> Literal:
        # In an IN, Spark compares text of the operand with the string, ANSI Spark the value of the string with the
        # operand: the same for text in the one form that Spark itself prints.
        kind = kind_of(operand.type)
        if not isinstance(value.value, str) or kind is Kind.STRING:
            return value
        typed = self._string_as(operand.type, value.value)
        printed = {Kind.INT: str, Kind.BOOL: lambda v: str(v).lower(), Kind.DATE: date_text}.get(kind)
        if printed is None or printed(typed.value) != value.value:  # type: ignore[operator]
            raise NotPrunableError
        return typed


_INSTANT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


_MAX_DIGITS = 38


_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL)


_ARGUMENTS: dict[Takes, tuple[pa.DataType, frozenset[Kind]]] = {
    Takes.TEXT: (pa.string(), frozenset(Kind) - {Kind.BINARY}),
    Takes.INT: (pa.int32(), _NUMBERS | {Kind.STRING}),
    Takes.LONG: (pa.int64(), frozenset({Kind.INT})),
    Takes.DOUBLE: (pa.float64(), _NUMBERS | {Kind.STRING}),
    Takes.BOOLEAN: (pa.bool_(), frozenset({Kind.BOOL, Kind.STRING})),
    Takes.DATE: (pa.date32(), frozenset({*_MOMENTS, Kind.STRING})),
    Takes.INSTANT: (_INSTANT, frozenset({*_MOMENTS, Kind.STRING})),
}
"""The type that an argument is cast to, and the types that it may have."""


_KEPT = {
    Takes.NUMBER: (_NUMBERS, Takes.DOUBLE),
    Takes.NO_TEXT: (_NUMBERS, Takes.LONG),
    Takes.MOMENT: (frozenset({Kind.TIMESTAMP, Kind.LOCAL}), Takes.INSTANT),
    Takes.TEXT_OR_BYTES: (frozenset({Kind.STRING, Kind.BINARY}), Takes.TEXT),
}
"""Types that an argument may keep, and what others become."""


@dataclass(frozen=True, slots=True)
class AnsiBinder(Binder):
    """Coercion of what a user wrote, for rows that lakedex looks at itself."""

    @property
    def ansi(self) -> bool:
        """Whether conditions may depend on ANSI mode."""
        return True

    def pair(self, left: Scalar, right: Scalar) -> tuple[Scalar, Scalar]:
        """Both sides in the type in which Spark compares them."""
        kinds = {kind_of(left.type), kind_of(right.type)}
        if Kind.DECIMAL in kinds and kinds <= {Kind.DECIMAL, Kind.INT}:
            # Past 38 digits Spark 3.5 and Spark 4 round differently: refused there.
            common = Literal(None, common_decimal(*(self.decimal_type(side) for side in (left, right))))
        else:
            common = Literal(None, wider_type(left.type, right.type))
        return self.to(left, common), self.to(right, common)

    def many(self, scalars: Sequence[Scalar]) -> list[Scalar]:
        """All scalars in their common type."""
        common = Literal(None, reduce(wider_type, (scalar.type for scalar in scalars)))
        return [self.to(scalar, common) for scalar in scalars]

    def in_list(self, operand: Scalar, values: Sequence[Scalar]) -> tuple[Scalar, list[Scalar]]:
        """Operand and values of an IN, in one type."""
        first, *others = self.many([operand, *values])
        return first, others

    def common_type(self, left: Scalar, right: Scalar) -> Scalar:
        """A scalar whose type is the common one."""
        return Literal(None, wider_type(left.type, right.type))

    def to(self, scalar: Scalar, other: Scalar) -> Scalar:
        """The scalar in the other's type; a literal that cannot be converted stays to fail on a row."""
        target = other.type
        kind = kind_of(target)
        if isinstance(scalar, Literal):
            try:
                return fold_cast(scalar, target, self.timezone)
            except NotPrunableError:
                pass
        elif scalar.type == target or kind is Kind.NULL:
            return scalar
        if kind_of(scalar.type) is kind and kind not in (Kind.INT, Kind.DECIMAL):
            return scalar  # string and large_string, timestamps of two units: one kind, one order
        if not can_cast(scalar.type, target):
            raise NotPrunableError(f"there is no cast from {scalar.type} to {target}")
        return Cast(scalar, target, self.timezone)

    def argument(self, scalar: Scalar, takes: Takes) -> Scalar:
        """An argument in the type that the function takes."""
        if takes in _KEPT:
            kept, takes = _KEPT[takes]
            if kind_of(scalar.type) in kept:
                return scalar
        target, sources = _ARGUMENTS[takes]
        kind = kind_of(scalar.type)
        if kind is not Kind.NULL and kind not in sources:
            raise NotPrunableError(f"{scalar.type} is not {takes.value}")
        return self.to(scalar, Literal(None, target))


def wider_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type that both are brought to.

    Raises:
        NotJudgeable: There is none; Spark refuses such a pair as well.
    """
    a, b = kind_of(left), kind_of(right)
    if Kind.NULL in (a, b) or left == right:
        return right if a is Kind.NULL else left
    if a.is_number and b.is_number:
        return _wider_number(left, right)
    if a is b:
        return left
    kinds = {a, b}
    if Kind.STRING in kinds:
        other, kind = (right, b) if a is Kind.STRING else (left, a)
        return pa.int64() if kind is Kind.INT else pa.float64() if kind.is_number else other
    if kinds <= set(_MOMENTS):
        return _INSTANT if Kind.TIMESTAMP in kinds else _LOCAL
    raise NotPrunableError(f"{left} and {right} have no type in common")


def _wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    a, b = kind_of(left), kind_of(right)
    if a is Kind.INT and b is Kind.INT:
        return left if left.bit_width >= right.bit_width else right
    if a.is_float or b.is_float:
        return pa.float32() if a is b is Kind.FLOAT else pa.float64()
    one, other = (_as_decimal(t) for t in (left, right))
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    scale = max(0, scale - max(0, precision - _MAX_DIGITS))
    return pa.decimal128(min(precision, _MAX_DIGITS), scale)


def _as_decimal(number: pa.DataType) -> pa.DataType:
    return number if kind_of(number) is Kind.DECIMAL else pa.decimal128(INTEGER_DIGITS[number.bit_width], 0)
