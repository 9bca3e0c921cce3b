"""What the table of functions says of each function: its arguments, its type, how it is worked out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

__all__ = ["FunctionSpec", "Takes", "same_as_first"]


class Takes(Enum):
    """A class of arguments; what is of another type is cast as Spark casts arguments."""

    ANY = "a value"
    TEXT = "text"
    TEXTS = "text or an array of texts"
    TEXT_OR_BYTES = "text or binary"
    INT = "an integer"
    LONG = "a long integer"
    DOUBLE = "a double"
    NUMBER = "a number"
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
    """A function of the table.

    Attributes:
        takes: Its parameters.
        result: Its type, or how that follows from the typed arguments.
        compute: From Arrow arrays to an array. The first argument is an array; literals among the others are scalars.
            Gets the node's type as ``result`` and the session's time zone as ``timezone`` where it asks for them.
        optional: So many of the last parameters may be left out; ``compute`` then gets fewer arguments.
        repeats: The last parameter may come any number of times.
        strict: A null argument makes the result null, and arguments after it are not looked at.
        zoned: The answer depends on the session's time zone if an argument is a timestamp.
        typed: ``compute`` asks for the result's type.
        in_both_modes: Spark gives the same answer, or an error, whether ANSI mode is on or off.
        divisor_first: The second argument is looked at first, and zero in it makes the result null.
        written: How SQL writes the call, with ``{0}`` and so on for its arguments; ``name(…)`` if empty.
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
        """The type of a call with these arguments."""
        return self.result if isinstance(self.result, pa.DataType) else self.result(arguments)

    def accepts(self, count: int) -> bool:
        """Whether a call may have so many arguments."""
        least = len(self.takes) - self.optional
        return least <= count and (self.repeats or count <= len(self.takes))

    def parameter(self, position: int) -> Takes:
        """The parameter at a position."""
        return self.takes[min(position, len(self.takes) - 1)]


def same_as_first(arguments: Sequence[Any]) -> pa.DataType:
    """The type of the first argument."""
    found: pa.DataType = arguments[0].type
    return found
