"""Rows that the driver holds, and what an engine does with them without Spark.

Both engines use this: the local one for all of its work, the Spark one for stages so small that a Spark job would
cost more than the work itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, count, pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.engine import BatchMap, TaskId, in_task

__all__ = [
    "ROWS_PER_PARTITION",
    "ArrowFrame",
    "conform",
    "exchange",
    "has_required",
    "left_join",
    "map_partitions",
    "run_threads",
    "split",
]

T = TypeVar("T")
R = TypeVar("R")

ROWS_PER_PARTITION = 65_536
"""Fewer rows than this are not worth a second thread."""

_CUT_ROWS = 64
_SAMPLE_ROWS = 16_384

_stages = count()


@dataclass(frozen=True, slots=True)
class ArrowFrame:
    """Rows on the driver, as one table for each partition (at least one).

    ``exchanged`` says that the partitions were made by :func:`exchange`: each is one task of real work, not an
    arbitrary slice.
    """

    partitions: tuple[pa.Table, ...]
    schema: pa.Schema
    exchanged: bool = False

    @classmethod
    def of(cls, table: pa.Table, threads: int = 1) -> ArrowFrame:
        """A frame of ``table``'s rows, sliced for at most ``threads`` threads."""
        parts = max(1, min(threads, table.num_rows // ROWS_PER_PARTITION))
        return cls(split(table, parts), table.schema)

    @property
    def num_rows(self) -> int:
        """Rows of all partitions."""
        return sum(part.num_rows for part in self.partitions)

    def table(self) -> pa.Table:
        """All rows, in partition order."""
        return self.partitions[0] if len(self.partitions) == 1 else pa.concat_tables(self.partitions)


def split(table: pa.Table, parts: int) -> tuple[pa.Table, ...]:
    """``table`` as ``parts`` zero-copy slices of about equal length."""
    edges = np.linspace(0, table.num_rows, parts + 1).astype(np.int64)
    return tuple(table.slice(int(a), int(b - a)) for a, b in pairwise(edges))


# ------------------------------------------------------------------------------------------------------- types


def _cast(array: Any, type_: pa.DataType) -> Any:
    if array.type == type_:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if not has_required(type_):
        return array.cast(type_)
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_cast_nested(chunk, type_) for chunk in array.chunks], type_)
    return _cast_nested(array, type_)


def has_required(type_: pa.DataType) -> bool:
    """Whether a struct in a type has a field that is never null."""
    if not pa.types.is_nested(type_):
        return False
    parts = [type_.field(i) for i in range(type_.num_fields)]
    return any((pa.types.is_struct(type_) and not part.nullable) or has_required(part.type) for part in parts)


def _cast_nested(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A cast to a type with required fields. Arrow's takes a struct that is null for one whose fields are null."""
    if array.type == type_:
        return array
    compact = pa.concat_arrays([array]) if array.offset else array
    if pa.types.is_struct(type_) and [f.name for f in array.type] == [f.name for f in type_]:
        parts = [_cast(compact.field(place), part.type) for place, part in enumerate(type_)]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=compact.is_null())
    if pa.types.is_list(type_) and pa.types.is_list(array.type):
        values = _cast(compact.values, type_.value_type)
        return pa.ListArray.from_arrays(compact.offsets, values, type=type_, mask=compact.is_null())
    if pa.types.is_map(type_) and pa.types.is_map(array.type):
        keys, items = _cast(compact.keys, type_.key_type), _cast(compact.items, type_.item_type)
        return pa.MapArray.from_arrays(compact.offsets, keys, items, type=type_, mask=compact.is_null())
    return array.cast(type_)


B = TypeVar("B", pa.Table, pa.RecordBatch)


def conform(batch: B, schema: pa.Schema) -> B:
    """``batch`` (a record batch or table) with exactly ``schema``'s columns, in its order and types.

    Spark hands timestamps in the session's time zone and names the parts of nested types in its own way.
    """
    if batch.schema.equals(schema, check_metadata=False):
        return batch
    columns = [_cast(batch.column(field.name), field.type) for field in schema]
    return type(batch).from_arrays(columns, schema=schema)


