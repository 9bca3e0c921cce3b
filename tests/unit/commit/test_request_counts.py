"""How many requests an operation sends to an object store, and how many wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.local.engine import LocalEngine
from lakedex.testing import create_table, open_table
from request_kit import SlowStore

OPTIONS = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
}


def rows(first: int, end: int, fare: float = 0.0) -> pa.Table:
    """Rows of two partitions."""
    numbers = range(first, end)
    return pa.table(
        {
            "id": [f"k{number:05}" for number in numbers],
            "city": [("rome", "oslo")[number % 2] for number in numbers],
            "ts": pa.array([int(fare)] * len(numbers), pa.int64()),
            "fare": [number + fare for number in numbers],
        }
    )


class Store:
    """A table on a model of an object store, with all indexes, and the requests that it costs."""

    def __init__(self) -> None:
        self.slow = SlowStore()
        self.storage = self.slow.storage()

    def open(self) -> Table:
        """The table as a process opens it that knows nothing of it."""
        return open_table("s3://model/t", self.storage, LocalEngine(2), OPTIONS)

    def create(self) -> None:
        """Create it, empty."""
        create_table(
            "s3://model/t",
            self.storage,
            rows(0, 1).schema,
            record_key="id",
            partition_by=("city",),
            ordering_by=("ts",),
            options=OPTIONS,
        )

    def requests(self, call: Callable[[], object]) -> Mapping[str, int]:
        """Requests of a call by kind."""
        self.slow.clear()
        call()
        return self.slow.model.counts()


@pytest.fixture
def store() -> Store:
    """A table of 1,000 rows."""
    store = Store()
    store.create()
    table = store.open()
    table.upsert(rows(0, 1000))
    table.indexes.create("bitmap", columns=["city"])
    return store


def total(counts: Mapping[str, int]) -> int:
    """All requests."""
    return sum(counts.values())


def test_create() -> None:
    store = Store()
    counts = store.requests(store.create)
    assert total(counts) <= 40, counts
    assert counts["LIST"] <= 3, counts


CALLS: Mapping[str, tuple[int, Callable[[Table], object]]] = {
    "upsert": (40, lambda table: table.upsert(rows(10, 30, 2.0))),
    "insert": (40, lambda table: table.upsert(rows(1000, 1020))),
    "delete": (40, lambda table: table.delete(rows(20, 24).select(["id", "city"]))),
    "update": (42, lambda table: table.update({"fare": "fare + 1"}, where="id = 'k00010'")),
    "merge": (
        46,
        lambda table: table.merge(rows(10, 30, 3.0), "t.id = s.id").when_matched_update_all().execute(),
    ),
    "row": (4, lambda table: table.scan("id = 'k00043'").to_arrow()),
    "rows": (5, lambda table: table.to_arrow()),
    "count": (3, lambda table: table.scan("city = 'rome'").count()),
}


@pytest.mark.parametrize("name", CALLS)
def test_of_a_table_that_is_open(store: Store, name: str) -> None:
    bound, call = CALLS[name]
    table = store.open()
    table.upsert(rows(10, 30, 1.0))
    table.scan("id = 'k00042' AND city = 'rome'").to_arrow()
    table.to_arrow()
    counts = store.requests(lambda: call(table))
    assert total(counts) <= bound, counts
    assert counts.get("HEAD", 0) == 0, "sizes and existence come with listings and reads"


COLD: Mapping[str, tuple[int, int, Callable[[Table], object]]] = {
    "open": (4, 4, lambda table: table.schema),
    "row": (16, 12, lambda table: table.scan("id = 'k00043'").to_arrow()),
    "upsert": (54, 50, lambda table: table.upsert(rows(10, 30, 2.0))),
}


@pytest.mark.parametrize("name", COLD)
def test_of_a_table_that_is_opened(store: Store, name: str) -> None:
    requests, waits, call = COLD[name]
    store.slow.seconds = 0.01
    counts = store.requests(lambda: call(store.open()))
    assert total(counts) <= requests, counts
    assert store.slow.in_a_row <= waits


def test_few_requests_of_an_upsert_wait_for_each_other(store: Store) -> None:
    table = store.open()
    table.upsert(rows(10, 30, 1.0))
    store.slow.seconds = 0.01
    store.requests(lambda: table.upsert(rows(10, 30, 2.0)))
    assert store.slow.in_a_row <= 30


def test_many_files_are_planned_by_the_requests_of_few() -> None:
    store = Store()
    store.create()
    table = store.open()
    own_files = {"hoodie.parquet.max.file.size": "1", "hoodie.parquet.small.file.limit": "0"}
    table.bulk_insert(rows(0, 200), options=own_files)
    table.maintenance.compact_metadata()
    table = store.open()
    for bound in (10, 3):  # The second time they are known.
        plans = []
        counts = store.requests(lambda: plans.append(table.scan("fare = 42.0").explain()))  # noqa: B023
        assert (plans[0].files_total, len(plans[0].slices)) == (200, 1)
        assert total(counts) <= bound, counts


def test_a_state_is_read_anew_after_another_process_wrote(store: Store) -> None:
    """What a process knows of a table saves requests, never rows."""
    ours, theirs = store.open(), store.open()
    for number in range(1, 5):
        theirs.upsert(rows(10 * number, 10 * number + 5, 10.0 + number))
        found = ours.scan(f"id = 'k{10 * number:05}'", columns=["fare"]).to_arrow()
        assert found.column("fare").to_pylist() == [20.0 + 11 * number - 10]
        ours.upsert(rows(500, 505, 100.0 + number))
        assert theirs.scan("id = 'k00500'", columns=["fare"]).to_arrow().column(0).to_pylist() == [600.0 + number]
    theirs.indexes.create("bitmap", columns=["id"], name="ids")
    ours.upsert(rows(700, 702, 7.0))
    ours.upsert(rows(702, 704, 7.0))
    assert ours.maintenance.validate().ok
    assert ours.scan("id = 'k00702'").count() == theirs.scan("id = 'k00702'").count() == 1
