"""Calculate with Arrow columns as Spark does in ANSI mode, and round single decimals and floats like Spark.

``+ - * / % DIV`` are exact; a result that does not fit its type is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.expr.distinct import per_distinct
from lakedex.expr.nodes import Literal
from lakedex.expr.types import Kind, NotPrunableError, kind_of
from lakedex.types import BoolArray, IntArray

__all__ = ["calculate", "decimal_result", "exact_decimal", "float32", "rescale"]


_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)


def exact_decimal(value: Decimal) -> Literal:
    """Decimal literal with the precision and scale of its own digits."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise NotPrunableError
    if exponent > 0:
        digits, exponent = digits + (0,) * exponent, 0
    scale = -exponent
    precision = max(len(digits), scale, 1)
    if precision > 38:
        raise NotPrunableError
    return Literal(Decimal((sign, digits, exponent)), pa.decimal128(precision, scale))


def rescale(value: Decimal, target: pa.Decimal128Type) -> Decimal:
    """Round a value to the target's scale, half up as Spark does.

    Raises:
        NotPrunableError: It has more digits than the target (null in Spark, an error in ANSI Spark).
    """
    try:
        scaled = value.quantize(Decimal(1).scaleb(-target.scale), context=_EXACT)
    except InvalidOperation as error:
        raise NotPrunableError from error
    if len(scaled.as_tuple().digits) > target.precision:
        raise NotPrunableError
    return scaled


def float32(value: float) -> float:
    """Nearest single-precision value, as a Python float."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


_MAX_DIGITS, _KEPT_SCALE = 38, 6


_WIDE = Context(prec=160, rounding=ROUND_HALF_UP)


_DIVIDED_SCALE = Decimal(1).scaleb(-39)


_LONG = (-(2**63), 2**63 - 1)


def decimal_result(op: str, left: pa.Decimal128Type, right: pa.Decimal128Type) -> pa.DataType:
    """Spark's result type of decimal arithmetic; excess digits are cut from the scale."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    if op == "DIV":
        return pa.int64()
    if op == "*":
        scale, precision = s1 + s2, p1 + p2 + 1
    elif op == "/":
        scale = max(_KEPT_SCALE, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    elif op in ("%", "pmod"):
        scale = max(s1, s2)
        precision = min(p1 - s1, p2 - s2) + scale
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > _MAX_DIGITS:
        scale = max(_MAX_DIGITS - (precision - scale), min(scale, _KEPT_SCALE))
        precision = _MAX_DIGITS
    return pa.decimal128(max(precision, 1), scale)


def calculate(op: str, left: pa.Array, right: pa.Array, result: pa.DataType, *, attempt: bool = False) -> pa.Array:
    """Compute ``left op right`` for two arrays.

    Args:
        op: One of ``+ - * / % pmod DIV``.
        left: Left operands.
        right: Right operands, of the same type or also decimals.
        result: Type of the result.
        attempt: Return null instead of an error.

    Raises:
        InvalidInputError: A divisor is zero, or a result does not fit its type.
    """
    known = pc.and_(left.is_valid(), right.is_valid())
    if op in ("/", "%", "pmod", "DIV"):
        nothing = pa.scalar(Decimal(0) if pa.types.is_decimal(right.type) else 0, right.type)
        zero = pc.and_(known, pc.equal(right, nothing))
        if pc.any(zero).as_py():
            if not attempt:
                raise InvalidInputError("division by zero; try_divide or nullif(divisor, 0) return null instead")
            known = pc.and_not(known, zero)
    left, right = (pc.if_else(known, side, pa.scalar(None, side.type)) for side in (left, right))
    kind = kind_of(left.type)
    if kind is Kind.DECIMAL:
        found = _decimals(op, left, right, result)
    elif kind is Kind.INT:
        found = _integers(op, left, right, result)
    else:
        found = _floats(op, left, right, result)
    if not attempt and found.null_count > len(found) - known.true_count:
        raise InvalidInputError(f"the result of {op} does not fit {result}; try_add and its like return null instead")
    return found


def _numpy(values: Any, fill: Any) -> Any:
    return pc.fill_null(values, pa.scalar(fill).cast(values.type)).to_numpy(zero_copy_only=False)


def _floats(op: str, left: pa.Array, right: pa.Array, result: pa.DataType) -> pa.Array:
    nulls = left.is_null().to_numpy(zero_copy_only=False)
    a, b = _numpy(left, 1), _numpy(right, 1)
    with np.errstate(all="ignore"):
        found = _FLOATS[op](a, b)
    return pa.array(found, result, mask=nulls, from_pandas=False)


def _positive_modulus(a: Any, b: Any) -> Any:
    rest = np.fmod(a, b)
    return np.where(rest < 0, np.fmod(rest + b, b), rest)


_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "pmod": _positive_modulus,
}


