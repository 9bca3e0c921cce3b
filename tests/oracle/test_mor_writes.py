"""Merge-on-read tables that lakedex writes: Java and hudi-rs read them, Java goes on with them, and lakedex after Java."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_PLAIN, READ_SKIPPING, WRITE_BLOOM, JavaJudge
from judging import assert_same_answers, create, keyed, own_rows
from rust_judge import RustJudge

from lakedex import Table

EVENT, COMMIT = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"
COMPACT = {"hoodie__compact__inline": "true", "hoodie__compact__inline__max__delta__commits": "1"}
MODEL = dict[str, tuple[int, str, int]]


def part_of(key: str) -> str:
    return "ab"[int(key[1:]) % 2]


def batch(ts: int, value: int, *keys: str) -> pa.Table:
    """Rows of a key's own partition."""
    parts = [keyed([key], ts, value, part_of(key)) for key in keys]
    return pa.concat_tables(parts)


class Life:
    """A table and what is in it."""

    def __init__(self, path: Path, version: int, mode: str) -> None:
        options = {
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.write.table.version": version,
            "hoodie.record.merge.mode": mode,
            "hoodie.compact.inline": False,
        }
        schema = keyed([]).schema
        self.table = create(path, schema, partition_by="part", table_type="mor", options=options)
        self.path, self.version, self.by_time = path, version, mode == EVENT
        self.model: MODEL = {}

    def put(self, ts: int, value: int, *keys: str, least: int | None = None) -> pa.Table:
        """The rows; the model takes those that are not late, to stored rows or to ``least`` of a deleted one."""
        for key in keys:
            known = self.model.get(key, (least, "", 0))[0]
            if not self.by_time or known is None or ts >= known:
                self.model[key] = (ts, part_of(key), value)
        return batch(ts, value, *keys)

    def drop(self, *keys: str) -> pa.Table:
        for key in keys:
            del self.model[key]
        return batch(0, 0, *keys)

    def expected(self) -> pa.Table:
        rows = [{"key": key, "ts": ts, "part": part, "value": value} for key, (ts, part, value) in self.model.items()]
        return pa.Table.from_pylist(rows, schema=keyed([]).schema)

    def java(self, java: JavaJudge, rows: pa.Table, operation: str = "upsert", **more: str) -> None:
        options = {
            **WRITE_BLOOM,
            "hoodie.write.table.version": str(self.version),
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.compact.inline": "false",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        if self.version == 6:
            # Hudi 0.15 has no partition stats, and 1.1.1 writes none into a table of version 6.
            options.pop("hoodie.metadata.index.partition.stats.enable", None)
        java.write(self.path, rows, operation, partition="part", ordering="ts", options=options)


@pytest.mark.proves("version 6, merge-on-read", "Hudi 1.1.1", "reads", "writes")
@pytest.mark.proves("version 6, merge-on-read", "hudi-rs", "reads")
@pytest.mark.proves("version 8, merge-on-read", "Hudi 1.1.1", "reads", "writes")
@pytest.mark.proves("version 8, merge-on-read", "hudi-rs", "reads")
@pytest.mark.proves("version 9, merge-on-read", "Hudi 1.1.1", "reads", "writes")
@pytest.mark.proves("version 9, merge-on-read", "hudi-rs", "reads")
@pytest.mark.parametrize("mode", [EVENT, COMMIT], ids=["event", "commit"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_java_goes_on_with_our_log_files(
    tmp_path: Path, java: JavaJudge, rust: RustJudge, version: int, mode: str
) -> None:
    life = Life(tmp_path / "t", version, mode)
    table, path = life.table, life.path
    table.insert(life.put(10, 0, *(f"k{n}" for n in range(10))))
    table.upsert(life.put(11, 1, "k0", "k1"))
    table.upsert(pa.concat_tables([life.put(10, 2, "k2"), life.put(9, 2, "k3"), life.put(1, 2, "k20")]))
    table.delete(life.drop("k4", "k6").select(["key", "part"]))
    table.delete(where="key = 'k5'")
    life.drop("k5")
    table.upsert(pa.concat_tables([life.put(12, 3, "k4", least=10), life.put(5, 3, "k5", least=10)]))
    table.update({"value": "value + 10"}, where="key = 'k1'")
    life.model["k1"] = (11, "b", 11)
    assert_same_rows(own_rows(path), life.expected())
    assert_same_rows(java.read(path, options=READ_PLAIN), life.expected())
    assert_same_rows(rust.read(path), life.expected())

    life.java(java, pa.concat_tables([life.put(20, 4, "k0", "k4", "k7"), life.put(1, 4, "k30")]))
    if life.by_time:
        life.java(java, life.drop("k1"), "delete")
    assert_same_rows(own_rows(path), life.expected())
    table = Table.open(path)
    table.upsert(pa.concat_tables([life.put(21, 5, "k0", "k30"), life.put(30, 5, "k1")]))
    table.delete(where="key = 'k7'")
    life.drop("k7")
    assert_same_rows(own_rows(path), life.expected())
    if life.by_time:  # Java compacts log files of both.
        life.java(java, life.put(40, 6, "k0", "k2"), **COMPACT)
        assert not any(item.log_files for item in Table.open(path).snapshot().slices(["part=a"]))
        Table.open(path).upsert(life.put(50, 7, "k0", "k4", "k1"))
        assert_same_rows(own_rows(path), life.expected())
    assert_same_answers(path, java, ["value = 11", "value = 3", "ts > 10", "key = 'k6'", "value < 1"])
    assert_same_rows(java.read(path, options=READ_SKIPPING), life.expected())


@pytest.mark.parametrize("version", [6, 9])
def test_erased_and_renamed_rows_and_parquet_log_blocks(
    tmp_path: Path, java: JavaJudge, rust: RustJudge, version: int
) -> None:
    life = Life(tmp_path / "t", version, EVENT)
    table, path = life.table, life.path
    table.insert(life.put(10, 0, *(f"k{n}" for n in range(6))))
    table.upsert(life.put(11, 1, "k0", "k1"))
    table.delete(life.drop("k2").select(["key", "part"]))
    life.drop("k0")
    assert table.erase(keys=["k0", "k2"], all_partitions=True).is_verified
    table.upsert(life.put(12, 2, "k1", "k4"), options={"hoodie.logfile.data.block.format": "parquet"})
    assert_same_rows(java.read(path, options=READ_PLAIN), life.expected())
    assert_same_rows(rust.read(path), life.expected())
    life.java(java, pa.concat_tables([life.put(20, 4, "k1", "k4"), life.put(1, 4, "k0")]))
    assert_same_rows(own_rows(path), life.expected())
    table = Table.open(path)
    life.drop("k1")
    assert table.erase(where="value = 4 and key = 'k1'").is_verified
    table.rename_column("value", "amount")
    expected = life.expected().rename_columns(["key", "ts", "part", "amount"])
    assert_same_rows(own_rows(path), expected)
    assert_same_rows(java.read(path, options=READ_SKIPPING), expected)
    assert_same_rows(rust.read(path), expected)
