"""The tasks that executors run: one rewrites or creates a file group at a time and returns its commit data.

Hashes of incoming keys, made for several small file groups at once: hashing few keys is nearly all calls.

Memory: the rows of groups that are hashed together, and some hundred bytes for each.

The write stage: one task rewrites or creates one file group at a time, and returns what the commit needs.

Tasks may be retried, speculated or run twice. So a file's name carries the task's attempt, a marker precedes each file,
and the driver accepts one result per group; the files of all others are deleted before the commit.

Small files are made durable in bunches, since each sync waits for the disk. The results of a bunch come after that, and
after a last look whether the write is still under way.

Memory: the incoming rows of one group, what :mod:`lakedex.write.file_group_writer` needs, and a bunch's results.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex.codec.bloom import BloomFilter, BloomSizing, HashedKeys, decode_bloom, filter_size, hash_keys
from lakedex.engine import current_task
from lakedex.errors import CommitError, CorruptFileError, InvalidInputError, LakedexError
from lakedex.index.written_file import Collector, FinishedFile, WrittenFile
from lakedex.io.storage import Storage
from lakedex.layout.keys import partition_depth
from lakedex.layout.names import PARTITION_METAFILE, BaseFileName, join_path, marker_name
from lakedex.parallel import run_threads
from lakedex.parquet.base_file_reader import ExistingBaseFile, Footer, iter_base_file, open_for_merge
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileWriter
from lakedex.parquet.conform import with_dictionaries
from lakedex.tagging.keyed_rows import KEY, PARTITION, POSITION, Effects, MergePolicy
from lakedex.timeline.active import is_under_way
from lakedex.types import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.file_group_writer import BaseFileGroupWriter
from lakedex.write.record_merge import IncomingRows, by_group, require_unique_keys

__all__ = ["RESULT_SCHEMA", "RewriteGroup", "WriteFileGroups", "decode_results", "with_hashes"]


TOGETHER_ROWS = 8192


SMALL_ROWS = 4096
"""Groups of more rows have nothing to gain."""


Group = tuple[int, pa.RecordBatch]


def with_hashes(
    groups: Iterable[Group], sizing: BloomSizing
) -> Iterator[tuple[int, pa.RecordBatch, HashedKeys | None]]:
    """Numbers and rows of file groups, and the hashes of the rows' keys where they were made.

    Args:
        groups: the groups.
        sizing: which filters their files get.
    """
    held: list[Group] = []
    rows = 0
    for number, batch in groups:
        if held and rows + batch.num_rows > TOGETHER_ROWS:
            yield from _hashed(held, sizing)
            held, rows = [], 0
        held.append((number, batch))
        rows += batch.num_rows
        if batch.num_rows > SMALL_ROWS:
            yield from _hashed(held, sizing)
            held, rows = [], 0
    yield from _hashed(held, sizing)


def _hashed(held: list[Group], sizing: BloomSizing) -> Iterator[tuple[int, pa.RecordBatch, HashedKeys | None]]:
    small = [batch for _, batch in held if 0 < batch.num_rows <= SMALL_ROWS]
    found = _hash(small, sizing) if len(small) > 1 else None
    start = 0
    for number, batch in held:
        if found is None or not 0 < batch.num_rows <= SMALL_ROWS:
            yield number, batch, None
            continue
        yield number, batch, found.slice(start, batch.num_rows)
        start += batch.num_rows


def _hash(batches: list[pa.RecordBatch], sizing: BloomSizing) -> HashedKeys | None:
    entries = sizing.num_entries or min(batch.num_rows for batch in batches)
    keys = [batch.column(batch.schema.get_field_index(KEY)) for batch in batches]
    try:
        return hash_keys(pa.concat_arrays(keys), filter_size(entries, sizing.fpp)[1])
    except InvalidInputError:
        return None  # Who writes the group with the bad key says which it is.


RESULT_SCHEMA = pa.schema([("group", pa.int32()), ("result", pa.binary())])


_CONSTANT = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
"""Meta columns of few values, whatever the table holds."""


BUNCH_BYTES = 64 * 1024 * 1024


BUNCH_SECONDS = 1.0
"""Files are made durable together up to this size, and of this time: so long a late attempt may go on unnoticed."""


METAFILE_THREADS = 8


@dataclass(slots=True)
class _Bunch:
    """Files that are made durable together, and what else was made for them.

    Attributes:
        storage: where; it gathers.
        results: by group number.
        made: files, their markers included.
        metafiles: partition path → metafile that is missing there.
        size: bytes of the files.
        started: when the first was begun.
    """

    storage: Storage
    results: list[tuple[int, WrittenFile]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    metafiles: dict[str, str] = field(default_factory=dict)
    size: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        return self.size >= BUNCH_BYTES or time.monotonic() - self.started >= BUNCH_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFileGroups:
    """Batch map of the write stage: rows sorted by group number in, one result a group out."""

    storage: Storage
    base_path: str
    timeline_path: str
    """Where the table has its instants."""
    instant: str
    file_schema: pa.Schema
    targets: Sequence[FileGroupTarget]
    policy: MergePolicy
    settings: BaseFileSettings
    collectors: Mapping[str, Collector]
    """What is collected of each file, by index."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Columns of stored files → what they are called from now on."""

    @property
    def schema(self) -> pa.Schema:
        """Group number and pickled :class:`GroupResult`."""
        return RESULT_SCHEMA

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the groups of one task."""
        bunch: _Bunch | None = None
        groups = by_group(batches)
        # Only of new rows the keys are looked up in the old filter or added to the new one.
        hashing = self.policy.effects in (Effects.UPSERT, Effects.INSERT)
        hashed_groups = with_hashes(groups, self.settings.bloom) if hashing else ((*group, None) for group in groups)
        for number, rows, hashed in hashed_groups:
            bunch = bunch or self._new_bunch()
            with self._not_left_behind(bunch):
                result = self._write_group(bunch, self.targets[number], rows, hashed)
            if result is not None:
                bunch.results.append((number, result))
            if bunch.is_full:
                yield from self._finished(bunch)
                bunch = None
        if bunch is not None:
            yield from self._finished(bunch)

    def _new_bunch(self) -> _Bunch:
        return _Bunch(self.storage.gather(self.base_path))

    def _finished(self, bunch: _Bunch) -> Iterator[pa.RecordBatch]:
        """Make a bunch durable and hand its results out."""
        self._settle(bunch)
        numbers = pa.array([number for number, _ in bunch.results], pa.int32())
        results = pa.array([pickle.dumps(result) for _, result in bunch.results], pa.binary())
        if len(numbers):
            yield pa.RecordBatch.from_arrays([numbers, results], schema=RESULT_SCHEMA)

    def _settle(self, bunch: _Bunch) -> None:
        with self._not_left_behind(bunch):
            run_threads(self._add_metafile, list(bunch.metafiles.items()), METAFILE_THREADS)
            bunch.storage.settle()
        self._still_wanted(bunch)

    def rewrite(self, target: FileGroupTarget) -> WrittenFile:
        """Write a group's file again in the stage's schema, its rows as they are."""
        columns = [(KEY, pa.string()), (PARTITION, pa.string()), (POSITION, pa.int64()), *list(self.file_schema)[5:]]
        none = pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in pa.schema(columns)], schema=pa.schema(columns)
        )
        bunch = self._new_bunch()
        with self._not_left_behind(bunch):
            result = self._write_group(bunch, target, none, unchanged_too=True)
        if result is None:
            raise CommitError(f"{self.base_path}: file group {target.file_id} has no base file", instant=self.instant)
        self._settle(bunch)
        return result

    def _write_group(
        self,
        bunch: _Bunch,
        target: FileGroupTarget,
        rows: pa.RecordBatch,
        hashed: HashedKeys | None = None,
        *,
        unchanged_too: bool = False,
    ) -> WrittenFile | None:
        started = time.perf_counter()
        name = BaseFileName(target.file_id, str(current_task()), self.instant)
        if self.policy.effects is Effects.BY_ACTION:
            rows = require_unique_keys(rows, self.policy.duplicates, self.base_path)
        path = f"{self.base_path}/{join_path(target.partition, str(name))}"
        with self._stored(target) as stored:
            incoming = self._incoming(rows, hashed, None if stored is None else stored.footer, name)
            if target.base is None and incoming.inserts().num_rows == 0:
                return None
            self._announce(bunch, target, str(name), path)
            writer, growth = self._writer(bunch.storage, path, stored, incoming)
            collecting = {name: collector.begin(self.file_schema) for name, collector in self.collectors.items()}
            built = BaseFileGroupWriter(writer, tuple(collecting.values()), self.settings.row_group_bytes)
            try:
                if stored is not None:
                    built.merge(stored, incoming, may_grow=growth > 0, renames=self.renames)
                inserted = self._insert(built, target, incoming)
                changed = inserted or incoming.updated or incoming.deleted or unchanged_too
                if target.base is not None and not changed:
                    # Every incoming row was older than the stored one: the file stays as it is.
                    writer.abort()
                    return None
                summary = writer.close()
            except BaseException:
                writer.abort()
                raise
        file = FinishedFile(
            storage=bunch.storage,
            temp=self._temp,
            partition=target.partition,
            file_id=target.file_id,
            name=str(name),
            summary=summary,
            made=bunch.made,
        )
        parts = {index: collector.finish(file) for index, collector in collecting.items()}
        bunch.size += summary.size
        return WrittenFile(
            partition=target.partition,
            file_id=target.file_id,
            file_name=str(name),
            size=summary.size,
            rows=summary.rows,
            inserted=inserted,
            updated=incoming.updated,
            deleted=incoming.deleted,
            previous=target.base.name if target.base else None,
            previous_instant=target.base.instant if target.base else None,
            seconds=time.perf_counter() - started,
            moved=incoming.moved,
            parts=parts,
        )

    def _incoming(
        self, rows: pa.RecordBatch, hashed: HashedKeys | None, footer: Footer | None, name: BaseFileName
    ) -> IncomingRows:
        sequence = f"{self.instant}_{current_task().partition}_{name.file_id[:8]}-"
        schema = self._schema_of(footer, rows)
        return IncomingRows(rows, self.policy, schema, self.instant, str(name), sequence, hashed)

    @property
    def _repeating(self) -> set[str]:
        return {name for collector in self.collectors.values() for name in collector.repeating}

    @property
    def _temp(self) -> str:
        return f"{self.base_path}/.hoodie/.temp/{self.instant}"

    @contextmanager
    def _stored(self, target: FileGroupTarget) -> Iterator[ExistingBaseFile | None]:
        """The group's file; None for a new group."""
        if target.base is None:
            yield None
        else:
            path = f"{self.base_path}/{target.base.relative_path}"
            wanted = {old for name in self.texts for old in (name, *self._old_names(name))}
            size = target.base.size
            with open_for_merge(self.storage, path, without=(FILE_NAME,), dictionaries=wanted, size=size) as opened:
                yield opened

    def _old_names(self, name: str) -> list[str]:
        return [old for old, new in self.renames.items() if new == name]

    @property
    def texts(self) -> set[str]:
        """Text columns that may be dictionaries: not those whose values are compared, nor those that hardly repeat."""
        texts = {column.name for column in self.file_schema if pa.types.is_string(column.type)}
        return texts - {RECORD_KEY, *self.settings.unique, *self.policy.ordering}

    def _schema_of(self, footer: Footer | None, rows: pa.RecordBatch) -> pa.Schema:
        """The new file's columns: dictionaries where the old file has them, or rows come so, or bitmaps want them."""
        if footer is None:
            found = [*self._repeating, *(column.name for column in rows.schema if pa.types.is_dictionary(column.type))]
        else:
            found = [self.renames.get(name, name) for name in footer.dictionaries]
        return with_dictionaries(self.file_schema, {*found, *_CONSTANT} & self.texts)

    def _writer(
        self, storage: Storage, path: str, stored: ExistingBaseFile | None, incoming: IncomingRows
    ) -> tuple[BaseFileWriter, int]:
        """A writer of the group's new file, and how many rows at most come to those of the old one.

        Its filter is sized for all of them, or the old one if that will do.
        """
        footer = None if stored is None else stored.footer
        old = _decoded(footer)
        before, growth, kept = 0 if footer is None else footer.rows, incoming.growth(old), None
        # Only where no row comes or goes are the keys what they were.
        if footer is not None and old is not None and growth == 0 and not incoming.has_deletes:
            kept = footer.bloom if self.settings.bloom.fits(old, before) else None
        writer = BaseFileWriter(
            storage,
            path,
            incoming.schema,
            self.settings,
            expected_rows=before + growth,
            kept_bloom=kept,
            # Where a column was renamed, its name may mean another one in the old file.
            stored=None if stored is None or self.renames else stored.chunks,
        )
        return writer, growth

    def _insert(self, built: BaseFileGroupWriter, target: FileGroupTarget, incoming: IncomingRows) -> int:
        """Write the rows that met no stored one."""
        fresh = incoming.inserts()
        if fresh.num_rows and built.writer.keeps_bloom and target.base is not None:
            # The old filter took a new key for one that it has.
            path = f"{self.base_path}/{target.base.relative_path}"
            built.writer.hash_keys(batch.column(0) for batch in iter_base_file(self.storage, path, [RECORD_KEY]))
        same = fresh.num_rows == incoming.rows.num_rows
        built.add(fresh, incoming.hashed if same else None)
        return int(fresh.num_rows)

    def _announce(self, bunch: _Bunch, target: FileGroupTarget, name: str, path: str) -> None:
        """Marker first: Java's rollback finds the files of a failed write by their markers alone."""
        kind = "MERGE" if target.base is not None else "CREATE"
        marker = f"{self._temp}/{join_path(target.partition, marker_name(name, kind))}"
        bunch.storage.write(marker, b"")
        bunch.made += [marker, path]
        metafile = f"{self.base_path}/{join_path(target.partition, PARTITION_METAFILE)}"
        if target.base is None and target.partition not in bunch.metafiles and not self.storage.exists(metafile):
            bunch.metafiles[target.partition] = metafile

    def _add_metafile(self, missing: tuple[str, str]) -> None:
        """What makes a folder a partition to readers that list; whole from the first moment, or Java fails on it."""
        partition, path = missing
        content = f"#partition metadata\ncommitTime={self.instant}\npartitionDepth={partition_depth(partition)}\n"
        with suppress(FileExistsError):  # Another task of this or another writer was first.
            self.storage.create(path, content.encode("ascii"))

    def _still_wanted(self, bunch: _Bunch) -> None:
        """A late attempt must not leave files behind once its commit is decided.

        The driver looks at the markers once more after it completed the commit, so that one of both sees the other.
        """
        if is_under_way(self.storage, self.timeline_path, self.instant):
            return
        for late in reversed(bunch.made):  # A marker after its file.
            self.storage.delete(late)
        what = f"{self.base_path}: the write {self.instant} is no longer in flight; the task's files were removed"
        raise CommitError(what, instant=self.instant)

    @contextmanager
    def _not_left_behind(self, bunch: _Bunch) -> Iterator[None]:
        """An attempt that fails late does not leave the files either that it had finished."""
        try:
            yield
        except BaseException:
            with suppress(LakedexError, OSError):
                self._still_wanted(bunch)
            with suppress(OSError):
                bunch.storage.settle()
            raise


def _decoded(footer: Footer | None) -> BloomFilter | None:
    """The filter of a footer that has a sound one."""
    if footer is None or footer.bloom is None:
        return None
    try:
        return decode_bloom(footer.bloom, footer.bloom_type)
    except CorruptFileError:
        return None


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Task: write one group's file again in the schema of a stage."""

    stage: WriteFileGroups

    def __call__(self, target: FileGroupTarget) -> WrittenFile:
        """See :meth:`WriteGroups.rewrite`."""
        return self.stage.rewrite(target)


def decode_results(table: pa.Table) -> list[WrittenFile]:
    """One result per group: the first that came, should an engine ever hand over two."""
    accepted: dict[int, WrittenFile] = {}
    for number, raw in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
        accepted.setdefault(number, pickle.loads(raw))  # noqa: S301 - our own tasks' results
    return list(accepted.values())
