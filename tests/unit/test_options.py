from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from lakedex import Table
from lakedex.errors import OptionError
from lakedex.options import DEFAULTS, DONE, FIXED, HARMLESS, REFUSED, WriteOptions, parse_options
from table_kit import base_files, make, own, rows


def test_defaults_are_hudis() -> None:
    options = parse_options(None)
    assert options == WriteOptions()
    assert (options.files.max_file_size, options.files.small_file_limit) == (125_829_120, 104_857_600)
    assert (options.table.index_type, options.tagging.update_partition_path) == (None, True)
    assert options.bloom is None
    filters = DEFAULTS.bloom
    assert (filters.filter_type, filters.fpp, filters.max_entries) == ("DYNAMIC_V0", 1e-9, 100_000)


@pytest.mark.parametrize(
    "name, value, field, parsed",
    [
        ("hoodie.parquet.max.file.size", "1000", "files.max_file_size", 1000),
        ("hoodie.parquet.small.file.limit", 0, "files.small_file_limit", 0),
        ("hoodie.parquet.compression.codec", "SNAPPY", "files.compression", "snappy"),
        ("hoodie.parquet.compression.codec", "uncompressed", "files.compression", "none"),
        ("hoodie.index.type", "global_bloom", "table.index_type", "GLOBAL_BLOOM"),
        ("hoodie.bloom.index.update.partition.path", "false", "tagging.update_partition_path", False),
        ("hoodie.index.bloom.fpp", "0.01", "bloom.fpp", 0.01),
        ("hoodie.bloom.index.filter.type", "simple", "bloom.filter_type", "SIMPLE"),
        ("hoodie.bloom.index.use.metadata", False, "tagging.use_metadata", False),
        ("hoodie.bloom.index.prune.by.ranges", "FALSE", "tagging.prune_by_ranges", False),
        ("hoodie.datasource.insert.dup.policy", "DROP", "rows.duplicates", "drop"),
        ("hoodie.metadata.index.column.stats.column.list", "a, b ,", "indexes.column_stats_columns", ("a", "b")),
        ("hoodie.metadata.index.column.stats.column.list", "", "indexes.column_stats_columns", None),
        ("hoodie.record.merge.mode", "commit_time_ordering", "table.merge_mode", "COMMIT_TIME_ORDERING"),
        ("hoodie.write.lock.wait_time_ms", "1500", "lock.timeout", 1.5),
        ("hoodie.write.lock.wait_time_ms_between_retry", "250", "lock.poll", 0.25),
        ("hoodie.write.lock.filesystem.path", "/locks", "lock.path", "/locks"),
        (
            "hoodie.write.lock.provider",
            "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
            "lock.provider",
            "StorageBasedLockProvider",
        ),
        ("hoodie.write.concurrency.mode", "single_writer", "concurrency_mode", "SINGLE_WRITER"),
        ("hoodie.clean.failed.writes.policy", "LAZY", "heartbeat.failed_writes", "LAZY"),
        ("hoodie.write.table.version", "9", "table.version", 9),
        ("hoodie.table.version", 8, "table.version", 8),
        ("hoodie.client.heartbeat.interval_in_ms", 250, "heartbeat.interval", 0.25),
        ("hoodie.bulkinsert.sort.mode", "none", "rows.sort_mode", "NONE"),
    ],
)
def test_done(name: str, value: Any, field: str, parsed: Any) -> None:
    assert attrgetter(field)(parse_options({name: value})) == parsed
    assert parse_options({name: value}).notes == ()


@pytest.mark.parametrize(
    "name, value",
    [
        ("hoodie.parquet.max.file.size", "0"),
        ("hoodie.parquet.max.file.size", "big"),
        ("hoodie.parquet.small.file.limit", "-1"),
        ("hoodie.index.bloom.fpp", "1"),
        ("hoodie.index.bloom.fpp", "0"),
        ("hoodie.bloom.index.use.metadata", "yes"),
        ("hoodie.datasource.insert.dup.policy", "ignore"),
        ("hoodie.parquet.compression.codec", "lzo"),
        ("hoodie.write.lock.wait_time_ms", "soon"),
        ("hoodie.write.concurrency.mode", "NON_BLOCKING_CONCURRENCY_CONTROL"),
        ("hoodie.clean.failed.writes.policy", "MAYBE"),
        ("hoodie.write.table.version", "5"),
        *(
            ("hoodie.write.lock.provider", f"org.apache.hudi.{name}")
            for name in (
                "client.transaction.lock.ZookeeperBasedLockProvider",
                "hive.transaction.lock.HiveMetastoreBasedLockProvider",
                "aws.transaction.lock.DynamoDBBasedLockProvider",
                "client.transaction.lock.NoopLockProvider",
            )
        ),
    ],
)
def test_bad_values_are_named(name: str, value: str) -> None:
    with pytest.raises(OptionError, match="is not a valid value") as caught:
        parse_options({name: value})
    assert caught.value.option == name
    assert value in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_choices_are_listed() -> None:
    with pytest.raises(OptionError, match="one of none, drop, fail"):
        parse_options({"hoodie.datasource.insert.dup.policy": "x"})


@pytest.mark.parametrize("name", sorted(FIXED))
def test_of_some_options_one_value_is_done(name: str) -> None:
    assert parse_options({name: FIXED[name].upper()}) == WriteOptions()
    with pytest.raises(OptionError, match="is not supported") as caught:
        parse_options({name: "other"})
    assert name in str(caught.value)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({name: "x"})
    assert REFUSED[name] in str(caught.value)
    assert caught.value.option == name


