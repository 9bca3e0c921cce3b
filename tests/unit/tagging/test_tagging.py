"""Key ranges that tagging may trust, and levels that are switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakedex import Table
from lakedex.index.column_stats import index as key_ranges
from lakedex.parquet.base_file_reader import read_footer
from table_kit import OWN_FILE, make, own, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = make(tmp_path, rows(("a", "x", 1, 1), ("b", "x", 1, 2)), options=OWN_FILE)
    made.insert(rows(("k", "x", 1, 3), ("z", "x", 1, 4)))
    return made


def test_a_record_that_names_another_file_says_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """R37.l: keys are hashes. Where two files have the same, the record of one is not taken for the other's."""
    whole, first = key_ranges.column_stats_key, table.snapshot().base_files()[0].name
    monkeypatch.setattr(key_ranges, "column_stats_key", lambda column, path, _: whole(column, path, first))
    report = table.upsert(rows(("a", "x", 2, 7), ("k", "x", 2, 8))).tagging
    assert (report.files_after_ranges, report.matches) == (2, 2)
    assert own(table, "id", "n") == [("a", 7), ("b", 2), ("k", 8), ("z", 4)]


def test_a_file_without_stats_stays(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """R59: an absent entry must not prune."""
    monkeypatch.setattr(key_ranges, "column_stats_key", lambda *_: "absent")
    report = table.upsert(rows(("k", "x", 2, 8))).tagging
    assert (report.files_after_ranges, report.files_opened, report.matches) == (2, 1, 1)


def test_ranges_switched_off(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """R57, R63: no stats are read; the filters find the file, and what is written fits its rows all the same."""
    monkeypatch.setattr("lakedex.index.column_stats.index.stored_key_ranges", lambda *_: pytest.fail("stats were read"))
    off = {"hoodie.bloom.index.prune.by.ranges": "false"}
    report = table.upsert(rows(("k", "x", 2, 8), ("new", "x", 1, 1)), options=off).tagging
    assert (report.source, report.files_after_ranges, report.files_after_blooms) == ("metadata", 2, 1)
    assert report.pairs_probed == 4
    assert own(table, "id") == [("a",), ("b",), ("k",), ("new",), ("z",)]
    snapshot = table.snapshot()
    paths = [snapshot.files.path(base.relative_path) for base in snapshot.base_files()]
    assert sorted(read_footer(snapshot.files.storage, path).rows for path in paths) == [1, 2, 2]


def test_the_classic_index(table: Table) -> None:
    """R9, R10: the same answer from footers, without and with ranges, and nothing of the metadata."""
    for ranges, after in (("true", 1), ("false", 2)):
        options = {"hoodie.bloom.index.use.metadata": "false", "hoodie.bloom.index.prune.by.ranges": ranges}
        report = table.upsert(rows(("k", "x", 2, 8)), options=options).tagging
        assert (report.source, report.files_after_ranges, report.files_opened, report.matches) == (
            "footers",
            after,
            1,
            1,
        )
