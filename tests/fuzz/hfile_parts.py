"""HFiles taken apart and put together again, so that damage reaches past their compression and their sizes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from fuzz.mutations import Mutator, packed
from lakedex.codec.hfile.blocks import CODEC_NONE, DATA, FILE_INFO, META, ROOT_INDEX, decode_block, encode_block
from lakedex.codec.hfile.index import IndexEntry, encode_meta_index, encode_root_index
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.trailer import Trailer, encode_file_info, encode_trailer

__all__ = ["HFileParts", "bomb", "damaged_inside", "taken_apart"]


@dataclass(frozen=True, slots=True)
class HFileParts:
    """An HFile with one index level: keys and payloads of its blocks."""

    data: tuple[tuple[bytes, bytes], ...]
    meta: tuple[tuple[bytes, bytes], ...]
    info: bytes
    trailer: Trailer

    def put_together(
        self,
        *,
        index: Callable[[bytes], bytes] = bytes,
        block: Callable[[bytes, bytes, int], bytes] = encode_block,
        trailer: Callable[[Trailer], Trailer] = lambda made: made,
    ) -> bytes:
        """The file. ``index`` changes the payload of the root index, ``block`` packs, ``trailer`` changes the last."""
        out: list[bytes] = []
        entries: list[IndexEntry] = []
        names: list[IndexEntry] = []
        for blocks, magic, listed in ((self.data, DATA, entries), (self.meta, META, names)):
            for key, payload in blocks:
                packed_block = block(magic, payload, self.trailer.codec)
                listed.append(IndexEntry(key, sum(map(len, out)), len(packed_block)))
                out.append(packed_block)
        start = sum(map(len, out))
        out.append(block(ROOT_INDEX, index(encode_root_index(entries)), self.trailer.codec))
        out.append(block(ROOT_INDEX, encode_meta_index(names), self.trailer.codec))
        info_at = sum(map(len, out))
        out.append(block(FILE_INFO, self.info, self.trailer.codec))
        made = replace(self.trailer, load_on_open_offset=start, file_info_offset=info_at)
        made = replace(made, data_index_count=len(entries), meta_index_count=len(names))
        out.append(encode_trailer(trailer(made)))
        return b"".join(out)


@cache
def taken_apart(content: bytes) -> HFileParts | None:
    """The parts, or None for a file with more index levels."""
    reader = HFileReader.from_bytes(content)
    if reader.trailer.data_index_levels != 1:
        return None
    root = reader.entries
    codec = reader.trailer.codec
    data = tuple((e.key, decode_block(content[e.offset :], DATA, codec, offset=0)[0]) for e in root)
    meta = tuple((name.encode(), reader.meta(name) or b"") for name in reader.meta_names)
    return HFileParts(data, meta, encode_file_info(reader.info), reader.trailer)


def damaged_inside(content: bytes, mutator: Mutator) -> bytes:
    """The file with damage to a payload, an index, the file info, a block's frame or a number of the trailer."""
    parts = taken_apart(content)
    if parts is None:
        return mutator.bytes(content)
    where = mutator.choice(("data", "data", "data", "index", "info", "meta", "frame", "trailer", "bomb", "drop"))
    if where == "data" and parts.data:
        return replace(parts, data=_one(parts.data, mutator, mutator.bytes)).put_together()
    if where == "meta" and parts.meta:
        return replace(parts, meta=_one(parts.meta, mutator, mutator.bytes)).put_together()
    if where == "index":
        return parts.put_together(index=mutator.bytes)
    if where == "info":
        return replace(parts, info=mutator.bytes(parts.info)).put_together()
    if where == "drop" and len(parts.data) > 1:
        kept = list(parts.data)
        mutator.random.shuffle(kept)
        return replace(parts, data=tuple(kept[: mutator.choice((1, len(kept) - 1, len(kept)))])).put_together()
    if where in ("frame", "bomb"):
        return parts.put_together(block=_Packer(mutator, where))
    name = mutator.choice(tuple(name for name in Trailer.__slots__ if name != "comparator"))
    return parts.put_together(trailer=lambda made: replace(made, **{name: mutator.edge(64)}))


def _one(blocks: tuple[Any, ...], mutator: Mutator, change: Callable[[bytes], bytes]) -> tuple[Any, ...]:
    at = int(mutator.random.random() * len(blocks))
    key, payload = blocks[at]
    return (*blocks[:at], (key, change(payload)), *blocks[at + 1 :])


class _Packer:
    """Packs blocks, one in four with numbers in its frame that are wrong, or with a stream that is one."""

    def __init__(self, mutator: Mutator, how: str) -> None:
        self._mutator, self._how = mutator, how

    def __call__(self, magic: bytes, payload: bytes, codec: int) -> bytes:
        if not self._mutator.chance(0.25):
            return encode_block(magic, payload, codec)
        if self._how == "bomb" and codec != CODEC_NONE:
            stream = bomb(self._mutator, payload)
            size = self._mutator.choice(
                (len(payload), 1032 * len(stream), len(stream), 1 << 30, self._mutator.edge(31))
            )
            return magic + packed(">iiqBii", len(stream), size, -1, 0, 16384, 33 + len(stream)) + stream
        framed = encode_block(magic, payload, codec)
        return self._mutator.bytes(framed[:33]) + framed[33:]


def bomb(mutator: Mutator, payload: bytes) -> bytes:
    """A gzip stream that unpacks to much, in one piece or in very many."""
    kind = mutator.choice(("zeros", "members", "nested", "tail"))
    if kind == "zeros":
        return _gzip(bytes(mutator.choice((1 << 16, 1 << 16, 1 << 18, 1 << 18, 2 << 20))))
    if kind == "members":
        return _gzip(b"") * mutator.choice((10, 300, 1000)) + _gzip(payload)
    if kind == "nested":
        return _gzip(_gzip(payload))
    return _gzip(payload) + mutator.random.randbytes(5)


@cache
def _gzip(payload: bytes) -> bytes:
    return zlib.compress(payload, 6, 31)
