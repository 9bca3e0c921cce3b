"""Bitmaps over log files: whatever log files a slice has, answers by the index are those of a full merge.

A table lives through a random script of writes, some by a writer that does not know the index. Log files of foreign
writers are made by hand in the place of such a write: late records, records without positions, keys that no base file
has, deletes with and without ordering value, partial updates. After each step conditions and aggregates are compared.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from bitmap_samples import row_groups_of
from golden_tables import unpack_java_1_2
from lakedex import Table
from lakedex.codec.log_block import encode_delete_block, encode_log_block
from lakedex.index.bitmap.definitions import read_bitmap_definitions, write_bitmap_definitions
from lakedex.index.bitmap.keys import is_indexable
from mor_kit import NO_VALUE, avro_schema, data_block, long_value
from table_checks import BRIEF

DEEP = settings.default.max_examples >= 5000
TABLES, STEPS = (settings.default.max_examples // 20, 14) if DEEP else (1, 6) if BRIEF else (3, 7)
ROWS = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("g", pa.string()), ("n", pa.int32()), ("v", pa.int32())])
EVENT_TIME, COMMIT_TIME = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"
SEEN: Counter[str] = Counter()
"""The sources of answers: a test in which all is merged tests nothing."""


@pytest.fixture(autouse=True, scope="module")
def _small_row_groups() -> Iterator[None]:
    with row_groups_of(7):
        yield


@dataclass
class Life:
    """A table and the script that it lived through."""

    rng: random.Random
    path: Path
    story: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng
        self.version, self.mode = rng.choice([6, 8, 9]), rng.choice([EVENT_TIME, COMMIT_TIME])
        self.table = Table.create(
            str(self.path),
            schema=ROWS,
            record_key="key",
            ordering_by="ts",
            table_type="mor",
            options={
                "hoodie.write.table.version": self.version,
                "hoodie.record.merge.mode": self.mode,
                "hoodie.parquet.small.file.limit": 0,
                "hoodie.compact.inline": False,
            },
        )
        self.story.append(f"version {self.version}, {self.mode}")
        for _ in range(rng.randint(1, 2)):
            fresh = [f"k{len(self.keys) + n:03d}" for n in range(rng.randint(10, 40))]
            self.keys += fresh
            self.table.insert(self.rows(fresh))
        cap = rng.choice([2, 3, 10_000, 10_000])
        self.table.indexes.create("bitmap", ["g", "n"], name="i", options={"max_distinct_values": cap})
        self.story.append(f"{len(self.keys)} rows, cap {cap}")

    def rows(self, keys: list[str], late: bool = False) -> pa.Table:
        rng, few = self.rng, self.rng.random() < 0.5
        ts = [rng.choice([0, 5, 10, 11, 12] if late else [10, 11, 12]) for _ in keys]
        g = [rng.choice(["x", "y", None] if few else ["x", "y", "z", "", None]) for _ in keys]
        n = [rng.choice([1, 2, None] if few else [0, 1, 2, 3, 4, None]) for _ in keys]
        return pa.table([keys, ts, g, n, [rng.randint(0, 3) for _ in keys]], schema=ROWS)

    def some(self, most: int = 6) -> list[str]:
        return self.rng.sample(self.keys, min(len(self.keys), self.rng.randint(1, most)))

    def step(self) -> None:
        names = ["upsert"] * 4 + [
            "delete",
            "delete where",
            "foreign",
            "foreign",
            "foreign",
            "refresh",
            "compact",
            "new",
        ]
        name = self.rng.choice(names)
        note = getattr(self, f"_{name.replace(' ', '_')}")()
        self.story.append(f"{name} {note}")
        self.table = Table.open(str(self.path)) if self.rng.random() < 0.5 else self.table

    def _upsert(self) -> str:
        keys = self.some(12)
        self.table.upsert(self.rows(keys, late=self.rng.random() < 0.3))
        return str(keys)

    def _new(self) -> str:
        fresh = [f"k{len(self.keys):03d}", *self.some(3)]
        self.keys.append(fresh[0])
        self.table.upsert(self.rows(fresh))
        return str(fresh)

    def _delete(self) -> str:
        keys = self.some()
        self.table.delete(pa.table({"key": keys}))
        return str(keys)

    def _delete_where(self) -> str:
        where = f"n = {self.rng.randint(0, 3)} AND v = 1"
        self.table.delete(where=where)
        return where

    def _refresh(self) -> str:
        self.table.indexes.refresh("i")
        return ""

    def _compact(self) -> str:
        if self.rng.random() < 0.5:
            self.table.maintenance.compact()
            return "done"
        return "not"

    def _column(self) -> str:
        """A column that older files lack, indexed as well."""
        if "w" in self.table.schema.names:
            return "again"
        keys = self.some()
        data = self.rows(keys).append_column("w", pa.array([self.rng.choice([1, 2, None]) for _ in keys], pa.int32()))
        self.table.upsert(data)
        self.table.indexes.create("bitmap", ["w"], name="later")
        return str(keys)

    def _widen(self) -> str:
        if self.table.schema.field("n").type == pa.int32():
            self.table.widen_column("n", pa.int64())
        return ""

    def _foreign(self) -> str:
        """A write that does not know the index; perhaps other blocks in its log file, and perhaps covered later."""
        files = self.table.snapshot().files
        definitions = read_bitmap_definitions(files)
        before = set(self.path.glob(".*.log.*"))
        write_bitmap_definitions(files, {})
        keys = self.some(8)
        result = Table.open(str(self.path)).upsert(self.rows(keys))
        write_bitmap_definitions(files, definitions)
        made = sorted(set(self.path.glob(".*.log.*")) - before)
        notes = [str(keys)]
        for file in made:
            if result.instant is not None and self.rng.random() < 0.8:
                blocks, story = self._blocks(file.name, result.instant)
                file.write_bytes(b"".join(blocks))
                notes.append(story)
        self.table = Table.open(str(self.path))
        self.table.maintenance.rebuild_metadata()
        if self.rng.random() < 0.8:
            self.table.indexes.refresh("i")
            notes.append("covered")
        return "; ".join(notes)

    def _blocks(self, name: str, instant: str) -> tuple[list[bytes], str]:
        """Blocks that another engine could have written to a log file."""
        rng, file_id = self.rng, name[1:].split("_")[0]
        snapshot = Table.open(str(self.path)).snapshot()
        base = next(item.base_file for item in snapshot.slices() if item.file_id == file_id)
        assert base is not None
        own = pq.ParquetFile(self.path / base.name).read(["key"])["key"].to_pylist()
        keys = rng.sample(own, min(len(own), rng.randint(1, 8)))
        if rng.random() < 0.2:
            keys.append(f"k{len(self.keys):03d}")
            self.keys.append(keys[-1])
        if rng.random() < 0.1:
            keys.append(keys[0])
        cut = rng.randint(0, len(keys))
        rows, blocks, story = self.rows(keys[:cut], late=True), [], []
        if cut:
            is_partial = self.version >= 8 and rng.random() < 0.3 and all(key in own for key in keys)
            if is_partial:
                rows = rows.select(["key", "ts", *rng.choice([["g"], ["n"], ["v"], ["g", "v"]])])
            blocks.append(data_block(rows, instant, **({"IS_PARTIAL": "true"} if is_partial else {})))
            story.append(f"{'partial ' * is_partial}{rows.to_pylist()}")
        if cut < len(keys):
            values: list[Any] = [rng.choice([NO_VALUE, long_value(5), long_value(11)]) for _ in keys[cut:]]
            records = zip(keys[cut:], values, strict=True)
            content = encode_delete_block(
                [{"recordKey": key, "partitionPath": "", "orderingVal": value} for key, value in records]
            )
            header = {"INSTANT_TIME": instant, "SCHEMA": avro_schema(ROWS)}
            blocks.append(encode_log_block("DELETE", header, content))
            story.append(f"deletes {list(zip(keys[cut:], values, strict=True))}")
        return blocks, f"{file_id}: {' and '.join(story)}"

    def condition(self, depth: int = 2) -> str:
        rng = self.rng
        if depth and rng.random() < 0.5:
            word = rng.choice(["AND", "OR"])
            both = f"({self.condition(depth - 1)}) {word} ({self.condition(depth - 1)})"
            return both if rng.random() < 0.8 else f"NOT ({both})"
        number = rng.randint(-1, 5)
        if "w" in self.table.schema.names and rng.random() < 0.2:
            return rng.choice(["w IS NULL", f"w = {number}", "w < 2", "NOT w = 1"])
        return rng.choice(
            [
                *(f"n {sign} {number}" for sign in ("=", "<>", "<", ">=", "<=>")),
                "n IS NULL",
                "g IS NOT NULL",
                "g = 'x'",
                "g = 'q'",
                "g IN ('y', 'z')",
                "g LIKE 'z%'",
                f"n IN (1, {number})",
                f"NOT n = {number}",
                f"v = {number}",
                f"ts >= {rng.randint(9, 13)}",
            ]
        )

    def check(self) -> None:
        for where in (None, *(self.condition() for _ in range(5))):
            try:
                self.compare(where)
            except AssertionError as error:
                raise AssertionError(f"where {where}: {error}\n" + "\n".join(self.story)) from error

    def compare(self, where: str | None) -> None:
        table = self.table
        full = table.scan(where, use_indexes=False).to_arrow()
        wanted = sorted(full.to_pylist(), key=repr)
        gated = self.rng.random() < 0.3
        scan = replace(table.scan(where), cost_gate=gated, threads=1)
        plan = scan.plan()
        SEEN["dropped"] += sum(bool(item.log_files) for item, _ in plan.dropped)
        for selection in plan.selections.values():
            SEEN["selected"] += bool(selection.logs)
            SEEN["rows left out"] += sum(group.rows for group in selection.groups) - selection.count
        assert sorted(scan.to_arrow().to_pylist(), key=repr) == wanted, "rows"
        result = scan.explain(answer="count")
        for name in ("by_counts", "by_bitmaps", "ruled_out", "log_slices", "merged", "scanned"):
            SEEN[name] += getattr(result, name)
        assert scan.count() == len(wanted), f"count {scan.count()}, not {len(wanted)}\n{result}"
        assert scan.exists() == bool(wanted), "exists"
        for columns in (("g",), ("n",), ("g", "n")):
            groups = Counter(tuple(row[name] for name in columns) for row in wanted)
            found = {tuple(row[name] for name in columns): row["count"] for row in scan.count_by(*columns).to_pylist()}
            assert found == groups, f"groups by {columns}: {found}, not {groups}"


@settings(max_examples=TABLES, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=1)
def live(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(random.Random(seed), Path(folder) / "t")
        life.check()
        for _ in range(STEPS):
            try:
                life.step()
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(life.story)) from error
            life.check()
        assert not life.table.indexes.validate("i").differences, "\n".join(life.story)


def test_answers_over_log_files_are_those_of_a_merge() -> None:
    SEEN.clear()
    live()
    assert SEEN["merged"] and SEEN["log_slices"] > 1.3 * SEEN["merged"], SEEN
    assert SEEN["by_bitmaps"] and SEEN["dropped"] and SEEN["selected"] and SEEN["rows left out"], SEEN


MADE_BY_JAVA = {"mor_v6": 84, "mor_v9": 36, "mor_soft_delete": 15, "mor_pend_v9": 75, "partial_updates": 4}
"""Tables of Hudi 1.2.0, and how often a count did not merge a slice with log files."""


@pytest.mark.parametrize("name", MADE_BY_JAVA)
def test_tables_of_java(name: str, tmp_path: Path) -> None:
    table = Table.open(unpack_java_1_2(name, tmp_path))
    columns = [own.name for own in table.schema if is_indexable(own.type)]
    table.indexes.create("bitmap", columns, name="all")
    assert not table.indexes.validate("all").differences
    rows = table.scan(use_indexes=False).to_arrow()
    answered = 0
    for column in columns:
        for value in rows.column(column).unique():
            where = pc.field(column) == value if value.is_valid else pc.field(column).is_null()
            scan = replace(table.scan(where), cost_gate=False)
            wanted = sorted(table.scan(where, use_indexes=False).to_arrow().to_pylist(), key=repr)
            assert sorted(scan.to_arrow().to_pylist(), key=repr) == wanted, where
            assert scan.count() == len(wanted), where
            plan = scan.explain(answer="count")
            answered += plan.log_slices - plan.merged
        groups = {row[column]: row["count"] for row in table.scan().count_by(column).to_pylist()}
        assert groups == Counter(rows.column(column).to_pylist()), column
    assert answered == MADE_BY_JAVA[name]
