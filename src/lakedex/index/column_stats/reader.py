"""Stats of columns over many files, as values and as arrays.

Records of many files are decoded column by column, and trusted by the rules of
:func:`~lakedex.index.column_stats.stats.stat_of`. A column whose records are of several kinds, or of a rare one, is
read record by record.

Memory: the values of the records of the files, once, and two bounds and two counts for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.column_bounds import is_order_safe, timestamp_unit
from lakedex.codec.metadata_record import payload_columns, wrapper_names
from lakedex.index.column_stats.stats import ColumnStat, stat_of
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.files import record_schema
from lakedex.metadata.records import COLUMN_STATS, PAYLOADS, column_stats_key, column_stats_keys, column_stats_prefix
from lakedex.metadata.store import LatestValues, MetadataStore
from lakedex.parquet.stored_values import first_safe
from lakedex.types import BoolArray, IntArray

__all__ = ["MANY", "FileBounds", "StatArrays", "bound_array", "bounds_of_files", "stat_arrays", "stats_of_files"]


_WIDE = Context(prec=60)


@dataclass(frozen=True, slots=True)
class FileBounds:
    """Bounds and counts of one column, an entry a file; null bounds and counts of -1 are unknown."""

    minimum: pa.Array
    maximum: pa.Array
    null_count: npt.NDArray[np.int64]
    row_count: npt.NDArray[np.int64]


def bounds_of_files(
    store: MetadataStore, files: Sequence[BaseFile], columns: Mapping[str, pa.DataType]
) -> dict[str, FileBounds]:
    """Bounds of columns in base files, as arrays in the order of ``files``."""
    found = stats_of_files(store, [(base.partition, base.name) for base in files], columns)
    return {
        name: FileBounds(
            bound_array([None if stat is None else stat.minimum for stat in stats], columns[name]),
            bound_array([None if stat is None else stat.maximum for stat in stats], columns[name]),
            np.array([-1 if stat is None else stat.null_count for stat in stats], np.int64),
            np.array([-1 if stat is None else stat.value_count for stat in stats], np.int64),
        )
        for name, stats in found.items()
    }


def stats_of_files(
    store: MetadataStore, files: Sequence[tuple[str, str]], columns: Mapping[str, pa.DataType]
) -> dict[str, list[ColumnStat | None]]:
    """Per column the stats of each file, None where nothing is known.

    Args:
        store: the table's metadata.
        files: partition path and name of base or log files.
        columns: dotted name of each column, and the type that it has now.
    """
    partitions = {partition for partition, _ in files}
    if len(files) <= 4 * len(partitions):
        keys = [column_stats_key(name, *file) for name in columns for file in files]
        records = store.get_many(COLUMN_STATS.name, keys)
    elif len(partitions) <= 256:
        prefixes = [column_stats_prefix(name, partition) for name in columns for partition in partitions]
        records = store.scan(COLUMN_STATS.name, prefixes)
    else:
        records = store.scan(COLUMN_STATS.name, [column_stats_prefix(name) for name in columns])
    found: dict[str, list[ColumnStat | None]] = {}
    for name, kind in columns.items():
        own = (records.get(column_stats_key(name, *file)) for file in files)
        found[name] = [None if record is None else stat_of(record, kind) for record in own]
    return found


def bound_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Bounds, as :class:`ColumnStat` has them, as an array of the column's type; null for one that it cannot hold."""
    try:
        return _bound_array(values, kind)
    except (pa.ArrowException, ArithmeticError, ValueError):
        return pa.concat_arrays([_bound_or_null(value, kind) for value in values])


def _bound_or_null(value: Any, kind: pa.DataType) -> pa.Array:
    try:
        return _bound_array([value], kind)
    except (pa.ArrowException, ArithmeticError, ValueError):
        return pa.nulls(1, kind)


def _bound_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_time32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        # A value at scale 15 that the column's own scale can hold: nothing is rounded away.
        return pa.array([None if value is None else value.quantize(step, context=_WIDE) for value in values], kind)
    return pa.array(values, kind)


MANY = 256
"""From this number of files on arrays are faster than records one by one."""


_PAYLOAD = PAYLOADS[COLUMN_STATS.name]


_FIELDS = frozenset({"minValue", "maxValue", "valueCount", "nullCount", "isDeleted", "isTightBound", "valueType"})


_DECIMAL_ORDINAL = 10


