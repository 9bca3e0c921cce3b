"""What is held of the runs: which entry counts, what missing and damaged runs mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bitmap_samples import file_bitmaps, run
from lakedex.codec.metadata_record import bitmap_cells
from lakedex.index.bitmap import loaded_index as module
from lakedex.index.bitmap.builder import FileBitmaps
from lakedex.index.bitmap.compaction import shards
from lakedex.index.bitmap.loaded_index import NULL, Coverage
from lakedex.index.bitmap.run_files import (
    BITMAP_FOLDER,
    IS_INDEXED,
    NO_ENTRY,
    Manifest,
    Run,
    column_entries,
    coverage_records,
    encode_cells,
    encode_run,
    list_runs,
    publish_manifest,
    record_cells,
    write_run,
)
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.snapshot.file_system_view import TableCache
from limits import Limits

STORAGE = LocalStorage()


def made(name: str, *values: str | None, cap: int = 100, partition: str = "p", column: str = "c") -> FileBitmaps:
    return file_bitmaps(name, {column: cap}, pa.table({column: pa.array(values, pa.string())}), partition=partition)


class Folder:
    """A folder of runs, and what is held of it from one look to the next."""

    def __init__(self, path: Path, open_files: int = 100) -> None:
        self.path = str(path)
        self.held = Coverage(TableFiles(STORAGE, self.path), TableCache(limit=open_files))

    def put(self, one: Run, *files: FileBitmaps) -> Run:
        return write_run(TableFiles(STORAGE, self.path), one, encode_run(files))

    def fold(self, number: int, runs: list[Run], *live: str, manifest: int = 1) -> None:
        (task,) = shards(TableFiles(STORAGE, self.path), runs, live, ["c"])
        out = task(run(number, "fold"))
        folded = tuple(one.name for one in runs)
        left = [one.name for one in list_runs(TableFiles(STORAGE, self.path)).runs if one < runs[0]]
        assert publish_manifest(
            TableFiles(STORAGE, self.path), Manifest(number=manifest, runs=(*left, out.name), folded=folded)
        )

    def remove(self, one: Run) -> None:
        (Path(self.path, BITMAP_FOLDER) / one.name).unlink()

    def refresh(self, column: str = "c") -> Coverage:
        """Look again: what is held says what a fresh look says."""
        fresh = Coverage(TableFiles(STORAGE, self.path), TableCache())
        for one in (self.held, fresh):
            one.refresh(list_runs(TableFiles(STORAGE, self.path)))
            one.column(column)
        assert said(self.held, column) == said(fresh, column)
        return self.held


def said(coverage: Coverage, name: str = "c") -> dict[str, dict[str | None, int] | int]:
    """Per base file its values with their rows, or the state of what is not indexed."""
    column = coverage.column(name)
    found: dict[str, dict[str | None, int] | int] = {}
    for number, item in enumerate(coverage.files):
        entry = int(column.entry_of[number])
        if entry < 0:
            continue
        if column.states[entry] != IS_INDEXED:
            found[item.base_file] = int(column.states[entry])
            continue
        span = slice(int(column.starts[entry]), int(column.starts[entry] + column.sizes[entry]))
        values: dict[str | None, int] = {
            column.values[code][1]: count
            for code, count in zip(column.codes[span].tolist(), column.counts[span].tolist(), strict=True)
        }
        if column.nulls[entry]:
            values[None] = int(column.nulls[entry])
        found[item.base_file] = values
    return found


def rows_of(coverage: Coverage, file: str, text: str | None, name: str = "c") -> list[int] | None:
    column = coverage.column(name)
    number = next(n for n, item in enumerate(coverage.files) if item.base_file == file)
    code = NULL if text is None else next(n for n, (_, own) in enumerate(column.values) if own == text)
    found = coverage.bitmaps(name, {number: [code]}).get((number, code))
    return None if found is None else list(found)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_nothing_is_covered_without_runs(folder: Folder) -> None:
    assert said(folder.refresh()) == {} and folder.held.rows.tolist() == []


def test_it_grows_by_runs(folder: Folder) -> None:
    folder.put(run(1), made("f1_1", "a", None, "b", "a"))
    assert said(folder.refresh()) == {"f1_1": {"a": 2, "b": 1, None: 1}}
    folder.put(run(2), made("f2_2", "b"), made("f3_2", None))
    assert said(folder.refresh()) == {"f1_1": {"a": 2, "b": 1, None: 1}, "f2_2": {"b": 1}, "f3_2": {None: 1}}
    assert rows_of(folder.held, "f1_1", "a") == [0, 3] and rows_of(folder.held, "f1_1", None) == [1]
    assert folder.held.rows.tolist() == [4, 1, 1]


def test_a_column_that_no_run_has(folder: Folder) -> None:
    folder.put(run(1), made("f1_1", "a"))
    assert said(folder.refresh("d"), "d") == {}
    folder.put(run(2), made("f1_1", "x", column="d"))
    assert said(folder.refresh("d"), "d") == {"f1_1": {"x": 1}}
    assert said(folder.refresh()) == {"f1_1": {"a": 1}}, "a run without the column says nothing of it"


def test_the_newest_run_wins_for_a_base_file(folder: Folder) -> None:
    folder.put(run(2), made("f1_1", "a", "b", cap=1))
    assert isinstance(said(folder.refresh())["f1_1"], int)
    folder.put(run(3), made("f1_1", "a", "b"))
    assert said(folder.refresh()) == {"f1_1": {"a": 1, "b": 1}}


def test_an_older_run_that_comes_late_does_not_win(folder: Folder) -> None:
    folder.put(run(3), made("f1_1", "a", "b"))
    folder.refresh()
    folder.put(run(2), made("f1_1", "a", "b", cap=1))
    assert said(folder.refresh()) == {"f1_1": {"a": 1, "b": 1}}


def test_another_base_file_of_the_group_is_another_file(folder: Folder) -> None:
    """Positions belong to one base file, whatever came after it."""
    folder.put(run(1), made("f1_1", "a", "b"))
    folder.put(run(2), made("f1_2", "b", "a", "a"))
    assert said(folder.refresh()) == {"f1_1": {"a": 1, "b": 1}, "f1_2": {"a": 2, "b": 1}}
    assert (rows_of(folder.held, "f1_1", "a"), rows_of(folder.held, "f1_2", "a")) == ([0], [1, 2])


def test_one_name_in_two_partitions_is_two_files(folder: Folder) -> None:
    """Hudi's bucket index with fixed ids (non-blocking writers) gives groups of two partitions one id."""
    folder.put(run(1), made("f1_1", "a", partition="p"), made("f1_1", "b", "b", partition="q"))
    held = folder.refresh()
    assert [(held.files[held.numbers[p, "f1_1"]].partition, int(held.rows[held.numbers[p, "f1_1"]])) for p in "pq"] == [
        ("p", 1),
        ("q", 2),
    ]
    assert list(held.bitmaps("c", {held.numbers["q", "f1_1"]: [1]}).values()) == [held.bitmaps("c", {1: [1]})[1, 1]]


