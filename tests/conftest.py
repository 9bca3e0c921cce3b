"""What all tests share: Hypothesis profiles, and judges that must not be missing silently."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# "deterministic" runs the same examples each time, so that a red run is never a surprise; "ci" does twice as many;
# "deep" looks for new ones, a hundred times as many, and remembers what failed. `pytest --hypothesis-profile=NAME`
# overrides the variable.
_COMMON: dict[str, Any] = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("deterministic", max_examples=50, derandomize=True, database=None, **_COMMON)
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where judges are required, a judge's test that skips has not been judged: that is a failure."""
    report = yield
    required = os.environ.get("LAKEDEX_JUDGES_REQUIRED") == "1"
    if required and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("judge"):
        report.outcome = "failed"
        reason = call.excinfo.value if call.excinfo else "marked to be skipped"
        report.longrepr = f"{item.nodeid}: skipped, but LAKEDEX_JUDGES_REQUIRED=1: {reason}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder: all of tests/spark and tests/connect needs Spark, all of tests/oracle a judge."""
    for item in items:
        folders = item.path.parts
        if "unit" not in folders and {"spark", "connect"} & set(folders):
            item.add_marker(pytest.mark.spark)
        if "oracle" in folders:
            item.add_marker(pytest.mark.judge)
