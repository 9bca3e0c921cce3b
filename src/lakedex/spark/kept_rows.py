"""Rows that executors keep, so that a lazy frame is computed once and every later stage reads the very same rows.

They are Spark's local checkpoint: blocks on the executors, and no lineage that could compute other rows again. Each
block lies on two executors, for with a single copy the loss of an executor would be the end of the write. They lie on
disks: in memory, ten million rows were the end of a JVM of 1.5 GB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from lakedex.spark.session import is_connect

__all__ = ["KeptRows", "is_local", "release"]


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows on executors.

    Attributes:
        df: reads them.
        rows: how many they are.
        size: bytes that a copy takes: more than the rows take in Arrow. 0 on Spark Connect, which
            does not tell.
    """

    df: DataFrame
    rows: int
    size: int

    @classmethod
    def of(cls, df: DataFrame) -> KeptRows:
        """Compute a frame, on a classic session in a single job."""
        spark = df.sparkSession
        copies = 1 if is_local(spark) else 2
        level = StorageLevel.DISK_ONLY if copies == 1 else StorageLevel.DISK_ONLY_2
        if is_connect(spark):
            # PySpark 4, the first whose Connect has checkpoints, takes a level; the type stubs know that of 3.5.
            kept: DataFrame = df.localCheckpoint(True, level)  # type: ignore[call-arg, unused-ignore]
            return cls(kept, kept.count(), 0)
        kept = df.localCheckpoint(eager=False)
        # An RDD that is marked for a checkpoint takes another level until its first job (RDD.persist).
        _rdd(kept).persist(spark.sparkContext._getJavaStorageLevel(level))
        rows = kept.count()
        infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
        number = _rdd(kept).id()
        size = next((info.memSize() + info.diskSize() for info in infos if info.id() == number), 0)
        return cls(kept, rows, size // copies)


def release(df: DataFrame) -> None:
    """Let go of the rows of :class:`KeptRows`; on Spark Connect they go with the session."""
    if not is_connect(df.sparkSession):
        _rdd(df).unpersist(False)


def is_local(spark: SparkSession) -> bool:
    """Whether the session's executors are the driver itself, which cannot lose them."""
    return re.fullmatch(r"local(\[.*\])?", str(spark.conf.get("spark.master", ""))) is not None


def _rdd(df: DataFrame) -> Any:
    return df._jdf.queryExecution().analyzed().rdd()
