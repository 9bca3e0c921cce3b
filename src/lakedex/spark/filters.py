"""Translate Spark's filters: Catalyst's to SQL text and to row masks, DataSource V2's to Catalyst's.

``Expression.sql()`` writes a column as ``view.column``, or bare even where it is named ``and``; a timestamp in the
session's zone, where one text can mean two instants; and before Spark 4 a ``LIKE`` without its ``ESCAPE``. Text made
here quotes columns without a qualifier, has timestamps in UTC and names escapes, so it means the same wherever it is
parsed. A filter that has no exact text is left out, which is safe: an index then keeps more files.

``DELETE`` runs on translated V2 predicates, so there is no approximation: ``LakedexBridge.catalyst`` translates listed
parts only, their values are never parsed from text, and any other part is refused.
"""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyspark
from pyspark.sql import Column

from lakedex.spark.catalog.java_bridge import JavaBridge
from lakedex.spark.jvm import JavaObject

__all__ = [
    "UntranslatablePredicateError",
    "bound_condition",
    "condition_of",
    "exact_text",
    "filter_texts",
    "matching_rows",
    "value_of",
]


_log = logging.getLogger(__name__)


_MARK = f"lakedex{uuid4().hex}c"


_TOKENS = re.compile(
    rf"(?P<ntz>TIMESTAMP_NTZ '[^']*')|TIMESTAMP '(?P<time>[^']*)'| LIKE (?P<pattern>'(?:\\.|[^'\\])*')"
    rf"|'(?:\\.|[^'\\])*'|`[^`]*`|{_MARK}(?P<column>\d+)x",
    re.DOTALL,
)


_CATALYST = "org.apache.spark.sql.catalyst.expressions."


_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?", re.ASCII)


_MANY_TIMES = 64


_MANY_NODES = 400


_LIKE_LOSES_ESCAPE = pyspark.__version__.startswith("3.")


_REPLACED = "\ufffd"
"""``sql()`` writes it for bytes of a string that are not UTF-8."""


_IN_QUOTES = {"'": "\\'"}


class UntranslatablePredicateError(Exception):
    """An expression without an exact translation; its text, where somebody reads that."""


def filter_texts(jvm: JavaObject, sequences: Iterable[JavaObject]) -> list[str]:
    """Text of each expression in the Scala sequences ``sequences``, without those that have no exact text."""
    texts = []
    clock = _Clock(jvm)
    for sequence in sequences:
        for index in range(sequence.size()):
            try:
                texts.append(_text(jvm, sequence.apply(index), clock))
            except UntranslatablePredicateError:
                continue
            except Exception as error:  # another Spark may lack a method that is called by name
                _log.warning("a filter is not used for skipping files: %s", error)
    return texts


def exact_text(jvm: JavaObject, expression: JavaObject) -> str:
    """Text of an expression, which means the same wherever it is parsed.

    Raises:
        UntranslatablePredicateError: It has none.
    """
    return _text(jvm, expression, _Clock(jvm))


