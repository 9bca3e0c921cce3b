"""Skipping row groups by their own statistics never loses a row, whoever wrote the file and however."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.scan.slice_reader import Part, ReadCount, SliceReader, iter_slice_rows

UTC = dt.UTC
# Type in the table, types that a file may have, values, literals.
COLUMNS: dict[str, tuple[pa.DataType, list[pa.DataType], list[Any], list[str]]] = {
    "l": (pa.int64(), [pa.int64(), pa.int32(), pa.int16()], [-3, 0, 1, 2, 7], ["0", "1.5", "7", "3000000000", "NULL"]),
    "d": (pa.float64(), [pa.float64(), pa.float32()], [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf], ["0", "1.5", "CAST('NaN' AS DOUBLE)"]),
    "w": (pa.float64(), [pa.int32()], [-3, 0, 7], ["0", "1.5", "7", "CAST('NaN' AS DOUBLE)"]),
    "m": (pa.decimal128(20, 4), [pa.decimal128(20, 4), pa.decimal128(9, 2), pa.decimal128(18, 3)], [Decimal("0.00"), Decimal("-1.50"), Decimal("9.99")], ["0", "1.5", "-1.5", "9.995"]),
    "s": (pa.string(), [pa.string(), pa.large_string()], ["", "a", "ab", "é", "\ue000", "\U0001f600", "x" * 70, "x" * 70 + "y"], ["''", "'ab'", "'\U0001f600'", f"'{'x' * 70}'"]),
    "x": (pa.binary(), [pa.binary(), pa.large_binary()], [b"", b"\x00", b"\x7f", b"\x80", b"\xff\xff"], ["X''", "X'80'"]),
    "o": (pa.bool_(), [pa.bool_()], [True, False], ["true", "false"]),
    "t": (pa.date32(), [pa.date32()], [dt.date(1, 1, 1), dt.date(2024, 3, 9), dt.date(9999, 12, 31)], ["DATE '2024-03-09'"]),
    "z": (pa.timestamp("us", "UTC"), [pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")], [dt.datetime(1950, 1, 1, tzinfo=UTC), dt.datetime(2024, 3, 9, 1, tzinfo=UTC)], ["TIMESTAMP '2024-03-09 01:00:00'", "DATE '2024-03-09'"]),
}  # fmt: skip
NESTED = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema([*((name, kinds[0]) for name, kinds in COLUMNS.items()), ("p", NESTED)])


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 12))
    columns: dict[str, pa.Array] = {}
    for name, (_, kinds, values, _) in COLUMNS.items():
        if draw(st.integers(0, 9)):  # else an older file, which lacks the column
            own = draw(st.lists(st.sampled_from([None, *values]), min_size=count, max_size=count))
            columns[name] = pa.array(own, draw(st.sampled_from(kinds)))
    places = [None, {"x": None, "y": None}, {"x": 1, "y": "a"}, {"x": 5, "y": "b"}]
    kind = draw(st.sampled_from([NESTED, pa.struct([("x", pa.int32())])]))
    own = draw(st.lists(st.sampled_from(places), min_size=count, max_size=count))
    columns["p"] = pa.array([value if value is None else {n.name: value[n.name] for n in kind} for value in own], kind)
    return pa.table(columns)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> str:
    shape = draw(st.integers(0, 5)) if depth else 5
    if shape <= 1:
        join = draw(st.sampled_from(["AND", "OR"]))
        return f"({draw(conditions(depth=depth - 1))}) {join} ({draw(conditions(depth=depth - 1))})"
    if shape == 2:
        return f"NOT ({draw(conditions(depth=depth - 1))})"
    name = draw(st.sampled_from([*COLUMNS, "p.x", "p"]))
    if name == "p" or draw(st.integers(0, 4)) == 0:
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    literals = ["1", "5"] if name == "p.x" else COLUMNS[name][3]
    if draw(st.booleans()):
        return f"{name} IN ({', '.join(draw(st.lists(st.sampled_from(literals), min_size=1, max_size=2)))})"
    return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=', '<=>']))} {draw(st.sampled_from(literals))}"


@given(
    table=tables(),
    where=conditions(),
    size=st.integers(1, 4),
    version=st.sampled_from(["1.0", "2.6"]),
    parts=st.integers(1, 3),
)
def test_rows_are_the_same(table: pa.Table, where: str, size: int, version: str, parts: int) -> None:
    predicate = parse_predicate(where, SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, Path(folder) / "f.parquet", row_group_size=size, version=version, store_schema=False)
        item = FileSlice("", "f", "1", BaseFile("", "f.parquet", 1, "f", "1"))
        found = []
        for skipping in (True, False):
            reader = SliceReader(
                files=TableFiles(LocalStorage(), folder), table_columns=SCHEMA, names=("p", "s", "l"),
                predicate=BoundPredicate(predicate), use_indexes=skipping,
            )  # fmt: skip
            count = ReadCount()
            batches = [
                batch for number in range(parts) for batch in iter_slice_rows(reader, item, Part(number, parts), count)
            ]
            found.append(pa.Table.from_batches(batches, reader.schema).to_pylist())
            assert count.matched == len(found[-1])
            assert count.row_groups + count.row_groups_skipped == -(-table.num_rows // size)
        assert found[0] == found[1]
