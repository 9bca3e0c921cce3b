"""The properties of new tables: of version 6 as Hudi 0.15 writes them, of 8 and 9 as Hudi 1.0.2 and 1.1.1 do."""

from __future__ import annotations

from collections.abc import Sequence

from lakedex.codec.properties import table_checksum
from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.timeline.table_config import (
    CHECKSUM,
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_STRATEGY,
    NAME,
    PAYLOAD_PACKAGE,
)

__all__ = ["metadata_table_properties", "new_table_properties"]

_MERGING = {
    "EVENT_TIME_ORDERING": (EVENT_TIME_STRATEGY, PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload"),
    "COMMIT_TIME_ORDERING": (COMMIT_TIME_STRATEGY, PAYLOAD_PACKAGE + "OverwriteWithLatestAvroPayload"),
}


def key_generator_type(record_key_fields: Sequence[str], partition_fields: Sequence[str]) -> str:
    """Name the key generator that Hudi infers from the fields (KeyGenUtils.inferKeyGeneratorType)."""
    if not partition_fields:
        return "NON_PARTITION"
    return "COMPLEX" if len(record_key_fields) > 1 or len(partition_fields) > 1 else "SIMPLE"


def _check_fields(kind: str, fields: Sequence[str]) -> None:
    for name in fields:
        if not name or name != name.strip() or any(letter in name for letter in ",:"):
            raise InvalidInputError(
                f"'{name}' cannot be a {kind} field: Hudi keeps these names in a list with commas and colons",
                column=name,
            )
    if len(set(fields)) != len(fields):
        raise InvalidInputError(f"a {kind} field is named twice: {', '.join(fields)}")


_ALL_VERSIONS = {
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.partition.metafile.use.base.format": "false",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.table.metadata.partitions.inflight": "",
    "hoodie.table.index.defs.path": ".hoodie/.index_defs/index.json",
    "hoodie.table.type": "COPY_ON_WRITE",
}
_VERSION_6 = {
    **_ALL_VERSIONS,
    "hoodie.table.version": "6",
    "hoodie.timeline.layout.version": "1",
    "hoodie.archivelog.folder": "archived",
}
_LAYOUT_2 = {
    **_ALL_VERSIONS,
    "hoodie.table.multiple.base.file.formats.enable": "false",
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.timeline.history.path": "history",
    "hoodie.archivelog.folder": "history",
}


_KEY_GENERATOR_CLASSES = {
    "NON_PARTITION": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "COMPLEX": "org.apache.hudi.keygen.ComplexKeyGenerator",
    "SIMPLE": "org.apache.hudi.keygen.SimpleKeyGenerator",
}


def _by_version(version: int, mode: str, key_generator: str) -> dict[str, str]:
    """What is called differently from version to version.

    Raises:
        UnsupportedFeatureError: A version that lakedex makes no tables of.
    """
    strategy, payload = _MERGING[mode]
    if version == 6:
        # Its readers know no merge mode: the payload class alone says which of two rows wins.
        return {
            **_VERSION_6,
            "hoodie.table.keygenerator.class": _KEY_GENERATOR_CLASSES[key_generator],
            "hoodie.compaction.payload.class": payload,
        }
    if version not in (8, 9):
        raise UnsupportedFeatureError(
            f"lakedex makes no table of version {version}", feature=f"table version {version}"
        )
    common = {
        **_LAYOUT_2,
        "hoodie.table.version": str(version),
        "hoodie.table.initial.version": str(version),
        "hoodie.table.keygenerator.type": key_generator,
        "hoodie.record.merge.mode": mode,
    }
    if version == 9:
        # The merge mode says all (HoodieTableConfig.inferMergingConfigsForV9TableCreation).
        return {**common, "hoodie.table.format": "native"}
    return {**common, "hoodie.record.merge.strategy.id": strategy, "hoodie.compaction.payload.class": payload}


def _checked_mode(
    name: str,
    record_key_fields: Sequence[str],
    partition_fields: Sequence[str],
    ordering_fields: Sequence[str],
    merge_mode: str | None,
) -> str:
    """The merge mode of a table whose fields can be used."""
    if not name.strip():
        raise InvalidInputError("a table needs a name")
    if not record_key_fields:
        raise InvalidInputError("a table needs at least one record key field")
    for kind, fields in (("record key", record_key_fields), ("partition", partition_fields)):
        _check_fields(kind, fields)
    _check_fields("ordering", ordering_fields)
    mode = merge_mode or ("EVENT_TIME_ORDERING" if ordering_fields else "COMMIT_TIME_ORDERING")
    if mode not in _MERGING:
        raise OptionError(f"merge mode '{mode}' is not one of {', '.join(_MERGING)}", option="merge_mode")
    if mode == "EVENT_TIME_ORDERING" and not ordering_fields:
        raise OptionError("merge mode EVENT_TIME_ORDERING needs an ordering field", option="merge_mode")
    return mode


def new_table_properties(
    name: str,
    record_key_fields: Sequence[str],
    partition_fields: Sequence[str] = (),
    ordering_fields: Sequence[str] = (),
    *,
    version: int = 8,
    hive_style: bool = False,
    url_encode: bool = False,
    merge_mode: str | None = None,
    metadata_partitions: Sequence[str] = (),
    create_schema: str | None = None,
    database: str = "",
    timezone: str = "UTC",
) -> dict[str, str]:
    """The properties of a new copy-on-write table, the checksum last.

    Args:
        name: The table's name.
        record_key_fields: At least one column.
        partition_fields: Columns of the partition path; none for a table without partitions.
        ordering_fields: Columns that decide which of two rows of one key wins.
        version: The table version, 6, 8 or 9.
        hive_style: Partition folders are ``field=value``.
        url_encode: Partition values are escaped.
        merge_mode: ``EVENT_TIME_ORDERING`` (the default with ordering fields) or ``COMMIT_TIME_ORDERING``.
        metadata_partitions: Metadata partitions that exist and are complete.
        create_schema: Avro schema of a table without commits, JSON text.
        database: The database's name.
        timezone: Zone of the instants, ``UTC`` or ``LOCAL``.

    Raises:
        InvalidInputError: A name that Hudi cannot keep, or no record key.
        OptionError: An unknown merge mode, or event time without ordering fields.
        UnsupportedFeatureError: Another version.
    """
    mode = _checked_mode(name, record_key_fields, partition_fields, ordering_fields, merge_mode)
    properties = {
        NAME: name,
        **_by_version(version, mode, key_generator_type(record_key_fields, partition_fields)),
        "hoodie.table.timeline.timezone": timezone,
        "hoodie.table.recordkey.fields": ",".join(record_key_fields),
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(url_encode).lower(),
        "hoodie.table.metadata.partitions": ",".join(sorted(metadata_partitions)),
    }
    optional = {
        "hoodie.database.name": database,
        "hoodie.table.partition.fields": ",".join(partition_fields),
        "hoodie.table.ordering.fields": ",".join(ordering_fields),
        # Hudi before 1.1 knows this key only, and takes it for one column's name.
        "hoodie.table.precombine.field": ordering_fields[0] if len(ordering_fields) == 1 and version < 9 else "",
        "hoodie.table.create.schema": create_schema,
    }
    properties.update((key, value) for key, value in optional.items() if value)
    properties[CHECKSUM] = str(table_checksum(database, name))
    return properties


def metadata_table_properties(table_name: str, version: int = 8, *, timezone: str = "UTC") -> dict[str, str]:
    """The properties of the metadata table of the table ``table_name``, the checksum last.

    Raises:
        UnsupportedFeatureError: A table version other than 6, 8 and 9.
    """
    name = f"{table_name}_metadata"
    every_version = {
        NAME: name,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(version),
        "hoodie.table.timeline.timezone": timezone,
        "hoodie.table.recordkey.fields": "key",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
    }
    if version == 6:
        own = {
            "hoodie.timeline.layout.version": "1",
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.keygenerator.class": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
            "hoodie.compaction.record.merger.strategy": EVENT_TIME_STRATEGY,
        }
    elif version in (8, 9):
        own = {
            "hoodie.table.initial.version": str(version),
            "hoodie.timeline.layout.version": "2",
            "hoodie.timeline.path": "timeline",
            "hoodie.timeline.history.path": "history",
            "hoodie.archivelog.folder": "history",
            "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
            "hoodie.record.merge.mode": "CUSTOM",
            "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        }
    else:
        raise UnsupportedFeatureError(
            f"lakedex makes no metadata table of version {version}", feature=f"table version {version}"
        )
    return {**every_version, **own, CHECKSUM: str(table_checksum("", name))}
