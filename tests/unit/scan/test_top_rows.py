"""Files that can hold one of the first rows by a column."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.scan.plan import TopRows, keep_top_rows
from table_kit import OWN_FILE

KINDS = {
    "n": (pa.int64(), st.integers(-9, 9)),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "é", "\uff21", "\U0001f600", "x" * 40])),
    "d": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf")])),
}


def table(path: Path, files: list[list[tuple[object, ...]]]) -> Table:
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), *((name, kind) for name, (kind, _) in KINDS.items())])
    made = Table.create(path, schema, record_key="id", partition_by="p", options=OWN_FILE)
    for number, rows in enumerate(files):
        columns = [[f"{number}-{i}" for i in range(len(rows))], [f"p{number}"] * len(rows), *zip(*rows, strict=True)]
        made.insert(pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema))
    return made


def position(value: object, top: TopRows) -> tuple[object, ...]:
    """Where Spark sorts a value."""
    if value is None:
        return (0 if top.nulls_first else 2, 0)
    key: object = value
    if isinstance(value, str):
        key = tuple(value.encode())
    elif isinstance(value, float):
        key = (value != value, 0.0 if value != value else value)
    return (1, _Reversed(key) if top.descending else key)


class _Reversed:
    def __init__(self, key: object) -> None:
        self.key = key

    def __lt__(self, other: _Reversed) -> bool:
        return other.key < self.key  # type: ignore[operator]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and other.key == self.key

    __hash__ = None  # type: ignore[assignment]


ROW = st.tuples(*(st.none() | values for _, values in KINDS.values()))


@settings(max_examples=max(10, settings().max_examples // 5))
@given(
    st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from(list(KINDS)), st.booleans(), st.booleans(), st.integers(1, 6),
)  # fmt: skip
def test_the_first_rows_are_kept(
    files: list[list[tuple[object, ...]]], column: str, descending: bool, nulls_first: bool, limit: int
) -> None:
    top = TopRows(column=column, descending=descending, nulls_first=nulls_first, limit=limit)
    with tempfile.TemporaryDirectory() as folder:
        scan = table(Path(folder), files).scan(meta_columns=True)
        plan = keep_top_rows(scan.snapshot, scan.plan(), top)
        kept = set(plan.files_kept)
        rows = scan.to_arrow().select(["_hoodie_file_name", column]).to_pylist()
        wanted = sorted(position(row[column], top) for row in rows)[:limit]  # type: ignore[type-var]
        found = sorted(position(row[column], top) for row in rows if row["_hoodie_file_name"] in kept)[:limit]  # type: ignore[type-var]
        assert found == wanted
        assert len(plan.dropped) + len(plan.slices) == plan.files_total


@pytest.mark.parametrize(
    "descending, nulls_first, limit, files",
    [(True, False, 2, 1), (True, False, 3, 2), (False, False, 1, 1), (True, True, 2, 2), (False, True, 1, 2), (True, False, 9, 4)],
)  # fmt: skip
def test_files_left_out(tmp_path: Path, descending: bool, nulls_first: bool, limit: int, files: int) -> None:
    rows = [[(1, None, None), (2, None, None)], [(3, None, None), (4, None, None)], [(8, None, None), (9, None, None)]]
    scan = table(tmp_path, [*rows, [(None, None, None)]]).scan()
    top = TopRows(column="n", descending=descending, nulls_first=nulls_first, limit=limit)
    plan = keep_top_rows(scan.snapshot, scan.plan(), top)
    assert len(plan.slices) == files
    assert plan.stage("top_n").before == 4
    assert str(top) in str(plan)


def test_what_is_not_known_keeps_all(tmp_path: Path) -> None:
    made = table(tmp_path, [[(1, "a", 1.0)], [(2, "b", 2.0)]])
    top = TopRows(column="n", descending=True, nulls_first=False, limit=1)
    for scan in (made.scan("n > 0"), made.scan()):
        plan = keep_top_rows(scan.snapshot, scan.plan(), top)
        assert len(plan.slices) == (2 if scan.where else 1)
    scan = made.scan()
    for column in ("what", "p"):
        plan = keep_top_rows(
            scan.snapshot, scan.plan(), TopRows(column=column, descending=True, nulls_first=False, limit=1)
        )
        assert len(plan.slices) == (2 if column == "what" else 1)
