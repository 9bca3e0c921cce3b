"""Check which tables lakedex reads and writes, and refuse others with a reason before any file changes."""

from __future__ import annotations

from typing import Final

from lakedex.errors import OptionError, UnsupportedFeatureError
from lakedex.timeline.table_config import COMMIT_TIME_STRATEGY, EVENT_TIME_STRATEGY, PAYLOAD_PACKAGE, TableConfig

__all__ = ["require_readable", "require_version", "require_writable"]


_VERSION_ADVICE: Final = {
    7: "version 7 is a half-way step of Hudi's upgrade; finish it with Hudi 1.0.2 (hudi-cli: upgrade table "
    "--toVersion 8)",
}


_LAYOUTS: Final = {6: 1, 8: 2, 9: 2}
"""Timeline layout of each supported version. Version 9 differs from 8 in its properties for merging and in the encoding
of column stats; version 6 in its timeline and in the names of log files."""


_WRITABLE_VERSIONS: Final = frozenset({6, 8, 9})


_TABLE_TYPES: Final = frozenset({"COPY_ON_WRITE", "MERGE_ON_READ"})


_MAINTAINED: Final = frozenset({"files", "column_stats", "partition_stats", "bloom_filters"})


_INDEX_NAMES: Final = {
    "record_index": "the record index",
    "secondary_index_": "the secondary index",
    "expr_index_": "the expression index",
}


_WRITABLE_KEY_GENERATORS: Final = frozenset({"SIMPLE", "COMPLEX", "NON_PARTITION"})


