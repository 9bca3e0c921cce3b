"""Interval literals: ``INTERVAL 1 DAY``, ``INTERVAL '1-2' YEAR TO MONTH``, ``INTERVAL '1 02:03' DAY TO MINUTE``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import exp

from lakedex.expr.kinds import NotJudgeable
from lakedex.expr.mask import MaskedSql

__all__ = ["Interval", "interval_of"]

_MONTHS = {"YEAR": 12, "MONTH": 1}
_MICROS = {
    "WEEK": 604_800_000_000, "DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000,
    "MILLISECOND": 1000, "MICROSECOND": 1,
}  # fmt: skip
_DAY = _MICROS["DAY"]
_WHOLE_DAYS = ("WEEK", "DAY")
_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,9})?")
_SPANS = {
    ("YEAR", "MONTH"): re.compile(r"([+-]?)(\d{1,9})-(\d{1,2})"),
    ("DAY", "HOUR"): re.compile(r"([+-]?)(\d{1,9}) (\d{1,2})"),
    ("DAY", "MINUTE"): re.compile(r"([+-]?)(\d{1,9}) (\d{1,2}):(\d{1,2})"),
    ("DAY", "SECOND"): re.compile(r"([+-]?)(\d{1,9}) (\d{1,2}):(\d{1,2}):(\d{1,2}(?:\.\d{1,6})?)"),
    ("HOUR", "MINUTE"): re.compile(r"([+-]?)(\d{1,9}):(\d{1,2})"),
    ("HOUR", "SECOND"): re.compile(r"([+-]?)(\d{1,9}):(\d{1,2}):(\d{1,2}(?:\.\d{1,6})?)"),
    ("MINUTE", "SECOND"): re.compile(r"([+-]?)(\d{1,9}):(\d{1,2}(?:\.\d{1,6})?)"),
}
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_LIMITS = {"MONTH": 11, "HOUR": 23, "MINUTE": 59, "SECOND": 59}


@dataclass(frozen=True, slots=True)
class Interval:
    """Months, or microseconds; ``days`` where the interval has no smaller unit than a day."""

    months: int | None
    micros: int = 0
    days: int | None = None

    def times(self, factor: int) -> Interval:
        """The interval so many times."""
        months, days = (None if n is None else n * factor for n in (self.months, self.days))
        return Interval(months, self.micros * factor, days)


def interval_of(tree: Any, masked: MaskedSql) -> Interval | None:
    """The interval that a tree is a literal of; None for anything else.

    Raises:
        NotJudgeable: An interval that we do not read.
    """
    if isinstance(tree, exp.Paren):
        return interval_of(tree.this, masked)
    if isinstance(tree, exp.Neg):
        inner = interval_of(tree.this, masked)
        return None if inner is None else inner.times(-1)
    if isinstance(tree, exp.Add):
        parts = [interval_of(side, masked) for side in (tree.this, tree.expression)]
        return None if parts[0] is None or parts[1] is None else _sum(parts[0], parts[1])
    if not isinstance(tree, exp.Interval):
        return None
    text, unit = _amount(tree.this, masked), tree.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _span(text, _unit(unit.this), _unit(unit.expression))
    return _single(text, _unit(unit))


def _sum(one: Interval, other: Interval) -> Interval:
    if (one.months is None) != (other.months is None):
        raise NotJudgeable("an interval of months and of time")
    if one.months is not None and other.months is not None:
        return Interval(one.months + other.months)
    days = None if one.days is None or other.days is None else one.days + other.days
    return Interval(None, one.micros + other.micros, days)


def _unit(node: Any) -> str:
    name = str(getattr(node, "name", "")).upper()
    return name.removesuffix("S") if name.endswith("S") else name


def _amount(tree: Any, masked: MaskedSql) -> str:
    if isinstance(tree, exp.Neg):
        return "-" + _amount(tree.this, masked)
    if not isinstance(tree, exp.Literal):
        raise NotJudgeable("an interval that is no literal")
    literal = masked.literal(str(tree.this))
    if literal is None:
        return str(tree.this)
    if not isinstance(literal.value, str):
        raise NotJudgeable("an interval that is no literal")
    return literal.value.strip()


def _single(text: str, unit: str) -> Interval:
    if _NUMBER.fullmatch(text) is None or (unit != "SECOND" and "." in text):
        raise NotJudgeable(f"the interval {text!r} {unit}")
    if unit in _MONTHS:
        return Interval(int(text) * _MONTHS[unit])
    if unit not in _MICROS:
        raise NotJudgeable(f"the interval unit {unit}")
    micros = int(Decimal(text) * _MICROS[unit])
    return Interval(None, micros, micros // _DAY if unit in _WHOLE_DAYS else None)


def _span(text: str, first: str, last: str) -> Interval:
    pattern = _SPANS.get((first, last))
    match = pattern.fullmatch(text) if pattern else None
    if match is None:
        raise NotJudgeable(f"the interval {text!r} {first} TO {last}")
    sign = -1 if match[1] == "-" else 1
    values = match.groups()[1:]
    if first == "YEAR":
        units: tuple[str, ...] = ("YEAR", "MONTH")
    else:
        units = _FIELDS[_FIELDS.index(first) :]
    for unit, value in list(zip(units, values, strict=False))[1:]:
        if Decimal(value) >= _LIMITS[unit] + 1:
            raise NotJudgeable(f"the interval {text!r} {first} TO {last}")
    if first == "YEAR":
        return Interval(sign * (int(values[0]) * 12 + int(values[1])))
    micros = sum(int(Decimal(value) * _MICROS[unit]) for unit, value in zip(units, values, strict=False))
    return Interval(None, sign * micros)
