"""Stepping over Avro values without making them: for a few fields of a record that holds much more.

A commit of 25,000 files is megabytes of write stats, and planning wants its schema, which stands behind them. Values of
bounded shape (numbers, booleans, enums, and optional ones) are stepped over by one regular expression for as many as
follow one another, so a write stat of 31 fields costs some ten steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Skip", "skip_of"]

Skip = Callable[[bytes, int], int]
"""From the offset of a value to the offset behind it; a ``ValueError`` or ``IndexError`` for bytes that do not fit."""

_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_SHAPES = {
    "null": b"",
    "boolean": rb"[\x00\x01]",
    "int": _VARINT,
    "long": _VARINT,
    "float": rb"[\x00-\xff]{4}",
    "double": rb"[\x00-\xff]{8}",
}


def skip_of(node: Any, known: Mapping[str, Any]) -> Skip:
    """What steps over values of a type.

    Args:
        node: the type, parsed by fastavro: names are full names.
        known: named types that ``node`` may refer to.

    Raises:
        ValueError: A type that refers to itself, or to one that is not known.
    """
    return _compiled(_parts(node, known, ()))


def _parts(node: Any, known: Mapping[str, Any], inside: tuple[str, ...]) -> list[bytes | Skip]:
    """Regular expressions and steps, in the order of the bytes."""
    if isinstance(node, list):
        return _union_parts([_parts(branch, known, inside) for branch in node])
    if isinstance(node, str):
        if node in _SHAPES:
            return [_SHAPES[node]]
        if node in ("string", "bytes"):
            return [_skip_text]
        if node in inside or node not in known:
            raise ValueError(f"a type {node!r} that cannot be stepped over")
        return _parts(known[node], known, inside)
    kind = node["type"]
    if kind in ("record", "error"):
        within = (*inside, node["name"])
        return [part for field in node["fields"] for part in _parts(field["type"], known, within)]
    if kind == "array":
        return [_blocks(_compiled(_parts(node["items"], known, inside)))]
    if kind == "map":
        return [_blocks(_compiled([_skip_text, *_parts(node["values"], known, inside)]))]
    if kind == "enum":
        return [_VARINT]
    if kind == "fixed":
        return [rb"[\x00-\xff]{%d}" % node["size"]]
    return _parts(kind, known, inside)


def _union_parts(branches: list[list[bytes | Skip]]) -> list[bytes | Skip]:
    shapes = [b"".join(part for part in parts if isinstance(part, bytes)) for parts in branches]
    if len(branches) < 64 and all(isinstance(part, bytes) for parts in branches for part in parts):
        choices = (re.escape(bytes((2 * place,))) + shape for place, shape in enumerate(shapes))
        return [b"(?:" + b"|".join(choices) + b")"]
    if branches == [[b""], [_skip_text]]:
        return [_skip_optional_text]
    steps = [_compiled(parts) for parts in branches]

    def skip(data: bytes, pos: int) -> int:
        place, pos = _number(data, pos)
        if not 0 <= place < len(steps):
            raise ValueError("a branch that its union does not have")
        return steps[place](data, pos)

    return [skip]


def _compiled(parts: list[bytes | Skip]) -> Skip:
    """One step for all parts, neighbouring expressions put together."""
    steps: list[Skip] = []
    run = b""
    for part in parts:
        if isinstance(part, bytes):
            run += part
            continue
        if run:
            steps.append(_matching(run))
            run = b""
        steps.append(part)
    if run:
        steps.append(_matching(run))
    if not steps:
        return lambda _, pos: pos
    if len(steps) == 1:
        return steps[0]

    def skip(data: bytes, pos: int) -> int:
        for step in steps:
            pos = step(data, pos)
        return pos

    return skip


def _matching(expression: bytes) -> Skip:
    match = re.compile(expression, re.DOTALL).match

    def skip(data: bytes, pos: int) -> int:
        found = match(data, pos)
        if found is None:
            raise ValueError("bytes that do not fit the schema")
        return found.end()

    return skip


def _number(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), pos


def _skip_text(data: bytes, pos: int) -> int:
    byte = data[pos]
    if byte < 0x80:
        size, pos = (byte >> 1) ^ -(byte & 1), pos + 1
    else:
        size, pos = _number(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise ValueError("a text that runs past the end")
    return end


def _skip_optional_text(data: bytes, pos: int) -> int:
    if data[pos] == 0:
        return pos + 1
    if data[pos] != 2:
        raise ValueError("a branch that its union does not have")
    return _skip_text(data, pos + 1)


def _blocks(step: Skip) -> Skip:
    def skip(data: bytes, pos: int) -> int:
        count, pos = _number(data, pos)
        while count:
            if count < 0:  # The block's size follows.
                _, pos = _number(data, pos)
            before = pos
            for _ in range(abs(count)):
                pos = step(data, pos)
                if pos == before:
                    raise ValueError("entries without bytes")
            count, pos = _number(data, pos)
        return pos

    return skip
