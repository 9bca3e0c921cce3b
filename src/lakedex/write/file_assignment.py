"""Where rows go: known keys to their file, new keys to small files first, then to new file groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.bloom import hash_keys
from lakedex.errors import CommitError
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.names import new_file_id
from lakedex.options import FileOptions
from lakedex.tagging.keyed_rows import ACTION, FILE, KEY, LOCATED, PARTITION, RowAction

__all__ = [
    "AssignFileGroups",
    "AttachFile",
    "FileAssignment",
    "FileGroupTarget",
    "InsertBuckets",
    "NewRows",
    "assign_inserts",
    "key_numbers",
]


@dataclass(frozen=True, slots=True)
class FileGroupTarget:
    """A file group that this write makes or changes.

    Attributes:
        partition, file_id: the group.
        base: its current base file; None for a new group.
        expected_rows: rows that the new base file will have.
        item: its slice, where that may have log files.
        appends: the rows go to a new log file of that slice; else to a new base file of all its rows.
        service: instant of a pending compaction of the group, which no new base file may overtake; None for none.
    """

    partition: str
    file_id: str
    base: BaseFile | None = None
    expected_rows: int = 0
    item: FileSlice | None = None
    appends: bool = False
    service: str | None = None


@dataclass(frozen=True, slots=True)
class InsertBuckets:
    """Groups that take a partition's new rows.

    Attributes:
        groups: numbers of the groups.
        edges: ascending numbers in the key space, one fewer than groups; a key goes to the bin of its number.
        skip: bytes that all keys share, left out of a key's number; -1 routes by hash instead of by range.
    """

    groups: tuple[int, ...]
    edges: tuple[int, ...] = ()
    skip: int = -1


@dataclass(slots=True)
class FileAssignment:
    """All groups of a write, numbered, and where each partition's new rows go."""

    groups: list[FileGroupTarget] = field(default_factory=list)
    inserts: dict[str, InsertBuckets] = field(default_factory=dict)
    by_file: dict[tuple[str, str], int] = field(default_factory=dict)

    def number(self, target: FileGroupTarget) -> int:
        """Number of a group, given to it once."""
        key = (target.partition, target.file_id)
        if key not in self.by_file:
            self.by_file[key] = len(self.groups)
            self.groups.append(target)
        return self.by_file[key]


def assign_inserts(
    targets: FileAssignment,
    partition: str,
    rows: int,
    row_bytes: float,
    small_files: Sequence[tuple[BaseFile, int]],
    options: FileOptions,
    sample: Sequence[str] = (),
) -> None:
    """Choose the groups for ``rows`` new rows of a partition.

    Args:
        targets: gains the groups.
        partition: partition path.
        rows: how many new rows at most.
        row_bytes: size of a row on disk.
        small_files: files below the small-file limit with their row counts, to be filled first, in this order.
        options: sizes.
        sample: keys to cut new groups by range; empty routes by hash.
    """
    weights: list[float] = []
    numbers: list[int] = []
    left = float(rows)
    for base, stored in small_files:
        room = math.floor((options.max_file_size - base.size) / row_bytes)
        if left <= 0:
            break
        if room <= 0:
            continue
        taken = min(left, room)
        numbers.append(targets.number(FileGroupTarget(partition, base.file_id, base, stored + int(taken))))
        weights.append(taken)
        left -= taken
    if left > 0:
        count = max(1, math.ceil(left * row_bytes / options.max_file_size))
        for _ in range(count):
            numbers.append(targets.number(FileGroupTarget(partition, new_file_id(), None, math.ceil(left / count))))
            weights.append(left / count)
    if len(numbers) == 1 or rows == 0:
        targets.inserts[partition] = InsertBuckets(tuple(numbers[:1]))
    elif sample and not small_files:
        targets.inserts[partition] = _range_bins(numbers, sample)
    else:
        shares = np.cumsum(weights)[:-1] / sum(weights)
        targets.inserts[partition] = InsertBuckets(tuple(numbers), tuple(int(share * 2**31) for share in shares))


