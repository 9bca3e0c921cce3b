"""Casts of constants, folded at parse time."""

from __future__ import annotations

import pyarrow as pa

from lakedex.errors import LakedexError
from lakedex.expr.casts import cast_array
from lakedex.expr.keys import literal_array, literals_of
from lakedex.expr.kinds import Kind, NotJudgeable, kind_of
from lakedex.expr.nodes import Literal

__all__ = ["fold_cast"]

# A literal's value is in microseconds whatever the unit of the column.
_LITERAL_TYPES: dict[Kind, pa.DataType] = {Kind.TIMESTAMP: pa.timestamp("us", "UTC"), Kind.LOCAL: pa.timestamp("us")}


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
    try:
        found = literals_of(cast_array(literal_array(literal), target, timezone))
    except LakedexError as error:
        raise NotJudgeable from error
    return found[0] if found else Literal(None, target)
