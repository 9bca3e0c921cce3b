"""The command line ``lakedex``, a thin client of the table API; without Spark and Java, and quick to start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: those after the program's name; None takes the process's.

    Returns:
        The exit code: 0 fine, 1 findings, 2 wrong use or failure.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if missing := [name for name in ("typer", "rich") if find_spec(name) is None]:
        print(f'lakedex: the command line needs {" and ".join(missing)}: pip install "lakedex[cli]"', file=sys.stderr)
        return 2
    code: int = import_module("lakedex.cli.app").run(given)
    return code
