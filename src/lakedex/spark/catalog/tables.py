"""What the catalog asks of ``lakedex.Table``, which lies above it and is handed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["OpenTable", "Tables"]


class OpenTable(Protocol):
    """A table; see :class:`lakedex.Table` for its methods."""

    insert: Any
    upsert: Any
    bulk_insert: Any
    insert_overwrite: Any
    delete: Any
    scan: Any
    create_index: Any
    drop_index: Any
    indexes: Any
    add_columns: Any
    drop_columns: Any
    rename_column: Any
    widen_column: Any
    history: Any

    @property
    def path(self) -> str:
        """The table's folder."""

    @property
    def inspect(self) -> Any:
        """Files, index entries and timeline."""


class Tables(Protocol):
    """``lakedex.Table`` itself."""

    @property
    def create(self) -> Callable[..., Any]:
        """Makes a table."""

    @property
    def for_path(self) -> Callable[..., Any]:
        """Opens a table."""
