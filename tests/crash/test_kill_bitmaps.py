"""``kill -9`` at every change of a commit with bitmaps, of a fold, a build and a drop.

Whatever the moment: right rows, nothing that a query or a write stumbles over, and a refresh makes the index whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from bitmap_table_kit import defined, files_in_folder, run_names, same_answers, uncovered
from faults import run_child
from lakedex import Table
from lakedex.testing import Faults, FaultyStorage
from table_checks import (
    KILLED,
    NEXT,
    SCHEMA,
    START,
    Rows,
    check_table,
    deaths,
    frame,
    fresh_copy,
    new_table,
    read,
    writes,
)

pytestmark = pytest.mark.heavy

ASKED = ("v = 3", "v > 4 and city = 'b'", "not (city = 'a') or v is null", "v = 900")
COLUMNS = ("city", "v")


def build(table: Table) -> object:
    return table.indexes.create("bitmap", list(COLUMNS), name="idx", if_not_exists=True)


def drop(table: Table) -> object:
    return table.indexes.drop("idx", if_exists=True)


def indexed(path: Path) -> None:
    """A table with START, whose next write folds."""
    table = new_table(path, {key: (city, 0, 0) for key, (city, _, _) in START.items()})
    build(table)
    half = dict(list(START.items())[:4])
    table.upsert(frame({key: row for key, row in START.items() if key not in half}))
    table.upsert(frame(half))


def indexed_again(path: Path) -> None:
    """The same after a fold, whose next fold removes what the first one put together."""
    indexed(path)
    table = Table.open(path)
    for ts in range(2, 4):
        table.upsert(frame({key: (city, ts, v) for key, (city, _, v) in START.items()}))


def indexed_logs(path: Path) -> None:
    """A merge-on-read table with START, bitmaps, and log files on both of its file groups."""
    options = {"hoodie.compact.inline": "false", "hoodie.parquet.small.file.limit": "0"}
    table = Table.create(
        path, SCHEMA, record_key="id", partition_by=["city"], ordering_by="ts", table_type="mor", options=options
    )
    table.insert(frame({key: (city, 0, 0) for key, (city, _, _) in START.items()}))
    build(table)
    table.upsert(frame(START))


CHANGED: Rows = {**START, "k1": ("b", 5, 100), "n0": ("a", 5, 101)}


@dataclass(frozen=True)
class Case:
    """What is done to which table, and what rows it has then."""

    prepare: Callable[[Path], object]
    run: Callable[[Table], object]
    after: Rows
    sparse: int


CASES = {
    "commit and fold": Case(indexed, lambda t: t.upsert(frame({k: CHANGED[k] for k in ("k1", "n0")})), CHANGED, 6),
    "build": Case(lambda path: new_table(path, START), build, START, 3),
    "drop": Case(indexed, drop, START, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_kill_at_every_change(name: str, tmp_path: Path) -> None:
    """R92, R110: bitmaps are part of the commit, and of no commit that failed."""
    case, template, path = CASES[name], tmp_path / "template", tmp_path / "t"
    case.prepare(template)
    copy = partial(fresh_copy, template, path)
    died = 0
    for found in deaths(copy, writes(case.run), ("after", "during"), sparse=case.sparse):
        died += 1
        rows = read(found)
        assert rows in (START, case.after)
        table = Table.open(found)
        same_answers(table, *ASKED)
        table.upsert(frame(NEXT))
        check_table(found, {**rows, **NEXT})
        same_answers(table, *ASKED)
        if name != "drop":
            build(table)
            table.indexes.refresh("idx")
            assert uncovered(table, *COLUMNS) == []
            assert len(run_names(table)) <= 5
        else:
            drop(table)
            assert defined(table) == {}
            build(table)
            assert uncovered(table, *COLUMNS) == []
        same_answers(table, *ASKED)
        check_table(found, {**rows, **NEXT})
    assert died > 3


def test_kill_a_delta_commit(tmp_path: Path) -> None:
    """Coverage of log files that came to nothing counts for nobody."""
    template, path = tmp_path / "template", tmp_path / "t"
    indexed_logs(template)
    write = writes(lambda t: t.upsert(frame({key: CHANGED[key] for key in ("k1", "n0")})))
    died = 0
    for found in deaths(partial(fresh_copy, template, path), write, ("after", "during"), sparse=6):
        died += 1
        rows = read(found)
        assert rows in (START, CHANGED)
        table = Table.open(found)
        same_answers(table, *ASKED)
        table.upsert(frame(NEXT))
        assert read(found) == {**rows, **NEXT}
        same_answers(table, *ASKED)
        assert table.indexes.stats("idx").files_uncovered == 0
        assert not table.indexes.validate("idx").differences
    assert died > 3


def test_kill_inside_of_a_fold(tmp_path: Path) -> None:
    """Each step after the commit is complete: outputs, the manifest, removal of what the fold before put together."""
    template, path = tmp_path / "template", tmp_path / "t"
    indexed_again(template)
    fresh = {key: (city, 9, v) for key, (city, _, v) in START.items()}
    # One partition after the other, so that two runs have something that counts and the fold has to write.
    Table.open(template).upsert(frame({key: row for key, row in fresh.items() if row[0] == "b"}))
    write = writes(lambda t: t.upsert(frame({key: row for key, row in fresh.items() if row[0] == "a"})))
    copy = partial(fresh_copy, template, path)
    for call, part in (("write", "fold_00000.hfile"), ("create", "manifest_"), ("delete", "run_")):
        for when in ("before", "after") if call == "delete" else ("after", "during"):
            found, storage = copy(), FaultyStorage(Faults(1, when, only=(call, part)))
            assert run_child(partial(write, found, storage)) == KILLED, (call, part, when)
            assert read(found) == fresh, "the commit was complete"
            table = Table.open(found)
            same_answers(table, *ASKED)
            for ts in range(10, 14):
                table.upsert(frame({key: (city, ts, v) for key, (city, _, v) in START.items()}))
            assert uncovered(table, *COLUMNS) == []
            assert len(files_in_folder(table)) <= 10
            same_answers(table, *ASKED)
