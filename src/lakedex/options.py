"""Parse ``hoodie.*`` options of a write into frozen :class:`WriteOptions`, once per call.

supported
    lakedex does what the option says (:data:`DONE`).
harmless
    The option controls a detail of Java that does not change the meaning of the table; it is listed in
    ``WriteResult.notes`` (:data:`HARMLESS`).
refused
    The option would change the meaning of the table, and lakedex does not support it (:data:`REFUSED`).
unknown
    Refused too, with the nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakedex.errors import OptionError

__all__ = [
    "ArchiveOptions",
    "BloomOptions",
    "CleanOptions",
    "ClusteringOptions",
    "CompactionOptions",
    "FileOptions",
    "HeartbeatOptions",
    "IndexOptions",
    "LockOptions",
    "MetadataOptions",
    "RowOptions",
    "TableOptions",
    "TaggingOptions",
    "TaskOptions",
    "WriteOptions",
    "parse_options",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Sizes and compression of base files, and of log files and their data blocks; sizes in bytes."""

    max_file_size: int = 125_829_120
    small_file_limit: int = 104_857_600
    record_size_estimate: int = 1024
    compression: str = "zstd"
    row_group_bytes: int = 32 * 1024 * 1024
    log_block_format: str = "avro"
    log_block_bytes: int = 256 * 1024 * 1024
    log_file_bytes: int = 1024 * 1024 * 1024
    partial_updates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomOptions:
    """Type and size of bloom filters."""

    num_entries: int | None = None
    fpp: float = 1e-9
    filter_type: str = "DYNAMIC_V0"
    max_entries: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """Indexes of a new metadata table, and the columns of ``column_stats``."""

    column_stats: bool = True
    column_stats_columns: tuple[str, ...] | None = None
    column_stats_limit: int = 32
    column_stats_groups: int = 2
    bloom_filters: bool = True
    bloom_filters_groups: int = 4
    partition_stats_groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggingOptions:
    """Lookup of the files of keys."""

    use_metadata: bool = True
    prune_by_ranges: bool = True
    update_partition_path: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Incoming rows: duplicates, missing columns and order."""

    duplicates: str = "none"
    combine_before_insert: bool = False
    null_for_missing: bool = False
    sort_mode: str = "GLOBAL_SORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Number of tasks per operation; None leaves it to lakedex."""

    upsert: int | None = None
    insert: int | None = None
    bulk_insert: int | None = None
    delete: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Settings that a table stores and all of its writers share; None is the table's."""

    index_type: str | None = None
    """None is the table's: GLOBAL_BLOOM if it was created with that, else BLOOM."""
    hive_style: bool | None = None
    url_encode: bool | None = None
    merge_mode: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOptions:
    """The table lock; times in seconds."""

    provider: str = ""
    """Empty takes the one that suits the store: ``StorageBasedLockProvider`` on object stores."""
    path: str | None = None
    timeout: float = 60.0
    poll: float = 0.1
    retries: int | None = None
    retry_wait: float = 5.0
    validity: float = 300.0
    renewal: float = 30.0
    expire_minutes: float = 0.0

    @property
    def wait(self) -> float:
        """Seconds to wait for the table lock; with a number of retries, the duration of Java's retries."""
        return self.timeout if self.retries is None else self.retries * self.retry_wait


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatOptions:
    """Heartbeats of writers, and the policy for failed writes."""

    interval: float = 60.0
    """Seconds."""
    misses: int = 2
    failed_writes: str | None = None

    @property
    def interval_ms(self) -> int:
        """Milliseconds between two heartbeats."""
        return int(self.interval * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """Cleaning: when, and which versions of files stay."""

    after_write: bool = True
    policy: str | None = None
    commits: int | None = None
    hours: int | None = None
    versions: int | None = None
    every: int = 1

    @property
    def commits_retained(self) -> int:
        """Number of commits whose files a clean by commits retains."""
        return 10 if self.commits is None else self.commits


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Archival of the timeline."""

    enabled: bool = True
    beyond_savepoint: bool = False
    min_commits: int = 20
    max_commits: int = 30
    merge_files: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringOptions:
    """Clustering: which files, in which order, and when after a write. Sizes in bytes."""

    inline: bool = False
    schedule_inline: bool = False
    """Only plan after a write; another process runs the plan."""
    commits: int = 4
    """Commits after which an inline clustering is due."""
    small_file_limit: int = 300 * 1024 * 1024
    target_file_size: int | None = None
    """None is ``hoodie.parquet.max.file.size``."""
    max_groups: int = 30
    max_group_bytes: int = 2 * 1024 * 1024 * 1024
    sort_columns: tuple[str, ...] | None = None
    layout: str = "linear"

    @property
    def after_write(self) -> bool:
        """Whether writes plan clusterings, or run them."""
        return self.inline or self.schedule_inline


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Compaction of merge-on-read tables after a write; the defaults are those of Hudi's Spark writers.

    Attributes:
        inline: run it after the write that makes it due.
        schedule_inline: only plan it then.
        trigger: what makes it due: the number of delta commits, their age, or both.
        delta_commits: since the last compaction.
        delta_seconds: since the last compaction.
        target_io: MiB that one compaction reads and writes.
    """

    inline: bool = True
    schedule_inline: bool = False
    trigger: str = "NUM_COMMITS"
    delta_commits: int = 5
    delta_seconds: int = 3600
    target_io: int = 512_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """The metadata table."""

    enabled: bool = True
    compact_commits: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Parsed options in groups; ``txn`` is the application and batch of a call."""

    files: FileOptions = FileOptions()
    bloom: BloomOptions | None = None
    """None, if the user set no bloom option, keeps existing filters; others are rebuilt to match."""
    indexes: IndexOptions = IndexOptions()
    tagging: TaggingOptions = TaggingOptions()
    rows: RowOptions = RowOptions()
    tasks: TaskOptions = TaskOptions()
    table: TableOptions = TableOptions()
    concurrency_mode: str | None = None
    lock: LockOptions = LockOptions()
    heartbeat: HeartbeatOptions = HeartbeatOptions()
    retries: int = 3
    """Number of retries after a conflict with another writer."""
    clean: CleanOptions = CleanOptions()
    archive: ArchiveOptions = ArchiveOptions()
    clustering: ClusteringOptions = ClusteringOptions()
    compaction: CompactionOptions = CompactionOptions()
    metadata: MetadataOptions = MetadataOptions()
    txn: tuple[str, int] | None = None
    notes: tuple[str, ...] = ()


DEFAULTS = WriteOptions(bloom=BloomOptions())
"""Default of each field; of filters, those of new files."""


def _non_negative_int(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _positive_int(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError
    return value


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _one_of(*choices: str) -> Callable[[str], str]:
    def pick(text: str) -> str:
        for choice in choices:
            if choice.lower() == text.strip().lower():
                return choice
        raise ValueError(f"one of {', '.join(choices)}")

    return pick


def _columns(text: str) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",") if name.strip()) or None


def _milliseconds(text: str) -> float:
    return _non_negative_int(text) / 1000


def _table_version(text: str) -> int:
    return int(_one_of("6", "8", "9")(text))


_LOCK_PACKAGE = "org.apache.hudi.client.transaction.lock."


_LOCKS = ("FileSystemBasedLockProvider", "StorageBasedLockProvider", "InProcessLockProvider")


def _lock_provider(text: str) -> str:
    name = text.strip().removeprefix(_LOCK_PACKAGE)
    if name not in _LOCKS:
        named = ", ".join(_LOCK_PACKAGE + known for known in _LOCKS)
        raise ValueError(f"one of {named}; lakedex speaks with no lock server")
    return name


def _compression(text: str) -> str:
    return _one_of("zstd", "snappy", "gzip", "lz4", "none", "uncompressed")(text).replace("uncompressed", "none")


def _drop_duplicates(text: str) -> str:
    return "drop" if _bool(text) else "none"


def _layout(text: str) -> str:
    return _one_of("linear", "z-order")(text.strip().lower().replace("zorder", "z-order"))


_CLEAN_POLICY = _one_of("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS")


_COMPACTION_TRIGGER = _one_of(
    "NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"
)


DONE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "hoodie.parquet.max.file.size": ("files.max_file_size", _positive_int),
    "hoodie.parquet.small.file.limit": ("files.small_file_limit", _non_negative_int),
    "hoodie.copyonwrite.record.size.estimate": ("files.record_size_estimate", _positive_int),
    "hoodie.parquet.compression.codec": ("files.compression", _compression),
    "hoodie.parquet.block.size": ("files.row_group_bytes", _positive_int),
    "hoodie.logfile.data.block.format": ("files.log_block_format", _one_of("avro", "parquet")),
    "hoodie.logfile.data.block.max.size": ("files.log_block_bytes", _positive_int),
    "hoodie.logfile.max.size": ("files.log_file_bytes", _positive_int),
    "hoodie.spark.sql.merge.into.partial.updates": ("files.partial_updates", _bool),
    "hoodie.index.type": ("table.index_type", _one_of("BLOOM", "GLOBAL_BLOOM")),
    "hoodie.bloom.index.update.partition.path": ("tagging.update_partition_path", _bool),
    "hoodie.index.bloom.num_entries": ("bloom.num_entries", _positive_int),
    "hoodie.index.bloom.fpp": ("bloom.fpp", _fraction),
    "hoodie.bloom.index.filter.type": ("bloom.filter_type", _one_of("DYNAMIC_V0", "SIMPLE")),
    "hoodie.bloom.index.filter.dynamic.max.entries": ("bloom.max_entries", _positive_int),
    "hoodie.bloom.index.use.metadata": ("tagging.use_metadata", _bool),
    "hoodie.bloom.index.prune.by.ranges": ("tagging.prune_by_ranges", _bool),
    "hoodie.datasource.insert.dup.policy": ("rows.duplicates", _one_of("none", "drop", "fail")),
    "hoodie.datasource.write.insert.drop.duplicates": ("rows.duplicates", _drop_duplicates),
    "hoodie.combine.before.insert": ("rows.combine_before_insert", _bool),
    "hoodie.bulkinsert.sort.mode": ("rows.sort_mode", _one_of("GLOBAL_SORT", "NONE")),
    "hoodie.bulkinsert.shuffle.parallelism": ("tasks.bulk_insert", _positive_int),
    "hoodie.insert.shuffle.parallelism": ("tasks.insert", _positive_int),
    "hoodie.upsert.shuffle.parallelism": ("tasks.upsert", _positive_int),
    "hoodie.delete.shuffle.parallelism": ("tasks.delete", _positive_int),
    "hoodie.write.set.null.for.missing.columns": ("rows.null_for_missing", _bool),
    "hoodie.metadata.enable": ("metadata.enabled", _bool),
    "hoodie.metadata.index.column.stats.enable": ("indexes.column_stats", _bool),
    "hoodie.metadata.index.column.stats.column.list": ("indexes.column_stats_columns", _columns),
    "hoodie.metadata.index.column.stats.max.columns.to.index": ("indexes.column_stats_limit", _positive_int),
    "hoodie.metadata.index.column.stats.file.group.count": ("indexes.column_stats_groups", _positive_int),
    "hoodie.metadata.index.bloom.filter.enable": ("indexes.bloom_filters", _bool),
    "hoodie.metadata.index.bloom.filter.file.group.count": ("indexes.bloom_filters_groups", _positive_int),
    "hoodie.metadata.index.partition.stats.file.group.count": ("indexes.partition_stats_groups", _positive_int),
    "hoodie.datasource.write.hive_style_partitioning": ("table.hive_style", _bool),
    "hoodie.datasource.write.partitionpath.urlencode": ("table.url_encode", _bool),
    "hoodie.record.merge.mode": ("table.merge_mode", _one_of("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")),
    "hoodie.table.version": ("table.version", _table_version),
    "hoodie.write.table.version": ("table.version", _table_version),
    "hoodie.write.concurrency.mode": (
        "concurrency_mode",
        _one_of("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"),
    ),
    "hoodie.clean.failed.writes.policy": ("heartbeat.failed_writes", _one_of("EAGER", "LAZY", "NEVER")),
    "hoodie.cleaner.policy.failed.writes": ("heartbeat.failed_writes", _one_of("EAGER", "LAZY", "NEVER")),
    "hoodie.write.lock.provider": ("lock.provider", _lock_provider),
    "hoodie.write.lock.filesystem.path": ("lock.path", str),
    "hoodie.write.lock.wait_time_ms_between_retry": ("lock.poll", _milliseconds),
    "hoodie.write.lock.client.num_retries": ("lock.retries", _non_negative_int),
    "hoodie.write.lock.client.wait_time_ms_between_retry": ("lock.retry_wait", _milliseconds),
    "hoodie.write.lock.storage.validity.timeout.secs": ("lock.validity", _positive_int),
    "hoodie.write.lock.storage.renew.interval.secs": ("lock.renewal", _positive_int),
    "hoodie.write.lock.storage.heartbeat.poll.secs": ("lock.renewal", _positive_int),
    "hoodie.write.lock.wait_time_ms": ("lock.timeout", _milliseconds),
    "hoodie.write.lock.filesystem.expire": ("lock.expire_minutes", float),
    "hoodie.client.heartbeat.interval_in_ms": ("heartbeat.interval", _milliseconds),
    "hoodie.client.heartbeat.tolerable.misses": ("heartbeat.misses", _positive_int),
    "hoodie.write.num.retries.on.conflict.failures": ("retries", _non_negative_int),
    "hoodie.clean.automatic": ("clean.after_write", _bool),
    "hoodie.clean.policy": ("clean.policy", _CLEAN_POLICY),
    "hoodie.cleaner.policy": ("clean.policy", _CLEAN_POLICY),
    "hoodie.clean.commits.retained": ("clean.commits", _positive_int),
    "hoodie.cleaner.commits.retained": ("clean.commits", _positive_int),
    "hoodie.clean.hours.retained": ("clean.hours", _positive_int),
    "hoodie.cleaner.hours.retained": ("clean.hours", _positive_int),
    "hoodie.clean.fileversions.retained": ("clean.versions", _positive_int),
    "hoodie.cleaner.fileversions.retained": ("clean.versions", _positive_int),
    "hoodie.clean.trigger.max.commits": ("clean.every", _positive_int),
    "hoodie.clean.max.commits": ("clean.every", _positive_int),
    "hoodie.clustering.inline": ("clustering.inline", _bool),
    "hoodie.clustering.schedule.inline": ("clustering.schedule_inline", _bool),
    "hoodie.clustering.inline.max.commits": ("clustering.commits", _positive_int),
    "hoodie.clustering.plan.strategy.small.file.limit": ("clustering.small_file_limit", _positive_int),
    "hoodie.clustering.plan.strategy.target.file.max.bytes": ("clustering.target_file_size", _positive_int),
    "hoodie.clustering.plan.strategy.max.num.groups": ("clustering.max_groups", _positive_int),
    "hoodie.clustering.plan.strategy.max.bytes.per.group": ("clustering.max_group_bytes", _positive_int),
    "hoodie.clustering.plan.strategy.sort.columns": ("clustering.sort_columns", _columns),
    "hoodie.layout.optimize.strategy": ("clustering.layout", _layout),
    "hoodie.compact.inline": ("compaction.inline", _bool),
    "hoodie.compact.schedule.inline": ("compaction.schedule_inline", _bool),
    "hoodie.compact.inline.trigger.strategy": ("compaction.trigger", _COMPACTION_TRIGGER),
    "hoodie.compact.inline.max.delta.commits": ("compaction.delta_commits", _positive_int),
    "hoodie.compact.inline.max.delta.seconds": ("compaction.delta_seconds", _positive_int),
    "hoodie.compaction.target.io": ("compaction.target_io", _positive_int),
    "hoodie.metadata.compact.max.delta.commits": ("metadata.compact_commits", _positive_int),
    "hoodie.archive.automatic": ("archive.enabled", _bool),
    "hoodie.archive.beyond.savepoint": ("archive.beyond_savepoint", _bool),
    "hoodie.keep.min.commits": ("archive.min_commits", _positive_int),
    "hoodie.keep.max.commits": ("archive.max_commits", _positive_int),
    "hoodie.timeline.compaction.batch.size": ("archive.merge_files", _positive_int),
}
"""Field of :class:`WriteOptions`, as ``group.field``, and parser by option."""


_NEW_ROWS = frozenset({"upsert", "insert", "bulk_insert", "insert_overwrite", "merge"})


_REWRITES = frozenset({"delete", "update", "erase", "rename_column", "widen_column", "rewrite_files"})


_LOOK_UPS = frozenset({"upsert", "insert", "delete", "update", "merge", "erase"})


_INDEX_BUILDS = frozenset({"create_index", "rebuild_metadata"})


_EVERY_COMMIT = _NEW_ROWS | _REWRITES | {"add_columns", "drop_columns", "delete_partition"}


ACTS_ON: dict[str, frozenset[str]] = {
    **dict.fromkeys(("files.max_file_size", "files.record_size_estimate", "rows.null_for_missing"), _NEW_ROWS),
    **dict.fromkeys(("files.compression", "files.row_group_bytes"), _NEW_ROWS | _REWRITES),
    **dict.fromkeys(
        ("bloom.num_entries", "bloom.fpp", "bloom.filter_type", "bloom.max_entries"),
        _NEW_ROWS | _REWRITES | _INDEX_BUILDS,
    ),
    **dict.fromkeys(("indexes.column_stats_columns", "indexes.column_stats_limit"), _EVERY_COMMIT | _INDEX_BUILDS),
    **dict.fromkeys(("tagging.use_metadata", "tagging.prune_by_ranges"), _LOOK_UPS),
    **dict.fromkeys(
        ("indexes.column_stats_groups", "indexes.bloom_filters_groups", "indexes.partition_stats_groups"), _INDEX_BUILDS
    ),
    **dict.fromkeys(("indexes.column_stats", "indexes.bloom_filters"), frozenset({"rebuild_metadata"})),
    "files.small_file_limit": frozenset({"upsert", "insert", "merge"}),
    **dict.fromkeys(
        ("files.log_block_format", "files.log_block_bytes", "files.log_file_bytes"),
        frozenset({"upsert", "insert", "delete", "update", "merge"}),
    ),
    "files.partial_updates": frozenset({"update", "merge"}),
    "tagging.update_partition_path": frozenset({"upsert"}),
    "rows.duplicates": frozenset({"insert", "bulk_insert", "insert_overwrite"}),
    "rows.combine_before_insert": frozenset({"insert", "bulk_insert", "insert_overwrite"}),
    "rows.sort_mode": frozenset({"bulk_insert"}),
    "tasks.upsert": frozenset({"upsert", "update", "merge"}),
    "tasks.insert": frozenset({"insert", "insert_overwrite"}),
    "tasks.bulk_insert": frozenset({"bulk_insert"}),
    "tasks.delete": frozenset({"delete", "erase"}),
}
"""Methods of a table on which a field of :class:`WriteOptions` has an effect; others note that it has none.

Other fields act on every call: those of locks, retries, heartbeats, cleaning and archival. Fields that a table stores
(:mod:`lakedex.commit.write_preconditions`) must agree with it.
"""


FIXED = {
    "hoodie.populate.meta.fields": "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.metadata.record.index.enable": "false",
    "hoodie.metadata.record.level.index.enable": "false",
    "hoodie.metadata.global.record.level.index.enable": "false",
    "hoodie.metadata.index.secondary.enable": "false",
    "hoodie.metadata.index.expression.enable": "false",
    "hoodie.clustering.async.enabled": "false",
    "hoodie.schema.on.read.enable": "false",
    "hoodie.allow.operation.metadata.field": "false",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.base.file.format": "PARQUET",
    "hoodie.write.lock.conflict.resolution.strategy": (
        "org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy"
    ),
    "hoodie.parquet.bloom.filter.enabled": "true",
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "false",
}
"""Options with only one supported value."""


REFUSED = {
    "hoodie.table.name": "give name= to Table.create",
    "hoodie.table.type": "give table_type= to Table.create",
    "hoodie.datasource.write.table.type": "give table_type= to Table.create",
    "hoodie.datasource.write.table.name": "give name= to Table.create",
    "hoodie.datasource.write.operation": "call the method of that name",
    "hoodie.datasource.write.recordkey.field": "give record_key= to Table.create",
    "hoodie.table.recordkey.fields": "give record_key= to Table.create",
    "hoodie.datasource.write.partitionpath.field": "give partition_by= to Table.create",
    "hoodie.table.partition.fields": "give partition_by= to Table.create",
    "hoodie.datasource.write.precombine.field": "give ordering_by= to Table.create",
    "hoodie.table.precombine.field": "give ordering_by= to Table.create",
    "hoodie.table.ordering.fields": "give ordering_by= to Table.create",
    "hoodie.datasource.write.keygenerator.class": "lakedex picks SIMPLE, COMPLEX or NON_PARTITION from the fields",
    "hoodie.table.keygenerator.type": "lakedex picks SIMPLE, COMPLEX or NON_PARTITION from the fields",
    "hoodie.datasource.write.payload.class": "set hoodie.record.merge.mode instead",
    "hoodie.compaction.payload.class": "set hoodie.record.merge.mode instead",
    "hoodie.write.record.merge.custom.implementation.classes": "custom mergers are Java code",
    "hoodie.metadata.index.drop": "call indexes.drop",
}
"""Unsupported options, with what to do instead."""


HARMLESS = (
    "hoodie.write.auto.upgrade",
    "hoodie.write.markers.type",
    "hoodie.write.concurrency.early.conflict.",
    "hoodie.write.lock.num_retries",
    "hoodie.write.lock.max_wait_time_ms_between_retry",
    "hoodie.write.lock.heartbeat_interval_ms",
    "hoodie.fs.atomic_creation.support",
    "hoodie.embed.timeline.server",
    "hoodie.datasource.write.row.writer.enable",
    "hoodie.datasource.write.reconcile.schema",
    "hoodie.clean.",
    "hoodie.cleaner.",
    "hoodie.archive.",
    "hoodie.commits.archival.batch",
    "hoodie.metadata.clean.",
    "hoodie.metadata.max.",
    "hoodie.combine.before.upsert",
    "hoodie.combine.before.delete",
    "hoodie.bloom.index.parallelism",
    "hoodie.bloom.index.use.caching",
    "hoodie.bloom.index.use.treebased.filter",
    "hoodie.bloom.index.bucketized.checking",
    "hoodie.bloom.index.keys.per.bucket",
    "hoodie.finalize.write.parallelism",
    "hoodie.markers.delete.parallelism",
    "hoodie.rollback.parallelism",
    "hoodie.rollback.using.markers",
    "hoodie.parquet.page.size",
    "hoodie.parquet.compression.ratio",
    "hoodie.parquet.dictionary.enabled",
    "hoodie.memory.",
    "hoodie.filesystem.view.",
    "hoodie.metrics.",
    "hoodie.avro.schema.validate",
    "hoodie.enable.data.skipping",
    "hoodie.datasource.query.type",
)
"""Names, or prefixes that end in a dot, of options without effect."""


def parse_options(
    options: Mapping[str, Any] | None, call: Mapping[str, Any] | None = None, operation: str = ""
) -> WriteOptions:
    """Classify and parse options.

    Args:
        options: Options of a table object.
        call: Options of one call, which override those of the table.
        operation: Name of the call. ``notes`` lists options of the call without effect on it.

    Raises:
        OptionError: An option is unknown (the message suggests a name), unsupported, invalid or contradicts another.
    """
    parsed: dict[str, Any] = {}
    notes = []
    given = {**(options or {}), **(call or {})}
    if call:
        targets = {DONE[name][0] for name in call if name in DONE}
        # Equivalent to what the call sets.
        given = {name: raw for name, raw in given.items() if name in call or DONE.get(name, ("",))[0] not in targets}
    for name, raw in given.items():
        value = str(raw).lower() if isinstance(raw, bool) else str(raw)
        if name in DONE:
            target, parse = DONE[name]
            try:
                found = parse(value)
            except (ValueError, KeyError) as error:
                why = f": {error}" if isinstance(error, ValueError) and "one of" in str(error) else ""
                raise OptionError(f"option {name}={value!r} is not a valid value{why}", option=name) from None
            if parsed.setdefault(target, found) != found:
                others = [other for other in given if other != name and DONE.get(other, ("",))[0] == target]
                raise OptionError(f"options {others[0]} and {name} contradict each other; omit one", option=name)
            if name in (call or {}) and operation not in ACTS_ON.get(target, {operation}):
                notes.append(f"option {name}={value} has no effect in {operation}")
        elif name in FIXED:
            if value.lower() != FIXED[name].lower():
                raise OptionError(
                    f"option {name}={value} is not supported: lakedex writes tables with {name}={FIXED[name]}",
                    option=name,
                )
        elif name in REFUSED:
            raise OptionError(f"option {name} is not supported: {REFUSED[name]}", option=name)
        elif _is_harmless(name):
            # Its value may be a secret of another reader of the same options.
            notes.append(f"option {name} has no effect in lakedex")
        else:
            raise OptionError(f"unknown option {name!r}{_nearest(name)}", option=name)
    written = _grouped(parsed, notes)
    _check_archival(written.archive, written.clean, given)
    _check_concurrency(written)
    _check_compaction(written.compaction, given)
    if written.lock.provider == "InProcessLockProvider":
        note = "InProcessLockProvider does not exclude other processes, so lakedex uses the table's own lock"
        return replace(written, notes=(*written.notes, note))
    return written


def _grouped(parsed: Mapping[str, Any], notes: Sequence[str]) -> WriteOptions:
    """Parsed options from values by ``group.field``."""
    groups: dict[str, dict[str, Any]] = {"": {}}
    for target, value in parsed.items():
        group, _, name = target.rpartition(".")
        groups.setdefault(group, {})[name] = value
    values = groups.pop("")
    made = {group: replace(getattr(DEFAULTS, group), **own) for group, own in groups.items()}
    return WriteOptions(**made, **values, notes=tuple(notes))


def _check_archival(archive: ArchiveOptions, clean: CleanOptions, given: Collection[str]) -> None:
    """``HoodieWriteConfig.validate``; if only the minimum or the retained commits are given, archival adapts."""
    if archive.max_commits <= archive.min_commits:
        raise OptionError(
            f"hoodie.keep.max.commits={archive.max_commits} must be greater than "
            f"hoodie.keep.min.commits={archive.min_commits}",
            option="hoodie.keep.max.commits" if "hoodie.keep.max.commits" in given else "hoodie.keep.min.commits",
        )
    both = "hoodie.keep.min.commits" in given and clean.commits is not None
    if both and archive.min_commits <= clean.commits_retained:
        raise OptionError(
            f"hoodie.keep.min.commits={archive.min_commits} must be greater than hoodie.clean.commits.retained="
            f"{clean.commits_retained}: commits would be archived before their old files are cleaned",
            option="hoodie.keep.min.commits",
        )


def _check_compaction(compaction: CompactionOptions, given: Collection[str]) -> None:
    """Refuse both kinds at once, as ``HoodieWriteConfig.validate``."""
    if compaction.schedule_inline and compaction.inline and "hoodie.compact.inline" in given:
        raise OptionError(
            "hoodie.compact.inline=true runs compactions and hoodie.compact.schedule.inline=true only plans them; "
            "omit one",
            option="hoodie.compact.schedule.inline",
        )


def _check_concurrency(options: WriteOptions) -> None:
    """Refuse combinations that Java refuses as well (``HoodieWriteConfig.validate``, ``StorageBasedLockConfig``)."""
    if options.concurrency_mode == "OPTIMISTIC_CONCURRENCY_CONTROL" and options.heartbeat.failed_writes == "EAGER":
        raise OptionError(
            "several writers (hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL) need "
            "hoodie.clean.failed.writes.policy=LAZY: EAGER considers every pending write failed",
            option="hoodie.clean.failed.writes.policy",
        )
    if options.lock.validity < max(10, 10 * options.lock.renewal):
        raise OptionError(
            f"hoodie.write.lock.storage.validity.timeout.secs={options.lock.validity:g} must be ten times "
            f"hoodie.write.lock.storage.renew.interval.secs={options.lock.renewal:g} or more",
            option="hoodie.write.lock.storage.validity.timeout.secs",
        )


def _is_harmless(name: str) -> bool:
    return any(name == known or (known.endswith(".") and name.startswith(known)) for known in HARMLESS)


def _nearest(name: str) -> str:
    known = [*DONE, *FIXED, *REFUSED, *(option for option in HARMLESS if not option.endswith("."))]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
