import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.bitmap.run_files import BITMAP_FOLDER, FILES_SCHEMA, decode_block, encode_block, list_runs
from lakedex.index.definitions import (
    DEFINITIONS,
    encode_definitions,
    read_definitions,
    source_fields,
    stats_version,
    with_column_stats,
)
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from table_kit import ROWS, make, rows

META = ["_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key"]


def read(path: Path) -> dict[str, Any]:
    """The definitions of a table in a folder."""
    return read_definitions(TableFiles(LocalStorage(), str(path)))


def listed(path: Path) -> list[str]:
    return source_fields(read(path))


def test_no_file_is_no_definition(tmp_path: Path) -> None:
    assert listed(tmp_path) == []


def test_others_are_kept(tmp_path: Path) -> None:
    other = {
        "indexName": "expr_index_x",
        "indexType": "column_stats",
        "sourceFields": ["x"],
        "indexOptions": {"a": "b"},
    }
    document = with_column_stats({"indexDefinitions": {"expr_index_x": other}, "more": 1}, ["a", "b"], 8)
    path = tmp_path / DEFINITIONS
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_definitions(document))
    assert read(tmp_path) == document
    assert source_fields(document) == ["a", "b"]
    assert document["indexDefinitions"]["expr_index_x"] == other
    assert document["more"] == 1


def test_an_upgraded_table_keeps_its_encoding() -> None:
    """The definition says it, not the table's version, which Java's upgrade to 9 raises without rebuilding."""
    old: dict[str, Any] = {"indexDefinitions": {"column_stats": {"sourceFields": ["a"], "version": "V1"}}}
    assert stats_version(old, 9) == "V1"
    assert with_column_stats(old, ["a", "b"], 9)["indexDefinitions"]["column_stats"]["version"] == "V1"
    none: dict[str, Any] = {"indexDefinitions": {}}
    assert stats_version(none, 9) == "V2"
    assert stats_version(none, 8) == "V1"
    assert stats_version({"indexDefinitions": {"partition_stats": {"version": "V1"}}}, 9) == "V1"
    # Release 1.0.2 writes no version.
    assert stats_version({"indexDefinitions": {"column_stats": {"sourceFields": []}}}, 8) == "V1"
    with pytest.raises(UnsupportedFeatureError, match="index version V3"):
        stats_version({"indexDefinitions": {"column_stats": {"version": "V3"}}}, 9)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"indexDefinitions": []}'])
def test_damage_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / DEFINITIONS
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(CorruptFileError) as caught:
        read(tmp_path)
    assert caught.value.path == str(path)


def test_a_new_table_lists_what_java_would(tmp_path: Path) -> None:
    make(tmp_path, schema=pa.schema([*ROWS, ("l", pa.list_(pa.int32())), ("d", pa.decimal128(38, 0))]))
    document = json.loads(Path(str(tmp_path), DEFINITIONS).read_text())
    assert document == {
        "indexDefinitions": {
            "column_stats": {
                "indexName": "column_stats",
                "indexType": "column_stats",
                "indexFunction": "column_stats",
                "sourceFields": [*META, "id", "city", "ts", "n"],
                "indexOptions": {},
                "version": "V1",
            }
        }
    }


def test_the_first_frame_gives_the_list_and_an_added_column_joins_it(tmp_path: Path) -> None:
    table = make(tmp_path)
    assert listed(tmp_path) == META
    table.upsert(rows(("1", "a", 1, 1)))
    assert listed(tmp_path) == [*META, "id", "city", "ts", "n"]
    table.upsert(rows(("2", "a", 1, 1)).append_column("more", pa.array(["x"])))
    assert listed(tmp_path) == [*META, "id", "city", "ts", "n", "more"]
    assert table.scan("more is null").count() == 1
    assert table.scan("more = 'x'").count() == 1


def test_a_narrowed_list_stays_narrow(tmp_path: Path) -> None:
    # What a foreign writer with its own column list leaves: old files have no record for the others.
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    path = Path(str(tmp_path), DEFINITIONS)
    document = json.loads(path.read_text())
    path.write_bytes(encode_definitions(with_column_stats(document, [*META, "n"], 8)))
    table.upsert(rows(("2", "a", 1, 2)))
    assert listed(tmp_path) == [*META, "n"]
    assert table.scan("ts = 1 and n = 2").count() == 1


