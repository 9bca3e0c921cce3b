"""Check values read from Parquet files, and convert dates and timestamps from the calendar of Spark 2.

Pages have no checksums, and Arrow copies them into columns unchecked. Text that is not UTF-8, or a decimal with too
many digits, then fails at first use: in a caller's rows, in a condition or in a file written from them, where the
source file is unknown. So values are checked once, where rows leave their file.

The calendar of Spark 2, which later releases can also write, is Julian until 1582-10-04 and Gregorian from 1582-10-15
on; lakedex is Gregorian throughout. A date keeps its text, as in Spark (``DataSourceUtils.datetimeRebaseSpec``): the
day number of 1500-03-01 in such a file is that of 1500-03-11 in lakedex. The footer identifies such files:

================================  ===================================================================
org.apache.spark.version          releases before 3.0.0 always write the old calendar
org.apache.spark.legacyDateTime   later releases mark files in the old calendar
org.apache.spark.timeZone         zone of the writer's timestamps
================================  ===================================================================

Dates, and timestamps of zone UTC, are converted exactly. In other zones the conversion depends on local mean times
before 1900, which only Java's tables have; such timestamps are refused. Newer ones are equal in both calendars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = [
    "LegacyCalendar",
    "calendar_of",
    "check_values",
    "columns_to_validate",
    "first_safe",
    "legacy_calendar",
]


_NOT_ASCII = 0x80


def columns_to_validate(schema: pa.Schema) -> tuple[int, ...]:
    """Positions of columns with text, decimals or times of day, also nested ones."""
    return tuple(place for place, field in enumerate(schema) if _may_fail(field.type))


def check_values(rows: pa.RecordBatch | pa.Table, places: Sequence[int]) -> None:
    """Validate all values of some columns.

    Costs 5 to 10 % of decoding columns of ASCII text, some 5 % of a file that is mostly such, and a quarter of reading
    other text with dictionary pages; nothing for numbers.

    Raises:
        pa.ArrowInvalid: A value is not valid for its type; the message names the column.
    """
    for place in places:
        column = rows.column(place)
        for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            try:
                _check(array)
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"column {rows.schema.names[place]!r}: {error}") from error


def _may_fail(kind: pa.DataType) -> bool:
    """Whether stored bytes of a column may be invalid for its type."""
    if pa.types.is_dictionary(kind):
        return _may_fail(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_may_fail(kind.field(place).type) for place in range(kind.num_fields))
    return bool(_is_text(kind) or pa.types.is_decimal(kind) or pa.types.is_time(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check(array: pa.Array) -> None:
    kind = array.type
    if _is_text(kind):
        if not _is_ascii(array):
            array.validate(full=True)
    elif not _may_fail(kind):
        return
    elif pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            _check(array.field(place))  # A field is sliced like its struct.
    elif pa.types.is_map(kind):
        for part in (array.keys, array.items):
            _check(_within(part, array.offsets))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _check(_within(array.values, array.offsets))
    else:
        array.validate(full=True)


def _within(values: pa.Array, offsets: pa.Array) -> pa.Array:
    """Elements of the lists in a slice."""
    first, last = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return values.slice(first, last - first)


def _is_ascii(array: pa.Array) -> bool:
    """Whether all bytes are ASCII, as most text of tables is; one vectorized check per column."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return True
    width = np.dtype(np.int64 if pa.types.is_large_string(array.type) else np.int32)
    ends = np.frombuffer(offsets, width)[[array.offset, array.offset + len(array)]]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[1]]
    return not len(text) or bool(text.max() < _NOT_ASCII)


FIRST_SAFE_DAY = -141_427
"""1582-10-15: from this day on both calendars agree."""


FIRST_SAFE_SECOND = -2_208_988_800
"""1900-01-01 in UTC: from then on Java's zones agree in both calendars."""


_DAY = 86_400


_MARCH_OF_YEAR_0 = 719_470
"""Days from 0000-03-01 of the Julian calendar to 1970-01-01."""


_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


_UTC = frozenset({b"UTC", b"Etc/UTC", b"GMT", b"Z"})


