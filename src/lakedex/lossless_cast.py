"""Convert a frame's columns to the table's types without loss, or fail with the row of the first misfit.

Spark calls this store assignment.

Every write does this first, so that keys, partition paths, bounds and filters do not depend on the frame's types. Types
are checked first (:func:`can_assign`), then each value: integers in range, floats that are integers, decimals without
loss of digits, timestamps without overflow or lost fractions, dates at midnight. Text, bytes and lists in any Arrow
layout (dictionaries, views, run ends, large, fixed size) are equal.

Arrays of the right type pass without a copy; only the digits of decimals are checked, since foreign buffers may have
more of them than the type allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.arrow_types import LISTS
from lakedex.errors import SchemaMismatchError

__all__ = ["StoreAssignment", "assigned_value", "can_assign", "child_parts", "is_uuid", "match_names", "to_decimals"]


_SHOWN = 40


_UUID_BYTES = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34]


_UUID_LENGTH = 36


_INTEGERS_AS_DECIMAL = pa.decimal128(20, 0)


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


RowOf = Callable[[int], int]
"""Row of an array to which the n-th value of one of its parts belongs."""


class _MisfitError(Exception):
    """A value has no equal in the target type."""

    def __init__(self, row: int, path: str, value: str, found: pa.DataType, expected: pa.DataType) -> None:
        super().__init__(path)
        self.row, self.path, self.value, self.found, self.expected = row, path, value, found, expected

    def at(self, row: int) -> _MisfitError:
        """Same misfit, with the row of the enclosing array."""
        return _MisfitError(row, self.path, self.value, self.found, self.expected)


# ------------------------------------------------------------------------------------------------------- the rows


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """Converts batches of a frame to a schema.

    Attributes:
        target: Resulting columns, in order.
        table: Name of the table, for errors.
        case_sensitive: Whether names that differ in case are different names.
    """

    target: pa.Schema
    table: str
    case_sensitive: bool = False

    def __call__(self, batch: pa.RecordBatch, first_row: int = 0, where: str = "") -> pa.RecordBatch:
        """``batch`` in the target schema. Missing columns become null, extra columns are dropped.

        Args:
            batch: Rows of a frame whose schema was checked against the table's.
            first_row: Number of the batch's first row, for errors.
            where: Start of that number, if it is not that of the frame.

        Raises:
            SchemaMismatchError: A value does not fit the table's type; the message names column, row and both types.
        """
        if batch.schema.equals(self.target) and not any(_has_decimal(field.type) for field in self.target):
            return batch
        names = batch.schema.names
        matches = match_names(self.target.names, names, case_sensitive=self.case_sensitive)
        places = {ours: names.index(name) for name, ours in matches.items()}
        columns = [
            self.column(batch.column(places[field.name]), field, first_row, where)
            if field.name in places
            else pa.nulls(batch.num_rows, field.type)
            for field in self.target
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.target)

    def column(self, array: pa.Array, field: pa.Field[Any], first_row: int = 0, where: str = "") -> pa.Array:
        """Convert one column; see :meth:`__call__`."""
        try:
            return _assign(array, field.type, field.name, self.case_sensitive)
        except _MisfitError as misfit:
            raise self._refused(misfit, first_row, where) from misfit.__cause__

    def _refused(self, misfit: _MisfitError, first_row: int, where: str) -> SchemaMismatchError:
        row = first_row + misfit.row
        place = f"in row {row}{where} of the frame"
        if misfit.found == misfit.expected:
            what = f"has {misfit.value} {place}, which has more digits than {misfit.found}"
        else:
            what = f"is {misfit.expected}, which cannot hold {misfit.value} exactly, {misfit.found} {place}"
        return SchemaMismatchError(
            f"table {self.table}: column {misfit.path!r} {what}; change the value, or cast the column",
            column=misfit.path,
            row=row,
            expected=str(misfit.expected),
            found=str(misfit.found),
        )


def assigned_value(value: object, field: pa.Field[Any], table: str) -> pa.Array:
    """A Python value as an array of a column's type; a float in a column of floats is the nearest one.

    Raises:
        SchemaMismatchError: the column cannot hold the value exactly.
        pa.ArrowException, TypeError, ValueError, OverflowError: a value of another kind.
    """
    found = pa.array([value])
    if pa.types.is_float64(found.type) and pa.types.is_float32(field.type):
        nearest = found.cast(field.type)
        if not pc.any(pc.is_inf(nearest)).as_py() or pc.any(pc.is_inf(found)).as_py():
            return nearest
    if can_assign(found.type, field.type):
        return StoreAssignment(pa.schema([field]), table).column(found, field)
    return pa.array([value], field.type)


def match_names(ours: Sequence[str], theirs: Sequence[str], *, case_sensitive: bool) -> dict[str, str]:
    """Map names of a frame to the table's: equal ones, else the only one that differs in case.

    Names without a column are left out, and so are several names of one column.
    """
    known = set(ours)
    found = {name: name for name in theirs if name in known}
    if case_sensitive:
        return found
    taken = set(found.values())
    by_lower = {name.lower(): name for name in ours if name not in taken}
    close = [name for name in theirs if name not in found and name.lower() in by_lower]
    times = Counter(name.lower() for name in close)
    return found | {name: by_lower[name.lower()] for name in close if times[name.lower()] == 1}


# ---------------------------------------------------------------------------------------------------------- types


def can_assign(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of ``source`` can have an equal in ``target``; single values may still not fit.

    Fields of structs are not compared by name: missing and added ones concern the schema.
    """
    source = _value_type(source)
    if source == target or pa.types.is_null(source):
        return True
    if is_uuid(source):
        return _is(target, _TEXTS) or _is(target, _BYTES)
    if pa.types.is_integer(source) and _is_number(target):
        return True
    if pa.types.is_floating(source) and (pa.types.is_floating(target) or pa.types.is_integer(target)):
        return True
    if pa.types.is_decimal(source) and (pa.types.is_decimal(target) or pa.types.is_integer(target)):
        return True
    if (_is(source, _TEXTS) and _is(target, _TEXTS)) or (_is(source, _BYTES) and _is(target, _BYTES)):
        return True
    if _is_moment(source) and _is_moment(target):
        return _is_zoned(source) == _is_zoned(target)
    if _is(source, LISTS) and pa.types.is_list(target):
        return can_assign(source.value_type, target.value_type)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return can_assign(source.key_type, target.key_type) and can_assign(source.item_type, target.item_type)
    return bool(pa.types.is_struct(source) and pa.types.is_struct(target))


