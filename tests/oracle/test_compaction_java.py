"""Compactions of merge-on-read tables by lakedex and by Java in turn: plans, runs and what comes after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_SKIPPING, JavaJudge
from rust_judge import RustJudge
from test_mor import COMPACT, PAYLOADS, SCHEDULE, Writer, rows, same_as_java

from lakedex import Table
from lakedex.timeline.instant import State

COMMIT_TIME = {"hoodie.datasource.write.payload.class": f"{PAYLOADS}OverwriteWithLatestAvroPayload"}
CASES: dict[int, tuple[dict[str, str], str | None]] = {
    6: (COMMIT_TIME, "part"),
    8: ({"hoodie.logfile.data.block.format": "parquet"}, None),
    9: ({}, "part"),
}


def own_rows(table: Table) -> list[dict[str, Any]]:
    """Rows with their commit times, without the names of files."""
    found = Table.open(table.path).scan(meta_columns=True).to_arrow().drop_columns(["_hoodie_file_name"])
    return sorted(found.to_pylist(), key=lambda row: str(row["key"]))


def rows_under(table: Table, where: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Table.open(table.path).scan(where).to_arrow().to_pylist()
    return found


def pending(table: Table) -> list[State]:
    return [i.state for i in Table.open(table.path).snapshot().timeline.pending({"compaction"})]


@pytest.mark.parametrize("version", CASES)
def test_compactions_in_turn(java: JavaJudge, rust: RustJudge, tmp_path: Path, version: int) -> None:
    options, partition = CASES[version]
    write = Writer(java, tmp_path, version, options, partition)
    write(rows(10, 1, *(f"k{n}" for n in range(8))), "insert")
    write(pa.concat_tables([rows(20, 2, "k0", "k1", "n0"), rows(5, 3, "k2")]))
    write(rows(30, 0, "k3", "k4"), "delete")

    # Ours, planned and run in one call; a bitmap index covers what it writes.
    table = Table.open(tmp_path)
    table.indexes.create("bitmap", ["value"], name="values")
    before = own_rows(table)
    done = table.maintenance.compact()
    assert (done.file_groups, done.deleted) == (2 if partition else 1, 2)
    assert own_rows(table) == before
    assert table.indexes.stats("values").files_uncovered == 0
    wheres = [f"value {test} {value}" for test in ("=", ">=") for value in range(5)]
    by_value = [sorted(row["key"] for row in rows_under(table, where)) for where in wheres]
    assert java.matches(tmp_path, wheres, options=READ_SKIPPING) == by_value
    same_as_java(tmp_path, java, as_of=version == 9)

    # Java goes on upon our base files, and plans: we run its plan beside its later writes.
    write.with_options(pa.concat_tables([rows(40, 4, "k1", "k5"), rows(40, 4, "k3")]), SCHEDULE)
    assert pending(table) == [State.REQUESTED]
    write(pa.concat_tables([rows(50, 5, "k1", "m1"), rows(2, 5, "k6")]))
    before = own_rows(table)
    (planned,) = [i.requested for i in Table.open(tmp_path).snapshot().timeline.pending({"compaction"})]
    ran = table.maintenance.compact(instant=planned)
    assert ran.instants == ran.found == (planned,)
    assert own_rows(table) == before
    assert any(item.log_files for item in Table.open(tmp_path).snapshot().slices())
    same_as_java(tmp_path, java, as_of=False)

    # Our plan, with what a run that died leaves behind: we and Java write beside it, and Java runs it.
    (planned,) = table.maintenance.compact(plan_only=True).instants
    table.upsert(
        pa.concat_tables([rows(65, 6, "k6", "m1"), rows(1, 6, "k5")]), options={"hoodie.compact.inline": "false"}
    )
    table.delete(["n0"], all_partitions=True, options={"hoodie.compact.inline": "false"})
    folder = tmp_path / ".hoodie" if version == 6 else tmp_path / ".hoodie/timeline"
    (folder / f"{planned}.compaction.inflight").touch()
    base = next(i.base_file for i in Table.open(tmp_path).snapshot().slices() if i.log_files)
    assert base is not None
    name = f"{base.file_id}_9-9-9_{planned}.parquet"
    (tmp_path / base.partition / name).write_bytes(b"PAR1")
    marker = tmp_path / ".hoodie/.temp" / planned / base.partition / f"{name}.marker.CREATE"
    marker.parent.mkdir(parents=True)
    marker.touch()
    write.with_options(rows(70, 7, "k0", "k1", "p0"), COMPACT)
    assert pending(table) == []
    assert Table.open(tmp_path).snapshot().timeline.is_completed(planned)
    assert not (tmp_path / base.partition / name).exists()
    table = same_as_java(tmp_path, java, as_of=False)

    # And once more ours, upon what Java compacted.
    write(pa.concat_tables([rows(80, 8, "k1", "q1"), rows(3, 8, "k2")]))
    before = own_rows(table)
    assert table.maintenance.compact().instants
    assert own_rows(table) == before
    table = same_as_java(tmp_path, java, as_of=False)
    assert table.maintenance.validate().ok
    assert_same_rows(table.scan(columns=table.schema.names).to_arrow(), rust.read(tmp_path), "key")
