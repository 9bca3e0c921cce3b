"""Lance: ``merge_insert``, with its own indexes on the key and on the two asked columns."""

from __future__ import annotations

from collections.abc import Mapping

import lance
import pyarrow.parquet as pq

from benchmarks.data import Workload
from benchmarks.peers.arrow import sum_of
from benchmarks.peers.protocol import STEPS, Peer

__all__ = ["Lance"]


class Lance(Peer):
    """pylance. It has no partitions; the rows lie in as many files."""

    name = "lance"
    title = "Lance (pylance)"
    steps = STEPS
    dataset: lance.LanceDataset

    def versions(self) -> Mapping[str, str]:
        """Its release."""
        return {"pylance": lance.__version__}

    def load(self, work: Workload, path: str) -> None:
        """A write in the order of the partitions, a B-tree of the key and bitmaps of two columns."""
        rows = pq.read_table(work.load).sort_by(work.partition)
        files = len(rows.column(work.partition).unique())
        dataset = lance.write_dataset(rows, path, max_rows_per_file=-(-rows.num_rows // files))
        dataset.create_scalar_index(work.key, "BTREE")
        for name in work.bitmaps:
            dataset.create_scalar_index(name, "BITMAP")

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """``merge_insert`` on the key."""
        merge = lance.dataset(path).merge_insert(work.key).when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pq.read_table(rows))

    def open(self, work: Workload, path: str) -> None:
        """The newest version."""
        self.dataset = lance.dataset(path)

    def ask(self, work: Workload, path: str, question: str) -> int:
        """By a filter."""
        if question == "count":
            return int(self.dataset.count_rows(filter=work.sql(question)))
        return int(self.dataset.to_table(filter=work.sql(question)).num_rows)

    def read(self, work: Workload, path: str) -> int:
        """All of the newest version."""
        return int(lance.dataset(path).to_table().num_rows)

    def checksum(self, work: Workload, path: str) -> tuple[int, float]:
        """All rows."""
        return sum_of(lance.dataset(path).to_table(columns=[work.value]), work)
