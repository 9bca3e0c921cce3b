"""Arrow over plain Parquet files: what reading and writing the touched files costs if nothing else is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.data import Workload
from benchmarks.peers.protocol import STEPS, Peer

__all__ = ["ArrowParquet", "ask_dataset", "condition", "sum_of"]


def condition(work: Workload, question: str) -> pc.Expression:
    """A question as Arrow has it."""
    found: pc.Expression | None = None
    for name, value in work.equal[question].items():
        term = pc.field(name) == value
        found = term if found is None else found & term
    return pc.scalar(True) if found is None else found


def ask_dataset(dataset: ds.Dataset, work: Workload, question: str) -> int:
    """Ask an Arrow dataset."""
    if question == "count":
        return int(dataset.count_rows(filter=condition(work, question)))
    return int(dataset.to_table(filter=condition(work, question)).num_rows)


def sum_of(table: pa.Table, work: Workload) -> tuple[int, float]:
    """Rows, and the sum of the value column."""
    return table.num_rows, float(pc.sum(table.column(work.value)).as_py())


class ArrowParquet(Peer):
    """One file a partition; an upsert reads and rewrites the touched ones, in place, with no commit around it."""

    name = "pyarrow"
    title = "pyarrow, read and rewrite (limit)"
    steps = STEPS
    dataset: ds.Dataset

    def versions(self) -> Mapping[str, str]:
        """Arrow's release."""
        return {"pyarrow": pa.__version__}

    def _file(self, path: str, value: str) -> Path:
        return Path(path) / f"{value}.parquet"

    def load(self, work: Workload, path: str) -> None:
        """Rows sorted by partition and key, zstd."""
        Path(path).mkdir(parents=True)
        for value, rows in _by_partition(pq.read_table(work.load), work.partition):
            pq.write_table(rows.sort_by(work.key), self._file(path, value), compression="zstd")

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """Rows of known keys are replaced, others appended."""
        for value, new in _by_partition(pq.read_table(rows), work.partition):
            place = self._file(path, value)
            old = pq.read_table(place)
            stays = pc.invert(pc.is_in(old.column(work.key), value_set=new.column(work.key).combine_chunks()))
            pq.write_table(pa.concat_tables([old.filter(stays), new]), place, compression="zstd")

    def open(self, work: Workload, path: str) -> None:
        """Look at the files."""
        self.dataset = ds.dataset(path, format="parquet")

    def ask(self, work: Workload, path: str, question: str) -> int:
        """By a dataset."""
        return ask_dataset(self.dataset, work, question)

    def checksum(self, work: Workload, path: str) -> tuple[int, float]:
        """All rows."""
        return sum_of(ds.dataset(path, format="parquet").to_table(columns=[work.value]), work)


def _by_partition(table: pa.Table, name: str) -> list[tuple[str, pa.Table]]:
    order = pc.sort_indices(table.column(name))
    table = table.take(order)
    column = table.column(name).combine_chunks()
    codes = column.dictionary_encode()
    starts = np.flatnonzero(np.diff(codes.indices.to_numpy(), prepend=-1))
    ends = [*starts[1:].tolist(), table.num_rows]
    return [
        (column[start].as_py(), table.slice(start, end - start))
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
