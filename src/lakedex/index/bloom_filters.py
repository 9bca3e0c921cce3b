"""``bloom_filters``: the filter of each base file's record keys, in the metadata table.

The keys of one data partition's filters are contiguous (they begin with the partition's id), so the filters of many
files are a few range reads; each key is hashed once and probes them all. Filters that a query read are cached.

Memory of the cache: ``HELD_BYTES`` for each state of the table; successive states share what did not change.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.avro_schema import arrow_to_avro, with_meta_fields
from lakedex.codec.bloom import BloomFilter, BloomSizing, HashedKeys, decode_bloom, hash_keys
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.metadata_record import payload_columns
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.expr.terms import BoundPredicate, equality_values
from lakedex.index.metadata_index import MetadataIndex, MetadataValidation
from lakedex.index.protocol import (
    BuildContext,
    CollectContext,
    CommitContext,
    IndexUpdate,
    PruneResult,
    RemovedFiles,
    UndoContext,
    ValidationContext,
    file_difference,
    index_missing,
)
from lakedex.index.written_file import FinishedFile, WrittenFile
from lakedex.io.storage import TableFiles
from lakedex.io.task_output import Spilled
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.keys import value_text
from lakedex.metadata.files import MetadataFiles, decode_cell, record_schema
from lakedex.metadata.records import (
    BLOOM_FILTERS,
    PAYLOADS,
    MetadataPartition,
    Record,
    bloom_key,
    bloom_record,
    is_deleted,
)
from lakedex.metadata.store import MetadataStore
from lakedex.metadata.writer import Keyed, SpilledBloom
from lakedex.options import BloomOptions, IndexOptions, WriteOptions
from lakedex.parquet.base_file_reader import iter_base_file, read_footer
from lakedex.parquet.base_file_writer import BaseFileSettings
from lakedex.reports import Difference
from lakedex.snapshot.file_system_view import FileSystemView, ViewCache
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import COMMIT_SEQNO, RECORD_KEY, IntArray, Progress

__all__ = [
    "BATCH_BYTES",
    "HELD_BYTES",
    "BloomFilterCache",
    "BloomFilters",
    "BloomOfFile",
    "CollectFilters",
    "FileBloom",
    "StoredFilters",
    "bloom_records",
    "bloom_sizing",
    "iter_filters",
    "load_filters",
]


BATCH_BYTES = 16 << 20
"""Blocks of the metadata table that are read, and filters that are decoded, at once (a larger filter alone). Java makes
filters of 60,000 entries, 430 KiB, whatever a file holds: a batch is some 40 of them."""


HELD_BYTES = 64 << 20
"""Decoded filters that stay: 200 of Java's."""


MOST_UNSEEN = 16
"""Layers of the metadata table that may wait to be looked at before held filters are given up."""


File = tuple[str, str]
"""Data partition and name of a base file."""


def iter_filters(store: MetadataStore, files: Sequence[tuple[str, str]]) -> Iterator[tuple[int, BloomFilter]]:
    """Filters of base files given as (data partition, file name), as (place among ``files``, filter).

    Keys are asked for in the order in which they lie, so a batch is some ranges of one or few shards, and a block is
    read once (twice where a batch ends inside it). The type is taken from each record. A file that does not come has no
    usable filter and stays a candidate.

    Memory: ``BATCH_BYTES``.
    """
    places = {bloom_key(partition, name): place for place, (partition, name) in enumerate(files)}
    for keys in _batches(store, places):
        newest = store.newest_of(BLOOM_FILTERS.name, keys)
        for layer, rows, values in newest.by_layer():
            for row, (kind, text) in zip(rows.tolist(), _texts(values, layer), strict=True):
                if text:
                    place = places[keys[row]]
                    yield place, decode_bloom(text, kind, files[place][1])


def _texts(values: list[bytes], layer: HFileReader) -> Iterable[tuple[str, bytes]]:
    """Type and text of each filter; an empty one where the file has none any more.

    Raises:
        CorruptFileError: Damaged bytes, or records of another partition.
    """
    schema, payload = record_schema(layer), PAYLOADS[BLOOM_FILTERS.name]
    read = payload_columns(values, schema, payload, frozenset({"type", "bloomFilter", "isDeleted"}))
    if read is not None and {"type", "bloomFilter", "isDeleted"} <= {field.name for field in read.type}:
        columns = (read.field(name).to_pylist() for name in ("type", "bloomFilter", "isDeleted"))
        return [(kind, b"" if gone else text) for kind, text, gone in zip(*columns, strict=True)]
    records = (decode_cell(value, schema, layer, payload) for value in values)
    return [(r[payload]["type"], b"" if is_deleted(r) else r[payload]["bloomFilter"]) for r in records]


