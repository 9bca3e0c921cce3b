"""``Table.create``: the folder, the settings and the metadata table of a new table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.column_bounds import default_stats_version
from lakedex.codec.comments import arrow_comments, check_comment, with_comments, with_docs
from lakedex.commit.write_preconditions import INDEX_TYPE
from lakedex.errors import InvalidInputError, TableExistsError, UnsupportedFeatureError
from lakedex.index.column_stats.stats import indexable_columns, unlisted
from lakedex.index.definitions import DEFINITIONS, encode_definitions, with_column_stats
from lakedex.io.locks import table_lock
from lakedex.io.storage import Storage, TableFiles
from lakedex.layout.contained_files import delete_entries, require_own_folders
from lakedex.layout.names import PARTITION_METAFILE
from lakedex.metadata.records import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS
from lakedex.metadata.writer import create_metadata_table
from lakedex.options import WriteOptions, parse_options
from lakedex.snapshot.schema import require_columns
from lakedex.snapshot.snapshot import TableContext
from lakedex.timeline.active import TIMELINE_FOLDER, WRITE_ACTIONS
from lakedex.timeline.free_properties import DEFAULT, check_properties
from lakedex.timeline.table_config import COMMENT, CONFIG_BACKUP, TableConfig, create_table_config, new_table_properties
from lakedex.types import TableType
from lakedex.write.schema_evolution import own_columns, require_key_types, stored_schema

__all__ = ["check_new_table", "create_table", "is_table", "take_back"]


DEFAULT_VERSION = 8
"""The version that every release from 1.0 on, and hudi-rs, reads and writes (``hoodie.write.table.version``)."""


_FOLDERS = frozenset(
    {"metadata", "timeline", "archived", ".index_defs", ".temp", ".schema", ".aux", ".locks", ".heartbeat"}
)
"""Folders of ``.hoodie`` that a create makes before its settings."""


_SETTINGS = frozenset({"hoodie.properties", CONFIG_BACKUP})
"""Either of them in ``.hoodie`` makes a table."""


_TABLE_TYPES = {
    "cow": TableType.COPY_ON_WRITE,
    "copy_on_write": TableType.COPY_ON_WRITE,
    "mor": TableType.MERGE_ON_READ,
    "merge_on_read": TableType.MERGE_ON_READ,
}


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-]")


_NAME = re.compile(r"^[A-Za-z0-9_.\-]+$")


def is_table(handle: TableContext) -> bool:
    """Whether there is a Hudi table at the handle's path."""
    return any(_is_there(handle.files, f".hoodie/{name}") for name in sorted(_SETTINGS))


def _is_there(files: TableFiles, path: str) -> bool:
    """Whether there is a file, by one request."""
    try:
        files.storage.size(files.path(path))
    except FileNotFoundError:
        return False
    return True


