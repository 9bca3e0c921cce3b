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

from lakedex.errors import UnsupportedFeatureError
from mor_kit import (
    COMMIT_TIME,
    EVENT_TIME,
    NO_VALUE,
    OWN,
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


# ---------------------------------------------------------------------------------------------------- partial updates
NOTED = OWN.append(pa.field("note", pa.int32()))
PARTS: st.SearchStrategy[Any] = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["value note", "value", "note"]), INSTANTS, st.lists(st.tuples(KEYS, TIMES), max_size=5)
        ),
        DELETES,
    ),
    max_size=7,
)


@dataclass(frozen=True)
class Part(Record):
    """A version that may lack columns."""

    columns: tuple[tuple[str, int], ...] = ()

    @property
    def whole(self) -> bool:
        return len(self.columns) == 2

    def over(self, other: Part) -> Part:
        return Part(self.key, self.ts, 0, columns=tuple(sorted({**dict(other.columns), **dict(self.columns)}.items())))


def part_model(base: list[Any], blocks: list[Any], mode: str) -> list[tuple[Any, ...]] | None:
    """Rows as ``PartialUpdateBufferedRecordMerger`` leaves them; None where a row cannot be completed."""
    log: dict[str, Part] = {}
    lost: set[str] = set()
    for number, (kind, instant, entries) in enumerate(blocks, 1):
        for key, ts in entries if instant != "009" else ():
            gone = kind == "deletes"
            columns = () if gone else tuple((name, number) for name in sorted(kind.split()))
            new = Part(key, ts, 0, deleted=gone, in_block=gone, columns=columns)
            old = log.get(key)
            if old is not None and mode == EVENT_TIME and old.final and new.in_block:
                continue
            wins = old is None or newer_wins(old, new, mode)
            lost = (
                lost - {key} if new.deleted or new.whole else lost | {key} if old is not None and old.deleted else lost
            )
            if old is None or old.deleted or new.deleted:
                log[key] = new if wins or old is None else old
            else:
                log[key] = new.over(old) if wins else old.over(new)
    out = []
    for number, (key, ts) in enumerate(base):
        row = Part(key, ts, 0, columns=(("note", -number), ("value", -number)))
        found = log.pop(key, None)
        if found is None or not newer_wins(row, found, mode):
            out.append(row)
        elif not found.deleted:
            out.append(found.over(row))
    left = [record for record in log.values() if not record.deleted]
    if (mode == COMMIT_TIME and lost) or not all(record.whole for record in left):
        return None
    return sorted(((r.key, r.ts, dict(r.columns)["value"], dict(r.columns)["note"]) for r in [*out, *left]), key=repr)


@pytest.mark.parametrize("mode", [COMMIT_TIME, EVENT_TIME])
@given(BASES, PARTS)
@example([("a", 0)], [("value", "002", [("a", 2)]), ("note", "003", [("a", 1)]), ("value note", "004", [("a", 1)])])
@example([("a", 1)], [("deletes", "002", [("a", None)]), ("value", "003", [("a", 1)]), ("note", "003", [("a", 1)])])
def test_partial_updates(mode: str, base: list[Any], blocks: list[Any]) -> None:
    stored = [(key, ts, -number, -number) for number, (key, ts) in enumerate(base)]
    logs = []
    for number, (kind, instant, entries) in enumerate(blocks, 1):
        if kind == "deletes":
            logs.append(delete_block([(k, NO_VALUE if ts is None else long_value(ts)) for k, ts in entries], instant))
            continue
        columns = [NOTED.field(name) for name in ("key", "ts", *kind.split())]
        found = rows(*((key, ts, *[number] * (len(columns) - 2)) for key, ts in entries), own=pa.schema(columns))
        logs.append(data_block(found, instant, **({"IS_PARTIAL": "true"} if len(columns) < len(NOTED) else {})))
    expected = part_model(base, blocks, mode)
    with tempfile.TemporaryDirectory() as folder:
        item = slice_of(Path(folder), rows(*stored, own=NOTED) if base else None, *logs)
        if expected is None:
            with pytest.raises(UnsupportedFeatureError, match="cannot be completed"):
                merged(Path(folder), item, merging(mode, NOTED))
        else:
            assert values(merged(Path(folder), item, merging(mode, NOTED)), *NOTED.names) == expected
