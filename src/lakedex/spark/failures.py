"""Errors of lakedex that cross Spark, brought back as themselves.

A task's error reaches the driver as text inside Spark's own exception, an error of the file index as the message of a
Java one. Both are kept so that :func:`surfacing` can raise the original again.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from lakedex.errors import CommitError, LakedexError

__all__ = ["carried", "is_final", "recover", "remember", "surfacing"]

_MARKER = re.compile(r"lakedex-error\[([A-Za-z0-9+/=]+)\]")
# LocalCheckpointRDD.compute, of a block that no executor has any more.
_LOST = re.compile(r"Checkpoint block \w+ not found")
_recent: deque[LakedexError] = deque(maxlen=32)


def is_final(error: BaseException) -> bool:
    """Whether a retry of the task cannot help: errors of lakedex, unless they say ``retryable``."""
    return isinstance(error, LakedexError) and not getattr(error, "retryable", False)


def carried(error: LakedexError) -> RuntimeError:
    """An exception whose text holds ``error``."""
    packed = base64.b64encode(pickle.dumps(error)).decode("ascii")
    return RuntimeError(f"{error}\nlakedex-error[{packed}]")


def remember(error: LakedexError) -> None:
    """Keep an error that this process is about to hand to the JVM as a message."""
    _recent.append(error)


def recover(error: BaseException) -> LakedexError | None:
    """The error of lakedex that ``error`` stands for, if any."""
    if isinstance(error, LakedexError):
        return error
    text = str(error)
    found = _MARKER.search(text)
    if found is not None:
        unpacked = pickle.loads(base64.b64decode(found.group(1)))
        return unpacked if isinstance(unpacked, LakedexError) else None
    return next((kept for kept in reversed(_recent) if str(kept) and str(kept) in text), None)


@contextmanager
def surfacing() -> Iterator[None]:
    """Around a Spark action: errors of lakedex that Spark wrapped leave as themselves.

    Raises:
        CommitError: Rows that a write kept on executors are gone with them.
    """
    try:
        yield
    except LakedexError:
        raise
    except Exception as error:
        original = recover(error)
        if original is None and _LOST.search(str(error)):
            what = "all executors that kept some rows of the write were lost (two keep each row, where there are two)"
            original = CommitError(f"{what}; nothing of it was committed, write the same input again")
        if original is None:
            raise
        raise original from error
