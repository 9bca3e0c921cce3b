"""Indexes compared with the data: every kind of damage leaves queries right, is told, and is mended."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from fastavro import schemaless_writer

from lakedex import Table
from lakedex.codec.avro import parse_json
from lakedex.codec.bloom import BloomBuilder
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.metadata_record import BitmapRecord, bitmap_schema_json, decode_many, encode_bitmap_records
from lakedex.errors import CorruptFileError, IndexNotFoundError, InvalidInputError, UnsupportedFeatureError
from lakedex.index.bitmap import compaction as bitmap_folds
from lakedex.index.bitmap.compaction import CompactShard
from lakedex.index.bitmap.loaded_index import run_records
from lakedex.index.bitmap.run_files import (
    COLUMN_SCHEMA,
    FILES_SCHEMA,
    Manifest,
    Run,
    RunFolder,
    decode_block,
    encode_block,
    list_runs,
    publish_manifest,
)
from lakedex.index.column_stats import index as metadata_updates
from lakedex.index.column_stats import stats as column_stats
from lakedex.index.column_stats.stats import stats_records
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.reports import ValidationReport
from lakedex.scan.scan import Scan
from table_kit import OWN_FILE, make, picture, rows

QUERIES = (
    "g = 'm'",
    "g = 'f' AND n = 3",
    "NOT (g = 'm' OR n > 1)",
    "g IS NULL AND n = 0",
    "g = 'rare' OR n = 2",
)
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("g", pa.string()), ("n", pa.int32())])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 40 rows in two partitions and a bitmap index in three runs; 'x' has as many rows as 'f'."""
    path = tmp_path_factory.mktemp("original") / "t"
    made = make(path, partition_by="city", schema=SCHEMA, options=OWN_FILE)
    made.indexes.create("bitmap", ["g", "n"], name="idx")
    for part, city in enumerate(("a", "b", "a")):
        data = [(f"{part}-{i:02}", city, ("m", "f", None, "x")[i % 4] if i % 10 else "rare", i % 6) for i in range(40)]
        made.insert(rows(*data, schema=SCHEMA))
    return path


@pytest.fixture
def table(original: Path, tmp_path: Path) -> Table:
    """A copy of it."""
    shutil.copytree(original, tmp_path / "t")
    return Table.open(tmp_path / "t", options=OWN_FILE)


def folder(table: Table) -> Path:
    return Path(table.path) / ".hoodie/metadata/bitmap_index"


def runs(table: Table) -> list[Path]:
    return sorted(folder(table).glob("run_*.hfile"))


def opened(table: Table) -> Table:
    """The table as a process finds it that knows nothing of it yet."""
    return Table.open(table.path, options=OWN_FILE)


WANTED: dict[str, list[str]] = {}
"""Ids of each query; rows are the same in all tests that ask."""


def assert_right(table: Table) -> None:
    fresh = opened(table)
    if not WANTED:
        everything = duckdb.from_arrow(fresh.scan(use_indexes=False).to_arrow())
        for where in QUERIES:
            WANTED[where] = sorted(row[0] for row in everything.filter(where).project("id").fetchall())
    for where, wanted in WANTED.items():
        # All bitmaps are read that could tell something.
        assert ids(replace(fresh.scan(where), cost_gate=False, threads=1)) == wanted


def ids(scan: Scan) -> list[str]:
    return sorted(scan.to_arrow().column("id").to_pylist())


def assert_mended(table: Table, kinds: set[str], *, damage: bool = False) -> ValidationReport:
    """Told without repair, which changes nothing; then mended; then nothing is left to be told."""
    assert_right(table)
    before = picture(Path(table.path))
    told = opened(table).indexes.validate("idx")
    assert {found.kind for found in told.differences} == kinds
    assert bool(told.damage) == damage
    assert told.ok == (not kinds and not damage)
    assert picture(Path(table.path)) == before
    repaired = opened(table).indexes.validate("idx", repair=True)
    assert repaired.files_repaired > 0
    assert_complete(table)
    return told