def _value_type(kind: pa.DataType) -> pa.DataType:
    """Type of the values, independent of their layout."""
    while True:
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType) and not is_uuid(kind):
            kind = kind.storage_type
        else:
            return kind


def is_uuid(kind: pa.DataType) -> bool:
    """Whether a type is Arrow's canonical UUID."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def _is(kind: pa.DataType, tests: Collection[Callable[[pa.DataType], bool]]) -> bool:
    return any(test(kind) for test in tests)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_zoned(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _has_decimal(kind: pa.DataType) -> bool:
    """Whether a type contains a decimal."""
    if not pa.types.is_nested(kind):
        return bool(pa.types.is_decimal(kind))
    return any(_has_decimal(kind.field(place).type) for place in range(kind.num_fields))


# --------------------------------------------------------------------------------------------------------- values


def _assign(array: pa.Array, target: pa.DataType, path: str, case_sensitive: bool) -> pa.Array:
    """Convert ``array`` to ``target``, for types accepted by :func:`can_assign`.

    Raises:
        _MisfitError: A value has no equal in ``target``.
    """
    kind = array.type
    if kind == target:
        _check_decimals(array, path)
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(kind):
        return _assign_encoded(array.indices, array.dictionary, target, path, case_sensitive)
    if pa.types.is_run_end_encoded(kind):
        places = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
        return _assign_encoded(pa.array(runs), array.values, target, path, case_sensitive)
    if isinstance(kind, pa.BaseExtensionType):
        as_text = is_uuid(kind) and _is(target, _TEXTS)
        return _assign(_uuid_texts(array.storage) if as_text else array.storage, target, path, case_sensitive)
    if pa.types.is_nested(kind):
        return _assign_nested(array, target, path, case_sensitive)
    return _assign_plain(array, target, path)


def _assign_encoded(
    indices: pa.Array, values: pa.Array, target: pa.DataType, path: str, case_sensitive: bool
) -> pa.Array:
    """Convert encoded values; unused values may be invalid."""
    try:
        return _assign(values, target, path, case_sensitive).take(indices)
    except _MisfitError:
        used = indices.unique().drop_null()
        try:
            found = _assign(values.take(used), target, path, case_sensitive)
        except _MisfitError as misfit:
            raise misfit.at(pc.index(indices, used[misfit.row]).as_py()) from misfit
        return found.take(pc.index_in(indices, used))


def _assign_nested(array: pa.Array, target: pa.DataType, path: str, case_sensitive: bool) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(target):
        children = _struct_children(array, target, path, case_sensitive)
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)

    def part(values: pa.Array, row_of: RowOf, field: pa.Field[Any], name: str) -> pa.Array:
        try:
            return _assign(values, field.type, f"{path}.{name}", case_sensitive)
        except _MisfitError as misfit:
            raise misfit.at(row_of(misfit.row)) from misfit.__cause__

    offsets = pa.array(np.concatenate([[0], np.cumsum(_lengths(array))]).astype(np.int32))
    parts = [(values, row_of) for _, values, row_of in child_parts(array)]
    if pa.types.is_list(target):
        elements = part(*parts[0], target.value_field, "element")
        return pa.ListArray.from_arrays(offsets, elements, type=target, mask=mask)
    keys, items = part(*parts[0], target.key_field, "key"), part(*parts[1], target.item_field, "value")
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=mask)


def _struct_children(array: pa.Array, target: pa.DataType, path: str, case_sensitive: bool) -> list[pa.Array]:
    """Fields of a struct by name, null where the struct is null."""
    names = [field.name for field in array.type]
    ours = match_names([field.name for field in target], names, case_sensitive=case_sensitive)
    theirs = {own: names.index(name) for name, own in ours.items()}
    values = array.flatten()
    return [
        _assign(values[theirs[field.name]], field.type, f"{path}.{field.name}", case_sensitive)
        if field.name in theirs
        else pa.nulls(len(array), field.type)
        for field in target
    ]


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Number of elements of each list or map; 0 for null."""
    if pa.types.is_map(array.type):
        lengths = np.diff(array.offsets.to_numpy()).astype(np.int64)
        return np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths) if array.null_count else lengths
    found: npt.NDArray[np.int64] = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    return found


