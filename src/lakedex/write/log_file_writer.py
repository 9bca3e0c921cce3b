"""The writer of log files: the changes of one file group of a merge-on-read table, as a new log file of its slice.

``HoodieAppendHandle`` of Hudi, with these decisions of its own:

* Only changes of stored keys go to log files; new keys go to base files, since Hudi's indexes do not look into logs. A
  key that a log file has deleted is stored in this sense, and comes back in the group that has it.
* The slice is looked up (:mod:`lakedex.snapshot.stored_versions`). A row that every reader would leave out, since a
  stored or a deleted one has a larger ordering value, is not written.
* A delete by key or condition carries the ordering value of the row that it deletes. Java writes the int 0, which
  beats all versions before and none after it; then a late row that comes after brings the *stored* row back, as readers
  compare that row with the late one alone. With the row's own value, later rows are compared with that.
* What log records cannot say is written as a new base file, from the merged rows of the slice: a row whose new ordering
  value is below the stored one, keys that the base file has several times, and a deleted key that comes back where log
  files have partial updates (Java 1.1.1 fails on it: ``OverwriteWithLatestSparkRecordMerger.partialMerge``).
* An update that sets some columns writes these alone, and those that order rows, as blocks with ``IS_PARTIAL``. Readers
  merge a key's log records first: a row comes whole where they lose against the base file, or its key was deleted.
  Indexes see whole rows either way, as bounds of the written columns alone would not say which rows a file can match.

Record positions (version 8 and 9) are those of the slice's base file, which is complete; a block has them if each of
its records has one. A pending compaction changes nothing in that.

A data block ends at ``hoodie.logfile.data.block.max.size``; after a block that fills a file beyond
``hoodie.logfile.max.size`` the next one begins a file with the next number. All deletes are in one block, the last.

Memory: the incoming rows of one group, what looking them up takes, and one block (the content of a Parquet block
twice).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakedex.codec.bloom import BloomSizing
from lakedex.codec.log_block import encode_log_block
from lakedex.codec.log_records import AvroBlock, delete_block_content, encode_positions, require_ordering_type
from lakedex.engine import current_task
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.index.written_file import Collector, LogChanges, WrittenFile, WrittenLog
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.names import LogFileName, parse_log_file_name
from lakedex.maintenance.compaction_plan import BESIDE_SERVICE
from lakedex.options import FileOptions
from lakedex.parquet.base_file_writer import BaseFileSummary, ParquetBlock
from lakedex.parquet.conform import decode_dictionary
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.ordering_values import compare, sortable
from lakedex.snapshot.snapshot import Snapshot
from lakedex.snapshot.stored_versions import StoredVersions, stored_versions
from lakedex.tagging.keyed_rows import DELETED_HERE, KEY, STAYS_HERE, Effects, MergePolicy, delete_mask
from lakedex.types import META_COLUMNS, BoolArray, IntArray
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.file_group_writer import BaseFileGroupWriter, FileOutput, IncomingRecords
from lakedex.write.record_merge import IncomingRows

__all__ = ["LogFileGroupWriter"]


_ROWS_AT_ONCE = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFileGroupWriter:
    """Writes file groups of a merge-on-read table: log files for changes, base files for the rest.

    Attributes:
        bases: writes base files.
        avro_schema: of the rows, meta fields included.
        merge: how readers merge log records.
        version: of the table.
        options: format and size of data blocks, size of log files.
        partial: columns of partial updates in the order of the table, meta columns first; none writes whole rows.
    """

    bases: BaseFileGroupWriter
    avro_schema: str
    merge: MergeSettings
    version: int
    options: FileOptions
    partial: tuple[str, ...]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        bases: BaseFileGroupWriter,
        options: FileOptions,
        assigned: Collection[str] | None = None,
    ) -> LogFileGroupWriter:
        """The writer for a table.

        Args:
            snapshot: the table.
            bases: writes its base files.
            options: of the write.
            assigned: columns that the write sets in stored rows; None for all.
        """
        for name in (merge := MergeSettings.of(snapshot)).ordering_fields:
            require_ordering_type(merge.schema.field(name).type)
        version = snapshot.config.version
        return cls(
            bases=bases,
            avro_schema=bases.settings.avro_schema,
            merge=merge,
            version=version,
            options=options,
            partial=_partial_columns(version, merge, bases.schema, options, assigned),
        )

    @property
    def texts(self) -> set[str]:
        """Those of base files."""
        return self.bases.texts

    @property
    def hashes_keys(self) -> BloomSizing | None:
        """Those of base files."""
        return self.bases.hashes_keys

    @property
    def _files(self) -> TableFiles:
        return self.bases.files

    @property
    def _policy(self) -> MergePolicy:
        return self.bases.policy

    def write(
        self,
        target: FileGroupTarget,
        records: IncomingRecords,
        collectors: Mapping[str, Collector],
        output: FileOutput,
    ) -> tuple[WrittenFile, ...]:
        """Write the group's new files; none if nothing changes.

        Raises:
            InvalidInputError: an ordering value is null, which Hudi's readers cannot compare.
        """
        _require_ordering_values(records.rows, self._policy.effects, self.merge)
        # Rows that are only inserted come to a slice with log files if one of these has deleted their keys.
        adds = self._policy.effects is Effects.INSERT and target.item is not None and not target.item.log_files
        if not target.appends or adds or target.item is None or target.base is None:
            return self.bases.write(target, records, collectors, output)
        incoming = self.bases.incoming(records, target.file_id, target.file_id, self.bases.schema)
        columns = self._policy.partition_columns if (incoming.moves == STAYS_HERE).any() else ()
        stored = stored_versions(self._files, target.item, incoming.keys, self.merge, columns)
        change = self._change(incoming, stored)
        # After the compaction only a log file would have a key that comes back, which no index finds.
        if target.service is not None and (change is None or not change.stored.live[change.data].all()):
            raise UnsupportedFeatureError(
                f"{self._files}: file group {target.file_id} in partition {target.partition!r} has to be written as a "
                "base file (a smaller ordering value than the stored one, a key that it has twice, or a deleted one "
                f"that comes back), and compaction {target.service} of it is pending; run that first",
                feature=BESIDE_SERVICE,
            )
        if change is None:
            return self.bases.write(target, records, collectors, output)
        return self._write_files(target, target.item, target.base, change, collectors, output)

    def _write_files(
        self,
        target: FileGroupTarget,
        item: FileSlice,
        base: BaseFile,
        change: _Change,
        collectors: Mapping[str, Collector],
        output: FileOutput,
    ) -> tuple[WrittenFile, ...]:
        """Write the blocks of a change to a log file of the slice, and to more of the next numbers once it is full."""
        name, log = self._named(item, base, target.service)
        done: list[WrittenFile] = []
        started, blocks = time.perf_counter(), self._blocks(target, change)
        block = next(blocks, None)
        while block is not None:
            # Java stops at an APPEND marker from version 8 on, and needs it before.
            path = output.announce(target, str(name), "CREATE" if self.version >= 8 else "APPEND")
            taking = {index: one.begin(self.bases.schema) for index, one in collectors.items() if one.takes_logs}
            data, deletes, size = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
            lacking: frozenset[str] = frozenset()
            with output.files.storage.open_output(path) as file:
                while block is not None and (size <= self.options.log_file_bytes or block.kind == "DELETE"):
                    for collector in taking.values():
                        for rows in block.rows:
                            collector.add(rows, {})
                    encoded = encode_log_block(block.kind, block.header, block.content)
                    file.write(encoded)
                    size += len(encoded)
                    lacking |= block.lacking
                    if block.kind == "DELETE":
                        deletes = block.numbers
                    else:
                        data = np.append(data, block.numbers)
                    block = next(blocks, None)
            summary = BaseFileSummary(size=size, rows=len(data), bloom=b"", bloom_type="", min_key=None, max_key=None)
            inserted = int((~change.stored.live[data]).sum())
            changes = LogChanges(
                base_file=base.name,
                instant=self.bases.instant,
                positions=change.stored.position[np.concatenate([data, deletes])],
                deletes=len(deletes),
                older=len(item.log_files) + len(done),
                lacking=lacking,
            )
            finished = replace(output.finished(target, str(name), summary), log=changes)
            written = replace(
                finished.written(taking, started),
                inserted=inserted,
                updated=len(data) - inserted,
                deleted=len(deletes),
                moved=int((change.incoming.moves[deletes] == DELETED_HERE).sum()),
                log=log,
            )
            done.append(written)
            name, started = replace(name, version=name.version + 1), time.perf_counter()
            log = replace(log, version=name.version, log_files=(*log.log_files, str(name)))
        return tuple(done)

    def _change(self, incoming: IncomingRows, stored: StoredVersions) -> _Change | None:
        """Rows to write and keys to delete; None if log records cannot say it."""
        rows, effects = incoming.rows.num_rows, self._policy.effects
        incoming.require_new(np.flatnonzero(stored.live))
        if stored.repeated.any() or (effects.inserts and (~stored.known & ~incoming.deletes).any()):
            return None
        late = np.zeros(rows, bool)
        own = [incoming.rows.schema.get_field_index(name) for name in self.merge.ordering_fields]
        if own and min(own) >= 0:
            values = [sortable(decode_dictionary(incoming.rows.column(place))) for place in own]
            late = stored.known & (compare(values, stored.bound, rows) < 0)
        deletes, is_new = incoming.deletes & stored.live, ~incoming.deletes
        if effects is Effects.UPDATE:
            is_new &= stored.live
        elif effects is Effects.INSERT:
            is_new &= ~stored.live
        by_order = bool(self._policy.ordering)
        if (is_new & late).any() and not by_order:
            return None
        if stored.merges_partially and (is_new & stored.known & ~stored.live).any():
            return None
        if by_order:
            is_new &= ~late
            deletes &= ~late
        return _Change(incoming, stored, _by_position(is_new, stored), _by_position(deletes, stored), by_order)

    def _blocks(self, target: FileGroupTarget, change: _Change) -> Iterator[_Block]:
        """The blocks of a change."""
        stored, data = change.stored, change.data
        fits = (stored.live & ~stored.log_loses)[data] & bool(self.partial)
        for numbers, columns in ((data[~fits], ()), (data[fits], self.partial)):
            yield from self._data_blocks(target, change, numbers, columns)
        if len(change.deletes):
            keys = change.incoming.keys.take(pa.array(change.deletes))
            content = delete_block_content(keys, target.partition, self._ordering_of_deletes(change))
            header = {"SCHEMA": self.avro_schema, **self._header(target, change, change.deletes)}
            yield _Block("DELETE", header, content, change.deletes)

    def _data_blocks(
        self, target: FileGroupTarget, change: _Change, numbers: IntArray, columns: Sequence[str]
    ) -> Iterator[_Block]:
        """Data blocks of some rows, of these columns only; of all if none are given."""
        schema = _projected(self.avro_schema, columns) if columns else self.avro_schema
        settings = replace(self.bases.settings, avro_schema=schema)
        is_avro = self.options.log_block_format == "avro"

        def begin() -> AvroBlock | ParquetBlock:
            return AvroBlock() if is_avro else ParquetBlock(settings)

        def finished() -> _Block:
            part = numbers[start : start + block.rows]
            header = {"SCHEMA": schema, **self._header(target, change, part)}
            if columns:
                header["IS_PARTIAL"] = "true"
            lacking = frozenset(self.bases.schema.names) - set(columns) if columns else frozenset()
            kind = "AVRO_DATA" if is_avro else "PARQUET_DATA"
            return _Block(kind, header, block.content(), part, tuple(rows), lacking)

        block, start, rows = begin(), 0, list[pa.RecordBatch]()
        for batch in self._rows(change, numbers):
            rows.append(batch)
            block.add(batch.select(columns) if columns else batch)
            if block.size >= self.options.log_block_bytes:
                yield finished()
                block, start, rows = begin(), start + block.rows, []
        if block.rows:
            yield finished()

    def _header(self, target: FileGroupTarget, change: _Change, numbers: IntArray) -> dict[str, str]:
        """Instant and positions of a block of rows with these numbers."""
        header, positions = {"INSTANT_TIME": self.bases.instant}, change.stored.position[numbers]
        if target.base is not None and self.version >= 8 and (positions >= 0).all():
            header["BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS"] = target.base.instant
            header["RECORD_POSITIONS"] = encode_positions(positions)
        return header

    def _named(self, item: FileSlice, base: BaseFile, service: str | None) -> tuple[LogFileName, WrittenLog]:
        """The name of the new file, and what the commit says of it.

        From version 8 on it has the write's own instant, before that the base instant of its slice and the next number.
        A pending compaction opens a slice, whose first file has the number 1.
        """
        token, instant = str(current_task()), self.bases.instant
        if self.version >= 8:
            name = LogFileName(item.file_id, instant, 1, token)
            return name, WrittenLog(version=1, base_instant=instant, base_file="", log_files=(str(name),))
        base_instant = service or base.instant
        older = [log.name for log in item.log_files if log.instant == base_instant]
        numbers = [parsed.version for text in older if (parsed := parse_log_file_name(text)) is not None]
        number = max(numbers, default=0) + 1
        name = LogFileName(item.file_id, base_instant, number, token)
        return name, WrittenLog(
            version=number,
            base_instant=base_instant,
            base_file=base.name if service is None else "",
            log_files=(*older, str(name)),
        )

    def _rows(self, change: _Change, numbers: IntArray) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, some at a time, as they are stored."""
        if not len(numbers):
            return
        written, stays = change.incoming.as_stored(), change.incoming.moves == STAYS_HERE
        step = self.options.log_block_bytes * written.num_rows // max(written.nbytes, 1)
        step = min(max(step, 1), _ROWS_AT_ONCE)
        for start in range(0, len(numbers), step):
            part = numbers[start : start + step]
            batch = written.take(pa.array(part))
            yield _with_partition_of(batch, change.stored.rows, part, stays, self._policy.partition_columns)

    def _ordering_of_deletes(self, change: _Change) -> list[pa.Array]:
        """The ordering values of deletes: their own where rows meet stored rows by these, else those of stored rows."""
        numbers, names, rows = pa.array(change.deletes), self.merge.ordering_fields, change.incoming.rows
        if change.by_order and all(name in rows.schema.names for name in names):
            return [decode_dictionary(rows.column(name)).take(numbers) for name in names]
        return [change.stored.rows.column(name).combine_chunks().take(numbers) for name in names]


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of a slice.

    Attributes:
        incoming: rows that come to it.
        stored: what it has of their keys.
        data, deletes: numbers of rows that are written and that delete, each by position in the base file.
        by_order: the rows meet stored rows by their ordering values.
    """

    incoming: IncomingRows
    stored: StoredVersions
    data: IntArray
    deletes: IntArray
    by_order: bool


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a log file.

    Attributes:
        kind: its type.
        header, content: as they are written.
        numbers: of the incoming rows that are in it.
        rows: these, with all columns; none for deletes.
        lacking: columns that a partial update lacks.
    """

    kind: str
    header: Mapping[str, str]
    content: bytes
    numbers: IntArray
    rows: tuple[pa.RecordBatch, ...] = ()
    lacking: frozenset[str] = frozenset()


