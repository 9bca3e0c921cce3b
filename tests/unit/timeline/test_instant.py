import datetime
import pickle
import threading
import time

import pytest

from lakedex.errors import CommitError, InvalidInputError
from lakedex.timeline.instant import (
    Instant,
    InstantClock,
    State,
    epoch_ms_to_instant,
    instant_to_epoch_ms,
    parse_as_of,
    parse_instant_name,
)

T = "20260101120000123"
C = "20260101120001456"


@pytest.mark.parametrize(
    ("name", "action", "state", "completed"),
    [
        (f"{T}.commit.requested", "commit", State.REQUESTED, None),
        (f"{T}.inflight", "commit", State.INFLIGHT, None),
        (f"{T}_{C}.commit", "commit", State.COMPLETED, C),
        (f"{T}.deltacommit.inflight", "deltacommit", State.INFLIGHT, None),
        (f"{T}_{C}.deltacommit", "deltacommit", State.COMPLETED, C),
        (f"{T}.clustering.requested", "clustering", State.REQUESTED, None),
        (f"{T}.compaction.inflight", "compaction", State.INFLIGHT, None),
        (f"{T}.logcompaction.requested", "logcompaction", State.REQUESTED, None),
        (f"{T}_{C}.replacecommit", "replacecommit", State.COMPLETED, C),
        (f"{T}_{C}.clean", "clean", State.COMPLETED, C),
        (f"{T}_{C}.rollback", "rollback", State.COMPLETED, C),
        (f"{T}_{C}.restore", "restore", State.COMPLETED, C),
        (f"{T}.savepoint.inflight", "savepoint", State.INFLIGHT, None),
        (f"{T}_{C}.savepoint", "savepoint", State.COMPLETED, C),
        (f"{T}_{C}.indexing", "indexing", State.COMPLETED, C),
        (f"{T}.schemacommit.requested", "schemacommit", State.REQUESTED, None),
        (f"00000000000000000_{C}.deltacommit", "deltacommit", State.COMPLETED, C),
    ],
)
def test_names(name: str, action: str, state: State, completed: str | None) -> None:
    assert parse_instant_name(name) == Instant(name[:17], action, state, completed, name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "hoodie.properties",
        f"{T}",
        f"{T}.",
        f".{T}.commit",
        f"{T}.commit.tmp",
        f"{T}.commit.requested.bak",
        f"{T}_{C}.commit.8f14e45f",
        f"{T}_{C}.commit.requested",
        f"{T}_{C}.inflight",
        f"{T}_{C}.compaction",
        f"{T}_{C}.clustering",
        f"{T}.savepoint.requested",
        f"{T}.mystery",
        f"{T}.mystery.inflight",
        f"{T}_.commit",
        f"_{C}.commit",
        f"{T}_{C}.COMMIT",
        "\u0662\u0660.commit",
        f"{T}_{C}.commit\n",
        ".lakedex-1.tmp",
        "history",
    ],
)
def test_other_names(name: str) -> None:
    assert parse_instant_name(name) is None


def test_legacy_completion_is_the_files_time() -> None:
    found = parse_instant_name(f"{T}.commit", 1_700_000_000_123)
    assert found is not None and found.is_legacy and found.completed == "20231114221320123"
    named = parse_instant_name(f"{T}_{C}.commit", 1_700_000_000_123)
    assert named is not None and not named.is_legacy


def test_order() -> None:
    names = [
        f"{T}.commit.requested",
        f"{T}.inflight",
        f"{T}_{C}.commit",
        f"{T}_{C}.savepoint",
        f"{C}.commit.requested",
    ]
    instants = [parse_instant_name(name) for name in names]
    assert sorted(reversed(instants)) == instants  # type: ignore[type-var]
    assert instants[0] < instants[1] and instants[1] >= instants[0]  # type: ignore[operator]
    assert pickle.loads(pickle.dumps(instants)) == instants


def test_text_that_is_no_time() -> None:
    for text in ("", "2026", "20261301000000000", "2026010112000012x", "\u0662" * 17):
        with pytest.raises(InvalidInputError):
            instant_to_epoch_ms(text)


