"""Pages of wanted rows: what a page index has to say to be believed, and the bytes that are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, decode_struct, encode_struct, structs
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import FooterCache, iter_base_file, open_for_merge, open_for_scan
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileWriter
from lakedex.parquet.footer import PAGE_ROWS
from lakedex.testing import StorageWrapper
from lakedex.types import META_COLUMNS

ROWS = 3 * PAGE_ROWS + 900
PER_PAGE = 250
PAGES = -(-ROWS // PER_PAGE)
TABLE = pa.table(
    {
        "n": np.arange(ROWS),
        "text": [f"text {number:06d}" for number in range(ROWS)],
        "word": [f"w{number // 1000}" for number in range(ROWS)],
        "x": np.arange(ROWS) / 3,
    }
)
CUT = {
    "max_rows_per_page": PER_PAGE,
    "write_batch_size": PER_PAGE,
    "write_page_index": True,
    "store_schema": False,
    "use_dictionary": ["word"],
}


class Ranges(StorageWrapper):
    """Notes the byte ranges that are asked for."""

    def __init__(self) -> None:
        super().__init__(LocalStorage())
        self.asked: list[tuple[int, int]] = []
        self.calls = 0

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += ranges
        self.calls += 1
        return super().read_ranges(path, ranges)


def footer_of(content: bytes) -> Struct:
    size = int.from_bytes(content[-8:-4], "little")
    return decode_struct(content[-8 - size : -8])


def with_indexes(content: bytes, change: Callable[[int, list[Struct]], Any], which: tuple[int, int] = (4, 5)) -> bytes:
    """A file whose offset indexes are ``change`` of a column's number and its page locations: locations, or bytes."""
    footer = footer_of(content)
    out = bytearray(content[: -8 - int.from_bytes(content[-8:-4], "little")])
    for number, chunk in enumerate(structs(structs(footer, 4)[0], 1)):
        start, size = (chunk[field][1] for field in which)
        found = change(number, structs(decode_struct(content[start : start + size]), 1))
        data = found if isinstance(found, bytes) else encode_struct({1: (LIST, (STRUCT, found))})
        chunk[which[0]], chunk[which[1]] = (I64, len(out)), (I32, len(data))
        out += data
    return ended(out, footer)


def ended(out: bytearray, footer: Struct) -> bytes:
    encoded = encode_struct(footer)
    return bytes(out) + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("pages") / "sound.parquet"
    pq.write_table(TABLE, path, **CUT)
    return path.read_bytes()


def location(offset: int, size: int, row: int) -> Struct:
    return {1: (I64, offset), 2: (I32, size), 3: (I64, row)}


def moved(by: int) -> Callable[[int, list[Struct]], list[Struct]]:
    return lambda _, pages: [page | {1: (I64, page[1][1] + by)} for page in pages]


def first_row(place: int, row: int) -> Callable[[int, list[Struct]], list[Struct]]:
    return lambda _, pages: [
        page | {3: (I64, row if number == place else page[3][1])} for number, page in enumerate(pages)
    ]


def size_of(place: int, size: int) -> Callable[[int, list[Struct]], list[Struct]]:
    return lambda _, pages: [
        page | {2: (I32, size if number == place else page[2][1])} for number, page in enumerate(pages)
    ]


HOSTILE: dict[str, Callable[[int, list[Struct]], Any]] = {
    "beyond the file": moved(1 << 40),
    "before the file": moved(-(1 << 40)),
    "in another chunk": moved(97),
    "rows do not increase": first_row(3, PER_PAGE),
    "rows begin late": first_row(0, 5),
    "rows beyond the row group": first_row(PAGES - 1, ROWS + 1),
    "rows are huge": first_row(PAGES - 1, (1 << 63) - 1),
    "numbers beyond 64 bits": first_row(PAGES - 1, 1 << 70),
    "rows are negative": first_row(1, -250),
    "a size is huge": size_of(2, (1 << 31) - 1),
    "a size is negative": size_of(2, -1),
    "a size is zero": size_of(2, 0),
    "pages overlap": lambda _, pages: [*pages[:2], pages[1], *pages[3:]],
    "a page is missing": lambda _, pages: [*pages[:2], *pages[3:]],
    "no pages": lambda _, pages: [],
    "too few fields": lambda _, pages: [{1: page[1], 2: page[2]} for page in pages],
    "another kind": lambda _, pages: [page | {1: (BINARY, b"x")} for page in pages],
    "not Thrift": lambda _, pages: b"\xff" * 60,
    "cut off": lambda _, pages: encode_struct({1: (LIST, (STRUCT, pages))})[:-9],
    "a million pages": lambda _, pages: b"\x19\xfc\xff\xff\xff\x7f" + b"\x00" * 60,
    # One page has 240 rows by the index, the next one 260.
    "a page begins early": first_row(5, 5 * PER_PAGE - 10),
    "one column disagrees": lambda number, pages: first_row(5, 5 * PER_PAGE - 10)(0, pages) if number == 1 else pages,
    # The pages are two in the file, one in the index, of the right rows.
    "two pages are one": lambda _, pages: [
        location(pages[0][1][1], pages[0][2][1] + pages[1][2][1], 0),
        *pages[2:],
    ],
}
READ = [np.array(rows) for rows in ([0], [5 * PER_PAGE - 5], [5 * PER_PAGE + 3], [1240, 1260], [10, ROWS - 1])]


