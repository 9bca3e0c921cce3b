"""Tables of version 6: Java Hudi 0.15.0, Java Hudi 1.1.1 and lakedex write them in turn.

The metadata table has its bloom index on: every writer tags by it, and lakedex reads files and bounds from it, whoever
wrote them. Hudi 0.15.0 compacts the metadata table every few delta commits, also those of lakedex. There are three
rounds; in CI two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_SKIPPING, WRITE_V8, JavaJudge, metadata_compaction
from judging import OWN_FILE, assert_same_answers, create, keyed, own_rows, properties
from rust_judge import RustJudge
from samples import NAN
from test_java_writes import SCHEMA, Expected, base_files, spread

from lakedex import Table
from table_checks import rounds

# Hudi 0.15.0 is a second JVM, which one worker of pytest-xdist starts and ends.
pytestmark = pytest.mark.xdist_group("Hudi 0.15.0")

SIX = {"hoodie.write.table.version": "6"}
WRITE_SIX: Mapping[str, str] = {
    **WRITE_V8,
    **SIX,
    **metadata_compaction(3),
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.index.type": "BLOOM",
    "hoodie.bloom.index.use.metadata": "true",
    # By default Hudi 0.15 lets the row that comes last win, whatever its ordering value.
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
}
FILTERS = ["value > 1000 and part = 'a'", "key = 'a01'", "ts >= 21 and value < 1300"]


def write(java: JavaJudge, path: Path, rows: pa.Table, operation: str = "upsert", **options: str) -> None:
    java.write(path, rows, operation, partition="part", options={**WRITE_SIX, **options})


def check(path: Path, java: JavaJudge, rust: RustJudge, expected: pa.Table) -> None:
    """lakedex, Java by the metadata table and hudi-rs read these rows, and the indexes agree with the data."""
    assert_same_rows(java.read(path, options=READ_SKIPPING), expected, "key")
    look(path, rust, expected)


def look(path: Path, rust: RustJudge, expected: pa.Table) -> None:
    """The same without Java's eyes."""
    assert_same_rows(own_rows(path), expected, "key")
    assert_same_rows(rust.read(path), expected, "key")
    for name in ("column_stats", "bloom_filters"):
        assert Table.open(path).indexes.validate(name).ok, name


@pytest.mark.proves("version 6, copy-on-write", "Hudi 0.15.0", "reads", "writes", "made")
@pytest.mark.proves("version 6, copy-on-write", "Hudi 1.1.1", "reads", "writes")
@pytest.mark.proves("version 6, copy-on-write", "hudi-rs", "reads")
@pytest.mark.parametrize(("release", "maker"), [("0.15.0", "java"), ("0.15.0", "lakedex"), ("1.1.1", "lakedex")])
def test_in_turn(request: pytest.FixtureRequest, rust: RustJudge, tmp_path: Path, release: str, maker: str) -> None:
    java: JavaJudge = request.getfixturevalue("old_java" if release == "0.15.0" else "java")
    expected = Expected()
    first = expected.upsert(spread([f"a{i:02d}" for i in range(6)], 10, 1))
    if maker == "java":
        write(java, tmp_path, first, "insert", **OWN_FILE)
        table = Table.open(tmp_path, options=OWN_FILE)
    else:
        table = create(tmp_path, SCHEMA, partition_by="part", options={**OWN_FILE, **SIX})
        table.insert(first)
    table.insert(expected.upsert(spread([f"m{i:02d}" for i in range(6)], 10, 2)))
    for number in range(rounds(3, 2)):
        ts = 20 + 10 * number
        newer = spread(["a01", "m02", f"n{number}1", f"A{number}", f"z{number}"], ts, 100 + number)
        write(java, tmp_path, expected.upsert(pa.concat_tables([newer, spread(["a03", "m04"], 5, 900)])))
        assert_same_rows(own_rows(tmp_path), expected.table(), "key")

        newer = spread(["a01", f"n{number}1", f"n{number}2", "m05"], ts + 1, 200 + number)
        result = table.upsert(expected.upsert(pa.concat_tables([newer, spread(["m02", f"z{number}"], 6, 901)])))
        assert (result.inserted, result.updated) == (1, 3)
        result = table.delete(pa.table({"key": [f"a{number + 3:02d}", f"A{number}"]}), all_partitions=True)
        expected.delete([f"a{number + 3:02d}", f"A{number}"])
        assert result.deleted == 2
        table.update(set={"value": "value + 1000"}, where="value > 101")
        expected.update(1000, 101)
        look(tmp_path, rust, expected.table())
    check(tmp_path, java, rust, expected.table())
    assert_same_answers(tmp_path, java, FILTERS)
    assert list((tmp_path / ".hoodie" / "metadata" / ".hoodie").glob("*001.commit"))
    assert properties(tmp_path)["hoodie.table.version"] == "6"
    assert properties(tmp_path)["hoodie.table.metadata.partitions"] == "bloom_filters,column_stats,files"


