"""What an Arrow stream unpacks to, against pyarrow's own count."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakedex.codec.arrow_stream import unpacked_size
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.run_files import COLUMN_SCHEMA, decode_block
from limits import Limits

TABLE = pa.table(
    {
        "n": pa.array(range(10_000), pa.int64()),
        "s": pa.array([f"text {n % 7}" for n in range(10_000)]).dictionary_encode(),
        "l": pa.array([[n] * (n % 3) for n in range(10_000)], pa.list_(pa.int32())),
        "none": pa.nulls(10_000, pa.int64()),
    }
)


def stream(table: pa.Table, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=3000):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_the_sizes_are_those_of_the_stream_that_is_not_packed(compression: str) -> None:
    plain = unpacked_size(stream(TABLE, None))
    assert TABLE.nbytes <= plain <= TABLE.nbytes + 5_000
    # Buffers without padding.
    assert plain - 500 <= unpacked_size(stream(TABLE, compression)) <= plain
    assert unpacked_size(stream(TABLE.slice(0, 0), compression)) < 100


@pytest.mark.parametrize("cut", [0, 3, 4, 100, 500, 1200])
def test_damage_is_told(cut: int) -> None:
    data = stream(TABLE, "zstd")
    for damaged in (data[:cut], b"\xff" * cut + data[cut:]):
        with pytest.raises(CorruptFileError, match="t/run"):
            decode_block(damaged, COLUMN_SCHEMA, "t/run")


def test_a_block_unpacks_to_what_a_real_one_holds(limits: Limits) -> None:
    limits("lakedex.codec.hfile.blocks", SMALL_BYTES=1 << 20)
    data = stream(pa.table({"n": pa.nulls(3000, pa.binary(1000)).fill_null(bytes(1000))}), "zstd")
    assert len(data) < 5_000
    with pytest.raises(CorruptFileError, match="t/run: .*decompress to at most"):
        decode_block(data, COLUMN_SCHEMA, "t/run")
