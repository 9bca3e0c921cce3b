"""Tables that lived on a store with failing requests (``tests/fault_schedules.py``), as Java Hudi and hudi-rs see them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from java_judge import JavaJudge
from judging import assert_all_see
from rust_judge import RustJudge

from fault_schedules import OPERATIONS, Life, started, table_of, written_to
from lakedex.testing import FaultSchedule


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_java_reads_what_a_life_under_faults_left(tmp_path: Path, java: JavaJudge, rust: RustJudge, kind: str) -> None:
    model, rows = started(kind)
    life, chance = Life.again(model, rows), random.Random(17)
    for step in range(12):
        faults = FaultSchedule(seed=step, every=(2, 30), burst=(1, 40 if step % 4 == 0 else 3))
        life.run(chance.choice(list(OPERATIONS)), chance.randrange(1000), faults, step % 2)
    life.finish()
    expected: pa.Table = table_of(life.rows)
    assert_all_see(written_to(life.model, tmp_path), java, rust, expected, key="id")
