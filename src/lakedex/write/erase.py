"""Erase rows permanently: delete them, find the older files that still have them, and verify the result by a query.

A delete writes new versions of the files with the rows. The old versions stay for time travel until they are cleaned.
They are searched like files in a write: by key ranges, bloom filters and key columns. On merge-on-read tables slices
with any version of a key become base files of their merged rows, and log files are read for records of the keys.

Memory: the driver has up to ``proof_keys`` keys; the frame of keys stays with the engine. A task has a log file's keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from lakedex.arrow_types import is_pandas
from lakedex.commit.idempotency import find_committed_batch
from lakedex.commit.transaction import WriteContext
from lakedex.display.blocks import ROWS, Block, Card, Facts, Grid, Notice, Notices, Tone, notes
from lakedex.engine import Frame, SelectColumns
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, DataFile, FileSlice, LogFile
from lakedex.layout.log_reader import log_keys
from lakedex.layout.names import parse_base_file_name, parse_log_file_name
from lakedex.options import TaggingOptions, WriteOptions
from lakedex.printing import printable
from lakedex.reports import Report, TaggingReport, WriteResult, counted
from lakedex.scan.plan import ScanPlan
from lakedex.scan.scan import Scan
from lakedex.snapshot.schema import root_columns
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.candidates import find_key_ranges
from lakedex.tagging.keyed_rows import FILE, KEY, PARTITION
from lakedex.tagging.tagging import tag
from lakedex.types import PARTITION_PATH, RECORD_KEY, Operation, size_text
from lakedex.write.input_rows import array_of, pandas_rows
from lakedex.write.operations import Deletion, delete_keys, delete_stored, prepared_frame, require_record_key, writable
from lakedex.write.pipeline import run_write
from lakedex.write.session import Session

__all__ = ["EraseProof", "EraseReport", "Erased", "delete_rows", "erase", "erase_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """Result of the delete, and older files with the rows.

    Attributes:
        result: Result of the delete.
        snapshot: Table after the delete.
        keys: Distinct keys with their partition paths (null for any), if they are few.
        found_again: Number of keys that a second search found in the current files, if they are many.
        retained_in: Older files with a row of one of the keys, or a delete of it.
        older_files: Number of older files.
    """

    result: WriteResult
    snapshot: Snapshot
    keys: pa.Table | None
    found_again: int | None
    retained_in: tuple[DataFile, ...]
    older_files: int


def erase_rows(handle: TableContext, data: Any, deletion: Deletion, options: WriteOptions) -> Erased:
    """Delete the rows of the keys in a frame and search for them again."""
    ctx = WriteContext.begin(options)
    engine = handle.engine
    with prepared_frame(handle, data, deletion.prepare) as frame:
        result = run_write(handle, deletion.spec(frame, rewrites=True), options, ctx)
        now = handle.snapshot()
        snapshot = now if result.instant is None else now.at(result.instant)
        # Each task may return the same pair.
        most = handle.limits.proof_keys
        pairs = engine.collect(engine.map(frame, _Distinct(most))).group_by([KEY, PARTITION]).aggregate([])
        few, matches = pairs.num_rows <= most, TaggingReport()
        if not few:
            _files_with_keys(handle, frame, snapshot, deletion, options.tagging, matches)
        old, logs = _older(now, snapshot)
        files: list[DataFile] = [*_files_with_keys(handle, frame, old, deletion, options.tagging, TaggingReport())]
        files += _logs_with_keys(handle, frame, logs, deletion)
    return Erased(
        result=result,
        snapshot=snapshot,
        keys=pairs if few else None,
        found_again=None if few else matches.matches,
        retained_in=tuple(files),
        older_files=len(old.slices()) + len(logs),
    )


def _older(now: Snapshot, snapshot: Snapshot) -> tuple[Snapshot, list[LogFile]]:
    """Snapshot of the base files that still exist but are no longer part of the table, and log files.

    Slices with log files may hold more than their merged rows show: their files are searched too.
    """
    whole = {(item.partition, item.name) for item in snapshot.slices() if not item.log_files}
    slices, version = list[FileSlice](), now.config.version
    logs: list[LogFile] = []
    for partition, files in now.listing().items():
        for name, size in files.items():
            base, log = parse_base_file_name(name), parse_log_file_name(name)
            if base is not None and (partition, name) not in whole and now.timeline.is_committed(base.instant):
                found = BaseFile(partition, name, size, base.file_id, base.instant)
                slices.append(FileSlice(partition, base.file_id, base.instant, found))
            # Version 6 names a log file by the instant of its slice, which may be that of a pending compaction.
            elif log is not None and not log.cdc and (version < 8 or now.timeline.is_committed(log.instant)):
                logs.append(LogFile(partition, name, size, log.instant))
    return now.with_slices(slices), logs


def _logs_with_keys(handle: TableContext, frame: Frame, logs: Sequence[LogFile], deletion: Deletion) -> list[LogFile]:
    """Log files with a record of one of the keys."""
    if not logs:
        return []
    engine, on = handle.engine, [KEY] if deletion.any_partition else [KEY, PARTITION]
    keys = engine.map(frame, SelectColumns(pa.schema([frame.schema.field(name) for name in on])))
    stored = engine.map(engine.numbers(len(logs)), _LogKeys(handle.files, tuple(logs), tuple(on)))
    numbers = engine.collect(engine.map(engine.join(keys, stored, on), _FilesOnly())).column(0).to_numpy()
    return [logs[number] for number in np.unique(numbers).tolist()]


@dataclass(frozen=True, slots=True)
class _LogKeys:
    """Distinct keys of log files, by number, those of deletes and of blocks that do not count included."""

    files: TableFiles
    logs: tuple[LogFile, ...]
    on: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """(file number, key, partition); without the partition for keys of all of them."""
        return pa.schema([(FILE, pa.int32()), *((name, pa.string()) for name in self.on)])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those of one task's files."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                log = self.logs[number]
                keys = log_keys(self.files, log)
                columns = {FILE: pa.repeat(pa.scalar(number, pa.int32()), len(keys)), KEY: keys}
                columns[PARTITION] = pa.repeat(pa.scalar(log.partition, pa.string()), len(keys))
                yield pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _files_with_keys(
    handle: TableContext,
    frame: Frame,
    snapshot: Snapshot,
    deletion: Deletion,
    options: TaggingOptions,
    report: TaggingReport,
) -> list[BaseFile]:
    """Base files of a snapshot with a row of one of the keys."""
    engine = handle.engine
    files = find_key_ranges(engine, snapshot, options, report, None)
    if not files:
        return []
    tags = tag(engine, frame, snapshot, files, options, report, handle.limits, any_partition=deletion.any_partition)
    numbers = engine.collect(engine.map(tags.frame, _FilesOnly())).column(0).to_numpy()
    return [files[number].base for number in np.unique(numbers).tolist()]


@dataclass(frozen=True, slots=True)
class _Distinct:
    """Distinct keys with partitions, up to one more than ``most``."""

    most: int
    reads: ClassVar[tuple[str, ...]] = (KEY, PARTITION)

    @property
    def schema(self) -> pa.Schema:
        """(key, partition)."""
        return pa.schema([(KEY, pa.string()), (PARTITION, pa.string())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Distinct pairs of one task."""
        found = pa.Table.from_batches([], self.schema)
        for batch in batches:
            own = pa.Table.from_batches([batch.select([0, 1])], self.schema)
            found = pa.concat_tables([found, own]).group_by([KEY, PARTITION]).aggregate([]).select([KEY, PARTITION])
            if found.num_rows > self.most:
                break
        yield from found.slice(0, self.most + 1).to_batches()


