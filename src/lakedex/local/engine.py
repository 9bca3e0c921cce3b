"""The engine without Spark: the same steps, in threads of this process, on Arrow tables.

The Spark engine uses it too, for steps so small that a Spark job would cost more than the work itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.arrow_types import ROWS_PER_PARTITION, ArrowFrame, as_table, conform, normal_schema
from lakedex.engine import BatchMap, Engine, Frame
from lakedex.errors import InvalidInputError
from lakedex.parallel import run_threads

__all__ = ["LocalEngine", "exchange", "left_join", "map_partitions"]


_CUT_ROWS = 64


_SAMPLE_ROWS = 16_384


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
    names = list(dict.fromkeys(places[table.schema.get_field_index(name)] for name in order))

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


def _sort(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """Row numbers in ascending order, nulls first."""
    keys: list[tuple[str, Any]] = []
    for name in names:
        # pyarrow 25 moved the placement of nulls from the sort to its keys; a key of its own works in all versions.
        if table.column(name).null_count:
            table = table.append_column(f"{name} is valid", pc.is_valid(table.column(name)))
            keys.append((f"{name} is valid", "ascending"))
        keys.append((name, "ascending"))
    return pc.sort_indices(table, sort_keys=keys)


def _run_starts(column: pa.Array) -> npt.NDArray[np.int64]:
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


T = TypeVar("T")


R = TypeVar("R")


class LocalEngine(Engine):
    """Runs steps in ``threads`` threads; ``None`` takes one for each processor."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1

    @property
    def name(self) -> str:
        """``local``."""
        return "local"

    @property
    def parallelism(self) -> int:
        """The number of threads."""
        return self._threads

    @property
    def repeats_tasks(self) -> bool:
        """False: a task is a call in a thread, and one that fails ends the operation."""
        return False

    @property
    def case_sensitive(self) -> bool:
        """Never, as by default in Spark."""
        return False

    def read_frame(self, data: Any) -> pa.Table:
        """See :meth:`lakedex.engine.Engine.read_frame`."""
        return as_table(data)

    def schema_of(self, data: Any) -> pa.Schema:
        """See :meth:`lakedex.engine.Engine.schema_of`."""
        return normal_schema(as_table(data).schema)

    def stage(self, data: Any, prepare: BatchMap) -> Frame:
        """See :meth:`lakedex.engine.Engine.stage`."""
        return self.map(self.from_arrow(as_table(data)), prepare)

    def from_arrow(self, table: pa.Table) -> Frame:
        """See :meth:`lakedex.engine.Engine.from_arrow`."""
        return ArrowFrame.of(table, self._threads)

    def numbers(self, count: int) -> Frame:
        """See :meth:`lakedex.engine.Engine.numbers`."""
        table = pa.table({"id": pa.array(range(count), pa.int64())})
        return ArrowFrame(tuple(table.slice(row, 1) for row in range(count)), table.schema)

    def map(self, frame: Frame, fn: BatchMap) -> Frame:
        """See :meth:`lakedex.engine.Engine.map`; runs at once."""
        return map_partitions(_arrow(frame), fn, self._threads)

    def keep(self, frame: Frame) -> Frame:
        """See :meth:`lakedex.engine.Engine.keep`; stages here have run already."""
        return frame

    def exchange(
        self, frame: Frame, by: str, tasks: int, order: Sequence[str] = (), texts: Collection[str] = ()
    ) -> Frame:
        """See :meth:`lakedex.engine.Engine.exchange`."""
        return exchange(_arrow(frame), by, tasks, order, self._threads, texts)

    def join(self, left: Frame, right: Frame, on: Sequence[str]) -> Frame:
        """See :meth:`lakedex.engine.Engine.join`."""
        return left_join(_arrow(left), _arrow(right), on)

    def collect(self, frame: Frame) -> pa.Table:
        """See :meth:`lakedex.engine.Engine.collect`."""
        return _arrow(frame).table()

    def row_bytes(self, frame: Frame) -> float:
        """See :meth:`lakedex.engine.Engine.row_bytes`."""
        return _arrow(frame).row_bytes

    def run(self, fn: Callable[[T], R], items: Sequence[T], label: str = "") -> list[R]:
        """See :meth:`lakedex.engine.Engine.run`."""
        del label
        return run_threads(fn, items, self._threads)

    def release(self, frame: Frame) -> None:
        """Nothing to free: the rows go when nobody holds the frame."""


def _arrow(frame: Frame) -> ArrowFrame:
    if not isinstance(frame, ArrowFrame):
        raise InvalidInputError(f"{type(frame).__name__} was not made by the local engine")
    return frame
