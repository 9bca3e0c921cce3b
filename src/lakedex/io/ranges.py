"""Byte ranges: near ones become one request, and each caller's range is cut out of the answer again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["read_coalesced"]


def read_coalesced(
    ranges: Sequence[tuple[int, int]], fetch: Callable[[int, int], bytes], *, max_gap: int
) -> tuple[list[bytes], int]:
    """Read half-open ranges with as few ``fetch(start, end)`` calls as gaps of at most ``max_gap`` bytes allow.

    Args:
        ranges: ``[start, end)`` pairs in any order; they may overlap; an empty one costs nothing.
        fetch: Reads one range; may answer short at the end of the file.
        max_gap: Bytes worth reading for nothing rather than asking once more.

    Returns:
        The bytes of each range in the caller's order, and the number of ``fetch`` calls.
    """
    results = [b""] * len(ranges)
    wanted = sorted((start, end, index) for index, (start, end) in enumerate(ranges) if end > start)
    calls = 0
    first = 0
    while first < len(wanted):
        low, high, _ = wanted[first]
        if low < 0:
            raise ValueError(f"byte range [{low}, {high}) starts before the file")
        last = first + 1
        while last < len(wanted) and wanted[last][0] <= high + max_gap:
            high = max(high, wanted[last][1])
            last += 1
        data = fetch(low, high)
        calls += 1
        for start, end, index in wanted[first:last]:
            results[index] = data[start - low : end - low]
        first = last
    return results, calls
