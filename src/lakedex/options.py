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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakedex.errors import OptionError

__all__ = ["WriteOptions", "parse_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Parsed options. Sizes are in bytes, times in seconds; ``txn`` is the application and batch of a call."""

    max_file_size: int = 125_829_120
    small_file_limit: int = 104_857_600
    record_size_estimate: int = 1024
    compression: str = "zstd"
    row_group_bytes: int = 32 * 1024 * 1024
    bloom_entries: int | None = None
    bloom_fpp: float = 1e-9
    bloom_type: str = "DYNAMIC_V0"
    bloom_max_entries: int = 100_000
    bloom_asked: bool = False
    """True if the user set any bloom option; existing filters are then rebuilt to match."""
    index_type: str | None = None
    """None is the table's: GLOBAL_BLOOM if it was created with that, else BLOOM."""
    update_partition_path: bool = True
    use_metadata_blooms: bool = True
    prune_by_ranges: bool = True
    duplicates: str = "none"
    combine_before_insert: bool = False
    sort_mode: str = "GLOBAL_SORT"
    upsert_tasks: int | None = None
    insert_tasks: int | None = None
    bulk_insert_tasks: int | None = None
    delete_tasks: int | None = None
    null_for_missing: bool = False
    metadata: bool = True
    column_stats: bool = True
    column_stats_columns: tuple[str, ...] | None = None
    column_stats_limit: int = 32
    column_stats_groups: int = 2
    bloom_filters: bool = True
    bloom_filters_groups: int = 4
    partition_stats_groups: int = 1
    hive_style: bool | None = None
    url_encode: bool | None = None
    merge_mode: str | None = None
    table_version: int | None = None
    concurrency_mode: str | None = None
    failed_writes: str | None = None
    lock_provider: str = "FileSystemBasedLockProvider"
    lock_path: str | None = None
    lock_timeout: float = 60.0
    lock_poll: float = 0.1
    lock_retries: int | None = None
    lock_retry_wait: float = 5.0
    lock_validity: float = 300.0
    lock_renewal: float = 30.0
    lock_expire_minutes: float = 0.0
    heartbeat_interval: float = 60.0
    heartbeat_misses: int = 2
    conflict_retries: int = 3
    clean_after_write: bool = True
    clean_policy: str | None = None
    clean_commits: int | None = None
    clean_hours: int | None = None
    clean_versions: int | None = None
    clean_every: int = 1
    metadata_compact_commits: int = 10
    archive: bool = True
    archive_beyond_savepoint: bool = False
    keep_min_commits: int = 20
    keep_max_commits: int = 30
    history_merge_files: int = 10
    txn: tuple[str, int] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def clean_commits_retained(self) -> int:
        """Number of commits whose files a clean by commits retains."""
        return 10 if self.clean_commits is None else self.clean_commits

    @property
    def lock_wait(self) -> float:
        """Seconds to wait for the table lock; with a number of retries, the duration of Java's retries."""
        return self.lock_timeout if self.lock_retries is None else self.lock_retries * self.lock_retry_wait


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


_CLEAN_POLICY = _one_of("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS")


DONE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "hoodie.parquet.max.file.size": ("max_file_size", _positive_int),
    "hoodie.parquet.small.file.limit": ("small_file_limit", _non_negative_int),
    "hoodie.copyonwrite.record.size.estimate": ("record_size_estimate", _positive_int),
    "hoodie.parquet.compression.codec": ("compression", _compression),
    "hoodie.parquet.block.size": ("row_group_bytes", _positive_int),
    "hoodie.index.type": ("index_type", _one_of("BLOOM", "GLOBAL_BLOOM")),
    "hoodie.bloom.index.update.partition.path": ("update_partition_path", _bool),
    "hoodie.index.bloom.num_entries": ("bloom_entries", _positive_int),
    "hoodie.index.bloom.fpp": ("bloom_fpp", _fraction),
    "hoodie.bloom.index.filter.type": ("bloom_type", _one_of("DYNAMIC_V0", "SIMPLE")),
    "hoodie.bloom.index.filter.dynamic.max.entries": ("bloom_max_entries", _positive_int),
    "hoodie.bloom.index.use.metadata": ("use_metadata_blooms", _bool),
    "hoodie.bloom.index.prune.by.ranges": ("prune_by_ranges", _bool),
    "hoodie.datasource.insert.dup.policy": ("duplicates", _one_of("none", "drop", "fail")),
    "hoodie.datasource.write.insert.drop.duplicates": ("duplicates", _drop_duplicates),
    "hoodie.combine.before.insert": ("combine_before_insert", _bool),
    "hoodie.bulkinsert.sort.mode": ("sort_mode", _one_of("GLOBAL_SORT", "NONE")),
    "hoodie.bulkinsert.shuffle.parallelism": ("bulk_insert_tasks", _positive_int),
    "hoodie.insert.shuffle.parallelism": ("insert_tasks", _positive_int),
    "hoodie.upsert.shuffle.parallelism": ("upsert_tasks", _positive_int),
    "hoodie.delete.shuffle.parallelism": ("delete_tasks", _positive_int),
    "hoodie.write.set.null.for.missing.columns": ("null_for_missing", _bool),
    "hoodie.metadata.enable": ("metadata", _bool),
    "hoodie.metadata.index.column.stats.enable": ("column_stats", _bool),
    "hoodie.metadata.index.column.stats.column.list": ("column_stats_columns", _columns),
    "hoodie.metadata.index.column.stats.max.columns.to.index": ("column_stats_limit", _positive_int),
    "hoodie.metadata.index.column.stats.file.group.count": ("column_stats_groups", _positive_int),
    "hoodie.metadata.index.bloom.filter.enable": ("bloom_filters", _bool),
    "hoodie.metadata.index.bloom.filter.file.group.count": ("bloom_filters_groups", _positive_int),
    "hoodie.metadata.index.partition.stats.file.group.count": ("partition_stats_groups", _positive_int),
    "hoodie.datasource.write.hive_style_partitioning": ("hive_style", _bool),
    "hoodie.datasource.write.partitionpath.urlencode": ("url_encode", _bool),
    "hoodie.record.merge.mode": ("merge_mode", _one_of("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")),
    "hoodie.table.version": ("table_version", _table_version),
    "hoodie.write.table.version": ("table_version", _table_version),
    "hoodie.write.concurrency.mode": (
        "concurrency_mode",
        _one_of("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"),
    ),
    "hoodie.clean.failed.writes.policy": ("failed_writes", _one_of("EAGER", "LAZY", "NEVER")),
    "hoodie.cleaner.policy.failed.writes": ("failed_writes", _one_of("EAGER", "LAZY", "NEVER")),
    "hoodie.write.lock.provider": ("lock_provider", _lock_provider),
    "hoodie.write.lock.filesystem.path": ("lock_path", str),
    "hoodie.write.lock.wait_time_ms_between_retry": ("lock_poll", _milliseconds),
    "hoodie.write.lock.client.num_retries": ("lock_retries", _non_negative_int),
    "hoodie.write.lock.client.wait_time_ms_between_retry": ("lock_retry_wait", _milliseconds),
    "hoodie.write.lock.storage.validity.timeout.secs": ("lock_validity", _positive_int),
    "hoodie.write.lock.storage.renew.interval.secs": ("lock_renewal", _positive_int),
    "hoodie.write.lock.storage.heartbeat.poll.secs": ("lock_renewal", _positive_int),
    "hoodie.write.lock.wait_time_ms": ("lock_timeout", _milliseconds),
    "hoodie.write.lock.filesystem.expire": ("lock_expire_minutes", float),
    "hoodie.client.heartbeat.interval_in_ms": ("heartbeat_interval", _milliseconds),
    "hoodie.client.heartbeat.tolerable.misses": ("heartbeat_misses", _positive_int),
    "hoodie.write.num.retries.on.conflict.failures": ("conflict_retries", _non_negative_int),
    "hoodie.clean.automatic": ("clean_after_write", _bool),
    "hoodie.clean.policy": ("clean_policy", _CLEAN_POLICY),
    "hoodie.cleaner.policy": ("clean_policy", _CLEAN_POLICY),
    "hoodie.clean.commits.retained": ("clean_commits", _positive_int),
    "hoodie.cleaner.commits.retained": ("clean_commits", _positive_int),
    "hoodie.clean.hours.retained": ("clean_hours", _positive_int),
    "hoodie.cleaner.hours.retained": ("clean_hours", _positive_int),
    "hoodie.clean.fileversions.retained": ("clean_versions", _positive_int),
    "hoodie.cleaner.fileversions.retained": ("clean_versions", _positive_int),
    "hoodie.clean.trigger.max.commits": ("clean_every", _positive_int),
    "hoodie.clean.max.commits": ("clean_every", _positive_int),
    "hoodie.metadata.compact.max.delta.commits": ("metadata_compact_commits", _positive_int),
    "hoodie.archive.automatic": ("archive", _bool),
    "hoodie.archive.beyond.savepoint": ("archive_beyond_savepoint", _bool),
    "hoodie.keep.min.commits": ("keep_min_commits", _positive_int),
    "hoodie.keep.max.commits": ("keep_max_commits", _positive_int),
    "hoodie.timeline.compaction.batch.size": ("history_merge_files", _positive_int),
}
"""Field of :class:`WriteOptions` and parser by option."""


