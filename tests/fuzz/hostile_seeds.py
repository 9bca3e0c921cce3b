"""Tables in every state that a dead writer leaves, to be damaged: versions 6, 8 and 9, written by lakedex.

They are checked in, since instants and file names are others each time that one is made;
``PYTHONPATH=src:tests python -m fuzz.hostile_seeds`` makes them anew.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from faults import run_child
from fuzz.seeds import GOLDEN
from lakedex import Table
from lakedex.io.storage import TableFiles
from lakedex.local.session import LocalSession
from lakedex.snapshot.snapshot import TableContext
from lakedex.testing import Faults, FaultyStorage
from lakedex.timeline.instant import wall_clock
from lakedex.write.create_table import create_table

__all__ = ["PARTITIONS", "STATES", "VERSIONS", "rows", "seed_files", "seed_names"]

ARCHIVE = GOLDEN / "hostile" / "tables.tar.xz"
VERSIONS = ("6", "8", "9")
PARTITIONS = ("oslo", "rome")
SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("color", pa.string()), ("ts", pa.int64()), ("n", pa.int64())]
)
OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.clean.commits.retained": "2",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}


def rows(first: int, last: int, round_: int) -> pa.Table:
    """Rows ``k<first>`` to before ``k<last>`` as a commit of number ``round_`` has them."""
    numbers = range(first, last)
    return pa.table(
        [
            [f"k{number}" for number in numbers],
            [PARTITIONS[number % 2] for number in numbers],
            [("red", "blue", "green")[number % 3] for number in numbers],
            [round_] * len(numbers),
            [100 * round_ + number for number in numbers],
        ],
        schema=SCHEMA,
    )


BEGIN_MS = 1_737_000_000_000
"""Instants count on from here: writes are refused on a timeline that is ahead of the clock."""
_STARTED = wall_clock()


def _table(path: Path, faults: Faults, options: Mapping[str, str] = OPTIONS) -> Table:
    session = LocalSession()
    storage, engine = FaultyStorage(faults), session.engine
    context = TableContext(
        TableFiles(storage, str(path)), engine, options, now_ms=lambda: BEGIN_MS + wall_clock() - _STARTED
    )
    return Table(context, session)


def _sound(path: Path, version: str) -> None:
    """Indexes, archived commits, a clean, a rollback, a savepoint, replaced files, and commits since."""
    table = _table(path, Faults(), {**OPTIONS, "hoodie.write.table.version": version})
    create_table(
        table.context,
        name=None,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["city"],
        ordering_by=["ts"],
        table_type="cow",
        exist_ok=False,
        options=table.context.options,
    )
    for number in range(5):
        table.upsert(rows(0, 8 + number, number))
    table.indexes.create("bitmap", ["color"], name="colors")
    table.maintenance.rollback(str(table.upsert(rows(0, 4, 5)).instant))
    table.maintenance.compact_metadata()
    table.maintenance.archive()
    table.insert_overwrite(rows(0, 12, 6))
    table.maintenance.savepoint(comment="good")
    table.upsert(rows(0, 6, 7))
    table.maintenance.clean(commits=1)
    table.upsert(rows(4, 14, 8))


def _write(table: Table) -> None:
    table.upsert(rows(2, 9, 9))


def _roll_back(table: Table) -> None:
    table.maintenance.rollback(str(table.inspect.history(1)["commit_time"][0]))


def _restore(table: Table) -> None:
    table.maintenance.restore(str(table.maintenance.savepoints()["instant"][0]))


def _clean(table: Table) -> None:
    table.maintenance.clean(versions=1)


_DEATHS: Mapping[str, tuple[Callable[[Table], None], str, str, str]] = {
    "restored": (_restore, "", "", ""),
    "written": (_write, "before", "create", ".commit"),
    "clean_planned": (_clean, "after", "create", ".clean.requested"),
    "clean_begun": (_clean, "after", "create", ".clean.inflight"),
    "rollback_planned": (_roll_back, "after", "create", ".rollback.requested"),
    "rollback_begun": (_roll_back, "after", "create", ".rollback.inflight"),
    "restore_begun": (_restore, "after", "create", ".restore.inflight"),
    "compaction_planned": (
        lambda table: (table.maintenance.compact_metadata(), None)[1],
        "after",
        "create",
        ".compaction.requested",
    ),
}
"""By state: what the writer did, and at which change it died, if it did."""
STATES = ("sound", *_DEATHS)


def _dead(sound: Path, path: Path, state: str) -> None:
    action, when, call, part = _DEATHS[state]
    shutil.copytree(sound, path)

    def act(faults: Faults) -> None:
        action(_table(path, faults))

    if not call:
        act(Faults())
        return
    # A commit's pending files have its action in their names too, so the completed one is told by number.
    with tempfile.TemporaryDirectory() as copy:
        trial = Path(copy) / "trial"
        shutil.copytree(sound, trial)
        seen = Faults()
        action(_table(trial, seen))
    hits = [
        number
        for number, (name, where) in enumerate(seen.seen, 1)
        if name == call and (where.endswith(part) if part == ".commit" else part in where)
    ]
    assert hits, f"{state}: nothing to die at among {seen.seen}"
    assert run_child(lambda: act(Faults(hits[0], when))) == -9


def _made() -> bytes:
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=out, mode="w:xz") as archive:
        for version in VERSIONS:
            sound = Path(folder) / version / "sound" / "table"
            _sound(sound, version)
            for state in STATES[1:]:
                _dead(sound, Path(folder) / version / state / "table", state)
            for state in STATES:
                for path in sorted((Path(folder) / version / state / "table").rglob("*")):
                    # A lock of a process on another machine is waited for, until it is given up.
                    if path.is_file() and path.name != "lock":
                        info = tarfile.TarInfo(
                            f"{version}/{state}/{path.relative_to(folder).as_posix().split('/', 3)[3]}"
                        )
                        data = path.read_bytes()
                        info.size = len(data)
                        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@cache
def _all() -> Mapping[str, Mapping[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            version, state, path = member.name.split("/", 2)
            source: Any = archive.extractfile(member)
            found.setdefault(f"{version}/{state}", {})[path] = source.read()
    return found


def seed_names() -> tuple[str, ...]:
    """``<version>/<state>`` of all tables."""
    return tuple(_all())


def seed_files(name: str) -> Mapping[str, bytes]:
    """The files of one, by path within the table."""
    return _all()[name]


if __name__ == "__main__":
    ARCHIVE.parent.mkdir(exist_ok=True)
    ARCHIVE.write_bytes(_made())
