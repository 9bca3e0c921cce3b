"""Column chunks that a new file takes over: which ones, the bytes as they were, and what other readers make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.errors import CorruptFileError
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import iter_base_file, open_for_merge, read_base_file, read_footer
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileWriter
from lakedex.parquet.chunk_reuse import TeeSource
from lakedex.types import FILE_NAME, META_COLUMNS, IoCount
from limits import Limits

STORE = LocalStorage()
ROWS = 40
GROUP = 10


@pytest.fixture
def rows() -> pa.Table:
    """Columns of all shapes, nulls in most, texts with and without dictionary pages."""
    meta = {name: [f"{name}{number:03d}" for number in range(ROWS)] for name in META_COLUMNS}
    nested = pa.struct([("a", pa.int32()), pa.field("b", pa.list_(pa.string()))])
    own: dict[str, Any] = {
        "n": pa.array([number if number % 7 else None for number in range(ROWS)], pa.int64()),
        "x": pa.array([number / 3 for number in range(ROWS)], pa.float64()),
        "ok": pa.array([bool(number % 2) for number in range(ROWS)]),
        "color": [("red", "green", None)[number % 3] for number in range(ROWS)],
        "day": pa.array(np.arange(ROWS, dtype=np.int32)).cast(pa.date32()),
        "deep": pa.array([{"a": n, "b": ["x", None][: n % 3]} if n % 5 else None for n in range(ROWS)], nested),
        "tags": pa.array([[("k", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int32())),
    }
    return pa.table({**meta, **own})


def settings(rows: pa.Table, **more: Any) -> BaseFileSettings:
    avro = json.dumps(arrow_to_avro(rows.schema, "t"))
    return BaseFileSettings(avro_schema=avro, **more)


def write(path: Path, rows: pa.Table, **more: Any) -> None:
    """A base file of row groups of ten rows."""
    writer = BaseFileWriter(STORE, str(path), rows.schema, settings(rows, **more), expected_rows=ROWS)
    for batch in rows.to_batches(max_chunksize=GROUP):
        writer.write(batch)
        writer.end_row_group()
    writer.close()


def write_again(old: Path, new: Path, rows: pa.Table, unchanged: set[str], **more: Any) -> None:
    """A file of ``rows`` out of an old one, group by group."""
    with open_for_merge(STORE, str(old)) as stored:
        writer = BaseFileWriter(
            STORE, str(new), rows.schema, settings(rows, **more), expected_rows=ROWS, stored=stored.chunks
        )
        for group, batches in stored.groups():
            found = list(batches)
            assert sum(batch.num_rows for batch in found) == GROUP
            writer.write_group(rows.slice(group * GROUP, GROUP).combine_chunks().to_batches(), group, unchanged)
        summary = writer.close()
    metadata = pq.read_metadata(new)
    assert summary.rows == metadata.num_rows == rows.num_rows
    assert [rows for rows, _, _ in summary.row_groups] == [GROUP] * metadata.num_row_groups
    assert sum(packed for packed, _ in summary.column_bytes.values()) == sum(size for _, _, size in summary.row_groups)


def chunk_bytes(path: Path, group: int, column: str) -> list[bytes]:
    content, found = path.read_bytes(), []
    row_group = pq.read_metadata(path).row_group(group)
    for place in range(row_group.num_columns):
        chunk = row_group.column(place)
        if chunk.path_in_schema.split(".")[0] == column:
            start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            found.append(content[start : start + chunk.total_compressed_size])
    return found


def taken(old: Path, new: Path, columns: list[str]) -> set[str]:
    """Columns that have the old bytes in all row groups."""
    groups = range(pq.read_metadata(new).num_row_groups)
    return {name for name in columns if all(chunk_bytes(old, g, name) == chunk_bytes(new, g, name) for g in groups)}


def changed(rows: pa.Table, column: str) -> pa.Table:
    """The rows with other values in a column."""
    place = rows.schema.get_field_index(column)
    values = pa.array([f"new{number}" for number in range(rows.num_rows)])
    return rows.set_column(place, column, values)


def test_chunks_are_taken_over_byte_for_byte(tmp_path: Path, rows: pa.Table) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(old, rows)
    later = changed(changed(rows, FILE_NAME), "color")
    unchanged = set(rows.schema.names) - {FILE_NAME, "color"}
    write_again(old, new, later, unchanged)
    assert read_base_file(STORE, str(new)).equals(later)
    assert taken(old, new, rows.schema.names) == unchanged
    assert read_footer(STORE, str(new)).min_key == "_hoodie_record_key000"


def test_other_readers_agree(tmp_path: Path, rows: pa.Table) -> None:
    """DuckDB and Polars have readers of their own; so has Arrow's dataset, which filters by statistics."""
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(old, rows)
    later = changed(changed(rows, FILE_NAME), "color")
    write_again(old, new, later, set(rows.schema.names) - {FILE_NAME, "color"})
    wanted = later.drop_columns(["tags"]).to_pylist()
    by_duckdb = duckdb.sql(f"SELECT * EXCLUDE (tags) FROM '{new}' ORDER BY _hoodie_record_key").to_arrow_table()
    assert by_duckdb.to_pylist() == wanted
    assert duckdb.sql(f"SELECT count(*) FROM '{new}' WHERE n = 22 AND color = 'new22'").fetchall() == [(1,)]
    by_polars = polars.read_parquet(new, columns=later.drop_columns(["tags"]).schema.names)
    assert by_polars.to_dicts() == wanted
    assert pq.read_table(new, filters=[("n", ">=", 30)]).column("n").to_pylist() == [
        number for number in range(30, ROWS) if number % 7
    ]


