"""The legs of ``./dev test``: which tests run where, and what runs side by side."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from environments import SPARK35, SPARK40, SPARK41, SPARK43, Environment, prepare, prepare_judge
from paths import CACHE, ROOT
from process import DevError, begun, say, shown
from scratch import scratch

__all__ = ["JUDGE", "JUDGES", "ROUNDS", "Leg", "run_legs"]

NO_TESTS_COLLECTED = 5
NO_ENVIRONMENT = -1
JUDGE = "judge"
"""What ``./dev setup`` calls Hudi's bundle."""

# The JVMs of tests run each thing once or twice: what their second compiler does is half of their work and never earned
# back. Without it Java's code cache is small, and Spark with Hudi overfills it. Nor are the classes of released jars
# verified again, and Hudi does not ask a second JVM, attached as a debugger, how large objects are. Hadoop starts a
# chmod for each file that it makes; by vfork that is half as dear.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:NewSize=300m -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -Djol.skipHotspotSAAttach=true"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)


@dataclass(frozen=True, eq=False)
class Leg:
    """One run of pytest: some folders on one environment."""

    title: str
    environment: Environment
    folders: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[str, ...]:
        """What ``./dev setup`` calls the things that have to be there."""
        return (self.environment.name, JUDGE) if self is JUDGES else (self.environment.name,)

    @property
    def label(self) -> str:
        """What it is called in the output."""
        return f"{self.title} ({self.environment.name})"


_NEED_NO_JVM = (
    "tests/test_architecture.py",
    "tests/test_house.py",
    "tests/test_requirements.py",
    *(f"tests/{name}" for name in ("unit", "golden", "fuzz", "properties", "pruning", "crash")),
)
PLAIN = Leg(
    "without a JVM",
    SPARK43,
    _NEED_NO_JVM,
    ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"),
    {"LAKEDEX_JUDGES_REQUIRED": "1"},
)
# A file's tests share what they set up.
TWO_JVMS = ("-n", "2", "--dist", "loadfile")
ON_SPARK35 = Leg("Spark 3.5.9", SPARK35, ("tests/spark",), TWO_JVMS)
ON_SPARK43 = Leg("Spark 4.3.0", SPARK43, ("tests/spark",), TWO_JVMS)
SMOKE = (
    Leg("smoke on Spark 4.1.4", SPARK41, ("tests/spark",), ("-m", "smoke")),
    Leg("smoke on Spark 4.0.5", SPARK40, ("tests/spark",), ("-m", "smoke")),
)
# A process that has had a classic session gives no Connect session, so these are a run of their own.
CONNECT = Leg("Spark Connect 4.3.0", SPARK43, ("tests/connect",))
JUDGES = Leg(
    "judges: Hudi 1.1.1 in Java, hudi-rs",
    SPARK35,
    ("tests/oracle",),
    # A test has its table to itself, and some take a minute: they are handed out one by one, the longest first.
    ("-n", "2", "--dist", "loadgroup"),
    variables={"LAKEDEX_JUDGES_REQUIRED": "1"},
)
# Legs of a round run side by side. Those of one JVM are so short that a second one each would mostly start.
ROUNDS = ((PLAIN,), (ON_SPARK43,), (ON_SPARK35,), (*SMOKE, CONNECT), (JUDGES,))
AT_ONCE = 2
"""Never three: Spark gives a Python worker ten seconds to start."""


@dataclass(frozen=True, eq=False)
class Run:
    """A leg, and what the user's arguments made of it."""

    leg: Leg
    arguments: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """The call of pytest."""
        return [str(self.leg.environment.python), "-m", "pytest", *self.arguments]

    @property
    def name(self) -> str:
        """What its log and its scratch folder are called."""
        return f"test-{self.leg.folders[0].rpartition('/')[2].removesuffix('.py')}-{self.leg.environment.name}"

    @property
    def log(self) -> Path:
        """Where its output waits while it runs beside others."""
        return CACHE / "logs" / f"{self.name}.log"

    def variables(self, folder: Path) -> dict[str, str]:
        """Its process environment, with a folder for the files of its tests and of Spark's shuffles."""
        env = {**self.leg.environment.variables(), **self.leg.variables}
        env["SPARK_SUBMIT_OPTS"] = f"{env['SPARK_SUBMIT_OPTS']} {SHORT_LIVED}"
        env["TMPDIR"] = env["SPARK_LOCAL_DIRS"] = str(folder)
        return env


@dataclass(frozen=True)
class Result:
    """How a leg ended."""

    leg: Leg
    code: int
    seconds: float