# ------------------------------------------------------------------------------------------------------ stages


def run_threads(
    fn: Callable[[T], R], items: Sequence[T], threads: int, first_rows: Sequence[int] | None = None
) -> list[R]:
    """``fn`` of each item, in order; each call is a task of its own, whose first row may be known."""
    stage = next(_stages)

    def call(index: int) -> R:
        token = in_task.set(TaskId(index, stage, 0, None if first_rows is None else first_rows[index]))
        try:
            return fn(items[index])
        finally:
            in_task.reset(token)

    if len(items) <= 1 or threads <= 1:
        return [call(index) for index in range(len(items))]
    with ThreadPoolExecutor(max_workers=min(threads, len(items)), thread_name_prefix="lakedex") as pool:
        begun = [_begun(pool, call, index) for index in range(len(items))]
        try:
            return [answer() for answer in begun]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begun(pool: ThreadPoolExecutor, call: Callable[[int], R], index: int) -> Callable[[], R]:
    try:
        return pool.submit(call, index).result
    except RuntimeError as error:
        if "cannot schedule" not in str(error):
            raise
        # The main thread has ended, and Python lends no more threads; the one that calls goes on alone.
        return partial(call, index)


def map_partitions(frame: ArrowFrame, fn: BatchMap, threads: int) -> ArrowFrame:
    """``fn`` over each partition, in threads of this process.

    What an exchange brought together is worked on then: the partitions that come out are slices like others.
    """
    schema = fn.schema

    def one(part: pa.Table) -> pa.Table:
        batches = [conform(batch, schema) for batch in fn(_batches(part))]
        return pa.Table.from_batches(batches, schema=schema)

    ends = list(accumulate(part.num_rows for part in frame.partitions))
    return ArrowFrame(tuple(run_threads(one, frame.partitions, threads, [0, *ends[:-1]])), schema)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter([batch for batch in table.to_batches(max_chunksize=ROWS_PER_PARTITION) if batch.num_rows])


