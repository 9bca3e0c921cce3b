"""Java Hudi 1.1.1 and lakedex write one table in turn: nothing is lost, nothing doubled, whoever reads.

Java tags by the key ranges and bloom filters in lakedex's metadata table, merges its files, fills its small ones,
compacts, cleans and archives; lakedex does the same with what Java left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare import assert_same_rows
from java_judge import (
    READ_PLAIN,
    WRITE_BLOOM,
    WRITE_BLOOM_FOOTERS,
    WRITE_INDEXED,
    WRITE_V8,
    JavaJudge,
    metadata_compaction,
)
from judging import (
    ONE_FIELD_COMPLEX,
    OWN_FILE,
    assert_all_see,
    assert_same_answers,
    create,
    definitions,
    files_kept,
    keyed,
    own_rows,
    properties,
)
from rust_judge import RustJudge
from samples import NAN, all_types

from lakedex import Table
from table_checks import rounds

SCHEMA = keyed([]).schema
PARTS = "abc"


class Expected:
    """What a table should hold: the larger ordering value wins, the later one on a tie."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, str, int]] = {}

    def upsert(self, rows: pa.Table) -> pa.Table:
        """Take rows in; they are returned, to be written."""
        for row in rows.to_pylist():
            if row["key"] not in self.rows or row["ts"] >= self.rows[row["key"]][0]:
                self.rows[row["key"]] = (row["ts"], row["part"], row["value"])
        return rows

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            del self.rows[key]

    def update(self, value: int, above: int) -> None:
        """``update t set value = value + … where value > above``."""
        self.rows = {k: (ts, p, v + value if v > above else v) for k, (ts, p, v) in self.rows.items()}

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(
            [{"key": k, "ts": ts, "part": p, "value": v} for k, (ts, p, v) in self.rows.items()], SCHEMA
        )


def spread(keys: Iterable[str], ts: int, value: int) -> pa.Table:
    """Rows whose partition follows from the last character of the key."""
    return pa.concat_tables([keyed([key], ts, value, PARTS[ord(key[-1]) % 3]) for key in keys])


@pytest.mark.proves("version 8, copy-on-write", "Hudi 1.1.1", "reads", "writes")
@pytest.mark.proves("version 8, copy-on-write", "hudi-rs", "reads")
@pytest.mark.parametrize(
    "partition, tagging, count",
    [
        ("part", WRITE_BLOOM, rounds(3, 2)),
        (None, WRITE_BLOOM, rounds(3, 1)),
        ("part", WRITE_BLOOM_FOOTERS, rounds(2, 1)),
    ],
    ids=["partitioned", "non-partitioned", "footers"],
)
def test_writers_in_turn(
    java: JavaJudge, rust: RustJudge, tmp_path: Path, partition: str | None, tagging: Mapping[str, str], count: int
) -> None:
    options = {**tagging, **metadata_compaction(3)}
    table = create(tmp_path, SCHEMA, partition_by=partition or ())
    expected = Expected()
    table.insert(expected.upsert(spread([f"a{i:02d}" for i in range(6)], 10, 1)))
    table.insert(expected.upsert(spread([f"m{i:02d}" for i in range(6)], 10, 2)))

    def java_writes(rows: pa.Table, operation: str = "upsert") -> None:
        java.write(tmp_path, rows, operation, partition=partition, ordering="ts", options=options)

    for number in range(count):
        ts = 20 + 10 * number
        # Known keys of several files, a late row, new keys between, before and after the known ones.
        newer = spread(["a01", "m02", f"n{number}1", f"A{number}", f"z{number}"], ts, 100 + number)
        java_writes(expected.upsert(pa.concat_tables([newer, spread(["a03", "m04"], 5, 900)])))
        assert_all_see(tmp_path, java, rust, expected.table())

        newer = spread(["a01", f"n{number}1", f"n{number}2", "m05"], ts + 1, 200 + number)
        result = table.upsert(expected.upsert(pa.concat_tables([newer, spread(["m02", f"z{number}"], 6, 901)])))
        assert (result.inserted, result.updated) == (1, 3)
        result = table.delete(pa.table({"key": [f"a{number + 3:02d}", f"A{number}"]}), all_partitions=True)
        expected.delete([f"a{number + 3:02d}", f"A{number}"])
        assert result.deleted == 2
        table.update(set={"value": "value + 1000"}, where="value > 101")
        expected.update(1000, 101)
        assert_all_see(tmp_path, java, rust, expected.table())

    java_writes(spread(["a00", "m00"], 99, 0), "delete")
    expected.delete(["a00", "m00"])
    assert_same_rows(own_rows(tmp_path), expected.table(), "key")
    assert_same_answers(tmp_path, java, ["value > 1000 and part = 'a'", "key = 'a01'", "ts >= 21 and value < 1300"])
    assert properties(tmp_path)["hoodie.table.version"] == "8"
    compactions = (tmp_path / ".hoodie" / "metadata" / ".hoodie" / "timeline").glob("*.compaction.requested")
    assert list(compactions)


