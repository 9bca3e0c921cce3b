"""``create_index(using="bitmap")``, ``refresh_index`` and ``drop_index``: what is built, what is refused, what resumes."""

from __future__ import annotations

import errno
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bitmap_table_kit import (
    batch,
    coverage_of,
    defined,
    files_in_folder,
    held,
    run_names,
    said,
    same_answers,
    uncovered,
)
from golden_tables import MERGE_ON_READ, VERSION_6, VERSION_8, VERSION_9, unpack
from lakedex import Table
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.metadata_record import BitmapRecord, bitmap_schema_json, encode_bitmap_records
from lakedex.errors import (
    CorruptFileError,
    IndexExistsError,
    IndexNotFoundError,
    InvalidInputError,
    LakedexError,
    OptionError,
    UnsupportedFeatureError,
)
from lakedex.index.bitmap import index as bitmap_upkeep
from lakedex.index.bitmap.keys import coverage_prefix
from lakedex.index.bitmap.run_files import list_runs
from lakedex.io.local import LocalStorage
from lakedex.local.engine import LocalEngine
from lakedex.local.session import LocalSession
from lakedex.metadata.files import open_hfile
from lakedex.snapshot.snapshot import Limits, TableContext
from lakedex.testing import Faults, FaultyStorage
from seams import with_context
from table_kit import OWN_FILE, set_properties

ASKED = ("g = 'x'", "g is null and n = 2", "s.k = 1 or n > 2")


def _made(path: Path) -> Table:
    """Six files in three partitions, no bitmap index."""
    made = Table.create(path, record_key="id", partition_by="city", ordering_by="ts")
    made.insert(batch(0, 60))
    made.insert(batch(60, 30), options=OWN_FILE)
    return made


SPILLING = Limits(build_inline_bytes=1)
"""Tasks hand bitmaps over through files."""


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def _changed(path: Path) -> Table:
    """All rows were changed four times since the index was made: folding is near."""
    made = _made(path)
    bitmaps(made, "g", "n")
    for number in range(4):
        made.upsert(batch(0, 60, number + 2))
    return made


def bitmaps(table: Table, *columns: str, name: str = "idx", **arguments: Any) -> Any:
    return table.indexes.create("bitmap", list(columns), name=name, **arguments)


def folder_of(table: Table) -> Path:
    return Path(table.path) / ".hoodie/metadata/bitmap_index"


def test_build(table: Table) -> None:
    """R121-R123: all current files, each value a bitmap."""
    seen: list[tuple[int, int]] = []
    result = bitmaps(table, "g", "S.K", progress=lambda done, total: seen.append((done, total)))
    assert (result.columns, result.files, seen) == (("g", "s.k"), 6, [(6, 6)])
    counted = sum(
        len(held(Path(table.path) / base.relative_path, name))
        for base in table.snapshot().base_files()
        for name in ("g", "s.k")
    )
    assert result.entries == counted
    assert result.bytes_written == sum(entry.stat().st_size for entry in folder_of(table).iterdir())
    assert uncovered(table, "g", "s.k") == []
    same_answers(table, *ASKED)
    assert defined(table) == {"idx": ("g", "s.k")}
    assert list((Path(table.path) / ".hoodie/.heartbeat").iterdir()) == []


def test_same_input_same_bytes(table: Table) -> None:
    """Whatever the engine does at once."""
    bitmaps(table, "g", "n")
    first = {path.name.split("_")[-1]: path.read_bytes() for path in folder_of(table).iterdir()}
    table.indexes.drop("idx")
    engine = LocalEngine(7)
    again = Table(TableContext(table.context.files, engine), LocalSession(engine))
    bitmaps(again, "g", "n")
    assert {path.name.split("_")[-1]: path.read_bytes() for path in folder_of(table).iterdir()} == first


