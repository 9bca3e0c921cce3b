"""Every error that lakedex raises on purpose.

One base, :class:`LakedexError`; where Python has a word for the kind of failure (``FileNotFoundError``,
``ValueError``, ``NotImplementedError``, ``TimeoutError``) the error is also that. Fields are attributes.
Errors cross processes: they pickle (``__reduce__``), and as text they are a class name, a message and fields, all of
which are JSON values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lakedex.printing import printable

__all__ = [
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "CorruptFileError",
    "FileGoneError",
    "FileTakenError",
    "FormatError",
    "IndexExistsError",
    "IndexInconsistentError",
    "IndexNotFoundError",
    "IndexingError",
    "InvalidInputError",
    "LakedexError",
    "LockTimeoutError",
    "MissingDependencyError",
    "MissingEngineError",
    "OptionError",
    "SchemaMismatchError",
    "StorageError",
    "TableExistsError",
    "TableNotFoundError",
    "UnsupportedFeatureError",
    "error_classes",
    "error_from_fields",
    "error_to_fields",
]


def _rebuild(cls: type[LakedexError], message: str, fields: dict[str, Any]) -> LakedexError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(fields)
    return error


class LakedexError(Exception):
    """Base of all errors of lakedex."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self.args[0]) if self.args else "", dict(self.__dict__))

    def __str__(self) -> str:
        return printable(str(self.args[0])) if self.args else type(self).__name__


def error_to_fields(error: LakedexError) -> tuple[str, str, dict[str, Any]]:
    """Class name, message and fields; :func:`error_from_fields` makes the error of them again."""
    return type(error).__name__, str(error.args[0]) if error.args else "", dict(error.__dict__)


def error_from_fields(name: str, message: str, fields: dict[str, Any]) -> LakedexError:
    """The error of the class of that name in the tree, or of its root."""
    return _rebuild(next((cls for cls in error_classes() if cls.__name__ == name), LakedexError), message, fields)


def error_classes(base: type[LakedexError] = LakedexError) -> Iterator[type[LakedexError]]:
    """The whole tree: ``base`` and what derives from it."""
    yield base
    for cls in base.__subclasses__():
        yield from error_classes(cls)


class TableNotFoundError(LakedexError, FileNotFoundError):
    """No Hudi table at the path. Fields: ``path``."""


class TableExistsError(LakedexError, FileExistsError):
    """``Table.create`` met a table. Fields: ``path``."""


class InvalidInputError(LakedexError, ValueError):
    """A frame, key, predicate or argument that cannot be used. Fields: ``column``, ``count`` where they apply."""


class OptionError(InvalidInputError):
    """An option that is unknown, has a bad value, or means something that lakedex does not do. Fields: ``option``."""


class MissingEngineError(InvalidInputError):
    """A call that needs Spark on a table that was opened without it. Fields: ``feature``."""


class FormatError(LakedexError, ValueError):
    """Bytes or settings on disk that cannot be used."""


class CorruptFileError(FormatError):
    """Damaged bytes. Fields: ``path``, ``offset``, ``expected``, ``found``."""

    path: str
    offset: int
    expected: str
    found: str

    def __init__(self, path: str, offset: int, expected: str, found: str) -> None:
        way_out = "; maintenance.rebuild_metadata() rebuilds the metadata table" if "/.hoodie/metadata/" in path else ""
        super().__init__(
            f"{path or '<bytes>'}: corrupt at byte {offset}: expected {expected}, found {found}{way_out}",
            path=path,
            offset=offset,
            expected=expected,
            found=found,
        )


class UnsupportedFeatureError(FormatError, NotImplementedError):
    """Something that lakedex does not do (yet). Fields: ``feature``."""

    feature: str

    def __init__(self, message: str, *, feature: str = "") -> None:
        super().__init__(message, feature=feature)


class SchemaMismatchError(LakedexError, ValueError):
    """A column whose type does not fit the table. Fields: ``column``, ``expected``, ``found``."""


class CommitError(LakedexError):
    """A commit that did not happen."""


class CommitConflictError(CommitError):
    """Another writer committed to what this write read.

    Fields: ``ours``, ``theirs``, ``file_groups`` (partition and file id of each), ``retryable``.
    """

    ours: str | None
    theirs: str | None
    file_groups: list[list[str]]
    retryable: bool

    def __init__(
        self,
        message: str,
        *,
        ours: str | None = None,
        theirs: str | None = None,
        file_groups: Iterable[tuple[str, str]] = (),
        retryable: bool = False,
    ) -> None:
        groups = sorted(list(group) for group in file_groups)
        super().__init__(message, ours=ours, theirs=theirs, file_groups=groups, retryable=retryable)


class CommitStateUnknownError(CommitError):
    """The completing call failed so that nobody can say whether it took effect. Never retried. Fields: ``instant``."""


class LockTimeoutError(CommitError, TimeoutError):
    """The table lock was not free in time. Fields: ``path``, ``holder``."""


class IndexingError(LakedexError):
    """An index that cannot be built, used or found."""


class IndexNotFoundError(IndexingError, KeyError):
    """The table has no such index. Fields: ``index``."""

    index: str


class IndexExistsError(IndexingError):
    """The table has the index already. Fields: ``index``."""

    index: str


class IndexInconsistentError(IndexingError):
    """An index that does not agree with the data.

    Fields: ``report`` (each file as a dict); where a scan found it also ``table``, ``path``, ``file``, ``partition``,
    ``stage`` and ``record_key``.
    """


class StorageError(LakedexError, OSError):
    """A file system did not do what it was asked.

    Fields: ``path``, ``operation``, ``errno`` (None if it gave none). On object stores also ``status`` (of HTTP; None
    without an answer), ``code`` (as ``SlowDown``), ``tries``, and ``effect`` of a write: ``none`` or ``unknown``.
    """

    path: str
    operation: str

    @property
    def errno(self) -> int | None:  # type: ignore[override]
        """As in ``OSError``, which keeps it where errors that cross processes do not carry it."""
        found: int | None = self.__dict__.get("errno")
        return found


class FileGoneError(StorageError, FileNotFoundError):
    """A file that is not there (any more)."""


class FileTakenError(StorageError, FileExistsError):
    """A file to create that is there already."""


class MissingDependencyError(LakedexError, ImportError):
    """An optional package is needed. Fields: ``extra``, that of lakedex, or the package itself."""
