"""``column_stats``: bounds and counts of each column of each base file.

Java trusts these records blindly (it takes a missing one as all-null and never looks at a file without a record for
the key), so they are built from the data, never from footers: pyarrow leaves NaN out of footer bounds, and long
strings out of them altogether.

Records that others wrote carry known faults (seen in Java 1.1.1, which copies footers): a float chunk with NaN becomes
``[0.0, 0.0]``, a string chunk without footer stats becomes "all null", merged bounds of text and bytes are in Java's
orders, not in Spark's. :func:`stat_of` and :func:`partition_stat_of` say what may be believed. Ours are known by
``isTightBound``, which Java leaves false in this partition and which changes nothing in its merge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.column_bounds import (
    NO_VALUES,
    StatsVersion,
    StatValue,
    is_order_safe,
    key_bounds,
    lower_bound,
    stats_supported,
    timestamp_unit,
    unwrap_stat,
    upper_bound,
    value_type,
    wrap_stat,
)
from lakedex.index.definitions import source_fields
from lakedex.metadata.records import COLUMN_STATS, Record, column_stats_key, stats_record
from lakedex.parquet.conform import drop_unused_values
from lakedex.parquet.stored_values import first_safe
from lakedex.types import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY

__all__ = [
    "ALWAYS_INDEXED",
    "ColumnStat",
    "ColumnStatsBuilder",
    "bounds_hold",
    "covered_columns",
    "indexable_columns",
    "merge_stats",
    "partition_mark",
    "partition_stat_of",
    "stat_of",
    "stat_record",
    "stats_records",
    "storable_stats",
    "unlisted",
]


ALWAYS_INDEXED = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
"""Meta columns that every index of column stats has (``HoodieTableMetadataUtil.META_COLS_TO_ALWAYS_INDEX``)."""


DEFAULT_MAX_COLUMNS = 32
"""``hoodie.metadata.index.column.stats.max.columns.to.index``; meta columns are not counted."""


def indexable_columns(
    schema: pa.Schema,
    chosen: Sequence[str] | None = None,
    limit: int = DEFAULT_MAX_COLUMNS,
    version: StatsVersion = "V1",
) -> list[str]:
    """``sourceFields`` of the index for a table schema, exactly as Java would choose them.

    Args:
        schema: the table's own columns, without meta columns.
        chosen: ``hoodie.metadata.index.column.stats.column.list``; None for the first supported ones.
        limit: how many columns of the table at most when none were chosen.
        version: the index's version, which decides on the types.
    """
    own = [field for field in schema if field.name not in META_COLUMNS]
    if chosen is not None:
        own = [field for field in own if field.name in set(chosen)]
    supported = [field.name for field in own if stats_supported(field.type, version)]
    return [*ALWAYS_INDEXED, *(supported if chosen is not None else supported[:limit])]


def covered_columns(document: dict[str, Any], schema: pa.Schema, table_version: int) -> list[str]:
    """Columns that the index covers: those that its definition lists.

    Hudi 0.15 keeps no definitions and indexes all columns of a table of version 6.

    Args:
        document: the table's index definitions.
        schema: the table's own columns.
        table_version: the table's version.
    """
    if table_version >= 8 or COLUMN_STATS.name in document["indexDefinitions"]:
        return source_fields(document)
    return indexable_columns(schema, limit=len(schema))


def unlisted(schema: pa.Schema, version: StatsVersion) -> frozenset[str]:
    """Columns that have records but are kept out of ``sourceFields``, so that Java does not prune by them.

    Java 1.1.1 fails on a filter on bytes by stats of V2: it hands Spark a ByteBuffer where that wants an array.
    """
    if version == "V1":
        return frozenset()
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return frozenset(field.name for field in schema if any(test(field.type) for test in tests))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStat:
    """Stats of one column over some rows.

    ``minimum`` and ``maximum`` are Python values as :func:`lakedex.codec.column_bounds.unwrap_stat` gives them (numbers
    of days or microseconds for dates and timestamps), None when all values are null. Sizes in bytes.
    """

    column: str
    minimum: Any
    maximum: Any
    value_count: int
    null_count: int
    total_size: int = 0
    total_uncompressed_size: int = 0

    @property
    def has_nan(self) -> bool:
        """Whether NaN may be among the values."""
        return isinstance(self.maximum, float) and math.isnan(self.maximum)

    @property
    def all_null(self) -> bool:
        """Whether there is no value at all."""
        return self.null_count == self.value_count

    def __reduce__(self) -> tuple[Any, ...]:
        # What a dataclass with slots does by itself takes several times longer, and each file has one for each column.
        sizes = (self.total_size, self.total_uncompressed_size)
        return _stat, (self.column, self.minimum, self.maximum, self.value_count, self.null_count, *sizes)


def _stat(
    column: str, minimum: Any, maximum: Any, value_count: int, null_count: int, total_size: int, plain_size: int
) -> ColumnStat:
    return ColumnStat(
        column=column,
        minimum=minimum,
        maximum=maximum,
        value_count=value_count,
        null_count=null_count,
        total_size=total_size,
        total_uncompressed_size=plain_size,
    )


class ColumnStatsBuilder:
    """Gathers stats over a stream of batches. Memory: two values a column."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self._columns = dict(columns)
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls = dict.fromkeys(columns, 0)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, known: Mapping[str, tuple[Any, Any]] = MappingProxyType({})) -> None:
        """Take in rows; the batch has all columns of the index. ``known`` bounds are not looked for."""
        self._rows += batch.num_rows
        for name, kind in self._columns.items():
            column = batch.column(batch.schema.get_field_index(name))
            self._nulls[name] += column.null_count
            if column.null_count == len(column):
                continue
            low, high = known[name] if name in known else _min_max(column, kind)
            before = self._low.get(name)
            self._low[name] = low if before is None or _before(low, before) else before
            before = self._high.get(name)
            self._high[name] = high if before is None or _before(before, high) else before

    def finish(
        self,
        column_bytes: Mapping[str, tuple[int, int]] | None = None,
        *,
        widened: bool = True,
        even_empty: bool = False,
    ) -> list[ColumnStat]:
        """Stats of each column; none at all for a base file without rows, which has no record.

        Args:
            column_bytes: sizes by column.
            widened: bounds as they are stored; else the values themselves.
            even_empty: stats of no rows too.
        """
        if not self._rows and not even_empty:
            return []
        sizes = column_bytes or {}
        stats = []
        for name in self._columns:
            low, high = self._low.get(name), self._high.get(name)
            low, high = _widen(name, low, high) if widened else (low, high)
            packed, plain = sizes.get(name, (0, 0))
            stats.append(
                ColumnStat(
                    column=name,
                    minimum=low,
                    maximum=high,
                    value_count=self._rows,
                    null_count=self._nulls[name],
                    total_size=packed,
                    total_uncompressed_size=plain,
                )
            )
        return stats