def exchange(
    frame: ArrowFrame,
    by: str,
    tasks: int,
    order: Sequence[str] = (),
    threads: int = 1,
    texts: Collection[str] = (),
) -> ArrowFrame:
    """Rows sorted by ``by`` then ``order`` (nulls first, as Spark sorts), cut between values of ``by``.

    Columns of ``texts`` may come as dictionaries, whatever the frame's schema says.
    """
    table = frame.table()
    if not table.num_rows:
        return ArrowFrame((table,), frame.schema, exchanged=True)
    codes = _short_codes(table.column(by))
    if codes is not None:
        parts = _dealt(table, codes, tasks, order, threads, texts)
        return ArrowFrame(tuple(parts), frame.schema, exchanged=True)
    table = table.combine_chunks()
    rows = _sort(table, list(dict.fromkeys((by, *order)))).to_numpy().astype(np.int64)
    starts = _shared_out(_run_starts(table.column(by).take(pa.array(rows))), table.num_rows, tasks)
    ends = np.append(starts[1:], table.num_rows)
    cuts = [rows[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    parts = run_threads(lambda cut: table.take(pa.array(cut)).combine_chunks(), cuts, threads)
    return ArrowFrame(tuple(parts), frame.schema, exchanged=True)


def _short_codes(column: pa.ChunkedArray) -> npt.NDArray[np.uint16] | None:
    """Integers without nulls from 0 on, if 16 bits do: numpy sorts those by radix, wider ones several times slower."""
    if not pa.types.is_int32(column.type) or column.null_count:
        return None
    values = column.to_numpy()
    low = int(values.min())
    return (values - low).astype(np.uint16) if int(values.max()) - low < 1 << 16 else None


def _shared_out(starts: npt.NDArray[np.int64], rows: int, tasks: int) -> npt.NDArray[np.int64]:
    """Of the rows at which a value begins, those at which a task does: where another tasks-th of all rows begins."""
    return starts if len(starts) <= tasks else starts[np.flatnonzero(np.diff(starts * tasks // rows, prepend=-1))]


def _dealt(
    table: pa.Table,
    codes: npt.NDArray[np.uint16],
    tasks: int,
    order: Sequence[str],
    threads: int,
    texts: Collection[str],
) -> list[pa.Table]:
    """:func:`exchange` by small numbers: each batch is sorted by itself, as it fits a cache, and cut; cuts are joined.

    Columns that are one and the same in memory, as a key is that of a column, are moved once.
    """
    own, places = _distinct_columns(table, (*order, *table.schema.names))
    counts = np.bincount(codes)
    values = np.flatnonzero(counts)
    starts = np.cumsum(counts[values]) - counts[values]
    slim = _with_dictionaries(table.select(own), texts, threads)
    # Batches are not worth while where most of what is cut from them is a row or two.
    many = table.num_rows >= _CUT_ROWS * len(values) * slim.column(0).num_chunks
    batches = (slim if many else slim.combine_chunks()).to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    pieces = run_threads(
        lambda n: _Sorted.of(batches[n], codes[ends[n] - batches[n].num_rows : ends[n]], values),
        range(len(batches)),
        threads,
    )
    firsts = np.searchsorted(starts, _shared_out(starts, table.num_rows, tasks)).tolist()
    names = [own.index(name) for name in order]

    def join(cut: tuple[int, int]) -> pa.Table:
        slices = [piece.slice(number) for number in range(*cut) for piece in pieces]
        part = pa.Table.from_batches(slices, schema=slim.schema).combine_chunks()
        part = _ordered(part, counts[values[slice(*cut)]], [own[place] for place in names])
        return pa.Table.from_arrays([part.column(place) for place in places], names=table.schema.names)

    return run_threads(join, list(zip(firsts, [*firsts[1:], len(values)], strict=True)), threads)


@dataclass(frozen=True, slots=True)
class _Sorted:
    """A batch sorted by numbers, and where each of ``values`` begins in it."""

    rows: pa.RecordBatch
    begins: npt.NDArray[np.int64]

    @classmethod
    def of(cls, batch: pa.RecordBatch, codes: npt.NDArray[np.uint16], values: npt.NDArray[np.int64]) -> _Sorted:
        places = np.argsort(codes, kind="stable")
        begins = np.append(np.searchsorted(codes[places], values), len(codes))
        return cls(batch.take(pa.array(places)), begins)

    def slice(self, number: int) -> pa.RecordBatch:
        """The rows of the n-th value."""
        return self.rows.slice(self.begins[number], self.begins[number + 1] - self.begins[number])


def _distinct_columns(table: pa.Table, names: Sequence[str]) -> tuple[list[str], list[int]]:
    """Of columns with the same memory the first by ``names``, and for each column of the table the place of its own."""
    seen: dict[Any, str] = {}
    own = {}
    for name in dict.fromkeys(names):
        column = table.column(name)
        if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
            own[name] = name
            continue
        memory = tuple((chunk.offset, *map(_address, chunk.buffers())) for chunk in column.chunks)
        own[name] = seen.setdefault((column.type, memory), name)
    kept = list(dict.fromkeys(own.values()))
    return kept, [kept.index(own[name]) for name in table.schema.names]


def _address(buffer: pa.Buffer | None) -> int | None:
    return None if buffer is None else int(buffer.address)


def _with_dictionaries(table: pa.Table, texts: Collection[str], threads: int) -> pa.Table:
    """A large table with those columns of ``texts`` as dictionaries that have few values, as far as a sample tells."""
    if table.num_rows < ROWS_PER_PARTITION:
        return table

    def encoded(place: int) -> pa.ChunkedArray:
        column = table.column(place)
        sample = column.slice(0, _SAMPLE_ROWS).combine_chunks()
        if len(sample.unique()) > len(sample) // 2:
            return column
        found = column.dictionary_encode()
        return found if len(found.chunk(0).dictionary) <= _SAMPLE_ROWS else column

    places = [place for place, f in enumerate(table.schema) if f.name in texts and pa.types.is_string(f.type)]
    columns = table.columns
    for place, column in zip(places, run_threads(encoded, places, threads), strict=True):
        columns[place] = column
    return pa.Table.from_arrays(columns, names=table.schema.names)


def _ordered(table: pa.Table, runs: npt.NDArray[np.int64], order: Sequence[str]) -> pa.Table:
    """Rows sorted by ``order`` within each of some runs, given by their lengths."""
    if not order or _ascends(table, runs, order):
        return table
    rows, start = [], 0
    # Several sorts of few rows are quicker than one of all rows by one column more.
    for length in runs.tolist():
        rows.append(_sort(table.select(list(order)).slice(start, length), order).to_numpy().astype(np.int64) + start)
        start += length
    return table.take(pa.array(np.concatenate(rows))).combine_chunks()


def _ascends(table: pa.Table, runs: npt.NDArray[np.int64], order: Sequence[str]) -> bool:
    """Whether runs are in the order of one column of integers already, as positions are."""
    column = table.column(order[0])
    if len(order) > 1 or not pa.types.is_integer(column.type) or column.null_count:
        return False
    falls = np.diff(column.to_numpy()) < 0
    falls[np.cumsum(runs)[:-1] - 1] = False
    return not falls.any()


def _sort(table: pa.Table, names: Sequence[str]) -> Any:
    """Row numbers in ascending order, nulls first."""
    keys: list[tuple[str, Any]] = []
    for name in names:
        # pyarrow 25 moved the placement of nulls from the sort to its keys; a key of its own works in all versions.
        if table.column(name).null_count:
            table = table.append_column(f"{name} is valid", pc.is_valid(table.column(name)))
            keys.append((f"{name} is valid", "ascending"))
        keys.append((name, "ascending"))
    return pc.sort_indices(table, sort_keys=keys)


def _run_starts(column: Any) -> npt.NDArray[np.int64]:
    """Row numbers at which a value of the sorted ``column`` begins."""
    array = column.combine_chunks()
    codes = array.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    return np.flatnonzero(np.diff(codes, prepend=-1))


def left_join(left: ArrowFrame, right: ArrowFrame, on: Sequence[str]) -> ArrowFrame:
    """All rows of ``left``, in order, once per matching row of ``right`` with its columns, or once with nulls.

    Acero joins no payload of nested type, so only keys and row numbers are joined and the rest is taken.
    """
    table, other = left.table(), right.table()
    row, match = "__lakedex_row", "__lakedex_match"
    keys = table.select(list(on)).append_column(row, pa.array(np.arange(table.num_rows)))
    other_keys = other.select(list(on)).append_column(match, pa.array(np.arange(other.num_rows)))
    pairs = keys.join(other_keys, keys=list(on), join_type="left outer").sort_by(row)
    matches = pairs.column(match)
    repeated = pairs.num_rows != table.num_rows
    if repeated:
        table = table.take(pairs.column(row))
    fields, columns = list(left.schema), list(table.columns)
    for field in right.schema:
        if field.name not in on:
            fields.append(field.with_nullable(True))
            columns.append(other.column(field.name).take(matches))
    schema = pa.schema(fields)
    joined = pa.Table.from_arrays(columns, schema=schema)
    if repeated:
        return ArrowFrame((joined,), schema, left.exchanged)
    ends = np.cumsum([part.num_rows for part in left.partitions])
    sizes = zip(ends, left.partitions, strict=True)
    parts = tuple(joined.slice(int(end) - part.num_rows, part.num_rows) for end, part in sizes)
    return ArrowFrame(parts, schema, left.exchanged)
