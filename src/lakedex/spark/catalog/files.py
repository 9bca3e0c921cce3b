"""The files of a scan, as Spark's own file index: a listing that is known before anybody lists."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from lakedex.errors import CorruptFileError
from lakedex.layout.base_file import read_footer
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import ScanPlan
from lakedex.spark.catalog.java import JavaSide
from lakedex.spark.catalog.row_groups import FileRanges
from lakedex.spark.jvm import FileStatuses
from lakedex.spark.reader import REBASE, qualified
from lakedex.timeline.instant import instant_to_epoch_ms

__all__ = ["ChosenFiles", "choose_files", "file_index", "no_files"]

_FILES = "org.apache.spark.sql.execution.datasources."
MOST_FOOTERS = 16
"""Footers that a limit may open to find out how many rows files have."""


@dataclass(frozen=True, slots=True)
class ChosenFiles:
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

    def of(self, parts: Mapping[str, FileRanges]) -> ChosenFiles:
        """The files, not read whole where ``parts`` names them."""
        own = {path for path, _, _ in self.entries}
        return ChosenFiles(self.entries, {path: part for path, part in parts.items() if path in own})


def choose_files(snapshot: Snapshot, plan: ScanPlan, most_rows: int | None) -> ChosenFiles:
    """The plan's files; under a limit as many as surely have the rows."""
    bases = list(plan.files)
    if most_rows is not None and len(bases) > 1:
        rows = 0
        for number, base in enumerate(bases[:MOST_FOOTERS], start=1):
            rows += read_footer(snapshot.storage, f"{snapshot.base_path}/{base.relative_path}").rows
            if rows >= most_rows:
                bases = bases[:number]
                break
    return ChosenFiles(
        [
            (
                f"{snapshot.base_path}/{base.relative_path}",
                base.size,
                # A base file never changes, so its instant serves as its modification time.
                instant_to_epoch_ms(base.instant, snapshot.config.timezone),
            )
            for base in bases
        ]
    )


def file_index(side: JavaSide, base_path: str, columns: StructType, files: ChosenFiles) -> Any:
    """An ``InMemoryFileIndex`` of just these files.

    Its root is a folder that does not exist and stands for these files alone: indexes of one root are equal to Spark.
    What it would list there is in its cache already.
    """
    view = side.view
    datasources = view.org.apache.spark.sql.execution.datasources
    root = f"{qualified(base_path)}/.hoodie/.lakedex-{files.digest}"
    path = view.org.apache.hadoop.fs.Path(root)
    cache = datasources.SharedInMemoryCache(1 << 50, -1).createForNewClient()
    cache.putLeafFiles(path, side.bridge.statuses(files.statuses().joined(), len(files.entries)))
    # Without recursion Spark looks for partition columns in the folders' names.
    options = side.utils.toScalaMap({**REBASE, "recursiveFileLookup": "true"})
    schema = view.scala.Option.apply(side.struct(columns))
    roots = side.utils.toSeq([path])
    index = datasources.InMemoryFileIndex(side.session, roots, options, schema, cache, side.none, side.none)
    listed = index.allFiles().size()
    if listed != len(files.entries):
        raise CorruptFileError(root, 0, f"a file index of {len(files.entries)} files", f"{listed} files")
    return index


def no_files(side: JavaSide) -> Any:
    """A file index without files."""
    datasources = side.view.org.apache.spark.sql.execution.datasources
    cache = getattr(side.view, f"{_FILES}NoopCache$")
    nothing = side.utils.toSeq([])
    kept = getattr(cache, "MODULE$")
    options = side.utils.toScalaMap({})
    return datasources.InMemoryFileIndex(side.session, nothing, options, side.none, kept, side.none, side.none)
