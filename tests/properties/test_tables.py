"""A table against a model of it: random writes, then the same rows, each key once, every condition the same with and
without skipping."""

from __future__ import annotations

import datetime as dt
import math
import struct
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.layout.keys import KeyGenerator
from lakedex.parquet.base_file_reader import read_footer

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("p", pa.string()),
        ("o", pa.float64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("m", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int32())),
        ("t", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ("k", pa.map_(pa.string(), pa.decimal128(5, 1))),
        ("gone", pa.bool_()),
    ]
)
NAN, INF = math.nan, math.inf
KEYS = ["a", "b", "c", "k1", "k2", "k\uff21", "k\U0001f600", "x,y:z", "É", "z" * 300, "z" * 300 + "y", "1", "\ud7ff"]
POOLS: dict[str, list[Any]] = {
    "p": ["a", "b/c", "", "é=%", None],
    "o": [None, -INF, -1.0, -0.0, 0.0, 1.0, 2.0, INF, NAN],
    "d": [None, -INF, -1.5, -0.0, 0.0, 0.1, 2.0, INF, NAN],
    "f": [None, -1.5, -0.0, 0.5, NAN],
    "n": [None, -(2**31), -1, 0, 1, 7, 2**31 - 1],
    "s": [None, "", "a", "ab", "é", "\ud7ff", "\uff21", "😀", "it's", "back\\slash", "y" * 300, "y" * 300 + "z"],
    "b": [None, b"", b"\x00", b"\x7f", b"\x80", b"\xff" * 3],
    "m": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("9.99"), Decimal("1234567.00")],
    "day": [None, dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29)],
    "at": [
        None,
        *(dt.datetime(2024, 1, 1, 0, 0, 0, n, dt.UTC) for n in (0, 1, 999_999)),
        dt.datetime(1960, 1, 1, tzinfo=dt.UTC),
    ],
    "l": [None, [], [1], [None, 2]],
    "t": [None, {"x": 1, "y": None}, {"x": None, "y": ["a", None]}],
    "k": [None, [], [("a", Decimal("1.5")), ("b", None)]],
    "gone": [None, True, False],
}