def _range_bins(numbers: list[int], sample: Sequence[str]) -> InsertBuckets:
    ordered = sorted(key.encode() for key in sample)
    first, last = ordered[0], ordered[-1]
    skip = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    places = np.sort(key_numbers(pa.array([key.decode() for key in ordered]), skip))
    cuts = [places[len(places) * part // len(numbers)] for part in range(1, len(numbers))]
    return InsertBuckets(tuple(numbers), tuple(int(cut) for cut in cuts), skip)


def key_numbers(keys: pa.Array, skip: int) -> npt.NDArray[np.uint64]:
    """Eight bytes of each key from byte ``skip`` on, as a number: the order of keys, coarsely. Keys have no nulls."""
    if len(keys) == 0:
        return np.empty(0, np.uint64)
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    )
    numbers = np.zeros(len(keys), np.uint64)
    for step in range(8):
        at = offsets[:-1] + skip + step
        inside = at < offsets[1:]
        byte = np.where(inside, data[np.where(inside, at, 0)], 0).astype(np.uint64)
        numbers = (numbers << np.uint64(8)) | byte
    return numbers


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows that no file is named for: all, or those that a merge moved from another partition, or all others."""

    schema: pa.Schema
    moved: bool | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's."""
        for batch in batches:
            new = batch.column(self.schema.get_field_index(LOCATED)).is_null()
            if self.moved is not None:
                actions = batch.column(self.schema.get_field_index(ACTION))
                moved = pc.equal(actions, pa.scalar(int(RowAction.MOVE_IN), actions.type))
                new = pc.and_(new, moved if self.moved else pc.invert(moved))
            yield batch.filter(new)


@dataclass(frozen=True, slots=True)
class AttachFile:
    """Give each row the number of the base file that it was read from; -1 where it is new.

    Attributes:
        found: columns of the rows.
        numbers: of files, by the name that their rows have, or by file id.
        deleted: new rows whose key a log file has deleted, and the numbers that these get: (file, partition, key); None
            for none. They are on the driver and with every task: a merge inserts few of such.
        by_id: the numbers are by file id, with which the names of files begin.
    """

    found: pa.Schema
    numbers: Mapping[str, int]
    deleted: pa.Table | None = None
    by_id: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns, then the file's number."""
        return self.found.append(pa.field(FILE, pa.int32()))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        names, numbers = pa.array(list(self.numbers), pa.string()), np.array(list(self.numbers.values()), np.int32)
        for batch in batches:
            located = batch.column(self.found.get_field_index(LOCATED))
            if self.by_id:
                located = pc.list_element(pc.split_pattern(located, "_", max_splits=1), 0)
            place = pc.index_in(located, value_set=names)
            lost = pc.and_(place.is_null(), located.is_valid())
            if pc.any(lost).as_py():
                name = located.filter(lost)[0].as_py()
                raise CommitError(f"base file {name} was read for this write and is no current file of the table")
            known = place.is_valid().to_numpy(zero_copy_only=False)
            files = np.full(batch.num_rows, -1, np.int32)
            files[known] = numbers[place.drop_null().to_numpy()]
            if self.deleted is not None:
                files = np.where(known, files, _files_of_deleted(batch, self.deleted))
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(files)], schema=self.schema)


def _files_of_deleted(batch: pa.RecordBatch, deleted: pa.Table) -> npt.NDArray[np.int32]:
    """Numbers of the files in which the rows' keys are deleted; -1 for no such."""
    files = np.full(batch.num_rows, -1, np.int32)
    rows = pa.Table.from_batches([batch])
    for path in pc.unique(deleted.column(PARTITION)).to_pylist():
        own = deleted.filter(pc.equal(deleted.column(PARTITION), path))
        place = pc.index_in(rows.column(KEY), value_set=own.column(KEY).combine_chunks())
        here = pc.fill_null(pc.and_(place.is_valid(), pc.equal(rows.column(PARTITION), path)), False)
        files[here.to_numpy()] = own.column(FILE).to_numpy()[place.filter(here).to_numpy()]
    return files


@dataclass(frozen=True, slots=True)
class AssignFileGroups:
    """Give each row the number of the group that it goes to.

    Rows with a file (tagged) go to that file's group; others to their partition's bins, or nowhere (dropped) when the
    write takes no new rows, or when they have no partition: it was decided that they do not count.
    """

    schema: pa.Schema
    by_file: Mapping[int, int]
    inserts: Mapping[str, InsertBuckets]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Route one task's rows."""
        for batch in batches:
            groups = self._groups(batch)
            keep = groups >= 0
            columns = [
                pa.array(groups, pa.int32()),
                *(batch.column(batch.schema.get_field_index(f.name)) for f in list(self.schema)[1:]),
            ]
            routed = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            yield routed if keep.all() else routed.filter(pa.array(keep))

    def _groups(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        groups = np.full(batch.num_rows, -1, np.int32)
        position = batch.schema.get_field_index(FILE)
        fresh = np.ones(batch.num_rows, bool)
        if position >= 0:
            files = batch.column(position).fill_null(-1).to_numpy()
            numbers, places = np.unique(files, return_inverse=True)
            groups = np.array([self.by_file[n] if n >= 0 else -1 for n in numbers.tolist()], np.int32)[places]
            fresh = files < 0
        if not self.inserts or not fresh.any():
            return groups
        encoded = pc.dictionary_encode(batch.column(batch.schema.get_field_index(PARTITION)))
        bins = [self.inserts.get(path) for path in encoded.dictionary.to_pylist()]
        # Rows without a path have the number -1, which takes the last place.
        only = np.array([one.groups[0] if one and len(one.groups) == 1 else -1 for one in bins] + [-1], np.int32)
        codes = encoded.indices.fill_null(-1).to_numpy()
        groups = np.where(fresh, only[codes], groups)
        keys = batch.column(batch.schema.get_field_index(KEY))
        for code, several in enumerate(bins):
            if several is not None and len(several.groups) > 1:
                rows = np.flatnonzero((codes == code) & fresh)
                groups[rows] = self._bin(keys.take(pa.array(rows)), several)
        return groups

    @staticmethod
    def _bin(keys: pa.Array, bins: InsertBuckets) -> npt.NDArray[np.int32]:
        if bins.skip >= 0:
            numbers = key_numbers(keys, bins.skip)
        else:
            numbers = hash_keys(keys, 1).hashes[0].astype(np.uint64)
        edges = np.array(bins.edges, np.uint64)
        return np.array(bins.groups, np.int32)[np.searchsorted(edges, numbers, side="right")]
