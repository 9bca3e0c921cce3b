import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare import assert_same_rows
from samples import all_types

from lakedex.codec.avro_schema import arrow_to_avro, with_meta_fields
from lakedex.codec.bloom import BloomSizing, decode_bloom
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import iter_base_file, open_parquet, read_base_file, read_footer, read_schema
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileSummary, BaseFileWriter
from lakedex.types import META_COLUMNS

STORE = LocalStorage()


def with_meta(table: pa.Table, keys: list[str]) -> pa.Table:
    meta = {
        name: pa.array(keys) if name == "_hoodie_record_key" else pa.array(["x"] * len(keys)) for name in META_COLUMNS
    }
    return pa.table({**meta, **dict(zip(table.schema.names, table.columns, strict=True))})


def write(path: Path, table: pa.Table, *, chunk: int = 1000, **settings: object) -> BaseFileSummary:
    avro = json.dumps(with_meta_fields(arrow_to_avro(table.schema, "t")))
    made = BaseFileSettings(avro_schema=avro, **settings)  # type: ignore[arg-type]
    writer = BaseFileWriter(STORE, str(path), table.schema, made, expected_rows=table.num_rows)
    for batch in table.to_batches(max_chunksize=chunk):
        writer.write(batch)
    return writer.close()


@pytest.fixture(scope="module")
def sample() -> pa.Table:
    table = all_types(local_timestamp=True)
    return with_meta(table, table.column("key").to_pylist())


@pytest.mark.parametrize("chunk", [1, 1000])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
def test_all_types_come_back(tmp_path: Path, sample: pa.Table, chunk: int, compression: str) -> None:
    summary = write(tmp_path / "f", sample, chunk=chunk, compression=compression, row_group_bytes=100)
    found = read_base_file(STORE, str(tmp_path / "f"))
    assert_same_rows(found, sample)
    assert found.schema.names == sample.schema.names
    assert read_schema(STORE, str(tmp_path / "f")).names == sample.schema.names
    assert (summary.rows, summary.size) == (4, (tmp_path / "f").stat().st_size)
    assert pq.read_metadata(tmp_path / "f").num_row_groups == 4
    assert set(summary.column_bytes) == set(sample.schema.names)
    assert all(packed > 0 and plain > 0 for packed, plain in summary.column_bytes.values())


def test_footer_keys(tmp_path: Path, sample: pa.Table) -> None:
    summary = write(tmp_path / "f", sample)
    found = pq.read_metadata(tmp_path / "f").metadata
    assert set(found) == {
        b"parquet.avro.schema",
        b"writer.model.name",
        b"org.apache.hudi.bloomfilter",
        b"hoodie_bloom_filter_type_code",
        b"hoodie_min_record_key",
        b"hoodie_max_record_key",
    }
    assert json.loads(found[b"parquet.avro.schema"])["fields"][0]["name"] == "_hoodie_commit_time"
    assert found[b"writer.model.name"] == b"avro"
    footer = read_footer(STORE, str(tmp_path / "f"))
    assert (footer.rows, footer.min_key, footer.max_key, footer.bloom_type) == (4, "k1", "k4", "DYNAMIC_V0")
    assert footer.bloom == summary.bloom
    assert decode_bloom(summary.bloom, summary.bloom_type).probe(sample.column("_hoodie_record_key")).all()


def test_the_key_range_is_that_of_the_written_keys(tmp_path: Path) -> None:
    keys = ["b", "a", "c"]
    summary = write(tmp_path / "f", with_meta(pa.table({"v": [1, 2, 3]}), keys), chunk=1)
    assert (summary.min_key, summary.max_key) == ("a", "c")
    summary = write(tmp_path / "g", with_meta(pa.table({"v": [1, 2]}), ["k\uff21", "k\U0001f600"]))
    assert (summary.min_key, summary.max_key) == ("k", "l")
    footer = read_footer(STORE, str(tmp_path / "g"))
    assert (footer.min_key, footer.max_key) == ("k", "l")


def test_no_rows(tmp_path: Path, sample: pa.Table) -> None:
    summary = write(tmp_path / "f", sample.slice(0, 0))
    assert (summary.rows, summary.min_key, summary.max_key) == (0, None, None)
    footer = read_footer(STORE, str(tmp_path / "f"))
    assert (footer.rows, footer.min_key, footer.max_key) == (0, None, None)
    assert footer.bloom is not None  # As Java's writer does.
    assert read_base_file(STORE, str(tmp_path / "f")).num_rows == 0
    assert list(iter_base_file(STORE, str(tmp_path / "f"), ["key"])) == []


