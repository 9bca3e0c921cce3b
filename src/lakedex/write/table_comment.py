"""The comment of a table, which is one of its properties."""

from __future__ import annotations

from lakedex.codec.comments import check_comment
from lakedex.metadata.handle import TableHandle
from lakedex.options import WriteOptions
from lakedex.services.locking import require_exclusive_create, table_lock
from lakedex.timeline.table_config import COMMENT, recover_table_config, update_table_config
from lakedex.timeline.table_support import require_writable

__all__ = ["comment_table"]


def comment_table(handle: TableHandle, options: WriteOptions, text: str) -> None:
    """Say what a table is; an empty text takes that back.

    Raises:
        InvalidInputError: a text that is no Unicode.
        UnsupportedFeatureError: a table that lakedex does not write.
        LockTimeoutError: another writer held the table's lock too long.
    """
    check_comment(text, f"table {handle.base_path}")
    require_exclusive_create(handle.storage, handle.base_path)
    storage, base = handle.storage, handle.base_path
    with table_lock(handle.storage, handle.base_path, options) as lock:
        recover_table_config(storage, base)
        config = handle.snapshot().config
        require_writable(config)
        if text != (config.comment or ""):
            lock.check()
            update_table_config(storage, base, {COMMENT: text or None})
