"""The tiers of ``./dev test``: none of its tests is lost, and one leg's fate is not another's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core_tests import FOLDERS
from tool_modules import TOOLS, loaded

ROOT = TOOLS.parent
legs, runner, process = loaded("legs"), loaded("runner"), loaded("process")
MARKS = ("core", "seeded", "heavy", "smoke")
MARKED = [tuple(name for name, on in zip(MARKS, chosen, strict=True) if on) for chosen in product((0, 1), repeat=4)]
Place = tuple[str, str]
"""An environment and a folder of tests."""


@pytest.fixture(scope="module")
def selected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], frozenset[str]]:
    """The names of tests, one for each set of marks, that pytest chooses by an expression."""
    folder = tmp_path_factory.mktemp("marked")
    tests = "\n".join(
        "".join(f"@pytest.mark.{mark}\n" for mark in marks) + f"def test_{'_'.join(marks)}(): pass\n"
        for marks in MARKED
    )
    (folder / "test_marked.py").write_text(f"import pytest\n{tests}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n" + "".join(f"    {mark}\n" for mark in MARKS))
    known: dict[str, frozenset[str]] = {}

    def choose(expression: str) -> frozenset[str]:
        if expression not in known:
            command = [sys.executable, "-m", "pytest", "-q", "--co", "-m", expression, "."]
            bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            done = subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, check=False)
            known[expression] = frozenset(line for line in done.stdout.splitlines() if "::" in line)
        return known[expression]

    return choose


def chosen(tier: str, selected: Callable[[str], frozenset[str]]) -> Counter[tuple[Place, str]]:
    """How often a tier runs a test of each kind at each place."""
    return Counter(
        ((leg.environment.name, folder), name)
        for legs_of_round in legs.TIERS[tier]
        for leg in legs_of_round
        for folder in leg.folders
        for name in selected(leg.marks)
    )


def test_the_first_tier_and_the_rest_are_all(selected: Callable[[str], frozenset[str]]) -> None:
    """Together they run what ``--all`` runs; twice only what has more cases the second time."""
    first, rest, everything = (chosen(tier, selected) for tier in ("first", "rest", "all"))
    assert first.keys() | rest.keys() == everything.keys()
    assert max(first.values()) == max(rest.values()) == max(everything.values()) == 1
    both = {name for _, name in first.keys() & rest.keys()}
    assert both and all("seeded" in name for name in both)
    assert all("seeded" in name for _, name in first if (_, name) in rest)
    few = {leg.marks for round_ in legs.TIERS["first"] for leg in round_}
    assert few == {"core"}
    (quick,), (plain, *_) = legs.TIERS["quick"][0], legs.TIERS["first"][0]
    assert quick.marks == plain.marks
    assert all(any(Path(path).is_relative_to(folder) for folder in plain.folders) for path in quick.folders)


def test_all_tests_are_in_a_leg() -> None:
    """A folder of tests that no leg names would never be run."""
    folders = [ROOT / folder for legs_of_round in legs.TIERS["all"] for leg in legs_of_round for folder in leg.folders]
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "golden_tables" not in path.parts]
    lost = [str(path) for path in files if not any(path.is_relative_to(folder) for folder in folders)]
    assert not lost


def test_the_matrices_are_those_of_the_tests() -> None:
    """Each mark names a cell, each row has a proof, and the page was written since."""
    page = loaded("compatibility_page")
    every = page.proofs()
    assert {proof.row for proof in every} == {*page.OPERATIONS, *page.TABLES}
    assert {engine for proof in every for engine, verb in proof.columns if verb} <= set(page.ENGINES)
    text = page.PAGE.read_text("utf-8")
    assert text == page.page_with_matrices(text), "run tools/compatibility_page.py"


def test_the_core_names_tests_that_are_there() -> None:
    """A test that is renamed would leave the core unseen."""
    for folder, names in FOLDERS.items():
        for name in names:
            file, _, test = name.partition("::")
            assert f"def {test.partition('[')[0]}" in (ROOT / "tests" / folder / file).read_text(), name


@pytest.mark.parametrize(
    ("tier", "jvm", "profile"),
    [("first", True, "small"), ("quick", False, "small"), ("rest", True, None), ("all", True, None)],
)
def test_what_a_tier_needs(tier: str, jvm: bool, profile: str | None) -> None:
    tier_legs = [leg for legs_of_round in legs.TIERS[tier] for leg in legs_of_round]
    assert {leg.variables.get("LAKEDEX_HYPOTHESIS_PROFILE") for leg in tier_legs} == {profile}
    assert any({"tests/spark", "tests/oracle"} & set(leg.folders) for leg in tier_legs) is jvm


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes legs of this interpreter and a file of tests that takes no time."""
    for module, name, value in (
        (runner, "prepare", lambda environment: None),
        (runner, "ROOT", tmp_path),
        (runner, "CACHE", tmp_path),
        (legs, "ROOT", tmp_path),
        (loaded("scratch"), "CACHE", tmp_path),
        (loaded("scratch"), "ROOT", tmp_path),
    ):
        monkeypatch.setattr(module, name, value)
    environment = SimpleNamespace(
        name="here", python=sys.executable, variables=lambda: {**os.environ, "SPARK_SUBMIT_OPTS": ""}
    )
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    marks = "".join(f"    {mark}\n" for mark in ("core", "seeded", "judge", "spark"))
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\naddopts = -p no:randomly\npythonpath = {ROOT / 'tests'}\nmarkers =\n{marks}"
    )

    def make(title: str, test: str, environment: Any = environment) -> Any:
        (tmp_path / title).mkdir()
        (tmp_path / title / "test_it.py").write_text(test)
        return replace(legs.PLAIN, title=title, environment=environment, folders=(title,), options=())

    return make


