"""Read HFiles by point lookup, lookup of many keys and scan by prefix, fetching only the blocks required.

In Hudi: ``HFileReaderImpl`` (1.1.1). Files that HBase 2.4 wrote for Hudi 0.x are supported: several index levels,
index keys between two blocks, several cells of one key. A lookup returns the first of those cells.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakedex.codec.hfile.blocks import (
    DATA,
    FILE_INFO,
    HEADER_SIZE,
    INTERMEDIATE_INDEX,
    LEAF_INDEX,
    META,
    ROOT_INDEX,
    Budget,
    decode_block,
)
from lakedex.codec.hfile.index import (
    IndexEntry,
    check_entries,
    decode_cells,
    decode_leaf_index,
    decode_meta_index,
    decode_root_index,
    find_cells,
)
from lakedex.codec.hfile.trailer import TRAILER_SIZE, Trailer, decode_file_info, decode_trailer
from lakedex.errors import CorruptFileError, UnsupportedFeatureError

__all__ = ["Fetch", "HFileReader"]


Fetch = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]
"""Reads the bytes of half-open ranges ``(start, end)``, relative to the HFile even if it is in a log block."""


TAIL_SIZE = 64 * 1024
"""Bytes fetched on opening: nearly always the trailer and all that is loaded on opening, in one request."""


SCAN_BATCH_SIZE = 16 * 1024 * 1024
"""Bytes that a scan fetches at once; bounds its memory."""


_TAGS = "hfile.MAX_TAGS_LEN"


@dataclass(frozen=True, slots=True)
class _Opened:
    trailer: Trailer
    root: list[IndexEntry]
    meta: dict[bytes, IndexEntry]
    info: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class _Index:
    entries: list[IndexEntry]
    first_keys: list[bytes]
    is_sorted: bool


class HFileReader:
    """An HFile, opened on first use. Caches its index and file info, but no data.

    Args:
        fetch: Reads ranges of the file.
        size: Size of the HFile in bytes.
        path: File named in errors.

    Every method and property raises ``CorruptFileError`` if the bytes are damaged.
    """

    __slots__ = ("_fetch", "_index_cache", "_opened_cache", "path", "size")

    def __init__(self, fetch: Fetch, size: int, path: str = "") -> None:
        self._fetch = fetch
        self.size = size
        self.path = path
        self._opened_cache: _Opened | None = None
        self._index_cache: _Index | None = None

    @classmethod
    def from_bytes(cls, buf: bytes | memoryview, path: str = "") -> HFileReader:
        """Reader of an HFile in memory."""
        view = memoryview(buf)
        return cls(lambda ranges: [view[start:end] for start, end in ranges], len(view), path)

    def warm(self) -> None:
        """Load the index and the file info."""
        self._index  # noqa: B018 - a property that reads

    @property
    def trailer(self) -> Trailer:
        """Decoded trailer."""
        return self._opened.trailer

    @property
    def info(self) -> dict[str, bytes]:
        """File info, in the order of the file."""
        return self._opened.info

    @property
    def entry_count(self) -> int:
        """Number of cells."""
        return self._opened.trailer.entry_count

    @property
    def first_keys(self) -> list[bytes]:
        """For each data block a key that is at most its first key and above the last key of the block before."""
        return self._index.first_keys

    @property
    def entries(self) -> Sequence[IndexEntry]:
        """Index entries of the data blocks, in the order of the file."""
        return self._index.entries

    @property
    def meta_names(self) -> list[str]:
        """Names of the meta blocks."""
        return [name.decode("utf-8", "replace") for name in self._opened.meta]

    def meta(self, name: str) -> bytes | None:
        """Content of a meta block, or None if there is none of that name."""
        entry = self._opened.meta.get(name.encode())
        if entry is None:
            return None
        (payload,) = self._blocks([entry], META, Budget())
        return payload

    def get(self, key: bytes) -> bytes | None:
        """Value of a key, or None if it is absent."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[bytes], budget: Budget | None = None) -> dict[bytes, bytes]:
        """Values of the keys that are present, in key order.

        All blocks that may have one of the keys are fetched in one call. Keys may be in any order. ``budget`` limits
        the decompressed bytes; pass one budget for all files of a call.
        """
        wanted = sorted(set(keys))
        lookups = list(self._lookups(wanted))
        found: dict[bytes, bytes] = {}
        payloads = self._blocks([entry for entry, _, _ in lookups], DATA, budget or Budget())
        for (entry, start, end), payload in zip(lookups, payloads, strict=True):
            find_cells(payload, wanted[start:end], found, base=entry.offset + HEADER_SIZE, path=self.path)
        return found

    def _lookups(self, wanted: list[bytes]) -> Iterator[tuple[IndexEntry, int, int]]:
        """Blocks to read, each with the slice of the sorted keys that it may contain."""
        if not wanted:
            return
        index = self._index
        first_keys = index.first_keys
        if not index.is_sorted:
            yield from ((entry, 0, len(wanted)) for entry in index.entries)
            return
        at = bisect_left(wanted, first_keys[0]) if first_keys else len(wanted)
        while at < len(wanted):
            block = bisect_right(first_keys, wanted[at]) - 1
            is_last = block + 1 == len(first_keys)
            end = len(wanted) if is_last else bisect_left(wanted, first_keys[block + 1], at + 1)
            yield index.entries[block], at, end
            at = end

    def read_costs(self, keys: Sequence[bytes]) -> list[int]:
        """For each of the sorted, distinct keys its share of the bytes that :meth:`get_many` would read.

        Reads only the index. Bytes are decompressed ones, estimated from the compression ratio of the file.
        """
        costs = [0] * len(keys)
        lookups = list(self._lookups(list(keys)))
        unpacked = (self.trailer.total_uncompressed_bytes or 0) if lookups else 0
        ratio = max(unpacked / self.size, 1.0)
        for entry, start, end in lookups:
            share = math.ceil(entry.size * ratio / (end - start))
            costs[start:end] = [cost + share for cost in costs[start:end]]
        return costs

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All cells whose key begins with the prefix, in the order of the file.

        Without a prefix the decompressed size is unlimited; callers should keep no more than a block at a time.

        Raises:
            CorruptFileError: Also if a scan of the complete file finds another number of cells than the trailer states.
        """
        if prefix:
            yield from self.scan_prefixes((prefix,))
            return
        count = 0
        for cells in self._cells(self._index.entries, Budget(limited=False)):
            count += len(cells)
            yield from cells
        if count != self.entry_count:
            raise CorruptFileError(self.path, self.size - TRAILER_SIZE, f"{self.entry_count} cells", str(count))

    def scan_prefixes(self, prefixes: Iterable[bytes], budget: Budget | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All cells whose key begins with one of the prefixes, each once, in the order of the file.

        Args:
            prefixes: Prefixes in any order; an empty one matches everything.
            budget: Limit of decompressed bytes; pass one for all files of a call.
        """
        wanted: list[bytes] = []
        for prefix in sorted(prefixes):
            if not (wanted and prefix.startswith(wanted[-1])):
                wanted.append(prefix)
        if not wanted:
            return
        single = wanted[0] if len(wanted) == 1 else None
        for cells in self._cells(self._prefix_entries(wanted), budget or Budget()):
            if single is not None:
                yield from (cell for cell in cells if cell[0].startswith(single))
                continue
            for cell in cells:
                # No prefix starts with another, so only the greatest one not above the key can fit.
                at = bisect_right(wanted, cell[0]) - 1
                if at >= 0 and cell[0].startswith(wanted[at]):
                    yield cell

    def _prefix_entries(self, prefixes: list[bytes]) -> list[IndexEntry]:
        """Blocks that may contain a key with one of the prefixes."""
        index = self._index
        if not index.is_sorted:
            return index.entries
        entries: list[IndexEntry] = []
        done = 0
        for prefix in prefixes:
            start = max(bisect_right(index.first_keys, prefix) - 1, done)
            after = _after_prefix(prefix)
            end = len(index.first_keys) if after is None else bisect_left(index.first_keys, after, start)
            entries += index.entries[start:end]
            done = max(done, end)
        return entries

    def _cells(self, entries: Sequence[IndexEntry], budget: Budget) -> Iterator[list[tuple[bytes, bytes]]]:
        """Cells of the blocks, block by block, fetched in batches."""
        for batch in _batches(entries):
            for entry, payload in zip(batch, self._blocks(batch, DATA, budget), strict=True):
                yield decode_cells(payload, base=entry.offset + HEADER_SIZE, path=self.path)

    def _blocks(self, entries: Sequence[IndexEntry], magic: bytes, budget: Budget) -> Iterator[bytes]:
        """Payloads of blocks, fetched in one call."""
        if not entries:
            return
        codec = self.trailer.codec
        buffers = self._read([(entry.offset, entry.offset + entry.size) for entry in entries])
        for entry, buffer in zip(entries, buffers, strict=True):
            payload, size = decode_block(buffer, magic, codec, offset=entry.offset, path=self.path)
            if size != entry.size:
                raise CorruptFileError(self.path, entry.offset, f"a block of {entry.size} bytes", f"{size} bytes")
            budget.spend(entry.size, len(payload), self.path, entry.offset)
            yield payload

    def _read(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        buffers = self._fetch(ranges)
        for (start, end), buffer in zip(ranges, buffers, strict=True):
            if len(buffer) != end - start:
                raise CorruptFileError(self.path, start, f"{end - start} bytes", f"{len(buffer)} bytes")
        return buffers

    @property
    def _opened(self) -> _Opened:
        if self._opened_cache is None:
            self._opened_cache = self._open()
        return self._opened_cache

    def _open(self) -> _Opened:
        path = self.path
        limit = self.size - TRAILER_SIZE
        if limit < 0:
            raise CorruptFileError(path, 0, f"an HFile of at least {TRAILER_SIZE} bytes", f"{self.size} bytes")
        start = max(self.size - TAIL_SIZE, 0)
        (tail,) = self._read([(start, self.size)])
        trailer = decode_trailer(tail[-TRAILER_SIZE:], offset=limit, path=path)
        pos = trailer.load_on_open_offset
        section = memoryview(tail)[max(pos - start, 0) : limit - start]
        if pos < start:
            (head,) = self._read([(pos, start)])
            section = memoryview(b"".join((head, section)))
        payload, size = decode_block(section, ROOT_INDEX, trailer.codec, offset=pos, path=path)
        base = pos + HEADER_SIZE
        root = decode_root_index(
            payload, trailer.data_index_count, levels=trailer.data_index_levels, base=base, path=path
        )
        check_entries(root, trailer.load_on_open_offset, base=base, path=path)
        section, pos = section[size:], pos + size
        payload, size = decode_block(section, ROOT_INDEX, trailer.codec, offset=pos, path=path)
        meta = decode_meta_index(payload, trailer.meta_index_count, base=pos + HEADER_SIZE, path=path)
        check_entries(meta, trailer.load_on_open_offset, base=pos + HEADER_SIZE, path=path)
        section, pos = section[size:], pos + size
        if pos != trailer.file_info_offset:
            raise CorruptFileError(path, limit, f"file info at byte {pos}", str(trailer.file_info_offset))
        payload, _ = decode_block(section, FILE_INFO, trailer.codec, offset=pos, path=path)
        info = decode_file_info(payload, base=pos + HEADER_SIZE, path=path)
        if _TAGS in info:
            raise UnsupportedFeatureError(f"{path or '<bytes>'}: HFile cells with tags", feature="HFile tags")
        return _Opened(trailer, root, {entry.key: entry for entry in meta}, info)

    @property
    def _index(self) -> _Index:
        if self._index_cache is None:
            entries = self._opened.root
            for level in range(self.trailer.data_index_levels - 1, 0, -1):
                entries = self._next_level(entries, LEAF_INDEX if level == 1 else INTERMEDIATE_INDEX)
            first_keys = [entry.key for entry in entries]
            # Java sorts keys by UTF-16 units, which differs from the order of bytes for some characters.
            is_sorted = all(a <= b for a, b in pairwise(first_keys))
            self._index_cache = _Index(entries, first_keys, is_sorted)
        return self._index_cache

    def _next_level(self, entries: list[IndexEntry], magic: bytes) -> list[IndexEntry]:
        below: list[IndexEntry] = []
        budget = Budget()
        for batch in _batches(entries):
            for entry, payload in zip(batch, self._blocks(batch, magic, budget), strict=True):
                below += decode_leaf_index(payload, base=entry.offset + HEADER_SIZE, path=self.path)
        limit = self.trailer.load_on_open_offset
        check_entries(below, limit, base=limit, path=self.path)
        return below


def _after_prefix(prefix: bytes) -> bytes | None:
    """Smallest bytes above everything with the prefix; None if there are none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None


def _batches(entries: Sequence[IndexEntry]) -> Iterator[Sequence[IndexEntry]]:
    """Cut blocks into batches of bounded size."""
    start = size = 0
    for at, entry in enumerate(entries):
        if size and size + entry.size > SCAN_BATCH_SIZE:
            yield entries[start:at]
            start, size = at, 0
        size += entry.size
    if start < len(entries):
        yield entries[start:]
