"""A model of an object store that also tells how many requests waited for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lakedex.io.object_storage import ObjectStorage
from lakedex.testing import StoreModel

_REQUESTS = frozenset({"get", "get_tail", "get_ranges", "head", "put", "put_file", "list_all", "list", "delete"})


class SlowStore:
    """A store model each of whose requests takes ``seconds``, so that those of threads overlap.

    Attributes:
        model: the store.
        seconds: time of a request.
        in_a_row: requests in the longest chain, each of which began after the one before had ended.
    """

    def __init__(self) -> None:
        self.model = StoreModel()
        self.seconds = 0.0
        self.in_a_row = 0
        self._lock = threading.Lock()

    def storage(self) -> ObjectStorage:
        """A storage over the store."""
        return ObjectStorage(self, self.model.time.clock)

    def clear(self) -> None:
        """Begin to count again."""
        self.model.requests.clear()
        self.in_a_row = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.model, name)
        return self._timed(found) if name in _REQUESTS else found

    def _timed(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                place = self.in_a_row + 1
            if self.seconds:
                time.sleep(self.seconds)
            try:
                return request(*args, **kwargs)
            finally:
                with self._lock:
                    self.in_a_row = max(self.in_a_row, place)

        return call
