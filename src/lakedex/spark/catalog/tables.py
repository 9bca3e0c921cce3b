"""What the catalog asks of ``lakedex.Table``, which lies above it and is handed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    set_comment: Any
    history: Any

    @property
    def path(self) -> str:
        """The table's folder."""

    @property
    def inspect(self) -> Any:
        """Files, index entries and timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """``Table.create`` and ``Table.for_path``."""

    create: Callable[..., Any]
    for_path: Callable[..., Any]
