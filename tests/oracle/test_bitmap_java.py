"""Java 1.1.1 works beside a bitmap index that it does not know: nothing breaks, no row is lost, a refresh heals.

Java upserts, deletes, overwrites, clusters, cleans, archives, rolls back and restores; compacts, rebuilds and drops the
metadata table. After each step lakedex finds under every filter what Java finds that reads everything, tells which files
the index does not know, and covers them again when asked to (R92.k).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from java_judge import READ_PLAIN, WRITE_BLOOM, WRITE_INDEXED, JavaJudge, metadata_compaction
from judging import assert_all_see, create, keyed
from rust_judge import RustJudge

from lakedex import Table

FILTERS = (
    "value = 3",
    "value <> 3",
    "value IS NULL OR part = 'b'",
    "NOT (value IN (1, 2)) AND colour = 'red'",
    "colour LIKE 'gr%' OR value > 5",
    "colour <=> NULL",
    "(colour = 'red') IS NULL AND value = 1",
)
COLOURS = ("red", "green", None, "grün$")


def rows(keys: Sequence[str], ts: int, part: str = "a") -> pa.Table:
    """Rows whose value and colour come from their key and ``ts``."""
    numbers = [(hash_of(key) + ts) % 7 for key in keys]
    table = keyed(keys, ts, 0, part)
    table = table.set_column(3, "value", pa.array([None if n == 6 else n for n in numbers], pa.int32()))
    return table.append_column("colour", pa.array([COLOURS[n % 4] for n in numbers], pa.string()))


def hash_of(key: str) -> int:
    return sum(key.encode())


def indexed(path: Path) -> Table:
    table = create(path, rows([], 0).schema, partition_by="part")
    for number, part in enumerate("aabb"):  # A file each: the table's options have no small files filled.
        table.insert(rows([f"{part}{number}{n}" for n in range(6)], 1, part))
    table.indexes.create("bitmap", ["value", "colour"], name="seen")
    return table


def java_writes(
    java: JavaJudge, path: Path, frame: pa.Table, operation: str = "upsert", options: Mapping[str, str] | None = None
) -> None:
    java.write(path, frame, operation, partition="part", ordering="ts", options={**WRITE_BLOOM, **(options or {})})


def check(java: JavaJudge, path: Path, everything: pa.Table | None = None) -> pa.Table:
    """Every filter gives what Java finds, by rows and by counts, with and without the cost gate; what Java finds."""
    if everything is None:
        flags = [f"coalesce({where}, false) as f{number}" for number, where in enumerate(FILTERS)]
        everything = java.read(path, columns=["key", *flags], options=READ_PLAIN)
    table = Table.open(path)
    for number, where in enumerate(FILTERS):
        right = sorted(everything.filter(everything.column(f"f{number}")).column("key").to_pylist())
        for gate in (True, False):
            scan = table.scan(where, ["key"], cost_gate=gate)
            assert sorted(scan.to_arrow().column("key").to_pylist()) == right, where
            assert scan.count() == len(right), where
    return everything


def uncovered(path: Path) -> int:
    return Table.open(path).indexes.stats("seen").files_uncovered


def heal(java: JavaJudge, path: Path) -> None:
    """A refresh covers everything again, and says nothing wrong."""
    found = check(java, path)
    Table.open(path).indexes.refresh("seen")
    assert uncovered(path) == 0
    report = Table.open(path).indexes.validate("seen")
    assert report.ok, str(report)
    check(java, path, found)  # It changes no data file, and that read of Java's uses no index.


def test_upserts_deletes_and_overwrites(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """With compaction of the metadata table, cleaning and archiving in between (R110, R127, R132)."""
    table = indexed(tmp_path)
    assert uncovered(tmp_path) == 0
    check(java, tmp_path)
    tight = {
        **metadata_compaction(2),
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.commits.archival.batch": "1",
    }
    for ts in range(2, 5):
        java_writes(java, tmp_path, rows(["a00", f"a{ts}x"], ts), options=tight)
        assert uncovered(tmp_path) > 0
        check(java, tmp_path)
        assert table.upsert(rows(["b20", "a00"], ts, "b")).bitmap_bytes > 0
        check(java, tmp_path)
    heal(java, tmp_path)
    java_writes(java, tmp_path, rows(["a01", "b21"], 9), "delete", tight)
    heal(java, tmp_path)
    java_writes(java, tmp_path, rows(["b2x", "b3x"], 9, "b"), "insert_overwrite", tight)
    heal(java, tmp_path)
    assert_all_see(tmp_path, java, rust)
    assert (tmp_path / ".hoodie" / "metadata" / "bitmap_index").is_dir()


def sql(java: JavaJudge, path: Path, *calls: str) -> None:
    """Hudi's procedures on the table, which is ``t`` in them; version 8 stays."""
    for name, value in {**WRITE_INDEXED, **metadata_compaction(50)}.items():
        java.sql(f"SET {name}={value}")
    java.sql(f"CREATE TABLE IF NOT EXISTS t USING hudi LOCATION '{path}'")
    try:
        for call in calls:
            java.sql(call)
    finally:
        java.sql("DROP TABLE t")


