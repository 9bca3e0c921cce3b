"""An index is one module and one line of the registry: a toy lives a whole life without a change of any other module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import IndexNotFoundError, UnsupportedFeatureError
from lakedex.index.protocol import CommitContext, CommitPolicy, IndexUpdate, UnindexedBase
from lakedex.index.registry import registered
from lakedex.index.written_file import WrittenFile
from toy_index import TOY, ToyIndex

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("c", pa.string()), ("ts", pa.int64())])


def rows(*found: tuple[str, str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    alone = {"hoodie.metadata.index.column.stats.enable": "false"}
    made = Table.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="city", ordering_by="ts", options=alone)
    made.insert(rows(("1", "a", "x", 1), ("2", "b", "y", 1), ("3", "c", "x", 1)))
    return made


@pytest.fixture
def known() -> Iterator[None]:
    with registered(ToyIndex()):
        yield


def kept(table: Table, where: str) -> tuple[int, int]:
    stage = table.scan(where).plan().stage(TOY)
    return stage.before, stage.after


def parts(table: Table) -> list[Path]:
    return sorted((Path(table.path) / ".hoodie/metadata/toy").glob("*.json"))


@pytest.mark.usefixtures("known")
def test_a_whole_life(table: Table) -> None:
    built = table.indexes.create(TOY, ["c"])
    assert (built.name, built.files, built.columns) == (TOY, 3, ("c",))
    listed = {row["name"]: row for row in table.indexes.list().to_pylist()}
    assert listed[TOY] == {"name": TOY, "using": TOY, "columns": ["c"], "state": "complete", "maintained": True}

    written = table.upsert(rows(("1", "a", "z", 2)))  # Collected and recorded.
    assert not [note for note in written.notes if TOY in note]
    assert table.indexes.stats(TOY).files_uncovered == 0
    assert len(parts(table)) == 2

    assert kept(table, "c = 'z'") == (3, 1)  # Pruned.
    assert kept(table, "c = 'nothing'") == (3, 0)
    assert table.scan("c = 'z'").to_arrow().column("id").to_pylist() == ["1"]

    assert table.indexes.validate(TOY).ok  # Validated, alone and with the table.
    report = table.maintenance.validate()
    assert report.ok
    assert TOY in report.indexes

    assert written.instant is not None
    table.maintenance.rollback(written.instant)  # Undone.
    assert len(parts(table)) == 1
    assert table.indexes.stats(TOY).files_uncovered == 0
    assert kept(table, "c = 'x'") == (3, 2)

    parts(table)[0].unlink()  # Refreshed: until then unknown keeps the file.
    assert kept(table, "c = 'nothing'") == (3, 3)
    assert table.indexes.validate(TOY).files_uncovered == 3
    assert table.indexes.refresh(TOY).files == 3
    assert kept(table, "c = 'nothing'") == (3, 0)

    table.indexes.drop(TOY)  # Dropped.
    assert not (Path(table.path) / ".hoodie/metadata/toy").exists()
    assert TOY not in table.indexes.list().column("name").to_pylist()
    with pytest.raises(IndexNotFoundError, match="no index 'toy'"):
        table.indexes.stats(TOY)


@pytest.mark.usefixtures("known")
def test_wrong_entries_are_found(table: Table) -> None:
    table.indexes.create(TOY, ["c"])
    (part,) = parts(table)
    entries = json.loads(part.read_text())
    entries[0][2] = ["no such value"]
    part.write_text(json.dumps(entries))
    report = table.indexes.validate(TOY)
    assert [(found.kind, found.column) for found in report.differences] == [("wrong values", "c")]
    assert [found.index for found in table.maintenance.validate().differences] == [TOY]


@pytest.mark.usefixtures("known")
def test_entries_of_cleaned_files_go(table: Table) -> None:
    table.indexes.create(TOY, ["c"])
    for number in range(3):
        table.upsert(rows(("1", "a", f"v{number}", 2 + number)))
    before = table.indexes.stats(TOY).entries
    removed = table.maintenance.clean(options={"hoodie.clean.commits.retained": "1"})
    gone = sum(len(own.files) for own in removed.partitions.values())
    assert gone
    assert table.indexes.stats(TOY).entries == before - gone
    assert table.indexes.validate(TOY).entries_stale == before - gone - 3


def test_unknown_without_its_line(table: Table) -> None:
    with pytest.raises(UnsupportedFeatureError, match="not 'toy'"):
        table.indexes.create(TOY, ["c"])


class Failing(UnindexedBase):
    """An index that cannot be kept up."""

    name = "failing"

    def records_of_commit(self, ctx: CommitContext, files: Sequence[WrittenFile]) -> IndexUpdate:
        raise OSError("no space")


class Tolerated(Failing):
    """The same, where that is no matter."""

    commit_policy: ClassVar[CommitPolicy] = CommitPolicy.BEST_EFFORT


def test_what_a_failure_means(table: Table) -> None:
    def ids() -> list[Any]:
        return sorted(table.scan().to_arrow().column("id").to_pylist())

    with registered(Failing()), pytest.raises(OSError, match="no space"):
        table.upsert(rows(("9", "a", "x", 1)))
    assert ids() == ["1", "2", "3"]
    with registered(Tolerated()):
        notes = table.upsert(rows(("9", "a", "x", 1))).notes
    assert "the index failing does not cover this commit (no space)" in notes
    assert ids() == ["1", "2", "3", "9"]
