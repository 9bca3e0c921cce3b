"""The file slices of a table's state, cached with what is computed from them, and carried over to the next state.

A commit changes few partitions. So the view of the next state takes the slices of all others from the one before, as
the same objects, and values cached per slice (:class:`ViewCache`) move along with them.

Memory: the slices of :data:`CACHED_VIEWS` states, which share those of unchanged partitions, and their caches.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from lakedex.io.storage import FileInfo, TableFiles
from lakedex.layout.file_slice import FileSlice, SliceTable
from lakedex.layout.keys import KeyGenerator
from lakedex.metadata.files import MetadataFileCache, MetadataFiles
from lakedex.metadata.store import MetadataStore
from lakedex.parquet.base_file_reader import FooterCache
from lakedex.timeline.active import Timeline
from lakedex.timeline.instant import Instant
from lakedex.timeline.table_config import TableConfig

__all__ = [
    "CACHED_VIEWS",
    "FileSystemView",
    "TableCache",
    "TableSchema",
    "TypedCache",
    "ViewCache",
    "ViewKey",
    "group_slices",
]


_T = TypeVar("_T")


class TypedCache:
    """At most one value of each class. The class is the key, so a value comes back with the type of its owner."""

    def __init__(self) -> None:
        self._values: dict[type, object] = {}

    def get(self, kind: type[_T]) -> _T | None:
        """The value of a class; None where there is none."""
        found = self._values.get(kind)
        return found if isinstance(found, kind) else None

    def put(self, value: _T) -> _T:
        """Cache a value instead of the one of its class."""
        self._values[type(value)] = value
        return value

    def __iter__(self) -> Iterator[object]:
        return iter(self._values.values())


class ViewKey(NamedTuple):
    """The identity of a state of a table: its settings, and both timelines as they were listed."""

    config: TableConfig
    instants: tuple[Instant, ...]
    metadata_instants: tuple[Instant, ...]


class ViewCache(ABC):
    """A value computed from the slices of a view, of which the next view can use a part."""

    __slots__ = ()

    @abstractmethod
    def carry_over(self, older: FileSystemView, newer: FileSystemView, store: MetadataStore) -> ViewCache | None:
        """The value for a newer view, as far as it still holds; ``store`` is the newer state's metadata."""


@dataclass(slots=True, eq=False)
class FileSystemView:
    """Slices of one state.

    Attributes:
        token: equal tokens mean equal states.
        by_partition: slices of each partition, by file id.
        table: the same as columns.
        listed_from: files of the metadata partition ``files`` that the listing came from; None when storage was listed.
        replaced: file groups that replace commits hide.
        caches: values that layers above compute from the slices. Take :attr:`lock` to get or put one.
    """

    token: ViewKey
    by_partition: dict[str, Sequence[FileSlice]]
    table: SliceTable
    listed_from: MetadataFiles | None
    replaced: Mapping[tuple[str, str], str]
    caches: TypedCache = field(default_factory=TypedCache)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __reduce__(self) -> tuple[type[FileSystemView], tuple[Any, ...]]:
        """Pickle without what was worked out from the slices."""
        return type(self), (self.token, self.by_partition, self.table, self.listed_from, self.replaced)

    @classmethod
    def of(
        cls,
        token: ViewKey,
        slices: Sequence[FileSlice],
        listed_from: MetadataFiles | None,
        replaced: Mapping[tuple[str, str], str],
    ) -> FileSystemView:
        """The view of slices that were listed."""
        by_partition = group_slices(slices)
        return cls(token, by_partition, SliceTable.of(by_partition), listed_from, replaced)

    def advanced(
        self,
        token: ViewKey,
        changed: Mapping[str, Sequence[FileSlice]],
        listed_from: MetadataFiles,
        replaced: Mapping[tuple[str, str], str],
        store: MetadataStore,
    ) -> FileSystemView:
        """The next state's view: ``changed`` partitions have these slices now, all others are as they were."""
        by_partition = {**self.by_partition, **changed}
        newer = FileSystemView(token, by_partition, SliceTable.of(by_partition), listed_from, replaced)
        with self.lock:
            for value in self.caches:
                if isinstance(value, ViewCache) and (kept := value.carry_over(self, newer, store)) is not None:
                    newer.caches.put(kept)
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


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's own columns, without meta columns.

    Attributes:
        columns: names and types.
        hudi_types: columns with a type of Hudi's own (VECTOR, BLOB, VARIANT), and its name.
        comments: of columns and of the fields inside of them, by path.
        evolves_on_read: the schema was changed under Hudi's schema-on-read.
    """

    columns: pa.Schema
    hudi_types: Mapping[str, str] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    evolves_on_read: bool = False


class TableCache(MetadataFileCache):
    """All that a process caches of a table: opened files, timelines, views of the newest state and of a few others.

    Attributes:
        config: the settings as they were read last.
        schema: of the newest state, with the settings and the timeline that it was found by.
        footers: of base files.
        stored_keys: key generator, and whether its keys too, that was found to build the stored key text.
        last_metadata_clean: file name of a clean of the metadata table, and the earliest commit that it retained.
        own_instants: delta commits that the metadata table alone has.
        documents: small files of the table, by path: the state in which each was read, and its bytes, None for no file.
        indexes: values that indexes load from files that never change. Take :attr:`lock` to get or put one.
    """

    def __init__(self, limit: int = 4096) -> None:
        super().__init__(limit)
        self._views: dict[Moment, FileSystemView] = {}
        self._timelines: dict[str, Timeline] = {}
        self.config: TableConfig | None = None
        self.schema: tuple[TableConfig, Timeline, TableSchema] | None = None
        self.footers = FooterCache()
        self.stored_keys: tuple[KeyGenerator, bool] | None = None
        self.last_metadata_clean = ("", "")
        self.own_instants: set[str] = set()
        self.documents: dict[str, tuple[object, bytes | None]] = {}
        self.indexes = TypedCache()

    def view(self, moment: Moment) -> FileSystemView | None:
        """The last view of a moment: a point in time (None for now), and whether log files count."""
        return self._views.get(moment)

    def put_view(self, moment: Moment, view: FileSystemView) -> None:
        """Remember a view."""
        self._views.pop(moment, None)
        while len(self._views) >= CACHED_VIEWS:
            del self._views[next(key for key in self._views if key != NOW or len(self._views) == 1)]
        self._views[moment] = view

    def timeline(
        self, files: TableFiles, subfolder: str, zone: str, layout: int, listing: Iterable[FileInfo] | None = None
    ) -> Timeline:
        """A timeline as it is now, by the listing of its folder; commits that were read before are not read again."""
        path = files.path(subfolder)
        known = self._timelines.get(path)
        if known is None or known.layout != layout:
            now = Timeline.load(files, subfolder, zone=zone, layout=layout, listing=listing)
        else:
            now = known.reload(listing)
        self._timelines[path] = now
        return now

    def known_timeline(self, files: TableFiles, subfolder: str) -> Timeline | None:
        """A timeline as it was read last."""
        return self._timelines.get(files.path(subfolder))

    def keep_timelines(self, *timelines: Timeline) -> None:
        """Remember the content of commits that this process has completed."""
        self._timelines |= {timeline.path: timeline for timeline in timelines}
