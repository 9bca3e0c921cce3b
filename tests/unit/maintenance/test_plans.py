"""Dry runs of services say what the service then does, and change nothing; repair leaves nothing to find."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError
from table_kit import make, own, picture, rows

SHORT = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
UNCLEANED = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def started(path: Path, commits: int = 3) -> Table:
    table = make(path, partition_by="city", options=UNCLEANED)
    for number in range(commits):
        table.upsert(rows(("a", "x", number, number), (f"k{number}", "y", number, number)))
    return table


def last(table: Table) -> str:
    found: str = table.inspect.history(1)["commit_time"][0].as_py()
    return found


def saved(table: Table) -> str:
    kept = table.maintenance.savepoint()
    table.upsert(rows(("b", "z", 1, 1)))
    table.delete(["a"], all_partitions=True)
    return kept


CALLS: dict[str, Callable[[Table], Callable[..., object]]] = {
    "rollback": lambda table: partial(table.maintenance.rollback, last(table)),
    "restore": lambda table: partial(table.maintenance.restore, saved(table)),
    "archive": lambda table: partial(table.maintenance.archive, options=SHORT),
    "compact_metadata": lambda table: table.maintenance.compact_metadata,
    "clean": lambda table: partial(table.maintenance.clean, commits=1),
}


@pytest.mark.parametrize("service", CALLS)
def test_a_dry_run_is_what_comes(service: str, tmp_path: Path) -> None:
    table = started(tmp_path, 5)
    if service == "archive":
        table.maintenance.compact_metadata()
    call = CALLS[service](table)
    before = picture(tmp_path)
    planned = call(dry_run=True).to_dict()
    assert picture(tmp_path) == before
    assert planned.pop("dry_run") and planned.pop("seconds") >= 0
    done = call().to_dict()
    assert picture(tmp_path) != before
    assert not done.pop("dry_run")
    del done["seconds"]
    if service == "compact_metadata":
        planned, done = ({name: one[name] for name in ("file_groups", "log_files")} for one in (planned, done))
        assert planned["log_files"] > 0
    elif service != "archive":
        assert (planned.pop("instant"), bool(done.pop("instant"))) == (None, True)
    assert planned == done


def test_a_dry_run_refuses_what_the_service_refuses(tmp_path: Path) -> None:
    table = started(tmp_path)
    first = table.inspect.history()["commit_time"][-1].as_py()
    with pytest.raises(InvalidInputError, match="commits came after"):
        table.maintenance.rollback(first, dry_run=True)
    with pytest.raises(InvalidInputError, match="no savepoint"):
        table.maintenance.restore(first, dry_run=True)


def test_repair_leaves_nothing_to_find(tmp_path: Path) -> None:
    """A dead write, a bitmap index that lacks a file, and a listing with a file that storage does not have."""
    table = started(tmp_path)
    table.indexes.create("bitmap", ["n"], name="by_n", partitions=["city=x"])
    (dead := tmp_path / ".hoodie/timeline/20000101000000000.commit.requested").touch()
    os.utime(dead, (time.time() - 3600,) * 2)
    current = set(table.inspect.files()["file_name"].to_pylist())
    old = next(file for file in tmp_path.glob("city=x/*.parquet") if file.name not in current)
    old.unlink()
    before, known = picture(tmp_path), own(table)
    planned = table.maintenance.repair(dry_run=True)
    assert planned.dead_writes == ("20000101000000000",) and planned.rebuilds_metadata
    assert planned.stale_indexes == ("by_n",) and planned.ok
    assert "would be repaired" in str(planned) and "refresh the index by_n" in str(planned)
    assert picture(tmp_path) == before
    done = table.maintenance.repair()
    assert (done.steps, done.left, done.dry_run) == (planned.steps, (), False)
    assert not dead.exists()
    assert table.maintenance.validate().ok and table.indexes.stats("by_n").files_uncovered == 0
    assert own(Table.open(tmp_path)) == known
    assert table.maintenance.repair().steps == ()


def test_repair_says_what_is_lost(tmp_path: Path) -> None:
    """The newest file of a group is gone: no repair brings its rows back."""
    table = started(tmp_path)
    file = table.inspect.files().to_pylist()[0]
    (tmp_path / file["partition"] / file["file_name"]).unlink()
    result = Table.open(tmp_path).maintenance.repair()
    assert not result.ok
    assert [one.kind for one in result.left] == ["lost file"]
    assert f"lost file of {file['partition']}/{file['file_name']}" in str(result)
