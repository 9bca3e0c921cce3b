"""Settings that all writers of a table share: an option that contradicts them is refused.

Hudi keeps most of them in ``hoodie.properties``. ``hoodie.index.type`` is none of its table properties, but
its Spark data source takes whatever the file holds for options that the user left away (``HoodieSparkSqlWriter``,
``mergeParamsAndGetHoodieConfig``), so a key stays unique over all partitions for Java's writers too.
"""

from __future__ import annotations

from lakedex.errors import OptionError, UnsupportedFeatureError
from lakedex.options import WriteOptions
from lakedex.timeline.table_config import TableConfig
from lakedex.timeline.table_support import require_version

__all__ = ["INDEX_TYPE", "has_global_index", "require_settings"]

INDEX_TYPE = "hoodie.index.type"
_GLOBAL = frozenset({"GLOBAL_BLOOM", "GLOBAL_SIMPLE", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX"})


def has_global_index(config: TableConfig, options: WriteOptions) -> bool:
    """Whether a key is to be one row in the whole table: the table says so, or else the options do."""
    stored = _stored(config)
    return stored in _GLOBAL if stored else options.index_type == "GLOBAL_BLOOM"


def _stored(config: TableConfig) -> str:
    return config.raw.get(INDEX_TYPE, "").strip().upper()


def require_settings(config: TableConfig, options: WriteOptions) -> None:
    """Refuse options that contradict what the table is.

    Raises:
        OptionError: names the option and the table's setting.
        UnsupportedFeatureError: the table names a bucket index.
    """
    require_version(config, options.table_version)
    stored = _stored(config)
    if stored == "BUCKET":
        raise UnsupportedFeatureError(
            f"table {config.name!r} has {INDEX_TYPE}=BUCKET, whose buckets lakedex does not keep; write it with Hudi",
            feature="bucket index",
        )
    if stored and options.index_type is not None and (options.index_type == "GLOBAL_BLOOM") != (stored in _GLOBAL):
        _refuse(config, INDEX_TYPE, stored, options.index_type)
    for name, own, wanted in (
        ("hoodie.datasource.write.hive_style_partitioning", config.hive_style, options.hive_style),
        ("hoodie.datasource.write.partitionpath.urlencode", config.url_encode, options.url_encode),
        ("hoodie.record.merge.mode", config.merge_mode, options.merge_mode),
    ):
        if wanted is not None and wanted != own:
            _refuse(config, name, str(own), str(wanted))


def _refuse(config: TableConfig, name: str, own: str, wanted: str) -> None:
    raise OptionError(
        f"table {config.name!r} has {name}={own}, not {wanted} as the option says. All writers of a table share it: "
        "leave the option away, or copy the rows to a table made with it",
        option=name,
    )
