"""Casts of constants, folded at parse time."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.expr.kinds import Kind, NotJudgeable, kind_of
from lakedex.expr.literals import date_days, date_text, day_start_micros, local_day, session_zone, timestamp_micros
from lakedex.expr.nodes import Literal, LiteralValue

__all__ = ["exact_decimal", "float32", "fold_cast", "rescale"]

_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)
_INTEGER = re.compile(r"[+-]?\d{1,30}")
_NUMBER = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")
_NAMED_FLOATS = {"nan": math.nan, "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf}
_MICROS_PER_DAY = 86_400_000_000
# A literal's value is in microseconds whatever the unit of the column.
_LITERAL_TYPES: dict[Kind, pa.DataType] = {Kind.TIMESTAMP: pa.timestamp("us", "UTC"), Kind.LOCAL: pa.timestamp("us")}


def exact_decimal(value: Decimal) -> Literal:
    """A decimal literal with the precision and scale of its own digits."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise NotJudgeable
    if exponent > 0:
        digits, exponent = digits + (0,) * exponent, 0
    scale = -exponent
    precision = max(len(digits), scale, 1)
    if precision > 38:
        raise NotJudgeable
    return Literal(Decimal((sign, digits, exponent)), pa.decimal128(precision, scale))


def rescale(value: Decimal, target: Any) -> Decimal:
    """The value at the target's scale, rounded half up as Spark does.

    Raises:
        NotJudgeable: It has more digits than the target (null in Spark, an error in ANSI Spark).
    """
    try:
        scaled = value.quantize(Decimal(1).scaleb(-target.scale), context=_WIDE)
    except InvalidOperation as error:
        raise NotJudgeable from error
    if len(scaled.as_tuple().digits) > target.precision:
        raise NotJudgeable
    return scaled


def fold_cast(literal: Literal, target: pa.DataType, timezone: str) -> Literal:
    """``CAST(literal AS target)``.

    Raises:
        NotJudgeable: Spark's two modes differ (overflow, malformed text), or we do not do this pair of types.
    """
    if literal.value is None or kind_of(target) is Kind.NULL:
        return Literal(literal.value, target if literal.value is None else literal.type)
    source, kind = kind_of(literal.type), kind_of(target)
    target = _LITERAL_TYPES.get(kind, target)
    if source is kind and kind not in (Kind.INT, Kind.DECIMAL):
        return Literal(literal.value, target)
    return Literal(_convert(literal.value, source, kind, target, timezone), target)


def _convert(value: LiteralValue, source: Kind, kind: Kind, target: pa.DataType, timezone: str) -> LiteralValue:
    if isinstance(value, str):
        return _from_text(value, kind, target, timezone)
    if source.is_number and kind.is_number and isinstance(value, int | float | Decimal):
        return _to_number(value, kind, target)
    if kind is Kind.STRING:
        return _to_text(value, source)
    if source is Kind.DATE and isinstance(value, int):
        if kind is Kind.LOCAL:
            return value * _MICROS_PER_DAY
        if kind is Kind.TIMESTAMP:
            return _checked(day_start_micros(value, session_zone(timezone)))
    if kind is Kind.DATE and isinstance(value, int):
        if source is Kind.LOCAL:
            return value // _MICROS_PER_DAY
        if source is Kind.TIMESTAMP:
            return _checked(local_day(value, session_zone(timezone)))
    raise NotJudgeable


def _checked(value: LiteralValue) -> LiteralValue:
    if value is None:
        raise NotJudgeable
    return value


def _to_number(value: int | float | Decimal, kind: Kind, target: pa.DataType) -> LiteralValue:
    if kind is Kind.INT:
        if isinstance(value, float) and not math.isfinite(value):
            raise NotJudgeable
        whole = int(value)
        if not -(2 ** (target.bit_width - 1)) <= whole < 2 ** (target.bit_width - 1):
            raise NotJudgeable
        return whole
    if kind is Kind.DECIMAL:
        if isinstance(value, float):
            raise NotJudgeable  # by way of Double.toString: not ours to imitate
        return rescale(Decimal(value), target)
    return float32(float(value)) if kind is Kind.FLOAT else float(value)


def float32(value: float) -> float:
    """The nearest single precision value, as a Python float."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _from_text(text: str, kind: Kind, target: pa.DataType, timezone: str) -> LiteralValue:
    if kind is Kind.BINARY:
        return text.encode("utf-8")
    if kind is Kind.DATE:
        return _checked(date_days(text))
    if kind is Kind.TIMESTAMP:
        return _checked(timestamp_micros(text, session_zone(timezone)))
    if kind is Kind.LOCAL:
        return _checked(timestamp_micros(text, None))
    if kind is Kind.BOOL:
        return _checked({"true": True, "false": False}.get(text.lower()))
    if kind is Kind.INT and _INTEGER.fullmatch(text):
        return _to_number(int(text), kind, target)
    if kind.is_float and text.lower() in _NAMED_FLOATS:
        return _NAMED_FLOATS[text.lower()]
    if kind in (Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL) and _NUMBER.fullmatch(text):
        return _to_number(Decimal(text) if kind is Kind.DECIMAL else float(text), kind, target)
    raise NotJudgeable


def _to_text(value: LiteralValue, source: Kind) -> LiteralValue:
    if source is Kind.BOOL:
        return str(value).lower()
    if source is Kind.INT:
        return str(value)
    if source is Kind.DATE and isinstance(value, int):
        return _checked(date_text(value))
    raise NotJudgeable
