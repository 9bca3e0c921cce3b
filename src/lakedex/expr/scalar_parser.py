"""Parse values: columns, literals, intervals, casts, arithmetic and functions; literals leave the SQL text first.

Take the literals out of SQL text before sqlglot sees it.

sqlglot reads strings and number suffixes a little differently from Spark (``1.5BD`` becomes a cast to DECIMAL
without scale, backslashes have other rules), and a literal that is read differently drops rows. So each string and
each suffixed number is replaced by a string of its own, ``'§12§'``, and looked up again in the parsed tree.

Interval literals: ``INTERVAL 1 DAY``, ``INTERVAL '1-2' YEAR TO MONTH``, ``INTERVAL '1 02:03' DAY TO MINUTE``.

The value half of the parser: columns, literals, casts, arithmetic, CASE and what looks into nested values.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakedex.errors import InvalidInputError
from lakedex.expr.arithmetic import decimal_result, exact_decimal, float32
from lakedex.expr.calls import CallTranslator
from lakedex.expr.casts import can_cast, fold_cast
from lakedex.expr.literals import unescape
from lakedex.expr.nodes import Arithmetic, Cast, Column, Comparison, Literal, Scalar, Truth, Unknown
from lakedex.expr.types import Kind, NotAStructError, NotPrunableError, kind_of, resolve_column

__all__ = ["Interval", "MaskedSql", "ScalarTranslator", "interval_of", "mask", "number_literal"]


_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
  | (?P<name> `(?:[^`]|``)*` )
  | (?P<hex> \b[xX] \s* (?: '[^']*' | "[^"]*" ) )
  | (?P<raw> \b[rR] (?: '[^']*' | "[^"]*" ) )
  | (?P<string> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
  | (?P<number> (?<![\w.]) (?:\d+(?:\.\d*)?|\.\d+) (?:[eE][+-]?\d+)? (?P<suffix>BD|[LSYDF]) (?!\w) )
  | (?P<bad> ['"`] | /\* )
  | (?P<other> \w+ | . )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


_MASK = re.compile(r"'§(\d+)§'")


_SUFFIX_TYPES: dict[str, Any] = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8(), "D": pa.float64(), "F": pa.float32()}


@dataclass(frozen=True, slots=True)
class MaskedSql:
    """The text for sqlglot, and what its masks stand for."""

    text: str
    sources: tuple[str, ...]
    literals: tuple[Literal, ...]

    def literal(self, text: str) -> Literal | None:
        """The literal behind a parsed string's text."""
        match = _MASK.fullmatch(f"'{text}'")
        return self.literals[int(match[1])] if match and int(match[1]) < len(self.literals) else None

    def unmask(self, text: str) -> str:
        """Put the user's own literals back into a text that sqlglot wrote."""
        return _MASK.sub(lambda m: self.sources[int(m[1])] if int(m[1]) < len(self.sources) else m[0], text)


def mask(sql: str) -> MaskedSql:
    """Replace string literals and suffixed numbers.

    Raises:
        InvalidInputError: An unclosed quote; a quote doubled inside a string (Spark 3 and Spark 4 read it differently).
    """
    if "§" in sql:
        # Our own mark inside the text: hide it, strings keep it through their sources.
        sql = _hide_marks(sql)
    out: list[str] = []
    sources: list[str] = []
    literals: list[Literal] = []
    end_of_string, last_quote = -1, ""
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup, match[0]
        if match["number"]:
            kind = "number"
        if kind == "bad":
            raise InvalidInputError(f"unclosed {text} at character {match.start() + 1} of: {sql}")
        if kind not in ("string", "raw", "hex", "number"):
            out.append(" " if kind == "comment" else text)
            continue
        if kind == "string" and end_of_string == match.start() and last_quote == text[0]:
            raise InvalidInputError(
                f"a doubled quote at character {match.start() + 1} of: {sql}; Spark versions read it differently,"
                " write a backslash before a quote inside a string"
            )
        end_of_string, last_quote = match.end(), text[-1]
        sources.append(text)
        literals.append(_literal(kind, text, match["suffix"]))
        out.append(f"'§{len(sources) - 1}§'")
    return MaskedSql("".join(out), tuple(sources), tuple(literals))