def load_filters(store: MetadataStore, partition: str, file_names: Sequence[str]) -> Iterator[tuple[str, BloomFilter]]:
    """Filters of base files of one data partition by file name; see :func:`iter_filters`."""
    for place, bloom in iter_filters(store, [(partition, name) for name in file_names]):
        yield file_names[place], bloom


def _batches(store: MetadataStore, keys: Iterable[str]) -> Iterator[list[str]]:
    ordered = store.in_read_order(BLOOM_FILTERS.name, keys)
    start = size = 0
    for place, cost in enumerate(store.read_costs(BLOOM_FILTERS.name, ordered)):
        if place > start and size + cost > BATCH_BYTES:
            yield ordered[start:place]
            start, size = place, 0
        size += cost
    if start < len(ordered):
        yield ordered[start:]


@dataclass(frozen=True, slots=True)
class StoredFilters:
    """Filters in the metadata table, for tagging; see :class:`~lakedex.index.protocol.KeyFilters`."""

    store: MetadataStore

    def costs(self, files: Sequence[File]) -> list[int]:
        """Sizes, from the index of the HFiles alone."""
        keys = [bloom_key(partition, name) for partition, name in files]
        ordered = self.store.in_read_order(BLOOM_FILTERS.name, keys)
        costs = dict(zip(ordered, self.store.read_costs(BLOOM_FILTERS.name, ordered), strict=True))
        return [costs[key] for key in keys]

    def read(self, files: Sequence[File]) -> Iterator[tuple[int, BloomFilter]]:
        """Filters of files, in batches."""
        return iter_filters(self.store, files)


@dataclass(slots=True, eq=False)
class BloomFilterCache(ViewCache):
    """Filters that were read, those asked for last at the end; None where a file has none that can be used.

    Attributes:
        files: the metadata files that they come from.
        filters: by file, the oldest first.
        unseen: later layers, of which nobody knows yet which filters they write again.
        size: bytes of all filters.
        limit: of ``size``.
    """

    files: MetadataFiles
    filters: dict[File, BloomFilter | None] = field(default_factory=dict)
    unseen: tuple[HFileReader, ...] = ()
    size: int = 0
    limit: int = HELD_BYTES
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(cls, view: FileSystemView, store: MetadataStore) -> BloomFilterCache:
        """Those of a state."""
        with view.lock:
            return view.caches.get(cls) or view.caches.put(cls(store.files_of(BLOOM_FILTERS.name)))

    def iter(self, store: MetadataStore, files: Sequence[File]) -> Iterator[tuple[int, BloomFilter]]:
        """As :func:`iter_filters`, of which only those are read that are not held."""
        missing: list[int] = []
        with self._lock:
            self._see()
            found = []
            for place, file in enumerate(files):
                if file not in self.filters:
                    missing.append(place)
                    continue
                bloom = self.filters[file] = self.filters.pop(file)
                if bloom is not None:
                    found.append((place, bloom))
        yield from found
        unread = set(missing)
        # One query does not drive out its own filters: the next one like it would find none of them.
        own = frozenset(files)
        for at, bloom in iter_filters(store, [files[place] for place in missing]):
            place = missing[at]
            unread.discard(place)
            self._keep(files[place], bloom, own)
            yield place, bloom
        for place in unread:
            self._keep(files[place], None, own)

    def _see(self) -> None:
        """Forget what later layers speak of. Blocks of them are read only where one of the held keys may lie."""
        if self.unseen:
            keys = {bloom_key(*file).encode(): file for file in self.filters}
            for layer in self.unseen:
                for key in layer.get_many(keys):
                    self.size -= _cost(self.filters.pop(keys.pop(key)))
            self.unseen = ()

    def _keep(self, file: File, bloom: BloomFilter | None, own: frozenset[File]) -> None:
        size = _cost(bloom)
        with self._lock:
            if file in self.filters:
                return
            while self.filters and self.size + size > self.limit:
                oldest = next(iter(self.filters))
                if oldest in own:
                    return
                self.size -= _cost(self.filters.pop(oldest))
            self.size += size
            self.filters[file] = bloom

    def carry_over(self, older: FileSystemView, newer: FileSystemView, store: MetadataStore) -> BloomFilterCache | None:
        """The cache for a newer state: filters of files that it has too, if they were not written again."""
        added = store.added_since(BLOOM_FILTERS.name, self.files) if store.has(BLOOM_FILTERS.name) else None
        if added is None or len(self.unseen) + len(added) > MOST_UNSEEN:
            return None
        present = {(item.partition, item.base_file.name) for item in newer.table.slices if item.base_file is not None}
        with self._lock:
            filters = {file: bloom for file, bloom in self.filters.items() if file in present}
            unseen = (*self.unseen, *added)
        files = store.files_of(BLOOM_FILTERS.name)
        return BloomFilterCache(files, filters, unseen, sum(map(_cost, filters.values())), self.limit)


