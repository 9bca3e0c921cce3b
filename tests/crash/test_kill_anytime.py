"""A writer is killed at a random moment: no commit is lost, none shows by half, the next write succeeds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from faults import start_child
from lakedex import Table
from table_checks import Rows, frame, new_table, read, rounds

pytestmark = pytest.mark.heavy

OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.metadata.compact.max.delta.commits": "2",
}
"""Cleaning, compaction of the metadata table and archival are due all the time."""
KILLS = rounds(500, 50, 10)
"""A seed, and there are two."""


def rows_after(number: int) -> Rows:
    """What the table holds after write ``number``."""
    return {f"k{n}": ("ab"[n % 2], number, number * 100 + n) for n in range(6 + number % 3 if number % 4 == 0 else 6)}


def write(path: Path, number: int) -> None:
    """Write ``number``: all rows change, in one commit. Every fourth replaces the table, and one more takes keys away."""
    table = Table.open(path, options=OPTIONS)
    if number % 4 in (0, 1):
        table.insert_overwrite(frame(rows_after(number)), "table")
    else:
        table.upsert(frame(rows_after(number)))


def write_on(path: Path, first: int, said: int) -> None:
    """Write for ever; say each commit once it is one."""
    for number in range(first, first + 1000):
        write(path, number)
        os.write(said, number.to_bytes(4, "big"))


def killed_after(path: Path, first: int, seconds: float) -> int:
    """Let a child write for so long; the last write that it called done."""
    reading, said = os.pipe()
    child = start_child(lambda: write_on(path, first, said))
    os.close(said)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        done = pipe.read()
    return int.from_bytes(done[-4:], "big") if done else first - 1


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment(seed: int, tmp_path: Path) -> None:
    """Fifty kills a seed, in writes and in the services that follow them."""
    rng = random.Random(seed)
    path = tmp_path / "t"
    new_table(path, rows_after(0), OPTIONS)
    number, unfinished = 0, 0
    for kill in range(KILLS):
        done = killed_after(path, number + 1, rng.uniform(0.0, 0.4))
        rows = read(path)
        # What it said is there; the write after it is there as a whole or not at all.
        assert rows in (rows_after(done), rows_after(done + 1)), f"kill {kill} after write {done}"
        number = done if rows == rows_after(done) else done + 1
        unfinished += number == done
        write(path, number + 1)
        number += 1
        assert read(path) == rows_after(number)
        if kill % 10 == 9:
            shutil.copytree(path, tmp_path / "copy")
            write(tmp_path / "copy", number + 1)
            report = Table.open(tmp_path / "copy").maintenance.validate()
            assert report.ok, str(report)
            shutil.rmtree(tmp_path / "copy")
    assert unfinished > (KILLS / 4 if KILLS >= 50 else 0)
    assert not (path / ".hoodie/.temp").exists() or not list((path / ".hoodie/.temp").iterdir())
