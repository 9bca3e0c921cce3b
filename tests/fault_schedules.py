"""Lives of a table on a model of an S3 store whose requests fail: what may be seen after each operation.

An operation that returned is visible, one that raised is not, unless the error says that nobody can know. The next
operation of the same process is not in its way. The rows are looked at through a fresh handle without faults.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lakedex import Table
from lakedex.errors import CommitStateUnknownError, LakedexError
from lakedex.testing import FaultSchedule, StoreModel, create_table, open_table

__all__ = ["OPERATIONS", "ROOT", "Life", "rows_of", "started", "written_to"]

ROOT = "s3://model/lake/trips"
KEYS = 24
Rows = dict[str, int]


def table_of(rows: Mapping[str, int]) -> pa.Table:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
    return pa.table({"id": [*rows], "city": [*map(city_of, rows)], "v": [*rows.values()]}, schema)


def city_of(key: str) -> str:
    return "ab"[int(key[1:]) % 2]


def picked(chance: random.Random, count: int) -> Rows:
    return {f"k{number:02}": chance.randrange(1000) for number in sorted(chance.sample(range(KEYS), count))}


def upsert(table: Table, rows: Rows, chance: random.Random) -> Rows:
    change = picked(chance, 6)
    table.upsert(table_of(change))
    return rows | change


def delete(table: Table, rows: Rows, chance: random.Random) -> Rows:
    least = chance.randrange(1000)
    table.delete(where=f"v >= {least} AND v < {least + 150}")
    return {key: value for key, value in rows.items() if not least <= value < least + 150}


def merge(table: Table, rows: Rows, chance: random.Random) -> Rows:
    change = picked(chance, 5)
    source = table.merge(table_of(change), "t.id = s.id").when_matched_update({"v": "s.v + 1"})
    source.when_not_matched_insert_all().execute()
    return rows | {key: value + (key in rows) for key, value in change.items()}


def index(table: Table, rows: Rows, chance: random.Random) -> Rows:
    del chance
    if "cities" in table.indexes.list().column("name").to_pylist():
        table.indexes.refresh("cities")
    else:
        table.indexes.create("bitmap", ["city"], name="cities")
    return rows


def clean(table: Table, rows: Rows, chance: random.Random) -> Rows:
    table.maintenance.clean(commits=chance.randint(1, 2))
    return rows


OPERATIONS: Mapping[str, Callable[[Table, Rows, random.Random], Rows]] = {
    function.__name__: function for function in (upsert, delete, merge, index, clean)
}


def rows_of(table: Table, where: str | None = None) -> Rows:
    found = table.scan(where).to_arrow()
    keys = found["id"].to_pylist()
    assert len(set(keys)) == len(keys), f"a key came twice: {sorted(keys)}"
    assert all(city == city_of(key) for key, city in zip(keys, found["city"].to_pylist(), strict=True))
    return dict(zip(keys, found["v"].to_pylist(), strict=True))


def started(kind: str) -> tuple[StoreModel, Rows]:
    """A store with a table of twelve rows and some history."""
    model, chance = StoreModel(), random.Random(5)
    table = create_table(
        ROOT, model.storage(), table_of({}).schema, record_key="id", partition_by=["city"], table_type=kind
    )
    table.indexes.create("bitmap", ["city"], name="cities")
    rows: Rows = {}
    for _ in range(3):
        rows = upsert(table, rows, chance)
    return model, rows


@dataclass
class Life:
    """A table on a store, its writers, and the rows that it has.

    Attributes:
        model: the store.
        rows: what is in the table.
        names: operations so far, and what became of each.
    """

    model: StoreModel
    rows: Rows
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writers = [open_table(ROOT, self.model.storage()) for _ in range(2)]

    @classmethod
    def again(cls, model: StoreModel, rows: Rows) -> Life:
        """One on a copy of a store."""
        return cls(StoreModel(objects=dict(model.objects)), rows)

    def run(self, name: str, seed: int, faults: FaultSchedule | None, writer: int = 0) -> None:
        """Run an operation under faults, and look at what came of it."""
        self.model.faults, before = faults, self.rows
        may, outcome = [before], "returned"
        start = dict(self.model.objects)
        try:
            may = [OPERATIONS[name](self.writers[writer], dict(before), random.Random(seed))]
        except CommitStateUnknownError:
            # What it does if nothing fails, by the same chance.
            dry = Life(StoreModel(objects=start), before)
            after = OPERATIONS[name](dry.writers[0], dict(before), random.Random(seed))
            may, outcome = [before, after], "is unknown"
        except LakedexError as error:
            outcome = f"raised {type(error).__name__}: {error}"
        self.names.append(f"{name} {outcome}")
        with contextlib.suppress(LakedexError):
            self._require(rows_of(open_table(ROOT, self.model.storage())), may)
        self.model.faults = None
        self.rows = rows_of(open_table(ROOT, self.model.storage()))
        self._require(self.rows, may)

    def _require(self, found: Rows, may: list[Rows]) -> None:
        assert found in may, f"{found} instead of {may} after {self.names}"

    def finish(self) -> None:
        """No failure is in the way of a next write, and the metadata agrees with the files."""
        self.run("upsert", 77, None)
        assert self.names[-1] == "upsert returned", self.names
        table = open_table(ROOT, self.model.storage())
        report = table.maintenance.validate()
        assert report.ok, f"{report} after {self.names}"
        for city in "ab":
            own = {key: value for key, value in self.rows.items() if city_of(key) == city}
            assert rows_of(table, f"city = '{city}'") == own, self.names


def written_to(model: StoreModel, folder: Path) -> Path:
    """The files of the store's table, in a folder."""
    prefix = ROOT.removeprefix("s3://model/")
    for key, (data, _) in model.objects.items():
        path = folder / Path(key).relative_to(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
