"""``CREATE TABLE`` and ``ALTER TABLE`` as calls of ``Table``, and a table as the statement that makes one like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.java_collections import JavaArray
from pyspark.sql.types import StructField, StructType

from lakedex.errors import InvalidInputError, LakedexError, OptionError, UnsupportedFeatureError
from lakedex.options import parse_options
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog.java_bridge import JavaBridge
from lakedex.spark.catalog.warehouse import OpenTable
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import declared_schema
from lakedex.spark.staged_write import SETTINGS
from lakedex.timeline.free_properties import DEFAULT, check_default, free_properties
from lakedex.timeline.table_config import TableConfig
from lakedex.write.create_table import DEFAULT_VERSION
from lakedex.write.schema_evolution import stored_schema

__all__ = [
    "CAPABILITIES",
    "NewTable",
    "alter_table",
    "created_with",
    "new_table",
    "require_like",
    "with_defaults",
]


CAPABILITIES = (
    "SUPPORT_COLUMN_DEFAULT_VALUE",
    "SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS",
    "SUPPORTS_CREATE_TABLE_WITH_IDENTITY_COLUMNS",
)
"""Of a ``TableCatalog``. With the last two Spark hands over the statement, which is refused in a sentence of ours."""


_PROVIDERS = frozenset({"hudi", "lakedex"})


_SPARKS_OWN = frozenset({"provider", "location", "owner", "external", "is_managed_location", "table_type", "collation"})


_COMMENT = "comment"


_HUDIS = {
    **{name.lower(): field_ for name, field_ in SETTINGS.items() if field_ != "partition_by"},
    "comment": "comment",
}
"""Table properties of Hudi's SQL, and Spark's for a ``COMMENT``, in small letters → arguments of ``Table.create``."""


_LISTS = frozenset({"record_key", "ordering_by"})


_CURRENT_DEFAULT = "CURRENT_DEFAULT"


_BY_COLUMN = "partition by a column; add one with date_trunc('DAY', …) or another expression, filled by each INSERT"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A ``CREATE TABLE``: the schema, arguments for ``Table.create``, and a location of its own."""

    schema: StructType
    arguments: Mapping[str, Any]
    location: str | None = None


def new_table(
    bridge: JavaBridge, name: str, columns: JavaObject, partitions: JavaObject, properties: Mapping[str, str]
) -> NewTable:
    """Read a ``CREATE TABLE``.

    Raises:
        InvalidInputError: Two properties that contradict each other.
        OptionError: An option that is unknown or not supported.
        UnsupportedFeatureError: Another format, a partition transform, a generated column.
    """
    provider = properties.get("provider", "hudi").lower()
    if provider not in _PROVIDERS:
        raise UnsupportedFeatureError(
            f"table {name}: USING {provider} is not supported in this catalog; say USING lakedex, or "
            ".format('lakedex') of the frame or stream that makes the table",
            feature=f"USING {provider}",
        )
    arguments: dict[str, Any] = {"options": {}, "partition_by": _partition_columns(name, partitions), "properties": {}}
    for key, value in properties.items():
        argument = _HUDIS.get(key.lower())
        if argument is not None:
            found = [part.strip() for part in value.split(",")] if argument in _LISTS else value
            if arguments.setdefault(argument, found) != found:
                raise InvalidInputError(f"table {name}: two properties name the {argument}: {key} = {value!r}")
        elif key.startswith("hoodie."):
            arguments["options"][key] = value
        elif key not in _SPARKS_OWN and not key.startswith("option."):
            arguments["properties"][key] = value
    arguments.setdefault("record_key", None)
    schema = _struct(bridge, name, columns)
    for column in schema.fields:
        default = (column.metadata or {}).get(_CURRENT_DEFAULT)
        if default is not None:
            arguments["properties"][f"{DEFAULT}{column.name}"] = check_default(str(default), column.name, name)
    return NewTable(schema=schema, arguments=arguments, location=properties.get("location"))


