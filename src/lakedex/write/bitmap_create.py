"""``create_index(…, using="bitmap")``: what may be indexed, under which name, and what is there already."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakedex.errors import IndexExistsError, InvalidInputError, UnsupportedFeatureError
from lakedex.index.bitmap.builder import column_of
from lakedex.index.bitmap.definitions import (
    DEFAULT_MAX_DISTINCT,
    BitmapDefinition,
    read_bitmap_definitions,
    write_bitmap_definitions,
)
from lakedex.index.bitmap.runs import BITMAP_INDEX
from lakedex.index.bitmap.values import is_indexable
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.partitions import SUPPORTED
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.types import META_COLUMNS
from lakedex.write.bitmap_builds import BitmapBuild, open_build
from lakedex.write.result import IndexResult

__all__ = ["MAX_DISTINCT_VALUES", "create_bitmap_index", "max_distinct_values"]

MAX_DISTINCT_VALUES = "max_distinct_values"
"""The index's option: distinct values of a column in one file past which it is not indexed there."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = frozenset({*SUPPORTED, BITMAP_INDEX, "record_index"})
_TAKEN_PREFIXES = ("secondary_index_", "expr_index_")


@dataclass(slots=True)
class _Wish:
    """What the caller asked for, and what it means for the index as it is."""

    index: BitmapDefinition
    is_new: bool
    again: tuple[str, ...] = ()


def create_bitmap_index(
    handle: TableHandle,
    options: WriteOptions,
    name: str,
    columns: Sequence[str],
    *,
    max_distinct: int | None = None,
    partitions: Callable[[Snapshot], Sequence[str] | None] = lambda snapshot: None,
    if_not_exists: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> IndexResult:
    """Define a bitmap index and build it; see :meth:`lakedex.Table.create_index`."""
    started = time.perf_counter()
    storage, base = handle.storage, handle.base_path
    _check_name(base, name)
    with open_build(handle, options) as (lock, build):
        wanted = _columns(build.snapshot, columns)
        paths = partitions(build.snapshot)
        definitions = read_bitmap_definitions(storage, base)
        wish = _wish(definitions.get(name), name, wanted, max_distinct)
        if wish.index != definitions.get(name):
            lock.check()
            write_bitmap_definitions(storage, base, {**definitions, name: wish.index})
    with build.heartbeat:
        missing = build.missing(wish.index, paths, wish.again)
        if not wish.is_new:
            _resume(build, wish.index, bool(missing), if_not_exists)
        build.run(wish.index, paths, missing, progress)
    return build.result(wish.index, started)


def _resume(build: BitmapBuild, index: BitmapDefinition, is_incomplete: bool, if_not_exists: bool) -> None:
    if is_incomplete:
        build.notes.append("the index exists already; covered the files that it lacked")
    elif if_not_exists:
        build.notes.append("the index exists already")
    else:
        raise IndexExistsError(
            f"{build.handle.base_path}: the bitmap index {index.name!r} exists and covers "
            f"{', '.join(index.columns)}; drop it first, or pass if_not_exists=True",
            index=index.name,
        )


def _wish(known: BitmapDefinition | None, name: str, columns: tuple[str, ...], cap: int | None) -> _Wish:
    if known is None:
        return _Wish(BitmapDefinition(name=name, columns=columns, max_distinct=cap or DEFAULT_MAX_DISTINCT), True)
    all_columns = tuple(dict.fromkeys([*known.columns, *columns]))
    index = replace(known, columns=all_columns, max_distinct=cap or known.max_distinct)
    # Where the cap is larger now, what had too many values may have a bitmap.
    again = known.columns if index.max_distinct > known.max_distinct else ()
    return _Wish(index, all_columns != known.columns or index.max_distinct != known.max_distinct, again)


def _check_name(table: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{table}: {name!r} is no name for an index: letters, digits and underscores, no digit first"
        )
    if name.lower() in _TAKEN or name.lower().startswith(_TAKEN_PREFIXES):
        raise InvalidInputError(f"{table}: {name!r} is one of Hudi's own indexes; name the bitmap index otherwise")


def _columns(snapshot: Snapshot, columns: Sequence[str]) -> tuple[str, ...]:
    """Columns in the table's spelling.

    Raises:
        InvalidInputError: none, an unknown one, or one of Hudi's own.
        UnsupportedFeatureError: a type that has no values to index.
    """
    base, schema = snapshot.base_path, snapshot.schema
    if not columns:
        raise InvalidInputError(f"{base}: a bitmap index needs columns=[…]")
    spelled = []
    for asked in columns:
        if asked.lower() in META_COLUMNS:
            raise InvalidInputError(
                f"{base}: column {asked!r} is Hudi's own: files are found by it without a bitmap index", column=asked
            )
        name = _spelled(schema, asked)
        try:
            kind = column_of(name, schema).type
        except InvalidInputError as error:
            known = ", ".join(schema.names) or "no columns yet"
            raise InvalidInputError(f"{base} has no column {asked!r}; it has {known}", column=asked) from error
        if not is_indexable(kind):
            raise UnsupportedFeatureError(
                f"{base}: column {asked!r} is {kind}, which a bitmap index cannot hold; name fields inside of a struct "
                "by their path",
                feature=f"bitmap index of {kind}",
            )
        spelled.append(name)
    return tuple(dict.fromkeys(spelled))


def _spelled(schema: pa.Schema, name: str) -> str:
    """A column's name, or a nested field's path, as the table spells it; as it was given where it has none."""
    parts: list[str] = []
    fields = list(schema)
    for part in name.split("."):
        match = next((own for own in fields if own.name == part), None)
        match = match or next((own for own in fields if own.name.lower() == part.lower()), None)
        if match is None:
            return name
        parts.append(match.name)
        fields = list(match.type) if pa.types.is_struct(match.type) else []
    return ".".join(parts)


def max_distinct_values(table: str, value: object) -> int:
    """The option's value.

    Raises:
        InvalidInputError: no whole number above zero.
    """
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number <= 0:
        raise InvalidInputError(f"{table}: option {MAX_DISTINCT_VALUES} is a whole number above 0, not {value!r}")
    return number