def test_chunks_are_runs(table: Table) -> None:
    """A build that dies keeps the chunks that it wrote, and the next one goes on there."""
    small = with_context(table, limits=Limits(files_per_chunk=2))

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bitmaps(small, "g", progress=stop)
    assert len(run_names(table)) == 2
    assert len(uncovered(table, "g")) == 2
    same_answers(table, *ASKED)
    seen: list[tuple[int, int]] = []
    result = bitmaps(small, "g", progress=lambda done, total: seen.append((done, total)))
    assert (result.files, seen) == (2, [(2, 2)])
    assert "the index exists already; covered the files that it lacked" in result.notes
    assert uncovered(table, "g") == []
    assert list((Path(table.path) / ".hoodie/.temp").iterdir()) == []


def test_large_bitmaps_of_a_build_go_through_files(table: Table) -> None:
    faults = Faults()
    bitmaps(with_context(table, limits=SPILLING, storage=FaultyStorage(faults)), "g")
    spilled = {path for call, path in faults.seen if call in ("create", "write") and path.endswith(".bitmaps")}
    assert len(spilled) == 6
    assert uncovered(table, "g") == []
    assert not any(Path(path).exists() for path in spilled)


@pytest.mark.parametrize("kind", ["another file's", "cut short", "pickle", "no longer there"])
def test_bitmaps_that_somebody_replaced_are_refused(table: Table, kind: str) -> None:
    """What lies in the table's folder until a run holds it is what the task wrote, or nothing comes of it."""
    made = Path(table.path, "made")

    def replace() -> None:
        first, second, *_ = sorted(Path(table.path).rglob("[!.]*.bitmaps"))
        if kind == "no longer there":
            first.unlink()
        else:
            content = first.read_bytes()
            code = pickle.dumps(Makes(made))
            first.write_bytes({"cut short": content[:-9], "pickle": code}.get(kind, second.read_bytes()))

    class Meddling(LocalEngine):
        def run(self, fn: Any, items: Any, label: str = "") -> list[Any]:
            found = super().run(fn, items, label)
            if list(Path(table.path).rglob("[!.]*.bitmaps")):
                replace()
            return found

    before = table.inspect.history().num_rows
    with pytest.raises(LakedexError, match=r"\.bitmaps"):
        bitmaps(with_context(table, limits=SPILLING, engine=Meddling()), "g")
    assert not made.exists()
    assert (len(uncovered(table, "g")), table.inspect.history().num_rows) == (6, before)
    assert bitmaps(table, "g").files == 6


