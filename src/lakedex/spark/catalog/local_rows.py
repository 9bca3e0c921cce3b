"""Scans whose rows are in the driver already: metadata tables and results of procedures."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.jvm import JavaObject

__all__ = ["LocalRows", "internal_rows"]


_READ = "org.apache.spark.sql.connector.read."


def internal_rows(bridge: JavaBridge, schema: StructType, values: pa.Table) -> JavaObject:
    """``InternalRow[]`` of a table whose Arrow types are those of ``schema``; no job runs."""
    if not values.num_rows:
        return bridge.gateway.new_array(bridge.view.org.apache.spark.sql.catalyst.InternalRow, 0)
    return bridge.frame(schema, values).queryExecution().executedPlan().executeCollect()


class LocalRows(JavaProxy):
    """A scan of a small table. Spark keeps its rows in the plan, so executors need no class of lakedex."""

    interfaces = (f"{_READ}ScanBuilder", f"{_READ}LocalScan")

    def __init__(self, bridge: JavaBridge, schema: StructType, values: pa.Table, description: str) -> None:
        super().__init__(bridge)
        self._schema = schema
        self._values = values
        self._description = description

    def build(self) -> JavaObject:
        """The scan is its own builder."""
        return self.java

    def readSchema(self) -> JavaObject:
        """Columns of the table."""
        return self._bridge.struct(self._schema)

    def rows(self) -> JavaObject:
        """All rows."""
        return internal_rows(self._bridge, self._schema, self._values)

    def description(self) -> str:
        """Shown by ``EXPLAIN``."""
        return self._description
