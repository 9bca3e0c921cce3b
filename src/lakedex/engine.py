"""Define the protocol between operations and the engines that move rows.

An operation (upsert, delete …) is written once against :class:`Engine`. Its work on rows consists of *batch maps*:
picklable module-level callables from Arrow batches to Arrow batches. On Spark they run inside tasks (``mapInArrow``);
the local engine runs them in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

__all__ = ["BatchMap", "Engine", "Frame", "SelectColumns", "TaskId", "current_task", "in_task"]


T = TypeVar("T")


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskId:
    """Identity of a task attempt: Hudi's write token ``<partition>-<stage>-<attempt>``.

    ``first_row`` is the number of the task's first row in the frame; None if unknown, as in Spark's tasks.
    """

    partition: int = 0
    stage: int = 0
    attempt: int = 0
    first_row: int | None = None

    def __str__(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"


in_task: ContextVar[TaskId | None] = ContextVar("lakedex_task", default=None)
"""Set by an engine around each call of a batch map or task function."""


def current_task() -> TaskId:
    """Identity of the running task; all zeros outside of an engine."""
    return in_task.get() or TaskId()


class BatchMap(Protocol):
    """Picklable function over the batches of one task.

    A class with ``light = True`` does so little that a few tasks are faster on the driver. One with ``reads`` looks at
    these columns only, those of them that there are: an engine may leave out the others.
    """

    @property
    def schema(self) -> pa.Schema:
        """Schema of the resulting batches."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Transform the batches of one task, as a stream."""


@dataclass(frozen=True, slots=True)
class SelectColumns:
    """Batch map: the columns of ``schema``, by name."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        for batch in batches:
            yield batch.select(self.schema.names)


class Frame(Protocol):
    """Rows held by an engine; opaque to all others."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""


class Engine(Protocol):
    """Executor of batch maps and tasks."""

    @property
    def name(self) -> str:
        """``spark`` or ``local``."""

    @property
    def parallelism(self) -> int:
        """Number of tasks that run in parallel."""

    @property
    def repeats_tasks(self) -> bool:
        """Whether a task may run more than once, at the same time too: its files count once, and others are removed."""

    @property
    def case_sensitive(self) -> bool:
        """Whether column names that differ in case are different names (``spark.sql.caseSensitive``)."""

    def read_frame(self, data: Any) -> Any:
        """Prepare a user's frame for :meth:`schema_of` and :meth:`stage`; a stream is read here, only once.

        Raises ``InvalidInputError`` if ``data`` is not a frame.
        """

    def schema_of(self, data: Any) -> pa.Schema:
        """Arrow schema of a frame, in types of tables; a column without a type has Arrow's ``null``."""

    def stage(self, data: Any, prepare: BatchMap) -> Frame:
        """Run ``prepare`` over a frame exactly once and store the result. Columns have the frame's own types.

        Later steps read the stored rows, so the input may be non-deterministic or read the table being written.
        """

    def keep(self, frame: Frame) -> Frame:
        """Compute a lazy frame once, so that it can be read several times."""

    def from_arrow(self, table: pa.Table) -> Frame:
        """Make a frame of rows on the driver."""

    def numbers(self, count: int) -> Frame:
        """Make a frame of one column ``id``, int64 from 0 on, with each row in a task of its own: each stands for work.

        Args:
            count: number of rows, at least one.
        """

    def map(self, frame: Frame, fn: BatchMap) -> Frame:
        """Apply ``fn`` to each task's batches. May be lazy; runs once per :meth:`collect` or :meth:`stage`."""

    def exchange(
        self, frame: Frame, by: str, tasks: int, order: Sequence[str] = (), texts: Collection[str] = ()
    ) -> Frame:
        """Move all rows with the same value of ``by`` (int32 or string) to one task, sorted by ``by``, then ``order``.

        Batch maps over the result may receive columns of ``texts`` as dictionaries.
        """

    def join(self, left: Frame, right: Frame, on: Sequence[str]) -> Frame:
        """Left outer join; a row of ``left`` occurs once per match. Nulls never match."""

    def collect(self, frame: Frame) -> pa.Table:
        """Fetch the rows to the driver."""

    def row_bytes(self, frame: Frame) -> float:
        """About how many bytes a row takes in Arrow; 0 for no rows."""

    def run(self, fn: Callable[[T], R], items: Sequence[T], label: str = "") -> list[R]:
        """Apply ``fn`` to each item in a task of its own; results are in order. ``fn``, items and results pickle.

        ``label`` describes the work in the engine's UI (Spark's job description).
        """

    def release(self, frame: Frame) -> None:
        """Release the rows stored by :meth:`stage`."""
