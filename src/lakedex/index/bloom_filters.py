"""``bloom_filters``: the filter of each base file's record keys, kept in the metadata table.

The keys of one data partition's filters are contiguous (they begin with the partition's id), so the filters of many
files are a few range reads; each key is hashed once and probes them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.bloom import BloomFilter, decode_bloom
from lakedex.expr import equality_values
from lakedex.expr.nodes import Predicate
from lakedex.index.protocol import Rows, Verdict, not_there
from lakedex.layout.value_text import value_text
from lakedex.metadata.partitions import BLOOM_FILTERS, bloom_key
from lakedex.metadata.records import is_deleted
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import MetadataStore
from lakedex.types import RECORD_KEY

__all__ = ["BATCH_BYTES", "BloomFilters", "iter_filters", "load_filters"]

BATCH_BYTES = 16 << 20
"""Blocks of the metadata table that are read, and filters that are decoded, at once (a larger filter alone). Java makes
filters of 60,000 entries, 430 KiB, whatever a file holds: a batch is some 40 of them."""


def iter_filters(store: MetadataStore, files: Sequence[tuple[str, str]]) -> Iterator[tuple[int, BloomFilter]]:
    """Filters of base files given as (data partition, file name), as (place among ``files``, filter).

    Keys are asked for in the order in which they lie, so a batch is some ranges of one or few shards, and a block is
    read once (twice where a batch ends inside it). The type is taken from each record. A file that does not come has no
    usable filter and stays a candidate.

    Memory: ``BATCH_BYTES``.
    """
    places = {bloom_key(partition, name): place for place, (partition, name) in enumerate(files)}
    for keys in _batches(store, places):
        for key, record in store.get_many(BLOOM_FILTERS.name, keys).items():
            payload = record.get("BloomFilterMetadata")
            if payload is None or is_deleted(record) or not payload["bloomFilter"]:
                continue
            place = places[key]
            yield place, decode_bloom(payload["bloomFilter"], payload["type"], files[place][1])


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


_PLAIN_KEYS = frozenset({"SIMPLE", "NON_PARTITION", "TIMESTAMP", "CUSTOM"})
"""Key generators whose key of one field is the field's value and nothing else."""

_ONE_TEXT = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean)
"""Types whose values have one text in keys, whoever wrote it. Java's options decide the text of a date or timestamp,
small decimals come as ``1E-8``, and equal floats have several (0.0 and -0.0, a float that became a double)."""


@dataclass(frozen=True, slots=True)
class BloomFilters:
    """Prunes files where the predicate ties the record key to some values. A slice with log files is kept."""

    @property
    def name(self) -> str:
        """``bloom_filters``."""
        return BLOOM_FILTERS.name

    def prune(self, snapshot: Snapshot, predicate: Predicate, rows: Rows) -> Verdict:
        """Probe the filters of the slices, partition by partition."""
        tied = _key_values(snapshot, predicate)
        if tied is None:
            return Verdict()
        if not snapshot.metadata.has(self.name):
            return Verdict(unused=(not_there(self.name, snapshot.metadata),))
        column, keys = tied
        keep = np.ones(len(rows), bool)
        by_partition: dict[str, dict[str, int]] = {}
        for place, item in enumerate(snapshot.view().table.take(rows)):
            if item.base_file is not None and not item.log_files:
                by_partition.setdefault(item.partition, {})[item.base_file.name] = place
        missing = len(rows)
        for partition, places in by_partition.items():
            for name, bloom in load_filters(snapshot.metadata, partition, list(places)):
                missing -= 1
                keep[places[name]] = bool(bloom.probe(keys).any()) if len(keys) else False
        term = f"{column} = {keys[0].as_py()!r}" if len(keys) == 1 else f"{column} IN ({len(keys)} values)"
        return Verdict(keep=keep, terms=(term,), note=f"no filter for {missing} files, kept" if missing else "")


def _key_values(snapshot: Snapshot, predicate: Predicate) -> tuple[str, pa.Array] | None:
    """The record-key texts that a matching row can have, and the column that says so."""
    config, schema = snapshot.config, snapshot.schema
    candidates = [RECORD_KEY]
    plain = len(config.record_key_fields) == 1 and config.key_generator in _PLAIN_KEYS
    if plain and config.record_key_fields[0] in schema.names:
        candidates.append(config.record_key_fields[0])
    for name in candidates:
        values = equality_values(predicate, name)
        if values is None:
            continue
        kind = pa.string() if name == RECORD_KEY else schema.field(name).type
        if not any(test(kind) for test in _ONE_TEXT):
            continue
        texts = value_text(pa.array(values, kind))
        return name, texts.filter(pc.not_equal(texts, ""))
    return None
