"""The state of a table that a process remembers between two looks at it."""

from __future__ import annotations

from typing import Any

from lakedex.io.storage import Storage
from lakedex.metadata.cache import MetadataFileCache
from lakedex.metadata.file_view import FileView
from lakedex.timeline.timeline import Timeline

__all__ = ["KEPT_VIEWS", "TableCache"]

KEPT_VIEWS = 5
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
        self._views: dict[Moment, FileView] = {}
        self._timelines: dict[str, Timeline] = {}
        self.held: dict[str, Any] = {}

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
