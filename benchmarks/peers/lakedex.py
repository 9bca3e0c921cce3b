"""Ourselves: on Spark, and without it. Both keep bitmaps of two columns; one variant does not, to see their cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lakedex
from benchmarks.data import Workload
from benchmarks.peers.protocol import STEPS, Peer, Settings
from benchmarks.peers.spark import SparkPeer
from lakedex import Table, configure_spark, register_catalog
from lakedex.reports import WriteResult
from lakedex.scan.analyze import AnalyzedPlan
from lakedex.types import IoCount

__all__ = ["LakedexLocal", "LakedexLocalMor", "LakedexMor", "LakedexPlain", "LakedexSpark"]


def _told(result: WriteResult) -> dict[str, float]:
    return {
        "rows_written": result.inserted + result.updated,
        "files_written": result.files_written,
        "bytes_written": result.bytes_written + result.metadata_bytes + result.bitmap_bytes,
        "tagging_requests": result.tagging.requests,
        "tagging_bytes": result.tagging.bytes_read,
        "files_opened": result.tagging.files_opened,
        "bitmap_seconds": result.bitmap_seconds,
        "result_seconds": result.seconds,
    }


class _Reading:
    """What all tables of a peer read so far, those that it let go of too."""

    def __init__(self) -> None:
        self._counts: dict[int, IoCount] = {}

    def watch(self, table: Table) -> Table:
        """Count a table's reads from now on."""
        counted = table.context.files.storage.counted
        self._counts[id(counted)] = counted
        return table

    def counted(self) -> dict[str, int]:
        """Requests and bytes."""
        counts = self._counts.values()
        return {"requests": sum(one.requests for one in counts), "bytes_read": sum(one.bytes_read for one in counts)}


NOT_BY_ITSELF = {"hoodie.compact.inline": "false"}
"""Compaction is a step of its own."""


def _create(spark: Any, work: Workload, path: str, schema: pa.Schema, bitmaps: bool, table_type: str = "cow") -> Table:
    table = Table.create(
        path,
        schema,
        name="bench",
        record_key=work.key,
        partition_by=work.partition,
        ordering_by=work.ordering,
        table_type=table_type,
        options=NOT_BY_ITSELF if table_type == "mor" else None,
        spark=spark,
    )
    if bitmaps:
        table.indexes.create("bitmap", list(work.bitmaps), name="asked")
    return table


class LakedexSpark(SparkPeer):
    """lakedex on Spark; asked by SQL through its catalog."""

    name = "lakedex"
    title = "lakedex on Spark"
    bitmaps = True
    table_type = "cow"
    table: Table

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.reading = _Reading()

    def session(self, made: Any) -> SparkSession:
        """With the catalog."""
        spark: SparkSession = configure_spark(made).getOrCreate()
        register_catalog(spark, "bench", f"{self.settings.scratch}/warehouse")
        return spark

    def versions(self) -> Mapping[str, str]:
        """Ours too."""
        return {"lakedex": lakedex.__version__, **super().versions()}

    def counted(self) -> dict[str, int]:
        """What the driver's table read, too."""
        return {**super().counted(), **self.reading.counted()}

    def load(self, work: Workload, path: str) -> None:
        """``bulk_insert``, bitmaps of two columns made along with it."""
        self.table = self.reading.watch(
            _create(self.spark, work, path, pq.read_schema(work.load), self.bitmaps, self.table_type)
        )
        self.told = _told(self.table.bulk_insert(self.rows(work.load)))

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """``upsert``: metadata bloom index."""
        self.told = _told(self.table.upsert(self.rows(rows)))

    def relation(self, work: Workload, path: str) -> str:
        """The catalog's name of a path."""
        return f"bench.`{path}`"

    def open(self, work: Workload, path: str) -> None:
        """The catalog looks at the table by itself."""


class LakedexPlain(LakedexSpark):
    """Without bitmaps."""

    name = "lakedex-plain"
    title = "lakedex on Spark, no bitmaps"
    bitmaps = False
    steps = ("load", "upsert", "small")


class LakedexMor(LakedexSpark):
    """Merge-on-read."""

    name = "lakedex-mor"
    title = "lakedex on Spark, merge-on-read"
    steps = ("load", "upsert", "small", "read", "compact")
    table_type = "mor"

    def compact(self, work: Workload, path: str) -> None:
        """All slices with log files."""
        self.table.maintenance.compact()


class LakedexLocal(Peer):
    """lakedex in threads of one Python process; asked by Arrow."""

    name = "lakedex-arrow"
    title = "lakedex without Spark (Arrow)"
    steps: tuple[str, ...] = STEPS
    table_type = "cow"
    table: Table
    asked: Table

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.reading = _Reading()

    def versions(self) -> Mapping[str, str]:
        """Ours and Arrow's."""
        return {"lakedex": lakedex.__version__, "pyarrow": pa.__version__}

    def counted(self) -> dict[str, int]:
        """What its tables read."""
        return self.reading.counted()

    def load(self, work: Workload, path: str) -> None:
        """``bulk_insert``."""
        self.table = self.reading.watch(_create(None, work, path, pq.read_schema(work.load), True, self.table_type))
        self.told = _told(self.table.bulk_insert(pq.read_table(work.load)))

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """``upsert``: metadata bloom index."""
        self.told = _told(self.table.upsert(pq.read_table(rows)))

    def cluster(self, path: str, by: str) -> None:
        """All small files of each partition."""
        options = {"hoodie.clustering.plan.strategy.max.num.groups": "1000"}
        names = by.split(",") if by else []
        way = {"zorder": names} if len(names) > 1 else {"order_by": names} if names else {}
        done = Table.open(path, options=options).maintenance.cluster(**way)  # type: ignore[arg-type]
        self.told = {"bytes": done.bytes_before, "files_before": done.files_before}

    def open(self, work: Workload, path: str) -> None:
        """A table object that knows nothing yet."""
        self.asked = self.reading.watch(Table.open(path))

    def ask(self, work: Workload, path: str, question: str) -> int:
        """By :meth:`Table.scan`."""
        scan = self.asked.scan(work.sql(question))
        if question == "count":
            return scan.count()
        return int(scan.to_arrow().num_rows)

    def examined(self, work: Workload, path: str, question: str) -> dict[str, float]:
        """Data files that were opened, and row groups that were read."""
        scan = self.asked.scan(work.sql(question))
        if question == "count":
            told = scan.explain(answer="count")
            return {"files_read": told.scanned + told.by_footers}
        read = cast("AnalyzedPlan", scan.explain(analyze=True))
        return {"files_read": len(read.files), "row_groups": read.row_groups}

    def read(self, work: Workload, path: str) -> int:
        """All rows as an Arrow table."""
        return int(Table.open(path).scan(use_indexes=False).to_arrow().num_rows)

    def checksum(self, work: Workload, path: str) -> tuple[int, float]:
        """All rows."""
        column = Table.open(path).scan(columns=[work.value], use_indexes=False).to_arrow().column(work.value)
        return len(column), float(pc.sum(column).as_py())


class LakedexLocalMor(LakedexLocal):
    """Merge-on-read."""

    name = "lakedex-mor-arrow"
    title = "lakedex without Spark, merge-on-read"
    steps = ("load", "upsert", "small", "read", "compact")
    table_type = "mor"

    def compact(self, work: Workload, path: str) -> None:
        """All slices with log files."""
        self.table.maintenance.compact()
