"""Parse Spark SQL to predicates: text written by users, and text printed by Catalyst's ``Expression.sql()``.

sqlglot builds the tree; :class:`_Translator` accepts the node classes with a known meaning and known arguments. Any
other part of a condition makes that condition :class:`~lakedex.expr.nodes.Unknown`, while conditions beside it under
AND remain usable.

The grammar is sqlglot's Spark dialect, except that calls stay as written: sqlglot turns the calls it knows into nodes
of its own, with reordered, omitted or added arguments, but :mod:`lakedex.expr.functions` decides what a call means.
Only functions with a syntax of their own (``CAST``, ``TRIM(BOTH …)``) are parsed by sqlglot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

import pyarrow as pa
import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.binder import AnsiBinder, Binder
from lakedex.expr.like import compile_like, escaped, like_readings
from lakedex.expr.literals import session_zone
from lakedex.expr.nodes import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Scalar,
    Truth,
    Unknown,
)
from lakedex.expr.scalar_parser import TRUE, ScalarTranslator, mask
from lakedex.expr.signatures import Takes
from lakedex.expr.terms import BoundPredicate, columns_of
from lakedex.expr.types import Kind, NotPrunableError, kind_of
from lakedex.types import DEFAULT_RULES, SessionRules

__all__ = ["bind", "condition_of", "parse_filter_or_unknown", "parse_predicate", "parse_scalar", "parse_trees"]


_OWN_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION", "OVERLAY")


class _PlainSpark(Spark):
    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012 - sqlglot's own way to set up a dialect
        FUNCTION_PARSERS = {k: v for k, v in Spark.Parser.FUNCTION_PARSERS.items() if k in _OWN_SYNTAX}  # noqa: RUF012


def parse_trees(sql: str) -> list[Any]:
    """Parse the statements in a text."""
    return list(sqlglot.parse(sql, read=_PlainSpark))


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


_AFFIXES = {"startswith": ("", "%"), "endswith": ("%", ""), "contains": ("%", "%")}


_LACKING = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]*?(\w+)'>")


_OF_NOW = re.compile(r"(?i)\b(current_|now\b|curdate\b)")


_RANGES = (exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)


_BARE_CONDITIONS = (*_COMPARISONS, *_RANGES, exp.Not)


def bind(where: str, schema: pa.Schema, rules: SessionRules = DEFAULT_RULES, *, ansi: bool = True) -> BoundPredicate:
    """Parse a condition in Spark SQL and bind it to a schema.

    Args:
        where: A boolean expression, as after WHERE.
        schema: The table's schema; columns of the result have its spelling and types.
        rules: The session's rules for names and timestamps.
        ansi: Interpret it as Spark 4 does by default. If False, for a session that evaluates the rows itself in an
            unknown mode, conditions on which the modes differ become :class:`Unknown`.

    Returns:
        Predicate in which conditions that only Spark can evaluate are :class:`Unknown` nodes.

    Raises:
        InvalidInputError: The text is not a condition, or a column does not exist.
    """
    session_zone(rules.timezone)
    read = _bind if _OF_NOW.search(where) else _cached_bind
    return read(where, schema, rules, ansi)


def _bind(where: str, schema: pa.Schema, rules: SessionRules, ansi: bool) -> BoundPredicate:
    binder = AnsiBinder(rules.timezone) if ansi else Binder(rules.timezone)
    translator = _Translator(binder, mask(where), schema, rules.case_sensitive)
    return BoundPredicate(translator.guarded(where, translator.predicate))


_cached_bind = lru_cache(maxsize=64)(_bind)
"""Parsing a repeated query takes longer than answering it from an index."""


def parse_predicate(
    sql: str, schema: pa.Schema, rules: SessionRules = DEFAULT_RULES, *, ansi: bool = True
) -> Predicate:
    """:func:`bind`, without what is derived from the predicate."""
    return bind(sql, schema, rules, ansi=ansi).predicate


def parse_filter_or_unknown(sql: str, schema: pa.Schema, rules: SessionRules = DEFAULT_RULES) -> Predicate:
    """Parse a filter printed by Spark; unreadable filters become :class:`Unknown`, never an error.

    Timestamps with an ambiguous local text (the hour that a clock change repeats) become Unknown, as Catalyst prints
    both instants alike.
    """
    try:
        session_zone(rules.timezone)
        binder = Binder(rules.timezone, refuse_ambiguous=True)
        translator = _Translator(binder, mask(sql), schema, rules.case_sensitive, lenient=True)
        return translator.guarded(sql, translator.predicate)
    except (InvalidInputError, NotPrunableError):
        return Unknown(sql)


def parse_scalar(sql: str, schema: pa.Schema, rules: SessionRules = DEFAULT_RULES) -> Scalar:
    """Parse a value expression, as after ``SET column =``.

    Raises:
        InvalidInputError: The text is not an expression, or a column does not exist.
        UnsupportedFeatureError: The expression is unsupported.
    """
    session_zone(rules.timezone)
    translator = _Translator(AnsiBinder(rules.timezone), mask(sql), schema, rules.case_sensitive)

    def scalar(tree: exp.Expression) -> Scalar:
        translator.check_columns(tree)
        found = translator.scalar(tree)
        kind_of(found.type)
        return found

    try:
        return translator.guarded(sql, scalar)
    except NotPrunableError as error:
        raise UnsupportedFeatureError(
            f"cannot evaluate {sql!r} outside Spark{f': {error}' if str(error) else ''};"
            " compute it in Spark and upsert the rows (docs/queries.md lists the supported expressions)",
            feature=sql,
        ) from error


@dataclass(frozen=True, slots=True)
class _Translator(ScalarTranslator):
    lenient: bool = False

    def guarded(self, sql: str, translate: Callable[[exp.Expression], _T]) -> _T:
        """Parse and translate, converting sqlglot's errors."""
        try:
            trees = parse_trees(self.masked.text)
            if len(trees) != 1 or not isinstance(trees[0], exp.Condition):
                raise InvalidInputError(f"not one SQL expression: {sql!r}")
            return translate(cast("exp.Expression", trees[0]))
        except SqlglotError as error:
            first = error.errors[0]["description"] if isinstance(error, ParseError) and error.errors else error
            reason = self.masked.unmask(_LACKING.sub(r"\1 lacks an operand", str(first)))
            raise InvalidInputError(f"cannot read the SQL expression {sql!r}: {reason}") from error
        except RecursionError as error:
            raise InvalidInputError(f"the SQL expression is nested too deeply: {sql[:200]!r}…") from error

    def predicate(self, tree: exp.Expression) -> Predicate:
        """Translate a condition; Unknown if it cannot be evaluated."""
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
        except NotPrunableError as error:
            return self._unknown(tree, str(error))
        except InvalidInputError:
            if not self.lenient:
                raise
            return self._unknown(tree)

    def _unknown(self, tree: exp.Expression, reason: str = "") -> Unknown:
        columns: list[Column] = []
        for node in tree.find_all(exp.Column):
            try:
                column = self.column(node)
            except (InvalidInputError, NotPrunableError):
                continue
            if column not in columns:
                columns.append(column)
        return Unknown(self.text(tree), tuple(columns), reason)

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
        if type(tree) in (exp.Like, exp.ILike, exp.Escape):
            return self._like(tree)
        if type(tree) is exp.RegexpLike:
            _only(tree, "this", "expression", "negate")
            found = self._boolean(self.call("rlike", [tree.this, tree.expression]))
            return Not(found) if tree.args.get("negate") else found
        if isinstance(tree, exp.Anonymous):
            condition = _CONDITION_CALLS.get(str(tree.this).lower())
            if condition is not None:
                return condition(self, str(tree.this).lower(), tree.expressions)
        return self._boolean_scalar(tree)

    def value_of_call(self, tree: exp.Expression) -> Scalar:
        """Translate a call, including conditions as values."""
        name = str(tree.this)
        if name.lower() not in _CONDITION_CALLS:
            return self.call(name, tree.expressions)
        return self.truth_of(tree)

    def _null_test(self, name: str, trees: Sequence[exp.Expression]) -> Predicate:
        if len(trees) != 1:
            raise NotPrunableError
        null = IsNull(self._operand(trees[0]))
        return null if name == "isnull" else Not(null)

    def _equal_null(self, name: str, trees: Sequence[exp.Expression]) -> Predicate:
        if len(trees) != 2:
            raise NotPrunableError
        return Comparison("<=>", *self.binder.pair(*(self.scalar(tree) for tree in trees)))

    def _like_call(self, name: str, trees: Sequence[exp.Expression]) -> Predicate:
        kind = exp.Like if name == "like" else exp.ILike
        if len(trees) not in (2, 3):
            raise NotPrunableError
        tree: exp.Expression = kind(this=trees[0].copy(), expression=trees[1].copy())
        return self._like(exp.Escape(this=tree, expression=trees[2].copy()) if len(trees) == 3 else tree)

    def _boolean_scalar(self, tree: exp.Expression) -> Predicate:
        scalar = self.scalar(tree)
        kind = kind_of(scalar.type)
        if kind not in (Kind.BOOL, Kind.NULL):
            if kind is Kind.STRING and isinstance(scalar, Literal):
                raise NotPrunableError
            raise InvalidInputError(f"{self.text(tree)!r} is {scalar.type}, not a condition: compare it with something")
        return self._boolean(scalar)

    def _boolean(self, scalar: Scalar) -> Predicate:
        """Convert a boolean value to a condition."""
        if isinstance(scalar, Literal):
            return Literal(scalar.value, pa.bool_())
        return scalar.operand if isinstance(scalar, Truth) else Comparison("=", scalar, TRUE)

    def _operand(self, tree: exp.Expression) -> Scalar | Predicate:
        """Operand of IS NULL: a column of any type, a scalar or a condition."""
        bare = tree.unnest()
        if isinstance(bare, exp.Column | exp.Dot):
            return self.column(bare)
        found = self.scalar(tree)
        return found.operand if isinstance(found, Truth) else found

    def _is(self, tree: exp.Expression, *, negated: bool) -> Predicate:
        _only(tree, "this", "expression")
        right = tree.expression
        if isinstance(right, exp.Null):
            result: Predicate = IsNull(self._operand(tree.this))
        elif isinstance(right, exp.Boolean):
            # IS TRUE is <=> TRUE, IS FALSE is <=> FALSE: never null.
            result = self._is_value(self.predicate(tree.this), bool(right.this))
        else:
            raise NotPrunableError
        return Not(result) if negated else result

    def _is_value(self, operand: Predicate, value: bool) -> Predicate:
        if isinstance(operand, Unknown):
            raise NotPrunableError
        return And((operand if value else Not(operand), Not(IsNull(operand))))

    def _comparison(self, tree: exp.Expression) -> Predicate:
        _only(tree, "this", "expression")
        written: tuple[exp.Expression, ...] = (tree.this, tree.expression)
        for side in written:
            if isinstance(side, _BARE_CONDITIONS):
                raise InvalidInputError(f"put parentheses around {self.text(side)!r} in {self.text(tree)!r}")
        op = _COMPARISONS[type(tree)]
        sides = [cast("exp.Expression", side.unnest()) for side in written]
        result: Predicate | None = None
        if any(isinstance(s, (*_BARE_CONDITIONS, exp.And, exp.Or)) for s in sides):
            result = self._compare_truth(op, sides)
        if result is None:
            left, right = self.scalar(tree.this), self.scalar(tree.expression)
            result = Comparison(op, *self.binder.pair(left, right))
        return Not(result) if type(tree) is exp.NullSafeNEQ else result

    def _compare_truth(self, op: str, sides: Sequence[exp.Expression]) -> Predicate | None:
        """``(condition) = TRUE`` and the like; None if neither side is a constant."""
        for one, other in (sides, tuple(reversed(sides))):
            if isinstance(other, exp.Boolean) and op in ("=", "<=>", "<>"):
                value = bool(other.this) != (op == "<>")
                operand = self.predicate(one)
                if isinstance(operand, Unknown):
                    raise NotPrunableError
                if op == "<=>":
                    return self._is_value(operand, value)
                return operand if value else Not(operand)
        return None

    def _between(self, tree: exp.Expression) -> Predicate:
        _only(tree, "this", "low", "high")
        operand = self.scalar(tree.this)
        low = Comparison(">=", *self.binder.pair(operand, self.scalar(tree.args["low"])))
        high = Comparison("<=", *self.binder.pair(operand, self.scalar(tree.args["high"])))
        return And((low, high))

    def _in(self, tree: exp.Expression) -> Predicate:
        _only(tree, "this", "expressions")
        operand = self.scalar(tree.this)
        if not tree.expressions:
            raise NotPrunableError
        operand, values = self.binder.in_list(operand, [self.scalar(t) for t in tree.expressions])
        kind_of(operand.type)
        literals = tuple(dict.fromkeys(v for v in values if isinstance(v, Literal)))
        if len(literals) == len(set(values)):
            return In(operand, literals)
        return Or(tuple(Comparison("=", operand, value) for value in values))

    def _like(self, tree: exp.Expression) -> Predicate:
        escape: str | None = None
        if type(tree) is exp.Escape:
            _only(tree, "this", "expression")
            given = self.scalar(tree.expression)
            tree = tree.this
            if not isinstance(given, Literal) or not isinstance(given.value, str) or len(given.value) != 1:
                raise NotPrunableError
            escape = given.value
        if type(tree) not in (exp.Like, exp.ILike):
            raise NotPrunableError
        _only(tree, "this", "expression", "negate")
        any_case, negate = type(tree) is exp.ILike, bool(tree.args.get("negate"))
        if isinstance(tree.expression, exp.Any | exp.All):
            found = self._like_several(tree, escape, negate=negate)
        else:
            found = self._like_one(tree, escape, any_case=any_case)
            found = Not(found) if negate else found
        return found

    def _like_several(self, tree: exp.Expression, escape: str | None, *, negate: bool) -> Predicate:
        """``LIKE ANY (…)`` and ``LIKE ALL (…)``."""
        patterns = tree.expression.this.unnest()
        if not isinstance(patterns, exp.Tuple | exp.Literal) or self.lenient:
            raise NotPrunableError
        trees = patterns.expressions if isinstance(patterns, exp.Tuple) else [patterns]
        likes: list[Predicate] = []
        for pattern in trees:
            one = self._like_one(
                type(tree)(this=tree.this.copy(), expression=pattern.copy()), escape, any_case=type(tree) is exp.ILike
            )
            likes.append(Not(one) if negate else one)
        return (Or if isinstance(tree.expression, exp.Any) else And)(tuple(likes))

    def _like_one(self, tree: exp.Expression, escape: str | None, *, any_case: bool) -> Predicate:
        operand, pattern = self._text(self.scalar(tree.this)), self._text(self.scalar(tree.expression))
        if any_case:
            operand = self.function("lower", [operand])
        if not isinstance(pattern, Literal):
            if escape is not None or self.lenient:
                raise NotPrunableError("ESCAPE requires a literal LIKE pattern")
            pattern = self.function("lower", [pattern]) if any_case else pattern
            return self._boolean(self.function("like", [operand, pattern]))
        if pattern.value is None:
            return Literal(None, pa.bool_())
        if not isinstance(pattern.value, str):
            raise NotPrunableError
        text = pattern.value.lower() if any_case else pattern.value
        if escape is None and self.lenient:
            if any_case:
                raise NotPrunableError
            return self._printed_like(tree, operand, text)
        escape = escape or "\\"
        compile_like(text, escape)  # a bad pattern is an error of the whole predicate, as in Spark
        return Like(operand, text, escape)

    def _text(self, scalar: Scalar) -> Scalar:
        return self.binder.argument(scalar, Takes.TEXT)

    def _printed_like(self, tree: exp.Expression, operand: Scalar, pattern: str) -> Predicate:
        """LIKE printed by Catalyst: Spark 3.5's ``Like.sql`` omits ESCAPE, so there may be several readings.

        The predicate is then the union of all readings, and nothing is known about its negation.
        """
        likes: tuple[Predicate, ...] = tuple(Like(operand, pattern, e) for e in like_readings(pattern))
        if len(likes) == 1:
            return likes[0]
        return And((Or(likes), Unknown(self.text(tree), tuple(columns_of(operand)))))

    def _affix(self, name: str, trees: Sequence[exp.Expression]) -> Predicate:
        if len(trees) != 2:
            raise NotPrunableError
        operand, part = (self.scalar(tree) for tree in trees)
        if kind_of(operand.type) is Kind.BINARY or kind_of(part.type) is Kind.BINARY:
            raise NotPrunableError
        operand, part = self._text(operand), self._text(part)
        if not isinstance(part, Literal):
            return self._boolean(self.function(name, [operand, part]))
        if part.value is None:
            return Literal(None, pa.bool_())
        if not isinstance(part.value, str):
            raise NotPrunableError
        before, after = _AFFIXES[name]
        return Like(operand, before + escaped(part.value) + after)