def _integers(op: str, left: pa.Array, right: pa.Array, result: pa.DataType) -> pa.Array:
    nulls = left.is_null().to_numpy(zero_copy_only=False)
    a, b = (np.array(_numpy(side, 1), np.int64) for side in (left, right))
    with np.errstate(all="ignore"):
        found, lost = _INTEGERS[op](a, b)
    limit = 2 ** (result.bit_width - 1)
    if result.bit_width < 64:
        lost = lost | (found < -limit) | (found >= limit)
    return pa.array(np.where(lost, 0, found), pa.int64(), mask=nulls | lost).cast(result)


def _added(a: IntArray, b: IntArray) -> tuple[IntArray, BoolArray]:
    found = a + b
    return found, ((a ^ found) & (b ^ found)) < 0


def _subtracted(a: IntArray, b: IntArray) -> tuple[IntArray, BoolArray]:
    found = a - b
    return found, ((a ^ b) & (a ^ found)) < 0


def _multiplied(a: IntArray, b: IntArray) -> tuple[IntArray, BoolArray]:
    found = a * b
    # Floats are precise enough: a product that wrapped around is off by at least 2**64.
    return found, np.abs(a.astype(np.float64) * b.astype(np.float64) - found.astype(np.float64)) > 2.0**62


def _remainder(a: IntArray, b: IntArray) -> tuple[IntArray, BoolArray]:
    safe = np.where(b == -1, 1, b)
    return np.fmod(a, safe), np.zeros(len(a), np.bool_)


def _modulus(a: IntArray, b: IntArray) -> tuple[IntArray, BoolArray]:
    rest, none = _remainder(a, b)
    return np.where(rest < 0, _remainder(rest + b, b)[0], rest), none


def _quotient(a: IntArray, b: IntArray) -> tuple[IntArray, BoolArray]:
    lost = (a == _LONG[0]) & (b == -1)
    safe = np.where(lost, 1, b)
    return (a - np.fmod(a, np.where(safe == -1, 1, safe))) // safe, lost


_INTEGERS: dict[str, Callable[[IntArray, IntArray], tuple[IntArray, BoolArray]]] = {
    "+": _added,
    "-": _subtracted,
    "*": _multiplied,
    "%": _remainder,
    "pmod": _modulus,
    "DIV": _quotient,
}


def _decimals(op: str, left: pa.Array, right: pa.Array, result: pa.DataType) -> pa.Array:
    wide = [side.cast(pa.decimal256(side.type.precision, side.type.scale)) for side in (left, right)]
    if op in ("+", "-", "*") and left.type.precision + right.type.precision < 75:
        found = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op](*wide)
        if found.type.scale > result.scale:
            found = pc.round(found.cast(pa.decimal256(76, found.type.scale)), ndigits=result.scale,
                             round_mode="half_towards_infinity")  # fmt: skip
        limit = pa.scalar(Decimal(10) ** (result.precision - result.scale), pa.decimal256(76, found.type.scale))
        fits = pc.less(pc.abs(found), limit)
        found = pc.if_else(fits, found, pa.scalar(None, found.type))
        return found.cast(pa.decimal256(76, result.scale)).cast(result)
    # Arrow's quotients have other digits than Spark's, so each distinct pair is divided with Python's decimals.
    function = _DECIMALS[op]

    def one(a: Decimal, b: Decimal) -> Decimal | int | None:
        value = function(a, b)
        if pa.types.is_integer(result):
            return int(value) if _LONG[0] <= value <= _LONG[1] else None
        try:
            return rescale(value, result)
        except NotPrunableError:
            return None

    return per_distinct(one, result, left, right)


def _decimal_modulus(a: Decimal, b: Decimal) -> Decimal:
    rest = _WIDE.remainder(a, b)
    return _WIDE.remainder(_WIDE.add(rest, b), b) if rest < 0 else rest


_DECIMALS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _WIDE.add,
    "-": _WIDE.subtract,
    "*": _WIDE.multiply,
    # Rounded to 39 digits first, as Spark's Decimal does.
    "/": lambda a, b: _WIDE.quantize(_WIDE.divide(a, b), _DIVIDED_SCALE),
    "%": _WIDE.remainder,
    "pmod": _decimal_modulus,
    "DIV": lambda a, b: _WIDE.divide_int(a, b).to_integral_value(ROUND_DOWN),
}
