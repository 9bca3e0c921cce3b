"""Options × calls: each one is honoured, or refused, or named in the result's notes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.options import ACTS_ON, DEFAULTS, DONE, parse_options
from table_kit import OWN_FILE, ROWS, make, own, properties, rows, set_properties

POLICY = "hoodie.datasource.insert.dup.policy"
GLOBAL = {"hoodie.index.type": "GLOBAL_BLOOM"}
NEW = rows(("1", "a", 9, 9), ("7", "c", 9, 9))
EXTRA = pa.schema([("extra", pa.int32())])


def _lose_metadata(table: Table) -> None:
    """A table that lists no index: the options say which are made."""
    for folder in ("metadata", ".index_defs"):
        shutil.rmtree(Path(table.path) / ".hoodie" / folder)
    set_properties(Path(table.path), {"hoodie.table.metadata.partitions": ""})


CALLS: dict[str, Callable[[Table, dict[str, Any]], Any]] = {
    "upsert": lambda t, o: t.upsert(NEW, options=o),
    "insert": lambda t, o: t.insert(rows(("7", "a", 9, 9)), options=o),
    "bulk_insert": lambda t, o: t.bulk_insert(rows(("7", "c", 9, 9)), options=o),
    "insert_overwrite": lambda t, o: t.insert_overwrite(NEW, options=o),
    "merge": lambda t, o: (
        t.merge(NEW, "t.id = s.id").when_matched_update({"n": "s.n"}).when_not_matched_insert_all().execute(options=o)
    ),
    "delete": lambda t, o: t.delete(rows(("1", "a", 9, 9)), options=o),
    "update": lambda t, o: t.update({"n": "n + 1"}, "id = '1'", options=o),
    "erase": lambda t, o: t.erase(keys=["1"], options=o),
    "delete_partition": lambda t, o: t.delete_partition({"city": "a"}, options=o),
    "add_columns": lambda t, o: t.add_columns(EXTRA, options=o),
    "drop_columns": lambda t, o: t.drop_columns("n", options=o),
    "rename_column": lambda t, o: t.rename_column("n", "m", options=o),
    "widen_column": lambda t, o: t.widen_column("f", pa.float64(), options=o),
    "rewrite_files": lambda t, o: (t.drop_columns("n"), t.maintenance.rewrite_files(options=o))[1],
    "create_index": lambda t, o: [
        (t.indexes.drop(name), t.indexes.create(name, options=o))[1] for name in ("bloom_filters", "column_stats")
    ][-1],
    "rebuild_metadata": lambda t, o: (_lose_metadata(t), t.maintenance.rebuild_metadata(options=o))[1],
    "clean": lambda t, o: t.maintenance.clean(options=o),
    "compact_metadata": lambda t, o: t.maintenance.compact_metadata(options=o),
    "archive": lambda t, o: t.maintenance.archive(options=o),
}
VALUES = {
    "files.max_file_size": "100000",
    "files.small_file_limit": "1",
    "files.compression": "snappy",
    "files.log_block_format": "parquet",
    "bloom.fpp": "0.01",
    "bloom.filter_type": "SIMPLE",
    "rows.duplicates": "none",
    "rows.sort_mode": "NONE",
    "indexes.column_stats_columns": "id",
    "table.index_type": "GLOBAL_BLOOM",
}
"""A value of each field that is no number and no flag."""
BY_NAME = {"hoodie.datasource.write.insert.drop.duplicates": "false"}
GROUPS = {name: type(group) for name in DEFAULTS.__slots__ if is_dataclass(group := getattr(DEFAULTS, name))}
FLAGS = {f"{name}.{of.name}" for name, kind in GROUPS.items() for of in fields(kind) if of.type == "bool"}
OPTIONS = {name: field for name, (field, _) in DONE.items() if field in ACTS_ON}
NOT_READ_HERE = {
    "files.record_size_estimate",  # Of a table without rows.
    *("files.log_block_format", "files.log_block_bytes", "files.log_file_bytes", "files.partial_updates"),  # Of logs.
    "tagging.update_partition_path",  # Of a table with a global index.
    *(
        "indexes.column_stats",
        "indexes.bloom_filters",
        "indexes.column_stats_groups",
        "indexes.partition_stats_groups",
        "indexes.bloom_filters_groups",
    ),
}
"""Fields that a call acts on under conditions which it does not meet here, or which a write reads to mend a table."""

OF_FILES = {
    "files.compression",
    "files.row_group_bytes",
    "bloom.num_entries",
    "bloom.fpp",
    "bloom.filter_type",
    "bloom.max_entries",
}
"""Fields that a change of columns reads before it knows that it rewrites no file."""


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def _made(path: Path) -> Table:
    schema = pa.schema([*ROWS, ("f", pa.float32())])
    data = rows(("1", "a", 1, 1), ("2", "a", 1, 2), ("3", "b", 1, 3)).append_column(
        "f", pa.array([1.0] * 3, pa.float32())
    )
    return make(path, data, schema=schema, partition_by="city", ordering_by="ts", options={**OWN_FILE, **GLOBAL})


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Fields of options that are looked at, by others than who copies all of them."""
    found: set[str] = set()

    def watch(group: str) -> Callable[[Any, str], Any]:
        def looked_at(self: Any, name: str) -> Any:
            if sys._getframe(1).f_globals.get("__name__") not in ("dataclasses", "lakedex.options"):
                found.add(f"{group}.{name}")
            return object.__getattribute__(self, name)

        return looked_at

    for group, kind in GROUPS.items():
        monkeypatch.setattr(kind, "__getattribute__", watch(group))
    yield found
    monkeypatch.undo()


