"""Partition stats that a writer left behind: bounds of rows that are no more."""

from __future__ import annotations

import json
from pathlib import Path

from lakedex import Table
from table_kit import OWN_FILE, make, rows

ONLY_TS = {**OWN_FILE, "hoodie.metadata.index.column.stats.column.list": "ts"}


def list_columns(path: Path, change: str) -> None:
    """Add (``+n``) or take away (``-n``) a column in the index definitions, as a writer does that indexes others."""
    file = path / ".hoodie" / ".index_defs" / "index.json"
    document = json.loads(file.read_text())
    fields = document["indexDefinitions"]["column_stats"]["sourceFields"]
    kept = [name for name in fields if name != change[1:]]
    document["indexDefinitions"]["column_stats"]["sourceFields"] = kept + [change[1:]] * (change[0] == "+")
    file.write_text(json.dumps(document))


def two_cities(path: Path) -> Table:
    table = make(path, rows(("1", "a", 1, 5), ("2", "b", 1, 6)), partition_by="city", options=OWN_FILE)
    assert table.scan("n = 99").plan().stage("partition_stats").after == 0
    return table


def found(path: Path, where: str) -> int:
    count = Table.open(path).scan(where).count()
    assert count == Table.open(path).scan(where, use_indexes=False).count()
    return count


def test_a_column_that_a_commit_did_not_index_is_unknown(tmp_path: Path) -> None:
    open_all_along = two_cities(tmp_path)
    list_columns(tmp_path, "-n")
    writer = Table.open(tmp_path, options=ONLY_TS)
    writer.upsert(rows(("1", "a", 2, 99)))  # As many rows as before: the counts do not tell.
    assert found(tmp_path, "n = 99") == 1
    assert open_all_along.scan("n = 99").count() == 1


def test_a_column_that_is_indexed_again_is_unknown_in_partitions_with_other_files(tmp_path: Path) -> None:
    open_all_along = two_cities(tmp_path)
    list_columns(tmp_path, "-n")
    Table.open(tmp_path, options=ONLY_TS).upsert(rows(("3", "a", 2, 99)))
    list_columns(tmp_path, "+n")
    assert found(tmp_path, "n = 99") == 1
    assert open_all_along.scan("n = 99").count() == 1
    assert found(tmp_path, "n = 5") == 1


def test_indexing_again_does_not_heal_a_partition_that_is_not_touched(tmp_path: Path) -> None:
    """As Java does it: the stale record has as many rows as there are, and its column is listed."""
    open_all_along = two_cities(tmp_path)
    list_columns(tmp_path, "-n")
    Table.open(tmp_path, options=ONLY_TS).upsert(rows(("1", "a", 2, 99)))
    list_columns(tmp_path, "+n")
    Table.open(tmp_path).upsert(rows(("2", "b", 2, 7)))
    assert found(tmp_path, "n = 99") == 1
    assert open_all_along.scan("n = 99").count() == 1
    plan = Table.open(tmp_path).scan("n = 1000").plan()
    assert (plan.stage("partition_stats").after, len(plan.files)) == (1, 1)
