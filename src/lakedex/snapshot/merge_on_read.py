"""Merge on read: the log records of a file slice merged into the rows of its base file.

Hudi decides which version of a record key wins (``BufferedRecordMergerFactory``, 1.1.1):

* COMMIT_TIME_ORDERING: the record of the later block; a delete is a record too.
* EVENT_TIME_ORDERING: the larger ordering value, the later record on a tie. A delete without ordering value (Java
  writes the int 0, whatever the column's type is) beats everything before it, and everything after it beats that
  delete. Log records are merged among themselves first and the winner with the base row, so a base row with a larger
  ordering value comes back where such a delete was followed by a late record. Java reads and compacts it like that.

Partial updates, which have some columns only, are merged by :mod:`lakedex.snapshot.partial_updates`; what no log record
of a key has comes from the base row that they beat.

Of several base rows of one key all are merged if the log blocks name the rows that their records are for, else the
first one, as in Java. Ordering values compare by :mod:`lakedex.snapshot.ordering_values`.

Whole columns are processed: log records are reduced to one row per key by sorting, then each batch of the base file is
masked, and the log's rows follow at the end.

Memory: the log records of the slice, needed columns only, and one batch of the base file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.bloom import BloomFilter
from lakedex.errors import UnsupportedFeatureError
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.log_reader import DataRows, DeletedKeys, read_log_files
from lakedex.parquet.base_rows import BaseRows, iter_base_rows
from lakedex.parquet.chunk_reuse import Changed, replaced_rows, unchanged_columns
from lakedex.parquet.conform import conform_stored, constant_text, with_dictionaries
from lakedex.snapshot.ordering_values import compare, delete_values, is_true, ranks, sortable
from lakedex.snapshot.partial_updates import LogRecords, merge_records
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import FILE_NAME, RECORD_KEY, BoolArray, IntArray

__all__ = [
    "MergeCounts",
    "MergeInPlace",
    "MergeSettings",
    "MergedLog",
    "iter_merged_slice",
    "load_log",
]


BATCH_ROWS = 65_536


_MAX_BATCH_ROWS = 4 * BATCH_ROWS


_IS_DELETED = "_hoodie_is_deleted"


_OPERATION = "_hoodie_operation"


_DELETE_OPERATIONS = ("D", "-U")


_EVENT_TIME = "EVENT_TIME_ORDERING"


_MODES = ("COMMIT_TIME_ORDERING", _EVENT_TIME)


_PAYLOADS = ("OverwriteWithLatestAvroPayload", "DefaultHoodieRecordPayload", "EventTimeAvroPayload")


_PAYLOAD_KEYS = ("hoodie.table.legacy.payload.class", "hoodie.compaction.payload.class")


_MERGE_PROPERTY = "hoodie.record.merge.property."


_DELETE_FIELD = _MERGE_PROPERTY + "hoodie.payload.delete.field"


_DELETE_MARKER = _MERGE_PROPERTY + "hoodie.payload.delete.marker"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """How a table's log records are merged; goes to tasks.

    Attributes:
        table: the table's name, for messages.
        mode: ``COMMIT_TIME_ORDERING`` or ``EVENT_TIME_ORDERING``.
        ordering_fields: columns that order the versions of a row; empty for commit time.
        schema: meta columns and the table's own.
        completed, known: requested times of completed instants, and of all, on the active timeline.
        first_active: where the active timeline begins; None for an empty one.
        as_of: blocks of later instants do not count.
        delete_marker: a column and the text in it that marks a row as deleted.
    """

    table: str
    mode: str
    ordering_fields: tuple[str, ...]
    schema: pa.Schema
    completed: frozenset[str]
    known: frozenset[str]
    first_active: str | None
    as_of: str | None = None
    delete_marker: tuple[str, str] | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> MergeSettings:
        """The settings of a snapshot's table.

        Raises:
            UnsupportedFeatureError: the table's rows are merged in a way that lakedex does not know; names it.
        """
        config, timeline = snapshot.config, snapshot.timeline
        _check_merging(snapshot)
        first = timeline.first_active
        schema = read_columns(snapshot.schema)
        event_time = config.merge_mode == _EVENT_TIME
        marker = (config.raw.get(_DELETE_FIELD, "").strip(), config.raw.get(_DELETE_MARKER, "").strip())
        return cls(
            table=config.name,
            mode=config.merge_mode,
            ordering_fields=tuple(n for n in config.ordering_fields if event_time and n in schema.names),
            schema=schema,
            completed=frozenset(i.requested for i in timeline.completed()),
            known=frozenset(i.requested for i in timeline.instants),
            first_active=None if first is None else first.requested,
            as_of=snapshot.as_of,
            delete_marker=marker if all(marker) and marker[0] in schema.names else None,
        )

    def counts(self, instant: str) -> bool:
        """Whether blocks of an instant are read: committed, and not later than the snapshot."""
        if self.as_of is not None and instant > self.as_of:
            return False
        if instant in self.completed:
            return True
        return self.first_active is not None and instant < self.first_active and instant not in self.known

    @property
    def ordering(self) -> pa.Schema:
        """The ordering columns."""
        return pa.schema([self.schema.field(name) for name in self.ordering_fields])


def _check_merging(snapshot: Snapshot) -> None:
    config = snapshot.config

    def refuse(what: str, feature: str) -> UnsupportedFeatureError:
        advice = "have Hudi compact it and read it with query_type='read_optimized', or read it with Hudi"
        return UnsupportedFeatureError(f"table '{config.name}' has log files, and {what}; {advice}", feature=feature)

    if not config.populate_meta_fields:
        raise refuse("no meta columns (hoodie.populate.meta.fields=false), so keys are not stored", "no meta fields")
    for key in _PAYLOAD_KEYS:
        payload = config.raw.get(key, "").strip()
        if payload and payload.rpartition(".")[2] not in _PAYLOADS:
            raise refuse(f"its payload class {payload} ({key}) is not one that lakedex knows", f"payload {payload}")
    if config.merge_mode not in _MODES:
        strategy = config.raw.get("hoodie.record.merge.strategy.id", "").strip() or "none given"
        raise refuse(
            f"its record merge mode is {config.merge_mode} (strategy {strategy}): rows are merged by code of its owner",
            f"merge mode {config.merge_mode}",
        )
    partial = config.raw.get("hoodie.table.partial.update.mode", "").strip()
    if partial and partial != "NONE":
        raise refuse(f"its partial update mode is {partial}", f"partial update mode {partial}")
    for key in config.raw:
        if key.startswith(_MERGE_PROPERTY) and key not in (_DELETE_FIELD, _DELETE_MARKER):
            raise refuse(f"a merge property that lakedex does not know: {key}", key)
    for name in config.ordering_fields:
        if "." in name and config.merge_mode == _EVENT_TIME:
            raise refuse(f"its ordering field {name} lies inside of another column", "nested ordering field")


def iter_merged_slice(
    files: TableFiles, item: FileSlice, needed: pa.Schema, merge: MergeSettings, rows: BaseRows | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file slice, its log records merged in.

    Args:
        files: the table's files.
        item: the slice.
        needed: columns of the batches: some of ``merge.schema``.
        merge: of the table.
        rows: those of the base file that are wanted; None for all.

    Raises:
        CorruptFileError: a damaged file; what an interrupted writer leaves in a log file is skipped, as in Hudi.
        UnsupportedFeatureError: log blocks that lakedex does not merge.
        SchemaMismatchError: a file has a column in a type that does not widen to the table's.
    """
    # A batch without any column forgets how many rows it has until it is made of one.
    read = needed if len(needed) else pa.schema([merge.schema.field(RECORD_KEY)])
    log = load_log(files, item, read, merge)
    if item.base_file is not None:
        extra = [merge.schema.field(name) for name in (RECORD_KEY, *merge.ordering_fields) if name not in read.names]
        stored_schema = pa.schema([*read, *extra])
        path = files.path(item.base_file.relative_path)
        size = min(max(BATCH_ROWS, log.keys_count), _MAX_BATCH_ROWS)
        for stored in iter_base_rows(files.storage, path, stored_schema.names, rows, batch_rows=size):
            batch = log.mask_base(conform_stored(stored, stored_schema))
            if batch.num_rows:
                yield batch.select(needed.names)
    for batch in log.left():
        yield batch.select(needed.names)


