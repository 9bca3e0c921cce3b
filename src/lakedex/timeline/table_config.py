"""Read, create and change ``hoodie.properties``, the settings of a table.

In Hudi: HoodieTableConfig, ConfigUtils.fetchConfigs and recoverIfNeeded. During an update ``hoodie.properties.backup``
has the old content, so a reader without a valid file reads the backup, and retries.

New tables have the properties that Hudi writes: 0.15 for version 6, 1.0.2 for 8 and 1.1.1 for 9.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from lakedex.codec.properties import decode_properties, encode_properties, table_checksum
from lakedex.codec.table_paths import check_setting
from lakedex.errors import (
    CommitError,
    CorruptFileError,
    FormatError,
    InvalidInputError,
    LakedexError,
    OptionError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from lakedex.io.storage import TableFiles

__all__ = [
    "TableConfig",
    "create_table_config",
    "metadata_table_properties",
    "new_table_properties",
    "read_table_config",
    "recover_table_config",
    "update_table_config",
]


CHECKSUM: Final = "hoodie.table.checksum"


NAME: Final = "hoodie.table.name"


EVENT_TIME_STRATEGY: Final = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"


COMMIT_TIME_STRATEGY: Final = "ce9acb64-bde0-424c-9b91-f6ebba25356d"


COMMENT: Final = "lakedex.comment"
"""Comment of the table. Hudi stores it in Spark's catalog only, and preserves unknown properties."""


PAYLOAD_PACKAGE: Final = "org.apache.hudi.common.model."


_KEY_GENERATOR_TYPES: Final = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
    "GlobalDeleteKeyGenerator": "GLOBAL_DELETE",
    "HoodieTableMetadataKeyGenerator": "HOODIE_TABLE_METADATA",
}


