"""A frame of any types either does what the same frame in the table's types does, or nothing at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st

from lakedex import Table
from lakedex.errors import LakedexError, SchemaMismatchError

DAY_NS = 86_400 * 10**9
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True, order=True)
class Moment:
    """A point in time, or of a calendar without a zone."""

    ns: int
    zoned: bool


@dataclass(frozen=True, order=True)
class Day:
    """A date."""

    days: int


class Misfit(Exception):
    """A value that a type does not have."""


# ------------------------------------------------------------------------- what has an equal, judged value by value
def equal_in(value: Any, kind: pa.DataType) -> Any:
    """The value of ``kind`` that equals ``value``."""
    if value is None:
        return None
    for test, convert in EQUALS:
        if test(kind):
            return convert(value, kind)
    raise AssertionError(kind)


def _boolean(value: Any, kind: pa.DataType) -> Any:
    return _only(value, bool)


def _only(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise Misfit
    return value


def _integer(value: Any, kind: pa.DataType) -> Any:
    number = _only(value, int, float, Decimal)
    if not np.isfinite(float(number)) or int(number) != number:
        raise Misfit
    low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
    high = 2 ** (kind.bit_width - (low < 0))
    if not low <= int(number) < high:
        raise Misfit
    return int(number)


def _floating(value: Any, kind: pa.DataType) -> Any:
    number = _only(value, int, float)
    with np.errstate(over="ignore"):
        found = float({16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width](number))
    if found != number and found == found:
        raise Misfit
    return found


def _decimal(value: Any, kind: pa.DataType) -> Any:
    number = Decimal(_only(value, int, Decimal))
    digits = int(number.scaleb(kind.scale).to_integral_value()) if abs(number) < 10**40 else 10**60
    if digits != number.scaleb(kind.scale) or abs(digits) >= 10**kind.precision:
        raise Misfit
    return Decimal(digits).scaleb(-kind.scale)


def _date(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, Moment) and not value.zoned and value.ns % DAY_NS == 0:
        value = Day(value.ns // DAY_NS)
    return _only(value, Day)


def _timestamp(value: Any, kind: pa.DataType) -> Any:
    moment = Moment(value.days * DAY_NS, False) if isinstance(value, Day) else value
    _only(moment, Moment)
    count, rest = divmod(moment.ns, UNITS[kind.unit])
    if rest or not -(2**63) <= count < 2**63 or moment.zoned != (kind.tz is not None):
        raise Misfit
    return moment


def _struct(value: Any, kind: pa.DataType) -> Any:
    lower = {name.lower(): item for name, item in _only(value, dict).items()}
    return {field.name: equal_in(lower[field.name.lower()], field.type) for field in kind}


EQUALS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]]] = [
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, lambda value, kind: _only(value, str)),
    (pa.types.is_binary, lambda value, kind: _only(value, bytes)),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, lambda value, kind: [equal_in(item, kind.value_type) for item in _only(value, list)]),
    (
        pa.types.is_map,
        lambda value, kind: [(key, equal_in(item, kind.item_type)) for key, item in _only(value, list)],
    ),
]


def made(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values that ``kind`` has as an array of it."""
    if pa.types.is_timestamp(kind):
        counts = [None if v is None else v.ns // UNITS[kind.unit] for v in values]
        return pa.array(counts, pa.int64()).cast(kind)
    if pa.types.is_date(kind):
        days = [None if v is None else v.days * (1 if kind == pa.date32() else 86_400_000) for v in values]
        return pa.array(days, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    mask = pa.array([v is None for v in values], pa.bool_())
    if pa.types.is_struct(kind):
        children = [made([None if v is None else v[f.name] for v in values], f.type) for f in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = pa.array(np.cumsum([0, *(len(v or ()) for v in values)]), pa.int32())
        items = [item for v in values for item in v or ()]
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(ends, made(items, kind.value_type), type=kind, mask=mask)
        keys, found = pa.array([k for k, _ in items], pa.string()), made([v for _, v in items], kind.item_type)
        return pa.MapArray.from_arrays(ends, keys, found, type=kind, mask=mask)
    if pa.types.is_float16(kind):
        return pa.array([None if v is None else np.float16(v) for v in values], kind)
    return pa.array(values, kind)


# ------------------------------------------------------------------------------------------------- types and values
NUMBERS: list[Any] = [
    0, 1, 2, -1, 127, 255, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**18,
    1.0, 2.0, 1.5, -0.0, 0.1, 2.0**31, 2.0**63, 1e300, float("inf"), float("nan"),
    Decimal(1), Decimal("1.00"), Decimal("1.50"), Decimal("1.505"), Decimal(10) ** 20, Decimal(-7),
]  # fmt: skip
TEXTS: list[Any] = ["a", "b", "é", "", "A", "a/b", "1"]
BYTES: list[Any] = [b"a", b"b", b"", b"\xff"]
COUNTS = [0, DAY_NS, -DAY_NS, 1, 1000, 1999, -1, 10**9, 19_000 * DAY_NS, 5 * 10**9 + 10**6, 9 * 10**17 * 10**9]
NAIVE: list[Any] = [*(Moment(ns, False) for ns in COUNTS), Day(0), Day(1), Day(19_000), Day(2_932_896)]
ZONED: list[Any] = [Moment(ns, True) for ns in COUNTS]
FLAGS: list[Any] = [True, False]

FAMILIES: dict[str, tuple[list[Any], list[pa.DataType], list[pa.DataType]]] = {
    "number": (
        NUMBERS,
        [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 0)],
        [
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
            pa.float16(), pa.float32(), pa.float64(), pa.decimal32(7, 2), pa.decimal64(18, 0), pa.decimal128(25, 3),
            pa.decimal128(5, 2), pa.decimal256(60, 5),
        ],
    ),
    "text": (TEXTS, [pa.string()], [pa.string()]),
    "bytes": (BYTES, [pa.binary()], [pa.binary()]),
    "naive": (
        NAIVE,
        [pa.date32(), pa.timestamp("us")],
        [pa.date32(), pa.date64(), *(pa.timestamp(unit) for unit in UNITS)],
    ),
    "zoned": (
        ZONED, [pa.timestamp("us", "UTC")],
        [*(pa.timestamp(unit, "UTC") for unit in UNITS), pa.timestamp("us", "Europe/Berlin")],
    ),
    "flag": (FLAGS, [pa.bool_()], [pa.bool_()]),
}  # fmt: skip
KEYS = ["number", "text", "naive", "zoned", "flag"]


def holds(value: Any, kind: pa.DataType) -> bool:
    try:
        equal_in(value, kind)
    except Misfit:
        return False
    return True


@dataclass(frozen=True)
class Column:
    """A column of the table, and what a frame brings for it."""

    name: str
    table: pa.DataType
    frame: pa.DataType
    pool: tuple[Any, ...]


@st.composite
def columns(draw: st.DrawFn, name: str, families: list[str], depth: int = 0) -> Column:
    family = draw(st.sampled_from(families))
    other = draw(st.sampled_from(list(FAMILIES))) if draw(st.integers(0, 19)) == 0 else family
    _, tables, _ = FAMILIES[family]
    values, _, frames = FAMILIES[other]
    table, frame = draw(st.sampled_from(tables)), draw(st.sampled_from(frames))
    pool: tuple[Any, ...] = tuple(equal_in(v, frame) for v in values if holds(v, frame))
    shape = draw(st.sampled_from(["plain", "plain", "struct", "list", "map"])) if depth else "plain"
    if shape == "struct":
        table = pa.struct([("x", table), ("y", pa.string())])
        named = draw(st.sampled_from([("x", "y"), ("y", "x"), ("X", "y")]))
        frame = pa.struct([(n, frame if n.lower() == "x" else pa.string()) for n in named])
        x, y = (n for n in sorted(named, key=str.lower))
        pool = tuple({x: v, y: None} for v in pool)
    elif shape == "list":
        table, frame = pa.list_(pa.field("element", table)), pa.list_(pa.field("item", frame))
        pool = ([], *([v] for v in pool), *([v, None] for v in pool))
    elif shape == "map":
        table, frame = pa.map_(pa.string(), table), pa.map_(pa.string(), frame)
        pool = ([], *([("k", v)] for v in pool))
    return Column(name, table, frame, pool)


def laid_out(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    """The same values in another layout of Arrow's."""
    kind = array.type
    layouts: list[Callable[[], pa.Array]] = [lambda: array, lambda: pa.concat_arrays([array[:1], array])[1:]]
    if pa.types.is_string(kind):
        layouts += [lambda: array.cast(pa.large_string()), lambda: array.cast(pa.string_view())]
        layouts += [lambda: _dictionary(array, pa.string_view())]
    if pa.types.is_binary(kind):
        layouts += [lambda: array.cast(pa.large_binary()), lambda: array.cast(pa.binary_view())]
    if pa.types.is_list(kind):
        field = pa.field("item", kind.value_type)
        layouts += [
            lambda: array.cast(pa.large_list(field)),
            lambda: pa.array(array.to_pylist(), pa.list_view(field)),
            lambda: pa.array(array.to_pylist(), pa.large_list_view(field)),
        ]
        if pa.types.is_nested(kind.value_type) or pa.types.is_temporal(kind.value_type):
            layouts = layouts[:3]
    plain = not any(test(kind) for test in (pa.types.is_nested, pa.types.is_float16, *NARROW_DECIMALS))
    if plain:
        layouts += [lambda: _dictionary(array, kind), lambda: pc.run_end_encode(array)]
    if array.null_count == len(array):
        layouts.append(lambda: pa.nulls(len(array)))
    return draw(st.sampled_from(layouts))()


def _dictionary(array: pa.Array, kind: pa.DataType) -> pa.Array:
    encoded = array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.uint32()), encoded.dictionary.cast(kind))


NARROW_DECIMALS = (pa.types.is_decimal32, pa.types.is_decimal64)


# -------------------------------------------------------------------------------------------------------- the calls
ALL = {"hoodie.datasource.insert.dup.policy": "drop"}


def merged(table: Table, data: pa.Table, names: dict[str, str]) -> Any:
    on = " AND ".join(f"t.{ours} = s.{theirs}" for ours, theirs in names.items() if ours != "v")
    return table.merge(data, on).when_matched_update_all().when_not_matched_insert_all().execute()


def keys_of(data: pa.Table, names: dict[str, str]) -> pa.Table:
    return data.select([theirs for ours, theirs in names.items() if ours != "v"])


CALLS: dict[str, Callable[[Table, pa.Table, dict[str, str]], Any]] = {
    "upsert": lambda table, data, names: table.upsert(data),
    "insert": lambda table, data, names: table.insert(data),
    "insert, drop": lambda table, data, names: table.insert(data, options=ALL),
    "bulk_insert": lambda table, data, names: table.bulk_insert(data),
    "insert_overwrite": lambda table, data, names: table.insert_overwrite(data),
    "overwrite the table": lambda table, data, names: table.insert_overwrite(data, scope="table"),
    "delete": lambda table, data, names: table.delete(keys_of(data, names)),
    "delete everywhere": lambda table, data, names: table.delete(data.select([names["k"]]), all_partitions=True),
    "erase": lambda table, data, names: table.erase(keys_of(data, names)),
    "merge": merged,
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as path:
        yield Path(path)


_MADE: dict[str, tuple[Path, dict[str, int]]] = {}


def table_of(folder: Path, parts: list[Column]) -> tuple[Path, dict[str, int]]:
    """A table of these columns with three rows, and its files."""
    schema = pa.schema([(part.name, part.table) for part in parts])
    identity = f"{folder}{schema}"
    if identity not in _MADE:
        path = folder / f"made{len(_MADE)}"
        table = Table.create(
            path,
            schema,
            record_key="k",
            partition_by=["p"] if len(parts) == 3 else (),
            name="t",
            options={"hoodie.metadata.enable": "false"},
        )
        table.bulk_insert(rows_of([[first(part, n) for part in parts] for n in range(3)], schema))
        _MADE[identity] = path, files_of(path)
    return _MADE[identity]


def first(part: Column, number: int) -> Any:
    """A value that the table's type has, the same for every frame."""
    kind, shape = part.table, lambda value: value
    if pa.types.is_struct(kind):
        kind, shape = kind.field("x").type, lambda value: {"x": value, "y": None}
    elif pa.types.is_list(kind):
        kind, shape = kind.value_type, lambda value: [value]
    elif pa.types.is_map(kind):
        kind, shape = kind.item_type, lambda value: [("k", value)]
    values = next(v for v, tables, _ in FAMILIES.values() if kind in tables)
    held = [v for v in values if holds(v, kind)]
    return shape(held[number % len(held)])


def rows_of(rows: list[list[Any]], schema: pa.Schema) -> pa.Table:
    found = [[equal_in(row[n], field.type) for row in rows] for n, field in enumerate(schema)]
    return pa.table([made(values, f.type) for values, f in zip(found, schema, strict=True)], schema=schema)


def read(path: Path) -> list[str]:
    """All rows with their keys and folders."""
    hidden = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
    return sorted(
        repr(row) for row in Table.open(path).scan(meta_columns=True).to_arrow().drop_columns(list(hidden)).to_pylist()
    )


def files_of(path: Path) -> dict[str, int]:
    """All files with their sizes, but for the lock."""
    found = [file for file in path.rglob("*") if file.is_file() and file.name != "lock"]
    return {str(file.relative_to(path)): file.stat().st_size for file in found}


def refusal_of(call: Callable[[], Any]) -> LakedexError | None:
    try:
        call()
    except LakedexError as error:
        return error
    return None


@hypothesis.given(data=st.data())
def test_a_frame_of_other_types_does_the_same_or_nothing(folder: Path, data: st.DataObject) -> None:
    parts = [data.draw(columns("k", KEYS)), data.draw(columns("v", list(FAMILIES), 1))]
    if data.draw(st.booleans()):
        parts.insert(1, data.draw(columns("p", KEYS)))
    pools = [st.sampled_from(part.pool) | (st.none() if part.name != "k" else st.nothing()) for part in parts]
    rows = data.draw(st.lists(st.tuples(*pools), min_size=1, max_size=4).map(lambda found: [list(r) for r in found]))
    spelled = {part.name: data.draw(st.sampled_from([part.name, part.name, part.name.upper()])) for part in parts}
    arrays = {
        spelled[part.name]: data.draw(st.composite(laid_out)(made([row[n] for row in rows], part.frame)))
        for n, part in enumerate(parts)
    }
    names = data.draw(st.permutations(list(arrays)))
    frame = pa.table({name: arrays[name] for name in names})
    call = data.draw(st.sampled_from(list(CALLS)))
    start, before = table_of(folder, parts)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        ours, theirs = Path(place) / "t", Path(place) / "same"
        shutil.copytree(start, ours)
        refusal = refusal_of(lambda: CALLS[call](Table.open(ours), frame, spelled))
        hypothesis.event(f"{call}: {type(refusal).__name__}")
        if refusal is not None:
            # A merge whose rows meet twice is refused while it writes; what does not fit, before anything is written.
            is_early = isinstance(refusal, SchemaMismatchError)
            assert files_of(ours) == before if is_early else read(ours) == read(start)
            return
        shutil.copytree(start, theirs)
        schema = Table.open(ours).schema
        grown = [part.name for part in parts if schema.field(part.name).type != part.table]
        assert grown in ([], ["v"])
        used = [n for n, part in enumerate(parts) if _counts(call, part.name)]
        plain = rows_of(
            [[row[n] for n in used] for row in rows], pa.schema([schema.field(parts[n].name) for n in used])
        )
        CALLS[call](Table.open(theirs), plain, {parts[n].name: parts[n].name for n in used})
        assert read(ours) == read(theirs)


def _counts(call: str, name: str) -> bool:
    """Whether a call looks at a column of its frame."""
    if call in ("delete", "erase"):
        return name != "v"
    return name == "k" if call == "delete everywhere" else True
