"""A small table for crash and concurrency tests, and what must be true of it whatever happened."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from faults import run_child
from lakedex import Table
from lakedex.index.bitmap.run_files import list_runs
from lakedex.index.column_stats.stats import stat_of
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.names import parse_base_file_name, parse_log_file_name
from lakedex.metadata.records import partition_stats_key
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.instant import State

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
Rows = dict[str, tuple[str, int, int]]
"""Record key → city, ts, v."""

START: Rows = {f"k{i}": ("ab"[i % 2], 1, i) for i in range(8)}
"""What the table of a test holds before."""
NEXT: Rows = {"k0": ("a", 9, 900), "n1": ("b", 9, 901)}
"""What the write after a crash upserts."""
KILLED = -signal.SIGKILL
WHENS = ("before", "after", "during")
THOROUGH = os.environ.get("LAKEDEX_HYPOTHESIS_PROFILE") == "deep"
"""Fail or die at every change of every kind of write; else at some of them."""
BRIEF = os.environ.get("LAKEDEX_HYPOTHESIS_PROFILE") == "small"
"""A first look, as in ``./dev test``; tests that look at it are marked ``seeded``."""


def rounds(full: int, few: int, brief: int | None = None) -> int:
    """How often something is done: in full in the deep profile, less often in each run of CI, least in a first look."""
    return full if THOROUGH else brief if BRIEF and brief is not None else few


def fresh_copy(template: Path, path: Path) -> Path:
    """A copy of a table in the place of what is at ``path``, for writers that change no file in its place, as ours.

    The files are links: a table has hundreds, and to copy and free them took a quarter of the crash tests' time.
    """
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(template, path, copy_function=os.link)
    return path


def frame(rows: Mapping[str, tuple[str, int, int]]) -> pa.Table:
    """Rows as a frame."""
    return pa.Table.from_pylist(
        [{"id": key, "city": city, "ts": ts, "v": v} for key, (city, ts, v) in rows.items()], SCHEMA
    )


def rows_of(found: pa.Table) -> Rows:
    """A frame as rows; a key that comes twice is an error."""
    rows = {row["id"]: (row["city"], row["ts"], row["v"]) for row in found.to_pylist()}
    keys = found.column("id").to_pylist()
    assert len(rows) == len(keys), f"doubled keys: {sorted(key for key in rows if keys.count(key) > 1)}"
    return rows


def read(path: Path) -> Rows:
    """All rows, read by somebody who knows nothing but the path."""
    return rows_of(Table.open(path).to_arrow())


def new_table(path: Path, rows: Rows, options: Mapping[str, str] | None = None, partitioned: bool = True) -> Table:
    """A table with these rows."""
    partition_by = ["city"] if partitioned else []
    table = Table.create(path, SCHEMA, record_key="id", partition_by=partition_by, ordering_by="ts", options=options)
    if rows:
        table.upsert(frame(rows))
    return table


def timeline_of(path: Path) -> list[tuple[str, str, State]]:
    """(requested, action, state) of all instants of the data timeline."""
    snapshot = Table.open(path).snapshot()
    return [(i.requested, i.action, i.state) for i in snapshot.timeline.instants]


def commit_files(path: Path) -> set[str]:
    """Names of completed commits and replace commits."""
    folder = path / ".hoodie/timeline"
    names = (entry.name for entry in (folder if folder.exists() else folder.parent).iterdir())
    return {name for name in names if re.fullmatch(r"\d+(_\d+)?\.(replace)?commit", name)}


def pending_commits(path: Path) -> set[str]:
    """Requested times of commits that have begun and not completed."""
    writes = ("commit", "replacecommit")
    commits = ((requested, state) for requested, action, state in timeline_of(path) if action in writes)
    return {requested for requested, state in commits if state is not State.COMPLETED}


def base_files(path: Path) -> set[str]:
    """Relative paths of all Parquet files that are on disk, those of the timeline's history left out."""
    found = {file.relative_to(path) for file in path.rglob("*.parquet")}
    return {str(file) for file in found if file.parts[0] != ".hoodie"}


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")} if folder.is_dir() else set()