def value_of(name: str) -> str:
    field = DONE[name][0]
    return BY_NAME.get(name) or VALUES.get(field) or ("true" if field in FLAGS else "4")


@pytest.mark.parametrize("call", CALLS)
def test_each_option_is_honoured_or_named(table: Table, read: set[str], call: str) -> None:
    """All options at once: what the call looks at, and what the notes say that it does not."""
    given = {name: value_of(name) for name in OPTIONS if not name.endswith("drop.duplicates")}
    result = CALLS[call](table, given)
    for name, value in given.items():
        field = OPTIONS[name]
        is_noted = f"option {name}={value} has no effect in {call}" in result.notes
        assert is_noted == (call not in ACTS_ON[field]), name
        if field not in NOT_READ_HERE and not (call in ("add_columns", "drop_columns") and field in OF_FILES):
            assert is_noted == (field not in read), name


def test_options_of_the_table_are_not_named_by_every_call(table: Table) -> None:
    opened = Table.open(table.path, options={"hoodie.bulkinsert.sort.mode": "NONE"})
    assert opened.upsert(NEW_WITH_F).notes == ()


NEW_WITH_F = NEW.append_column("f", pa.array([1.0] * 2, pa.float32()))
SHARED = [
    ("hoodie.index.type", "BLOOM", "GLOBAL_BLOOM"),
    ("hoodie.datasource.write.hive_style_partitioning", "false", "True"),
    ("hoodie.datasource.write.partitionpath.urlencode", "false", "True"),
    ("hoodie.record.merge.mode", "COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
    ("hoodie.write.table.version", "9", "8"),
]
WRITES = [
    name
    for name in CALLS
    if name not in ("erase", "create_index", "rebuild_metadata", "clean", "compact_metadata", "archive")
]


@pytest.mark.parametrize("call", WRITES)
def test_settings_that_writers_share_cannot_be_contradicted(table: Table, call: str) -> None:
    before = own(table), table.inspect.history().num_rows
    write = CALLS[call] if call != "rewrite_files" else lambda t, o: t.maintenance.rewrite_files(options=o)
    for name, wanted, stored in SHARED:
        with pytest.raises(OptionError, match="option") as caught:
            write(table, {name: wanted, "hoodie.write.set.null.for.missing.columns": "true"})
        assert caught.value.option == name
        assert stored in str(caught.value)
    assert (own(table), table.inspect.history().num_rows) == before


@pytest.mark.parametrize("version", ["6", "8", "9"])
def test_a_global_index_is_the_tables_whoever_opens_it(tmp_path: Path, version: str) -> None:
    """Made with one writer's options; another, who has none, moves the key and makes no second row of it."""
    made = make(
        tmp_path, rows(("1", "a", 1, 1)), partition_by="city", options={**GLOBAL, "hoodie.write.table.version": version}
    )
    assert properties(tmp_path)["hoodie.index.type"] == "GLOBAL_BLOOM"
    assert Table.open(tmp_path).upsert(rows(("1", "b", 2, 2))).deleted == 1
    assert own(Table.open(tmp_path)) == [("1", "b", 2, 2)]
    with pytest.raises(InvalidInputError, match="1 keys are in the table already"):
        Table.open(tmp_path).insert(rows(("1", "c", 2, 2)), options={POLICY: "fail"})
    assert Table.open(tmp_path).delete(rows(("1", "z", 2, 2))).deleted == 1
    assert own(made) == []


def test_a_merge_finds_a_new_key_in_another_partition_of_a_global_table(tmp_path: Path) -> None:
    make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", options=GLOBAL)
    merge = Table.open(tmp_path).merge(rows(("1", "b", 2, 2)), "t.id = s.id and t.city = s.city")
    with pytest.raises(InvalidInputError, match="have a key that is in the table already, for example '1'"):
        merge.when_not_matched_insert_all().execute()
    moved = Table.open(tmp_path).merge(rows(("1", "b", 2, 2)), "t.id = s.id").when_matched_update_all().execute()
    assert moved.updated == 1
    assert own(Table.open(tmp_path)) == [("1", "b", 2, 2)]


def test_a_table_that_names_a_bucket_index_is_not_written(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    set_properties(tmp_path, {"hoodie.index.type": "BUCKET"})
    with pytest.raises(UnsupportedFeatureError, match="BUCKET"):
        Table.open(tmp_path).upsert(rows(("1", "a", 2, 2)))
    assert own(table) == [("1", "a", 1, 1)]


TWICE = rows(("5", "a", 1, 1), ("6", "a", 1, 2), ("5", "a", 1, 3))


@pytest.mark.parametrize("call", ["insert", "insert_overwrite"])
@pytest.mark.parametrize("stored", [None, rows(("1", "a", 1, 1))], ids=["empty", "with rows"])
def test_a_key_that_comes_twice_is_a_duplicate(tmp_path: Path, call: str, stored: pa.Table | None) -> None:
    table = make(tmp_path, stored, schema=ROWS)
    before = own(table)
    write = getattr(table, call)
    with pytest.raises(InvalidInputError, match="1 rows of the frame repeat a record key, for example '5'") as caught:
        write(TWICE, options={POLICY: "fail"})
    assert (caught.value.column, caught.value.count) == ("id", 1)
    assert own(table) == before
    write(TWICE, options={"hoodie.datasource.write.insert.drop.duplicates": "true"})
    assert own(table.scan("id = '5'").to_arrow(), "n") == [(3,)]
    write(TWICE.slice(0, 2), "table", options={POLICY: "fail"}) if call == "insert_overwrite" else None


def test_one_key_in_two_partitions_is_a_duplicate_of_a_global_table_only(tmp_path: Path) -> None:
    both = rows(("5", "a", 1, 1), ("5", "b", 1, 2))
    fail = {POLICY: "fail"}
    assert make(tmp_path / "t", schema=ROWS, partition_by="city").insert(both, options=fail).inserted == 2
    table = make(tmp_path / "g", schema=ROWS, partition_by="city", options=GLOBAL)
    with pytest.raises(InvalidInputError, match="repeat a record key"):
        table.insert(both, options=fail)


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_a_bulk_insert_refuses_a_policy_that_it_cannot_keep(tmp_path: Path, policy: str) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), options={POLICY: policy})
    with pytest.raises(OptionError, match="bulk_insert looks no keys up") as caught:
        table.bulk_insert(rows(("1", "a", 1, 2)))
    assert caught.value.option == POLICY
    assert table.bulk_insert(rows(("2", "a", 1, 2)), options={POLICY: "none"}).inserted == 1


def test_two_names_of_one_option_agree() -> None:
    assert (
        parse_options({"hoodie.clean.commits.retained": "3", "hoodie.cleaner.commits.retained": "3"}).clean.commits == 3
    )
    with pytest.raises(OptionError, match="drop.duplicates and hoodie.datasource.insert.dup.policy contradict"):
        parse_options({"hoodie.datasource.write.insert.drop.duplicates": "true", POLICY: "fail"})
    # Those of a call count before those of the table, whatever their name.
    assert (
        parse_options({"hoodie.clean.commits.retained": "3"}, {"hoodie.cleaner.commits.retained": "4"}).clean.commits
        == 4
    )


def test_each_operation_has_its_own_parallelism() -> None:
    names = {"upsert": "upsert", "insert": "insert", "bulkinsert": "bulk_insert", "delete": "delete"}
    found = parse_options({f"hoodie.{name}.shuffle.parallelism": 2 + place for place, name in enumerate(names)})
    assert [getattr(found.tasks, field) for field in names.values()] == [2, 3, 4, 5]
