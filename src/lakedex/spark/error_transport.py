"""Carry errors of lakedex across Spark; :func:`unwrapping_errors` raises them as themselves again.

Spark passes an error on as a message, and its messages quote values of rows, so no message is trusted by its looks. A
task's error is a line ``lakedex-error[<base64 of JSON>.<HMAC-SHA256>]``: class name, text and fields, signed with a key
of the driver that travels inside the task's function and appears in no text; each line counts once. An error that the
driver's Python threw into the JVM is recognized by its Java object.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakedex.errors import CommitError, LakedexError, error_from_fields, error_to_fields

__all__ = ["Seal", "is_final", "remember", "unwrap", "unwrapping_errors"]


_MARKER = re.compile(r"lakedex-error\[([A-Za-z0-9+/=]+)\.([0-9a-f]{64})\]")


_BLOCK = r"(\[\w+\] )?Checkpoint block rdd_\d+_\d+ not found"


_STAGE = (
    r"Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^()\n]*\): org\.apache\.spark\.SparkException: "
)


# LocalCheckpointRDD.compute, of a block that no executor has any more: from the message's first letter on, where no
# value of a row can be.
_LOST = re.compile(
    r"(An error occurred while calling \S+\.\n: )?(org\.apache\.spark\.SparkException: )?"
    r"(\(org\.apache\.spark\.SparkException\) )?"
    r"(Exception thrown in awaitResult: (\n\s+at [^\n]*)*\nCaused by: org\.apache\.spark\.SparkException: )?"
    rf"({_STAGE})?{_BLOCK}"
)


_CAUSES = 16
"""How deep Spark wraps an exception, at most."""


_key = secrets.token_bytes(32)


_surfaced: set[str] = set()


_thrown: deque[tuple[LakedexError, Any]] = deque(maxlen=32)


def is_final(error: BaseException) -> bool:
    """Whether a retry of the task cannot help: errors of lakedex, unless they say ``retryable``."""
    return isinstance(error, LakedexError) and not getattr(error, "retryable", False)


def _signature(key: bytes, packed: str) -> str:
    return hmac.digest(key, packed.encode(), "sha256").hex()


@dataclass(frozen=True, slots=True)
class Seal:
    """Signs errors of tasks. Made on the driver; it goes to executors inside of the function that they run."""

    _key: bytes = field(default_factory=lambda: _key, repr=False)

    def wrap(self, error: LakedexError) -> RuntimeError:
        """An exception whose text holds ``error``, and that no retry of the task would change."""
        # The number makes two errors of the same text two lines.
        content = json.dumps([secrets.token_hex(8), *error_to_fields(error)])
        packed = base64.b64encode(content.encode()).decode()
        return RuntimeError(f"{error}\nlakedex-error[{packed}.{_signature(self._key, packed)}]")


def remember(error: LakedexError, thrown: Any) -> None:
    """Keep an error that this process is about to hand to the JVM as the exception ``thrown``."""
    _thrown.append((error, thrown))


def unwrap(error: BaseException) -> LakedexError | None:
    """The error of lakedex that ``error`` stands for, if any."""
    if isinstance(error, LakedexError):
        return error
    return _of_task(str(error)) or _of_driver(error)


def _of_task(text: str) -> LakedexError | None:
    for packed, signature in _MARKER.findall(text):
        if hmac.compare_digest(signature, _signature(_key, packed)) and signature not in _surfaced:
            _surfaced.add(signature)
            _, name, message, fields = json.loads(base64.b64decode(packed))
            return error_from_fields(name, message, fields)
    return None


def _of_driver(error: BaseException) -> LakedexError | None:
    """The remembered error whose Java exception is ``error``'s, or a cause of it."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES):
        if java is None or not hasattr(java, "getCause") or not _thrown:
            return None
        for kept, thrown in tuple(_thrown):
            # Python's == of Java objects is equals(), which is identity for exceptions.
            if java == thrown:
                return kept
        java = java.getCause()
    return None


@contextmanager
def unwrapping_errors() -> Iterator[None]:
    """Around a Spark action: errors of lakedex that Spark wrapped leave as themselves.

    Raises:
        CommitError: Rows that a write kept on executors are gone with them.
    """
    try:
        yield
    except LakedexError:
        raise
    except Exception as error:
        original = unwrap(error)
        if original is None and _LOST.match(str(error)):
            what = "all executors that kept some rows of the write were lost (two keep each row, where there are two)"
            original = CommitError(f"{what}; nothing of it was committed, write the same input again")
        if original is None:
            raise
        raise original from error
