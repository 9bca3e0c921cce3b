"""Plans and answers of tables with bitmaps: the cost gate, what is read, what is said. R94, R143 to R148."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bitmap_samples import ByHand, ungated
from golden_tables import unpack
from lakedex import Table
from lakedex.errors import CorruptFileError
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap import pruning
from lakedex.index.bitmap.definitions import (
    BITMAP_DEFINITIONS,
    BitmapDefinition,
    indexed_limits,
    read_bitmap_definitions,
    write_bitmap_definitions,
)
from lakedex.index.bitmap.keys import is_indexable
from lakedex.index.bitmap.pruning import Bitmaps
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.scan.plan import ScanPlan, plan_scan
from lakedex.snapshot.schema import read_columns
from limits import Limits

ROWS = 4000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Two files of two row groups; ``g`` and ``h`` meet in few rows, ``u`` is over the cap, ``late`` has values at the end."""
    path = tmp_path_factory.mktemp("pruning") / "t"
    rng = np.random.default_rng(4)
    number = np.arange(ROWS)
    data = pa.table(
        {
            "id": pa.array(number),
            "p": pa.array((number % 2).astype(str)),
            "g": pa.array(rng.choice(["a", "b", "c"], ROWS)),
            "h": pa.array(np.where(number < ROWS - 20, "x", "y")),
            "u": pa.array(number.astype(str)),
            "pad": pa.array(rng.bytes(ROWS * 40).hex()[n * 80 : n * 80 + 80] for n in number),
        }
    )
    options = {"hoodie.parquet.block.size": "20000"}
    made = Table.create(path, schema=data.schema, record_key="id", partition_by=["p"], options=options)
    for start in range(0, ROWS, 400):
        made.insert(data.slice(start, 400))
    index = ByHand(made, {"g": 100, "h": 100, "u": 100})
    index.cover()
    return Table.open(path)


WHERE = [
    "g = 'a'", "h = 'y'", "g = 'a' AND h = 'y'", "g <> 'a' OR h = 'y'", "NOT (g = 'a' OR h = 'x')", "g = 'zz'", "u = '7'",
    "u = '7' AND g = 'a'", "g = 'a' AND id < 50", "g IN ('a', 'b') AND h IN ('y', NULL)", "g = 'a' OR pad LIKE 'f%'",
]  # fmt: skip


@pytest.mark.parametrize("where", WHERE)
def test_the_gate_changes_no_answer(table: Table, where: str) -> None:
    scan = table.scan(where, ["id"])
    plain = sorted(replace(scan, use_indexes=False).to_arrow().column("id").to_pylist())
    for one in (scan, ungated(scan)):
        assert sorted(one.to_arrow().column("id").to_pylist()) == plain
        assert one.count() == len(plain)
        assert sum(batch.num_rows for batch in replace(one, columns=()).to_batches()) == len(plain)


def alone(table: Table, where: str, **how: Any) -> ScanPlan:
    scan = table.scan(where)
    predicate = BoundPredicate(parse_predicate(where, read_columns(table.schema), scan.rules))
    return plan_scan(scan.snapshot, predicate, indexes=[Bitmaps(**how)])


def test_row_groups_are_left_out_where_values_lie_together(table: Table) -> None:
    """R146, R148: rows inside chosen files are skipped, which Hudi does not do."""
    plan = alone(table, "h = 'y'", select=True)
    assert plan.selections and all(selection.is_exact for selection in plan.selections.values())
    kept = sum(len(selection.kept_groups()) for selection in plan.selections.values())
    groups = sum(len(selection.groups) for selection in plan.selections.values())
    assert sum(selection.count for selection in plan.selections.values()) == 20
    assert kept == len(plan.selections) <= groups / 2, "of the row groups of each file the last one"


def test_a_reader_that_reads_whole_files_gets_no_rows(table: Table) -> None:
    for gated in (True, False):
        assert not alone(table, "g = 'a' AND h = 'y'", cost_gate=gated).selections


def test_two_conditions_that_never_meet_drop_the_file(table: Table, tmp_path: Path) -> None:
    """R143, R144, R145: counts leave it open, the AND of the bitmaps is empty."""
    data = pa.table({"id": pa.array(range(300)), "g": ["a", "b", "c"] * 100, "h": ["x", "y", "z"] * 100})
    made = Table.create(tmp_path / "t", schema=data.schema, record_key="id")
    made.insert(data)
    ByHand(made, {"g": 10, "h": 10}).cover()
    for select in (True, False):
        assert alone(made, "g = 'a' AND h = 'y'", select=select, cost_gate=False).slices == ()
        assert len(alone(made, "g = 'a' AND h = 'x'", select=select, cost_gate=False).slices) == 1
    assert made.scan("g = 'a' AND h = 'y'").count() == 0
    stage = alone(made, "g = 'a' AND h = 'y'", cost_gate=False).stage("bitmap")
    assert (stage.before, stage.after) == (1, 0) and "bitmaps of 1 files read" in stage.note
    assert "g = 'a'" in stage.terms[0] and len(stage.terms) == 2