def check_rows(path: Path, content: bytes) -> int:
    """Read rows by pages: right ones, or none. The number of columns that were found."""
    path.write_bytes(content)
    storage, found = Ranges(), 0
    with open_for_scan(storage, str(path), 0, FooterCache()) as source:
        for rows in READ:
            by_page = source.rows_by_page(TABLE.column_names, 0, rows)
            found += len(by_page)
            for name, values in by_page.items():
                assert values.equals(TABLE.column(name).take(pa.array(rows)).combine_chunks()), name
        assert all(0 <= start <= end <= len(content) for start, end in storage.asked)
        batches = source.batches(TABLE.column_names, [0], ROWS)
        assert pa.Table.from_batches(batches).equals(TABLE)
    return found


def test_a_sound_index_is_believed(tmp_path: Path, content: bytes) -> None:
    assert check_rows(tmp_path / "x.parquet", content) == len(READ) * 4
    assert check_rows(tmp_path / "x.parquet", with_indexes(content, lambda _, pages: pages)) == len(READ) * 4


@pytest.mark.parametrize("damage", HOSTILE)
def test_a_wrong_index_gives_no_wrong_rows(tmp_path: Path, content: bytes, damage: str) -> None:
    found = check_rows(tmp_path / "x.parquet", with_indexes(content, HOSTILE[damage]))
    agreeing = ("a page begins early", "one column disagrees", "two pages are one")
    assert found == 0 or damage in agreeing


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((4, value) for value in (0, -5, 1 << 50)),
        *((5, value) for value in (0, -5, (1 << 31) - 1, 3)),
        (1, b"elsewhere.parquet"),
    ],
)
def test_a_wrong_place_of_an_index_gives_no_wrong_rows(
    tmp_path: Path, content: bytes, field: int, value: int | bytes
) -> None:
    """The footer points to the index; a chunk may also lie in another file, which Arrow does not look at."""
    footer = footer_of(content)
    for chunk in structs(structs(footer, 4)[0], 1):
        chunk[field] = (BINARY, value) if isinstance(value, bytes) else (I64 if field == 4 else I32, value)
    out = bytearray(content[: -8 - int.from_bytes(content[-8:-4], "little")])
    path = tmp_path / "x.parquet"
    path.write_bytes(ended(out, footer))
    with open_for_scan(LocalStorage(), str(path), 0, None) as source:
        assert source.rows_by_page(TABLE.column_names, 0, np.array([7])) == {}


def column_index(minima: Sequence[bytes], maxima: Sequence[bytes], nulls: Sequence[int]) -> bytes:
    return encode_struct(
        {
            1: (LIST, (1, [2] * len(minima))),
            2: (LIST, (BINARY, list(minima))),
            3: (LIST, (BINARY, list(maxima))),
            4: (I32, 0),
            5: (LIST, (I64, list(nulls))),
        }
    )


UNBELIEVED = {
    "fewer pages": column_index([b"\0" * 8] * 3, [b"\0" * 8] * 3, [0] * 3),
    "fewer null counts": column_index([b"\0" * 8] * PAGES, [b"\0" * 8] * PAGES, [0] * 3),
    "short bounds": column_index([b"\xff"] * PAGES, [b"\xff"] * PAGES, [0] * PAGES),
    "not Thrift": b"\xff" * 60,
    "no lists": encode_struct({1: (I64, 5), 2: (I64, 5)}),
}