@pytest.mark.parametrize(
    ("value", "zone", "expected"),
    [
        (T, "UTC", T),
        ("20260101120000", "UTC", "20260101120000"),
        ("2026-01-01", "UTC", "20260101000000000"),
        ("2026-01-01 12:00:00", "UTC", "20260101120000999"),
        (" 2026-01-01T12:00:00 ", "UTC", "20260101120000999"),
        ("2026-01-01 12:00:00.123", "UTC", T),
        ("2026-01-01 12:00:00.123456", "UTC", T),
        ("2026-01-01T12:00:00Z", "America/New_York", "20260101070000999"),
        ("2026-01-01T12:00:00.123+02:00", "UTC", "20260101100000123"),
        (datetime.datetime(2026, 1, 1, 12, 0, 0, 123_000), "America/New_York", T),
        (datetime.datetime(2026, 1, 1, 12, 0, 0, 0, datetime.UTC), "America/New_York", "20260101070000000"),
        (datetime.date(2026, 1, 1), "UTC", "20260101000000000"),
    ],
)
def test_as_of(value: str | datetime.date, zone: str, expected: str) -> None:
    assert parse_as_of(value, zone) == expected


@pytest.mark.parametrize("value", ["", "now", "2026", "20261301000000000", 20260101120000123, None, "2026-13-01"])
def test_as_of_refuses(value: object) -> None:
    with pytest.raises(InvalidInputError, match="yyyyMMddHHmmssSSS"):
        parse_as_of(value)  # type: ignore[arg-type]


NOW = 1_767_268_800_000  # 2026-01-01 12:00:00 UTC


def test_clock_is_monotone_and_above_the_floor() -> None:
    clock = InstantClock(now_ms=lambda: NOW)
    assert clock.next() == "20260101120000000"
    assert clock.next() == "20260101120000001"
    assert clock.next("20260101120000005") == "20260101120000006"
    assert clock.next("20250101000000000") == "20260101120000007"
    assert clock.next("00000000000000000") == "20260101120000008"
    assert clock.next("20260101120000009001") == "20260101120000010"


def test_clock_leaves_out_times_that_others_use() -> None:
    clock = InstantClock(now_ms=lambda: NOW)
    clock.leave_out({"20260101120000000", "20260101120000001", "29990101000000000", "no time"})
    assert clock.next() == "20260101120000002"


def test_clock_steps_over_small_skew_and_refuses_large() -> None:
    clock = InstantClock(now_ms=lambda: NOW)
    assert clock.next("20260101120459999") == "20260101120500000"
    with pytest.raises(CommitError, match=r"20260101120500001, 300 s after .* zone"):
        clock.next("20260101120500001")
    with pytest.raises(CommitError, match="full hours"):
        clock.next("20260101210000000")


def test_real_clock_waits_for_a_floor_just_ahead() -> None:
    floor = epoch_ms_to_instant(time.time_ns() // 1_000_000 + 20)
    given = InstantClock().next(floor)
    assert given > floor
    assert time.time_ns() // 1_000_000 > instant_to_epoch_ms(floor)


def test_real_clocks_of_one_process_never_repeat() -> None:
    given: list[str] = []

    def take() -> None:
        clock = InstantClock()
        given.extend([clock.next() for _ in range(50)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given)) == 200


def test_clock_in_a_zone() -> None:
    assert InstantClock("America/New_York", now_ms=lambda: NOW).next() == "20260101070000000"
    local = InstantClock("LOCAL", now_ms=lambda: NOW).next()
    assert instant_to_epoch_ms(local, "LOCAL") == NOW


def test_clocks_set_back_in_autumn_are_refused() -> None:
    # 2024-11-03 05:59:59.999 UTC is 01:59:59.999 in New York; a millisecond later it is 01:00 again.
    clock = InstantClock("America/New_York", now_ms=lambda: 1_730_613_600_000)
    with pytest.raises(CommitError, match="set back"):
        clock.next("20241103015959999")
