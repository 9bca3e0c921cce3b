"""Schedules of failing requests: no row is lost, doubled or seen early (``tests/fault_schedules.py``)."""

from __future__ import annotations

import os
import random
import threading

import pytest

from fault_schedules import OPERATIONS, ROOT, Life, rows_of, started, table_of
from lakedex.errors import CommitConflictError, CommitStateUnknownError, LakedexError, StorageError
from lakedex.testing import FaultSchedule, ModelClock, StoreModel, open_table

# LAKEDEX_FAULT_SEEDS=0-10000 is the long run; each seed is a schedule. LAKEDEX_FAULT_STRIDE=1 tries each request.
FIRST, _, LAST = os.environ.get("LAKEDEX_FAULT_SEEDS", "0-200").partition("-")
SEEDS = range(int(FIRST), int(LAST))
STRIDE = int(os.environ.get("LAKEDEX_FAULT_STRIDE", "6"))
PARTS = [SEEDS[place::20] for place in range(20)]
KINDS = ("lost", "lost500", "reset", "503", "409", "short", "500", "hang")


@pytest.fixture(scope="module", params=["cow", "mor"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def start(kind: str) -> tuple[StoreModel, dict[str, int]]:
    return started(kind)


@pytest.mark.parametrize("name", OPERATIONS)
def test_one_fault_at_each_request(start: tuple[StoreModel, dict[str, int]], name: str) -> None:
    """One after the other; the operation succeeds, as one fault is no outage."""
    quiet = Life.again(*start)
    quiet.run(name, 3, FaultSchedule())
    requests = len(quiet.model.requests)
    assert requests > 5
    hit = 0
    for number in range(requests % STRIDE, requests, STRIDE):
        life = Life.again(*start)
        fault = KINDS[number % len(KINDS)]
        life.run(name, 3, FaultSchedule({number: fault, number + 1: "503"}))
        assert life.names == [f"{name} returned"], f"{fault} at request {number}"
        hit += any(request.fault for request in life.model.requests)
        if number % 4 == 0:
            life.finish()
    assert hit > requests // STRIDE // 2


@pytest.mark.parametrize("name", ["upsert", "merge", "index"])
@pytest.mark.heavy
def test_an_outage_from_each_request_on(start: tuple[StoreModel, dict[str, int]], name: str) -> None:
    """All requests fail from one on: what is raised is not visible, and nothing is in the way when it is over."""
    quiet = Life.again(*start)
    quiet.run(name, 3, FaultSchedule())
    requests = len(quiet.model.requests)
    for number in range(requests % STRIDE, requests, STRIDE):
        life = Life.again(*start)
        life.run(name, 3, FaultSchedule(dict.fromkeys(range(number, number + 5000), KINDS[number % 4])))
        life.finish()


@pytest.mark.parametrize("part", [0, *[pytest.param(number, marks=pytest.mark.heavy) for number in range(1, 10)]])
def test_random_schedules(kind: str, start: tuple[StoreModel, dict[str, int]], part: int) -> None:
    """Three operations of two writers, one request in twenty failing; some schedules have outages."""
    for seed in PARTS[2 * part + (kind == "mor")]:
        chance, life = random.Random(seed), Life.again(*start)
        burst = (1, 3) if seed % 5 else (1, 40)
        for step in range(3):
            faults = FaultSchedule(seed=seed * 10 + step, every=(2, 40), burst=burst)
            life.run(chance.choice(list(OPERATIONS)), chance.randrange(1000), faults, chance.randrange(2))
        life.finish()


@pytest.mark.parametrize("seed", range(4))
def test_two_writers_and_a_reader_at_once(start: tuple[StoreModel, dict[str, int]], seed: int) -> None:
    """Each commit that returned is there whole, each that raised is not, and no reader sees half of one."""
    model = StoreModel(objects=dict(start[0].objects), time=ModelClock(seed, speed=200.0))
    model.faults = FaultSchedule(seed=seed, every=(5, 60))
    outcomes: dict[tuple[int, int], bool | None] = {}
    seen: list[dict[str, int]] = []
    refused: list[LakedexError] = []

    def write(writer: int) -> None:
        table = open_table(ROOT, model.storage())
        for number in range(3):
            rows = {f"w{2 * place + writer}": 10 * writer + number for place in range(10, 16)}
            try:
                table.upsert(table_of(rows))
                outcomes[writer, number] = True
            except CommitStateUnknownError:
                outcomes[writer, number] = None
            except LakedexError as error:
                refused.append(error)
                outcomes[writer, number] = False

    def read() -> None:
        while any(thread.is_alive() for thread in threads):
            try:
                seen.append(rows_of(open_table(ROOT, model.storage())))
            except LakedexError:
                continue

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    reader = threading.Thread(target=read)
    reader.start()
    for thread in (*threads, reader):
        thread.join()
    model.faults = None
    assert len(outcomes) == 6
    assert all(isinstance(error, CommitConflictError | StorageError) for error in refused), refused
    final = rows_of(open_table(ROOT, model.storage()))
    for found in (*seen, final):
        for writer in range(2):
            values = {value for key, value in found.items() if key[0] == "w" and int(key[1:]) % 2 == writer}
            assert len(values) <= 1, "half of a commit"
    for writer in range(2):
        done = [number for number in range(3) if outcomes[writer, number]]
        maybe = [number for number in range(3) if outcomes[writer, number] is None]
        values = {value - 10 * writer for key, value in final.items() if key[0] == "w" and int(key[1:]) % 2 == writer}
        last = max(done, default=None)
        assert values <= {last, *maybe} - {None} and (last is None or values)
    assert open_table(ROOT, model.storage()).maintenance.validate().ok