def split_list(text: str | None) -> tuple[str, ...]:
    """Split a comma-separated list, without surrounding blanks and empty entries."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _flag(raw: Mapping[str, str], key: str, default: bool = False) -> bool:
    text = raw.get(key, "").strip().lower()
    return default if not text else text == "true"


def _number(raw: Mapping[str, str], key: str, default: int) -> int:
    text = raw.get(key, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise FormatError(f"hoodie.properties: {key} is '{text}', not a number") from None


def _folder(raw: Mapping[str, str], key: str, default: str) -> str:
    """Folder path below another folder.

    Raises:
        FormatError: The path leaves the other folder.
    """
    return check_setting(key, raw.get(key, "").strip() or default)


def _partitions(raw: Mapping[str, str], key: str) -> frozenset[str]:
    """Names of metadata partitions, equal to those of their folders."""
    return frozenset(check_setting(key, name) for name in split_list(raw.get(key)))


def _timezone(raw: Mapping[str, str]) -> str:
    """HoodieTimelineTimeZone."""
    zone = raw.get("hoodie.table.timeline.timezone", "").strip().upper() or "LOCAL"
    if zone not in ("UTC", "LOCAL"):
        raise FormatError(f"hoodie.properties: hoodie.table.timeline.timezone is {zone!r}, not UTC or LOCAL")
    return zone


def _key_generator(raw: Mapping[str, str]) -> str:
    kind = raw.get("hoodie.table.keygenerator.type", "").strip().upper()
    if kind:
        return kind.removesuffix("_AVRO")
    name = raw.get("hoodie.table.keygenerator.class", "").strip().rpartition(".")[2].replace("AvroKey", "Key")
    if name:
        return _KEY_GENERATOR_TYPES.get(name, "USER_PROVIDED")
    fields = split_list(raw.get("hoodie.table.partition.fields"))
    if not fields:
        return "NON_PARTITION"
    return "COMPLEX" if len(fields) > 1 or len(split_list(raw.get("hoodie.table.recordkey.fields"))) > 1 else "SIMPLE"


def _merge_mode(raw: Mapping[str, str], ordering: tuple[str, ...]) -> str:
    mode = raw.get("hoodie.record.merge.mode", "").strip().upper()
    if mode:
        return mode
    # HoodieTableConfig.inferRecordMergeMode: the payload determines it, and without one the ordering fields do.
    payload = raw.get("hoodie.compaction.payload.class", "").rpartition(".")[2]
    if payload == "OverwriteWithLatestAvroPayload":
        return "COMMIT_TIME_ORDERING"
    if payload in ("DefaultHoodieRecordPayload", "EventTimeAvroPayload"):
        return "EVENT_TIME_ORDERING"
    if payload:
        return "CUSTOM"
    return "EVENT_TIME_ORDERING" if ordering else "COMMIT_TIME_ORDERING"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """Properties of a table. ``raw`` has all of them, including unknown ones.

    ``partition_fields`` are column names; ``timezone`` is ``UTC`` or ``LOCAL``; ``key_generator`` is Hudi's type
    without ``_AVRO``.
    """

    name: str
    database: str
    version: int
    layout_version: int
    table_type: str
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    ordering_fields: tuple[str, ...]
    key_generator: str
    hive_style: bool
    url_encode: bool
    populate_meta_fields: bool
    merge_mode: str
    metadata_partitions: frozenset[str]
    metadata_partitions_inflight: frozenset[str]
    timezone: str
    create_schema: str | None
    base_file_format: str
    timeline_path: str
    raw: Mapping[str, str] = field(repr=False)

    @property
    def folders_are_values(self) -> bool:
        """Whether partition folders are the columns' values; some key generators format them."""
        return self.key_generator in ("SIMPLE", "COMPLEX")

    @property
    def packs_numbers(self) -> bool:
        """Whether each Spark on which Hudi of this version runs reads ``DELTA_BINARY_PACKED``, as from 3.3 on."""
        return self.version >= 8

    @property
    def comment(self) -> str | None:
        """Comment of the table; None if it has none."""
        return self.raw.get(COMMENT) or None

    @property
    def archive_folder(self) -> str:
        """Folder of archived instants, below the table's folder.

        Raises:
            FormatError: The property leaves its folder.
        """
        if self.layout_version == 1:
            return f".hoodie/{_folder(self.raw, 'hoodie.archivelog.folder', 'archived')}"
        return f"{self.timeline_path}/{_folder(self.raw, 'hoodie.timeline.history.path', 'history')}"

    @classmethod
    def from_properties(cls, raw: Mapping[str, str]) -> TableConfig:
        """Interpret the properties, with Hudi's defaults.

        Raises:
            FormatError: A mandatory property is missing, one is not a number, or one leaves ``.hoodie``.
        """
        name = raw.get(NAME, "").strip()
        if not name:
            raise FormatError(f"hoodie.properties: {NAME} is missing")
        ordering = raw.get("hoodie.table.ordering.fields") or raw.get("hoodie.table.precombine.field")
        layout = raw.get("hoodie.timeline.layout.version", "").strip()
        # In layout 1 instants are always in .hoodie itself (HoodieTableMetaClient).
        folder = "" if layout == "1" else "/" + _folder(raw, "hoodie.timeline.path", "timeline")
        return cls(
            name=name,
            database=raw.get("hoodie.database.name", "").strip(),
            version=_number(raw, "hoodie.table.version", 0),
            layout_version=_number(raw, "hoodie.timeline.layout.version", 1),
            table_type=raw.get("hoodie.table.type", "").strip() or "COPY_ON_WRITE",
            record_key_fields=split_list(raw.get("hoodie.table.recordkey.fields")),
            # The custom key generator stores "field:SIMPLE,time:TIMESTAMP" here.
            partition_fields=tuple(
                part.partition(":")[0] for part in split_list(raw.get("hoodie.table.partition.fields"))
            ),
            ordering_fields=split_list(ordering),
            key_generator=_key_generator(raw),
            hive_style=_flag(raw, "hoodie.datasource.write.hive_style_partitioning"),
            url_encode=_flag(raw, "hoodie.datasource.write.partitionpath.urlencode"),
            populate_meta_fields=_flag(raw, "hoodie.populate.meta.fields", default=True),
            merge_mode=_merge_mode(raw, split_list(ordering)),
            metadata_partitions=_partitions(raw, "hoodie.table.metadata.partitions"),
            metadata_partitions_inflight=_partitions(raw, "hoodie.table.metadata.partitions.inflight"),
            timezone=_timezone(raw),
            create_schema=raw.get("hoodie.table.create.schema") or None,
            base_file_format=raw.get("hoodie.table.base.file.format", "").strip().upper() or "PARQUET",
            timeline_path=f".hoodie{folder}",
            raw=dict(raw),
        )


_MAIN = ".hoodie/hoodie.properties"


CONFIG_BACKUP: Final = "hoodie.properties.backup"
"""File of ``.hoodie`` with the old properties, there while they are changed."""


_BACKUP = f".hoodie/{CONFIG_BACKUP}"


def _with_checksum(properties: Mapping[str, str]) -> dict[str, str]:
    """Add the checksum as last entry, which detects a truncated file."""
    rest = {key: value for key, value in properties.items() if key != CHECKSUM}
    return {**rest, CHECKSUM: str(table_checksum(rest.get("hoodie.database.name", ""), rest[NAME]))}


@lru_cache(maxsize=64)
def _decode(data: bytes, path: str) -> tuple[Mapping[str, str], bool]:
    """The properties, and whether they have a valid checksum.

    Raises:
        CorruptFileError: The properties are not a table's, or the checksum is wrong.
    """
    properties = decode_properties(data, path)
    if not properties.get(NAME):
        raise CorruptFileError(path, 0, f"the property {NAME}", f"{len(data)} bytes without it")
    found = properties.get(CHECKSUM)
    if found is None:
        return properties, False
    expected = str(table_checksum(properties.get("hoodie.database.name", ""), properties[NAME]))
    if found.strip() != expected:
        raise CorruptFileError(path, 0, f"checksum {expected}", f"checksum {found}")
    return properties, True


