"""Clustering and Java 1.1.1: each reads, continues and runs what the other planned or ran.

A table's life is one test, since starting sessions takes longest. Versions 8 and 9 have one timeline and one plan.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_SKIPPING, WRITE_BLOOM, JavaError, JavaJudge, metadata_compaction
from judging import OWN_FILE, create, keyed, own_rows
from rust_judge import RustJudge

from lakedex import Table
from lakedex.errors import CommitConflictError
from lakedex.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY

MOVED = [COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, "key", "ts", "value"]


def options(version: int) -> dict[str, str]:
    return {
        **WRITE_BLOOM,
        **metadata_compaction(50),
        "hoodie.compact.inline": "false",
        "hoodie.write.table.version": str(version),
    }


def procedure(java: JavaJudge, path: Path, version: int, call: str) -> None:
    """A procedure of Hudi's on the table, which is ``t`` in it."""
    for name, value in options(version).items():
        java.sql(f"SET {name}={value}")
    java.sql(f"CREATE TABLE IF NOT EXISTS t USING hudi LOCATION '{path}'")
    try:
        java.sql(call)
    finally:
        java.sql("DROP TABLE t")


def moved(java: JavaJudge, path: Path, before: pa.Table | None = None) -> pa.Table:
    """The rows with their meta columns as Java reads them, the same as lakedex does and as before."""
    ours = Table.open(path).scan(columns=MOVED, meta_columns=True).to_arrow().select(MOVED)
    found = java.read(path, columns=[*MOVED, FILE_NAME], options=READ_SKIPPING)
    assert_same_rows(found.select(MOVED), ours, "key")
    if before is not None:
        assert_same_rows(ours, before, "key")
        slices = Table.open(path).snapshot().slices()
        names = {item.base_file.name for item in slices if item.base_file} | {i.file_id for i in slices if i.log_files}
        assert set(found.column(FILE_NAME).to_pylist()) == names
    return ours


def pending(path: Path) -> list[str]:
    return [instant.requested for instant in Table.open(path).snapshot().timeline.pending_clusterings()]


def four_files(path: Path, version: int, kind: str = "cow") -> Table:
    settings = {**OWN_FILE, "hoodie.write.table.version": str(version), "hoodie.compact.inline": "false"}
    table = create(path, keyed([]).schema, partition_by="part", table_type=kind, options=settings)
    for file in range(2):
        for part in "ab":
            table.insert(keyed([f"{part}{file}{n}" for n in range(5)], 1, 3 - file, part))
    return table


def write(java: JavaJudge, path: Path, version: int, frame: pa.Table, kind: str = "cow") -> None:
    own = {"hoodie.datasource.write.table.type": "MERGE_ON_READ" if kind == "mor" else "COPY_ON_WRITE"}
    java.write(path, frame, "upsert", partition="part", ordering="ts", options={**options(version), **own})


@pytest.mark.parametrize("version, kind", [(6, "mor"), (8, "cow"), (9, "mor")])
def test_java_goes_on(java: JavaJudge, rust: RustJudge, tmp_path: Path, version: int, kind: str) -> None:
    table = four_files(tmp_path, version, kind)
    table.upsert(keyed(["a01"], 3, 30))
    assert any(item.log_files for item in table.snapshot().slices()) == (kind == "mor")
    before = Table.open(tmp_path).scan(columns=MOVED, meta_columns=True).to_arrow().select(MOVED)
    assert table.maintenance.cluster(order_by="value").files_after == 2
    moved(java, tmp_path, before)
    write(java, tmp_path, version, keyed(["a00", "new"], 5, 50), kind)
    assert_same_rows(rust.read(tmp_path), own_rows(tmp_path), "key")
    table.upsert(keyed(["b02"], 9, 90, "b"))
    moved(java, tmp_path)


@pytest.mark.parametrize("version", [6, 9])
def test_plans_in_turn(java: JavaJudge, tmp_path: Path, version: int) -> None:
    kind = "mor"
    table = four_files(tmp_path, version, kind)
    table.upsert(keyed(["a01"], 6, 60))
    # Planned by lakedex, refused to Java's writers, run by Java.
    planned = table.maintenance.cluster(zorder=["value", "ts"], partitions="part=a", plan_only=True)
    with pytest.raises(JavaError, match="(?i)clustering"):
        write(java, tmp_path, version, keyed(["a01"], 7, 70), kind)
    write(java, tmp_path, version, keyed(["b01"], 7, 70, "b"), kind)
    before = moved(java, tmp_path)
    procedure(java, tmp_path, version, f"CALL run_clustering(table => 't', instants => '{planned.instant}')")
    assert pending(tmp_path) == []
    moved(java, tmp_path, before)
    # Planned by Java, refused to our writers, run by lakedex.
    procedure(java, tmp_path, version, "CALL run_clustering(table => 't', op => 'schedule', order => 'value')")
    (instant,) = pending(tmp_path)
    table = Table.open(tmp_path)
    with pytest.raises(CommitConflictError, match=instant):
        table.upsert(keyed(["b02"], 8, 80, "b"))
    table.insert(keyed(["beside"], 8, 80, "c"))
    before = moved(java, tmp_path)
    assert table.maintenance.cluster(instant=instant).order == ("value",)
    moved(java, tmp_path, before)
    write(java, tmp_path, version, keyed(["b02"], 9, 90, "b"), kind)
    moved(java, tmp_path)
    assert Table.open(tmp_path).maintenance.validate().ok
