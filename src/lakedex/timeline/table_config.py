"""``hoodie.properties``: what a table is, and what of it lakedex reads and writes.

In Hudi: HoodieTableConfig, ConfigUtils.fetchConfigs and recoverIfNeeded. While an update runs,
``hoodie.properties.backup`` holds the old content, so a reader that finds no valid file looks there, and tries again.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lakedex.codec.properties import decode_properties, encode_properties, table_checksum
from lakedex.codec.table_paths import check_setting
from lakedex.errors import CommitError, CorruptFileError, FormatError, InvalidInputError, TableNotFoundError
from lakedex.io.storage import Storage

__all__ = [
    "TableConfig",
    "create_table_config",
    "read_table_config",
    "recover_table_config",
    "update_table_config",
]

CHECKSUM: Final = "hoodie.table.checksum"
NAME: Final = "hoodie.table.name"
EVENT_TIME_STRATEGY: Final = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY: Final = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
COMMENT: Final = "lakedex.comment"
"""What the table is, in words. Hudi keeps that in Spark's catalog only, and leaves properties that it does not know."""
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
    """Split a comma list; blanks around and empty entries go."""
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
    """The path of a folder below another one.

    Raises:
        FormatError: It leads elsewhere.
    """
    return check_setting(key, raw.get(key, "").strip() or default)