@pytest.mark.parametrize("kind, entries", [("SIMPLE", None), ("DYNAMIC_V0", 2)])
def test_bloom_settings(tmp_path: Path, sample: pa.Table, kind: str, entries: int | None) -> None:
    summary = write(tmp_path / "f", sample, bloom=BloomSizing(type_code=kind, num_entries=entries, fpp=0.01))
    assert summary.bloom_type == kind
    footer = read_footer(STORE, str(tmp_path / "f"))
    assert footer.bloom_type == kind
    assert footer.bloom is not None
    assert decode_bloom(footer.bloom, kind).probe(pa.array(["k1", "k2", "k3", "k4"])).all()


def test_float_columns_have_neither_statistics_nor_dictionary(tmp_path: Path) -> None:
    nested = pa.struct([("d", pa.float64()), ("i", pa.int32())])
    table = pa.table(
        {
            "d": [float("nan"), -0.0, -0.0],
            "f": pa.array([1.5, 1.5, 1.5], pa.float32()),
            "s": ["a", "a", "a"],
            "n": pa.array([{"d": 1.0, "i": 1}] * 3, nested),
            "l": pa.array([[1.0, 1.0]] * 3, pa.list_(pa.float64())),
            "m": pa.array([[("k", 1.0)]] * 3, pa.map_(pa.string(), pa.float64())),
        }
    )
    write(tmp_path / "f", with_meta(table, ["a", "b", "c"]))
    group = pq.read_metadata(tmp_path / "f").row_group(0)
    seen = {}
    for index in range(group.num_columns):
        column = group.column(index)
        seen[column.path_in_schema] = (column.is_stats_set, column.has_dictionary_page)
    assert {path for path, found in seen.items() if found == (False, False)} == {
        "d", "f", "n.d", "l.list.element", "m.key_value.value",
    }  # fmt: skip
    assert seen["s"] == seen["n.i"] == seen["m.key_value.key"] == (True, True)


def test_some_columns_and_row_groups(tmp_path: Path, sample: pa.Table) -> None:
    write(tmp_path / "f", sample, chunk=1, row_group_bytes=1)
    found = read_base_file(STORE, str(tmp_path / "f"), ["small", "key", "absent"])
    assert set(found.schema.names) == {"small", "key"}
    assert found.column("key").to_pylist() == ["k1", "k2", "k3", "k4"]
    (batch,) = iter_base_file(STORE, str(tmp_path / "f"), ["key"], row_groups=[2])
    assert batch.column(0).to_pylist() == ["k3"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage"])
def test_a_damaged_file_is_named(tmp_path: Path, sample: pa.Table, damage: str) -> None:
    path = tmp_path / "f"
    write(path, sample)
    content = path.read_bytes()
    path.write_bytes({"truncated": content[:-10], "empty": b"", "garbage": b"x" * 100}[damage])
    for read in (read_base_file, read_footer, read_schema, lambda *a: list(iter_base_file(*a))):
        with pytest.raises(CorruptFileError) as caught:
            read(STORE, str(path))
        assert caught.value.path == str(path)


def test_damage_inside_is_found_while_reading(tmp_path: Path, sample: pa.Table) -> None:
    path = tmp_path / "f"
    write(path, sample, compression="zstd")
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        read_base_file(STORE, str(path))


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_footer(STORE, str(tmp_path / "none"))


def test_given_up_leaves_nothing(tmp_path: Path, sample: pa.Table) -> None:
    avro = json.dumps(with_meta_fields(arrow_to_avro(sample.schema, "t")))
    settings = BaseFileSettings(avro_schema=avro)
    writer = BaseFileWriter(STORE, f"{tmp_path}/f", sample.schema, settings, expected_rows=4)
    writer.write(sample.to_batches()[0])
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_what_arrow_does_not_do_and_damaged_keys_name_the_file(tmp_path: Path) -> None:
    """Damaged pages are an error that names the file."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({"hoodie_min_record_key": b"\xff"}), path)
    with pytest.raises(CorruptFileError, match="record keys in UTF-8") as caught:
        read_footer(LocalStorage(), str(path))
    assert caught.value.path == str(path)
    for error, expected in (
        (pa.ArrowNotImplementedError("codec"), UnsupportedFeatureError),
        (pa.ArrowMemoryError("malloc of size 9223372036854775807 failed"), CorruptFileError),
        (pa.ArrowKeyError("x"), CorruptFileError),
    ):
        with pytest.raises(expected, match=re.escape(str(path))), open_parquet(LocalStorage(), str(path)):
            raise error
