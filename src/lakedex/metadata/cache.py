"""Opened files of a metadata table, cached by path."""

from __future__ import annotations

import threading

from lakedex.codec.hfile import HFileReader
from lakedex.io.storage import Storage
from lakedex.metadata.log_file import MetadataLogFile, open_hfile
from lakedex.timeline.instant import Instant

__all__ = ["MetadataFileCache"]


class MetadataFileCache:
    """Opened metadata files of one table. Files never change, so an opened one stays true; the oldest ones go first.

    Attributes:
        whole: metadata partition → instants of the metadata timeline, and what was wrong with the partition then.
    """

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._open: dict[str, HFileReader | MetadataLogFile] = {}
        self.whole: dict[str, tuple[tuple[Instant, ...], str]] = {}
        self.lock = threading.RLock()

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

    def __reduce__(self) -> tuple[type[MetadataFileCache], tuple[int]]:
        """Tasks start with an empty cache: what the driver has open stays there."""
        return type(self), (self._limit,)

    def _keep(self, path: str, opened: HFileReader | MetadataLogFile) -> None:
        with self.lock:
            while len(self._open) >= self._limit:
                del self._open[next(iter(self._open))]
            self._open[path] = opened