def _physical(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.cast(pa.int64())  # In the column's own unit, as Java takes it from the footer.
    if pa.types.is_time32(kind):
        return column.cast(pa.int32())
    return column


def _min_max(column: pa.Array, kind: pa.DataType) -> tuple[Any, Any]:
    if pa.types.is_floating(kind):
        nan = pc.is_nan(column).fill_null(False)
        if pc.any(nan).as_py():
            numbers = column.filter(pc.invert(nan)).drop_null()
            # NaN is the largest value in Spark's order.
            return (pc.min(numbers).as_py() if len(numbers) else math.nan), math.nan
    if pa.types.is_dictionary(column.type):
        column = drop_unused_values(column).dictionary
    bounds = pc.min_max(_physical(column, kind))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _before(a: Any, b: Any) -> bool:
    """Spark's order: NaN after everything."""
    if isinstance(a, float):
        return not math.isnan(a) and (math.isnan(b) or a < b)
    return bool(a < b)


def _widen(name: str, low: Any, high: Any) -> tuple[Any, Any]:
    if isinstance(low, str) and name == RECORD_KEY:
        return key_bounds(low, high)
    if isinstance(low, str):
        return lower_bound(low), upper_bound(high)
    if isinstance(low, float):
        # A zero of either sign may stand for both: Spark takes them as equal.
        return (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return low, high


def storable_stats(stats: Sequence[ColumnStat], table_version: int) -> list[ColumnStat]:
    """Those stats that every reader of a table of this version takes rightly.

    No bound says NaN to Java's readers. Later ones have a list of the columns that they may prune by; Hudi 0.15, which
    has none, keeps a file without a record (``ColumnStatsIndexSupport.transpose``).
    """
    return [stat for stat in stats if table_version >= 8 or not stat.has_nan]


def stats_records(
    stats: Sequence[ColumnStat],
    partition: str,
    file_name: str,
    types: Mapping[str, pa.DataType],
    version: StatsVersion = "V1",
) -> list[tuple[str, Record]]:
    """Metadata records of one base file's stats, with their keys."""
    records = []
    for stat in stats:
        record = stat_record(stat, file_name, types[stat.column], version)
        record["ColumnStatsMetadata"]["isTightBound"] = True
        records.append((column_stats_key(stat.column, partition, file_name), record))
    return records


def stat_record(
    stat: ColumnStat,
    subject: str,
    kind: pa.DataType,
    version: StatsVersion = "V1",
    *,
    over_partition: bool = False,
) -> Record:
    """The metadata record of a stat; ``subject`` is a file name, or a partition path when ``over_partition``.

    Of a file without values, a log file of deletes alone, it has Java's type of nothing.
    """
    types: Mapping[str, Any] | None = value_type(kind, version)
    if types is not None and not over_partition and stat.value_count == 0:
        types = NO_VALUES
    return stats_record(
        subject,
        stat.column,
        minimum=None if stat.minimum is None else wrap_stat(_stored_float(stat.minimum), kind, version),
        maximum=None if stat.maximum is None else wrap_stat(_stored_float(stat.maximum), kind, version),
        value_count=stat.value_count,
        null_count=stat.null_count,
        total_size=stat.total_size,
        total_uncompressed_size=stat.total_uncompressed_size,
        value_type=types,
        over_partition=over_partition,
    )


def _stored_float(value: Any) -> Any:
    """Infinity in place of NaN.

    Java 1.1.1 compares the bounds in Spark, whose batch pruning loses a NaN bound and with it the file.
    :func:`stat_of` reads an infinite maximum as "NaN may be there".
    """
    return math.inf if isinstance(value, float) and math.isnan(value) else value


def stat_of(record: Record, kind: pa.DataType) -> ColumnStat | None:
    """The stat that a record holds as far as it may be believed; None where nothing is known.

    A value in the table's current type: a column may have been widened since.
    """
    payload = record["ColumnStatsMetadata"]
    rows, nulls = payload["valueCount"], payload["nullCount"]
    if payload["isDeleted"] or rows is None or nulls is None or not 0 <= nulls <= rows < 1 << 63:
        return None
    if not payload.get("isTightBound") and not _trusted(payload, kind):
        return None
    low, high = (_in_unit(payload, name, kind) for name in ("minValue", "maxValue"))
    if pa.types.is_floating(kind) and isinstance(low, int) and isinstance(high, int):
        low, high = float(low), float(high)
    if high == math.inf:
        high = math.nan
    if nulls == rows:
        low = high = None
    elif not (_is_value_of(low, kind) and _is_value_of(high, kind)):
        return None
    return ColumnStat(
        column=payload["columnName"],
        minimum=low,
        maximum=high,
        value_count=rows,
        null_count=nulls,
        total_size=payload["totalSize"] or 0,
        total_uncompressed_size=payload["totalUncompressedSize"] or 0,
    )


def _in_unit(payload: Mapping[str, Any], name: str, kind: pa.DataType) -> StatValue | None:
    """A bound; of a timestamp in the column's own unit, whatever unit the record says that it has."""
    wrapped = payload[name]
    value = unwrap_stat(wrapped, payload.get("valueType"))
    said = timestamp_unit(wrapped, payload.get("valueType"))
    if said is None or not pa.types.is_timestamp(kind) or not isinstance(value, int):
        return value
    ours, theirs = _PER_SECOND[kind.unit], _PER_SECOND[said]
    # A coarser unit holds the instant that is not before an upper bound and not after a lower one.
    return -(-value * ours // theirs) if name == "maxValue" else value * ours // theirs


_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def partition_stat_of(record: Record | None, key_record: Record | None, kind: pa.DataType) -> ColumnStat | None:
    """The stat over a partition that a ``partition_stats`` record holds, if lakedex wrote it last.

    Java leaves the record of a column as it is when a commit does not index that column (``column.list`` may change
    from write to write), and a later one that does puts right only the partitions that it touches: neither counts nor
    ``sourceFields`` show what is stale. So lakedex marks its records with the commit that computed them
    (:func:`partition_mark`). Every writer renews the record of ``_hoodie_record_key``, ``key_record``: equal marks say
    that nobody wrote to the partition since.
    """
    if record is None or key_record is None:
        return None
    mark, current = (one["ColumnStatsMetadata"]["totalSize"] for one in (record, key_record))
    return stat_of(record, kind) if mark == current and (mark or 0) >= _FIRST_MARK else None


_FIRST_MARK = 10**16


def partition_mark(stat: ColumnStat, instant: str) -> ColumnStat:
    """A partition's stat with the commit in place of its sizes, which nobody reads and which no bytes come near."""
    mark = int(instant)
    return _stat(stat.column, stat.minimum, stat.maximum, stat.value_count, stat.null_count, mark, mark)


def _is_value_of(value: Any, kind: pa.DataType) -> bool:
    """Whether a bound can stand for values of the type. Other writers turn a number into a string column, for one."""
    for test, wanted in _VALUES:
        if test(kind):
            return isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    return False


_VALUES: tuple[tuple[Callable[[pa.DataType], bool], type | tuple[type, ...]], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_floating, (float, int)),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_large_binary, bytes),
    (pa.types.is_fixed_size_binary, bytes),
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_temporal(kind), int),
)


