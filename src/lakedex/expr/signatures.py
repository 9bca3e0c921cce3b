"""Signatures of functions: arguments, result type and implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

__all__ = ["Datum", "FunctionSpec", "Takes", "same_as_first"]


Datum = pa.Array | pa.Scalar
"""An argument of a function: a column, or the value of a literal."""


class Takes(Enum):
    """A class of arguments; arguments of other types are cast as in Spark."""

    ANY = "a value"
    TEXT = "text"
    TEXTS = "text or an array of texts"
    TEXT_OR_BYTES = "text or binary"
    INT = "an integer"
    LONG = "a long integer"
    DOUBLE = "a double"
    NUMBER = "a number"
    NO_TEXT = "a number, not text that has one"
    BOOLEAN = "a boolean"
    DATE = "a date"
    MOMENT = "a timestamp, with time zone or without"
    INSTANT = "a timestamp"
    COMMON = "a value of the type that all arguments have in common"
    LIST = "an array"
    NESTED = "an array or a map"
    MAP = "a map"
    ELEMENT = "a value of the array's element type, or of the map's key type"
    WORD = "a literal text"


TypeRule = Callable[[Sequence[Any]], pa.DataType]


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A supported function.

    Attributes:
        takes: Parameters.
        result: Type of the result, or the rule to derive it from the typed arguments.
        compute: Function from Arrow arrays to an array. The first argument is an array; literals among the others are
            scalars. Receives the node's type as ``result`` if ``typed``, the session's time zone as ``timezone`` if
            ``zoned``.
        optional: Number of trailing parameters that may be omitted; ``compute`` then gets fewer arguments.
        repeats: Whether the last parameter may be repeated.
        strict: Whether a null argument makes the result null, without evaluation of the following arguments.
        zoned: Whether the result depends on the session's time zone if an argument is a timestamp.
        typed: Whether ``compute`` takes the type of the result.
        in_both_modes: Whether Spark returns the same value, or an error, with ANSI mode on or off.
        divisor_first: Whether the second argument is evaluated first, and zero in it makes the result null.
        written: SQL format of the call, with ``{0}`` and so on for its arguments; ``name(…)`` if empty.
    """

    takes: tuple[Takes, ...]
    result: pa.DataType | TypeRule
    compute: Callable[..., Any]
    optional: int = 0
    repeats: bool = False
    strict: bool = True
    zoned: bool = False
    typed: bool = False
    in_both_modes: bool = True
    divisor_first: bool = False
    written: str = ""

    def type_of(self, arguments: Sequence[Any]) -> pa.DataType:
        """Type of a call with these arguments."""
        return self.result if isinstance(self.result, pa.DataType) else self.result(arguments)

    def accepts(self, count: int) -> bool:
        """Whether a call may have ``count`` arguments."""
        least = len(self.takes) - self.optional
        return least <= count and (self.repeats or count <= len(self.takes))

    def parameter(self, position: int) -> Takes:
        """Parameter at a position."""
        return self.takes[min(position, len(self.takes) - 1)]


def same_as_first(arguments: Sequence[Any]) -> pa.DataType:
    """Type of the first argument."""
    found: pa.DataType = arguments[0].type
    return found
