"""Send requests to S3, Google Cloud Storage and Azure through the package ``obstore``, each once.

obstore's own retries are switched off, since they hide whether an earlier try took effect, are spent per request, and
repeat what no repetition helps. Its errors have no fields for status and code, so both are read from its messages;
nothing else of a message is passed on, as stores put keys and signatures into theirs.

A process must not use obstore after a fork if its parent has used it: the child would wait for ever. The id of the
process that used it first is remembered, and a child refuses.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, BinaryIO, NoReturn, TypeVar

from lakedex.errors import LakedexError, MissingDependencyError, OptionError
from lakedex.io.object_store import ABSENT, Failure, Listing, ObjectInfo, RequestError
from lakedex.io.store_options import StoreAddress, plain_name

__all__ = ["ObstoreClient", "connect"]


T = TypeVar("T")


_PART_BYTES = 8 * 1024 * 1024
"""Larger files are written in parts of this size."""


_LIMITS = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "10m"}


_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
"""Begin names of the environment variables that obstore reads."""


_STATUS = re.compile(r"non-2xx status code: (\d{3})")


_CODE = re.compile(r"<Code>(\w{1,80})</Code>")


_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "OpenCredentials")


_SLOW = frozenset({"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "ServerBusy"})


_ONCE_MORE = frozenset({"RequestTimeout"})
"""Codes of a 400 that tell of a broken connection, not of a wrong request."""


_CONFLICTS = frozenset({"ConditionalRequestConflict", "OperationAborted", ""})


_ABSENT_CODES = frozenset({"NoSuchKey", "BlobNotFound", "ResourceNotFound", ""})
"""Codes of a 404 that tell of no object; others tell of no bucket, or of a user that the store does not know."""


_LACKING = (
    ("MissingSecretAccessKey", "aws_secret_access_key", "a key id needs its secret"),
    ("MissingAccessKeyId", "aws_access_key_id", "a secret needs its key id"),
    (
        "MissingAccount",
        "azure_storage_account_name",
        "give it, or write abfss://container@account.dfs.core.windows.net/path",
    ),
)
"""Signs in obstore's messages, the options that are missing, and advice."""


_FIRST_USER: list[int] = []
"""Id of the process that used obstore first, which its forks inherit."""


def _loaded() -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise MissingDependencyError(
            "tables on object stores need the package obstore: pip install 'lakedex[s3]' (or [gcs], [azure])",
            extra="s3",
        ) from error
    return obstore


def _failure(error: Exception) -> RequestError:
    """The failure that an exception of obstore tells of, by status and code."""
    text = str(error)
    if any(service in text for service in _METADATA_SERVICES):
        return RequestError(Failure.DENIED, code="NoCredentials")
    if "BadScheme" in text:
        return RequestError(Failure.REFUSED, code="HttpNotAllowed")
    if "NotPartial" in text:
        return RequestError(Failure.REFUSED, 416, "NotPartial")
    found, named = _STATUS.search(text), _CODE.search(text)
    code = named[1] if named else ""
    if found is None:
        if isinstance(error, FileNotFoundError):
            return RequestError(Failure.MISSING)
        if isinstance(error, ValueError):
            return RequestError(Failure.REFUSED, code="InvalidKey")
        return RequestError(Failure.UNREACHABLE if "kind: Connect" in text else Failure.LOST)
    status = int(found[1])
    return RequestError(_by_status(status, code, is_list="list request" in text), status, code)


def _by_status(status: int, code: str, *, is_list: bool) -> Failure:
    if status == 404:
        return Failure.MISSING if code in _ABSENT_CODES and not is_list else Failure.REFUSED
    if status == 409:
        if code in ("BlobAlreadyExists", "PreconditionFailed"):
            return Failure.CHANGED
        return Failure.CONFLICT if code in _CONFLICTS else Failure.REFUSED
    if status == 429 or (status == 503 and code in _SLOW):
        return Failure.SLOW
    if code in _ONCE_MORE or (status >= 500 and status != 501):
        return Failure.SERVER
    return _PLAIN.get(status, Failure.REFUSED)


_PLAIN = {
    401: Failure.DENIED,
    403: Failure.DENIED,
    412: Failure.CHANGED,
    501: Failure.UNSUPPORTED,
}


