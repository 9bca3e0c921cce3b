"""Make random SQL predicates over the columns of a table, from a source of random numbers.

Literals come mostly from values that the table holds, and from their neighbours, so that bounds decide.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.testing.values import DAY, INF, TEXTS, YEAR_1, YEAR_9999

__all__ = ["PredicateMaker", "SqlPredicate", "smallest_failing"]


@dataclass(frozen=True)
class SqlPredicate:
    """A predicate with its parts.

    Attributes:
        sql: Text of the predicate, in Spark's SQL.
        parts: Predicates that it is made of.
    """

    sql: str
    parts: tuple[SqlPredicate, ...] = ()


@dataclass
class PredicateMaker:
    """Make predicates: comparisons, lists, ranges, patterns and functions, under AND, OR and NOT.

    Attributes:
        rng: Source of random numbers; equal seeds make equal predicates.
        kinds: Type of each column; struct fields by dotted name.
        values: Physical values of columns, from which literals are made.
        keys: Columns to tie some predicates to, as queries often are: those of record key and partition.
    """

    rng: random.Random
    kinds: Mapping[str, pa.DataType]
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._names = list(self.kinds)
        self._plain = [n for n in self._names if not pa.types.is_nested(self.kinds[n])]

    def predicate(self, depth: int = 4) -> SqlPredicate:
        """Make a predicate.

        Args:
            depth: Deepest nesting of AND, OR and NOT.
        """
        found = self._nested(depth)
        if self.keys and self.rng.random() < 0.12:
            name = self.rng.choice(self.keys)
            few = ", ".join(self._literal(name) for _ in range(self.rng.choice([1, 1, 3])))
            in_few = SqlPredicate(f"{name} IN ({few})")
            return SqlPredicate(f"{in_few.sql} AND ({found.sql})", (in_few, found))
        return found

    def _nested(self, depth: int) -> SqlPredicate:
        rng = self.rng
        kind = rng.randrange(10) if depth else 9
        if kind <= 3:
            parts = tuple(self._nested(depth - 1) for _ in range(rng.choice([2, 2, 3])))
            return SqlPredicate(rng.choice([" AND ", " OR "]).join(f"({p.sql})" for p in parts), parts)
        if kind == 4:
            part = self._nested(depth - 1)
            return SqlPredicate(f"NOT ({part.sql})", (part,))
        if kind == 5 and rng.random() < 0.5:
            part = self._nested(depth - 1)
            return SqlPredicate(
                f"({part.sql}) {rng.choice(['IS NULL', 'IS NOT NULL', '<=> TRUE', '= FALSE'])}", (part,)
            )
        return SqlPredicate(self._leaf())

    def _leaf(self) -> str:
        rng = self.rng
        if rng.random() < 0.08:
            return f"{rng.choice(self._names)} IS {rng.choice(['', 'NOT '])}NULL"
        name = rng.choice(self._plain)
        kind = self.kinds[name]
        shape = rng.randrange(14)
        if shape == 0 and name != "_hoodie_record_key":
            return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
        if shape in (1, 2):
            return self._in_list(name, kind)
        if shape == 3:
            return f"{name} {rng.choice(['', 'NOT '])}BETWEEN {self._literal(name)} AND {self._literal(name)}"
        if shape in (4, 5) and pa.types.is_string(kind):
            return f"{name} {rng.choice(['', 'NOT '])}LIKE {self._pattern(name)}"
        if shape == 6:
            return self._with_function(name, kind)
        if shape == 8 and pa.types.is_boolean(kind):
            return rng.choice([name, f"NOT {name}", f"{name} IS TRUE", f"{name} IS NOT FALSE"])
        return self._comparison(name, kind, shape)

    def _in_list(self, name: str, kind: pa.DataType) -> str:
        rng = self.rng
        chosen = [self._literal(name) for _ in range(rng.choice([1, 2, 3, 9]))]
        if pa.types.is_boolean(kind) or pa.types.is_string(kind):
            # Spark has no common type of truth values and text.
            other = {"'true'": "FALSE"} if pa.types.is_boolean(kind) else {"TRUE": "'b'"}
            chosen = [other.get(text, text) for text in chosen]
        if rng.random() < 0.2:
            chosen.append("NULL")
        return f"{name} {rng.choice(['', '', 'NOT '])}IN ({', '.join(chosen)})"

    def _comparison(self, name: str, kind: pa.DataType, shape: int) -> str:
        if shape == 7:
            same = [n for n in self._plain if self.kinds[n] == kind or (_number(kind) and _number(self.kinds[n]))]
            return f"{name} {self._op()} {self.rng.choice(same)}"
        if shape == 9:
            return f"{self._computed(name, kind)} {self._op()} {self._literal(name)}"
        if shape == 10:
            return f"{self._literal(name)} {self._op()} {name}"
        return f"{name} {self._op()} {self._literal(name)}"

    def _op(self) -> str:
        return self.rng.choice(["=", "=", "<>", "<", "<=", ">", ">=", "<=>"])

    def _computed(self, name: str, kind: pa.DataType) -> str:
        rng = self.rng
        if pa.types.is_integer(kind):
            wide = [
                "BIGINT",
                "DOUBLE",
                "DECIMAL(25,2)",
                *(["DECIMAL(21,1)"] if kind.bit_width == 64 else ["INT", "DECIMAL(11,1)"]),
            ]
            return rng.choice(
                [
                    f"CAST({name} AS {rng.choice(wide)})",
                    f"coalesce({name}, 0)",
                    f"{name} % 5",
                    f"CASE WHEN {name} > 1 THEN {name} END",
                ]
            )
        if pa.types.is_floating(kind):
            return (
                rng.choice([f"CAST({name} AS DOUBLE)", f"-{name}", f"{name} * 2", f"coalesce({name}, 0.0D)"])
                if pa.types.is_float64(kind)
                else f"CAST({name} AS DOUBLE)"
            )
        if pa.types.is_decimal(kind):
            wider = f"DECIMAL({min(kind.precision + 4, 38)}, {kind.scale + 2})" if kind.precision <= 34 else "DOUBLE"
            return rng.choice([f"CAST({name} AS {wider})", f"CAST({name} AS DOUBLE)", f"-{name}"])
        if pa.types.is_string(kind):
            return rng.choice(
                [f"upper({name})", f"{name} || 'x'", f"coalesce({name}, 'b')", f"if({name} IS NULL, 'a', {name})"]
            )
        if pa.types.is_date32(kind):
            return rng.choice([f"CAST({name} AS TIMESTAMP)", f"coalesce({name}, DATE '2024-03-10')"])
        if pa.types.is_timestamp(kind):
            return f"CAST({name} AS DATE)"
        return name

    def _with_function(self, name: str, kind: pa.DataType) -> str:
        rng = self.rng
        if pa.types.is_string(kind):
            return rng.choice(
                [
                    f"length({name}) {self._op()} {rng.randint(0, 5)}",
                    f"substring({name}, 1, 1) = 'a'",
                    f"{name} RLIKE '^a'",
                    f"instr({name}, 'b') > 0",
                ]
            )
        if pa.types.is_temporal(kind):
            return f"year({name}) {self._op()} {rng.choice([1969, 1970, 2024])}"
        if pa.types.is_binary(kind):
            return f"hex({name}) = '61'"
        if pa.types.is_boolean(kind):
            return f"CAST({name} AS STRING) = 'true'"
        if pa.types.is_integer(kind):
            return f"sign({name}) {self._op()} 0"
        return f"isnan({name})" if pa.types.is_floating(kind) else f"abs({name}) {self._op()} 2"

    def _pattern(self, name: str) -> str:
        rng = self.rng
        text = str(rng.choice(self.values.get(name) or ["abc"]))[: rng.choice([0, 1, 2, 3, 258])]
        escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        shape = rng.choice(["{}%", "{}%", "{}", "%{}", "{}_", "{}%%", "%{}%", "_{}"])
        found = "'" + shape.format(escaped).replace("\\", "\\\\").replace("'", "\\'") + "'"
        if rng.random() < 0.15 and not set(text) & set("/%_\\"):
            return _sql_text(shape.format(text) + "/%") + " ESCAPE '/'"
        return found

    def _literal(self, name: str) -> str:
        rng, kind = self.rng, self.kinds[name]
        if rng.random() < 0.04:
            return "NULL"
        values = self.values.get(name)
        value = rng.choice(values) if values else None
        if value is None:
            value = rng.choice({"s": TEXTS}.get(name, [0])) if not pa.types.is_string(kind) else rng.choice(TEXTS)
        return _LITERALS[_family(kind)](rng, value, kind)


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _family(kind: pa.DataType) -> str:
    for name, is_kind in _FAMILIES.items():
        if is_kind(kind):
            return name
    return "timestamp" if kind.tz else "local"


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "bool": pa.types.is_boolean,
    "int": pa.types.is_integer,
    "float": pa.types.is_floating,
    "decimal": pa.types.is_decimal,
    "string": pa.types.is_string,
    "binary": pa.types.is_binary,
    "date": pa.types.is_date32,
}


def _sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\u0000", "\\u0000") + "'"


def _bool(rng: random.Random, value: Any, kind: pa.DataType) -> str:
    return rng.choice(["TRUE", "FALSE", "TRUE", "FALSE", "'true'"])


def _int(rng: random.Random, value: int, kind: pa.DataType) -> str:
    value = int(value) + rng.choice([0, 0, 0, 1, -1])
    shape = rng.randrange(8)
    if shape == 0 and abs(value) < 2**31:
        return f"{value}.5"
    if shape == 1:
        return f"{value}D" if abs(value) < 2**62 else f"{value}e0"
    if shape == 2 and abs(value) < 2 ** (kind.bit_width - 1):
        return f"'{value}'"
    if shape == 3 and abs(value) < 2**63:
        return f"{value}L"
    if shape == 4 and abs(value) < 10**9:
        return f"{value}.00BD"
    return str(value)


def _float(rng: random.Random, value: float, kind: pa.DataType) -> str:
    value = float(value)
    if rng.random() < 0.3 and math.isfinite(value):
        value = (
            float(np.nextafter(np.float32(value), np.float32(INF)))
            if pa.types.is_float32(kind)
            else math.nextafter(value, -INF)
        )
    name = rng.choice(["DOUBLE", "FLOAT" if pa.types.is_float32(kind) else "DOUBLE"])
    if not math.isfinite(value):
        return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS {name})"
    if name == "FLOAT":
        return f"CAST({value!r}D AS FLOAT)"
    if rng.random() < 0.2 and abs(value) < 1e6 and value == round(value, 3):
        return f"{round(value, 3):.3f}" if rng.random() < 0.5 else str(int(value))
    return f"{value!r}D"


def _decimal(rng: random.Random, value: Any, kind: pa.DataType) -> str:
    value = Decimal(value)
    context = Context(prec=60)
    step = Decimal(1).scaleb(-kind.scale)
    value = context.add(value, rng.choice([0, 0, 0, 1, -1]) * step)
    shape = rng.randrange(6)
    if shape == 0 and kind.precision < 30:
        return f"{context.add(value, step / 2):f}"
    if shape == 1:
        return f"{float(value)!r}D"
    if shape == 2 and abs(value) < 2**31:
        return str(int(value))
    digits = len(value.as_tuple().digits)
    return f"{value:f}BD" if digits <= 38 else "0"


def _string(rng: random.Random, value: Any, kind: pa.DataType) -> str:
    value = str(value)
    shape = rng.randrange(8)
    if shape == 0:
        value += rng.choice(["a", "😀", "\uffff"])
    elif shape == 1:
        value = value[:-1]
    elif shape == 2:
        value = value[:256]
    elif shape == 3 and value:
        value = value[:-1] + chr(
            ord(value[-1]) + 1 if ord(value[-1]) + 1 not in range(0xD800, 0xE000) and ord(value[-1]) < 0x10FFFF else 97
        )
    elif shape == 4 and rng.random() < 0.3:
        return rng.choice(["1", "12", "DATE '2024-03-10'", "TRUE"])
    return _sql_text(value)


def _binary(rng: random.Random, value: Any, kind: pa.DataType) -> str:
    value = value if isinstance(value, bytes) else b"a"
    shape = rng.randrange(5)
    value = value + b"\x00" if shape == 0 else value[:-1] if shape == 1 else value
    return f"X'{value.hex().upper()}'"


def _day(value: int) -> str:
    return str(dt.date.fromordinal(max(min(value, YEAR_9999), YEAR_1) + 719_163)).rjust(10, "0")


def _moment(value: int) -> str:
    value = max(min(value, YEAR_9999 * DAY), YEAR_1 * DAY)
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
    return moment.isoformat(sep=" ", timespec="microseconds")


def _date(rng: random.Random, value: int, kind: pa.DataType) -> str:
    value = int(value) + rng.choice([0, 0, 0, 1, -1])
    shape = rng.randrange(6)
    if shape == 0:
        return f"'{_day(value)}'"
    if shape == 1:
        return f"TIMESTAMP '{_moment(value * DAY + rng.choice([0, 1, -1, 9 * 3_600_000_000]))}'"
    return f"DATE '{_day(value)}'"


def _timestamp(rng: random.Random, value: int, kind: pa.DataType) -> str:
    value = int(value) + rng.choice([0, 0, 0, 1, -1, 9 * 3_600_000_000, -5 * 3_600_000_000])
    shape = rng.randrange(6)
    if shape == 0:
        return f"'{_moment(value)}'"
    if shape == 1:
        return f"DATE '{_day(value // DAY)}'"
    if shape == 2:
        return f"TIMESTAMP '{_moment(value)}'"
    return f"TIMESTAMP '{_moment(value)}Z'"


def _local(rng: random.Random, value: int, kind: pa.DataType) -> str:
    value = int(value) + rng.choice([0, 0, 0, 1, -1])
    shape = rng.randrange(6)
    if shape == 0:
        return f"'{_moment(value)}'"
    if shape == 1:
        return f"DATE '{_day(value // DAY)}'"
    return f"TIMESTAMP_NTZ '{_moment(value)}'"


_LITERALS: dict[str, Callable[[random.Random, Any, pa.DataType], str]] = {
    "bool": _bool, "int": _int, "float": _float, "decimal": _decimal, "string": _string, "binary": _binary,
    "date": _date, "timestamp": _timestamp, "local": _local,
}  # fmt: skip


def smallest_failing(predicate: SqlPredicate, fails: Callable[[str], Any]) -> SqlPredicate:
    """Find the smallest part of a failing predicate that still fails.

    Args:
        predicate: Failing predicate.
        fails: Whether a predicate's text fails; any true value counts.
    """
    for part in predicate.parts:
        if fails(part.sql):
            return smallest_failing(part, fails)
    return predicate
