"""Reads the cases of ``tests/pruning``; its README has the format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "Case", "load"]

FOLDER = Path(__file__).parent / "pruning"


@dataclass(frozen=True)
class Case:
    """A condition under its headings, and what is expected of it."""

    where: str
    heads: dict[str, str]
    files: tuple[str, ...]
    sql: str
    expected: str


def load(path: Path) -> Iterator[Case]:
    """The cases of a file. A heading holds until it is given again; ``file`` lines add up until the next ``columns``."""
    heads: dict[str, str] = {}
    files: list[str] = []
    sql = ""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if heading := re.fullmatch(r"# (\w+): ?(.*)", line):
            name, text = heading.groups()
            if name == "file":
                files.append(text)
                continue
            heads = {**heads, name: text}
            files = [] if name == "columns" else files
        elif line.endswith(";"):
            sql = line[:-1]
        elif line:
            yield Case(f"{path.stem}:{number} {sql}", heads, tuple(files), sql, line)
