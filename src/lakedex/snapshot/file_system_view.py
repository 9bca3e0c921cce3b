"""The file slices of one state of a table, cached and taken over from state to state.

The file slices of one state of a table, and what layers above worked out from them; taken over from state to state.

A commit changes few partitions. So the view of the next state takes the slices of all others from the one before, as
the same objects, and what is known per slice (:class:`Derived`) moves along with them.

The state of a table that a process remembers between two looks at it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lakedex.io.storage import Storage
from lakedex.layout.file_slice import FileSlice, SliceTable
from lakedex.metadata.files import MetadataFileCache, MetadataFiles
from lakedex.timeline.active import Timeline
from lakedex.timeline.instant import Instant
from lakedex.timeline.table_config import TableConfig

__all__ = ["CACHED_VIEWS", "Derived", "FileSystemView", "TableCache", "ViewKey", "group_slices"]


class ViewKey(NamedTuple):
    """What a state of a table is known by: its settings, and both timelines as they were listed."""

    config: TableConfig
    instants: tuple[Instant, ...]
    metadata_instants: tuple[Instant, ...]


class Derived(Protocol):
    """What was computed from a view's slices and can be taken over."""

    def carried(self, older: FileSystemView, newer: FileSystemView, store: Any) -> Any:
        """The same for a newer view, as far as it still holds; ``store`` is the newer state's metadata."""


@dataclass(slots=True, eq=False)
class FileSystemView:
    """Slices of one state.

    Attributes:
        token: equal tokens mean equal states.
        by_partition: slices of each partition, by file id.
        table: the same as columns.
        listed_from: files of the metadata partition ``files`` that the listing came from; None when storage was listed.
        replaced: file groups that replace commits hide.
        derived: computed by layers above, by name. Take :attr:`lock` to read or change it.
    """

    token: ViewKey
    by_partition: dict[str, Sequence[FileSlice]]
    table: SliceTable
    listed_from: MetadataFiles | None
    replaced: Mapping[tuple[str, str], str]
    derived: dict[str, Derived] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(
        cls,
        token: ViewKey,
        slices: Sequence[FileSlice],
        listed_from: MetadataFiles | None,
        replaced: Mapping[tuple[str, str], str],
    ) -> FileSystemView:
        """The view of slices that were found anew."""
        by_partition = group_slices(slices)
        return cls(token, by_partition, SliceTable.of(by_partition), listed_from, replaced)

    def advanced(
        self,
        token: ViewKey,
        changed: Mapping[str, Sequence[FileSlice]],
        listed_from: MetadataFiles,
        replaced: Mapping[tuple[str, str], str],
        store: Any,
    ) -> FileSystemView:
        """The next state's view: ``changed`` partitions have these slices now, all others are as they were."""
        by_partition = {**self.by_partition, **changed}
        newer = FileSystemView(token, by_partition, SliceTable.of(by_partition), listed_from, replaced)
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


CACHED_VIEWS = 5
"""Views remembered: the newest state and four others."""


Moment = tuple[str | None, bool]


NOW: Moment = (None, False)


class TableCache(MetadataFileCache):
    """Opened metadata files, timelines, and views of a table's newest state and of a few points in time.

    Attributes:
        held: values that layers above derive from files that never change, by name. Take :attr:`lock` to look one up.
    """

    def __init__(self, limit: int = 4096) -> None:
        super().__init__(limit)
        self._views: dict[Moment, FileSystemView] = {}
        self._timelines: dict[str, Timeline] = {}
        self.held: dict[str, Any] = {}

    def view(self, moment: Moment) -> FileSystemView | None:
        """The last view of a moment: a point in time (None for now), and whether log files count."""
        return self._views.get(moment)

    def put_view(self, moment: Moment, view: FileSystemView) -> None:
        """Remember a view."""
        self._views.pop(moment, None)
        while len(self._views) >= CACHED_VIEWS:
            del self._views[next(key for key in self._views if key != NOW or len(self._views) == 1)]
        self._views[moment] = view

    def timeline(self, storage: Storage, base_path: str, subfolder: str, zone: str, layout: int) -> Timeline:
        """A timeline as it is now; commits that were read before are not read again."""
        path = f"{base_path}/{subfolder}"
        known = self._timelines.get(path)
        if known is None or known.layout != layout:
            now = Timeline.load(storage, base_path, subfolder, zone=zone, layout=layout)
        else:
            now = known.reload()
        self._timelines[path] = now
        return now
