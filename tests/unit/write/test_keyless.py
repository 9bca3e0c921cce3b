"""Tables without a record key: rows get a key that no other row has, and are changed by conditions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from golden_tables import read_by_java, unpack_java_1_2
from lakedex import Table
from lakedex.errors import InvalidInputError
from lakedex.tagging.keyed_rows import KEY, KEY_COLUMNS, GenerateKeys
from lakedex.types import RECORD_KEY
from table_kit import OWN_FILE, own, properties, rows

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
ROWS = rows(("a", "x", 1), ("a", "x", 1), ("b", "y", 2), schema=SCHEMA)


def keys(table: Table) -> list[str]:
    found: list[str] = table.scan(meta_columns=True).to_arrow().column(RECORD_KEY).to_pylist()
    assert len(set(found)) == len(found)
    return sorted(found)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("partition_by", [None, "city"])
def test_rows_are_added_and_changed_by_conditions(tmp_path: Path, version: int, partition_by: str | None) -> None:
    options = {"hoodie.write.table.version": str(version), **OWN_FILE}
    table = Table.create(tmp_path / "t", SCHEMA, record_key=None, partition_by=partition_by or (), options=options)
    assert "hoodie.table.recordkey.fields" not in properties(tmp_path / "t")
    first, second = table.insert(ROWS), table.bulk_insert(ROWS)
    assert keys(table) == [f"{done.instant}_0_{row}" for done in (first, second) for row in range(3)]
    before = keys(table)
    assert table.update({"n": "n + 1"}, "id = 'b'").updated == 2
    assert table.delete(where=f"n = 1 and _hoodie_record_key like '{first.instant}%'").deleted == 2
    assert keys(table) == [key for key in before if key not in before[:2]], "changed rows keep their keys"
    source = rows(("a", "x", 7), ("z", "q", 8), schema=SCHEMA)
    merge = table.merge(source, "t.id = s.id").when_matched_update(set={"n": "s.n"}).when_not_matched_insert_all()
    assert "has no record key" in merge.explain()
    done = merge.execute()
    assert (done.inserted, done.updated) == (1, 2)
    assert own(table) == [("a", "x", 7), ("a", "x", 7), ("b", "y", 3), ("b", "y", 3), ("z", "q", 8)]
    assert len(keys(table)) == 5
    assert table.insert_overwrite(ROWS, "table").inserted == 3
    assert own(table) == [("a", "x", 1), ("a", "x", 1), ("b", "y", 2)]
    assert table.maintenance.validate().ok


REFUSED: tuple[tuple[str, Callable[[Table], Any], str], ...] = (
    ("upsert", lambda table: table.upsert(ROWS), "use insert, or merge with a condition"),
    ("keys", lambda table: table.delete(["a"]), r"delete\(where=…\)"),
    ("a frame", lambda table: table.delete(ROWS), r"delete\(where=…\)"),
    ("erase", lambda table: table.erase(["a"]), r"delete\(where=…\)"),
)


@pytest.mark.parametrize(("call", "advice"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_keys_are_asked_for_by_name(tmp_path: Path, call: Callable[[Table], Any], advice: str) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, record_key=None)
    table.insert(ROWS)
    with pytest.raises(InvalidInputError, match=f"table t: .*its keys are generated; .*{advice}"):
        call(table)
    assert len(table.inspect.history()) == 1


def test_an_ordering_field_needs_a_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="ordering field n decides between rows with one record key"):
        Table.create(tmp_path / "t", SCHEMA, record_key=None, ordering_by="n")
    assert not (tmp_path / "t").exists()


def test_a_task_that_runs_again_gives_the_same_keys() -> None:
    schema = pa.schema(KEY_COLUMNS)
    task = [(None, "", (7 << 40) + row) for row in range(2)]
    batches = [rows(*task, schema=schema).to_batches()[0], rows(("stored", "", 5), schema=schema).to_batches()[0]]
    made, again = (pa.Table.from_batches(GenerateKeys("20261129", schema)(iter(batches))) for _ in range(2))
    assert made.column(KEY).to_pylist() == ["20261129_7_0", "20261129_7_1", "stored"]
    assert made.equals(again)


def test_a_batch_counts_once(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, record_key=None)
    table.insert(ROWS, txn=("app", 1))
    assert table.insert(ROWS, txn=("app", 1)).instant is None
    assert len(keys(table)) == 3


@pytest.mark.proves("version 9, copy-on-write", "Hudi 1.2.0", "made")
def test_a_table_of_java_goes_on(tmp_path: Path) -> None:
    path = unpack_java_1_2("keyless", tmp_path)
    table, java = Table.open(path), read_by_java(path)
    assert own(table, "id", "fare", RECORD_KEY) == sorted((row["id"], row["fare"], row[RECORD_KEY]) for row in java)
    done = table.insert(pa.table({"id": ["new"], "fare": [1.0], "city": ["oslo"]}))
    table.update({"fare": 2.0}, "id = 'k02'")
    table.delete(where="id = 'k00' and fare < 1")
    stored = {row[RECORD_KEY]: (row["id"], row["fare"]) for row in java if row["fare"] >= 1}
    kept = {key: (name, 2.0 if name == "k02" else fare) for key, (name, fare) in stored.items()}
    expected = {**kept, f"{done.instant}_0_0": ("new", 1.0)}
    assert own(table, RECORD_KEY, "id", "fare") == sorted((key, *row) for key, row in expected.items())
    assert table.maintenance.validate().ok
