"""Requests that object stores answer, one call each, and the ways in which a request fails.

:class:`ObjectStore` is the seam between what a store does (:mod:`lakedex.io.obstore_client`, a model in
:mod:`lakedex.testing`) and the rules by which lakedex uses it (:mod:`lakedex.io.object_storage`). A store sends each
request once: it neither repeats one nor reads anything back. A failure says what may have happened:

================  =====================================================  =============  ==========
failure           answer                                                  took effect    repeated
================  =====================================================  =============  ==========
``MISSING``       404 ``NoSuchKey``, or without a code: no such object    no             no
``CHANGED``       412 (Azure: 409 ``BlobAlreadyExists``)                  no             no
``CONFLICT``      409: another conditional request was in between         no             yes
``SLOW``          503 ``SlowDown``, 429: too many requests                no             yes
``SERVER``        500, 502, 503, 504                                      unknown        yes
``LOST``          none: connection closed, timeout, body cut short        unknown        yes
``UNREACHABLE``   none: no connection                                     no             yes
``DENIED``        401, 403, no credentials                                no             no
``UNSUPPORTED``   501: a store without conditional writes                 no             no
``REFUSED``       any other 404 or 4xx; a key that is no key              no             no
================  =====================================================  =============  ==========
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, Protocol

__all__ = ["ABSENT", "Failure", "Listing", "ObjectInfo", "ObjectStore", "RequestError"]


ABSENT = "absent"
"""The condition of a put that no object may be there; any other text is the version that must be there."""


class Failure(Enum):
    """How a request failed; the module's table says what follows."""

    MISSING = "there is no such object"
    CHANGED = "another version of the object is there"
    CONFLICT = "another request for the object was in between"
    SLOW = "the store asks for fewer requests"
    SERVER = "the store failed"
    LOST = "no answer came"
    UNREACHABLE = "no connection to the store"
    DENIED = "access is denied"
    UNSUPPORTED = "the store has no such request"
    REFUSED = "the store refuses the request"

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self in _TEMPORARY

    @property
    def may_have_happened(self) -> bool:
        """Whether the request may have taken effect."""
        return self in _UNKNOWN


_UNKNOWN = frozenset({Failure.SERVER, Failure.LOST})


_TEMPORARY = _UNKNOWN | {Failure.CONFLICT, Failure.SLOW, Failure.UNREACHABLE}


class RequestError(Exception):
    """One request that failed.

    Attributes:
        failure: kind.
        status: HTTP status; None if there was no answer.
        code: error code of the store, as ``SlowDown``; empty if it gave none.
        tries: how often the request was sent.
        may_have_happened: whether one of the tries may have taken effect.
        may_happen_yet: whether one of them was never answered: the store may still be working on it.
    """

    def __init__(self, failure: Failure, status: int | None = None, code: str = "") -> None:
        super().__init__(failure.value)
        self.failure, self.status, self.code = failure, status, code
        self.tries = 1
        self.may_have_happened = failure.may_have_happened
        self.may_happen_yet = failure is Failure.LOST


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: its key, size in bytes, time of its last change in epoch milliseconds, and version."""

    key: str
    size: int
    modified: int
    version: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects whose keys are ``prefix/name``, and the prefixes ``prefix/name`` of longer keys."""

    objects: list[ObjectInfo]
    prefixes: list[str]


class ObjectStore(Protocol):
    """A bucket. Each method is one request (of a listing, one a page) and raises :class:`RequestError`.

    A store pickles, as tasks take it to executors, and its ``repr`` shows no secret.
    """

    @property
    def url(self) -> str:
        """Scheme and bucket: ``s3://lake``."""

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        """The object."""

    def get_tail(self, key: str, size: int) -> tuple[bytes, ObjectInfo]:
        """The last ``size`` bytes of an object, or all of it."""

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range ``[start, end)``, cut off at the end of the object.

        None is empty, and they are in order with at least a byte between two of them.
        """

    def head(self, key: str) -> ObjectInfo:
        """Size, time and version of an object."""

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        """Write an object, whole, if ``condition`` holds (:data:`ABSENT` or a version); return its version."""

    def put_file(self, key: str, source: BinaryIO, size: int) -> None:
        """Write an object of any size from a file, whole."""

    def list_all(self, prefix: str) -> list[ObjectInfo]:
        """All objects below ``prefix``."""

    def list(self, prefix: str) -> Listing:
        """Objects and prefixes directly below ``prefix``, which has no slash at its end; empty for the whole bucket."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, at most 1,000; those that are not there are no error."""
