"""The files and byte ranges of a catalog scan, in Spark's own classes.

A reader of a byte range takes a row group if its middle is in the range: the first byte of its first column, plus half
of its bytes (``ParquetMetadataConverter.filterFileMetaDataByMidpoint`` of parquet-mr).

Tasks read with the reader factory of Spark's ``ParquetScan``, so rows stay columnar. Memory: 16 bytes for each range,
and Spark's own ``PartitionedFile`` for each part of a file.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.builder import RowGroup
from lakedex.parquet.base_file_reader import read_footer
from lakedex.scan.plan import ScanPlan
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.jvm import FileStatuses, JavaObject
from lakedex.spark.reader import REBASE, qualified
from lakedex.timeline.instant import instant_to_epoch_ms

__all__ = [
    "FileRanges",
    "PartsBatch",
    "PrunedFiles",
    "choose_files",
    "file_index",
    "no_files",
    "ranges_of",
    "row_group_ranges",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRanges:
    """The byte ranges read of one base file.

    Attributes:
        ranges: first byte and length of each range; whole row groups. Without any, nothing is read.
        kept, total: row groups that are read, and that the file has.
    """

    ranges: tuple[tuple[int, int], ...]
    kept: int
    total: int

    @property
    def length(self) -> int:
        """Bytes that are read at most."""
        return sum(length for _, length in self.ranges)


def row_group_ranges(snapshot: Snapshot, plan: ScanPlan) -> Mapping[str, FileRanges]:
    """Per path of a base file its row groups that may hold a matching row; files that are not named are read whole."""
    found = {}
    for base in plan.files:
        selection = plan.selections.get(base.name)
        part = None if selection is None or selection.logs else ranges_of(selection.groups, selection.kept_groups())
        if part is not None:
            found[snapshot.files.path(base.relative_path)] = part
    return found


def ranges_of(groups: Sequence[RowGroup], kept: Sequence[int]) -> FileRanges | None:
    """The ranges of some row groups, neighbours in one; None where the file is to be read whole.

    That is also where row groups do not follow each other in the file: a range might then hold the middle of another.
    """
    if len(kept) == len(groups) or not _in_order(groups):
        return None
    ranges: list[tuple[int, int]] = []
    previous = None
    for number in sorted(kept):
        begin, end = groups[number].start, groups[number].start + groups[number].size
        if number - 1 == previous:
            begin = ranges.pop()[0]
        ranges.append((begin, end - begin))
        previous = number
    return FileRanges(ranges=tuple(ranges), kept=len(kept), total=len(groups))


def _in_order(groups: Sequence[RowGroup]) -> bool:
    return all(one.start + max(one.size, 1) <= other.start for one, other in itertools.pairwise(groups))


_FILES = "org.apache.spark.sql.execution.datasources."


MOST_FOOTERS = 16
"""Footers that a limit may open to find out how many rows files have."""


@dataclass(frozen=True, slots=True)
class PrunedFiles:
    """Files that a scan reads.

    Attributes:
        entries: path, size, modification time in epoch milliseconds of each.
        parts: those of them that are not read whole, by path.
    """

    entries: list[tuple[str, int, int]] = field(default_factory=list)
    parts: Mapping[str, FileRanges] = field(default_factory=dict)

    def statuses(self) -> FileStatuses:
        """The files as Hadoop writes them."""
        paths, sizes, times = zip(*self.entries, strict=True) if self.entries else ((), (), ())
        return FileStatuses.of(paths, sizes, times)

    @property
    def digest(self) -> str:
        """Tells these files, and what is read of them, from any others."""
        lines = [path for path, _, _ in self.entries]
        lines += [f"{path}\t{part.ranges}" for path, part in sorted(self.parts.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    @property
    def bytes_total(self) -> int:
        """Size of the files."""
        return sum(size for _, size, _ in self.entries)

    @property
    def bytes_read(self) -> int:
        """Size of what is read of them."""
        sizes = {path: size for path, size, _ in self.entries}
        return self.bytes_total - sum(sizes[path] - part.length for path, part in self.parts.items())

    @property
    def row_groups(self) -> tuple[int, int]:
        """Row groups that are read, and that there are, of the files that are not read whole."""
        return sum(part.kept for part in self.parts.values()), sum(part.total for part in self.parts.values())

    def of(self, parts: Mapping[str, FileRanges]) -> PrunedFiles:
        """The files, not read whole where ``parts`` names them."""
        own = {path for path, _, _ in self.entries}
        return PrunedFiles(self.entries, {path: part for path, part in parts.items() if path in own})


def choose_files(snapshot: Snapshot, plan: ScanPlan, most_rows: int | None) -> PrunedFiles:
    """The plan's files; under a limit as many as surely have the rows."""
    bases = list(plan.files)
    if most_rows is not None and len(bases) > 1:
        rows = 0
        for number, base in enumerate(bases[:MOST_FOOTERS], start=1):
            rows += read_footer(snapshot.files.storage, snapshot.files.path(base.relative_path)).rows
            if rows >= most_rows:
                bases = bases[:number]
                break
    return PrunedFiles(
        [
            (
                snapshot.files.path(base.relative_path),
                base.size,
                # A base file never changes, so its instant serves as its modification time.
                instant_to_epoch_ms(base.instant, snapshot.config.timezone),
            )
            for base in bases
        ]
    )


