"""The lock that every action on a table takes, and what a store has to be able to do."""

from __future__ import annotations

from lakedex.errors import LakedexError
from lakedex.io.fsspec_storage import open_storage
from lakedex.io.locks import Lock, TableLock
from lakedex.io.storage import Storage
from lakedex.io.storage_lock import StorageLock
from lakedex.options import WriteOptions

__all__ = ["require_exclusive_create", "table_lock"]


def table_lock(storage: Storage, base_path: str, options: WriteOptions) -> Lock:
    """The table's lock, shared with Hudi's provider of the same name (``hoodie.write.lock.provider``).

    Whatever ``hoodie.write.concurrency.mode`` says: another process may be writing although nobody meant it to.
    """
    if options.lock_provider == "StorageBasedLockProvider":
        return StorageLock(
            storage,
            base_path,
            timeout_s=options.lock_wait,
            poll_s=options.lock_poll,
            validity_s=options.lock_validity,
            renew_s=options.lock_renewal,
        )
    folder = None
    if options.lock_path is not None:
        other, folder = open_storage(options.lock_path)
        storage = storage if other.scheme == storage.scheme else other
    return TableLock(
        storage,
        base_path,
        timeout_s=options.lock_wait,
        poll_s=options.lock_poll,
        expire_minutes=options.lock_expire_minutes,
        folder=folder,
    )


def require_exclusive_create(storage: Storage, base_path: str) -> None:
    """Refuse to write to a store on which two writers could both create one file."""
    if not storage.can_create_exclusively:
        raise LakedexError(
            f"{base_path}: the store {storage.scheme!r} has no put-if-absent, which the timeline and the "
            "lock need; write to a local disk or to S3"
        )
