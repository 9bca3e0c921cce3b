"""``txn=(application, batch)``: batches that count once, through replays, Hudi's commits, archival and undone commits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.commit.idempotency import BATCHES_KEY, last_batches
from lakedex.errors import CorruptFileError, InvalidInputError
from lakedex.timeline.commit_metadata import decode_commit_metadata, encode_commit_metadata
from lakedex.types import Operation
from seams import meanwhile
from table_kit import ROWS, make, own, rows

ONE, TWO, THREE = (rows((key, "a", 1, number)) for number, key in enumerate("123", 1))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make(tmp_path / "t", schema=ROWS, partition_by="city", ordering_by="ts")


def batches(table: Table) -> dict[str, int]:
    return {name: batch for name, (batch, _) in last_batches(table.snapshot()).items()}


def rewrite(table: Table, change: Callable[[dict[str, str]], dict[str, str]], place: int = -1) -> None:
    """Change the extra metadata of a commit behind the table's back."""
    timeline = table.snapshot().timeline
    file = Path(timeline.path) / timeline.completed()[place].file_name
    metadata = decode_commit_metadata(file.read_bytes())
    changed = type(metadata)(
        operation=metadata.operation, write_stats=metadata.write_stats, extra=change(dict(metadata.extra))
    )
    file.write_bytes(encode_commit_metadata(changed, 2))


def as_hudi(table: Table, place: int = -1) -> None:
    """A commit as one of Hudi's, which says nothing of batches."""
    rewrite(table, lambda extra: {key: value for key, value in extra.items() if key != BATCHES_KEY}, place)


def undo(table: Table) -> None:
    """Take the newest commit off the timeline, as a rollback does."""
    timeline = table.snapshot().timeline
    for file in Path(timeline.path).glob(f"{timeline.completed()[-1].requested}*"):
        file.unlink()


def archive(table: Table) -> None:
    """Move all commits but the newest one into the history, as Hudi's archiver does."""
    timeline = table.snapshot().timeline
    gone = timeline.completed()[:-1]
    bodies = [timeline.read(instant.file_name) for instant in gone]
    history = Path(timeline.path) / "history"
    history.mkdir(exist_ok=True)
    for number, (instant, body) in enumerate(zip(gone, bodies, strict=True)):
        pq.write_table(
            pa.table(
                {
                    "instantTime": [instant.requested],
                    "completionTime": [instant.completed],
                    "action": [instant.action],
                    "metadata": pa.array([body], pa.binary()),
                }
            ),
            history / f"1_2_{number}.parquet",
        )
    sizes = {file.name: file.stat().st_size for file in history.glob("*.parquet")}
    listed = [{"fileName": name, "fileLen": size} for name, size in sizes.items()]
    (history / "manifest_1").write_text(json.dumps({"files": listed}))
    (history / "_version_").write_text("1")
    for instant in gone:
        for file in Path(timeline.path).glob(f"{instant.requested}*"):
            file.unlink()


def test_a_replay_is_no_write(table: Table) -> None:
    first = table.upsert(ONE, txn=("app", 3))
    before = table.inspect.history().num_rows
    for batch in (3, 2, -1):
        again = table.upsert(TWO, txn=("app", batch))
        assert (again.instant, again.inserted, again.operation) == (None, 0, "UPSERT")
        assert f"commit {first.instant} wrote" in again.notes[0]
    assert table.inspect.history().num_rows == before
    assert table.upsert(TWO, txn=("app", 4)).inserted == 1
    assert table.upsert(THREE, txn=("other", 0)).inserted == 1
    assert batches(table) == {"app": 4, "other": 0}
    assert own(table, "id") == [("1",), ("2",), ("3",)]


def test_every_write_takes_a_batch(table: Table) -> None:
    def both(write: Callable[[tuple[str, int]], Any], batch: int, operation: Operation) -> None:
        assert write(("app", batch)).instant is not None
        replayed = write(("app", batch))
        assert replayed.instant is None
        assert replayed.operation == operation.value

    both(lambda txn: table.insert(ONE, txn=txn), 1, Operation.INSERT)
    both(lambda txn: table.bulk_insert(TWO, txn=txn), 2, Operation.BULK_INSERT)
    both(lambda txn: table.upsert(THREE, txn=txn), 3, Operation.UPSERT)
    both(lambda txn: table.delete(ONE, txn=txn), 4, Operation.DELETE)
    both(lambda txn: table.delete(where="n = 2", txn=txn), 5, Operation.DELETE)
    both(
        lambda txn: table.merge(ONE, "t.id = s.id").when_not_matched_insert_all().execute(txn=txn), 6, Operation.UPSERT
    )
    both(lambda txn: table.insert_overwrite(TWO, txn=txn), 7, Operation.INSERT_OVERWRITE)
    both(lambda txn: table.insert_overwrite(ONE, scope="table", txn=txn), 8, Operation.INSERT_OVERWRITE_TABLE)
    assert own(table, "id") == [("1",)]


