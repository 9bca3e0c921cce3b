"""The bloom filter of a base file that is there, and the records of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakedex.codec.bloom import decode_bloom
from lakedex.codec.bloom_sizing import BloomSizing
from lakedex.errors import CorruptFileError
from lakedex.io.spilled import Spilled
from lakedex.io.storage import Storage
from lakedex.layout.base_file import iter_base_file, read_footer
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.delta_commit import Keyed, SpilledBloom
from lakedex.metadata.partitions import BLOOM_FILTERS, bloom_key
from lakedex.metadata.records import bloom_record
from lakedex.options import WriteOptions
from lakedex.types import RECORD_KEY

__all__ = ["BloomOfFile", "BuiltBlooms", "bloom_records", "bloom_sizing"]

INLINE_BLOOM_BYTES = 4 * 1024
"""Larger filters lie in the table's temp folder until they are written."""


def bloom_sizing(options: WriteOptions) -> BloomSizing:
    """Which bloom filters are wanted."""
    return BloomSizing(
        num_entries=options.bloom_entries,
        fpp=options.bloom_fpp,
        type_code=options.bloom_type,
        max_entries=options.bloom_max_entries,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomOfFile:
    """Task: a base file's filter, from its footer if that has one that fits, else from its keys; ``anew`` from them.

    ``folder`` takes larger filters; None returns them all.
    """

    storage: Storage
    base_path: str
    folder: str | None
    options: WriteOptions
    anew: bool = False

    def __call__(self, base: BaseFile) -> tuple[str, bytes | None, Spilled | None]:
        """Type of the filter, and its text or where that lies."""
        path = f"{self.base_path}/{base.relative_path}"
        footer = read_footer(self.storage, path)
        kind, text = footer.bloom_type, footer.bloom
        if text is None or self.anew or not self._will_do(text, kind, footer.rows):
            kind, text = self.options.bloom_type, self._built(path, footer.rows)
        if self.folder is None or len(text) <= INLINE_BLOOM_BYTES:
            return kind, text, None
        return kind, None, Spilled.write(self.storage, f"{self.folder}/{base.name}.bloom", text)

    def _will_do(self, text: bytes, kind: str, rows: int) -> bool:
        """Whether the footer's filter is what was asked for, if anything was."""
        if not self.options.bloom_asked:
            return True
        try:
            return bloom_sizing(self.options).fits(decode_bloom(text, kind), rows)
        except CorruptFileError:
            return False

    def _built(self, path: str, rows: int) -> bytes:
        builder = bloom_sizing(self.options).builder(rows)
        for batch in iter_base_file(self.storage, path, [RECORD_KEY]):
            builder.add(batch.column(0))
        return builder.finish().encode()


BuiltBlooms = Mapping[BaseFile, tuple[str, bytes | None, Spilled | None]]
"""Base file → type of its filter, and its text or where that lies."""


def bloom_records(built: BuiltBlooms, files: Sequence[BaseFile], per_commit: int) -> Iterator[dict[str, Keyed]]:
    """Records of base files' filters, those of ``per_commit`` files at a time; once none for a table without files."""
    for start in range(0, max(len(files), 1), per_commit):
        records: Keyed = []
        for base in files[start : start + per_commit]:
            kind, text, spill = built[base]
            key = bloom_key(base.partition, base.name)
            if spill is not None:
                records.append((key, SpilledBloom(spill, kind, base.instant)))
            else:
                records.append((key, bloom_record(kind, base.instant, text or b"")))
        yield {BLOOM_FILTERS.name: records}