def _hide_marks(sql: str) -> str:
    parts = []
    for match in _TOKEN.finditer(sql):
        if "§" in match[0] and match.lastgroup == "string":
            parts.append(match[0].replace("§", "\\u00a7"))
        elif "§" in match[0] and match.lastgroup != "comment":
            raise InvalidInputError(f"the character § can only be used inside a quoted string: {sql}")
        else:
            parts.append(match[0])
    return "".join(parts)


def _literal(kind: str, text: str, suffix: str | None) -> Literal:
    if kind == "raw":
        return Literal(text[2:-1], pa.string())
    if kind == "hex":
        digits = text[1:].strip()[1:-1]
        try:
            return Literal(bytes.fromhex("0" * (len(digits) % 2) + digits), pa.binary())
        except ValueError as error:
            raise InvalidInputError(f"{text} is not hexadecimal") from error
    if kind == "string":
        return Literal(unescape(text[1:-1]), pa.string())
    suffix = (suffix or "").upper()
    return number_literal(text[: -len(suffix)], suffix)


def number_literal(text: str, suffix: str = "", *, negative: bool = False) -> Literal:
    """The literal of a number's text with Spark's type rules: int, else long, else decimal; exponent means double.

    Raises:
        InvalidInputError: Not a number, or out of its suffix's range.
        NotJudgeable: More than 38 digits.
    """
    sign = "-" if negative else ""
    try:
        if suffix in ("D", "F") or (not suffix and "e" in text.lower()):
            value = float(sign + text)
            if math.isinf(value):
                raise ValueError
            return Literal(float32(value) if suffix == "F" else value, _SUFFIX_TYPES[suffix or "D"])
        if suffix == "BD" or (not suffix and "." in text):
            return exact_decimal(Decimal(sign + text))
        whole = int(sign + text)
    except (ValueError, InvalidOperation) as error:
        raise InvalidInputError(f"{text + suffix!r} is not a number") from error
    if suffix:
        bits = _SUFFIX_TYPES[suffix].bit_width
        # The minus is no part of the literal in Spark's grammar but in its text: allow the smallest value's digits.
        if not -(2 ** (bits - 1)) <= whole <= 2 ** (bits - 1):
            raise InvalidInputError(f"{text + suffix!r} does not fit {_SUFFIX_TYPES[suffix]}")
        return Literal(whole, _SUFFIX_TYPES[suffix])
    for bits, type_ in ((32, pa.int32()), (64, pa.int64())):
        if -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
            return Literal(whole, type_)
    return exact_decimal(Decimal(whole))


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
        raise NotPrunableError("an interval of months and of time")
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
        raise NotPrunableError("an interval that is no literal")
    literal = masked.literal(str(tree.this))
    if literal is None:
        return str(tree.this)
    if not isinstance(literal.value, str):
        raise NotPrunableError("an interval that is no literal")
    return literal.value.strip()