_CONDITION_CALLS: dict[str, Callable[[_Translator, str, Sequence[exp.Expression]], Predicate]] = {
    "isnull": _Translator._null_test,
    "isnotnull": _Translator._null_test,
    "equal_null": _Translator._equal_null,
    "like": _Translator._like_call,
    "ilike": _Translator._like_call,
    **dict.fromkeys(_AFFIXES, _Translator._affix),
}


def _only(tree: exp.Expression, *known: str) -> None:
    """Refuse unknown arguments, as they change the meaning."""
    if any(value for name, value in tree.args.items() if name not in known):
        raise NotPrunableError


def _spine(tree: exp.Expression) -> Iterator[exp.Expression]:
    """Operands of a chain of one operator, left to right, without recursion (chains of thousands occur)."""
    kind, stack = type(tree), [tree]
    while stack:
        node = stack.pop()
        if type(node) is kind:
            stack += [node.expression, node.this]
        else:
            yield node


# ------------------------------------------------------------------------------------------------------ statements


_STATEMENTS = frozenset({TokenType.SELECT, TokenType.DELETE})


_SEVERAL = frozenset({TokenType.JOIN, TokenType.COMMA, TokenType.UNION, TokenType.L_PAREN, TokenType.LATERAL})


_AFTER = frozenset(
    {
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.ORDER_BY,
        TokenType.SORT_BY,
        TokenType.CLUSTER_BY,
        TokenType.DISTRIBUTE_BY,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.WINDOW,
        TokenType.QUALIFY,
        TokenType.UNION,
        TokenType.EXCEPT,
        TokenType.INTERSECT,
        TokenType.SEMICOLON,
    }
)


