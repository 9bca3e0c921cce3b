"""``kill -9`` at every change of an index build and of a drop: an index is there whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from lakedex import Table
from table_checks import (
    NEXT,
    START,
    check_table,
    deaths,
    frame,
    fresh_copy,
    new_table,
    read,
    writes,
)

pytestmark = pytest.mark.heavy

NONE = {"hoodie.metadata.index.column.stats.enable": "false", "hoodie.metadata.index.bloom.filter.enable": "false"}


@dataclass(frozen=True)
class Case:
    """An action on a table with some indexes, and which it has afterwards; the action may be repeated."""

    prepare: Callable[[Path], object]
    run: Callable[[Table], object]
    indexes: set[str]
    sparse: int = 8


def make_all(table: Table) -> None:
    table.indexes.create("column_stats", if_not_exists=True)
    table.indexes.create("bloom_filters", if_not_exists=True)


CASES = {
    "build": Case(
        lambda path: new_table(path, START, NONE), make_all, {"bloom_filters", "column_stats", "partition_stats"}
    ),
    "more columns": Case(
        lambda path: new_table(path, START, NONE).indexes.create("column_stats", ["id"]),
        lambda t: t.indexes.create("column_stats", ["v"], if_not_exists=True),
        {"column_stats", "partition_stats"},
    ),
    "drop": Case(
        lambda path: new_table(path, START),
        lambda t: t.indexes.drop("column_stats", if_exists=True),
        {"bloom_filters"},
    ),
    "rebuild": Case(
        lambda path: new_table(path, START),
        lambda t: t.maintenance.rebuild_metadata(),
        {"bloom_filters", "column_stats", "partition_stats"},
        sparse=16,
    ),
    "rebuild of a lost one": Case(
        lambda path: (new_table(path, START), shutil.rmtree(path / ".hoodie/metadata")),
        lambda t: t.maintenance.rebuild_metadata(),
        {"bloom_filters", "column_stats", "partition_stats"},
        sparse=16,
    ),
}


def assert_whole(table: Table) -> None:
    for name in table.indexes.list().column("name").to_pylist():
        assert table.indexes.stats(name).files_uncovered == 0, name


@pytest.mark.parametrize("name", CASES)
def test_kill_at_every_change(name: str, tmp_path: Path) -> None:
    case, template, path = CASES[name], tmp_path / "template", tmp_path / "t"
    case.prepare(template)
    copy = partial(fresh_copy, template, path)
    for found in deaths(copy, writes(case.run), ("after", "during"), sparse=case.sparse):
        assert read(found) == START
        table = Table.open(found)
        if name != "rebuild of a lost one":
            assert_whole(table)
        table.upsert(frame(NEXT))
        check_table(found, {**START, **NEXT}, index_builds=True)
        assert Table.open(found).maintenance.validate().ok
        case.run(table)
        assert set(table.indexes.list().column("name").to_pylist()) == case.indexes
        assert_whole(table)
        check_table(found, {**START, **NEXT}, index_builds=True)