@pytest.mark.parametrize("damage", UNBELIEVED)
def test_damaged_bounds_prove_nothing(tmp_path: Path, content: bytes, damage: str) -> None:
    path = tmp_path / "x.parquet"
    numbers_only = with_indexes(content, lambda _, pages: UNBELIEVED[damage], (6, 7))
    path.write_bytes(numbers_only)
    with open_for_scan(LocalStorage(), str(path), 0, None) as source:
        found = source.page_stats(["n"], 0)
        assert all(stats.minimum.null_count == PAGES for _, stats in found.values())


def test_bounds_of_pages(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with open_for_scan(LocalStorage(), str(path), 0, None) as source:
        found = source.page_stats(TABLE.column_names, 0)
    first_rows = np.arange(0, ROWS, PER_PAGE)
    assert sorted(found) == sorted(TABLE.column_names)
    assert found["x"][1].minimum.null_count == PAGES  # Bounds of floats leave out NaN.
    rows, numbers = found["n"]
    assert rows.tolist() == first_rows.tolist()
    assert numbers.minimum.to_pylist() == first_rows.tolist()
    assert numbers.null_count == (0,) * PAGES
    assert found["text"][1].maximum[0].as_py() == f"text {PER_PAGE - 1:06d}"


def test_pages_and_indexes_are_asked_for_together_and_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    storage, footers = Ranges(), FooterCache()
    for _ in range(2):
        with open_for_scan(storage, str(path), 0, footers) as source:
            assert len(source.rows_by_page(TABLE.column_names, 0, np.array([7, 4000]))) == 4
            assert 0 < source.page_bytes_read < len(content)
    # The page indexes once, the pages in each call.
    assert storage.calls <= 3


def base_rows(rows: int) -> pa.Table:
    meta = {name: [f"{name}{number:06d}" for number in range(rows)] for name in META_COLUMNS}
    return pa.table({**meta, **{name: TABLE.column(name).slice(0, rows) for name in TABLE.column_names}})


def test_new_files_have_an_index_of_several_pages(tmp_path: Path) -> None:
    for rows, indexed in ((PAGE_ROWS, False), (ROWS, True)):
        path = tmp_path / f"{rows}.parquet"
        write(path, base_rows(rows))
        chunk = pq.read_metadata(path).row_group(0).column(0)
        assert chunk.has_offset_index == chunk.has_column_index == indexed


def write(path: Path, rows: pa.Table) -> None:
    settings = BaseFileSettings(avro_schema=json.dumps(arrow_to_avro(rows.schema, "t")))
    writer = BaseFileWriter(LocalStorage(), str(path), rows.schema, settings, expected_rows=rows.num_rows)
    for batch in rows.to_batches():
        writer.write(batch)
    writer.close()


def test_reused_chunks_keep_their_index(tmp_path: Path) -> None:
    old, new, rows = tmp_path / "old.parquet", tmp_path / "new.parquet", base_rows(ROWS)
    write(old, rows)
    later = rows.set_column(rows.schema.get_field_index("word"), "word", [[f"long word {n}" for n in range(ROWS)]])
    settings = BaseFileSettings(avro_schema=json.dumps(arrow_to_avro(rows.schema, "t")))
    with open_for_merge(LocalStorage(), str(old)) as stored:
        writer = BaseFileWriter(
            LocalStorage(), str(new), rows.schema, settings, expected_rows=ROWS, stored=stored.chunks
        )
        for group, batches in stored.groups():
            assert list(batches)
            writer.write_group(later.combine_chunks().to_batches(), group, set(rows.schema.names) - {"word"})
        writer.close()
    assert pa.Table.from_batches(iter_base_file(LocalStorage(), str(new))).equals(later)
    places = np.array([3, PAGE_ROWS - 1])
    with open_for_scan(LocalStorage(), str(new), 0, None) as source:
        found = source.rows_by_page(rows.schema.names, 0, places)
        assert pa.table(found).select(rows.schema.names).equals(later.take(pa.array(places)))
        assert sorted(source.page_stats(rows.schema.names, 0)) == sorted(set(rows.schema.names) - {"x"})
    # Another reader finds the rows by these indexes.
    assert pq.read_table(new, filters=[("n", "=", 4000)]).column("word").to_pylist() == ["long word 4000"]
