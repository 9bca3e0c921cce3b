"""Rows that are erased: which files, the proof, and what holds them still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.snapshot.snapshot import Limits
from lakedex.write import erase as erase_module
from seams import with_context
from table_kit import OWN_FILE, base_files, make, own, rows

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("g", pa.string()), ("n", pa.int32())])


def _made(path: Path) -> Table:
    """Six files in three partitions, a bitmap index on ``g``; 'x' is in one file of partition b, once."""
    made = make(path, partition_by="city", schema=SCHEMA, options=OWN_FILE)
    made.indexes.create("bitmap", ["g"], name="idx")
    for part in range(2):
        made.insert(
            rows(
                *((f"{part}{city}{i}", city, "x" if (part, city, i) == (1, "b", 3) else "mf"[i % 2], i)
                  for city in "abc" for i in range(6)),
                schema=SCHEMA,
            )
        )  # fmt: skip
    return made


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def test_by_a_condition_that_the_bitmaps_answer(table: Table) -> None:
    """R92.b: the indexes find the file, only that one is rewritten, and the report proves it."""
    before = own(table)
    report = table.erase(where="g = 'x'")
    assert own(Table.open(table.path)) == [row for row in before if row[2] != "x"]
    assert (report.rows, report.files_total, report.files_rewritten, report.files_examined) == (1, 6, 1, 1)
    assert report.plan is not None
    assert report.plan.stage("bitmap").after == 1
    assert report.instant == table.inspect.history().column("commit_time")[0].as_py()
    assert report.is_verified
    assert (report.proof.sql, report.proof.rows) == ("SELECT count(*) FROM t WHERE g = 'x'", 0)
    assert (report.proof.by, report.proof.files_read) == ("full", 6)
    assert not report.is_physical
    (held,) = report.retained_in
    assert held.relative_path in base_files(Path(table.path))
    assert table.scan("g = 'x'", as_of=report.readable_at[-1]).count() == 1
    assert report.readable_at[0] == held.instant
    text = str(report)
    for part in (
        "1 row erased",
        "rewritten  1 file, ",
        "without any index",
        held.name[-20:],
        "are cleaned: maintenance.clean() does it",
        "bitmap",
    ):
        assert part in text
    assert report.to_dict()["retained_in"] == [{"path": held.relative_path, "bytes": held.size}]
    assert table.indexes.validate("idx").ok


def test_by_keys(table: Table) -> None:
    before = own(table)
    report = table.erase(keys=["0a1", "1c5", "nobody"], all_partitions=True)
    assert own(Table.open(table.path)) == [row for row in before if row[0] not in ("0a1", "1c5")]
    assert (report.rows, report.files_rewritten, report.plan) == (2, 2, None)
    assert report.proof.rows == 0
    assert "_hoodie_record_key IN ('0a1', '1c5', 'nobody')" in report.proof.sql
    assert len(report.retained_in) == 2
    assert report.tagging.keys_probed >= 3


def test_by_keys_with_their_partitions(table: Table) -> None:
    """A key counts in the partition that was named, in the erasure as in the proof."""
    table.insert(rows(("0a1", "c", "m", 1), schema=SCHEMA))
    report = table.erase(keys=[{"id": "0a1", "city": "a"}, {"id": "0b1", "city": "b"}])
    assert report.rows == 2
    assert report.is_verified
    assert "_hoodie_partition_path = 'city=a'" in report.proof.sql
    assert table.scan("id = '0a1'").to_arrow().column("city").to_pylist() == ["c"]
    frame = pa.table({"id": ["0a1"], "city": ["c"]})
    assert table.erase(frame).rows == 1


def test_every_older_version_is_named(table: Table) -> None:
    """Also those in which the row had other values, and in file groups that an overwrite replaced."""
    table.upsert(rows(("0a1", "a", "m", 100), schema=SCHEMA))
    table.upsert(rows(("0a2", "a", "m", 100), schema=SCHEMA))
    report = table.erase([{"id": "0a1", "city": "a"}])
    assert len(report.retained_in) == 3
    assert len(report.readable_at) == 4
    table.insert_overwrite(rows(("0a9", "a", "m", 1), schema=SCHEMA), partitions=["city=a"])
    table.insert(rows(("0a3", "a", "m", 1), schema=SCHEMA))
    again = table.erase([{"id": "0a3", "city": "a"}])
    assert {base.file_id for base in report.retained_in} < {base.file_id for base in again.retained_in}
    where_held = {base.relative_path for base in again.retained_in}
    assert where_held <= set(base_files(Path(table.path)))


def test_nothing_to_erase(table: Table) -> None:
    files = base_files(Path(table.path))
    for report in (table.erase(where="g = 'nobody'"), table.erase(keys=["nobody"], all_partitions=True)):
        assert (report.rows, report.instant, report.files_rewritten) == (0, None, 0)
        assert report.is_verified
        assert report.is_physical
        assert "(nothing to erase)" in str(report)
    assert base_files(Path(table.path)) == files


def test_a_row_that_is_gone_from_the_table_may_be_held_still(table: Table) -> None:
    """Deleted earlier, not by erase: the report of a later erasure says where the row still is."""
    table.delete(where="id = '0a1'")
    report = table.erase(keys=["0a1"], all_partitions=True)
    assert report.rows == 0
    assert len(report.retained_in) == 1
    assert report.readable_at
    assert "only in an older commit" in str(table.erase(where="id = '0a1'"))


@pytest.mark.parametrize("proof", ["full", "index"])
def test_the_proof_as_it_is_asked_for(table: Table, proof: Any) -> None:
    report = table.erase(where="g = 'x'", proof=proof)
    assert (report.proof.by, report.proof.rows) == (proof, 0)
    assert report.proof.files_read == (6 if proof == "full" else 0)
    with pytest.raises(InvalidInputError, match="proof is"):
        table.erase(where="g = 'x'", proof="none")  # type: ignore[arg-type]


def test_large_tables_are_proved_by_the_indexes(table: Table) -> None:
    assert with_context(table, limits=Limits(full_proof_bytes=10)).erase(where="g = 'x'").proof.by == "index"


def test_many_keys_are_looked_for_again(table: Table) -> None:
    report = with_context(table, limits=Limits(proof_keys=3)).erase(
        keys=[f"0{city}{i}" for city in "abc" for i in range(4)], all_partitions=True
    )
    assert (report.rows, report.proof.rows, report.proof.by) == (12, 0, "index")
    assert "the keys of the frame" in report.proof.sql
    assert len(report.retained_in) == 3


def test_a_proof_that_fails_says_so(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count comes from the data: rows that a delete left behind are told."""
    from lakedex.reports import WriteResult

    monkeypatch.setattr(erase_module, "run_write", lambda *a: WriteResult(instant=None, operation="DELETE"))
    report = table.erase(where="g = 'x'")
    assert not report.is_verified
    assert report.proof.rows == 1
    assert "they are NOT erased" in str(report)
    assert with_context(table, limits=Limits(proof_keys=0)).erase(keys=["0a1"], all_partitions=True).proof.rows == 1


