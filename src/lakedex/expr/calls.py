"""Translate function calls to :class:`Function` nodes with typed arguments, or to Spark's own rewrites of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakedex.expr.binder import Binder
from lakedex.expr.functions import ALIASES, CASTS_BY_NAME, FUNCTIONS, INTERNAL, nearest_names
from lakedex.expr.functions_nested import element_type, key_type
from lakedex.expr.functions_time import is_unit
from lakedex.expr.literals import session_zone
from lakedex.expr.nodes import Case, Comparison, Function, IsNull, Literal, Not, Predicate, Scalar
from lakedex.expr.signatures import FunctionSpec, Takes
from lakedex.expr.types import Kind, NotPrunableError, kind_of

__all__ = ["CallTranslator"]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_INSTANT = pa.timestamp("us", "UTC")


_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"


_FIELDS = {
    name: part
    for part, names in {
        "year": "YEAR Y YEARS YR YRS", "yearofweek": "YEAROFWEEK", "quarter": "QUARTER QTR",
        "month": "MONTH MON MONS MONTHS", "weekofyear": "WEEK W WEEKS", "day": "DAY D DAYS",
        "dayofweek": "DAYOFWEEK DOW", "dayofweek_iso": "DAYOFWEEK_ISO DOW_ISO", "dayofyear": "DOY",
        "hour": "HOUR H HOURS HR HRS", "minute": "MINUTE M MIN MINS MINUTES",
        "seconds": "SECOND S SEC SECONDS SECS",
    }.items()
    for name in names.split()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallTranslator(ABC):
    """Part of the parser that translates calls."""

    binder: Binder

    @abstractmethod
    def scalar(self, tree: exp.Expression) -> Scalar:
        """Translate a value."""

    @abstractmethod
    def predicate(self, tree: exp.Expression) -> Predicate:
        """Translate a condition."""

    @abstractmethod
    def cast_to(self, operand: Scalar, target: pa.DataType, *, attempt: bool = False) -> Scalar:
        """Translate an explicit cast."""

    @abstractmethod
    def calculation(self, op: str, left: Scalar, right: Scalar) -> tuple[Scalar, Scalar, pa.DataType]:
        """Both operands in Spark's types, and the type of the result."""

    @abstractmethod
    def arithmetic(self, op: str, left: Scalar, right: Scalar) -> Scalar:
        """Translate an arithmetic operation."""

    def call(self, name: str, trees: Sequence[exp.Expression]) -> Scalar:
        """Translate a call as written in the text.

        Raises:
            NotPrunableError: The function or its arguments are unsupported; the message suggests similar names.
        """
        known = name.lower()
        arguments = [self.scalar(tree) for tree in trees]
        macro = _MACROS.get(known)
        if macro is not None:
            return macro(self, arguments)
        if known in CASTS_BY_NAME and len(arguments) == 1:
            return self.cast_to(arguments[0], CASTS_BY_NAME[known])
        if known in INTERNAL or ALIASES.get(known, known) not in FUNCTIONS:
            near = nearest_names(name)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise NotPrunableError(f"function {name} is not supported outside Spark{hint}")
        return self.function(ALIASES.get(known, known), arguments)

    def function(self, name: str, arguments: Sequence[Scalar]) -> Scalar:
        """Call of a known function with its arguments cast."""
        spec = FUNCTIONS[name]
        if not spec.accepts(len(arguments)):
            raise NotPrunableError(f"{name} does not take {len(arguments)} arguments")
        if not (spec.in_both_modes or self.binder.ansi):
            raise NotPrunableError(f"{name} depends on spark.sql.ansi.enabled")
        typed = self._typed(name, spec, arguments)
        return Function(name, tuple(typed), spec.type_of(typed), self.binder.timezone)

    def _typed(self, name: str, spec: FunctionSpec, arguments: Sequence[Scalar]) -> list[Scalar]:
        if spec.takes[0] is Takes.COMMON:
            return self.binder.many(arguments)
        typed: list[Scalar] = []
        for position, argument in enumerate(arguments):
            takes = spec.parameter(position)
            nested = _NESTED_TESTS.get(takes)
            if nested is not None:
                if not nested(argument.type):
                    raise NotPrunableError(f"{name} takes {takes.value}, not {argument.type}")
                typed.append(argument)
            elif takes is Takes.WORD:
                if not isinstance(argument, Literal) or kind_of(argument.type) not in (Kind.STRING, Kind.NULL):
                    raise NotPrunableError(f"{name} takes a literal text as argument {position + 1}")
                typed.append(Literal(argument.value, pa.string()))
            elif takes is Takes.TEXTS:
                listed = _is_list(argument.type) and element_type(argument.type) == pa.string()
                typed.append(argument if listed else self.binder.argument(argument, Takes.TEXT))
            elif takes is Takes.ELEMENT:
                typed.append(self._element(name, typed[0].type, argument))
            else:
                typed.append(argument if takes is Takes.ANY else self.binder.argument(argument, takes))
        return typed

    def _element(self, name: str, nested: Any, argument: Scalar) -> Scalar:
        if name in ("array_contains", "array_position"):
            wanted = element_type(nested)
            if kind_of(argument.type) is not kind_of(wanted) or kind_of(wanted) is Kind.DECIMAL:
                raise NotPrunableError(f"{name} expects {wanted} for this array, not {argument.type}")
            return argument
        if kind_of(argument.type) is Kind.NULL and name != "item":
            raise NotPrunableError(f"{name} of NULL")
        wanted = key_type(nested)
        if kind_of(wanted) is Kind.INT and kind_of(argument.type) in (Kind.INT, Kind.NULL):
            return self.binder.to(argument, Literal(None, wanted))
        if kind_of(wanted) is Kind.STRING:
            return self.binder.argument(argument, Takes.TEXT)
        if kind_of(argument.type) not in (kind_of(wanted), Kind.NULL) or kind_of(wanted) is Kind.DECIMAL:
            raise NotPrunableError(f"the key must be {wanted}, not {argument.type}")
        return self.binder.to(argument, Literal(None, wanted))

    def extract(self, field: str, source: Scalar) -> Scalar:
        """``EXTRACT(field FROM source)``."""
        part = _FIELDS.get(field.upper())
        if part is None:
            raise NotPrunableError(f"a time has no field {field}")
        if part == "seconds" and kind_of(source.type) is Kind.STRING:
            raise NotPrunableError("the seconds of a text")
        return self.function(part, [source])

    def branches(self, conditions: Sequence[Predicate], values: Sequence[Scalar]) -> Scalar:
        """``CASE``: a value per condition, and one more for rows that match none."""
        typed = self.binder.many(values)
        return Case(tuple(zip(conditions, typed[:-1], strict=True)), typed[-1], typed[-1].type)


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


