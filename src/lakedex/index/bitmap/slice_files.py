"""The slices of a view as coverage knows them: the number of each base file, and what is known of its log files.

Memory: 8 bytes a slice; for a slice with log files that was asked about, the rows that its log records are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lakedex.errors import UnsupportedFeatureError
from lakedex.index.bitmap.loaded_index import Coverage
from lakedex.index.bitmap.log_coverage import CoveredLog, SliceLogs, slice_logs
from lakedex.layout.file_slice import SliceTable
from lakedex.metadata.store import MetadataStore
from lakedex.snapshot.file_system_view import FileSystemView, ViewCache
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import IntArray

__all__ = ["SliceFiles", "slice_files"]


_NOT_LOOKED_FOR = -2


@dataclass(frozen=True, slots=True, eq=False)
class SliceFiles:
    """Some slices as coverage knows them.

    Attributes:
        files: numbers of their base files; negative where no run speaks of it, or not of all of the log files.
        logs: by place in ``files``, the log files of those that have some and are known.
    """

    files: IntArray
    logs: Mapping[int, SliceLogs]


def slice_files(coverage: Coverage, snapshot: Snapshot, rows: IntArray) -> SliceFiles:
    """Slices of the view, given by row, as coverage knows them. The caller has the lock of the coverage."""
    view = snapshot.view()
    with view.lock:
        cached = view.caches.get(_SliceFiles)
        if cached is None or cached.coverage is not coverage:
            cached = view.caches.put(_SliceFiles.of(coverage, view.table))
        numbers, logs = cached.found(view.table, snapshot)[rows], cached.logs
        places = ((place, row) for place, row in enumerate(rows.tolist()) if row in logs) if logs else ()
        return SliceFiles(numbers, {place: logs[row] for place, row in places})


@dataclass(slots=True, eq=False)
class _SliceFiles(ViewCache):
    """Numbers of the slices' base files in a coverage; moves from view to view with them."""

    coverage: Coverage
    numbers: IntArray
    seen: int
    changes_seen: int = 0
    logs: dict[int, SliceLogs] = field(default_factory=dict)

    @classmethod
    def of(cls, coverage: Coverage, table: SliceTable) -> _SliceFiles:
        numbers = np.full(len(table), _NOT_LOOKED_FOR, np.int64)
        return cls(coverage, numbers, 0, coverage.changes_of_logs)

    def found(self, table: SliceTable, snapshot: Snapshot) -> IntArray:
        """The numbers; slices that were not found before are looked for again when coverage has grown."""
        known = len(self.coverage.files)
        if self.changes_seen != self.coverage.changes_of_logs:
            self.numbers[table.has_logs] = _NOT_LOOKED_FOR
            self.changes_seen = self.coverage.changes_of_logs
        missing = np.flatnonzero(self.numbers < (0 if known > self.seen else -1))
        if len(missing):
            numbers = self.coverage.numbers
            bases = [item.base_file for item in table.take(missing)]
            # With the partition: Hudi's bucket index may give file groups of two partitions one id.
            self.numbers[missing] = [-1 if b is None else numbers.get((b.partition, b.name), -1) for b in bases]
            self._look_at_logs(table, missing[table.has_logs[missing]], snapshot)
        self.seen = known
        return self.numbers

    def _look_at_logs(self, table: SliceTable, rows: IntArray, snapshot: Snapshot) -> None:
        """Put together what is known of the log files of some slices; one that is not makes its slice unknown."""
        merge = _merge_settings(snapshot) if len(rows) else None
        coverage = self.coverage
        for row, item in zip(rows.tolist(), table.take(rows), strict=True):
            number, found = int(self.numbers[row]), None

            def known(name: str, partition: str = item.partition) -> tuple[int, int, CoveredLog] | None:
                own = coverage.numbers.get((partition, name), -1)
                log = coverage.logs.get(own)
                return None if log is None else (own, int(coverage.rows[own]), log)

            if number >= 0 and merge is not None:
                by_commit_time = not merge.ordering_fields
                found = slice_logs(item, int(coverage.rows[number]), known, merge.counts, by_commit_time)
            if found is None:
                self.numbers[row] = -1
                self.logs.pop(row, None)
            else:
                self.logs[row] = found

    def carry_over(self, older: FileSystemView, newer: FileSystemView, store: MetadataStore) -> _SliceFiles:
        """The same for a newer view: new slices are looked for."""
        rows = newer.table.rows_in(older.table)
        numbers = np.where(rows >= 0, self.numbers[np.maximum(rows, 0)] if len(self.numbers) else -1, _NOT_LOOKED_FOR)
        logs: dict[int, SliceLogs] = {}
        if newer.token.config == older.token.config and newer.token.config.version >= 8:
            logs = {row: self.logs[old] for row, old in enumerate(rows.tolist()) if old in self.logs}
        else:
            # In version 6 a log file's name does not tell its commit, so the slice is the same after a rollback.
            numbers[newer.table.has_logs] = _NOT_LOOKED_FOR
        return _SliceFiles(self.coverage, numbers, self.seen, self.changes_seen, logs)


def _merge_settings(snapshot: Snapshot) -> MergeSettings | None:
    """How log records are merged; None where lakedex does not know how, so that nothing is known of a merged row."""
    try:
        return MergeSettings.of(snapshot)
    except UnsupportedFeatureError:
        return None