@dataclass(frozen=True, slots=True, eq=False)
class StatArrays:
    """Stats of one column.

    Attributes:
        known: for each subject whether its stats are known.
        low: least value of each known one, null where all values are.
        high: greatest value of each known one.
        nulls: nulls of each known one.
        counts: rows of each known one.
    """

    known: BoolArray
    low: pa.Array
    high: pa.Array
    nulls: IntArray
    counts: IntArray

    @classmethod
    def of(cls, stats: Sequence[ColumnStat | None], kind: pa.DataType) -> StatArrays:
        """Stats one by one, of a column of type ``kind``, as arrays."""
        known = [stat for stat in stats if stat is not None]
        return cls(
            np.fromiter((stat is not None for stat in stats), np.bool_, len(stats)),
            bound_array([stat.minimum for stat in known], kind),
            bound_array([stat.maximum for stat in known], kind),
            np.array([stat.null_count for stat in known], np.int64),
            np.array([stat.value_count for stat in known], np.int64),
        )

    def filled(self, stats: Sequence[ColumnStat | None]) -> StatArrays:
        """The same with ``stats`` in place of those that are not known."""
        more = StatArrays.of(stats, self.low.type)
        rows = np.concatenate([np.flatnonzero(self.known), np.flatnonzero(~self.known)[more.known]])
        return _ordered(len(self.known), rows, [self, more])


def _ordered(subjects: int, rows: IntArray, parts: Sequence[StatArrays]) -> StatArrays:
    """Known stats of all parts, which belong to these rows, in the order of the rows."""
    known = np.zeros(subjects, np.bool_)
    known[rows] = True
    order = np.argsort(rows, kind="stable")
    low, high = (pa.concat_arrays(bounds) for bounds in ([p.low for p in parts], [p.high for p in parts]))
    if not np.array_equal(order, np.arange(len(order))):
        low, high = (bound.take(pa.array(order)) for bound in (low, high))
    nulls, counts = (np.concatenate(n)[order] for n in ([p.nulls for p in parts], [p.counts for p in parts]))
    return StatArrays(known, low, high, nulls, counts)


def stat_arrays(
    store: MetadataStore,
    files: Sequence[tuple[str, str]],
    columns: Mapping[str, pa.DataType],
    *,
    named: bool = False,
) -> dict[str, StatArrays]:
    """Stats of files in those of the columns that can be read as arrays.

    Args:
        store: the table's metadata.
        files: partition path and name of each file.
        columns: dotted name of each column, and the type that it has now.
        named: stats whose record names another file are not known.
    """
    found: dict[str, StatArrays] = {}
    partitions = {partition for partition, _ in files}
    for name, kind in columns.items():
        if _values_of(kind) is None:
            continue
        whole = [column_stats_prefix(name)]
        prefixes = whole if len(partitions) > MANY else [column_stats_prefix(name, path) for path in partitions]
        keys = column_stats_keys(name, files)
        places = dict(zip(keys, range(len(keys)), strict=True))
        if len(places) < len(files):
            continue
        newest = store.newest_values(COLUMN_STATS.name, places, prefixes)
        stats = _decoded(newest, kind, [file[1] for file in files] if named else None)
        if stats is not None:
            found[name] = stats
    return found


def _decoded(newest: LatestValues, kind: pa.DataType, names: Sequence[str] | None) -> StatArrays | None:
    parts, places = [StatArrays.of([], kind)], [np.empty(0, np.int64)]
    fields = _FIELDS if names is None else _FIELDS | {"fileName"}
    for layer, rows, values in newest.by_layer():
        schema = record_schema(layer)
        payload = payload_columns(values, schema, _PAYLOAD, fields)
        part = None if payload is None else _trusted_stats(payload, schema, kind, np.isin(rows, newest.again))
        if payload is None or part is None:
            return None
        if names is not None:
            part = _of_files(part, payload, pa.array([names[row] for row in rows.tolist()]))
        places.append(rows[part.known])
        parts.append(part)
    return _ordered(len(newest.values), np.concatenate(places), parts)


def _of_files(stats: StatArrays, payload: pa.StructArray, names: pa.Array) -> StatArrays:
    """Those stats whose record names the file."""
    right = pc.equal(payload.field("fileName"), names).fill_null(False).to_numpy(zero_copy_only=False)
    if right.all():
        return stats
    kept = right[stats.known]
    low, high = (bound.filter(pa.array(kept)) for bound in (stats.low, stats.high))
    return StatArrays(stats.known & right, low, high, stats.nulls[kept], stats.counts[kept])


def _trusted_stats(payload: pa.StructArray, schema: str, kind: pa.DataType, again: BoolArray) -> StatArrays | None:
    """Stats of records as far as they may be trusted; None if that is decided record by record."""
    own = {field.name: payload.field(field.name) for field in payload.type}
    rows, nulls = (_numbers(own[name]) for name in ("valueCount", "nullCount"))
    tight = _flags(own["isTightBound"]) if "isTightBound" in own else np.zeros(len(payload), np.bool_)
    deleted = _flags(own["isDeleted"])
    if (again & ~(tight | deleted)).any():
        return None  # A record that widens the one before.
    known = ~deleted & (nulls >= 0) & (nulls <= rows)
    bounded = known & (nulls < rows)
    ordinals = _ordinals(own.get("valueType"), len(payload))
    if (ordinals == _DECIMAL_ORDINAL).any() or not all(isinstance(own[name], pa.UnionArray) for name in _BOUNDS):
        return None
    bounds = {name: _bound(own[name], wrapper_names(schema, _PAYLOAD, name), name, kind, bounded) for name in _BOUNDS}
    if any(bound is None for bound in bounds.values()) or not _same_unit(bounds, ordinals[bounded], kind):
        return None
    low, high = (bound.values for bound in bounds.values() if bound is not None)
    known &= tight | _trusted(kind, own, low, high, bounded, ordinals)
    at = np.flatnonzero(known)
    low, high = (bound.take(pa.array(at)) for bound in (low, high))
    return StatArrays(known, low, high, nulls[at], rows[at])


