"""What a write is to do: its rows, how they meet stored rows, and what they take the place of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakedex.engine import Frame
from lakedex.errors import InvalidInputError
from lakedex.layout.keys import KeyGenerator, StoredKeys
from lakedex.tagging.keyed_rows import MergeRules
from lakedex.types import Operation

__all__ = ["Replace", "WritePlan"]


@dataclass(frozen=True, slots=True)
class Replace:
    """What an overwrite replaces: all file groups of some partitions.

    Attributes:
        partitions: partition paths that were named; None for those that the rows go to.
        whole_table: all of the table instead.
    """

    partitions: tuple[str, ...] | None = None
    whole_table: bool = False

    @property
    def without_rows(self) -> bool:
        """Whether there is something to replace even if there are no rows."""
        return self.whole_table or bool(self.partitions)

    def touched(self, written: Sequence[str]) -> frozenset[str] | None:
        """Partitions that are replaced when rows go to those ``written``; None for all."""
        if self.whole_table:
            return None
        return frozenset(written if self.partitions is None else self.partitions)

    def check(self, table: str, written: Sequence[str]) -> None:
        """Refuse rows that would lie beside the partitions that were named.

        Raises:
            InvalidInputError: names such a partition.
        """
        outside = sorted(set(written) - set(self.partitions)) if self.partitions is not None else []
        if outside:
            named = ", ".join(map(repr, self.partitions or ()))
            raise InvalidInputError(
                f"table {table}: {len(outside)} partitions of the rows, for example {outside[0]!r}, are not among "
                f"those to overwrite ({named}); name them too, or filter the frame"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What a write does with its rows.

    Attributes:
        operation: Hudi's name of the action.
        frame: prepared rows, kept by the engine; read again after a conflict.
        table_schema: the table's columns as the rows were prepared for them.
        schema: its columns after the write.
        keys: the table's key builder.
        rules: how rows meet stored rows.
        look_up: find the files of the keys first.
        any_partition: keys come without a partition path.
        global_keys: a key is one row in the whole table.
        fill_small_files: new rows go to small files first.
        sort: sort rows of new files by key.
        drop_known: rows whose key is stored are left out (``hoodie.datasource.insert.dup.policy=drop``).
        fail_known: they are an error (``fail``), and so are keys that the frame repeats.
        read_at: the last change (``Snapshot.last_completion_time``) seen when the rows were read from it.
        replace: what the rows take the place of; None adds to what is there.
        located: rows of each partition whose base file is known, as of ``read_at``: the frame has its name in the
            column ``LOCATED``, null for new rows. Then ``look_up`` makes sure that the new rows' keys are not stored.
        reads_table: what the rows say depends on the whole table.
    """

    operation: Operation
    frame: Frame
    table_schema: pa.Schema
    schema: pa.Schema
    keys: KeyGenerator | StoredKeys
    rules: MergeRules
    look_up: bool = True
    any_partition: bool = False
    global_keys: bool = False
    fill_small_files: bool = True
    sort: bool = False
    drop_known: bool = False
    fail_known: bool = False
    read_at: str | None = None
    replace: Replace | None = None
    located: Mapping[str, int] | None = None
    reads_table: bool = False

    @property
    def tagged(self) -> bool:
        """Whether rows may go to the files that hold their keys."""
        return self.look_up or self.located is not None
