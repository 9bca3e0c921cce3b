"""What runs by itself after a write that succeeded: cleaning, upkeep of the metadata table, archival.

As in Hudi (``BaseHoodieWriteClient.postCommit``). A service that fails is a note of the write: its rows are committed,
and the next write tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakedex.errors import LakedexError
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.services.clean import clean_after_write
from lakedex.services.upkeep import archive_if_due, clean_metadata_if_due, compact_metadata_if_due

__all__ = ["run_services"]

Service = Callable[[TableHandle, WriteOptions, Snapshot], Sequence[str] | None]
"""Does what is due by a snapshot, without being asked. Takes the table's lock itself.

Returns what it did, in words for people; None if nothing was due, so that the snapshot still holds.
"""

SERVICES: tuple[tuple[str, Service], ...] = (
    ("cleaning", clean_after_write),
    ("cleaning of the metadata table", clean_metadata_if_due),
    ("compaction of the metadata table", compact_metadata_if_due),
    ("archival", archive_if_due),
)
"""In the order in which they run, which is that of ``HoodieBackedTableMetadataWriter.performTableServices``.

Nothing of the metadata table is cleaned soon after a compaction: where each write makes several delta commits, a
compaction that came first would put cleaning off for ever. What is cleaned can be archived, but not before the metadata
table is compacted.
"""


def run_services(handle: TableHandle, options: WriteOptions) -> list[str]:
    """Run all services after a write. One look at the table tells all of them whether they are due.

    Returns:
        Notes for the write's result.
    """
    notes: list[str] = []
    now: Snapshot | None = None
    for name, service in SERVICES:
        try:
            now = now or handle.snapshot()
            done = service(handle, options, now)
            if done is not None:
                notes += done
                now = None
        except (LakedexError, OSError) as error:
            now = None
            notes.append(f"{name} after the write failed, the next write tries again ({error})")
    return notes