_BOUNDS = ("minValue", "maxValue")


@dataclass(frozen=True, slots=True)
class _Bound:
    """One bound of all records: of one wrapper, null where there is none."""

    values: pa.Array
    wrapper: str


def _bound(
    union: pa.UnionArray, wrappers: Sequence[str], name: str, kind: pa.DataType, bounded: BoolArray
) -> _Bound | None:
    """The bound of each record as a value of the column's type."""
    wanted = np.flatnonzero(bounded)
    if not len(wanted):
        return _Bound(pa.nulls(len(union), kind), "")
    branches = np.unique(union.type_codes.to_numpy()[wanted])
    if len(branches) != 1:
        return None
    child = union.field(int(branches[0]))
    if not pa.types.is_struct(child.type) or [field.name for field in child.type] != ["value"]:
        return None
    stored = child.field("value")
    if stored.type not in (_values_of(kind) or ()):
        return None
    places = pa.array(np.where(bounded, union.offsets.to_numpy(), 0), pa.int32(), mask=~bounded)
    values = stored.take(places)
    if pa.types.is_floating(kind) and name == "maxValue":
        # An infinite maximum stands for NaN, see column_stats._stored_float.
        values = pc.if_else(pc.equal(values, math.inf), pa.scalar(math.nan, values.type), values)
    try:
        return _Bound(_as_kind(values, kind), wrappers[int(branches[0])])
    except pa.ArrowException:
        return None


def _as_kind(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return values.cast(pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.cast(pa.int64()).cast(kind)
    return values.cast(kind)


def _values_of(kind: pa.DataType) -> tuple[pa.DataType, ...] | None:
    """Types of wrapped values that stand for values of a column's type; None for a column that is not read here."""
    if pa.types.is_boolean(kind):
        return (pa.bool_(),)
    if pa.types.is_floating(kind) and not pa.types.is_float16(kind):
        return (pa.float32(), pa.float64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (pa.string(),)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return (pa.int32(), pa.int64())
    return None


def _same_unit(bounds: Mapping[str, _Bound | None], ordinals: IntArray, kind: pa.DataType) -> bool:
    """Whether bounds of timestamps are in the unit of the column, or say none."""
    if not pa.types.is_timestamp(kind):
        return True
    said = {timestamp_unit(None, {"typeOrdinal": ordinal}) for ordinal in np.unique(ordinals).tolist() if ordinal >= 0}
    if (ordinals < 0).any():
        wrappers = (bound.wrapper for bound in bounds.values() if bound is not None)
        said |= {timestamp_unit((wrapper, {}), None) for wrapper in wrappers}
    return said <= {None, kind.unit}


def _trusted(
    kind: pa.DataType,
    own: Mapping[str, pa.Array],
    low: pa.Array,
    high: pa.Array,
    bounded: BoolArray,
    ordinals: IntArray,
) -> BoolArray:
    """Which records may be believed that lakedex did not write (``column_stats._trusted``)."""
    if pa.types.is_floating(kind):
        lacking = [place for place, part in enumerate(own["minValue"].type) if pa.types.is_null(part.type)]
        return ~bounded & np.isin(np.asarray(own["minValue"].type_codes), lacking)
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        has_unit = (
            ordinals >= 0 if pa.types.is_timestamp(kind) and kind.unit != "us" else np.ones(len(ordinals), np.bool_)
        )
        numbers = low.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        same = pc.greater_equal(numbers, first_safe(kind)).fill_null(True).to_numpy(zero_copy_only=False)
        return np.asarray(has_unit & same, np.bool_)
    if pa.types.is_string(kind):
        safe = np.fromiter(
            (
                a is not None and b is not None and is_order_safe(a) and is_order_safe(b)
                for a, b in zip(low.to_pylist(), high.to_pylist(), strict=True)
            ),
            np.bool_,
            len(low),
        )
        return np.asarray(safe & (_numbers(own["nullCount"]) == 0), np.bool_)
    return np.ones(len(ordinals), np.bool_)


def _numbers(column: pa.Array) -> IntArray:
    return np.asarray(column.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def _flags(column: pa.Array) -> BoolArray:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


def _ordinals(column: pa.Array | None, records: int) -> IntArray:
    """Ordinal of each record's value type, -1 where there is none."""
    if column is None or not pa.types.is_struct(column.type):
        return np.full(records, -1, np.int64)
    return _numbers(pc.struct_field(column, "typeOrdinal"))
