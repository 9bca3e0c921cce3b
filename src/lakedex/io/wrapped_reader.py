"""A reader over another one, for those that note what is read."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["WrappedReader"]


class WrappedReader(io.RawIOBase):
    """Passes everything on; a subclass does so in :meth:`read`."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """See :meth:`io.IOBase.seek`."""
        return int(self._source.seek(offset, whence))

    def tell(self) -> int:
        """See :meth:`io.IOBase.tell`."""
        return int(self._source.tell())

    def readinto(self, buffer: Any, /) -> int:
        """See :meth:`io.RawIOBase.readinto`."""
        data = self.read(len(buffer)) or b""
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the source too."""
        if not self.closed:
            self._source.close()
            super().close()
