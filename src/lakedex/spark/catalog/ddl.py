"""``CREATE TABLE`` and ``ALTER TABLE`` as calls of ``Table``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.java_collections import JavaArray
from pyspark.sql.types import StructField, StructType

from lakedex.errors import InvalidInputError, LakedexError, OptionError, UnsupportedFeatureError
from lakedex.options import parse_options
from lakedex.spark.catalog.java_bridge import JavaBridge
from lakedex.spark.catalog.warehouse import OpenTable
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import declared_schema

__all__ = ["NewTable", "alter_table", "new_table", "require_key"]


_PROVIDERS = frozenset({"hudi", "lakedex"})


_SPARKS_OWN = frozenset({"provider", "location", "owner", "external", "is_managed_location"})


_COMMENT = "comment"


_HUDIS = {
    "primarykey": "record_key",
    "hoodie.datasource.write.recordkey.field": "record_key",
    "hoodie.table.recordkey.fields": "record_key",
    "precombinefield": "ordering_by",
    "orderingfields": "ordering_by",
    "hoodie.datasource.write.precombine.field": "ordering_by",
    "hoodie.table.precombine.field": "ordering_by",
    "hoodie.table.ordering.fields": "ordering_by",
    "type": "table_type",
    "hoodie.table.type": "table_type",
    "hoodie.datasource.write.table.type": "table_type",
    "hoodie.table.name": "name",
    "comment": "comment",
}
"""Table properties of Hudi's SQL, and Spark's for a ``COMMENT``, in small letters → arguments of ``Table.create``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A ``CREATE TABLE``: the schema, and arguments for ``Table.create``."""

    schema: StructType
    arguments: Mapping[str, Any]


def new_table(
    bridge: JavaBridge, name: str, path: str, columns: JavaObject, partitions: JavaObject, properties: Mapping[str, str]
) -> NewTable:
    """Read a ``CREATE TABLE``.

    Raises:
        OptionError: a property that is not known.
        UnsupportedFeatureError: another format, a partition transform, a location elsewhere.
    """
    provider = properties.get("provider", "hudi").lower()
    if provider not in _PROVIDERS:
        raise UnsupportedFeatureError(
            f"table {name}: USING {provider} is not done in this catalog; say USING hudi", feature=f"USING {provider}"
        )
    location = properties.get("location", path)
    if location.removeprefix("file:").rstrip("/").replace("///", "/") != path.removeprefix("file:"):
        raise UnsupportedFeatureError(
            f"table {name}: its place in this catalog is {path}, not {location}; leave LOCATION out, or name the table "
            f"by its path: `{location}`",
            feature="LOCATION",
        )
    arguments: dict[str, Any] = {"options": {}, "partition_by": _partition_columns(name, partitions)}
    for key, value in properties.items():
        if key.lower() in _HUDIS:
            arguments[_HUDIS[key.lower()]] = value
        elif key.startswith("hoodie."):
            arguments["options"][key] = value
        elif key not in _SPARKS_OWN and not key.startswith(("option.", "lakedex.")):
            raise OptionError(
                f"table {name}: property {key!r} is not known; known are primaryKey, preCombineField, type, hoodie.*",
                option=key,
            )
    return NewTable(schema=_struct(bridge, columns), arguments=arguments)


def require_key(wanted: NewTable, name: str) -> None:
    """Refuse a new table without a record key.

    Raises:
        InvalidInputError: Names the property.
    """
    if "record_key" not in wanted.arguments:
        raise InvalidInputError(
            f"table {name}: TBLPROPERTIES (primaryKey = '…') is missing; a table of lakedex has a record key"
        )


def _struct(bridge: JavaBridge, columns: JavaObject) -> StructType:
    if not isinstance(columns, JavaArray):
        return bridge.schema(columns)
    utils = bridge.view.org.apache.spark.sql.connector.catalog.CatalogV2Util
    return bridge.schema(utils.v2ColumnsToStructType(columns))


def _partition_columns(name: str, partitions: JavaObject) -> list[str]:
    found = []
    for transform in partitions:
        references = transform.references()
        if str(transform.name()) != "identity" or len(references) != 1:
            raise UnsupportedFeatureError(
                f"table {name}: PARTITIONED BY ({transform.toString()}) is not done; partition by columns",
                feature="partition transforms",
            )
        found.append(".".join(str(part) for part in references[0].fieldNames()))
    return found


# -------------------------------------------------------------------------------------------------------- ALTER


def alter_table(bridge: JavaBridge, name: str, table: OpenTable, changes: Sequence[JavaObject]) -> None:
    """Make the changes of an ``ALTER TABLE``, neighbours of one kind in one commit.

    Raises:
        UnsupportedFeatureError: a change that a table does not know.
    """
    added: list[StructField] = []
    dropped: list[str] = []
    rest: list[tuple[str, Any]] = []
    for change in changes:
        kind = str(change.getClass().getSimpleName())
        if kind == "AddColumn":
            added.append(_new_column(bridge, name, change))
        elif kind == "DeleteColumn":
            column = _column(name, change)
            if not (change.ifExists() and column not in table.scan().snapshot.schema.names):
                dropped.append(column)
        else:
            _check(name, kind, change)
            rest.append((kind, change))
    if added:
        table.add_columns(declared_schema(StructType(added)))
    if dropped:
        table.drop_columns(dropped)
    for kind, change in rest:
        if kind == "RenameColumn":
            table.rename_column(_column(name, change), str(change.newName()))
        elif kind == "UpdateColumnType":
            column = _column(name, change)
            table.widen_column(column, _arrow_type(bridge, column, change.newDataType()))
        elif kind == "UpdateColumnComment":
            table.set_comment(str(change.newComment() or ""), ".".join(str(part) for part in change.fieldNames()))
        elif kind in ("SetProperty", "RemoveProperty") and str(change.property()) == _COMMENT:
            table.set_comment(str(change.value()) if kind == "SetProperty" else "")


def _new_column(bridge: JavaBridge, name: str, change: JavaObject) -> StructField:
    column = _column(name, change)
    if not change.isNullable() or change.position() is not None or change.defaultValue() is not None:
        raise UnsupportedFeatureError(
            f"table {name}: column {column!r} is added at the end, nullable, without a default value",
            feature="ALTER TABLE ADD COLUMN with position, NOT NULL or DEFAULT",
        )
    kind = bridge.schema(_one(bridge, change.dataType())).fields[0].dataType
    return StructField(column, kind, True, {_COMMENT: str(change.comment())} if change.comment() else None)


def _one(bridge: JavaBridge, kind: JavaObject) -> JavaObject:
    return bridge.view.org.apache.spark.sql.types.StructType().add("value", kind)


def _arrow_type(bridge: JavaBridge, column: str, kind: JavaObject) -> pa.DataType:
    found = bridge.schema(_one(bridge, kind)).fields[0].dataType
    return declared_schema(StructType([StructField(column, found)])).field(0).type


def _column(name: str, change: JavaObject) -> str:
    parts = [str(part) for part in change.fieldNames()]
    if len(parts) != 1:
        raise UnsupportedFeatureError(
            f"table {name}: ALTER TABLE changes whole columns, not the field {'.'.join(parts)!r}",
            feature="ALTER TABLE of a nested field",
        )
    return parts[0]


def _check(name: str, kind: str, change: JavaObject) -> None:
    if kind in ("RenameColumn", "UpdateColumnType", "UpdateColumnComment"):
        return
    if kind in ("SetProperty", "RemoveProperty") and str(change.property()) == _COMMENT:
        return
    if kind != "SetProperty":
        raise UnsupportedFeatureError(
            f"table {name}: ALTER TABLE with {kind} is not done", feature=f"ALTER TABLE {kind}"
        )
    key, value = str(change.property()), str(change.value())
    try:
        harmless = key.startswith("hoodie.") and bool(parse_options({key: value}).notes)
    except LakedexError as error:
        raise OptionError(f"table {name}: {error}", option=key) from error
    if not harmless:
        raise UnsupportedFeatureError(
            f"table {name}: SET TBLPROPERTIES ({key}) cannot be kept with the table; give a hoodie.* setting to the "
            f"write, or to the session: SET {key} = {value}",
            feature="SET TBLPROPERTIES",
        )
