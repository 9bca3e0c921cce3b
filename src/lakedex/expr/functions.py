"""Table of all supported functions by their Spark names."""

from __future__ import annotations

import difflib

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr.functions_nested import NESTED_FUNCTIONS
from lakedex.expr.functions_number import NUMBER_FUNCTIONS
from lakedex.expr.functions_text import TEXT_FUNCTIONS
from lakedex.expr.functions_time import TIME_FUNCTIONS
from lakedex.expr.signatures import FunctionSpec, Takes, same_as_first

__all__ = ["ALIASES", "CASTS_BY_NAME", "FUNCTIONS", "INTERNAL", "nearest_names"]


FUNCTIONS: dict[str, FunctionSpec] = {
    **TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **NESTED_FUNCTIONS,
    # The evaluator evaluates its arguments one by one.
    "coalesce": FunctionSpec((Takes.COMMON,), same_as_first, pc.coalesce, repeats=True, strict=False),
}


INTERNAL = frozenset({"negate", "seconds", "plus_months", "plus_micros", "item", "field", "concat_bytes",
                      "yearofweek", "dayofweek_iso",
                      *(name for name in FUNCTIONS if name.startswith("bit_") and name != "bit_length")})  # fmt: skip
"""Functions for other syntax; users cannot write these names."""


ALIASES = {
    "char_length": "length", "character_length": "length", "len": "length", "ucase": "upper", "lcase": "lower",
    "substr": "substring", "dayofmonth": "day", "date_diff": "datediff", "dateadd": "date_add", "cardinality": "size",
    "ceiling": "ceil", "signum": "sign", "regexp": "rlike", "regexp_like": "rlike", "position": "locate",
    "ifnull": "coalesce", "nvl": "coalesce", "negative": "negate",
}  # fmt: skip


CASTS_BY_NAME: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "decimal": pa.decimal128(10, 0), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip


_OTHER_WORDS = ("if", "nullif", "nvl2", "isnull", "isnotnull", "ilike", "mod", "try_cast", "date_part", "current_date",
                "current_timestamp", "now", "extract", "trim", "equal_null", "unix_timestamp", "to_unix_timestamp",
                "to_timestamp_ntz")  # fmt: skip


def nearest_names(name: str) -> list[str]:
    """Supported functions with a similar name."""
    known = (FUNCTIONS.keys() - INTERNAL) | ALIASES.keys() | CASTS_BY_NAME.keys() | set(_OTHER_WORDS)
    return difflib.get_close_matches(name.lower(), sorted(known), n=2, cutoff=0.75)
