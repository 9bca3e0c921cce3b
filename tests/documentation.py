"""Runs the Python blocks of a page of the documentation, one after the other, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def run_blocks(page: str, folder: Path, names: dict[str, Any] | None = None, *, until: str = "") -> None:
    """Run the blocks of ``page`` before the heading ``until``, with ``folder`` in the place of ``/tmp``."""
    text = (ROOT / page).read_text("utf-8")
    if until:
        assert until in text
        text = text.partition(until)[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert code
    exec(compile(code.replace("/tmp/", f"{folder}/"), page, "exec"), {} if names is None else names)


def sql_statements(page: str) -> list[str]:
    """The statements of the SQL blocks of a page."""
    text = (ROOT / page).read_text("utf-8")
    code = "\n".join(re.findall(r"```sql\n(.*?)```", text, re.DOTALL))
    return [statement.strip() for statement in re.sub(r"--.*", "", code).split(";") if statement.strip()]
