"""Tables opened with another clock, other limits, or a storage that lets somebody in at a chosen moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from lakedex import Table
from lakedex.io.storage import Storage
from lakedex.local.engine import LocalEngine
from lakedex.local.session import LocalSession
from lakedex.snapshot.file_system_view import TableCache
from lakedex.testing import Faults, FaultyStorage, StorageWrapper

ANNOUNCED = ("create", ".inflight")
"""A write has its instant and lets go of the lock."""
FILE_WRITTEN = ("close_output", ".parquet")
"""A write has its first file, and does not have the lock."""


def with_context(table: Table, storage: Storage | None = None, **parts: Any) -> Table:
    """The table with other parts of its context, and nothing cached."""
    files = table.context.files if storage is None else replace(table.context.files, storage=storage)
    context = replace(table.context, files=files, cache=TableCache(), **parts)
    assert isinstance(context.engine, LocalEngine)
    return Table(context, LocalSession(context.engine))


def meanwhile(
    table: Table, action: Callable[[Table], object], moment: tuple[str, str] = FILE_WRITTEN, when: str = "after"
) -> Table:
    """The table, whose next write is interrupted once: ``action`` happens from begin to end before it commits."""
    faults = Faults(1, when, only=moment, hook=lambda: action(Table.open(table.path)))
    return with_context(table, storage=FaultyStorage(faults))


def once_read(table: Table, action: Callable[[Table], object], part: str = ".log.") -> Table:
    """The table; ``action`` happens from begin to end once a file whose path has this part was read."""
    left = [action]

    class Storage(StorageWrapper):
        @contextmanager
        def around(self, call: str, path: str, data: bytes = b"") -> Iterator[None]:
            yield
            if call == "read" and part in path and left:
                left.pop()(Table.open(table.path))

    return with_context(table, storage=Storage())
