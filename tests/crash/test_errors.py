"""Changes that fail with an error instead of a crash: at each change of a write, once or from there on."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakedex import Table
from lakedex.errors import CommitStateUnknownError, LakedexError, StorageError
from lakedex.io.storage import TableFiles
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.table_config import read_table_config
from table_checks import (
    SCHEMA,
    START,
    THOROUGH,
    Rows,
    base_files,
    check_table,
    commit_files,
    frame,
    fresh_copy,
    new_table,
    pending_commits,
    read,
)

pytestmark = pytest.mark.heavy

CHANGE: Rows = {"k1": ("b", 5, 100), "n0": ("a", 5, 101), "n9": ("c", 5, 102)}
NEXT: Rows = {"k0": ("a", 9, 900), "n1": ("b", 9, 901)}
IMPATIENT = {"hoodie.client.heartbeat.interval_in_ms": "1", "hoodie.client.heartbeat.tolerable.misses": "1"}
"""A write that does not beat for two milliseconds counts as dead."""
DATA_COMPLETION = ("create", "table/.hoodie/timeline/2")
METADATA_COMPLETION = ("create", "/metadata/.hoodie/timeline/2")
THIRD = 3
"""Of an action's three files the completed one."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("errors") / "template"
    new_table(path, START)
    return path


def failures(
    template: Path, path: Path, when: str, step: int, error: Exception, **more: Any
) -> Iterator[tuple[Faults, Exception | None]]:
    """An upsert of :data:`CHANGE` for each change that can fail: the faults and what was raised."""
    for at in count(1, 1 if THOROUGH else step):
        fresh_copy(template, path)
        faults = Faults(at, when, error, **more)
        raised: Exception | None = None
        try:
            open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
        except LakedexError as caught:
            raised = caught
        if len(faults.seen) < at:
            return
        yield faults, raised


@pytest.mark.parametrize(("when", "step"), [("before", 2), ("after", 5)])
def test_one_change_fails(template: Path, path: Path, when: str, step: int) -> None:
    before = commit_files(template)
    outcomes = set()
    for faults, raised in failures(template, path, when, step, OSError(errno.EIO, "the disk hiccups")):
        committed = bool(commit_files(path) - before)
        rows = {**START, **CHANGE} if committed else START
        assert read(path) == rows
        assert (raised is None) == committed, f"change {faults.at} of {faults.seen}"
        outcomes.add(type(raised))
        unknown = isinstance(raised, CommitStateUnknownError)
        assert bool(pending_commits(path)) == unknown, f"change {faults.at} of {faults.seen}"
        # Impatient: a heartbeat that could not be deleted looks alive as long as it is fresh.
        Table.open(path).upsert(frame(NEXT), options=IMPATIENT)
        check_table(path, {**rows, **NEXT})
    # Every other change need not hit one of the few that come after the completion.
    assert StorageError in outcomes and (type(None) in outcomes or not THOROUGH)
    assert CommitStateUnknownError not in outcomes or when == "before"


def test_the_disk_stays_bad(template: Path, path: Path) -> None:
    """Nothing can be undone then, not even the lock given back; the next write of this process does it all."""
    before = commit_files(template)
    for faults, raised in failures(template, path, "before", 6, OSError(errno.EROFS, "read only now"), repeat=True):
        committed = bool(commit_files(path) - before)
        rows = {**START, **CHANGE} if committed else START
        assert read(path) == rows
        assert (raised is None) == committed, f"change {faults.at} of {faults.seen}"
        Table.open(path).upsert(frame(NEXT), options=IMPATIENT)
        check_table(path, {**rows, **NEXT})


@pytest.mark.parametrize("only", [DATA_COMPLETION, METADATA_COMPLETION], ids=["data", "metadata"])
def test_nobody_knows_whether_it_took_effect(path: Path, only: tuple[str, str]) -> None:
    new_table(path, START)
    files = base_files(path)
    faults = Faults(THIRD, "before", ConnectionError("no answer"), only=only)
    with pytest.raises(CommitStateUnknownError) as caught:
        open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
    assert pending_commits(path) == {caught.value.instant}
    assert len(base_files(path) - files) == 3, "its files must stay"
    assert read(path) == START
    # Another writer that comes early leaves it alone; one that comes late undoes it.
    early = Table.open(path).upsert(frame(NEXT))
    assert early.notes == ()
    assert read(path) == {**START, **NEXT}
    late = Table.open(path).upsert(frame({"k3": ("b", 9, 903)}), options=IMPATIENT)
    assert any(caught.value.instant in note for note in late.notes)
    check_table(path, {**START, **NEXT, "k3": ("b", 9, 903)})