@dataclass(slots=True)
class MergeCounts:
    """Numbers of a merge so far.

    Attributes:
        blocks, records: of the log files.
        bytes: content of their data blocks, as Hudi counts it.
        keys: distinct ones among the records.
        updated, deleted: rows of the base file that a record took the place of, or removed.
        inserted: rows of the log files whose keys the base file does not have.
    """

    blocks: int = 0
    bytes: int = 0
    records: int = 0
    keys: int = 0
    updated: int = 0
    deleted: int = 0
    inserted: int = 0


@dataclass(slots=True)
class MergeInPlace:
    """The rows of a file slice in the order that its next base file has, as Hudi's compaction writes them.

    An updated row is where it was, rows after a deleted one close up, and rows that only log files have come last. The
    log files are read when the object is made.

    Attributes:
        files: the table's files.
        item: the slice.
        merge: of the table.
        file_name: of the new file, for its rows.
        counts: of the rows that were given out.
        schema: of the rows: the table's with meta columns.
    """

    files: TableFiles
    item: FileSlice
    merge: MergeSettings
    file_name: str
    counts: MergeCounts = field(init=False, default_factory=MergeCounts)
    schema: pa.Schema = field(init=False)
    _log: MergedLog = field(init=False)

    def __post_init__(self) -> None:
        self.schema = with_dictionaries(self.merge.schema, {FILE_NAME})
        self._log = load_log(self.files, self.item, self.merge.schema, self.merge, self.counts)
        self.counts.keys = self._log.keys_count

    @property
    def has_deletes(self) -> bool:
        """Whether any record may delete a row."""
        return bool(self._log.deleted.any())

    def growth(self, old: BloomFilter | None) -> int:
        """How many rows at most come to those of the base file, given the filter over its keys."""
        if self._log.keys is None:
            return 0
        keys = self._log.keys.filter(pa.array(~self._log.deleted))
        return len(keys) if old is None else int((~old.probe(keys)).sum())

    def changed(self, stored: pa.RecordBatch) -> Changed:
        """A batch of the base file as it is in the next one."""
        changed = self._log.put_in_place(conform_stored(stored, self.merge.schema), self.counts)
        return replace(changed, rows=self._named(changed.rows))

    def left(self) -> Iterator[pa.RecordBatch]:
        """The rows that come last, after all batches of the base file."""
        for batch in self._log.left():
            self.counts.inserted += batch.num_rows
            yield self._named(batch)

    def _named(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        place = self.schema.get_field_index(FILE_NAME)
        return rows.set_column(place, self.schema.field(place), constant_text(self.file_name, rows.num_rows))


# --------------------------------------------------------------------------------------------------- log records


@dataclass(slots=True)
class _Collected:
    """Log records as they come, oldest first: one entry for each, ``row`` points into the data rows or is -1."""

    needed: pa.Schema
    merge: MergeSettings
    rows: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    keys: list[pa.Array] = field(default_factory=list)
    row: list[IntArray] = field(default_factory=list)
    deleted: list[BoolArray] = field(default_factory=list)
    final: list[BoolArray] = field(default_factory=list)
    ordering: list[list[pa.Array]] = field(default_factory=list)
    lacking: dict[int, frozenset[str]] = field(default_factory=dict)

    def add_rows(self, found: DataRows) -> None:
        merge = self.merge
        present = frozenset(found.rows.schema.names)
        if found.is_partial and not present.issuperset(merge.ordering_fields):
            raise _incomplete(merge, f"{found.path}: a partial update lacks an ordering column")
        for batch in found.rows.to_batches(max_chunksize=BATCH_ROWS):
            if found.is_partial:
                self.lacking[len(self.keys)] = frozenset(self.needed.names) - present
            by = conform_stored(batch, merge.ordering)
            ordering = [sortable(column) for column in by.columns]
            deleted = _soft_deletes(batch, merge.delete_marker)
            # Without ordering value, or with an int 0, Java takes a deleted row for a delete of commit time.
            final = deleted & np.logical_and.reduce([_is_default(column) for column in ordering] or [deleted])
            keys = batch.column(batch.schema.get_field_index(RECORD_KEY)).cast(pa.string())
            numbers = np.arange(self.count, self.count + batch.num_rows, dtype=np.int64)
            self._add(keys, numbers, deleted, final, ordering)
            self.rows.append(conform_stored(batch, self.needed))
            self.count += batch.num_rows

    def add_deletes(self, found: DeletedKeys) -> None:
        size = len(found.keys)
        final, values = delete_values(found.ordering, self.merge.ordering.types, found.path)
        gone = np.full(size, -1, np.int64)
        self._add(pa.array(found.keys, pa.string()), gone, np.ones(size, bool), final, [sortable(v) for v in values])

    def _add(
        self, keys: pa.Array, row: IntArray, deleted: BoolArray, final: BoolArray, ordering: list[pa.Array]
    ) -> None:
        self.keys.append(keys)
        self.row.append(row)
        self.deleted.append(deleted)
        self.final.append(final)
        self.ordering.append(ordering)

    def reduce(self) -> MergedLog:
        """One record for each key."""
        if not self.keys:
            return MergedLog(self.needed, self.merge.ordering_fields)
        encoded = pa.chunked_array(self.keys, pa.string()).combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        ordering = [pa.concat_arrays(parts) for parts in zip(*self.ordering, strict=True)]
        row, deleted, final = np.concatenate(self.row), np.concatenate(self.deleted), np.concatenate(self.final)
        rows = pa.Table.from_batches(self.rows, self.needed)
        if self.lacking:
            by_time = _places(ordering) if self.merge.mode == _EVENT_TIME else None
            batches, names = len(self.keys), self.needed.names
            columns = [[name not in self.lacking.get(n, ()) for name in names] for n in range(batches)]
            records = LogRecords(
                codes=codes,
                row=row,
                deleted=deleted,
                final=final,
                rank=by_time,
                block=np.repeat(np.arange(batches), [len(part) for part in self.keys]),
                columns=np.array(columns, bool).reshape(batches, len(names)),
            )
            whole = np.array([n not in self.lacking for n in range(batches)])
            return self._merged_partially(encoded.dictionary, records, whole, ordering, rows)
        if self.merge.mode == _EVENT_TIME:
            winner = _largest(codes, len(encoded.dictionary), row, final, ordering)
        else:
            winner = _last(codes, len(encoded.dictionary))
        return MergedLog(
            self.needed,
            self.merge.ordering_fields,
            keys=encoded.dictionary,
            rows=rows,
            row=row[winner],
            deleted=deleted[winner],
            # By commit time a log record always wins over the base row.
            final=final[winner] | (self.merge.mode != _EVENT_TIME),
            ordering=[column.take(pa.array(winner)) for column in ordering],
        )

    def _merged_partially(
        self, keys: pa.Array, records: LogRecords, whole: BoolArray, ordering: Sequence[pa.Array], rows: pa.Table
    ) -> MergedLog:
        """One record for each key, whose row is put together from several."""
        merged = merge_records(records, len(keys), whole)
        winner, by_time = merged.winner, records.rank is not None
        deleted = records.deleted[winner]
        if not by_time and merged.orphans.any():
            key = keys[int(np.flatnonzero(merged.orphans)[0])].as_py()
            raise _incomplete(self.merge, f"the row with key {key!r} was deleted, and has a partial update since")
        columns = [
            rows.column(place).take(pa.array(source, mask=source < 0))
            for place, source in enumerate(merged.source[group] for group in merged.group)
        ]
        live = np.where(deleted, -1, np.arange(len(keys)))
        return MergedLog(
            self.needed,
            self.merge.ordering_fields,
            keys=keys,
            rows=pa.Table.from_arrays(columns, schema=self.needed) if columns else pa.table({}),
            row=live,
            deleted=deleted,
            final=records.final[winner] | (not by_time),
            ordering=[column.take(pa.array(winner)) for column in ordering],
            partial=~merged.whole & ~deleted,
            lacks={name: merged.source[group] < 0 for name, group in zip(self.needed.names, merged.group, strict=True)},
            merge=self.merge,
        )


def _places(ordering: Sequence[pa.Array]) -> IntArray:
    """Numbers in the order of all ordering values of a record together; equal values have equal ones."""
    by = np.stack([ranks(column) for column in ordering], axis=1) if ordering else np.zeros((0, 0), np.int64)
    return np.unique(by, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _incomplete(merge: MergeSettings, what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"table '{merge.table}': {what}, so its row cannot be completed; Hudi cannot read it either. Roll back the "
        "write, or read with query_type='read_optimized'",
        feature="partial updates without the row that they change",
    )


def load_log(
    files: TableFiles, item: FileSlice, needed: pa.Schema, merge: MergeSettings, counts: MergeCounts | None = None
) -> MergedLog:
    """The log records of a slice, one for each key; ``needed`` columns of its rows, some of ``merge.schema``."""
    columns = {*needed.names, RECORD_KEY, *merge.ordering_fields, _IS_DELETED, _OPERATION}
    if merge.delete_marker is not None:
        columns.add(merge.delete_marker[0])
    collected = _Collected(needed, merge)
    base = "" if item.base_file is None else item.base_file.instant
    by_position = True
    for found in read_log_files(files, item.log_files, merge.counts, columns):
        by_position &= found.positions_in == base
        if isinstance(found, DataRows):
            collected.add_rows(found)
        else:
            collected.add_deletes(found)
        if counts is not None:
            counts.blocks += 1
            if isinstance(found, DataRows):
                counts.bytes += found.size
                counts.records += found.rows.num_rows
            else:
                counts.records += len(found.keys)
    log = collected.reduce()
    log.of_all_copies = by_position
    return log


def _soft_deletes(batch: pa.RecordBatch, marker: tuple[str, str] | None) -> BoolArray:
    """Rows that say of themselves that they are deleted (``RecordContext.isDeleteRecord``)."""
    found = np.zeros(batch.num_rows, bool)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    flag = columns.get(_IS_DELETED)
    if flag is not None and pa.types.is_boolean(flag.type):
        found |= is_true(flag)
    if _OPERATION in columns:
        found |= is_true(pc.is_in(columns[_OPERATION].cast(pa.string()), value_set=pa.array(_DELETE_OPERATIONS)))
    if marker is not None and marker[0] in columns:
        found |= is_true(pc.equal(columns[marker[0]].cast(pa.string()), marker[1]))
    return found


def _is_default(column: pa.Array) -> BoolArray:
    """Where an ordering value is null, or an int 0 (``OrderingValues.isDefault``)."""
    missing: BoolArray = column.is_null().to_numpy(zero_copy_only=False)
    return missing | is_true(pc.equal(column, 0)) if column.type == pa.int32() else missing


def _last(codes: IntArray, keys: int) -> IntArray:
    winner = np.empty(keys, np.int64)
    winner[codes] = np.arange(len(codes))  # the last of equal codes stays
    return winner


def _largest(codes: IntArray, keys: int, row: IntArray, final: BoolArray, ordering: Sequence[pa.Array]) -> IntArray:
    """For each key the record that folding them in order by event time leaves."""
    places = np.arange(len(codes))
    last_final = np.full(keys, -1, np.int64)
    last_final[codes[final]] = places[final]
    counts = places >= last_final[codes]
    # deltaMergeDeleteRecord: after such a delete a record of a delete block changes nothing until a row comes.
    after = np.full(keys, len(codes), np.int64)
    is_row = counts & ~final & (row >= 0)
    np.minimum.at(after, codes[is_row], places[is_row])
    counts &= final | (row >= 0) | (last_final[codes] < 0) | (places > after[codes])
    kept = places[counts]
    by = [ranks(column)[kept] for column in ordering]
    order = np.lexsort((kept, *reversed(by), ~final[kept], codes[kept]))
    winner = np.empty(keys, np.int64)
    winner[codes[kept[order]]] = kept[order]
    return winner


# ----------------------------------------------------------------------------------------------- with the base file


@dataclass(slots=True)
class MergedLog:
    """One log record for each key, and which of them the base file has used up.

    Attributes:
        needed: columns of the rows.
        ordering_fields: columns of the ordering values.
        keys: the keys; None where there are no records.
        rows: all rows of the logs.
        row: for each key the place of its row among them, -1 for a record of a delete block.
        deleted: whether the record is a delete.
        final: whether it wins over a base row whatever the ordering values are.
        ordering: the ordering values, as :func:`sortable` gives them.
        partial: keys whose log records leave columns to the base row; None for no key.
        lacks: of these columns, by name, the keys for which they do.
        merge: of the table, for messages.
        of_all_copies: whether a record is for all base rows of its key, should there be several. So it is where blocks
            name the rows that their records are for, as a writer finds all of them; else Hudi takes the first one
            (``PositionBasedFileGroupRecordBuffer`` and ``KeyBased…``).
    """

    needed: pa.Schema
    ordering_fields: tuple[str, ...]
    keys: pa.Array | None = None
    rows: pa.Table | None = None
    row: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    deleted: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    final: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    ordering: list[pa.Array] = field(default_factory=list)
    partial: BoolArray | None = None
    lacks: Mapping[str, BoolArray] = field(default_factory=dict)
    merge: MergeSettings | None = None
    of_all_copies: bool = False
    _left: IntArray = field(init=False)
    """How many rows each record still makes: one, until the base file has its key."""
    _met: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        self._left = np.ones(len(self.row), np.int64)
        self._met = np.zeros(len(self.row), bool)

    @property
    def keys_count(self) -> int:
        """How many keys have a record."""
        return len(self.row)

    def mask_base(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of the base file that no log record takes the place of."""
        if not self.keys_count:
            return batch
        if self.partial is not None:
            return self.put_in_place(batch, MergeCounts()).rows
        places, codes = self._beaten_by_log(batch)
        np.add.at(self._left, codes, 1)
        keep = np.ones(batch.num_rows, bool)
        keep[places] = False
        return batch.filter(pa.array(keep))

    def put_in_place(self, batch: pa.RecordBatch, counts: MergeCounts) -> Changed:
        """A batch of the base file, rows of the log in the places of those that they beat."""
        places, codes = self._beaten_by_log(batch) if self.keys_count else (np.zeros(0, np.int64),) * 2
        if self.rows is None or not len(places):
            return Changed(batch, frozenset(batch.schema.names) - {FILE_NAME})
        gone = self.deleted[codes]
        at, of = places[~gone], codes[~gone]
        counts.deleted += len(places) - len(at)
        counts.updated += len(at)
        stored = batch.select(self.needed.names)
        taken = self.rows.take(pa.array(self.row[of]))
        if self.partial is not None:
            taken = self.completed(taken, of, pa.Table.from_batches([stored]).take(pa.array(at)))
        new = pa.RecordBatch.from_arrays([column.combine_chunks() for column in taken.columns], schema=self.needed)
        order, keep, is_whole = np.arange(batch.num_rows), np.ones(batch.num_rows, bool), not gone.any()
        order[at], keep[places[gone]] = batch.num_rows + np.arange(len(at)), False
        same = unchanged_columns(stored, new, at, np.arange(len(at))) if is_whole else frozenset()
        return Changed(replaced_rows(stored, new, order[keep], same), same, is_whole)

    def completed(self, rows: pa.Table, codes: IntArray, base: pa.Table) -> pa.Table:
        """Rows of the log, for keys with these numbers, with what they lack from base rows of the same keys."""
        columns, own = [], np.arange(len(codes))
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            lacking = self.lacks[name][codes] if name in self.lacks else np.zeros(len(codes), bool)
            if lacking.any():
                both = pa.chunked_array([*column.chunks, *base.column(name).chunks], column.type)
                column = both.take(pa.array(np.where(lacking, own + len(codes), own)))
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=rows.schema)

    def _beaten_by_log(self, batch: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """Places of the rows of a batch that a log record beats, and the numbers of those records."""
        keys = batch.column(batch.schema.get_field_index(RECORD_KEY))
        found = pc.index_in(keys, value_set=self.keys)
        places = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        codes = found.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
        if not self.of_all_copies:
            _, first = np.unique(codes, return_index=True)
            first = first[~self._met[codes[first]]]
            places, codes = places[first], codes[first]
        self._left[codes[~self._met[codes]]] = 0
        self._met[codes] = True
        loses = self.final[codes]
        if not loses.all():
            at = pa.array(places)
            base = [sortable(batch.column(batch.schema.get_field_index(n)).take(at)) for n in self.ordering_fields]
            log = [column.take(pa.array(codes)) for column in self.ordering]
            loses |= compare(base, log, len(codes)) <= 0
        return places[loses], codes[loses]

    def left(self) -> Iterator[pa.RecordBatch]:
        """The log's own rows: those that are no deletes, that no base row has beaten, and that took no row's place."""
        if self.rows is None:
            return
        own = ~self.deleted & (self._left > 0)
        if self.keys is not None and self.merge is not None and self.partial is not None and self.partial[own].any():
            key = self.keys[int(np.flatnonzero(own & self.partial)[0])].as_py()
            raise _incomplete(self.merge, f"the base file has no row with key {key!r}, which has a partial update")
        rows = np.sort(np.repeat(self.row[own], self._left[own]))
        for start in range(0, len(rows), BATCH_ROWS):
            chosen = self.rows.take(pa.array(rows[start : start + BATCH_ROWS]))
            yield from chosen.combine_chunks().to_batches()
