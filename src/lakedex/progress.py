"""A word on stderr about a step of a write that takes longer than two seconds.

It goes to the logger ``lakedex.progress`` at level INFO. On a terminal and in a notebook it is printed if no logging is
set up. ``logging.getLogger("lakedex.progress").disabled = True`` turns both off.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["reported_step"]

PATIENCE = 2.0
"""Seconds until a step is named."""

_log = logging.getLogger("lakedex.progress")


@contextmanager
def reported_step(text: str, patience: float = PATIENCE) -> Iterator[None]:
    """Name the block if it takes longer than ``patience`` seconds."""
    timer = threading.Timer(patience, _say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(text: str) -> None:
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", text)
    elif not _log.disabled and not logging.getLogger().handlers and _is_interactive():
        sys.stderr.write(f"lakedex: {text} …\n")
        sys.stderr.flush()


def _is_interactive() -> bool:
    """True on a terminal and in a notebook."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
