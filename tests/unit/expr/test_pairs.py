"""The cases of ``tests/pruning``: which files a condition keeps, and that it drops all others."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lakedex.expr.casts import fold_cast
from lakedex.expr.nodes import Column, Literal
from lakedex.expr.parser import parse_predicate
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.sort_keys import literal_array
from lakedex.types import SessionRules
from pairs import FOLDER, Case, load
from tests.unit.expr.test_oracle import TYPES


def field(path: list[str], kind: str) -> pa.Field:
    return pa.field(path[0], pa.struct([field(path[1:], kind)]) if path[1:] else TYPES[kind])


def bound(text: str, data_type: pa.DataType) -> pa.Array:
    if text == "":
        return pa.nulls(1, data_type)
    text = text.strip('"')
    if pa.types.is_binary(data_type):
        return pa.array([bytes.fromhex(text)])
    return literal_array(fold_cast(Literal(text, pa.string()), data_type, "UTC")).cast(data_type)


def bounds_of(files: Sequence[str], column: Column) -> ColumnBounds:
    low, high, nulls, rows = [], [], [], []
    for line in files:
        head, *parts = line.split(" | ")
        name = column.name + " "
        stats = next((p.removeprefix(name) for p in parts if p.startswith(name)), ".. nulls=?")
        count = head.split("rows=")[1]
        rows.append(-1 if count == "?" else int(count))
        match = re.fullmatch(r'(".*?"|[^"]*?)\.\.(".*?"|[^"]*?) nulls=(.*)', stats)
        known = (match[1], match[2], match[3]) if match else ("", "", count)
        low.append(bound(known[0], column.type))
        high.append(bound(known[1], column.type))
        nulls.append(-1 if known[2] == "?" else int(known[2]))
    return ColumnBounds(pa.concat_arrays(low), pa.concat_arrays(high), np.array(nulls), np.array(rows))


CASES = [case for path in sorted(FOLDER.glob("*.pairs")) for case in load(path) if "table" not in case.heads]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.where)
def test_kept_files(case: Case) -> None:
    columns = dict(c.split(" ") for c in re.split(r", ", case.heads["columns"]))
    schema = pa.schema([field(name.split("."), kind) for name, kind in columns.items()])
    predicate = parse_predicate(case.sql, schema, SessionRules(timezone=case.heads.get("timezone", "UTC")))
    keep = prune(predicate, lambda column: bounds_of(case.files, column), len(case.files))
    names = [line.split(" ")[0] for line in case.files]
    kept = [n for n, k in zip(names, keep, strict=True) if k]
    assert kept == (case.expected.split() if case.expected != "-" else [])


def test_there_are_cases() -> None:
    assert len(CASES) > 100
