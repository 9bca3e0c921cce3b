"""Merge-on-read against a model: records folded one by one in a dict, as Java's reader does it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mor_kit import (
    COMMIT_TIME,
    EVENT_TIME,
    NO_VALUE,
    SOFT,
    data_block,
    delete_block,
    long_value,
    merged,
    merging,
    rollback_block,
    rows,
    slice_of,
    values,
)

KEYS = st.sampled_from(["a", "b", "c", "é😀"])
TIMES = st.one_of(st.none(), st.integers(-2, 2))
INSTANTS = st.sampled_from(["002", "003", "004", "009"])
ROWS = st.tuples(st.just("rows"), INSTANTS, st.lists(st.tuples(KEYS, TIMES, st.booleans()), max_size=5))
DELETES = st.tuples(st.just("deletes"), INSTANTS, st.lists(st.tuples(KEYS, TIMES), max_size=4))
ROLLBACK = st.tuples(st.just("rollback"), INSTANTS, st.just(()))
BLOCKS: st.SearchStrategy[Any] = st.lists(st.one_of(ROWS, DELETES, ROLLBACK), max_size=7)
BASES = st.lists(st.tuples(KEYS, TIMES), max_size=6)


@dataclass(frozen=True)
class Record:
    """A version of a row; ``ts`` is None for Java's default ordering value."""

    key: str
    ts: int | None
    value: int
    deleted: bool = False
    in_block: bool = False

    @property
    def final(self) -> bool:
        return self.deleted and self.ts is None


def rank(ts: int | None) -> tuple[bool, int]:
    return (ts is not None, ts or 0)


def newer_wins(old: Record, new: Record, mode: str) -> bool:
    if mode == COMMIT_TIME or new.final or old.final:
        return True
    return rank(new.ts) >= rank(old.ts)


def model(base: list[Any], blocks: list[Any], mode: str) -> list[tuple[Any, ...]]:
    """Rows as ``BufferedRecordMergerFactory`` and ``KeyBasedFileGroupRecordBuffer`` leave them."""
    kept: list[tuple[str, list[Record]]] = []
    number = 100
    for kind, instant, entries in blocks:
        if kind == "rollback":
            kept = [entry for entry in kept if entry[0] != instant]
            continue
        found = []
        for entry in entries:
            number += 1
            if kind == "rows":
                found.append(Record(entry[0], entry[1], number, deleted=entry[2]))
            else:
                found.append(Record(entry[0], entry[1], number, deleted=True, in_block=True))
        if instant != "009":
            kept.append((instant, found))
    log: dict[str, Record] = {}
    for _, found in kept:
        for new in found:
            old = log.get(new.key)
            if old is not None and mode == EVENT_TIME and old.final and new.in_block:
                continue
            if old is None or newer_wins(old, new, mode):
                log[new.key] = new
    out = []
    for number, (key, ts) in enumerate(base):
        row = Record(key, ts, number)
        new_row = log.pop(key, None)
        chosen = row if new_row is None or not newer_wins(row, new_row, mode) else new_row
        out += [] if chosen.deleted else [chosen]
    out += [record for record in log.values() if not record.deleted]
    return sorted(((record.key, record.ts, record.value) for record in out), key=repr)


def written(base: list[Any], blocks: list[Any]) -> tuple[pa.Table | None, list[bytes]]:
    """The same as files."""
    table = rows(*((key, ts, number, False) for number, (key, ts) in enumerate(base)), own=SOFT) if base else None
    logs = []
    number = 100
    for place, (kind, instant, entries) in enumerate(blocks):
        numbers = range(number + 1, number + 1 + len(entries))
        if kind == "rollback":
            logs.append(rollback_block(instant))
        elif kind == "rows":
            number += len(entries)
            found = rows(*((k, ts, n, gone) for (k, ts, gone), n in zip(entries, numbers, strict=True)), own=SOFT)
            logs.append(data_block(found, instant, ("AVRO_DATA", "PARQUET_DATA")[place % 2]))
        else:
            number += len(entries)
            gone = [(k, NO_VALUE if ts is None else long_value(ts)) for k, ts in entries]
            logs.append(delete_block(gone, instant))
    return table, logs


@pytest.mark.parametrize("mode", [COMMIT_TIME, EVENT_TIME])
@given(BASES, BLOCKS)
@example(
    [("a", 2)], [("deletes", "002", [("a", None)]), ("deletes", "003", [("a", 5)]), ("rows", "004", [("a", 1, False)])]
)
@example([("a", 0), ("a", 1)], [("rows", "002", [("a", 0, True)])])
def test_the_model_agrees(mode: str, base: list[Any], blocks: list[Any]) -> None:
    table, logs = written(base, blocks)
    with tempfile.TemporaryDirectory() as folder:
        item = slice_of(Path(folder), table, *logs)
        assert values(merged(Path(folder), item, merging(mode, SOFT))) == model(base, blocks, mode)
