"""Names, folders and literals of the catalog, without a JVM."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakedex.errors import InvalidInputError
from lakedex.spark.catalog.places import open_warehouse
from lakedex.spark.catalog.predicates import UntoldPredicateError, literal_text


def test_names_are_folders_and_paths_are_themselves(tmp_path: Path) -> None:
    warehouse = open_warehouse(str(tmp_path))
    assert warehouse.path([], "trips") == f"{tmp_path}/trips"
    assert warehouse.path(["db", "west"], "trips") == f"{tmp_path}/db/west/trips"
    assert warehouse.path([], "/data/trips") == "/data/trips"
    assert warehouse.path([], "file:/data/trips") == "/data/trips"
    for namespace, name in (([], ".."), ([], "a/b"), (["/data"], "t"), ([".hoodie"], "t"), ([], ""), ([], "_x")):
        with pytest.raises(InvalidInputError, match="is no name"):
            warehouse.path(namespace, name)


def test_a_namespace_is_dropped_only_with_tables_in_it(tmp_path: Path) -> None:
    (tmp_path / "db" / "inner" / "t" / ".hoodie").mkdir(parents=True)
    (tmp_path / "db" / "inner" / "notes.txt").write_text("keep me")
    warehouse = open_warehouse(str(tmp_path))
    assert warehouse.entries(["db", "inner"]) == (["t"], []) and warehouse.entries(["db"]) == ([], ["inner"])
    assert not warehouse.is_namespace(["db", "inner", "t"]) and warehouse.is_namespace([])
    with pytest.raises(InvalidInputError, match=r"notes\.txt"):
        warehouse.drop_namespace(["db"])
    (tmp_path / "db" / "inner" / "notes.txt").unlink()
    warehouse.drop_namespace(["db"])
    assert not (tmp_path / "db").exists()


@dataclass
class _Type:
    name: str

    def simpleString(self) -> str:
        return self.name

    def sql(self) -> str:
        return self.name.upper()


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
    ("kind", "held", "text"),
    [
        ("int", 5, "CAST(5 AS INT)"),
        ("boolean", False, "FALSE"),
        ("string", "it's \\ here", "'it\\'s \\\\ here'"),
        ("double", 0.1, "CAST('0.1' AS DOUBLE)"),
        ("double", float("nan"), "CAST('nan' AS DOUBLE)"),
        ("date", (dt.date(2024, 2, 29) - dt.date(1970, 1, 1)).days, "DATE '2024-02-29'"),
        ("timestamp", 1_500_000, "TIMESTAMP '1970-01-01 00:00:01.500000+00:00'"),
        ("timestamp_ntz", 0, "TIMESTAMP_NTZ '1970-01-01 00:00:00'"),
        ("binary", b"\x00\xff", "X'00ff'"),
        ("bigint", None, "CAST(NULL AS BIGINT)"),
    ],
)
def test_literals(kind: str, held: Any, text: str) -> None:
    assert literal_text(_Literal(kind, held)) == text


@pytest.mark.parametrize(("kind", "held"), [("interval day", 5), ("date", 10**9), ("string collate UNICODE_CI", "a")])
def test_a_literal_without_exact_text_is_not_told(kind: str, held: Any) -> None:
    with pytest.raises(UntoldPredicateError):
        literal_text(_Literal(kind, held))