class Makes:
    """A value whose unpickling makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path,)


def test_there_already(table: Table) -> None:
    bitmaps(table, "g")
    with pytest.raises(IndexExistsError, match="'idx' exists and covers what was asked for"):
        bitmaps(table, "g")
    assert bitmaps(table, "g", if_not_exists=True).notes == ("the index exists already",)
    more = bitmaps(table, "n")
    assert (more.columns, more.files) == (("g", "n"), 6)
    assert uncovered(table, "g", "n") == []
    assert bitmaps(table, "n", name="other").files == 0, "the runs have that column already"
    assert defined(table) == {"idx": ("g", "n"), "other": ("n",)}


def test_a_column_of_two_indexes(table: Table) -> None:
    """Bitmaps are of columns, so the second index costs nothing, and says so."""
    assert bitmaps(table, "g", "n").notes == ()
    again = bitmaps(table, "g", "s.k", name="other")
    assert again.notes == ("the index 'idx' has 'g' already; the two share the bitmaps",)
    assert again.columns == ("g", "s.k") and uncovered(table, "g", "n", "s.k") == []
    table.indexes.drop("idx")
    assert uncovered(table, "g", "s.k") == []
    same_answers(table, *ASKED)


def test_some_partitions(table: Table) -> None:
    """The others stay uncovered, until a refresh without partitions."""
    result = bitmaps(table, "g", partitions=["city=a", {"city": "b"}])
    assert result.files == 4
    assert set(uncovered(table, "g")) == {b.name for b in table.snapshot().base_files(["city=c"])}
    same_answers(table, *ASKED)
    assert table.indexes.refresh("idx", "city=a").files == 0
    assert table.indexes.refresh("idx").files == 2
    with pytest.raises(InvalidInputError, match="no partition 'city=z'"):
        table.indexes.refresh("idx", "city=z")


def test_too_many_values(table: Table) -> None:
    """Given up in a file, said so, and built where the cap is raised."""
    result = bitmaps(table, "id", "g", options={"max_distinct_values": 15})
    assert result.notes == ("column 'id' is not indexed in 3 files: too many distinct values",)
    coverage, files = coverage_of(table), table.snapshot().base_files()
    states = [said(coverage, "id", base.name) for base in files]
    assert states.count("too many distinct values") == 3
    assert bitmaps(table, "id", options={"max_distinct_values": 10}, if_not_exists=True).files == 0
    again = bitmaps(table, "id", options={"max_distinct_values": 1000})
    assert (again.files, again.entries) == (3, 60)
    coverage = coverage_of(table)
    assert all(isinstance(said(coverage, "id", base.name), dict) for base in files)
    assert uncovered(table, "id", "g") == []


def test_empty_table(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", batch(0, 1).schema, record_key="id", partition_by="city")
    assert bitmaps(table, "g").files == 0
    table.upsert(batch(0, 9))
    assert uncovered(table, "g") == []
    without = Table.create(tmp_path / "u", record_key="id")
    with pytest.raises(InvalidInputError, match=r"u has no column 'g'; it has no columns yet"):
        bitmaps(without, "g")


def test_refused(table: Table) -> None:
    for name in ("column_stats", "files", "record_index", "secondary_index_g", "Expr_index_g", "bitmap_index"):
        with pytest.raises(InvalidInputError, match="Hudi's own"):
            bitmaps(table, "g", name=name)
    for name in ("", "a b", "1a", "a$b", "../x"):
        with pytest.raises(InvalidInputError, match="no name for an index"):
            bitmaps(table, "g", name=name)
    with pytest.raises(InvalidInputError, match=r"has no column 'gg'; it has id, city"):
        bitmaps(table, "gg")
    with pytest.raises(InvalidInputError, match=r"has no column 's\.z'"):
        bitmaps(table, "s.z")
    with pytest.raises(UnsupportedFeatureError, match="column 's' is struct"):
        bitmaps(table, "s")
    with pytest.raises(InvalidInputError, match="_hoodie_record_key"):
        bitmaps(table, "_hoodie_record_key")
    with pytest.raises(InvalidInputError, match="needs columns"):
        bitmaps(table)
    for value in (0, "many", -1):
        with pytest.raises(InvalidInputError, match="max_distinct_values"):
            bitmaps(table, "g", options={"max_distinct_values": value})
    with pytest.raises(OptionError, match="max_distinct_values is for bitmap"):
        table.indexes.create("column_stats", options={"max_distinct_values": 1})
    with pytest.raises(InvalidInputError, match="partitions= is for bitmap"):
        table.indexes.create("column_stats", partitions="city=a")
    assert defined(table) == {}
    assert files_in_folder(table) == set()


class Blind(LocalStorage):
    """A writer's that knows nothing of bitmap indexes."""

    def read(self, path: str) -> bytes:
        if path.endswith("/bitmap_index.json"):
            raise FileNotFoundError(path)
        return super().read(path)


def test_refresh_covers_what_others_wrote(table: Table) -> None:
    """A writer that knows nothing of bitmaps leaves its files uncovered, and what was said of older ones is no matter."""
    bitmaps(table, "g", "n")
    with_context(table, storage=Blind()).upsert(batch(0, 30, 5, g="theirs"))
    assert len(uncovered(table, "g", "n")) == 3
    same_answers(table, *ASKED, "g = 'theirs'")
    result = table.indexes.refresh("idx")
    assert (result.files, result.columns) == (3, ("g", "n"))
    assert uncovered(table, "g", "n") == []
    assert table.indexes.refresh("idx").files == 0
    same_answers(table, *ASKED, "g = 'theirs'")


def test_a_writer_that_began_before_the_index(table: Table) -> None:
    """It completes while the index is built and has no bitmaps: the build looks again."""

    def other(done: int, total: int) -> None:
        if done == 6:
            with_context(table, storage=Blind()).upsert(batch(0, 6, 5, g="theirs"))

    assert bitmaps(table, "g", progress=other).files == 6 + 3
    assert uncovered(table, "g") == []


