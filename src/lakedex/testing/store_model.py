"""A model of an S3 store in this process, whose requests are counted and fail by a schedule.

Kinds of fault, as a client sees them:

============  ============================================  ===========  ==================
kind          failure                                       took effect  happens to
============  ============================================  ===========  ==================
``lost``      no answer                                     yes          all
``lost500``   500 ``InternalError``                         yes          all
``hang``      no answer, after half a minute                no           all
``slow``      none, but the answer takes ten seconds        yes          all
``reset``     no answer                                     no           all
``500``       500 ``InternalError``                         no           all
``503``       503 ``SlowDown``                              no           all
``403``       403 ``AccessDenied``                          no           all
``404``       404 ``NoSuchKey``                             no           gets and heads
``short``     the body is cut off                           –            gets and listings
``409``       409 ``ConditionalRequestConflict``            no           conditional puts
``412``       412 ``PreconditionFailed``                    no           conditional puts
``501``       501 ``NotImplemented``                        no           conditional puts
============  ============================================  ===========  ==================

S3 lists and reads what was written, and compares an ETag that equal bytes share; so does the model.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar
from weakref import WeakValueDictionary

from lakedex.io.object_storage import ObjectStorage
from lakedex.io.object_store import ABSENT, Failure, Listing, ObjectInfo, RequestError
from lakedex.io.retries import Clock

__all__ = ["FaultSchedule", "ModelClock", "StoreModel", "StoreRequest"]


T = TypeVar("T")


_FAILURES = {
    "lost": (Failure.LOST, None, ""),
    "lost500": (Failure.SERVER, 500, "InternalError"),
    "hang": (Failure.LOST, None, ""),
    "reset": (Failure.LOST, None, ""),
    "500": (Failure.SERVER, 500, "InternalError"),
    "503": (Failure.SLOW, 503, "SlowDown"),
    "403": (Failure.DENIED, 403, "AccessDenied"),
    "404": (Failure.MISSING, 404, "NoSuchKey"),
    "short": (Failure.LOST, 200, ""),
    "409": (Failure.CONFLICT, 409, "ConditionalRequestConflict"),
    "412": (Failure.CHANGED, 412, "PreconditionFailed"),
    "501": (Failure.UNSUPPORTED, 501, "NotImplemented"),
}


_AFTER = frozenset({"lost", "lost500", "short"})


_ONLY = {
    "404": ("GET", "GET-range", "HEAD"),
    "short": ("GET", "GET-range", "LIST"),
    **dict.fromkeys(("409", "412", "501"), ("PUT-if-none", "PUT-if-match")),
}


_SECONDS = {"hang": 30.0, "slow": 10.0}


_WEIGHTS = {"503": 4, "500": 2, "lost": 3, "lost500": 1, "reset": 2, "409": 2, "short": 1}


_PAGE = 1000


@dataclass(slots=True)
class StoreRequest:
    """One request that a model got.

    Attributes:
        kind: ``GET``, ``GET-range``, ``HEAD``, ``LIST``, ``PUT``, ``PUT-if-none``, ``PUT-if-match`` or ``DELETE``.
        key: the object or prefix; of a delete, the first object.
        fault: what was done to it; empty for nothing.
    """

    kind: str
    key: str
    fault: str = ""

    def takes(self, fault: str) -> bool:
        """Whether a kind of fault can happen to it."""
        return self.kind in _ONLY.get(fault, (self.kind,))


class FaultSchedule:
    """Which requests of a model go wrong, and how.

    Args:
        at: kinds of fault by the number of the request, from 0.
        seed: chance of further faults; None adds none.
        every: least and greatest number of requests between two of them.
        burst: least and greatest number of 500 and 503 in a row.
        weights: how often each kind is chosen.

    Example:
        >>> model.faults = FaultSchedule({12: "lost"})
        >>> model.faults = FaultSchedule(seed=7, every=(5, 30))
    """

    def __init__(
        self,
        at: Mapping[int, str] | None = None,
        *,
        seed: int | None = None,
        every: tuple[int, int] = (5, 40),
        burst: tuple[int, int] = (1, 3),
        weights: Mapping[str, int] = _WEIGHTS,
    ) -> None:
        unknown = {*(at or {}).values(), *weights} - {*_FAILURES, "slow"}
        if unknown:
            raise ValueError(f"no such kind of fault: {', '.join(sorted(unknown))}")
        self._at, self._every, self._burst, self._weights = dict(at or {}), every, burst, weights
        self._random = None if seed is None else random.Random(seed)
        self._number = -1
        self._left: list[str] = []
        self._wait = self._random.randint(*every) if self._random else 0

    def choose(self, request: StoreRequest) -> str:
        """Kind of fault of the next request; empty for none."""
        self._number += 1
        fixed = self._at.get(self._number, "")
        if fixed:
            return fixed if request.takes(fixed) else ""
        if self._random is None:
            return ""
        if self._left:
            return self._left.pop()
        self._wait -= 1
        if self._wait > 0:
            return ""
        self._wait = self._random.randint(*self._every)
        fitting = [kind for kind in self._weights if request.takes(kind)]
        (kind,) = self._random.choices(fitting, [self._weights[kind] for kind in fitting])
        if kind in ("500", "503"):
            self._left = [kind] * (self._random.randint(*self._burst) - 1)
        return kind


class ModelClock:
    """Seconds that pass only when somebody sleeps, and chance by a seed.

    Args:
        seed: seed of the pauses' chance.
        speed: how many seconds pass in a real one while a thread sleeps; None lets sleep take no time. Threads that
            wait for each other need some.
    """

    def __init__(self, seed: int = 0, speed: float | None = None) -> None:
        self.seconds = 0.0
        self._speed = speed
        self._guard = threading.Lock()
        self._random = random.Random(seed)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        with self._guard:
            self.seconds += seconds
        time.sleep(seconds / self._speed if self._speed else 0)

    @property
    def clock(self) -> Clock:
        """The clock that a storage takes."""
        return Clock(lambda: self.seconds, self.sleep, self._random.uniform)


_MODELS: WeakValueDictionary[str, StoreModel] = WeakValueDictionary()


def _found(name: str) -> StoreModel:
    return _MODELS[name]


@dataclass(eq=False)
class StoreModel:
    """A bucket in memory; pickles within its process, as the same bucket.

    Attributes:
        time: time of the store and its clients.
        faults: which requests go wrong; None lets all succeed.
        keeps_conditions: False ignores the conditions of puts, as some S3-like stores do.
        objects: content and time of change by key.
        requests: the requests so far.

    Example:
        >>> model = StoreModel()
        >>> table = open_table("s3://model/trips", model.storage())
    """

    time: ModelClock = field(default_factory=ModelClock)
    faults: FaultSchedule | None = None
    keeps_conditions: bool = True
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    requests: list[StoreRequest] = field(default_factory=list)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self._guard = threading.RLock()
        _MODELS[self.name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self.name,)

    @property
    def url(self) -> str:
        """The bucket is called ``model``."""
        return "s3://model"

    def storage(self) -> ObjectStorage:
        """A storage over the model, with the model's time."""
        return ObjectStorage(self, self.time.clock)

    def counts(self) -> Counter[str]:
        """Number of requests by kind."""
        return Counter(request.kind for request in self.requests)

    def _answer(self, kind: str, key: str, act: Callable[[], T]) -> T:
        with self._guard:
            request = StoreRequest(kind, key)
            self.requests.append(request)
            request.fault = self.faults.choose(request) if self.faults else ""
            happens = not request.fault or request.fault in _AFTER or request.fault == "slow"
            # A failure of its own is what a request whose answer is lost does not tell either.
            result, refusal = None, None
            if happens:
                try:
                    result = act()
                except RequestError as error:
                    refusal = error
        if request.fault in _SECONDS:
            self.time.sleep(_SECONDS[request.fault])
        if request.fault in _FAILURES:
            raise RequestError(*_FAILURES[request.fault])
        if refusal is not None:
            raise refusal
        return result  # type: ignore[return-value]

    def _info(self, key: str) -> ObjectInfo:
        if key not in self.objects:
            raise RequestError(Failure.MISSING, 404, "NoSuchKey")
        data, modified = self.objects[key]
        return ObjectInfo(key, len(data), modified, _version(data))

    def _read(self, key: str) -> tuple[bytes, ObjectInfo]:
        info = self._info(key)
        return self.objects[key][0], info

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        """See :class:`lakedex.io.object_store.ObjectStore`."""
        return self._answer("GET", key, lambda: self._read(key))

    def get_tail(self, key: str, size: int) -> tuple[bytes, ObjectInfo]:
        """See :class:`lakedex.io.object_store.ObjectStore`."""

        def act() -> tuple[bytes, ObjectInfo]:
            data, info = self._read(key)
            return data[-size:], info

        return self._answer("GET-range", key, act)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See :class:`lakedex.io.object_store.ObjectStore`."""
        return [
            self._answer("GET-range", key, lambda start=start, end=end: self._read(key)[0][start:end])  # type: ignore[misc]
            for start, end in ranges
        ]

    def head(self, key: str) -> ObjectInfo:
        """See :class:`lakedex.io.object_store.ObjectStore`."""
        return self._answer("HEAD", key, lambda: self._info(key))

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        """See :class:`lakedex.io.object_store.ObjectStore`."""

        def act() -> str:
            found = _version(self.objects[key][0]) if key in self.objects else ABSENT
            if self.keeps_conditions and condition not in (None, found):
                # S3 looks for the version of an object that is not there, and says so.
                status, code = (404, "NoSuchKey") if found == ABSENT else (412, "PreconditionFailed")
                raise RequestError(Failure.CHANGED, status, code)
            self._put(key, data)
            return _version(data)

        kind = "PUT" if condition is None else "PUT-if-none" if condition == ABSENT else "PUT-if-match"
        return self._answer(kind, key, act)

    def put_file(self, key: str, source: BinaryIO, size: int) -> None:
        """See :class:`lakedex.io.object_store.ObjectStore`."""
        source.seek(0)
        data = source.read(size)
        self._answer("PUT", key, lambda: self._put(key, data))

    def _put(self, key: str, data: bytes) -> None:
        self.objects[key] = bytes(data), time.time_ns() // 1_000_000_000 * 1000

    def list_all(self, prefix: str) -> list[ObjectInfo]:
        """See :class:`lakedex.io.object_store.ObjectStore`."""
        return self._pages(prefix, lambda: [self._info(key) for key in self._below(prefix)], len)

    def list(self, prefix: str) -> Listing:
        """See :class:`lakedex.io.object_store.ObjectStore`."""

        def act() -> Listing:
            skip = len(prefix) + 1 if prefix else 0
            found = self._below(prefix)
            deeper = {key[: key.index("/", skip)]: None for key in found if "/" in key[skip:]}
            return Listing([self._info(key) for key in found if "/" not in key[skip:]], list(deeper))

        return self._pages(prefix, act, lambda found: len(found.objects) + len(found.prefixes))

    def _below(self, prefix: str) -> Sequence[str]:
        return sorted(key for key in self.objects if not prefix or key.startswith(f"{prefix}/"))

    def _pages(self, prefix: str, act: Callable[[], T], size: Callable[[T], int]) -> T:
        found = self._answer("LIST", prefix, act)
        for _ in range(_PAGE, size(found), _PAGE):
            self._answer("LIST", prefix, lambda: None)
        return found

    def delete(self, keys: Sequence[str]) -> None:
        """See :class:`lakedex.io.object_store.ObjectStore`."""

        def act() -> None:
            for key in keys:
                self.objects.pop(key, None)

        self._answer("DELETE", keys[0] if keys else "", act)


def _version(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