@pytest.mark.parametrize(
    "name", [*(n for n in HARMLESS if not n.endswith(".")), "hoodie.clean.async.enabled", "hoodie.metrics.on"]
)
def test_harmless_ones_are_noted(name: str) -> None:
    """By their names: a value may be another tool's password."""
    assert parse_options({name: "secret"}).notes == (f"option {name} has no effect in lakedex",)


@pytest.mark.parametrize(
    "name, near",
    [
        ("hoodie.parquet.max.filesize", "hoodie.parquet.max.file.size"),
        ("hoodie.metadata.index.columnstats.enable", "hoodie.metadata.index.column.stats.enable"),
        ("hoodie.datasource.write.operations", "hoodie.datasource.write.operation"),
    ],
)
def test_unknown_with_the_nearest_name(name: str, near: str) -> None:
    with pytest.raises(OptionError, match="unknown option") as caught:
        parse_options({name: "x"})
    assert f"did you mean '{near}'" in str(caught.value)


def test_unknown_without_a_near_name() -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({"qqqq": "x"})
    assert "did you mean" not in str(caught.value)


def test_no_option_is_in_two_classes() -> None:
    classes = [set(DONE), set(FIXED), set(REFUSED), set(HARMLESS)]
    assert sum(map(len, classes)) == len(set().union(*classes))


def test_options_of_the_table_and_of_the_call(tmp_path: Path) -> None:
    table = make(tmp_path, options={"hoodie.parquet.small.file.limit": "0"})
    assert (
        table.insert(rows(("1", "a", 1, 1)), options={"hoodie.metrics.on": "true"})
        .notes[0]
        .startswith("option hoodie.metrics")
    )
    table.insert(rows(("2", "a", 1, 1)))
    assert len(base_files(tmp_path)) == 2
    table.insert(rows(("3", "a", 1, 1)), options={"hoodie.parquet.small.file.limit": "100000"})
    assert len(table.inspect.files()) == 2
    with pytest.raises(OptionError):
        Table.open(tmp_path, options={"nope": 1})
    with pytest.raises(OptionError):
        table.upsert(rows(("4", "a", 1, 1)), options={"nope": 1})
    assert len(own(table)) == 3


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "lz4", "none"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), options={"hoodie.parquet.compression.codec": codec})
    assert own(table) == [("1", "a", 1, 1)]


@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.bloom.index.use.metadata": "false"},
        {"hoodie.bloom.index.prune.by.ranges": "false"},
        {"hoodie.bloom.index.filter.type": "SIMPLE", "hoodie.index.bloom.num_entries": "10"},
        {"hoodie.index.bloom.fpp": "0.5"},
        {"hoodie.metadata.index.bloom.filter.enable": "false"},
        {"hoodie.metadata.index.column.stats.enable": "false"},
        {"hoodie.metadata.index.column.stats.enable": "false", "hoodie.metadata.index.bloom.filter.enable": "false"},
    ],
    ids=str,
)
def test_keys_are_found_by_every_way(tmp_path: Path, options: dict[str, str]) -> None:
    options = {**options, "hoodie.parquet.small.file.limit": "0"}
    table = make(tmp_path, rows(("1", "a", 1, 1), ("2", "a", 1, 1)), partition_by="city", options=options)
    table.insert(rows(("3", "a", 1, 1), ("4", "b", 1, 1)))
    result = table.upsert(rows(("2", "a", 2, 2), ("3", "a", 2, 2), ("5", "a", 2, 2)))
    assert (result.inserted, result.updated) == (1, 2)
    assert own(table, "id", "n") == [("1", 1), ("2", 2), ("3", 2), ("4", 1), ("5", 2)]
    assert result.tagging.matches == 2
    assert result.tagging.files_listed == 2
    metadata = options.get("hoodie.bloom.index.use.metadata") != "false"
    stats = options.get("hoodie.metadata.index.column.stats.enable") != "false"
    assert result.tagging.source == ("metadata" if metadata and stats else "footers")
    missing = [
        n for n in ("column.stats", "bloom.filter") if options.get(f"hoodie.metadata.index.{n}.enable") == "false"
    ]
    assert len(result.tagging.notes) == len(missing)


def test_several_writers_leave_each_other_alone() -> None:
    """Java refuses the same combination: an eager writer undoes what others are writing."""
    together = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    assert parse_options(together).heartbeat.failed_writes is None
    with pytest.raises(OptionError, match=r"need hoodie\.clean\.failed\.writes\.policy=LAZY"):
        parse_options({**together, "hoodie.clean.failed.writes.policy": "EAGER"})


def test_an_unknown_lock_is_named() -> None:
    name = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
    with pytest.raises(OptionError, match=f"{name}.*FileSystemBasedLockProvider.*no lock server"):
        parse_options({"hoodie.write.lock.provider": name})


def test_a_lock_of_one_process_is_replaced_and_told() -> None:
    found = parse_options(
        {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
    )
    assert any("own lock" in note for note in found.notes)


def test_how_long_a_lock_is_waited_for() -> None:
    assert parse_options({"hoodie.write.lock.wait_time_ms": "1000"}).lock.wait == 1.0
    rounds = {
        "hoodie.write.lock.wait_time_ms": "1000",
        "hoodie.write.lock.client.num_retries": "50",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
    }
    assert parse_options(rounds).lock.wait == 10.0


def test_leases_are_renewed_ten_times_before_they_end() -> None:
    with pytest.raises(OptionError, match=r"timeout\.secs=20 must be ten times"):
        parse_options({"hoodie.write.lock.storage.validity.timeout.secs": "20"})
    short = {
        "hoodie.write.lock.storage.validity.timeout.secs": "20",
        "hoodie.write.lock.storage.renew.interval.secs": "2",
    }
    assert parse_options(short).lock.validity == 20.0
