"""A table object that lives on plans as one that was opened just now does."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex import Table
from table_kit import properties, set_properties

CITIES = ["a", "b", "c", "d"]
WHERES = [
    "n < 10",
    "n between 20 and 25 and city <> 'a'",
    "city in ('b', 'c') and n > 40",
    "s like 'v3%' or n is null",
    "s is null",
    "id = 'k3'",
    "n is not null and s > 'v5'",
    "d > 2.5",
]

ROW = st.tuples(
    st.integers(0, 30),
    st.sampled_from(CITIES),
    st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), st.integers(0, 60).map(lambda n: f"v{n}")),
    st.one_of(st.none(), st.floats(-5, 5), st.just(float("nan"))),
)
WRITE = st.tuples(
    st.sampled_from(["upsert", "insert"]), st.lists(ROW, min_size=1, max_size=8, unique_by=lambda r: r[0])
)
DELETE = st.tuples(st.just("delete"), st.integers(0, 60))
LOSE = st.tuples(st.just("lose"), st.sampled_from(["column_stats", "partition_stats", "bloom_filters"]))
STEP = st.one_of(WRITE, WRITE, DELETE, LOSE)


def frame(rows: list[tuple[object, ...]]) -> pa.Table:
    ids, cities, n, s, d = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array([f"k{i}" for i in ids]),
            "city": pa.array(cities),
            "n": pa.array(n, pa.int64()),
            "s": pa.array(s, pa.string()),
            "d": pa.array(d, pa.float64()),
        }
    )


def lose(path: Path, partition: str) -> None:
    """What a Java writer does whose settings do not have the index."""
    kept = [name for name in properties(path)["hoodie.table.metadata.partitions"].split(",") if name != partition]
    set_properties(path, {"hoodie.table.metadata.partitions": ",".join(kept)})


# Every example writes a table several times.
@settings(max_examples=max(10, settings().max_examples // 5))
@given(st.lists(STEP, min_size=1, max_size=6))
def test_plans_of_a_table_that_lives_on(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        options = {"hoodie.parquet.small.file.limit": "0"}
        Table.create(path, frame([(0, "a", 1, "v", 1.0)]).schema, record_key="id", partition_by="city", options=options)
        lasting = Table.open(path, options=options)
        before: list[str] = []
        counts: dict[tuple[str, str], int] = {}
        for action, what in steps:
            writer = Table.open(path, options=options)
            if action == "lose":
                lose(path, str(what))
            elif action == "delete":
                writer.delete(where=f"n < {what}")
            else:
                getattr(writer, action)(frame(what))  # type: ignore[arg-type]
            instant = lasting.inspect.snapshot.instant
            before += [instant] if instant is not None and instant not in before else []
            for where in WHERES:
                for then in before:
                    # What was there then does not change: it is counted once, when the state is new.
                    if (then, where) not in counts:
                        counts[then, where] = lasting.scan(where, as_of=then, use_indexes=False).count()
                    assert lasting.scan(where, as_of=then).count() == counts[then, where], (then, where)
                kept, fresh = lasting.scan(where).plan(), Table.open(path).scan(where).plan()
                assert kept.files_kept == fresh.files_kept, where
                assert [(s.name, s.before, s.after, s.note) for s in kept.stages] == [
                    (s.name, s.before, s.after, s.note) for s in fresh.stages
                ], where
                assert kept.unused == fresh.unused
                whole = lasting.scan(where, use_indexes=False)
                assert lasting.scan(where).count() == whole.count(), where
                assert len(kept.dropped) == kept.files_total - len(kept.slices)
