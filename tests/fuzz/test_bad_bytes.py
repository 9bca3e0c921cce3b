"""Damaged bytes are a clear error or a right result, in bounded memory and time.

For each mutation of a real file: what is read is right where that can be decided (each target says what it looks at), or
a ``LakedexError`` says no; a ``CorruptFileError`` names the file. Nothing else may be raised. Limits are those of
:mod:`fuzz.running`: two seconds of processor time and, beyond 8 MiB, 200 times the input's size in Python's memory
(12,000 times for HFiles, whose blocks are packed, and 3,096 for one block); no growth of the process past 192 MiB.

What cannot be known, and is therefore looked at for errors, time and memory only:

* a change within an HFile block that is not packed, or was packed again: Hudi writes no checksums into HFiles, the
  packed stream has its own. The same for values in log blocks, Avro bodies and JSON, which have none at all;
* a block of one HFile in the place of another one: nothing in it says where it belongs;
* see :mod:`fuzz.table_targets` for whole tables.

Metadata that is not damaged but hostile leads nowhere outside of the table: see :mod:`fuzz.plan_targets` for what is decoded
and :mod:`fuzz.hostile_targets` for what operations then do, with a watched folder around the table.

``LAKEDEX_FUZZ=1000000`` tries so many; ``python -m fuzz`` does it in two processes.
"""

from __future__ import annotations

import os

import pytest

from fuzz.hostile_targets import HOSTILE_TARGETS
from fuzz.mutations import Mutator
from fuzz.running import run_target
from fuzz.targets import TARGETS, WHOLE, shares
from table_checks import BRIEF

MUTATIONS = int(os.environ.get("LAKEDEX_FUZZ") or (600 if BRIEF else 6000))
"""Of all targets together."""
FEW = 1 if BRIEF else 5
"""Of each target over whole tables at least; hostile ones, of which each takes a quarter of a second, get no more."""


def _count(name: str, count: int) -> int:
    if name in HOSTILE_TARGETS and not os.environ.get("LAKEDEX_FUZZ"):
        return 1 if name == "hostile.many" else FEW
    return max(count, FEW) if name in WHOLE else count


SHARES = {name: _count(name, count) for name, count in shares(list(TARGETS), MUTATIONS).items()}


@pytest.mark.seeded
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_bytes_are_an_error_or_right(name: str) -> None:
    """Allocations are traced but for whole tables, where that takes most of the time."""
    outcome = run_target(name, TARGETS[name], range(SHARES[name]), traced=name not in WHOLE)
    assert not outcome.faults, "\n".join(outcome.faults)
    assert outcome.mutations == SHARES[name]


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_are_repeatable(name: str) -> None:
    """The index alone says what is done, so a fault that a long run finds can be found again."""
    sizes = [[TARGETS[name](Mutator(name, index)).size for index in range(6)] for _ in range(2)]
    assert sizes[0] == sizes[1]


def test_mutations_do_not_reach_each_other() -> None:
    """A shared leaf grew from mutation to mutation, until documents held themselves or all memory."""
    document = {"a": [1, {"b": "text"}], "c": None}
    first = [Mutator("document", index).document(document) for index in range(3000)]
    again = [Mutator("document", index).document(document) for index in reversed(range(3000))][::-1]
    assert repr(first) == repr(again)
    assert max(len(repr(found)) for found in first) < 500
