"""The value half of the parser: columns, literals, casts, arithmetic and the few functions we evaluate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakedex.errors import InvalidInputError
from lakedex.expr.bind import Binder
from lakedex.expr.fold import fold_cast
from lakedex.expr.kinds import Kind, NotJudgeable, common_decimal, kind_of
from lakedex.expr.mask import MaskedSql, number_literal
from lakedex.expr.names import NotAStructError, resolve_column
from lakedex.expr.nodes import Arithmetic, Case, Cast, Column, Function, Literal, Predicate, Scalar, Unknown

__all__ = ["ScalarTranslator"]

_ARITHMETIC: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
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
_CASTS: dict[Kind, set[Kind]] = {
    Kind.BOOL: {Kind.STRING, Kind.INT},
    Kind.INT: {Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING},
    Kind.FLOAT: {Kind.INT, Kind.DOUBLE},
    Kind.DOUBLE: {Kind.INT, Kind.FLOAT},
    Kind.DECIMAL: {Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL},
    Kind.STRING: {Kind.BOOL, Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.BINARY},
    Kind.DATE: {Kind.STRING, Kind.TIMESTAMP, Kind.LOCAL},
    Kind.TIMESTAMP: {Kind.DATE},
    Kind.LOCAL: {Kind.DATE},
}


@dataclass(frozen=True, slots=True)
class ScalarTranslator(ABC):
    """Turns sqlglot's trees of values into :data:`~lakedex.expr.nodes.Scalar`."""

    masked: MaskedSql
    schema: pa.Schema
    case_sensitive: bool
    binder: Binder

    @abstractmethod
    def predicate(self, tree: exp.Expression) -> Predicate:
        """Translate a condition (CASE needs it)."""

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
        """A value.

        Raises:
            NotJudgeable: Not one of the expressions that we know.
        """
        kind = type(tree)
        if kind is exp.Paren:
            return self.scalar(tree.this)
        if kind in (exp.Column, exp.Dot):
            column = self.column(tree)
            kind_of(column.type)
            return column
        if kind in (exp.Literal, exp.Null, exp.Boolean):
            return self._literal(tree)
        if kind is exp.Neg:
            return self._negative(tree)
        if kind in (exp.Cast, exp.TryCast):
            return self._cast(tree)
        if kind in _ARITHMETIC:
            return self._arithmetic(tree)
        if kind is exp.Case:
            return self._case(tree)
        if kind is exp.If:
            return self._branches([(tree.this, tree.args["true"])], tree.args.get("false"))
        return self._function(tree)

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
        operand = self.scalar(inner)
        if not kind_of(operand.type).is_number:
            raise NotJudgeable
        return Function("negate", (operand,), operand.type)

    def _cast(self, tree: exp.Expression) -> Scalar:
        target = _arrow_type(tree.args["to"])
        if any(v for k, v in tree.args.items() if k not in ("this", "to", "safe", "_type")):
            raise NotJudgeable
        operand = self.scalar(tree.this)
        if isinstance(operand, Literal):
            if isinstance(operand.value, str) and kind_of(target) is Kind.TIMESTAMP:
                return self.binder.timestamp(operand.value)
            return fold_cast(operand, target, self.binder.timezone)
        source, kind = kind_of(operand.type), kind_of(target)
        if source is kind and source not in (Kind.INT, Kind.DECIMAL):
            return operand
        if kind not in _CASTS.get(source, ()):
            raise NotJudgeable
        return operand if operand.type == target else Cast(operand, target, self.binder.timezone)

    def _arithmetic(self, tree: exp.Expression) -> Scalar:
        op = _ARITHMETIC[type(tree)]
        left, right = self.scalar(tree.this), self.scalar(tree.expression)
        kinds = {kind_of(left.type), kind_of(right.type)} - {Kind.NULL}
        if not kinds or not all(k.is_number for k in kinds):
            raise NotJudgeable
        if op == "/" and Kind.DECIMAL not in kinds:
            double = Literal(None, pa.float64())
            left, right = self.binder.to(left, double), self.binder.to(right, double)
            return Arithmetic(op, left, right, pa.float64())
        common = self.binder.common_type(left, right).type
        if kind_of(common) is Kind.DECIMAL:
            if op not in "+-*":
                raise NotJudgeable
            return self._decimal_arithmetic(op, left, right)
        if kinds == {Kind.FLOAT, Kind.INT}:
            raise NotJudgeable  # float in Spark, double in ANSI Spark
        typed = Literal(None, common)
        return Arithmetic(op, self.binder.to(left, typed), self.binder.to(right, typed), common)

    def _decimal_arithmetic(self, op: str, left: Scalar, right: Scalar) -> Scalar:
        types: list[Any] = [self.binder.decimal_type(s) for s in (left, right)]
        if op == "*":
            precision, scale = types[0].precision + types[1].precision + 1, types[0].scale + types[1].scale
        else:
            wide: Any = common_decimal(*types)
            precision, scale = wide.precision + 1, wide.scale
        if precision > 38:
            raise NotJudgeable  # Spark rounds there
        sides = [self.binder.to(s, Literal(None, t)) for s, t in zip((left, right), types, strict=True)]
        return Arithmetic(op, sides[0], sides[1], pa.decimal128(precision, scale))

    def _case(self, tree: exp.Expression) -> Scalar:
        branches = []
        for branch in tree.args["ifs"]:
            condition = branch.this
            if tree.this is not None:
                condition = exp.EQ(this=exp.Paren(this=tree.this.copy()), expression=exp.Paren(this=condition.copy()))
            branches.append((condition, branch.args["true"]))
        return self._branches(branches, tree.args.get("default"))

    def _branches(
        self, branches: list[tuple[exp.Expression, exp.Expression]], otherwise: exp.Expression | None
    ) -> Scalar:
        conditions = [self.predicate(condition) for condition, _ in branches]
        if any(isinstance(c, Unknown) for c in conditions):
            raise NotJudgeable
        last: Scalar = Literal(None, pa.null()) if otherwise is None else self.scalar(otherwise)
        values = self.binder.many([*(self.scalar(value) for _, value in branches), last])
        return Case(tuple(zip(conditions, values[:-1], strict=True)), values[-1], values[-1].type)

    def _function(self, tree: exp.Expression) -> Scalar:
        kind = type(tree)
        if kind is exp.Coalesce:
            arguments = self.binder.many([self.scalar(t) for t in (tree.this, *tree.expressions)])
            return Function("coalesce", tuple(arguments), arguments[0].type)
        if kind in (exp.DPipe, exp.Concat):
            trees = [tree.this, tree.expression] if kind is exp.DPipe else tree.expressions
            return Function("concat", tuple(self._as_string(self.scalar(t)) for t in trees), pa.string())
        if kind in (exp.Upper, exp.Lower):
            return Function(kind.__name__.lower(), (self._as_string(self.scalar(tree.this)),), pa.string())
        if kind is exp.IsNan:
            operand = self.scalar(tree.this)
            if kind_of(operand.type).is_float:
                return Function("isnan", (operand,), pa.bool_())
        raise NotJudgeable

    def _as_string(self, scalar: Scalar) -> Scalar:
        if isinstance(scalar, Literal):
            return fold_cast(scalar, pa.string(), self.binder.timezone)
        if kind_of(scalar.type) is Kind.STRING:
            return scalar
        if Kind.STRING not in _CASTS.get(kind_of(scalar.type), ()):
            raise NotJudgeable
        return Cast(scalar, pa.string(), self.binder.timezone)


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
