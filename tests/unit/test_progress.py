"""Long steps of a write are named; short ones, and those that nobody watches, are not."""

from __future__ import annotations

import io
import logging
import sys
from threading import Event

import pytest

from lakedex.progress import reported_step


class Stderr(io.StringIO):
    """Tells when something is written."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.written = terminal, Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def watched(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> Stderr:
    """A stderr in the place of the process's, and no logging: pytest sets up its own."""
    stderr = Stderr(terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    return stderr


def test_a_long_step_is_named_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = watched(monkeypatch, terminal=True)
    with reported_step("writing files of /tmp/trips", patience=0):
        assert stderr.written.wait(30)
    assert stderr.getvalue() == "lakedex: writing files of /tmp/trips …\n"


@pytest.mark.parametrize("terminal, disabled, patience", [(True, False, 60), (True, True, 0), (False, False, 0)])
def test_short_steps_and_those_that_nobody_watches_are_not(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, disabled: bool, patience: float
) -> None:
    monkeypatch.setattr(logging.getLogger("lakedex.progress"), "disabled", disabled)
    stderr = watched(monkeypatch, terminal)
    with reported_step("writing files of /tmp/trips", patience=patience):
        assert not stderr.written.wait(0.05)
    assert stderr.getvalue() == ""


def test_where_logging_is_set_up_the_logger_is_told_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stderr, log = watched(monkeypatch, terminal=True), Stderr(terminal=False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(log)])
    with caplog.at_level(logging.INFO, "lakedex.progress"), reported_step("writing files", patience=0):
        assert log.written.wait(30)
    assert log.getvalue().startswith("writing files")
    assert stderr.getvalue() == ""