def assert_complete(table: Table) -> None:
    fresh = opened(table)
    again = fresh.indexes.validate("idx")
    assert again.ok, str(again)
    assert again.files_uncovered == 0
    assert fresh.indexes.stats("idx").files_uncovered == 0
    state = {row["name"]: row["state"] for row in fresh.indexes.list().to_pylist()}
    assert state["idx"] == "complete"
    assert_right(table)
    # Whoever has looked at the index before sees the same.
    assert ids(table.scan("g = 'm'")) == ids(fresh.scan("g = 'm'", use_indexes=False))


Cells = list[tuple[bytes, BitmapRecord]]


def change_run(path: Path, change: Callable[[Cells], Cells]) -> None:
    """Write a run again with other records: bytes that are whole, and wrong."""
    reader = HFileReader.from_bytes(path.read_bytes())
    cells = list(reader.scan())
    records = run_records(reader, [value for _, value in cells], str(path))
    changed = sorted(
        change([(key, record) for (key, _), record in zip(cells, records, strict=True)]), key=lambda c: c[0]
    )
    values = encode_bitmap_records(record for _, record in changed)
    content = write_hfile(
        zip((key for key, _ in changed), values, strict=True),
        compression="gz",
        info={"schema": bitmap_schema_json().encode()},
    )
    path.write_bytes(content)


def of_value(cells: Cells, column: str, value: str) -> int:
    return next(at for at, (key, _) in enumerate(cells) if key.startswith(f"{column}${value}$".encode()))


def test_whole_index(table: Table) -> None:
    """R148: an index can be compared with its data."""
    report = table.indexes.validate("idx")
    assert report.ok
    assert (report.files_total, report.files_checked, report.files_uncovered) == (3, 3, 0)
    assert report.entries_checked == table.indexes.stats("idx").entries > 0
    assert "agrees with the data" in str(report)
    assert report.to_dict()["ok"] is True
    assert report.to_arrow().num_rows == 0


def test_flipped_bytes(table: Table) -> None:
    path = runs(table)[1]
    content = bytearray(path.read_bytes())
    for at in range(60, len(content) - 300, 40):
        content[at] ^= 0xFF
    path.write_bytes(content)
    told = assert_mended(table, set(), damage=True)
    assert path.name in told.damage[0]
    assert "damage: run" in str(told)
    assert not path.exists()


