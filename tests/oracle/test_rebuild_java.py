"""Metadata tables that were lost, taken away and made anew, on both sides: Java 1.1.1 trusts what lakedex makes.

Java is asked with the metadata table and without it, tags by the rebuilt key ranges and bloom filters, compacts and
goes on; lakedex rebuilds what Java deleted, and builds indexes that Java dropped.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from java_judge import READ_SKIPPING, WRITE_BLOOM, WRITE_INDEXED, WRITE_V8, JavaJudge, metadata_compaction
from judging import OWN_FILE, assert_all_see, assert_same_answers, create, keyed, properties
from rust_judge import RustJudge

from lakedex import Table

FILTERS = ("value > 4", "key = 'a1'", "part = 'b' and value is null")
LISTED = "hoodie.table.metadata.partitions"
ALL = "bloom_filters,column_stats,files,partition_stats"


def rows(part: str, numbers: range, ts: int = 1) -> pa.Table:
    table = keyed([f"{part}{n}" for n in numbers], ts, 0, part)
    return table.set_column(3, "value", pa.array([None if n == 3 else n + 10 * (ts - 1) for n in numbers], pa.int32()))


def upsert(java: JavaJudge, path: Path, frame: pa.Table, options: Mapping[str, str], operation: str = "upsert") -> None:
    java.write(path, frame, operation, partition="part", ordering="ts", options=options)


def keys_of(table: pa.Table) -> list[str]:
    keys = table.column("key").to_pylist()
    assert len(set(keys)) == len(keys), "doubled keys"
    return sorted(keys)


def check(path: Path, java: JavaJudge, rust: RustJudge, keys: list[str]) -> None:
    """Everybody sees these keys once each, and the indexes give what reading everything gives."""
    assert keys_of(assert_all_see(path, java, rust)) == keys
    assert_same_answers(path, java, FILTERS)
    assert_valid(path)


def look(path: Path, java: JavaJudge, keys: list[str]) -> None:
    """Java that trusts the metadata table and lakedex see these keys once each."""
    assert keys_of(java.read(path, options=READ_SKIPPING)) == keys
    assert keys_of(Table.open(path).to_arrow()) == keys
    assert_valid(path)


def assert_valid(path: Path) -> None:
    report = Table.open(path).maintenance.validate()
    assert report.ok, str(report)


def test_a_lost_metadata_table(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """R37.b: lakedex rebuilds, Java reads, tags by it, compacts it; Java takes it away, lakedex makes it again."""
    table = create(tmp_path, rows("a", range(1)).schema, partition_by="part")
    for part in "ab":
        table.insert(rows(part, range(4)))
    keys = [f"{part}{n}" for part in "ab" for n in range(4)]
    shutil.rmtree(tmp_path / ".hoodie/metadata")
    result = Table.open(tmp_path).maintenance.rebuild_metadata()
    assert (result.partitions, result.files) == (2, 2)
    assert properties(tmp_path)[LISTED] == ALL
    check(tmp_path, java, rust, keys)
    assert java.files_read(tmp_path, "value = 99", READ_SKIPPING) == []
    upsert(java, tmp_path, rows("a", range(2, 6), 2), {**WRITE_BLOOM, **metadata_compaction(2)})
    keys = sorted({*keys, "a4", "a5"})
    look(tmp_path, java, keys)
    assert properties(tmp_path)[LISTED] == ALL
    # A writer without metadata deletes it; the next of ours makes it of Java's files too.
    without = {**WRITE_V8, "hoodie.metadata.enable": "false", "hoodie.index.type": "BLOOM"}
    upsert(java, tmp_path, rows("b", range(2, 5), 3), without)
    assert properties(tmp_path)[LISTED] == ""
    written = Table.open(tmp_path).upsert(rows("b", range(4, 7), 4))
    assert (written.updated, written.inserted) == (1, 2)
    assert any("was rebuilt" in note for note in written.notes)
    keys = sorted({*keys, "b4", "b5", "b6"})
    look(tmp_path, java, keys)
    upsert(java, tmp_path, rows("b", range(3, 8), 5), WRITE_BLOOM)
    look(tmp_path, java, sorted({*keys, "b7"}))
    # Ours off, Java's back on.
    Table.open(tmp_path).upsert(rows("a", range(1), 6), options={"hoodie.metadata.enable": "false"})
    assert properties(tmp_path)[LISTED] == ""
    upsert(java, tmp_path, rows("a", range(2), 7), WRITE_BLOOM)
    assert properties(tmp_path)[LISTED] == ALL
    look(tmp_path, java, sorted({*keys, "b7"}))


def test_a_table_of_javas(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Indexes built on it, rebuilt after a loss, and built again after a default Java writer dropped one."""
    options = {**WRITE_V8, **OWN_FILE, "hoodie.metadata.index.column.stats.enable": "false"}
    upsert(java, tmp_path, pa.concat_tables([rows("a", range(4)), rows("b", range(4))]), options, "bulk_insert")
    keys = [f"{part}{n}" for part in "ab" for n in range(4)]
    table = Table.open(tmp_path)
    assert properties(tmp_path)[LISTED] == "files"
    table.indexes.create("bloom_filters")
    table.indexes.create("column_stats")
    assert properties(tmp_path)[LISTED] == ALL
    assert_same_answers(tmp_path, java, FILTERS)
    upsert(java, tmp_path, rows("a", range(3, 5), 2), {**WRITE_BLOOM, **OWN_FILE})
    keys = sorted({*keys, "a4"})
    assert properties(tmp_path)[LISTED] == ALL
    look(tmp_path, java, keys)
    # A Java writer drops what its own options do not name.
    upsert(
        java,
        tmp_path,
        rows("b", range(3, 5), 2),
        {**WRITE_INDEXED, "hoodie.metadata.index.bloom.filter.enable": "false"},
    )
    keys = sorted({*keys, "b4"})
    assert "bloom_filters" not in properties(tmp_path)[LISTED]
    assert Table.open(tmp_path).indexes.create("bloom_filters").files == 3
    upsert(java, tmp_path, rows("b", range(5), 3), WRITE_BLOOM)
    assert keys_of(Table.open(tmp_path).to_arrow()) == keys
    shutil.rmtree(tmp_path / ".hoodie/metadata/files")
    Table.open(tmp_path).maintenance.rebuild_metadata()
    upsert(java, tmp_path, rows("a", range(2, 7), 4), WRITE_BLOOM)
    keys = sorted({*keys, "a5", "a6"})
    check(tmp_path, java, rust, keys)
    Table.open(tmp_path).indexes.drop("column_stats")
    upsert(java, tmp_path, rows("a", range(1), 5), WRITE_BLOOM)
    assert properties(tmp_path)[LISTED] == ALL
    look(tmp_path, java, keys)
