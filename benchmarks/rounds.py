"""One workload through all peers: rounds of all steps, in each step one peer after the other, in turns."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.data import Workload
from benchmarks.peers import COPIES
from benchmarks.peers.protocol import QUESTIONS, STEPS
from benchmarks.results import Measured, Results
from benchmarks.sessions import PeerError, Sessions

__all__ = ["Rounds"]

REPEATS = 6
"""A question is asked so often in a round; the first time opens the table."""
SMALL_UPSERTS = 3


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Runs a workload.

    Attributes:
        sessions: the peers' processes.
        results: takes the figures.
        folder: for tables; each round's are deleted after it.
        patience: seconds that a call may take; a peer that needs more is ended and done with that step.
        slow: a step that took longer is not repeated in later rounds.
        say: takes progress, a line or a part of one at a time.
    """

    sessions: Sessions
    results: Results
    folder: Path
    patience: float = 300.0
    slow: float = 120.0
    say: Callable[[str], None]
    _out: set[tuple[str, str]] = field(default_factory=set)

    def run(self, work: Workload, peers: Sequence[str], rounds: int) -> None:
        """The first round is the cold one; ``rounds`` warm ones follow."""
        able = {peer: self._steps(peer) for peer in peers}
        for number in range(rounds + 1):
            self._round(work, peers, number, rounds, able)

    def _steps(self, peer: str) -> tuple[str, ...]:
        try:
            answer = self.sessions.start(peer)
        except PeerError as error:
            self.say(f"{peer} cannot be started: {error}\n")
            return ()
        self.results.facts.setdefault("versions", {}).update(answer["versions"])
        self.results.facts.setdefault("titles", {})[peer] = answer["title"]
        return tuple(answer["steps"])

    def _round(
        self, work: Workload, peers: Sequence[str], number: int, rounds: int, able: dict[str, tuple[str, ...]]
    ) -> None:
        kind = "cold" if number == 0 else f"{number} of {rounds}"
        base = self.folder / work.name / f"round-{number}"
        base.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        # A peer that takes over another's table must come after it; the others take turns at being first.
        turned = [*peers[number % len(peers) :], *peers[: number % len(peers)]]
        turned.sort(key=lambda peer: peer in COPIES)
        for step in STEPS:
            self.say(f"[{work.name} {kind}] {step:<7}")
            for peer in turned:
                if step in able[peer] and (peer, step) not in self._out:
                    self._step(work, peer, step, number, base)
                    self.say(self._short(work, peer, step, number))
            self.say("\n")
            if step == "upsert":
                self._same(work, peers, able, base)
        shutil.rmtree(base, ignore_errors=True)
        self.say(f"[{work.name} {kind}] took {time.monotonic() - started:.0f} s\n")

    def _short(self, work: Workload, peer: str, step: str, number: int) -> str:
        own = [item for item in self.results.of(peer, work.name, step) if item.round == number]
        if not own:
            return ""
        seconds = own[-1].seconds[-1]
        return f"  {peer} {seconds:.3f}" if seconds < 1 else f"  {peer} {seconds:.1f}"

    def _step(self, work: Workload, peer: str, step: str, number: int, base: Path) -> None:
        path = base / peer
        if step == "load" and peer in COPIES:
            if (base / COPIES[peer]).exists():
                shutil.copytree(base / COPIES[peer], path)
            return
        if step != "load" and not path.exists():
            return
        batches = self._batches(work, step, number)
        repeat = REPEATS if step in QUESTIONS else 1
        for rows in batches:
            asked: dict[str, Any] = {"step": step, "work": work.to_dict(), "path": str(path), "rows": rows}
            try:
                answer = self.sessions.ask(peer, "measure", self.patience, repeat=repeat, **asked)
            except PeerError as error:
                self._out.add((peer, step))
                self.say(f"  {peer}: {error} ")
                self.results.add(Measured(peer=peer, work=work.name, step=step, round=number, error=str(error)))
                return
            item = Measured(
                peer=peer,
                work=work.name,
                step=step,
                round=number,
                seconds=tuple(answer["seconds"]),
                cpu=tuple(answer["cpu"]),
                counts=answer["counts"],
                value=answer["value"],
            )
            self.results.add(item)
            if sum(item.seconds) > self.slow:
                self._out.add((peer, step))

    def _batches(self, work: Workload, step: str, number: int) -> Iterable[str]:
        if step == "upsert":
            return [work.upsert]
        if step == "small":
            return work.small[:SMALL_UPSERTS]
        return [""]

    def _same(self, work: Workload, peers: Sequence[str], able: dict[str, tuple[str, ...]], base: Path) -> None:
        """Stop if two peers do not hold the same rows now."""
        sums = {}
        for peer in peers:
            if "upsert" in able[peer] and (peer, "upsert") not in self._out and (base / peer).exists():
                answer = self.sessions.ask(peer, "checksum", self.patience, work=work.to_dict(), path=str(base / peer))
                sums[peer] = answer["value"]
        first = next(iter(sums.values()), None)
        for peer, (rows, total) in sums.items():
            if first and (rows != first[0] or not math.isclose(total, first[1], rel_tol=1e-9)):
                raise SystemExit(f"{work.name}: {peer} holds {rows} rows, sum {total}; others {first}")