def test_rollback_restore_and_clustering(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Base files come back that later ones had replaced, and all rows move into new file groups."""
    table = indexed(tmp_path)
    saved = str(table.inspect.history().column("commit_time")[0].as_py())
    sql(java, tmp_path, f"CALL create_savepoint(table => 't', commit_time => '{saved}')")
    before = assert_all_see(tmp_path, java, rust)
    undone = table.upsert(rows(["a00", "b20"], 5))
    assert undone.bitmap_bytes > 0
    check(java, tmp_path)
    sql(java, tmp_path, f"CALL rollback_to_instant(table => 't', instant_time => '{undone.instant}')")
    assert_all_see(tmp_path, java, rust, before)
    heal(java, tmp_path)
    for ts in (6, 7):
        Table.open(tmp_path).upsert(rows(["a01", "b30"], ts))
    sql(java, tmp_path, f"CALL rollback_to_savepoint(table => 't', instant_time => '{saved}')")
    assert_all_see(tmp_path, java, rust, before)
    heal(java, tmp_path)
    sql(java, tmp_path, "CALL run_clustering(table => 't', op => 'scheduleAndExecute')")
    assert uncovered(tmp_path) > 0, "clustering rewrote the files"
    assert_all_see(tmp_path, java, rust, before)
    heal(java, tmp_path)


def test_the_metadata_table_is_dropped_and_made_anew(java: JavaJudge, tmp_path: Path) -> None:
    """The runs go with the folder; definitions stay, coverage is nothing, and a refresh heals."""
    indexed(tmp_path)
    folder = tmp_path / ".hoodie" / "metadata" / "bitmap_index"
    sql(java, tmp_path, "CALL delete_metadata_table(table => 't')")
    assert not folder.exists()
    check(java, tmp_path)
    sql(java, tmp_path, "CALL create_metadata_table(table => 't')")
    assert uncovered(tmp_path) == 4
    heal(java, tmp_path)
    # A writer without the metadata table deletes its folder.
    without = {"hoodie.metadata.enable": "false", "hoodie.bloom.index.use.metadata": "false"}
    java_writes(java, tmp_path, rows(["a02"], 8), options=without)
    assert not folder.exists()
    check(java, tmp_path)
    assert Table.open(tmp_path).indexes.list().column("name").to_pylist().count("seen") == 1
    java_writes(java, tmp_path, rows(["b21"], 9, "b"))
    heal(java, tmp_path)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_tables_of_javas(java: JavaJudge, tmp_path: Path, kind: str) -> None:
    """Built on a table that Java made; slices with log files too, whether Java wrote those or lakedex (R146)."""
    options = {"hoodie.datasource.write.table.type": kind, "hoodie.parquet.small.file.limit": "0"}
    for number, part in enumerate("ab"):
        java_writes(java, tmp_path, rows([f"{part}{number}{n}" for n in range(6)], 1, part), "bulk_insert", options)
    Table.open(tmp_path).indexes.create("bitmap", ["value", "colour"], name="seen")
    assert uncovered(tmp_path) == 0
    check(java, tmp_path)
    java_writes(java, tmp_path, rows(["a00", "a01", "a0new"], 3), options=options)
    check(java, tmp_path)
    java_writes(java, tmp_path, rows(["b11"], 4, "b"), "delete", options)
    check(java, tmp_path)
    if kind == "MERGE_ON_READ":
        assert any(item.log_files for item in Table.open(tmp_path).scan().plan().slices)
        heal(java, tmp_path)
        answered = [Table.open(tmp_path).scan(where).explain(answer="count") for where in FILTERS]
        assert sum(plan.log_slices - plan.merged for plan in answered) >= 8
        Table.open(tmp_path).upsert(rows(["a02", "b12"], 4))
        assert uncovered(tmp_path) == 0
        check(java, tmp_path)
        compact = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
        java_writes(java, tmp_path, rows(["a03"], 5), options={**options, **compact})
    heal(java, tmp_path)
