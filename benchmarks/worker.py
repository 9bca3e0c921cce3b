"""The process of one or more peers: requests and answers are JSON lines. Started by ``sessions.py``, never imported.

Times are taken here, around the call alone: the way here and back is not in them.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from typing import Any, TextIO

import pyarrow as pa

from benchmarks.data import Workload
from benchmarks.peers import peer_class
from benchmarks.peers.protocol import QUESTIONS, Answer, Peer, Settings
from benchmarks.usage import cpu_seconds

__all__: list[str] = []


class Worker:
    """One method per request."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._peers: dict[str, Peer] = {}

    def start(self, peer: str) -> dict[str, Any]:
        """Start a peer."""
        made = self._peers[peer] = peer_class(peer)(self._settings)
        made.start()
        return {"versions": dict(made.versions()), "steps": list(made.steps), "title": made.title}

    def stop(self) -> dict[str, Any]:
        """Stop all."""
        for peer in self._peers.values():
            peer.stop()
        return {}

    def measure(self, peer: str, step: str, work: dict[str, Any], path: str, rows: str, repeat: int) -> dict[str, Any]:
        """One step, a question several times."""
        found, own, answer = self._peers[peer], Workload.of(work), Answer()
        before = found.counted()
        found.told = {}
        for number in range(repeat):
            cpu, started = cpu_seconds(os.getpid()), time.perf_counter()
            answer.value = _call(found, step, own, path, rows, first=number == 0)
            answer.seconds.append(time.perf_counter() - started)
            answer.cpu.append(cpu_seconds(os.getpid()) - cpu)
            if number == 0:
                after = found.counted()
                answer.counts = {name: value - before.get(name, 0) for name, value in after.items()} | found.told
        if step in QUESTIONS:
            answer.counts |= found.examined(own, path, step)
        return {name: getattr(answer, name) for name in ("seconds", "cpu", "counts", "value")}

    def cluster(self, peer: str, path: str, by: str) -> dict[str, Any]:
        """Cluster a table: seconds, processor time, peak of this process, and what the engine told."""
        found = self._peers[peer]
        found.told = {}
        cpu, started = cpu_seconds(os.getpid()), time.perf_counter()
        found.cluster(path, by)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"seconds": seconds, "cpu": cpu_seconds(os.getpid()) - cpu, "peak": peak, **found.told}

    def checksum(self, peer: str, work: dict[str, Any], path: str) -> dict[str, Any]:
        """Rows and sum of a table."""
        return {"value": list(self._peers[peer].checksum(Workload.of(work), path))}


def _call(peer: Peer, step: str, work: Workload, path: str, rows: str, *, first: bool) -> int | None:
    if step == "load":
        peer.load(work, path)
        return None
    if step == "read":
        return peer.read(work, path)
    if step == "compact":
        peer.compact(work, path)
        return None
    if step in ("upsert", "small"):
        peer.upsert(work, path, rows)
        return None
    if first:
        peer.open(work, path)
    return peer.ask(work, path, step)


def _serve(answers: TextIO) -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    pa.set_cpu_count(settings.cores)
    worker = Worker(settings)
    for line in sys.stdin:
        request = json.loads(line)
        number, name = request.pop("id"), request.pop("op")
        try:
            answer = getattr(worker, name)(**request)
        except Exception as error:
            text = str(error).strip() or type(error).__name__
            answer = {"error": f"{type(error).__name__}: {text.splitlines()[0]}", "trace": traceback.format_exc()}
        answers.write(json.dumps({"id": number, **answer}) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Java, Ivy and libraries print to standard output too: only the answers may go to the parent's pipe.
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _serve(private)
