"""All tests share Hypothesis profiles, marks by folder, a count of how far they are, and judges that must not be missing."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from core_tests import is_core
from limits import Limits

TESTS = Path(__file__).parent
REQUIRED = {"judge": "LAKEDEX_JUDGES_REQUIRED", "browser": "LAKEDEX_BROWSER_REQUIRED"}
JVM_FOLDERS = {"spark": pytest.mark.spark, "connect": pytest.mark.spark, "oracle": pytest.mark.judge}

# "deterministic" runs the same examples each time, so that a red run is never a surprise; "ci" does twice as many;
# "small" is for the first look of ./dev test; "deep" looks for new ones, a hundred times as many, and remembers what
# failed. `pytest --hypothesis-profile=NAME` overrides the variable.
_COMMON: dict[str, Any] = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("deterministic", max_examples=50, derandomize=True, database=None, **_COMMON)
settings.register_profile("small", max_examples=5, stateful_step_count=20, derandomize=True, database=None, **_COMMON)
settings.register_profile("ci", max_examples=100, derandomize=True, database=None, **_COMMON)
settings.register_profile("deep", max_examples=5000, stateful_step_count=100, **_COMMON)
settings.load_profile(os.environ.get("LAKEDEX_HYPOTHESIS_PROFILE") or "deterministic")
if settings().derandomize:
    # Hypothesis also draws constants that stand in the modules loaded so far: each edit, and each order of the tests,
    # would give other examples.
    providers._get_local_constants = providers.Constants


def pytest_report_header() -> str:
    """Name the profile, so that a report can be repeated."""
    return f"lakedex: hypothesis profile {os.environ.get('LAKEDEX_HYPOTHESIS_PROFILE') or 'deterministic'}"


@pytest.fixture(autouse=True, scope="session")
def _no_fsync() -> Iterator[None]:
    """No test pulls the plug: a process that is killed loses nothing that it wrote, only a machine does.

    Tests write thousands of small files and would mostly wait for the disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Limits of the library for one test."""
    return Limits(monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where judges or a browser are required, a test of theirs that skips has shown nothing: that is a failure."""
    report = yield
    for mark, variable in REQUIRED.items():
        required = os.environ.get(variable) == "1" and item.get_closest_marker(mark)
        if required and report.skipped and not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            reason = call.excinfo.value if call.excinfo else "marked to be skipped"
            report.longrepr = f"{item.nodeid}: skipped, but {variable}=1: {reason}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder.

    All of tests/spark and tests/connect needs Spark, all of tests/oracle a judge. What needs neither is in the core of
    the suite unless it says that it is heavy. Hypothesis tries few cases there, and all of them in the rest.
    """
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if kind := JVM_FOLDERS.get(folder):
            item.add_marker(kind)
            core = is_core(folder, item.path.name, item.name.partition("[")[0], item.name)
        else:
            core = item.get_closest_marker("heavy") is None
        if core:
            item.add_marker(pytest.mark.core)
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker(pytest.mark.seeded)


class Progress:
    """Counts the tests that are done, all, and those that failed, in the file that ``./dev test`` looks at."""

    def __init__(self, path: str) -> None:
        self.path, self.total = Path(path), 0
        self.done, self.failed = set[str](), set[str]()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without pytest-xdist."""
        self.total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Each worker of pytest-xdist collects the same."""
        self.total = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is done with its last phase."""
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "teardown":
            self.done.add(report.nodeid)
            self.path.write_text(f"{len(self.done)} {self.total} {len(self.failed)}", encoding="ascii")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that shows the results counts them."""
    if (path := os.environ.get("LAKEDEX_PROGRESS")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(path))
