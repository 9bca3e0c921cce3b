"""What the archive of timeline layout 1 is read for: the history, and batches that commits before it wrote."""

from __future__ import annotations

from pathlib import Path

from lakedex import Table
from lakedex.commit.idempotency import carried_batches
from table_kit import make, rows

OPTIONS = {
    "hoodie.write.table.version": "6",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.metadata.compact.max.delta.commits": "2",
}


def test_archived_commits_are_in_the_history_and_say_their_batches(tmp_path: Path) -> None:
    table = make(tmp_path, options=OPTIONS)
    done = [str(table.upsert(rows((f"k{n}", "a", n, n)), txn=("loads", n)).instant) for n in range(26)]
    table.maintenance.archive()
    active = table.inspect.history().column("commit_time").to_pylist()
    everything = table.inspect.history(archived=True).column("commit_time").to_pylist()
    assert set(active) < set(everything) == set(done)
    assert everything == sorted(everything, reverse=True)
    operations = set(table.inspect.history(archived=True).column("operation").to_pylist())
    assert operations == {"UPSERT"}
    carried = list(carried_batches(Table.open(tmp_path).snapshot()))
    assert carried == [{"loads": (number, done[number])} for number in range(25, -1, -1)]
    for number in (25, 0):
        again = Table.open(tmp_path).upsert(rows(("k1", "a", 9, 9)), txn=("loads", number))
        assert again.instant is None and done[-1] in again.notes[0]