def test_nothing_but_the_name_changes(tmp_path: Path, rows: pa.Table) -> None:
    """Rows that no update meets cost no encoding."""
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(old, rows)
    later = changed(rows, FILE_NAME)
    write_again(old, new, later, set(rows.schema.names) - {FILE_NAME})
    assert taken(old, new, rows.schema.names) == set(rows.schema.names) - {FILE_NAME}
    again = tmp_path / "again.parquet"
    write_again(new, again, later, set(rows.schema.names) - {FILE_NAME})
    assert read_base_file(STORE, str(again)).equals(later)


@pytest.mark.parametrize(
    ("wide", "kept"),
    [
        ({"n": pa.decimal128(20, 0)}, {"x", "ok", "color"}),
        ({"ok": pa.string()}, {"n", "x", "color"}),
        ({"n": pa.int64(), "nothing": pa.int64()}, {"n", "x", "ok", "color"}),
    ],
)
def test_columns_of_another_type_are_encoded(
    tmp_path: Path, rows: pa.Table, wide: dict[str, pa.DataType], kept: set[str]
) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(old, rows)
    later = changed(rows, FILE_NAME)
    for name, kind in wide.items():
        if name in later.schema.names:
            later = later.set_column(later.schema.get_field_index(name), name, later.column(name).cast(kind))
        else:
            later = later.append_column(name, pa.nulls(ROWS, kind))
    write_again(old, new, later, set(later.schema.names) - {FILE_NAME})
    assert read_base_file(STORE, str(new)).equals(later)
    assert taken(old, new, ["n", "x", "ok", "color"]) == kept


def test_another_compression_is_applied(tmp_path: Path, rows: pa.Table) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(old, rows)
    later = changed(rows, FILE_NAME)
    write_again(old, new, later, set(rows.schema.names) - {FILE_NAME}, compression="gzip")
    group = pq.read_metadata(new).row_group(0)
    assert {group.column(place).compression for place in range(group.num_columns)} == {"GZIP"}
    assert read_base_file(STORE, str(new)).equals(later)


