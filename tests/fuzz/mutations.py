"""How sound bytes are damaged: seeded, so that a number names a mutation for good."""

from __future__ import annotations

import copy
import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Mutator", "varint"]

_EDGES = (0, 1, -1, 2, 12, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**63 - 1)
_NUMBERS = ("0", "-1", "1", "2147483647", "2147483648", "-9223372036854775808", "9" * 40, "9" * 5000, "1e999", "NaN")
_TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"=", b"\n", b"\r\n", b"\0", b"\\u0000", b"\\ud800", b"\\uD83D"),
    *(b"null", b"true", b"-1", b"1e999", b"NaN", b"Infinity", b"9" * 400, b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80"),
    *(
        b"#HUDI#",
        b"Obj\x01",
        b"PAR1",
        b'TRABLK"$',
        b"DATABLK*",
        b"IDXROOT2",
        b"../",
        b"/",
        b"%2F",
        b"__all_partitions__",
    ),
)
_LEAVES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**31, 2**63, 10**30, float("inf"), float("nan"), "", "x", "null", "string", "long"),
    *("record", "\ud800", "\0", "a/../b", [], {}, [[]], {"type": "null"}, ["null"], {"type": "map", "values": "null"}),
)


def varint(value: int) -> bytes:
    """Groups of seven bits, lowest first; more than 64 of them for values beyond."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Mutator:
    """Damages bytes, texts and JSON documents. Equal names and indexes do the same damage."""

    def __init__(self, name: str, index: int) -> None:
        self.random = random.Random(f"{name}:{index}")

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.random.random() < share

    def choice(self, options: Sequence[Any]) -> Any:
        """One of them."""
        return options[int(self.random.random() * len(options))]

    def bytes(self, data: bytes, others: Sequence[bytes] = ()) -> bytes:
        """One to four changes; ``others`` are seeds to splice with. Never the bytes as they were, nearly always."""
        damaged = bytearray(data)
        for _ in range(self.choice((1, 1, 1, 2, 2, 3, 4))):
            if others and self.chance(0.06):
                damaged = self._spliced(damaged, self.choice(others))
            else:
                self.choice(_CHANGES)(self, damaged)
        return bytes(damaged)

    def text(self, text: str) -> str:
        """Damaged UTF-8, with what is no longer UTF-8 replaced."""
        return self.bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")

    def document(self, document: Any) -> Any:
        """A copy of a JSON document with one to three nodes changed."""
        changed = json.loads(json.dumps(document))
        for _ in range(self.choice((1, 1, 2, 3))):
            changed = self._changed_node(changed)
        return changed

    def json(self, text: bytes | str) -> str:
        """JSON text with some nodes changed, or as damaged bytes."""
        if self.chance(0.3):
            return self.text(text if isinstance(text, str) else text.decode())
        return json.dumps(self.document(json.loads(text)))

    # ------------------------------------------------------------------------------------------------- bytes

    def at(self, size: int) -> int:
        """A place in so many bytes, often near one of the ends."""
        if not size:
            return 0
        near = self.random.random()
        span = size if near < 0.6 else min(size, 64)
        place = int(self.random.random() * span)
        return size - 1 - place if near > 0.8 else place

    def edge(self, bits: int) -> int:
        """An extreme number of so many bits, as an unsigned one."""
        value: int = self.choice(_EDGES) if self.chance(0.7) else self.random.getrandbits(bits)
        return value & ((1 << bits) - 1)

    def _span(self, size: int) -> tuple[int, int]:
        start = self.at(size)
        length = self.choice((1, 1, 2, 3, 4, 8, 16, 33, 100, 1000))
        return start, min(start + length, size)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self.at(len(data))] ^= 1 << int(self.random.random() * 8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self.at(len(data))] = self.choice((0, 1, 2, 0x7F, 0x80, 0x8F, 0xFF, self.random.getrandbits(8)))

    def _integer(self, data: bytearray) -> None:
        size = self.choice((1, 2, 4, 4, 8))
        if len(data) >= size:
            start = min(self.at(len(data)), len(data) - size)
            if self.chance(0.3):
                old = int.from_bytes(data[start : start + size], "big")
                value = old + self.choice((-1, 1, -4, 4, 1 << 16)) & ((1 << 8 * size) - 1)
            else:
                value = self.edge(8 * size)
            data[start : start + size] = value.to_bytes(size, self.choice(("big", "big", "little")))

    def _varint(self, data: bytearray) -> None:
        start = self.at(len(data))
        end = start
        while end < len(data) and data[end] >= 0x80 and end - start < 10:
            end += 1
        value = self.choice((self.edge(32), self.edge(64), (1 << 64) - 1, 1 << 69, 2 * self.edge(16)))
        data[start : end + 1] = varint(value)

    def _cut(self, data: bytearray) -> None:
        del data[self.at(len(data)) :]

    def _remove(self, data: bytearray) -> None:
        start, end = self._span(len(data))
        del data[start:end]

    def _repeat(self, data: bytearray) -> None:
        start, end = self._span(len(data))
        data[start:start] = data[start:end] * self.choice((1, 1, 2, 7))

    def _insert(self, data: bytearray) -> None:
        place = self.at(len(data))
        data[place:place] = self.choice(_TOKENS) if self.chance(0.6) else self.random.randbytes(self.choice((1, 4, 9)))

    def _overwrite(self, data: bytearray) -> None:
        start, end = self._span(len(data))
        fill = self.choice((b"\0", b"\xff", b"\x80", None))
        data[start:end] = self.random.randbytes(end - start) if fill is None else fill * (end - start)

    def _move(self, data: bytearray) -> None:
        start, end = self._span(len(data))
        place = self.at(len(data))
        data[place : place + end - start] = data[start:end]

    def _digits(self, data: bytearray) -> None:
        found = [match.span() for match in re.finditer(rb"\d+", data[:20_000])]
        if found:
            start, end = self.choice(found)
            data[start:end] = self.choice(_NUMBERS).encode()

    def _spliced(self, data: bytearray, other: bytes) -> bytearray:
        if self.chance(0.5):
            return data[: self.at(len(data))] + other[self.at(len(other)) :]
        start, end = self._span(len(other))
        place = self.at(len(data))
        return data[:place] + other[start:end] + data[place:]

    # -------------------------------------------------------------------------------------------------- JSON

    def _leaf(self) -> Any:
        """One of the leaves; a copy, for the next change may be inside of it and must not reach other mutations."""
        return copy.deepcopy(self.choice(_LEAVES))

    def _changed_node(self, document: Any) -> Any:
        places: list[tuple[Any, Any]] = []
        todo = [document]
        while todo:
            node = todo.pop()
            for key, child in (
                node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
            ):
                places.append((node, key))
                todo.append(child)
        if not places:
            return self._leaf()
        parent, key = self.choice(places)
        change = self.choice(("leaf", "leaf", "other", "wrap", "drop", "double", "rename", "text"))
        if change == "leaf":
            parent[key] = self._leaf()
        elif change == "other":
            other, at = self.choice(places)
            if at in other if isinstance(other, dict) else at < len(other):
                parent[key] = json.loads(json.dumps(other[at]))
        elif change == "wrap":
            parent[key] = [parent[key]]
        elif change == "drop":
            del parent[key]
        elif change == "double" and isinstance(parent, list):
            parent.insert(key, json.loads(json.dumps(parent[key])))
        elif change == "rename" and isinstance(parent, dict):
            parent[self.text(key)] = parent.pop(key)
        elif isinstance(parent[key], str):
            parent[key] = self.text(parent[key])
        return document


_CHANGES: tuple[Callable[[Mutator, bytearray], None], ...] = (
    *(Mutator._flip, Mutator._flip, Mutator._flip, Mutator._set, Mutator._set, Mutator._integer, Mutator._integer),
    *(Mutator._varint, Mutator._cut, Mutator._remove, Mutator._repeat, Mutator._insert, Mutator._insert),
    *(Mutator._overwrite, Mutator._move, Mutator._digits),
)


def packed(fmt: str, *values: int) -> bytes:
    """``struct.pack`` of numbers of any size."""
    sizes = [struct.calcsize(fmt[0] + letter) for letter in fmt[1:]]
    wrapped = [value & ((1 << 8 * size) - 1) for value, size in zip(values, sizes, strict=True)]
    return struct.pack(fmt.upper(), *wrapped)
