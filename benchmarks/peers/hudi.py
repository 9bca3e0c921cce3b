"""Hudi's own Java writer and reader, with three of its indexes."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.data import Workload
from benchmarks.peers.protocol import STEPS
from benchmarks.peers.spark import SparkPeer

__all__ = ["HUDI_BUNDLE", "HudiBloom", "HudiFooterBloom", "HudiMor", "HudiRecordIndex"]

HUDI_BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1"
_OPENS = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of java.base that Spark and Kryo open by reflection; Java 17 keeps them shut by default."""
_STATS = {
    # The metadata table of a Java writer keeps what its own options name, so each variant names them all.
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
}


class HudiBloom(SparkPeer):
    """Bloom filters and key ranges in the metadata table, as we have them."""

    name = "hudi"
    title = "Hudi Java, metadata bloom"
    steps: tuple[str, ...] = STEPS
    packages = HUDI_BUNDLE
    source = "hudi"
    conf: Mapping[str, str] = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.extraJavaOptions": " ".join(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
    }
    read_options: Mapping[str, str] = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
    table_type = "COPY_ON_WRITE"
    index: Mapping[str, str] = {
        **_STATS,
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.index.type": "BLOOM",
        "hoodie.bloom.index.use.metadata": "true",
    }

    def _write(self, work: Workload, path: str, rows: str, operation: str, mode: str) -> None:
        options = {
            **self.index,
            "hoodie.table.name": "bench",
            "hoodie.datasource.write.table.type": self.table_type,
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": work.key,
            "hoodie.datasource.write.partitionpath.field": work.partition,
            "hoodie.datasource.write.precombine.field": work.ordering,
            "hoodie.datasource.write.hive_style_partitioning": "true",
        }
        self.rows(rows).write.format("hudi").options(**options).mode(mode).save(path)

    def load(self, work: Workload, path: str) -> None:
        """``bulk_insert``."""
        self._write(work, path, work.load, "bulk_insert", "overwrite")

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """``upsert``."""
        self._write(work, path, rows, "upsert", "append")

    def cluster(self, path: str, by: str) -> None:
        """``CALL run_clustering``, of all small files at once."""
        order = f", order => '{by}'" if by else ""
        options = "hoodie.clustering.plan.strategy.max.num.groups=1000,hoodie.metadata.enable=true"
        self.spark.sql(f"CALL run_clustering(path => '{path}'{order}, options => '{options}')").collect()


class HudiFooterBloom(HudiBloom):
    """Bloom filters and key ranges in each file's footer, Hudi's default for a bloom index."""

    name = "hudi-footers"
    title = "Hudi Java, footer bloom"
    steps: tuple[str, ...] = ("load", "upsert", "small")
    index: Mapping[str, str] = {**HudiBloom.index, "hoodie.bloom.index.use.metadata": "false"}


class HudiRecordIndex(HudiBloom):
    """The record index: each key's file in the metadata table."""

    name = "hudi-records"
    title = "Hudi Java, record index"
    index: Mapping[str, str] = {
        **_STATS,
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
    }


class HudiMor(HudiBloom):
    """Merge-on-read; compacted when asked, not by the writes."""

    name = "hudi-mor"
    title = "Hudi Java, merge-on-read"
    steps: tuple[str, ...] = ("load", "upsert", "small", "read", "compact")
    table_type = "MERGE_ON_READ"
    index: Mapping[str, str] = {**HudiBloom.index, "hoodie.compact.inline": "false"}

    def compact(self, work: Workload, path: str) -> None:
        """``CALL run_compaction``."""
        for op in ("schedule", "run"):
            self.spark.sql(f"CALL run_compaction(op => '{op}', path => '{path}')").collect()
