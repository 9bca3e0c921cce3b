"""What comes before every change of a table: what died half-way is finished, what dead writers left is removed."""

from __future__ import annotations

from dataclasses import dataclass

from lakedex.io.locks import Lock
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.services.restore import finish_restores
from lakedex.services.rollback import Patience, remove_leftovers, roll_back_expired
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import recover_table_config
from lakedex.timeline.table_support import require_writable

__all__ = ["Tidied", "tidy"]


@dataclass(frozen=True, slots=True)
class Tidied:
    """A table on which nothing is left of dead writers.

    Attributes:
        snapshot: the table now.
        clock: gives instants in its zone.
        undone: failed writes that were rolled back.
    """

    snapshot: Snapshot
    clock: InstantClock
    undone: tuple[str, ...] = ()


def tidy(handle: TableHandle, options: WriteOptions, lock: Lock) -> Tidied:
    """Finish restores and undo writes that died. Call under the table lock.

    Raises:
        UnsupportedFeatureError: lakedex does not write this table, or cannot undo what is pending.
        CommitConflictError: a restore of another process is under way.
    """
    recover_table_config(handle.storage, handle.base_path)
    snapshot = handle.snapshot()
    require_writable(snapshot.config)
    clock = InstantClock(snapshot.config.timezone)
    patience = Patience.of(options)
    if finish_restores(snapshot, clock, patience):
        snapshot = handle.snapshot()
    undone = roll_back_expired(snapshot, clock, patience)
    if undone:
        snapshot = handle.snapshot()
    clock.leave_out(remove_leftovers(snapshot, patience))
    lock.check()
    return Tidied(snapshot, clock, tuple(undone))
