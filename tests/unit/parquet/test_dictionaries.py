"""Text columns as dictionaries, from the pages of one base file to those of the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex import Table
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import open_for_merge
from lakedex.parquet.conform import ENCODED, decode_dictionary, drop_unused_values, encode_like, encoded
from lakedex.types import FILE_NAME

STORE = LocalStorage()
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=30)


@given(texts=TEXTS, data=st.data())
def test_compact_keeps_values_and_drops_the_others(texts: list[str | None], data: st.DataObject) -> None:
    whole = pa.array(texts, pa.string())
    picked = data.draw(st.lists(st.integers(0, max(len(texts) - 1, 0)), max_size=20)) if texts else []
    rows = encoded(whole).take(pa.array(picked, pa.int64()))
    found = drop_unused_values(rows)
    assert found.type == ENCODED
    assert decode_dictionary(found).to_pylist() == [texts[place] for place in picked]
    assert set(found.dictionary.to_pylist()) == {texts[place] for place in picked} - {None}


def test_shaped_leaves_other_columns_alone() -> None:
    numbers = pa.array([1, 2])
    assert encode_like(numbers, pa.int64()) is numbers
    texts = pa.array(["a", None, "a"])
    assert encode_like(encode_like(texts, ENCODED), pa.string()).equals(texts)


def _table(path: Path, rows: pa.Table) -> Table:
    table = Table.create(path, schema=rows.schema, record_key="key", ordering_by="ts")
    table.indexes.create("bitmap", ["color", "note"], name="colors")
    table.bulk_insert(rows)
    return table


def _base_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


@pytest.fixture
def rows() -> pa.Table:
    count = 300
    return pa.table(
        {
            "key": [f"k{number:04d}" for number in range(count)],
            "ts": pa.array(np.ones(count, np.int64)),
            "color": [("red", "green", None)[number % 3] for number in range(count)],
            "note": [f"note {number % 7}" for number in range(count)],
            "blob": pa.array([b"same"] * count),
        }
    )


def test_updates_of_dictionary_columns(tmp_path: Path, rows: pa.Table) -> None:
    """New values come in, the last row of a value takes it out of the file, nulls stay nulls."""
    table, wanted = _table(tmp_path / "t", rows), {row["key"]: row for row in rows.to_pylist()}
    for step in range(4):
        changed = [dict(wanted[f"k{number:04d}"]) for number in range(step, 300, 7)]
        for row in changed:
            row |= {"ts": step + 2, "color": None if step == 2 else f"new {step}", "note": f"step {step}"}
        table.upsert(pa.Table.from_pylist(changed, rows.schema))
        wanted |= {row["key"]: row for row in changed}
    found = table.scan().to_arrow().select(rows.schema.names).to_pylist()
    assert {row["key"]: row for row in found} == wanted
    newest = _base_files(tmp_path / "t")[-1]
    stored = pq.ParquetFile(newest, read_dictionary=["color", "note"]).read()
    for name in ("color", "note"):
        used = {row[name] for row in wanted.values()} - {None}
        assert set(stored.column(name).chunk(0).dictionary.to_pylist()) == used
    for column, value in (("note", "step 3"), ("color", "new 0"), ("note", "note 0")):
        ours = table.scan(where=f"{column} = '{value}'")
        assert ours.to_arrow().num_rows == sum(row[column] == value for row in wanted.values())
    assert table.indexes.validate("colors").ok
    assert table.indexes.validate("column_stats").ok


def test_what_is_read_as_a_dictionary(tmp_path: Path, rows: pa.Table) -> None:
    _table(tmp_path / "t", rows)
    (file,) = _base_files(tmp_path / "t")
    names = {"key", "color", "note", "blob", "ts", "absent"}
    with open_for_merge(STORE, str(file), without=[FILE_NAME], dictionaries=names) as stored:
        (batch,) = list(stored.batches())
    assert stored.footer.dictionaries == {"color", "note"}
    assert FILE_NAME not in batch.schema.names
    assert batch.column("note").type == ENCODED
    assert batch.column("key").type == pa.string()
    assert decode_dictionary(batch.column("color")).to_pylist() == rows.column("color").to_pylist()


def test_keys_get_no_dictionary(tmp_path: Path, rows: pa.Table) -> None:
    """A value a row: the dictionary of a key is the column once more."""
    _table(tmp_path / "t", rows)
    group = pq.read_metadata(_base_files(tmp_path / "t")[0]).row_group(0)
    chunks = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    without = {name for name, chunk in chunks.items() if not chunk.has_dictionary_page}
    assert without == {"_hoodie_record_key", "_hoodie_commit_seqno", "key"}
    assert chunks["key"].statistics.max == "k0299"


def test_one_large_batch_is_several_row_groups(tmp_path: Path, rows: pa.Table) -> None:
    """A load comes as one batch a file; each row group has only its own values in its dictionary."""
    options = {"hoodie.parquet.block.size": "8192"}
    rows = rows.set_column(3, "note", pa.array([f"note {number // 10:03d}" for number in range(300)]))
    table = Table.create(tmp_path / "t", schema=rows.schema, record_key="key", ordering_by="ts", options=options)
    table.indexes.create("bitmap", ["note"], name="notes")
    table.bulk_insert(rows)
    (file,) = _base_files(tmp_path / "t")
    stored = pq.ParquetFile(file, read_dictionary=["note"])
    assert stored.num_row_groups > 2
    for number in range(stored.num_row_groups):
        column = stored.read_row_group(number, ["note"]).column(0).chunk(0)
        assert set(column.dictionary.to_pylist()) == set(column.to_pylist())
    assert stored.read().num_rows == 300
    assert table.scan(where="note = 'note 007'").to_arrow().num_rows == 10
    assert table.indexes.validate("notes").ok