# ---------------------------------------------------------------------------------------------------- conditions
@dataclass(frozen=True)
class Term:
    """One comparison; ``text`` is its SQL."""

    column: str
    op: str
    value: Any

    @property
    def text(self) -> str:
        if self.op in ("is null", "is not null"):
            return f"{self.column} {self.op}"
        if self.op == "in":
            return f"{self.column} in ({', '.join(literal(value, self.column) for value in self.value)})"
        return f"{self.column} {self.op} {literal(self.value, self.column)}"

    def of(self, row: Row) -> bool | None:
        found = row[self.column]
        if self.op in ("is null", "is not null"):
            return (found is None) == (self.op == "is null")
        if self.op == "<=>" and (found is None or self.value is None):
            return found is None and self.value is None
        if self.op == "in":
            hits = [None if v is None or found is None else order(v) == order(found) for v in self.value]
            return True if True in hits else None if None in hits else False
        if found is None or self.value is None:
            return None
        a, b = order(found), order(self.value)
        return {"=": a == b, "<=>": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[self.op]


@dataclass(frozen=True)
class Both:
    """Conditions joined, or one turned around."""

    op: str
    parts: tuple[Any, ...]

    @property
    def text(self) -> str:
        if self.op == "not":
            return f"not ({self.parts[0].text})"
        return f" {self.op} ".join(f"({part.text})" for part in self.parts)

    def of(self, row: Row) -> bool | None:
        values = [part.of(row) for part in self.parts]
        if self.op == "not":
            return None if values[0] is None else not values[0]
        decisive = self.op == "or"
        return decisive if decisive in values else None if None in values else not decisive


def order(value: Any) -> Any:
    """Sorts as Spark does: NaN last and equal to itself, both zeros equal, strings by bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value


def literal(value: Any, column: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        name = "double" if column in ("d", "o") else "float"
        return f"cast('{'NaN' if math.isnan(value) else 'Infinity' if value == INF else '-Infinity' if value == -INF else value}' as {name})"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, dt.datetime):
        return f"timestamp'{value:%Y-%m-%d %H:%M:%S.%f}'"
    if isinstance(value, dt.date):
        return f"date'{value}'"
    return str(value)


COMPARED = ["id", "p", "o", "d", "f", "n", "s", "b", "m", "day", "at"]


@st.composite
def terms(draw: st.DrawFn) -> Term:
    column = draw(st.sampled_from(COMPARED))
    pool = st.sampled_from(KEYS if column == "id" else POOLS[column])
    op = draw(st.sampled_from(["=", "<=>", "<>", "<", "<=", ">", ">=", "in", "is null", "is not null"]))
    return Term(column, op, draw(st.lists(pool, min_size=1, max_size=3)) if op == "in" else draw(pool))


CONDITIONS = st.recursive(
    terms(),
    lambda inner: st.one_of(
        st.builds(lambda a: Both("not", (a,)), inner),
        st.builds(lambda op, a, b: Both(op, (a, b)), st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=4,
)


# --------------------------------------------------------------------------------------------------------- steps
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(KEYS), **{name: st.sampled_from(pool) for name, pool in POOLS.items()}}
    ),
    min_size=1,
    max_size=8,
)
STEPS = st.one_of(
    st.tuples(st.just("upsert"), ROWS),
    st.tuples(st.just("upsert"), ROWS),
    st.tuples(st.just("insert"), ROWS),
    st.tuples(st.just("delete"), ROWS),
    st.tuples(st.just("delete anywhere"), ROWS),
    st.tuples(st.just("delete where"), CONDITIONS),
    st.tuples(st.just("update"), CONDITIONS),
    st.tuples(st.just("overwrite"), ROWS),
    st.tuples(st.just("overwrite table"), st.one_of(ROWS, st.just([]))),
    st.tuples(st.just("index"), st.sampled_from(["column_stats", "bloom_filters"])),
    st.tuples(st.just("new column"), st.sampled_from(["s", "d", "n", "m"])),
    st.tuples(st.just("rename"), st.sampled_from(["s", "d", "n", "t"])),
)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    options = {"hoodie.datasource.insert.dup.policy": "drop"}
    if draw(st.booleans()):
        options["hoodie.parquet.small.file.limit"] = "0"
    if draw(st.booleans()):
        options["hoodie.parquet.max.file.size"] = "6000"
    without = draw(st.sampled_from([None, None, "column.stats", "bloom.filter"]))
    if without:
        options[f"hoodie.metadata.index.{without}.enable"] = "false"
    return {
        "partition_by": draw(st.sampled_from([(), "p"])),
        "ordering_by": draw(st.sampled_from([None, "o"])),
        "options": options,
    }


# --------------------------------------------------------------------------------------------------------- model
@dataclass
class Model:
    """What the table should hold: (partition path, key) → row."""

    partition_by: tuple[str, ...]
    ordered: bool
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def place(self, row: Row) -> tuple[str, str]:
        keys = KeyGenerator(record_key=("id",), partition_by=self.partition_by)
        (path,) = keys.partition_paths(frame([row])).to_pylist()
        return path, row["id"]

    def rank(self, row: Row) -> tuple[int, int]:
        """``Double.compareTo``, null before all."""
        value = row["o"] if self.ordered else 0.0
        if value is None:
            return 0, 0
        (bits,) = struct.unpack("<q", struct.pack("<d", NAN if math.isnan(value) else value))
        return 1, bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF

    def newest(self, batch: list[Row]) -> dict[tuple[str, str], Row]:
        found: dict[tuple[str, str], Row] = {}
        for row in batch:
            known = found.get(self.place(row))
            if known is None or self.rank(row) >= self.rank(known):
                found[self.place(row)] = row
        return found

    def upsert(self, batch: list[Row]) -> None:
        for place, row in self.newest(batch).items():
            known = self.rows.get(place)
            if known is None or known["o"] is None or not self.ordered or self.rank(row) >= self.rank(known):
                self.rows[place] = row

    def insert(self, batch: list[Row]) -> None:
        for place, row in self.newest(batch).items():
            self.rows.setdefault(place, row)

    def overwrite(self, batch: list[Row], everything: bool) -> None:
        newest = self.newest(batch)
        gone = {path for path, _ in newest}
        kept = {place: row for place, row in self.rows.items() if not everything and place[0] not in gone}
        self.rows = {**kept, **newest}

    def matching(self, condition: Any) -> list[Row]:
        return [row for row in self.rows.values() if condition.of(row) is True]


def frame(batch: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(batch, SCHEMA)


def apply(table: Table, model: Model, step: tuple[str, Any]) -> None:
    name, what = step
    if name == "upsert":
        table.upsert(frame(what))
        model.upsert(what)
    elif name == "insert":
        table.insert(frame(what))
        model.insert(what)
    elif name == "delete":
        table.delete(frame(what).select(["id", "p"]))
        for row in what:
            model.rows.pop(model.place(row), None)
    elif name == "delete anywhere":
        result = table.delete(frame(what).select(["id"]), all_partitions=True)
        gone = {row["id"] for row in what}
        left = {place: row for place, row in model.rows.items() if place[1] not in gone}
        assert result.deleted == len(model.rows) - len(left)
        model.rows = left
    elif name == "delete where":
        gone = {model.place(row) for row in model.matching(what)}
        assert table.delete(where=what.text).deleted == len(gone)
        model.rows = {place: row for place, row in model.rows.items() if place not in gone}
    elif name.startswith("overwrite"):
        scope = "table" if name.endswith("table") else "partitions"
        table.insert_overwrite(frame(what), scope, options={"hoodie.combine.before.insert": "true"})
        model.overwrite(what, scope == "table")
    elif name in ("index", "new column", "rename"):
        alter(table, model, name, what)
    else:
        hits = model.matching(what)
        assert table.update({"n": "1", "d": "null"}, what.text).updated == len(hits)
        for row in hits:
            model.rows[model.place(row)] = {**row, "n": 1, "d": None}


def alter(table: Table, model: Model, name: str, what: str) -> None:
    if name == "index":
        if table.indexes.list().column("name").to_pylist().count(what):
            table.indexes.drop(what)
        else:
            table.indexes.create(what)
            assert table.indexes.stats(what).files_uncovered == sum_of_empty_files(table) * (what == "column_stats")
    elif name == "rename":
        # There and back: by way of new files, whose statistics go by the other name.
        table.rename_column(what, "elsewhere")
        assert what not in table.schema.names
        table.rename_column("elsewhere", what)
    else:
        kind = table.schema.field(what).type
        table.drop_columns(what)
        table.maintenance.rewrite_files()
        table.add_columns(pa.schema([(what, kind)]))
        model.rows = {place: {**row, what: None} for place, row in model.rows.items()}


def sum_of_empty_files(table: Table) -> int:
    """Files without rows, which have no statistics."""
    snapshot = table.snapshot()
    paths = [snapshot.files.path(base.relative_path) for base in snapshot.base_files()]
    return sum(read_footer(snapshot.files.storage, path).rows == 0 for path in paths)


def canonical(row: Row) -> str:
    plain = {**row, "at": row["at"] and row["at"].isoformat()}
    return repr([(name, "nan" if value != value else value) for name in SCHEMA.names for value in (plain[name],)])


def read(scan: Any) -> list[str]:
    return sorted(map(canonical, scan.to_arrow().select(SCHEMA.names).to_pylist()))


# A step takes tens of milliseconds: fewer examples than elsewhere, and no shrinking, which would take minutes.
@settings(max_examples=max(settings.default.max_examples // 4, 1), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(tables(), st.lists(STEPS, min_size=1, max_size=5), st.lists(CONDITIONS, min_size=3, max_size=6))
def test_a_table_is_its_model(arguments: dict[str, Any], steps: list[tuple[str, Any]], conditions: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Table.create(Path(folder) / "t", SCHEMA, record_key="id", **arguments)
        model = Model(("p",) if arguments["partition_by"] else (), arguments["ordering_by"] is not None)
        for step in steps:
            apply(table, model, step)
            assert read(table.scan()) == sorted(map(canonical, model.rows.values()))
            for condition in conditions:
                wanted = sorted(map(canonical, model.matching(condition)))
                assert read(table.scan(condition.text)) == wanted, condition.text
                assert read(table.scan(condition.text, use_indexes=False)) == wanted, condition.text
                assert table.scan(condition.text).count() == len(wanted), condition.text
        assert read(Table.open(table.path).scan()) == sorted(map(canonical, model.rows.values()))
