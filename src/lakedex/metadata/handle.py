"""What every action on a table starts from: where it lies, which engine runs, what is cached."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakedex.engine import Engine
from lakedex.io.storage import Storage
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.table_cache import TableCache

__all__ = ["TableHandle"]


@dataclass(slots=True)
class TableHandle:
    """A table and the engine that works on it. Stays on the driver."""

    storage: Storage
    base_path: str
    engine: Engine
    cache: TableCache = field(default_factory=TableCache)

    def snapshot(self, as_of: str | None = None, *, read_optimized: bool = False) -> Snapshot:
        """The table now, or at an instant; ``read_optimized`` leaves out log files."""
        return Snapshot.load(self.storage, self.base_path, self.cache, as_of, read_optimized=read_optimized)
