"""Streams from threads: in order, bounded, and over when the consumer is."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lakedex.parallel import stream_ordered


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lakedex-scan")]


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_order(threads: int) -> None:
    counts = [3, 0, 1, 50, 0, 2, 7] * 5

    def numbers(item: tuple[int, int]) -> Iterator[tuple[int, int]]:
        return ((item[0], number) for number in range(item[1]))

    found = list(stream_ordered(numbers, list(enumerate(counts)), threads))
    assert found == [(index, number) for index, count in enumerate(counts) for number in range(count)]
    assert list(stream_ordered(numbers, [], threads)) == []
    assert not alive()


def test_little_is_made_ahead() -> None:
    made, most = 0, 0
    taken = 0
    lock = threading.Lock()

    def results(_: int) -> Iterator[int]:
        nonlocal made, most
        for number in range(3):
            with lock:
                made += 1
                most = max(most, made - taken)
            yield number

    for _ in stream_ordered(results, range(200), 4):
        with lock:
            taken += 1
    assert made == taken == 600
    # Two windows of four threads wait, and each thread may hold one more.
    assert most <= 2 * 4 + 4 + 1


def test_an_early_end_stops_the_threads() -> None:
    begun: list[int] = []

    def results(item: int) -> Iterator[int]:
        begun.append(item)
        yield from range(1000)

    stream = stream_ordered(results, range(100), 3)
    assert next(stream) == 0
    stream.close()
    assert not alive()
    assert len(begun) <= 6


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_comes_in_its_place(threads: int) -> None:
    def results(item: int) -> Iterator[int]:
        yield item
        if item == 3:
            raise ValueError("three")

    found: list[int] = []

    def take_all() -> None:
        for number in stream_ordered(results, range(10), threads):
            found.append(number)  # noqa: PERF402 - what came before the error counts

    with pytest.raises(ValueError, match="three"):
        take_all()
    assert found == [0, 1, 2, 3]
    assert not alive()