def test_a_fold_takes_the_place_of_what_it_folded(tmp_path: Path) -> None:
    folder = Folder(tmp_path, open_files=1)
    runs = [folder.put(run(1), made("f1_1", "a")), folder.put(run(2), made("f2_2", "b", "a"))]
    folder.refresh()
    folder.fold(3, runs, "f1_1", "f2_2")
    assert said(folder.refresh()) == {"f1_1": {"a": 1}, "f2_2": {"a": 1, "b": 1}}
    for one in runs:
        folder.remove(one)
    assert rows_of(folder.refresh(), "f2_2", "b") == [0], "bitmaps come from the fold, since what it folded may be gone"


def test_a_fold_leaves_alone_what_is_newer(folder: Folder) -> None:
    first = folder.put(run(1), made("f1_1", "a", "b", cap=1))
    folder.refresh()
    newer = folder.put(run(5), made("f1_1", "a", "b"))
    folder.refresh()
    folder.fold(3, [first], "f1_1")
    assert said(folder.refresh()) == {"f1_1": {"a": 1, "b": 1}}
    folder.remove(newer)
    assert said(folder.held)["f1_1"] == {"a": 1, "b": 1}


def test_a_fold_of_newer_runs_wins_over_a_run_that_was_not_folded(folder: Folder) -> None:
    folder.put(run(1, "build"), made("f1_1", "a", "b", cap=1))
    newer = folder.put(run(2), made("f1_1", "a", "b"))
    folder.refresh()
    folder.fold(3, [newer], "f1_1")
    assert said(folder.refresh()) == {"f1_1": {"a": 1, "b": 1}}


def test_what_a_fold_leaves_out_is_not_covered_any_more(folder: Folder) -> None:
    runs = [folder.put(run(1), made("f1_1", "a")), folder.put(run(2), made("f1_2", "b"))]
    folder.refresh()
    folder.fold(3, runs, "f1_2")
    assert said(folder.refresh()) == {"f1_2": {"b": 1}}