def test_keys_of_several_columns_and_odd_texts(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int32()), ("v", pa.int32())])
    table = make(tmp_path / "t-1", schema=schema, record_key=["a", "b"])
    odd = ["it's", "back\\slash", 'quo"te', "a, b:c", "\U0001f600"]
    table.insert(pa.table({"a": odd, "b": [1, 2, 3, 4, 5], "v": [0] * 5}, schema=schema))
    report = table.erase(keys=[("it's", 1), ("back\\slash", 2), ("\U0001f600", 5)])
    assert report.rows == 3
    assert report.is_verified
    assert report.proof.sql.startswith("SELECT count(*) FROM `t-1` WHERE")
    assert sorted(table.scan().to_arrow().column("a").to_pylist()) == sorted(['quo"te', "a, b:c"])
    with pytest.raises(InvalidInputError, match="2 columns"):
        table.erase(keys=["it's"])


def test_what_is_refused(table: Table) -> None:
    for arguments in ({}, {"keys": ["1"], "where": "n = 1"}):
        with pytest.raises(InvalidInputError, match="one of the two"):
            table.erase(**arguments)
        with pytest.raises(InvalidInputError, match="one of the two"):
            table.delete(**arguments)
    assert table.erase(keys=[]).rows == 0
    assert table.delete([]).deleted == 0
    with pytest.raises(InvalidInputError, match="int is no condition; give SQL text"):
        table.erase(where=3)
    for keys, why in (
        ([["a"]], "column 'id' is string, and the values are list"),
        ([2**70], "column 'id' is string; the values cannot be read"),
        (["0a1"], r"partition column 'city' .*all_partitions=True"),
        ([{"id": "0a1", "City_": "a"}], "did you mean 'City_'"),
        ([{"id": "0a1", "city": "a", "gg": "x"}], "the frame's column 'gg' is not in the table; did you mean 'g'"),
        ([{"id": "0a1", "city": "a"}, {"id": "0a2"}], "the same columns"),
    ):
        with pytest.raises((InvalidInputError, SchemaMismatchError), match=why):
            table.erase(keys=keys)


def test_delete_takes_its_condition_by_name(table: Table) -> None:
    """Point 9: the same as by position."""
    assert table.delete(where="g = 'x'").deleted == 1
    assert table.delete(where="n = 5").deleted == 6
    assert table.delete(pa.table({"id": ["0a0"], "city": ["a"]})).deleted == 1


def test_rows_of_one_key_go_together(table: Table) -> None:
    """As a delete by condition is documented: by the keys of the matching rows."""
    table.insert(rows(("0a1", "a", "m", 77), schema=SCHEMA))
    report = table.erase(where="n = 77")
    assert report.rows == 2
    assert report.is_verified
    assert table.scan("id = '0a1'").count() == 0
