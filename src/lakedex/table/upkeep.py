"""What keeps a table's metadata and timeline small: it runs by itself after writes, and here on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakedex.metadata.handle import TableHandle
from lakedex.options import WriteOptions
from lakedex.services.upkeep import ArchivalResult, CompactionResult, archive_table, compact_metadata

__all__ = ["KeptUp"]


class KeptUp:
    """A part of :class:`lakedex.Table`."""

    _handle: TableHandle

    def _parsed(self, options: Mapping[str, Any] | None, operation: str = "") -> WriteOptions:
        raise NotImplementedError

    def compact(self, *, options: Mapping[str, Any] | None = None) -> CompactionResult:
        """Merge the log files of the metadata table into base files now, as Hudi's compaction does.

        Writes do so by themselves every ``hoodie.metadata.compact.max.delta.commits`` (10) commits. The rows of a
        copy-on-write table have nothing to compact.

        Raises:
            UnsupportedFeatureError: a table that lakedex does not write, or a pending log compaction of Hudi's.
            LockTimeoutError: another writer held the table's lock too long.
        """
        return compact_metadata(self._handle, self._parsed(options, "compact"))

    def archive(self, *, options: Mapping[str, Any] | None = None) -> ArchivalResult:
        """Move old instants from the active timelines to the archive now.

        Writes do so by themselves when there are more than ``hoodie.keep.max.commits`` (30) commits, down to
        ``hoodie.keep.min.commits`` (20).

        Raises:
            UnsupportedFeatureError: a table that lakedex does not write.
            LockTimeoutError: another writer held the table's lock too long.
        """
        return archive_table(self._handle, self._parsed(options, "archive"))