def uncommit(path: Path) -> str:
    """Take back the completion of the newest commit, as if its writer had died before it, long ago."""
    newest = max((path / ".hoodie").glob("*.commit"))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    instant = newest.name.split(".")[0]
    for file in (path / ".hoodie").glob(f"{instant}*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    return instant


def test_failed_writes(old_java: JavaJudge, rust: RustJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R53, R54: each undoes what the other left when it died between the metadata commit and its own."""
    table = create(tmp_path, SCHEMA, partition_by="part", options={**OWN_FILE, **SIX})
    table.insert(keyed(["k1", "k2"], 1, 1))
    before = base_files(tmp_path)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("lakedex.commit.transaction.complete", die)
        patched.setattr("lakedex.commit.transaction.Transaction.abort", lambda self, error: self._heartbeat.stop())
        with pytest.raises(KeyboardInterrupt):
            table.upsert(keyed(["k1", "k3"], 2, 2))
    left = base_files(tmp_path) - before
    assert len(left) == 2
    look(tmp_path, rust, keyed(["k1", "k2"], 1, 1))

    write(old_java, tmp_path, keyed(["k1", "k4"], 3, 3))
    expected = pa.concat_tables([keyed(["k2"], 1, 1), keyed(["k1", "k4"], 3, 3)])
    check(tmp_path, old_java, rust, expected)
    assert list((tmp_path / ".hoodie").glob("*.rollback"))
    assert not left & base_files(tmp_path)

    assert table.upsert(keyed(["k2"], 4, 4)).updated == 1
    write(old_java, tmp_path, keyed(["k1", "k5"], 5, 5))
    failed = uncommit(tmp_path)
    result = table.upsert(keyed(["k6"], 6, 6))
    assert any(failed in note for note in result.notes)
    expected = pa.concat_tables([keyed(["k2"], 4, 4), keyed(["k1", "k4"], 3, 3), keyed(["k6"], 6, 6)])
    look(tmp_path, rust, expected)
    write(old_java, tmp_path, keyed(["k1", "k5"], 7, 7))
    expected = pa.concat_tables([expected.slice(0, 1), expected.slice(2), keyed(["k1", "k5"], 7, 7)])
    check(tmp_path, old_java, rust, expected)


def test_an_index_built_on_a_table_of_0_15(
    old_java: JavaJudge, java: JavaJudge, rust: RustJudge, tmp_path: Path
) -> None:
    """Java tags by the filters that lakedex built, and no reader takes a file with NaN for one without matches."""

    def rows(keys: list[str], ts: int, numbers: list[float]) -> pa.Table:
        return keyed(keys, ts, 1).append_column("d", pa.array(numbers, pa.float64()))

    no_index = {"hoodie.metadata.index.bloom.filter.enable": "false", "hoodie.bloom.index.use.metadata": "false"}
    write(old_java, tmp_path, rows(["k1", "k2"], 1, [1.0, 2.0]), "insert", **OWN_FILE, **no_index)
    write(old_java, tmp_path, rows(["k3"], 1, [3.0]), "insert_overwrite_table", **OWN_FILE, **no_index)
    table = Table.open(tmp_path, options=OWN_FILE)
    table.insert(rows(["k1", "k2"], 2, [7.0, NAN]))
    assert table.indexes.create("bloom_filters").files == 2
    check(tmp_path, old_java, rust, pa.concat_tables([rows(["k3"], 1, [3.0]), rows(["k1", "k2"], 2, [7.0, NAN])]))
    filters = ["d = 7", "d > 100", "d = double('NaN')", "d <= 3"]
    assert_same_answers(tmp_path, old_java, filters)
    assert_same_answers(tmp_path, java, filters)

    write(old_java, tmp_path, rows(["k1", "k4", "k5"], 3, [1.0, 4.0, 5.0]))
    expected = [
        rows(["k3"], 1, [3.0]),
        rows(["k2"], 2, [NAN]),
        rows(["k1", "k4", "k5"], 3, [1.0, 4.0, 5.0]),
    ]
    assert_same_rows(own_rows(tmp_path), pa.concat_tables(expected), "key")
    assert table.indexes.validate("bloom_filters").ok
