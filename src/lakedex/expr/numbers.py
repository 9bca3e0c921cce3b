"""Decimals and single precision, one value at a time and with Spark's rounding."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.expr.kinds import NotJudgeable
from lakedex.expr.nodes import Literal

__all__ = ["exact_decimal", "float32", "rescale"]

_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)


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


def float32(value: float) -> float:
    """The nearest single precision value, as a Python float."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))
