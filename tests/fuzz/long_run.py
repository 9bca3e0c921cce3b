"""A long run: ``PYTHONPATH=src:tests python -m fuzz --mutations 1000000``; ``--target NAME --index N`` repeats one."""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import resource
import signal
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from operator import itemgetter

from fuzz.running import Outcome, run_target
from fuzz.targets import TARGETS, shares

__all__ = ["main"]

CHUNK = 1000
STUCK_AFTER = 60


def _work(job: tuple[str, int, int, bool]) -> Outcome:
    name, start, stop, traced = job
    where = multiprocessing.current_process().name
    # Where the process dies (which no exception tells), the last line of its file says of what.
    with open(f"{_scratch()}/{where}.last", "w", buffering=1) as last:

        def before(index: int) -> None:
            last.seek(0)
            last.write(f"{name}:{index}      \n")
            if index % 50 == 0:
                faulthandler.dump_traceback_later(STUCK_AFTER, exit=True)

        try:
            return run_target(name, TARGETS[name], range(start, stop), traced=traced, before=before)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _scratch() -> str:
    return os.environ.get("TMPDIR", "/tmp")


def _prepare(address_space: int) -> None:
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


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
    jobs = []
    for name, count in shares(names, args.mutations).items():
        stops = range(args.start, args.start + count, CHUNK)
        jobs += [(name, at, min(at + CHUNK, args.start + count), not args.untraced) for at in stops]
    # Both end the run with what came of it so far; in the background a shell has the first one ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    started = time.monotonic()
    totals: dict[str, Outcome] = {name: Outcome(name) for name in names}
    spawn = multiprocessing.get_context("spawn")
    # All targets side by side, so that a run that is stopped has tried each of them.
    jobs.sort(key=itemgetter(1))
    with ProcessPoolExecutor(args.processes, spawn, _prepare, (6 << 30,)) as pool:
        running = [pool.submit(_work, job) for job in jobs]
        try:
            for done in as_completed(running):
                outcome = done.result()
                totals[outcome.target].add(outcome)
                for fault in outcome.faults[:3]:
                    print(fault, flush=True)
        except BrokenProcessPool:
            print("a process died; the mutation that it was at is in", _scratch(), "in a file .last")
            return 2
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            print("stopped")
    print(f"{'target':26}{'mutations':>10}{'read':>9}{'refused':>9}{'faults':>8}{'slowest s':>11}{'most MiB':>10}")
    for total in totals.values():
        print(
            f"{total.target:26}{total.mutations:10}{total.read:9}{total.refused:9}{len(total.faults):8}"
            f"{total.slowest:11.3f}{total.hungriest / 2**20:10.1f}"
        )
    counted = Counter(
        mutations=sum(t.mutations for t in totals.values()), faults=sum(len(t.faults) for t in totals.values())
    )
    print(dict(counted), f"{time.monotonic() - started:.0f} s")
    return int(counted["faults"] > 0)