def test_floats_with_bounds_are_encoded_without(tmp_path: Path, rows: pa.Table) -> None:
    """Spark drops NaN and -0.0 by what other writers say of floats."""
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(rows, old, row_group_size=GROUP, compression="zstd", store_schema=False)
    later = changed(rows, FILE_NAME)
    write_again(old, new, later, set(rows.schema.names) - {FILE_NAME})
    assert taken(old, new, ["n", "x", "ok", "color"]) == {"n", "ok", "color"}
    place = [pq.read_metadata(new).schema.column(at).path for at in range(len(rows.schema))].index("x")
    assert pq.read_metadata(new).row_group(0).column(place).statistics is None


@pytest.mark.parametrize("writer", ["parquet-mr version 1.8.1 (build x)", "parquet-mr", "unknown"])
def test_files_of_distrusted_writers_are_not_touched(tmp_path: Path, rows: pa.Table, writer: str) -> None:
    old = tmp_path / "old.parquet"
    write(old, rows)
    with open_for_merge(STORE, str(old)) as stored:
        assert stored.chunks is not None
    content = old.read_bytes()
    found = pq.read_metadata(old).created_by
    name = writer.ljust(len(found))[: len(found)]
    old.write_bytes(content.replace(found.encode(), name.encode()))
    with open_for_merge(STORE, str(old)) as stored:
        assert stored.chunks is None


def test_chunks_that_arrow_has_read_are_not_asked_for_again(tmp_path: Path, rows: pa.Table) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(old, rows)
    plain, taking = IoCount(), IoCount()
    with open_for_merge(LocalStorage(plain), str(old)) as stored:
        list(stored.batches())
    later = changed(rows, FILE_NAME)
    with open_for_merge(LocalStorage(taking), str(old)) as stored:
        writer = BaseFileWriter(STORE, str(new), rows.schema, settings(rows), expected_rows=ROWS, stored=stored.chunks)
        for group, batches in stored.groups():
            list(batches)
            part = later.slice(group * GROUP, GROUP).to_batches()
            writer.write_group(part, group, set(rows.schema.names) - {FILE_NAME})
        writer.close()
    assert taking == plain


def test_a_chunk_beyond_the_end_is_an_error(tmp_path: Path, rows: pa.Table) -> None:
    old = tmp_path / "old.parquet"
    write(old, rows)
    with open_for_merge(STORE, str(old)) as stored:
        assert stored.chunks is not None
        with pytest.raises(CorruptFileError, match="column chunk"):
            stored.chunks.read(type("Chunk", (), {"start": 10**6, "size": 10, "meta": {}})())


def test_a_remembering_source_forgets(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(100)))
    count = IoCount()
    source = TeeSource(LocalStorage(count).open_input(str(tmp_path / "f")))
    source.seek(10)
    assert source.read(20) == bytes(range(10, 30)) and source.tell() == 30
    assert bytes(source.at(12, 5)) == bytes(range(12, 17)) and count.requests == 1
    assert bytes(source.at(28, 5)) == bytes(range(28, 33)) and count.requests == 2
    assert bytes(source.at(95, 50)) == bytes(range(95, 100))
    source.forget()
    before = count.requests
    assert bytes(source.at(12, 5)) == bytes(range(12, 17)) and count.requests == before + 1
    buffer = bytearray(4)
    source.seek(0)
    assert source.readinto(buffer) == 4 and buffer == bytes(range(4))
    source.close()
    assert source.closed


# ------------------------------------------------------------------------------------------------ through the table


BLOCK = {"hoodie.parquet.block.size": "2000"}


def made(path: Path, rows: pa.Table, **more: Any) -> Table:
    table = Table.create(path, schema=rows.schema, record_key="key", ordering_by="ts", options=BLOCK, **more)
    table.indexes.create("bitmap", ["color"], name="colors")
    table.bulk_insert(rows)
    return table


@pytest.fixture
def keyed() -> pa.Table:
    count = 200
    return pa.table(
        {
            "key": [f"k{number:04d}" for number in range(count)],
            "ts": pa.array(np.ones(count, np.int64)),
            "x": pa.array(np.where(np.arange(count) % 2, -0.0, 0.0)),
            "color": [("red", "green", None)[number % 3] for number in range(count)],
        }
    )


