"""``bloom_filters``: the filter of each base file's record keys, kept in the metadata table.

The keys of one data partition's filters are contiguous (they begin with the partition's id), so the filters of many
files are a few range reads; each key is hashed once and probes them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakedex.codec.bloom import BloomFilter, decode_bloom
from lakedex.metadata.partitions import BLOOM_FILTERS, bloom_key
from lakedex.metadata.records import is_deleted
from lakedex.metadata.store import MetadataStore

__all__ = ["LOAD_BATCH", "load_filters"]

LOAD_BATCH = 64
"""Filters decoded at once: one of 60,000 entries is 320 KiB, so a batch is about 20 MiB."""


def load_filters(store: MetadataStore, partition: str, file_names: Sequence[str]) -> Iterator[tuple[str, BloomFilter]]:
    """Filters of base files of one data partition, those that exist, in batches of bounded size.

    The type is taken from each record. A file that is not yielded has no usable filter and stays a candidate.
    """
    for start in range(0, len(file_names), LOAD_BATCH):
        names = {bloom_key(partition, name): name for name in file_names[start : start + LOAD_BATCH]}
        for key, record in store.get_many(BLOOM_FILTERS.name, list(names)).items():
            payload = record.get("BloomFilterMetadata")
            if payload is None or is_deleted(record) or not payload["bloomFilter"]:
                continue
            yield names[key], decode_bloom(payload["bloomFilter"], payload["type"], names[key])