_NESTED_TESTS: dict[Takes, Callable[[Any], bool]] = {
    Takes.LIST: _is_list,
    Takes.MAP: pa.types.is_map,
    Takes.NESTED: lambda data_type: _is_list(data_type) or pa.types.is_map(data_type),
}


# ------------------------------------------------------------------------------ what Spark rewrites to something else

_Macro = Callable[[CallTranslator, list[Scalar]], Scalar]


def _count(arguments: Sequence[Scalar], *allowed: int) -> None:
    if len(arguments) not in allowed:
        raise NotPrunableError(f"{len(arguments)} arguments")


def _nullif(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 2)
    first = arguments[0]
    equal = Comparison("=", *to.binder.pair(*arguments))
    return Case(((equal, Literal(None, first.type)),), first, first.type)


def _nvl2(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 3)
    return to.branches([Not(IsNull(arguments[0]))], arguments[1:])


def _try(op: str, name: str) -> _Macro:
    def make(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
        _count(arguments, 2)
        if any(kind_of(argument.type) is Kind.STRING for argument in arguments):
            raise NotPrunableError(f"{name} of text, which is null in Spark where it is no number")
        left, right, result = to.calculation(op, *arguments)
        return Function(name, (left, right), result, to.binder.timezone)

    return make


def _arithmetic(op: str) -> _Macro:
    def make(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
        _count(arguments, 2)
        return to.arithmetic(op, *arguments)

    return make


def _concat(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    if not arguments:
        return Literal("", pa.string())
    kinds = {kind_of(argument.type) for argument in arguments}
    return to.function("concat_bytes" if kinds == {Kind.BINARY} else "concat", arguments)


def _cast(target: pa.DataType, named: str, *, attempt: bool) -> _Macro:
    """``to_date`` and similar functions: a cast, or parsing by a pattern if given text."""

    def make(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
        _count(arguments, 1, 2)
        moment = kind_of(arguments[0].type) in (Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL)
        if len(arguments) == 1 or moment:
            if not moment and kind_of(arguments[0].type) not in (Kind.STRING, Kind.NULL):
                raise NotPrunableError(f"{named} of {arguments[0].type}")
            return to.cast_to(arguments[0], target, attempt=attempt)
        return to.function(named, arguments)

    return make


def _to_local(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 1)
    if kind_of(arguments[0].type) not in (Kind.STRING, Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL, Kind.NULL):
        raise NotPrunableError(f"to_timestamp_ntz of {arguments[0].type}")
    return to.cast_to(arguments[0], pa.timestamp("us"))


def _unix_timestamp(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 1, 2)
    source = arguments[0]
    if kind_of(source.type) is Kind.STRING:
        pattern = arguments[1] if len(arguments) > 1 else Literal(_DEFAULT_PATTERN, pa.string())
        source = to.function("to_timestamp", [source, pattern])
    return to.function("unix_timestamp", [source])


def _truncated(to: CallTranslator, name: str, moment: Scalar, unit: Scalar) -> Scalar:
    found = to.function(name, [moment, unit])
    if isinstance(unit, Literal) and isinstance(unit.value, str) and not is_unit(unit.value, dates=name == "trunc"):
        return Literal(None, found.type)  # for any date, as in Spark
    return found


def _date_trunc(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 2)
    return _truncated(to, "date_trunc", arguments[1], arguments[0])


def _trunc(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 2)
    return _truncated(to, "trunc", *arguments)


def _date_part(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 2)
    field = arguments[0]
    if not isinstance(field, Literal) or not isinstance(field.value, str):
        raise NotPrunableError("date_part takes a literal text as field")
    return to.extract(field.value, arguments[1])


def _now(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _count(arguments, 0)
    if not to.binder.ansi:
        raise NotPrunableError("the current time is known to Spark only")
    return Literal((datetime.now(UTC) - _EPOCH) // timedelta(microseconds=1), _INSTANT)


def _today(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
    _now(to, arguments)
    today = datetime.now(session_zone(to.binder.timezone)).date()
    return Literal(today.toordinal() - _EPOCH.date().toordinal(), pa.date32())


def _date_add(sign: str) -> _Macro:
    def make(to: CallTranslator, arguments: list[Scalar]) -> Scalar:
        _count(arguments, 2)
        if kind_of(arguments[1].type) in (Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL) or arguments[1].type == pa.int64():
            raise NotPrunableError(f"{sign} takes an int as number of days")
        return to.function(sign, arguments)

    return make


_MACROS: dict[str, _Macro] = {
    "nullif": _nullif,
    "nvl2": _nvl2,
    "mod": _arithmetic("%"),
    "pmod": _arithmetic("pmod"),
    "try_add": _try("+", "try_add"),
    "try_subtract": _try("-", "try_subtract"),
    "try_multiply": _try("*", "try_multiply"),
    "try_divide": _try("/", "try_divide"),
    "try_mod": _try("%", "try_mod"),
    "concat": _concat,
    "to_date": _cast(pa.date32(), "to_date", attempt=False),
    "try_to_date": _cast(pa.date32(), "try_to_date", attempt=True),
    "to_timestamp": _cast(_INSTANT, "to_timestamp", attempt=False),
    "try_to_timestamp": _cast(_INSTANT, "try_to_timestamp", attempt=True),
    "to_timestamp_ntz": _to_local,
    "unix_timestamp": _unix_timestamp,
    "to_unix_timestamp": _unix_timestamp,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_part": _date_part,
    "datepart": _date_part,
    "date_add": _date_add("date_add"),
    "dateadd": _date_add("date_add"),
    "date_sub": _date_add("date_sub"),
    "now": _now,
    "current_timestamp": _now,
    "current_date": _today,
    "curdate": _today,
    "negative": lambda to, arguments: to.function("negate", arguments),
}
