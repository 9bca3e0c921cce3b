"""Whatever the table, its bitmap index and the condition: no row is lost, none is too many.

Some files are covered and some are not, some columns are over their cap, some files are of an older schema; runs are
folded or not. ``LAKEDEX_HYPOTHESIS_PROFILE=deep ./dev test tests/properties/test_bitmaps.py`` asks 100,000 conditions.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from bitmap_samples import ByHand, positions_in_files, row_groups_of
from golden_tables import VERSION_8, VERSION_9, unpack
from lakedex import Table
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.keys import is_indexable
from lakedex.index.bitmap.pruning import Bitmaps
from lakedex.scan.plan import ScanPlan, indexes_for, plan_scan
from lakedex.testing.sql_predicates import smallest_failing
from lakedex.types import SessionRules
from skipping_kit import KEYS, POOLS, Judged, Maker, keys_of, made_of
from table_checks import BRIEF

DEEP = settings.default.max_examples >= 5000
TABLES, CONDITIONS = (settings.default.max_examples // 10, 200) if DEEP else (1, 30) if BRIEF else (2, 90)
SEEN: Counter[str] = Counter()
"""What the cases came to: a test of dropping in which nothing is dropped tests nothing."""


@pytest.fixture(autouse=True, scope="module")
def _small_row_groups() -> Iterator[None]:
    with row_groups_of(3):
        yield


@dataclass
class IndexedMaker(Maker):
    """Writes a table and keeps bitmaps on it, on some files as they come and on some never."""

    def __post_init__(self) -> None:
        Maker.__post_init__(self)
        self.index: ByHand | None = None

    def step(self, table: Table, number: int, generation: int) -> None:
        rng = self.rng
        unseen = self.index is not None and rng.random() < 0.6
        with self.index.hidden() if self.index is not None and unseen else nullcontext():
            Maker.step(self, table, number, generation)
        if self.index is not None and not unseen:
            self.index.look()
        if self.index is None:
            columns = [*POOLS, *self.fields, "id"]
            few = [name for name in columns if name not in ("li", "mp")]
            limits = {name: rng.choice([1, 2, 3, 10_000, 10_000]) for name in few if rng.random() < 0.7}
            here = Table.open(str(self.path)).schema
            self.index = ByHand(table, {n: c for n, c in limits.items() if _is_there(n, here)})
            self.story.append(f"bitmaps on {limits}")
        what = rng.choice(["all", "all", "some", "none", "fold", "fold and delete"])
        self.story.append(f"then bitmaps of {what}")
        if what == "some":
            files = [base for base in self.index.base_files() if rng.random() < 0.5]
            self.index.cover(files, split=rng.choice([1, 2]))
        elif what != "none":
            self.index.cover(split=rng.choice([1, 3]))
        if "fold" in what:
            self.index.fold(lambda _: rng.random() < 0.8, delete="delete" in what)
        # What is held from here has to be right later on.
        table.scan("i = 2 OR s LIKE 'a%' OR d > 1.0D").plan()


def _is_there(name: str, schema: pa.Schema) -> bool:
    head = name.split(".")[0]
    return head in schema.names and ("." in name or is_indexable(schema.field(head).type))


class BitmapJudged(Judged):
    """Judges plans by bitmaps, and the rows that they select."""

    def __init__(self, made: Any) -> None:
        Judged.__init__(self, made)
        self.positions = positions_in_files(self.files)

    def check(self, sql: str, *, rows: bool, truth: list[int] | None = None) -> str | None:
        predicate = parse_predicate(sql, self.schema, SessionRules(timezone=self.made.zone))
        right = self.matching(predicate)
        ways: list[tuple[Any, ...]] = [
            (Bitmaps(),),
            indexes_for(select=True),
            indexes_for(select=True, cost_gate=False),
        ]
        SEEN["asked"] += 1
        for indexes in ((Bitmaps(select=True, cost_gate=False),), ways[SEEN["asked"] % 3]):
            plan = plan_scan(self.snapshot, BoundPredicate(predicate), indexes=indexes)
            if right is not None:
                wrong = self.judge_plan(plan, right)
                if wrong:
                    return f"{wrong}\nby {indexes}\n{plan}"
            if rows and plan.files_kept != plan_scan(self.fresh, BoundPredicate(predicate), indexes=indexes).files_kept:
                return f"what the table holds keeps {plan.files_kept}, but what is read anew does not\nby {indexes}"
        return self.rows_differ(sql, right) if rows and right is not None else None

    def judge_plan(self, plan: ScanPlan, right: list[int]) -> str | None:
        kept = set(plan.files_kept)
        SEEN["dropped"] += plan.files_total - len(kept)
        lost = [row for row in right if self.files[row] not in kept]
        if lost:
            return f"rows {lost} are in files that were dropped"
        for name, selection in plan.selections.items():
            wanted = {self.positions[row] for row in right if self.files[row] == name}
            found = set(selection.rows)
            SEEN["selections"] += 1
            SEEN["exact"] += selection.is_exact
            SEEN["groups left out"] += len(selection.groups) - len(selection.kept_groups())
            if not wanted <= found or len(found) != selection.count:
                return f"{name}: rows {wanted - found} are not selected"
            if selection.is_exact and wanted != found:
                return f"{name}: rows {found - wanted} are selected as exact"
        return None

    def rows_differ(self, sql: str, right: list[int]) -> str | None:
        wanted = Counter(self.keys[row] for row in right)
        for gated in (True, False):
            scan = replace(
                self.made.table.scan(sql, list(KEYS)),
                rules=SessionRules(timezone=self.made.zone),
                threads=1,
                cost_gate=gated,
            )
            found = Counter(keys_of(scan.to_arrow()))
            count = scan.count()
            if found != wanted or count != len(right):
                return f"gate {gated}: {found - wanted} too many, {wanted - found} missing, count {count}"
        return None


# A condition that fails is cut down by ``smallest_failing``; Hypothesis could only look for a smaller number.
@settings(max_examples=TABLES, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=10153032)  # Files of several row groups, and values that are in few of them.
def ask(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        made = IndexedMaker(rng, Path(folder) / "t", rows=20).make()
        judged = BitmapJudged(made)
        asker = made.asker(rng)
        for number in range(CONDITIONS):
            condition = asker.predicate()
            wrong = judged.check(condition.sql, rows=number % 10 == 0)
            if wrong:
                found = smallest_failing(condition, lambda sql: judged.check(sql, rows=True))
                pytest.fail(f"seed {seed}: {judged.check(found.sql, rows=True)}\nwhere {found.sql}\n{made}")


def test_bitmaps_lose_no_row_and_add_none() -> None:
    SEEN.clear()
    ask()
    assert SEEN["dropped"] > SEEN["asked"] / 2, SEEN
    assert SEEN["selections"] > SEEN["asked"] / 3, SEEN
    assert SEEN["exact"] > SEEN["asked"] / 10 and SEEN["groups left out"] > SEEN["asked"] / 10, SEEN


@pytest.mark.parametrize("name", [*VERSION_8, *VERSION_9])
def test_tables_that_hudi_wrote(name: str, tmp_path: Path) -> None:
    """Bitmaps on tables of another maker."""
    table = Table.open(unpack(name, tmp_path))
    made = made_of(table, "UTC")
    limits = {column: 1000 for column, kind in made.kinds.items() if is_indexable(kind) and column not in KEYS}
    index = ByHand(table, limits)
    index.cover(split=2)
    judged = BitmapJudged(made)
    asker = made.asker(random.Random(len(name)))
    for number in range(15):
        sql = asker.predicate().sql
        wrong = judged.check(sql, rows=number % 10 == 0)
        assert not wrong, f"{wrong}\nwhere {sql}"
