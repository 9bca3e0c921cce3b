"""What a process keeps of a table's metadata between two looks at it."""

from __future__ import annotations

import threading
from typing import Any

from lakedex.codec.hfile import HFileReader
from lakedex.io.storage import Storage
from lakedex.metadata.file_view import FileView
from lakedex.metadata.log_file import MetadataLogFile, open_hfile
from lakedex.timeline.instant import Instant
from lakedex.timeline.timeline import Timeline

__all__ = ["KEPT_VIEWS", "MetadataCache"]

KEPT_VIEWS = 5
"""Views remembered: the newest state and four others."""

Moment = tuple[str | None, bool]
NOW: Moment = (None, False)


class MetadataCache:
    """Opened metadata files of one table, and views of its last states.

    Files never change, so an opened one stays true; the oldest ones go first. Views are kept for the newest state and
    a few points in time.

    Attributes:
        held: what layers above keep of files that never change, by name. Take :attr:`lock` to look one up.
        whole: metadata partition → instants of the metadata timeline, and what was wrong with the partition then.
    """

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._open: dict[str, HFileReader | MetadataLogFile] = {}
        self._views: dict[Moment, FileView] = {}
        self._timelines: dict[str, Timeline] = {}
        self.held: dict[str, Any] = {}
        self.whole: dict[str, tuple[tuple[Instant, ...], str]] = {}
        self.lock = threading.RLock()

    def view(self, moment: Moment) -> FileView | None:
        """The last view of a moment: a point in time (None for now), and whether log files count."""
        return self._views.get(moment)

    def keep_view(self, moment: Moment, view: FileView) -> None:
        """Remember a view."""
        self._views.pop(moment, None)
        while len(self._views) >= KEPT_VIEWS:
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

    def is_open(self, path: str, size: int) -> bool:
        """Whether a file of this size was opened before."""
        found = self._open.get(path)
        return found is not None and (isinstance(found, HFileReader) or found.size == size)

    def hfile(self, storage: Storage, path: str, size: int) -> HFileReader:
        """A base file, opened once."""
        found = self._open.get(path)
        if not isinstance(found, HFileReader):
            found = open_hfile(storage, path, size)
            self._keep(path, found)
        return found

    def log(self, storage: Storage, path: str, size: int, *, skip_torn: bool = False) -> MetadataLogFile:
        """A log file, opened once for each size that it is found with."""
        found = self._open.get(path)
        if not isinstance(found, MetadataLogFile) or found.size != size:
            found = MetadataLogFile(storage, path, size, skip_torn=skip_torn)
            self._keep(path, found)
        return found

    def __reduce__(self) -> tuple[type[MetadataCache], tuple[int]]:
        """Tasks start with an empty cache: what the driver has open stays there."""
        return MetadataCache, (self._limit,)

    def _keep(self, path: str, opened: HFileReader | MetadataLogFile) -> None:
        with self.lock:
            while len(self._open) >= self._limit:
                del self._open[next(iter(self._open))]
            self._open[path] = opened
