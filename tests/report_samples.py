"""A result of every kind, each of its fields filled with values that nobody wants to see."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

import lakedex
from lakedex.display.result_table import Column, ResultTable
from lakedex.reports import Report

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "a\x1b[2J\x07\r\nb\x9b\u202e\u2066c\u2028\x7f",
    "</style></div></pre>&lt;",
    "x" * 5000,
    "&<>\"'" * 2000,
    "مرحبا שלום",
    "word " * 1000,
    "",
)
"""Markup, quotes, control and direction letters, a long word, what grows most when escaped, a long sentence."""
MANY = 60


def report_classes() -> list[Any]:
    """All results that calls return."""
    named = (getattr(lakedex, name) for name in lakedex.__all__)
    return [one for one in named if isinstance(one, type) and issubclass(one, Report) and one is not Report]


def filled(cls: Any, text: str) -> Any:
    """A value of a dataclass whose fields are of ``text`` and of large numbers."""
    hints = typing.get_type_hints(cls, vars(import_module(cls.__module__)))
    return cls(**{item.name: _value(hints[item.name], text, item) for item in dataclasses.fields(cls)})


def _value(kind: Any, text: str, item: dataclasses.Field[Any] | None = None) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _value(next(one for one in arguments if one is not types.NoneType), text, item)
    if origin in (tuple, list):
        return origin([_value(arguments[0], text)] * MANY)
    if origin in (dict, Mapping, typing.Mapping) and arguments[0] is str and arguments[1] in (int, float):
        return {f"{text}{number}": _value(arguments[1], text) for number in range(MANY)}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not hasattr(kind, "take"):
        return filled(kind, text)
    simple = {str: text, int: 10**12, float: 1e9, bool: True}
    if kind in simple:
        return simple[kind]
    if item is not None and item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return None if item is None or item.default is dataclasses.MISSING else item.default


def result_table(text: str) -> ResultTable:
    """A table of many wide columns and rows."""
    names = [f"c{number}" for number in range(30)]
    rows = pa.table({name: [text] * MANY for name in names}).append_column("n", pa.array(range(MANY)))
    return ResultTable(rows, text, {"c0": Column(text), "n": Column(kind="size")})
