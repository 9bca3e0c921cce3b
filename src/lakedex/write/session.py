"""The session protocol: how rows reach the user and the engine, on Spark or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from lakedex.engine import Engine
from lakedex.scan.plan import ScanPlan
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import SessionRules
from lakedex.write.merge_into import MergeTask

__all__ = ["Session"]


class Session(Protocol):
    """The differences between the engines: how rows come back to the user."""

    engine: Engine

    @property
    def rules(self) -> SessionRules:
        """How the session reads SQL, now: Spark's settings may change between two calls."""

    @property
    def to_frame(self) -> Callable[[Snapshot, ScanPlan, str | None, Sequence[str] | None], Any] | None:
        """Makes a DataFrame of a plan."""

    def storage_options(self, path: str) -> Mapping[str, str]:
        """Storage options that the engine's own settings have for the store of a path."""

    def keys(self, frame: Any, names: Sequence[str], limit: int) -> pa.Table | None:
        """The distinct keys of a frame of the engine, at most ``limit``; None for anything else."""

    def schema(self, declared: Any) -> pa.Schema | None:
        """A schema that the user gave, as Arrow."""

    def require_same_reading(self, text: str) -> None:
        """Refuse a condition that the engine's own parser may read otherwise than lakedex's."""

    def sql(self, where: Any, schema: Callable[[], pa.Schema]) -> Any:
        """A condition of any form as SQL text; None stays None.

        Args:
            where: what the user gave.
            schema: gives the columns of the table, Hudi's included.

        Raises:
            InvalidInputError: another form.
            UnsupportedFeatureError: it cannot be converted exactly.
        """

    def evaluates(self, where: Any) -> bool:
        """Whether the engine finds rows by this condition as it is: a Column on Spark."""

    def is_frame(self, data: Any) -> bool:
        """Whether ``data`` is rows rather than a condition."""

    def frame(self, snapshot: Snapshot) -> Any:
        """All rows of a snapshot."""

    def matching(self, snapshot: Snapshot, where: Any, columns: Sequence[str] | None) -> Any:
        """Rows under a condition, as a frame that the engine can write."""

    def changed(self, snapshot: Snapshot, where: Any, assignments: Mapping[str, str]) -> Any:
        """Rows under a condition with new values of some columns."""

    def merged(self, task: MergeTask) -> Any:
        """The result of a merge: a frame with a row for each row that it changes."""

    def create_view(self, name: str, base_path: str, make: Callable[[], Any]) -> None:
        """Make a view."""

    def refresh_views(self, base_path: str) -> None:
        """Refresh the session's views of a table."""
