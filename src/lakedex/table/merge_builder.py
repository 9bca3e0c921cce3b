"""``Table.merge``: the clauses of SQL's MERGE as a builder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakedex.display.blocks import Card, Code
from lakedex.display.html import card_html
from lakedex.io.retries import with_one_budget
from lakedex.reports import WriteResult
from lakedex.table.session import OpenedTable, Options, Txn
from lakedex.tagging.keyed_rows import RowAction
from lakedex.write.merge_clauses import Merge, MergeClause
from lakedex.write.merge_into import MergeSession, explain_merge, merge_into

__all__ = ["MergeBuilder"]


@with_one_budget
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeBuilder:
    """A merge with its clauses; each method returns a new one with one more clause, :meth:`execute` runs it.

    A row goes to the first clause whose condition is true for it. Conditions and values are SQL text over both
    sides (``t.price > s.price``), or on Spark Columns (``F.col("s.price")``). Clauses for source rows without a match
    see nulls for the table's columns, and the reverse.
    """

    table: OpenedTable
    data: Any
    merge: Merge

    def when_matched_update_all(self, condition: Any = None) -> MergeBuilder:
        """Give all of a row's columns the values of the source's columns of the same name.

        The source may have more columns. A row whose partition columns change moves to the other partition.
        """
        return self._with(MergeClause(when="matched", action=RowAction.REPLACE, everything=True, condition=condition))

    def when_matched_update(self, set: Mapping[str, Any], condition: Any = None) -> MergeBuilder:
        """Set columns; not those of the record key or partition path."""
        return self._with(MergeClause(when="matched", action=RowAction.UPDATE, values=dict(set), condition=condition))

    def when_matched_delete(self, condition: Any = None) -> MergeBuilder:
        """Delete the row."""
        return self._with(MergeClause(when="matched", action=RowAction.DELETE, condition=condition))

    def when_not_matched_insert_all(self, condition: Any = None) -> MergeBuilder:
        """Insert source rows without a match, by the columns' names."""
        clause = MergeClause(when="not matched", action=RowAction.INSERT, everything=True, condition=condition)
        return self._with(clause)

    def when_not_matched_insert(self, values: Mapping[str, Any], condition: Any = None) -> MergeBuilder:
        """Insert a row of these values for source rows without a match; other columns are null."""
        clause = MergeClause(when="not matched", action=RowAction.INSERT, values=dict(values), condition=condition)
        return self._with(clause)

    def when_not_matched_by_source_update(self, set: Mapping[str, Any], condition: Any = None) -> MergeBuilder:
        """Set columns of the table's rows that no source row matches; the whole table is read."""
        clause = MergeClause(
            when="not matched by source", action=RowAction.UPDATE, values=dict(set), condition=condition
        )
        return self._with(clause)

    def when_not_matched_by_source_delete(self, condition: Any = None) -> MergeBuilder:
        """Delete the table's rows that no source row matches; the whole table is read."""
        return self._with(MergeClause(when="not matched by source", action=RowAction.DELETE, condition=condition))

    def execute(self, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Run the merge, in one commit.

        Args:
            txn: ``(application, batch)``, as in :meth:`lakedex.Table.upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The instant and row counts, and how the rows were found.

        Raises:
            InvalidInputError: several source rows for one row of the table, or for one new key; a new row whose key
                is in the table already; a column or expression that cannot be used.
            SchemaMismatchError: a source column that does not fit the table's.
            CommitConflictError: other writers changed the same file groups more often than the retry option allows.
        """
        parsed = self.table.parse(options, "merge", txn)
        result = merge_into(self.table.context, self._session(), self.data, self.merge, parsed)
        return self.table.finished(result, parsed)

    def explain(self) -> str:
        """The clauses, and how the merge would find its rows: by the indexes, or by a join."""
        return explain_merge(self.table.context, self._session(), self.data, self.merge)

    def _session(self) -> MergeSession:
        return MergeSession(rows=self.table.session.merged, rules=self.table.session.rules)

    def _with(self, clause: MergeClause) -> MergeBuilder:
        return replace(self, merge=self.merge.with_clause(clause))

    def __repr__(self) -> str:
        return str(self.merge)

    def _repr_html_(self) -> str:
        return card_html(Card("merge", "execute() runs it, explain() says how", [Code(str(self.merge))]))