def test_max_fetch_bounds_what_a_plan_reads(table: Table, limits: Limits) -> None:
    where = "g = 'a' AND h = 'y'"
    right = table.scan(where, use_indexes=False).count()
    whole = alone(table, where, select=True, cost_gate=False)
    assert len(whole.selections) >= 2
    limits(pruning, MAX_FETCH=7_500)
    some = alone(table, where, select=True, cost_gate=False)
    assert len(some.selections) < len(whole.selections) and "not worth reading" in some.stage("bitmap").note
    limits(pruning, MAX_FETCH=0)
    assert alone(table, where, select=True, cost_gate=False).selections == {}
    assert ungated(table.scan(where)).count() == right


def test_few_files_at_a_time(table: Table, limits: Limits) -> None:
    where = "g = 'a' AND h = 'y'"
    whole = alone(table, where, select=True, cost_gate=False)
    limits(pruning, BATCH_FILES=1)
    assert alone(table, where, select=True, cost_gate=False).selections == whole.selections


def test_a_column_over_its_cap_is_said(table: Table) -> None:
    plan = alone(table, "u = '7'")
    assert len(plan.slices) == plan.files_total
    assert any("u is not indexed" in str(item) for item in plan.unused)


def test_a_condition_without_an_indexed_column_is_said(table: Table) -> None:
    plan = alone(table, "id = 7")
    assert [item.reason for item in plan.unused] == ["no term"] and plan.stages == ()


def test_a_table_without_bitmaps_has_no_stage(tmp_path: Path) -> None:
    made = Table.create(tmp_path / "t", schema=pa.schema([("id", pa.int64())]), record_key="id")
    made.insert(pa.table({"id": [1]}))
    plan = alone(made, "id = 1")
    assert plan.stages == () and plan.unused == () and len(plan.slices) == 1


def test_uncovered_files_are_said_and_kept(tmp_path: Path) -> None:
    made = Table.create(tmp_path / "t", schema=pa.schema([("id", pa.int64()), ("g", pa.string())]), record_key="id",
                        options={"hoodie.parquet.small.file.limit": "0"})  # fmt: skip
    made.insert(pa.table({"id": [1], "g": ["a"]}))
    index = ByHand(made, {"g": 10})
    index.cover()
    with index.hidden():
        made.insert(pa.table({"id": [2], "g": ["b"]}))
    plan = alone(made, "g = 'zz'")
    assert len(plan.slices) == 1 and "not known for 1 files" in plan.stage("bitmap").note
    assert made.scan("g = 'b'").count() == 1
    with index.hidden():
        made.upsert(pa.table({"id": [1], "g": ["b"]}))
    assert made.scan("g = 'b'").count() == 2, "the rewritten file is another one: its bitmaps are not believed"


def test_base_files_with_log_files_are_believed_in_nothing(tmp_path: Path) -> None:
    """R92.g: what a log changes, the bitmaps of the base file do not know."""
    made = Table.open(unpack("mor_v8_trips_8i3u1d", tmp_path))
    slices = made.scan().snapshot.view().table.slices
    with_logs = {item.name for item in slices if item.log_files}
    assert with_logs
    rows = made.scan(use_indexes=False).to_arrow()
    columns = [field.name for field in made.schema if is_indexable(field.type)]
    ByHand(made, dict.fromkeys(columns, 1000)).cover()
    asked = 0
    for name in columns:
        for value in rows.column(name).unique().to_pylist()[:6]:
            if isinstance(value, str | int) and not isinstance(value, bool):
                where = f"{name} = '{value}'" if isinstance(value, str) else f"{name} = {value}"
                scan = ungated(made.scan(where))
                assert scan.count() == pc.sum(pc.equal(rows.column(name), value)).as_py()
                assert with_logs <= set(alone(made, where, select=True, cost_gate=False).files_kept)
                asked += 1
    assert asked > 5


# ------------------------------------------------------------------------------------------------------ definitions
def test_definitions_come_back(tmp_path: Path) -> None:
    storage, path = LocalStorage(), str(tmp_path)
    assert read_bitmap_definitions(TableFiles(storage, path)) == {}
    made = {
        "one": BitmapDefinition(name="one", columns=("a", "s.b")),
        "é $": BitmapDefinition(name="é $", columns=("a",), max_distinct=20_000),
    }
    write_bitmap_definitions(TableFiles(storage, path), made)
    assert read_bitmap_definitions(TableFiles(storage, path)) == made
    assert indexed_limits(made) == {"a": 20_000, "s.b": 10_000}
    assert not (tmp_path / ".hoodie/.index_defs/index.json").exists()
    write_bitmap_definitions(TableFiles(storage, path), {})
    assert read_bitmap_definitions(TableFiles(storage, path)) == {} and not Path(path, BITMAP_DEFINITIONS).exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"indexDefinitions": {"a": {}}}',
        '{"indexDefinitions": {"a": {"sourceFields": 1, "indexOptions": {"maxDistinctValues": "x"}}}}',
    ],
)
def test_damaged_definitions_are_errors(tmp_path: Path, content: str) -> None:
    place = Path(str(tmp_path), BITMAP_DEFINITIONS)
    place.parent.mkdir(parents=True)
    place.write_text(content)
    with pytest.raises(CorruptFileError, match="definitions of bitmap indexes"):
        read_bitmap_definitions(TableFiles(LocalStorage(), str(tmp_path)))