def _single(text: str, unit: str) -> Interval:
    if _NUMBER.fullmatch(text) is None or (unit != "SECOND" and "." in text):
        raise NotPrunableError(f"the interval {text!r} {unit}")
    if unit in _MONTHS:
        return Interval(int(text) * _MONTHS[unit])
    if unit not in _MICROS:
        raise NotPrunableError(f"the interval unit {unit}")
    micros = int(Decimal(text) * _MICROS[unit])
    return Interval(None, micros, micros // _DAY if unit in _WHOLE_DAYS else None)


def _span(text: str, first: str, last: str) -> Interval:
    pattern = _SPANS.get((first, last))
    match = pattern.fullmatch(text) if pattern else None
    if match is None:
        raise NotPrunableError(f"the interval {text!r} {first} TO {last}")
    sign = -1 if match[1] == "-" else 1
    values = match.groups()[1:]
    if first == "YEAR":
        units: tuple[str, ...] = ("YEAR", "MONTH")
    else:
        units = _FIELDS[_FIELDS.index(first) :]
    for unit, value in list(zip(units, values, strict=False))[1:]:
        if Decimal(value) >= _LIMITS[unit] + 1:
            raise NotPrunableError(f"the interval {text!r} {first} TO {last}")
    if first == "YEAR":
        return Interval(sign * (int(values[0]) * 12 + int(values[1])))
    micros = sum(int(Decimal(value) * _MICROS[unit]) for unit, value in zip(units, values, strict=False))
    return Interval(None, sign * micros)


_ARITHMETIC: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "DIV",
}


_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}


_BITS: dict[type[exp.Expression], str] = {
    exp.BitwiseAnd: "bit_and",
    exp.BitwiseOr: "bit_or",
    exp.BitwiseXor: "bit_xor",
}