@pytest.mark.parametrize("only", [DATA_COMPLETION, METADATA_COMPLETION], ids=["data", "metadata"])
def test_the_answer_is_lost_but_it_took_effect(path: Path, only: tuple[str, str]) -> None:
    new_table(path, START)
    faults = Faults(THIRD, "after", ConnectionError("no answer"), only=only)
    result = open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
    assert (result.inserted, result.updated) == (2, 1)
    check_table(path, {**START, **CHANGE})


def test_it_takes_effect_after_all(path: Path) -> None:
    """The completed file that nobody knew of appears later: the commit counts, and nothing of it was deleted."""
    new_table(path, START)
    late: list[tuple[str, bytes]] = []

    class Delayed(FaultyStorage):
        def create(self, path: str, data: bytes) -> None:
            if path.endswith(".commit") and "/metadata/" not in path:
                late.append((path, data))
                raise TimeoutError("no answer")
            super().create(path, data)

    with pytest.raises(CommitStateUnknownError):
        open_table(path, Delayed()).upsert(frame(CHANGE))
    assert read(path) == START
    ((completed, body),) = late
    Path(completed).write_bytes(body)
    assert read(path) == {**START, **CHANGE}
    Table.open(path).upsert(frame(NEXT), options=IMPATIENT)
    check_table(path, {**START, **CHANGE, **NEXT})


def test_an_interrupt_is_undone(path: Path) -> None:
    new_table(path, START)

    def interrupt() -> None:
        raise KeyboardInterrupt

    faults = Faults(2, "after", only=("close_output", ".parquet"), hook=interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
    check_table(path, START)


def test_a_note_tells_of_what_could_not_be_tidied(path: Path) -> None:
    new_table(path, START)
    faults = Faults(1, "before", OSError(errno.EIO, "busy"), only=("delete_tree", ".temp"))
    result = open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
    assert any("temporary files" in note for note in result.notes)
    Table.open(path).upsert(frame(NEXT))
    check_table(path, {**START, **CHANGE, **NEXT})


# ----------------------------------------------------------------------------------------------- Hadoop's side files


def side_file(path: Path, name: str) -> Path:
    """A checksum file as Hadoop's local file system makes it, of other bytes."""
    target = path / ".hoodie" / name
    stale = target.with_name(f".{target.name}.crc")
    stale.write_bytes(b"crc\0\0\0\x02\0stale")
    return stale


def test_side_files_of_rewritten_files_go(path: Path) -> None:
    """Java would refuse our bytes by the checksum of its own."""
    new_table(path, START)
    index = side_file(path, ".index_defs/index.json")
    wide: Callable[[int], Any] = lambda v: frame({"n0": ("a", 5, v)}).append_column("more", [[v]])  # noqa: E731
    Table.open(path).upsert(wide(7))
    assert "more" in (path / ".hoodie/.index_defs/index.json").read_text()
    assert not index.exists()
    settings, backup = side_file(path, "hoodie.properties"), side_file(path, "hoodie.properties.backup")
    shutil.move(path / ".hoodie/hoodie.properties", path / ".hoodie/hoodie.properties.backup")
    Table.open(path).upsert(wide(8))  # brings the settings back from the backup
    assert not settings.exists()
    assert not backup.exists()
    assert read_table_config(TableFiles(FaultyStorage(), str(path))).name == "table"
    check_table(path, {**START, "n0": ("a", 5, 8)})


def test_side_files_of_removed_files_go(path: Path) -> None:
    Table.create(path, SCHEMA, record_key="id", partition_by=["city"], ordering_by="ts")
    faults = Faults(1, "after", only=("close_output", ".parquet"), hook=lambda: side_files_of_data(path))
    with pytest.raises(OSError, match="stop"):
        open_table(path, StopBeforeCommit(faults)).upsert(frame(START))
    assert not list(path.rglob("*.parquet.crc"))
    assert not list(path.rglob(".*.parquet.crc"))


class StopBeforeCommit(FaultyStorage):
    def create(self, path: str, data: bytes) -> None:
        if "/metadata/.hoodie/timeline/2" in path:
            raise OSError("stop")
        super().create(path, data)


def side_files_of_data(path: Path) -> None:
    for found in path.rglob("*.parquet"):
        found.with_name(f".{found.name}.crc").write_bytes(b"crc")
