"""Refuse writes that a table's settings, column types or foreign bucket index do not allow.

Settings belong to all writers of a table. Hudi keeps most of them in ``hoodie.properties``. ``hoodie.index.type`` is
none of its table properties, but its Spark data source takes whatever the file holds for options that the user left
away (``HoodieSparkSqlWriter``, ``mergeParamsAndGetHoodieConfig``), so a key stays unique over all partitions for Java's
writers too.

Columns of Hudi's own types (VECTOR, BLOB, VARIANT) are read and never written: the schema of a commit of lakedex would
call a vector a list of numbers, and Hudi's files hold bytes.

Hudi's bucket index looks for a key in the one file group that the key's hash names. A group of another name, or a key
in another group, doubles rows in its next write, or stops it. ``hoodie.properties`` does not name such a table; these
signs do:

* SIMPLE: file ids begin with the number of the bucket in eight digits (``BucketIdentifier.newBucketFileIdPrefix``).
* CONSISTENT_HASHING, and numbers of buckets by partition: files below ``.hoodie/.bucket_index``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from lakedex.errors import OptionError, UnsupportedFeatureError
from lakedex.options import TableOptions
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.compatibility import require_version
from lakedex.timeline.table_config import TableConfig

__all__ = [
    "INDEX_TYPE",
    "has_bucket_names",
    "has_global_index",
    "require_no_buckets",
    "require_plain_types",
    "require_settings",
]


INDEX_TYPE = "hoodie.index.type"


_GLOBAL = frozenset({"GLOBAL_BLOOM", "GLOBAL_SIMPLE", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX"})


def has_global_index(config: TableConfig, options: TableOptions) -> bool:
    """Whether a key is to be one row in the whole table: the table says so, or else the options do."""
    stored = _stored(config)
    return stored in _GLOBAL if stored else options.index_type == "GLOBAL_BLOOM"


def _stored(config: TableConfig) -> str:
    return config.raw.get(INDEX_TYPE, "").strip().upper()


def require_settings(config: TableConfig, options: TableOptions) -> None:
    """Refuse options that contradict what the table is.

    Raises:
        OptionError: names the option and the table's setting.
        UnsupportedFeatureError: the table names a bucket index.
    """
    require_version(config, options.version)
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


def require_plain_types(snapshot: Snapshot) -> None:
    """Refuse to write a table with a column of such a type.

    Raises:
        UnsupportedFeatureError: names the table, the column and its type.
    """
    for column, kind in snapshot.hudi_types.items():
        raise UnsupportedFeatureError(
            f"table '{snapshot.config.name}': column {column!r} is a {kind} of Hudi's, which lakedex does not write; "
            "reading works; write the table with Hudi",
            feature=f"{kind} columns",
        )


_NUMBERED = re.compile(r"[0-9]{8}-")


_DIGITS = 8


_BY_CHANCE = (10 / 16) ** _DIGITS
"""How many random uuids begin with eight decimal digits."""


_UNLIKELY = math.log(1e-5)


_BUCKETS = ".hoodie/.bucket_index"


_LOOKED_AT = 64
"""Partitions that a write looks at which needs no listing for itself."""


def require_no_buckets(
    snapshot: Snapshot,
    file_ids: Collection[str],
    partitions: Sequence[str] | None = None,
    *,
    is_consistent: bool | None = None,
) -> None:
    """Refuse to write into a table whose file groups are buckets.

    Args:
        snapshot: the table.
        file_ids: those of its file groups that the write has listed.
        partitions: where it will write; None for anywhere. Some of them are listed if it has listed nothing.
        is_consistent: whether there is a folder of the consistent hashing index; None looks for it.

    Raises:
        UnsupportedFeatureError: names the table and its index.
    """
    found = file_ids or [
        item.file_id for item in snapshot.slices(None if partitions is None else partitions[:_LOOKED_AT])
    ]
    if has_bucket_names(found or _last_written(snapshot)):
        kind = "SIMPLE"
    elif is_consistent or (is_consistent is None and snapshot.files.storage.exists(snapshot.files.path(_BUCKETS))):
        kind = "CONSISTENT_HASHING"
    else:
        return
    raise UnsupportedFeatureError(
        f"table '{snapshot.config.name}': its index is Hudi's bucket index ({kind}): the hash of a key says in which "
        "file group it is, and lakedex does not keep rows so. Reading works; write it with Hudi",
        feature="bucket index",
    )


def has_bucket_names(file_ids: Collection[str]) -> bool:
    """Whether more file ids begin with numbers of buckets than random ones would. One can be enough, if it is small."""
    numbers = [int(file_id[:_DIGITS]) for file_id in file_ids if _NUMBERED.match(file_id)]
    for digits in range(1, _DIGITS + 1):
        found = sum(number < 10**digits for number in numbers)
        expected = len(file_ids) * _BY_CHANCE / 10 ** (_DIGITS - digits)
        if found and found * math.log(expected) - math.lgamma(found + 1) < _UNLIKELY:
            return True
    return False


def _last_written(snapshot: Snapshot) -> list[str]:
    """File ids of the last commit that wrote any: a new partition gets the names that the others have."""
    timeline = snapshot.timeline
    for instant in reversed(timeline.completed(WRITE_ACTIONS)):
        commit = timeline.commit_metadata(instant)
        found = [stat.file_id for stats in commit.write_stats.values() for stat in stats]
        if found:
            return found
    return []
