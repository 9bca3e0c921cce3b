"""Which row groups of a plan's files are read, as the byte ranges that Spark gives to its Parquet reader.

A reader of a range takes a row group if its middle lies there: the first byte of its first column, plus half of its
bytes (``ParquetMetadataConverter.filterFileMetaDataByMidpoint`` of parquet-mr).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakedex.index.bitmap.builder import RowGroup
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import ScanPlan

__all__ = ["FileRanges", "ranges_of", "row_group_ranges"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRanges:
    """What is read of one base file.

    Attributes:
        ranges: first byte and length of each range; whole row groups. None of them means that nothing is read.
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
        part = None if selection is None else ranges_of(selection.groups, selection.kept_groups())
        if part is not None:
            found[f"{snapshot.base_path}/{base.relative_path}"] = part
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