def create_table(
    handle: TableContext,
    *,
    name: str | None,
    schema: pa.Schema | None,
    record_key: Sequence[str] | None,
    partition_by: Sequence[str],
    ordering_by: Sequence[str],
    table_type: str,
    exist_ok: bool,
    options: Mapping[str, Any] | None,
    comment: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Make an empty table.

    Everything is checked before the first file is written; the settings come last, so that a crash leaves no table.

    Raises:
        TableExistsError: a table is there already and ``exist_ok`` is False.
        InvalidInputError: a name or column that cannot be used.
        UnsupportedFeatureError: a table type that lakedex does not make.
        OptionError: an option that is unknown or not done.
    """
    parsed = parse_options(options)
    name = name or _folder_name(handle.files)
    stored = check_new_table(handle.files, name, schema, record_key, partition_by, ordering_by, table_type, parsed)
    check_comment(comment or "", f"table {name}")
    free = dict(properties or {})
    _check_free(free, stored, name)
    if is_table(handle):
        if exist_ok:
            return
        raise TableExistsError(
            f"{handle.files} is a Hudi table already; open it with Table.open, or pass exist_ok=True",
            path=handle.files.base_path,
        )
    require_own_folders(handle.files, TIMELINE_FOLDER, f"{TIMELINE_FOLDER}/history")
    with table_lock(handle.files, parsed.lock):
        present = handle.files.storage.entries(handle.files.path(".hoodie"))
        if not _SETTINGS.isdisjoint(present):
            if exist_ok:
                return
            raise TableExistsError(
                f"{handle.files} was created by another writer just now", path=handle.files.base_path
            )
        _clear_unfinished(handle, present)
        if comment:
            free[COMMENT] = comment
        kind = _TABLE_TYPES[table_type.lower()]
        _write_table(handle, name, stored, free, record_key, partition_by, ordering_by, kind, parsed)


def _folder_name(files: TableFiles) -> str:
    return _NOT_IN_NAMES.sub("_", files.base_path.rstrip("/").rsplit("/", 1)[-1])


def check_new_table(
    files: TableFiles,
    name: str | None,
    schema: pa.Schema | None,
    record_key: Sequence[str] | None,
    partition_by: Sequence[str],
    ordering_by: Sequence[str],
    table_type: str,
    parsed: WriteOptions,
) -> pa.Schema:
    """The schema of a new table, as it is stored, if :func:`create_table` would make the table; its errors if not."""
    name = name or _folder_name(files)
    _check(name, record_key, ordering_by, table_type, parsed.table.version or DEFAULT_VERSION)
    return _checked_schema(name, schema, record_key or (), partition_by, ordering_by)


def _write_table(
    handle: TableContext,
    name: str,
    stored: pa.Schema,
    free: Mapping[str, str],
    record_key: Sequence[str] | None,
    partition_by: Sequence[str],
    ordering_by: Sequence[str],
    table_type: TableType,
    parsed: WriteOptions,
) -> None:
    version = parsed.table.version or DEFAULT_VERSION
    groups = _metadata_groups(parsed, bool(partition_by), version)
    avro_schema = with_docs(arrow_to_avro(stored, name), arrow_comments(stored))
    properties = new_table_properties(
        name,
        tuple(record_key or ()),
        tuple(partition_by),
        tuple(ordering_by),
        hive_style=parsed.table.hive_style is not False,
        url_encode=parsed.table.url_encode is not False,
        merge_mode=parsed.table.merge_mode,
        metadata_partitions=tuple(groups),
        create_schema=json.dumps(avro_schema) if stored.names else None,
        version=version,
        table_type=table_type,
    )
    properties.update(free)
    if parsed.table.index_type == "GLOBAL_BLOOM":
        properties[INDEX_TYPE] = parsed.table.index_type
    config = TableConfig.from_properties(properties)
    if COLUMN_STATS.name in groups:
        kind = default_stats_version(version)
        columns = indexable_columns(
            stored, parsed.indexes.column_stats_columns, parsed.indexes.column_stats_limit, kind
        )
        columns = [name for name in columns if name not in unlisted(stored, kind)]
        document = with_column_stats({"indexDefinitions": {}}, columns, version)
        handle.files.storage.write(handle.files.path(DEFINITIONS), encode_definitions(document))
    if groups:
        create_metadata_table(handle.files, config, groups, handle.clock("UTC"))
    for folder in (".hoodie/.temp", ".hoodie/.schema", ".hoodie/.aux", config.archive_folder):
        handle.files.storage.make_dirs(handle.files.path(folder))
    create_table_config(handle.files, properties)


def _check(
    name: str, record_key: Sequence[str] | None, ordering_by: Sequence[str], table_type: str, version: int
) -> None:
    if table_type.lower() not in _TABLE_TYPES:
        raise InvalidInputError(f"table {name}: table_type is 'cow' or 'mor', not {table_type!r}")
    if record_key is not None and not record_key:
        raise InvalidInputError(
            f"table {name}: record_key= names no column; give one or more, or None for a table whose keys are generated"
        )
    if ordering_by and not record_key:
        raise InvalidInputError(
            f"table {name}: the ordering field {', '.join(ordering_by)} decides between rows with one record key, and "
            "the table has none; name a record key, or leave the ordering field out"
        )
    if not _NAME.match(name):
        raise InvalidInputError(f"table name {name!r}: use letters, digits, '_', '-' and '.'")
    if len(ordering_by) > 1 and version < 9:
        raise UnsupportedFeatureError(
            f"table {name}: version {version} has one ordering field, not {', '.join(ordering_by)}; create the table "
            "with hoodie.write.table.version=9",
            feature="several ordering fields",
        )


def _check_free(properties: Mapping[str, str], schema: pa.Schema, table: str) -> None:
    check_properties(properties, table)
    for key, text in properties.items():
        check_comment(f"{key}={text}", f"property {key!r}")
        if key.startswith(DEFAULT):
            require_columns(schema, (key.removeprefix(DEFAULT),), "default", table, where="the schema")


def _checked_schema(
    name: str,
    schema: pa.Schema | None,
    record_key: Sequence[str],
    partition_by: Sequence[str],
    ordering_by: Sequence[str],
) -> pa.Schema:
    if schema is None:
        return pa.schema([])
    stored = stored_schema(own_columns(schema), name)
    require_columns(stored, tuple(record_key), "record key", name, where="the schema")
    require_columns(stored, tuple(partition_by), "partition", name, where="the schema")
    require_columns(stored, tuple(ordering_by), "ordering", name, where="the schema")
    require_key_types(stored, (*record_key, *partition_by), name)
    return with_comments(stored, arrow_comments(schema))


def take_back(handle: TableContext, options: Mapping[str, Any] | None, *, keep_folder: bool) -> bool:
    """Remove a table that :func:`create_table` made just now in an empty folder, and that no write has changed.

    What goes is what the create made, and the marks that a failed write leaves in partition folders. What somebody else
    put there meanwhile stays, and so do the folders that hold it.

    Args:
        handle: the table.
        options: as given to :func:`create_table`.
        keep_folder: the folder was there before.

    Returns:
        False where there is a commit, or a write under way: the table is left as it is.
    """
    files, root = handle.files, handle.files.path(".hoodie")
    with table_lock(files, parse_options(options).lock):
        timeline = handle.snapshot().timeline
        if timeline.completed(WRITE_ACTIONS) or timeline.pending():
            return False
        # Without its settings it is a table to nobody, so that no write begins once the lock is given back.
        files.storage.delete(f"{root}/hoodie.properties")
    files.storage.delete_tree(root)
    _remove_marked(files.storage, files.base_path)
    if not keep_folder:
        files.storage.remove_empty(files.base_path)
    return True


def _remove_marked(storage: Storage, folder: str) -> bool:
    """Remove the partition folders below a folder; whether there were any."""
    found = False
    for name, is_folder in storage.entries(folder).items():
        path = f"{folder}/{name}"
        if is_folder:
            marked = storage.exists(f"{path}/{PARTITION_METAFILE}")
            if marked:
                storage.delete(f"{path}/{PARTITION_METAFILE}")
            if _remove_marked(storage, path) or marked:
                storage.remove_empty(path)
                found = True
    return found


def _clear_unfinished(handle: TableContext, present: Mapping[str, bool]) -> None:
    """A create that died left a metadata folder without settings beside it: no table, nothing in it."""
    files, root = handle.files, handle.files.path(".hoodie")
    strange = [name for name, is_folder in present.items() if not (name in _FOLDERS if is_folder else _is_own(name))]
    if strange:
        raise InvalidInputError(
            f"{root} holds {min(strange)!r} but no hoodie.properties: a damaged table, or none of Hudi; restore its "
            "settings or remove it"
        )
    names = ["timeline", "timeline/history"] if "timeline" in present else []
    names += ["archived"] if "archived" in present else []
    if any(not entry.is_dir for name in names for entry in files.storage.list(f"{root}/{name}")):
        raise InvalidInputError(
            f"{root} holds a timeline but no hoodie.properties: a damaged table; restore its settings or remove it"
        )
    # The lock is held.
    kept = {name for name, is_folder in present.items() if not is_folder or name == ".locks"}
    if len(kept) < len(present):
        delete_entries(files, ".hoodie", keep=kept)


def _is_own(name: str) -> bool:
    """Whether a file of ``.hoodie`` may be there before the settings are: the lock, a checksum, one half written."""
    return name.startswith(("lock", ".lock", ".lakedex-", ".hoodie.properties"))


def _metadata_groups(options: WriteOptions, partitioned: bool, version: int) -> dict[str, int]:
    """Metadata partitions of the new table with their numbers of file groups, in Hudi's order of creation."""
    if not options.metadata.enabled:
        return {}
    groups = {FILES.name: 1}
    if options.indexes.column_stats:
        groups[COLUMN_STATS.name] = options.indexes.column_stats_groups
    if options.indexes.bloom_filters:
        groups[BLOOM_FILTERS.name] = options.indexes.bloom_filters_groups
    if options.indexes.column_stats and partitioned and version >= 8:
        groups[PARTITION_STATS.name] = options.indexes.partition_stats_groups
    return groups