def require_like(wanted: NewTable, found: Snapshot, name: str) -> None:
    """Refuse an entry whose statement describes another table than the one at its location.

    Raises:
        InvalidInputError: Names the clause.
    """
    config, schema = found.config, declared_schema(wanted.schema)
    given = wanted.arguments
    columns = [(column.name.lower(), column.type) for column in stored_schema(schema, name)] if schema.names else []
    checks: tuple[tuple[str, Any, Any], ...] = (
        ("columns", columns, [(column.name.lower(), column.type) for column in found.schema]),
        ("PARTITIONED BY", given["partition_by"], list(config.partition_fields)),
        ("primaryKey", given.get("record_key"), list(config.record_key_fields)),
        ("preCombineField", given.get("ordering_by"), list(config.ordering_fields)),
        ("COMMENT", given.get("comment"), config.comment),
        ("hoodie.* properties", given["options"], {}),
        ("properties", given["properties"], {key: config.raw.get(key) for key in given["properties"]}),
    )
    for what, said, there in checks:
        if said and said != there:
            raise InvalidInputError(
                f"table {name}: {found.files} holds a table with other {what} already; leave that clause out to name "
                "the table as it is, or give another LOCATION"
            )


def _struct(bridge: JavaBridge, name: str, columns: JavaObject) -> StructType:
    if not isinstance(columns, JavaArray):
        return bridge.schema(columns)
    for column in columns:
        has_identity = not bridge.is_spark_3 and column.identityColumnSpec() is not None
        if has_identity or column.generationExpression() is not None:
            raise UnsupportedFeatureError(
                f"table {name}: GENERATED ALWAYS AS of column {str(column.name())!r} is not supported: {_BY_COLUMN}",
                feature="generated columns",
            )
    utils = bridge.view.org.apache.spark.sql.connector.catalog.CatalogV2Util
    return bridge.schema(utils.v2ColumnsToStructType(columns))


def _partition_columns(name: str, partitions: JavaObject) -> list[str]:
    found = []
    for transform in partitions:
        references = transform.references()
        kind = str(transform.name())
        if kind != "identity" or len(references) != 1:
            clause = "CLUSTER BY" if kind == "cluster_by" else f"PARTITIONED BY ({transform.toString()})"
            raise UnsupportedFeatureError(
                f"table {name}: {clause} is not supported: {_BY_COLUMN}", feature="partition transforms"
            )
        found.append(".".join(str(part) for part in references[0].fieldNames()))
    return found


# -------------------------------------------------------------------------------------------------------- ALTER


@dataclass(slots=True)
class _Changes:
    """The changes of one statement, by kind."""

    added: list[StructField] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    properties: dict[str, str | None] = field(default_factory=dict)
    rest: list[tuple[str, JavaObject]] = field(default_factory=list)


def alter_table(bridge: JavaBridge, name: str, table: OpenTable, changes: Sequence[JavaObject]) -> None:
    """Make the changes of an ``ALTER TABLE``, neighbours of one kind in one commit.

    Raises:
        UnsupportedFeatureError: A change that a table does not know; nothing has changed then.
    """
    schema = table.scan().snapshot.schema
    sorted_out = _Changes()
    for change in changes:
        kind = str(change.getClass().getSimpleName())
        if kind == "AddColumn":
            sorted_out.added.append(_new_column(bridge, name, change))
        elif kind == "DeleteColumn":
            column = _path(change)
            if not (change.ifExists() and column not in schema.names):
                sorted_out.dropped.append(column)
        elif kind in ("SetProperty", "RemoveProperty") and str(change.property()) != _COMMENT:
            sorted_out.properties.update(_property(name, kind, change))
        elif kind == "UpdateColumnDefaultValue":
            column = _path(change)
            sorted_out.properties[f"{DEFAULT}{column}"] = _default_text(name, column, change)
        else:
            _check(name, kind, change)
            sorted_out.rest.append((kind, change))
    if sorted_out.dropped and sorted_out.added:
        raise UnsupportedFeatureError(
            f"table {name}: REPLACE COLUMNS is not supported: dropped names could not come back before their files are "
            "rewritten; use DROP COLUMNS, RENAME COLUMN, ALTER COLUMN … TYPE and ADD COLUMNS",
            feature="REPLACE COLUMNS",
        )
    _apply(bridge, table, sorted_out)


