"""Writing merge-on-read tables, each operation against a plain model."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakedex import Table
from table_kit import ROWS, make, own, properties, rows

VERSIONS = (6, 8, 9)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_table_is_one_of_hudis(tmp_path: Path, version: int) -> None:
    options = {"hoodie.write.table.version": version}
    table = make(tmp_path, schema=ROWS, table_type="mor", partition_by="city", ordering_by="ts", options=options)
    table.insert(rows(("1", "a", 1, 1), ("2", "b", 1, 1)))
    assert properties(tmp_path)["hoodie.table.type"] == "MERGE_ON_READ"
    assert [instant.action for instant in table.snapshot().timeline.completed()] == ["deltacommit"]
    assert own(Table.open(tmp_path)) == [("1", "a", 1, 1), ("2", "b", 1, 1)]
