"""Hashes of incoming keys, made for several small file groups at once: hashing few keys is nearly all calls.

Memory: the rows of groups that are hashed together, and some hundred bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lakedex.codec.bloom import HashedKeys, filter_size, hash_keys
from lakedex.codec.bloom_sizing import BloomSizing
from lakedex.errors import InvalidInputError
from lakedex.write.prepare import KEY

__all__ = ["with_hashes"]

TOGETHER_ROWS = 8192
SMALL_ROWS = 4096
"""Groups of more rows have nothing to gain."""

Group = tuple[int, pa.RecordBatch]


def with_hashes(
    groups: Iterable[Group], sizing: BloomSizing
) -> Iterator[tuple[int, pa.RecordBatch, HashedKeys | None]]:
    """Numbers and rows of file groups, and the hashes of the rows' keys where they were made.

    Args:
        groups: the groups.
        sizing: which filters their files get.
    """
    held: list[Group] = []
    rows = 0
    for number, batch in groups:
        if held and rows + batch.num_rows > TOGETHER_ROWS:
            yield from _hashed(held, sizing)
            held, rows = [], 0
        held.append((number, batch))
        rows += batch.num_rows
        if batch.num_rows > SMALL_ROWS:
            yield from _hashed(held, sizing)
            held, rows = [], 0
    yield from _hashed(held, sizing)


def _hashed(held: list[Group], sizing: BloomSizing) -> Iterator[tuple[int, pa.RecordBatch, HashedKeys | None]]:
    small = [batch for _, batch in held if 0 < batch.num_rows <= SMALL_ROWS]
    found = _hash(small, sizing) if len(small) > 1 else None
    start = 0
    for number, batch in held:
        if found is None or not 0 < batch.num_rows <= SMALL_ROWS:
            yield number, batch, None
            continue
        yield number, batch, found.slice(start, batch.num_rows)
        start += batch.num_rows


def _hash(batches: list[pa.RecordBatch], sizing: BloomSizing) -> HashedKeys | None:
    entries = sizing.num_entries or min(batch.num_rows for batch in batches)
    keys = [batch.column(batch.schema.get_field_index(KEY)) for batch in batches]
    try:
        return hash_keys(pa.concat_arrays(keys), filter_size(entries, sizing.fpp)[1])
    except InvalidInputError:
        return None  # Who writes the group with the bad key says which it is.
