"""Overwrites, indexes made and dropped, and schema changes of lakedex before Java's eyes, and the reverse.

After each of them Java 1.1.1 (with and without the metadata table, with data skipping) and hudi-rs read the same rows,
and Java goes on writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_SKIPPING, WRITE_BLOOM, WRITE_V8, JavaJudge, metadata_compaction
from judging import OWN_FILE, assert_all_see, assert_same_answers, create, keyed, own_rows
from rust_judge import RustJudge

from lakedex import Table

SCHEMA = keyed([]).schema
FILTERS = ["value >= 3", "part = 'a' and value < 4", "key = 'k1'", "value is null", "ts > 4 or value = 1"]


def both(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables)


# ------------------------------------------------------------------------------------------------------ overwrites
def test_overwrites_in_turn(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    options = {**WRITE_BLOOM, **metadata_compaction(4)}

    def java_writes(rows: pa.Table, operation: str = "upsert") -> None:
        java.write(tmp_path, rows, operation, partition="part", ordering="ts", options=options)

    def check(*rows: pa.Table) -> None:
        assert_same_rows(java.read(tmp_path, options=READ_SKIPPING), both(*rows), "key")
        assert_same_rows(rust.read(tmp_path), both(*rows), "key")
        assert_same_rows(own_rows(tmp_path), both(*rows), "key")

    table = create(tmp_path, SCHEMA, partition_by="part")
    in_b, in_c = keyed(["k3", "k4"], 1, 3, "b"), keyed(["k5"], 1, 5, "c")
    table.insert(both(keyed(["k1", "k2"], 1, 9), in_b, in_c))
    table.insert(keyed(["k9"], 1, 8))
    table.insert_overwrite(keyed(["k1", "k7"], 0, 1))
    check(keyed(["k1", "k7"], 0, 1), in_b, in_c)

    java_writes(both(keyed(["k1", "k8"], 2, 2), keyed(["k4"], 2, 4, "b")))
    in_a, in_b = both(keyed(["k7"], 0, 1), keyed(["k1", "k8"], 2, 2)), both(in_b.slice(0, 1), keyed(["k4"], 2, 4, "b"))
    check(in_a, in_b, in_c)

    java_writes(keyed(["k1", "k2"], 3, 6), "insert_overwrite")
    in_a = keyed(["k1", "k2"], 3, 6)
    check(in_a, in_b, in_c)
    assert table.upsert(keyed(["k2", "k6"], 4, 7)).updated == 1
    in_a = both(in_a.slice(0, 1), keyed(["k2", "k6"], 4, 7))
    check(in_a, in_b, in_c)

    table.insert_overwrite(both(keyed(["k1"], 5, 1), keyed(["k3"], 5, 2, "d")))
    table.insert_overwrite(SCHEMA.empty_table(), partitions=[{"part": "b"}])
    check(keyed(["k1"], 5, 1), in_c, keyed(["k3"], 5, 2, "d"))
    java_writes(both(keyed(["k3"], 6, 6, "b"), keyed(["k1"], 6, 3)), "insert_overwrite")
    check(keyed(["k1"], 6, 3), in_c, keyed(["k3"], 6, 6, "b"), keyed(["k3"], 5, 2, "d"))

    table.insert_overwrite(keyed(["k1", "k2"], 7, 1, "b"), scope="table")
    check(keyed(["k1", "k2"], 7, 1, "b"))
    assert_same_answers(tmp_path, java, FILTERS)
    java_writes(both(keyed(["k1"], 8, 2, "b"), keyed(["k5"], 8, 4)))
    check(both(keyed(["k2"], 7, 1, "b"), keyed(["k1"], 8, 2, "b")), keyed(["k5"], 8, 4))
    java_writes(keyed(["k2"], 9, 9, "c"), "insert_overwrite_table")
    assert table.upsert(keyed(["k2"], 10, 3, "c")).updated == 1
    check(keyed(["k2"], 10, 3, "c"))
    table.insert_overwrite(SCHEMA.empty_table(), scope="table")
    assert java.read(tmp_path).num_rows == 0
    java_writes(keyed(["k1"], 1, 1))
    check(keyed(["k1"], 1, 1))


def test_java_cleans_what_we_replaced(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    options = {
        **WRITE_BLOOM,
        **metadata_compaction(2),
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.commits.archival.batch": "1",
    }
    table = create(tmp_path, SCHEMA, partition_by="part")
    table.insert(both(keyed(["k1", "k2"], 1, 1), keyed(["k3"], 1, 1, "b")))
    old = {file.name for file in tmp_path.rglob("*.parquet")}
    for number in range(2, 6):
        table.insert_overwrite(keyed(["k1", f"n{number}"], number, number))
        java.write(tmp_path, keyed(["k3"], number, number, "b"), partition="part", ordering="ts", options=options)
    assert not old & {file.name for file in tmp_path.rglob("*.parquet") if ".hoodie" not in file.parts}
    assert list((tmp_path / ".hoodie" / "timeline" / "history").glob("*.parquet"))
    expected = both(keyed(["k1", "n5"], 5, 5), keyed(["k3"], 5, 5, "b"))
    assert_all_see(tmp_path, java, rust, expected)
    assert_same_answers(tmp_path, java, FILTERS)
    assert table.upsert(keyed(["k1"], 9, 9)).updated == 1
    assert_all_see(tmp_path, java, rust, both(expected.slice(1), keyed(["k1"], 9, 9)))


@pytest.mark.parametrize("metadata_too", [True, False], ids=["before the completion", "before the metadata"])
def test_java_undoes_our_failed_overwrite(
    java: JavaJudge, rust: RustJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata_too: bool
) -> None:
    table = create(tmp_path, SCHEMA, partition_by="part")
    table.insert(keyed(["k1", "k2"], 1, 1))

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    target = "complete" if metadata_too else "build_updates"
    with monkeypatch.context() as patched:
        patched.setattr(f"lakedex.write.transaction.{target}", die)
        patched.setattr("lakedex.write.transaction.Transaction.abort", lambda self, error: self._heartbeat.stop())
        with pytest.raises(KeyboardInterrupt):
            table.insert_overwrite(keyed(["k3"], 2, 2))
    assert_all_see(tmp_path, java, rust, keyed(["k1", "k2"], 1, 1))
    java.write(tmp_path, keyed(["k1", "k4"], 3, 3), partition="part", ordering="ts", options=WRITE_BLOOM)
    expected = both(keyed(["k2"], 1, 1), keyed(["k1", "k4"], 3, 3))
    assert_all_see(tmp_path, java, rust, expected)
    assert list((tmp_path / ".hoodie" / "timeline").glob("*.rollback"))
    table.insert_overwrite(keyed(["k5"], 4, 4))
    assert_all_see(tmp_path, java, rust, keyed(["k5"], 4, 4))
    assert Table.open(tmp_path, options=OWN_FILE).upsert(keyed(["k5"], 5, 5)).updated == 1


# --------------------------------------------------------------------------------------------------------- indexes
NO_INDEX = {
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.bloom.filter.enable": "false",
}
NO_JAVA_INDEX = {**WRITE_V8, **NO_INDEX, "hoodie.metadata.index.partition.stats.enable": "false"}


def covered(path: Path) -> dict[str, int]:
    """Files (or partitions) that an index lacks, by index."""
    table = Table.open(path)
    names = table.indexes().column("name").to_pylist()
    return {name: table.index_stats(name).files_uncovered for name in names}


ALL_COVERED = {"bloom_filters": 0, "column_stats": 0, "partition_stats": 0}


@pytest.mark.parametrize("maker", ["lakedex", "Java"])
def test_indexes_made_and_dropped(java: JavaJudge, rust: RustJudge, tmp_path: Path, maker: str) -> None:
    def java_writes(rows: pa.Table, options: Mapping[str, str], operation: str = "upsert") -> None:
        java.write(tmp_path, rows, operation, partition="part", ordering="ts", options={**options, **OWN_FILE})

    first = both(keyed(["k1", "k2"], 1, 1), keyed(["k3"], 1, 3, "b"))
    second = both(keyed(["k4"], 4, 4), keyed(["k5"], 5, 5, "c"))
    if maker == "Java":
        java_writes(first, NO_JAVA_INDEX, "insert")
        java_writes(second, NO_JAVA_INDEX, "insert")
        table = Table.open(tmp_path, options=OWN_FILE)
    else:
        table = create(tmp_path, SCHEMA, partition_by="part", options={**NO_INDEX, **OWN_FILE})
        table.insert(first)
        table.insert(second)
    assert covered(tmp_path) == {}

    table.create_index("column_stats", columns=["value", "key"])
    table.create_index("bloom_filters")
    table.create_index("column_stats", columns=["ts"])
    assert covered(tmp_path) == ALL_COVERED
    expected = assert_all_see(tmp_path, java, rust, both(first, second))
    assert_same_answers(tmp_path, java, FILTERS)
    assert len(java.files_read(tmp_path, "ts = 4", READ_SKIPPING)) == 1

    # Java tags by what we built, and keeps it up, over a compaction of the metadata table.
    for number in range(3):
        java_writes(
            both(keyed(["k1", f"n{number}"], 6 + number, 6 + number), keyed(["k5"], 6 + number, 0, "c")),
            {**WRITE_BLOOM, **metadata_compaction(2)},
        )
    expected = assert_all_see(tmp_path, java, rust)
    assert sorted(expected.column("key").to_pylist()) == ["k1", "k2", "k3", "k4", "k5", "n0", "n1", "n2"]
    assert covered(tmp_path) == ALL_COVERED
    assert_same_answers(tmp_path, java, FILTERS)

    table.drop_index("bloom_filters")
    table.drop_index("column_stats")
    assert_all_see(tmp_path, java, rust, expected)
    java_writes(keyed(["k2"], 9, 9), NO_JAVA_INDEX)
    assert covered(tmp_path) == {}
    # Java drops what its options do not name: it is built anew.
    table.create_index("bloom_filters")
    table.create_index("column_stats")
    java_writes(keyed(["k4"], 10, 10), NO_JAVA_INDEX)
    assert covered(tmp_path) == {}
    table.create_index("column_stats")
    table.create_index("bloom_filters")
    table.insert_overwrite(keyed(["k3", "k6"], 11, 11, "b"))
    java_writes(both(keyed(["k6"], 12, 12, "b"), keyed(["k1"], 12, 0)), WRITE_BLOOM)
    assert covered(tmp_path) == ALL_COVERED
    rows = assert_all_see(tmp_path, java, rust)
    assert rows.num_rows == len(set(rows.column("key").to_pylist())) == 9
    assert_same_answers(tmp_path, java, FILTERS)