def run_legs(rounds: Sequence[Sequence[Leg]], arguments: Sequence[str]) -> int:
    """Run rounds of legs, each even if one before failed; 0 if all passed."""
    paths = [argument for argument in arguments if _is_path(argument)]
    options = [argument for argument in arguments if not _is_path(argument)]
    if arguments:
        # Somebody is looking for something: one leg at a time, on the terminal.
        rounds = [[leg] for legs in rounds for leg in legs]
    chosen = [runs for legs in rounds if (runs := _runs(legs, paths, options))]
    if not chosen:
        raise DevError(f"no tests there: {' '.join(paths)}" if paths else "there are no tests yet")
    first = chosen[0][0].leg.environment
    prepare(first)
    names = dict.fromkeys(name for runs in chosen for run in runs for name in run.leg.needs if name != first.name)
    # The other environments are made while the first tests run.
    log = CACHE / "logs" / "setup.log"
    setup: list[str | Path] = [ROOT / "dev", "setup", *names]
    results: list[Result] = []
    with begun(setup, cwd=ROOT, env=os.environ, log=log) if names else nullcontext() as making:
        for runs in chosen:
            beside = [run for run in runs if making and not names.keys().isdisjoint(run.leg.needs)]
            if making and beside and making.poll() is None:
                say(f"waiting for {' '.join(names)} ({log.relative_to(ROOT)})")
                making.wait()
            failed = [result for run in beside if (result := _unprepared(run))]
            results += failed
            results += _round([run for run in runs if run.leg not in {result.leg for result in failed}])
    return _summary(results)


def _round(runs: Sequence[Run]) -> Iterable[Result]:
    """The output of one leg alone is shown as it comes, that of several when each has ended."""
    if len(runs) != 1:
        return _side_by_side(runs)
    leg = runs[0].leg
    say(f"== {leg.label}")
    started = time.monotonic()
    with scratch(runs[0].name) as folder:
        code = shown(runs[0].command, cwd=ROOT, env=runs[0].variables(folder))
    return [Result(leg, code, time.monotonic() - started)]


def _side_by_side(runs: Sequence[Run]) -> Iterator[Result]:
    waiting, children = list(runs), dict[Run, tuple[subprocess.Popen[bytes], float]]()
    with ExitStack() as stack:
        while waiting or children:
            while waiting and len(children) < AT_ONCE:
                run = waiting.pop(0)
                say(f"== side by side: {run.leg.label}")
                env = run.variables(stack.enter_context(scratch(run.name)))
                child = stack.enter_context(begun(run.command, cwd=ROOT, env=env, log=run.log))
                children[run] = child, time.monotonic()
            time.sleep(0.2)
            for run, (child, started) in list(children.items()):
                code = child.poll()
                if code is not None:
                    del children[run]
                    say(f"== {run.leg.label}")
                    say(run.log.read_text(encoding="utf-8", errors="replace").rstrip())
                    yield Result(run.leg, code, time.monotonic() - started)


def _unprepared(run: Run) -> Result | None:
    """Make what a leg needs and is not there, which tells why it could not be made beside; then the leg has failed."""
    try:
        prepare(run.leg.environment)
        if JUDGE in run.leg.needs:
            prepare_judge()
    except DevError as error:
        say(f"== {run.leg.label}\n{error}")
        return Result(run.leg, NO_ENVIRONMENT, 0.0)
    return None


def _summary(results: Sequence[Result]) -> int:
    """One line a leg. A leg may select nothing (``-k``), but not all of them."""
    words = {0: "passed", NO_TESTS_COLLECTED: "nothing selected"}
    for result in results:
        say(f"{words.get(result.code, 'FAILED'):16} {result.seconds:5.0f} s  {result.leg.label}")
    codes = {result.code for result in results}
    if codes == {NO_TESTS_COLLECTED}:
        return NO_TESTS_COLLECTED
    return 0 if codes <= {0, NO_TESTS_COLLECTED} else 1


def _runs(legs: Sequence[Leg], paths: Sequence[str], options: Sequence[str]) -> list[Run]:
    """The runs of those legs that have tests at the paths."""
    return [Run(leg, (*leg.options, *options, *targets)) for leg in legs if (targets := _targets(leg, paths))]


def _is_path(argument: str) -> bool:
    return not argument.startswith("-") and (ROOT / argument.partition("::")[0]).exists()


def _targets(leg: Leg, paths: Sequence[str]) -> list[str]:
    """The leg's folders that hold tests; of paths given by the user, those that lie in the leg or around it."""
    folders = [ROOT / folder for folder in leg.folders]
    if not paths:
        return [str(folder.relative_to(ROOT)) for folder in folders if _holds_tests(folder)]
    found = []
    for text in paths:
        path = (ROOT / text.partition("::")[0]).resolve()
        if any(path.is_relative_to(folder) for folder in folders):
            found.append(text)
        else:
            inside = [folder for folder in folders if folder.is_relative_to(path) and _holds_tests(folder)]
            found += [str(folder.relative_to(ROOT)) for folder in inside]
    return found


def _holds_tests(path: Path) -> bool:
    return path.is_file() or any(path.rglob("test_*.py"))
