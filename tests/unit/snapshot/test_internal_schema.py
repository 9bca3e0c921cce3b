"""Tables that Hudi changed under its schema-on-read: read while names mean what they say, never written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakedex import Table
from lakedex.commit import transaction
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.snapshot.schema import moved_names
from table_kit import make, own, rows


def version(**columns: Any) -> dict[str, Any]:
    """A schema; a column is its id, or its id and the type inside."""
    fields = []
    for name, given in columns.items():
        number, kind = given if isinstance(given, tuple) else (given, "string")
        fields.append({"id": number, "name": name, "optional": True, "type": kind})
    return {"max_column_id": 9, "version_id": 1, "type": "record", "fields": fields}


def moved(*versions: dict[str, Any]) -> list[str]:
    """Newest first."""
    return moved_names(json.dumps(versions[0]), json.dumps({"schemas": list(versions)}))


def test_moved_names() -> None:
    old = version(a=0, b=1)
    assert moved(version(a=0, b=1, c=2), old) == []
    assert moved(version(a=0), old) == []
    assert moved(version(a=0, c=1), old) == ["c"]
    assert moved(version(a=0, b=2), version(a=0), old) == ["b"]
    assert moved(version(a=1, b=0), old) == ["a", "b"]
    assert moved_names(json.dumps(old)) == []


def test_moved_names_inside() -> None:
    def nested(name: str, number: int = 3) -> dict[str, Any]:
        inner = {"type": "record", "fields": [{"id": number, "name": name, "optional": True, "type": "int"}]}
        listed = {"type": "array", "element": inner, "element_id": 2, "element_optional": True}
        mapped = {"type": "map", "key": "string", "value": inner, "key_id": 5, "value_id": 6, "value_optional": True}
        return version(l=(1, listed), m=(4, {**mapped, "value": "int"}))

    assert moved(nested("x"), nested("x")) == []
    assert moved(nested("y"), nested("x")) == ["l.element.y"]
    assert moved(nested("x", 7), nested("x")) == ["l.element.x"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fields": [{}]}', '{"fields": 1}'])
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(ValueError):
        moved_names(text)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table whose newest commit carries ids, as Java's ALTER TABLE leaves them."""
    made = make(tmp_path / "t", rows(("1", "a", 1, 1)))
    encode = transaction.encode_commit_metadata

    def with_ids(metadata: Any, *layout: int) -> bytes:
        metadata.extra["latest_schema"] = json.dumps(version(id=0, city=1, ts=2, n=3))
        return encode(metadata, *layout)

    with monkeypatch.context() as patched:
        patched.setattr(transaction, "encode_commit_metadata", with_ids)
        made.upsert(rows(("2", "a", 1, 2)))
    return Table.open(made.path)


def test_read_but_not_written(table: Table) -> None:
    assert own(table, "n") == [(1,), (2,)]
    for write in (
        lambda: table.upsert(rows(("3", "a", 1, 3))),
        lambda: table.rename_column("n", "m"),
        lambda: table.insert_overwrite(rows(("3", "a", 1, 3))),
    ):
        with pytest.raises(UnsupportedFeatureError, match="column ids") as caught:
            write()
        assert caught.value.feature == "schema on read"
    assert table.snapshot().timeline.pending() == ()


def test_renamed_columns_are_not_read_as_nulls(table: Table) -> None:
    folder = Path(table.path) / ".hoodie/.schema"
    folder.mkdir(exist_ok=True)
    history = [version(id=0, city=1, ts=2, n=3), version(id=0, city=1, ts=2, number=3)]
    (folder / "20300101000000000.schemacommit").write_text(json.dumps({"schemas": history}))
    with pytest.raises(UnsupportedFeatureError, match="'n' was renamed"):
        table.scan().to_arrow()
    (folder / "20300101000000000.schemacommit").write_text("{")
    with pytest.raises(CorruptFileError):
        table.scan().to_arrow()
