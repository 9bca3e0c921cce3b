"""What a task leaves in the table's temp folder, because it is too large for its result.

Others may write there. So the result has the SHA-256 of the bytes, and others than those are not read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage

__all__ = ["Spilled"]


@dataclass(frozen=True, slots=True)
class Spilled:
    """Where the bytes lie, and their SHA-256."""

    path: str
    digest: str

    @classmethod
    def write(cls, storage: Storage, path: str, content: bytes) -> Spilled:
        """Write the bytes."""
        storage.write(path, content)
        return cls(path, hashlib.sha256(content).hexdigest())

    def read(self, storage: Storage) -> bytes:
        """The bytes.

        Raises:
            CorruptFileError: They are not those that were written, or gone.
        """
        try:
            content = storage.read(self.path)
            found = hashlib.sha256(content).hexdigest()
        except FileNotFoundError:
            content, found = b"", "no file"
        if found != self.digest:
            raise CorruptFileError(self.path, 0, f"what a task wrote, with SHA-256 {self.digest}", found)
        return content