def check_table(path: Path, rows: Rows, *, index_builds: bool = False) -> None:
    """The table holds these rows, by every way to read it, and nothing of any failed write is left.

    With ``index_builds`` the metadata table may have commits of its own.
    """
    table = Table.open(path)
    assert rows_of(table.to_arrow()) == rows
    for where, wanted in _questions(rows):
        assert rows_of(table.scan(where).to_arrow()) == wanted, where
    snapshot = table.snapshot()
    timeline = snapshot.timeline
    assert timeline.pending() == ()
    assert len(timeline.instants) == len(timeline.completed())
    for rollback in timeline.completed({"rollback"}):
        undone = timeline.rollback_metadata(rollback)
        # The plan of a clustering stays, and is run under its own instant.
        gone = undone.action == "clustering" or not timeline.contains(undone.instant)
        assert gone, f"{undone.instant} was rolled back and is still there"
    _check_data_files(path, snapshot)
    _check_metadata_files(path, snapshot, index_builds)
    _check_partition_stats(snapshot, rows)
    runs = list_runs(TableFiles(LocalStorage(), str(path)))
    assert set(runs.manifest.runs) <= {run.name for run in runs.runs}
    for folder in (".temp", ".heartbeat"):
        assert _names(path / ".hoodie" / folder) == set()
    assert not (path / ".hoodie/lock").exists()
    assert not (path / ".hoodie/hoodie.properties.backup").exists()


def _questions(rows: Rows) -> Iterable[tuple[str, Rows]]:
    """Conditions that the indexes prune by, with their answers."""
    some = next(iter(rows), "none")
    yield f"id = '{some}'", {some: rows[some]} if rows else {}
    middle = sorted(v for _, _, v in rows.values())[len(rows) // 2] if rows else 0
    yield f"v >= {middle}", {key: row for key, row in rows.items() if row[2] >= middle}
    yield f"v < {middle}", {key: row for key, row in rows.items() if row[2] < middle}


def _check_data_files(path: Path, snapshot: Any) -> None:
    listed = {f"{partition}/{name}".lstrip("/") for partition, files in snapshot.listing().items() for name in files}
    on_disk = base_files(path)
    assert on_disk == listed, f"not listed: {sorted(on_disk - listed)}; not there: {sorted(listed - on_disk)}"
    for name in on_disk:
        parsed = parse_base_file_name(name.rsplit("/", 1)[-1])
        assert parsed is not None
        assert snapshot.timeline.is_committed(parsed.instant)


OWN_ACTIONS = ("commit", "clean")
"""What the metadata table does for itself, at instants of its own: compactions and cleans."""


def _check_metadata_files(path: Path, snapshot: Any, index_builds: bool) -> None:
    own = snapshot.metadata.timeline
    assert own.pending() == ()
    for instant in own.instants:
        known = snapshot.timeline.is_completed(instant.requested) or instant.action in OWN_ACTIONS
        first = instant.requested.startswith("00000000000000")
        assert known or first or index_builds, f"metadata commit {instant} is an orphan"
    for partition in snapshot.config.metadata_partitions:
        for entry in (path / ".hoodie/metadata" / partition).iterdir():
            log = parse_log_file_name(entry.name)
            if log is not None:
                opened = snapshot.metadata.log_file(str(entry), entry.stat().st_size)
                instants = {log.instant, *(block.instant for block in opened.blocks if block.instant)}
                assert all(map(own.is_committed, instants)), f"metadata log file {entry.name} is an orphan"


def _check_partition_stats(snapshot: Any, rows: Rows) -> None:
    """Java prunes whole partitions by these."""
    if not snapshot.metadata.has("partition_stats"):
        return
    records = snapshot.metadata.scan("partition_stats")
    for city in {city for city, _, _ in rows.values()}:
        values = [v for found, _, v in rows.values() if found == city]
        stat = stat_of(records[partition_stats_key("v", f"city={city}")], pa.int64())
        assert stat is not None
        assert stat.minimum <= min(values)
        assert stat.maximum >= max(values)
        assert stat.value_count == len(values)


# -------------------------------------------------------------------------------------------------------- deaths


def deaths(
    make: Callable[[], Path],
    run: Callable[[Path, FaultyStorage], object],
    whens: Sequence[str] = WHENS,
    sparse: int = 1,
) -> Iterator[Path]:
    """Tables in which a child died, at each change that ``run`` makes.

    ``sparse`` leaves changes out in quick runs. With 2 no state of the disk between two changes is left out: after the
    first is before the second.
    """
    step = 1 if THOROUGH else sparse
    for when in whens:
        for at in count(max(step // 2, 1) if when == "after" else 1, step):
            path, storage = make(), FaultyStorage(Faults(at, when))
            code = run_child(partial(run, path, storage))
            if code == 0:
                break  # it makes fewer changes than that
            assert code == KILLED, f"ended with {code}"
            yield path


def writes(write: Callable[[Table], object]) -> Callable[[Path, FaultyStorage], object]:
    """A write on a faulty storage."""
    return lambda path, storage: write(open_table(path, storage))
