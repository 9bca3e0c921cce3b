"""The grammar: sqlglot's Spark dialect, with every call left as it is written.

sqlglot turns the calls that it knows into nodes of its own, with arguments that have been put in another order, left
out or filled in. Whether a call means what Spark means is for :mod:`lakedex.expr.functions` to say, so calls stay
calls, by the name that stands in the text. Only what has a syntax of its own (``CAST``, ``TRIM(BOTH …)``) is taken
apart.
"""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot.dialects.spark import Spark

__all__ = ["parse_trees"]

_OWN_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION", "OVERLAY")


class _PlainSpark(Spark):
    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012 - sqlglot's own way to set up a dialect
        FUNCTION_PARSERS = {k: v for k, v in Spark.Parser.FUNCTION_PARSERS.items() if k in _OWN_SYNTAX}  # noqa: RUF012


def parse_trees(sql: str) -> list[Any]:
    """The trees of the statements in a text."""
    return list(sqlglot.parse(sql, read=_PlainSpark))
