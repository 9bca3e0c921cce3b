"""Hypothesis strategies for schemas of tables, frames of a schema, and predicates over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from lakedex.testing.sql_predicates import PredicateMaker
from lakedex.testing.values import LOCAL, STAMP, array_of, awkward_values, key_array, leaves, physical

__all__ = ["frames", "predicates", "schemas"]

_PLAIN = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(38, 18),
    pa.string(),
    pa.binary(),
    pa.date32(),
    STAMP,
    LOCAL,
)
_KEYS = (pa.string(), pa.int64(), pa.date32(), STAMP, pa.decimal128(12, 4))


@st.composite
def schemas(draw: st.DrawFn, *, key: str = "id", max_columns: int = 6, nested: bool = True) -> pa.Schema:
    """Strategy for the schema of a table.

    Args:
        draw: Given by Hypothesis.
        key: Name of the first column, the record key.
        max_columns: Most columns besides the key; their names are ``c0``, ``c1`` and so on.
        nested: Whether columns may be structs, lists and maps.

    Returns:
        A schema that ``Table.create`` takes.

    Example:
        >>> @given(st.data())
        ... def test_rows_come_back(data):
        ...     schema = data.draw(schemas())
        ...     rows = data.draw(frames(schema))
        ...     assert read_back(rows).equals(rows)
    """
    plain = st.sampled_from(_PLAIN)
    kinds = plain | _nested(plain) if nested else plain
    drawn = draw(st.lists(kinds, min_size=1, max_size=max_columns))
    columns = [(f"c{number}", kind) for number, kind in enumerate(drawn)]
    return pa.schema([(key, draw(st.sampled_from(_KEYS))), *columns])


def _nested(plain: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.lists(plain, min_size=1, max_size=2).map(
        lambda kinds: pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])
    )
    deep = structs.map(lambda kind: pa.struct([("s", kind), ("n", pa.int32())]))
    lists = st.just(pa.list_(pa.field("element", pa.int32())))
    return structs | deep | lists | st.just(pa.map_(pa.string(), pa.int64()))


@st.composite
def frames(
    draw: st.DrawFn, schema: pa.Schema, *, key: str = "id", min_rows: int = 1, max_rows: int = 8, keys: int = 40
) -> pa.Table:
    """Strategy for rows of a schema, with awkward values and nulls; each frame has few values of a column.

    Args:
        draw: Given by Hypothesis.
        schema: Columns, as of :func:`schemas`.
        key: Column of the record key; its values are never null and each comes once.
        min_rows: Fewest rows.
        max_rows: Most rows.
        keys: Number of different keys from which frames take theirs, at least ``max_rows``; with few keys, later frames
            update the rows of earlier ones.

    Returns:
        Rows that every write of a table takes.
    """
    numbers = draw(st.lists(st.integers(0, keys - 1), min_size=min_rows, max_size=max_rows, unique=True))
    columns = [
        key_array(numbers, column.type) if column.name == key else _column(draw, column.type, len(numbers))
        for column in schema
    ]
    return pa.table(columns, schema=schema)


def _column(draw: st.DrawFn, kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_struct(kind):
        fields = [_column(draw, field.type, rows) for field in kind]
        is_null = pa.array(draw(_values([False, False, True], rows)), pa.bool_())
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=is_null)
    pool = _NESTED_VALUES.get(kind.id) or awkward_values(kind)
    few = draw(st.lists(st.sampled_from([*pool, None]), min_size=1, max_size=3))
    return array_of(draw(_values(few, rows)), kind)


_NESTED_VALUES: Mapping[int, list[Any]] = {
    pa.list_(pa.int32()).id: [[], [1], [1, None, 2]],
    pa.map_(pa.string(), pa.int64()).id: [[], [("a", 1)], [("a", 1), ("b", None)]],
}


def _values(pool: list[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(pool), min_size=rows, max_size=rows)


def predicates(schema: pa.Schema, rows: pa.Table | None = None, *, depth: int = 3) -> st.SearchStrategy[str]:
    """Strategy for predicates in SQL.

    Some are refused outside Spark (``UnsupportedFeatureError``) or fail for some rows by the rules of ANSI SQL
    (``InvalidInputError``).

    Args:
        schema: Columns of the table.
        rows: Rows from which literals are taken; ``None`` takes awkward values of each type.
        depth: Deepest nesting of AND, OR and NOT.

    Returns:
        Texts for ``Table.scan``, ``delete`` and ``update``.
    """
    kinds = dict(leaves(schema))
    values = {name: _literals(name, kind, rows) for name, kind in kinds.items() if not pa.types.is_nested(kind)}
    return st.randoms(use_true_random=False).map(
        lambda rng: PredicateMaker(rng, kinds, values, (schema.names[0],)).predicate(depth).sql
    )


def _literals(name: str, kind: pa.DataType, rows: pa.Table | None) -> list[Any]:
    if rows is None:
        return awkward_values(kind)
    head, *path = name.split(".")
    column = rows.column(head).combine_chunks()
    return physical((pc.struct_field(column, path) if path else column).drop_null())
