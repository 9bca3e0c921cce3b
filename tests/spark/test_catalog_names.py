"""Names, folders and values of the catalog, without a JVM."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakedex.errors import InvalidInputError
from lakedex.spark.catalog.warehouse import open_warehouse
from lakedex.spark.filters import UntranslatablePredicateError, value_of


def test_names_are_folders_and_paths_are_themselves(tmp_path: Path) -> None:
    warehouse = open_warehouse(str(tmp_path))
    assert warehouse.path([], "trips") == f"{tmp_path}/trips"
    assert warehouse.path(["db", "west"], "trips") == f"{tmp_path}/db/west/trips"
    assert warehouse.path([], "/data/trips") == "/data/trips"
    assert warehouse.path([], "file:/data/trips") == "/data/trips"
    for namespace, name in (([], ".."), ([], "a/b"), (["/data"], "t"), ([".hoodie"], "t"), ([], ""), ([], "_x")):
        with pytest.raises(InvalidInputError, match="is no name"):
            warehouse.path(namespace, name)


def table_at(folder: Path) -> Path:
    """What makes a folder a table to a catalog."""
    (folder / ".hoodie").mkdir(parents=True)
    (folder / ".hoodie" / "hoodie.properties").write_text("")
    return folder


def listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_namespace_is_dropped_only_with_tables_in_it(tmp_path: Path) -> None:
    table_at(tmp_path / "db" / "inner" / "t")
    (tmp_path / "db" / "inner" / "notes.txt").write_text("keep me")
    warehouse = open_warehouse(str(tmp_path))
    assert warehouse.entries(["db", "inner"]) == (["t"], []) and warehouse.entries(["db"]) == ([], ["inner"])
    assert not warehouse.is_namespace(["db", "inner", "t"]) and warehouse.is_namespace([])
    with pytest.raises(InvalidInputError, match=r"notes\.txt"):
        warehouse.drop_namespace(["db"])
    (tmp_path / "db" / "inner" / "notes.txt").unlink()
    warehouse.drop_namespace(["db"])
    assert not (tmp_path / "db").exists()


STRANGE: dict[str, Callable[[Path], object]] = {
    "a file": lambda folder: (folder / "notes.txt").write_text("mine"),
    "a hidden file": lambda folder: (folder / ".notes.crc").write_text("mine"),
    "a folder's file": lambda folder: ((folder / "docs").mkdir(), (folder / "docs" / "a").write_text("mine")),
    "a link to a folder": lambda folder: (folder / "docs").symlink_to(folder.parent / "elsewhere"),
    "a link to a table": lambda folder: (folder / "docs").symlink_to(folder.parent / "elsewhere" / "t"),
    "a link to nowhere": lambda folder: (folder / "docs").symlink_to(folder.parent / "nowhere"),
    "a folder .hoodie of somebody's": lambda folder: (folder / "docs" / ".hoodie").mkdir(parents=True),
    "a table in a table": lambda folder: table_at(folder / "t" / "docs"),
    "a table deep in a table": lambda folder: table_at(folder / "t" / "a=1" / "docs"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_nothing_is_dropped_where_something_strange_lies(tmp_path: Path, what: str) -> None:
    table_at(tmp_path / "elsewhere" / "t")
    table_at(tmp_path / "db" / "t")
    STRANGE[what](tmp_path / "db")
    before = listed(tmp_path)
    with pytest.raises(InvalidInputError, match="docs|notes"):
        open_warehouse(str(tmp_path)).drop_namespace(["db"])
    assert listed(tmp_path) == before


def test_a_link_is_not_dropped_and_nothing_through_one(tmp_path: Path) -> None:
    table_at(tmp_path / "elsewhere" / "t")
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "db").symlink_to(tmp_path / "elsewhere")
    (lake / "t").symlink_to(tmp_path / "elsewhere" / "t")
    (tmp_path / "other name").symlink_to(lake)
    before = listed(tmp_path)
    for root in (lake, tmp_path / "other name"):
        warehouse = open_warehouse(str(root))
        for path in (f"{root}/db/t", f"{root}/t"):
            with pytest.raises(InvalidInputError, match="is a link"):
                warehouse.drop_table(path)
        with pytest.raises(InvalidInputError, match="is a link"):
            warehouse.drop_namespace(["db"])
    assert listed(tmp_path) == before
    table_at(lake / "own")
    open_warehouse(str(tmp_path / "other name")).drop_table(f"{tmp_path}/other name/own")
    assert listed(tmp_path) == before


def test_a_table_is_dropped_with_what_links_in_it_lead_to_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere" / "kept.parquet"
    kept.parent.mkdir()
    kept.write_text("mine")
    (table_at(tmp_path / "t") / "a=1").symlink_to(kept.parent)
    (tmp_path / "t" / ".hoodie" / "old").symlink_to(kept.parent)
    open_warehouse(str(tmp_path)).drop_table(f"{tmp_path}/t")
    assert listed(tmp_path) == ["elsewhere", "elsewhere/kept.parquet"]


@pytest.mark.parametrize("what", [*list(STRANGE)[:4], "a link to nowhere"])
def test_a_new_table_needs_a_folder_of_its_own(tmp_path: Path, what: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "lake" / "t"
    warehouse = open_warehouse(str(tmp_path / "lake"))
    warehouse.require_free(str(target))
    target.mkdir(parents=True)
    warehouse.require_free(str(target))
    STRANGE[what](target)
    for path in (target, target / "docs") if "link" in what else (target,):
        with pytest.raises(InvalidInputError, match=f"^{path} (holds|is a link)"):
            warehouse.require_free(str(path))
    (tmp_path / "lake" / "file").write_text("mine")
    with pytest.raises(InvalidInputError, match="is a file"):
        warehouse.require_free(str(tmp_path / "lake" / "file"))


def test_entries_name_tables_elsewhere(tmp_path: Path) -> None:
    place = table_at(tmp_path / "elsewhere" / "t")
    warehouse = open_warehouse(str(tmp_path / "lake"))
    for name in ("a", "b"):
        warehouse.add_entry(warehouse.path(["db"], name), str(place))
    assert warehouse.entries(["db"]) == (["a", "b"], []) and not warehouse.is_namespace(["db", "a"])
    assert warehouse.location(f"{tmp_path}/lake/db/a") == str(place)
    assert warehouse.location(f"{tmp_path}/lake/db/c") is None
    with pytest.raises(FileExistsError):
        warehouse.add_entry(warehouse.path(["db"], "a"), "/other")
    with pytest.raises(InvalidInputError, match="holds"):
        warehouse.require_free(f"{tmp_path}/lake/db/a")
    warehouse.drop_entry(f"{tmp_path}/lake/db/a")
    assert warehouse.entries(["db"]) == (["b"], [])
    warehouse.drop_namespace(["db"])
    assert listed(tmp_path / "lake") == [] and place.exists()
    for content in (b"", b"relative/path", b"\xff", b"/a\n/b", b"/" + b"x" * 5000):
        (tmp_path / "lake" / "bad").mkdir(parents=True, exist_ok=True)
        (tmp_path / "lake" / "bad" / ".lakedex-location").write_bytes(content)
        with pytest.raises(InvalidInputError, match="holds no path of a table"):
            warehouse.location(f"{tmp_path}/lake/bad")


@dataclass
class _Type:
    name: str

    def simpleString(self) -> str:
        return self.name


@dataclass
class _Bytes:
    held: bytes

    def getBytes(self) -> bytes:
        return self.held


@dataclass
class _Literal:
    kind: str
    held: Any

    def dataType(self) -> _Type:
        return _Type(self.kind)

    def value(self) -> Any:
        return self.held

    def toString(self) -> str:
        return str(self.held)


@pytest.mark.parametrize(
    ("kind", "held", "value"),
    [
        ("int", 5, 5),
        ("boolean", False, False),
        ("string", _Bytes("it's \\ ${none}\0é".encode()), "it's \\ ${none}\0é"),
        ("string", "plain", "plain"),
        ("double", 0.1, 0.1),
        ("date", (dt.date(2024, 2, 29) - dt.date(1970, 1, 1)).days, dt.date(2024, 2, 29)),
        ("timestamp", 1_500_000, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, dt.UTC)),
        ("timestamp_ntz", 0, dt.datetime(1970, 1, 1)),
        ("binary", bytearray(b"\x00\xff"), b"\x00\xff"),
        ("bigint", None, None),
    ],
)
def test_values_of_literals(kind: str, held: Any, value: Any) -> None:
    assert value_of(_Literal(kind, held)) == value


@pytest.mark.parametrize(
    ("kind", "held"),
    [("interval day", 5), ("date", 10**9), ("string collate UNICODE_CI", "a"), ("string", _Bytes(b"\xff"))],
)
def test_a_literal_without_exact_value_is_not_told(kind: str, held: Any) -> None:
    with pytest.raises(UntranslatablePredicateError):
        value_of(_Literal(kind, held))
