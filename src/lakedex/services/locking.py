"""The lock that every action on a table takes, and what a store has to be able to do."""

from __future__ import annotations

from lakedex.errors import LakedexError
from lakedex.io.locks import TableLock
from lakedex.metadata.handle import TableHandle
from lakedex.options import WriteOptions

__all__ = ["require_exclusive_create", "table_lock"]


def table_lock(handle: TableHandle, options: WriteOptions) -> TableLock:
    """The table's lock, shared with Hudi's ``FileSystemBasedLockProvider``."""
    return TableLock(
        handle.storage,
        handle.base_path,
        timeout_s=options.lock_timeout,
        expire_minutes=options.lock_expire_minutes,
    )


def require_exclusive_create(handle: TableHandle) -> None:
    """Refuse to write to a store on which two writers could both create one file."""
    if not handle.storage.can_create_exclusively:
        raise LakedexError(
            f"{handle.base_path}: the store {handle.storage.scheme!r} has no put-if-absent, which the timeline and the "
            "lock need; write to a local disk or to S3"
        )
