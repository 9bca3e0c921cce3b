"""The condition and the clauses of a merge, bound to the columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.expr.nodes import And, Cast, Column, Comparison, Predicate, Scalar, all_of
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import columns_of, unknown_texts
from lakedex.lossless_cast import match_names
from lakedex.parquet.conform import can_widen
from lakedex.printing import printed
from lakedex.snapshot.schema import nearest
from lakedex.snapshot.snapshot import Snapshot
from lakedex.tagging.keyed_rows import KEY, PARTITION, POSITION, RowAction
from lakedex.types import SessionRules
from lakedex.write.operations import check_assignments
from lakedex.write.schema_evolution import Growth, unknown_column

__all__ = [
    "ASSIGNED",
    "Aliases",
    "BoundClause",
    "Merge",
    "MergeClause",
    "assigned_columns",
    "bind_clauses",
    "key_equalities",
    "side_columns",
]


When = Literal["matched", "not matched", "not matched by source"]


INTERNAL = frozenset({KEY, PARTITION, POSITION})


ASSIGNED = "__lakedex_as_"
"""Prefix of staged columns that hold a source column's values in the type of a table's column."""


@dataclass(frozen=True, slots=True)
class Aliases:
    """How expressions call the two sides."""

    target: str = "t"
    source: str = "s"

    def __post_init__(self) -> None:
        """Refuse names that are equal but for their case."""
        for name in (self.target, self.source):
            if not name.isidentifier():
                raise InvalidInputError(f"{name!r} is no alias: use letters, digits and '_'")
        if self.target.lower() == self.source.lower():
            raise InvalidInputError(f"merge needs two aliases, not {self.target!r} twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """One WHEN clause.

    Attributes:
        when: which rows it is for.
        action: what it does with them.
        everything: all columns get the source's column of the same name.
        values: column → expression, as the user gave them.
        condition: further condition; None for all rows.
    """

    when: When
    action: RowAction
    everything: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    condition: Any = None

    def __str__(self) -> str:
        condition = "" if self.condition is None else f" AND {self.condition}"
        return f"WHEN {self.when.upper()}{condition} THEN {self._then()}"

    def _then(self) -> str:
        if self.action is RowAction.DELETE:
            return "DELETE"
        if self.everything:
            return "INSERT *" if self.action is RowAction.INSERT else "UPDATE SET *"
        if self.action is RowAction.INSERT:
            names, values = ", ".join(self.values), ", ".join(map(str, self.values.values()))
            return f"INSERT ({names}) VALUES ({values})"  # noqa: S608 - text for people
        assignments = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"UPDATE SET {assignments}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A whole merge, as the user gave it."""

    on: Any
    aliases: Aliases
    clauses: tuple[MergeClause, ...] = ()

    def with_clause(self, clause: MergeClause) -> Merge:
        """The merge with one more clause, at the end.

        Raises:
            InvalidInputError: an earlier clause takes all rows that this one could take.
        """
        for earlier in self.clauses:
            if earlier.when == clause.when and earlier.condition is None:
                raise InvalidInputError(
                    f"merge: {earlier} takes all rows, so that the clause after it ({clause}) would never count; give "
                    "the first one a condition"
                )
        return Merge(on=self.on, aliases=self.aliases, clauses=(*self.clauses, clause))

    @property
    def only_deletes(self) -> bool:
        """Whether all that becomes of a matched row is that it goes, so that it may be matched more than once."""
        matched = [clause for clause in self.clauses if clause.when == "matched"]
        return [(clause.action, clause.condition) for clause in matched] == [(RowAction.DELETE, None)]

    def has(self, when: When) -> bool:
        """Whether there is a clause for such rows."""
        return any(clause.when == when for clause in self.clauses)

    def __str__(self) -> str:
        head = f"MERGE INTO {self.aliases.target} USING {self.aliases.source} ON {self.on}"
        return printed([head, *(f"  {clause}" for clause in self.clauses)])


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundClause:
    """A clause whose columns are those of the table.

    Attributes:
        when, action, condition: as in :class:`MergeClause`.
        copies: table column → source column whose value it gets.
        values: table column → expression whose value it gets.

    Other columns keep their value, or are null in a new row.
    """

    when: When
    action: RowAction
    condition: Any = None
    copies: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def bind_clauses(
    merge: Merge, snapshot: Snapshot, source: pa.Schema, *, null_for_missing: bool, case_sensitive: bool
) -> list[BoundClause]:
    """The clauses over a table and a source.

    Raises:
        InvalidInputError: no clause, or a column that is not there, or that may not be set.
        SchemaMismatchError: a source column whose type is not the table column's, nor a narrower one.
    """
    name = snapshot.config.name
    if not merge.clauses:
        raise InvalidInputError(f"table {name}: the merge has no clause; add when_matched_… or when_not_matched_…")
    if not snapshot.schema.names:
        raise InvalidInputError(f"table {name} has no columns yet; create it with a schema, or upsert its first rows")
    rules = Growth(name, null_for_missing, case_sensitive)
    return [_bound(clause, snapshot, source, rules) for clause in merge.clauses]


