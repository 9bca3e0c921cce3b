"""``./dev bench``: rows through all peers in turn, then what only we can be asked; a table, and JSON if wanted."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_planning import planning
from benchmarks.bench_tagging import tagging
from benchmarks.coverage import coverage
from benchmarks.data import Generated, Workload, flights, generate
from benchmarks.guard import Baseline, broken, taken
from benchmarks.memory import memory
from benchmarks.peers import PEERS, QUICK
from benchmarks.peers.protocol import Settings
from benchmarks.report import text
from benchmarks.results import Results, machine
from benchmarks.rounds import Rounds
from benchmarks.sessions import Sessions

__all__ = ["main"]

BASELINE = Path(__file__).with_name("baseline.json")
GUARDED = {"rows": 50_000, "rounds": 3, "work": "random", "peers": "lakedex-arrow,pyarrow,deltalake"}
"""What a new baseline is made of unless told otherwise: no JVM, so that it is compared in a minute or two."""
WORKS: dict[str, Callable[[int], Generated]] = {
    "random": lambda rows: Generated(rows=rows),
    "time": lambda rows: Generated(rows=rows, keys="time"),
    "wide": lambda rows: Generated(rows=rows, columns=50),
    "partitions": lambda rows: Generated(rows=rows, partitions=1000),
}
"""Name → generated rows; ``flights`` comes beside them."""
FURTHER = ("tagging", "planning", "coverage", "memory")


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """What the user asked for."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of generated tables (1000000)")
    parser.add_argument("--rounds", type=int, default=3, help="warm rounds; a cold one comes before (3)")
    parser.add_argument("--peers", help=f"some of {','.join(PEERS)}")
    parser.add_argument("--work", default="random", help=f"some of {','.join([*WORKS, 'flights'])} (random)")
    parser.add_argument("--further", default=",".join(FURTHER), help=f"some of {','.join(FURTHER)}, or none")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two minutes: few rows, one round, no peer with a jar of its own",
    )
    parser.add_argument("--memory", default="1500m", help="heap of each Spark session (1500m)")
    parser.add_argument("--patience", type=float, default=300, help="seconds that one call may take (300)")
    parser.add_argument("--folder", default=None, help="where tables are made (the system's temporary folder)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--guard", action="store_true", help="compare with benchmarks/baseline.json; 1 if worse")
    parser.add_argument("--save-baseline", action="store_true", help="make that file anew; --peers may name more")
    asked = parser.parse_args(given)
    if asked.guard or asked.save_baseline:
        settings = Baseline.read(BASELINE).settings if asked.guard else GUARDED
        own = {"peers": asked.peers} if asked.peers and asked.save_baseline else {}
        vars(asked).update({**settings, **own}, further="none")
    asked.peers = asked.peers or ",".join(QUICK if asked.quick else PEERS)
    if asked.quick:
        asked.rows, asked.rounds = min(asked.rows, 20_000), 1
    for name, known in (("peers", PEERS), ("work", [*WORKS, "flights"]), ("further", [*FURTHER, "none"])):
        if unknown := [one for one in getattr(asked, name).split(",") if one not in known]:
            parser.error(f"--{name}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return asked


def say(line: str) -> None:
    print(line, flush=True)


def say_part(part: str) -> None:
    print(part, end="", flush=True)


def _workload(name: str, folder: Path, rows: int) -> Workload:
    return flights(folder) if name == "flights" else generate(folder, WORKS[name](rows))


def further(name: str, folder: str | None, *, quick: bool) -> list[dict[str, Any]]:
    """What only we are asked."""
    if name == "tagging":
        return [row for files in ((100,) if quick else (1_000, 10_000)) for row in tagging(files, folder)]
    if name == "planning":
        rows = []
        for files in (1_000,) if quick else (1_000, 10_000, 100_000):
            with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=folder) as made:
                rows += planning(Path(made) / "table", files)
        return rows
    if name == "coverage":
        return coverage(*((1_000, 10) if quick else (100_000, 50)), folder)
    return memory(32 if quick else 1024, folder)


def measured(asked: argparse.Namespace) -> Results:
    """Run it all."""
    settings = {"spark_cores": 2, "spark_memory": asked.memory, "rounds": asked.rounds}
    settings["load"] = f"{os.getloadavg()[0]:.1f}"
    results = Results(facts={**machine(), **settings})
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=asked.folder) as made:
        folder = Path(made)
        (folder / "scratch").mkdir()
        shared = Settings(memory=asked.memory, scratch=str(folder / "scratch"), ivy=os.environ.get("LAKEDEX_IVY", ""))
        with Sessions(shared) as sessions:
            rounds = Rounds(
                sessions=sessions, results=results, folder=folder / "tables", patience=asked.patience, say=say_part
            )
            for name in asked.work.split(","):
                work = _workload(name, folder / "data", asked.rows)
                say(f"{work.name}: {work.rows:,} rows, {work.updates:,} of them upserted")
                rounds.run(work, asked.peers.split(","), asked.rounds)
        shutil.rmtree(folder / "data", ignore_errors=True)
        for name in asked.further.split(","):
            if name != "none":
                started = time.monotonic()
                results.tables[name] = further(name, made, quick=asked.quick)
                say(f"[{name}] took {time.monotonic() - started:.0f} s")
    results.facts["load"] += f" to {os.getloadavg()[0]:.1f}"
    return results


def main(given: Sequence[str]) -> int:
    """Run, and say what came of it."""
    # Peers lead process groups of their own, which a terminal's Ctrl-C does not reach: they end with this block.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked = arguments(given)
    results = measured(asked)
    if asked.json:
        results.write(asked.json)
    say("\n" + text(results))
    now = taken(results, {name: getattr(asked, name) for name in GUARDED})
    if asked.save_baseline:
        now.write(BASELINE)
        say(f"\nwrote {BASELINE.name}")
    if asked.guard:
        worse = broken(now, Baseline.read(BASELINE))
        say("\nguard: " + ("all as it was" if not worse else "\n  ".join(["worse than the baseline:", *worse])))
        return 1 if worse else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
