"""The README's first example runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


def test_sixty_seconds(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "/tmp/trips" in code
    exec(compile(code.replace("/tmp/trips", str(tmp_path / "trips")), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "0 inserted, 1 updated, 0 deleted" in printed
    assert "column_stats" in printed
    assert "|  sf|       1|" in printed
