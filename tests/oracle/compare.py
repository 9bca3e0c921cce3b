"""Compares two sets of rows by value, whoever wrote them, and shows the rows that differ."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

MAX_SHOWN = 10
MAX_WIDTH = 40


def assert_same_rows(
    actual: pa.Table,
    expected: pa.Table,
    key: str | Sequence[str] | None = None,
    *,
    check_types: bool = True,
) -> None:
    """Fails unless both tables hold the same rows, in any order, and the same columns, in any order.

    NaN equals NaN, -0.0 equals 0.0, timestamps compare as instants in microseconds (UTC), decimals by value, nested
    values deeply (structs by field name, maps as sets of entries).

    Args:
        actual: What was read.
        expected: What should have been read.
        key: Column or columns that identify a row; then rows are paired by it and shown column by column. By default
            whole rows are compared as a multiset.
        check_types: Also compare the columns' types, by kind: widths and precision matter, offsets' widths
            (``string``/``large_string``), nullability and names of list items do not.
    """
    problems = _schema_problems(actual.schema, expected.schema, check_types)
    if problems:
        raise AssertionError("schemas differ\n" + "\n".join(f"  {line}" for line in problems))
    names = sorted(expected.column_names)
    left, right = _rows(actual, names), _rows(expected, names)
    if key is None:
        problems = _multiset_problems(left, right, names)
    else:
        keys = [key] if isinstance(key, str) else list(key)
        problems = _keyed_problems(left, right, names, keys)
    if problems:
        count = f"actual has {len(left)} rows, expected {len(right)}"
        raise AssertionError(f"rows differ ({count})\n" + "\n".join(problems))


def canonical(value: Any, type_: pa.DataType) -> Any:
    """A hashable form of one Python value in which equal values of two engines are equal."""
    if value is None:
        return None
    if pa.types.is_floating(type_):
        return "NaN" if math.isnan(value) else value + 0.0
    if pa.types.is_timestamp(type_):
        return _instant(value)
    if pa.types.is_decimal(type_):
        return decimal.Decimal(value).normalize(decimal.Context(prec=76))
    if pa.types.is_struct(type_):
        fields = (type_.field(i) for i in range(type_.num_fields))
        return tuple((f.name, canonical(value[f.name], f.type)) for f in sorted(fields, key=lambda f: f.name))
    if pa.types.is_map(type_):
        pairs = value.items() if isinstance(value, dict) else value
        return frozenset((canonical(k, type_.key_type), canonical(v, type_.item_type)) for k, v in pairs)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return tuple(canonical(item, type_.value_type) for item in value)
    return value


def _instant(value: dt.datetime) -> int:
    moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _rows(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    columns = []
    for name in names:
        column = table.column(name)
        type_ = column.type
        if pa.types.is_timestamp(type_) and type_.unit != "us":
            type_ = pa.timestamp("us", type_.tz)
            column = column.cast(type_, safe=False)
        elif pa.types.is_dictionary(type_):
            type_ = type_.value_type
            column = column.cast(type_)
        columns.append([canonical(value, type_) for value in column.to_pylist()])
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _schema_problems(actual: pa.Schema, expected: pa.Schema, check_types: bool) -> list[str]:
    problems = []
    missing = sorted(set(expected.names) - set(actual.names))
    surplus = sorted(set(actual.names) - set(expected.names))
    if missing:
        problems.append(f"missing columns: {', '.join(missing)}")
    if surplus:
        problems.append(f"unexpected columns: {', '.join(surplus)}")
    if check_types:
        for name in sorted(set(expected.names) & set(actual.names)):
            left, right = _kind(actual.field(name).type), _kind(expected.field(name).type)
            if left != right:
                problems.append(f"{name}: {left} instead of {right}")
    return problems


def _kind(type_: pa.DataType) -> str:
    """A type's name without what two engines may spell differently for the same values."""
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    if pa.types.is_large_string(type_):
        return "string"
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return "binary"
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamp with zone"
    if pa.types.is_struct(type_):
        fields = (type_.field(i) for i in range(type_.num_fields))
        return "struct<" + ", ".join(f"{f.name}: {_kind(f.type)}" for f in sorted(fields, key=lambda f: f.name)) + ">"
    if pa.types.is_map(type_):
        return f"map<{_kind(type_.key_type)}, {_kind(type_.item_type)}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"list<{_kind(type_.value_type)}>"
    return str(type_)


def _multiset_problems(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], names: Sequence[str]) -> list[str]:
    ours, theirs = Counter(left), Counter(right)
    surplus, missing = list((ours - theirs).elements()), list((theirs - ours).elements())
    problems: list[str] = []
    for title, rows in (("only in actual", surplus), ("only in expected", missing)):
        if rows:
            problems += [f"{title}: {len(rows)}", *_grid(names, rows)]
    return problems


def _keyed_problems(
    left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], names: Sequence[str], keys: Sequence[str]
) -> list[str]:
    places = [names.index(key) for key in keys]

    def group(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for row in rows:
            groups.setdefault(tuple(row[place] for place in places), []).append(row)
        return groups

    ours, theirs = group(left), group(right)
    problems: list[str] = []
    repeated = [key for key, rows in ours.items() if len(rows) > len(theirs.get(key, ())) and len(rows) > 1]
    surplus = [rows[0] for key, rows in ours.items() if key not in theirs]
    missing = [rows[0] for key, rows in theirs.items() if key not in ours]
    if repeated:
        problems.append(f"repeated in actual: {', '.join(_text(key) for key in repeated[:MAX_SHOWN])}")
    for title, rows in (("only in actual", surplus), ("only in expected", missing)):
        if rows:
            problems += [f"{title}: {len(rows)}", *_grid(names, rows)]
    changed = [
        (key, ours[key][0], rows[0])
        for key, rows in theirs.items()
        if key in ours and Counter(ours[key]) != Counter(rows)
    ]
    if changed:
        columns = [i for i in range(len(names)) if any(a[i] != b[i] for _, a, b in changed)]
        problems.append(f"differing rows: {len(changed)}, in columns: {', '.join(names[i] for i in columns)}")
        for key, a, b in changed[:MAX_SHOWN]:
            problems.append(f"  {', '.join(f'{k}={_text(v)}' for k, v in zip(keys, key, strict=True))}")
            problems += [f"    {names[i]}: {_text(a[i])} instead of {_text(b[i])}" for i in columns if a[i] != b[i]]
    return problems


def _grid(names: Sequence[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as a table with one text column per column."""
    cells = [list(names), *([_text(value) for value in row] for row in sorted(rows, key=repr)[:MAX_SHOWN])]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    lines = ["  | " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    if len(rows) > MAX_SHOWN:
        lines.append(f"  ... and {len(rows) - MAX_SHOWN} more")
    return lines


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 12]}...({len(text)})"
