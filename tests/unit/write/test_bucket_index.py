"""Tables whose file groups are buckets: read, and never written."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from golden_tables import read_by_java, unpack_java_1_2
from lakedex import Table
from lakedex.commit.write_preconditions import has_bucket_names
from lakedex.errors import UnsupportedFeatureError
from lakedex.layout.names import new_file_id
from lakedex.write import file_assignment as route
from lakedex.write import pipeline
from table_kit import make, own, picture, rows

KINDS = {"bucket_simple": "SIMPLE", "bucket_consistent": "CONSISTENT_HASHING"}
ROW = rows(("1", "a", 9, 9))
WRITES: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda table, row: table.upsert(row),
    "insert": lambda table, row: table.insert(row),
    "insert_distinct": lambda table, row: table.insert(row, options={"hoodie.datasource.insert.dup.policy": "drop"}),
    "bulk_insert": lambda table, row: table.bulk_insert(row),
    "delete": lambda table, row: table.delete(row.select(["id", "city"])),
    "delete_where": lambda table, row: table.delete(where="id = '1' OR id = 'k00'"),
    "update": lambda table, row: table.update({"ts": "ts + 1"}),
    "merge": lambda table, row: table.merge(row, "t.id = s.id").when_matched_update_all().execute(),
    "erase": lambda table, row: table.erase(row.select(["id", "city"])),
    "insert_overwrite": lambda table, row: table.insert_overwrite(row),
    "delete_partition": lambda table, row: table.delete_partition({"city": row.column("city")[0].as_py()}),
}
EVERY_WRITE = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@pytest.fixture(scope="module")
def java_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: unpack_java_1_2(name, tmp_path_factory.mktemp(name)) for name in KINDS}


@pytest.mark.proves("version 9, merge-on-read", "Hudi 1.2.0", "made")
@EVERY_WRITE
@pytest.mark.parametrize("name", KINDS)
def test_tables_of_java_are_read_and_not_written(
    java_tables: dict[str, Path], name: str, write: Callable[[Table, pa.Table], object]
) -> None:
    table = Table.open(java_tables[name])
    before = picture(java_tables[name])
    rows = table.scan(columns=table.schema.names).to_arrow()
    with pytest.raises(UnsupportedFeatureError, match=rf"table '{name}'.*bucket index \({KINDS[name]}\)"):
        write(table, rows.slice(0, 1))
    assert picture(java_tables[name]) == before
    wanted = sorted((row["id"], row["rider"], row["fare"], row["ts"]) for row in read_by_java(java_tables[name]))
    assert own(rows, "id", "rider", "fare", "ts") == wanted


@pytest.fixture(scope="module")
def bucket_table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Copy-on-write, partitions a and b, four buckets in each."""
    numbers = iter(range(8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "new_file_id", lambda: f"{next(numbers) % 4:08d}{str(uuid.uuid4())[8:]}-0")
        patch.setattr(pipeline, "require_no_buckets", lambda *_, **__: None)
        table = make(tmp_path_factory.mktemp("buckets") / "t", schema=rows().schema, partition_by="city")
        for number in range(8):
            table.bulk_insert(rows((str(number), "ab"[number // 4], 1, 1)))
    return table


@EVERY_WRITE
def test_copy_on_write_tables_are_recognised_by_their_names(
    bucket_table: Table, write: Callable[[Table, pa.Table], object]
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'t'.*bucket index.*Reading works"):
        write(bucket_table, ROW)
    assert bucket_table.scan().count() == 8


@pytest.mark.parametrize("write", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_a_new_partition_gets_no_other_names_than_the_last_commit_gave(bucket_table: Table, write: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="bucket index"):
        WRITES[write](bucket_table, rows(("9", "new", 1, 1)))


def test_hashing_metadata_alone_tell(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    folder = tmp_path / ".hoodie/.bucket_index/consistent_hashing_metadata/a"
    folder.mkdir(parents=True)
    (folder / "00000000000000.hashing_meta").write_text("{}")
    with pytest.raises(UnsupportedFeatureError, match="CONSISTENT_HASHING"):
        table.upsert(ROW)


def ids(*firsts: str, random: int = 0) -> list[str]:
    plain = [f"a{number:07x}{str(uuid.uuid4())[8:]}-0" for number in range(random)]
    return [f"{first}{str(uuid.uuid4())[8:]}-0" for first in firsts] + plain


@pytest.mark.parametrize(
    ("file_ids", "expected"),
    [
        ([], False),
        (ids(random=10), False),
        (ids("00000000"), True),
        (ids("00000255"), True),
        (ids("00001023", "00000007"), True),
        (ids("00000000", "00000001", random=500), True),  # Others were added by a writer that did not know.
        (ids("73016229"), False),  # One uuid of 43 begins so.
        (ids("73016229", "40882153", random=100), False),
        (ids("00012345", random=100_000), False),
        (ids(*(f"{number:08d}" for number in range(0, 90_000_000, 9_000_000))), True),
    ],
)
def test_names_of_buckets_are_more_than_chance_gives(file_ids: list[str], expected: bool) -> None:
    assert has_bucket_names(file_ids) is expected


def test_our_own_file_ids_are_no_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([uuid.UUID(f"{first}-0000-4000-8000-000000000000") for first in ("00000001", "12345678", "1234567a")])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(made))
    assert new_file_id().startswith("1234567a-")
