"""Progress on a terminal, for calls that take longer than a second."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["Meter"]


PATIENCE = 1.0
"""Seconds until it shows."""

_steps = logging.getLogger("lakedex.progress")


class Meter(logging.Handler):
    """A bar on stderr, and the ``progress`` argument of calls. Shows nothing where stderr is no terminal."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._title = ""
        self._state = (0, 0)
        self._bar: Any = None
        self._running = False
        self._guard = threading.RLock()

    def __call__(self, done: int, total: int) -> None:
        """Take the number of steps done, and of all."""
        self._state = (done, total)
        self._update()

    def emit(self, record: logging.LogRecord) -> None:
        """Take the name of a step that the library reports."""
        self._title = record.getMessage()
        self._update()

    @contextmanager
    def running(self, title: str) -> Iterator[Meter]:
        """Show ``title`` and the progress while the block runs, from the second second on."""
        if not sys.stderr.isatty():
            yield self
            return
        self._title, self._running = title, True
        timer = threading.Timer(PATIENCE, self._start)
        timer.daemon = True
        timer.start()
        level = _steps.level
        _steps.addHandler(self)
        _steps.setLevel(logging.INFO)
        try:
            yield self
        finally:
            timer.cancel()
            _steps.removeHandler(self)
            _steps.setLevel(level)
            with self._guard:
                self._running = False
                if self._bar is not None:
                    self._bar.stop()
                    self._bar = None

    def _start(self) -> None:
        rich = import_module("rich.progress")
        columns = (rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False))
        bar = rich.Progress(
            *columns,
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            console=import_module("rich.console").Console(stderr=True),
            transient=True,
        )
        with self._guard:
            if not self._running:
                return
            self._bar = bar
            bar.add_task(self._title, total=None)
            bar.start()
        self._update()

    def _update(self) -> None:
        with self._guard:
            if self._bar is not None:
                done, total = self._state
                self._bar.update(self._bar.task_ids[0], description=self._title, completed=done, total=total or None)