def legacy_calendar(metadata: pq.FileMetaData) -> LegacyCalendar | None:
    """The old calendar if the file uses it, else None. INT96 has another mark, and is unsupported."""
    pairs: Mapping[bytes, bytes] = metadata.metadata or {}
    version = pairs.get(b"org.apache.spark.version")
    if version is None:
        return None
    if version >= b"3.0.0" and b"org.apache.spark.legacyDateTime" not in pairs:
        return None
    return LegacyCalendar(pairs.get(b"org.apache.spark.timeZone") in _UTC)


def calendar_of(metadata: pq.FileMetaData, schema: pa.Schema) -> LegacyCalendar | None:
    """:func:`legacy_calendar` for some columns; avoids copying large footers for columns without times."""
    return legacy_calendar(metadata) if any(_has_times(kind) for kind in schema.types) else None


def first_safe(kind: pa.DataType) -> int:
    """Least number from which on dates or timestamps of a type are equal in both calendars, in any zone."""
    return FIRST_SAFE_DAY if pa.types.is_date32(kind) else FIRST_SAFE_SECOND * _PER_SECOND[kind.unit]


@dataclass(frozen=True, slots=True)
class LegacyCalendar:
    """Old calendar of one file; ``in_utc`` if the writer's zone was UTC."""

    in_utc: bool

    def moved(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to the Gregorian calendar.

        Raises:
            pa.ArrowNotImplementedError: There is an old timestamp in a zone other than UTC; names the column.
        """
        for place, column in enumerate(batch.schema):
            if _has_times(column.type):
                batch = batch.set_column(place, column, self._moved(batch.column(place), column.name))
        return batch

    def moved_table(self, rows: pa.Table) -> pa.Table:
        """:meth:`moved` for a table."""
        return pa.Table.from_batches(map(self.moved, rows.to_batches()), rows.schema)

    def _moved(self, array: pa.Array, name: str) -> pa.Array:
        kind = array.type
        if not _has_times(kind):
            return array
        if pa.types.is_date32(kind):
            return _moved_days(array)
        if pa.types.is_timestamp(kind):
            return self._moved_times(array, name)
        compact = pa.concat_arrays([array]) if array.offset else array
        missing = compact.is_null()
        if pa.types.is_struct(kind):
            parts = [self._moved(compact.field(place), f"{name}.{kind[place].name}") for place in range(len(kind))]
            return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
        if pa.types.is_map(kind):
            keys, items = (self._moved(part, name) for part in (compact.keys, compact.items))
            return pa.MapArray.from_arrays(compact.offsets, keys, items, type=kind, mask=missing)
        values = self._moved(compact.values, name)
        return type(compact).from_arrays(compact.offsets, values, type=kind, mask=missing)

    def _moved_times(self, array: pa.Array, name: str) -> pa.Array:
        """Convert timestamps; those without a zone are always Gregorian, in Spark too."""
        per_second = _PER_SECOND[array.type.unit]
        limit = (FIRST_SAFE_DAY * _DAY if self.in_utc else FIRST_SAFE_SECOND) * per_second
        least = pc.min(array.cast(pa.int64())).as_py()
        if array.type.tz is None or least is None or least >= limit:
            return array
        if not self.in_utc:
            raise pa.ArrowNotImplementedError(
                f"column {name!r} has timestamps before 1900 that Spark wrote in its old calendar "
                "(org.apache.spark.legacyDateTime) and in local time, which lakedex cannot convert; rewrite the file "
                "with Spark (spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED), or leave out the column"
            )
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy()
        days = np.floor_divide(numbers, _DAY * per_second)
        return _as(numbers - _days_behind(days) * (_DAY * per_second), array)


def _moved_days(array: pa.Array) -> pa.Array:
    days = array.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    if not len(days) or days.min() >= FIRST_SAFE_DAY:
        return array
    return _as((days - _days_behind(days)).astype(np.int32), array)


def _as(numbers: npt.NDArray[Any], like: pa.Array) -> pa.Array:
    return pa.array(numbers, mask=like.is_null().to_numpy(zero_copy_only=False)).cast(like.type)


def _days_behind(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of days that the Julian calendar is behind at each day number of the old calendar; 0 once it is Gregorian.

    Two days in the year 1, and one more after each century without a Gregorian leap day.
    """
    year = np.floor_divide(4 * (days + _MARCH_OF_YEAR_0) + 3, 1461)
    century = np.floor_divide(year, 100)
    return np.where(days < FIRST_SAFE_DAY, century - np.floor_divide(century, 4) - 2, 0)


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))