def test_file_group_that_a_delete_emptied(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    for options in (WRITE_BLOOM, WRITE_BLOOM_FOOTERS):
        path = tmp_path / options["hoodie.bloom.index.use.metadata"]
        table = create(path, SCHEMA, partition_by="part")
        table.insert(keyed(["k1", "k2"], 1, 1))
        table.insert(keyed(["k3"], 1, 1))
        assert table.delete(pa.table({"key": ["k1", "k2"]}), all_partitions=True).deleted == 2
        assert_all_see(path, java, rust, keyed(["k3"], 1, 1))

        # By small-file handling the new row goes into the emptied group.
        java.write(path, keyed(["k1", "k4"], 2, 2), partition="part", ordering="ts", options=options)
        expected = pa.concat_tables([keyed(["k3"], 1, 1), keyed(["k1", "k4"], 2, 2)])
        assert_all_see(path, java, rust, expected)
        assert table.delete(where="true").deleted == 3
        java.write(path, keyed(["k3"], 0, 3), partition="part", ordering="ts", options=options)
        assert_all_see(path, java, rust, keyed(["k3"], 0, 3))


def test_composite_keys(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    def rows(pairs: list[tuple[str | None, int]], value: int) -> pa.Table:
        names, numbers = zip(*pairs, strict=True)
        count = len(pairs)
        columns = {
            "x": list(names),
            "y": pa.array(numbers, pa.int32()),
            "ts": [value] * count,
            "value": [value] * count,
        }
        return pa.table({**columns, "part": ["p/q"] * count})

    first, second, third = [("a,b", 1), ("a", 1)], [("a", 1), (None, 1), ("", 1)], [(None, 1), ("c", 3)]
    table = create(tmp_path, rows(first, 1).schema, record_key=["x", "y"], partition_by="part")
    table.insert(rows(first, 1))
    java.write(tmp_path, rows(second, 2), key=["x", "y"], partition="part", ordering="ts", options=WRITE_BLOOM)
    result = table.upsert(rows(third, 3))
    assert (result.updated, result.inserted) == (1, 1)
    java.write(
        tmp_path, rows(first[:1] + third, 4), key=["x", "y"], partition="part", ordering="ts", options=WRITE_BLOOM
    )

    expected = pa.concat_tables([rows([("a,b", 1), (None, 1), ("c", 3)], 4), rows([("a", 1), ("", 1)], 2)])
    assert_all_see(tmp_path, java, rust, expected, ["x", "y"])


# Past U+D7FF the orders of UTF-8 and UTF-16 differ: by the former "aＡ" < "a😀", by the latter the reverse.
BEYOND = ["aＡ", "a😀", "b\ue000", "b\U0010ffff", "plain"]


def test_keys_past_the_basic_plane(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """The bounds that lakedex stores hold in both orders, so that Java's tagging finds each key in its file."""
    for options in (WRITE_BLOOM, WRITE_BLOOM_FOOTERS):
        path = tmp_path / options["hoodie.bloom.index.use.metadata"]
        table = create(path, SCHEMA)
        table.insert(keyed(BEYOND[:2], 1, 1))
        table.insert(keyed(BEYOND[2:], 1, 1))
        java.write(path, keyed([*BEYOND, "new😀"], 2, 2), ordering="ts", options=options)
        assert_all_see(path, java, rust, keyed([*BEYOND, "new😀"], 2, 2))
        # Java's own bounds of these files hold in one order only: lakedex does not take them for a proof.
        result = table.upsert(keyed([*BEYOND, "more😀"], 3, 3))
        assert (result.updated, result.inserted) == (5, 1)
        expected = pa.concat_tables([keyed([*BEYOND, "more😀"], 3, 3), keyed(["new😀"], 2, 2)])
        assert_all_see(path, java, rust, expected)
        # Every file that is in both writers' hands has lakedex's bounds again.
        java.write(path, keyed(BEYOND, 4, 4), ordering="ts", options={**options, **OWN_FILE})
        assert own_rows(path).num_rows == 7


# --------------------------------------------------------------------------------------------- tables that Java made
MADE = {
    # With filters of Hudi's default size.
    "indexed": {**WRITE_INDEXED, "hoodie.index.bloom.num_entries": "60000"},
    "no bloom filters": {**WRITE_INDEXED, "hoodie.metadata.index.bloom.filter.enable": "false"},
    "no column stats": {
        **WRITE_INDEXED,
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    },
    "no metadata": {**WRITE_V8, "hoodie.metadata.enable": "false"},
}


@pytest.mark.proves("version 8, copy-on-write", "Hudi 1.1.1", "made")
@pytest.mark.parametrize("name", MADE)
def test_we_write_to_tables_that_java_made(java: JavaJudge, rust: RustJudge, tmp_path: Path, name: str) -> None:
    def java_writes(rows: pa.Table, operation: str = "upsert") -> None:
        java.write(tmp_path, rows, operation, partition="part", ordering="ts", options={**MADE[name], **OWN_FILE})

    expected = Expected()
    java_writes(expected.upsert(spread([f"a{i}" for i in range(4)], 10, 1)), "bulk_insert")
    java_writes(expected.upsert(spread([f"m{i}" for i in range(4)], 10, 1)), "insert")
    before = properties(tmp_path).get("hoodie.table.metadata.partitions", "")
    table = Table.open(tmp_path, options=OWN_FILE)
    result = table.upsert(expected.upsert(spread(["a1", "m1", "z1"], 11, 2)))
    assert (result.updated, result.inserted) == (2, 1)
    table.delete(where="key = 'm2'")
    expected.delete(["m2"])
    seen_by_rust = None if name == "no metadata" else rust
    assert_all_see(tmp_path, java, seen_by_rust, expected.table())
    java_writes(expected.upsert(spread(["a1", "z1", "z2"], 12, 3)))
    table.insert(expected.upsert(spread(["y1"], 12, 4)))
    assert_all_see(tmp_path, java, seen_by_rust, expected.table())
    assert_same_answers(tmp_path, java, ["value >= 2 and key > 'a'", "part = 'b' and value = 1"])
    # Where there is no metadata table our write makes one, as Hudi's would.
    made = "bloom_filters,column_stats,files,partition_stats"
    assert properties(tmp_path)["hoodie.table.metadata.partitions"] == (before or made)


@pytest.mark.parametrize("named", [True, False], ids=["field:value", "bare"])
def test_complex_keys_of_one_field(java: JavaJudge, rust: RustJudge, tmp_path: Path, named: bool) -> None:
    """The table does not say how its keys are written; its rows do."""
    options = {**WRITE_BLOOM, **ONE_FIELD_COMPLEX, "hoodie.write.complex.keygen.new.encoding": str(not named).lower()}
    expected = Expected()

    def java_writes(rows: pa.Table) -> None:
        java.write(tmp_path, rows, partition=["part", "value"], ordering="ts", options=options)

    java_writes(expected.upsert(spread(["k1", "k2", "k3"], 1, 1)))
    table = Table.open(tmp_path)
    result = table.upsert(expected.upsert(spread(["k2", "k4"], 2, 1)))
    assert (result.updated, result.inserted) == (1, 1)
    java_writes(expected.upsert(spread(["k3", "k4"], 3, 1)))
    stored = java.read(tmp_path, columns=["_hoodie_record_key"]).column(0).to_pylist()
    assert sorted(stored) == [f"key:k{n}" if named else f"k{n}" for n in (1, 2, 3, 4)]
    assert_all_see(tmp_path, java, rust, expected.table())
    assert table.delete(pa.table({"key": ["k1"]}), all_partitions=True).deleted == 1


def column_chunks(path: Path) -> list[tuple[str, bytes]]:
    """Path and bytes of each column chunk of a file with a single row group."""
    content = path.read_bytes()
    group, found = pq.read_metadata(path).row_group(0), []
    for place in range(group.num_columns):
        chunk = group.column(place)
        start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        found.append((chunk.path_in_schema, content[start : start + chunk.total_compressed_size]))
    return found


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_all_types(java: JavaJudge, tmp_path: Path, codec: str) -> None:
    """With Java's own compression an update takes over the column chunks that Java wrote."""
    rows = all_types(local_timestamp=True)
    java.write(tmp_path, rows, "bulk_insert", partition="part", ordering="ts", options=WRITE_INDEXED)
    table = Table.open(tmp_path, options={"hoodie.parquet.compression.codec": codec})
    assert_same_rows(own_rows(tmp_path), rows, "key")
    newer = rows.set_column(1, "ts", pa.array([9, 9, 9, 9], pa.int64()))
    before = set(tmp_path.rglob("*.parquet"))
    assert table.upsert(newer.slice(1, 2)).updated == 2
    theirs = {chunk for path in before for chunk in column_chunks(path)}
    ours = [chunk for path in set(tmp_path.rglob("*.parquet")) - before for chunk in column_chunks(path)]
    assert sum(chunk in theirs for chunk in ours) >= (10 if codec == "gzip" else 0)
    expected = pa.concat_tables([rows.slice(0, 1), newer.slice(1, 2), rows.slice(3, 1)])
    assert_all_see(tmp_path, java, expected=expected)
    java.write(tmp_path, newer, partition="part", ordering="ts", options=WRITE_BLOOM)
    assert_all_see(tmp_path, java, expected=newer)


def test_wrong_statistics_of_java(java: JavaJudge, tmp_path: Path) -> None:
    """Java takes NaN for 0.0..0.0 and a file with a 5 KB string for all null. lakedex does not believe it, and puts
    it right for every file of a partition that it writes to."""

    def rows(keys: list[str], numbers: list[float | None], texts: list[str | None], part: str = "a") -> pa.Table:
        count = len(keys)
        columns: dict[str, Any] = {"key": keys, "ts": [1] * count, "part": [part] * count}
        return pa.table({**columns, "d": pa.array(numbers, pa.float64()), "s": pa.array(texts, pa.string())})

    files = [
        rows(["k1", "k2"], [NAN, 7.0], ["x", "y"]),
        rows(["k3", "k4"], [3.0, 4.0], ["z" * 5000, "q"]),
        rows(["k5"], [None], [None]),
        rows(["k6"], [9.0], ["b"], "b"),
    ]
    for data in files:
        java.write(tmp_path, data, "insert", partition="part", ordering="ts", options={**WRITE_INDEXED, **OWN_FILE})

    filters = ["d = 7", "d > 5 and key > 'k'", "d = 0", "s = 'q'", "s > 'y'", "s is null", "d is null"]
    filters += ["d >= 9 or s = 'x'"]
    table = Table.open(tmp_path)

    def right(where: str) -> list[str]:
        return sorted(java.read(tmp_path, where, ["key"], READ_PLAIN).column(0).to_pylist())

    for where in filters:
        assert sorted(table.scan(where, ["key"]).to_arrow().column(0).to_pylist()) == right(where), where
    assert files_kept(tmp_path, "key = 'k6'") == 1

    table.upsert(rows(["k5"], [2.0], ["c"]))
    assert_all_see(tmp_path, java)
    assert_same_answers(
        tmp_path, java, [*filters[1:6], "part = 'a' and d = 7", "d = double('NaN')", "d > 1000 and s = 'x'"]
    )
    listed = definitions(tmp_path)["sourceFields"]
    assert "s" in listed
    assert "d" not in listed  # lakedex saw NaN when it computed the statistics of Java's file


# ------------------------------------------------------------------------------------------------ crashes, services
def uncommit(path: Path) -> str:
    """Take back the completion of the newest commit, as if its writer had died before it, long ago."""
    timeline = path / ".hoodie" / "timeline"
    newest = max(timeline.glob("*.commit"))
    newest.unlink()
    (timeline / f".{newest.name}.crc").unlink(missing_ok=True)
    instant = newest.name.split("_")[0]
    for file in timeline.glob(f"{instant}*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    return instant


def base_files(path: Path) -> set[str]:
    return {file.name for file in path.rglob("*.parquet") if ".hoodie" not in file.parts}


@pytest.mark.parametrize("metadata_too", [True, False], ids=["before the completion", "before the metadata"])
def test_java_undoes_our_failed_write(
    java: JavaJudge, rust: RustJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata_too: bool
) -> None:
    table = create(tmp_path, SCHEMA, partition_by="part")
    table.insert(keyed(["k1", "k2"], 1, 1))
    before = base_files(tmp_path)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # The writer is gone at once: it undoes nothing itself.
    target = "complete" if metadata_too else "CommitContext"
    with monkeypatch.context() as patched:
        patched.setattr(f"lakedex.commit.transaction.{target}", die)
        patched.setattr("lakedex.commit.transaction.Transaction.abort", lambda self, error: self._heartbeat.stop())
        with pytest.raises(KeyboardInterrupt):
            table.upsert(keyed(["k1", "k3"], 2, 2))
    left = base_files(tmp_path) - before
    assert len(left) == 2
    assert_all_see(tmp_path, java, rust, keyed(["k1", "k2"], 1, 1))

    java.write(tmp_path, keyed(["k1", "k4"], 3, 3), partition="part", ordering="ts", options=WRITE_BLOOM)
    expected = pa.concat_tables([keyed(["k2"], 1, 1), keyed(["k1", "k4"], 3, 3)])
    assert_all_see(tmp_path, java, rust, expected)
    assert list((tmp_path / ".hoodie" / "timeline").glob("*.rollback"))
    assert not left & base_files(tmp_path)
    assert table.upsert(keyed(["k1", "k3"], 4, 4)).updated == 1
    assert_all_see(tmp_path, java, rust)
    assert own_rows(tmp_path).num_rows == 4


def test_we_undo_a_failed_write_of_java(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    options = {**WRITE_BLOOM, **metadata_compaction(3)}
    java.write(tmp_path, keyed(["k1", "k2"], 1, 1), "insert", partition="part", ordering="ts", options=options)
    table = Table.open(tmp_path)
    table.upsert(keyed(["k2"], 2, 2))
    java.write(tmp_path, keyed(["k1", "k3"], 3, 3), partition="part", ordering="ts", options=options)
    failed = uncommit(tmp_path)

    kept = pa.concat_tables([keyed(["k1"], 1, 1), keyed(["k2"], 2, 2)])
    assert_all_see(tmp_path, java, rust, kept)
    result = table.upsert(keyed(["k4"], 4, 4))
    assert any(failed in note for note in result.notes)
    expected = pa.concat_tables([kept, keyed(["k4"], 4, 4)])
    assert_all_see(tmp_path, java, rust, expected)
    java.write(tmp_path, keyed(["k1", "k3"], 5, 5), partition="part", ordering="ts", options=options)
    assert_all_see(tmp_path, java, rust, pa.concat_tables([expected.slice(1), keyed(["k1", "k3"], 5, 5)]))


SERVICES = {
    **WRITE_BLOOM,
    **metadata_compaction(2),
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.archive.merge.enable": "false",
    "hoodie.commits.archival.batch": "1",
}


def test_java_cleans_and_archives(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    table = create(tmp_path, SCHEMA, partition_by="part")
    expected = Expected()
    table.insert(expected.upsert(spread([f"k{i}" for i in range(6)], 0, 0)))
    table.insert(expected.upsert(spread(["still"], 0, 0)))  # in a file group that nobody touches again
    for number in range(1, 5):
        rows = expected.upsert(spread(["k1", "k2", f"n{number}"], number, number))
        java.write(tmp_path, rows, partition="part", ordering="ts", options=SERVICES)
        table.upsert(expected.upsert(spread(["k2", "k3"], number, 10 + number)))
        if number == 3:
            assert_all_see(tmp_path, java, rust, expected.table())

    timeline = tmp_path / ".hoodie" / "timeline"
    assert list(timeline.glob("*.clean"))
    assert list((timeline / "history").glob("*.parquet"))
    assert len(list(timeline.glob("*.commit"))) < 8
    assert_all_see(tmp_path, java, rust, expected.table())
    table.delete(where="key = 'still'")
    expected.delete(["still"])
    assert_all_see(tmp_path, java, rust, expected.table())
    assert_same_answers(tmp_path, java, ["value >= 11", "key = 'k4' and value = 0"])
