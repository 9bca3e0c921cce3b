"""The value half of the parser: columns, literals, casts, arithmetic, CASE and what looks into nested values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakedex.errors import InvalidInputError
from lakedex.expr.arithmetic import decimal_result
from lakedex.expr.calls import CallTranslator
from lakedex.expr.casts import can_cast
from lakedex.expr.fold import fold_cast
from lakedex.expr.intervals import Interval, interval_of
from lakedex.expr.kinds import Kind, NotJudgeable, kind_of
from lakedex.expr.mask import MaskedSql, number_literal
from lakedex.expr.names import NotAStructError, resolve_column
from lakedex.expr.nodes import Arithmetic, Cast, Column, Comparison, Literal, Scalar, Truth, Unknown

__all__ = ["ScalarTranslator"]

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
                except NotJudgeable:
                    continue

    def column(self, tree: exp.Expression) -> Column:
        """The column of a name."""
        parts = _name_parts(tree)
        try:
            return resolve_column(parts, self.schema, case_sensitive=self.case_sensitive)
        except NotAStructError as error:
            raise NotJudgeable from error

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
        raise NotJudgeable(f"{type(tree).__name__.lower()} is not known outside Spark")

    @abstractmethod
    def value_of_call(self, tree: exp.Expression) -> Scalar:
        """A call, a condition's truth among them."""

    def truth_of(self, tree: exp.Expression) -> Scalar:
        """A condition as a value."""
        found = self.predicate(tree)
        if isinstance(found, Unknown):
            raise NotJudgeable(found.reason)
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
            raise NotJudgeable(f"{source.type} has no fields")
        wanted = tree.expression.name
        names = [f.name for f in source.type if f.name == wanted or (
            not self.case_sensitive and f.name.lower() == wanted.lower())]  # fmt: skip
        if len(names) != 1:
            raise NotJudgeable(f"{source.type} has no field {wanted}")
        return self.function("field", [source, Literal(names[0], pa.string())])

    def _bracket(self, tree: exp.Expression) -> Scalar:
        keys = tree.expressions
        if len(keys) != 1 or any(v for k, v in tree.args.items() if k not in ("this", "expressions", "offset")):
            raise NotJudgeable
        source = self.scalar(tree.this)
        if pa.types.is_struct(source.type):
            raise NotJudgeable("a field of a struct by [ ]: write a dot")
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
            raise NotJudgeable
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
                raise NotJudgeable
            return Literal(-literal.value, literal.type)  # type: ignore[operator]
        if isinstance(inner, exp.Interval):
            raise NotJudgeable("an interval alone")
        return self.function("negate", [self.scalar(inner)])

    def _cast(self, tree: exp.Expression) -> Scalar:
        target = _arrow_type(tree.args["to"])
        if any(v for k, v in tree.args.items() if k not in ("this", "to", "safe", "_type")):
            raise NotJudgeable
        return self.cast_to(self.scalar(tree.this), target, attempt=bool(tree.args.get("safe")))

    def cast_to(self, operand: Scalar, target: pa.DataType, *, attempt: bool = False) -> Scalar:
        """A cast that a user wrote: of a literal its value, where it has one."""
        if isinstance(operand, Literal):
            if isinstance(operand.value, str) and kind_of(target) is Kind.TIMESTAMP and not self.binder.ansi:
                return self.binder.timestamp(operand.value)
            try:
                return fold_cast(operand, target, self.binder.timezone)
            except NotJudgeable:
                if not self.binder.ansi:
                    raise
        source, kind = kind_of(operand.type), kind_of(target)
        if source is kind and source not in (Kind.INT, Kind.DECIMAL):
            return operand
        if operand.type == target:
            return operand
        if not can_cast(operand.type, target) or (attempt and not self.binder.ansi):
            raise NotJudgeable(f"there is no cast from {operand.type} to {target} outside Spark")
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
            raise NotJudgeable(f"an interval and {moment.type}")
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
            raise NotJudgeable("a date and a bigint")
        return self.function("date_add" if op == "+" else "date_sub", [left, right])

    def calculation(self, op: str, left: Scalar, right: Scalar) -> tuple[Scalar, Scalar, pa.DataType]:
        """Both sides of an arithmetic operation in Spark's types, and its result's."""
        kinds = {kind_of(left.type), kind_of(right.type)} - {Kind.NULL}
        if not any(k.is_number for k in kinds):
            raise NotJudgeable(f"{left.type} {op} {right.type}")
        common = self.binder.common_type(left, right).type
        if not kind_of(common).is_number:
            raise NotJudgeable(f"{left.type} {op} {right.type}")
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
                raise NotJudgeable(f"{left.type} DIV {right.type}")
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
                raise NotJudgeable(condition.reason)
        last: Scalar = Literal(None, pa.null()) if otherwise is None else self.scalar(otherwise)
        return self.branches(conditions, [*(self.scalar(value) for _, value in branches), last])

    def _piped(self, tree: exp.Expression) -> Scalar:
        return self.call("concat", [tree.this, tree.expression])

    def _bitwise(self, tree: exp.Expression) -> Scalar:
        sides = [self.scalar(tree.this), self.scalar(tree.expression)]
        if any(kind_of(side.type) is not Kind.INT for side in sides):
            raise NotJudgeable("bits of what is no integer")
        return self.function(_BITS[type(tree)], sides)

    def _inverted(self, tree: exp.Expression) -> Scalar:
        operand = self.scalar(tree.this)
        if kind_of(operand.type) is not Kind.INT:
            raise NotJudgeable("bits of what is no integer")
        return self.function("bit_not", [operand])

    def _trimmed(self, tree: exp.Expression) -> Scalar:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or "").upper(), "btrim")
        text, chars = self.scalar(tree.this), tree.expression
        if any(v for k, v in tree.args.items() if k not in ("this", "expression", "position")):
            raise NotJudgeable
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
        raise NotJudgeable
    return _TYPES[name]


def _name_parts(tree: exp.Expression) -> list[str]:
    if isinstance(tree, exp.Dot):
        if not isinstance(tree.expression, exp.Identifier):
            raise NotJudgeable
        return [*_name_parts(tree.this), tree.expression.name]
    if not isinstance(tree, exp.Column) or not all(isinstance(p, exp.Identifier) for p in tree.parts):
        raise NotJudgeable
    return [part.name for part in tree.parts]


def _whole_name(node: exp.Expression) -> exp.Expression:
    while isinstance(node.parent, exp.Dot) and node.arg_key == "this":
        node = node.parent
    return node
