"""Fixtures of the foreign judges. ``LAKEDEX_JUDGES_REQUIRED=1`` turns a missing judge from a skip into a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import java_judge
import pytest
import rust_judge
from java_judge import JavaJudge, JudgeUnavailableError
from rust_judge import RustJudge


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "judge: needs Java Hudi or hudi-rs as a foreign judge of tables")
    config.addinivalue_line("markers", "xdist_group(name): tests that one worker runs (pytest-xdist)")


LONGEST = (
    "test_commits_side_by_side",
    "test_schema_changes_in_turn",
    "test_indexes_made_and_dropped",
    "test_turns",
    "test_restores_in_turn",
    "test_java_cleans_what_we_replaced",
    "test_a_batch_outlives_java_commits_and_its_archival",
    "test_upserts_deletes_and_overwrites",
    "test_rounds_of_a_java_writer",
    "test_overwrites_in_turn",
    "test_rounds_of_both",
)
"""Begun first, so that no worker is left alone with one at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"java", "old_java", "rust"}:
            item.add_marker(pytest.mark.judge)
        if fixtures & {"java", "old_java"} and item.get_closest_marker("timeout") is None:
            # The first of them may have to wait for the download of Hudi's bundle.
            item.add_marker(pytest.mark.timeout(900))
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: place.get(item.name.partition("[")[0], len(place)) if here in item.path.parents else len(place)
    )


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaJudge]:
    """Java Hudi 1.1.1 on Spark 3.5, started once for the session."""
    yield from _started(tmp_path_factory, java_judge.HUDI_RELEASE)


@pytest.fixture(scope="module")
def old_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaJudge]:
    """Java Hudi 0.15.0 on Spark 3.5, ended after the module that asks for it: it is a second JVM."""
    yield from _started(tmp_path_factory, "0.15.0")


def _started(tmp_path_factory: pytest.TempPathFactory, release: str) -> Iterator[JavaJudge]:
    reason = java_judge.missing_reason()
    if reason:
        _missing("Java", reason)
    with JavaJudge(tmp_path_factory.mktemp("java-judge"), release=release) as judge:
        try:
            judge.start()
        except (JudgeUnavailableError, java_judge.JudgeTimeoutError, java_judge.JavaError) as error:
            _missing("Java", str(error))
        yield judge


@pytest.fixture(autouse=True)
def session_of_its_own(request: pytest.FixtureRequest) -> None:
    """No test of Java's depends on what another one left in its session."""
    if "java" in request.fixturenames:
        request.getfixturevalue("java").fresh()


@pytest.fixture(scope="session")
def rust() -> RustJudge:
    """hudi-rs 0.5."""
    reason = rust_judge.missing_reason()
    if reason:
        _missing("Rust", reason)
    return RustJudge()


def _missing(judge: str, reason: str) -> NoReturn:
    message = f"no {judge} judge: {reason}"
    if os.environ.get("LAKEDEX_JUDGES_REQUIRED") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
