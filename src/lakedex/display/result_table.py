"""``ResultTable``: an Arrow table that a call returns and that people can read."""

from __future__ import annotations

import datetime
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakedex.display.blocks import ROWS, Card, Cell, Grid
from lakedex.display.html import card_html
from lakedex.display.text import aligned
from lakedex.printing import printed
from lakedex.types import size_text

__all__ = ["Column", "ResultTable"]


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is printed.

    Attributes:
        head: its name in print; empty takes the column's.
        kind: ``size`` for bytes, ``time`` for an instant that is read as a time; empty goes by the type.
        shown: whether it is printed.
    """

    head: str = ""
    kind: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ResultTable:
    """An Arrow table that prints as aligned rows and renders as HTML, the first 20 rows.

    It has all attributes and methods of ``pyarrow.Table``. Whatever takes an object that exports an Arrow stream takes
    it: ``pyarrow.table``, ``polars.DataFrame``.

    Attributes:
        table: the rows as ``pyarrow.Table``.
        title: their name.
        columns: how columns are printed, by name.
    """

    table: pa.Table
    title: str = ""
    columns: Mapping[str, Column] = field(default_factory=dict)

    def to_arrow(self) -> pa.Table:
        """The rows as ``pyarrow.Table``."""
        return self.table

    def card(self) -> Card:
        """The rows as a card."""
        count = f"{self.table.num_rows:,} row{'' if self.table.num_rows == 1 else 's'}"
        return Card(self.title, count, [self.grid()] if self.table.num_rows else [])

    def grid(self) -> Grid:
        """The first rows as texts."""
        names = [name for name in self.table.schema.names if self._column(name).shown]
        first = self.table.slice(0, ROWS)
        texts = [_texts(first.column(name).to_pylist(), self._column(name).kind) for name in names]
        heads = {name: self._column(name).head or name for name in names}
        return Grid(
            [heads[name] for name in names],
            list(zip(*texts, strict=True)),
            numbers={heads[name] for name in names if _is_number(self.table.schema.field(name).type)},
            total=self.table.num_rows,
            more="to_pandas() has all",
        )

    def _column(self, name: str) -> Column:
        return self.columns.get(name, Column())

    def __getattr__(self, name: str) -> Any:
        # Not for the protocols of Python, nor for the field that is not there while a copy is made.
        if name in self.__slots__ or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.table, name)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def __dataframe__(self, **options: Any) -> Any:
        return self.table.__dataframe__(**options)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __len__(self) -> int:
        return len(self.table)

    def __eq__(self, other: object) -> bool:
        return bool(self.table == (other.table if isinstance(other, ResultTable) else other))

    def __dir__(self) -> Sequence[str]:
        return sorted({*object.__dir__(self), *dir(self.table)})

    def __repr__(self) -> str:
        count = self.table.num_rows
        width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
        return printed(aligned(self.grid(), width)) if count else f"{self.title or 'table'}: no rows"

    def _repr_html_(self) -> str:
        return card_html(self.card())


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _texts(values: Sequence[Any], kind: str) -> list[Cell]:
    return [_text(value, kind) for value in values]


def _text(value: Any, kind: str) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return size_text(value) if kind == "size" else f"{value:,}"
        case float():
            return f"{value:.3g}"
        case datetime.datetime():
            return value.isoformat(" ", "seconds")
        case list():
            return ", ".join(map(str, value[:ROWS]))
        case str() if kind == "time" and len(value) >= 14 and value[:14].isdigit():
            return f"{value[:4]}-{value[4:6]}-{value[6:8]} {value[8:10]}:{value[10:12]}:{value[12:14]}"
    return str(value)
