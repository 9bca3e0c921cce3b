"""Erase rows for good: a delete, the files that still hold the rows, and a report that proves the result.

Deleting rows for good: a delete, and a look at what still holds the rows afterwards.

A delete writes new versions of the files that held the rows. The old versions stay, with all that time travel can read,
until a cleaner removes them. They are looked into as a write looks for its keys: key ranges, bloom filters, key column.

Memory: the driver holds up to ``PROOF_KEYS`` keys; the frame of keys stays with the engine.

Erasing rows, with a report that proves it: a delete by the indexes, a query that must find nothing, what is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from lakedex.commit.context import WriteContext
from lakedex.commit.idempotency import find_committed_batch
from lakedex.engine import Frame
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.names import parse_base_file_name
from lakedex.options import WriteOptions
from lakedex.printing import printable, printed
from lakedex.reports import TaggingReport, WriteResult
from lakedex.scan.plan import ScanPlan
from lakedex.scan.scan import Scan
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.candidates import find_key_ranges
from lakedex.tagging.keyed_rows import FILE, KEY, PARTITION
from lakedex.tagging.tagging import tag
from lakedex.types import PARTITION_PATH, RECORD_KEY, Operation, size_text
from lakedex.write.operations import Deletion, delete_keys, delete_stored, prepared_frame
from lakedex.write.pipeline import run_write
from lakedex.write.session import Session

__all__ = ["PROOF_KEYS", "EraseProof", "EraseReport", "Erased", "delete_rows", "erase", "erase_rows"]


PROOF_KEYS = 10_000
"""Up to so many keys the proof is a query that names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What a delete did, and what holds the rows still.

    Attributes:
        result: the delete.
        snapshot: the table as the delete left it.
        keys: the distinct keys with their partition paths (null for any), if they are few.
        found_again: keys that a new look found in the current files, if they are many.
        held_by: older base files that hold a row of one of the keys.
        looked_at: older base files that there are.
    """

    result: WriteResult
    snapshot: Snapshot
    keys: pa.Table | None
    found_again: int | None
    held_by: tuple[BaseFile, ...]
    looked_at: int


def erase_rows(handle: TableContext, data: Any, deletion: Deletion, options: WriteOptions) -> Erased:
    """Delete the rows of the keys in a frame and look for them again."""
    ctx = WriteContext.begin(options)
    engine = handle.engine
    with prepared_frame(handle, data, deletion.prepare) as frame:
        result = run_write(handle, deletion.spec(frame), options, ctx)
        now = handle.snapshot()
        snapshot = now if result.instant is None else now.at(result.instant)
        # A pair comes once for each task that has it.
        pairs = engine.collect(engine.map(frame, _Distinct())).group_by([KEY, PARTITION]).aggregate([])
        few, matches = pairs.num_rows <= PROOF_KEYS, TaggingReport()
        if not few:
            _holding(handle, frame, snapshot, deletion, options, matches)
        old = _older(now, snapshot)
        held = _holding(handle, frame, old, deletion, options, TaggingReport())
    return Erased(
        result=result,
        snapshot=snapshot,
        keys=pairs if few else None,
        found_again=None if few else matches.matches,
        held_by=tuple(held),
        looked_at=len(old.slices()),
    )


def _older(now: Snapshot, snapshot: Snapshot) -> Snapshot:
    """The base files that are still there and that the table does not have any more."""
    current = {(base.partition, base.name) for base in snapshot.base_files()}
    slices = []
    for partition, files in now.listing().items():
        for name, size in files.items():
            parsed = parse_base_file_name(name)
            if parsed is None or (partition, name) in current or not now.timeline.is_committed(parsed.instant):
                continue
            base = BaseFile(partition, name, size, parsed.file_id, parsed.instant)
            slices.append(FileSlice(partition, parsed.file_id, parsed.instant, base))
    return now.with_slices(slices)


def _holding(
    handle: TableContext,
    frame: Frame,
    snapshot: Snapshot,
    deletion: Deletion,
    options: WriteOptions,
    report: TaggingReport,
) -> list[BaseFile]:
    """Base files of a snapshot that hold a row of one of the keys."""
    engine = handle.engine
    files = find_key_ranges(engine, snapshot, options, report, None)
    if not files:
        return []
    tags = tag(engine, frame, snapshot, files, options, report, any_partition=deletion.any_partition)
    numbers = engine.collect(engine.map(tags.frame, _FilesOnly())).column(0).to_numpy()
    return [files[number].base for number in np.unique(numbers).tolist()]


@dataclass(frozen=True, slots=True)
class _Distinct:
    """Up to one key more than are proved one by one, with their partitions."""

    @property
    def schema(self) -> pa.Schema:
        """(key, partition)."""
        return pa.schema([(KEY, pa.string()), (PARTITION, pa.string())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's."""
        held = pa.Table.from_batches([], self.schema)
        for batch in batches:
            own = pa.Table.from_batches([batch.select([0, 1])], self.schema)
            held = pa.concat_tables([held, own]).group_by([KEY, PARTITION]).aggregate([]).select([KEY, PARTITION])
            if held.num_rows > PROOF_KEYS:
                break
        yield from held.slice(0, PROOF_KEYS + 1).to_batches()


