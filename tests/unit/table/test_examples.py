"""The examples in the docstrings of ``Table``, its namespaces and ``Scan``: each runs on a table of its own."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.scan.scan import Scan
from lakedex.table.indexes import Indexes
from lakedex.table.inspect import Inspect
from lakedex.table.maintenance import Maintenance

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("rider", pa.string()),
        ("fare", pa.float64()),
        ("seats", pa.int32()),
        ("ts", pa.int64()),
    ]
)


def trips(*rows: tuple[Any, ...]) -> pa.Table:
    """Trips given as tuples."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


TRIPS = trips(
    ("t1", "sf", "ana", 17.5, 2, 1),
    ("t2", "oslo", "bo", 9.0, 4, 1),
    ("t3", "oslo", "cy", 21.0, 4, 1),
)
NEW_TRIPS = trips(("t4", "rome", "ana", 12.0, 2, 2), ("t5", "rome", "dee", 30.0, 4, 2))


def examples() -> list[doctest.DocTest]:
    """The examples, a test a member."""
    find = doctest.DocTestFinder().find
    return [
        test
        for cls in (Table, Indexes, Maintenance, Inspect, Scan)
        for test in find(cls, cls.__name__)
        if test.examples
    ]


def _made(path: Path) -> Table:
    table = Table.create(path, SCHEMA, record_key="id", partition_by="city", ordering_by="ts")
    table.upsert(TRIPS)
    return table


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_an_example(test: doctest.DocTest, once: Callable[..., Table], tmp_path: Path) -> None:
    table = once(_made, tmp_path / "trips")
    test.globs = {
        "pa": pa,
        "Table": Table,
        "folder": tmp_path,
        "table": table,
        "trips": TRIPS.set_column(5, "ts", pa.array([2] * 3, pa.int64())),
        "new_trips": NEW_TRIPS,
    }
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not result.failed, "".join(said)
