"""Rows staged by tasks, and the write of them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import CommitError, InvalidInputError
from lakedex.io.locations import open_storage
from lakedex.spark.staged_rows import StagingArea
from lakedex.spark.staged_write import NewTable, TableWrite

ROWS = pa.table({"id": ["a", "b"], "n": [1, 2]})
WEEK_MS = 7 * 24 * 60 * 60 * 1000


def area_of(path: Path | str) -> StagingArea:
    files = open_storage(path)
    return StagingArea.of(files)


def write_of(path: Path) -> TableWrite:
    return TableWrite(files=open_storage(path), new=NewTable(record_key=("id",)))


@pytest.mark.parametrize("url", [False, True])
def test_only_committed_attempts_are_read_in_the_order_of_their_tasks(tmp_path: Path, url: bool) -> None:
    area: StagingArea = pickle.loads(pickle.dumps(area_of("memory://staged/t" if url else tmp_path / "t")))
    empty = area.write([])
    first, again, second = (area.write(ROWS.slice(at, 1).to_batches()) for at in (0, 0, 1))
    assert (empty.name, again.rows) == (None, 1)
    assert area.read([second, empty, first], ROWS.schema).to_pydict() == {"id": ["b", "a"], "n": [2, 1]}
    assert area.read([empty], ROWS.schema).num_rows == 0
    area.remove()
    assert not area.files.storage.list(area.folder)
    with pytest.raises(CommitError, match="nothing was written, write again"):
        area.read([first], ROWS.schema)


def test_folders_lie_in_the_table_and_old_ones_go(tmp_path: Path) -> None:
    area = area_of(tmp_path / "t")
    area.write(ROWS.to_batches())
    area.remove()
    assert not (tmp_path / "t").exists()
    write_of(tmp_path / "t").commit(ROWS)
    old, young = area_of(tmp_path / "t"), area_of(tmp_path / "t")
    written = [tmp_path / "t" / ".hoodie" / ".temp" / Path(a.folder).name for a in (old, young)]
    for one in (old, young):
        one.write(ROWS.to_batches())
    now = max(os.stat(file).st_mtime_ns for folder in written for file in folder.iterdir()) // 1_000_000
    for file in written[0].iterdir():
        os.utime(file, (now / 1000 - 10, now / 1000 - 10))
    young.remove_abandoned(now + WEEK_MS - 5_000)
    assert [folder.exists() for folder in written] == [False, True]


def test_a_batch_is_written_once(tmp_path: Path) -> None:
    write = write_of(tmp_path / "t")
    assert write.require_writable(ROWS.schema) == ()
    assert write.commit(ROWS, txn=("app", 1)).inserted == 2
    assert write.commit(ROWS, txn=("app", 1)).instant is None
    assert Table.open(tmp_path / "t").inspect.history().num_rows == 1


def test_a_table_that_cannot_take_its_first_rows_is_taken_back(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="null or empty record key"):
        write_of(tmp_path / "t").commit(pa.table({"id": ["a", None], "n": [1, 2]}))
    assert not Table.is_table(tmp_path / "t")
