"""Where changes of a table's indexes begin: a table without leftovers."""

from __future__ import annotations

from lakedex.io.locks import Lock
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.services.tidying import tidy
from lakedex.timeline.instant import InstantClock

__all__ = ["INFLIGHT_PARTITIONS", "tidied"]

INFLIGHT_PARTITIONS = "hoodie.table.metadata.partitions.inflight"


def tidied(handle: TableHandle, options: WriteOptions, lock: Lock) -> tuple[Snapshot, InstantClock]:
    """The table as it is once what dead writers left is gone. Call under the table lock.

    Raises:
        UnsupportedFeatureError: lakedex does not write this table.
    """
    done = tidy(handle, options, lock)
    return handle.snapshot(), done.clock
