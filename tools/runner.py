"""Runs the legs of ``./dev test``: each to its end whatever became of the others, and says how far it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from environments import prepare, prepare_judge
from legs import JUDGE, SHORT_LIVED, Leg, is_path
from paths import CACHE, ROOT
from process import DevError, begun, say, shown
from scratch import scratch

__all__ = ["run_legs"]

NO_TESTS_COLLECTED = 5
NO_ENVIRONMENT = -1
INTERRUPTED = -2
NOT_RUN = -3
AT_ONCE = 2
"""Never three: Spark gives a Python worker ten seconds to start."""
SAY_EVERY = 10.0
"""Seconds from one line on the progress to the next where output goes into a file."""


@dataclass(frozen=True, eq=False)
class Run:
    """A leg with the user's arguments; ``place`` is its number among all, as in "leg 2 of 5"."""

    leg: Leg
    arguments: tuple[str, ...]
    place: str = ""

    @property
    def command(self) -> list[str]:
        """The call of pytest."""
        return [str(self.leg.environment.python), "-m", "pytest", *self.arguments]

    @property
    def name(self) -> str:
        """The name of its log and its scratch folder."""
        return f"test-{self.leg.folders[0].rpartition('/')[2].removesuffix('.py')}-{self.leg.environment.name}"

    @property
    def log(self) -> Path:
        """Its output, unless that goes to the terminal."""
        return CACHE / "logs" / f"{self.name}.log"

    def variables(self, folder: Path) -> dict[str, str]:
        """Its process environment, with a folder for the files of its tests and of Spark's shuffles."""
        env = {**self.leg.environment.variables(), **self.leg.variables}
        if profile := os.environ.get("LAKEDEX_HYPOTHESIS_PROFILE"):
            env["LAKEDEX_HYPOTHESIS_PROFILE"] = profile
        env["SPARK_SUBMIT_OPTS"] = f"{env['SPARK_SUBMIT_OPTS']} {SHORT_LIVED}"
        env["TMPDIR"] = env["SPARK_LOCAL_DIRS"] = str(folder)
        env["LAKEDEX_PROGRESS"] = str(folder / "progress")
        return env


@dataclass(frozen=True)
class Result:
    """How a leg ended."""

    leg: Leg
    code: int
    seconds: float = 0.0


def run_legs(rounds: Sequence[Sequence[Leg]], arguments: Sequence[str]) -> int:
    """Run rounds of legs, each even if one before failed; 0 if all passed."""
    runs_of = _with_arguments(rounds, arguments)
    first = runs_of[0][0].leg.environment
    prepare(first)
    names = dict.fromkeys(name for runs in runs_of for run in runs for name in run.leg.needs if name != first.name)
    # The other environments are made while the first tests run.
    log = CACHE / "logs" / "setup.log"
    setup: list[str | Path] = [ROOT / "dev", "setup", *names]
    results: list[Result] = []
    try:
        with begun(setup, cwd=ROOT, env=os.environ, log=log) if names else nullcontext() as making:
            for runs in runs_of:
                beside = [run for run in runs if making and not names.keys().isdisjoint(run.leg.needs)]
                if making and beside:
                    _wait(making, log)
                failed = [result for run in beside if (result := _unprepared(run))]
                results += failed
                ready = [run for run in runs if run.leg not in {result.leg for result in failed}]
                for result in _on_the_terminal(ready) if arguments else _side_by_side(ready):
                    results.append(result)
    except KeyboardInterrupt:
        # The legs that have ended are reported all the same.
        ended = {result.leg for result in results}
        missing = [run.leg for runs in runs_of for run in runs if run.leg not in ended]
        _summary(results + [Result(leg, NOT_RUN if number else INTERRUPTED) for number, leg in enumerate(missing)])
        raise
    return _summary(results)


def _with_arguments(rounds: Sequence[Sequence[Leg]], arguments: Sequence[str]) -> list[list[Run]]:
    """The legs that have tests at the paths among the arguments, and the calls of pytest for them."""
    paths = [argument for argument in arguments if is_path(argument)]
    options = [argument for argument in arguments if not is_path(argument)]
    if arguments:
        # Somebody is looking for something: one leg at a time, on the terminal.
        rounds = [[leg] for legs in rounds for leg in legs]
    chosen = [[(leg, targets) for leg in legs if (targets := leg.targets(paths))] for legs in rounds]
    count, number = sum(map(len, chosen)), 0
    if not count:
        raise DevError(f"no tests there: {' '.join(paths)}" if paths else "there are no tests yet")
    found = []
    for legs in filter(None, chosen):
        found.append(list[Run]())
        for leg, targets in legs:
            number += 1
            marks = ("-m", leg.marks) if leg.marks else ()
            found[-1].append(Run(leg, (*leg.options, *marks, *options, *targets), f"leg {number} of {count}"))
    return found


