"""From what a user gives (paths, names, times) to what the actions take."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from functools import partial

from lakedex.engine import Engine
from lakedex.errors import InvalidInputError
from lakedex.io.fsspec_storage import open_storage
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.time_travel import snapshot_at
from lakedex.timeline.table_support import require_readable

__all__ = ["check_readable", "handle_for", "names", "resolve_as_of"]


def handle_for(path: str | os.PathLike[str], engine: Engine) -> TableHandle:
    """The handle of a path."""
    storage, base = open_storage(path)
    return TableHandle(storage, base, engine)


def check_readable(handle: TableHandle) -> TableHandle:
    """The handle itself, if there is a table that lakedex reads."""
    require_readable(handle.snapshot().config)
    return handle


def names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Column names given as one name (commas separate several, as in Hudi's options) or as a list."""
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(",") if name.strip())
    return tuple(given)


QUERY_TYPES = ("snapshot", "read_optimized")


def resolve_as_of(
    handle: TableHandle, as_of: str | datetime.datetime | datetime.date | None, query_type: str = "snapshot"
) -> Snapshot:
    """The table now, or as of an instant or time.

    Args:
        handle: the table.
        as_of: an instant or time; None for now.
        query_type: as ``hoodie.datasource.query.type``: ``read_optimized`` leaves out the log files of merge-on-read.

    Raises:
        InvalidInputError: a time before the first commit that is still there, one whose files were cleaned, or another
            query type.
    """
    if query_type not in QUERY_TYPES:
        raise InvalidInputError(f"query_type {query_type!r} is none of: {', '.join(QUERY_TYPES)}")
    return snapshot_at(partial(handle.snapshot, read_optimized=query_type == "read_optimized"), as_of)
