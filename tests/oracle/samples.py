"""Rows with every type that a table of all judges can hold, nulls and awkward values included."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa

NAN = float("nan")


def all_types(*, local_timestamp: bool = False) -> pa.Table:
    """Four rows, the last with nulls wherever they may be; key ``key``, partition ``part``, ordering ``ts``.

    No list holds a null: Java's Avro writer refuses that (``parquet.avro.write-old-list-structure`` is on by default).

    Args:
        local_timestamp: Add ``ntz``, a timestamp without time zone; hudi-rs 0.5 panics at its Avro type.
    """
    utc = dt.UTC
    number = decimal.Decimal
    columns = {
        "key": pa.array(["k1", "k2", "k3", "k4"]),
        "ts": pa.array([1, 2, 3, 4], pa.int64()),
        "part": pa.array(["a", "a", "b", "b"]),
        "flag": pa.array([True, False, True, None]),
        "small": pa.array([1, -(2**31), 2**31 - 1, None], pa.int32()),
        "large": pa.array([1, -(2**63), 2**63 - 1, None], pa.int64()),
        "single": pa.array([1.5, -0.0, NAN, None], pa.float32()),
        "double": pa.array([0.1, -0.0, NAN, None], pa.float64()),
        "money": pa.array([number("1.25"), number("-99999999.99"), number("0.00"), None], pa.decimal128(10, 2)),
        "wide": pa.array([number("1.2500"), number("-1234567890123456.7891"), number(0), None], pa.decimal128(20, 4)),
        "text": pa.array(["", "Zürich 😀", "x" * 5000, None]),
        "bytes": pa.array([b"", b"\x00\xff", b"\x80" * 300, None], pa.binary()),
        "day": pa.array([dt.date(1970, 1, 1), dt.date(1899, 12, 31), dt.date(2999, 1, 2), None]),
        "moment": pa.array(
            [
                dt.datetime(2020, 1, 2, 3, 4, 5, 678901, utc),
                dt.datetime(1950, 1, 1, 0, 0, 0, 1, utc),
                dt.datetime(2200, 12, 31, 23, 59, 59, 999999, utc),
                None,
            ],
            pa.timestamp("us", "UTC"),
        ),
        "place": pa.array(
            [{"x": 1, "deep": {"y": "a"}}, {"x": None, "deep": {"y": None}}, {"x": 3, "deep": None}, None],
            pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))]),
        ),
        "list": pa.array([[1, 2], [], [3], None], pa.list_(pa.int32())),
        "map": pa.array([[("a", 1), ("b", None)], [], [("c", 3)], None], pa.map_(pa.string(), pa.int64())),
    }
    if local_timestamp:
        moments = [dt.datetime(2020, 1, 2, 3, 4, 5, 678901), dt.datetime(1950, 1, 1), dt.datetime(2200, 12, 31), None]
        columns["ntz"] = pa.array(moments, pa.timestamp("us"))
    return pa.table(columns)
