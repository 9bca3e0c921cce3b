"""The model of a store answers as the real server does: the same requests, at random, to both."""

from __future__ import annotations

import random
import uuid
from functools import partial
from typing import Any

import pytest
from fault_proxy import FaultProxy, Rule

from lakedex.io.object_store import ABSENT, Failure, Listing, ObjectInfo, ObjectStore, RequestError
from lakedex.io.obstore_client import ObstoreClient
from lakedex.io.store_options import store_address
from lakedex.testing import FaultSchedule, StoreModel

NAMES = ("a", "b.parquet", "d/a", "d/e/a", "d/e/é =%2F+", "d-e", ".hidden")


@pytest.fixture
def real(options: dict[str, str]) -> ObjectStore:
    return ObstoreClient(store_address("s3://lake", options))


def told(call: Any, prefix: str) -> Any:
    """An answer without prefix and times; of a failure its kind and status."""
    try:
        found = call()
    except RequestError as error:
        return error.failure, error.status if error.failure is not Failure.LOST else None
    if isinstance(found, tuple):
        return found[0], plain(found[1], prefix)
    if isinstance(found, Listing):
        return plain(found.objects, prefix), sorted(name.removeprefix(prefix) for name in found.prefixes)
    return plain(found, prefix)


def plain(found: Any, prefix: str) -> Any:
    """What of an object is the same in each store."""
    if isinstance(found, ObjectInfo):
        return found.key.removeprefix(prefix), found.size, found.version
    if isinstance(found, list) and isinstance(next(iter(found), None), ObjectInfo):
        return sorted(plain(one, prefix) for one in found)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_model_answers_as_the_server(real: ObjectStore, seed: int) -> None:
    chance = random.Random(seed)
    stores = (real, StoreModel())
    prefix = f"{uuid.uuid4().hex}/"
    versions: list[str] = ['"0123456789abcdef0123456789abcdef"']
    for _ in range(250):
        key, data = prefix + chance.choice(NAMES), bytes(chance.choices(b"xy", k=chance.choice([0, 1, 9])))
        start = chance.choice([0, 2, 20])
        condition = chance.choice([None, ABSENT, ABSENT, versions[-1], chance.choice(versions)])
        folder = chance.choice([prefix.rstrip("/"), f"{prefix}d", f"{prefix}d/e", f"{prefix}nothing"])
        name = chance.choice(
            ["put", "put", "put", "get", "get_tail", "get_ranges", "head", "list", "list_all", "delete"]
        )
        arguments: dict[str, tuple[Any, ...]] = {
            "put": (key, data, condition),
            "get": (key,),
            "get_tail": (key, 4),
            "get_ranges": (key, [(0, 2), (start + 3, start + 5)]),
            "head": (key,),
            "list": (folder,),
            "list_all": (folder,),
            "delete": ([key, f"{prefix}d/a"],),
        }
        answers = [told(partial(getattr(store, name), *arguments[name]), prefix) for store in stores]
        assert answers[0] == answers[1], (name, key, data, condition, folder)
        if name == "put" and isinstance(answers[0], str):
            versions.append(answers[0])


@pytest.mark.parametrize("kind", ["lost", "lost500", "reset", "500", "503", "403", "404", "409", "412", "501", "short"])
@pytest.mark.parametrize("condition", [None, ABSENT, "version"])
def test_faults_of_the_model_are_those_of_a_client(
    real: ObjectStore, proxy: FaultProxy, kind: str, condition: str | None
) -> None:
    """By failure, status, code and effect."""
    key, reads = uuid.uuid4().hex, kind in ("404", "short")
    model = StoreModel()
    found = []
    for store in (real, model):
        version = store.put(key, b"old") if condition == "version" or reads else condition
        model.faults, proxy.rules = FaultSchedule({0: kind}), [Rule(key, kind)]
        answer = told(partial(store.get, key) if reads else partial(store.put, key, b"new", version), "")
        model.faults, proxy.rules = None, []
        found.append((answer, told(partial(store.get, key), "")))
    assert found[0] == found[1]
    assert proxy.seen[-2].fault == model.requests[-2].fault
