"""Functions of numbers, with Spark's types and rounding."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.expr.arithmetic import calculate
from lakedex.expr.distinct import per_distinct
from lakedex.expr.nodes import Literal
from lakedex.expr.signatures import Datum, FunctionSpec, Takes, same_as_first
from lakedex.expr.sort_keys import ordering_keys
from lakedex.expr.text_casts import float_texts
from lakedex.expr.types import Kind, NotPrunableError, kind_of

__all__ = ["NUMBER_FUNCTIONS"]


_MAX_DIGITS = 38


_ROUNDED_FROM = 34


_WIDE = Context(prec=400)


def _negate(numbers: Datum) -> pa.Array:
    _check_sign(numbers)
    if not pa.types.is_integer(numbers.type):
        return pc.negate(numbers)
    return pc.negate_checked(numbers)


def _check_sign(numbers: Datum) -> None:
    """Refuse decimals of more than 34 digits: negating them in Spark rounds or fails."""
    if not pa.types.is_decimal(numbers.type) or numbers.type.precision <= _ROUNDED_FROM:
        return
    limit = pa.scalar(Decimal(10) ** (_ROUNDED_FROM - numbers.type.scale), pa.decimal256(76, numbers.type.scale))
    if pc.any(pc.greater_equal(pc.abs(numbers.cast(limit.type)), limit)).as_py():
        raise NotPrunableError("negating decimals of more than 34 digits rounds them in Spark")


def _abs(numbers: Datum) -> pa.Array:
    _check_sign(numbers)
    return pc.abs_checked(numbers) if pa.types.is_integer(numbers.type) else pc.abs(numbers)


def _sign(numbers: Datum) -> pa.Array:
    return pc.if_else(pc.equal(numbers, 0), numbers, pc.sign(numbers)).cast(pa.float64())


def _digits(value: Any) -> int:
    return 0 if value is None else int(value.as_py())


def _rounded_type(mode: str) -> Callable[[Any], pa.DataType]:
    """Type of ``round(number, digits)``, where digits is a literal."""

    def result(arguments: Any) -> pa.DataType:
        source: Any = arguments[0].type
        digits = arguments[1] if len(arguments) > 1 else Literal(0, pa.int32())
        if not isinstance(digits, Literal) or not isinstance(digits.value, int):
            raise NotPrunableError("the number of digits must be a literal")
        cut = mode in (ROUND_FLOOR, ROUND_CEILING)
        if cut and len(arguments) > 1 and kind_of(source) is not Kind.DECIMAL:
            raise NotPrunableError("floor and ceil to a number of digits are supported for decimals only")
        if cut and len(arguments) == 1 and kind_of(source) is Kind.DECIMAL and source.scale == 0:
            return source
        return _type_of_rounded(source, digits.value, cut=cut)

    return result


def _type_of_rounded(source: pa.DataType, digits: int, *, cut: bool) -> pa.DataType:
    if kind_of(source) is not Kind.DECIMAL:
        return pa.int64() if cut else source
    integer_digits = source.precision - source.scale + 1
    if digits < 0:
        return pa.decimal128(min(max(integer_digits, 1 - digits), _MAX_DIGITS), 0)
    scale = min(source.scale, digits)
    return pa.decimal128(min(integer_digits + scale, _MAX_DIGITS), scale)


def _rounding(mode: str) -> FunctionSpec:
    def compute(numbers: Datum, digits: Datum | None = None, *, result: pa.DataType) -> pa.Array:
        size = _digits(digits)
        kind = kind_of(numbers.type)
        if kind is Kind.INT:
            return _round_integers(numbers, size, mode, result)
        if kind is Kind.DECIMAL:
            found = per_distinct(lambda value: _round_one(value, size, mode, result), result, numbers)
            if found.null_count > numbers.null_count:
                raise InvalidInputError(f"a rounded number does not fit {result}")
            return found
        if pa.types.is_integer(result):
            return _to_long(pc.floor(numbers) if mode == ROUND_FLOOR else pc.ceil(numbers))
        texts = float_texts(numbers)
        return per_distinct(lambda text: _round_text(text, size, mode), pa.float64(), texts).cast(result, safe=False)

    # Spark wants a literal for floor and ceil, where others cast one.
    takes = (Takes.NUMBER, Takes.LONG if mode in (ROUND_FLOOR, ROUND_CEILING) else Takes.INT)
    return FunctionSpec(takes, _rounded_type(mode), compute, optional=1, typed=True)


def _round_one(value: Decimal, digits: int, mode: str, result: pa.DataType) -> Decimal | None:
    try:
        rounded = value.quantize(Decimal(1).scaleb(-min(digits, _MAX_DIGITS)), rounding=mode, context=_WIDE)
        quantized = rounded.quantize(Decimal(1).scaleb(-result.scale), context=_WIDE)
    except InvalidOperation:
        return None
    return quantized if len(quantized.as_tuple().digits) <= result.precision else None


def _round_text(text: str, digits: int, mode: str) -> float:
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent <= digits:
        return float(text) + 0.0  # as Java's BigDecimal has no -0.0
    if digits < -_MAX_DIGITS * 10:
        return 0.0
    return float(number.quantize(Decimal(1).scaleb(-digits), rounding=mode, context=_WIDE)) + 0.0


def _round_integers(numbers: Datum, digits: int, mode: str, result: pa.DataType) -> pa.Array:
    if digits >= 0:
        return numbers.cast(result)
    limit = 2 ** (result.bit_width - 1)

    def one(value: int) -> int | None:
        if digits < -_MAX_DIGITS:
            return 0
        rounded = int(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=mode, context=_WIDE))
        return rounded if -limit <= rounded < limit else None

    found = per_distinct(one, result, numbers)
    if found.null_count > numbers.null_count:
        raise InvalidInputError(f"a rounded number does not fit {result}")
    return found


def _to_long(numbers: Datum) -> pa.Array:
    values = np.array(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), np.float64)
    values = np.where(np.isnan(values), 0, values)  # as Java casts it
    if not np.all((values >= -(2.0**63)) & (values < 2.0**63)):
        raise InvalidInputError("the number does not fit a bigint")
    return pa.array(values.astype(np.int64), mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _operation(op: str, *, attempt: bool) -> FunctionSpec:
    def compute(left: Datum, right: Datum, *, result: pa.DataType) -> pa.Array:
        right = pa.repeat(right, len(left)) if isinstance(right, pa.Scalar) else right
        return calculate(op, left, right, result, attempt=attempt)

    divides = attempt and op in ("/", "%")
    return FunctionSpec((Takes.NUMBER, Takes.NUMBER), same_as_first, compute, typed=True, divisor_first=divides)


def _nanvl(first: Datum, second: Datum) -> pa.Array:
    return pc.if_else(pc.is_nan(first), second, first)


def _extreme(*, greatest: bool) -> Callable[..., pa.Array]:
    """Greatest or least value that is not null, in Spark's order."""

    def better(one: Datum, other: Datum) -> pa.Array:
        keys = [ordering_keys(side) for side in (one, other)]
        test = (pc.greater if greatest else pc.less)(keys[1], keys[0])
        take_other = pc.or_kleene(one.is_null(), pc.fill_null(test, False))
        return pc.if_else(take_other, other, one)

    def compute(first: Datum, *others: Datum) -> pa.Array:
        rows = len(first)
        return reduce(better, (pa.repeat(o, rows) if isinstance(o, pa.Scalar) else o for o in others), first)

    return compute


