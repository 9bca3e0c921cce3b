"""Merge-on-read beside copy-on-write and the peers that write changes apart: writes, reads and compaction.

A round: load, an upsert of one row in a hundred over all files, ten upserts of ten rows, a read of all rows,
compaction, the read again. Peers without a compaction are only read once more.

    ./dev bench merge_on_read [--rows 200000] [--files 20] [--rounds 3] [--peers NAMES] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.data import Generated, Workload, generate
from benchmarks.peers import MERGE_ON_READ
from benchmarks.peers.protocol import Settings
from benchmarks.report import table
from benchmarks.results import Measured, Results, machine
from benchmarks.sessions import PeerError, Sessions

__all__ = ["STEPS", "goals", "merge_on_read", "seconds_by_step"]

SMALL = 10
PATIENCE = 600.0
STEPS = ("load", "upsert", "small", "read", "compact", "read again")
AT_MOST = (("small", "lakedex-mor-arrow", 0.025), ("small", "lakedex-mor", 0.25))
"""Step, peer, seconds."""
GOALS = (
    ("upsert", "lakedex-mor-arrow", "deltalake", 0.5),
    ("upsert", "lakedex-mor", "hudi-mor", 0.1),
    ("compact", "lakedex-mor-arrow", "lakedex-arrow", 1.2),
    ("read", "lakedex-mor", "hudi-mor", 1.0),
)
"""Step, peer, beside whom, at most how many times as long. A copy-on-write peer's compaction is its upsert."""


def merge_on_read(sessions: Sessions, work: Workload, folder: Path, peers: list[str], rounds: int) -> Results:
    """Run all rounds; the first is the cold one."""
    results = Results(facts={**machine(), "rounds": rounds})
    for peer in list(peers):
        try:
            answer = sessions.start(peer)
            results.facts.setdefault("versions", {}).update(answer["versions"])
        except PeerError as error:
            print(f"{peer} cannot be started: {error}", flush=True)
            peers.remove(peer)
    for number in range(rounds + 1):
        for peer in [*peers[number % len(peers) :], *peers[: number % len(peers)]]:
            path = folder / f"{number}-{peer}"
            try:
                for item in _life(sessions, work, peer, path, number):
                    results.add(item)
            except PeerError as error:
                print(f"{peer}: {error}", flush=True)
            shutil.rmtree(path, ignore_errors=True)
        print(f"round {number} of {rounds} done", flush=True)
    return results


def _life(sessions: Sessions, work: Workload, peer: str, path: Path, number: int) -> list[Measured]:
    done = []

    def step(name: str, rows: str = "", asked: str = "") -> None:
        answer = sessions.ask(
            peer, "measure", PATIENCE, step=asked or name, work=work.to_dict(), path=str(path), rows=rows, repeat=1
        )
        own = {"seconds": tuple(answer["seconds"]), "cpu": tuple(answer["cpu"]), "counts": answer["counts"]}
        done.append(Measured(peer=peer, work=work.name, step=name, round=number, value=answer["value"], **own))

    step("load", work.load)
    step("upsert", work.upsert)
    for turn in range(SMALL):
        step("small", work.small[turn % len(work.small)])
    step("read")
    step("compact")
    step("read again", asked="read")
    return done


def seconds_by_step(results: Results, work: str) -> str:
    """Warm seconds of all peers."""
    rows = []
    for peer in results.peers(work):
        figures = [results.figure(peer, work, step) for step in STEPS]
        rows.append([peer, *("–" if one is None else f"{one.warm:.3f}" for one in figures)])
    return table(["seconds, warm", *STEPS], rows)


def goals(results: Results, work: str) -> list[str]:
    """Each goal, and what came out."""
    pairs = [(one, step, other, "upsert" if step == "compact" else step, limit) for step, one, other, limit in GOALS]
    pairs += [(peer, "read", peer, "read again", 1.5) for peer in ("lakedex-mor-arrow", "lakedex-mor")]
    lines = []
    for ours, step, theirs, other, limit in pairs:
        over, under = results.figure(ours, work, step), results.figure(theirs, work, other)
        if over is not None and under is not None:
            ratio = over.warm / max(under.warm, 1e-9)
            word = "met" if ratio <= limit else "missed"
            lines.append(f"{ours}, {step}: {ratio:.2f} × {theirs}, {other}; at most {limit}: {word}")
    for step, peer, limit in AT_MOST:
        own = results.figure(peer, work, step)
        if own is not None:
            word = "met" if own.warm <= limit else "missed"
            lines.append(f"{peer}, {step}: {own.warm * 1000:.0f} ms; at most {limit * 1000:.0f}: {word}")
    return lines


def _same(results: Results) -> None:
    """All peers have to read as many rows."""
    found = defaultdict(set)
    for item in results.measured:
        if item.step.startswith("read"):
            found[item.value].add(item.peer)
    if len(found) > 1:
        raise SystemExit(f"peers read different numbers of rows: {dict(found)}")


def main(given: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="./dev bench merge_on_read", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=20, help="partitions, of a file each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=",".join(MERGE_ON_READ))
    parser.add_argument("--memory", default="1500m")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as made:
        folder = Path(made)
        work = generate(folder / "rows", Generated(rows=asked.rows, partitions=asked.files))
        with Sessions(Settings(memory=asked.memory, scratch=str(folder))) as sessions:
            results = merge_on_read(sessions, work, folder, asked.peers.split(","), asked.rounds)
    results.facts |= {"spark_memory": asked.memory, "load": f"{os.getloadavg()[0]:.1f} at the end"}
    _same(results)
    print(seconds_by_step(results, work.name))
    print("\n".join(goals(results, work.name)))
    if asked.json:
        results.write(asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
