"""``kill -9`` at every change that a clustering makes: the rows stay, and the plan can be run or removed afterwards."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.timeline.instant import State
from service_kit import with_bitmaps
from table_checks import NEXT, START, Rows, check_table, deaths, frame, fresh_copy, new_table, read, writes

pytestmark = pytest.mark.heavy

MORE: Rows = {"y": ("a", 2, 50), "z": ("b", 2, 51)}
OPTIONS = {"hoodie.parquet.small.file.limit": "0", "hoodie.clean.automatic": "false"}


@pytest.mark.parametrize("way", [{}, {"order_by": "ts"}], ids=["joined", "ordered"])
def test_kill_at_every_change(path: Path, way: dict[str, str]) -> None:
    template = path.with_name("template")
    with_bitmaps(new_table(template, START, options=OPTIONS)).insert(frame(MORE))
    rows, states = {**START, **MORE}, set()
    run = writes(lambda table: table.maintenance.cluster(**way))
    for number, found in enumerate(deaths(partial(fresh_copy, template, path), run, ("after", "during"), 12)):
        assert read(found) == rows
        table = Table.open(found, options=OPTIONS)
        plans = table.snapshot().timeline.pending_clusterings()
        states |= {plan.state for plan in plans} or {None}
        for plan in plans:
            if number % 2:
                table.maintenance.cluster(instant=plan.requested)
            else:
                table.maintenance.rollback(plan.requested)
        table.upsert(frame(NEXT))
        check_table(found, {**rows, **NEXT})
    assert states >= {None, State.INFLIGHT}