@lru_cache(maxsize=64)
def _config_of(data: bytes, path: str) -> TableConfig:
    return TableConfig.from_properties(_decode(data, path)[0])


def _read_valid(files: TableFiles) -> tuple[tuple[bytes, str] | None, CorruptFileError | None]:
    """Bytes and path of the valid main file, else of the backup; and the error of the first invalid file."""
    unvouched: tuple[bytes, str] | None = None
    bad: CorruptFileError | None = None
    for path in (files.path(_MAIN), files.path(_BACKUP)):
        try:
            data = files.storage.read(path)
            vouched = _decode(data, path)[1]
        except FileNotFoundError:
            continue
        except CorruptFileError as error:
            bad = bad or error
            continue
        if vouched:
            return (data, path), bad
        # Hudi accepts a file without checksum, but it may also be in the middle of a write.
        unvouched = unvouched or (data, path)
    return unvouched, bad


def read_table_config(files: TableFiles, *, retries: int = 5, delay_s: float = 0.1) -> TableConfig:
    """Read a table's properties.

    Raises:
        TableNotFoundError: There is no table at the path.
        CorruptFileError: The file and its backup were damaged in all retries.
    """
    for attempt in range(retries):
        found, bad = _read_valid(files)
        if found is not None:
            return _config_of(*found)
        if bad is None and not files.storage.exists(files.path(".hoodie")):
            break
        if attempt + 1 < retries:
            time.sleep(delay_s)
    if bad is not None:
        raise bad
    text = f"{files} is no Hudi table: it has no .hoodie/hoodie.properties{_other_format(files)}"
    raise TableNotFoundError(text, path=files.base_path)


def _other_format(files: TableFiles) -> str:
    """A hint at the table of another format that is there."""
    with suppress(LakedexError, OSError):
        there = files.storage.entries(files.base_path)
        if "_delta_log" in there:
            return "; it is a Delta table, see docs/from_delta.md"
        if there.get("metadata") and there.get("data"):
            return "; it may be an Iceberg table, see docs/from_iceberg.md"
    return ""


