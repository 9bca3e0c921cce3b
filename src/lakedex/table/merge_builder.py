"""``merge`` and ``delete_partition``. Every method delegates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from lakedex.options import WriteOptions
from lakedex.reports import WriteResult
from lakedex.snapshot.snapshot import TableContext
from lakedex.tagging.keyed_rows import RowAction
from lakedex.write import operations
from lakedex.write.merge_clauses import Aliases, Merge, MergeClause
from lakedex.write.merge_into import MergeSession, explain_merge, merge_into
from lakedex.write.session import Session

__all__ = ["MergeBuilder", "Merging"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeBuilder:
    """A merge in the making; each method returns it with one more clause. :meth:`execute` runs it.

    A row goes to the first clause whose condition is true for it. Conditions and values are SQL text over both
    sides (``t.price > s.price``), or on Spark Columns (``F.col("s.price")``). Clauses for source rows without a match
    see nulls for the table's columns, and the reverse.
    """

    table: Merging
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

    def execute(self, options: Mapping[str, Any] | None = None, *, txn: tuple[str, int] | None = None) -> WriteResult:
        """Run the merge, in one commit.

        Args:
            options: ``hoodie.*`` options of this call.
            txn: (application, batch), as in :meth:`lakedex.Table.upsert`.

        Raises:
            InvalidInputError: several source rows for one row of the table, or for one new key; a new row whose key
                is in the table already; a column or expression that cannot be used.
            SchemaMismatchError: a source column that does not fit the table's.
            CommitConflictError: other writers committed in between, again and again.
        """
        return self.table._merged(self.data, self.merge, options, txn)

    def explain(self) -> str:
        """The clauses, and how the merge would find its rows: by the indexes, or by a join."""
        return self.table._explain_merge(self.data, self.merge)

    def _with(self, clause: MergeClause) -> MergeBuilder:
        return replace(self, merge=self.merge.with_clause(clause))

    def __repr__(self) -> str:
        return str(self.merge)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self.merge))}</pre>"


class Merging:
    """A part of :class:`lakedex.Table`."""

    _handle: TableContext
    _session: Session
    _options: dict[str, Any]

    def _parsed(
        self, options: Mapping[str, Any] | None, operation: str = "", txn: tuple[str, int] | None = None
    ) -> WriteOptions:
        raise NotImplementedError

    def _written(self, result: WriteResult) -> WriteResult:
        raise NotImplementedError

    def merge(self, data: Any, on: Any, *, target: str = "t", source: str = "s") -> MergeBuilder:
        """Start a merge of a frame into the table, as SQL's MERGE INTO; see :class:`MergeBuilder` for its clauses.

        Where ``on`` demands that all record-key columns are equal (``t.id = s.id``, more may follow with AND), the
        keys are looked up by the indexes and only files that hold one are read. Name the partition columns too where
        they are equal: keys are looked up in all partitions otherwise. Other conditions join the frame with the table.

        An update by a merge wins, whatever the ordering column says. Two source rows for one row of the table, or for
        one new key, are an error, unless all that becomes of a matched row is its unconditional delete.

        Args:
            data: the source's rows.
            on: which rows match: SQL text over both sides, or on Spark a Column.
            target: what expressions call the table.
            source: what they call the frame.

        Example:
            >>> t.merge(df, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
        """
        return MergeBuilder(table=self, data=data, merge=Merge(on=on, aliases=Aliases(target, source)))

    def _merge_session(self) -> MergeSession:
        return MergeSession(rows=self._session.merged, rules=self._session.rules)

    def _merged(
        self, data: Any, merge: Merge, options: Mapping[str, Any] | None, txn: tuple[str, int] | None
    ) -> WriteResult:
        parsed = self._parsed(options, "merge", txn)
        return self._written(merge_into(self._handle, self._merge_session(), data, merge, parsed))

    def _explain_merge(self, data: Any, merge: Merge) -> str:
        return explain_merge(self._handle, self._merge_session(), data, merge)

    def delete_partition(
        self,
        partitions: Sequence[str | Mapping[str, Any]] | str | Mapping[str, Any],
        *,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Empty partitions in one commit (Hudi's DELETE_PARTITION), without reading a row of them.

        Their files stay until a cleaner removes them, so older instants can still be read.

        Args:
            partitions: as paths (``city=rome``) or as ``{column: value}``. The null and the empty string share Hudi's
                default partition, so that naming either empties both.
            options: ``hoodie.*`` options of this call.

        Raises:
            InvalidInputError: a table without partitions, a path that it cannot have.
            CommitConflictError: another writer committed to one of the partitions, again and again.
        """
        parsed = self._parsed(options, "delete_partition")
        return self._written(operations.delete_partition(self._handle, parsed, partitions))
