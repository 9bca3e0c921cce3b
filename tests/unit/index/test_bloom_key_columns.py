"""Which key columns a bloom filter of record keys can answer for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from table_kit import make, set_properties


def asked(table: Table, where: str) -> bool:
    plan = table.scan(where).plan()
    return any(stage.name == "bloom_filters" for stage in plan.stages)


@pytest.mark.parametrize(
    "kind, value, text, judged",
    [
        (pa.string(), "k", "'k'", True),
        (pa.int64(), 7, "7", True),
        (pa.bool_(), True, "true", True),
        # Java's options decide the text of the stored key, and the table does not tell which they were.
        (pa.date32(), dt.date(2024, 3, 10), "DATE '2024-03-10'", False),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 3, 10, tzinfo=dt.UTC), "TIMESTAMP '2024-03-10 00:00:00Z'", False),
        (pa.decimal128(10, 8), Decimal("0.00000001"), "0.00000001", False),
        (pa.float64(), 1.5, "1.5D", False),
    ],
    ids=str,
)
def test_types_whose_values_have_one_text(
    tmp_path: Path, kind: pa.DataType, value: Any, text: str, judged: bool
) -> None:
    table = make(tmp_path, pa.table({"id": pa.array([value], kind), "n": [1]}))
    assert asked(table, f"id = {text}") == judged
    assert table.scan(f"id = {text}").count() == 1


@pytest.mark.parametrize("generator", ["COMPLEX", "GLOBAL_DELETE", "USER_PROVIDED", "HOODIE_TABLE_METADATA"])
def test_key_generators_that_make_more_of_a_key(tmp_path: Path, generator: str) -> None:
    table = make(tmp_path, pa.table({"id": ["k1"], "n": [1]}))
    assert asked(table, "id = 'k1'")
    set_properties(tmp_path, {"hoodie.table.keygenerator.type": generator})
    table = Table.open(tmp_path)
    assert not asked(table, "id = 'k1'")
    assert asked(table, "_hoodie_record_key = 'k1'")
