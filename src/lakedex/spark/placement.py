"""Choosing the task of a row: Spark's hash partitioning, run backwards."""

from __future__ import annotations

from functools import cache
from itertools import count

__all__ = ["salts"]

_MASK = 0xFFFFFFFF


@cache
def salts(tasks: int) -> tuple[int, ...]:
    """For each of ``tasks`` partitions an int that ``repartition(tasks, column)`` sends there."""
    found: dict[int, int] = {}
    for value in count():
        found.setdefault(_spark_hash(value) % tasks, value)
        if len(found) == tasks:
            return tuple(found[partition] for partition in range(tasks))
    raise AssertionError


def _spark_hash(value: int) -> int:
    """``Murmur3_x86_32.hashInt`` with Spark's seed 42, as a signed int."""
    k = _rotate(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(42 ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
