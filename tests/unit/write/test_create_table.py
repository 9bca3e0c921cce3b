from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import (
    InvalidInputError,
    LakedexError,
    OptionError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from lakedex.layout.names import PARTITION_METAFILE
from lakedex.write.create_table import take_back
from table_kit import ROWS, make, own, picture, properties, rows


def test_a_new_table(tmp_path: Path) -> None:
    path = tmp_path / "trips"
    table = make(path, schema=ROWS, partition_by="city", ordering_by="ts")
    assert Table.is_table(path)
    assert not Table.is_table(tmp_path)
    assert (table.name, table.path) == ("trips", str(path))
    assert table.schema == ROWS
    assert own(table) == []
    assert table.scan().to_arrow().schema.names == ROWS.names
    assert table.scan("n = 1").count() == 0
    assert table.inspect.history().num_rows == 0
    found = properties(path)
    assert found["hoodie.table.version"] == "8"
    assert found["hoodie.table.type"] == "COPY_ON_WRITE"
    assert found["hoodie.table.recordkey.fields"] == "id"
    assert found["hoodie.table.partition.fields"] == "city"
    assert found["hoodie.table.metadata.partitions"] == "bloom_filters,column_stats,files,partition_stats"
    assert str(Table.open(path)) == str(table)


@pytest.mark.parametrize(
    "keys, partitions, generator",
    [
        ("id", (), "NON_PARTITION"),
        ("id", "city", "SIMPLE"),
        (["id", "n"], "city", "COMPLEX"),
        ("id", ["city", "n"], "COMPLEX"),
    ],
)
def test_key_generators(tmp_path: Path, keys: Any, partitions: Any, generator: str) -> None:
    make(tmp_path, schema=ROWS, record_key=keys, partition_by=partitions)
    assert properties(tmp_path)["hoodie.table.keygenerator.type"] == generator


@pytest.mark.parametrize("ordering, mode", [(None, "COMMIT_TIME_ORDERING"), ("ts", "EVENT_TIME_ORDERING")])
def test_merge_modes(tmp_path: Path, ordering: str | None, mode: str) -> None:
    make(tmp_path, schema=ROWS, ordering_by=ordering)
    assert properties(tmp_path)["hoodie.record.merge.mode"] == mode


def test_there_already(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    before = picture(tmp_path)
    with pytest.raises(TableExistsError, match="is a Hudi table already") as caught:
        make(tmp_path)
    assert isinstance(caught.value, FileExistsError)
    assert caught.value.path == str(tmp_path)
    again = make(tmp_path, exist_ok=True)
    assert own(again) == own(table)
    assert picture(tmp_path) == before


def test_no_table(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(TableNotFoundError, match="is no Hudi table") as caught:
            Table.open(path)
        assert isinstance(caught.value, FileNotFoundError)
    assert list(tmp_path.iterdir()) == []
    for folders, name in ((("_delta_log",), "a Delta"), (("data", "metadata"), "an Iceberg")):
        for folder in folders:
            (tmp_path / name / folder).mkdir(parents=True)
        with pytest.raises(TableNotFoundError, match=f"{name} table, see docs/from_"):
            Table.open(tmp_path / name)


def test_a_folder_with_settings_lost(tmp_path: Path) -> None:
    make(tmp_path, rows(("1", "a", 1, 1)))
    (tmp_path / ".hoodie" / "hoodie.properties").unlink()
    with pytest.raises(LakedexError):
        Table.open(tmp_path)
    before = picture(tmp_path)
    with pytest.raises(LakedexError, match=r"a timeline but no hoodie\.properties"):
        make(tmp_path)
    assert {k: v for k, v in picture(tmp_path).items() if not k.endswith("lock")} == before


def test_what_a_dead_create_left_is_cleared(tmp_path: Path) -> None:
    make(tmp_path, schema=ROWS)
    (tmp_path / ".hoodie" / "hoodie.properties").unlink()
    assert not Table.is_table(tmp_path)
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city")
    assert own(table) == [("1", "a", 1, 1)]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"table_type": "log"}, InvalidInputError, "'cow' or 'mor'"),
        ({"table_type": "heap"}, InvalidInputError, "not 'heap'"),
        ({"record_key": ()}, InvalidInputError, "names no column"),
        ({"record_key": ""}, InvalidInputError, "names no column"),
        ({"name": "a b"}, InvalidInputError, "table name 'a b'"),
        ({"name": "../x"}, InvalidInputError, "table name"),
        ({"ordering_by": ["ts", "n"]}, UnsupportedFeatureError, "one ordering field"),
        ({"record_key": "idd"}, InvalidInputError, "record key column 'idd' .* did you mean 'id'"),
        ({"partition_by": "town"}, InvalidInputError, "partition column 'town'"),
        ({"ordering_by": "tss"}, InvalidInputError, "ordering column 'tss'"),
        ({"schema": pa.schema([("id", pa.string()), ("$c", pa.int32())])}, InvalidInputError, r"\$c"),
        ({"schema": pa.schema([("id", pa.string()), ("360p", pa.int32())])}, InvalidInputError, "360p"),
        (
            {"schema": pa.schema([("id", pa.string()), ("c", pa.time64("us"))])},
            InvalidInputError,
            "column 'c' is time64",
        ),
        (
            {"schema": pa.schema([("id", pa.string()), ("__lakedex_key", pa.int32())])},
            InvalidInputError,
            "lakedex's own",
        ),
        ({"schema": pa.schema([("id", pa.string()), ("id", pa.int32())])}, InvalidInputError, "'id' occurs twice"),
        ({"options": {"hoodie.table.version": "7"}}, OptionError, "hoodie.table.version='7'.*one of"),
        ({"options": {"hoodie.write.table.version": "10"}}, OptionError, "version='10'.*one of"),
        ({"options": {"hoodie.metadata.record.index.enable": "true"}}, OptionError, "record.index"),
    ],
    ids=range(18),
)
def test_refused_before_a_file_is_written(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(tmp_path / "t", **{"schema": ROWS, "name": "t", **arguments})
    assert list(tmp_path.iterdir()) == []


def test_path_and_session_are_not_swapped() -> None:
    with pytest.raises(InvalidInputError, match="takes a SparkSession"):
        Table.create("x", record_key="id", spark="path")
    with pytest.raises(InvalidInputError, match="path is a str"):
        Table.create(object(), "x", record_key="id")  # type: ignore[arg-type]


def test_a_table_may_be_moved(tmp_path: Path) -> None:
    make(tmp_path / "a", rows(("1", "x", 1, 1), ("2", "y", 1, 1)), partition_by="city")
    (tmp_path / "a").rename(tmp_path / "b")
    table = Table.open(tmp_path / "b")
    table.upsert(rows(("1", "x", 2, 2)))
    assert own(table) == [("1", "x", 2, 2), ("2", "y", 1, 1)]


VERSIONS = [{"hoodie.write.table.version": str(version)} for version in (6, 8, 9)]


@pytest.mark.parametrize("options", VERSIONS, ids=["6", "8", "9"])
@pytest.mark.parametrize("folder_was_there", [False, True])
def test_a_new_table_is_taken_back_and_nothing_else(
    tmp_path: Path, options: dict[str, str], folder_was_there: bool
) -> None:
    path = tmp_path / "t"
    if folder_was_there:
        path.mkdir()
    table = make(path, schema=ROWS, partition_by="city", options=options)
    (path / "city=a").mkdir()
    (path / "city=a" / PARTITION_METAFILE).write_text("of a write that failed")
    assert take_back(table.context, options, keep_folder=folder_was_there)
    assert path.exists() == folder_was_there and not any(tmp_path.rglob("*.parquet"))
    assert list(tmp_path.rglob("*")) == ([path] if folder_was_there else [])


@pytest.mark.parametrize("options", VERSIONS, ids=["6", "8", "9"])
def test_what_came_into_a_new_table_meanwhile_stays(tmp_path: Path, options: dict[str, str]) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "city=z").mkdir(parents=True)
    (elsewhere / "city=z" / PARTITION_METAFILE).write_text("of another table")
    path = tmp_path / "t"
    table = make(path, schema=ROWS, partition_by="city", options=options)
    (path / "notes").mkdir()
    for name in ("notes/mine.txt", "mine.txt", ".mine.crc"):
        (path / name).write_text("mine")
    (path / "link").symlink_to(elsewhere)
    assert take_back(table.context, options, keep_folder=False)
    assert sorted(str(p.relative_to(path)) for p in path.rglob("*") if "link" not in p.parts) == [
        ".mine.crc",
        "mine.txt",
        "notes",
        "notes/mine.txt",
    ]
    assert (path / "link" / "city=z" / PARTITION_METAFILE).exists()


