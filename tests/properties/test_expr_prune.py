"""Whatever the table and the condition: a dropped file holds no row for which the condition is true."""

from __future__ import annotations

import math
import re
import string
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakedex.errors import InvalidInputError
from lakedex.expr.evaluator import filter_rows, truth_of_rows
from lakedex.expr.nodes import Column
from lakedex.expr.parser import parse_predicate
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.sort_keys import ordering_keys
from lakedex.expr.terms import BoundPredicate, equality_values, to_sql
from lakedex.types import SessionRules

TEXTS = ["", "a", "ab", "abc", "abcd", "b", "é", "Ａ", "😀", "😀x", "a_c", "a%c", "a\\c", "x" * 40, "x" * 39 + "y"]
FLOATS = [0.0, -0.0, 1.5, -2.25, 1.1, math.nan, math.inf, -math.inf, 1e30, 16777217.0]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [-3, 0, 1, 2, 7, 2**31 - 1, -(2**31)]),
    "l": (pa.int64(), [-3, 0, 1, 2, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "d": (pa.float64(), FLOATS),
    "f": (pa.float32(), FLOATS),
    "m": (pa.decimal128(10, 2), [Decimal(t) for t in ("0.00", "1.50", "-1.50", "9.99", "10.00", "99999999.99")]),
    "s": (pa.string(), TEXTS),
    "o": (pa.bool_(), [True, False]),
    "dt": (pa.date32(), [date(2024, 3, 9), date(2024, 3, 10), date(1, 1, 1), date(9999, 12, 31), date(2024, 3, 11)]),
    "ts": (pa.timestamp("us", "UTC"), [datetime(2024, 3, d, h, 30, tzinfo=UTC) for d in (9, 10) for h in (0, 15, 23)]),
    "n": (pa.timestamp("us"), [datetime(2024, 3, d, h) for d in (9, 10) for h in (0, 12)]),
    "x": (pa.binary(), [b"", b"\x00", b"a", b"\x7f", b"\x80", b"\xff\xff"]),
}  # fmt: skip
SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in VALUES.items()])
LITERALS = {
    "i": ["0", "1", "2L", "1.5", "1.5D", "'7'", "-3", "3000000000", "NULL", "i + 1 - 1", "l", "1.00BD"],
    "l": ["0", "1", "2.5", "9007199254740992D", "9007199254740993", "1e30", "NULL", "i", "CAST('NaN' AS DOUBLE)"],
    "d": ["0", "-0.0D", "1.1", "1.1D", "CAST('NaN' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)", "NULL", "f", "i"],
    "f": ["0", "1.5", "1.1", "1.1D", "CAST('NaN' AS FLOAT)", "CAST(1.1 AS FLOAT)", "NULL", "d", "16777216"],
    "m": ["0", "1.5", "1.500", "9.995", "10L", "1.5D", "99999999999999", "NULL", "i", "d"],
    "s": ["''", "'abc'", "'ab'", "'😀'", "'Ａ'", "'zz'", "NULL", "1", "upper(s)", "s || 'c'", f"'{'x' * 40}'"],
    "o": ["true", "false", "'true'", "NULL"],
    "dt": ["DATE '2024-03-10'", "'2024-03-09'", "TIMESTAMP '2024-03-10 00:00:00'", "NULL", "'x'", "ts"],
    "ts": ["TIMESTAMP '2024-03-10 00:30:00'", "'2024-03-11'", "DATE '2024-03-10'", "NULL", "'2024-03-10 00:30:00Z'"],
    "n": ["'2024-03-10 12:00:00'", "TIMESTAMP_NTZ '2024-03-09 00:00:00'", "DATE '2024-03-10'", "NULL", "dt"],
    "x": ["X''", "X'61'", "X'80'", "NULL"],
}  # fmt: skip
SIDES = {
    "i": ["abs(i)", "i % 7", "coalesce(i, 0)", "try_cast(s AS INT)"],
    "s": ["trim(s)", "substring(s, 1, 2)", "reverse(s)", "nullif(s, 'abc')"],
    "dt": ["date_add(dt, 1)", "last_day(dt)", "to_date(ts)", "trunc(dt, 'MONTH')"],
    "ts": ["date_trunc('DAY', ts)", "ts - INTERVAL 1 DAY"],
    "n": ["n + INTERVAL 1 HOUR", "greatest(n, NULL)"],
    "o": ["startswith(s, 'a')", "year(dt) = 2024", "s ILIKE 'A%'", "s RLIKE 'b'", "nvl(o, false)"],
}
CASTS = {"i": ["BIGINT", "DOUBLE", "DECIMAL(20,2)", "STRING"], "f": ["DOUBLE"], "m": ["DECIMAL(20,4)", "DOUBLE"],
         "ts": ["DATE"], "dt": ["TIMESTAMP"], "n": ["DATE"]}  # fmt: skip
TESTS = ["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE", "<=> TRUE"]
PATTERNS = ["'abc%'", "'a%'", "'%'", "'a_c'", "'a\\\\_c'", "'%c'", "'x%'", "'😀%'", "''", "'a/%%' ESCAPE '/'", "NULL"]


@st.composite
def conditions(draw: st.DrawFn, depth: int = 4) -> str:
    kind = draw(st.integers(0, 9)) if depth else 9
    inner = conditions(depth=depth - 1)
    if kind in (0, 1):
        return f"({draw(inner)}) {draw(st.sampled_from(['AND', 'OR']))} ({draw(inner)})"
    if kind in (2, 3):
        return f"NOT ({draw(inner)})"
    if kind == 4:
        return f"({draw(inner)}) {draw(st.sampled_from(TESTS))}"
    return draw(leaves())


