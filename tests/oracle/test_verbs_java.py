"""Merges, emptied partitions and batches that count once before Java's eyes, Java writing in between."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from compare import assert_same_rows
from java_judge import READ_SKIPPING, WRITE_BLOOM, JavaJudge
from judging import assert_all_see, create, keyed
from rust_judge import RustJudge

from lakedex import Table
from lakedex.commit.idempotency import last_batches

SCHEMA = keyed([]).schema
ARCHIVING = {
    **WRITE_BLOOM,
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.commits.archival.batch": "1",
}


def test_partitions_emptied_in_turn(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Java takes our DELETE_PARTITION for its own and goes on, and the reverse; no stats of what was there."""
    table = create(tmp_path, SCHEMA, partition_by="part")
    in_a, in_b, in_c = keyed(["k1", "k2"], 1, 9), keyed(["k3"], 1, 3, "b"), keyed(["k5"], 1, 5, "c")
    table.insert(pa.concat_tables([in_a, in_b, in_c]))
    table.delete_partition({"part": "a"})
    in_a = keyed(["k1", "k7"], 2, 1)
    java.write(tmp_path, in_a, partition="part", ordering="ts", options=WRITE_BLOOM)
    assert_same_rows(rust.read(tmp_path), pa.concat_tables([in_a, in_b, in_c]), "key")
    found = java.matches(tmp_path, ["value = 1", "value = 9", "value >= 3"], "key", READ_SKIPPING)
    assert found == [["k1", "k7"], [], ["k3", "k5"]]
    dropped = {**WRITE_BLOOM, "hoodie.datasource.write.partitions.to.delete": "part=b"}
    java.write(tmp_path, in_b, "delete_partition", partition="part", ordering="ts", options=dropped)
    merge = table.merge(keyed(["k1", "k3"], 0, 4, "b"), "t.key = s.key")
    result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated) == (1, 1)
    java.write(tmp_path, keyed(["k1"], 5, 6, "b"), partition="part", ordering="ts", options=WRITE_BLOOM)
    assert_all_see(
        tmp_path,
        java,
        rust,
        pa.concat_tables([keyed(["k7"], 2, 1), keyed(["k3"], 0, 4, "b"), keyed(["k1"], 5, 6, "b"), in_c]),
    )


def test_a_batch_outlives_java_commits_and_its_archival(java: JavaJudge, tmp_path: Path) -> None:
    table = create(tmp_path, SCHEMA, partition_by="part")
    table.upsert(keyed(["k1"], 1, 1), txn=("other", 5))
    first = table.upsert(keyed(["k2"], 1, 1), txn=("app", 7))
    for number in range(2, 7):
        java.write(tmp_path, keyed(["k1"], number, number), partition="part", ordering="ts", options=ARCHIVING)
    snapshot = table.snapshot()
    assert not snapshot.timeline.contains(str(first.instant)), "the commit is archived"
    assert last_batches(snapshot)["app"] == (7, first.instant)
    again = Table.open(tmp_path).upsert(keyed(["k2"], 9, 9), txn=("app", 7))
    assert again.instant is None
    assert table.upsert(keyed(["k3"], 1, 1), txn=("app", 8)).inserted == 1
    java.write(tmp_path, keyed(["k1"], 9, 9), partition="part", ordering="ts", options=ARCHIVING)
    assert {name: batch for name, (batch, _) in last_batches(table.snapshot()).items()} == {
        "other": 5,
        "app": 8,
    }
    expected = pa.concat_tables([keyed(["k1"], 9, 9), keyed(["k2"], 1, 1), keyed(["k3"], 1, 1)])
    assert_all_see(tmp_path, java, None, expected)