def test_a_folder_that_goes_covers_nothing(folder: Folder) -> None:
    """Java may delete or rebuild the metadata folder."""
    one = folder.put(run(1), made("f1_1", "a"))
    assert said(folder.refresh())
    folder.remove(one)
    assert said(folder.refresh()) == {}
    folder.put(run(1), made("f1_1", "a"))
    assert said(folder.refresh()) == {"f1_1": {"a": 1}}, "the build was made again"


def test_a_missing_run_covers_nothing(folder: Folder) -> None:
    """Listed, and folded by somebody else before it was opened."""
    one = folder.put(run(1), made("f1_1", "a"))
    folder.put(run(2), made("f2_2", "b"))
    listing = list_runs(TableFiles(STORAGE, folder.path))
    folder.remove(one)
    folder.held.refresh(listing)
    assert said(folder.held) == {"f2_2": {"b": 1}} and list(folder.held.unread) == [one.name]
    folder.held.refresh(list_runs(TableFiles(STORAGE, folder.path)))
    assert folder.held.unread == {}


def test_a_run_that_goes_before_its_column_is_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path, open_files=1)
    one = folder.put(run(1), made("f1_1", "a"))
    folder.put(run(2), made("f2_2", "b"))
    folder.held.refresh(list_runs(TableFiles(STORAGE, folder.path)))
    folder.remove(one)
    assert said(folder.held) == {"f2_2": {"b": 1}} and one.name in folder.held.unread


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_damaged_run_covers_nothing_or_what_it_did(folder: Folder, share: float) -> None:
    """Whatever byte is hit: never another answer, never another error."""
    values = [*"abcde", None] * 40
    right = made("f1_1", *values)
    one = folder.put(run(1), right)
    path = Path(folder.path, BITMAP_FOLDER) / one.name
    content = bytearray(path.read_bytes())
    for offset in range(int(share * len(content)), min(int(share * len(content)) + 40, len(content))):
        content[offset] ^= 0x55
        path.write_bytes(content)
        content[offset] ^= 0x55
        found = Coverage(TableFiles(STORAGE, folder.path), TableCache())
        found.refresh(list_runs(TableFiles(STORAGE, folder.path)))
        if said(found):
            assert said(found) == {"f1_1": {**dict.fromkeys("abcde", 40), None: 40}}
            rows = rows_of(found, "f1_1", "c")
            assert rows is None or rows == list(range(2, 240, 6))


@pytest.mark.parametrize("end", [0, 1, 100, -200, -1])
def test_a_truncated_run_covers_nothing(folder: Folder, end: int) -> None:
    one = folder.put(run(1), made("f1_1", "a"))
    folder.put(run(2), made("f2_2", "b"))
    path = Path(folder.path, BITMAP_FOLDER) / one.name
    path.write_bytes(path.read_bytes()[:end])
    assert said(folder.refresh()) == {"f2_2": {"b": 1}} and list(folder.held.unread) == [one.name]


def put_changed(folder: Folder, files: list[FileBitmaps], bitmaps_of: list[FileBitmaps]) -> None:
    """A run whose bitmaps are not those of its coverage."""
    bitmaps = [cell for f in bitmaps_of for c in f.columns for cell in bitmap_cells(column_entries(f, c))]
    write_run(
        TableFiles(STORAGE, folder.path), run(1), encode_cells([*record_cells(coverage_records(files)), *bitmaps])
    )


def test_a_bitmap_of_another_base_file_is_unknown(folder: Folder) -> None:
    put_changed(folder, [made("f1_1", "a", "b")], [made("f1_0", "a", "b")])
    assert said(folder.refresh()) and rows_of(folder.held, "f1_1", "a") is None


def test_a_bitmap_of_another_cardinality_is_unknown(folder: Folder) -> None:
    put_changed(folder, [made("f1_1", "a", "b", "a")], [made("f1_1", "a", "b", "b")])
    assert rows_of(folder.refresh(), "f1_1", "a") is None and rows_of(folder.held, "f1_1", "b") is None


def test_a_missing_bitmap_is_unknown(folder: Folder) -> None:
    put_changed(folder, [made("f1_1", "a", "b")], [made("f1_1", "a", "a", None)])
    assert rows_of(folder.refresh(), "f1_1", "b") is None


def test_a_bitmap_past_the_rows_is_unknown(folder: Folder) -> None:
    put_changed(folder, [made("f1_1", "a")], [replace(made("f1_1", "b", "a"), rows=1)])
    assert rows_of(folder.refresh(), "f1_1", "a") is None