PASSES = "def test_one(): pass\ndef test_two(): pass\n"
FAILS = "def test_wrong(): assert 1 == 2\n"
DIES = "import os\ndef test_dies(): os.kill(os.getpid(), 9)\n"


def test_a_leg_that_fails_or_dies_leaves_the_others(
    made: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    rounds = [[made("red", FAILS), made("dead", DIES)], [made("green", PASSES)]]
    assert runner.run_legs(rounds, ()) == 1
    shown = capfd.readouterr().out
    assert "leg 1 of 3: red (here)" in shown
    assert "leg 3 of 3: 2 of 2 tests, " in shown
    assert "leg 1 of 3: 1 of 1 tests, 1 FAILED" in shown
    assert "assert 1 == 2" in shown
    assert [line.split()[0] for line in shown.splitlines()[-3:]].count("FAILED") == 2
    assert "passed" in shown.splitlines()[-1] and "green" in shown.splitlines()[-1]


def test_an_interrupt_reports_what_has_ended(made: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> dict[str, str]:
        raise KeyboardInterrupt

    stops = SimpleNamespace(name="here", python=sys.executable, variables=interrupted)
    rounds = [[made("green", PASSES)], [made("stopped", PASSES, stops)], [made("later", PASSES)]]
    with pytest.raises(KeyboardInterrupt):
        runner.run_legs(rounds, ())
    words = [line.partition(" ")[0] for line in capfd.readouterr().out.splitlines()[-3:]]
    assert words == ["passed", "interrupted", "not"]


def test_arguments_are_pytests(made: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    """Paths choose legs, options go to each; the output is pytest's own."""
    rounds = [[made("green", PASSES), made("red", FAILS)]]
    assert runner.run_legs(rounds, ("green/test_it.py", "-k", "one")) == 0
    shown = capfd.readouterr().out
    assert "1 passed, 1 deselected" in shown
    assert "red" not in shown
    with pytest.raises(process.DevError, match="no tests there"):
        runner.run_legs([[made("other", PASSES)]], ("pytest.ini",))


def test_the_progress_moves_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    """A line every ten seconds."""
    times = iter((0.0, 1.0, 9.9, 10.0, 15.0, 20.5))
    tell = runner.Teller(lambda: next(times))
    for number in range(5):
        tell(lambda: f"line {number}")  # noqa: B023 - called at once
    assert capfd.readouterr().out.split("\n") == ["   line 2", "   line 4", ""]
