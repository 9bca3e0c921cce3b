"""Answers as aligned text and as JSON.

Text is escaped as in :mod:`lakedex.printing`, so that no value commands the terminal; JSON is ASCII.
"""

from __future__ import annotations

import base64
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from rich.cells import cell_len

from lakedex.printing import printable, printed
from lakedex.reports import Report
from lakedex.types import size_text

__all__ = ["aligned", "json_lines", "json_text", "plain_rows", "text_of"]


NARROWEST = 12
"""Cells to which a column is shortened at most, for a terminal."""


SIZES = frozenset(
    {"size", "bytes", "uncompressed_bytes", "total_size", "total_uncompressed_size", "total_bytes_written"}
)
"""Columns of sizes in bytes."""


def json_text(document: Any) -> str:
    """One JSON document: an array of objects of a table, else an object."""
    return json.dumps(_plain(document), indent=2, allow_nan=False)


def json_lines(table: pa.Table) -> Iterator[str]:
    """Each row as a JSON object."""
    for row in plain_rows(table):
        yield json.dumps(row, allow_nan=False)


def text_of(document: Any, *, figures: bool = False) -> str:
    """The answer for people; ``figures`` as in :func:`aligned`."""
    if isinstance(document, pa.Table) or hasattr(document, "__arrow_c_stream__"):
        return aligned(pa.table(document), figures=figures)
    if isinstance(document, Mapping):
        width = max(map(len, document), default=0)
        return printed(f"{name:<{width}}  {_cell(value)}" for name, value in document.items())
    return printed(str(document).split("\n"))


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as values of JSON: times and decimals are text, bytes are base64, and numbers that are none are text."""
    rows: list[dict[str, Any]] = _plain(_readable(table).to_pylist())
    return rows


def _readable(table: pa.Table) -> pa.Table:
    """The table with times as Arrow writes them: Python's own have microseconds and end with the year 9999."""
    for position, field in enumerate(table.schema):
        kind = _readable_type(field.type)
        if kind != field.type:
            table = table.set_column(position, field.name, table.column(position).cast(kind))
    return table


def _readable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not pa.types.is_interval(kind):
        return pa.string()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_readable_type(kind.key_type), _readable_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_readable_type(kind.value_type)))
    return kind


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, pa.Table) or hasattr(value, "__arrow_c_stream__"):
        return plain_rows(pa.table(value))
    if isinstance(value, Report):
        return _plain(value.to_dict())
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return str(value)


def aligned(table: pa.Table, *, figures: bool = False) -> str:
    """A table as columns of text below their names, numbers at the right; on a terminal no wider than that.

    Args:
        table: the rows.
        figures: print whole numbers with thousands, and those of columns of sizes as KiB and MiB.
    """
    if not table.num_columns:
        return ""
    readable = _readable(table)
    show = [_figure(field) if figures else _cell for field in table.schema]
    cells = [[own(value) for value in column.to_pylist()] for own, column in zip(show, readable.columns, strict=True)]
    right = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in table.schema.types]
    names = [printable(name) for name in table.column_names]
    widths = [max(map(cell_len, [name, *own])) for name, own in zip(names, cells, strict=True)]
    if sys.stdout.isatty():
        widths = _fitted(widths, shutil.get_terminal_size().columns)
    lines = [names, *zip(*cells, strict=True)]
    return "\n".join(_line(line, widths, right) for line in lines)


def _figure(field: pa.Field) -> Callable[[Any], str]:
    if not pa.types.is_integer(field.type):
        return _cell
    show: Callable[[int], str] = size_text if field.name in SIZES else "{:,}".format
    return lambda value: "–" if value is None else show(value)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{_cell(name)}: {_cell(one)}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) and float(f"{value:g}") == value else str(value)
    return printable(str(_plain(value)) if isinstance(value, bytes) else str(value))


def _fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit a terminal: the widest columns give way."""
    found = list(widths)
    while sum(found) + 2 * (len(found) - 1) > room and max(found) > NARROWEST:
        found[found.index(max(found))] -= 1
    return found


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, at_right in zip(cells, widths, right, strict=True):
        text = cell if cell_len(cell) <= width else _shortened(cell, width)
        gap = " " * max(0, width - cell_len(text))
        parts.append(gap + text if at_right else text + gap)
    return "  ".join(parts).rstrip()


def _shortened(text: str, width: int) -> str:
    """The beginning and the end of a text, in a number of cells."""
    half = (width - 1) // 2
    short = f"{text[: width - 1 - half]}…{text[len(text) - half :]}"
    return short if cell_len(short) <= width else f"{text[: half // 2]}…{text[len(text) - half // 2 :]}"
