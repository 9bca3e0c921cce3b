"""Tasks that fail after their file is written, and tasks that run twice: one result counts, no file is left over."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.layout.names import parse_base_file_name


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One table for each kind of fault, of one session."""
    folder = tmp_path_factory.mktemp("faults")
    script = Path(__file__).with_name("faulty_write.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)], capture_output=True, text=True, timeout=280, check=False
    )
    return folder, done


@pytest.mark.parametrize("kind", ["fail", "twice"])
def test_one_attempt_counts(written: tuple[Path, subprocess.CompletedProcess[str]], kind: str) -> None:
    folder, done = written
    path = folder / kind
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line.removeprefix(f"{kind} ") for line in done.stdout.splitlines() if line.startswith(f"{kind} ")]
    assert lines == ["RESULT 50 100 5", "COUNT 250 150"], done.stderr[-4000:]
    names = [parse_base_file_name(file.name) for file in path.glob("p=*/*.parquet")]
    versions = Counter((name.file_id, name.instant) for name in names if name)
    assert len(versions) == 10
    assert set(versions.values()) == {1}
    assert not any((path / ".hoodie" / ".temp").iterdir())
    assert Table.open(path).scan("n = -1").count() == 150