def condition_of(text: str) -> str | None:
    """The text after WHERE of a SELECT or DELETE of one table, without the table's name before columns.

    Args:
        text: a statement, or a condition, which is returned as it is.

    Returns:
        The condition; None for a statement without one.

    Raises:
        InvalidInputError: a statement of several tables, whose condition is not one of this table.
    """
    try:
        tokens = list(Spark().tokenize(text))
    except TokenError:
        return text  # Whoever parses the condition says what is wrong.
    if not tokens or tokens[0].token_type not in _STATEMENTS:
        return text
    top = list(_outermost(tokens))
    kinds = [token.token_type for token in top]
    if TokenType.FROM not in kinds:
        return None
    start = kinds.index(TokenType.FROM) + 1
    end = next((at for at, kind in enumerate(kinds) if at >= start and kind in _AFTER), len(top))
    where = kinds.index(TokenType.WHERE) if TokenType.WHERE in kinds[:end] else None
    source = top[start : end if where is None else where]
    if any(token.token_type in _SEVERAL for token in source) or kinds[end : end + 1] == [TokenType.UNION]:
        raise InvalidInputError(f"{text!r} reads several tables; give the condition on this one")
    if where is None:
        return None
    stop = top[end].start if end < len(top) else len(text)
    inside = [token for token in tokens if top[where].end < token.start < stop]
    named = {token.text.lower() for token in source if token.token_type is not TokenType.DOT}
    return _without_names(text, inside, named, top[where].end + 1, stop).strip()


def _outermost(tokens: Sequence[Token]) -> list[Token]:
    """Tokens outside of parentheses; an opening one stands for what it holds."""
    found, depth = [], 0
    for token in tokens:
        if token.token_type is TokenType.R_PAREN:
            depth -= 1
        elif depth == 0:
            found.append(token)
        if token.token_type is TokenType.L_PAREN:
            depth += 1
    return found


def _without_names(text: str, tokens: Sequence[Token], names: set[str], start: int, stop: int) -> str:
    """The text from ``start`` to ``stop`` without ``name.`` before columns."""
    parts = []
    for at, token in enumerate(tokens[:-1]):
        before = tokens[at - 1] if at else None
        dotted_before = before is not None and before.token_type is TokenType.DOT and before.end >= start
        if token.text.lower() in names and tokens[at + 1].token_type is TokenType.DOT and not dotted_before:
            parts.append(text[start : token.start])
            start = tokens[at + 1].end + 1
    return "".join([*parts, text[start:stop]])