def test_a_batch_without_an_effect_is_remembered(table: Table) -> None:
    table.upsert(ONE)
    empty = table.upsert(ROWS.empty_table(), txn=("app", 1))
    assert empty.instant is not None
    assert "remember the batch" in empty.notes[-1]
    assert table.delete(TWO, txn=("app", 2)).instant is not None
    late = rows(("1", "a", 0, 99))
    assert table.upsert(late, txn=("app", 3)).updated == 0
    nothing = table.merge(TWO, "t.id = s.id").when_matched_delete().execute(txn=("app", 4))
    assert nothing.instant is not None
    assert table.insert_overwrite(ROWS.empty_table(), txn=("app", 5)).instant is not None
    assert batches(table) == {"app": 5}
    assert own(table) == own(ONE)
    assert table.upsert(TWO, txn=("app", 5)).instant is None


def test_every_commit_carries_what_is_known(table: Table) -> None:
    table.upsert(ONE, txn=("app", 1))
    table.upsert(TWO)
    table.add_columns(pa.schema([("x", pa.int64())]))
    table.delete_partition("city=a")
    timeline = table.snapshot().timeline
    assert all('"app": [1' in timeline.commit_metadata(i).extra[BATCHES_KEY] for i in timeline.completed()[-3:])
    assert table.upsert(ONE, txn=("app", 1)).instant is None


def test_commits_of_hudi_in_between(table: Table) -> None:
    """They say nothing of batches: the search goes on behind them."""
    table.upsert(ONE, txn=("app", 1))
    for _ in range(2):
        table.upsert(TWO)
        as_hudi(table)
    assert batches(table) == {"app": 1}
    assert table.upsert(ONE, txn=("app", 1)).instant is None
    table.upsert(THREE)
    assert batches(table) == {"app": 1}


@pytest.mark.parametrize("hudi", [False, True])
def test_batches_outlive_archival(table: Table, hudi: bool) -> None:
    table.upsert(ONE, txn=("old", 1))
    table.upsert(ONE, txn=("app", 1))
    table.upsert(TWO, txn=("app", 2))
    table.upsert(THREE)
    if hudi:
        as_hudi(table)
    archive(table)
    assert batches(table) == {"app": 2, "old": 1}
    assert table.upsert(ONE, txn=("app", 2)).instant is None
    assert table.upsert(rows(("4", "a", 1, 1)), txn=("app", 3)).inserted == 1
    assert batches(table) == {"app": 3, "old": 1}


def test_an_undone_commit_takes_its_batch_along(table: Table) -> None:
    table.upsert(ONE, txn=("app", 1))
    table.upsert(TWO, txn=("app", 2))
    undo(table)
    assert batches(table) == {"app": 1}
    assert table.upsert(TWO, txn=("app", 2)).inserted == 1


def test_an_undone_commit_under_a_later_one(table: Table) -> None:
    """A later commit that knew of it does not keep its batch alive; the one before counts again."""
    table.upsert(rows(("9", "b", 1, 9)), txn=("app", 1))
    table.upsert(rows(("8", "b", 1, 9)), txn=("other", 7))
    table.upsert(TWO, txn=("app", 2))
    gone = table.snapshot().timeline.completed()[-1]
    table.upsert(rows(("7", "c", 1, 9)))
    for file in Path(table.path, ".hoodie/timeline").glob(f"{gone.requested}*"):
        file.unlink()
    assert batches(table) == {"app": 1, "other": 7}
    assert table.upsert(TWO, txn=("app", 2)).instant is not None


@pytest.mark.parametrize("write", ["insert", "upsert"])
@pytest.mark.parametrize("retries", ["0", "3"])
def test_of_two_replays_at_once_one_wins(table: Table, write: str, retries: str) -> None:
    """The batch is looked for again under the lock, before the conflict is."""
    table.upsert(rows(("1", "a", 0, 0)))
    other: list[Any] = []
    slow = meanwhile(table, lambda t: other.append(getattr(t, write)(TWO, txn=("app", 1))))
    options = {"hoodie.write.num.retries.on.conflict.failures": retries}
    mine = getattr(slow, write)(TWO, txn=("app", 1), options=options)
    assert mine.instant is None
    assert other[0].instant in mine.notes[0]
    assert own(table) == [("1", "a", 0, 0), ("2", "a", 1, 2)]
    assert not table.snapshot().timeline.pending()
    assert len(list(Path(table.path).rglob("*.parquet"))) == len(table.inspect.files().to_pylist()) + 1


@pytest.mark.parametrize("txn", [("app",), ("", 1), ("app", "1"), ("app", True), ("app", 1.0), "ab", 3, (1, 2)])
def test_what_is_no_batch(table: Table, txn: Any) -> None:
    with pytest.raises(InvalidInputError, match="application, batch"):
        table.upsert(ONE, txn=txn)


def test_an_entry_that_cannot_be_read(table: Table) -> None:
    """Unknown is not "never written": a batch is refused, a plain write says nothing and goes on."""
    table.upsert(ONE, txn=("app", 1))
    rewrite(table, lambda extra: {**extra, BATCHES_KEY: '{"app": 1}'})
    with pytest.raises(CorruptFileError, match=r"batches in lakedex\.txn"):
        table.upsert(ONE, txn=("app", 1))
    assert table.upsert(TWO).inserted == 1
    last = table.snapshot().timeline
    assert BATCHES_KEY not in last.commit_metadata(last.completed()[-1]).extra
