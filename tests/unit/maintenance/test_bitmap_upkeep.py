"""Bitmaps that each write makes of its files in the same pass, the runs that hold them, and folding (R110-R134)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bitmap_table_kit import (
    batch,
    coverage_of,
    defined,
    files_in_folder,
    number_of,
    run_names,
    said,
    same_answers,
    uncovered,
)
from lakedex import Table
from lakedex.errors import SchemaMismatchError
from lakedex.index.bitmap import run_files as bitmap_runs
from lakedex.index.bitmap.builder import BitmapsBuilder, FileBitmaps, RowGroup
from lakedex.index.bitmap.compaction import compact_runs, settled
from lakedex.index.bitmap.run_files import Run, encode_run, list_runs, write_run
from lakedex.io.local import LocalStorage
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.local.engine import LocalEngine
from lakedex.snapshot.snapshot import Limits, TableContext
from lakedex.testing import Faults, FaultyStorage
from limits import Limits as Patched
from seams import meanwhile, with_context
from table_checks import THOROUGH
from table_kit import OWN_FILE

COLUMNS = ("g", "n", "s.k")
NEVER = Limits(compact_at=10**9)
"""Runs stay as commits write them."""
ASKED = ("g = 'x'", "g is null and n = 2", "s.k = 1 or n > 2", "not (g = 'y')", "n = 99")


def _made(path: Path) -> Table:
    """Rows in three partitions, indexed."""
    made = Table.create(path, record_key="id", partition_by="city", ordering_by="ts")
    made.upsert(batch(0, 60))
    made.indexes.create("bitmap", list(COLUMNS), name="idx")
    return made


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


WRITES: dict[str, Callable[[Table], Any]] = {
    "insert": lambda t: t.insert(batch(100, 20)),
    "insert into new files": lambda t: t.insert(batch(100, 20), options=OWN_FILE),
    "bulk_insert": lambda t: t.bulk_insert(batch(100, 20)),
    "upsert": lambda t: t.upsert(batch(50, 20, 2, g="changed")),
    "late rows": lambda t: t.upsert(batch(0, 60, 0, g="late")),
    "delete keys": lambda t: t.delete(batch(0, 7).select(["id"]), all_partitions=True),
    "delete where": lambda t: t.delete(where="g = 'x'"),
    "delete all": lambda t: t.delete(where="true"),
    "update": lambda t: t.update({"g": "'new'", "n": "n + 100"}, "g is null"),
    "overwrite partitions": lambda t: t.insert_overwrite(batch(0, 1, 5)),
    "overwrite table": lambda t: t.insert_overwrite(batch(0, 9, 5), scope="table"),
    "widen": lambda t: t.widen_column("n", "bigint"),
    "add column": lambda t: t.upsert(batch(0, 3, 9).append_column("more", pa.array([1, 2, 3]))),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_write_covers_its_files(table: Table, name: str) -> None:
    """R110, R111, R124-R134 in their same-pass form: the writer has seen each row, so nothing is read or compared."""
    before = set(run_names(table))
    result = WRITES[name](table)
    assert uncovered(table, *COLUMNS) == []
    same_answers(table, *ASKED)
    if result.files_written:
        assert result.bitmap_bytes > 0
        assert result.bitmap_seconds > 0
        assert f"run_{result.instant}_commit_00000.hfile" in set(run_names(table)) - before
        assert "\n  bitmaps  " in str(result)
        assert "bitmaps" in result._repr_html_()
    assert table.indexes.refresh("idx").files == 0


def test_nothing_is_read_again(table: Table) -> None:
    """R126, R128, R150: a write with bitmaps opens no more files than one without."""
    opened: list[str] = []

    class Noting(LocalStorage):
        def open_input(self, path: str) -> Any:
            opened.extend([path] if path.endswith(".parquet") else [])
            return super().open_input(path)

        def read(self, path: str) -> bytes:
            opened.extend([path] if path.endswith(".parquet") else [])
            return super().read(path)

    table = with_context(table, storage=Noting())
    assert table.upsert(batch(0, 6, 2)).bitmap_bytes > 0
    with_bitmaps = len(opened)
    table.indexes.drop("idx")
    opened.clear()
    assert table.upsert(batch(0, 6, 3)).bitmap_bytes == 0
    assert len(opened) == with_bitmaps > 0


def test_row_groups_come_from_the_writer(tmp_path: Path) -> None:
    """R148: rows, first byte and bytes of each row group are those of the footer."""
    options = {"hoodie.parquet.block.size": "2000"}
    table = Table.create(tmp_path / "t", batch(0, 1).schema, record_key="id", options=options)
    table.indexes.create("bitmap", ["g"], name="idx")
    for start in range(0, 4000, 1000):
        table.insert(batch(start, 1000))
    assert uncovered(table, "g") == []
    (base,) = table.snapshot().base_files()
    coverage = coverage_of(table)
    groups = coverage.files[number_of(coverage, base.name)].groups
    metadata = pq.ParquetFile(Path(table.path) / base.relative_path).metadata
    assert len(groups) == metadata.num_row_groups > 1
    for number, (_, start, size) in enumerate(groups):
        chunks = [metadata.row_group(number).column(i) for i in range(metadata.num_columns)]
        assert start == min(c.dictionary_page_offset or c.data_page_offset for c in chunks)
        assert size == sum(c.total_compressed_size for c in chunks)


def test_large_bitmaps_go_through_files(table: Table, limits: Patched) -> None:
    """What passes the limit is written to the temp folder, and from there into runs of bounded size, by tasks."""
    labels: list[str] = []

    class Labelled(LocalEngine):
        def run(self, fn: Any, items: Any, label: str = "") -> list[Any]:
            labels.append(label)
            return [fn(item) for item in items]

    limits(bitmap_runs, RUN_BYTES=1)
    few = Limits(write_inline_bytes=100, compact_at=10**9)
    result = with_context(table, limits=few, engine=Labelled()).upsert(batch(0, 60, 3, g="z"))
    own = [name for name in run_names(table) if result.instant in name and "commit" in name]
    assert len(own) == 3, "one run a file, since each is larger than a run may be"
    assert any("writing bitmaps of 3 files" in label for label in labels)
    assert uncovered(table, *COLUMNS) == []
    assert list((Path(table.path) / ".hoodie/.temp").iterdir()) == []


def test_driver_holds_a_bounded_share() -> None:
    assert bitmap_runs.inline_limit(1, 256 * 1024) == 256 * 1024
    assert bitmap_runs.inline_limit(100_000, 256 * 1024) * 100_000 <= bitmap_runs.RUN_BYTES


def test_bitmaps_that_cannot_be_written(table: Table) -> None:
    """Rows are worth more than their index: the write succeeds and says what is missing."""
    full = FaultyStorage(Faults(1, error=OSError(errno.ENOSPC, "no space"), only=("create", "/run_")))
    result = with_context(table, storage=full).upsert(batch(0, 60, 3, g="z"))
    assert any(
        "could not be written" in note and "no space" in note and "indexes.refresh" in note for note in result.notes
    )
    assert len(uncovered(table, *COLUMNS)) == 3
    same_answers(table, *ASKED, "g = 'z'")
    assert table.indexes.refresh("idx").files == 3
    assert uncovered(table, *COLUMNS) == []


def test_a_dropped_index_is_not_written(table: Table) -> None:
    """The index was dropped while the write was under way."""
    definitions = Path(table.path) / ".hoodie/.index_defs/bitmap_index.json"
    before = files_in_folder(table)
    assert meanwhile(table, lambda _: definitions.unlink()).upsert(batch(0, 6, 3)).bitmap_bytes == 0
    assert files_in_folder(table) == before


# ------------------------------------------------------------------------------------------------------------ folding


@pytest.mark.heavy
def test_many_small_commits_stay_few_runs(tmp_path: Path) -> None:
    """R138, R149: after any number of commits a reader meets some eight runs at most."""
    table = Table.create(tmp_path / "t", batch(0, 1).schema, record_key="id", ordering_by="ts")
    table.indexes.create("bitmap", ["g", "n"], name="idx")
    for number in range(60 if THOROUGH else 24):
        result = table.upsert(batch(number, 3, number, g=f"v{number % 3}"))
        assert len(run_names(table)) <= 8
        assert [note for note in result.notes if not note.startswith("cleaned ")] == []
    assert uncovered(table, "g", "n") == []
    same_answers(table, *ASKED[:2], "g = 'v1'")
    assert len(files_in_folder(table)) < 16, "what was folded goes with the next fold"


def one_partition(number: int, ts: int, **changed: Any) -> pa.Table:
    """Rows of one of the three partitions."""
    rows = batch(0, 6, ts, **changed)
    return rows.filter(pc.equal(rows.column("city"), "abc"[number % 3]))


def test_where_each_commit_rewrites_all_files_nothing_is_copied(table: Table) -> None:
    """R149: the newest run has all that counts, so the others are merely named as folded."""
    sizes = []
    for number in range(12):
        result = table.upsert(batch(0, 60, number + 2, g=f"v{number}"))
        own = [name for name in files_in_folder(table) if result.instant in name and name.startswith("run_")]
        assert own == [f"run_{result.instant}_commit_00000.hfile"]
        sizes.append(result.bitmap_bytes - (Path(table.path) / ".hoodie/metadata/bitmap_index" / own[0]).stat().st_size)
        assert len(run_names(table)) < Limits().compact_at and len(files_in_folder(table)) <= 2 * Limits().compact_at
        assert uncovered(table, *COLUMNS) == []
    assert sizes == [0] * 12
    assert not any("_fold_" in name for name in files_in_folder(table))
    same_answers(table, *ASKED, "g = 'v11'", "g = 'v10'")


def test_a_run_that_stayed_alone_goes_when_its_commit_is_undone(table: Table) -> None:
    """R92.k: what the others said of the files before is gone with the fold, so these are read."""
    for number in range(12):
        result = table.upsert(batch(0, 60, number + 2, g=f"v{number}"))
        if run_names(table) == [f"run_{result.instant}_commit_00000.hfile"]:
            break
    assert run_names(table) == [f"run_{result.instant}_commit_00000.hfile"]
    table.maintenance.rollback(result.instant)
    assert not any(result.instant in name for name in files_in_folder(table))
    same_answers(table, *ASKED, f"g = 'v{number}'", f"g = 'v{number - 1}'")
    table.indexes.refresh("idx")
    assert uncovered(table, *COLUMNS) == []


class _Timeline:
    """A timeline on which everything is committed."""

    instants = ()

    def pending(self) -> tuple[Any, ...]:
        return ()

    def is_committed(self, requested: str) -> bool:
        return True


class _Snapshot:
    timeline = _Timeline()

    def __init__(self, live: list[Any]) -> None:
        self.live = live

    def slices(self) -> list[Any]:
        return self.live


class _Context(TableContext):
    """A table whose files are given."""

    live: list[Any]

    def snapshot(self, *_: Any, **__: Any) -> Any:
        return _Snapshot(self.live)


def test_a_thousand_commits(table: Table) -> None:
    """The same for a thousand runs of made-up files, of which the newest twenty are current."""
    table.indexes.drop("idx")
    table.indexes.create("bitmap", ["g"], name="idx")
    values = batch(0, 4).select(["g"])
    live = list[Any]()
    context = _Context(table.context.files, table.context.engine)
    context.live = live
    builder = BitmapsBuilder({"g": 10}, values.schema)
    builder.add(values.to_batches()[0])
    groups = (RowGroup(4, 4, 100),)
    columns = builder.finish(groups)
    most = 0
    for number in range(1000 if THOROUGH else 250):
        group, instant = f"f{number % 20}-0", str(20260101000000000 + number)
        name = f"{group}_0-0-0_{instant}.parquet"
        item = FileBitmaps(partition="", file_id=group, base_file=name, rows=4, row_groups=groups, columns=columns)
        write_run(table.context.files, Run(instant, "commit", 0), encode_run([item]))
        live[number % 20 : number % 20 + 1] = [FileSlice("", group, instant, BaseFile("", name, 1, group, instant))]
        compact_runs(context, instant)
        most = max(most, len(list_runs(table.context.files).runs))
    assert most <= 8
    coverage = coverage_of(table)
    assert all(said(coverage, "g", base.name) == {None: [0, 1], "x": [2, 3]} for base in live)
    assert len(coverage.files) < 40, "runs keep what they say of current files"


def test_a_commit_under_way_is_not_folded(table: Table) -> None:
    """Its run stays as it is; that of a commit which was rolled back is left out."""
    timeline = table.snapshot().timeline
    last = timeline.instants[-1].requested
    is_settled = settled(timeline)
    assert is_settled(Run(last, "commit", 0))
    assert is_settled(Run("20990101000000000", "build", 0))
    assert not is_settled(Run("20990101000000000", "commit", 0)), "later than anything that the timeline knows"
    assert is_settled(Run(str(int(last) - 1), "commit", 0)), "rolled back: listed, but on no timeline"
    (Path(timeline.path) / f"{int(last) - 1}.commit.requested").touch()
    assert not settled(table.snapshot().timeline)(Run(str(int(last) - 1), "commit", 0))


def test_two_folds_at_once(table: Table) -> None:
    """One publishes; what the other one wrote counts for nothing and goes with a later fold."""
    many = with_context(table, limits=NEVER)
    for number in range(5):
        many.upsert(one_partition(number, number + 2, g=f"v{number}"))
    other: list[Any] = []
    own_run = ("write", "run_20990101000000000_fold")
    slow = meanwhile(table, lambda t: other.append(compact_runs(t.context, "20990101000000001")), own_run, "before")
    compact_runs(slow.context, "20990101000000000")
    assert [done.runs for done in other] == [6]
    assert run_names(table) == ["run_20990101000000001_fold_00000.hfile"]
    assert "run_20990101000000000_fold_00000.hfile" in files_in_folder(table)
    assert uncovered(table, *COLUMNS) == []
    for number in range(8):
        table.upsert(one_partition(number, number + 20))
    assert not any("20990101000000000" in name for name in files_in_folder(table))
    assert uncovered(table, *COLUMNS) == []


def test_writers_side_by_side(table: Table) -> None:
    """Commits, folds and refreshes of several at once: nothing current is lost from the index, and all rows are right."""
    failed: list[BaseException] = []

    def write(number: int) -> None:
        own = Table.open(table.path, options={"hoodie.write.num.retries.on.conflict.failures": "20"})
        rows = batch(0, 60).filter(pc.equal(batch(0, 60).column("city"), "abc"[number]))
        try:
            for round in range(6):
                changed = rows.set_column(2, "ts", pa.array([round + 2] * len(rows)))
                own.upsert(changed.set_column(3, "g", pa.array([f"w{round}"] * len(rows))))
                own.indexes.refresh("idx")
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    assert uncovered(table, *COLUMNS) == []
    assert len(run_names(table)) <= 8
    assert table.scan("g = 'w5'").to_arrow().num_rows == 60
    assert table.scan("g = 'w4'").to_arrow().num_rows == 0


def test_a_fold_is_as_new_as_what_it_folds(table: Table) -> None:
    """A write that began first and completes last: what it puts together is not older than any of it."""
    many = with_context(table, limits=NEVER)
    for number in range(4):
        last = many.upsert(one_partition(number, number + 2)).instant
    compact_runs(table.context, "20200101000000000")
    assert run_names(table) == [f"run_{last}_fold_20200101000000000000.hfile"]
    assert uncovered(table, *COLUMNS) == []


def test_a_fold_that_fails_is_a_note(table: Table) -> None:
    full = FaultyStorage(Faults(1, error=OSError(errno.ENOSPC, "no space"), only=("write", "_fold_00000")))
    many = with_context(table, limits=NEVER)
    for number in range(3):
        many.upsert(one_partition(number, number + 2))
    result = with_context(table, storage=full).upsert(one_partition(3, 5))
    assert any("could not be compacted" in note and "no space" in note for note in result.notes), result.notes
    assert uncovered(table, *COLUMNS) == []


def test_time_travel_scans(table: Table) -> None:
    """R135: runs keep current files; a look back gives right rows whatever was folded since."""
    first = table.upsert(batch(0, 60, 2, g="before")).instant
    for number in range(9):
        table.upsert(batch(0, 60, number + 3, g=f"v{number}"))
    found = table.scan("g = 'before'", as_of=first)
    assert found.to_arrow().num_rows == 60
    assert table.scan("g = 'v8'").to_arrow().num_rows == 60
    assert table.scan("g = 'before'").to_arrow().num_rows == 0


# ---------------------------------------------------------------------------------------------------------- evolution


def test_renamed(table: Table) -> None:
    """R71, R92.l: the new name is indexed, the old one is no entry of anything current."""
    result = table.rename_column("g", "h")
    assert not any("no longer" in note for note in result.notes)
    assert defined(table) == {"idx": ("h", "n", "s.k")}
    assert uncovered(table, "h", "n", "s.k") == []
    table.rename_column("s", "t")
    assert defined(table) == {"idx": ("h", "n", "t.k")}
    assert uncovered(table, "h", "n", "t.k") == []
    same_answers(table, "h = 'x'", "t.k = 1 and h is null")
    table.add_columns(pa.schema([("g", pa.string())]))
    assert table.scan("g = 'x'").to_arrow().num_rows == 0
    assert table.scan("g is null").to_arrow().num_rows == 60


def test_files_without_the_renamed_column(tmp_path: Path) -> None:
    """R73: they are not rewritten, so nothing speaks of them under the new name until a refresh does."""
    plain = batch(0, 30).drop_columns(["g"])
    table = Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering_by="ts")
    table.upsert(plain)
    table.upsert(batch(30, 1))
    table.indexes.create("bitmap", ["g"], name="idx")
    table.rename_column("g", "h")
    assert len(uncovered(table, "h")) == 2
    same_answers(table, "h = 'x'", "h is null")
    assert table.indexes.refresh("idx").files == 2
    assert uncovered(table, "h") == []
    same_answers(table, "h = 'x'", "h is null")


def test_dropped_and_added_again(table: Table) -> None:
    """R72: what runs say of the column that was dropped is not found for the new one of that name."""
    result = table.drop_columns("g")
    assert "the bitmap index 'idx' no longer has column 'g'" in result.notes
    assert defined(table) == {"idx": ("n", "s.k")}
    more = pa.schema([("g", pa.int64())])
    with pytest.raises(SchemaMismatchError, match="rewrite_files"):
        table.add_columns(more)
    table.maintenance.rewrite_files()
    table.add_columns(more)
    assert table.indexes.create("bitmap", "g", name="idx", if_not_exists=True).files == 3
    assert uncovered(table, "g", "n", "s.k") == []
    same_answers(table, "g = 1", "g is null")
    assert table.scan("g is null").to_arrow().num_rows == 60
    assert "the bitmap index 'idx' no longer has column 'n', 'g'" in table.drop_columns(["g", "n"]).notes
    assert "the bitmap index 'idx' is gone with its column 's.k'" in table.drop_columns("s").notes
    assert defined(table) == {}


def test_widened(table: Table) -> None:
    """R69, R81: texts of the narrower type are read in the wider one; float to double rewrites."""
    table.widen_column("n", "double")
    assert uncovered(table, *COLUMNS) == []
    same_answers(table, "n = 2", "n > 1.5 and g = 'x'")
    table.upsert(batch(0, 6, 7).set_column(4, "n", pa.array([0.5] * 6)))
    same_answers(table, "n = 2", "n = 0.5", "n <= 0.5")
    assert table.scan("n = 0.5").to_arrow().num_rows == 6