def newest(path: Path) -> Path:
    return max(path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def test_bits_of_floats_count(tmp_path: Path, keyed: pa.Table) -> None:
    """0.0 equals -0.0, and NaN no NaN, but a stored value is only the incoming one if its bits are."""
    table = made(tmp_path / "t", keyed)
    zeros = keyed.set_column(2, "x", pa.array(np.zeros(200))).set_column(1, "ts", pa.array(np.full(200, 2)))
    table.upsert(zeros.slice(0, 150))
    found = table.scan().to_arrow().sort_by("key").column("x").to_numpy()
    assert np.signbit(found).tolist() == [bool(n >= 150 and n % 2) for n in range(200)]
    table.upsert(zeros.slice(0, 10).set_column(2, "x", pa.array([float("nan")] * 10)))
    assert np.isnan(table.scan().to_arrow().sort_by("key").column("x").to_numpy()).sum() == 10
    assert table.maintenance.validate().ok


def test_an_update_reuses_what_it_leaves(tmp_path: Path, keyed: pa.Table) -> None:
    table = made(tmp_path / "t", keyed)
    old = newest(tmp_path / "t")
    assert pq.read_metadata(old).num_row_groups > 3
    some = keyed.filter(pa.array([number % 20 == 3 for number in range(200)]))
    table.upsert(some.set_column(1, "ts", pa.array(np.full(some.num_rows, 5))))
    new = newest(tmp_path / "t")
    kept = {"_hoodie_record_key", "_hoodie_partition_path", "key", "x", "color"}
    assert taken(old, new, pq.read_schema(new).names) >= kept
    assert table.scan(where="ts = 5").to_arrow().num_rows == some.num_rows
    assert table.maintenance.validate().ok


def test_renamed_columns_are_not_confused(tmp_path: Path, keyed: pa.Table) -> None:
    """Two columns change names: the chunks called ``a`` are those of ``b`` from then on."""
    rows = keyed.append_column("tint", pa.array([f"t{number % 2}" for number in range(200)]))
    table = made(tmp_path / "t", rows)
    table.indexes.drop("colors")
    for old, new in (("color", "spare"), ("tint", "color"), ("spare", "tint")):
        table.rename_column(old, new)
    later = rows.rename_columns(["key", "ts", "x", "tint", "color"]).slice(0, 1)
    table.upsert(later)
    found = table.scan().to_arrow().sort_by("key")
    assert found.column("color").to_pylist() == rows.column("tint").to_pylist()
    assert found.column("tint").to_pylist() == rows.column("color").to_pylist()


def test_a_growing_file_gets_few_row_groups(tmp_path: Path, limits: Limits) -> None:
    """New rows join the last row group unless it has half of the rows: no more groups than the logarithm of the rows."""
    limits("lakedex.parquet.base_file_reader", LARGE_GROUP_BYTES=1)
    first = pa.table({"key": [f"a{number:03d}" for number in range(64)], "ts": pa.array(np.ones(64, np.int64))})
    table = Table.create(tmp_path / "t", schema=first.schema, record_key="key", ordering_by="ts")
    table.upsert(first)
    for step in range(12):
        table.upsert(pa.table({"key": [f"b{step:03d}{n}" for n in range(8)], "ts": pa.array(np.ones(8, np.int64))}))
        groups = pq.read_metadata(newest(tmp_path / "t"))
        sizes = [groups.row_group(group).num_rows for group in range(groups.num_row_groups)]
        assert sum(sizes) == 64 + 8 * (step + 1) and len(sizes) <= 4
    keys = [
        key for batch in iter_base_file(STORE, str(newest(tmp_path / "t")), ["key"]) for key in batch[0].to_pylist()
    ]
    assert len(set(keys)) == 64 + 96
    assert table.maintenance.validate().ok
