"""The engine without Spark: the same stages, in threads of this process, on Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from lakedex import arrow_frames
from lakedex.arrow_frames import ArrowFrame
from lakedex.engine import BatchMap, Engine, Frame
from lakedex.errors import InvalidInputError
from lakedex.frame_input import as_table, normal_schema

__all__ = ["LocalEngine"]

T = TypeVar("T")
R = TypeVar("R")


class LocalEngine(Engine):
    """Runs stages in ``threads`` threads (one for each processor unless told)."""

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

    def map(self, frame: Frame, fn: BatchMap) -> Frame:
        """See :meth:`lakedex.engine.Engine.map`; runs at once."""
        return arrow_frames.map_partitions(_arrow(frame), fn, self._threads)

    def keep(self, frame: Frame) -> Frame:
        """See :meth:`lakedex.engine.Engine.keep`; stages here have run already."""
        return frame

    def exchange(
        self, frame: Frame, by: str, tasks: int, order: Sequence[str] = (), texts: Collection[str] = ()
    ) -> Frame:
        """See :meth:`lakedex.engine.Engine.exchange`."""
        return arrow_frames.exchange(_arrow(frame), by, tasks, order, self._threads, texts)

    def join(self, left: Frame, right: Frame, on: Sequence[str]) -> Frame:
        """See :meth:`lakedex.engine.Engine.join`."""
        return arrow_frames.left_join(_arrow(left), _arrow(right), on)

    def collect(self, frame: Frame) -> pa.Table:
        """See :meth:`lakedex.engine.Engine.collect`."""
        return _arrow(frame).table()

    def run(self, fn: Callable[[T], R], items: Sequence[T], label: str = "") -> list[R]:
        """See :meth:`lakedex.engine.Engine.run`."""
        del label
        return arrow_frames.run_threads(fn, items, self._threads)

    def release(self, frame: Frame) -> None:
        """Nothing to free: the rows go when nobody holds the frame."""


def _arrow(frame: Frame) -> ArrowFrame:
    if not isinstance(frame, ArrowFrame):
        raise InvalidInputError(f"{type(frame).__name__} was not made by the local engine")
    return frame
