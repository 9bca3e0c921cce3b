"""Tables without Spark: rows come and go as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.engine import Engine
from lakedex.errors import InvalidInputError, LakedexError, MissingEngineError, error_from_fields, error_to_fields
from lakedex.expr.conditions import as_sql
from lakedex.expr.evaluator import evaluate_scalar
from lakedex.expr.parser import parse_scalar
from lakedex.local.engine import LocalEngine
from lakedex.local.merge_join import merge_rows
from lakedex.scan.scan import Scan, semi_joined
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.tagging.keyed_rows import KEY
from lakedex.types import DEFAULT_RULES, RECORD_KEY, SessionRules
from lakedex.write.merge_into import MergeTask

__all__ = []


@dataclass(slots=True)
class LocalSession:
    """Rows as Arrow tables."""

    to_frame: ClassVar[None] = None

    engine: Engine = field(default_factory=LocalEngine)
    rules: SessionRules = DEFAULT_RULES

    def storage_options(self, path: str) -> Mapping[str, str]:
        """None: the environment has them."""
        return {}

    def keys(self, frame: Any, names: Sequence[str], limit: int) -> None:
        """No DataFrames here."""
        return

    def schema(self, declared: Any) -> pa.Schema | None:
        """See :class:`Session`."""
        if isinstance(declared, str):
            raise InvalidInputError(
                f"schema={declared!r}: Spark reads DDL text; give a pyarrow.Schema or pass spark=, or leave it out to "
                "take the columns of the first rows"
            )
        return None if declared is None else self.engine.schema_of(_empty(declared))

    def require_same_reading(self, text: str) -> None:
        """There is one parser here."""

    def sql(self, where: Any, schema: Callable[[], pa.Schema]) -> Any:
        """See :class:`Session`."""
        return as_sql(where, schema)

    def evaluates(self, where: Any) -> bool:
        """Nothing but text."""
        return False

    def is_frame(self, data: Any) -> bool:
        """See :class:`Session`."""
        return not isinstance(data, str)

    def frame(self, snapshot: Snapshot) -> Any:
        """See :class:`Session`."""
        raise MissingEngineError(
            "the table was opened without Spark; open it with Table.open(path, spark=spark), or use to_arrow()",
            feature="to_df",
        )

    def matching(self, snapshot: Snapshot, where: Any, columns: Sequence[str] | None) -> Any:
        """See :class:`Session`."""
        chosen = None if columns is None else tuple(columns)
        return Scan(snapshot=snapshot, where=where, columns=chosen, meta_columns=True, rules=self.rules).to_arrow()

    def changed(self, snapshot: Snapshot, where: Any, assignments: Mapping[str, str]) -> Any:
        """See :class:`Session`."""
        rows = self.matching(snapshot, where, None)
        schema = read_columns(snapshot.schema)
        columns = {name: rows.column(name) for name in rows.schema.names}
        for name, text in assignments.items():
            kind = schema.field(name).type
            try:
                scalar = parse_scalar(str(text), schema, self.rules)
                columns[name] = evaluate_scalar(scalar, rows, kind, timezone=self.rules.timezone)
            except LakedexError as error:
                cls, message, fields = error_to_fields(error)
                where_to = f"table {snapshot.config.name}: update of column {name!r}"
                raise error_from_fields(cls, f"{where_to}: {message}", {**fields, "column": name}) from error
        return pa.table(columns, schema=schema)

    def merged(self, task: MergeTask) -> Any:
        """See :class:`Session`."""
        source = self.engine.collect(task.source)
        return merge_rows(
            self._target(task, source),
            source,
            task.merge,
            task.clauses,
            task.snapshot.schema,
            keyed=task.keyed,
            rules=self.rules,
        )

    def _target(self, task: MergeTask, source: pa.Table) -> pa.Table:
        """The stored rows that a merge may look at, file by file where only rows of the source's keys matter."""
        scan = Scan(snapshot=task.snapshot, condition=task.where, meta_columns=True, rules=self.rules)
        if not task.equal:
            return scan.to_arrow()
        if not task.keyed:
            return semi_joined(scan, source, task.equal).to_arrow()
        parts = []
        for item in task.snapshot.slices():
            part = replace(scan, snapshot=task.snapshot.with_slices([item])).to_arrow()
            parts.append(part.filter(pc.is_in(part.column(RECORD_KEY), value_set=source.column(KEY).combine_chunks())))
        return pa.concat_tables([read_columns(task.snapshot.schema).empty_table(), *parts])

    def create_view(self, name: str, base_path: str, make: Callable[[], Any]) -> None:
        """See :class:`Session`."""
        raise MissingEngineError(
            f"view {name!r}: the table was opened without Spark; open it with Table.open(path, spark=spark)",
            feature="views",
        )

    def refresh_views(self, base_path: str) -> None:
        """There are none."""


def _empty(declared: Any) -> Any:
    return declared.empty_table() if isinstance(declared, pa.Schema) else declared
