"""Semi and anti joins as conditions: the keys of another table become ``IN`` lists that indexes can prune by.

``In`` for one column. For several, combinations that have the rest in common are put together::

    (day IN (1, 2) AND airport IN ('fra', 'muc')) OR (day IN (3) AND airport IN ('jfk'))

after a plain ``IN`` for each column, which prunes. A key with null never matches, and types are compared as Spark does.

Memory: the distinct keys, at most :data:`MAX_KEYS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.arrow_types import as_table, normal_schema
from lakedex.errors import InvalidInputError, LakedexError
from lakedex.expr.binder import Binder
from lakedex.expr.casts import cast_array
from lakedex.expr.nodes import And, Column, In, IsNull, Literal, Not, Or, Predicate, Scalar
from lakedex.expr.sort_keys import literals_of
from lakedex.expr.types import Kind, NotPrunableError, kind_of
from lakedex.index.bitmap.keys import normal_values
from lakedex.lossless_cast import StoreAssignment

__all__ = ["MAX_KEYS", "KeyReader", "key_condition"]


MAX_KEYS = 1_000_000
"""Distinct keys of a join at most."""


MAX_TERMS = 1_000
"""Lists of values that a condition on several columns has at most."""


KeyReader = Callable[[Any, Sequence[str], int], pa.Table | None]
"""Gives the distinct keys of a frame in columns, at most a number; None for other objects than frames of its engine."""


def key_condition(
    keys: Any,
    on: str | Sequence[str] | Mapping[str, str],
    column: Callable[[str], Column],
    to_keys: KeyReader | None,
    *,
    anti: bool,
    timezone: str,
) -> Predicate:
    """The condition that a row has a match among keys.

    Args:
        keys: a frame, a scan, or the values of one column.
        on: columns of both sides, or this side's with the other's.
        column: finds a column of this side.
        to_keys: collects the keys of a frame that only the engine can read.
        anti: the condition that it has none.
        timezone: the session's, for keys that are compared with dates or timestamps.

    Raises:
        InvalidInputError: too many keys, columns that are not there, types that do not compare.
    """
    pairs = {on: on} if isinstance(on, str) else dict(on) if isinstance(on, Mapping) else {name: name for name in on}
    if not pairs:
        raise InvalidInputError("a join needs a column: on='id', or on={'this column': 'its column among the keys'}")
    columns = [column(name) for name in pairs]
    found = _read_keys(keys, list(pairs.values()), to_keys)
    table = _distinct(found)
    if table.num_rows > MAX_KEYS:
        raise InvalidInputError(
            f"{table.num_rows:,} different keys; a join by indexes takes at most {MAX_KEYS:,}: join with Spark"
        )
    sides = [
        _brought(one, table.column(n), name, timezone) for n, (one, name) in enumerate(zip(columns, pairs, strict=True))
    ]
    table = _distinct(pa.table([values for _, values in sides], names=list(pairs)))
    if not table.num_rows:
        return Literal(anti, pa.bool_())
    operands = [operand for operand, _ in sides]
    match = _matches(operands, table)
    if not anti:
        return match
    # As NOT EXISTS: null matches nothing.
    return Or((Not(match), *(IsNull(one) for one in columns))) if len(columns) == 1 else Or((Not(match), IsNull(match)))


# ------------------------------------------------------------------------------------------------------- reading keys


def _read_keys(keys: Any, names: list[str], to_keys: KeyReader | None) -> pa.Table:
    """Columns of the keys, in the order of ``names``."""
    if hasattr(keys, "count_by") and hasattr(keys, "snapshot"):
        # A scan: its own indexes may know the values.
        return keys.count_by(*names) if keys.max_rows is None else keys.select(*names).to_arrow()
    collected = None if to_keys is None else to_keys(keys, names, MAX_KEYS + 1)
    if collected is not None:
        return _plain(collected)
    if _is_values(keys):
        if len(names) != 1:
            raise InvalidInputError(f"values are the keys of one column, not of {', '.join(names)}: pass a frame")
        return _of_values(keys, names[0])
    table = _plain(_only(keys, names))
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise InvalidInputError(
            f"the keys have no column {missing[0]!r}: {', '.join(table.column_names)}", column=missing[0]
        )
    return table.select(names)


def _only(keys: Any, names: list[str]) -> Any:
    """Only the columns that are wanted, so that those of other types do no harm."""
    known = getattr(keys, "columns", None) if not isinstance(keys, pa.Table) else keys.column_names
    if isinstance(keys, pa.Table) and set(names) <= set(known or ()):
        return keys.select(names)
    if known is not None and not callable(known) and set(names) <= set(known) and hasattr(keys, "__getitem__"):
        return keys[names]
    return keys


def _is_values(keys: object) -> bool:
    if isinstance(keys, list | tuple | set | frozenset | range | np.ndarray | pa.Array | pa.ChunkedArray):
        return True
    return type(keys).__name__ == "Series"


def _of_values(keys: Any, name: str) -> pa.Table:
    try:
        plain = list(keys) if isinstance(keys, set | frozenset | range | tuple) else keys
        values = plain.to_arrow() if hasattr(plain, "to_arrow") else plain
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"the keys for {name!r} are no values of one type: {error}", column=name) from error
    return _plain(pa.table({name: array}))


def _plain(keys: Any) -> pa.Table:
    """Keys in the types of tables; those that have no value there are left out."""
    table = as_table(keys)
    for number, column in enumerate(table.columns):
        if pa.types.is_null(column.type):
            return table.slice(0, 0).set_column(number, table.column_names[number], pa.array([], pa.string()))
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            whole = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(column.type)
            table = table.filter(pc.fill_null(pc.equal(whole, table.column(number)), False))
    target = normal_schema(table.schema)
    batches = map(StoreAssignment(target, "of keys"), table.to_batches())
    return pa.Table.from_batches(batches, schema=target)


def _distinct(keys: pa.Table) -> pa.Table:
    """Each key once, those with null left out."""
    names = [f"k{number}" for number in range(keys.num_columns)]
    columns = [_array(column) for column in keys.columns]
    plain = [normal_values(own) if pa.types.is_floating(own.type) else own for own in columns]
    table = pa.table(dict(zip(names, plain, strict=True))).drop_null()
    return table.group_by(names, use_threads=False).aggregate([]).select(names)


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


# ------------------------------------------------------------------------------------------------------- conditions


def _brought(column: Column, keys: pa.ChunkedArray, name: str, timezone: str) -> tuple[Scalar, pa.Array]:
    """The column and the keys in the type in which Spark compares them; a key that has no such value becomes null."""
    keys, binder = _array(keys), Binder(timezone)
    try:
        if kind_of(column.type) is Kind.INT and kind_of(keys.type) is Kind.INT:
            bound = 2 ** (column.type.bit_width - 1)
            inside = pc.and_(pc.greater_equal(keys, -bound), pc.less_equal(keys, bound - 1))
            if keys.type.bit_width > column.type.bit_width:
                keys = pc.if_else(inside, keys, pa.scalar(None, keys.type))
            return column, keys.cast(column.type)
        common = binder.common_type(column, Literal(None, keys.type))
        return binder.to(column, Literal(None, common.type)), cast_array(keys, common.type, timezone)
    except (NotPrunableError, LakedexError) as error:
        raise InvalidInputError(
            f"keys of type {keys.type} are not compared with {name!r}, which is {column.type}: cast them to it",
            column=name,
        ) from error


def _matches(operands: Sequence[Scalar], keys: pa.Table) -> Predicate:
    """That a row equals one of the keys; distinct and without null."""
    columns = [pc.dictionary_encode(_array(column)) for column in keys.columns]
    values = [literals_of(column.dictionary) for column in columns]
    lists: list[Predicate] = [In(operand, own) for operand, own in zip(operands, values, strict=True)]
    if len(operands) == 1:
        return lists[0]
    codes = np.stack([column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in columns], axis=1)
    if len(codes) == np.prod([float(len(own)) for own in values]):
        return And(tuple(lists))
    order = sorted(range(len(operands)), key=lambda number: len(values[number]))
    parts = _combined([operands[n] for n in order], [values[n] for n in order], codes[:, order])
    return And((*lists, Or(tuple(parts)) if len(parts) > 1 else parts[0]))


def _combined(
    operands: Sequence[Scalar], values: Sequence[tuple[Literal, ...]], codes: npt.NDArray[np.int64]
) -> list[Predicate]:
    """Alternatives that are true together for exactly the combinations of ``codes``."""
    if len(operands) == 1:
        return [In(operands[0], tuple(values[0][code] for code in np.unique(codes).tolist()))]
    codes = codes[np.lexsort(codes.T[::-1])]
    first, starts = np.unique(codes[:, 0], return_index=True)
    alike: dict[bytes, list[int]] = {}
    rests: dict[bytes, npt.NDArray[np.int64]] = {}
    for value, rest in zip(first.tolist(), np.split(codes[:, 1:], starts[1:]), strict=True):
        key = rest.tobytes()
        alike.setdefault(key, []).append(value)
        rests[key] = rest
    parts: list[Predicate] = []
    for key, own in alike.items():
        head = In(operands[0], tuple(values[0][code] for code in own))
        parts += [And((head, part)) for part in _combined(operands[1:], values[1:], rests[key])]
        if len(parts) > MAX_TERMS:
            raise InvalidInputError(
                f"the keys of several columns make more than {MAX_TERMS:,} different lists of values: join on the most "
                "selective column here, and on all of them in Spark"
            )
    return parts
