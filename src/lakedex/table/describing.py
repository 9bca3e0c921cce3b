"""What a table is: its columns, and what people say of them. Every method delegates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakedex.codec.comments import with_comments
from lakedex.metadata.handle import TableHandle
from lakedex.options import WriteOptions
from lakedex.write.evolve import comment_column
from lakedex.write.result import WriteResult
from lakedex.write.table_comment import comment_table

__all__ = ["Described"]


class Described:
    """A part of :class:`lakedex.Table`."""

    _handle: TableHandle

    def _parsed(self, options: Mapping[str, Any] | None, operation: str = "") -> WriteOptions:
        raise NotImplementedError

    def _written(self, result: WriteResult) -> WriteResult:
        raise NotImplementedError

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without Hudi's meta columns. Comments are ``comment`` in the metadata of a field."""
        snapshot = self._handle.snapshot()
        return with_comments(snapshot.schema, snapshot.comments)

    @property
    def comment(self) -> str | None:
        """What the table is, in words."""
        return self._handle.snapshot().config.comment

    def set_comment(
        self, text: str | None, column: str | None = None, *, options: Mapping[str, Any] | None = None
    ) -> WriteResult | None:
        """Say what the table is, or a column of it.

        Args:
            text: the comment; None or an empty text takes it away.
            column: a column, or a field inside of one (``a.b``; ``a.element.b`` in a list, ``a.value.b`` in a map). Its
                comment is a commit, so that a rollback or restore takes it back; that of the table is none.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit; None for the comment of the table.

        Raises:
            InvalidInputError: an unknown column, a text that is no Unicode.
        """
        parsed = self._parsed(options, "set_comment")
        if column is not None:
            return self._written(comment_column(self._handle, parsed, column, text or ""))
        comment_table(self._handle, parsed, text or "")
        return None