def _apply(bridge: JavaBridge, table: OpenTable, changes: _Changes) -> None:
    if changes.added:
        table.add_columns(declared_schema(StructType(changes.added)))
    if changes.dropped:
        table.drop_columns(changes.dropped)
    for kind, change in changes.rest:
        column = _path(change) if kind.startswith(("Rename", "Update")) else ""
        if kind == "RenameColumn":
            table.rename_column(column, str(change.newName()))
        elif kind == "UpdateColumnType":
            table.widen_column(column, _arrow_type(bridge, column, change.newDataType()))
        elif kind == "UpdateColumnNullability":
            table.widen_column(column)
        elif kind == "UpdateColumnComment":
            table.set_comment(str(change.newComment() or ""), column)
        else:
            table.set_comment(str(change.value()) if kind == "SetProperty" else "")
    if changes.properties:
        table.maintenance.set_properties(changes.properties)


def _new_column(bridge: JavaBridge, name: str, change: JavaObject) -> StructField:
    column = _path(change)
    if not change.isNullable() or change.position() is not None or change.defaultValue() is not None:
        raise UnsupportedFeatureError(
            f"table {name}: column {column!r} is added at the end, nullable, without FIRST, AFTER or DEFAULT; rows "
            "that are there have null; ALTER COLUMN … SET DEFAULT sets the value of later INSERTs",
            feature="ADD COLUMN with position, NOT NULL or DEFAULT",
        )
    kind = bridge.schema(_one(bridge, change.dataType())).fields[0].dataType
    return StructField(column, kind, True, {_COMMENT: str(change.comment())} if change.comment() else None)


def _one(bridge: JavaBridge, kind: JavaObject) -> JavaObject:
    return bridge.view.org.apache.spark.sql.types.StructType().add("value", kind)


def _arrow_type(bridge: JavaBridge, column: str, kind: JavaObject) -> pa.DataType:
    found = bridge.schema(_one(bridge, kind)).fields[0].dataType
    return declared_schema(StructType([StructField(column, found)])).field(0).type


def _path(change: JavaObject) -> str:
    """A column, or the dotted path of a field inside of one."""
    return ".".join(str(part) for part in change.fieldNames())


def _default_text(name: str, column: str, change: JavaObject) -> str | None:
    text = str(change.newDefaultValue() or "")
    return check_default(text, column, name) if text else None


_REFUSALS = {
    "UpdateColumnPosition": ("FIRST and AFTER are not supported: columns keep their order", "name them in SELECT"),
    "ClusterBy": ("CLUSTER BY is not supported", "CREATE INDEX … USING bitmap finds rows without it"),
    "AddConstraint": ("constraints are not supported", "check the rows before they are written"),
    "DropConstraint": ("constraints are not supported", "there is none to drop"),
}
"""Kind of change → reason and remedy."""


def _check(name: str, kind: str, change: JavaObject) -> None:
    if kind == "UpdateColumnNullability" and not change.nullable():
        raise UnsupportedFeatureError(
            f"table {name}: SET NOT NULL is not supported, as rows may have no value", feature="SET NOT NULL"
        )
    if kind in _REFUSALS:
        reason, remedy = _REFUSALS[kind]
        raise UnsupportedFeatureError(f"table {name}: {reason}; {remedy}", feature=f"ALTER TABLE {kind}")
    known = ("RenameColumn", "UpdateColumnType", "UpdateColumnComment", "UpdateColumnNullability")
    if kind not in (*known, "SetProperty", "RemoveProperty"):
        raise UnsupportedFeatureError(
            f"table {name}: ALTER TABLE with {kind} is not supported", feature=f"ALTER TABLE {kind}"
        )


