"""``merge`` against a dictionary: random clauses and conditions, nulls among the values, keys in several partitions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.errors import InvalidInputError
from table_kit import own

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("n", pa.int32())])
Row = tuple[Any, ...]
Rows = dict[tuple[str, str], Row]
NO_ROW: Row = (None, None, None, None)


def lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """Null in, null out."""
    return lambda *values: None if None in values else function(*values)


eq, lt, plus = (lift(f) for f in (lambda a, b: a == b, lambda a, b: a < b, lambda a, b: a + b))


def both(a: bool | None, b: bool | None) -> bool | None:
    return False if False in (a, b) else None if None in (a, b) else True


ID, CITY, V, N = range(4)
ON: dict[str, Callable[[Row, Row], Any]] = {
    "t.id = s.id": lambda t, s: eq(t[ID], s[ID]),
    "t.city = s.city AND s.id = t.id": lambda t, s: both(eq(t[ID], s[ID]), eq(t[CITY], s[CITY])),
    "t.id = s.id AND t.v > 1": lambda t, s: both(eq(t[ID], s[ID]), lt(1, t[V])),
    "t.id = s.id AND t.city = s.city AND t.n < s.n": lambda t, s: both(
        both(eq(t[ID], s[ID]), eq(t[CITY], s[CITY])), lt(t[N], s[N])
    ),
    "t.v = s.v AND t.city = 'a'": lambda t, s: both(eq(t[V], s[V]), eq(t[CITY], "a")),
    "t.v <=> s.v": lambda t, s: t[V] == s[V],
    "t.v < s.n": lambda t, s: lt(t[V], s[N]),
}
MATCHED: dict[str | None, Callable[[Row, Row], Any]] = {
    None: lambda t, s: True,
    "s.n > 1": lambda t, s: lt(1, s[N]),
    "t.v IS NULL OR t.v = s.v": lambda t, s: True if t[V] is None else eq(t[V], s[V]),
    "NOT (t.n + s.n < 3)": lambda t, s: None if (x := lt(plus(t[N], s[N]), 3)) is None else not x,
}
SOURCE: dict[str | None, Callable[[Row, Row], Any]] = {
    None: lambda t, s: True,
    "s.v > 0": lambda t, s: lt(0, s[V]),
    "s.n IS NULL": lambda t, s: s[N] is None,
}
TARGET: dict[str | None, Callable[[Row, Row], Any]] = {
    None: lambda t, s: True,
    "t.v > 0": lambda t, s: lt(0, t[V]),
    "t.n IS NULL": lambda t, s: t[N] is None,
}
SETS: dict[str, Callable[[Row, Row], Row]] = {
    "t.v + s.v": lambda t, s: (t[ID], t[CITY], plus(t[V], s[V]), t[N]),
    "s.n": lambda t, s: (t[ID], t[CITY], s[N], t[N]),
    "CASE WHEN s.v > t.v THEN s.v ELSE t.v END": lambda t, s: (
        t[ID],
        t[CITY],
        s[V] if lt(t[V], s[V]) else t[V],
        t[N],
    ),
}

small = st.none() | st.integers(0, 3)
stored = st.dictionaries(st.tuples(st.sampled_from("1234"), st.sampled_from("ab")), st.tuples(small, small), max_size=6)
incoming = st.lists(st.tuples(st.sampled_from(["1", "2", "3", "4", "5", None]), st.sampled_from("abc"), small, small))


def clause(when: str) -> st.SearchStrategy[tuple[Any, ...]]:
    conditions = {"matched": MATCHED, "not matched": SOURCE, "by source": TARGET}[when]
    actions = {"matched": ["*", "delete", *SETS], "not matched": ["*", "v"], "by source": ["delete", "set"]}[when]
    return st.tuples(st.just(when), st.sampled_from(list(conditions)), st.sampled_from(actions))


clauses = st.lists(
    clause("matched") | clause("not matched") | clause("matched") | clause("by source"), min_size=1, max_size=4
).filter(
    lambda found: (
        not any(
            earlier[0] == later[0] and earlier[1] is None
            for place, later in enumerate(found)
            for earlier in found[:place]
        )
    )
)


class RefusedError(Exception):
    """The model says that the merge is an error."""


def model(rows: Rows, source: list[Row], on: str, found: list[tuple[Any, ...]]) -> Rows:
    pairs = [(key, number) for key, t in rows.items() for number, s in enumerate(source) if ON[on](t, s) is True]
    acted: dict[tuple[str, str], int] = {}
    after, new = dict(rows), {}
    # Several source rows may delete one row if all that matched rows get is an unconditional delete.
    only_deletes = [(c[1], c[2]) for c in found if c[0] == "matched"] == [(None, "delete")]

    def take(when: str, t: Row, s: Row) -> tuple[Any, ...] | None:
        conditions = {"matched": MATCHED, "not matched": SOURCE, "by source": TARGET}[when]
        return next((c for c in found if c[0] == when and conditions[c[1]](t, s) is True), None)

    def add(row: Row, number: int) -> None:
        key = (row[ID], row[CITY])
        if row[ID] is None or key in rows or new.get(key, (row, number)) != (row, number):
            raise RefusedError
        new[key] = (row, number)

    for key, number in pairs:
        t, s = rows[key], source[number]
        chosen = take("matched", t, s)
        if chosen is None:
            continue
        if key in acted:
            if only_deletes:
                continue
            raise RefusedError
        acted[key] = number
        if chosen[2] == "delete":
            del after[key]
        elif chosen[2] == "*":
            if s[ID] != t[ID]:
                raise RefusedError
            if s[CITY] == t[CITY]:
                after[key] = s
            else:
                del after[key]
                add(s, number)
        else:
            after[key] = SETS[chosen[2]](t, s)
    for number, s in enumerate(source):
        chosen = None if number in {n for _, n in pairs} else take("not matched", NO_ROW, s)
        if chosen is not None:
            add(s if chosen[2] == "*" else (s[ID], s[CITY], 7, None), number)
    for key in rows.keys() - {key for key, _ in pairs}:
        chosen = take("by source", rows[key], NO_ROW)
        if chosen is not None and chosen[2] == "delete":
            del after[key]
        elif chosen is not None:
            after[key] = (*key, 9, rows[key][N])
    return after | {key: row for key, (row, _) in new.items()}


def built(table: Table, source: list[Row], on: str, found: list[tuple[Any, ...]]) -> Any:
    builder = table.merge(frame(source), on)
    for when, condition, action in found:
        if when == "matched":
            if action == "*":
                builder = builder.when_matched_update_all(condition)
            elif action == "delete":
                builder = builder.when_matched_delete(condition)
            else:
                builder = builder.when_matched_update({"v": action}, condition)
        elif when == "not matched" and action == "*":
            builder = builder.when_not_matched_insert_all(condition)
        elif when == "not matched":
            builder = builder.when_not_matched_insert({"id": "s.id", "city": "s.city", "v": "7"}, condition)
        elif action == "delete":
            builder = builder.when_not_matched_by_source_delete(condition)
        else:
            builder = builder.when_not_matched_by_source_update({"v": "9"}, condition)
    return builder


def frame(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=max(30, settings().max_examples // 2))
@given(stored=stored, source=incoming, on=st.sampled_from(list(ON)), found=clauses)
def test_a_merge_does_what_the_model_does(folder: Path, stored: Any, source: Any, on: str, found: Any) -> None:
    """R31: no key twice, whatever the clauses, with rows that move and null keys; counts after deletes."""
    path = folder / "t"
    shutil.rmtree(path, ignore_errors=True)
    table = Table.create(
        path, SCHEMA, record_key="id", partition_by="city", options={"hoodie.parquet.small.file.limit": "0"}
    )
    rows = {key: (*key, *values) for key, values in stored.items()}
    table.insert(frame([row for row in rows.values() if row[ID] > "2"]))
    table.insert(frame([row for row in rows.values() if row[ID] <= "2"]))
    try:
        expected = model(rows, source, on, found)
    except RefusedError:
        with pytest.raises(InvalidInputError):
            built(table, source, on, found).execute()
        expected = rows
    else:
        result = built(table, source, on, found).execute()
        assert len(expected) - len(rows) == result.inserted - result.deleted - _joined(rows, expected, result)
    assert own(Table.open(path)) == sorted(expected.values(), key=repr)


def _joined(rows: Rows, expected: Rows, result: Any) -> int:
    """Rows of one key that moved to one place count as updated each."""
    lost = result.inserted - result.deleted - (len(expected) - len(rows))
    return lost if lost > 0 and any("moved" in note for note in result.notes) else 0