@dataclass(frozen=True, slots=True)
class _FilesOnly:
    """Numbers of files with a key, each once per batch; null for none is left out."""

    @property
    def schema(self) -> pa.Schema:
        """(file number)."""
        return pa.schema([(FILE, pa.int32())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Distinct files of one task."""
        for batch in batches:
            numbers = batch.column(batch.schema.get_field_index(FILE)).drop_null().unique()
            yield pa.RecordBatch.from_arrays([numbers], schema=self.schema)


ProofBy = Literal["full", "index"]


SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseProof:
    """A query on the table after the erasure, whose count must be 0.

    Attributes:
        sql: The query.
        rows: Its count.
        by: ``full`` if every file was read without indexes; ``index`` if indexes chose the files to read.
        files_read: Number of base files read.
        seconds: Duration of the query.
    """

    sql: str
    rows: int
    by: str
    files_read: int
    seconds: float

    def __str__(self) -> str:
        how = "without any index" if self.by == "full" else "by the indexes"
        sql = self.sql if len(self.sql) <= 200 else f"{self.sql[:200]}…"
        return printable(f"{self.rows} rows, {how}, {self.files_read} files read, {self.seconds:.2f} s: {sql}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EraseReport(Report):
    """Result of :meth:`lakedex.Table.erase`, its proof, and older files that still have the rows.

    Attributes:
        table: Name of the table.
        instant: Instant of the commit; None if there was nothing to erase.
        rows: Number of erased rows.
        files_total: Number of base files before.
        files_examined: Number of files read to find the rows.
        files_rewritten: Number of new files without the rows.
        bytes_written: Size of the new files.
        plan: Plan of an erasure by a condition; None for keys.
        tagging: Report of how the files of the keys were found.
        proof: Query that finds no rows.
        retained_in: Older versions of files with a row of one of the keys, log files with a delete of one too. Rows
            that matched a condition only in an older commit are not among the keys.
        readable_at: Older commits at which time travel can still read the rows.
        notes: Further remarks.
        seconds: Duration of the call.
    """

    table: str
    instant: str | None
    rows: int
    files_total: int
    files_examined: int
    files_rewritten: int
    bytes_written: int
    plan: ScanPlan | None
    tagging: TaggingReport
    proof: EraseProof
    retained_in: tuple[DataFile, ...] = ()
    readable_at: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_verified(self) -> bool:
        """Whether the proof found nothing."""
        return self.proof.rows == 0

    @property
    def is_physical(self) -> bool:
        """Whether no file has a row of the keys."""
        return not self.retained_in

    def card(self) -> Card:
        """The proof, how the rows were found, and where older files still hold them."""
        facts = [
            ("rewritten", f"{counted(self.files_rewritten, 'file')}, {size_text(self.bytes_written)}"),
            ("examined", f"{self.files_examined:,} of {counted(self.files_total, 'file')}"),
        ]
        blocks: list[Block] = [Facts(facts), Notices([Notice(str(self.proof), "proof", self._tone)])]
        if self.plan is not None:
            blocks += self.plan.card().blocks
        if self.tagging.source != "none":
            blocks.append(self.tagging.funnel())
        if self.retained_in:
            files = [(file.relative_path, size_text(file.size)) for file in self.retained_in[:ROWS]]
            title = "older files that hold the rows until they are cleaned"
            blocks.append(Grid(("file", "size"), files, ("size",), len(self.retained_in), title, "retained_in has all"))
            blocks.append(Facts([("readable by as_of", ", ".join(self.readable_at[:SHOWN]) or "none")]))
        title = f"erase from {self.table}, {self.instant or '(nothing to erase)'}"
        head = f"{counted(self.rows, 'row')} erased, {self.seconds:.2f} s"
        return Card(title, head, [*blocks, notes(self.notes)], self._tone)

    @property
    def _tone(self) -> Tone:
        return "good" if self.is_verified else "bad"

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {
            "table": self.table,
            "instant": self.instant,
            "rows": self.rows,
            "files_total": self.files_total,
            "files_examined": self.files_examined,
            "files_rewritten": self.files_rewritten,
            "bytes_written": self.bytes_written,
            "plan": None if self.plan is None else self.plan.to_dict(),
            "tagging": self.tagging.to_dict(),
            "proof": asdict(self.proof),
            "retained_in": [{"path": base.relative_path, "bytes": base.size} for base in self.retained_in],
            "readable_at": list(self.readable_at),
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


def delete_rows(
    handle: TableContext,
    session: Session,
    keys: Any,
    where: Any,
    options: WriteOptions,
    *,
    all_partitions: bool = False,
) -> WriteResult:
    """Delete by keys or by a condition; see :meth:`lakedex.Table.delete`."""
    _require_one_of("delete", session, keys, where)
    if where is None:
        return delete_keys(handle, _key_frame(handle, keys), options, all_partitions=all_partitions)
    if all_partitions:
        raise InvalidInputError("delete: all_partitions goes with keys; a condition is for all partitions")
    if (done := find_committed_batch(handle, options, Operation.DELETE)) is not None:
        return done
    snapshot = handle.snapshot()
    rows = session.matching(snapshot, where, (RECORD_KEY, PARTITION_PATH))
    return delete_stored(handle, rows, options, snapshot.last_completion_time)


def _require_one_of(call: str, session: Session, keys: Any, where: Any) -> None:
    if (keys is None) == (where is None):
        raise InvalidInputError(f"{call} takes keys or a condition, one of the two")
    if keys is not None and not session.is_frame(keys):
        raise InvalidInputError(f"{call}: {keys!r} is not a frame or a list of keys; give a condition as where=")


def erase(
    handle: TableContext,
    session: Session,
    keys: Any,
    where: str | None,
    options: WriteOptions,
    proof: ProofBy | None = None,
    *,
    all_partitions: bool = False,
) -> EraseReport:
    """Erase rows by keys or by a condition; see :meth:`lakedex.Table.erase`."""
    started = time.perf_counter()
    _require_one_of("erase", session, keys, where)
    if proof not in (None, "full", "index"):
        raise InvalidInputError(f"proof is 'full', 'index' or None, not {proof!r}")
    before = writable(handle)
    plan = None
    if where is not None:
        if not isinstance(where, str):
            raise InvalidInputError("erase takes its condition as SQL text, which the report quotes as its proof")
        session.require_same_reading(where)
        plan = _scan(handle, session, before, where).plan()
        rows = session.matching(before, where, (RECORD_KEY, PARTITION_PATH))
        erased = erase_rows(handle, rows, Deletion.of_stored(handle, before.last_completion_time), options)
    else:
        frame = handle.engine.read_frame(_key_frame(handle, keys))
        deletion = Deletion.of_keys(handle, frame, options, all_partitions=all_partitions)
        erased = erase_rows(handle, frame, deletion, options)
    return _report(handle, session, before, plan, where, erased, proof, started)


def _scan(handle: TableContext, session: Session, snapshot: Snapshot, where: str, *, use_indexes: bool = True) -> Scan:
    return Scan(
        snapshot=snapshot,
        where=where,
        use_indexes=use_indexes,
        rules=session.rules,
        engine=handle.engine,
        to_frame=session.to_frame,
    )


def _key_frame(handle: TableContext, keys: Any) -> Any:
    """Frame of keys given as a list of values, tuples (for several key columns) or dictionaries, or by pandas."""
    if is_pandas(keys):
        return pandas_rows(keys, handle.current().schema, case_sensitive=handle.engine.case_sensitive)
    if not isinstance(keys, list | tuple | set | frozenset):
        return keys
    snapshot = handle.current()
    require_record_key(snapshot, "delete by keys", "delete with a condition: delete(where=…)")
    fields, items = snapshot.config.record_key_fields, list(keys)
    schema = snapshot.schema
    roots = root_columns(schema, fields)
    if not all(name in schema.names for name in roots):
        raise InvalidInputError(f"{snapshot.files}: the table has no rows yet; give a frame with {', '.join(fields)}")
    if not items:
        named = {*roots, *snapshot.config.partition_fields}
        return pa.schema([column for column in schema if column.name in named]).empty_table()
    if isinstance(items[0], pa.RecordBatch | pa.Table):
        return items
    if all(isinstance(item, Mapping) for item in items):
        names = [str(name) for name in items[0]]
        if any(item.keys() != items[0].keys() for item in items):
            raise InvalidInputError(f"{snapshot.files}: all keys given as dictionaries have the same columns")
        columns = [[item.get(name) for item in items] for name in names]
    elif roots != fields:
        raise InvalidInputError(
            f"{snapshot.files}: the key {', '.join(fields)} lies inside of a struct: give dictionaries or a frame with "
            f"{', '.join(roots)}"
        )
    elif len(fields) == 1:
        names, columns = list(fields), [items]
    else:
        if any(not isinstance(item, tuple | list) or len(item) != len(fields) for item in items):
            raise InvalidInputError(
                f"{snapshot.files}: a key has {len(fields)} columns ({', '.join(fields)}): give tuples of as many "
                "values, dictionaries, or a frame"
            )
        names, columns = list(fields), [list(column) for column in zip(*items, strict=True)]
    known = {name: schema.field(name) if name in schema.names else pa.field(name, pa.null()) for name in names}
    made = {
        name: array_of(column, known[name], snapshot.config.name) for name, column in zip(names, columns, strict=True)
    }
    return pa.table(made)


# ----------------------------------------------------------------------------------------------------------- the proof


def _proved(
    handle: TableContext, session: Session, snapshot: Snapshot, where: str, proof: ProofBy | None
) -> EraseProof:
    started = time.perf_counter()
    total = int(snapshot.view().table.sizes.sum())
    full = proof == "full" or (proof is None and total <= handle.limits.full_proof_bytes)
    scan = _scan(handle, session, snapshot, where, use_indexes=not full)
    try:
        rows = scan.count()
    except UnsupportedFeatureError:
        if session.to_frame is None:
            raise
        rows = scan.to_spark().count()  # Only Spark can evaluate the condition.
    return EraseProof(
        sql=_query(snapshot, where),
        rows=rows,
        by="full" if full else "index",
        files_read=len(scan.plan().slices),
        seconds=time.perf_counter() - started,
    )


def _proved_by_keys(erased: Erased) -> EraseProof:
    """Report of a second search for many keys, like that of a write."""
    return EraseProof(
        sql=_query(erased.snapshot, f"{RECORD_KEY} IN (the keys of the frame)"),
        rows=erased.found_again or 0,
        by="index",
        files_read=erased.result.tagging.files_opened,
        seconds=0.0,
    )


def _condition(keys: pa.Table) -> str:
    """SQL condition for the rows of some keys."""
    by_path: dict[str | None, list[str]] = {}
    for key, path in zip(keys.column(KEY).to_pylist(), keys.column(PARTITION).to_pylist(), strict=True):
        by_path.setdefault(path, []).append(_text(key))
    parts = [
        f"{RECORD_KEY} IN ({', '.join(sorted(texts))})"
        + ("" if path is None else f" AND {PARTITION_PATH} = {_text(path)}")
        for path, texts in sorted(by_path.items(), key=lambda item: str(item[0]))
    ]
    return parts[0] if len(parts) == 1 else " OR ".join(f"({part})" for part in parts)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _query(snapshot: Snapshot, where: str) -> str:
    """SQL text of the proof, to be shown and repeated."""
    name = snapshot.config.name
    quoted = name if name.isidentifier() else f"`{name.replace('`', '``')}`"
    return " ".join(["SELECT count(*) FROM", quoted, "WHERE", where])


def _report(
    handle: TableContext,
    session: Session,
    before: Snapshot,
    plan: ScanPlan | None,
    where: str | None,
    erased: Erased,
    proof: ProofBy | None,
    started: float,
) -> EraseReport:
    result, snapshot = erased.result, erased.snapshot
    if where is None and erased.keys is not None:
        where = _condition(erased.keys) if erased.keys.num_rows else "false"
    proved = _proved_by_keys(erased) if where is None else _proved(handle, session, snapshot, where, proof)
    older_files = result.tagging.files_opened if plan is None else max(len(plan.slices), result.tagging.files_opened)
    return EraseReport(
        table=snapshot.config.name,
        instant=result.instant,
        rows=result.deleted,
        files_total=len(before.base_files()),
        files_examined=older_files,
        files_rewritten=result.files_written,
        bytes_written=result.bytes_written,
        plan=plan,
        tagging=result.tagging,
        proof=proved,
        retained_in=erased.retained_in,
        readable_at=_readable(snapshot, erased),
        notes=(*_notes(erased, proved, by_condition=plan is not None), *result.notes),
        seconds=time.perf_counter() - started,
    )


def _readable(snapshot: Snapshot, erased: Erased) -> tuple[str, ...]:
    """Commits before the erasure at which one of the older files may belong to the table."""
    if not erased.retained_in:
        return ()
    first = min(base.instant for base in erased.retained_in)
    last = erased.result.instant
    commits = snapshot.timeline.completed({"commit", "deltacommit", "replacecommit"})
    return tuple(i.requested for i in commits if i.requested >= first and (last is None or i.requested < last))


def _notes(erased: Erased, proved: EraseProof, *, by_condition: bool) -> Sequence[str]:
    notes = []
    if proved.rows:
        notes.append(f"{proved.rows} rows match the proof's query: they are NOT erased; run the erasure again")
    if erased.retained_in:
        notes.append(
            "the erasure is physical only once those older files are cleaned: maintenance.clean() does it, and writes "
            "as the hoodie.clean.* options say. Their bounds, filters and bitmaps in the metadata table stay "
            "until then, and until it is compacted"
        )
    if by_condition and erased.older_files:
        notes.append(
            "rows that matched the condition only in an older commit were not searched for: erase them by their keys "
            "to see which older files have them"
        )
    return notes
