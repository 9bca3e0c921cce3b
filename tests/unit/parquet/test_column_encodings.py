"""How columns of new files are encoded and compressed, by a sample of rows."""

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

from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import open_for_merge, read_base_file
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileWriter, leaves
from lakedex.parquet.chunk_reuse import CODECS, column_elements, footer_tree
from lakedex.parquet.column_encodings import ColumnEncodings, choose_encodings
from lakedex.types import META_COLUMNS

ROWS = 6000
RANDOM = np.random.default_rng(7)
NUMBERS = np.arange(ROWS)
BITS = RANDOM.integers(-(1 << 63), (1 << 63) - 1, ROWS)
COLUMNS: dict[str, pa.Array] = {
    "few": pa.array(NUMBERS % 50),
    "blocks": pa.array(NUMBERS // 1000),
    "million": pa.array(RANDOM.integers(0, 1_000_000, ROWS)),
    "order": pa.array(NUMBERS + (1 << 40)),
    "bits": pa.array(BITS),
    "short": pa.array(RANDOM.integers(-30_000, 30_000, ROWS), pa.int16()),
    "day": pa.array(RANDOM.integers(-20_000, 20_000, ROWS), pa.int32()).cast(pa.date32()),
    "time": pa.array(RANDOM.integers(0, 1 << 50, ROWS)).cast(pa.timestamp("us", "UTC")),
    "holes": pa.array([None if number % 3 else number * 7 for number in NUMBERS.tolist()], pa.int64()),
    "edges": pa.array([(-(1 << 63), (1 << 63) - 1, None, int(bits))[n % 4] for n, bits in enumerate(BITS)], pa.int64()),
    "nothing": pa.nulls(ROWS, pa.int64()),
    "random": pa.array(RANDOM.random(ROWS)),
    "cents": pa.array(RANDOM.integers(0, 1000, ROWS) / 4),
    "single": pa.array(RANDOM.random(ROWS), pa.float32()),
    "hex": pa.array([f"{int(bits) & 0xFFFFFFFF:08x}" for bits in BITS]),
    "base64": pa.array([RANDOM.bytes(12).hex() for _ in NUMBERS]),
    "word": pa.array([f"w{number % 7}" for number in NUMBERS]),
    "empty": pa.array([""] * ROWS),
    "flag": pa.array(NUMBERS % 2 == 0),
    "exact": pa.array(NUMBERS).cast(pa.decimal128(20, 0)),
    "deep": pa.array([{"a": int(number), "b": [float(number)]} for number in NUMBERS]),
}
TABLE = pa.table(COLUMNS)
UNIQUE = frozenset({"hex", "empty", "order"})


def chosen(rows: pa.Table = TABLE, compression: str = "zstd", *, packs_numbers: bool = True) -> ColumnEncodings:
    return choose_encodings(rows, leaves(rows.schema), compression, UNIQUE, packs_numbers=packs_numbers)


def test_encodings_follow_the_values() -> None:
    found = chosen()
    packed = {"million", "order", "short", "day", "time", "holes"}
    assert found.packed == packed
    assert found.dictionaries == {"few", "blocks", "edges", "nothing", "word", "base64", "flag", "exact", "deep.a"}
    plain = {name for name, codec in found.compression.items() if codec == "none"}
    assert plain == packed | {"bits", "random", "single"}
    assert found.compression["deep.b.list.element"] == "zstd"


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_readers_that_do_not_know_packed_numbers_get_none(compression: str) -> None:
    found = chosen(compression=compression, packs_numbers=False)
    assert not found.packed
    assert {"million", "bits"}.isdisjoint(found.dictionaries)
    assert set(found.compression.values()) <= {compression, "none"}


def test_few_rows_are_not_sampled() -> None:
    found = chosen(TABLE.slice(0, 2047))
    assert not found.packed
    assert set(found.compression.values()) == {"zstd"}


def settings(rows: pa.Table, **more: Any) -> BaseFileSettings:
    return BaseFileSettings(avro_schema=json.dumps(arrow_to_avro(rows.schema, "t")), unique=UNIQUE, **more)


def write(path: Path, rows: pa.Table, **more: Any) -> None:
    writer = BaseFileWriter(LocalStorage(), str(path), rows.schema, settings(rows, **more), expected_rows=ROWS)
    for batch in rows.to_batches():
        writer.write(batch)
    writer.close()


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Rows of a base file: 32-bit numbers instead of shorter ones, as in tables."""
    own = TABLE.set_column(TABLE.schema.names.index("short"), "short", TABLE.column("short").cast(pa.int32()))
    meta = {name: [f"{name}{number:05d}" for number in range(ROWS)] for name in META_COLUMNS}
    return pa.table({**meta, **{name: own.column(name) for name in own.column_names}})


def test_other_readers_read_the_same(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "f.parquet"
    write(path, rows)
    group = pq.read_metadata(path).row_group(0)
    encodings = {group.column(n).path_in_schema: set(group.column(n).encodings) for n in range(group.num_columns)}
    assert {name for name, of in encodings.items() if "DELTA_BINARY_PACKED" in of} == chosen(rows).packed
    assert read_base_file(LocalStorage(), str(path)).equals(rows)
    assert duckdb.sql(f"select * from '{path}'").to_arrow_table().cast(rows.schema).equals(rows)
    found = polars.read_parquet(path).to_arrow()
    for name in ("million", "order", "bits", "short", "day", "holes", "edges", "random", "hex"):
        assert (
            found.column(name)
            .cast(rows.schema.field(name).type)
            .combine_chunks()
            .equals(rows.column(name).combine_chunks())
        )


def test_random_values_do_not_make_files_larger(tmp_path: Path, rows: pa.Table) -> None:
    plain, sampled = tmp_path / "plain.parquet", tmp_path / "sampled.parquet"
    write(sampled, rows)
    pq.write_table(rows, plain, compression="zstd", store_schema=False)
    assert sampled.stat().st_size <= 1.03 * plain.stat().st_size


@pytest.mark.parametrize(("compression", "reused"), [("zstd", True), ("gzip", False), ("none", True)])
def test_chunks_that_are_not_worth_compressing_are_reused(
    tmp_path: Path, rows: pa.Table, compression: str, *, reused: bool
) -> None:
    """Unless the new file has another codec, by which they might be smaller."""
    path = tmp_path / "f.parquet"
    write(path, rows)
    elements = column_elements(footer_tree(pq.read_metadata(path)))
    with open_for_merge(LocalStorage(), str(path)) as stored:
        assert stored.chunks is not None
        offers = [stored.chunks.offered(0, name, elements[name], CODECS[compression]) for name in ("random", "million")]
    assert [offer is not None for offer in offers] == [reused, reused]
