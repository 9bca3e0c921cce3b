"""``kill -9`` at every change of a schema change: the table has the old schema or the new one, and all of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from table_checks import (
    NEXT,
    SCHEMA,
    START,
    THOROUGH,
    check_table,
    deaths,
    frame,
    fresh_copy,
    new_table,
    rows_of,
    writes,
)

pytestmark = pytest.mark.heavy


@dataclass(frozen=True)
class Case:
    """A change of the schema and what takes it back."""

    run: Callable[[Table], object]
    back: Callable[[Table], object]
    names: list[str]


CASES = {
    "rename": Case(lambda t: t.rename_column("v", "w"), lambda t: t.rename_column("w", "v"), ["id", "city", "ts", "w"]),
    "add": Case(
        lambda t: t.add_columns(pa.schema([("more", pa.int32())])),
        lambda t: t.drop_columns("more"),
        ["id", "city", "ts", "v", "more"],
    ),
}


def in_old_names(found: pa.Table) -> pa.Table:
    return found.rename_columns(["v" if name == "w" else name for name in found.schema.names])


@pytest.mark.parametrize("name", CASES)
def test_kill_at_every_change(name: str, tmp_path: Path) -> None:
    case, template, path = CASES[name], tmp_path / "template", tmp_path / "t"
    new_table(template, START)
    copy = partial(fresh_copy, template, path)
    seen = set()
    for found in deaths(copy, writes(case.run), ("after", "during"), sparse=4):
        table = Table.open(found)
        assert table.schema.names in (SCHEMA.names, case.names)
        assert rows_of(in_old_names(table.to_arrow())) == START
        changed = table.schema.names == case.names
        seen.add(changed)
        newer = frame(NEXT)
        if changed and name == "rename":
            newer = newer.rename_columns(case.names)
        table.upsert(newer, options={"hoodie.write.set.null.for.missing.columns": "true"})
        assert rows_of(in_old_names(table.to_arrow())) == {**START, **NEXT}
        if changed:
            case.back(table)
        check_table(found, {**START, **NEXT})
    # A quick run may leave out the few changes after the commit.
    assert seen == {False, True} if THOROUGH else False in seen