_WRITABLE_PAYLOADS: Final = frozenset(
    {PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload", PAYLOAD_PACKAGE + "OverwriteWithLatestAvroPayload"}
)


_LEGACY_PAYLOADS: Final = _WRITABLE_PAYLOADS | {PAYLOAD_PACKAGE + "EventTimeAvroPayload"}
"""Payloads before version 9 that a merge mode replaces; the others also change single columns or deletes."""


_MERGE_PROPERTY: Final = "hoodie.record.merge.property."


def _refuse(config: TableConfig, what: str, feature: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"table '{config.name}': {what}", feature=feature)


def _is_true(config: TableConfig, key: str) -> bool:
    return config.raw.get(key, "").strip().lower() == "true"


def _check_version(config: TableConfig, verb: str, versions: frozenset[int]) -> None:
    if config.version not in versions:
        advice = _VERSION_ADVICE.get(config.version)
        known = "older" if config.version < 6 else "newer"
        known_versions = " and ".join(map(str, sorted(versions)))
        tail = f"; {advice}" if advice else f", which is {known} than the supported versions"
        raise _refuse(
            config,
            f"its table version is {config.version or 'not given'}; lakedex {verb} version {known_versions} only{tail}",
            f"table version {config.version}",
        )
    expected = _LAYOUTS[config.version]
    if config.layout_version != expected:
        raise _refuse(
            config,
            f"its timeline layout is {config.layout_version}, not {expected} as in every table of version "
            f"{config.version}",
            f"timeline layout {config.layout_version}",
        )


def require_readable(config: TableConfig) -> None:
    """Check that lakedex can read the table.

    Raises:
        UnsupportedFeatureError: It cannot; the message gives the reason.
    """
    _check_version(config, "reads", frozenset(_LAYOUTS))
    if config.table_type not in _TABLE_TYPES:
        raise _refuse(config, f"it is a {config.table_type} table, an unknown type", config.table_type)
    if config.base_file_format != "PARQUET" or _is_true(config, "hoodie.table.multiple.base.file.formats.enable"):
        raise _refuse(
            config,
            f"its base files are {config.base_file_format} or of several formats; lakedex reads PARQUET",
            f"base file format {config.base_file_format}",
        )
    if _is_true(config, "hoodie.datasource.write.drop.partition.columns"):
        raise _refuse(
            config,
            "its files lack the partition columns (hoodie.datasource.write.drop.partition.columns=true); "
            "read it with Hudi",
            "dropped partition columns",
        )
    if config.raw.get("hoodie.bootstrap.base.path"):
        raise _refuse(
            config, "it is a bootstrap table, whose rows are split over two files; read it with Hudi", "bootstrap"
        )
    table_format = config.raw.get("hoodie.table.format", "").strip() or "native"
    if table_format.lower() != "native":
        raise _refuse(config, f"its table format is '{table_format}', not Hudi's own", f"table format {table_format}")


def require_writable(config: TableConfig) -> None:
    """Check that lakedex can write the table and leave it valid for all other readers and writers.

    Raises:
        UnsupportedFeatureError: It cannot; the message gives the reason and a remedy if there is one.
    """
    _check_version(config, "writes", _WRITABLE_VERSIONS)
    require_readable(config)
    _check_rows(config)
    _check_keys(config)
    _check_merging(config)
    for partition in sorted(config.metadata_partitions | config.metadata_partitions_inflight):
        _check_index(config, partition)


def require_version(config: TableConfig, wanted: int | None) -> None:
    """Check that a table has the version of a write's option (``hoodie.write.table.version``); None accepts any.

    Raises:
        OptionError: It has not, as writes of lakedex never upgrade or downgrade a table.
    """
    if wanted is not None and wanted != config.version:
        raise OptionError(
            f"table '{config.name}' has version {config.version}, not {wanted} as in hoodie.write.table.version; "
            "lakedex never changes the version, so omit the option",
            option="hoodie.write.table.version",
        )


def _check_rows(config: TableConfig) -> None:
    if _is_true(config, "hoodie.table.cdc.enabled"):
        raise _refuse(
            config,
            "change data capture is on (hoodie.table.cdc.enabled=true) and lakedex writes no change files; write it "
            "with Hudi",
            "change data capture",
        )
    if not config.populate_meta_fields:
        raise _refuse(
            config,
            "it has no meta columns (hoodie.populate.meta.fields=false), so keys are not stored; write it with Hudi",
            "no meta fields",
        )
    if _is_true(config, "hoodie.partition.metafile.use.base.format"):
        raise _refuse(
            config,
            "its partition metafiles are Parquet (hoodie.partition.metafile.use.base.format=true); write it with Hudi",
            "Parquet partition metafiles",
        )


def _check_keys(config: TableConfig) -> None:
    if config.key_generator not in _WRITABLE_KEY_GENERATORS:
        raise _refuse(
            config,
            f"its key generator is {config.key_generator}; lakedex makes keys and partition paths as SIMPLE, COMPLEX "
            "and NON_PARTITION do; write it with Hudi",
            f"key generator {config.key_generator}",
        )


def _check_merging(config: TableConfig) -> None:
    if config.merge_mode not in ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"):
        raise _refuse(
            config,
            f"its record merge mode is {config.merge_mode}: rows are merged by custom code; write it with Hudi",
            f"merge mode {config.merge_mode}",
        )
    payload = config.raw.get("hoodie.compaction.payload.class", "").strip()
    if payload and payload not in _WRITABLE_PAYLOADS:
        raise _refuse(
            config,
            f"its payload class {payload} is unknown to lakedex; write it with Hudi",
            f"payload {payload}",
        )
    legacy = config.raw.get("hoodie.table.legacy.payload.class", "").strip()
    partial = config.raw.get("hoodie.table.partial.update.mode", "").strip()
    extra = next((key for key in sorted(config.raw) if key.startswith(_MERGE_PROPERTY)), "")
    if partial.upper() not in ("", "NONE"):
        raise _refuse(
            config,
            f"it merges single columns (hoodie.table.partial.update.mode={partial}) and lakedex merges complete "
            "rows; write it with Hudi",
            f"partial update mode {partial}",
        )
    if extra or (legacy and legacy not in _LEGACY_PAYLOADS):
        what = f"{extra}={config.raw[extra]}" if extra else f"hoodie.table.legacy.payload.class={legacy}"
        raise _refuse(
            config,
            f"its rows are merged by unknown rules ({what}); write it with Hudi",
            f"merge rule {extra or legacy}",
        )
    # The second is the name in version 6.
    for key in ("hoodie.record.merge.strategy.id", "hoodie.compaction.record.merger.strategy"):
        strategy = config.raw.get(key, "").strip()
        if strategy and strategy not in (EVENT_TIME_STRATEGY, COMMIT_TIME_STRATEGY):
            raise _refuse(
                config,
                f"its merge strategy {strategy} is unknown to lakedex; write it with Hudi",
                f"merge strategy {strategy}",
            )


def _check_index(config: TableConfig, partition: str) -> None:
    if partition in _MAINTAINED:
        return
    kind = next((name for prefix, name in _INDEX_NAMES.items() if partition.startswith(prefix)), None)
    if kind is not None:
        what = f"it carries {kind} '{partition}', which lakedex does not maintain and which must not become stale"
    else:
        what = f"it carries the metadata partition '{partition}', which is unknown to lakedex and must not become stale"
    raise _refuse(
        config,
        f"{what}. Drop it with a Hudi write that has the option hoodie.metadata.index.drop={partition} (Hudi builds it "
        "again later), or write the table with Hudi; reading works",
        f"index {partition}",
    )