def _bound(clause: MergeClause, snapshot: Snapshot, source: pa.Schema, rules: Growth) -> BoundClause:
    action, copies, values = clause.action, {}, {}
    if clause.everything:
        copies = _copies(snapshot, source, rules, may_lack=action is RowAction.INSERT and rules.null_for_missing)
    elif action is RowAction.UPDATE:
        values = check_assignments(snapshot, clause.values, case_sensitive=rules.case_sensitive)
    elif action is RowAction.INSERT:
        values = _inserted(snapshot, clause.values, rules.case_sensitive)
    return BoundClause(when=clause.when, action=action, condition=clause.condition, copies=copies, values=values)


def _copies(snapshot: Snapshot, source: pa.Schema, rules: Growth, *, may_lack: bool) -> dict[str, str]:
    name, found = snapshot.config.name, {}
    own = [column for column in source.names if column not in INTERNAL]
    matches = match_names(snapshot.schema.names, own, case_sensitive=rules.case_sensitive)
    theirs = {ours: column for column, ours in matches.items()}
    for column in snapshot.schema:
        if column.name in theirs:
            kind = source.field(theirs[column.name]).type
            if rules.field(column, kind, fixed=True).type != column.type:
                raise SchemaMismatchError(
                    f"table {name}: column {column.name!r} is {column.type} but the source has {kind}: a merge adds no "
                    "fields; add them with add_columns, or leave them out",
                    column=column.name,
                    expected=str(column.type),
                    found=str(kind),
                )
            found[column.name] = assigned_name(theirs[column.name], kind, column.type)
        elif not may_lack or column.name in _fixed(snapshot):
            others = [other for other in own if other not in matches]
            raise InvalidInputError(
                f"table {name}: the source has no column {column.name!r}, which UPDATE SET * and INSERT * need"
                f"{nearest(column.name, others) if others else ''}; name the columns with "
                "when_matched_update(set={…}) or when_not_matched_insert(values={…})",
                column=column.name,
            )
    return found


def assigned_name(name: str, kind: pa.DataType, target: pa.DataType) -> str:
    """The column that holds a source column's values in the type of the table.

    Where every value fits, that is the column itself; else one of its own, whose values the staging has checked. So are
    nested ones of another type: Spark's cast of structs goes by position.
    """
    fits = kind == target or (can_widen(kind, target) and not pa.types.is_nested(kind))
    return name if fits else f"{ASSIGNED}{name}"


def assigned_columns(snapshot: Snapshot, clauses: Sequence[BoundClause]) -> dict[str, pa.Field[Any]]:
    """Columns that are staged besides the source's own, and the table's columns whose types they have."""
    copies = {theirs: ours for clause in clauses for ours, theirs in clause.copies.items()}
    return {theirs: snapshot.schema.field(ours) for theirs, ours in copies.items() if theirs.startswith(ASSIGNED)}


def _inserted(snapshot: Snapshot, values: Mapping[str, Any], case_sensitive: bool) -> dict[str, Any]:
    config = snapshot.config
    known = match_names(snapshot.schema.names, list(values), case_sensitive=case_sensitive)
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise unknown_column(snapshot.schema, name, config.name, "INSERT's")
        checked[known[name]] = value
    missing = [name for name in _fixed(snapshot) if name not in checked]
    if missing:
        raise InvalidInputError(
            f"table {config.name}: a new row needs a value for {missing[0]!r}, which is part of the record key or "
            "partition path",
            column=missing[0],
        )
    return checked


