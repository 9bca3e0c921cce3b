"""The history of archived instants: written as Hudi does, merged by levels, read by manifest."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex.errors import CorruptFileError
from lakedex.io.local import LocalStorage
from lakedex.timeline.archived import (
    ArchivedInstant,
    append_history,
    archived_completion_times,
    archived_files,
    merge_history,
    read_history,
)

STORE = LocalStorage()


def instant(number: int, body: bytes = b"body") -> ArchivedInstant:
    time = f"2026010100{number:07d}"
    return ArchivedInstant(time, f"{time[:-1]}9", "commit", body, None if number % 2 else b"plan")


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_what_was_archived_is_read_again(tmp_path: Path) -> None:
    assert list(read_history(STORE, str(tmp_path))) == []
    first = [instant(n) for n in range(3)]
    (name,) = append_history(STORE, str(tmp_path), first)
    assert name == f"{first[0].requested}_{first[-1].requested}_0.parquet"
    second = [instant(n, b"") for n in range(3, 5)]
    append_history(STORE, str(tmp_path), second)
    found = list(read_history(STORE, str(tmp_path)))
    assert found == [*first, *second]
    assert archived_completion_times(STORE, str(tmp_path)) == {i.requested: i.completed for i in found}
    assert (tmp_path / "_version_").read_text() == "2"
    document = json.loads((tmp_path / "manifest_2").read_text())
    assert [(tmp_path / f["fileName"]).stat().st_size for f in document["files"]] == [
        f["fileLen"] for f in document["files"]
    ]


def test_the_files_are_those_of_java(tmp_path: Path) -> None:
    """Columns, types and footer of a file that Hudi 1.1.1 wrote."""
    (name,) = append_history(STORE, str(tmp_path), [instant(1)])
    ours = pq.ParquetFile(tmp_path / name)
    kinds = [str(column.physical_type) for column in (ours.schema.column(n) for n in range(6))]
    assert kinds == ["BYTE_ARRAY"] * 5 + ["INT32"]
    assert [ours.schema.column(n).max_definition_level for n in range(6)] == [1, 1, 1, 1, 1, 0]
    footer = ours.metadata.metadata
    assert footer[b"writer.model.name"] == b"avro"
    assert json.loads(footer[b"parquet.avro.schema"])["name"] == "HoodieLSMTimelineInstant"
    assert b"ARROW:schema" not in footer


def test_ten_files_of_a_level_become_one(tmp_path: Path) -> None:
    """Nothing is lost on the way, and old manifests go with their files."""
    path = str(tmp_path)
    for number in range(100):
        append_history(STORE, path, [instant(number)])
        merge_history(STORE, path, 10)
        assert len(archived_files(STORE, path)) <= 20
        assert len(names(tmp_path)) < 60
    assert [i.requested for i in read_history(STORE, path)] == [instant(n).requested for n in range(100)]
    levels = [name.rsplit("_", 1)[1] for name in archived_files(STORE, path)]
    assert levels == ["2.parquet"]
    assert merge_history(STORE, path, 10) == 0


def test_a_range_is_read_from_the_files_that_may_hold_it(tmp_path: Path) -> None:
    for number in range(6):
        append_history(STORE, str(tmp_path), [instant(number)])
    (tmp_path / f"{instant(0).requested}_{instant(0).requested}_0.parquet").unlink()
    found = read_history(STORE, str(tmp_path), instant(2).requested, instant(3).requested)
    assert [i.requested for i in found] == [instant(2).requested, instant(3).requested]


def test_what_no_manifest_names_is_garbage(tmp_path: Path) -> None:
    """A writer died before its manifest: its file is not read, is replaced, or goes."""
    path = str(tmp_path)
    append_history(STORE, path, [instant(0)])
    half = tmp_path / f"{instant(1).requested}_{instant(2).requested}_0.parquet"
    other = tmp_path / f"{instant(7).requested}_{instant(8).requested}_0.parquet"
    for file in (half, other):
        file.write_bytes(b"half a file")
    assert [i.requested for i in read_history(STORE, path)] == [instant(0).requested]
    append_history(STORE, path, [instant(1), instant(2)])
    assert len(list(read_history(STORE, path))) == 3
    merge_history(STORE, path, 10)
    assert not other.exists()
    assert half.exists()


def test_without_its_version_the_newest_manifest_counts(tmp_path: Path) -> None:
    path = str(tmp_path)
    append_history(STORE, path, [instant(0)])
    append_history(STORE, path, [instant(1)])
    (tmp_path / "_version_").write_text("1")
    assert len(list(read_history(STORE, path))) == 1, "a manifest that is not in force yet"
    append_history(STORE, path, [instant(2)])
    assert [i.requested for i in read_history(STORE, path)] == [instant(0).requested, instant(2).requested]
    (tmp_path / "_version_").write_text("")
    assert len(list(read_history(STORE, path))) == 2
    (tmp_path / "_version_").unlink()
    assert len(list(read_history(STORE, path))) == 2


def test_many_bodies_make_several_files(tmp_path: Path) -> None:
    """Memory: the bodies of one file."""
    written = append_history(STORE, str(tmp_path), (instant(n, b"x" * 400) for n in range(10)), file_bytes=1000)
    assert len(written) == 5
    assert (tmp_path / "_version_").read_text() == "1"
    assert len(list(read_history(STORE, str(tmp_path)))) == 10


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"files": [{}]}', b'{"files": 3}', b"\xff"])
def test_a_damaged_manifest_is_named(tmp_path: Path, damage: bytes) -> None:
    """A damaged archive is an error that names the file."""
    append_history(STORE, str(tmp_path), [instant(0)])
    (tmp_path / "manifest_1").write_bytes(damage)
    with pytest.raises(CorruptFileError, match="manifest_1"):
        archived_files(STORE, str(tmp_path))


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=12), st.integers(2, 4))
def test_any_batches_in_any_merging_keep_every_instant(batches: list[list[int]], width: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = []
        number = 0
        for batch in batches:
            instants = [instant(number + place, bytes(size)) for place, size in enumerate(batch)]
            number += len(batch)
            wanted += instants
            append_history(STORE, folder, instants)
            merge_history(STORE, folder, width)
        found = list(read_history(STORE, folder))
        assert sorted(i.requested for i in found) == [i.requested for i in wanted]
        assert {i.requested: i.metadata for i in found} == {i.requested: i.metadata for i in wanted}