def _comment(verb: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"{verb} {now.isoformat(timespec='microseconds').replace('+00:00', 'Z')}"


def create_table_config(files: TableFiles, properties: Mapping[str, str]) -> TableConfig:
    """Write the properties of a new table.

    Raises:
        FileExistsError: The table exists.
    """
    complete = _with_checksum(properties)
    files.storage.create(files.path(_MAIN), encode_properties(complete, _comment("Properties saved on")))
    return TableConfig.from_properties(complete)


def recover_table_config(files: TableFiles) -> None:
    """Recover from an interrupted update; call it under the table lock.

    A missing or invalid file is restored from a valid backup; the backup is always deleted.

    Raises:
        CorruptFileError: Neither file is valid; both are unchanged.
    """
    main, backup = files.path(_MAIN), files.path(_BACKUP)
    try:
        saved = files.storage.read(backup)
    except FileNotFoundError:
        return
    bad: CorruptFileError | None = None
    try:
        valid = _decode(files.storage.read(main), main)[1]
    except FileNotFoundError:
        valid = False
    except CorruptFileError as error:
        valid, bad = False, error
    if not valid:
        try:
            _decode(saved, backup)
        except CorruptFileError as error:
            raise bad or error from error
        files.storage.write(main, saved)
    files.storage.delete(backup)


def update_table_config(files: TableFiles, changes: Mapping[str, str | None]) -> TableConfig:
    """Change properties; call it under the table lock. Other properties stay, including unknown ones.

    Follows Hudi's protocol, by which a concurrent Hudi reader or writer recovers: write the old content to the
    backup, write the new file, delete the backup.

    Args:
        files: the table's files.
        changes: New values; None removes a property.

    Raises:
        InvalidInputError: The result exceeds the limit of readers; nothing has changed.
        CommitError: The file read back differs from the one written.
    """
    recover_table_config(files)
    current = read_table_config(files)
    merged: dict[str, str] = dict(current.raw)
    for key, value in changes.items():
        if key == CHECKSUM:
            raise InvalidInputError(f"{CHECKSUM} is computed")
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    merged = _with_checksum(merged)
    updated = TableConfig.from_properties(merged)
    main, backup = files.path(_MAIN), files.path(_BACKUP)
    content = encode_properties(merged, _comment("Updated at"))
    files.storage.create(backup, encode_properties(_with_checksum(current.raw), _comment("Updated at")))
    # Java deletes the main file first, since HDFS cannot replace it; here a reader always finds it.
    files.storage.write(main, content)
    try:
        stored = _decode(files.storage.read(main), main)[0]
    except CorruptFileError:
        stored = {}
    if stored != merged:
        files.storage.delete(main)  # readers and the next writer use the backup
        raise CommitError(f"{main}: the table's properties were not stored as written; the old ones stay in {backup}")
    files.storage.delete(backup)
    return updated


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
                f"'{name}' cannot be a {kind} field: Hudi stores these names in a list with commas and colons",
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
    """Properties whose names differ between versions.

    Raises:
        UnsupportedFeatureError: lakedex does not create tables of this version.
    """
    strategy, payload = _MERGING[mode]
    if version == 6:
        # Its readers ignore merge modes: only the payload class decides which of two rows wins.
        return {
            **_VERSION_6,
            "hoodie.table.keygenerator.class": _KEY_GENERATOR_CLASSES[key_generator],
            "hoodie.compaction.payload.class": payload,
        }
    if version not in (8, 9):
        raise UnsupportedFeatureError(
            f"lakedex does not create tables of version {version}", feature=f"table version {version}"
        )
    common = {
        **_LAYOUT_2,
        "hoodie.table.version": str(version),
        "hoodie.table.initial.version": str(version),
        "hoodie.table.keygenerator.type": key_generator,
        "hoodie.record.merge.mode": mode,
    }
    if version == 9:
        # The merge mode suffices (HoodieTableConfig.inferMergingConfigsForV9TableCreation).
        return {**common, "hoodie.table.format": "native"}
    return {**common, "hoodie.record.merge.strategy.id": strategy, "hoodie.compaction.payload.class": payload}


def _checked_mode(
    name: str,
    record_key_fields: Sequence[str],
    partition_fields: Sequence[str],
    ordering_fields: Sequence[str],
    merge_mode: str | None,
) -> str:
    """Check the fields and derive the merge mode of a new table."""
    if not name.strip():
        raise InvalidInputError("a table needs a name")
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
    table_type: str = "COPY_ON_WRITE",
) -> dict[str, str]:
    """Properties of a new table, with the checksum last.

    Args:
        name: Name of the table.
        record_key_fields: Columns of the key; none for a keyless table, whose keys are generated.
        partition_fields: Columns of the partition path; none for a table without partitions.
        ordering_fields: Columns that decide which of two rows with one key wins.
        version: Table version, 6, 8 or 9.
        hive_style: Whether partition folders are ``field=value``.
        url_encode: Whether partition values are escaped.
        merge_mode: ``EVENT_TIME_ORDERING`` (the default with ordering fields) or ``COMMIT_TIME_ORDERING``.
        metadata_partitions: Metadata partitions that exist and are complete.
        create_schema: Avro schema of a table without commits, JSON text.
        database: Name of the database.
        timezone: Zone of the instants, ``UTC`` or ``LOCAL``.
        table_type: ``COPY_ON_WRITE`` or ``MERGE_ON_READ``.

    Raises:
        InvalidInputError: A name is invalid in Hudi.
        OptionError: The merge mode is unknown, or needs ordering fields.
        UnsupportedFeatureError: The version is unsupported.
    """
    mode = _checked_mode(name, record_key_fields, partition_fields, ordering_fields, merge_mode)
    properties = {
        NAME: name,
        "hoodie.table.type": table_type,
        **_by_version(version, mode, key_generator_type(record_key_fields, partition_fields)),
        "hoodie.table.timeline.timezone": timezone,
        **({"hoodie.table.recordkey.fields": ",".join(record_key_fields)} if record_key_fields else {}),
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(url_encode).lower(),
        "hoodie.table.metadata.partitions": ",".join(sorted(metadata_partitions)),
    }
    optional = {
        "hoodie.database.name": database,
        "hoodie.table.partition.fields": ",".join(partition_fields),
        "hoodie.table.ordering.fields": ",".join(ordering_fields),
        # Hudi before 1.1 reads only this key, as the name of one column.
        "hoodie.table.precombine.field": ordering_fields[0] if len(ordering_fields) == 1 and version < 9 else "",
        "hoodie.table.create.schema": create_schema,
    }
    properties.update((key, value) for key, value in optional.items() if value)
    properties[CHECKSUM] = str(table_checksum(database, name))
    return properties


def metadata_table_properties(table_name: str, version: int = 8, *, timezone: str = "UTC") -> dict[str, str]:
    """Properties of the metadata table of ``table_name``, with the checksum last.

    Raises:
        UnsupportedFeatureError: The version is not 6, 8 or 9.
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
            f"lakedex does not create metadata tables of version {version}", feature=f"table version {version}"
        )
    return {**every_version, **own, CHECKSUM: str(table_checksum("", name))}
