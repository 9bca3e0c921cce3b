"""Deleting rows for good: a delete, and a look at what still holds the rows afterwards.

A delete writes new versions of the files that held the rows. The old versions stay, with all that time travel can read,
until a cleaner removes them. They are looked into as a write looks for its keys: key ranges, bloom filters, key column.

Memory: the driver holds up to ``PROOF_KEYS`` keys; the frame of keys stays with the engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.engine import Frame
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.names import parse_base_file_name
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.write.actions import Deletion, Staged
from lakedex.write.key_ranges import find_key_ranges
from lakedex.write.pipeline import run_write
from lakedex.write.prepare import FILE, KEY, PARTITION
from lakedex.write.result import TaggingReport, WriteResult
from lakedex.write.tagging import tag

__all__ = ["PROOF_KEYS", "Erased", "erase_rows"]

PROOF_KEYS = 10_000
"""Up to so many keys the proof is a query that names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What a delete did, and what holds the rows still.

    Attributes:
        result: the delete.
        snapshot: the table as the delete left it.
        keys: the distinct keys with their partition paths (null for any), if they are few.
        found_again: keys that a new look found in the current files, if they are many.
        held_by: older base files that hold a row of one of the keys.
        looked_at: older base files that there are.
    """

    result: WriteResult
    snapshot: Snapshot
    keys: pa.Table | None
    found_again: int | None
    held_by: tuple[BaseFile, ...]
    looked_at: int


def erase_rows(handle: TableHandle, data: Any, deletion: Deletion, options: WriteOptions) -> Erased:
    """Delete the rows of the keys in a frame and look for them again."""
    started = time.perf_counter()
    engine = handle.engine
    with Staged(handle, data, deletion.prepare) as frame:
        result = run_write(handle, deletion.plan(frame), options, started)
        now = handle.snapshot()
        snapshot = now if result.instant is None else now.at(result.instant)
        # A pair comes once for each task that has it.
        pairs = engine.collect(engine.map(frame, _Distinct())).group_by([KEY, PARTITION]).aggregate([])
        few, matches = pairs.num_rows <= PROOF_KEYS, TaggingReport()
        if not few:
            _holding(handle, frame, snapshot, deletion, options, matches)
        old = _older(now, snapshot)
        held = _holding(handle, frame, old, deletion, options, TaggingReport())
    return Erased(
        result=result,
        snapshot=snapshot,
        keys=pairs if few else None,
        found_again=None if few else matches.matches,
        held_by=tuple(held),
        looked_at=len(old.slices()),
    )


def _older(now: Snapshot, snapshot: Snapshot) -> Snapshot:
    """The base files that are still there and that the table does not have any more."""
    current = {(base.partition, base.name) for base in snapshot.base_files()}
    slices = []
    for partition, files in now.listing().items():
        for name, size in files.items():
            parsed = parse_base_file_name(name)
            if parsed is None or (partition, name) in current or not now.timeline.is_committed(parsed.instant):
                continue
            base = BaseFile(partition, name, size, parsed.file_id, parsed.instant)
            slices.append(FileSlice(partition, parsed.file_id, parsed.instant, base))
    return now.with_slices(slices)


def _holding(
    handle: TableHandle,
    frame: Frame,
    snapshot: Snapshot,
    deletion: Deletion,
    options: WriteOptions,
    report: TaggingReport,
) -> list[BaseFile]:
    """Base files of a snapshot that hold a row of one of the keys."""
    engine = handle.engine
    files = find_key_ranges(engine, snapshot, options, report, None)
    if not files:
        return []
    tags = tag(engine, frame, snapshot, files, options, report, any_partition=deletion.any_partition)
    numbers = engine.collect(engine.map(tags.frame, _FilesOnly())).column(0).to_numpy()
    return [files[number].base for number in np.unique(numbers).tolist()]


@dataclass(frozen=True, slots=True)
class _Distinct:
    """Up to one key more than are proved one by one, with their partitions."""

    @property
    def schema(self) -> pa.Schema:
        """(key, partition)."""
        return pa.schema([(KEY, pa.string()), (PARTITION, pa.string())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's."""
        held = pa.Table.from_batches([], self.schema)
        for batch in batches:
            own = pa.Table.from_batches([batch.select([0, 1])], self.schema)
            held = pa.concat_tables([held, own]).group_by([KEY, PARTITION]).aggregate([]).select([KEY, PARTITION])
            if held.num_rows > PROOF_KEYS:
                break
        yield from held.slice(0, PROOF_KEYS + 1).to_batches()


@dataclass(frozen=True, slots=True)
class _FilesOnly:
    """The files that hold a key, each once a batch."""

    @property
    def schema(self) -> pa.Schema:
        """(file number)."""
        return pa.schema([(FILE, pa.int32())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's."""
        for batch in batches:
            yield pa.RecordBatch.from_arrays([batch.column(0).unique()], schema=self.schema)
