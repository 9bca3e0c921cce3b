from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from lakedex.testing import TableMachine
from lakedex.testing.table_machine import Rows

ROWS: Rows = {("a", "k1"): (1, 2, None), ("b", "k2"): (1, None, None)}


class Machine(TableMachine):
    done: ClassVar[Counter[str]] = Counter()
    version = 9


class Losing(Machine):
    def as_frame(self, rows: pa.Table) -> Any:
        return rows.slice(1)


@contextlib.contextmanager
def running(kind: type[Machine]) -> Iterator[Machine]:
    kind.done.clear()
    machine = kind()
    machine.make(own_files=True, automatic=False, few=False, stats=True)
    try:
        yield machine
    finally:
        machine.teardown()


def test_steps_keep_table_and_model_alike() -> None:
    with running(Machine) as machine:
        machine.holds()
        machine.upsert(ROWS)
        machine.update("n is null")
        machine.delete_where("n >= 4")
        machine.holds()
        assert machine.model.rows == {("a", "k1"): (1, 2, None), ("b", "k2"): (1, 1, None)}
        machine.rollback()
        machine.holds()
        assert machine.model.rows == ROWS
        machine.look_back()
        assert machine.table.inspect.timeline().num_rows > 0
    assert machine.done == Counter(upsert=1, update=1, delete_where=1, rollback=1)
    assert not TableMachine.done


def test_a_wrong_table_fails() -> None:
    with running(Losing) as machine:
        machine.upsert(ROWS)
        with pytest.raises(AssertionError):
            machine.holds()
