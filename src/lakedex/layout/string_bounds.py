"""Bounds of strings: shortened outwards, and for record keys valid in two orders at once.

Spark, HFiles and Parquet order strings by UTF-8 bytes (that is by code point); Java's tagging compares with
``String.compareTo``, by UTF-16 unit. The two differ only where a code point past U+D7FF takes part. A bound that
consists of lower code points is valid in both orders if it is valid in one.
"""

from __future__ import annotations

__all__ = ["LAST_COMMON", "MAX_BOUND_LENGTH", "is_order_safe", "key_bounds", "lower_bound", "upper_bound"]

LAST_COMMON = "\ud7ff"
"""The last code point before which UTF-8 and UTF-16 order agree."""

MAX_BOUND_LENGTH = 256
"""Longest bound kept, in code points; longer values are shortened outwards."""


def lower_bound(value: str, limit: int = MAX_BOUND_LENGTH) -> str:
    """A string not above ``value``, at most ``limit`` code points long."""
    return value[:limit]


def upper_bound(value: str, limit: int = MAX_BOUND_LENGTH) -> str:
    """A string not below any string that starts like ``value``'s first ``limit`` code points.

    ``value`` itself where it is short enough or where its prefix has no successor.
    """
    if len(value) <= limit:
        return value
    return _successor(value[:limit], "\U0010ffff") or value


def _successor(prefix: str, last: str) -> str:
    """Smallest string above all that start with ``prefix`` (code points up to ``last``); empty if there is none."""
    prefix = prefix.rstrip(last)
    if not prefix:
        return ""
    point = ord(prefix[-1]) + 1
    # Surrogates are no characters: UTF-8 cannot hold them.
    if 0xD800 <= point <= 0xDFFF:
        point = 0xE000
    return prefix[:-1] + chr(point)


def is_order_safe(bound: str) -> bool:
    """Whether comparing with ``bound`` gives the same answer in both orders."""
    return not bound or max(bound) <= LAST_COMMON


def key_bounds(minimum: str, maximum: str) -> tuple[str, str]:
    """Bounds of record keys that hold in UTF-8 and UTF-16 order.

    Args:
        minimum: smallest key in UTF-8 order.
        maximum: largest key in UTF-8 order.

    Returns:
        Lower and upper bound. Where keys *start* with both a supplementary character and one of U+E000..U+FFFF no
        upper bound holds in both orders; the one returned then holds in UTF-8 order, that of all reads.
    """
    low = lower_bound(_common_prefix(minimum))
    if is_order_safe(maximum):
        high = upper_bound(maximum)
        return low, high if is_order_safe(high) else maximum
    prefix = _common_prefix(maximum)[:MAX_BOUND_LENGTH]
    high = _successor(prefix, LAST_COMMON)
    if high and is_order_safe(high):
        return low, high
    top = "\uffff" if maximum[0] <= "\uffff" else "\U0010ffff"
    return low, top * (len(maximum) - len(maximum.lstrip(top)) + 1)


def _common_prefix(value: str) -> str:
    for position, character in enumerate(value):
        if character > LAST_COMMON:
            return value[:position]
    return value
