"""Comments of a table and its columns, over the table's life."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.codec.comments import arrow_comments
from lakedex.errors import InvalidInputError
from table_kit import ROWS, own, properties, rows

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), metadata={"comment": "the key"}),
        pa.field("city", pa.string(), metadata={"comment": "where", "other": "x"}),
        pa.field("ts", pa.int64()),
        pa.field("n", pa.int32(), metadata={"comment": "how many"}),
        pa.field("s", pa.struct([pa.field("a", pa.int32(), metadata={"comment": "inside"})])),
    ]
)
SAID = {"id": "the key", "city": "where", "n": "how many", "s.a": "inside"}
PLAIN = pa.schema([*ROWS, ("s", pa.struct([("a", pa.int32())]))])


def made(path: Path, version: int = 8) -> Table:
    options = {"hoodie.write.table.version": str(version)}
    return Table.create(path, SCHEMA, record_key="id", partition_by="city", comment="rides = é\n# 2", options=options)


def said(table: Table) -> dict[str, str]:
    return arrow_comments(table.schema)


def one(key: str, n: int) -> pa.Table:
    return rows((key, "oslo", 1, n, {"a": n}), schema=PLAIN)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_every_write_and_schema_change_keeps_them(tmp_path: Path, version: int) -> None:
    table = made(tmp_path / "t", version)
    stored = json.loads(table.snapshot().config.create_schema or "")
    assert stored["fields"][0]["doc"] == "the key"
    assert (table.comment, said(table)) == ("rides = é\n# 2", SAID)
    table.upsert(one("a", 1))
    table.insert(one("b", 2).append_column("late", pa.array([1])))
    table.delete(where="id = 'b'")
    table.insert_overwrite(one("c", 3), "table", options={"hoodie.write.set.null.for.missing.columns": "true"})
    assert said(table) == SAID
    table.add_columns(pa.schema([pa.field("S.b", pa.int32(), metadata={"comment": "b"}), pa.field("m", pa.int32())]))
    table.widen_column("n", "bigint")
    table.rename_column("s", "t")
    table.set_comment("times", "TS")
    table.set_comment("", "n")
    after = {"id": "the key", "city": "where", "t.a": "inside", "t.b": "b", "ts": "times"}
    assert said(table) == after
    text = table.snapshot().timeline.commit_notes(table.snapshot().timeline.last_completed).schema
    assert text is not None and json.loads(text)["fields"][0]["doc"] == "the key"
    table.drop_columns("t")
    table.upsert(rows(("a", "oslo", 2, 5, 1, 1), schema=table.schema))
    assert said(table) == {key: text for key, text in after.items() if not key.startswith("t.")}
    assert said(Table.open(table.path)) == said(table) and Table.open(table.path).comment == "rides = é\n# 2"


def test_a_dropped_column_takes_its_comment_along(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.drop_columns("n")
    table.add_columns(pa.schema([("n", pa.int32())]))
    assert "n" not in said(table)


def test_a_comment_of_a_column_is_a_commit_that_is_taken_back(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(one("a", 1))
    kept = table.maintenance.savepoint()
    written = table.set_comment("other", "id")
    assert written is not None and written.operation == "ALTER_SCHEMA" and written.files_written == 0
    assert said(table)["id"] == "other"
    assert said(table) != SAID and arrow_comments(table.scan(as_of=kept).snapshot.schema) == {}
    again = table.set_comment("other", "id")
    assert again is not None and again.instant is None, "the same words are no commit"
    table.maintenance.rollback(written.instant or "")
    assert said(table) == SAID
    table.set_comment(None, "s.a")
    table.upsert(one("b", 2))
    table.maintenance.restore(kept)
    assert said(table) == SAID and own(table, "id") == [("a",)]


def test_a_comment_of_the_table_is_a_property(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(one("a", 1))
    assert table.set_comment("better") is None
    assert table.comment == "better" and properties(tmp_path / "t")["lakedex.comment"] == "better"
    table.indexes.create("bitmap", "n", name="idx")
    assert table.comment == "better"
    table.set_comment("")
    assert table.comment is None and "lakedex.comment" not in properties(tmp_path / "t")
    assert table.inspect.history().num_rows == 1


def test_two_writers_keep_the_newest_comment(tmp_path: Path) -> None:
    table, other = made(tmp_path / "t"), Table.open(tmp_path / "t")
    table.upsert(one("a", 1))
    assert said(other) == SAID
    table.set_comment("newest", "id")
    other.upsert(one("b", 2))
    assert said(table)["id"] == said(other)["id"] == "newest"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("x", "idd", "has no column 'idd'; did you mean 'id'"),
        ("x", "s.b", "has no column 's.b'"),
        ("\ud800", "id", "column 'id' is not valid Unicode"),
        ("\ud800", None, "is not valid Unicode"),
        (5, None, "must be a string, not int"),
        ("x" * (8 << 20), None, "8388608 bytes"),
    ],
)
def test_what_is_no_column_or_no_text_is_refused(tmp_path: Path, text: Any, column: str | None, message: str) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=message):
        table.set_comment(text, column)
    assert said(table) == SAID and table.inspect.history().num_rows == 0