def _fixed(snapshot: Snapshot) -> list[str]:
    """Columns without which a row has no place."""
    config = snapshot.config
    return [name.split(".")[0] for name in (*config.record_key_fields, *config.partition_fields)]


# --------------------------------------------------------------------------------------------- the two sides' names


def side_columns(aliases: Aliases, target: pa.Schema, source: pa.Schema) -> pa.Schema:
    """The names that expressions can use: each side as a struct, and columns of one side only by their bare name."""
    own = [column for column in source if column.name not in INTERNAL and not column.name.startswith(ASSIGNED)]
    sides = [pa.field(aliases.target, pa.struct(list(target))), pa.field(aliases.source, pa.struct(own))]
    lower = [name.lower() for name in (*target.names, *(column.name for column in own))]
    taken = {aliases.target.lower(), aliases.source.lower()}
    bare = [
        column
        for column in (*target, *own)
        if lower.count(column.name.lower()) == 1 and column.name.lower() not in taken
    ]
    return pa.schema([*sides, *bare])


def _conjuncts(node: Predicate) -> Iterator[Predicate]:
    if isinstance(node, And):
        for operand in node.operands:
            yield from _conjuncts(operand)
    else:
        yield node


@dataclass(frozen=True, slots=True)
class Equalities:
    """The demands of a condition.

    Attributes:
        pairs: target column → source column that it has to equal.
        rest: whether there is more to it.
        where: the part of it that is about target columns alone, over their bare names.
    """

    pairs: Mapping[str, str] = field(default_factory=dict)
    rest: bool = True
    where: Predicate | None = None


def key_equalities(merge: Merge, target: pa.Schema, source: pa.Schema, rules: SessionRules) -> Equalities:
    """The equalities between plain columns of both sides that a condition demands."""
    if not isinstance(merge.on, str):
        return Equalities()
    schema = side_columns(merge.aliases, target, source)
    predicate = parse_predicate(merge.on, schema, rules)
    pairs: dict[str, str] = {}
    own: list[Predicate] = []
    rest = False
    for node in _conjuncts(predicate):
        pair = _pair(node, merge.aliases, target) if isinstance(node, Comparison) and node.op == "=" else None
        if pair is None or pair[0] in pairs:
            rest = True
            if not unknown_texts(node) and all(
                _of_target(column, merge.aliases, target) for column in columns_of(node)
            ):
                own.append(_bare(node, merge.aliases))
        else:
            pairs[pair[0]] = pair[1]
    return Equalities(pairs, rest, all_of(own))


def _of_target(column: Column, aliases: Aliases, target: pa.Schema) -> bool:
    return column.path[0] == aliases.target or (column.path[0] != aliases.source and column.path[0] in target.names)


def _bare(node: Any, aliases: Aliases) -> Any:
    """A condition over target columns, the alias taken off them."""
    if isinstance(node, Column):
        return replace(node, path=node.path[1:]) if node.path[0] == aliases.target else node
    if isinstance(node, tuple):
        return tuple(_bare(part, aliases) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    return replace(node, **{f.name: _bare(getattr(node, f.name), aliases) for f in fields(node) if f.init})


def _pair(node: Comparison, aliases: Aliases, target: pa.Schema) -> tuple[str, str] | None:
    sides = dict(found for side in (node.left, node.right) if (found := _plain(side, aliases, target)) is not None)
    return (sides["target"], sides["source"]) if len(sides) == 2 else None


def _lengthens(cast: Cast) -> bool:
    before, after = cast.operand.type, cast.type
    return bool(pa.types.is_integer(before) and pa.types.is_integer(after) and before.bit_width <= after.bit_width)


def _plain(side: Scalar, aliases: Aliases, target: pa.Schema) -> tuple[str, str] | None:
    """Which side a plain column is of. Of casts only those of integers to longer ones keep different values apart."""
    column = side.operand if isinstance(side, Cast) and _lengthens(side) else side
    if not isinstance(column, Column):
        return None
    path: Sequence[str] = column.path
    if path[0] in (aliases.target, aliases.source):
        if len(path) != 2:
            return None
        return ("target" if path[0] == aliases.target else "source"), path[1]
    return ("target" if path[0] in target.names else "source", path[0]) if len(path) == 1 else None
