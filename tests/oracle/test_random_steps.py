"""lakedex and Hudi's Java write a table in turn, at random; after each step everybody reads what a plain model has.

``LAKEDEX_RANDOM_STEPS`` is the length of a script, ``LAKEDEX_RANDOM_SEEDS`` a range of seeds (``100-120``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from java_judge import JavaJudge
from random_steps import Life, Step, case_of, script_of, shrunk
from rust_judge import RustJudge

STEPS = int(os.environ.get("LAKEDEX_RANDOM_STEPS", "12"))
FIRST, _, LAST = os.environ.get("LAKEDEX_RANDOM_SEEDS", "1-10").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
JUDGED = 6
"""Number of steps between two readings by the judges."""
SHRINKING = 120.0
"""Seconds for making a script that fails shorter."""


def run(seed: int, script: Sequence[Step], java: JavaJudge, rust: RustJudge) -> Counter[str]:
    """Live through a script; how often each kind of step came."""
    folder = Path(tempfile.mkdtemp(prefix="random-steps-"))
    java.fresh()
    try:
        life = Life(folder / "t", case_of(seed), java, rust)
        for number, step in enumerate(script, 1):
            try:
                life.take(step)
                life.check(judges=number % JUDGED == 0, at_end=number == len(script))
            except Exception as error:
                error.add_note(f"at step {number}, {step}")
                raise
        return life.done
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(300 + 20 * STEPS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_script(seed: int, java: JavaJudge, rust: RustJudge) -> None:
    script = script_of(seed, STEPS)
    try:
        done = run(seed, script, java, rust)
    except Exception as error:
        failure, text = error, "".join(traceback.format_exception(error))
    else:
        print(f"seed {seed}: {dict(done)}")
        return
    started = time.monotonic()

    def fails(steps: Sequence[Step]) -> bool:
        if time.monotonic() - started > SHRINKING:
            return False
        try:
            run(seed, steps, java, rust)
        except Exception as error:
            return type(error) is type(failure)
        return False

    steps = "\n".join(f"  {step}" for step in shrunk(script, fails))
    pytest.fail(f"{text}\nseed {seed}, {case_of(seed)}:\n{steps}", pytrace=False)