@pytest.mark.parametrize("options", VERSIONS, ids=["6", "8", "9"])
def test_a_table_with_rows_is_not_taken_back(tmp_path: Path, options: dict[str, str]) -> None:
    table = make(tmp_path / "t", rows(("1", "a", 1, 1)), options=options)
    before = picture(tmp_path)
    assert not take_back(table.context, options, keep_folder=False)
    assert picture(tmp_path) == before and own(table) == [("1", "a", 1, 1)]


@pytest.mark.parametrize("name", ["mine.txt", "mine/notes.txt", "timeline/1.commit", "archived/x", "20240101.commit"])
def test_a_create_empties_no_folder_of_somebody_else(tmp_path: Path, name: str) -> None:
    (tmp_path / ".hoodie" / "metadata").mkdir(parents=True)
    (tmp_path / ".hoodie" / name).parent.mkdir(exist_ok=True)
    (tmp_path / ".hoodie" / name).write_text("mine")
    with pytest.raises(InvalidInputError, match=r"but no hoodie\.properties"):
        make(tmp_path, schema=ROWS)
    assert (tmp_path / ".hoodie" / name).read_text() == "mine"


def test_a_create_that_died_is_begun_anew(tmp_path: Path) -> None:
    make(tmp_path, schema=ROWS, options={"hoodie.write.table.version": "6"})
    (tmp_path / ".hoodie" / "hoodie.properties").unlink()
    assert own(make(tmp_path, rows(("1", "a", 1, 1)))) == [("1", "a", 1, 1)]


def test_a_table_of_2000_columns(tmp_path: Path) -> None:
    """Nullable ones: made, written, updated, planned by statistics of the last one, and read by who only has the path."""
    names = [f"c{number}" for number in range(2000)]
    schema = pa.schema([("id", pa.string()), *((name, pa.int32()) for name in names)])
    table = make(
        tmp_path / "t",
        schema=schema,
        options={"hoodie.metadata.index.column.stats.column.list": "c0,c1999"},
    )
    for keys in (["a", "b"], ["a"]):
        values = ([len(keys) + number] * len(keys) for number in range(2000))
        table.upsert(pa.table([keys, *values], schema=schema))
    found = Table.open(tmp_path / "t")
    assert own(found, "id", "c0", "c1999") == [("a", 1, 2000), ("b", 2, 2001)]
    assert found.scan("c1999 = 2001").count() == 1
    assert found.scan("c1999 > 2001").plan().files_kept == ()
    assert found.indexes.stats("column_stats").files_uncovered == 0
    assert found.maintenance.validate().ok
