"""Read a planned list of files, on every kind of session, Spark Connect included."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakedex.spark.hadoop import qualified
from lakedex.spark.schema import align, nullable

__all__ = ["REBASE", "read_files"]


_GLOB = re.compile(r"[\\{}\[\]*?]")


REBASE = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Neither Hudi 1.x nor lakedex writes the old hybrid calendar; Spark must not ask the footers about it."""


def read_files(spark: SparkSession, files: Sequence[tuple[str, StructType]], table_schema: StructType) -> DataFrame:
    """The rows of ``files`` in the table's schema.

    Args:
        spark: A classic or Connect session.
        files: Path and physical schema of each file; files of equal schema are read by one scan.
        table_schema: Columns that come out. A file's missing columns are null, its others are cast.
    """
    wanted = cast("StructType", nullable(table_schema))
    groups: dict[str, tuple[StructType, list[str]]] = {}
    for path, physical in files:
        _, paths = groups.setdefault(physical.json(), (physical, []))
        paths.append(qualified(path))
    if not groups:
        return spark.createDataFrame([], wanted)
    frames = [_scan(spark, paths, physical, wanted) for physical, paths in groups.values()]
    return reduce(DataFrame.unionAll, frames)


def _scan(spark: SparkSession, paths: list[str], physical: StructType, wanted: StructType) -> DataFrame:
    found = cast("StructType", nullable(physical))
    # Partition values may hold the characters of a glob pattern. `basePath` is left out: with it Spark takes columns
    # from the folder names and guesses their types.
    plain = [_GLOB.sub(r"\\\g<0>", path) for path in paths]
    return align(spark.read.schema(found).options(**REBASE).parquet(*plain), found, wanted)
