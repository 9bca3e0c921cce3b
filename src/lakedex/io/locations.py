"""Find the storage of a path: a local disk, an object store, or a file system of fsspec."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from lakedex.errors import InvalidInputError, OptionError
from lakedex.io.fsspec import open_fsspec
from lakedex.io.local import LocalStorage
from lakedex.io.object_storage import ObjectStorage
from lakedex.io.obstore_client import connect
from lakedex.io.storage import TableFiles
from lakedex.io.store_options import PROVIDERS, store_address

__all__ = ["StorageOptions", "is_object_store", "open_storage"]


StorageOptions = Mapping[str, Any] | None
"""How a store is reached, by name: credentials, endpoint, region. None takes all from the environment."""


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Schemes have more than one letter; ``C:/`` is a drive."""


def is_object_store(path: str) -> bool:
    """Whether a path is a URL of an object store, which storage options are for."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.lower() in PROVIDERS


def open_storage(path: str | os.PathLike[str], options: StorageOptions = None) -> TableFiles:
    """Find the storage of a path.

    Args:
        path: a local path, ``file:`` URI, URL of an object store (``s3://``, ``s3a://``, ``gs://``, ``abfss://``,
            ``az://``), or another URL that fsspec knows.
        options: how an object store is reached; see :mod:`lakedex.io.store_options`.

    Returns:
        The storage and the path in the storage's form: absolute, no trailing slash, a URL keeps its scheme.

    Raises:
        MissingDependencyError: the package for this kind of storage is not installed.
        InvalidInputError: a scheme that nothing here knows, a URL with an empty, ``.`` or ``..`` segment or with a user
            name, options that are no mapping; the message says which path to give.
        OptionError: an option that is unknown, or for a path that takes none.

    Example:
        >>> open_storage("/data/trips/").base_path
        '/data/trips'
    """
    text = os.fspath(path)
    if not text:
        raise InvalidInputError("the table path is empty")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(
            f"storage_options is a mapping, as {{'aws_region': 'eu-central-1'}}, not {type(options).__name__}"
        )
    scheme, colon, rest = text.partition(":")
    if is_object_store(text):
        address, url = store_address(text, options or {}), _object_url(text)
        return TableFiles(ObjectStorage(connect(address)), url)
    if options:
        raise OptionError(
            f"{text!r} is in no object store, so storage options mean nothing there: leave them out",
            option="storage_options",
        )
    if scheme == "file" and colon:
        # file:/x, file:///x, and file://host/x, whose host Hadoop ignores
        text = "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest
    elif "://" in text:
        _require_reachable(text, scheme)
        return TableFiles(open_fsspec(scheme), text.rstrip("/"))
    elif _SCHEME.match(text):
        # Hadoop's form of a URL without a host; as a local path it would be a folder named "dbfs:".
        _require_reachable(text, scheme)
        raise InvalidInputError(
            f"{text!r} is no path of a store: write {scheme}://host/path, or ./{text} for a folder of this name"
        )
    return TableFiles(LocalStorage(), os.path.abspath(os.path.expanduser(text) if text.startswith("~/") else text))


def _object_url(text: str) -> str:
    """The URL with a scheme in lower case and without a slash at its end.

    Raises:
        InvalidInputError: a segment is empty, ``.`` or ``..``: stores keep those in keys, which clients shorten.
    """
    scheme, _, rest = text.partition("://")
    segments = rest.split("/")
    if not segments[-1]:
        segments.pop()
    for segment in segments:
        if segment in ("", ".", ".."):
            named = f"the segment {segment!r}" if segment else "an empty segment ('//')"
            raise InvalidInputError(f"{text!r} has {named}, which paths in object stores cannot have; leave it out")
    return f"{scheme.lower()}://{'/'.join(segments)}"


def _require_reachable(text: str, scheme: str) -> None:
    """Refuse paths that only another system opens, with the path to give here."""
    rest = text.partition(":")[2].lstrip("/")
    if scheme == "dbfs":
        raise InvalidInputError(
            f"{text!r} is Databricks' name of a path; give the mounted one: '/dbfs/{rest}', or '/Volumes/…' of a volume"
        )
    if scheme in ("wasb", "wasbs"):
        raise InvalidInputError(f"{text!r}: this scheme is retired; write 'abfss://{rest}'")
