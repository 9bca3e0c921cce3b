"""Executors of their own processes, one of them killed while it writes (``benchmarks/scale_out.py`` with few rows)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).resolve().parents[2]
ONE_PYSPARK = pytest.mark.skipif(
    not pyspark.__version__.startswith("3.5."), reason="a cluster takes its time; that of PySpark 3.5 stands for all"
)


@ONE_PYSPARK
@pytest.mark.parametrize("driver_rows", [200_000, 1_000], ids=["held by the driver", "kept by executors"])
def test_a_write_survives_the_loss_of_an_executor(tmp_path: Path, driver_rows: int) -> None:
    """Every row is there once with its newest value, and the driver gathered no more than its cap."""
    told = tmp_path / "told.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.scale_out"),
            *("--rows=20000", f"--driver-rows={driver_rows}", f"--folder={tmp_path}", f"--json={told}"),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    steps = {row["work"]: row for row in json.loads(told.read_text())["tables"]["scale_out"]}
    assert steps["the same, an executor killed"]["killed"]
    assert steps["the same, an executor killed"]["running"] > 0
