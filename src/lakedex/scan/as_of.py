"""The snapshot that a reader asks for: the newest, or that of an instant or time."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from lakedex.errors import InvalidInputError
from lakedex.metadata.snapshot import Snapshot
from lakedex.timeline.instant import parse_as_of
from lakedex.timeline.table_support import require_readable

__all__ = ["snapshot_at"]


def snapshot_at(
    load: Callable[[str | None], Snapshot], as_of: str | datetime.datetime | datetime.date | None
) -> Snapshot:
    """The table now, or as of an instant or time.

    Args:
        load: Gives the newest snapshot for None, else that of an instant.
        as_of: An instant, a time, or None.

    Raises:
        InvalidInputError: a time before the first commit that is still there.
    """
    newest = load(None)
    require_readable(newest.config)
    if as_of is None:
        return newest
    wanted = parse_as_of(as_of, newest.config.timezone)
    commits = [i.requested for i in newest.timeline.completed({"commit", "deltacommit", "replacecommit"})]
    earlier = [requested for requested in commits if requested <= wanted]
    if not earlier:
        first = commits[0] if commits else "none yet"
        raise InvalidInputError(
            f"{newest.base_path} has no commit at or before {as_of} (instant {wanted}); the first one is {first}"
        )
    return load(earlier[-1])
