"""Random tables from a seed, and judges of plans over them, for the tests of file skipping.

Each write takes few values of the pools, so that bounds of files differ and decide.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex import Table
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.evaluator import filter_rows
from lakedex.expr.nodes import Predicate
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate, columns_of
from lakedex.scan.plan import plan_scan
from lakedex.snapshot.schema import read_columns
from lakedex.testing.sql_predicates import PredicateMaker
from lakedex.testing.values import (
    BYTES,
    DAY,
    DAYS,
    FLOATS,
    INF,
    LOCAL,
    MICROS,
    NAN,
    STAMP,
    TEXTS,
    YEAR_9999,
    array_of,
    key_array,
    leaves,
    physical,
)
from lakedex.types import META_COLUMNS, SessionRules
from table_kit import properties, set_properties

ZONES = ("UTC", "Asia/Seoul", "America/New_York", "+05:30")
NESTED = pa.struct([("b", pa.struct([("c", pa.int32()), ("d", pa.string())])), ("e", pa.float64())])
KEYS = ("_hoodie_partition_path", "_hoodie_record_key")

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "o": (pa.bool_(), [True, False]),
    "y": (pa.int8(), [-128, -1, 0, 1, 5, 127]),
    "h": (pa.int16(), [-32768, -1, 0, 1, 300, 32767]),
    "i": (pa.int32(), [-(2**31), -3, -1, 0, 1, 2, 7, 12, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), -3, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1]),
    "f": (pa.float32(), FLOATS),
    "d": (pa.float64(), FLOATS),
    "m": (pa.decimal128(10, 2), ["0.00", "1.50", "-1.50", "9.99", "10.00", "99999999.99", "-99999999.99"]),
    "w": (pa.decimal128(38, 18), ["0", "1.5", "-1.000000000000000001", "99999999999999999999.999999999999999999"]),
    "v": (pa.decimal128(20, 0), ["0", "12345678901234567890", "-99999999999999999999", "7"]),
    "k": (pa.decimal128(30, 15), ["0", "123456789012345.123456789012345", "-0.000000000000001", "7"]),
    "s": (pa.string(), TEXTS),
    "u": (pa.string(), ["\ud7ff", "\ue000", "Ａ", "\uffff", "😀", "𐀀", "a😀", "aＡ", "é", "e\u0301"]),
    "x": (pa.binary(), BYTES),
    "dt": (pa.date32(), DAYS),
    "ts": (STAMP, MICROS),
    "n": (LOCAL, MICROS),
    "a.b.c": (pa.int32(), [-3, 0, 1, 2, 7]),
    "a.b.d": (pa.string(), ["", "a", "ab", "b", "😀"]),
    "a.e": (pa.float64(), FLOATS),
    "gi": (pa.int32(), [-3, 0, 1, 2, 7, 2**31 - 1]),
    "gd": (pa.int32(), [-3, 0, 1, 2, 7, 2**31 - 1]),
    "gf": (pa.float32(), FLOATS),
    "gm": (pa.decimal128(6, 2), ["0.00", "1.50", "-1.50", "9999.99"]),
    "gs": (pa.string(), TEXTS),
    "ga": (pa.int32(), [-3, 0, 1, 2, 7]),
    "li": (pa.list_(pa.int32()), [[], [1], [1, 2]]),
    "mp": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", 1), ("b", None)]]),
}
"""Column → type in the oldest files, and the values to draw from (physical ones for dates and times)."""


def _tame(kind: pa.DataType, value: Any) -> bool:
    if pa.types.is_date32(kind):
        return -25_567 < value < YEAR_9999
    if pa.types.is_timestamp(kind):
        return value > -25_567 * DAY
    return not pa.types.is_float32(kind) or math.isnan(value) or abs(value) not in (0.1, 1.1, 1e30)


LATER: dict[str, tuple[int, pa.DataType, list[Any]]] = {
    "gi": (1, pa.int64(), [2**40, -(2**40)]),
    "gd": (2, pa.float64(), [0.5, -2.25, NAN, INF]),
    "gf": (2, pa.float64(), [0.1, 1.1, 1e300]),
    "gm": (1, pa.decimal128(12, 2), ["9999999999.99"]),
}
"""Column → from which generation on it is wider, to what, and what else it may hold then."""

ADDED = {"gs": 1, "ga": 2}
"""Column → the generation that adds it."""

TAME: dict[str, tuple[pa.DataType, list[Any]]] = {
    name: (kind, [v for v in pool if _tame(kind, v)]) for name, (kind, pool) in POOLS.items()
}
"""What Java reads as it was written: no days before 1900 or after 9999, floats that widen to what they show."""

PARTITIONS: list[tuple[tuple[str, ...], dict[str, tuple[pa.DataType, list[Any]]]]] = [
    ((), {}),
    (("p",), {"p": (pa.string(), ["a", "b c", "é=%", "p=a", "a%41", "aA", "a/b", "", None])}),
    (("p",), {"p": (pa.int32(), [-3, 0, 7, 12, None])}),
    (("p",), {"p": (pa.date32(), [0, 19_792, 19_793, -1, None])}),
    (("p",), {"p": (STAMP, [0, -1, 1_710_030_600_000_000, None])}),
    (("p",), {"p": (pa.bool_(), [True, False, None])}),
    (("p",), {"p": (pa.decimal128(8, 3), ["0.000", "-1.500", "7.000", None])}),
    (("p",), {"p": (pa.float64(), [0.0, -0.0, 1.5, NAN, INF, 1e-5, None])}),
    (("p",), {"p": (pa.float32(), [0.1, 7.0, -0.0, NAN, None])}),
    (("p", "q"), {"p": (pa.string(), ["a", "b", None]), "q": (pa.int64(), [1, 2**40, None])}),
]


@dataclass
class Made:
    """A table, and what there is to ask about it."""

    table: Table
    kinds: dict[str, pa.DataType]
    values: dict[str, list[Any]]
    zone: str
    partition_by: tuple[str, ...] = ()
    story: list[str] = field(default_factory=list)
    keyed_by: tuple[str, ...] = ("id",)

    def asker(self, rng: random.Random) -> PredicateMaker:
        """Make predicates over the table."""
        keys = [*2 * self.keyed_by, "_hoodie_record_key", *self.partition_by]
        return PredicateMaker(rng, self.kinds, self.values, keys)

    def __str__(self) -> str:
        return f"zone {self.zone}, {'; '.join(self.story)}"


@dataclass
class Maker:
    """Writes one random table."""

    rng: random.Random
    path: Path
    writes: int = 7
    rows: int = 8
    pools: Mapping[str, tuple[pa.DataType, list[Any]]] = field(default_factory=lambda: POOLS)
    fields: Mapping[str, tuple[pa.DataType, list[Any]]] = field(default_factory=dict)
    key_kind: pa.DataType = field(default_factory=pa.string)

    def __post_init__(self) -> None:
        self.ids = self.rng.sample(range(-50, 400), 60)
        self.seen: dict[str, list[Any]] = {}

    def make(self) -> Made:
        """Create the table and write to it."""
        rng = self.rng
        names, self.fields = rng.choice(PARTITIONS)
        options = {"hoodie.parquet.small.file.limit": "0", "hoodie.datasource.insert.dup.policy": "drop"}
        if rng.random() < 0.25:
            options["hoodie.datasource.write.hive_style_partitioning"] = "false"
        if rng.random() < 0.25:
            options["hoodie.datasource.write.partitionpath.urlencode"] = "false"
        without = rng.choice([None, None, None, None, "column.stats", "bloom.filter"])
        if without:
            options[f"hoodie.metadata.index.{without}.enable"] = "false"
        if rng.random() < 0.2:
            some = rng.sample([name for name in POOLS if "." not in name], 10)
            options["hoodie.metadata.index.column.stats.column.list"] = ",".join(some)
        if rng.random() < 0.2:
            options["hoodie.parquet.max.file.size"] = "20000"
        if len(names) % 2:  # No draw of its own, so that the tables of version 8 stay what they were.
            options["hoodie.write.table.version"] = "9"
        self.key_kind = rng.choice([pa.string(), pa.string(), pa.int64(), pa.date32(), STAMP, pa.decimal128(12, 4)])
        table = Table.create(self.path, self.frame(0, 0).schema, record_key="id", partition_by=names, options=options)
        self.story = [f"partitioned by {names} {options}"]
        for number in range(self.writes):
            self.step(table, number, number * 3 // self.writes)
            # Ask between the writes: what a table holds from one state has to be right in the next.
            for name in rng.sample([name for name in table.schema.names if name not in ("a", "li", "mp")], 4):
                table.scan(f"{name} IS NULL OR {name} = {name}").plan()
        kinds = dict(leaves(table.schema))
        kinds |= {"_hoodie_record_key": pa.string(), "_hoodie_partition_path": pa.string()}
        whole = table.scan(columns=list(META_COLUMNS), use_indexes=False).to_arrow()
        for name in KEYS:
            self.seen[name] = whole.column(name).unique().to_pylist()
        return Made(table, kinds, self.seen, rng.choice(ZONES), names, self.story)

    def step(self, table: Table, number: int, generation: int) -> None:
        rng = self.rng
        what = rng.choices(["insert", "upsert", "delete", "unseen"], [5, 3, 1, 2])[0] if number else "insert"
        self.story.append(f"{what} generation {generation}")
        if what == "delete":
            table.delete(where=rng.choice(["i = 2", "l IS NULL", "o", "d < 1.0D"]))
        elif what == "unseen":
            # A commit of somebody who keeps no stats: its files have no records.
            listed = properties(self.path)["hoodie.table.metadata.partitions"]
            gone = rng.choice(
                [("column_stats",), ("bloom_filters",), ("column_stats", "bloom_filters", "partition_stats")]
            )
            kept = [name for name in listed.split(",") if name not in gone]
            set_properties(self.path, {"hoodie.table.metadata.partitions": ",".join(kept)})
            table.upsert(self.frame(generation, rng.randint(1, self.rows)))
            # Records of partitions that do not know the new file would be wrong: they do not come back.
            back = [name for name in listed.split(",") if name in kept or name != "partition_stats"]
            set_properties(self.path, {"hoodie.table.metadata.partitions": ",".join(back)})
        elif what == "insert":
            table.insert(self.frame(generation, rng.randint(1, self.rows)))
        else:
            table.upsert(self.frame(generation, rng.randint(1, self.rows)))

    def frame(self, generation: int, rows: int) -> pa.Table:
        columns: dict[str, pa.Array] = {"id": self.key(rows)}
        for name, (kind, pool) in self.fields.items():
            columns[name] = array_of(self.some(name, pool, rows), kind)
        flat: dict[str, pa.Array] = {}
        for name, (kind, pool) in self.pools.items():
            if ADDED.get(name, 0) > generation:
                continue
            values = pool
            if name in LATER and LATER[name][0] <= generation:
                _, kind, more = LATER[name]
                values = [float(v) for v in pool] if pa.types.is_floating(kind) else pool
                values = values + more
            flat[name] = array_of(self.some(name, [*values, None], rows), kind)
        inner = [flat.pop("a.b.c"), flat.pop("a.b.d")]
        deep = pa.StructArray.from_arrays(inner, fields=list(NESTED[0].type), mask=self.holes(rows))
        whole = pa.StructArray.from_arrays([deep, flat.pop("a.e")], fields=list(NESTED), mask=self.holes(rows))
        return pa.table({**columns, **flat, "a": whole})

    def holes(self, rows: int) -> pa.Array:
        share = self.rng.choice([0, 0, 0.3, 1])
        return pa.array([self.rng.random() < share for _ in range(rows)], pa.bool_())

    def key(self, rows: int) -> pa.Array:
        start = self.rng.randrange(len(self.ids))
        found = key_array([self.ids[(start + i) % len(self.ids)] for i in range(rows)], self.key_kind)
        self.seen.setdefault("id", []).extend(physical(found))
        return found

    def some(self, name: str, pool: list[Any], rows: int) -> list[Any]:
        few = self.rng.sample(pool, min(len(pool), self.rng.choice([1, 1, 2, 3])))
        chosen = [self.rng.choice(few) for _ in range(rows)]
        self.seen.setdefault(name, []).extend(v for v in chosen if v is not None)
        return chosen


def made_of(table: Table, zone: str) -> Made:
    """A table that somebody else wrote; literals come from what it holds."""
    rows = table.scan(use_indexes=False, meta_columns=True).to_arrow()
    kinds = {name: kind for name, kind in leaves(rows.schema) if name not in META_COLUMNS or name in KEYS}
    seen: dict[str, list[Any]] = {}
    for name, kind in kinds.items():
        if not pa.types.is_nested(kind):
            head, *path = name.split(".")
            column = rows.column(head).combine_chunks()
            seen[name] = physical((pc.struct_field(column, path) if path else column).drop_null())
    config = table.scan().snapshot.config
    return Made(table, kinds, seen, zone, config.partition_fields, [], config.record_key_fields)


# --------------------------------------------------------------------------------------------------------- judging
FOR_SPARK = re.compile(
    "function hex is not supported outside Spark"
    "|negating decimals of more than 34 digits rounds them"
    r"|(int\d+|date32\[day\]) and (int\d+|date32\[day\]) have no type in common"
    r"|\(string\) cannot be cast to (int64|bool|date32\[day\]); try_cast returns null instead"
)
"""Why a condition of :class:`PredicateMaker` has no answer here: by an :class:`UnsupportedFeatureError`, at the end one of ANSI."""


class Judged:
    """A table with all its rows at hand, to judge plans by."""

    def __init__(self, made: Made) -> None:
        self.made = made
        self.snapshot = made.table.scan().snapshot
        self.fresh = Table.open(made.table.path).scan().snapshot
        self.schema = read_columns(self.snapshot.schema)
        self.rows = made.table.scan(use_indexes=False, meta_columns=True).to_arrow().combine_chunks()
        self.files = self.rows.column("_hoodie_file_name").to_pylist()
        self.keys = keys_of(self.rows)
        self.dropped: Counter[str] = Counter()
        self.asked = self.answered = self.matched = 0
        stored = {item.name for item in self.snapshot.view().table.slices}
        assert set(self.files) <= stored, "a row's _hoodie_file_name is not the file that holds it"

    def matching(self, predicate: Predicate) -> list[int] | None:
        """Rows for which the condition is true; None where only Spark can tell (:data:`FOR_SPARK`)."""
        try:
            return np.flatnonzero(filter_rows(predicate, self.rows).to_numpy(zero_copy_only=False)).tolist()
        except (InvalidInputError, UnsupportedFeatureError) as error:
            if not FOR_SPARK.search(str(error)):
                raise
            return None

    def check(self, sql: str, *, rows: bool, truth: list[int] | None = None) -> str | None:
        """What is wrong with the plan of a condition; ``truth`` are the matching rows where somebody else knows them.

        Args:
            sql: the condition.
            rows: read the kept files too, and compare what a scan gives.
            truth: places of the rows that match.
        """
        predicate = parse_predicate(sql, self.schema, SessionRules(timezone=self.made.zone))
        return self.judge(predicate, truth) or (self._rows_differ(sql, predicate) if rows else None)

    def judge(self, predicate: Predicate, truth: list[int] | None = None) -> str | None:
        """What is wrong with the plan of a predicate: no matching row may lie in a dropped file."""
        plan = plan_scan(self.snapshot, BoundPredicate(predicate))
        self.asked += 1
        dropped = plan.dropped
        kept = set(plan.files_kept)
        self.dropped.update(stage for _, stage in dropped)
        if kept & {item.name for item, _ in dropped} or len(kept) + len(dropped) != plan.files_total:
            return f"kept and dropped do not add up: {plan}"
        right = self.matching(predicate) if truth is None else truth
        if right is None:
            return None
        self.answered += 1
        self.matched += bool(right)
        lost = {self.files[row] for row in right} - kept
        if lost:
            by = {item.name: stage for item, stage in dropped}
            told = "\n".join(self.shown(predicate, row) for row in right if self.files[row] in lost)
            return f"files with matching rows are dropped: {[(name, by[name]) for name in lost]}\n{plan}\n{told[:4000]}"
        return None

    def shown(self, predicate: Predicate, row: int) -> str:
        """The values in a row that a predicate speaks of; dates may lie beyond those of Python."""
        heads = dict.fromkeys(column.path[0] for column in columns_of(predicate))
        return ", ".join(f"{name} {self.rows.column(name).slice(row, 1).to_string()[:300]}" for name in heads)

    def differs(self, sql: str, truth: list[int]) -> str | None:
        """How the local filter's answer differs from ``truth``."""
        predicate = parse_predicate(sql, self.schema, SessionRules(timezone=self.made.zone))
        own = self.matching(predicate)
        if own is None or own == truth:
            return None
        rows = [self.shown(predicate, row) for row in sorted(set(own) ^ set(truth))[:2]]
        return f"lakedex finds rows {own} instead of {truth}: {rows}"

    def _rows_differ(self, sql: str, predicate: Predicate) -> str | None:
        held, anew = (
            plan_scan(snapshot, BoundPredicate(predicate)).files_kept for snapshot in (self.snapshot, self.fresh)
        )
        if held != anew:
            return f"what the table holds keeps {held}, what is read anew keeps {anew}"
        right = self.matching(predicate)
        if right is None:
            return None
        wanted = Counter(self.keys[row] for row in right)
        for skipping in (True, False):
            scan = self.made.table.scan(sql, list(KEYS), use_indexes=skipping)
            scan = replace(scan, rules=SessionRules(timezone=self.made.zone), threads=1)
            found = Counter(keys_of(scan.to_arrow()))
            count = scan.count()
            if found != wanted or count != len(right):
                return f"with use_indexes={skipping} {found - wanted} too many, {wanted - found} missing, count {count}"
        return None


def keys_of(rows: pa.Table) -> list[tuple[str, ...]]:
    """Partition path and record key of each row."""
    return list(zip(*(rows.column(name).to_pylist() for name in KEYS), strict=True))
