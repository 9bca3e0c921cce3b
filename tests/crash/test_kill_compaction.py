"""``kill -9`` at every change that a compaction makes: readers see the same rows throughout, and the plan survives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden_tables import unpack_java_1_2
from lakedex import Table
from lakedex.testing import FaultyStorage, open_table
from table_checks import deaths, fresh_copy

pytestmark = pytest.mark.heavy

PLANNED = "20261129073449099"


def rows_of(path: Path) -> list[dict[str, Any]]:
    found = Table.open(path).scan(meta_columns=True).to_arrow().drop_columns(["_hoodie_file_name"]).to_pylist()
    return sorted(found, key=lambda row: str(row["_hoodie_record_key"]))


@pytest.mark.parametrize("name, instant", [("mor_pend_v9", PLANNED), ("mor_pend_v9", None), ("mor_v6", None)])
def test_killed_while_compacting(name: str, instant: str | None, tmp_path: Path) -> None:
    template = unpack_java_1_2(name, tmp_path / "template")
    before = rows_of(template)

    def compacted(path: Path, storage: FaultyStorage) -> object:
        return open_table(path, storage).maintenance.compact(instant=instant)

    tried = 0
    for path in deaths(lambda: fresh_copy(template, tmp_path / "t"), compacted, sparse=8):
        tried += 1
        assert rows_of(path) == before
        table = Table.open(path)
        table.maintenance.compact()
        table = Table.open(path)
        snapshot = table.snapshot()
        assert rows_of(path) == before
        assert not any(item.log_files for item in snapshot.slices())
        assert snapshot.timeline.pending() == snapshot.metadata.timeline.pending() == ()
        assert table.maintenance.validate().ok
        listed = {name for files in snapshot.listing().values() for name in files}
        assert {file.name for file in path.rglob("*.parquet") if ".hoodie" not in file.parts} <= listed
    assert tried > 5