def _text(jvm: JavaObject, expression: JavaObject, clock: _Clock) -> str:
    names: list[str] = []
    renamed = []
    references = expression.references().iterator()
    nil = getattr(jvm, "scala.collection.immutable.Nil$")
    unqualified = getattr(nil, "MODULE$")
    while references.hasNext():
        attribute = references.next()
        token = attribute.withQualifier(unqualified).withName(f"{_MARK}{len(names)}x")
        renamed.append(jvm.scala.Tuple2(attribute, token))
        names.append(attribute.name())
    # DataSourceUtils mixes in AliasHelper.replaceAlias, which puts any expression in the place of an attribute.
    rename = getattr(jvm, "org.apache.spark.sql.execution.datasources.DataSourceUtils$")
    mapping = getattr(getattr(jvm, f"{_CATALYST}AttributeMap$"), "MODULE$")
    pairs = mapping.apply(jvm.org.apache.spark.api.python.PythonUtils.toSeq(renamed))
    renamed_expression = getattr(rename, "MODULE$").replaceAlias(expression, pairs)
    text = str(renamed_expression.sql())
    if _REPLACED in text:
        raise UntranslatablePredicateError
    escapes = _escapes(renamed_expression) if _LIKE_LOSES_ESCAPE and " LIKE " in text else []
    remaining = iter(escapes)

    def plain(match: re.Match[str]) -> str:
        if match["column"] is not None:
            return "`" + names[int(match["column"])].replace("`", "``") + "`"
        if match["time"] is not None:
            return f"TIMESTAMP '{clock.utc(match['time'])}'"
        if match["pattern"] is not None and escapes:
            pattern, escape = next(remaining, ("", ""))
            if pattern != match["pattern"]:
                raise UntranslatablePredicateError
            return match[0] + ("" if escape == "\\" else f" ESCAPE '{_IN_QUOTES.get(escape, escape)}'")
        return match[0]

    rewritten = _TOKENS.sub(plain, text)
    if next(remaining, None) is not None:
        raise UntranslatablePredicateError
    return rewritten


def _escapes(expression: JavaObject) -> list[tuple[str, str]]:
    """Pattern and escape character of each ``LIKE``, in the order of the text; empty if all have the usual one."""
    found: list[tuple[str, str]] = []
    stack = [expression]
    for _ in range(_MANY_NODES):
        if not stack:
            return found if any(escape != "\\" for _, escape in found) else []
        node = stack.pop()
        if node.getClass().getSimpleName() == "Like":
            found.append((str(node.right().sql()), str(node.escapeChar())))
        children = node.children()
        stack += [children.apply(index) for index in reversed(range(children.size()))]
    raise UntranslatablePredicateError


class _Clock:
    """Turns local times of the planning thread's session zone into UTC.

    By the JVM's own zone rules, which wrote the text; Python's may be of another year.
    """

    def __init__(self, jvm: JavaObject) -> None:
        self._jvm = jvm
        self._rules: JavaObject = None
        self._fixed: datetime.timedelta | None = None
        self._calls = 0

    def utc(self, local: str) -> str:
        """``local`` in UTC, with an offset.

        Raises:
            UntranslatablePredicateError: It is no time, or two of them.
        """
        if _LOCAL_TIME.fullmatch(local) is None:
            raise UntranslatablePredicateError
        if self._rules is None:
            zone = getattr(self._jvm, "org.apache.spark.sql.internal.SQLConf").get().sessionLocalTimeZone()
            utils = getattr(self._jvm, "org.apache.spark.sql.catalyst.util.DateTimeUtils")
            self._rules = utils.getZoneId(zone).getRules()
            if self._rules.isFixedOffset():
                offset = self._rules.getOffset(self._jvm.java.time.Instant.EPOCH)
                self._fixed = datetime.timedelta(seconds=offset.getTotalSeconds())
        try:
            moved = datetime.datetime.fromisoformat(local) - (
                self._offset(local) if self._fixed is None else self._fixed
            )
        except (ValueError, OverflowError) as error:
            raise UntranslatablePredicateError from error
        return f"{moved.isoformat(sep=' ')}+00:00"

    def _offset(self, local: str) -> datetime.timedelta:
        self._calls += 1
        if self._calls > _MANY_TIMES:
            raise UntranslatablePredicateError
        offsets = self._rules.getValidOffsets(self._jvm.java.time.LocalDateTime.parse(local.replace(" ", "T")))
        if offsets.size() != 1:
            raise UntranslatablePredicateError
        return datetime.timedelta(seconds=offsets.get(0).getTotalSeconds())


# ------------------------------------------------------------------------------------------- exact, over typed rows


