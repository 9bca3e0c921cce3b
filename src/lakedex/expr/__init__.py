"""Predicates in Spark SQL: parse them, prune files by them, filter rows by them."""

from lakedex.expr.evaluator import evaluate_scalar, filter_rows
from lakedex.expr.parser import parse_filter_or_unknown, parse_predicate, parse_scalar
from lakedex.expr.pruner import ColumnBounds, judge, prune
from lakedex.expr.terms import (
    columns_of,
    depends_on_zone,
    equality_values,
    is_prunable,
    terms_of,
    terms_used,
    to_spark_sql,
    to_sql,
    to_text,
    unknown_texts,
)

__all__ = [
    "ColumnBounds",
    "columns_of",
    "depends_on_zone",
    "equality_values",
    "evaluate_scalar",
    "filter_rows",
    "is_prunable",
    "judge",
    "parse_filter_or_unknown",
    "parse_predicate",
    "parse_scalar",
    "prune",
    "terms_of",
    "terms_used",
    "to_spark_sql",
    "to_sql",
    "to_text",
    "unknown_texts",
]