@pytest.mark.parametrize("wrong", ["folder gone", "run gone", "run of zeros", "manifest damaged", "stray file"])
def test_refresh_heals(once: Callable[..., Table], tmp_path: Path, wrong: str) -> None:
    """R92: right rows at once, a full index after a refresh, and folding goes on."""
    table = once(_changed, tmp_path / "t")
    victim = folder_of(table) / (run_names(table)[0] if "manifest" not in wrong else "manifest_0000000001.json")
    {
        "folder gone": lambda: shutil.rmtree(folder_of(table)),
        "run gone": victim.unlink,
        "run of zeros": lambda: victim.write_bytes(bytes(victim.stat().st_size)),
        "manifest damaged": lambda: victim.write_bytes(b"{"),
        "stray file": lambda: (folder_of(table) / "run_x.tmp").write_bytes(b"?"),
    }[wrong]()
    if wrong != "manifest damaged":
        same_answers(table, *ASKED)
    result = table.indexes.refresh("idx")
    assert uncovered(table, "g", "n") == []
    same_answers(table, *ASKED)
    assert bool(result.files) == (wrong != "stray file")
    for number in range(4):
        assert table.upsert(batch(0, 60, number + 10)).notes == ()
    assert uncovered(table, "g", "n") == []
    assert len(run_names(table)) <= 5


def test_refresh_heals_one_damaged_column(table: Table) -> None:
    """The run goes as a whole, so what it said of the other columns is built again too."""
    bitmaps(table, "g", "n")
    (name,) = run_names(table)
    path = str(folder_of(table) / name)
    reader = open_hfile(table.context.files.storage, path)
    (junk,) = encode_bitmap_records([BitmapRecord(coverage=b"junk")])
    prefix = coverage_prefix("g").encode()
    cells = [(key, junk if key.startswith(prefix) else value) for key, value in reader.scan()]
    Path(path).write_bytes(write_hfile(cells, compression="gz", info={"schema": bitmap_schema_json().encode()}))
    same_answers(Table.open(table.path), *ASKED)
    result = table.indexes.refresh("idx")
    assert result.files == 6
    assert any("1 damaged runs left out" in note for note in result.notes)
    assert uncovered(table, "g", "n") == []
    same_answers(table, *ASKED)


def test_damaged_definitions_are_an_error(table: Table) -> None:
    bitmaps(table, "g")
    (Path(table.path) / ".hoodie/.index_defs/bitmap_index.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"bitmap_index\.json"):
        table.indexes.refresh("idx")


def test_refresh_of_other_indexes(table: Table) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"indexes\.create\('column_stats'\)"):
        table.indexes.refresh("column_stats")
    with pytest.raises(IndexNotFoundError, match="no index 'nope'; it has bloom_filters"):
        table.indexes.refresh("nope")


def test_drop(table: Table) -> None:
    bitmaps(table, "g")
    bitmaps(table, "n", name="other")
    assert table.indexes.drop("idx").columns == ("g",)
    assert defined(table) == {"other": ("n",)}
    for number in range(4):
        table.upsert(batch(0, 60, number + 2))
    coverage = coverage_of(table)
    assert all(said(coverage, "g", base.name) is None for base in table.snapshot().base_files(["city=a"]))
    table.indexes.drop("other")
    assert files_in_folder(table) == set()
    assert not (Path(table.path) / ".hoodie/.index_defs/bitmap_index.json").exists()
    assert table.upsert(batch(0, 3, 50)).bitmap_bytes == 0
    with pytest.raises(IndexNotFoundError, match="'idx'"):
        table.indexes.drop("idx")
    assert table.indexes.drop("idx", if_exists=True).notes == ("the table has no such index",)
    assert bitmaps(table, "g").files == 6
    same_answers(table, *ASKED)


def test_without_a_metadata_table(table: Table) -> None:
    """The folder is made all the same."""
    shutil.rmtree(Path(table.path) / ".hoodie/metadata")
    set_properties(Path(table.path), {"hoodie.table.metadata.partitions": ""})
    assert bitmaps(table, "g").files == 6
    assert uncovered(table, "g") == []
    same_answers(table, *ASKED)


