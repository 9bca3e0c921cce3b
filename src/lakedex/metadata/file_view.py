"""The file slices of one state of a table, and what layers above worked out from them; taken over from state to state.

A commit changes few partitions. So the view of the next state takes the slices of all others from the one before, as
the same objects, and what is known per slice (:class:`Derived`) moves along with them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lakedex.layout.file_slice import FileSlice
from lakedex.layout.slice_table import SliceTable
from lakedex.timeline.instant import Instant
from lakedex.timeline.table_config import TableConfig

__all__ = ["Derived", "FileView", "MetadataFiles", "StateToken", "group_slices"]

MetadataFiles = Mapping[str, tuple[str, frozenset[tuple[str, int, int]]]]
"""Files of a metadata partition: file id → (path of the base file, its log files with sizes and blocks that count)."""


class StateToken(NamedTuple):
    """What a state of a table is known by: its settings, and both timelines as they were listed."""

    config: TableConfig
    instants: tuple[Instant, ...]
    metadata_instants: tuple[Instant, ...]


class Derived(Protocol):
    """What was computed from a view's slices and can be taken over."""

    def carried(self, older: FileView, newer: FileView, store: Any) -> Any:
        """The same for a newer view, as far as it still holds; ``store`` is the newer state's metadata."""


@dataclass(slots=True, eq=False)
class FileView:
    """Slices of one state.

    Attributes:
        token: equal tokens mean equal states.
        by_partition: slices of each partition, by file id.
        table: the same as columns.
        listed_from: files of the metadata partition ``files`` that the listing came from; None when storage was listed.
        replaced: file groups that replace commits hide.
        derived: computed by layers above, by name. Take :attr:`lock` to read or change it.
    """

    token: StateToken
    by_partition: dict[str, Sequence[FileSlice]]
    table: SliceTable
    listed_from: MetadataFiles | None
    replaced: Mapping[tuple[str, str], str]
    derived: dict[str, Derived] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(
        cls,
        token: StateToken,
        slices: Sequence[FileSlice],
        listed_from: MetadataFiles | None,
        replaced: Mapping[tuple[str, str], str],
    ) -> FileView:
        """The view of slices that were found anew."""
        by_partition = group_slices(slices)
        return cls(token, by_partition, SliceTable.of(by_partition), listed_from, replaced)

    def advanced(
        self,
        token: StateToken,
        changed: Mapping[str, Sequence[FileSlice]],
        listed_from: MetadataFiles,
        replaced: Mapping[tuple[str, str], str],
        store: Any,
    ) -> FileView:
        """The next state's view: ``changed`` partitions have these slices now, all others are as they were."""
        by_partition = {**self.by_partition, **changed}
        newer = FileView(token, by_partition, SliceTable.of(by_partition), listed_from, replaced)
        with self.lock:
            for name, known in self.derived.items():
                if (kept := known.carried(self, newer, store)) is not None:
                    newer.derived[name] = kept
        return newer


def group_slices(slices: Sequence[FileSlice]) -> dict[str, Sequence[FileSlice]]:
    """Slices by partition, in their order."""
    grouped: dict[str, list[FileSlice]] = {}
    for item in slices:
        grouped.setdefault(item.partition, []).append(item)
    return dict(grouped)
