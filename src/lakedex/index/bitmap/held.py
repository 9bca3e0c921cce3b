"""The coverage of a table's bitmap index, kept from query to query, and which of a view's slices it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lakedex.index.bitmap.coverage import Coverage
from lakedex.index.bitmap.definitions import BitmapDefinition, read_bitmap_definitions
from lakedex.index.bitmap.runs import RunFolder, list_runs
from lakedex.layout.slice_table import SliceTable
from lakedex.metadata.file_view import FileView
from lakedex.metadata.snapshot import Snapshot
from lakedex.types import IntArray

__all__ = ["HeldIndex", "held_index"]

_NAME = "bitmap"
_NOT_LOOKED_FOR = -2


@dataclass(frozen=True, slots=True)
class HeldIndex:
    """The bitmap index of a snapshot.

    Attributes:
        definitions: by name.
        coverage: what its runs say. Take its lock for calls and arrays.
        folder: the runs as they were listed for that.
    """

    definitions: dict[str, BitmapDefinition]
    coverage: Coverage
    folder: RunFolder

    @property
    def columns(self) -> frozenset[str]:
        """Columns with bitmaps."""
        return frozenset(column for index in self.definitions.values() for column in index.columns)

    def files(self, snapshot: Snapshot, rows: IntArray) -> IntArray:
        """Per slice of the view the number of its covered base file. Call with the lock of the coverage held.

        Negative where no run speaks of it, or where log files change what the base file says.
        """
        view = snapshot.view()
        with view.lock:
            held = view.derived.get(_NAME)
            if not isinstance(held, _SliceFiles) or held.coverage is not self.coverage:
                held = _SliceFiles.of(self.coverage, view.table)
                view.derived[_NAME] = held
            return held.found(view.table)[rows]


def held_index(snapshot: Snapshot) -> HeldIndex | None:
    """The bitmap index as it is now: one read and one listing, and what was not read before. None without one.

    Raises:
        CorruptFileError: damaged definitions, or a damaged manifest.
    """
    definitions = read_bitmap_definitions(snapshot.storage, snapshot.base_path)
    if not definitions:
        return None
    cache = snapshot.cache
    with cache.lock:
        coverage = cache.held.get(_NAME)
        if not isinstance(coverage, Coverage) or coverage.is_worn:
            coverage = Coverage(snapshot.storage, snapshot.base_path, cache)
            cache.held[_NAME] = coverage
    folder = list_runs(snapshot.storage, snapshot.base_path)
    with coverage.lock:
        coverage.refresh(folder)
    return HeldIndex(definitions, coverage, folder)


@dataclass(slots=True, eq=False)
class _SliceFiles:
    """Numbers of the slices' base files in a coverage; moves from view to view with them."""

    coverage: Coverage
    numbers: IntArray
    seen: int

    @classmethod
    def of(cls, coverage: Coverage, table: SliceTable) -> _SliceFiles:
        return cls(coverage, np.full(len(table), _NOT_LOOKED_FOR, np.int64), 0)

    def found(self, table: SliceTable) -> IntArray:
        """The numbers; slices that were not found before are looked for again when coverage has grown."""
        known = len(self.coverage.files)
        missing = np.flatnonzero(self.numbers < (0 if known > self.seen else -1))
        if len(missing):
            numbers = self.coverage.numbers
            bases = [item.base_file for item in table.take(missing)]
            # With the partition: Hudi's bucket index may give file groups of two partitions one id.
            self.numbers[missing] = [-1 if b is None else numbers.get((b.partition, b.name), -1) for b in bases]
            self.numbers[table.has_logs] = -1
        self.seen = known
        return self.numbers

    def carried(self, older: FileView, newer: FileView, store: Any) -> _SliceFiles:
        """The same for a newer view: new slices are looked for."""
        rows = newer.table.rows_in(older.table)
        numbers = np.where(rows >= 0, self.numbers[np.maximum(rows, 0)] if len(self.numbers) else -1, _NOT_LOOKED_FOR)
        return _SliceFiles(self.coverage, numbers, self.seen)
