"""Counts, slices and rows by the bitmap index where slices have log files; and what it may not believe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap

from bitmap_samples import row_groups_of, ungated
from bitmap_table_kit import coverage_of, files_in_folder
from lakedex import Table
from lakedex.codec.log_block import decode_log_blocks, encode_log_block
from lakedex.codec.log_records import encode_positions
from lakedex.codec.roaring import serialize_bitmap
from lakedex.index.bitmap.builder import FileBitmaps
from lakedex.index.bitmap.definitions import read_bitmap_definitions, write_bitmap_definitions
from lakedex.index.bitmap.log_builder import BitmapsOfLog
from lakedex.index.bitmap.log_coverage import CoveredLog
from lakedex.index.bitmap.run_files import Run, encode_run, list_runs, write_run
from lakedex.snapshot.merge_on_read import MergeSettings
from table_kit import OWN_FILE, make, own, set_properties

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32()), ("g", pa.string())])
Row = tuple[str, int, int | None, str | None]


@pytest.fixture(autouse=True, scope="module")
def _small_row_groups() -> Iterator[None]:
    with row_groups_of(3):
        yield


def rows(*values: Row) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def indexed(path: Path, version: int = 9, mode: str = "EVENT_TIME_ORDERING") -> Table:
    """One slice of twelve rows: n is 0, 1, 2, 0, …, g is x for the first six rows and y for the others."""
    options = {
        "hoodie.write.table.version": version,
        "hoodie.record.merge.mode": mode,
        "hoodie.compact.inline": False,
        **OWN_FILE,
    }
    table = make(path, table_type="mor", options=options, schema=SCHEMA, ordering_by="ts")
    table.insert(rows(*((f"k{i:02d}", 10, i % 3, "xy"[i // 6]) for i in range(12))))
    table.indexes.create("bitmap", ["n", "g"], name="i")
    return table


def unknown_to_the_index(table: Table, data: pa.Table) -> None:
    """A write by another engine."""
    files = table.snapshot().files
    definitions = read_bitmap_definitions(files)
    write_bitmap_definitions(files, {})
    Table.open(table.path).upsert(data)
    write_bitmap_definitions(files, definitions)


def late(table: Table) -> None:
    """A log file with a late record of k01, which loses, as Java writes it; covered by a refresh."""
    unknown_to_the_index(table, rows(("k01", 11, 9, "z")))
    (file,) = Path(table.path).glob(".*.log.*")
    (block,) = decode_log_blocks(file.read_bytes())
    content = bytes(block.content).replace(b"\x02\x16", b"\x02\x0a")  # ts 11 becomes 5, in Avro's numbers.
    assert content != block.content
    file.write_bytes(encode_log_block(block.block_type, block.header, content))
    table.indexes.refresh("i")


def first(table: Table) -> None:
    table.upsert(rows(("k00", 11, 7, "x"), ("k01", 11, 7, "x")))


def mixed(table: Table) -> None:
    table.upsert(rows(("k00", 11, 7, "x"), ("k01", 11, 6, "x")))


def second(table: Table) -> None:
    table.upsert(rows(("k02", 11, 8, "y")))


def again(table: Table) -> None:
    table.upsert(rows(("k00", 12, 8, "x")))


def deletes(table: Table) -> None:
    table.delete(["k00", "k03"])


def foreign(table: Table) -> None:
    unknown_to_the_index(table, rows(("k04", 11, 7, "y")))


def covered(table: Table) -> None:
    table.indexes.refresh("i")


Steps = tuple[Callable[[Table], None], ...]

# Condition (None counts all rows), its count, and whether no file is read for it.
CASES: list[tuple[Steps, list[tuple[str | None, int, bool]]]] = [
    (
        (first,),
        [
            (None, 12, True),
            ("n = 7", 2, True),
            ("n = 0", 3, True),
            ("n <> 7", 10, True),
            ("n IS NULL", 0, True),
            ("n = 7 AND g = 'x'", 2, True),
            ("n = 0 OR g = 'x'", 8, True),
            ("n = 0 AND ts > 10", 0, False),
        ],
    ),
    ((first, second), [(None, 12, True), ("n = 7", 2, True), ("n = 8", 1, True), ("n IN (1, 8)", 4, True)]),
    # A newer record of a key hides an older one. Which rows of a value are left is known where all have that value.
    ((first, again), [("n = 7", 1, True), ("n = 8", 1, True), ("n = 1", 3, True), ("g = 'x'", 6, True)]),
    ((mixed, again), [("n = 7", 0, False), ("n = 8", 1, True), ("n = 6", 1, False), (None, 12, True)]),
    ((first, deletes), [(None, 10, True), ("n = 7", 1, True), ("n = 0", 2, True), ("g = 'y'", 6, True)]),
    ((mixed, deletes), [(None, 10, True), ("n = 7", 0, False), ("n = 0", 2, True), ("g = 'y'", 6, True)]),
    ((deletes, first), [(None, 11, True), ("n = 7", 2, True), ("n = 0", 2, True)]),
    ((foreign,), [(None, 12, False), ("n = 7", 1, False), ("n = 0", 4, False)]),
    ((foreign, covered), [(None, 12, True), ("n = 7", 1, True), ("n = 0", 4, True)]),
    ((first, foreign, covered), [(None, 12, True), ("n = 7", 3, True), ("g = 'y'", 7, True)]),
    # The late record of k01 loses: rows of the base file are left that a log record is for.
    ((late,), [("n = 9", 0, False), ("n = 1", 4, False), ("n = 0", 4, True), (None, 12, False)]),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_counts_that_need_no_file(tmp_path: Path, number: int) -> None:
    steps, conditions = CASES[number]
    table = indexed(tmp_path)
    for step in steps:
        step(table)
    table = Table.open(tmp_path)
    for where, count, from_index in conditions:
        scan = ungated(table.scan(where))
        plan = scan.explain(answer="count")
        assert (scan.count(), plan.from_index) == (count, from_index), f"{where}: {plan}"
        assert plan.log_slices == 0 or plan.merged == (0 if from_index else 1), f"{where}: {plan}"
        assert scan.count() == table.scan(where, use_indexes=False).count()
        found = sorted(scan.to_arrow().to_pylist(), key=repr)
        assert found == sorted(table.scan(where, use_indexes=False).to_arrow().to_pylist(), key=repr)


def test_rows_that_say_that_they_are_deleted(tmp_path: Path) -> None:
    """By a marker of the table's own, which the writer did not know: values in log files are not believed then."""
    table = indexed(tmp_path)
    table.upsert(rows(("k00", 11, 7, "x"), ("k01", 11, 7, "D")))
    prefix = "hoodie.record.merge.property.hoodie.payload.delete"
    set_properties(tmp_path, {f"{prefix}.field": "g", f"{prefix}.marker": "D"})
    scan = ungated(Table.open(tmp_path).scan("n = 7"))
    assert (scan.count(), scan.explain(answer="count").merged) == (1, 1)
    assert Table.open(tmp_path).scan().count() == 11


