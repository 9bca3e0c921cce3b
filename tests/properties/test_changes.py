"""Changes of a range are the rows of the state at its end whose last commit lies in the range."""

from __future__ import annotations

import tempfile
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex.types import COMMIT_TIME
from table_kit import OWN_FILE, make, own, rows

KEYS = ["k1", "k2", "k3", "k4"]
SHOWN = [COMMIT_TIME, "id", "city", "n"]
actions = st.tuples(
    st.sampled_from(["upsert", "insert", "delete"]), st.lists(st.sampled_from(KEYS), min_size=1, unique=True)
)


@settings(max_examples=8)
@given(story=st.lists(actions, min_size=2, max_size=4), small=st.booleans())
def test_changes_are_parts_of_states(story: list[tuple[str, list[str]]], small: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = make(Path(folder), schema=rows().schema, partition_by="city", options=OWN_FILE if small else {})
        instants = []
        for n, (action, keys) in enumerate(story):
            if action == "delete":
                instants.append(table.delete(pa.table({"id": keys}), all_partitions=True).instant)
            elif action == "upsert":
                instants.append(table.upsert(rows(*((key, "ab"[key > "k2"], n, n) for key in keys))).instant)
            else:
                instants.append(table.insert(rows(*((f"{key}-{n}", "a", n, n) for key in keys))).instant)
        done = [instant for instant in instants if instant is not None]
        for since, until in combinations(["earliest", *dict.fromkeys(done)], 2):
            state = table.scan(columns=SHOWN, as_of=until).to_arrow()
            inside = [instant for instant in done if (since == "earliest" or instant > since) and instant <= until]
            expected = state.filter(pc.is_in(state.column(COMMIT_TIME), pa.array(inside, pa.string())))
            assert own(table.changes(since, until, SHOWN).to_arrow()) == own(expected)
