"""How long the command line takes, as a process of its own: to start, and to look at a small table.

    ./dev bench command [--rounds 7]

Wall clock, the best round, beside a Python process that does nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import table

__all__ = ["seconds"]

LIMIT = 0.5
"""Seconds to the help."""


def seconds(arguments: list[str], rounds: int) -> float:
    """The best wall-clock seconds of ``python`` with these arguments."""
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        taken.append(time.perf_counter() - started)
    return min(taken)


def main(given: list[str]) -> int:
    """Run and print; 1 if the help takes more than half a second."""
    parser = argparse.ArgumentParser(prog="./dev bench command", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args(given).rounds
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as folder:
        path, program = str(Path(folder, "trips")), ["-m", "lakedex"]
        seconds([*program, "demo", path], 1)
        calls = {
            "python -c pass": ["-c", "pass"],
            "lakedex --version": [*program, "--version"],
            "lakedex --help": [*program, "--help"],
            "lakedex show": [*program, "show", path],
            "lakedex count --where": [*program, "count", path, "--where", "city = 'Lyon'"],
        }
        told = {call: seconds(arguments, rounds) for call, arguments in calls.items()}
    nothing = told["python -c pass"]
    print(
        table(["call", "seconds", "× nothing"], [[call, f"{s:.3f}", f"{s / nothing:.1f}"] for call, s in told.items()])
    )
    return 0 if told["lakedex --help"] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