def test_only_selected_and_touched_rows_are_merged(tmp_path: Path) -> None:
    table = indexed(tmp_path)
    second(table)
    scan = ungated(table.scan("g = 'y' AND ts > 1"))
    (selection,) = scan.plan().selections.values()
    assert list(selection.rows) == [2, *range(6, 12)] and not selection.is_exact
    assert selection.kept_groups() == [0, 2, 3]
    assert scan.to_arrow().num_rows == 7
    assert "log files of 1 slices known" in scan.plan().stage("bitmap").note


@pytest.mark.parametrize("ordered", [True, False])
def test_slices_without_a_matching_row_are_left_out(tmp_path: Path, ordered: bool) -> None:
    """All rows that match in the base file are touched, and nothing in the log file matches."""
    table = indexed(tmp_path)
    table.upsert(rows(*((f"k{i:02d}", 11, 7, "x") for i in (1, 4, 7, 10))))
    if not ordered:
        poison(table, lambda log: replace(log, older=-1))
    table = Table.open(tmp_path)
    plan = ungated(table.scan("n = 1")).plan()
    assert len(plan.slices) == (0 if ordered else 1), plan
    assert ungated(table.scan("n = 1")).count() == 0
    assert ungated(table.scan("n = 7")).count() == 4


def entry_of(table: Table, end: int = -1) -> FileBitmaps:
    """The entry of a log file, read from the file."""
    snapshot = Table.open(table.path).snapshot()
    (item,) = snapshot.slices()
    task = BitmapsOfLog(
        files=snapshot.files, columns={"n": 100, "g": 100}, schema=snapshot.schema, merge=MergeSettings.of(snapshot)
    )
    return task(replace(item, log_files=item.log_files[: len(item.log_files) + 1 + end]))


def poison(table: Table, change: Callable[[CoveredLog], CoveredLog]) -> None:
    """A run that ranks above all others says something else of the last log file."""
    found = entry_of(table)
    assert found.log is not None
    forged = replace(found, log=change(found.log))
    newest = max(run.instant for run in list_runs(table.snapshot().files).runs)
    write_run(table.snapshot().files, Run(newest, "commit", 99), encode_run([forged]))


FALSE: dict[str, Callable[[CoveredLog], CoveredLog]] = {
    "of another base file": lambda log: replace(log, base_file=f"1{log.base_file}"),
    "of another size": lambda log: replace(log, size=log.size + 1),
    "of a write that does not count": lambda log: replace(log, instant="30000101000000000"),
    "of unknown rows": lambda log: replace(log, touched=b""),
    "of no bitmap": lambda log: replace(log, touched=log.touched[:-1]),
    "of rows beyond the file": lambda log: replace(log, touched=serialize_bitmap(BitMap([1, 4, 7, 400]))),
    "of fewer rows": lambda log: replace(log, touched=serialize_bitmap(BitMap([1]))),
    "of more deletes": lambda log: replace(log, deletes=3),
    "of fewer than no deletes": lambda log: replace(log, deletes=-1, new=-1),
}


