"""The README's examples run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


def test_sixty_seconds(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 6
    code = "\n".join(blocks)
    assert code.count("/tmp/") == 6
    exec(compile(code.replace("/tmp/", f"{tmp_path}/"), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "0 inserted, 1 updated, 0 deleted" in printed
    assert "column_stats" in printed
    assert "|  sf|       1|" in printed
    assert "17.5" in printed
    assert "row groups" in printed
    assert "Advice" in printed