_NEW_ROWS = frozenset({"upsert", "insert", "bulk_insert", "insert_overwrite", "merge"})


_REWRITES = frozenset({"delete", "update", "erase", "rename_column", "widen_column", "rewrite_files"})


_LOOK_UPS = frozenset({"upsert", "insert", "delete", "update", "merge", "erase"})


_INDEX_BUILDS = frozenset({"create_index", "rebuild_metadata"})


_EVERY_COMMIT = _NEW_ROWS | _REWRITES | {"add_columns", "drop_columns", "delete_partition"}


ACTS_ON: dict[str, frozenset[str]] = {
    **dict.fromkeys(("max_file_size", "record_size_estimate", "null_for_missing"), _NEW_ROWS),
    **dict.fromkeys(("compression", "row_group_bytes"), _NEW_ROWS | _REWRITES),
    **dict.fromkeys(
        ("bloom_entries", "bloom_fpp", "bloom_type", "bloom_max_entries"), _NEW_ROWS | _REWRITES | _INDEX_BUILDS
    ),
    **dict.fromkeys(("column_stats_columns", "column_stats_limit"), _EVERY_COMMIT | _INDEX_BUILDS),
    **dict.fromkeys(("use_metadata_blooms", "prune_by_ranges"), _LOOK_UPS),
    **dict.fromkeys(("column_stats_groups", "bloom_filters_groups", "partition_stats_groups"), _INDEX_BUILDS),
    **dict.fromkeys(("column_stats", "bloom_filters"), frozenset({"rebuild_metadata"})),
    "small_file_limit": frozenset({"upsert", "insert", "merge"}),
    "update_partition_path": frozenset({"upsert"}),
    "duplicates": frozenset({"insert", "bulk_insert", "insert_overwrite"}),
    "combine_before_insert": frozenset({"insert", "bulk_insert", "insert_overwrite"}),
    "sort_mode": frozenset({"bulk_insert"}),
    "upsert_tasks": frozenset({"upsert", "update", "merge"}),
    "insert_tasks": frozenset({"insert", "insert_overwrite"}),
    "bulk_insert_tasks": frozenset({"bulk_insert"}),
    "delete_tasks": frozenset({"delete", "erase"}),
}
"""Methods of a table on which a field of :class:`WriteOptions` has an effect; others note that it has none.

Other fields act on every call: those of locks, retries, heartbeats, cleaning and archival. Fields that a table stores
(:mod:`lakedex.commit.write_checks`) must agree with it.
"""


