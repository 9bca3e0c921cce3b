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
  value is below the stored one, and keys that the base file has several times.

Record positions (version 8 and 9) are those of the slice's base file, which is complete; a block has them if each of
its records has one. A pending compaction changes nothing in that.

Memory: the incoming rows of one group, what looking them up takes, and one block.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from lakedex.codec.bloom import BloomSizing
from lakedex.codec.log_block import encode_log_block
from lakedex.codec.log_records import AvroBlock, delete_block_content, encode_positions, require_ordering_type
from lakedex.engine import current_task
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.index.written_file import Collector, FileCollector, LogChanges, WrittenFile, WrittenLog
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.names import LogFileName, parse_log_file_name
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileSummary, ParquetBlock
from lakedex.parquet.conform import decode_dictionary
from lakedex.snapshot.merge_on_read import MergeSettings, compare, sortable
from lakedex.snapshot.snapshot import Snapshot
from lakedex.snapshot.stored_versions import StoredVersions, stored_versions
from lakedex.tagging.keyed_rows import DELETED_HERE, KEY, STAYS_HERE, Effects, MergePolicy, delete_mask
from lakedex.types import BoolArray, IntArray
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.file_group_writer import BaseFileGroupWriter, FileOutput, IncomingRecords
from lakedex.write.record_merge import IncomingRows

__all__ = ["LogFileGroupWriter"]


BLOCK_BYTES = 256 * 1024 * 1024
"""``hoodie.logfile.data.block.max.size``."""


_ROWS_AT_ONCE = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFileGroupWriter:
    """Writes file groups of a merge-on-read table: log files for changes, base files for the rest.

    Attributes:
        bases: writes base files.
        avro_schema: of the rows, meta fields included.
        merge: how readers merge log records.
        version: of the table.
        block_format: of data blocks, ``avro`` or ``parquet``.
        block_bytes: size of a data block from which on the next one begins.
    """

    bases: BaseFileGroupWriter
    avro_schema: str
    merge: MergeSettings
    version: int
    block_format: str = "avro"
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def of(cls, snapshot: Snapshot, bases: BaseFileGroupWriter, block_format: str) -> LogFileGroupWriter:
        """The writer for a table; ``bases`` is that of its base files."""
        for name in (merge := MergeSettings.of(snapshot)).ordering_fields:
            require_ordering_type(merge.schema.field(name).type)
        return cls(
            bases=bases,
            avro_schema=bases.settings.avro_schema,
            merge=merge,
            version=snapshot.config.version,
            block_format=block_format,
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
    ) -> WrittenFile | None:
        """Write the group's new file; None if nothing changes.

        Raises:
            InvalidInputError: an ordering value is null, which Hudi's readers cannot compare.
        """
        _require_ordering_values(records.rows, self._policy.effects, self.merge)
        # Rows that are only inserted come to a slice with log files if one of these has deleted their keys.
        adds = self._policy.effects is Effects.INSERT and target.item is not None and not target.item.log_files
        if not target.appends or adds or target.item is None or target.base is None:
            return self.bases.write(target, records, collectors, output)
        started = time.perf_counter()
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
                feature="rewriting a file group beside its compaction",
            )
        if change is None:
            return self.bases.write(target, records, collectors, output)
        if not len(change.data) and not len(change.deletes):
            return None
        name, log = self._named(target.item, target.base, target.service)
        # Java stops at an APPEND marker from version 8 on, and needs it before.
        path = output.announce(target, str(name), "CREATE" if self.version >= 8 else "APPEND")
        taking = {index: one.begin(self.bases.schema) for index, one in collectors.items() if one.takes_logs}
        size = self._write_blocks(output.files, path, target, change, tuple(taking.values()))
        rows = len(change.data)
        summary = BaseFileSummary(size=size, rows=rows, bloom=b"", bloom_type="", min_key=None, max_key=None)
        inserted = int((~stored.live[change.data]).sum())
        finished = replace(
            output.finished(target, str(name), summary),
            log=LogChanges(
                base_file=target.base.name,
                instant=self.bases.instant,
                positions=stored.position[np.concatenate([change.data, change.deletes])],
                deletes=len(change.deletes),
                older=len(target.item.log_files),
            ),
        )
        return replace(
            finished.written(taking, started),
            inserted=inserted,
            updated=rows - inserted,
            deleted=len(change.deletes),
            moved=int((incoming.moves[change.deletes] == DELETED_HERE).sum()),
            log=log,
        )

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
        if by_order:
            is_new &= ~late
            deletes &= ~late
        return _Change(incoming, stored, _by_position(is_new, stored), _by_position(deletes, stored), by_order)

    def _write_blocks(
        self,
        files: TableFiles,
        path: str,
        target: FileGroupTarget,
        change: _Change,
        collectors: Sequence[FileCollector],
    ) -> int:
        """Write the file; its size."""
        header = {"INSTANT_TIME": self.bases.instant, "SCHEMA": self.avro_schema}
        base_instant = target.base.instant if target.base is not None and self.version >= 8 else None
        parquet = self.bases.settings if self.block_format == "parquet" else None
        blocks = _Blocks(header, base_instant, change.stored.position, self.block_bytes, parquet)
        with files.storage.open_output(path) as file:
            blocks.write_rows(file, self._rows(change), change.data, collectors)
            if len(change.deletes):
                keys = change.incoming.keys.take(pa.array(change.deletes))
                content = delete_block_content(keys, target.partition, self._ordering_of_deletes(change))
                blocks.write(file, "DELETE", content, change.deletes)
        return blocks.size

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

    def _rows(self, change: _Change) -> Iterator[pa.RecordBatch]:
        """The rows to write, some at a time, as they are stored."""
        if not len(change.data):
            return
        written, stays = change.incoming.as_stored(), change.incoming.moves == STAYS_HERE
        for start in range(0, len(change.data), _ROWS_AT_ONCE):
            numbers = change.data[start : start + _ROWS_AT_ONCE]
            batch = written.take(pa.array(numbers))
            yield _with_partition_of(batch, change.stored.rows, numbers, stays, self._policy.partition_columns)

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


