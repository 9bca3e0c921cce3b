"""Parse predicates in Spark SQL, prune files by them and filter rows by them."""

from lakedex.expr.evaluator import evaluate_scalar, filter_rows
from lakedex.expr.parser import bind, parse_filter_or_unknown, parse_predicate, parse_scalar
from lakedex.expr.pruner import ColumnBounds, evaluate_bounds, prune
from lakedex.expr.terms import (
    BoundPredicate,
    columns_of,
    depends_on_zone,
    equality_values,
    to_spark_sql,
    to_sql,
    to_text,
    unknown_texts,
)

__all__ = [
    "BoundPredicate",
    "ColumnBounds",
    "bind",
    "columns_of",
    "depends_on_zone",
    "equality_values",
    "evaluate_bounds",
    "evaluate_scalar",
    "filter_rows",
    "parse_filter_or_unknown",
    "parse_predicate",
    "parse_scalar",
    "prune",
    "to_spark_sql",
    "to_sql",
    "to_text",
    "unknown_texts",
]
