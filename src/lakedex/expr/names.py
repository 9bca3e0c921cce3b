"""Column names in SQL to paths in an Arrow schema, by Spark's rules."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.expr.nodes import Column

__all__ = ["quote_name", "resolve_column"]

_MAX_QUALIFIERS = 3  # catalog.schema.table
_WORDS_OF_SQL = frozenset(
    word
    for line in (
        "all and any array as between binary boolean case cast coalesce concat date div else end escape exists false",
        "from if ilike in interval is isnan like lower map not null or r regexp rlike select some string struct then x",
        "timestamp timestamp_ltz timestamp_ntz true try_cast unknown upper when where",
    )
    for word in line.split()
)


class NotAStructError(Exception):
    """The path goes on inside a map or a list: Spark has a meaning for it, we do not judge it."""


def resolve_column(parts: Sequence[str], schema: pa.Schema, *, case_sensitive: bool) -> Column:
    """Find the column that a dotted name means.

    The first part is looked up as a column; when there is none, leading parts are taken as qualifiers
    (catalog, schema, table) as long as a column follows.

    Raises:
        InvalidInputError: No such column (the message has the nearest names), or more than one.
        NotAStructError: The name goes into a map or a list.
    """
    for skipped in range(min(len(parts), _MAX_QUALIFIERS + 1)):
        found = _pick(parts[skipped], schema, case_sensitive, ".".join(parts))
        if found is not None:
            return _descend(found, parts[skipped + 1 :], case_sensitive, ".".join(parts))
    raise _no_such_column(".".join(parts), schema)


def _pick(name: str, fields: pa.Schema | pa.StructType, case_sensitive: bool, whole: str) -> pa.Field[Any] | None:
    matches = [f for f in fields if f.name == name or (not case_sensitive and f.name.lower() == name.lower())]
    if len(matches) > 1:
        names = ", ".join(repr(f.name) for f in matches)
        raise InvalidInputError(f"column {whole!r} is ambiguous: it could be {names}", column=whole)
    return matches[0] if matches else None


def _descend(found: pa.Field[Any], rest: Sequence[str], case_sensitive: bool, whole: str) -> Column:
    path = [found.name]
    for part in rest:
        if pa.types.is_map(found.type) or pa.types.is_list(found.type) or pa.types.is_large_list(found.type):
            raise NotAStructError
        if not pa.types.is_struct(found.type):
            raise InvalidInputError(
                f"{whole!r}: column {'.'.join(path)!r} is {found.type}, it has no field {part!r}", column=whole
            )
        inner = _pick(part, found.type, case_sensitive, whole)
        if inner is None:
            names = ", ".join(repr(f.name) for f in found.type)
            where = ".".join(path)
            raise InvalidInputError(f"{whole!r}: {where!r} has no field {part!r}; it has {names}", column=whole)
        path.append(inner.name)
        found = inner
    return Column(tuple(path), found.type)


def _no_such_column(name: str, schema: pa.Schema) -> InvalidInputError:
    known = list(_leaf_names(schema))
    lower = {n.lower(): n for n in known}
    near = [lower[n] for n in difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.5)]
    if not near:  # a qualified or nested name: compare its last part
        near = [lower[n] for n in difflib.get_close_matches(name.lower().split(".")[-1], list(lower), n=3, cutoff=0.5)]
    columns = ", ".join(schema.names[:20]) + (", …" if len(schema.names) > 20 else "")
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"the columns are: {columns}"
    return InvalidInputError(f"no column {name!r}; {hint}", column=name)


def _leaf_names(fields: pa.Schema | pa.StructType, prefix: str = "") -> Iterator[str]:
    for item in fields:
        yield prefix + item.name
        if pa.types.is_struct(item.type):
            yield from _leaf_names(item.type, f"{prefix}{item.name}.")


def quote_name(path: Sequence[str]) -> str:
    """SQL text of a column path, backquoted only where a plain word would not do."""

    def one(part: str) -> str:
        plain = part.isascii() and part.isidentifier() and part.lower() not in _WORDS_OF_SQL
        return part if plain else "`" + part.replace("`", "``") + "`"

    return ".".join(one(part) for part in path)