def file_index(bridge: JavaBridge, base_path: str, columns: StructType, files: PrunedFiles) -> JavaObject:
    """An ``InMemoryFileIndex`` of just these files.

    Its root is a folder that does not exist and stands for these files alone: indexes of one root are equal to Spark.
    What it would list there is in its cache already.
    """
    view = bridge.view
    datasources = view.org.apache.spark.sql.execution.datasources
    root = f"{qualified(base_path)}/.hoodie/.lakedex-{files.digest}"
    path = view.org.apache.hadoop.fs.Path(root)
    cache = datasources.SharedInMemoryCache(1 << 50, -1).createForNewClient()
    cache.putLeafFiles(path, bridge.java.statuses(files.statuses().joined(), len(files.entries)))
    # Without recursion Spark looks for partition columns in the folders' names.
    options = bridge.utils.toScalaMap({**REBASE, "recursiveFileLookup": "true"})
    schema = view.scala.Option.apply(bridge.struct(columns))
    roots = bridge.utils.toSeq([path])
    index = datasources.InMemoryFileIndex(bridge.session, roots, options, schema, cache, bridge.none, bridge.none)
    listed = index.allFiles().size()
    if listed != len(files.entries):
        raise CorruptFileError(root, 0, f"a file index of {len(files.entries)} files", f"{listed} files")
    return index


def no_files(bridge: JavaBridge) -> JavaObject:
    """A file index without files."""
    datasources = bridge.view.org.apache.spark.sql.execution.datasources
    cache = getattr(bridge.view, f"{_FILES}NoopCache$")
    nothing = bridge.utils.toSeq([])
    kept = getattr(cache, "MODULE$")
    options = bridge.utils.toScalaMap({})
    return datasources.InMemoryFileIndex(bridge.session, nothing, options, bridge.none, kept, bridge.none, bridge.none)


class PartsBatch(JavaProxy):
    """A batch whose partitions are those of another one, narrowed to parts of its files."""

    interfaces = ("org.apache.spark.sql.connector.read.Batch",)

    def __init__(self, bridge: JavaBridge, identity: str, batch: JavaObject, parts: Mapping[str, FileRanges]) -> None:
        super().__init__(bridge, identity)
        self._batch = batch
        self._parts = parts

    def planInputPartitions(self) -> JavaObject:
        """Parts of files, split and packed by Spark's settings as whole files are."""
        return self._bridge.java.parts(self._bridge.session, self._batch, encode_parts(self._parts))

    def createReaderFactory(self) -> JavaObject:
        """Spark's."""
        return self._batch.createReaderFactory()


def encode_parts(parts: Mapping[str, FileRanges]) -> bytes:
    """The parts as a ``DataInputStream`` reads them: number of files; per file its path and its ranges."""
    encoded = [struct.pack(">i", len(parts))]
    for path, part in parts.items():
        name = qualified(path).encode()
        numbers = [number for pair in part.ranges for number in pair]
        encoded += [struct.pack(">i", len(name)), name, struct.pack(f">i{len(numbers)}q", len(numbers), *numbers)]
    return b"".join(encoded)
