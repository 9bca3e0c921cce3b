"""Type coercion by Spark's ANSI rules, its default from version 4 on (``AnsiTypeCoercion``).

Text gives way to the other side's type: next to an integer it is read as a long, next to any other number as a
double, next to a date, timestamp, boolean or binary as that. A literal that does not read as such stays a cast, which
fails where there is a row for it, and only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from lakedex.expr.bind import Binder
from lakedex.expr.casts import can_cast
from lakedex.expr.fold import fold_cast
from lakedex.expr.kinds import INTEGER_DIGITS, Kind, NotJudgeable, common_decimal, kind_of
from lakedex.expr.nodes import Cast, Literal, Scalar
from lakedex.expr.signatures import Takes

__all__ = ["AnsiBinder"]

_INSTANT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_MAX_DIGITS = 38
_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL)
_ARGUMENTS: dict[Takes, tuple[pa.DataType, frozenset[Kind]]] = {
    Takes.TEXT: (pa.string(), frozenset(Kind) - {Kind.BINARY}),
    Takes.INT: (pa.int32(), frozenset({Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING})),
    Takes.LONG: (pa.int64(), frozenset({Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING})),
    Takes.DOUBLE: (pa.float64(), frozenset({Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING})),
    Takes.BOOLEAN: (pa.bool_(), frozenset({Kind.BOOL, Kind.STRING})),
    Takes.DATE: (pa.date32(), frozenset({*_MOMENTS, Kind.STRING})),
    Takes.INSTANT: (_INSTANT, frozenset({*_MOMENTS, Kind.STRING})),
}
"""What an argument is cast to, and from which types."""
_KEPT = {
    Takes.NUMBER: (frozenset({Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL}), Takes.DOUBLE),
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
            except NotJudgeable:
                pass
        elif scalar.type == target or kind is Kind.NULL:
            return scalar
        if kind_of(scalar.type) is kind and kind not in (Kind.INT, Kind.DECIMAL):
            return scalar  # string and large_string, timestamps of two units: one kind, one order
        if not can_cast(scalar.type, target):
            raise NotJudgeable(f"there is no cast from {scalar.type} to {target}")
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
            raise NotJudgeable(f"{scalar.type} is not {takes.value}")
        return self.to(scalar, Literal(None, target))


def wider_type(left: Any, right: Any) -> pa.DataType:
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
    raise NotJudgeable(f"{left} and {right} have no type in common")


def _wider_number(left: Any, right: Any) -> pa.DataType:
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


def _as_decimal(number: Any) -> Any:
    return number if kind_of(number) is Kind.DECIMAL else pa.decimal128(INTEGER_DIGITS[number.bit_width], 0)