def test_older_generations(tmp_path: Path) -> None:
    """R70: a file that lacks a column holds nulls; a narrower one is read in the table's type."""
    table = Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering_by="ts")
    table.insert(batch(0, 30).drop_columns(["g", "s"]))
    table.insert(batch(30, 30), options=OWN_FILE)
    table.widen_column("n", "bigint")
    bitmaps(table, "g", "s.k")
    assert uncovered(table, "g", "s.k") == []
    bitmaps(table, "n", name="numbers")
    assert uncovered(table, "n") == []
    same_answers(table, *ASKED, "g is null", "s.k is null and n = 1")


def test_a_fold_that_fails_is_a_note(table: Table) -> None:
    full = FaultyStorage(Faults(1, error=OSError(errno.ENOSPC, "no space"), only=("write", "_fold_00000")))
    notes = bitmaps(with_context(table, limits=Limits(files_per_chunk=1), storage=full), "g").notes
    assert any("could not be compacted" in note and "no space" in note for note in notes)
    assert uncovered(table, "g") == []


def test_a_build_folds(table: Table) -> None:
    bitmaps(with_context(table, limits=Limits(files_per_chunk=1)), "g")
    assert len(list_runs(table.context.files).runs) == 1
    assert uncovered(table, "g") == []
    assert bitmap_upkeep.compact_runs(table.context, "20990101000000000").runs == 0


def test_schema_is_that_of_the_table(table: Table) -> None:
    """A definition's column that the table has not is left alone by writes and tidied by the next build."""
    bitmaps(table, "g", "n")
    path = Path(table.path) / ".hoodie/.index_defs/bitmap_index.json"
    path.write_text(path.read_text().replace('"n"', '"n", "later"'))
    assert table.upsert(batch(0, 6, 3)).bitmap_bytes > 0
    assert "the bitmap index 'idx' no longer has column 'later'" in table.indexes.refresh("idx").notes
    assert defined(table) == {"idx": ("g", "n")}


def test_empty_file(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", batch(0, 1).schema, record_key="id")
    table.upsert(batch(0, 3))
    table.delete(where="true")
    assert bitmaps(table, "g").files == 1
    assert uncovered(table, "g") == []
    assert table.scan("g is null").to_arrow().num_rows == 0
    assert pa.types.is_string(table.schema.field("g").type)


@pytest.mark.parametrize("name", [*VERSION_6, *VERSION_8, *VERSION_9, *MERGE_ON_READ])
def test_tables_of_other_makers(name: str, tmp_path: Path) -> None:
    """R121: built on files of any version and type; lakedex need not be able to write the table."""
    table = Table.open(unpack(name, tmp_path))
    fields = [field for field in table.schema if pa.types.is_string(field.type) or pa.types.is_boolean(field.type)]
    if not fields:
        pytest.fail(f"{name} has no column to index")
    columns = [field.name for field in fields]
    result = bitmaps(table, *columns)
    files = table.snapshot().base_files()
    assert result.files == sum(len(item.files) for item in table.snapshot().slices())
    coverage = coverage_of(table)
    for base in files:
        assert all(isinstance(said(coverage, column, base.name), dict) for column in columns)
    assert table.indexes.refresh("idx").files == 0
    column = columns[0]
    for value in sorted(set(table.scan().to_arrow().column(column).to_pylist()), key=repr)[-2:]:
        where = f"{column} is null" if value is None else f"{column} = '{str(value).replace(chr(39), '')}'"
        found = Table.open(table.path).scan(where).to_arrow()
        assert found.num_rows == table.scan(where, use_indexes=False).to_arrow().num_rows
    table.indexes.drop("idx")
    assert not folder_of(table).exists()


def test_tasks_pickle(table: Table) -> None:
    """What goes to executors and comes back."""

    class Pickling(LocalEngine):
        def run(self, fn: Any, items: Any, label: str = "") -> list[Any]:
            assert label
            return [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps((fn, item)))[0](item))) for item in items]

    limits = Limits(files_per_chunk=1, build_inline_bytes=1, driver_run_bytes=0)
    assert bitmaps(with_context(table, limits=limits, engine=Pickling()), "g", "n").files == 6
    assert [name.split("_")[2] for name in run_names(table)] == ["fold"]
    assert uncovered(table, "g", "n") == []
