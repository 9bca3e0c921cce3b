"""Streams by ``format("lakedex")`` as Spark's workers call them: plan, read and write without a JVM."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

import pyspark_lakedex
from lakedex import Table
from lakedex.errors import InvalidInputError, LakedexError, OptionError
from lakedex.spark.schema import arrow_to_spark
from table_kit import ROWS, make, own, rows

NEVER = 10


def source(path: str, **options: str) -> Any:
    """Spark hands over names in lower case."""
    return pyspark_lakedex.DefaultSource({name.lower(): value for name, value in {"path": path, **options}.items()})


class Query:
    """A streaming query from a table: what Spark keeps of it is the offset, as JSON."""

    def __init__(self, table: Table, **options: str) -> None:
        self.table, self.options, self.kept = table, options, ""

    def run(self) -> list[str]:
        """Batches until there is nothing more, as with ``availableNow`` after a restart."""
        made = source(self.table.path, **self.options)
        schema = made.schema()
        reader = made.streamReader(schema)
        reader.prepareForTriggerAvailableNow()
        start = json.loads(self.kept) if self.kept else reader.initialOffset()
        found = []
        for _ in range(NEVER):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return found
            task = pickle.loads(pickle.dumps(reader))
            batches = [batch for part in reader.partitions(start, end) for batch in task.read(part)]
            read = pa.Table.from_batches(batches, batches[0].schema) if batches else ROWS.empty_table()
            found.append(" ".join(f"{key}{n}" for key, n in own(read, "id", "n")))
            reader.commit(end)
            start, self.kept = end, json.dumps(end)
        raise AssertionError("the query does not end")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = make(tmp_path / "t", schema=ROWS, partition_by="city")
    made.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    return made


def test_every_commit_over_restarts(table: Table) -> None:
    whole, limited = Query(table), Query(table, maxFilesPerTrigger="1")
    assert whole.run() == ["a1 b1"] and limited.run() == ["a1", "b1"]
    table.upsert(rows(("a", "x", 2, 2), ("c", "y", 2, 2)))
    table.upsert(rows(("a", "x", 3, 3)))
    by_commit = Query(table, maxCommitsPerTrigger="1")
    by_commit.kept = whole.kept
    assert whole.run() == ["a2 a3 c2"] and limited.run() == ["a2", "c2", "a3"] and by_commit.run() == ["a2 c2", "a3"]
    assert whole.run() == limited.run() == by_commit.run() == []


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxFilesPerTrigger": "7", "maxCommitsPerTrigger": "2"}, ReadMaxFiles(7)),
        ({"maxCommitsPerTrigger": "2"}, ReadMaxFiles(2**31 - 1)),
    ],
)
def test_a_trigger_may_ask_for_all(table: Table, options: dict[str, str], limit: ReadLimit) -> None:
    made = source(table.path, **options)
    reader = made.streamReader(made.schema())
    assert reader.getDefaultReadLimit() == limit
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["kind"] == "state" and end["whole"]


def test_columns_and_conditions(table: Table) -> None:
    query = Query(table, columns="N,ID", where="city = 'x'")
    assert query.run() == ["a1"]
    table.upsert(rows(("b", "y", 2, 2), ("c", "x", 2, 2)))
    assert query.run() == ["c2"]


def test_the_table_grows_a_column_while_the_query_runs(table: Table) -> None:
    made = source(table.path)
    reader = made.streamReader(made.schema())
    start = reader.initialOffset()
    table.add_columns(pa.schema([("extra", pa.string())]))
    with pytest.raises(LakedexError, match="'extra' was added or changed.*start the query again"):
        reader.latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingInstant": "1", "hoodie.datasource.streaming.startOffset": "2"}, "give one start"),
        ({"maxFilesPerTrigger": "0"}, "a whole number from 1 on"),
        ({"maxCommitsPerTrigger": "many"}, "a whole number from 1 on"),
        ({"asOf": "2999-01-01"}, "takes startingInstant instead"),
        ({"startingInstants": "1"}, "unknown option"),
        ({"where": "nothing > 1"}, "nothing"),
    ],
)
def test_options_that_are_refused(table: Table, options: dict[str, str], message: str) -> None:
    with pytest.raises(LakedexError, match=message):
        source(table.path, **options).streamReader(arrow_to_spark(ROWS))


def test_a_batch_has_no_options_of_streams(table: Table) -> None:
    made = source(table.path, startingInstant="1")
    with pytest.raises(OptionError, match="startinginstant"):
        made.reader(made.schema())


# --------------------------------------------------------------------------------------------------------- writing


def checkpoint(path: Path, query_id: str = "q1") -> str:
    path.mkdir(exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query_id}))
    return str(path)


def write(table: Table, folder: str, batch: int, *tasks: pa.Table, overwrite: bool = False, **options: str) -> None:
    """A batch, its commit by another writer than its tasks have."""

    def writer() -> Any:
        made = source(table.path, checkpointLocation=folder, **options)
        return made.streamWriter(arrow_to_spark(ROWS), overwrite)

    planned = writer()
    messages = [pickle.loads(pickle.dumps(planned)).write(iter(task.to_batches())) for task in tasks]
    writer().commit(messages, batch)


def staged(table: Table) -> list[Path]:
    return list(Path(table.path).rglob("*lakedex-staged*"))


def test_a_batch_that_comes_again_is_written_once(table: Table, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mark")
    insert = {"hoodie.datasource.write.operation": "insert"}
    for _ in range(2):
        write(table, folder, 0, rows(("c", "x", 1, 1)), rows(("d", "y", 1, 1)), **insert)
        assert own(table, "id") == [("a",), ("b",), ("c",), ("d",)] and table.inspect.history().num_rows == 2
    write(table, folder, 1, rows(("a", "x", 9, 9)))
    write(table, folder, 0, rows(("a", "x", 5, 5)))
    assert own(table, "id", "n")[0] == ("a", 9) and not staged(table)


def test_another_query_has_batches_of_its_own(table: Table, tmp_path: Path) -> None:
    write(table, checkpoint(tmp_path / "mark"), 0, rows(("c", "x", 1, 1)))
    write(table, checkpoint(tmp_path / "mark", "q2"), 0, rows(("d", "x", 1, 1)))
    write(table, str(tmp_path / "none"), 0, rows(("e", "x", 1, 1)), txnAppId="mine")
    write(table, str(tmp_path / "none"), 0, rows(("f", "x", 1, 1)), txnAppId="mine")
    assert own(table, "id") == [("a",), ("b",), ("c",), ("d",), ("e",)]


def test_complete_mode_replaces_all_rows_in_one_commit(table: Table, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mark")
    write(table, folder, 0, rows(("z", "x", 1, 1)), overwrite=True)
    assert own(table, "id") == [("z",)] and table.inspect.history().num_rows == 2
    write(table, folder, 1, ROWS.empty_table(), overwrite=True)
    assert own(table, "id") == []


def test_a_batch_without_rows_is_no_commit(table: Table, tmp_path: Path) -> None:
    write(table, checkpoint(tmp_path / "mark"), 0, ROWS.empty_table())
    assert table.inspect.history().num_rows == 1 and not staged(table)


def test_a_batch_that_fails_between_staging_and_commit(table: Table, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mark")
    writer = source(table.path, checkpointLocation=folder).streamWriter(arrow_to_spark(ROWS), False)
    message = writer.write(iter(rows(("c", "x", 1, 1)).to_batches()))
    assert staged(table) and own(table, "id") == [("a",), ("b",)]
    writer.abort([message, None], 0)
    assert not staged(table) and table.inspect.history().num_rows == 1
    write(table, folder, 0, rows(("c", "x", 1, 1)))
    assert own(table, "id") == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize("text", [None, "{}", "[1]", "no json"])
def test_a_checkpoint_without_an_id(table: Table, tmp_path: Path, text: str | None) -> None:
    (tmp_path / "mark").mkdir()
    if text is not None:
        (tmp_path / "mark" / "metadata").write_text(text)
    with pytest.raises(InvalidInputError, match=r"cannot be read from .*/metadata.*txnAppId"):
        write(table, str(tmp_path / "mark"), 0, rows(("c", "x", 1, 1)))
    assert own(table, "id") == [("a",), ("b",)]


def test_writes_that_are_refused(table: Table) -> None:
    schema = arrow_to_spark(ROWS)
    with pytest.raises(OptionError, match="needs .option..checkpointLocation"):
        source(table.path).streamWriter(schema, False)
    with pytest.raises(OptionError, match="unknown option"):
        source(table.path, checkpointLocation="/x", maxFilesPerTrigger="1").streamWriter(schema, False)
