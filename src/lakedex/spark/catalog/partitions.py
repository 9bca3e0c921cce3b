"""Statements about partitions: ``SHOW PARTITIONS``, ``DROP PARTITION``, ``TRUNCATE TABLE … PARTITION``.

A partition of a Hudi table is there while it holds files, and its folder is the text of its values. So Spark's values
are written as that text and compared with folders, as writers do; folders are parsed only to list them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from lakedex.errors import UnsupportedFeatureError
from lakedex.layout.keys import KeyGenerator, partition_values
from lakedex.snapshot.partitions import key_generator
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.catalog.local_rows import internal_rows
from lakedex.spark.catalog.scan import ScanTarget
from lakedex.spark.catalog.warehouse import OpenTable
from lakedex.spark.catalog.write import table_options
from lakedex.spark.filters import value_of
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import arrow_to_spark, nullable
from lakedex.write.schema_evolution import type_at

__all__ = ["PARTITION_INTERFACE", "PartitionStatements"]


_log = logging.getLogger(__name__)


PARTITION_INTERFACE = "org.apache.spark.sql.connector.catalog.SupportsAtomicPartitionManagement"


@dataclass(frozen=True, slots=True)
class _Literal:
    """A value of a row and its Spark type, as :func:`value_of` takes them."""

    row: JavaObject
    position: int
    kind: JavaObject

    def dataType(self) -> JavaObject:
        return self.kind

    def value(self) -> JavaObject:
        return None if self.row.isNullAt(self.position) else self.row.get(self.position, self.kind)

    def toString(self) -> str:
        return str(self.value())


@dataclass(frozen=True, slots=True)
class _Partitions:
    """The partitions of a snapshot: paths, and the types of their columns."""

    snapshot: Snapshot
    schema: pa.Schema

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Partitions:
        fields = []
        for name in snapshot.config.partition_fields:
            kind = snapshot.schema.field(name).type if name in snapshot.schema.names else type_at(snapshot.schema, name)
            fields.append(pa.field(name, pa.string() if kind is None else kind))
        return cls(snapshot, pa.schema(fields))

    @property
    def spark_schema(self) -> StructType:
        schema: StructType = nullable(arrow_to_spark(self.schema))  # type: ignore[assignment]
        return schema

    def paths(self) -> Sequence[str]:
        """Paths of all partitions.

        Raises:
            UnsupportedFeatureError: A key generator writes other text than the values into them.
        """
        config = self.snapshot.config
        if not config.folders_are_values:
            raise self._unreadable(f"its folders are text that the key generator {config.key_generator} formats")
        return self.snapshot.view().table.partitions

    def values(self, paths: Sequence[str]) -> pa.Table:
        """Values of partitions. The null and the empty string share a partition; it is null here.

        Raises:
            UnsupportedFeatureError: A folder that no value of the columns has: other settings wrote it.
        """
        config, schema = self.snapshot.config, self.schema
        values, known = partition_values(
            paths, schema.names, schema.types, hive_style=config.hive_style, url_encode=config.url_encode
        )
        nulls = self._parts_of_nulls()
        for position, (name, certain) in enumerate(zip(schema.names, known, strict=True)):
            for path, sure in zip(paths, certain, strict=True):
                parts = path.split("/")
                if not (sure or (len(parts) == len(schema) and parts[position] == nulls[position])):
                    raise self._unreadable(f"folder {path!r} is not the text of a value of {name}")
        return pa.Table.from_arrays(values, schema=schema)

    def texts(self, values: pa.Table) -> list[list[str]]:
        """Folders of each row of values, a list per row. The columns are some of the partition's."""
        keys = self._keys(tuple(values.schema.names))
        paths = keys.partition_paths(values).to_pylist()
        if values.num_columns == 1:  # Without escapes a value may hold a slash.
            return [[path] for path in paths]
        return [path.split("/") for path in paths]

    def written(self, values: pa.Table) -> list[str]:
        """Path of each row of values of all columns."""
        return [str(path) for path in self._keys(tuple(self.schema.names)).partition_paths(values).to_pylist()]

    def _parts_of_nulls(self) -> list[str]:
        row = pa.Table.from_arrays([pa.nulls(1, kind) for kind in self.schema.types], schema=self.schema)
        return self.texts(row)[0]

    def _keys(self, fields: tuple[str, ...]) -> KeyGenerator:
        whole = key_generator(self.snapshot.config, self.snapshot, with_keys=False)
        return KeyGenerator(
            record_key=(), partition_by=fields, hive_style=whole.hive_style, url_encode=whole.url_encode
        )

    def _unreadable(self, why: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"table {self.snapshot.config.name}: its partitions cannot be named by values: {why}; the metadata "
            "table .partitions lists their paths, and Table.delete_partition('<path>') empties one",
            feature="partition values",
        )


