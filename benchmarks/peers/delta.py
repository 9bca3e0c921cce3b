"""Delta Lake: ``MERGE`` of the Java implementation in Spark, and ``merge`` of the Rust one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks.data import Workload
from benchmarks.peers.protocol import STEPS, Peer
from benchmarks.peers.spark import SparkPeer

__all__ = ["DeltaRust", "DeltaSpark", "DeltaVectors"]


class DeltaSpark(SparkPeer):
    """delta-spark."""

    name = "delta-spark"
    title = "Delta on Spark"
    steps: tuple[str, ...] = STEPS
    source = "delta"
    conf: Mapping[str, str] = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }

    @property
    def packages(self) -> str:  # type: ignore[override]
        """The jar of the installed Python API's release."""
        return f"io.delta:delta-spark_2.12:{metadata.version('delta-spark')}"

    def load(self, work: Workload, path: str) -> None:
        """A partitioned write."""
        self.rows(work.load).write.format("delta").partitionBy(work.partition).save(path)

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """``MERGE`` on key and partition, which lets Delta leave out partitions."""
        self.rows(rows).createOrReplaceTempView("incoming")
        self.spark.sql(
            f"MERGE INTO delta.`{path}` t USING incoming s ON t.{work.key} = s.{work.key} "
            f"AND t.{work.partition} = s.{work.partition} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


class DeltaVectors(DeltaSpark):
    """With deletion vectors: changed rows are written apart, and marked in the file that had them."""

    name = "delta-vectors"
    title = "Delta on Spark, deletion vectors"
    steps = ("load", "upsert", "small", "read", "compact")

    def load(self, work: Workload, path: str) -> None:
        """A partitioned write."""
        made = self.rows(work.load).write.format("delta").partitionBy(work.partition)
        made.option("delta.enableDeletionVectors", "true").save(path)

    def compact(self, work: Workload, path: str) -> None:
        """``REORG … APPLY (PURGE)``."""
        self.spark.sql(f"REORG TABLE delta.`{path}` APPLY (PURGE)").collect()


class DeltaRust(Peer):
    """deltalake."""

    name = "deltalake"
    title = "deltalake (Rust)"
    steps = STEPS
    engine: QueryBuilder

    def versions(self) -> Mapping[str, str]:
        """Its release."""
        return {"deltalake": deltalake.__version__}

    def load(self, work: Workload, path: str) -> None:
        """A partitioned write."""
        write_deltalake(path, pq.read_table(work.load), partition_by=[work.partition])

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """``merge`` on key and partition."""
        on = f"t.{work.key} = s.{work.key} AND t.{work.partition} = s.{work.partition}"
        merge = DeltaTable(path).merge(pq.read_table(rows), on, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def open(self, work: Workload, path: str) -> None:
        """The newest version."""
        self.engine = QueryBuilder().register("asked", DeltaTable(path))

    def ask(self, work: Workload, path: str, question: str) -> int:
        """By its SQL engine (DataFusion)."""
        what = "count(*) AS found" if question == "count" else "*"
        found = pa.table(self.engine.execute(f"SELECT {what} FROM asked WHERE {work.sql(question)}").read_all())
        return int(found.column("found")[0].as_py()) if question == "count" else int(found.num_rows)

    def read(self, work: Workload, path: str) -> int:
        """By SQL."""
        engine = QueryBuilder().register("asked", DeltaTable(path))
        return int(pa.table(engine.execute("SELECT * FROM asked").read_all()).num_rows)

    def checksum(self, work: Workload, path: str) -> tuple[int, float]:
        """By SQL."""
        text = f"SELECT count(*) AS found, sum({work.value}) AS total FROM asked"
        row = pa.table(QueryBuilder().register("asked", DeltaTable(path)).execute(text).read_all()).to_pylist()[0]
        return int(row["found"]), float(row["total"])