NUMBER_FUNCTIONS: dict[str, FunctionSpec] = {
    "negate": FunctionSpec((Takes.NUMBER,), same_as_first, _negate, written="-({0})"),
    "positive": FunctionSpec((Takes.NUMBER,), same_as_first, lambda numbers: numbers),
    "abs": FunctionSpec((Takes.NUMBER,), same_as_first, _abs),
    "sign": FunctionSpec((Takes.DOUBLE,), pa.float64(), _sign),
    "sqrt": FunctionSpec((Takes.DOUBLE,), pa.float64(), pc.sqrt),
    "round": _rounding(ROUND_HALF_UP),
    "bround": _rounding(ROUND_HALF_EVEN),
    "floor": _rounding(ROUND_FLOOR),
    "ceil": _rounding(ROUND_CEILING),
    **{name: _operation(op, attempt=True) for name, op in (
        ("try_add", "+"), ("try_subtract", "-"), ("try_multiply", "*"), ("try_divide", "/"), ("try_mod", "%"))},
    "pmod": _operation("pmod", attempt=False),
    "nanvl": FunctionSpec((Takes.DOUBLE, Takes.DOUBLE), pa.float64(), _nanvl),
    "isnan": FunctionSpec((Takes.DOUBLE,), pa.bool_(), lambda numbers: pc.fill_null(pc.is_nan(numbers), False),
                          strict=False),
    "greatest": FunctionSpec((Takes.COMMON, Takes.COMMON), same_as_first, _extreme(greatest=True), repeats=True,
                             strict=False),
    "least": FunctionSpec((Takes.COMMON, Takes.COMMON), same_as_first, _extreme(greatest=False), repeats=True,
                          strict=False),
    "bit_and": FunctionSpec((Takes.COMMON, Takes.COMMON), same_as_first, pc.bit_wise_and, written="({0} & {1})"),
    "bit_or": FunctionSpec((Takes.COMMON, Takes.COMMON), same_as_first, pc.bit_wise_or, written="({0} | {1})"),
    "bit_xor": FunctionSpec((Takes.COMMON, Takes.COMMON), same_as_first, pc.bit_wise_xor, written="({0} ^ {1})"),
    "bit_not": FunctionSpec((Takes.COMMON,), same_as_first, pc.bit_wise_not, written="~({0})"),
}  # fmt: skip
