"""The examples of the documentation that need no Spark run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from documentation import run_blocks


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_first_pages_without_spark(page: str, tmp_path: Path) -> None:
    run_blocks(page, tmp_path, until="\n## With Spark")
