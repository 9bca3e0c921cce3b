"""Compaction of one metadata file group: its slice merged into a new base HFile (``HoodieCompactor``).

The sorted sources of a slice are merged key by key. Where only one source has a key, its bytes are copied; records are
decoded where several versions meet. Memory: a batch of up to 16 MiB of compressed blocks of each source, the keys of
delete blocks, and one block of the file that is written.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.bloom import BloomBuilder
from lakedex.codec.hfile import HFileReader, stream_hfile
from lakedex.codec.metadata_record import decode_metadata_record, encode_metadata_record
from lakedex.codec.varint import decode_varint, encode_varint
from lakedex.engine import current_task
from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage
from lakedex.layout.names import BaseFileName
from lakedex.metadata.records import compact_records
from lakedex.metadata.store import Layer, MetadataFileGroup, MetadataStore

__all__ = ["Compacted", "GroupCompaction", "compact_group"]

_NO_META_FIELDS = b"\0\0\0\0"
_KEYS_AT_ONCE = 16_384

Version = tuple[bytes, int, bytes]
"""Key, number of the source (later ones are newer), value."""


@dataclass(frozen=True, slots=True)
class GroupCompaction:
    """What one task compacts; ``folder`` is that of the metadata partition."""

    store: MetadataStore
    folder: str
    group: MetadataFileGroup
    instant: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """The base file that came of it. ``merged`` counts keys of which several versions met."""

    name: str
    size: int
    records: int
    merged: int


class _UnsortedError(Exception):
    """A source is not in byte order: Java sorts by UTF-16 units, which differs for a few characters."""


class _Merge:
    """The merged records of a slice, as they stand in its new base file."""

    def __init__(self, layers: Sequence[Layer], file_name: str, *, sort: bool) -> None:
        self._layers = layers
        self._sort = sort
        self._schemas = [layer.info["schema"].decode() if isinstance(layer, HFileReader) else "" for layer in layers]
        self._gone: Mapping[bytes, int] = {
            key: number for number, layer in enumerate(layers) if not isinstance(layer, HFileReader) for key in layer
        }
        name = file_name.encode()
        # Avro: the union's second branch, and a length in zigzag coding.
        self._named = _NO_META_FIELDS + b"\x02" + encode_varint(2 * len(name)) + name
        self._ours = metadata_schema_json()
        self._keys: list[str] = []
        self._bloom = BloomBuilder(num_entries=10_000, fpp=1e-9)
        self.first = self.last = b""
        self.records = self.merged = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        sources = [
            self._source(number, layer) for number, layer in enumerate(self._layers) if isinstance(layer, HFileReader)
        ]
        for key, versions in groupby(heapq.merge(*sources), itemgetter(0)):
            value = self._settle(self._alive(key, versions))
            if value is not None:
                self._count(key)
                yield key, value

    def _source(self, number: int, layer: HFileReader) -> Iterator[Version]:
        last = b""
        cells = sorted(layer.scan(), key=itemgetter(0)) if self._sort else layer.scan()
        for key, value in cells:
            if key <= last:
                if key == last:
                    continue  # HBase may keep several cells of a key; the first counts.
                raise _UnsortedError
            last = key
            yield key, number, value

    def _alive(self, key: bytes, versions: Iterator[Version]) -> list[tuple[int, bytes]]:
        """Versions of a key after its last deletion, oldest first."""
        since = self._gone.get(key, -1)
        alive: list[tuple[int, bytes]] = []
        for _, number, value in versions:
            if not value:
                alive.clear()
            elif number > since:
                alive.append((number, value))
        return alive

    def _settle(self, versions: Sequence[tuple[int, bytes]]) -> bytes | None:
        if not versions:
            return None
        if len(versions) == 1:
            number, value = versions[0]
            if self._schemas[number] == self._ours:
                return self._renamed(value)
        else:
            self.merged += 1
        kept = compact_records(decode_metadata_record(value, self._schemas[number]) for number, value in versions)
        if kept is None:
            return None
        return self._renamed(encode_metadata_record({**kept, "_hoodie_file_name": None}))

    def _renamed(self, value: bytes) -> bytes:
        """The value with the new file's name as ``_hoodie_file_name``, the last of five fields that are else null."""
        if value[:4] != _NO_META_FIELDS:
            record = decode_metadata_record(value, self._ours)
            plain = {name: None for name in record if name.startswith("_hoodie_")}
            value = encode_metadata_record({**record, **plain})
        if value[4] == 0:
            return self._named + value[5:]
        length, at = decode_varint(value, 5)
        return self._named + value[at + length // 2 :]

    def _count(self, key: bytes) -> None:
        if not self.records:
            self.first = key
        self.last = key
        self.records += 1
        self._keys.append(key.decode())
        if len(self._keys) >= _KEYS_AT_ONCE:
            self._hash()

    def _hash(self) -> None:
        if self._keys:
            self._bloom.add(pa.array(self._keys, pa.large_string()))
            self._keys.clear()

    def describe(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """File info and meta blocks. A reader of Java's that is told to use bloom filters wants one inside."""
        self._hash()
        bloom = self._bloom.finish()
        info = {"schema": self._ours.encode(), "bloomFilterTypeCode": bloom.type_code.encode()}
        if self.records:
            info |= {"minRecordKey": self.first, "maxRecordKey": self.last}
        return info, {"bloomFilter": bloom.encode()}


def compact_group(task: GroupCompaction) -> Compacted:
    """Write the base file of one file group. Nobody sees it before its compaction is completed.

    Raises:
        CorruptFileError: a source is damaged; names it.
        InvalidInputError: the file would be larger than Hudi reads.
    """
    name = str(BaseFileName(task.group.file_id, str(current_task()), task.instant, ".hfile"))
    path = f"{task.folder}/{name}"
    layers = task.store.layers(task.group)
    try:
        try:
            return _write(task.store.storage, path, _Merge(layers, name, sort=False))
        except _UnsortedError:
            task.store.storage.delete(path)
            return _write(task.store.storage, path, _Merge(layers, name, sort=True))
    except BaseException:
        with suppress(OSError):
            task.store.storage.delete(path)
        raise


def _write(storage: Storage, path: str, merge: _Merge) -> Compacted:
    with closing(storage.open_output(path)) as out:
        size = stream_hfile(out.write, merge, merge.describe)
    if (found := storage.size(path)) != size:
        raise CorruptFileError(path, found, f"{size} bytes written", f"{found}")
    return Compacted(path.rsplit("/", 1)[1], size, merge.records, merge.merged)