@dataclass(slots=True)
class _Blocks:
    """The blocks of one log file.

    Attributes:
        header: of each block.
        base_instant: of the base file that positions are in; None writes none.
        position: of each incoming row, -1 for none.
        limit: size of a data block.
        parquet: how Parquet blocks are written; None writes Avro.
        size: bytes written so far.
    """

    header: Mapping[str, str]
    base_instant: str | None
    position: IntArray
    limit: int
    parquet: BaseFileSettings | None
    size: int = field(init=False, default=0)

    def write_rows(
        self, file: BinaryIO, batches: Iterator[pa.RecordBatch], numbers: IntArray, collectors: Sequence[FileCollector]
    ) -> None:
        """Write data blocks of rows with these numbers."""
        kind = "AVRO_DATA" if self.parquet is None else "PARQUET_DATA"
        block, start = self._block(), 0
        for batch in batches:
            for collector in collectors:
                collector.add(batch, {})
            block.add(batch)
            if block.size >= self.limit:
                self.write(file, kind, block.content(), numbers[start : start + block.rows])
                block, start = self._block(), start + block.rows
        if block.rows:
            self.write(file, kind, block.content(), numbers[start:])

    def _block(self) -> AvroBlock | ParquetBlock:
        return AvroBlock() if self.parquet is None else ParquetBlock(self.parquet)

    def write(self, file: BinaryIO, kind: str, content: bytes, numbers: IntArray) -> None:
        """Write one block."""
        header, positions = dict(self.header), self.position[numbers]
        if self.base_instant is not None and (positions >= 0).all():
            header["BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS"] = self.base_instant
            header["RECORD_POSITIONS"] = encode_positions(positions)
        encoded = encode_log_block(kind, header, content)
        file.write(encoded)
        self.size += len(encoded)


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
