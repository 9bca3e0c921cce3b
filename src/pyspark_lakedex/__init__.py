"""Spark 4 imports each top-level module named ``pyspark_*`` and registers its ``DefaultSource``."""

from lakedex.spark.stream_source import LakedexStreams as DefaultSource

__all__ = ["DefaultSource"]