def child_parts(array: pa.Array) -> Iterator[tuple[pa.Field[Any], pa.Array, RowOf]]:
    """Fields of structs, elements of lists, keys and values of maps in use, with the rows they belong to.

    Parts behind a null, or outside of a slice, are skipped.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        valid = array.drop_null() if array.null_count else array
        places = None if valid is array else np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        for field, values in zip(kind, valid.flatten(), strict=True):
            yield field, values, (lambda n: n) if places is None else (lambda n: int(places[n]))
        return
    if pa.types.is_map(kind):
        valid = array.drop_null() if array.null_count else array
        offsets = valid.offsets.to_numpy()
        start, length = (int(offsets[0]), int(offsets[-1] - offsets[0])) if len(offsets) else (0, 0)
        ends = np.cumsum(_lengths(array))
        for field, values in ((kind.key_field, valid.keys), (kind.item_field, valid.items)):
            yield field, values.slice(start, length), lambda n: int(np.searchsorted(ends, n, side="right"))
        return
    yield kind.value_field, array.flatten(), lambda n: int(pc.list_parent_indices(array)[n].as_py())


def _assign_plain(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if pa.types.is_decimal(array.type):
        array = _validated_decimals(array, path)
    try:
        return _cast(array, target)
    except pa.ArrowInvalid as error:
        row = _first(array, lambda part: _cast(part, target))
        raise _misfit(array, row, path, target) from error


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Apply Arrow's safe cast, and verify the result where that cast loses digits silently."""
    if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
        # Arrow requires as many digits as the integer type can have; the values may have fewer.
        array = array.cast(_INTEGERS_AS_DECIMAL)
    if pa.types.is_decimal(array.type) and pa.types.is_decimal(target):
        return to_decimals(array, target)
    found = array.cast(target)
    narrows = pa.types.is_float32(target) and pa.types.is_float64(array.type)
    if narrows or pa.types.is_date(target):
        differs = pc.not_equal(found.cast(array.type), array)
        if narrows:
            differs = pc.and_(differs, pc.invert(pc.is_nan(array)))
        if pc.any(differs).as_py():
            raise pa.ArrowInvalid("digits are lost")
    return found