@pytest.mark.parametrize("what", FALSE)
def test_false_entries_of_log_files_are_not_believed(tmp_path: Path, what: str) -> None:
    table = indexed(tmp_path)
    first(table)
    poison(table, FALSE[what])
    table = Table.open(tmp_path)
    plan = ungated(table.scan("n = 7")).explain(answer="count")
    assert plan.merged == 1 and not plan.from_index
    assert [ungated(table.scan(where)).count() for where in ("n = 7", "n = 1", None)] == [2, 3, 12]
    assert len(ungated(table.scan("n = 99")).plan().slices) == 1 or plan.plan.stages


def test_validation_finds_forged_rows_and_repairs_them(tmp_path: Path) -> None:
    table = indexed(tmp_path)
    first(table)
    assert table.indexes.validate("i").differences == ()
    poison(table, lambda log: replace(log, touched=serialize_bitmap(BitMap([2, 5]))))
    table = Table.open(tmp_path)
    found = table.indexes.validate("i", repair=True)
    assert [difference.kind for difference in found.differences] == ["wrong positions"]
    table = Table.open(tmp_path)
    assert table.indexes.validate("i").differences == ()
    assert [ungated(table.scan(where)).count() for where in ("n = 7", "n = 2", "n = 1")] == [2, 4, 3]


def test_headers_with_positions_of_other_rows_make_a_log_file_unknown(tmp_path: Path) -> None:
    """A reader of lakedex goes by keys, Java by positions: there is no answer that is right for both."""
    table = indexed(tmp_path)
    unknown_to_the_index(table, rows(("k01", 11, 7, "x")))
    (file,) = tmp_path.glob(".*.log.*")
    (block,) = decode_log_blocks(file.read_bytes())
    for positions, known in (([1], True), ([2], False), ([1, 2], False)):
        header = {**block.header, "RECORD_POSITIONS": encode_positions(pa.array(positions).to_numpy())}
        file.write_bytes(encode_log_block(block.block_type, header, block.content))
        Table.open(tmp_path).maintenance.rebuild_metadata()
        found = entry_of(table)
        assert found.log is not None and bool(found.log.touched) == known


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
def test_entries_by_the_writer_are_those_by_a_build(tmp_path: Path, version: int, mode: str) -> None:
    table = indexed(tmp_path, version, mode)
    for step in (first, second, deletes, again):
        step(table)
    before = logs_in(table)
    assert len(before) == 4 and all(log.touched for log in before.values())
    assert table.indexes.validate("i").differences == ()
    table.indexes.drop("i")
    Table.open(tmp_path).indexes.create("bitmap", ["n", "g"], name="i")
    assert logs_in(table) == before


def logs_in(table: Table) -> dict[str, CoveredLog]:
    """Log files that the runs speak of."""
    coverage = coverage_of(table)
    return {coverage.files[number].base_file: log for number, log in coverage.logs.items()}


def test_a_life_of_entries(tmp_path: Path) -> None:
    """Rollback and restore take entries away, run compaction drops those of older slices, time travel uses them."""
    table = indexed(tmp_path)
    first(table)
    moment = table.snapshot().instant
    assert moment is not None
    kept = logs_in(table)
    again(table)
    (gone,) = logs_in(table).keys() - kept.keys()
    earlier = ungated(Table.open(tmp_path).scan("n = 7", as_of=moment))
    assert (earlier.count(), earlier.explain(answer="count").from_index) == (2, True)
    last = table.snapshot().instant
    table.maintenance.rollback(last)
    assert gone not in logs_in(table) and not any(str(last) in name for name in files_in_folder(table))
    assert own(Table.open(tmp_path), "id", "n")[:2] == [("k00", 7), ("k01", 7)]
    assert ungated(Table.open(tmp_path).scan("n = 7")).explain(answer="count").from_index
    again(table)
    table.maintenance.compact()
    for number in range(5):
        table.upsert(rows(("k05", 20 + number, number, "x")))
    assert len(logs_in(table)) == 5, "log files of the slice before the compaction are still there"
    found: list[Any] = Table.open(tmp_path).scan().count_by("n").to_pylist()
    assert {row["n"]: row["count"] for row in found} == {0: 3, 1: 3, 2: 3, 4: 1, 7: 1, 8: 1}


def test_coverage_of_a_commit_that_was_undone_is_no_difference(tmp_path: Path) -> None:
    """In version 6 its log files stay, and its coverage may be in a run with that of others."""
    table = indexed(tmp_path, 6)
    kept = table.maintenance.savepoint()
    for number in range(8):  # Runs are compacted meanwhile, so that no rollback deletes them.
        table.upsert(rows((f"k{number:02d}", 11, 8, "z")))
    table.maintenance.restore(kept)
    opened = Table.open(table.path)
    assert opened.maintenance.validate().ok
    assert opened.scan("n = 8").count() == 0 and opened.scan("n = 0").count() == 4
    assert len(list(tmp_path.glob(".*.log.*"))) > 8 and logs_in(opened)
