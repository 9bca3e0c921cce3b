"""Who moves the rows: the small protocol between lakedex's actions and an engine.

An action (upsert, delete …) is written once against :class:`Engine`. Its row work is done by *batch maps*:
picklable module-level callables, Arrow batches in, Arrow batches out. On Spark they run inside tasks
(``mapInArrow``); the local engine runs them in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

__all__ = ["BatchMap", "Engine", "Frame", "TaskId", "current_task", "in_task"]


T = TypeVar("T")


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskId:
    """Which attempt of which task runs: Hudi's write token ``<partition>-<stage>-<attempt>``.

    ``first_row`` is the number of the task's first row in the frame; ``None`` where nobody knows, as in Spark's tasks.
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
    """The running task's identity; all zeros outside of an engine."""
    return in_task.get() or TaskId()


class BatchMap(Protocol):
    """A picklable function over one task's batches.

    One whose class sets ``light = True`` does so little that some tasks of it are quicker on the driver.
    """

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches that come out."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Transform one task's batches, as a stream."""


class Frame(Protocol):
    """Rows held by an engine. Opaque: only the engine that made it looks inside."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""


class Engine(Protocol):
    """Where stages run."""

    @property
    def name(self) -> str:
        """``spark`` or ``local``."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""

    @property
    def case_sensitive(self) -> bool:
        """Whether column names that differ by letter case are different names (``spark.sql.caseSensitive``)."""

    def read_frame(self, data: Any) -> Any:
        """A user's frame in a form that can be asked for its schema and staged: a stream is read here, and only once.

        Raises ``InvalidInputError`` for what is no frame.
        """

    def schema_of(self, data: Any) -> pa.Schema:
        """Arrow schema of a frame, in the types that tables have; a column without a type has Arrow's ``null``."""

    def stage(self, data: Any, prepare: BatchMap) -> Frame:
        """Run ``prepare`` over a frame exactly once and keep what comes out. Columns come in the frame's own types.

        Later stages read the kept rows, so the input may be non-deterministic or read the table that is written.
        """

    def keep(self, frame: Frame) -> Frame:
        """Compute a lazy frame once, so that it can be read several times."""

    def from_arrow(self, table: pa.Table) -> Frame:
        """Rows that the driver holds."""

    def map(self, frame: Frame, fn: BatchMap) -> Frame:
        """Apply ``fn`` to each task's batches. May be lazy; runs once per :meth:`collect` or :meth:`stage`."""

    def exchange(
        self, frame: Frame, by: str, tasks: int, order: Sequence[str] = (), texts: Collection[str] = ()
    ) -> Frame:
        """Bring all rows of one value of ``by`` (int32 or string) into one task, sorted by ``by``, then ``order``.

        What is mapped over the frame may get columns of ``texts`` as dictionaries.
        """

    def join(self, left: Frame, right: Frame, on: Sequence[str]) -> Frame:
        """Left outer join; a row of ``left`` comes once per partner. Nulls never match."""

    def collect(self, frame: Frame) -> pa.Table:
        """Rows to the driver."""

    def run(self, fn: Callable[[T], R], items: Sequence[T], label: str = "") -> list[R]:
        """``fn`` of each item, in order, as one task each. ``fn``, items and results pickle.

        ``label`` names the work where the engine shows what it does (Spark's job description).
        """

    def release(self, frame: Frame) -> None:
        """Free what :meth:`stage` kept."""