@dataclass(frozen=True, slots=True)
class _FilesOnly:
    """The files that hold a key, each once a batch."""

    @property
    def schema(self) -> pa.Schema:
        """(file number)."""
        return pa.schema([(FILE, pa.int32())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's."""
        for batch in batches:
            yield pa.RecordBatch.from_arrays([batch.column(0).unique()], schema=self.schema)


ProofBy = Literal["full", "index"]


FULL_PROOF_BYTES = 1 << 30
"""Tables up to this size are read whole for the proof, unless the caller says otherwise."""


SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseProof:
    """A query on the table as the erasure left it, whose count has to be 0.

    Attributes:
        sql: the query.
        rows: what it counted.
        by: ``full``: every file was read, no index was asked; ``index``: the indexes said which files to read.
        files_read: base files that were read.
        seconds: how long it took.
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
class EraseReport:
    """What :meth:`lakedex.Table.erase` did, its proof, and what holds the rows still.

    Attributes:
        table: the table's name.
        instant: the commit; None where there was nothing to erase.
        rows: rows erased.
        files_total: base files of the table before.
        files_looked_at: those whose rows or keys were read to find the rows.
        files_rewritten: new versions of files, without the rows.
        bytes_written: their size.
        plan: of an erasure by a condition, what each index did; None for keys.
        tagging: how the files of the keys were found.
        proof: the query that finds nothing.
        held_by: older versions of files that still hold a row of one of the keys. Rows that matched a condition in an
            older commit only are not among the keys.
        readable_at: older commits that time travel can still read them at.
        notes: what else there is to know.
        seconds: the whole call.
    """

    table: str
    instant: str | None
    rows: int
    files_total: int
    files_looked_at: int
    files_rewritten: int
    bytes_written: int
    plan: ScanPlan | None
    tagging: TaggingReport
    proof: EraseProof
    held_by: tuple[BaseFile, ...] = ()
    readable_at: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_proved(self) -> bool:
        """Whether the proof found nothing."""
        return self.proof.rows == 0

    @property
    def is_physical(self) -> bool:
        """Whether no base file holds a row of the keys any more."""
        return not self.held_by

    def __str__(self) -> str:
        lines = [
            f"erase {self.table} {self.instant or '(nothing to erase)'}: {self.rows:,} rows erased; "
            f"{self.files_rewritten} files rewritten ({size_text(self.bytes_written)}), {self.files_looked_at} looked "
            f"at, of {self.files_total}; {self.seconds:.2f} s",
            f"  proof: {self.proof}",
        ]
        if self.plan is not None:
            lines += [f"  {line}" for line in str(self.plan).splitlines()]
        if self.tagging.source != "none":
            lines.append(f"  keys: {self.tagging}")
        if self.held_by:
            lines.append(
                f"  still on disk: {len(self.held_by)} older files hold these rows until they are cleaned; commits "
                f"{', '.join(self.readable_at[:SHOWN]) or 'none'} can still be read by as_of"
            )
            lines += [f"    {base.relative_path} ({size_text(base.size)})" for base in self.held_by[:SHOWN]]
            if len(self.held_by) > SHOWN:
                lines.append(f"    … and {len(self.held_by) - SHOWN} more")
        return printed([*lines, *(f"  note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for the record."""
        return {
            "table": self.table,
            "instant": self.instant,
            "rows": self.rows,
            "files_total": self.files_total,
            "files_looked_at": self.files_looked_at,
            "files_rewritten": self.files_rewritten,
            "bytes_written": self.bytes_written,
            "plan": None if self.plan is None else self.plan.to_dict(),
            "tagging": self.tagging.to_dict(),
            "proof": asdict(self.proof),
            "held_by": [{"path": base.relative_path, "bytes": base.size} for base in self.held_by],
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
        raise InvalidInputError(f"{call}: {keys!r} is no frame or list of keys; give a condition as where=")


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
    before = handle.snapshot()
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


def _scan(handle: TableContext, session: Session, snapshot: Snapshot, where: str, *, skipping: bool = True) -> Scan:
    return Scan(
        snapshot=snapshot,
        where=where,
        skipping=skipping,
        rules=session.rules,
        engine=handle.engine,
        to_frame=session.to_frame,
    )


def _key_frame(handle: TableContext, keys: Any) -> Any:
    """A frame of keys that were given as a list: of values, tuples (several key columns) or dictionaries."""
    if not isinstance(keys, list | tuple | set | frozenset):
        return keys
    snapshot = handle.snapshot()
    fields, items = snapshot.config.record_key_fields, list(keys)
    schema = snapshot.schema
    if not items or not all(name in schema.names for name in fields):
        raise InvalidInputError(
            f"{snapshot.base_path}: give a list of at least one key, or a frame with {', '.join(fields)}"
        )
    if all(isinstance(item, Mapping) for item in items):
        names = [str(name) for name in items[0]]
        if any(item.keys() != items[0].keys() for item in items):
            raise InvalidInputError(f"{snapshot.base_path}: all keys given as dictionaries have the same columns")
        columns = [[item.get(name) for item in items] for name in names]
    elif len(fields) == 1:
        names, columns = list(fields), [items]
    else:
        if any(not isinstance(item, tuple | list) or len(item) != len(fields) for item in items):
            raise InvalidInputError(
                f"{snapshot.base_path}: a key has {len(fields)} columns ({', '.join(fields)}): give tuples of so many "
                "values, dictionaries, or a frame"
            )
        names, columns = list(fields), [list(column) for column in zip(*items, strict=True)]
    try:
        return pa.table(
            {
                name: pa.array(column, schema.field(name).type if name in schema.names else None)
                for name, column in zip(names, columns, strict=True)
            }
        )
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{snapshot.base_path}: keys of {', '.join(names)}: {error}") from error


# ----------------------------------------------------------------------------------------------------------- the proof


def _proved(
    handle: TableContext, session: Session, snapshot: Snapshot, where: str, proof: ProofBy | None
) -> EraseProof:
    started = time.perf_counter()
    total = int(snapshot.view().table.sizes.sum())
    full = proof == "full" or (proof is None and total <= FULL_PROOF_BYTES)
    scan = _scan(handle, session, snapshot, where, skipping=not full)
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
    """Many keys are looked for as a write looks for them."""
    return EraseProof(
        sql=_query(erased.snapshot, f"{RECORD_KEY} IN (the keys of the frame)"),
        rows=erased.found_again or 0,
        by="index",
        files_read=erased.result.tagging.files_opened,
        seconds=0.0,
    )


def _condition(keys: pa.Table) -> str:
    """The rows of some keys as SQL."""
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
    """The proof's query, to be shown and to be run again."""
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
    looked_at = result.tagging.files_opened if plan is None else max(len(plan.slices), result.tagging.files_opened)
    return EraseReport(
        table=snapshot.config.name,
        instant=result.instant,
        rows=result.deleted,
        files_total=len(before.base_files()),
        files_looked_at=looked_at,
        files_rewritten=result.files_written,
        bytes_written=result.bytes_written,
        plan=plan,
        tagging=result.tagging,
        proof=proved,
        held_by=erased.held_by,
        readable_at=_readable(snapshot, erased),
        notes=(*_notes(erased, proved, by_condition=plan is not None), *result.notes),
        seconds=time.perf_counter() - started,
    )


def _readable(snapshot: Snapshot, erased: Erased) -> tuple[str, ...]:
    """Commits before the erasure at which one of the older files may be part of the table."""
    if not erased.held_by:
        return ()
    first = min(base.instant for base in erased.held_by)
    last = erased.result.instant
    commits = snapshot.timeline.completed({"commit", "deltacommit", "replacecommit"})
    return tuple(i.requested for i in commits if i.requested >= first and (last is None or i.requested < last))


def _notes(erased: Erased, proved: EraseProof, *, by_condition: bool) -> Sequence[str]:
    notes = []
    if proved.rows:
        notes.append(f"{proved.rows} rows match the proof's query: they are NOT erased; run the erasure again")
    if erased.held_by:
        notes.append(
            "the erasure is physical only once those older files are cleaned: maintenance.clean() does it, and writes "
            "as the hoodie.clean.* options say. What the metadata table has of them (bounds, filters, bitmaps) stays "
            "until then, and until it is compacted"
        )
    if by_condition and erased.looked_at:
        notes.append(
            "rows that matched the condition in an older commit only were not looked for: erase them by their keys to "
            "be told which older files hold them"
        )
    return notes
