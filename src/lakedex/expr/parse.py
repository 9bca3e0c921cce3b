"""Spark SQL text to predicates: the text a user writes, and the text Catalyst's ``Expression.sql()`` prints.

sqlglot gives the tree; :class:`_Translator` accepts the few node classes whose meaning we know, each only with the
arguments we know. Whatever else stands in a condition makes that condition :class:`~lakedex.expr.nodes.Unknown`,
and its neighbours under AND keep their power.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.bind import Binder
from lakedex.expr.kinds import Kind, NotJudgeable, kind_of
from lakedex.expr.literals import session_zone
from lakedex.expr.mask import mask
from lakedex.expr.nodes import And, Column, Comparison, In, IsNull, Like, Literal, Not, Or, Predicate, Scalar, Unknown
from lakedex.expr.patterns import compile_like, escaped, like_readings
from lakedex.expr.scalars import ScalarTranslator
from lakedex.expr.terms import columns_of

__all__ = ["parse_filter_or_unknown", "parse_predicate", "parse_scalar"]

_T = TypeVar("_T")

_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "<=>",
}
# By name: sqlglot got these classes over time; where one is missing the call stays unjudged.
_AFFIXES = {"StartsWith": ("", "%"), "EndsWith": ("%", ""), "Contains": ("%", "%")}
_RANGES = (exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
_BARE_CONDITIONS = (*_COMPARISONS, *_RANGES, exp.Not)


def parse_predicate(sql: str, schema: pa.Schema, *, case_sensitive: bool = False, timezone: str = "UTC") -> Predicate:
    """Read a condition in Spark SQL.

    Args:
        sql: A boolean expression, as after WHERE.
        schema: The table's schema; columns of the result carry its spelling and its types.
        case_sensitive: ``spark.sql.caseSensitive``.
        timezone: ``spark.sql.session.timeZone``, in which timestamps without offset are read.

    Returns:
        The predicate; conditions that cannot be judged are :class:`Unknown` nodes in it.

    Raises:
        InvalidInputError: Text that is no condition, or a column that does not exist.
    """
    session_zone(timezone)
    return _parsed(sql, schema, case_sensitive, timezone)


@lru_cache(maxsize=64)
def _parsed(sql: str, schema: pa.Schema, case_sensitive: bool, timezone: str) -> Predicate:
    # Kept: a query that comes again and again takes longer to parse than its index to answer.
    translator = _Translator(mask(sql), schema, case_sensitive, Binder(timezone))
    return translator.guarded(sql, translator.predicate)


def parse_filter_or_unknown(
    sql: str, schema: pa.Schema, *, case_sensitive: bool = False, timezone: str = "UTC"
) -> Predicate:
    """Read a filter that Spark printed; what cannot be read is :class:`Unknown`, never an error.

    A timestamp whose local text is twofold (the hour that a clock change repeats) is not judged: Catalyst prints both
    instants alike.
    """
    try:
        session_zone(timezone)
        binder = Binder(timezone, refuse_ambiguous=True)
        translator = _Translator(mask(sql), schema, case_sensitive, binder, lenient=True)
        return translator.guarded(sql, translator.predicate)
    except (InvalidInputError, NotJudgeable):
        return Unknown(sql)


def parse_scalar(sql: str, schema: pa.Schema, *, case_sensitive: bool = False, timezone: str = "UTC") -> Scalar:
    """Read a value expression, as after ``SET column =``.

    Raises:
        InvalidInputError: Text that is no expression, or a column that does not exist.
        UnsupportedFeatureError: An expression that lakedex does not evaluate.
    """
    session_zone(timezone)
    translator = _Translator(mask(sql), schema, case_sensitive, Binder(timezone))

    def scalar(tree: exp.Expression) -> Scalar:
        translator.check_columns(tree)
        return translator.scalar(tree)

    try:
        return translator.guarded(sql, scalar)
    except NotJudgeable as error:
        raise UnsupportedFeatureError(
            f"cannot evaluate {sql!r}: use columns, literals, + - * / %, CASE, COALESCE, CONCAT, UPPER, LOWER, CAST"
            " between basic types; or do it with Spark and upsert the rows",
            feature=sql,
        ) from error


@dataclass(frozen=True, slots=True)
class _Translator(ScalarTranslator):
    lenient: bool = False

    def guarded(self, sql: str, translate: Callable[[exp.Expression], _T]) -> _T:
        """Parse, translate, and turn sqlglot's errors into ours."""
        try:
            trees = sqlglot.parse(self.masked.text, read="spark")
            if len(trees) != 1 or not isinstance(trees[0], exp.Condition):
                raise InvalidInputError(f"not one SQL expression: {sql!r}")
            return translate(cast("exp.Expression", trees[0]))
        except SqlglotError as error:
            first = error.errors[0]["description"] if isinstance(error, ParseError) and error.errors else error
            reason = self.masked.unmask(str(first))
            raise InvalidInputError(f"cannot read the SQL expression {sql!r}: {reason}") from error
        except RecursionError as error:
            raise InvalidInputError(f"the SQL expression is nested too deeply: {sql[:200]!r}…") from error

    def predicate(self, tree: exp.Expression) -> Predicate:
        """A condition, Unknown where it cannot be judged."""
        if isinstance(tree, exp.Paren):
            return self.predicate(tree.this)
        if type(tree) in (exp.And, exp.Or):
            operands = tuple(self.predicate(t) for t in _spine(tree))
            return And(operands) if isinstance(tree, exp.And) else Or(operands)
        if type(tree) is exp.Not and not isinstance(tree.this, exp.Is):
            return Not(self.predicate(tree.this))
        try:
            self.check_columns(tree)
            return self._condition(tree)
        except NotJudgeable:
            return self._unknown(tree)
        except InvalidInputError:
            if not self.lenient:
                raise
            return self._unknown(tree)

    def _unknown(self, tree: exp.Expression) -> Unknown:
        columns: list[Column] = []
        for node in tree.find_all(exp.Column):
            try:
                column = self.column(node)
            except (InvalidInputError, NotJudgeable):
                continue
            if column not in columns:
                columns.append(column)
        return Unknown(self.text(tree), tuple(columns))

    def _condition(self, tree: exp.Expression) -> Predicate:
        negated = type(tree) is exp.Not
        if negated or type(tree) is exp.Is:
            return self._is(tree.this if negated else tree, negated=negated)
        if type(tree) in _COMPARISONS:
            return self._comparison(tree)
        if type(tree) is exp.Between:
            return self._between(tree)
        if type(tree) is exp.In:
            return self._in(tree)
        if type(tree) in (exp.Like, exp.Escape):
            return self._like(tree)
        if type(tree).__name__ in _AFFIXES:
            return self._affix(tree)
        if isinstance(tree, exp.Anonymous) and str(tree.this).lower() in ("isnull", "isnotnull"):
            if len(tree.expressions) != 1:
                raise NotJudgeable
            null = IsNull(self._operand(tree.expressions[0]))
            return null if str(tree.this).lower() == "isnull" else Not(null)
        return self._boolean_scalar(tree)

    def _boolean_scalar(self, tree: exp.Expression) -> Predicate:
        scalar = self.scalar(tree)
        kind = kind_of(scalar.type)
        if isinstance(scalar, Literal) and kind in (Kind.BOOL, Kind.NULL):
            return Literal(scalar.value, pa.bool_())
        if kind is not Kind.BOOL:
            if kind is Kind.STRING and isinstance(scalar, Literal):
                raise NotJudgeable
            raise InvalidInputError(f"{self.text(tree)!r} is {scalar.type}, not a condition: compare it with something")
        return Comparison("=", scalar, Literal(True, pa.bool_()))

    def _operand(self, tree: exp.Expression) -> Scalar | Predicate:
        """An operand of IS NULL: a column of any type, else a scalar or a condition."""
        bare = tree.unnest()
        if isinstance(bare, exp.Column | exp.Dot):
            return self.column(bare)
        try:
            return self.scalar(tree)
        except NotJudgeable:
            found = self.predicate(tree)
            if isinstance(found, Unknown):
                raise
            return found

    def _is(self, tree: exp.Expression, *, negated: bool) -> Predicate:
        _only(tree, "this", "expression")
        right = tree.expression
        if isinstance(right, exp.Null):
            result: Predicate = IsNull(self._operand(tree.this))
        elif isinstance(right, exp.Boolean):
            # IS TRUE is <=> TRUE, IS FALSE is <=> FALSE: never null.
            result = self._is_value(self.predicate(tree.this), bool(right.this))
        else:
            raise NotJudgeable
        return Not(result) if negated else result

    def _is_value(self, operand: Predicate, value: bool) -> Predicate:
        if isinstance(operand, Unknown):
            raise NotJudgeable
        return And((operand if value else Not(operand), Not(IsNull(operand))))

    def _comparison(self, tree: exp.Expression) -> Predicate:
        _only(tree, "this", "expression")
        written: tuple[exp.Expression, ...] = (tree.this, tree.expression)
        for side in written:
            if isinstance(side, _BARE_CONDITIONS):
                raise InvalidInputError(f"put parentheses around {self.text(side)!r} in {self.text(tree)!r}")
        op = _COMPARISONS[type(tree)]
        sides = [cast("exp.Expression", side.unnest()) for side in written]
        if any(isinstance(s, (*_BARE_CONDITIONS, exp.And, exp.Or)) for s in sides):
            result = self._compare_truth(op, sides)
        else:
            left, right = self.scalar(tree.this), self.scalar(tree.expression)
            result = Comparison(op, *self.binder.pair(left, right))
        return Not(result) if type(tree) is exp.NullSafeNEQ else result

    def _compare_truth(self, op: str, sides: Sequence[exp.Expression]) -> Predicate:
        """``(condition) = TRUE`` and the like."""
        for one, other in (sides, tuple(reversed(sides))):
            if isinstance(other, exp.Boolean) and op in ("=", "<=>", "<>"):
                value = bool(other.this) != (op == "<>")
                operand = self.predicate(one)
                if isinstance(operand, Unknown):
                    raise NotJudgeable
                if op == "<=>":
                    return self._is_value(operand, value)
                return operand if value else Not(operand)
        raise NotJudgeable

    def _between(self, tree: exp.Expression) -> Predicate:
        _only(tree, "this", "low", "high")
        operand = self.scalar(tree.this)
        low = Comparison(">=", *self.binder.pair(operand, self.scalar(tree.args["low"])))
        high = Comparison("<=", *self.binder.pair(operand, self.scalar(tree.args["high"])))
        return And((low, high))

    def _in(self, tree: exp.Expression) -> Predicate:
        _only(tree, "this", "expressions")
        operand = self.scalar(tree.this)
        values = [self.scalar(t) for t in tree.expressions]
        literals = [v for v in values if isinstance(v, Literal)]
        if len(literals) != len(values) or not values:
            raise NotJudgeable
        operand, literals = self.binder.in_list(operand, literals)
        return In(operand, tuple(dict.fromkeys(literals)))

    def _like(self, tree: exp.Expression) -> Predicate:
        escape: str | None = None
        if type(tree) is exp.Escape:
            _only(tree, "this", "expression")
            given = self.scalar(tree.expression)
            tree = tree.this
            if not isinstance(given, Literal) or not isinstance(given.value, str) or len(given.value) != 1:
                raise NotJudgeable
            escape = given.value
        if type(tree) is not exp.Like:
            raise NotJudgeable
        _only(tree, "this", "expression", "negate")
        operand, pattern = self.scalar(tree.this), self.scalar(tree.expression)
        if kind_of(operand.type) is not Kind.STRING or not isinstance(pattern, Literal):
            raise NotJudgeable
        if pattern.value is None:
            return Literal(None, pa.bool_())
        if not isinstance(pattern.value, str):
            raise NotJudgeable
        if escape is None and self.lenient:
            like = self._printed_like(tree, operand, pattern.value)
            return Not(like) if tree.args.get("negate") else like
        escape = escape or "\\"
        compile_like(pattern.value, escape)  # a bad pattern is an error of the whole predicate, as in Spark
        like = Like(operand, pattern.value, escape)
        return Not(like) if tree.args.get("negate") else like

    def _printed_like(self, tree: exp.Expression, operand: Scalar, pattern: str) -> Predicate:
        """A LIKE that Catalyst printed: Spark 3.5's ``Like.sql`` leaves ESCAPE out, so it may be any of several.

        Then the union of all readings may be true, and nothing is known of the opposite.
        """
        likes: tuple[Predicate, ...] = tuple(Like(operand, pattern, e) for e in like_readings(pattern))
        if len(likes) == 1:
            return likes[0]
        return And((Or(likes), Unknown(self.text(tree), tuple(columns_of(operand)))))

    def _affix(self, tree: exp.Expression) -> Predicate:
        _only(tree, "this", "expression")
        operand, part = self.scalar(tree.this), self.scalar(tree.expression)
        if kind_of(operand.type) is not Kind.STRING or not isinstance(part, Literal):
            raise NotJudgeable
        if part.value is None:
            return Literal(None, pa.bool_())
        if not isinstance(part.value, str):
            raise NotJudgeable
        before, after = _AFFIXES[type(tree).__name__]
        return Like(operand, before + escaped(part.value) + after)


def _only(tree: exp.Expression, *known: str) -> None:
    """An argument that we do not know changes the meaning: then do not judge."""
    if any(value for name, value in tree.args.items() if name not in known):
        raise NotJudgeable


def _spine(tree: exp.Expression) -> Iterator[exp.Expression]:
    """The operands of a chain of one operator, left to right, without recursion (chains of thousands occur)."""
    kind, stack = type(tree), [tree]
    while stack:
        node = stack.pop()
        if type(node) is kind:
            stack += [node.expression, node.this]
        else:
            yield node