class ObstoreClient:
    """A bucket, reached through obstore.

    Args:
        address: bucket and options.
        environment: tells apart clients made under different environment variables.

    Raises:
        MissingDependencyError: obstore is not installed.
        OptionError: an option that obstore does not know.
    """

    def __init__(self, address: StoreAddress, environment: int = 0) -> None:
        self.address = address
        self._identity = address, environment
        self._guard = threading.Lock()
        self._stores: tuple[Any, Any] | None = None
        self._is_known = False
        self._obstore = _loaded()
        self._connected()

    def __repr__(self) -> str:
        return f"ObstoreClient({self.address!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObstoreClient) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[Any, ...]:
        return connect, (self.address,)

    @property
    def url(self) -> str:
        """Scheme and bucket."""
        return self.address.url

    def _connected(self) -> tuple[Any, Any]:
        """The store, and the same one with retries of its own for the parts of large files."""
        with self._guard:
            if self._stores is None:
                self._stores = self._store(0), self._store(8)
            return self._stores

    def _store(self, retries: int) -> Any:
        store = self._obstore.store
        make = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[self.address.provider]
        own = {plain_name(name) for name in self.address.options}
        config = {name: limit for name, limit in _LIMITS.items() if name not in own} | self.address.options
        if self.address.provider == "s3" and not own & {"allow_http", "endpoint", "endpoint_url"}:
            config |= _plain_endpoint()
        patience = {"max_retries": retries, "retry_timeout": timedelta(seconds=30)}
        try:
            return make(self.address.bucket, config=config, retry_config=patience)
        except Exception as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> NoReturn:
        # obstore's messages name the key of an option, and at times its value.
        text = str(error)
        named = re.search(r"(?:Configuration key: '|Duplicate key )([\w.]+)", text)
        option = named[1] if named else "storage_options"
        if "Duplicate" in text:
            problem = f"storage option {option!r} is given twice, under two of its names; give it once"
        elif named:
            problem = f"storage option {option!r} is unknown for {self.url}; docs/object_stores.md lists the names"
        else:
            option, problem = self._incomplete(text)
        raise OptionError(f"{self.url}: {problem}", option=option) from None

    def _incomplete(self, text: str) -> tuple[str, str]:
        """The option that lacks or cannot be used, as far as obstore's message tells, and what to do."""
        for sign, option, advice in _LACKING:
            if sign in text:
                return option, f"the storage option {option!r} is missing; {advice}"
        given = [name for name, value in self.address.pairs if value]
        proxy = next((name for name in given if name.endswith("proxy_url")), None)
        if "builder error" in text and proxy is not None:
            return proxy, f"storage option {proxy!r} is no URL of a proxy, as http://proxy:3128"
        options = f"the storage options {', '.join(given)} or of " if given else ""
        return "storage_options", f"a value of {options}the environment cannot be used; check each"

    def _ask(self, request: Callable[[Any, Any], T], *, in_parts: bool = False) -> T:
        if not _FIRST_USER:
            _FIRST_USER.append(os.getpid())
        if _FIRST_USER[0] != os.getpid():
            raise LakedexError(
                f"{self.url}: this process was forked from one that has used the store, and would wait for ever; start "
                "it by multiprocessing's 'spawn' or 'forkserver', or open the table in the child only"
            )
        try:
            result = request(self._obstore, self._connected()[in_parts])
        except (OSError, ValueError, self._obstore.exceptions.BaseError) as error:
            failed = _failure(error)
            self._is_known = self._is_known or (failed.failure is Failure.MISSING and bool(failed.code))
            raise failed from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # A panic of Rust's, which is no Exception: at an endpoint of the environment that is no URL.
            raise OptionError(
                f"{self.url}: a value of the storage options or of the environment cannot be used; an endpoint, as in "
                "AWS_ENDPOINT_URL, begins with http:// or https://",
                option="storage_options",
            ) from None
        self._is_known = True
        return result

    def _info(self, meta: Any) -> ObjectInfo:
        modified = int(meta["last_modified"].timestamp() * 1000)
        return ObjectInfo(str(meta["path"]), int(meta["size"]), modified, self._version(meta))

    def _version(self, meta: Any) -> str:
        # Google's conditions take a generation, the others an ETag.
        return str(meta["version" if self.address.provider == "gs" else "e_tag"] or "")

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        """The object."""

        def request(api: Any, store: Any) -> tuple[bytes, ObjectInfo]:
            found = api.get(store, key)
            return bytes(found.bytes()), self._info(found.meta)

        return self._ask(request)

    def get_tail(self, key: str, size: int) -> tuple[bytes, ObjectInfo]:
        """The last bytes of an object."""
        if self.address.provider == "az":  # Azure has no ranges that count from the end.
            info = self.head(key)
            start = max(0, info.size - size)
            return (self.get_ranges(key, [(start, info.size)])[0] if info.size else b""), info

        def request(api: Any, store: Any) -> tuple[bytes, ObjectInfo]:
            found = api.get(store, key, options={"range": {"suffix": size}})
            return bytes(found.bytes()), self._info(found.meta)

        try:
            return self._ask(request)
        except RequestError as error:
            # An empty object has no last byte: stores answer with 416, or with no range.
            if error.status != 416:
                raise
            data, info = self.get(key)
            return data[-size:], info

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]

        def request(api: Any, store: Any) -> list[bytes]:
            if len(ranges) == 1:
                return [bytes(api.get_range(store, key, start=starts[0], end=ends[0]))]
            return [bytes(part) for part in api.get_ranges(store, key, starts=starts, ends=ends, coalesce=0)]

        try:
            return self._ask(request)
        except RequestError as error:
            if error.status != 416:
                raise
            # One of them lies behind the end.
            return [b""] if len(ranges) == 1 else [self.get_ranges(key, [one])[0] for one in ranges]

    def head(self, key: str) -> ObjectInfo:
        """Size, time and version."""
        try:
            return self._head(key)
        except RequestError as error:
            if self._is_known or error.failure is not Failure.MISSING:
                raise
        # Answers to HEAD have no code: until another one shows that the store knows bucket and user, ask for one.
        self.get_ranges(key, [(0, 1)])
        return self._head(key)

    def _head(self, key: str) -> ObjectInfo:
        return self._ask(lambda api, store: self._info(api.head(store, key)))

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        """Write an object."""
        mode: Any = "overwrite"
        if condition == ABSENT:
            mode = "create"
        elif condition is not None:
            mode = {"version" if self.address.provider == "gs" else "e_tag": condition}
        try:
            return self._ask(
                lambda api, store: self._version(api.put(store, key, data, mode=mode, use_multipart=False))
            )
        except RequestError as error:
            if error.failure is Failure.MISSING:
                failure = Failure.REFUSED if condition in (None, ABSENT) else Failure.CHANGED
                raise RequestError(failure, error.status, error.code) from None
            raise

    def put_file(self, key: str, source: BinaryIO, size: int) -> None:
        """Write an object from a file; its parts are repeated by obstore."""
        is_large = size > _PART_BYTES

        def request(api: Any, store: Any) -> None:
            source.seek(0)
            content: Any = source if is_large else source.read()
            api.put(store, key, content, use_multipart=is_large, chunk_size=_PART_BYTES, max_concurrency=4)

        self._ask(request, in_parts=is_large)

    def list_all(self, prefix: str) -> list[ObjectInfo]:
        """All objects below a prefix."""
        return self._ask(
            lambda api, store: [self._info(meta) for chunk in api.list(store, prefix or None) for meta in chunk]
        )

    def list(self, prefix: str) -> Listing:
        """Objects and prefixes directly below a prefix."""

        def request(api: Any, store: Any) -> Listing:
            found = api.list_with_delimiter(store, prefix or None)
            return Listing([self._info(meta) for meta in found["objects"]], [str(p) for p in found["common_prefixes"]])

        return self._ask(request)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects."""
        try:
            self._ask(lambda api, store: api.delete(store, list(keys)))
        except RequestError as error:
            if error.failure is not Failure.MISSING:
                raise


def connect(address: StoreAddress) -> ObstoreClient:
    """The client of this process for a bucket; see :class:`ObstoreClient`."""
    return _connect(address, _environment())


@functools.cache
def _connect(address: StoreAddress, environment: int) -> ObstoreClient:
    return ObstoreClient(address, environment)


def _plain_endpoint() -> dict[str, str]:
    """The option that an endpoint without TLS in the environment asks for, unless the environment has it."""
    endpoints = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"))
    if "AWS_ALLOW_HTTP" in os.environ or not any(value.startswith("http://") for value in endpoints):
        return {}
    return {"aws_allow_http": "true"}


def _environment() -> int:
    """A hash of what obstore reads of the environment, as a store is another one with other variables."""
    return hash(frozenset(item for item in os.environ.items() if item[0].upper().startswith(_VARIABLES)))