def _first(array: pa.Array, check: Callable[[pa.Array], object]) -> int:
    """First row that a check refuses; it must refuse at least one."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check(array.slice(low, middle - low))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _misfit(array: pa.Array, row: int, path: str, expected: pa.DataType) -> _MisfitError:
    try:
        value = str(array[row].as_py())
    except (ValueError, ArithmeticError, LookupError, OSError):
        value = "a value beyond Python's range"
    value = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return _MisfitError(row, path, value, array.type, expected)


# ------------------------------------------------------------------------------------------------ decimals, UUIDs


def to_decimals(values: Any, target: pa.DataType) -> Any:
    """Decimals or texts as decimals of 128 bits. Arrow's cast alone wraps those that do not fit after scaling.

    Args:
        values: An array or a chunked array.
        target: Type of the result.

    Raises:
        pa.ArrowInvalid: A text that is no number, or a value that the type does not hold exactly.
    """
    if pa.types.is_decimal(values.type):
        return values.cast(pa.decimal256(76, target.scale)).cast(target)
    found = values.cast(target)
    near = values.cast(pa.float64())
    # What was wrapped is off by at least half of the number.
    if pc.any(pc.greater(pc.abs(pc.subtract(found.cast(pa.float64()), near)), pc.divide(pc.abs(near), 2.0))).as_py():
        raise pa.ArrowInvalid(f"a decimal does not fit in {target}")
    return found


def _check_decimals(array: pa.Array, path: str) -> None:
    """Refuse decimals with more digits than their type."""
    if not _has_decimal(array.type):
        return
    if not pa.types.is_nested(array.type):
        _validated_decimals(array, path)
        return
    for field, values, row_of in child_parts(array):
        try:
            _check_decimals(values, f"{path}.{field.name}")
        except _MisfitError as misfit:
            raise misfit.at(row_of(misfit.row)) from misfit.__cause__


def _validated_decimals(array: pa.Array, path: str) -> pa.Array:
    """Convert decimals of any width to 128 bits. Arrow trusts the digits of a buffer, so they are counted here.

    Raises:
        _MisfitError: A value has more digits than the type.
    """
    kind = array.type
    wide = pa.decimal128(min(kind.precision, 38), kind.scale)
    found = array
    if not pa.types.is_decimal128(kind):
        try:
            found = array.cast(wide)
        except pa.ArrowInvalid as error:
            raise _misfit(array, _first(array, lambda part: part.cast(wide)), path, wide) from error
        if pa.types.is_decimal256(kind):
            changed = pc.not_equal(found.cast(kind), array)
            if pc.any(changed).as_py():
                raise _misfit(array, pc.index(changed, True).as_py(), path, wide)
    row = _first_long_decimal(found, wide.precision)
    if row is not None:
        raise _misfit(array, row, path, kind)
    return found


def _first_long_decimal(array: pa.Array, precision: int) -> int | None:
    """Row of the first decimal of 128 bits that is not between -10^precision and 10^precision."""
    if not len(array):
        return None
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    high, low = words[1::2], words[0::2].view(np.uint64)
    limit: int = 10**precision
    top, rest = np.int64(limit >> 64), np.uint64(limit & (1 << 64) - 1)
    bottom, below = np.int64(-limit >> 64), np.uint64(-limit & (1 << 64) - 1)
    long = (high > top) | (high < bottom) | ((high == top) & (low >= rest)) | ((high == bottom) & (low <= below))
    if long.any() and array.null_count:
        long &= array.is_valid().to_numpy(zero_copy_only=False)
    return int(np.argmax(long)) if long.any() else None


def _uuid_texts(storage: pa.Array) -> pa.Array:
    """Format UUIDs as Java, Python and Spark do: 8-4-4-4-12 hexadecimal digits."""
    count = len(storage)
    data = np.frombuffer(storage.buffers()[1], np.uint8)[16 * storage.offset : 16 * (storage.offset + count)]
    data = data.reshape(count, 16)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((count, _UUID_LENGTH), ord("-"), np.uint8)
    text[:, _UUID_BYTES] = digits[data >> 4]
    text[:, [place + 1 for place in _UUID_BYTES]] = digits[data & 15]
    offsets = pa.py_buffer(_UUID_LENGTH * np.arange(count + 1, dtype=np.int32))
    texts = pa.StringArray.from_buffers(count, offsets, pa.py_buffer(text))
    return pc.if_else(storage.is_valid(), texts, pa.scalar(None, pa.string())) if storage.null_count else texts
