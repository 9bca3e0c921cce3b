"""Check names in a table's own files before building paths from them.

Plans, commits, markers, manifests and settings name partitions, data files and instants. Without these checks, anyone
who may write such a file could make a reader open, or a writer delete, files outside of the table or in ``.hoodie``.

=================  ================================================================
partition path     folders below the table, separated by ``/``; empty: the table itself
base file          ``<fileId>_<writeToken>_<instant>.<extension>``
log file           ``.<fileId>_<instant>.log.<version>_<writeToken>[.cdc]``
instant            digits
=================  ================================================================

Partition values may contain any other character valid in a folder's name (``=``, ``:``, ``%``, blanks, all of
Unicode), since Hudi escapes them only on request.
"""

from __future__ import annotations

import re

from lakedex.errors import CorruptFileError, FormatError

__all__ = [
    "BASE_FILE_NAME",
    "LOG_FILE_NAME",
    "check_instant",
    "check_part",
    "check_partition",
    "check_setting",
    "file_path",
    "is_instant",
    "is_partition_path",
    "last_part",
]


BASE_FILE_NAME = re.compile(r"([a-zA-Z0-9\-]+)_([a-zA-Z0-9\-]+)_([0-9]+)(\.[a-zA-Z0-9]+)")
"""File id, write token, instant and extension."""


LOG_FILE_NAME = re.compile(
    r"\.([^._/\\\x00-\x1f\x7f\ud800-\udfff]+)_([0-9]+)\.log\.([0-9]{1,18})(?:_(([0-9]+)-([0-9]+)-([0-9]+))(\.cdc)?)?"
)
"""File id, instant, version, write token with its parts, and the suffix of change data."""


_UNSAFE = re.compile(
    "[\x00\ud800-\udfff]"  # no file system has NUL in a name, and no UTF-8 file a lone surrogate
    r"|(?:^|/)(?:/|\Z)"  # an absolute path, or an empty part
    # Windows treats a backslash as a slash. The metafile marks its folder as a partition.
    r"|(?:^|[/\\])(?:\.\.?|\.hoodie(?:_partition_metadata[^/\\]*)?)(?:[/\\]|\Z)",
    re.IGNORECASE,  # as some file systems do
)


_INSTANT = re.compile(r"[0-9]{1,40}")


_SHOWN = 80


def is_partition_path(path: str) -> bool:
    """Whether ``path`` is a folder below a table, outside of ``.hoodie``."""
    return not path or _UNSAFE.search(path) is None


def check_partition(path: str, source: str) -> str:
    """Return the partition path if it is valid.

    Raises:
        CorruptFileError: It is not; the error names the file ``source`` that contains it.
    """
    if not is_partition_path(path):
        raise _refused(source, "the path of a partition below the table's folder", path)
    return path


def check_part(name: str, source: str) -> str:
    """Return the name of a file or folder if it is valid.

    Raises:
        CorruptFileError: It is not; the error names the file ``source`` that contains it.
    """
    if BASE_FILE_NAME.fullmatch(name):
        return name  # fast path of nearly all names; the check below takes ten times as long
    if not name or "/" in name or "\\" in name or _UNSAFE.search(name) is not None:
        raise _refused(source, "the name of a file", name)
    return name


def is_instant(text: str) -> bool:
    """Whether ``text`` is an instant."""
    return _INSTANT.fullmatch(text) is not None


def check_instant(text: str, source: str) -> str:
    """Return the instant if it is valid.

    Raises:
        CorruptFileError: It is not; the error names the file ``source`` that contains it.
    """
    if not is_instant(text):
        raise _refused(source, "an instant of digits", text)
    return text


def file_path(partition: str, name: str, source: str) -> str:
    """Path of a data file below the table's folder.

    Raises:
        CorruptFileError: The path leaves the table, or the name is not that of a base or log file; the error names the
            file ``source`` that contains both.
    """
    check_partition(partition, source)
    if BASE_FILE_NAME.fullmatch(name) is None and LOG_FILE_NAME.fullmatch(name) is None:
        raise _refused(source, "the name of a base or log file", name)
    return f"{partition}/{name}" if partition else name


def last_part(path: str) -> str:
    """Last name of a path. Hudi writes absolute paths, with its own spelling of the storage URL."""
    return path.rpartition("/")[2]


def check_setting(key: str, path: str) -> str:
    """Return the folder path in a property if it is below its base folder.

    Raises:
        FormatError: It is not; the message names the property.
    """
    if not path or not path.isprintable() or _UNSAFE.search(path) is not None:
        raise FormatError(f"hoodie.properties: {key} is {path[:_SHOWN]!r}, which is not a folder below .hoodie")
    return path


def _refused(source: str, expected: str, found: str) -> CorruptFileError:
    return CorruptFileError(source, 0, expected, repr(found[:_SHOWN]))
