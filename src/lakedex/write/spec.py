"""Write operations as values: the rows of each, how it finds their files, and how they meet stored rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

import pyarrow as pa

from lakedex.engine import Frame
from lakedex.errors import InvalidInputError
from lakedex.layout.keys import KeyGenerator, StoredKeys
from lakedex.snapshot.snapshot import Snapshot
from lakedex.tagging.keyed_rows import Duplicates, Effects, MergePolicy
from lakedex.types import Operation

__all__ = [
    "BulkInsertSpec",
    "DeletePartitionSpec",
    "DeleteSpec",
    "InsertSpec",
    "KeyedFrame",
    "Lookup",
    "MergeSpec",
    "OverwriteSpec",
    "OverwriteTableSpec",
    "Placement",
    "Precedence",
    "Replace",
    "UpdateSpec",
    "UpsertSpec",
    "WriteSpec",
    "ordering_fields",
]


class Lookup(Enum):
    """Where the keys of a write are looked up."""

    NONE = auto()
    BY_PARTITION = auto()
    """In the partition of the row."""
    BY_KEY = auto()
    """In all partitions; the rows have no partition path, or may be in another one than theirs."""
    GLOBAL = auto()
    """In all partitions, and a key is one row in the whole table."""

    @property
    def everywhere(self) -> bool:
        """Whether all partitions are searched."""
        return self in (Lookup.BY_KEY, Lookup.GLOBAL)


class Precedence(Enum):
    """Which of two versions of a row wins."""

    ORDERING_FIELDS = auto()
    """The one with the larger ordering values, where the table has such fields."""
    INCOMING = auto()


class Placement(Enum):
    """Where new rows go."""

    SMALL_FILES = auto()
    """Into files below the small-file limit first, then into new ones."""
    NEW_FILES = auto()
    SORTED_FILES = auto()
    """Into new files, sorted by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFrame:
    """Prepared rows of a write.

    Attributes:
        frame: key, partition path and position of each row, then its columns; cached by the engine, and read again
            after a conflict.
        base: the table that the rows were prepared for.
        schema: the table's columns after the write.
        keys: the table's key builder.
    """

    frame: Frame
    base: Snapshot
    schema: pa.Schema
    keys: KeyGenerator | StoredKeys