def _trusted(payload: Mapping[str, Any], kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return bool(payload["nullCount"] == payload["valueCount"] and payload["minValue"] is None)
    if pa.types.is_timestamp(kind) and kind.unit != "us" and payload.get("valueType") is None:
        return False  # The record does not say in which unit its numbers are.
    if pa.types.is_string(kind):
        # A chunk without footer stats counts as all null: nulls may be real or may be values nobody looked at. Java
        # merges bounds of chunks and files by String.compareTo, in UTF-16 order.
        bounds = (unwrap_stat(payload[name], payload.get("valueType")) for name in ("minValue", "maxValue"))
        return bool(payload["nullCount"] == 0) and all(isinstance(b, str) and is_order_safe(b) for b in bounds)
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        # Java copies what the footer says, whatever calendar the file is in.
        low = _in_unit(payload, "minValue", kind)
        return not isinstance(low, int) or low >= first_safe(kind)
    # ByteBuffer.compareTo takes bytes as signed.
    return not (pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def bounds_hold(stat: ColumnStat, exact: ColumnStat) -> bool:
    """Whether the bounds of a stat enclose the values of which ``exact`` has the least and the greatest."""
    if exact.all_null:
        return True
    if stat.minimum is None or stat.maximum is None:
        return False
    return not (_before(exact.minimum, stat.minimum) or _before(stat.maximum, exact.maximum))


def merge_stats(column: str, stats: Sequence[ColumnStat]) -> ColumnStat:
    """Stats over the rows of all ``stats`` together."""
    valued = [stat for stat in stats if not stat.all_null]
    low = high = None
    for stat in valued:
        low = stat.minimum if low is None or _before(stat.minimum, low) else low
        high = stat.maximum if high is None or _before(high, stat.maximum) else high
    return ColumnStat(
        column=column,
        minimum=low,
        maximum=high,
        value_count=sum(stat.value_count for stat in stats),
        null_count=sum(stat.null_count for stat in stats),
        total_size=sum(stat.total_size for stat in stats),
        total_uncompressed_size=sum(stat.total_uncompressed_size for stat in stats),
    )