def _on_the_terminal(runs: Sequence[Run]) -> Iterator[Result]:
    """Run one after the other, and show pytest's output as it comes."""
    for run in runs:
        say(f"== {run.place}: {run.leg.label}")
        started = time.monotonic()
        with scratch(run.name) as folder:
            code = shown(run.command, cwd=ROOT, env=run.variables(folder))
        yield Result(run.leg, code, time.monotonic() - started)


def _side_by_side(runs: Sequence[Run]) -> Iterator[Result]:
    """Run them at once, say how far they are, and show the output of those that failed."""
    waiting, children = list(runs), dict[Run, tuple[subprocess.Popen[bytes], float, Path]]()
    tell = Teller()
    with ExitStack() as stack:
        while waiting or children:
            while waiting and len(children) < AT_ONCE:
                run = waiting.pop(0)
                say(f"== {run.place}: {run.leg.label}, about {_clock(run.leg.seconds)} ({run.log.relative_to(ROOT)})")
                folder = stack.enter_context(scratch(run.name))
                child = stack.enter_context(begun(run.command, cwd=ROOT, env=run.variables(folder), log=run.log))
                children[run] = child, time.monotonic(), folder
            time.sleep(0.2)
            tell(lambda: "  |  ".join(_progress(run, begin, at) for run, (_, begin, at) in children.items()))
            for run, (child, started, folder) in list(children.items()):
                code = child.poll()
                if code is not None:
                    del children[run]
                    tell.end()
                    say(f"   {_progress(run, started, folder)}")
                    output = run.log.read_text(encoding="utf-8", errors="replace").rstrip()
                    say(output if code not in (0, NO_TESTS_COLLECTED) else output.rpartition("\n")[2])
                    yield Result(run.leg, code, time.monotonic() - started)


def _progress(run: Run, started: float, folder: Path) -> str:
    """A leg's place, its tests so far, and its time, as ``tests/conftest.py`` counts them."""
    tests = "collecting tests"
    with suppress(OSError, ValueError):
        done, total, failed = map(int, (folder / "progress").read_text(encoding="ascii").split())
        tests = f"{done} of {total} tests" + (f", {failed} FAILED" if failed else "")
    return f"{run.place}: {tests}, {_clock(time.monotonic() - started)} of about {_clock(run.leg.seconds)}"


class Teller:
    """Shows a line that changes: in place on a terminal, else as a new line every ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.terminal = sys.stdout.isatty()
        self.clock = clock
        self.last = clock()

    def __call__(self, text: Callable[[], str]) -> None:
        """Show the text, if it is time."""
        now = self.clock()
        if now - self.last < (1.0 if self.terminal else SAY_EVERY):
            return
        self.last = now
        if self.terminal:
            print(f"\r\033[K   {text()}", end="", flush=True)
        else:
            say(f"   {text()}")

    def end(self) -> None:
        """Leave the line free for others."""
        if self.terminal:
            print("\r\033[K", end="", flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _wait(making: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the other environments are made, and show what their set-up says."""
    started, tell = time.monotonic(), Teller()

    def line() -> str:
        said = log.read_text(encoding="utf-8", errors="replace").split("\n")
        return f"setting up, {_clock(time.monotonic() - started)}: {next(filter(None, reversed(said)), '').strip()}"

    while making.poll() is None:
        tell(line)
        time.sleep(0.2)
    tell.end()


def _unprepared(run: Run) -> Result | None:
    """Make what a leg needs and is not there, which tells why it could not be made beside; then the leg has failed."""
    try:
        prepare(run.leg.environment)
        if JUDGE in run.leg.needs:
            prepare_judge()
    except DevError as error:
        say(f"== {run.place}: {run.leg.label}\n{error}")
        return Result(run.leg, NO_ENVIRONMENT)
    return None


def _summary(results: Sequence[Result]) -> int:
    """One line a leg. A leg may select nothing (``-k``), but not all of them."""
    words = {0: "passed", NO_TESTS_COLLECTED: "nothing selected", INTERRUPTED: "interrupted", NOT_RUN: "not run"}
    for result in results:
        say(f"{words.get(result.code, 'FAILED'):16} {result.seconds:5.0f} s  {result.leg.label}")
    codes = {result.code for result in results}
    if codes == {NO_TESTS_COLLECTED}:
        return NO_TESTS_COLLECTED
    return 0 if codes <= {0, NO_TESTS_COLLECTED} else 1
