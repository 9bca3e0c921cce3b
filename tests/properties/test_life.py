"""A table lives a random life and is always its model: all writes, services, indexes, crashes and foreign commits.

``LAKEDEX_HYPOTHESIS_PROFILE=deep ./dev test tests/properties/test_life.py`` takes 10,000 steps and more.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from lakedex import Table
from lakedex.snapshot.snapshot import Limits
from life_kit import FoldingLife, Life, MovingLife
from seams import with_context

DEEP = settings.default.max_examples >= 5000
LIVES, FEW, STEPS = (200, 50, 60) if DEEP else (8, 4, 25)
"""The first life of each run is the dullest one: the same step again and again."""
AT_ONCE = 10 if DEEP else LIVES
"""Lives between two reports. Without chance each such run would be the same."""
TIMEOUT = 6 * 3600 if DEEP else 300


# Rules that every table can follow; the rest asks for a savepoint, say, which a short life need not have.
ALWAYS = {"upsert", "insert", "delete", "update", "merge", "overwrite", "delete_partition", "clean", "archive", "crash"}
UNDOING = {"rollback", "restore"}


class EagerLife(FoldingLife):
    """Runs are put together two by two."""

    def create_table(self) -> Table:
        return with_context(super().create_table(), limits=Limits(compact_at=2))

    def reopened(self) -> Table:
        return with_context(super().reopened(), limits=Limits(compact_at=2))


def live(name: str, kind: type[Life], version: int, lives: int) -> Counter[str]:
    """Let tables live; how many operations of each kind there were."""
    done: Counter[str] = Counter()
    made = type(name, (kind,), {"version": version, "done": done, "validate_every": 1 if DEEP else 3})
    # No shrinking: it would take minutes, and the steps of a life are short to read.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    started = time.monotonic()
    # A few at a time, so that a long run says how far it is; also one that a fault or a signal ends.
    for first in range(0, lives, AT_ONCE):
        some = min(AT_ONCE, lives - first)
        try:
            run_state_machine_as_test(
                made, settings=settings(max_examples=some, stateful_step_count=STEPS, phases=phases)
            )
        finally:
            took = time.monotonic() - started
            print(f"{name}: {done.total()} operations in {took:.0f} s, {dict(sorted(done.items()))}", flush=True)
    assert done.total() > lives * STEPS / 3
    return done


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("version", [8, *(pytest.param(other, marks=pytest.mark.heavy) for other in (9, 6))])
def test_a_life(version: int) -> None:
    """R31-R33, R49: whatever happens to a table, its rows are right and its metadata is clean."""
    done = live(f"LifeOfVersion{version}", Life, version, LIVES if version == 8 else FEW)
    assert done.keys() & UNDOING
    if version == 8 or DEEP:
        # Few lives are what Hypothesis happens to choose.
        assert len(ALWAYS - done.keys()) <= (0 if DEEP else 2)


@pytest.mark.heavy
@pytest.mark.timeout(TIMEOUT)
def test_a_life_whose_bitmaps_are_folded_at_every_step() -> None:
    """Whatever is undone, restored or cut short: the manifest lists the runs that are there."""
    assert live("LifeOfFoldedBitmaps", EagerLife, 8, FEW).keys() & UNDOING


@pytest.mark.heavy
@pytest.mark.timeout(TIMEOUT)
def test_a_life_with_a_global_index() -> None:
    """R4: a key is one row in the whole table, whatever happens."""
    assert live("LifeOfGlobalIndex", MovingLife, 8, FEW).keys() & UNDOING