@dataclass(frozen=True, slots=True)
class Replace:
    """File groups that an overwrite replaces: all of some partitions.

    Attributes:
        partitions: partition paths that the user named; None replaces the partitions that the rows go to.
        whole_table: replace all of the table instead.
        pick: of other paths that the rows go to, finds those that are replaced too.
    """

    partitions: tuple[str, ...] | None = None
    whole_table: bool = False
    pick: Callable[[Sequence[str]], Collection[str]] | None = None

    @property
    def without_rows(self) -> bool:
        """Whether a frame without rows replaces something too."""
        return self.whole_table or bool(self.partitions)

    def touched(self, written: Sequence[str]) -> frozenset[str] | None:
        """Partitions that are replaced when rows go to those ``written``; None replaces all."""
        if self.whole_table:
            return None
        if self.partitions is None or self.pick is not None:
            return frozenset((*written, *(self.partitions or ())))
        return frozenset(self.partitions)

    def check(self, table: str, written: Sequence[str]) -> None:
        """Refuse rows that belong to none of the named partitions.

        Raises:
            InvalidInputError: names such a partition.
        """
        outside = sorted(set(written) - set(self.partitions)) if self.partitions is not None else []
        if outside and self.pick is not None:
            outside = sorted(set(outside) - set(self.pick(outside)))
        if outside and self.pick is not None:
            raise InvalidInputError(
                f"table {table}: {len(outside)} partitions of the rows, for example {outside[0]!r}, are not under the "
                "condition of the overwrite; filter the frame, or widen the condition"
            )
        if outside:
            named = ", ".join(map(repr, self.partitions or ()))
            raise InvalidInputError(
                f"table {table}: {len(outside)} partitions of the rows, for example {outside[0]!r}, are not among "
                f"those to overwrite ({named}); name them too, or filter the frame"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSpec:
    """A write operation; each kind says what its rows do.

    Attributes:
        operation: Hudi's name of the action.
        effects: what the rows do.
        precedence: which of two versions of a row wins.
        placement: where new rows go.
        rows: the prepared rows.
        lookup: where their keys are looked up.
        duplicates: what becomes of repeated keys, and of stored ones where the rows are only inserted.
        read_at: the last change (``Snapshot.last_completion_time``) of the table that the rows were read from; the
            write fails if another commit came since. None for rows that come from elsewhere.
        replace: file groups that the rows take the place of; None adds to the table.
        located: rows of each partition whose base file is known, as of ``read_at``. The frame names it in the column
            ``LOCATED``, which is null for new rows; ``lookup`` then is for the keys of the new rows, which must not be
            stored. None for rows whose files are not known.
        comments: of the columns from now on, by path; None keeps the table's.
        assigned: columns in which rows may differ from the stored rows that they replace; None for all.
    """

    operation: ClassVar[Operation]
    effects: ClassVar[Effects]
    precedence: ClassVar[Precedence] = Precedence.INCOMING
    placement: Placement = Placement.NEW_FILES
    rows: KeyedFrame
    lookup: Lookup = Lookup.NONE
    duplicates: Duplicates = Duplicates.DROP
    read_at: str | None = None
    replace: Replace | None = None
    located: Mapping[str, int] | None = None
    comments: Mapping[str, str] | None = None
    assigned: frozenset[str] | None = None

    @property
    def rewrites(self) -> bool:
        """Whether changed slices are written as new base files, on merge-on-read tables too."""
        return False

    @property
    def policy(self) -> MergePolicy:
        """How the rows meet stored rows."""
        base = self.rows.base
        return MergePolicy(
            effects=self.effects,
            duplicates=self.duplicates,
            ordering=ordering_fields(base) if self.precedence is Precedence.ORDERING_FIELDS else (),
            partition_columns=base.config.partition_fields,
        )

    @property
    def is_tagged(self) -> bool:
        """Whether rows may go to the files that hold their keys."""
        return self.lookup is not Lookup.NONE or self.located is not None

    @property
    def depends_on_table(self) -> bool:
        """Whether any commit of another writer may change what the rows say."""
        return self.lookup is Lookup.GLOBAL

    @property
    def refuses_duplicates(self) -> bool:
        """Whether a repeated key, or a stored one that was looked up, is an error."""
        return self.duplicates is Duplicates.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertSpec(WriteSpec):
    """Update the rows whose key is stored, insert the others."""

    operation: ClassVar[Operation] = Operation.UPSERT
    effects: ClassVar[Effects] = Effects.UPSERT
    precedence: ClassVar[Precedence] = Precedence.ORDERING_FIELDS
    placement: Placement = Placement.SMALL_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertSpec(WriteSpec):
    """Add rows. Their keys are looked up for ``hoodie.datasource.insert.dup.policy`` drop or fail."""

    operation: ClassVar[Operation] = Operation.INSERT
    effects: ClassVar[Effects] = Effects.INSERT
    precedence: ClassVar[Precedence] = Precedence.ORDERING_FIELDS
    placement: Placement = Placement.SMALL_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkInsertSpec(WriteSpec):
    """Load rows into new files."""

    operation: ClassVar[Operation] = Operation.BULK_INSERT
    effects: ClassVar[Effects] = Effects.INSERT
    precedence: ClassVar[Precedence] = Precedence.ORDERING_FIELDS


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSpec(WriteSpec):
    """Delete the rows of some keys, in one partition or in all of them.

    Attributes:
        rewrites: slices with any version of a key, a deleted one too, are written as new base files.
    """

    operation: ClassVar[Operation] = Operation.DELETE
    effects: ClassVar[Effects] = Effects.DELETE
    rewrites: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSpec(WriteSpec):
    """Replace rows that were read from the table by their changed form."""

    operation: ClassVar[Operation] = Operation.UPSERT
    effects: ClassVar[Effects] = Effects.UPDATE
    lookup: Lookup = Lookup.BY_PARTITION


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteSpec(WriteSpec):
    """Put rows in the place of partitions, or of the whole table."""

    operation: ClassVar[Operation] = Operation.INSERT_OVERWRITE
    effects: ClassVar[Effects] = Effects.INSERT
    precedence: ClassVar[Precedence] = Precedence.ORDERING_FIELDS
    replace: Replace


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteTableSpec(OverwriteSpec):
    """Put rows in the place of the whole table."""

    operation: ClassVar[Operation] = Operation.INSERT_OVERWRITE_TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePartitionSpec(WriteSpec):
    """Remove all file groups of some partitions."""

    operation: ClassVar[Operation] = Operation.DELETE_PARTITION
    effects: ClassVar[Effects] = Effects.NONE
    replace: Replace


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec(WriteSpec):
    """Carry out the actions that a merge has worked out for its rows.

    Attributes:
        joined: the rows were worked out from more of the table than the files of the keys.
    """

    operation: ClassVar[Operation] = Operation.UPSERT
    effects: ClassVar[Effects] = Effects.BY_ACTION
    placement: Placement = Placement.SMALL_FILES
    located: Mapping[str, int]
    joined: bool

    @property
    def depends_on_table(self) -> bool:
        """Whether any commit of another writer may change what the rows say."""
        return self.joined

    @property
    def refuses_duplicates(self) -> bool:
        """False: several source rows for one row are refused where the row is written."""
        return False


def ordering_fields(snapshot: Snapshot) -> tuple[str, ...]:
    """Fields that decide, one after the other, between two versions of a row; none where the later commit wins."""
    config = snapshot.config
    return config.ordering_fields if config.merge_mode == "EVENT_TIME_ORDERING" else ()
