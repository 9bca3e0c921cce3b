"""Coverage of log files: the rows of the base file that their records are for, and the rows of a slice that follow.

A row of a base file that no log record is for is as its bitmaps say: *untouched* rows are never merged. Of the others
and of the log's own rows bitmaps say nothing; coverage has the values that a log file holds, with their rows, as it has
those of a base file.

A *logs* block has an entry for each entry of the files block of the same number, an empty one for a base file. A log
file's entry in the files block has its name as ``base_file``, the rows of its data blocks as ``rows``, and no row
groups. Releases that do not know the block find entries of files that are no base file of a slice, and look at none.

    ============  ====================  ============================================================
    logs block    type                  content
    ============  ====================  ============================================================
    base_file     dictionary of string  the base file that the rows are of
    instant       string                of all blocks
    size          int64                 of the log file, in bytes
    deletes       int64                 keys that it deletes
    new           int64                 records of keys that the base file does not have
    older         int64                 log files of the slice before it with whose rows its records were compared: all
                                        of them beat what was there. Negative where this is not known
    touched       binary                rows that its records are for: portable roaring bytes; empty where not known
    ============  ====================  ============================================================

An entry counts only in a slice of this base file that has the log file in this size, if its instant counts there.

Memory: the bytes of ``touched`` of each covered log file, and of a slice that was asked about their union.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lakedex.codec.roaring import deserialize_bitmap
from lakedex.errors import CorruptFileError
from lakedex.layout.file_slice import FileSlice
from lakedex.types import BoolArray, IntArray

__all__ = [
    "LOGS_SCHEMA",
    "UNORDERED",
    "CoveredLog",
    "SliceLogs",
    "covered_logs",
    "is_log",
    "joined",
    "logs_block",
    "slice_logs",
]


LOGS_SCHEMA = pa.schema(
    [
        ("base_file", pa.dictionary(pa.int32(), pa.string())),
        ("instant", pa.string()),
        ("size", pa.int64()),
        ("deletes", pa.int64()),
        ("new", pa.int64()),
        ("older", pa.int64()),
        ("touched", pa.binary()),
    ]
)
"""Of a logs block."""


UNORDERED = -1
"""In the place of ``older``: records of the log file may lose against what was there."""


def is_log(name: str) -> bool:
    """Whether a covered file is a log file, by its name."""
    return name.startswith(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredLog:
    """A log file as a run knows it, besides the values of its rows; the fields of a logs block.

    Attributes:
        base_file: the base file that the rows are of.
        instant: of all of its blocks.
        size: in bytes.
        deletes: keys that it deletes.
        new: records of keys that the base file does not have.
        older: log files before it in its slice that its records were compared with; negative where they were not.
        touched: portable roaring bytes of the rows that its records are for; empty where that is not known.
    """

    base_file: str
    instant: str
    size: int
    deletes: int = 0
    new: int = 0
    older: int = UNORDERED
    touched: bytes = b""


_NONE = CoveredLog(base_file="", instant="", size=0)


def logs_block(logs: Sequence[CoveredLog | None]) -> pa.Table | None:
    """The logs block of some files, None for base files; None if there is no log file among them."""
    if not any(logs):
        return None
    found = [_NONE if log is None else log for log in logs]
    columns = {name: [getattr(log, name) for log in found] for name in LOGS_SCHEMA.names}
    names = pa.array(columns["base_file"], pa.string()).dictionary_encode()
    return pa.table({**columns, "base_file": names}, schema=LOGS_SCHEMA)


def covered_logs(block: pa.Table) -> list[CoveredLog | None]:
    """The entries of a logs block, None for base files."""
    found = [CoveredLog(**row) for row in block.to_pylist()]
    return [log if log.base_file else None for log in found]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SliceLogs:
    """The log files of a slice, each known, and the rows of its base file that they leave as they are.

    Attributes:
        names: of the log files, oldest first.
        numbers: their numbers in coverage.
        touched: rows of the base file that a log record is for. All others are as they are in the base file.
        is_ordered: whether each record beats all before it, so that no touched row is as it is in the base file.
        disjoint: of each log file, whether no newer one has a record for a key of its records.
        live: of each log file, how many of its rows are in the table; negative where that is not known.
    """

    names: tuple[str, ...]
    numbers: IntArray
    touched: BitMap
    is_ordered: bool
    disjoint: BoolArray
    live: IntArray


def slice_logs(
    item: FileSlice,
    base_rows: int,
    known: Callable[[str], tuple[int, int, CoveredLog] | None],
    counts: Callable[[str], bool],
    by_commit_time: bool,
) -> SliceLogs | None:
    """Put together what is known of a slice's log files.

    Args:
        item: the slice.
        base_rows: rows of its base file.
        known: gives for a log file's name its number, the rows of its data blocks, and what a run says of it.
        counts: whether blocks of an instant are read.
        by_commit_time: whether newer records always win.

    Returns:
        None if something that is needed is not known, or cannot be: then the slice may have any row.
    """
    if item.base_file is None:
        return None
    found: list[tuple[int, int, CoveredLog]] = []
    for log in item.log_files:
        one = known(log.name)
        if one is None or one[2].size != log.size or one[2].base_file != item.base_file.name:
            return None
        if not one[2].touched or not counts(one[2].instant):
            return None
        found.append(one)
    newer, new_later = BitMap(), False
    disjoint, live = np.zeros(len(found), bool), np.full(len(found), -1, np.int64)
    for place in range(len(found) - 1, -1, -1):
        _, rows, entry = found[place]
        try:
            own = deserialize_bitmap(entry.touched, rows=base_rows)
        except CorruptFileError:
            return None
        if min(rows, entry.deletes, entry.new) < 0 or rows + entry.deletes != len(own) + entry.new:
            return None  # A key that it has twice, or forged numbers.
        again = own.intersection_cardinality(newer)
        alone = not (entry.new and new_later)
        disjoint[place] = alone and not again
        if disjoint[place]:
            live[place] = rows
        elif alone and not entry.deletes:
            live[place] = rows - again
        newer |= own
        new_later |= entry.new > 0
    return SliceLogs(
        names=tuple(log.name for log in item.log_files),
        numbers=np.array([number for number, _, _ in found], np.int64),
        touched=newer,
        is_ordered=by_commit_time or all(log.older == place for place, (_, _, log) in enumerate(found)),
        disjoint=disjoint,
        live=live,
    )


def joined(logs: Mapping[int, SliceLogs]) -> tuple[IntArray, IntArray]:
    """The numbers of the log files of several slices, given by place, and the place of each."""
    none = np.empty(0, np.int64)
    numbers = np.concatenate([none, *(own.numbers for own in logs.values())])
    sizes = [len(own.numbers) for own in logs.values()]
    return numbers, np.repeat(np.fromiter(logs, np.int64, len(logs)), sizes)