def _partial_columns(
    version: int, merge: MergeSettings, schema: pa.Schema, options: FileOptions, assigned: Collection[str] | None
) -> tuple[str, ...]:
    """Columns that partial updates of some columns have; none if rows are written whole."""
    if (
        assigned is None
        or not options.partial_updates
        or version < 8
        or merge.delete_marker is not None
        or "_hoodie_is_deleted" in schema.names
    ):
        return ()
    kept = {*META_COLUMNS, *assigned, *merge.ordering_fields}
    columns = tuple(name for name in schema.names if name in kept)
    return columns if len(columns) < len(schema) else ()


def _projected(avro_schema: str, columns: Collection[str]) -> str:
    """An Avro schema with some of its fields (``HoodieAvroUtils.generateProjectionSchema``)."""
    record = json.loads(avro_schema)
    return json.dumps({**record, "fields": [field for field in record["fields"] if field["name"] in columns]})


def _by_position(chosen: BoolArray, stored: StoredVersions) -> IntArray:
    """Numbers of the chosen rows, in the order of their places in the base file."""
    numbers = np.flatnonzero(chosen)
    return numbers[np.argsort(stored.position[numbers], kind="stable")]


def _require_ordering_values(rows: pa.RecordBatch, effects: Effects, merge: MergeSettings) -> None:
    """Refuse rows without ordering value.

    Java reads null as the int 0 and fails to compare that with values of another type: the slice could be neither read
    nor compacted any more.
    """
    for name in merge.ordering_fields:
        place = rows.schema.get_field_index(name)
        if place < 0 or rows.column(place).null_count == 0 or pa.types.is_int32(merge.schema.field(name).type):
            continue
        missing = rows.column(place).is_null().to_numpy(zero_copy_only=False)
        if effects is Effects.BY_ACTION:
            missing = missing & ~delete_mask(rows, effects)
        if missing.any():
            key = rows.column(rows.schema.get_field_index(KEY))[int(np.flatnonzero(missing)[0])].as_py()
            raise InvalidInputError(
                f"table {merge.table}: the ordering column {name!r} is null in {int(missing.sum())} rows of one file "
                f"group, for example that with key {key!r}; Hudi cannot merge such rows of a merge-on-read table. Fill "
                "the column, or filter them out",
                column=name,
                count=int(missing.sum()),
            )


def _with_partition_of(
    batch: pa.RecordBatch, stored: pa.Table, numbers: IntArray, stays: BoolArray, columns: Sequence[str]
) -> pa.RecordBatch:
    """Rows that stay in a partition that is not theirs, with the partition columns of the stored rows."""
    chosen = np.flatnonzero(stays[numbers])
    for name in columns if len(chosen) else ():
        place = batch.schema.get_field_index(name)
        if place < 0 or name not in stored.schema.names:
            continue
        ours = decode_dictionary(batch.column(place))
        theirs = stored.column(name).combine_chunks().take(pa.array(numbers[chosen])).cast(ours.type)
        take = np.arange(len(ours))
        take[chosen] = len(ours) + np.arange(len(chosen))
        values = pa.concat_arrays([ours, theirs]).take(pa.array(take))
        batch = batch.set_column(place, batch.schema.field(place).with_type(values.type), values)
    return batch