@pytest.mark.parametrize("at", range(8))
def test_a_flipped_byte_anywhere(table: Table, at: int) -> None:
    """Wherever it is, no row is lost; where it matters to anybody, it is told and mended."""
    path = runs(table)[1]
    content = bytearray(path.read_bytes())
    content[len(content) * at // 8 + 5] ^= 0x55
    path.write_bytes(content)
    assert_right(table)
    told = opened(table).indexes.validate("idx")
    if not told.ok:
        opened(table).indexes.validate("idx", repair=True)
    assert_complete(table)


def test_deleted_run(table: Table) -> None:
    """Nobody is told of a run that no manifest lists: its file is not covered, and a refresh covers it."""
    runs(table)[0].unlink()
    assert_right(table)
    report = opened(table).indexes.validate("idx")
    assert report.ok
    assert report.files_uncovered == 1
    assert "partial: 2 of 3 files" in str(opened(table).indexes.list().column("state").to_pylist())
    opened(table).indexes.refresh("idx")
    assert_complete(table)


def test_truncated_run(table: Table) -> None:
    path = runs(table)[2]
    path.write_bytes(path.read_bytes()[:-100])
    assert_mended(table, set(), damage=True)


def test_swapped_bitmaps(table: Table) -> None:
    """Of other sizes: told apart by coverage, so a query does not use them."""

    def swap(cells: Cells) -> Cells:
        a, b = of_value(cells, "g", "m"), of_value(cells, "g", "rare")
        (ka, ra), (kb, rb) = cells[a], cells[b]
        assert ra.cardinality != rb.cardinality
        cells[a], cells[b] = (ka, rb), (kb, ra)
        return cells

    change_run(runs(table)[0], swap)
    assert_mended(table, {"wrong counts"})


def test_wrong_positions(table: Table) -> None:
    """A run that agrees with itself and not with the data: only the data tell."""

    def shift(cells: Cells) -> Cells:
        a, b = of_value(cells, "g", "x"), of_value(cells, "g", "f")
        (ka, ra), (kb, rb) = cells[a], cells[b]
        assert ra.cardinality == rb.cardinality
        cells[a], cells[b] = (ka, rb), (kb, ra)
        return cells

    change_run(runs(table)[0], shift)
    told = opened(table).indexes.validate("idx")
    assert [(found.kind, found.column, found.count) for found in told.differences] == [("wrong positions", "g", 2)]
    assert "does NOT agree" in str(told)
    assert "repair=True" in str(told)
    repaired = opened(table).indexes.validate("idx", repair=True)
    assert repaired.files_repaired == 1
    assert "repaired: entries of 1 file written again" in str(repaired)
    assert_complete(table)


def test_changed_base64(table: Table) -> None:
    def garble(cells: Cells) -> Cells:
        at = of_value(cells, "g", "m")
        key, record = cells[at]
        cells[at] = (
            key,
            BitmapRecord(
                bitmap="!" + str(record.bitmap)[1:], base_file=record.base_file, cardinality=record.cardinality
            ),
        )
        return cells

    change_run(runs(table)[0], garble)
    assert_mended(table, {"damaged bytes"})


def test_missing_bitmap(table: Table) -> None:
    change_run(runs(table)[0], lambda cells: [c for c in cells if not c[0].startswith(b"n$2$")])
    told = assert_mended(table, {"missing bitmap"})
    assert told.differences[0].column == "n"


def test_bitmap_of_another_file(table: Table) -> None:
    def rename(cells: Cells) -> Cells:
        at = of_value(cells, "g", "m")
        key, record = cells[at]
        cells[at] = key, BitmapRecord(bitmap=record.bitmap, base_file="other.parquet", cardinality=record.cardinality)
        return cells

    change_run(runs(table)[0], rename)
    assert_mended(table, {"missing bitmap"})


def test_wrong_cardinality(table: Table) -> None:
    def count(cells: Cells) -> Cells:
        at = of_value(cells, "g", "m")
        key, record = cells[at]
        cells[at] = key, BitmapRecord(bitmap=record.bitmap, base_file=record.base_file, cardinality=99)
        return cells

    change_run(runs(table)[0], count)
    assert_mended(table, {"wrong counts"})


def test_extra_fields_of_others(table: Table) -> None:
    """A run whose schema has a field more is read by names, and nothing is wrong with it."""
    path = runs(table)[0]
    reader = HFileReader.from_bytes(path.read_bytes())
    cells = list(reader.scan())
    schema = json.loads(bitmap_schema_json())
    schema["fields"][-1]["type"][1]["fields"].insert(0, {"name": "more", "type": ["null", "string"], "default": None})
    text = json.dumps(schema)
    values = []
    for record in decode_many([value for _, value in cells], bitmap_schema_json()):
        out = io.BytesIO()
        record["BitmapIndexMetadata"]["more"] = "x"
        schemaless_writer(out, parse_json(text), record)
        values.append(out.getvalue())
    content = write_hfile(
        zip((key for key, _ in cells), values, strict=True), compression="gz", info={"schema": text.encode()}
    )
    path.write_bytes(content)
    assert_complete(table)


def fold(table: Table, taken: list[Run], instant: str = "29990101000000000", found: RunFolder | None = None) -> None:
    """Put some runs together, as an upkeep fold does that saw the folder as ``found``."""
    files = TableFiles(LocalStorage(), table.path)
    live = frozenset(table.inspect.files().column("file_name").to_pylist())
    shard = CompactShard(files=files, runs=tuple(taken), live=live, columns=("g", "n"))
    found = found or list_runs(files)
    written = shard(Run(instant, "fold", 0))
    left = [run for run in found.runs if run not in taken]
    handle: Any = table.context
    bitmap_folds.publish_compaction(handle, found, taken, [*left, written])


def test_manifest_with_a_missing_run(table: Table) -> None:
    found = list_runs(TableFiles(LocalStorage(), table.path))
    names = tuple(run.name for run in found.runs)
    publish_manifest(
        TableFiles(LocalStorage(), table.path), Manifest(number=1, runs=(*names, "run_1_fold_00000.hfile"), folded=())
    )
    runs(table)[0].unlink()
    told = assert_mended(table, set(), damage=True)
    assert sum("the manifest lists it" in text for text in told.damage) == 2


def test_damaged_manifest(table: Table) -> None:
    fold(table, list(list_runs(TableFiles(LocalStorage(), table.path)).runs))
    (manifest,) = folder(table).glob("manifest_*.json")
    manifest.write_text(manifest.read_text()[:-20])
    plan = opened(table).scan("g = 'm'").plan()
    assert [item.reason for item in plan.unused if item.index == "bitmap"] == ["damaged"]
    assert "damaged" in str(opened(table).indexes.list().column("state").to_pylist())
    told = assert_mended(table, set(), damage=True)
    assert told.damage[0].startswith("manifest: ")


def test_damaged_definitions(table: Table) -> None:
    """Nobody knows the columns then: queries go without the index, and it is built anew."""
    definitions = Path(table.path) / ".hoodie/.index_defs/bitmap_index.json"
    definitions.write_text("{")
    assert_right(table)
    assert "damaged" in str(opened(table).indexes.list().column("state").to_pylist())
    assert "damaged: " in str(opened(table))
    with pytest.raises(CorruptFileError, match="bitmap_index.json"):
        opened(table).indexes.validate("idx")
    definitions.unlink()
    opened(table).indexes.create("bitmap", ["g", "n"], name="idx")
    assert_complete(table)
    assert re.search(r"idx +bitmap +g, n +complete", str(opened(table)))


def test_a_repair_outranks_a_fold_that_does_not_have_it(table: Table) -> None:
    """A fold that began before the repair is published after it."""
    change_run(runs(table)[0], lambda cells: [c for c in cells if not c[0].startswith(b"g$m$")])
    found = list_runs(TableFiles(LocalStorage(), table.path))
    watcher = opened(table)
    assert watcher.scan("g = 'm'").plan().files_kept
    opened(table).indexes.validate("idx", repair=True)
    fold(table, list(found.runs), found=found)
    assert_complete(table)
    assert ids(watcher.scan("g = 'm' AND n = 1")) == ids(table.scan("g = 'm' AND n = 1", use_indexes=False))
    assert watcher.indexes.validate("idx").ok


def test_a_folded_repair_outranks_what_the_fold_left_out(table: Table) -> None:
    """The large run that it mends is older than the fold, whose list says so."""
    wrong = runs(table)[0].name
    change_run(runs(table)[0], lambda cells: [c for c in cells if not c[0].startswith(b"g$m$")])
    opened(table).indexes.validate("idx", repair=True)
    assert not opened(table).indexes.validate("idx").differences
    taken = [run for run in list_runs(TableFiles(LocalStorage(), table.path)).runs if run.name != wrong]
    fold(table, taken, instant="10000101000000000")
    assert (folder(table) / wrong).exists()
    assert_complete(table)


def test_wrong_rows_and_row_groups_of_a_file(table: Table) -> None:
    """What a repair says of a file's row groups counts, not what the older run said first."""

    def change(cells: Cells) -> Cells:
        at = next(at for at, (key, _) in enumerate(cells) if key.startswith(b"\0files$"))
        key, record = cells[at]
        block = decode_block(record.coverage or b"", FILES_SCHEMA, "")
        place = FILES_SCHEMA.get_field_index("group_start")
        block = block.set_column(
            place, FILES_SCHEMA.field(place), pa.array([[1]] * block.num_rows, pa.list_(pa.int64()))
        )
        cells[at] = key, BitmapRecord(coverage=encode_block(block))
        return cells

    change_run(runs(table)[0], change)
    told = opened(table).indexes.validate("idx")
    assert [found.kind for found in told.differences] == ["wrong row groups"]
    opened(table).indexes.validate("idx", repair=True)
    assert_complete(table)
    fold(table, list(list_runs(TableFiles(LocalStorage(), table.path)).runs))
    assert_complete(table)


def test_inconsistent_coverage_is_not_believed(table: Table) -> None:
    """Lists of other lengths would give values each other's counts."""

    def change(cells: Cells) -> Cells:
        at = next(at for at, (key, _) in enumerate(cells) if key.startswith(b"\0column$g$"))
        key, record = cells[at]
        block = decode_block(record.coverage or b"", COLUMN_SCHEMA, "")
        place = COLUMN_SCHEMA.get_field_index("counts")
        lists = [counts[1:] for counts in block.column("counts").to_pylist()]
        block = block.set_column(place, COLUMN_SCHEMA.field(place), pa.array(lists, pa.list_(pa.int64())))
        cells[at] = key, BitmapRecord(coverage=encode_block(block))
        return cells

    change_run(runs(table)[0], change)
    assert_mended(table, set(), damage=True)


def test_stale_entries_are_no_fault(table: Table) -> None:
    fold(table, list(list_runs(TableFiles(LocalStorage(), table.path)).runs))
    table.upsert(rows(("0-01", "a", "m", 9), schema=SCHEMA))
    report = table.indexes.validate("idx")
    assert report.ok
    assert report.entries_stale > 0
    shown = table.inspect.bitmaps("g")
    assert set(shown.column("current").to_pylist()) == {True, False}


def test_widened_column_is_compared_in_its_present_type(table: Table) -> None:
    """R92.l: entries of an earlier type stay true."""
    table.widen_column("n", pa.int64())
    assert table.indexes.validate("idx").ok
    assert_right(table)


def test_samples_and_names(table: Table) -> None:
    assert table.indexes.validate("idx", files=2).files_checked == 2
    assert table.indexes.validate("idx", files=99).files_checked == 3
    name = table.inspect.files().column("file_name")[1].as_py()
    seen: list[tuple[int, int]] = []
    assert table.indexes.validate("idx", files=[name], progress=lambda d, n: seen.append((d, n))).files_checked == 1
    assert seen == [(1, 1)]
    with pytest.raises(InvalidInputError, match="no current base file"):
        table.indexes.validate("idx", files=["x.parquet"])
    with pytest.raises(InvalidInputError, match="from 1 on"):
        table.indexes.validate("idx", files=0)
    with pytest.raises(IndexNotFoundError, match="it has .*idx"):
        table.indexes.validate("nothing")


def test_figures_of_an_index(table: Table) -> None:
    """R150: coverage, entries and bytes of an index, and what is not indexed and why."""
    table.indexes.create("bitmap", ["id"], name="few", options={"max_distinct_values": "5"})
    stats = table.indexes.stats("idx")
    assert (stats.files_covered, stats.files_uncovered, stats.rows_covered) == (3, 0, 120)
    g, n = stats.columns
    assert (g.column, g.distinct, g.entries) == ("g", 4, 3 * 5)
    assert (n.column, n.distinct, n.entries) == ("n", 6, 18)
    assert stats.entries == 33
    assert 0 < stats.bytes <= stats.bytes_of_runs
    few = table.indexes.stats("few")
    assert few.columns[0].not_indexed == {"too many distinct values": 3}
    assert "3 files: too many distinct values" in str(few)
    assert stats.to_dict()["columns"][0]["distinct"] == 4
    listed = {row["name"]: row for row in table.indexes.list().to_pylist()}
    assert listed["idx"] == {
        "name": "idx", "using": "bitmap", "columns": ["g", "n"], "state": "complete", "maintained": True
    }  # fmt: skip


def test_entries_as_a_table(table: Table) -> None:
    """R150: what the index holds can be looked at."""
    shown = table.inspect.bitmaps(column="g", partition="city=b")
    (file,) = set(shown.column("base_file").to_pylist())
    assert file in table.inspect.files().column("file_name").to_pylist()
    assert shown.column("value").to_pylist() == ["f", "m", "rare", "x", None]
    assert sum(shown.column("cardinality").to_pylist()) == 40
    assert set(shown.column("row_groups").to_pylist()) == {1}
    assert set(shown.column("run").to_pylist()) <= {path.name for path in runs(table)}
    assert table.inspect.bitmaps("nothing").num_rows == 0
    assert set(table.inspect.bitmaps().column("column").to_pylist()) == {"g", "n"}


# --------------------------------------------------------------------------------------- column_stats, bloom_filters


def test_stats_and_filters_agree(table: Table) -> None:
    for name in ("column_stats", "bloom_filters"):
        report = table.indexes.validate(name)
        assert report.ok, str(report)
        assert (report.files_checked, report.files_uncovered) == (3, 0)
    with pytest.raises(UnsupportedFeatureError, match="validate those"):
        table.indexes.validate("partition_stats")


def test_wrong_bounds_are_told_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R61: stats can be compared with the data; ``partition_stats`` are mended with them."""
    table = make(tmp_path / "t", partition_by="city", schema=SCHEMA, options=OWN_FILE)
    with monkeypatch.context() as patch:
        patch.setattr(column_stats, "_widen", lambda name, low, high: (low, low) if name == "n" else (low, high))
        table.insert(rows(("1", "a", "m", 1), ("2", "a", None, 7), schema=SCHEMA))
    table.insert(rows(("3", "a", "m", 3), schema=SCHEMA))
    assert opened(table).scan("n = 7").count() == 0  # What a wrong stat does.
    report = opened(table).indexes.validate("column_stats")
    assert [(found.kind, found.column) for found in report.differences] == [("wrong bounds", "n")]
    assert "expected values from 1 to 7, found values from 1 to 1" in str(report)
    assert opened(table).indexes.validate("column_stats", repair=True).files_repaired == 1
    assert opened(table).scan("n = 7").count() == 1
    assert opened(table).indexes.validate("column_stats").ok
    assert opened(table).scan("n = 7", verify="full").count() == 1


def test_wrong_counts_and_missing_entries_of_stats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t", schema=SCHEMA, options=OWN_FILE)
    whole = stats_records

    def wrong(*arguments: Any) -> list[Any]:
        found = whole(*arguments)
        for _, record in found:
            if record["ColumnStatsMetadata"]["columnName"] == "g":
                record["ColumnStatsMetadata"]["nullCount"] = 0
        return [item for item in found if item[1]["ColumnStatsMetadata"]["columnName"] != "n"]

    with monkeypatch.context() as patch:
        patch.setattr(metadata_updates, "stats_records", wrong)
        table.insert(rows(("1", "a", "m", 1), ("2", "a", None, 7), schema=SCHEMA))
    report = opened(table).indexes.validate("column_stats")
    assert {(found.kind, found.column) for found in report.differences} == {
        ("wrong counts", "g"),
        ("missing entry", "n"),
    }
    opened(table).indexes.validate("column_stats", repair=True)
    assert opened(table).indexes.validate("column_stats").ok


def test_filters_that_miss_keys_are_told_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R61: a filter that misses a key would lose its row."""
    table = make(tmp_path / "t", partition_by="city", schema=SCHEMA, options=OWN_FILE)
    add = BloomBuilder.add
    with monkeypatch.context() as patch:
        patch.setattr(BloomBuilder, "add", lambda self, keys: add(self, keys.slice(1)))
        table.insert(rows(("1", "a", "m", 1), ("2", "a", None, 7), schema=SCHEMA))
    assert opened(table).scan("id = '1'").count() == 0
    report = opened(table).indexes.validate("bloom_filters")
    assert [(found.kind, found.count, found.expected) for found in report.differences] == [("missed keys", 1, "'1'")]
    assert opened(table).indexes.validate("bloom_filters", repair=True).files_repaired == 1
    assert opened(table).indexes.validate("bloom_filters").ok
    assert opened(table).scan("id = '1'").count() == 1


def test_an_index_that_is_not_there(tmp_path: Path) -> None:
    table = make(tmp_path / "t", schema=SCHEMA, options={"hoodie.metadata.index.bloom.filter.enable": "false"})
    table.insert(rows(("1", "a", "m", 1), schema=SCHEMA))
    with pytest.raises(IndexNotFoundError, match="bloom_filters"):
        table.indexes.validate("bloom_filters")
