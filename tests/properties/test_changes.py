"""Changes of a range are the rows, as of its end, whose last commit completed in the range."""

from __future__ import annotations

import tempfile
from itertools import combinations
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.timeline.instant import plus_millis
from lakedex.types import COMMIT_TIME
from table_kit import OWN_FILE, complete_later, make, own, rows

KEYS = {"a": ["k1", "k2"], "b": ["k3", "k4"]}
SHOWN = [COMMIT_TIME, "id", "city", "n"]
Action = tuple[str, str, list[str], bool]
State = dict[str, tuple[str, str, str, int]]
actions = st.sampled_from(sorted(KEYS)).flatmap(
    lambda city: st.tuples(
        st.sampled_from(["upsert", "insert", "delete", "insert_overwrite"]),
        st.just(city),
        st.lists(st.sampled_from(KEYS[city]), min_size=1, unique=True),
        st.sampled_from([True, True, False]),
    )
)
"""What is done to which keys of a partition, and whether it lasts until the next one, of the other partition, is done."""


def acted(table: Table, n: int, action: Action) -> str | None:
    kind, city, keys, _ = action
    if kind == "delete":
        return table.delete(pa.table({"id": keys}), all_partitions=True).instant
    suffix = f"-{n}" if kind == "insert" else ""
    instant: str = getattr(table, kind)(rows(*((key + suffix, city, n, n) for key in keys))).instant
    return instant


def after(state: State, instant: str, n: int, action: Action) -> State:
    """The rows after a commit, by key."""
    kind, city, keys, _ = action
    if kind == "delete":
        return {key: row for key, row in state.items() if key not in keys}
    kept = {key: row for key, row in state.items() if kind != "insert_overwrite" or row[2] != city}
    names = [f"{key}-{n}" if kind == "insert" else key for key in keys]
    return kept | {name: (instant, name, city, n) for name in names}


def completed(table: Table) -> dict[str, str]:
    history = table.inspect.history().select(["commit_time", "state_transition_time"]).to_pylist()
    return {row["commit_time"]: row["state_transition_time"] for row in history}


# In version 6 commits are ordered by their requested times, whenever they complete.
@settings(max_examples=10)
@given(story=st.lists(actions, min_size=2, max_size=4), small=st.booleans(), version=st.sampled_from([8, 8, 9, 6]))
def test_changes_are_parts_of_states(story: list[Action], small: bool, version: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = {"hoodie.write.table.version": str(version)} | (OWN_FILE if small else {})
        table = make(Path(folder), schema=rows().schema, partition_by="city", options=options)
        first = table.upsert(rows(*((key, city, -1, -1) for city in KEYS for key in KEYS[city]))).instant
        done = ["earliest", first]
        states: list[State] = [{}, {key: (first, key, city, -1) for city in KEYS for key in KEYS[city]}]
        steps: list[tuple[str, int, Action]] = []
        for n, action in enumerate(story):
            instant = acted(table, n, action)
            if instant is None:
                continue
            if steps and version >= 8 and steps[-1][2][3] and steps[-1][2][1] != action[1]:
                complete_later(Path(folder), steps[-1][0], plus_millis(completed(table)[instant], 1))
            steps.append((instant, n, action))
        times = completed(table) if version >= 8 else {}
        steps.sort(key=lambda step: times.get(step[0], step[0]))
        for instant, n, action in steps:
            done.append(instant)
            states.append(after(states[-1], instant, n, action))
        for since, until in combinations(range(len(done)), 2):
            expected = [row for row in states[until].values() if row[0] in done[since + 1 : until + 1]]
            found = table.changes(done[since], done[until], SHOWN).to_arrow()
            assert own(found, *SHOWN) == sorted(expected, key=repr), (steps, done[since], done[until])