def _partitions(raw: Mapping[str, str], key: str) -> frozenset[str]:
    """Names of metadata partitions, which are those of their folders."""
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
    # HoodieTableConfig.inferRecordMergeMode: the payload says it, and without one the ordering fields do.
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
    """A table's properties. ``raw`` keeps all of them, also those that lakedex does not know.

    ``partition_fields`` are plain names; ``timezone`` is ``UTC`` or ``LOCAL``; ``key_generator`` is Hudi's type
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
        """Whether partition folders hold the columns' own values; other key generators format them."""
        return self.key_generator in ("SIMPLE", "COMPLEX")

    @property
    def comment(self) -> str | None:
        """What the table is, in words; None if nobody said."""
        return self.raw.get(COMMENT) or None

    @property
    def archive_folder(self) -> str:
        """Where archived instants lie, below the table's folder.

        Raises:
            FormatError: The property leads elsewhere.
        """
        if self.layout_version == 1:
            return f".hoodie/{_folder(self.raw, 'hoodie.archivelog.folder', 'archived')}"
        return f"{self.timeline_path}/{_folder(self.raw, 'hoodie.timeline.history.path', 'history')}"

    @classmethod
    def from_properties(cls, raw: Mapping[str, str]) -> TableConfig:
        """Read the properties, defaults as Hudi has them.

        Raises:
            FormatError: A mandatory property is missing, one is no number, or one leads out of ``.hoodie``.
        """
        name = raw.get(NAME, "").strip()
        if not name:
            raise FormatError(f"hoodie.properties: {NAME} is missing")
        ordering = raw.get("hoodie.table.ordering.fields") or raw.get("hoodie.table.precombine.field")
        layout = raw.get("hoodie.timeline.layout.version", "").strip()
        # Layout 1 has its instants in .hoodie itself, whatever else is set (HoodieTableMetaClient).
        folder = "" if layout == "1" else "/" + _folder(raw, "hoodie.timeline.path", "timeline")
        return cls(
            name=name,
            database=raw.get("hoodie.database.name", "").strip(),
            version=_number(raw, "hoodie.table.version", 0),
            layout_version=_number(raw, "hoodie.timeline.layout.version", 1),
            table_type=raw.get("hoodie.table.type", "").strip() or "COPY_ON_WRITE",
            record_key_fields=split_list(raw.get("hoodie.table.recordkey.fields")),
            # The custom key generator keeps "field:SIMPLE,time:TIMESTAMP" here.
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


def _main(base_path: str) -> str:
    return f"{base_path}/.hoodie/hoodie.properties"


def _backup(base_path: str) -> str:
    return f"{base_path}/.hoodie/hoodie.properties.backup"


def _with_checksum(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with their checksum as the last entry, which shows a file that was cut short."""
    rest = {key: value for key, value in properties.items() if key != CHECKSUM}
    return {**rest, CHECKSUM: str(table_checksum(rest.get("hoodie.database.name", ""), rest[NAME]))}


def _decode(data: bytes, path: str) -> tuple[dict[str, str], bool]:
    """The properties, and whether a right checksum vouches for them.

    Raises:
        CorruptFileError: No table's properties, or a wrong checksum.
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


def _read_properties(storage: Storage, base_path: str) -> tuple[dict[str, str] | None, CorruptFileError | None]:
    """The valid properties of the main file, else of the backup; and what was wrong with the first bad file."""
    unvouched: dict[str, str] | None = None
    bad: CorruptFileError | None = None
    for path in (_main(base_path), _backup(base_path)):
        try:
            properties, vouched = _decode(storage.read(path), path)
        except FileNotFoundError:
            continue
        except CorruptFileError as error:
            bad = bad or error
            continue
        if vouched:
            return properties, bad
        # Hudi accepts a file without checksum, but it may also be one that another writer is just writing.
        unvouched = unvouched or properties
    return unvouched, bad


def read_table_config(storage: Storage, base_path: str, *, retries: int = 5, delay_s: float = 0.1) -> TableConfig:
    """Read a table's properties.

    Raises:
        TableNotFoundError: There is no table at the path.
        CorruptFileError: The file and its backup stayed damaged through all retries.
    """
    for attempt in range(retries):
        properties, bad = _read_properties(storage, base_path)
        if properties is not None:
            return TableConfig.from_properties(properties)
        if bad is None and not storage.exists(f"{base_path}/.hoodie"):
            break
        if attempt + 1 < retries:
            time.sleep(delay_s)
    if bad is not None:
        raise bad
    raise TableNotFoundError(f"no Hudi table at {base_path} (no .hoodie/hoodie.properties)", path=base_path)


def _comment(verb: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"{verb} {now.isoformat(timespec='microseconds').replace('+00:00', 'Z')}"


def create_table_config(storage: Storage, base_path: str, properties: Mapping[str, str]) -> TableConfig:
    """Write the properties of a new table.

    Raises:
        FileExistsError: There is a table.
    """
    complete = _with_checksum(properties)
    storage.create(_main(base_path), encode_properties(complete, _comment("Properties saved on")))
    return TableConfig.from_properties(complete)


def recover_table_config(storage: Storage, base_path: str) -> None:
    """Undo what an interrupted update left; call it under the table lock.

    A missing or invalid file comes back from a valid backup; the backup goes in any case.

    Raises:
        CorruptFileError: Neither file is valid; both stay as they are.
    """
    main, backup = _main(base_path), _backup(base_path)
    try:
        saved = storage.read(backup)
    except FileNotFoundError:
        return
    bad: CorruptFileError | None = None
    try:
        valid = _decode(storage.read(main), main)[1]
    except FileNotFoundError:
        valid = False
    except CorruptFileError as error:
        valid, bad = False, error
    if not valid:
        try:
            _decode(saved, backup)
        except CorruptFileError as error:
            raise bad or error from error
        storage.write(main, saved)
    storage.delete(backup)


def update_table_config(storage: Storage, base_path: str, changes: Mapping[str, str | None]) -> TableConfig:
    """Change properties; call it under the table lock. Properties that are not named stay, unknown ones too.

    Hudi's protocol, so that a Hudi reader or writer in the middle of it recovers: the old content goes to the
    backup, then the new file, then the backup goes.

    Args:
        storage: Where the table lies.
        base_path: The table's folder.
        changes: New values; ``None`` removes a property.

    Raises:
        InvalidInputError: More than a reader takes; nothing has changed then.
        CommitError: What was read back is not what was written.
    """
    recover_table_config(storage, base_path)
    current = read_table_config(storage, base_path)
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
    main, backup = _main(base_path), _backup(base_path)
    content = encode_properties(merged, _comment("Updated at"))
    storage.create(backup, encode_properties(_with_checksum(current.raw), _comment("Updated at")))
    # Java deletes the main file first, since HDFS does not replace; here a reader never misses it.
    storage.write(main, content)
    try:
        stored = _decode(storage.read(main), main)[0]
    except CorruptFileError:
        stored = {}
    if stored != merged:
        storage.delete(main)  # readers and the next writer go to the backup
        raise CommitError(f"{main}: the table's properties were not stored as written; the old ones stay in {backup}")
    storage.delete(backup)
    return updated