def _cost(bloom: BloomFilter | None) -> int:
    """Bytes of memory, about: the bits, and what an entry takes besides."""
    return 512 + (0 if bloom is None else int(bloom.rows.nbytes))


_PLAIN_KEYS = frozenset({"SIMPLE", "NON_PARTITION", "TIMESTAMP", "CUSTOM"})
"""Key generators whose key of one field is the field's value and nothing else."""


_ONE_TEXT = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean)
"""Types whose values have one text in keys, whoever wrote it. Java's options decide the text of a date or timestamp,
small decimals come as ``1E-8``, and equal floats have several (0.0 and -0.0, a float that became a double)."""


@dataclass(frozen=True, slots=True)
class BloomFilters(MetadataIndex):
    """``bloom_filters``. It prunes by equality of the record key; a slice with log files is kept."""

    partition: ClassVar[MetadataPartition] = BLOOM_FILTERS

    name: ClassVar[str] = BLOOM_FILTERS.name

    def collector(self, ctx: CollectContext) -> CollectFilters:
        """Collect the filters that base files get anyway, for their footers."""
        return CollectFilters(max(RESULT_FILTER_BYTES, ALL_RESULTS_BYTES // max(ctx.files, 1)))

    def records_of_commit(self, ctx: CommitContext, files: Sequence[WrittenFile]) -> IndexUpdate:
        """The filters of the commit's files."""
        if not ctx.snapshot.metadata.has(self.name):
            return IndexUpdate()
        filters = ((file, file.part(self.name, FileBloom)) for file in files)
        records: Keyed = [
            (bloom_key(file.partition, file.file_name), bloom.record(ctx.instant))
            for file, bloom in filters
            if bloom is not None
        ]
        return IndexUpdate(records={self.name: records})

    def before_undo(
        self, ctx: UndoContext, target: Snapshot, partitions: Collection[str], options: WriteOptions
    ) -> IndexUpdate:
        """Filters of files that have none, since the index was built when they were not current."""
        if not partitions or not ctx.snapshot.metadata.has(self.name):
            return IndexUpdate()
        bases = {bloom_key(base.partition, base.name): base for base in target.base_files(partitions)}
        known = target.metadata.get_many(self.name, list(bases))
        missing = [base for key, base in bases.items() if key not in known or is_deleted(known[key])]
        task = BloomOfFile(files=target.files, folder=None, options=options.bloom)
        built = dict(zip(missing, ctx.run(task, missing), strict=True))
        return IndexUpdate(records=next(bloom_records(built, missing, len(missing) + 1)))

    def columns(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The record key."""
        return (RECORD_KEY,)

    def is_wanted(self, options: IndexOptions) -> bool:
        """``hoodie.metadata.index.bloom.filter.enable``."""
        return options.bloom_filters

    def keys(self, snapshot: Snapshot) -> list[list[str]]:
        """One filter a file."""
        return [[bloom_key(base.partition, base.name)] for base in snapshot.base_files()]

    def key_filters(self, snapshot: Snapshot) -> StoredFilters | None:
        """The filters of the metadata table."""
        return StoredFilters(snapshot.metadata) if snapshot.metadata.has(self.name) else None

    def validate(self, ctx: ValidationContext) -> FilterValidation:
        """Ask each file's filter for the file's keys."""
        return FilterValidation(ctx=ctx)

    def build(self, ctx: BuildContext) -> FilterBuild | None:
        """Read each file's filter from its footer, or make it from its keys."""
        if ctx.columns is not None and list(ctx.columns) not in (
            [RECORD_KEY],
            list(ctx.snapshot.config.record_key_fields),
        ):
            raise UnsupportedFeatureError(
                f"{ctx.snapshot.files}: {self.name} takes no columns: it covers the record key",
                feature=f"{self.name} of other columns",
            )
        present = ctx.snapshot.metadata.has(self.name)
        if present and not ctx.recompute:
            return None
        groups = {} if present else {self.name: ctx.options.indexes.bloom_filters_groups}
        return FilterBuild(basis=ctx.snapshot.schema, groups=groups)

    def undo(self, ctx: UndoContext, removed: RemovedFiles) -> IndexUpdate:
        """Mark the files' filters deleted."""
        if not ctx.snapshot.metadata.has(self.name):
            return IndexUpdate()
        keys = [bloom_key(path, name) for path, names in removed.names.items() for name in names]
        known = ctx.snapshot.metadata.get_many(self.name, keys)
        records: Keyed = [
            (key, bloom_record("", ctx.instant, b"", deleted=True))
            for key, record in known.items()
            if not is_deleted(record)
        ]
        return IndexUpdate(records={self.name: records})

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Probe the filters of the slices."""
        tied = _key_values(snapshot, predicate)
        if tied is None:
            return PruneResult()
        if not snapshot.metadata.has(self.name):
            return PruneResult(unused=(index_missing(self.name, snapshot.metadata),))
        column, keys = tied
        keep = np.ones(len(rows), bool)
        view = snapshot.view()
        places: list[int] = []
        files: list[File] = []
        for place, item in enumerate(view.table.take(rows)):
            if item.base_file is not None and not item.log_files:
                places.append(place)
                files.append((item.partition, item.base_file.name))
        missing = len(rows)
        hashed: HashedKeys | None = None
        for at, bloom in BloomFilterCache.of(view, snapshot.metadata).iter(snapshot.metadata, files):
            missing -= 1
            if len(keys) and (hashed is None or hashed.num_hashes < bloom.num_hashes):
                hashed = hash_keys(keys, bloom.num_hashes)
            keep[places[at]] = hashed is not None and bool(bloom.probe(hashed).any())
        term = f"{column} = {keys[0].as_py()!r}" if len(keys) == 1 else f"{column} IN ({len(keys)} values)"
        return PruneResult(keep=keep, terms=(term,), note=f"no filter for {missing} files, kept" if missing else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBuild:
    """A build of ``bloom_filters``."""

    basis: pa.Schema
    groups: Mapping[str, int]
    columns: tuple[str, ...] = (RECORD_KEY,)

    def task(self, ctx: BuildContext) -> BloomOfFile:
        """Read or make a file's filter; large ones go to the build's temp folder."""
        return BloomOfFile(
            files=ctx.snapshot.files,
            folder=f"{ctx.temp}/.blooms",
            options=ctx.options.bloom,
            recompute=ctx.recompute,
        )

    def updates(self, ctx: BuildContext, parts: Mapping[BaseFile, FileBloom]) -> Iterator[IndexUpdate]:
        """The filters' records."""
        for records in bloom_records(parts, list(parts), ctx.table.limits.files_per_commit):
            yield IndexUpdate(records=records)


def _key_values(snapshot: Snapshot, predicate: BoundPredicate) -> tuple[str, pa.Array] | None:
    """The record-key texts that a matching row can have, and the column that says so."""
    config, schema = snapshot.config, snapshot.schema
    candidates = [RECORD_KEY]
    plain = len(config.record_key_fields) == 1 and config.key_generator in _PLAIN_KEYS
    if plain and config.record_key_fields[0] in schema.names:
        candidates.append(config.record_key_fields[0])
    for name in candidates:
        values = equality_values(predicate.predicate, name)
        if values is None:
            continue
        kind = pa.string() if name == RECORD_KEY else schema.field(name).type
        if not any(test(kind) for test in _ONE_TEXT):
            continue
        texts = value_text(pa.array(values, kind))
        return name, texts.filter(pc.not_equal(texts, ""))
    return None


INLINE_BLOOM_BYTES = 4 * 1024
"""Larger filters lie in the table's temp folder until they are written."""


def bloom_sizing(options: BloomOptions | None) -> BloomSizing:
    """Which bloom filters are wanted."""
    options = options or BloomOptions()
    return BloomSizing(
        num_entries=options.num_entries,
        fpp=options.fpp,
        type_code=options.filter_type,
        max_entries=options.max_entries,
    )


def base_file_settings(snapshot: Snapshot, schema: pa.Schema, options: WriteOptions) -> BaseFileSettings:
    """How new base files of a table are written, their footers' filters included.

    Args:
        snapshot: the table.
        schema: its columns after the write.
        options: compression, size of row groups, filters.
    """
    keys = snapshot.config.record_key_fields
    return BaseFileSettings(
        avro_schema=json.dumps(with_meta_fields(arrow_to_avro(schema, snapshot.config.name))),
        compression=options.files.compression,
        bloom=bloom_sizing(options.bloom),
        unique=frozenset({RECORD_KEY, COMMIT_SEQNO, *(keys if len(keys) == 1 else ())}),
        row_group_bytes=options.files.row_group_bytes,
        packs_numbers=snapshot.config.packs_numbers,
    )


RESULT_FILTER_BYTES = 64 * 1024
"""A filter up to this size comes back with the result of the task that writes its file; a larger one is spilled."""


ALL_RESULTS_BYTES = 16 * 1024 * 1024
"""Filters of all files together that come back whatever their size: each file of one would cost two syncs."""


@dataclass(frozen=True, slots=True)
class FileBloom:
    """The filter of one base file: its type, and its text or where that is spilled to."""

    type_code: str
    text: bytes | None
    spilled: Spilled | None = None

    def record(self, instant: str) -> Record | SpilledBloom:
        """Its metadata record."""
        if self.spilled is not None:
            return SpilledBloom(self.spilled, self.type_code, instant)
        return bloom_record(self.type_code, instant, self.text or b"")


@dataclass(frozen=True, slots=True)
class CollectFilters:
    """Collects the filter of each file's footer, a :class:`FileBloom`; filters of more than ``limit`` bytes spill."""

    limit: int

    @property
    def repeating(self) -> frozenset[str]:
        """None: keys are distinct."""
        return frozenset()

    @property
    def takes_logs(self) -> bool:
        """False: log files have no filters."""
        return False

    def begin(self, schema: pa.Schema) -> CollectFilters:
        """Begin a file; the filter comes with its summary."""
        return self

    def add(self, batch: pa.RecordBatch, bounds: Mapping[str, tuple[object, object]]) -> None:
        """Nothing: the file's writer hashes the keys."""

    def finish(self, file: FinishedFile) -> FileBloom:
        """The filter."""
        text, kind = file.summary.bloom, file.summary.bloom_type
        if len(text) <= self.limit:
            return FileBloom(kind, text)
        return FileBloom(kind, None, file.spill("blooms", text))


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomOfFile:
    """Task: a base file's filter, from its footer if that has one that fits, else, or to ``recompute``, from its keys.

    ``folder`` takes larger filters; None returns them all.
    """

    files: TableFiles
    folder: str | None
    options: BloomOptions | None
    recompute: bool = False

    def __call__(self, base: BaseFile) -> FileBloom:
        """The filter."""
        path = self.files.path(base.relative_path)
        footer = read_footer(self.files.storage, path)
        kind, text = footer.bloom_type, footer.bloom
        if text is None or self.recompute or not self._will_do(text, kind, footer.rows):
            kind, text = bloom_sizing(self.options).type_code, self._built(path, footer.rows)
        if self.folder is None or len(text) <= INLINE_BLOOM_BYTES:
            return FileBloom(kind, text)
        return FileBloom(kind, None, Spilled.write(self.files.storage, f"{self.folder}/{base.name}.bloom", text))

    def _will_do(self, text: bytes, kind: str, rows: int) -> bool:
        """Whether the footer's filter is what was asked for, if anything was."""
        if self.options is None:
            return True
        try:
            return bloom_sizing(self.options).fits(decode_bloom(text, kind), rows)
        except CorruptFileError:
            return False

    def _built(self, path: str, rows: int) -> bytes:
        builder = bloom_sizing(self.options).builder(rows)
        for batch in iter_base_file(self.files.storage, path, [RECORD_KEY]):
            builder.add(batch.column(0))
        return builder.finish().encode()


def bloom_records(
    built: Mapping[BaseFile, FileBloom], files: Sequence[BaseFile], per_commit: int
) -> Iterator[dict[str, Keyed]]:
    """Records of base files' filters, those of ``per_commit`` files at a time; once none for a table without files."""
    for start in range(0, max(len(files), 1), per_commit):
        some = files[start : start + per_commit]
        yield {
            BLOOM_FILTERS.name: [
                (bloom_key(base.partition, base.name), built[base].record(base.instant)) for base in some
            ]
        }


@dataclass(slots=True, kw_only=True)
class FilterValidation(MetadataValidation):
    """A comparison of ``bloom_filters``."""

    notes: tuple[str, ...] = ()

    def compare(self, files: Sequence[BaseFile], progress: Progress | None) -> None:
        """Compare base files; of a whole table, a file without a filter is a difference."""
        if self.ctx.of_table:
            keys = {bloom_key(base.partition, base.name): base for base in files}
            records = self.ctx.snapshot.metadata.get_many(BLOOM_FILTERS.name, list(keys))
            self.differences += [
                Difference(
                    index=BLOOM_FILTERS.name,
                    kind="missing entry",
                    partition=base.partition,
                    file=base.name,
                    column=RECORD_KEY,
                    expected="a filter of a current base file",
                    found="no filter",
                )
                for key, base in keys.items()
                if key not in records or is_deleted(records[key])
            ]
        MetadataValidation.compare(self, files, progress)

    def compare_some(self, files: Sequence[BaseFile], label: str) -> None:
        """Compare some files."""
        snapshot = self.ctx.snapshot
        task = _ProbeFile(snapshot.files, snapshot.metadata, self.ctx.of_table)
        for probed in self.ctx.table.engine.run(task, files, label):
            self.checked += probed.known
            self.entries += probed.known
            self._uncovered += not probed.known
            self.differences += probed.differences


@dataclass(frozen=True, slots=True)
class _Probed:
    """Whether a file has a filter, and what is wrong with it."""

    known: bool
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class _ProbeFile:
    """Task: ask a file's filter for each of the file's keys. Memory: the filter and a batch of keys."""

    files: TableFiles
    store: MetadataStore
    trust_footers: bool = False

    def __call__(self, base: BaseFile) -> _Probed:
        def differs(kind: str, expected: str, found: str, count: int = 1) -> _Probed:
            return _Probed(True, (file_difference(BLOOM_FILTERS.name, base, RECORD_KEY, kind, expected, found, count),))

        try:
            loaded = list(load_filters(self.store, base.partition, [base.name]))
        except CorruptFileError as error:
            return differs("damaged bytes", "a filter", str(error))
        if not loaded:
            return _Probed(False)
        if self.trust_footers and self._is_footers(base):
            return _Probed(True)
        missed: list[str] = []
        count = 0
        try:
            for batch in iter_base_file(self.files.storage, self.files.path(base.relative_path), [RECORD_KEY]):
                keys = batch.column(0).drop_null()
                lost = keys.filter(pc.invert(pa.array(loaded[0][1].probe(keys))))
                count += len(lost)
                missed += lost.slice(0, 3 - len(missed)).to_pylist() if len(missed) < 3 else []
        except FileNotFoundError:
            return _Probed(False)
        if count:
            return differs("missed keys", ", ".join(map(repr, missed)), "a filter without them", count)
        return _Probed(True)

    def _is_footers(self, base: BaseFile) -> bool:
        """Whether the filter is the one of the file's footer."""
        key = bloom_key(base.partition, base.name)
        payload = self.store.get_many(BLOOM_FILTERS.name, [key])[key]["BloomFilterMetadata"]
        try:
            footer = read_footer(self.files.storage, self.files.path(base.relative_path))
        except FileNotFoundError:
            return True
        return (payload["type"], payload["bloomFilter"]) == (footer.bloom_type, footer.bloom)
