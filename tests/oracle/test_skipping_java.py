"""Tables that Java writes, with its records and its footers: lakedex skips no file in which Java finds a row."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from java_judge import READ_PLAIN, WRITE_INDEXED, JavaError, JavaJudge
from judging import OWN_FILE

from lakedex import Table
from lakedex.testing.values import array_of
from skipping_kit import KEYS, TAME, Judged, Maker, made_of

PREDICATES = 100
OPTIONS = {**WRITE_INDEXED, **OWN_FILE, "hoodie.metadata.index.column.stats.max.columns.to.index": "60"}
QUICK = {"spark.sql.codegen.wholeStage": ("false", "true"), "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK")}
"""Hundreds of conditions once each: compiling them would take most of the time."""


@contextmanager
def quick(java: JavaJudge) -> Iterator[None]:
    try:
        for name, (value, _) in QUICK.items():
            java.sql(f"SET {name}={value}")
        yield
    finally:
        for name, (_, default) in QUICK.items():
            java.sql(f"SET {name}={default}")


def answers(java: JavaJudge, path: Path, predicates: Sequence[str], judged: Judged) -> list[list[int] | None]:
    """Places of the rows for which each predicate is true, as Java reads them from all files; None if Spark refuses."""
    places = {key: place for place, key in enumerate(judged.keys)}
    flags = [f"coalesce(({sql}), false) AS c{number}" for number, sql in enumerate(predicates)]
    try:
        found = java.read(path, columns=[*KEYS, *flags], options=READ_PLAIN)
    except JavaError:
        if len(predicates) == 1:
            return [None]
        half = len(predicates) // 2
        return answers(java, path, predicates[:half], judged) + answers(java, path, predicates[half:], judged)
    rows = [places[key] for key in zip(*(found.column(name).to_pylist() for name in KEYS), strict=True)]
    return [
        sorted(row for row, hit in zip(rows, found.column(f"c{number}").to_pylist(), strict=True) if hit)
        for number in range(len(predicates))
    ]


def check(java: JavaJudge, path: Path, seed: int, zone: str = "UTC", count: int = PREDICATES) -> Judged:
    """Ask many predicates; each plan keeps the files in which Java finds rows, and lakedex finds the same rows."""
    made = made_of(Table.open(path), zone)
    judged = Judged(made)
    asker = made.asker(random.Random(seed))
    predicates = [asker.predicate().sql for _ in range(count)]
    with quick(java):
        truths = answers(java, path, predicates, judged)
    wrong = []
    for number, (sql, truth) in enumerate(zip(predicates, truths, strict=True)):
        if truth is None:
            continue
        found = judged.check(sql, rows=number % 10 == 0, truth=truth) or judged.differs(sql, truth)
        if found:
            wrong.append(f"where {sql}\n{found}")
    assert not wrong, "\n\n".join(wrong[:5])
    assert judged.answered > 0.8 * count
    return judged


def test_upserts_of_three_generations(java: JavaJudge, tmp_path: Path) -> None:
    pools = {name: pool for name, pool in TAME.items() if name != "gm"}  # It lets no decimal grow.
    maker = Maker(random.Random(7), tmp_path, pools=pools, fields={"p": (pa.string(), ["a", "b c", "é=%", "x/y"])})
    for generation, operation in [(0, "insert"), (1, "upsert"), (1, "insert"), (2, "upsert")]:
        rows = maker.frame(generation, 7)
        java.write(tmp_path, rows, operation, key="id", partition="p", options=OPTIONS)
    judged = check(java, tmp_path, 7)
    assert judged.dropped["column_stats"] > 50
    assert judged.dropped["partition"] > 20


def test_bulk_inserts(java: JavaJudge, tmp_path: Path) -> None:
    """Written by Spark's own Parquet writer, keys and partition paths by the row-wise key generator."""
    kind, days = pa.date32(), [0, 19_792, 19_793, None]
    pools = {name: pool for name, pool in TAME.items() if name not in ("y", "h")}  # It has no bytes and no shorts.
    maker = Maker(random.Random(11), tmp_path, pools=pools, fields={"p": (kind, days)}, key_kind=pa.date32())
    for _ in range(2):
        rows = maker.frame(0, 9)
        java.write(tmp_path, rows, "bulk_insert", key="id", partition="p", options=OPTIONS)
    judged = check(java, tmp_path, 11)
    assert judged.dropped["column_stats"] > 50


def test_java_stops_to_index_a_column(java: JavaJudge, tmp_path: Path) -> None:
    """Its partition stats stay what they were, with as many rows as before."""

    def rows(value: int, part: str) -> pa.Table:
        return pa.table({"key": [f"{part}1", f"{part}2"], "part": [part] * 2, "n": [value, value], "m": [1, 2]})

    wide = {**OPTIONS, "hoodie.metadata.index.column.stats.column.list": "n,m"}
    narrow = {**OPTIONS, "hoodie.metadata.index.column.stats.column.list": "m"}
    java.write(tmp_path, pa.concat_tables([rows(1, "a"), rows(2, "b")]), partition="part", options=wide)
    java.write(tmp_path, rows(99, "a"), partition="part", options=narrow)
    table = Table.open(tmp_path)
    assert table.scan("n = 99").count() == table.scan("n = 99", use_indexes=False).count() == 2
    java.write(tmp_path, rows(3, "b"), partition="part", options=wide)
    table = Table.open(tmp_path)
    assert table.scan("n = 99").count() == table.scan("n = 99", use_indexes=False).count() == 2
    assert table.scan("n = 3").count() == 2


def test_orders_of_java(java: JavaJudge, tmp_path: Path) -> None:
    """Java merges a partition's bounds in the order of UTF-16 units, and of signed bytes."""

    def rows(key: str, part: str, text: str, data: bytes) -> pa.Table:
        return pa.table({"key": [key], "part": [part], "u": [text], "x": [data]})

    first = pa.concat_tables([rows("1", "a", "😀", b"\x01\x80"), rows("2", "b", "b", b"\x7f")])
    for data in (first, rows("3", "a", "Ａ", b"\x02"), rows("4", "a", "a", b"\x01\x10")):
        java.write(tmp_path, data, "insert", partition="part", options=OPTIONS)
    table = Table.open(tmp_path)
    for where in ("u = '😀'", "u > 'Ａ'", "x = X'0110'", "x < X'0111'"):
        assert table.scan(where).count() == 1, where


@pytest.mark.parametrize(
    "values, kind, text, operation",
    [
        ([19_792, 19_793], pa.date32(), "DATE '2024-03-10'", "bulk_insert"),
        ([1_710_028_800_000_000, 0], pa.timestamp("us", "UTC"), "TIMESTAMP '2024-03-10 00:00:00Z'", "insert"),
        (["0.00000001", "0.00000000"], pa.decimal128(12, 8), "0.00000001", "insert"),
    ],
    ids=["date", "timestamp", "decimal"],
)
def test_keys_whose_text_depends_on_the_writer(
    java: JavaJudge, tmp_path: Path, values: list[Any], kind: pa.DataType, text: str, operation: str
) -> None:
    logical = {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}
    rows = pa.table({"key": array_of(values, kind), "v": [1, 2]})
    java.write(tmp_path, rows, operation, options={**OPTIONS, **logical})
    assert Table.open(tmp_path).scan(f"key = {text}").count() == 1
