"""Whatever the table and the condition: no index drops a file with a matching row.

``LAKEDEX_HYPOTHESIS_PROFILE=deep ./dev test tests/properties/test_skipping.py`` asks 100,000 predicates of 500 tables.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from golden_tables import VERSION_8, VERSION_9, unpack
from lakedex import Table
from lakedex.testing.sql_predicates import smallest_failing
from skipping_kit import Judged, Maker, made_of
from table_checks import BRIEF

DEEP = settings.default.max_examples >= 5000
TABLES, PREDICATES = (settings.default.max_examples // 10, 200) if DEEP else (1, 30 if BRIEF else 90)


DROPPED: Counter[str] = Counter()
"""How many files each index dropped, over all cases: a test of dropping in which nothing is dropped tests nothing."""


# A predicate that fails is cut down by ``smallest_failing``; Hypothesis could only look for a smaller number.
@settings(max_examples=TABLES, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
# Tables whose partitions and files differ so much that every index drops some. What Hypothesis draws depends on the
# modules that are loaded.
@example(seed=3)
@example(seed=5)
@example(seed=8)
def ask(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        made = Maker(rng, Path(folder) / "t").make()
        judged = Judged(made)
        asker = made.asker(rng)
        for number in range(PREDICATES):
            condition = asker.predicate()
            wrong = judged.check(condition.sql, rows=number % 10 == 0)
            if wrong:
                found = smallest_failing(condition, lambda sql: judged.check(sql, rows=True))
                pytest.fail(f"seed {seed}: {judged.check(found.sql, rows=True)}\nwhere {found.sql}\n{made}")
        DROPPED.update({**judged.dropped, "asked": judged.asked, "tables": 1})


def test_no_index_drops_a_file_with_a_matching_row() -> None:
    DROPPED.clear()
    ask()
    assert {"partition", "partition_stats", "column_stats", "bloom_filters"} <= DROPPED.keys()
    stages = [DROPPED[name] for name in DROPPED if name not in ("asked", "tables")]
    assert sum(stages) > 1.5 * DROPPED["asked"], DROPPED


@pytest.mark.parametrize("name", [*VERSION_8, *VERSION_9])
def test_tables_that_hudi_wrote(name: str, tmp_path: Path) -> None:
    made = made_of(Table.open(unpack(name, tmp_path)), "UTC")
    judged = Judged(made)
    asker = made.asker(random.Random(len(name)))
    absent = [f"{name} IS {word}NULL" for name in made.kinds for word in ("", "NOT ")]
    for sql in [*absent, *(asker.predicate().sql for _ in range(40))]:
        wrong = judged.check(sql, rows=False)
        assert not wrong, f"{wrong}\nwhere {sql}"
