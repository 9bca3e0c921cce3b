"""Predicates in Spark SQL: parse them, prune files by them, filter rows by them."""

from lakedex.expr.parse import parse_filter_or_unknown, parse_predicate, parse_scalar
from lakedex.expr.prune import ColumnBounds, prune
from lakedex.expr.rows import evaluate_scalar, filter_rows
from lakedex.expr.terms import columns_of, equality_values, is_judged, terms_of, terms_used, to_sql

__all__ = [
    "ColumnBounds",
    "columns_of",
    "equality_values",
    "evaluate_scalar",
    "filter_rows",
    "is_judged",
    "parse_filter_or_unknown",
    "parse_predicate",
    "parse_scalar",
    "prune",
    "terms_of",
    "terms_used",
    "to_sql",
]