def _property(name: str, kind: str, change: JavaObject) -> dict[str, str | None]:
    """A property that a user sets or removes; empty for a setting of Hudi that has no effect here."""
    key = str(change.property())
    if key.lower() in _HUDIS or key in _SPARKS_OWN:
        raise UnsupportedFeatureError(
            f"table {name}: {key} is fixed when a table is created; create another table and copy the rows",
            feature=f"SET TBLPROPERTIES {key}",
        )
    if kind == "RemoveProperty":
        return {key: None}
    value = str(change.value())
    if not key.startswith("hoodie."):
        return {key: value}
    try:
        harmless = bool(parse_options({key: value}).notes)
    except LakedexError as error:
        raise OptionError(f"table {name}: {error}", option=key) from error
    if not harmless:
        raise UnsupportedFeatureError(
            f"table {name}: SET TBLPROPERTIES ({key}) cannot be kept with the table; give a hoodie.* setting to the "
            f"write, or to the session: SET {key} = {value}",
            feature="SET TBLPROPERTIES",
        )
    return {}


# -------------------------------------------------------------------------------------------------- SHOW CREATE


_INDEXES = {
    "column_stats": "hoodie.metadata.index.column.stats.enable",
    "bloom_filters": "hoodie.metadata.index.bloom.filter.enable",
}
"""Metadata partition that a new table has → the option that leaves it out."""


def created_with(config: TableConfig) -> dict[str, str]:
    """Table properties by name: Hudi's names, settings that differ from those of a new table, and a user's own."""
    own = {
        "comment": config.comment,
        "type": "mor" if config.table_type == "MERGE_ON_READ" else "cow",
        "primaryKey": ",".join(config.record_key_fields),
        "preCombineField": ",".join(config.ordering_fields),
        "hoodie.write.table.version": None if config.version == DEFAULT_VERSION else str(config.version),
        "hoodie.index.type": config.raw.get("hoodie.index.type"),
        "hoodie.record.merge.mode": _unusual(
            config.merge_mode, "EVENT_TIME_ORDERING" if config.ordering_fields else "COMMIT_TIME_ORDERING"
        ),
        **_partitioning(config),
        **_metadata(config),
    }
    return {**free_properties(config.raw), **{name: value for name, value in own.items() if value}}


def _unusual(value: str, usual: str) -> str | None:
    return None if value == usual else value


def _partitioning(config: TableConfig) -> dict[str, str | None]:
    if not config.partition_fields:
        return {}
    return {
        "hoodie.datasource.write.hive_style_partitioning": None if config.hive_style else "false",
        "hoodie.datasource.write.partitionpath.urlencode": None if config.url_encode else "false",
    }


def _metadata(config: TableConfig) -> dict[str, str | None]:
    if not config.metadata_partitions:
        return {"hoodie.metadata.enable": "false"}
    return {option: None if name in config.metadata_partitions else "false" for name, option in _INDEXES.items()}


def with_defaults(schema: StructType, defaults: Mapping[str, str]) -> StructType:
    """A schema whose columns have defaults for ``INSERT``.

    Spark wants a value for rows that were there before, too. It is null: no column is added with a default.
    """
    if not defaults:
        return schema
    return StructType([_with_default(column, defaults) for column in schema.fields])


def _with_default(column: StructField, defaults: Mapping[str, str]) -> StructField:
    if column.name not in defaults:
        return column
    said = {"CURRENT_DEFAULT": defaults[column.name], "EXISTS_DEFAULT": "NULL"}
    return StructField(column.name, column.dataType, column.nullable, {**(column.metadata or {}), **said})
