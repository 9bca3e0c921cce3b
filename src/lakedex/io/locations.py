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

__all__ = ["StorageOptions", "open_storage"]


StorageOptions = Mapping[str, Any] | None
"""How a store is reached, by name: credentials, endpoint, region. None takes all from the environment."""


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Schemes have more than one letter; ``C:/`` is a drive."""


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
        InvalidInputError: a scheme that nothing here knows; the message says which path to give.
        OptionError: an option that is unknown, or for a path that takes none.

    Example:
        >>> open_storage("/data/trips/").base_path
        '/data/trips'
    """
    text = os.fspath(path)
    if not text:
        raise InvalidInputError("the table path is empty")
    scheme, colon, rest = text.partition(":")
    if scheme in PROVIDERS and "://" in text:
        return TableFiles(ObjectStorage(connect(store_address(text, options or {}))), text.rstrip("/"))
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


def _require_reachable(text: str, scheme: str) -> None:
    """Refuse paths that only another system opens, with the path to give here."""
    rest = text.partition(":")[2].lstrip("/")
    if scheme == "dbfs":
        raise InvalidInputError(
            f"{text!r} is Databricks' name of a path; give the mounted one: '/dbfs/{rest}', or '/Volumes/…' of a volume"
        )
    if scheme in ("wasb", "wasbs"):
        raise InvalidInputError(f"{text!r}: this scheme is retired; write 'abfss://{rest}'")