_BLOOM_SIZES = frozenset({"bloom_entries", "bloom_fpp", "bloom_type", "bloom_max_entries"})


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
    "hoodie.clustering.inline": "false",
    "hoodie.clustering.async.enabled": "false",
    "hoodie.compact.inline": "false",
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
    _check_archival(parsed, given)
    asked = not _BLOOM_SIZES.isdisjoint(parsed)
    written = WriteOptions(**parsed, bloom_asked=asked, notes=tuple(notes))
    _check_concurrency(written)
    if written.lock_provider == "InProcessLockProvider":
        note = "InProcessLockProvider does not exclude other processes, so lakedex uses the table's lock file"
        return replace(written, notes=(*written.notes, note))
    return written


def _check_archival(parsed: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """``HoodieWriteConfig.validate``; if only the minimum or the retained commits are given, archival adapts."""
    known = WriteOptions(**parsed)
    if known.keep_max_commits <= known.keep_min_commits:
        raise OptionError(
            f"hoodie.keep.max.commits={known.keep_max_commits} must be greater than "
            f"hoodie.keep.min.commits={known.keep_min_commits}",
            option="hoodie.keep.max.commits" if "hoodie.keep.max.commits" in given else "hoodie.keep.min.commits",
        )
    both = "keep_min_commits" in parsed and "clean_commits" in parsed
    if both and known.keep_min_commits <= known.clean_commits_retained:
        raise OptionError(
            f"hoodie.keep.min.commits={known.keep_min_commits} must be greater than hoodie.clean.commits.retained="
            f"{known.clean_commits_retained}: commits would be archived before their old files are cleaned",
            option="hoodie.keep.min.commits",
        )


def _check_concurrency(options: WriteOptions) -> None:
    """Refuse combinations that Java refuses as well (``HoodieWriteConfig.validate``, ``StorageBasedLockConfig``)."""
    if options.concurrency_mode == "OPTIMISTIC_CONCURRENCY_CONTROL" and options.failed_writes == "EAGER":
        raise OptionError(
            "several writers (hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL) need "
            "hoodie.clean.failed.writes.policy=LAZY: EAGER considers every pending write failed",
            option="hoodie.clean.failed.writes.policy",
        )
    if options.lock_validity < max(10, 10 * options.lock_renewal):
        raise OptionError(
            f"hoodie.write.lock.storage.validity.timeout.secs={options.lock_validity:g} must be ten times "
            f"hoodie.write.lock.storage.renew.interval.secs={options.lock_renewal:g} or more",
            option="hoodie.write.lock.storage.validity.timeout.secs",
        )


def _is_harmless(name: str) -> bool:
    return any(name == known or (known.endswith(".") and name.startswith(known)) for known in HARMLESS)


def _nearest(name: str) -> str:
    known = [*DONE, *FIXED, *REFUSED, *(option for option in HARMLESS if not option.endswith("."))]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
