"""Analysed plans: what was read, what in vain, and dropped files that should not have been."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.engine import Engine
from lakedex.errors import IndexInconsistentError, IndexingError, InvalidInputError, UnsupportedFeatureError
from lakedex.local.engine import LocalEngine
from lakedex.scan import analyze as analysis
from lakedex.scan.analyze import AnalyzedPlan
from lakedex.scan.plan import ScanPlan
from limits import Limits
from table_kit import OWN_FILE, make, rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = make(tmp_path_factory.mktemp("analysis") / "trips", options=OWN_FILE)
    for n in range(0, 12, 3):
        made.insert(rows(*((f"k{m:02d}", "ab"[m % 2], 1, m * 10) for m in range(n, n + 3))))
    return made


def test_what_was_read(table: Table) -> None:
    found = table.scan("n >= 35 and n < 45 or n = 75").explain(analyze=True)
    assert isinstance(found, AnalyzedPlan)
    assert (found.plan.files_total, len(found.plan.files), len(found.files)) == (4, 2, 2)
    assert (found.rows_read, found.rows_matched) == (6, 1)
    assert (found.row_groups, found.row_groups_skipped) == (2, 0)
    assert len(found.files_in_vain) == 1
    assert 0 < found.bytes_read < found.plan.bytes_kept
    assert found.verified is None


def test_files_kept_in_vain(table: Table) -> None:
    found = table.scan("n = 35").explain(analyze=True)
    assert isinstance(found, AnalyzedPlan)
    assert found.files_in_vain == found.plan.files_kept != ()
    assert (found.rows_read, found.rows_matched, found.row_groups) == (3, 0, 1)
    assert "kept without a match  1 of 1 file" in str(found)


def test_it_prints_on_top_of_the_plan(table: Table) -> None:
    found = table.scan("n > 60").explain(analyze=True, verify="full")
    assert isinstance(found, AnalyzedPlan)
    text = str(found)
    assert text.startswith("\n".join(str(found.plan).splitlines()[:2])[:40])
    assert "2 of 2 row groups" in text
    assert "6 rows, 5 matched" in text
    assert "no matching row in 2 dropped files (6 rows read)" in text
    assert repr(found) == text
    html = found._repr_html_()
    assert "2 dropped files" in html
    assert html.startswith("<div")
    picture = found.to_dict()
    json.dumps(picture)
    assert (picture["rows_matched"], picture["files_verified"], picture["files_total"]) == (5, 2, 4)
    assert found.to_arrow().schema == found.plan.to_arrow().schema
    files = found.files_table()
    assert files.num_rows == 4
    assert files.column("stage").null_count == 2
    assert sum(files.column("rows_matched").to_pylist()) == 5
    assert isinstance(table.scan("n > 60").explain(), ScanPlan)


def test_all_rows_and_no_skipping(table: Table) -> None:
    found = table.scan().explain(analyze=True, verify="full")
    assert isinstance(found, AnalyzedPlan)
    assert (found.rows_read, found.rows_matched, found.verified) == (12, 12, ())
    whole = table.scan("n = 0", use_indexes=False, limit=1).explain(analyze=True)
    assert isinstance(whole, AnalyzedPlan)
    assert (whole.rows_read, whole.row_groups_skipped, len(whole.files_in_vain)) == (12, 0, 3)


def test_unknown_conditions_are_not_run(table: Table) -> None:
    scan = table.scan("soundex(city) = 'a'")
    assert len(scan.explain().files) == 4
    with pytest.raises(UnsupportedFeatureError, match="(?i)soundex"):
        scan.explain(analyze=True)


def test_arguments(table: Table) -> None:
    for call in (lambda: table.scan(verify="half"), lambda: table.scan().explain(verify="half")):  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="verify is 'full' or None"):
            call()


# ---------------------------------------------------------------------------------------------------------- verify
@pytest.fixture
def lying(tmp_path: Path) -> Table:
    """A table whose column stats are wrong: a file was changed behind its back."""
    table = make(tmp_path / "trips", options=OWN_FILE)
    instants = [table.insert(rows((f"k{n}", "a", 1, n), (f"m{n}", "a", 1, n))).instant for n in (1, 50, 70)]
    (file,) = (tmp_path / "trips").glob(f"*_{instants[0]}.parquet")
    stored = pq.read_table(file)
    pq.write_table(stored.set_column(stored.schema.get_field_index("n"), "n", pa.array([99, 1], pa.int32())), file)
    return table


def test_a_dropped_row_is_found(lying: Table) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: lying.scan("n > 60", verify="full").to_arrow(),
        lambda: lying.scan("n > 60", verify="full").count(),
        lambda: lying.scan("n > 60", verify="full", limit=1).count(),
        lambda: list(lying.scan("n > 60", verify="full").to_batches()),
        lambda: lying.scan("n > 60", verify="full").explain(),
        lambda: lying.scan("n > 60").explain(verify="full"),
        lambda: lying.scan("n > 60").explain(analyze=True, verify="full"),
    ]
    for call in calls:
        with pytest.raises(IndexInconsistentError) as caught:
            call()
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, IndexingError)
    assert error.table == "trips"
    assert error.record_key == "k1"
    assert error.file.endswith(".parquet")
    assert [read["rows_matched"] for read in error.report] == [1]
    for part in ("trips", error.file, error.record_key, "n > 60", "use_indexes=False", repr(error.stage)):
        assert part in str(error)
    assert lying.scan("n > 60").count() == 2
    assert lying.scan("n > 60", use_indexes=False, verify="full").count() == 3


def test_verifying_what_is_right_changes_nothing(table: Table) -> None:
    scan = table.scan("n > 60", ["id"], verify="full")
    assert scan.to_arrow() == table.scan("n > 60", ["id"]).to_arrow()
    assert scan.count() == 5
    found = scan.explain()
    assert isinstance(found, AnalyzedPlan)
    assert found.verified is not None


def test_large_plans_are_read_by_tasks_of_the_engine(table: Table, limits: Limits) -> None:
    runs: list[int] = []

    class Tasks(LocalEngine):
        name = "spark"

        def run(self, fn: Callable[[Any], Any], items: Sequence[Any], label: str) -> list[Any]:
            assert label.startswith("lakedex ")
            runs.append(len(items))
            return [pickle.loads(pickle.dumps(fn))(pickle.loads(pickle.dumps(item))) for item in items]

    engine: Engine = Tasks()
    scan = table.scan("n > 60")
    object.__setattr__(scan, "engine", engine)
    small = scan.explain(analyze=True, verify="full")
    assert runs == []
    limits(analysis, TASK_BYTES=0)
    found = scan.explain(analyze=True, verify="full")
    assert runs == [2, 2]
    assert isinstance(found, AnalyzedPlan)
    assert isinstance(small, AnalyzedPlan)
    assert (found.rows_matched, found.rows_read) == (small.rows_matched, small.rows_read) == (5, 6)
