"""GLOBAL_BLOOM of Java and lakedex in turn on one table: keys move between partitions, come late, are deleted.

Java reads key ranges from footers here: with metadata ranges its global index knows only the files of the partitions
that the batch names (``HoodieGlobalBloomIndex`` replaces ``loadColumnRangesFromFiles`` alone), and doubles moved keys.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_PLAIN, WRITE_BLOOM_FOOTERS, JavaError, JavaJudge
from judging import own_rows
from rust_judge import RustJudge

from lakedex import Table
from lakedex.commit.write_preconditions import INDEX_TYPE

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("value", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
Row = tuple[str, str, int, int, bool]

FIRST: list[Row] = [(f"k{i}", "abc"[i % 3], 5, i, False) for i in range(12)]
ROUNDS: list[list[Row]] = [
    # moves, a late one, a repeat over partitions, a new key, a delete that names another partition
    [("k0", "b", 6, 100, False), ("k1", "c", 4, 101, False), ("k2", "a", 6, 102, False), ("k2", "d", 7, 103, False),
     ("n0", "d", 1, 104, False), ("k3", "c", 9, 105, True)],
    [("k0", "a", 7, 200, False), ("k4", "d", 5, 201, False), ("k2", "b", 6, 202, False), ("n1", "a", 1, 203, False),
     ("k5", "b", 4, 204, True), ("n0", "b", 2, 205, False)],
    [("k6", "b", 6, 300, False), ("k7", "a", 6, 301, False), ("k7", "c", 5, 302, False), ("k0", "c", 1, 303, False),
     ("n1", "c", 2, 304, True), ("k3", "a", 1, 305, False)],
    [("k8", "a", 6, 400, False), ("k4", "a", 6, 401, False), ("k2", "c", 8, 402, False), ("n1", "b", 3, 403, False)],
    [("k9", "c", 6, 500, False), ("k10", "b", 5, 501, False), ("k11", "a", 3, 502, False), ("k8", "c", 6, 503, True)],
    [("k0", "d", 8, 600, False), ("k6", "d", 7, 601, False), ("k8", "b", 1, 602, False), ("n0", "a", 2, 603, False)],
]  # fmt: skip
DELETED = ["k9", "k0", "nobody"]


def frame(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def expected(model: dict[str, Row], batch: list[Row], *, keeps: bool) -> None:
    newest: dict[str, Row] = {}
    for row in batch:
        if row[0] not in newest or row[2] >= newest[row[0]][2]:
            newest[row[0]] = row
    for key, row in newest.items():
        old = model.get(key)
        if old is not None and row[2] < old[2]:
            continue
        model.pop(key, None)
        if not row[4]:
            model[key] = (key, old[1] if keeps and old is not None else row[1], *row[2:])


@pytest.mark.parametrize("keeps", [False, True], ids=["partitions updated", "partitions kept"])
def test_java_and_lakedex_in_turn(java: JavaJudge, rust: RustJudge, tmp_path: Path, keeps: bool) -> None:
    """R4: both read the same rows, each key once."""
    index = {
        INDEX_TYPE: "GLOBAL_BLOOM",
        "hoodie.bloom.index.update.partition.path": "false" if keeps else "true",
    }
    table = Table.create(
        tmp_path, SCHEMA, name="t", record_key="key", partition_by="part", ordering_by="ts", options=index
    )
    model: dict[str, Row] = {}

    def java_writes(rows: pa.Table, operation: str = "upsert") -> None:
        # What the table was made with says that its index is global, to Java too.
        options = {name: value for name, value in {**WRITE_BLOOM_FOOTERS, **index}.items() if name != INDEX_TYPE}
        java.write(tmp_path, rows, operation, partition="part", ordering="ts", options=options)

    def check(*, whole: bool, by_java: bool = True) -> None:
        wanted = frame(list(model.values()))
        if by_java:
            assert_same_rows(java.read(tmp_path, options=READ_PLAIN), wanted, "key")
        # Of a row that Java kept in its old partition the file has the new partition's value, which only Java's reader
        # replaces by the folder's.
        names = SCHEMA.names if whole else [name for name in SCHEMA.names if name != "part"]
        assert_same_rows(own_rows(tmp_path).select(names), wanted.select(names), "key")
        assert_same_rows(rust.read(tmp_path).select(names), wanted.select(names), "key")

    table.upsert(frame(FIRST))
    expected(model, FIRST, keeps=keeps)
    if keeps:
        with pytest.raises(JavaError, match=r"Config conflict(.|\n)*hoodie.index.type:\s+BLOOM\s+GLOBAL_BLOOM"):
            java.write(tmp_path, frame(FIRST), "upsert", partition="part", ordering="ts", options=WRITE_BLOOM_FOOTERS)
    for number, batch in enumerate(ROUNDS):
        if number % 2 == 0:
            java_writes(frame(batch))
        else:
            table.upsert(frame(batch))
        expected(model, batch, keeps=keeps)
        check(whole=not keeps, by_java=number == 3)
    gone = frame([(key, "z", 0, 0, False) for key in DELETED])
    assert table.delete(gone.slice(0, 1)).deleted == 1
    java_writes(gone.slice(1), "delete")
    for key in DELETED:
        model.pop(key, None)
    check(whole=not keeps)