class PartitionStatements(JavaProxy):
    """The methods of ``SupportsAtomicPartitionManagement``, for a table of the catalog."""

    _bridge: JavaBridge
    _target: ScanTarget
    _table: OpenTable

    def partitionSchema(self) -> JavaObject:
        """Partition columns; none for a table without partitions, which Spark then refuses."""
        return self._bridge.struct(self._partitions().spark_schema)

    def listPartitionIdentifiers(self, names: JavaObject, wanted: JavaObject) -> JavaObject:
        """``SHOW PARTITIONS``: partitions with these values of some columns."""
        known = self._partitions()
        paths = known.paths()
        columns = [str(name) for name in names]
        if columns and paths:
            schema = pa.schema([known.schema.field(name) for name in columns])
            texts = known.texts(self._rows(schema, [wanted]))[0]
            places = [known.schema.get_field_index(name) for name in columns]
            split = [path.split("/") if len(known.schema) > 1 else [path] for path in paths]
            paths = [
                path
                for path, parts in zip(paths, split, strict=True)
                if len(parts) == len(known.schema) and [parts[place] for place in places] == texts
            ]
        return internal_rows(self._bridge, known.spark_schema, known.values(paths))

    def partitionExists(self, ident: JavaObject) -> bool:
        """Whether a partition holds files."""
        known = self._partitions()
        return known.written(self._rows(known.schema, [ident]))[0] in set(known.paths())

    def createPartitions(self, idents: JavaObject, properties: JavaObject) -> None:
        """``ADD PARTITION`` changes nothing, and a warning of the logger says so."""
        if any(dict(given) for given in properties):
            raise UnsupportedFeatureError(
                f"table {self._target.name}: ADD PARTITION … LOCATION is not supported: partitions are folders of the "
                "table; insert the rows",
                feature="ADD PARTITION LOCATION",
            )
        _log.warning("table %s: ADD PARTITION does nothing: a partition appears with its first row", self._target.name)

    def dropPartitions(self, idents: JavaObject) -> bool:
        """``DROP PARTITION`` in one commit. Older instants can still be read until their files are cleaned."""
        known = self._partitions()
        there = set(known.paths())
        paths = [path for path in known.written(self._rows(known.schema, idents)) if path in there]
        if paths:
            self._table.delete_partition(paths, options=table_options(self._bridge))
        return bool(paths)

    def truncatePartitions(self, idents: JavaObject) -> bool:
        """``TRUNCATE TABLE … PARTITION`` of some of the columns: all partitions with these values, in one commit."""
        self.dropPartitions(idents)
        return True

    def truncatePartition(self, ident: JavaObject) -> bool:
        """``TRUNCATE TABLE … PARTITION`` of all of the columns."""
        return self.truncatePartitions([ident])

    def renamePartition(self, old: JavaObject, new: JavaObject) -> bool:
        """Refused: the rows hold the value too."""
        raise UnsupportedFeatureError(
            f"table {self._target.name}: RENAME PARTITION is not supported: its rows hold the value; change that with "
            "Table.update(set={…}, where=…)",
            feature="RENAME PARTITION",
        )

    def loadPartitionMetadata(self, ident: JavaObject) -> JavaObject:
        """``SHOW TABLE EXTENDED … PARTITION``."""
        known = self._partitions()
        path = known.written(self._rows(known.schema, [ident]))[0]
        found = self._table.inspect.partitions()
        row = found.filter(pc.equal(found["partition"], path)).to_pylist()[0]
        location = {"location": f"{known.snapshot.files.base_path}/{path}"}
        return self._bridge.map({**location, **{name: str(row[name]) for name in ("file_slices", "size")}})

    def replacePartitionMetadata(self, ident: JavaObject, properties: JavaObject) -> None:
        """Refused: a partition has no properties."""
        raise UnsupportedFeatureError(
            f"table {self._target.name}: a partition is a folder of the table and has no properties",
            feature="partition properties",
        )

    def _partitions(self) -> _Partitions:
        return _Partitions.of(self._target.snapshot)

    def _rows(self, schema: pa.Schema, rows: Iterable[JavaObject]) -> pa.Table:
        """Values of Spark's rows, of which a statement names a few."""
        kinds = [field.dataType() for field in self._bridge.struct(arrow_to_spark(schema)).fields()]
        given = list(rows)
        columns = [
            pa.array([value_of(_Literal(row, position, kind)) for row in given], schema.field(position).type)
            for position, kind in enumerate(kinds)
        ]
        return pa.Table.from_arrays(columns, schema=schema)
