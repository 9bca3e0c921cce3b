"""How many requests operations on an object store cost, beside other table formats: a real S3 server behind a proxy.

    ./dev bench requests [--json FILE]

A table of 1,000 rows in two partitions; each engine in a process of its own, which keeps its handle open between steps.
The counts are those of the proxy of ``tests/object_store``. lakedex keeps all indexes and a bitmap index.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.report import table

__all__ = ["STEPS", "Engine", "measured"]

TESTS = Path(__file__).parents[1] / "tests"
ROWS = 1_000
STEPS = ("create and load", "append", "upsert", "delete", "open", "row, cold", "row, warm", "all rows")


def rows(first: int, end: int, more: float = 0.0) -> pa.Table:
    """Rows of two partitions."""
    numbers = range(first, end)
    return pa.table(
        {
            "id": [f"k{number:05}" for number in numbers],
            "city": [("rome", "oslo")[number % 2] for number in numbers],
            "fare": [number + more for number in numbers],
        }
    )


class Engine:
    """One engine and its open table; each method is a step of 20 rows or of one."""

    def __init__(self, folder: str, options: dict[str, str]) -> None:
        self.path, self.options = folder, options

    def load(self) -> None:
        """Make the table, with its rows."""
        raise NotImplementedError

    def append(self, new: pa.Table) -> None:
        """Add rows without a look at those that are there."""
        raise NotImplementedError

    def upsert(self, new: pa.Table) -> None:
        """Replace rows by key, or add them."""
        raise NotImplementedError

    def delete(self, key: str) -> None:
        """Delete a row."""
        raise NotImplementedError

    def open(self) -> None:
        """Open the table as a process does that knows nothing of it."""
        raise NotImplementedError

    def row(self, key: str) -> pa.Table:
        """A row by its key."""
        raise NotImplementedError

    def all(self) -> pa.Table:
        """All rows."""
        raise NotImplementedError


class Lakedex(Engine):
    """Ours, without Spark."""

    def load(self) -> None:
        from lakedex import Table

        self.table = Table.create(
            self.path,
            rows(0, 1).schema,
            record_key="id",
            partition_by="city",
            storage_options=self.options,
        )
        self.table.upsert(rows(0, ROWS))
        self.table.indexes.create("bitmap", ["city"], name="cities")

    def append(self, new: pa.Table) -> None:
        self.table.insert(new)

    def upsert(self, new: pa.Table) -> None:
        self.table.upsert(new)

    def delete(self, key: str) -> None:
        self.table.delete([{"id": key}], all_partitions=True)

    def open(self) -> None:
        from lakedex import Table

        self.table = Table.open(self.path, storage_options=self.options)
        assert self.table.schema.names

    def row(self, key: str) -> pa.Table:
        return self.table.scan(f"id = '{key}'").to_arrow()

    def all(self) -> pa.Table:
        return self.table.to_arrow()


class Deltalake(Engine):
    """``deltalake``; a merge for an upsert."""

    def load(self) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.path, rows(0, ROWS), partition_by=["city"], storage_options=self.options)
        self.open()

    def append(self, new: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.table, new, mode="append")

    def upsert(self, new: pa.Table) -> None:
        merge = self.table.merge(new, "t.id = s.id AND t.city = s.city", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, key: str) -> None:
        self.table.delete(f"id = '{key}'")

    def open(self) -> None:
        from deltalake import DeltaTable

        self.table = DeltaTable(self.path, storage_options=self.options)

    def row(self, key: str) -> pa.Table:
        from deltalake import QueryBuilder

        return pa.table(QueryBuilder().register("t", self.table).execute(f"SELECT * FROM t WHERE id = '{key}'"))

    def all(self) -> pa.Table:
        return self.table.to_pyarrow_table()


class Lance(Engine):
    """``pylance``, with a B-tree index of the key."""

    def load(self) -> None:
        import lance

        self.table: Any = lance.write_dataset(rows(0, ROWS), self.path, storage_options=self.options)
        self.table.create_scalar_index("id", "BTREE")

    def append(self, new: pa.Table) -> None:
        self.table.insert(new)

    def upsert(self, new: pa.Table) -> None:
        self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new)

    def delete(self, key: str) -> None:
        self.table.delete(f"id = '{key}'")

    def open(self) -> None:
        import lance

        self.table = lance.dataset(self.path, storage_options=self.options)

    def row(self, key: str) -> pa.Table:
        found: pa.Table = self.table.to_table(filter=f"id = '{key}'")
        return found

    def all(self) -> pa.Table:
        found: pa.Table = self.table.to_table()
        return found


class Iceberg(Engine):
    """``pyiceberg``, with a catalog in SQLite, whose calls cost no request."""

    def load(self) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        names = {"aws_access_key_id": "access-key-id", "aws_secret_access_key": "secret-access-key"}
        names |= {"aws_region": "region", "aws_endpoint": "endpoint", "aws_endpoint_url": "endpoint"}
        settings = {f"s3.{names[key]}": value for key, value in self.options.items() if key in names}
        folder, _, name = self.path.rpartition("/")
        self.catalog = SqlCatalog("bench", uri="sqlite:///:memory:", warehouse=folder, **settings)
        self.catalog.create_namespace("lake")
        made = self.catalog.create_table(f"lake.{name}", rows(0, 1).schema, location=self.path)
        with made.update_spec() as update:
            update.add_identity("city")
        self.name = f"lake.{name}"
        made.append(rows(0, ROWS))
        self.open()

    def append(self, new: pa.Table) -> None:
        self.table.append(new)

    def upsert(self, new: pa.Table) -> None:
        self.table.upsert(new, join_cols=["id"])

    def delete(self, key: str) -> None:
        self.table.delete(f"id = '{key}'")

    def open(self) -> None:
        self.table = self.catalog.load_table(self.name)

    def row(self, key: str) -> pa.Table:
        found: pa.Table = self.table.scan(row_filter=f"id = '{key}'").to_arrow()
        return found

    def all(self) -> pa.Table:
        found: pa.Table = self.table.scan().to_arrow()
        return found


ENGINES: dict[str, type[Engine]] = {"lakedex": Lakedex, "deltalake": Deltalake, "lance": Lance, "pyiceberg": Iceberg}

_ENGINE: list[Engine] = []


def _begin(name: str, folder: str, options: dict[str, str]) -> None:
    os.environ.update({key.upper(): value for key, value in options.items()})
    own = options if name == "lakedex" else {**options, "aws_allow_http": "true"}
    _ENGINE[:] = [ENGINES[name](folder, own)]


def _run(step: str) -> None:
    """One step, and a look at its result."""
    engine = _ENGINE[0]
    calls: dict[str, Callable[[], Any]] = {
        "create and load": engine.load,
        "append": lambda: engine.append(rows(ROWS, ROWS + 20)),
        "upsert": lambda: engine.upsert(rows(ROWS - 10, ROWS + 30, 0.5).slice(10, 20)),
        "delete": lambda: engine.delete("k00003"),
        "open": engine.open,
        "row, cold": lambda: engine.row("k00500"),
        "row, warm": lambda: engine.row("k00501"),
        "all rows": engine.all,
    }
    found = calls[step]()
    if isinstance(found, pa.Table):
        wanted = 1 if step.startswith("row") else ROWS + 19
        if found.num_rows != wanted:
            raise SystemExit(f"{step}: {found.num_rows} rows instead of {wanted}")


def measured(engines: list[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Requests by engine, step and class."""
    sys.path[:0] = [str(TESTS), str(TESTS / "object_store")]
    from fault_proxy import FaultProxy  # type: ignore[import-not-found]
    from s3_server import S3Server  # type: ignore[import-not-found]

    found: dict[str, dict[str, dict[str, int]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="lakedex-bench-") as folder,
        S3Server(Path(folder)) as server,
        FaultProxy(server.url) as proxy,
    ):
        for name in engines:
            found[name] = {}
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                pool.apply(_begin, (name, f"s3://lake/{name}", server.options(proxy.url)))
                for step in STEPS:
                    proxy.clear()
                    pool.apply(_run, (step,))
                    found[name][step] = dict(proxy.counts())
    return found


def main(given: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="./dev bench requests", description=__doc__)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--json", type=Path, help="write the counts by class to this file")
    asked = parser.parse_args(given)
    found = measured(asked.engines.split(","))
    print(
        table(["step", *found], [[step, *(str(sum(found[name][step].values())) for name in found)] for step in STEPS])
    )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
