"""From what a user gives (paths, names, times) to what the actions take."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence

from lakedex.engine import Engine
from lakedex.errors import InvalidInputError
from lakedex.io.fsspec_storage import open_storage
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.time_travel import require_versions
from lakedex.timeline.instant import parse_as_of
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
    read_optimized = query_type == "read_optimized"
    newest = handle.snapshot(read_optimized=read_optimized)
    require_readable(newest.config)
    if as_of is None:
        return newest
    wanted = parse_as_of(as_of, newest.config.timezone)
    commits = [i.requested for i in newest.timeline.completed({"commit", "deltacommit", "replacecommit"})]
    earlier = [requested for requested in commits if requested <= wanted]
    if not earlier:
        first = commits[0] if commits else "none yet"
        raise InvalidInputError(
            f"{handle.base_path} has no commit at or before {as_of} (instant {wanted}); the first one is {first}"
        )
    # A savepoint holds its commit on the timeline while later ones are archived: a time among those is no commit's.
    active = newest.timeline.first_active
    in_gap = active is not None and earlier[-1] < active.requested
    return require_versions(handle.snapshot(wanted if in_gap else earlier[-1], read_optimized=read_optimized))
