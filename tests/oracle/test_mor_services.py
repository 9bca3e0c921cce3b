"""Services of lakedex over log files of Java's: after each Java reads the same rows, with and without the metadata table,
and goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_PLAIN, READ_SKIPPING, JavaJudge
from judging import assert_same_answers
from rust_judge import RustJudge
from test_mor import COMPACT, PAYLOADS, Writer, rows, uncommit

from lakedex import Table

INDEXED = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
OPTIONS: Mapping[int, Mapping[str, str]] = {
    6: {**INDEXED, "hoodie.datasource.write.payload.class": f"{PAYLOADS}OverwriteWithLatestAvroPayload"},
    9: INDEXED,
}
FILTERS = ["value >= 3 and key >= 'k1'", "part = 'a' and value < 4", "ts > 25 or value = 1"]


def own(table: Table) -> pa.Table:
    return Table.open(table.path).to_arrow()


def check(java: JavaJudge, rust: RustJudge | None, table: Table, expected: pa.Table) -> None:
    """Everybody sees the rows, and what the metadata table says holds; without Rust, in between, Java by that alone."""
    assert_same_rows(own(table), expected, "key")
    assert_same_rows(java.read(table.path, options=READ_SKIPPING), expected, "key")
    if rust is not None:
        assert_same_rows(java.read(table.path, options=READ_PLAIN), expected, "key")
        assert_same_rows(rust.read(table.path), expected, "key")
    report = Table.open(table.path).maintenance.validate()
    assert report.ok, report


@pytest.mark.parametrize("version", OPTIONS)
def test_services_in_turn_with_java(java: JavaJudge, rust: RustJudge, tmp_path: Path, version: int) -> None:
    write = Writer(java, tmp_path, version, OPTIONS[version], "part")
    write(rows(10, 1, *(f"k{n}" for n in range(6))), "insert")
    write(pa.concat_tables([rows(20, 2, "k0", "k1", "n0"), rows(20, 3, "k2")]))
    table = Table.open(tmp_path)
    saved = table.maintenance.savepoint()
    at_savepoint = own(table)
    write(rows(30, 0, "k3"), "delete")
    before = own(table)

    # A writer of Java's that died, and a commit that is undone: the next ones write to the same log files.
    write(rows(40, 4, "k0", "k5", "n1"))
    dead = uncommit(tmp_path)
    assert table.maintenance.rollback(dead).undone == dead
    check(java, rust, table, before)
    write.with_options(rows(50, 5, "k0", "k4"), COMPACT)
    compacted = own(table)
    table.maintenance.rollback(str(Table.open(tmp_path).snapshot().instant))
    assert_same_rows(own(table), compacted, "key")
    write(rows(60, 6, "k1", "g0"))
    undone = str(Table.open(tmp_path).snapshot().instant)
    table.maintenance.rollback(undone)
    check(java, None, table, compacted)

    # The savepoint keeps the old slices, and cleaning takes nothing; without it they go with all their log files.
    assert table.maintenance.clean(versions=1).instant is None
    table.maintenance.restore(saved)
    check(java, None, table, at_savepoint)
    assert_same_answers(tmp_path, java, FILTERS)
    table.maintenance.delete_savepoint(saved)
    write.with_options(rows(70, 7, "k1", "k3", "h0"), COMPACT)
    write(rows(80, 8, "k1", "k2"))
    assert table.maintenance.clean(versions=1).files > 0
    since, until = table.inspect.history().column("commit_time").to_pylist()[1::-1]
    query = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": since}
    theirs = java.read(tmp_path, options={**READ_PLAIN, **query})
    assert_same_rows(Table.open(tmp_path).changes(since, until).to_arrow(), theirs, "key")

    # What was archived stays readable, for both, and both go on.
    table.maintenance.compact_metadata()
    keep = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
    write(rows(90, 9, "k5"))
    assert table.maintenance.archive(options=keep).instants
    check(java, rust, table, own(table))
    write(rows(96, 0, "k1"), "delete")
    table.maintenance.rebuild_metadata()
    check(java, None, table, own(table))