@dataclass(frozen=True, slots=True)
class ScalarTranslator(CallTranslator):
    """Turns sqlglot's trees of values into :data:`~lakedex.expr.nodes.Scalar`."""

    masked: MaskedSql
    schema: pa.Schema
    case_sensitive: bool = False

    def text(self, tree: exp.Expression) -> str:
        """The SQL text of a tree, with the user's own literals."""
        return self.masked.unmask(tree.sql(dialect="spark", comments=False, normalize_functions=False))

    def check_columns(self, tree: exp.Expression) -> None:
        """Refuse unknown columns anywhere in a condition, also where it cannot be judged."""
        if not tree.find(exp.Lambda, exp.Query):  # their own names are in scope there
            for node in tree.find_all(exp.Column):
                try:
                    self.column(_whole_name(node))
                except NotPrunableError:
                    continue

    def column(self, tree: exp.Expression) -> Column:
        """The column of a name."""
        parts = _name_parts(tree)
        try:
            return resolve_column(parts, self.schema, case_sensitive=self.case_sensitive)
        except NotAStructError as error:
            raise NotPrunableError from error

    def scalar(self, tree: exp.Expression) -> Scalar:
        """A value, nested ones too.

        Raises:
            NotJudgeable: Not one of the expressions that we know.
        """
        made = _NODES.get(type(tree))
        if made is not None:
            return made(self, tree)
        if isinstance(tree, exp.Predicate | exp.Connector | exp.Not | exp.Escape):
            return self.truth_of(tree)
        raise NotPrunableError(f"{type(tree).__name__.lower()} is not known outside Spark")

    @abstractmethod
    def value_of_call(self, tree: exp.Expression) -> Scalar:
        """A call, a condition's truth among them."""

    def truth_of(self, tree: exp.Expression) -> Scalar:
        """A condition as a value."""
        found = self.predicate(tree)
        if isinstance(found, Unknown):
            raise NotPrunableError(found.reason)
        if isinstance(found, Literal):
            return found
        # A value that stood as a condition comes back as it was.
        if isinstance(found, Comparison) and found.right is TRUE:
            return found.left
        return Truth(found)

    def _nested_or_scalar(self, tree: exp.Expression) -> Scalar:
        if isinstance(tree, exp.Dot) and not isinstance(tree.this, exp.Column | exp.Dot):
            return self._field(tree)
        return self.column(tree)

    def _field(self, tree: exp.Expression) -> Scalar:
        """A field of a struct that is not a column's: ``a[0].x``."""
        source = self.scalar(tree.this)
        if not pa.types.is_struct(source.type):
            raise NotPrunableError(f"{source.type} has no fields")
        wanted = tree.expression.name
        names = [f.name for f in source.type if f.name == wanted or (
            not self.case_sensitive and f.name.lower() == wanted.lower())]  # fmt: skip
        if len(names) != 1:
            raise NotPrunableError(f"{source.type} has no field {wanted}")
        return self.function("field", [source, Literal(names[0], pa.string())])

    def _bracket(self, tree: exp.Expression) -> Scalar:
        keys = tree.expressions
        if len(keys) != 1 or any(v for k, v in tree.args.items() if k not in ("this", "expressions", "offset")):
            raise NotPrunableError
        source = self.scalar(tree.this)
        if pa.types.is_struct(source.type):
            raise NotPrunableError("a field of a struct by [ ]: write a dot")
        return self.function("item", [source, self.scalar(keys[0])])

    def _literal(self, tree: exp.Expression) -> Literal:
        if isinstance(tree, exp.Null):
            return Literal(None, pa.null())
        if isinstance(tree, exp.Boolean):
            return Literal(bool(tree.this), pa.bool_())
        text = str(tree.this)
        if not tree.is_string:
            return number_literal(text)
        literal = self.masked.literal(text)
        if literal is None:
            raise NotPrunableError
        if kind_of(literal.type) is Kind.INT and literal.value == 2 ** (literal.type.bit_width - 1):
            raise InvalidInputError(f"{literal.value!r} does not fit {literal.type}")
        return literal

    def _negative(self, tree: exp.Expression) -> Scalar:
        inner = tree.this
        if isinstance(inner, exp.Literal):
            if not inner.is_string:
                return number_literal(str(inner.this), negative=True)
            literal = self.masked.literal(str(inner.this))
            if literal is None or not kind_of(literal.type).is_number or literal.value is None:
                raise NotPrunableError
            return Literal(-literal.value, literal.type)  # type: ignore[operator]
        if isinstance(inner, exp.Interval):
            raise NotPrunableError("an interval alone")
        return self.function("negate", [self.scalar(inner)])

    def _cast(self, tree: exp.Expression) -> Scalar:
        target = _arrow_type(tree.args["to"])
        if any(v for k, v in tree.args.items() if k not in ("this", "to", "safe", "_type")):
            raise NotPrunableError
        return self.cast_to(self.scalar(tree.this), target, attempt=bool(tree.args.get("safe")))

    def cast_to(self, operand: Scalar, target: pa.DataType, *, attempt: bool = False) -> Scalar:
        """A cast that a user wrote: of a literal its value, where it has one."""
        if isinstance(operand, Literal):
            if isinstance(operand.value, str) and kind_of(target) is Kind.TIMESTAMP and not self.binder.ansi:
                return self.binder.timestamp(operand.value)
            try:
                return fold_cast(operand, target, self.binder.timezone)
            except NotPrunableError:
                if not self.binder.ansi:
                    raise
        source, kind = kind_of(operand.type), kind_of(target)
        if source is kind and source not in (Kind.INT, Kind.DECIMAL):
            return operand
        if operand.type == target:
            return operand
        if not can_cast(operand.type, target) or (attempt and not self.binder.ansi):
            raise NotPrunableError(f"there is no cast from {operand.type} to {target} outside Spark")
        return Cast(operand, target, self.binder.timezone, attempt)

    def _calculated(self, tree: exp.Expression) -> Scalar:
        op = _ARITHMETIC[type(tree)]
        interval = interval_of(tree.expression, self.masked) if op in "+-" else None
        if interval is not None:
            return self._shifted(self.scalar(tree.this), interval.times(-1 if op == "-" else 1))
        if op == "+" and (interval := interval_of(tree.this, self.masked)) is not None:
            return self._shifted(self.scalar(tree.expression), interval)
        return self.arithmetic(op, self.scalar(tree.this), self.scalar(tree.expression))

    def _shifted(self, moment: Scalar, interval: Interval) -> Scalar:
        """A date or timestamp and an interval."""
        kind = kind_of(moment.type)
        if kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL):
            raise NotPrunableError(f"an interval and {moment.type}")
        if interval.months is not None:
            return self.function("plus_months", [moment, Literal(interval.months, pa.int32())])
        if kind is Kind.DATE and interval.days is not None:
            return self.function("date_add", [moment, Literal(interval.days, pa.int32())])
        return self.function("plus_micros", [moment, Literal(interval.micros, pa.int64())])

    def arithmetic(self, op: str, left: Scalar, right: Scalar) -> Scalar:
        """An arithmetic operation; with a date on the left, days."""
        if kind_of(left.type) is Kind.DATE and op in "+-" and kind_of(right.type) is Kind.INT:
            return self.call_date(op, left, right)
        one, other, result = self.calculation(op, left, right)
        return Arithmetic(op, one, other, result)

    def call_date(self, op: str, left: Scalar, right: Scalar) -> Scalar:
        """``date + days`` and ``date - days``."""
        if right.type == pa.int64():
            raise NotPrunableError("a date and a bigint")
        return self.function("date_add" if op == "+" else "date_sub", [left, right])

    def calculation(self, op: str, left: Scalar, right: Scalar) -> tuple[Scalar, Scalar, pa.DataType]:
        """Both sides of an arithmetic operation in Spark's types, and its result's."""
        kinds = {kind_of(left.type), kind_of(right.type)} - {Kind.NULL}
        if not any(k.is_number for k in kinds):
            raise NotPrunableError(f"{left.type} {op} {right.type}")
        common = self.binder.common_type(left, right).type
        if not kind_of(common).is_number:
            raise NotPrunableError(f"{left.type} {op} {right.type}")
        if kind_of(common) is Kind.DECIMAL:
            left, right = (Literal(None, common) if kind_of(s.type) is Kind.NULL else s for s in (left, right))
            types: list[Any] = [self.binder.decimal_type(side) for side in (left, right)]
            one, other = (self.binder.to(s, Literal(None, t)) for s, t in zip((left, right), types, strict=True))
            return one, other, decimal_result(op, *types)
        result = common
        if op == "/":
            common = result = pa.float64()
        elif op == "DIV":
            if kind_of(common) is not Kind.INT:
                raise NotPrunableError(f"{left.type} DIV {right.type}")
            common = result = pa.int64()
        typed = Literal(None, common)
        return self.binder.to(left, typed), self.binder.to(right, typed), result

    def _case(self, tree: exp.Expression) -> Scalar:
        branches = []
        for branch in tree.args["ifs"]:
            condition = branch.this
            if tree.this is not None:
                condition = exp.EQ(this=exp.Paren(this=tree.this.copy()), expression=exp.Paren(this=condition.copy()))
            branches.append((condition, branch.args["true"]))
        return self._branches(branches, tree.args.get("default"))

    def _if(self, tree: exp.Expression) -> Scalar:
        return self._branches([(tree.this, tree.args["true"])], tree.args.get("false"))

    def _branches(
        self, branches: list[tuple[exp.Expression, exp.Expression]], otherwise: exp.Expression | None
    ) -> Scalar:
        conditions = [self.predicate(condition) for condition, _ in branches]
        for condition in conditions:
            if isinstance(condition, Unknown):
                raise NotPrunableError(condition.reason)
        last: Scalar = Literal(None, pa.null()) if otherwise is None else self.scalar(otherwise)
        return self.branches(conditions, [*(self.scalar(value) for _, value in branches), last])

    def _piped(self, tree: exp.Expression) -> Scalar:
        return self.call("concat", [tree.this, tree.expression])

    def _bitwise(self, tree: exp.Expression) -> Scalar:
        sides = [self.scalar(tree.this), self.scalar(tree.expression)]
        if any(kind_of(side.type) is not Kind.INT for side in sides):
            raise NotPrunableError("bits of what is no integer")
        return self.function(_BITS[type(tree)], sides)

    def _inverted(self, tree: exp.Expression) -> Scalar:
        operand = self.scalar(tree.this)
        if kind_of(operand.type) is not Kind.INT:
            raise NotPrunableError("bits of what is no integer")
        return self.function("bit_not", [operand])

    def _trimmed(self, tree: exp.Expression) -> Scalar:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or "").upper(), "btrim")
        text, chars = self.scalar(tree.this), tree.expression
        if any(v for k, v in tree.args.items() if k not in ("this", "expression", "position")):
            raise NotPrunableError
        if not chars:
            return self.function(name, [text])
        pair = [text, self.scalar(chars)]
        return self.function(name, pair if name == "btrim" else pair[::-1])

    def _substring(self, tree: exp.Expression) -> Scalar:
        parts = [tree.this, tree.args.get("start"), tree.args.get("length")]
        return self.call("substring", [part for part in parts if part is not None])

    def _position(self, tree: exp.Expression) -> Scalar:
        parts = [tree.args["substr"], tree.this, tree.args.get("position")]
        return self.call("locate", [part for part in parts if part is not None])


