"""Iceberg by ``pyiceberg``: its upsert compares rows by expressions, so it gets one try where others have rounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from benchmarks.data import Workload
from benchmarks.peers.arrow import sum_of
from benchmarks.peers.protocol import STEPS, Peer

__all__ = ["Iceberg"]


class Iceberg(Peer):
    """pyiceberg with a catalog in SQLite."""

    name = "pyiceberg"
    title = "pyiceberg"
    steps = STEPS
    table: Table

    def versions(self) -> Mapping[str, str]:
        """Its release."""
        return {"pyiceberg": pyiceberg.__version__}

    def _catalog(self, path: str) -> SqlCatalog:
        Path(path).mkdir(parents=True, exist_ok=True)
        return SqlCatalog("bench", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}")

    def _table(self, path: str) -> Table:
        return self._catalog(path).load_table("bench.rows")

    def load(self, work: Workload, path: str) -> None:
        """A partitioned append."""
        rows = pq.read_table(work.load)
        catalog = self._catalog(path)
        catalog.create_namespace("bench")
        table = catalog.create_table("bench.rows", rows.schema)
        with table.update_spec() as update:
            update.add_identity(work.partition)
        table.append(rows)

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """``upsert`` on the key."""
        self._table(path).upsert(pq.read_table(rows), join_cols=[work.key])

    def open(self, work: Workload, path: str) -> None:
        """The newest snapshot."""
        self.table = self._table(path)

    def ask(self, work: Workload, path: str, question: str) -> int:
        """By a scan."""
        terms: list[Any] = [EqualTo(name, value) for name, value in work.equal[question].items()]
        scan = self.table.scan(row_filter=terms[0] if len(terms) == 1 else And(*terms))
        return int(scan.count()) if question == "count" else int(scan.to_arrow().num_rows)

    def checksum(self, work: Workload, path: str) -> tuple[int, float]:
        """All rows."""
        return sum_of(self._table(path).scan(selected_fields=(work.value,)).to_arrow(), work)
