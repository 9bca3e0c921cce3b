"""hudi-rs (the ``hudi`` package, written in Rust) as a second judge of tables.

It shares no code with Java Hudi or with the library under test. On table version 8 and later it lists files only from
the metadata table, so a wrong ``files`` partition shows here at once.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)

Filter = tuple[str, str, str]
"""hudi-rs's form of a filter: column, operator (``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ...), value as text."""


def missing_reason() -> str | None:
    """Why the Rust judge cannot be used, or None."""
    try:
        version = importlib.metadata.version("hudi")
    except importlib.metadata.PackageNotFoundError:
        return "the package 'hudi' (hudi-rs) is not installed"
    if tuple(int(part) for part in version.split(".")[:2]) < (0, 5):
        return f"hudi {version} is installed; the judge needs 0.5.0"
    return None


class RustError(RuntimeError):
    """hudi-rs refused, or panicked at something that it does not implement (e.g. timestamps without time zone)."""


class RustJudge:
    """Reads tables with hudi-rs; needs no process of its own."""

    def read(
        self,
        path: str | os.PathLike[str],
        filters: Sequence[Filter] | None = None,
        as_of: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        meta: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Rows of a table, sorted by record key and partition path.

        Args:
            path: The table's base path.
            filters: Conjunction of simple comparisons. hudi-rs prunes by them and filters rows.
            as_of: An instant; the latest by default.
            columns: Names to read; all by default.
            meta: Keep the five ``_hoodie_*`` columns when ``columns`` is not given.
            options: Further ``hoodie.*`` options of the table.
        """
        with _refusals(path):
            table = self._open(path, options)
            batches = table.read(_read_options(filters, as_of, columns))
            schema = batches[0].schema if batches else table.get_schema_with_meta_fields()
        rows = pa.Table.from_batches(batches, schema)
        if columns is not None:
            rows = rows.select(list(columns))
        keys = [name for name in ("_hoodie_record_key", "_hoodie_partition_path") if name in rows.column_names]
        if keys:
            rows = rows.sort_by([(name, "ascending") for name in keys])
        if columns is None and not meta:
            rows = rows.drop_columns([name for name in META_COLUMNS if name in rows.column_names])
        return rows

    def incremental(
        self, path: str | os.PathLike[str], since: str, until: str | None, columns: Sequence[str]
    ) -> pa.Table:
        """Rows of commits that completed after ``since``, up to and with ``until``."""
        from hudi import HudiQueryType

        with _refusals(path):
            table = self._open(path, None)
            options = _read_options(None, None, columns).with_query_type(HudiQueryType.Incremental)
            options = options.with_start_timestamp(since)
            batches = table.read(options if until is None else options.with_end_timestamp(until))
            schema = batches[0].schema if batches else table.get_schema_with_meta_fields()
        return pa.Table.from_batches(batches, schema).select(list(columns))

    def schema(self, path: str | os.PathLike[str], *, meta: bool = False) -> pa.Schema:
        """The table's schema as hudi-rs resolves it from the timeline."""
        with _refusals(path):
            table = self._open(path, None)
            schema: pa.Schema = table.get_schema_with_meta_fields() if meta else table.get_schema()
        return schema

    def file_slices(
        self,
        path: str | os.PathLike[str],
        as_of: str | None = None,
        filters: Sequence[Filter] | None = None,
    ) -> list[tuple[str, str, str, tuple[str, ...]]]:
        """``(partition, file id, base file, log files)`` of every slice that a snapshot read takes, sorted."""
        with _refusals(path):
            slices = self._open(path, None).get_file_slices(_read_options(filters, as_of, None))
        return sorted((s.partition_path, s.file_id, s.base_file_name, tuple(s.log_file_names)) for s in slices)

    def _open(self, path: str | os.PathLike[str], options: Mapping[str, str] | None) -> Any:
        from hudi import HudiTable

        return HudiTable(os.fspath(path), dict(options or {}))


def _read_options(filters: Sequence[Filter] | None, as_of: str | None, columns: Sequence[str] | None) -> Any:
    from hudi import HudiReadOptions

    options = HudiReadOptions(
        filters=list(filters) if filters else None,
        projection=None if columns is None else list(columns),
    )
    return options if as_of is None else options.with_as_of_timestamp(as_of)


@contextmanager
def _refusals(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns hudi-rs's errors and panics (a PanicException is no Exception) into :class:`RustError`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise RustError(f"hudi-rs on {os.fspath(path)}: {type(error).__name__}: {error}") from error
        raise
