"""``probe_folder``: whether tables can be written in a folder; it leaves nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakedex import probe_folder


@pytest.mark.parametrize("place", ["", "memory://probe"])
def test_where_tables_can_be_written(place: str, tmp_path: Path) -> None:
    found = probe_folder(place or tmp_path)
    assert (found.ok, found.put_if_absent, found.lock, found.problem) == (True, True, True, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind, name, problem",
    [("", "nosuch", "there is no such folder"), ("", "file.txt", "file.txt"), ("local://", "", "no put-if-absent")],
)
def test_where_they_cannot(kind: str, name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("x")
    found = probe_folder(f"{kind}{tmp_path / name}")
    assert not found.ok
    assert problem in found.problem
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file.txt", "x")]
