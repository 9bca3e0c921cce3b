"""Creating, refreshing and dropping an index of any kind: which kind it is, and who does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakedex.errors import IndexNotFoundError, InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.partitions import FILES
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import parse_options
from lakedex.types import Progress
from lakedex.write import index_builds, index_drops
from lakedex.write.bitmap_builds import drop_bitmap_index, is_bitmap_index, refresh_bitmap_index
from lakedex.write.bitmap_create import MAX_DISTINCT_VALUES, create_bitmap_index, max_distinct_values
from lakedex.write.overwrite import PartitionName, named_partitions
from lakedex.write.pipeline import key_generator
from lakedex.write.result import IndexResult

__all__ = ["create_index", "drop_index", "refresh_index"]

BITMAP = "bitmap"
Partitions = Sequence[PartitionName] | PartitionName | None


def create_index(
    handle: TableHandle,
    options: Mapping[str, Any],
    name: str,
    *,
    call: Mapping[str, Any] | None = None,
    using: str | None = None,
    columns: Sequence[str] | None = None,
    partitions: Partitions = None,
    if_not_exists: bool = False,
    progress: Progress | None = None,
) -> IndexResult:
    """Build an index from the table's data; see :meth:`lakedex.Table.create_index`.

    ``options`` are those of the table object, ``call`` those of the call.
    """
    own = {key: value for key, value in (call or {}).items() if key != MAX_DISTINCT_VALUES}
    parsed = parse_options(options, own, "create_index")
    if (using or name) == BITMAP:
        cap = (call or {}).get(MAX_DISTINCT_VALUES)
        result = create_bitmap_index(
            handle,
            parsed,
            name,
            columns or (),
            max_distinct=None if cap is None else max_distinct_values(handle.base_path, cap),
            partitions=lambda snapshot: _paths(snapshot, partitions),
            if_not_exists=if_not_exists,
            progress=progress,
        )
        return replace(result, notes=(*parsed.notes, *result.notes))
    if partitions is not None:
        raise InvalidInputError(f"{handle.base_path}: partitions= is for bitmap indexes; {name} covers the whole table")
    if len(own) != len(call or {}):
        raise OptionError(f"{handle.base_path}: option {MAX_DISTINCT_VALUES} is for bitmap indexes, not for {name}")
    result = index_builds.create_index(
        handle,
        parsed,
        name,
        using=using,
        columns=columns,
        if_not_exists=if_not_exists,
        progress=progress,
    )
    return replace(result, notes=(*parsed.notes, *result.notes))


def _paths(snapshot: Snapshot, partitions: Partitions) -> tuple[str, ...] | None:
    """Partition paths that a user named; they must be in the table.

    Raises:
        InvalidInputError: names one that is not.
    """
    if partitions is None:
        return None
    items = [partitions] if isinstance(partitions, str | Mapping) else list(partitions)
    # Paths need no key generator, which not every maker's table has one of that lakedex knows.
    keys = (
        None
        if all(isinstance(item, str) for item in items)
        else key_generator(snapshot.config, snapshot, with_keys=False)
    )
    known = {item.partition for item in snapshot.slices()}
    paths = [
        item if isinstance(item, str) or keys is None else named_partitions(snapshot, keys, item)[0] for item in items
    ]
    for path in paths:
        if path not in known:
            some = ", ".join(map(repr, sorted(known)[:3])) or "none"
            raise InvalidInputError(f"{snapshot.base_path} has no partition {path!r}; it has, for example, {some}")
    return tuple(dict.fromkeys(str(path) for path in paths))


def refresh_index(
    handle: TableHandle,
    options: Mapping[str, Any],
    name: str,
    *,
    partitions: Partitions = None,
    progress: Progress | None = None,
) -> IndexResult:
    """Cover what an index does not cover; see :meth:`lakedex.Table.refresh_index`."""
    if not is_bitmap_index(handle, name):
        present = handle.snapshot().config.metadata_partitions - {FILES.name}
        if name in present:
            raise UnsupportedFeatureError(
                f"{handle.base_path}: only bitmap indexes are refreshed; drop_index({name!r}) and "
                f"create_index({name!r}) build this one anew",
                feature=f"refresh of {name}",
            )
    return refresh_bitmap_index(
        handle,
        parse_options(options),
        name,
        partitions=lambda snapshot: _paths(snapshot, partitions),
        progress=progress,
    )


def drop_index(handle: TableHandle, options: Mapping[str, Any], name: str, *, if_exists: bool = False) -> IndexResult:
    """Take an index out of a table; see :meth:`lakedex.Table.drop_index`."""
    parsed = parse_options(options)
    if is_bitmap_index(handle, name):
        try:
            return drop_bitmap_index(handle, parsed, name)
        except IndexNotFoundError:
            if not if_exists:
                raise  # Another one dropped it just now.
    return index_drops.drop_index(handle, parsed, name, if_exists=if_exists)