def matching_rows(jvm: JavaObject, filters: JavaObject, rows: JavaObject, schema: JavaObject) -> npt.NDArray[np.bool_]:
    """Mask of the ``rows`` for which all ``filters`` are true, by Spark's own expressions.

    Args:
        jvm: py4j's view.
        filters: not empty ``Seq[Expression]``; they refer to columns of ``schema`` only.
        rows: ``Seq[InternalRow]``.
        schema: its columns, a ``StructType`` of Catalyst.

    Raises:
        Py4JJavaError: what an expression throws.
    """
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    condition = filters.apply(0)
    for index in range(1, filters.size()):
        condition = expressions.And(condition, filters.apply(index))
    types = getattr(getattr(jvm, "org.apache.spark.sql.catalyst.types.DataTypeUtils$"), "MODULE$")
    columns = {}
    references = condition.references().iterator()
    while references.hasNext():
        attribute = references.next()
        columns[attribute.name()] = attribute
    anonymous = types.toAttributes(schema)
    names = list(schema.fieldNames())
    unknown = columns.keys() - set(names)
    if unknown:
        raise LookupError(f"a partition filter on {', '.join(sorted(unknown))}, no partition column")
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    bound = to_seq([columns.get(name) or anonymous.apply(position) for position, name in enumerate(names)])
    # A projection is a function of rows, so one call maps all of them; a row prints as "[true]".
    projection = expressions.InterpretedProjection(to_seq([condition]), bound)
    projection.initialize(0)
    shown = rows.iterator().map(projection).mkString(",")
    return np.array([text == "[true]" for text in shown.split(",")], dtype=bool)


_EPOCH = datetime.datetime(1970, 1, 1)


_PLAIN = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double"})


def condition_of(bridge: JavaBridge, predicates: Iterable[JavaObject]) -> Column | None:
    """All predicates together, for a DataFrame with their columns; None for no predicate.

    Raises:
        UntranslatablePredicateError: names the predicate that has no exact translation.
    """
    found = None
    for predicate in predicates:
        expression = bridge.java.catalyst(predicate)
        if expression is None:
            raise UntranslatablePredicateError(str(predicate.toString()))
        column = Column(_java_column(bridge, expression))
        found = column if found is None else found & column
    return found


def _java_column(bridge: JavaBridge, expression: JavaObject) -> JavaObject:
    if bridge.is_spark_3:
        return bridge.view.org.apache.spark.sql.Column(expression)
    return bridge.view.org.apache.spark.sql.classic.ExpressionUtils.column(expression)


def bound_condition(bridge: JavaBridge, predicate: JavaObject, schema: JavaObject) -> JavaObject:
    """A predicate over columns of a Java ``StructType``, as ``Seq[Expression]`` whose columns are known.

    Raises:
        UntranslatablePredicateError: it has no exact translation.
    """
    column: Any = condition_of(bridge, [predicate])
    nothing = bridge.session.createDataFrame(bridge.view.java.util.ArrayList(), schema)
    analyzed = nothing.filter(column._jc).queryExecution().analyzed()
    return bridge.utils.toSeq([analyzed.condition()])


def value_of(literal: JavaObject) -> object:
    """The Python value of a V2 literal. Catalyst keeps days, microseconds and ``UTF8String``.

    Raises:
        UntranslatablePredicateError: a type or value that Python does not have.
    """
    kind, value = str(literal.dataType().simpleString()), literal.value()
    if value is None or kind in _PLAIN:
        return value
    try:
        if kind == "string":
            return value if isinstance(value, str) else bytes(value.getBytes()).decode()
        if kind.startswith("decimal"):
            return value.toJavaBigDecimal()
        if kind == "binary":
            return bytes(value)
        if kind == "date":
            return (_EPOCH + datetime.timedelta(days=int(value))).date()
        if kind in ("timestamp", "timestamp_ntz"):
            moment = _EPOCH + datetime.timedelta(microseconds=int(value))
            return moment.replace(tzinfo=datetime.UTC) if kind == "timestamp" else moment
    except (OverflowError, TypeError, ValueError) as error:
        raise UntranslatablePredicateError(str(literal.toString())) from error
    raise UntranslatablePredicateError(f"{literal.toString()} ({kind})")