def test_an_empty_bitmap_that_somebody_left_is_accepted(folder: Folder) -> None:
    """R135: RFC-92's own writer keeps the record of a value that went away; no reader asks for it."""
    wide = made("f1_1", "a", "b")
    empty = replace(wide, columns=(replace(made("f1_1", "zz").columns[0], cardinalities=(0,)),))
    put_changed(folder, [wide], [wide, empty])
    assert rows_of(folder.refresh(), "f1_1", "a") == [0] and rows_of(folder.held, "f1_1", "b") == [1]


def test_values_of_other_types_keep_apart(folder: Folder) -> None:
    """``1`` of an int is not ``1`` of a string; both are values of a column that is a string now."""
    ints = file_bitmaps("f1_1", {"c": 9}, pa.table({"c": pa.array([1, 1, 2], pa.int32())}))
    folder.put(run(1), ints)
    folder.put(run(2), made("f2_2", "1", "x"))
    column = folder.refresh().column("c")
    assert sorted(column.values) == [("int", "1"), ("int", "2"), ("string", "1"), ("string", "x")]
    values, good = column.typed("c", pa.string())
    assert (
        sorted(values.to_pylist()[:-1]) == ["1", "1", "2", "x"]
        and good.all()
        and values[len(values) - 1].as_py() is None
    )
    values, good = column.typed("c", pa.int64())
    by_text = dict(zip(column.values, zip(values.to_pylist(), good.tolist(), strict=False), strict=False))
    assert by_text["int", "2"] == (2, True) and by_text["string", "x"] == (None, False)


@pytest.mark.parametrize("kind", [pa.timestamp("ms", "UTC"), pa.timestamp("us", "Asia/Seoul"), pa.timestamp("ms")])
def test_timestamps_of_any_unit_have_values(folder: Folder, kind: pa.DataType) -> None:
    folder.put(run(1), file_bitmaps("f1_1", {"c": 9}, pa.table({"c": pa.array([5000, None], pa.int64()).cast(kind)})))
    column = folder.refresh().column("c")
    values, good = column.typed("c", kind)
    micros = 5_000_000 if kind.unit == "ms" else 5000
    assert good.all() and values.cast(pa.int64()).to_pylist() == [micros, None]


def test_blocks_of_many_files(folder: Folder, limits: Limits) -> None:
    limits("lakedex.index.bitmap.run_files", FILES_PER_BLOCK=3)
    limits("lakedex.index.bitmap.compaction", FILES_PER_BLOCK=2)
    files = [made(f"f{n:02d}_1", *("ab"[: n % 3]), "c") for n in range(10)]
    wanted = {f"f{n:02d}_1": {**dict.fromkeys("ab"[: n % 3], 1), "c": 1} for n in range(10)}
    runs = [folder.put(run(1), *files[:7]), folder.put(run(2), *files[7:])]
    assert said(folder.refresh()) == wanted
    folder.fold(3, runs, *wanted)
    assert said(folder.refresh()) == wanted
    assert rows_of(folder.held, "f05_1", "c") == [2]


def test_values_without_rows_of_their_own_are_damage(folder: Folder) -> None:
    """Lists of other lengths would shift the numbers of all entries after them."""
    item = made("f1_1", "a", "b")
    bad = replace(item, columns=(replace(item.columns[0], cardinalities=(2,)),))
    cells = [*record_cells(coverage_records([bad])), *bitmap_cells(column_entries(item, item.columns[0]))]
    write_run(TableFiles(STORAGE, folder.path), run(1), encode_cells(cells))
    assert said(folder.refresh()) == {} and run(1).name in folder.held.unread


def test_coverage_of_runs_that_are_gone_does_not_pile_up(folder: Folder, limits: Limits) -> None:
    limits(module, COMPACT_THRESHOLD=3)
    for number in range(1, 8):
        one = folder.put(run(number), made(f"f1_{number}", "a"))
        folder.refresh()
        assert folder.held.needs_reload == (number >= 6)
        folder.remove(one)


def test_no_entry_is_no_state(folder: Folder) -> None:
    two = replace(made("f2_1", "b"), columns=())
    folder.put(run(1), made("f1_1", "a"), two)
    column = folder.refresh().column("c")
    assert said(folder.held) == {"f1_1": {"a": 1}} and NO_ENTRY in column.states.tolist()
    assert np.asarray(column.entry_of).max() == 0
