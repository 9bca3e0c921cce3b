"""What a table does about its indexes, and about rows that have to be gone. Every method delegates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from lakedex.index.bitmap.stats import BitmapIndexStats
from lakedex.index.registry import IndexStats, index_stats, list_indexes
from lakedex.maintenance import index_lifecycle
from lakedex.maintenance.index_validation import validate_index
from lakedex.maintenance.metadata_rebuild import rebuild_metadata
from lakedex.maintenance.validate_table import validate_table
from lakedex.options import WriteOptions
from lakedex.reports import IndexResult, RebuildResult, TableReport, ValidationReport
from lakedex.snapshot.snapshot import TableContext
from lakedex.write.erase import EraseReport, erase
from lakedex.write.session import Session

__all__ = ["Maintained"]


class Maintained:
    """A part of :class:`lakedex.Table`."""

    _handle: TableContext
    _session: Session
    _options: dict[str, Any]

    def _parsed(self, options: Mapping[str, Any] | None, operation: str = "") -> WriteOptions:
        raise NotImplementedError

    def indexes(self) -> pa.Table:
        """The table's indexes: name, using, columns, state, and whether lakedex keeps it up when it writes."""
        return list_indexes(self._handle.snapshot())

    def refresh_index(
        self,
        name: str,
        partitions: Sequence[str | Mapping[str, Any]] | str | Mapping[str, Any] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> IndexResult:
        """Cover the files that a bitmap index does not cover: others wrote them, or a build was cut short.

        Raises:
            IndexNotFoundError: the table does not have it.
            UnsupportedFeatureError: an index of another kind.
        """
        return index_lifecycle.refresh_index(
            self._handle, self._options, name, partitions=partitions, progress=progress
        )

    def drop_index(self, name: str, *, if_exists: bool = False) -> IndexResult:
        """Take an index out of the table; also one that lakedex does not keep up, so that the table can be written.

        Raises:
            IndexNotFoundError: the table does not have it.
        """
        return index_lifecycle.drop_index(self._handle, self._options, name, if_exists=if_exists)

    def index_stats(self, name: str) -> IndexStats | BitmapIndexStats:
        """Entries, files covered and not covered, and bytes of an index.

        Raises:
            IndexNotFoundError: the table does not have it.
        """
        return index_stats(self._handle.snapshot(), name)

    def validate_index(
        self,
        name: str,
        *,
        files: int | Sequence[str] | None = None,
        repair: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ValidationReport:
        """Compare an index with the data; each compared file is read.

        Args:
            name: a bitmap index, ``column_stats`` or ``bloom_filters``.
            files: None for all base files, a number for a sample, or names of base files.
            repair: write entries that are wrong anew, and take damaged files out of a bitmap index.
            progress: called with the number of files compared and of all.

        Raises:
            IndexNotFoundError: the table does not have it.
            UnsupportedFeatureError: an index of another kind.
        """
        options = self._parsed(None)
        return validate_index(self._handle, options, name, files=files, repair=repair, progress=progress)

    def validate(
        self, files: int | None = None, footers: bool = True, progress: Callable[[int, int], None] | None = None
    ) -> TableReport:
        """Compare the table's metadata with its files, their footers and its timeline, and say each difference.

        The listing in ``files`` against storage and completed commits; each index of the metadata table, and each
        bitmap index, against base files; definitions against settings; the metadata's timeline against the table's.

        Args:
            files: how many base files are opened, spread evenly over the table; None for all.
            footers: open base files: compare filters with their footers, bounds and bitmaps with their values. False
                compares what a listing and the metadata tell.
            progress: called with the number of files done and of all, for each index from the start.
        """
        return validate_table(self._handle, self._parsed(None), files=files, footers=footers, progress=progress)

    def rebuild_metadata(
        self, *, progress: Callable[[int, int], None] | None = None, options: Mapping[str, Any] | None = None
    ) -> RebuildResult:
        """Make the metadata table anew: its list of files from storage and the timeline, its indexes from the data.

        Nobody has to wait: meanwhile readers list storage, and writes go on. Indexes are those that the table lists;
        if it lists none, those that the options ask for. Runs of bitmap indexes stay, and files that they do not cover
        are covered. A write does the same by itself where the metadata table is missing or not whole.

        Args:
            progress: called with the number of files done and of all, for each index from the start.
            options: ``hoodie.*`` options of this call.

        Raises:
            CommitConflictError: a write of another engine is under way.
            UnsupportedFeatureError: lakedex does not write this table.
        """
        result = rebuild_metadata(self._handle, self._parsed(options, "rebuild_metadata"), progress)
        self._session.refresh_views(self._handle.base_path)
        return result

    def erase(
        self,
        keys: Any = None,
        where: str | None = None,
        *,
        all_partitions: bool = False,
        proof: Literal["full", "index"] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> EraseReport:
        """Delete rows and prove it; the report also says which files and commits hold them still.

        The indexes find the files, and only those that hold a row are rewritten. As with :meth:`delete`, rows go by
        their keys: where ``insert`` has made two rows of one key, both go.

        Args:
            keys: a frame with the key columns, as :meth:`delete` takes it, or a list of keys: values, tuples where
                the key has several columns, or dictionaries.
            where: SQL text, instead of keys.
            all_partitions: erase the keys in whatever partition they are; without it the keys of a partitioned table
                come with their partition columns, unless its index is global.
            proof: ``full`` reads every file for the proof, ``index`` those that the indexes name; None takes ``full``
                up to 1 GiB. More than 10,000 keys are looked for by the indexes.
            options: ``hoodie.*`` options of this call.

        Raises:
            InvalidInputError: neither or both of keys and a condition, or keys that do not fit the table.
            CommitConflictError: another writer committed after the rows of a condition were read.
        """
        parsed = self._parsed(options, "erase")
        report = erase(self._handle, self._session, keys, where, parsed, proof, all_partitions=all_partitions)
        self._session.refresh_views(self._handle.base_path)
        return report
