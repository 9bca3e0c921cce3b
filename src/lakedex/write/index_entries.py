"""Bloom filters of base files put into records of the index of that name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.delta_commit import Keyed, SpilledBloom
from lakedex.metadata.partitions import BLOOM_FILTERS, bloom_key
from lakedex.metadata.records import bloom_record

__all__ = ["BuiltBlooms", "bloom_records"]

BuiltBlooms = Mapping[BaseFile, tuple[str, bytes | None, str | None]]
"""Base file → type of its filter, and its text or where that lies."""


def bloom_records(built: BuiltBlooms, files: Sequence[BaseFile], per_commit: int) -> Iterator[dict[str, Keyed]]:
    """Records of base files' filters, those of ``per_commit`` files at a time; once none for a table without files."""
    for start in range(0, max(len(files), 1), per_commit):
        records: Keyed = []
        for base in files[start : start + per_commit]:
            kind, text, spill = built[base]
            key = bloom_key(base.partition, base.name)
            if text is not None:
                records.append((key, bloom_record(kind, base.instant, text)))
            else:
                records.append((key, SpilledBloom(str(spill), kind, base.instant)))
        yield {BLOOM_FILTERS.name: records}
