"""The file slices of a table that hold a key of some rows, for operations that join these rows with the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakedex.engine import Frame
from lakedex.layout.file_slice import FileSlice
from lakedex.options import TaggingOptions
from lakedex.reports import TaggingReport
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.candidates import find_key_ranges
from lakedex.tagging.keyed_rows import FILE, PARTITION
from lakedex.tagging.tagging import tag

__all__ = ["slices_of_keys"]


def slices_of_keys(
    handle: TableContext,
    snapshot: Snapshot,
    keyed: Frame,
    options: TaggingOptions,
    report: TaggingReport,
    *,
    with_partitions: bool,
) -> list[FileSlice]:
    """The slices that hold a key.

    Args:
        handle: the table.
        snapshot: its state.
        keyed: prepared rows (key, partition path, position, …); null keys are nowhere.
        options: which levels of tagging to use.
        report: is filled in.
        with_partitions: a key is looked for in the partition of its row, else in the whole table.
    """
    engine, partitions = handle.engine, None
    if with_partitions:
        seen = engine.collect(engine.map(keyed, _Distinct(PARTITION, pa.string(), 1)))
        partitions = sorted({path for path in seen.column(0).to_pylist() if path is not None})
    files = find_key_ranges(engine, snapshot, options, report, partitions)
    if not files:
        return []
    tags = tag(engine, keyed, snapshot, files, options, report, handle.limits, any_partition=not with_partitions)
    try:
        found = engine.collect(engine.map(tags.frame, _Distinct(FILE, pa.int32(), 0)))
    finally:
        engine.release(tags.cached)
    wanted = {(files[number].base.partition, files[number].base.file_id) for number in set(found.column(0).to_pylist())}
    return [item for item in snapshot.slices(partitions) if (item.partition, item.file_id) in wanted]


@dataclass(frozen=True, slots=True)
class _Distinct:
    """The values of one column, each once a batch."""

    name: str
    kind: pa.DataType
    place: int

    @property
    def schema(self) -> pa.Schema:
        """One column."""
        return pa.schema([(self.name, self.kind)])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's."""
        for batch in batches:
            yield pa.RecordBatch.from_arrays([batch.column(self.place).unique()], schema=self.schema)
