"""Spark 4 imports each top-level module named ``pyspark_*`` and registers its ``DefaultSource``."""

from lakedex.spark.data_source import LakedexDataSource as DefaultSource

__all__ = ["DefaultSource"]
