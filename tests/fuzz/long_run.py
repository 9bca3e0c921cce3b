"""A long run: ``PYTHONPATH=src:tests python -m fuzz --mutations 1000000``; ``--target NAME --index N`` repeats one."""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fuzz.hostile_targets import HOSTILE_TARGETS
from fuzz.running import Outcome, run_target
from fuzz.targets import TARGETS, shares

__all__ = ["main"]

CHUNK = 250
HOSTILE_CHUNK = 20
STUCK_AFTER = 600
ADDRESS_SPACE = 6 << 30


class _Job(NamedTuple):
    target: str
    start: int
    stop: int
    traced: bool


def _work(job: _Job, at: Any) -> Outcome:
    def before(index: int) -> None:
        at.value = index
        if index % 50 == 0:
            faulthandler.dump_traceback_later(STUCK_AFTER, exit=True)

    indexes = range(job.start, job.stop)
    try:
        return run_target(job.target, TARGETS[job.target], indexes, traced=job.traced, before=before)
    finally:
        faulthandler.cancel_dump_traceback_later()


_at: Any = None


def _prepare(address_space: int, at: Any) -> None:
    global _at
    _at = at
    os.nice(10)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


def _work_here(job: _Job) -> Outcome:
    return _work(job, _at)


@dataclass
class _Run:
    """Jobs, and what came of those that are done. Each lane is a thread with a process of its own."""

    todo: deque[_Job]
    totals: dict[str, Outcome]
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lane(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        # Where the process dies, which no exception tells, this is the mutation that it was at.
        at = spawn.Value("q", -1, lock=False)
        pool: ProcessPoolExecutor | None = None
        while (job := self._next()) is not None:
            pool = pool or ProcessPoolExecutor(1, spawn, _prepare, (ADDRESS_SPACE, at))
            at.value = -1
            try:
                outcome = pool.submit(_work_here, job).result()
            except Exception as error:
                # The run goes on around the mutation. What came of those before it is lost, so they are tried again.
                if isinstance(error, BrokenProcessPool):
                    pool.shutdown()
                    pool = None
                bad = at.value if job.start <= at.value < job.stop else job.start
                self._again(job._replace(stop=bad), job._replace(start=bad + 1))
                died = "the process died" if pool is None else f"outside of what is tried: {error!r}"
                outcome = Outcome(job.target, faults=[f"{job.target}:{bad}: {died}"])
            self._done(outcome)
        if pool is not None:
            pool.shutdown(wait=not self.stopped, cancel_futures=True)

    def _next(self) -> _Job | None:
        with self.lock:
            return self.todo.popleft() if self.todo and not self.stopped else None

    def _again(self, *parts: _Job) -> None:
        with self.lock:
            self.todo.extendleft(part for part in parts if part.start < part.stop)

    def _done(self, outcome: Outcome) -> None:
        with self.lock:
            self.totals[outcome.target].add(outcome)
            for fault in outcome.faults[:3]:
                print(fault, flush=True)


def _jobs(names: list[str], args: argparse.Namespace) -> Iterable[_Job]:
    """All targets side by side, so that a run that is stopped has tried each of them to the same part."""
    slices = []
    for name, count in shares(names, args.mutations).items():
        chunk = HOSTILE_CHUNK if name in HOSTILE_TARGETS else CHUNK
        for at in range(args.start, args.start + count, chunk):
            job = _Job(name, at, min(at + chunk, args.start + count), not args.untraced)
            slices.append(((at - args.start) / count, job))
    return [job for _, job in sorted(slices)]


def main() -> int:
    """Run, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("--mutations", type=int, default=100_000, help="of all targets together")
    parser.add_argument("--start", type=int, default=0, help="first index")
    parser.add_argument("--target", default="", help="only targets whose names begin so, by commas")
    parser.add_argument("--index", type=int, help="only this mutation, in this process")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--untraced", action="store_true", help="watch the high-water mark of memory only")
    args = parser.parse_args()
    names = [name for name in TARGETS if name.startswith(tuple(args.target.split(",")))]
    if args.index is not None:
        faulthandler.enable()
        found = [run_target(name, TARGETS[name], [args.index]) for name in names]
        print(*found, sep="\n")
        return int(any(outcome.faults for outcome in found))
    run = _Run(deque(_jobs(names, args)), {name: Outcome(name) for name in names})
    lanes = [threading.Thread(target=run.lane, daemon=True) for _ in range(args.processes)]
    # Both end the run with what came of it so far; in the background a shell has the first one ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    started = time.monotonic()
    try:
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
    except KeyboardInterrupt:
        run.stopped = True
        print("stopped, at the end of what is being tried")
        with suppress(KeyboardInterrupt):
            for lane in lanes:
                lane.join()
    with run.lock:
        return _report(run.totals, time.monotonic() - started)


def _report(totals: dict[str, Outcome], took_s: float) -> int:
    print(f"{'target':26}{'mutations':>10}{'read':>9}{'refused':>9}{'faults':>8}{'slowest s':>11}{'most MiB':>10}")
    for total in totals.values():
        print(
            f"{total.target:26}{total.mutations:10}{total.read:9}{total.refused:9}{len(total.faults):8}"
            f"{total.slowest:11.3f}{total.hungriest / 2**20:10.1f}"
        )
    counted = Counter(
        mutations=sum(t.mutations for t in totals.values()), faults=sum(len(t.faults) for t in totals.values())
    )
    print(dict(counted), f"{took_s:.0f} s")
    return int(counted["faults"] > 0)