def test_only_chosen_columns(tmp_path: Path) -> None:
    options = {"hoodie.metadata.index.column.stats.column.list": "n, ts,absent"}
    table = make(tmp_path, rows(("1", "a", 1, 1)), options=options)
    assert listed(tmp_path) == [*META, "ts", "n"]
    assert table.scan("n = 2").plan().files == ()
    assert len(table.scan("city = 'b'").plan().files) == 1


def test_a_column_with_nan_leaves_the_list_that_java_prunes_by(tmp_path: Path) -> None:
    def frame(key: str, value: float) -> pa.Table:
        return pa.table({"id": [key], "d": [value], "n": [1]})

    table = make(tmp_path, frame("1", 1.5), options={"hoodie.parquet.small.file.limit": 0})
    assert listed(tmp_path) == [*META, "id", "d", "n"]
    table.upsert(frame("2", float("nan")))
    assert listed(tmp_path) == [*META, "id", "n"]
    # lakedex plans by the records.
    assert len(table.scan("d < 1").plan().files) == 0
    assert table.scan("d > 1e300").count() == 1
    table.upsert(frame("3", 2.5))
    assert listed(tmp_path) == [*META, "id", "n"]
    assert table.scan("d = 2.5").count() == 1
    assert len(table.scan("d = 2.5").plan().files) == 1


def test_a_column_that_grows_out_of_the_encoding_leaves_the_list(tmp_path: Path) -> None:
    def frame(precision: int, key: str) -> pa.Table:
        return pa.table({"id": [key], "d": pa.array([1], pa.int32()).cast(pa.decimal128(precision, 2))})

    table = make(tmp_path, frame(12, "1"))
    assert listed(tmp_path) == [*META, "id", "d"]
    table.upsert(frame(30, "2"))
    assert listed(tmp_path) == [*META, "id"]
    assert table.scan("d = 1").count() == 2


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"indexDefinitions": []}',
        '{"indexDefinitions": {"column_stats": [1]}}',
        '{"indexDefinitions": {"column_stats": {"sourceFields": "abc"}}}',
        '{"indexDefinitions": {"column_stats": {"sourceFields": [1]}}}',
        '{"indexDefinitions": {"by": {"sourceFields": "abc", "indexOptions": {"maxDistinctValues": "1"}}}, "x": "\\ud800"}',
        '{"indexDefinitions": ' + "[" * 100_000,
    ],
)
def test_definitions_of_other_shapes_are_damage(tmp_path: Path, content: str) -> None:
    """Damaged definitions are an error that names the file."""
    (tmp_path / ".hoodie/.index_defs").mkdir(parents=True)
    for name in ("index.json", "bitmap_index.json"):
        (tmp_path / ".hoodie/.index_defs" / name).write_text(content)
    with pytest.raises(CorruptFileError) as caught:
        read(tmp_path)
    assert caught.value.path.endswith("/index.json")
    with pytest.raises(CorruptFileError) as caught:
        read_bitmap_definitions(TableFiles(LocalStorage(), str(tmp_path)))
    assert caught.value.path.endswith("/bitmap_index.json")


@pytest.mark.parametrize("content", ["[]", "{}", '{"runs": "abc", "folded": []}', '{"runs": ["../x"], "folded": []}'])
def test_manifests_of_other_shapes_are_damage(tmp_path: Path, content: str) -> None:
    folder = Path(str(tmp_path), BITMAP_FOLDER)
    folder.mkdir(parents=True)
    (folder / "manifest_0000000001.json").write_text(content)
    with pytest.raises(CorruptFileError, match="a manifest of bitmap runs"):
        list_runs(TableFiles(LocalStorage(), str(tmp_path)))


@pytest.mark.parametrize("name", [b"parti\xf3on", b"partitiom"])
def test_coverage_of_another_schema_is_damage(name: bytes) -> None:
    """Names in an Arrow stream need not be text; looking at the rows came before looking at the schema."""
    whole = encode_block(FILES_SCHEMA.empty_table())
    assert decode_block(whole, FILES_SCHEMA, "p").num_rows == 0
    with pytest.raises(CorruptFileError, match="a coverage block") as caught:
        decode_block(whole.replace(b"partition", name.ljust(9, b"x")), FILES_SCHEMA, "p")
    assert caught.value.path == "p"
