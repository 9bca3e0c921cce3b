"""Rows read by pages are those that Arrow takes from the whole file, for any schema, encoding and layout of pages."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lakedex.parquet.footer import PAGE_ROWS, FooterStats
from lakedex.parquet.page_reader import LARGEST_SHARE, PageReader
from lakedex.testing import frames, schemas

EXAMPLES = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
GROUP = PAGE_ROWS + 100


def written(rows: pa.Table, **layout: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, store_schema=False, write_page_index=True, row_group_size=GROUP, **layout)
    return sink.getvalue()


def page_reader(content: bytes) -> PageReader:
    with pq.ParquetFile(pa.BufferReader(content)) as parquet:
        stats = FooterStats(parquet.metadata)
    return PageReader(stats, lambda ranges: [content[start:end] for start, end in ranges], len(content))


def shown(array: pa.Array | pa.ChunkedArray) -> str:
    """Values as text: NaN is not equal to itself, and days may lie beyond those of Python."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.to_string(window=99, container_window=99)


LAYOUTS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["zstd", "snappy", "gzip", "lz4", "brotli", "none"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.booleans(),
    }
)
CUTS = st.sampled_from(
    [
        {"max_rows_per_page": 100, "write_batch_size": 100},
        {"data_page_size": 512, "write_batch_size": 64},
        {"data_page_size": 8192, "write_batch_size": 1000},
    ]
)


@EXAMPLES
@given(st.data())
def test_rows_by_page_are_the_rows_that_arrow_takes(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    few = data.draw(frames(schema))
    seeded = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    table = few.take(pa.array(seeded.integers(0, len(few), GROUP + PAGE_ROWS + 1)))
    content = written(table, **data.draw(LAYOUTS), **data.draw(CUTS))
    reader, stored = page_reader(content), pq.read_table(pa.BufferReader(content))
    for group, (start, rows) in enumerate(((0, GROUP), (GROUP, PAGE_ROWS + 1))):
        for many in (1, data.draw(st.integers(2, 60)), rows // 2, int(rows * LARGEST_SHARE) + 1):
            places = np.sort(seeded.choice(rows, many, replace=False))
            found = reader.rows(schema.names, group, places)
            if many == 1 and reader.rows(["id"], group, places):
                assert reader.bytes_read
            for name, array in found.items():
                right = stored.column(name).slice(start, rows).take(pa.array(places))
                assert array.type == right.type
                assert shown(array) == shown(right), name
            assert not found or many <= rows * LARGEST_SHARE


ENCODINGS = {
    "t": "DELTA_BYTE_ARRAY",
    "u": "DELTA_LENGTH_BYTE_ARRAY",
    "n": "DELTA_BINARY_PACKED",
    "x": "BYTE_STREAM_SPLIT",
    "flag": "RLE",
}


def test_each_encoding_is_read() -> None:
    numbers = np.arange(GROUP)
    table = pa.table(
        {
            "t": pa.array([None if n % 7 == 0 else f"text {n}" for n in numbers]),
            "u": pa.array([f"{n % 100}" for n in numbers]),
            "n": numbers,
            "x": numbers / 7,
            "flag": numbers % 3 == 0,
            "nested": pa.array([None if n % 5 == 0 else [{"a": int(n), "b": [str(n)] * (n % 3)}] for n in numbers]),
            "pairs": pa.array([[("k", int(n))] * (n % 2) for n in numbers], pa.map_(pa.string(), pa.int64())),
        }
    )
    places = np.array([0, 99, 100, 2000, GROUP - 1])
    layout = {"max_rows_per_page": 100, "write_batch_size": 100, "use_dictionary": False, "column_encoding": ENCODINGS}
    for version in ("1.0", "2.0"):
        found = page_reader(written(table, data_page_version=version, **layout)).rows(table.column_names, 0, places)
        assert pa.table(found).select(table.column_names).equals(table.take(pa.array(places)))
