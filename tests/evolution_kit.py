"""Reads ``tests/pruning/evolution.steps`` and takes its tables through their steps; the README there has the format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakedex import Table
from pairs import FOLDER
from table_kit import OWN_FILE

__all__ = ["CASES", "EvolutionCase", "Question", "questions"]

TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(6, 2)": pa.decimal128(6, 2),
    "struct<a: int>": pa.struct([("a", pa.int32())]),
}


@dataclass(frozen=True)
class EvolutionCase:
    """A table's columns and what happens to it."""

    name: str
    columns: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A condition at some point of a table's life: which files are read for it, and which rows come out."""

    where: str
    files: frozenset[str]
    ids: tuple[str, ...]
    as_of: str | None
    kept: frozenset[str]


def _load(path: Path) -> Iterator[EvolutionCase]:
    for block in path.read_text("utf-8").split("\n\n"):
        head, columns, *steps = block.strip().splitlines()
        yield EvolutionCase(head.removeprefix("# case: "), columns.removeprefix("# columns: "), tuple(steps))


CASES = {case.name: case for case in _load(FOLDER / "evolution.steps")}


@dataclass
class _Life:
    table: Table
    names: dict[str, str] = field(default_factory=dict)
    marked: str | None = None

    def insert(self, text: str) -> None:
        name, _, rows = text.partition(" ")
        values = [json.loads(row) for row in re.split(r"(?<=\}) (?=\{\"id\")", rows)]
        schema, known = Table.open(self.table.path).schema, self._groups()
        extra = [key for key in values[0] if key not in schema.names]
        fields = [*schema, *(pa.field(key, pa.string()) for key in extra)]
        columns = [_typed([row.get(item.name) for row in values], item.type) for item in fields]
        self.table.insert(pa.Table.from_arrays(columns, schema=pa.schema(fields)), options=OWN_FILE)
        (self.names[next(iter(self._groups() - known))],) = (name,)

    def _groups(self) -> set[str]:
        return {base.file_id for base in Table.open(self.table.path).snapshot().base_files()}

    def ask(self, text: str, as_of: str | None = None) -> Question:
        where, files, ids = re.fullmatch(r"(.*) -> (.*) : (.*)", text).groups()  # type: ignore[union-attr]
        plan = Table.open(self.table.path).scan(where, as_of=as_of).plan()
        kept = frozenset(self.names[base.file_id] for base in plan.files)
        return Question(where, _words(files), tuple(sorted(_words(ids))), as_of, kept)


def _words(text: str) -> frozenset[str]:
    return frozenset() if text == "-" else frozenset(text.split())


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(kind) if pa.types.is_decimal(kind) else pa.array(values, kind)


def questions(case: EvolutionCase, path: Path, refused: Callable[[Table, str], None]) -> Iterator[Question]:
    """The questions of a case, each asked when its turn has come; ``refused`` gets conditions that must fail."""
    kinds = [item.split(" ", 1) for item in re.split(r", (?=\w+ [a-z])", case.columns)]
    schema = pa.schema([(name, TYPES[kind]) for name, kind in kinds])
    life = _Life(Table.create(path, schema, record_key="id"))
    for step in case.steps:
        verb, _, rest = step.partition(" ")
        words = rest.split(" ", 1)
        if verb == "insert":
            life.insert(rest)
        elif verb == "?":
            yield life.ask(rest)
        elif verb == "@":
            yield life.ask(rest, life.marked)
        elif verb == "!":
            refused(life.table, rest)
        elif verb == "mark":
            life.marked = life.table.snapshot().instant
        elif verb == "add":
            life.table.add_columns(pa.schema([(words[0], TYPES[words[1]])]))
        else:
            calls: dict[str, Callable[..., Any]] = {
                "drop": life.table.drop_columns,
                "rename": life.table.rename_column,
                "widen": life.table.widen_column,
                "rewrite": life.table.maintenance.rewrite_files,
            }
            calls[verb](*(word for word in words if word))
