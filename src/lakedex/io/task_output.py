"""Hand a task's large result to the driver through a file in the table's temp folder, with a checksum in the result.

Other processes may write to that folder, so bytes whose SHA-256 differs are refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage

__all__ = ["Spilled"]


@dataclass(frozen=True, slots=True)
class Spilled:
    """Path and SHA-256 of spilled bytes."""

    path: str
    digest: str

    @classmethod
    def write(cls, storage: Storage, path: str, content: bytes) -> Spilled:
        """Write the bytes."""
        storage.write(path, content)
        return cls(path, hashlib.sha256(content).hexdigest())

    def read(self, storage: Storage) -> bytes:
        """Read the bytes.

        Raises:
            CorruptFileError: The bytes were changed or deleted.
        """
        try:
            content = storage.read(self.path)
            found = hashlib.sha256(content).hexdigest()
        except FileNotFoundError:
            content, found = b"", "no file"
        if found != self.digest:
            raise CorruptFileError(self.path, 0, f"a task's output with SHA-256 {self.digest}", found)
        return content