TRUE = Literal(True, pa.bool_())
"""The other side of a comparison that a boolean value alone becomes."""


_NODES: dict[type[exp.Expression], Callable[[Any, Any], Scalar]] = {
    exp.Paren: lambda to, tree: to.scalar(tree.this),
    exp.Column: ScalarTranslator._nested_or_scalar,
    exp.Dot: ScalarTranslator._nested_or_scalar,
    exp.Literal: ScalarTranslator._literal,
    exp.Null: ScalarTranslator._literal,
    exp.Boolean: ScalarTranslator._literal,
    exp.Anonymous: lambda to, tree: to.value_of_call(tree),
    exp.Neg: ScalarTranslator._negative,
    exp.Cast: ScalarTranslator._cast,
    exp.TryCast: ScalarTranslator._cast,
    exp.Case: ScalarTranslator._case,
    exp.If: ScalarTranslator._if,
    exp.Bracket: ScalarTranslator._bracket,
    exp.DPipe: ScalarTranslator._piped,
    exp.BitwiseNot: ScalarTranslator._inverted,
    exp.Trim: ScalarTranslator._trimmed,
    exp.Substring: ScalarTranslator._substring,
    exp.StrPosition: ScalarTranslator._position,
    exp.Extract: lambda to, tree: to.extract(str(tree.this.name), to.scalar(tree.expression)),
    exp.CurrentDate: lambda to, _: to.call("current_date", []),
    exp.CurrentTimestamp: lambda to, _: to.call("current_timestamp", []),
    **dict.fromkeys(_ARITHMETIC, ScalarTranslator._calculated),
    **dict.fromkeys(_BITS, ScalarTranslator._bitwise),
}


def _arrow_type(tree: exp.Expression) -> pa.DataType:
    name = getattr(tree.this, "name", str(tree.this))
    parameters = tree.expressions
    if name == "DECIMAL" and len(parameters) <= 2:
        numbers = [int(p.name) for p in parameters]
        precision, scale = [*numbers, *(10, 0)[len(numbers) :]]
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    if parameters or name not in _TYPES:
        raise NotPrunableError
    return _TYPES[name]


def _name_parts(tree: exp.Expression) -> list[str]:
    if isinstance(tree, exp.Dot):
        if not isinstance(tree.expression, exp.Identifier):
            raise NotPrunableError
        return [*_name_parts(tree.this), tree.expression.name]
    if not isinstance(tree, exp.Column) or not all(isinstance(p, exp.Identifier) for p in tree.parts):
        raise NotPrunableError
    return [part.name for part in tree.parts]


def _whole_name(node: exp.Expression) -> exp.Expression:
    while isinstance(node.parent, exp.Dot) and node.arg_key == "this":
        node = node.parent
    return node
