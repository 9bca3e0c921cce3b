"""The condition of a statement is the text that stands there."""

from __future__ import annotations

import pytest

from lakedex.errors import InvalidInputError
from lakedex.expr.parser import condition_of


@pytest.mark.parametrize(
    "text, condition",
    [
        ("a = 1", "a = 1"),
        ("selected AND b", "selected AND b"),
        ("a = '", "a = '"),
        ("", ""),
        ("SELECT * FROM t", None),
        ("SELECT 1", None),
        ("SELECT a FROM t ORDER BY a", None),
        ("select a, b from lake.t where A = 'x; where (' and b > 1", "A = 'x; where (' and b > 1"),
        ("SELECT count(*) FROM t WHERE a IN (1, 2) GROUP BY b HAVING count(*) > 1 LIMIT 3;", "a IN (1, 2)"),
        ("SELECT x.a FROM lake.t x WHERE x.a = 1 AND lake.t.b = X.c.x.d;", "a = 1 AND b = c.x.d"),
        ("SELECT a FROM t AS x WHERE `x`.a = 'x.a' -- t.b", "a = 'x.a' -- t.b"),
        ("SELECT a FROM t WHERE a = (b + 1) * 2", "a = (b + 1) * 2"),
        ("SELECT (SELECT 1 FROM u WHERE v) FROM t WHERE a", "a"),
        ("DELETE FROM t WHERE a = 1", "a = 1"),
        ("SELECT a FROM t VERSION AS OF '2024' WHERE a = 1", "a = 1"),
    ],
)
def test_the_condition(text: str, condition: str | None) -> None:
    assert condition_of(text) == condition


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t JOIN u ON t.a = u.a WHERE t.a = 1",
        "SELECT * FROM t, u WHERE t.a = 1",
        "SELECT * FROM (SELECT * FROM t) WHERE a = 1",
        "SELECT a FROM t WHERE a = 1 UNION SELECT a FROM u WHERE b = 2",
    ],
)
def test_several_tables_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="reads several tables"):
        condition_of(text)