@st.composite
def leaves(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(VALUES)))
    literals = st.sampled_from(LITERALS[name])
    shape = draw(st.integers(0, 9))
    if shape == 0:
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if shape == 1:
        constants = [t for t in LITERALS[name] if not VALUES.keys() & set(re.findall(r"\w+", t))]
        chosen = draw(st.lists(st.sampled_from(constants), min_size=1, max_size=4))
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(chosen)})"
    if shape == 2:
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(literals)} AND {draw(literals)}"
    if shape == 3:
        return f"s {draw(st.sampled_from(['', 'NOT ']))}LIKE {draw(st.sampled_from(PATTERNS))}"
    side = draw(st.sampled_from([name, name, *SIDES.get(name, ())]))
    side = f"({side})" if " " in side else side
    if shape == 4 and name in CASTS:
        side = f"CAST({name} AS {draw(st.sampled_from(CASTS[name]))})"
    return f"{side} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=', '<=>']))} {draw(literals)}"


@st.composite
def tables(draw: st.DrawFn) -> list[pa.Table]:
    files = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.integers(1, 4))
        columns = []
        for kind, values in VALUES.values():
            few = draw(st.lists(st.sampled_from([None, *values]), min_size=1, max_size=2))
            columns.append(pa.array(draw(st.lists(st.sampled_from(few), min_size=rows, max_size=rows)), kind))
        files.append(pa.table(columns, schema=SCHEMA))
    return files


def outer(low: str | None, high: str | None) -> tuple[str | None, str | None]:
    """A long string's bounds, widened as column stats have them: a prefix, and a prefix's successor."""
    short = low[:3] if low is not None and len(low) > 3 else low
    above = high[:2] + chr(ord(high[2]) + 1) if high is not None and len(high) > 3 else high
    return short, above


def entry(values: pa.ChunkedArray, how: int) -> tuple[Any, Any, int, int]:
    """Minimum, maximum, null count, row count; ``how`` hides parts of them."""
    present = values.drop_null().combine_chunks()
    low = high = None
    if len(present) and how != 1:
        keys = ordering_keys(present)
        low = present[pc.index(keys, pc.min(keys)).as_py()].as_py()
        high = present[pc.index(keys, pc.max(keys)).as_py()].as_py()
        if pa.types.is_string(values.type):
            low, high = outer(low, high)
    if pa.types.is_floating(values.type):
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return low, None if how == 2 else high, -1 if how in (1, 3) else values.null_count, -1 if how == 4 else len(values)


def bounds_of(files: list[pa.Table], name: str, how: list[int]) -> ColumnBounds | None:
    if how[0] == 9:
        return None
    rows = [entry(file[name], how[i % len(how)]) for i, file in enumerate(files)]
    low, high, nulls, counts = zip(*rows, strict=True)
    kind = SCHEMA.field(name).type
    return ColumnBounds(pa.array(low, kind), pa.array(high, kind), np.array(nulls), np.array(counts))


ZONES = ["UTC", "Asia/Seoul", "America/New_York", "+05:30"]
HIDING = st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 3, 4, 9]), min_size=1, max_size=3)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(files=tables(), sql=conditions(), how=HIDING, zone=st.sampled_from(ZONES))
def test_a_dropped_file_has_no_matching_row(files: list[pa.Table], sql: str, how: list[int], zone: str) -> None:
    predicate = parse_predicate(sql, SCHEMA, SessionRules(timezone=zone))
    keep = prune(predicate, lambda column: bounds_of(files, column.name, how), len(files))
    negated = parse_predicate(f"NOT ({sql})", SCHEMA, SessionRules(timezone=zone))
    drop_by_not = prune(negated, lambda column: bounds_of(files, column.name, how), len(files))
    assert BoundPredicate(predicate).texts_on([]) == ()
    for file, kept, kept_by_not in zip(files, keep, drop_by_not, strict=True):
        try:
            truth = truth_of_rows(predicate, file)
        except (InvalidInputError, NotImplementedError):
            continue
        assert kept or not pc.any(pc.fill_null(truth, False)).as_py()
        assert kept_by_not or pc.all(pc.fill_null(truth, True)).as_py()
        again = truth_of_rows(parse_predicate(to_sql(predicate), SCHEMA, SessionRules(timezone=zone)), file)
        assert again.to_pylist() == truth.to_pylist()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=tables(), sql=conditions(depth=2), name=st.sampled_from(["i", "l", "s", "m", "x", "o", "d"]))
def test_rows_that_match_have_one_of_the_equality_values(files: list[pa.Table], sql: str, name: str) -> None:
    predicate = parse_predicate(sql, SCHEMA)
    values = equality_values(predicate, name)
    if values is None:
        return
    for file in files:
        try:
            kept = file.filter(filter_rows(predicate, file))
        except (InvalidInputError, NotImplementedError):
            continue
        assert all(v in values for v in kept[name].to_pylist())


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet=string.printable + "é😀§", max_size=30))
def test_any_text_is_a_predicate_or_an_input_error(text: str) -> None:
    try:
        parse_predicate(text, SCHEMA)
    except InvalidInputError:
        pass
    literal = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    assert equality_values(parse_predicate(f"s = {literal}", SCHEMA), Column(("s",)).name) == [text]
