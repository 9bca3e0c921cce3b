"""The public surface: exported names, sections of docstrings, expression objects, file tasks, streams, properties."""

from __future__ import annotations

import ast
import datetime
import gc
import inspect
import pickle
import subprocess
import sys
import threading
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakedex
from lakedex import Condition, InvalidInputError, MissingEngineError, Table, UnsupportedFeatureError, col
from table_kit import OWN_FILE, ROWS, make, own, rows

PUBLIC = ("Table", "Indexes", "Maintenance", "Inspect", "Scan")


# ----------------------------------------------------------------------------------------------------------- exports


def test_each_exported_name_is_where_it_is_said_to_be() -> None:
    """What type checkers read is what is loaded at run time, and no error is left out."""
    tree = ast.parse(Path(str(lakedex.__file__)).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    errors = vars(import_module("lakedex.errors")).values()
    public = {e.__name__ for e in errors if isinstance(e, type) and issubclass(e, lakedex.LakedexError)}
    declared = {
        name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        for name in (public if alias.name == "*" else [alias.name])
    }
    for name in lakedex.__all__:
        if name != "__version__":
            assert getattr(lakedex, name) is getattr(import_module(str(declared.pop(name))), name)
    assert declared == {}
    assert set(lakedex.__all__) >= public
    assert not hasattr(lakedex, "Tables")


# -------------------------------------------------------------------------------------------------------- docstrings


def members() -> list[tuple[str, Any]]:
    """Public methods and properties of the classes that a user meets."""
    return [
        (f"{cls}.{name}", member)
        for cls in PUBLIC
        for name, member in vars(getattr(lakedex, cls)).items()
        if not name.startswith("_") and (isinstance(member, property | classmethod) or inspect.isfunction(member))
    ]


WITHOUT_ERRORS = {
    *("Table.is_table", "Table.merge", "Scan.select", "Scan.filter", "Indexes.list", "Maintenance.savepoints"),
    *(f"Inspect.{name}" for name in ("files", "partitions", "snapshots", "column_stats", "bloom_filters", "bitmaps")),
    *("Inspect.timeline", "Inspect.properties", "Inspect.partition_stats"),
}
"""Methods that raise nothing of their own."""


@pytest.mark.parametrize(("name", "member"), members(), ids=[name for name, _ in members()])
def test_each_public_method_has_the_sections_that_apply(name: str, member: Any) -> None:
    text = inspect.getdoc(member) or ""
    assert text, f"{name} has no docstring"
    if isinstance(member, property):
        return
    function = member.__func__ if isinstance(member, classmethod) else member
    signature = inspect.signature(function)
    given = [one for one in signature.parameters if one not in ("self", "cls")]
    wanted = {"Example:"} | ({"Args:"} if given else set())
    wanted |= {"Returns:"} if signature.return_annotation != "None" else set()
    wanted |= {"Raises:"} if name not in WITHOUT_ERRORS else set()
    lines = {line.strip() for line in text.splitlines()}
    assert wanted <= lines, f"{name} lacks {', '.join(sorted(wanted - lines))}"
    missing = [one for one in given if f"{one}: " not in text]
    assert not missing, f"{name} does not describe {', '.join(missing)}"


def test_the_facade_stays_small() -> None:
    assert len([name for name, _ in members() if name.startswith("Table.")]) <= 39


# ------------------------------------------------------------------------------------------------------- expressions

HOSTILE = ["it's", "' OR 1 = 1 --", "a\\", "\\'", "${x}", "`", "%", "_", "\x00", "x\n) OR (TRUE", "é", ""]
VALUES = pa.table(
    {
        "id": pa.array([str(number) for number in range(len(HOSTILE))]),
        "s": HOSTILE,
        "n": pa.array(range(len(HOSTILE)), pa.int64()),
        "b": [text.encode() for text in HOSTILE],
        "select": pa.array([text[::-1] for text in HOSTILE]),
        "at": pa.array([datetime.datetime(2020, 1, day + 1) for day in range(len(HOSTILE))], pa.timestamp("us", "UTC")),
        "d": pa.array([datetime.date(2020, 1, day + 1) for day in range(len(HOSTILE))]),
        "dec": pa.array([Decimal(number) / 4 for number in range(len(HOSTILE))], pa.decimal128(10, 2)),
        "f": pa.array([float(number) for number in range(len(HOSTILE))]),
        "st": pa.array([{"from": number} for number in range(len(HOSTILE))], pa.struct([("from", pa.int64())])),
    }
)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return make(tmp_path_factory.mktemp("values") / "t", VALUES)


def numbers(table: Table, where: Any) -> list[int]:
    return sorted(table.scan(where, ["n"]).to_arrow()["n"].to_pylist())


@pytest.mark.parametrize("place", range(len(HOSTILE)), ids=[ascii(text) for text in HOSTILE])
def test_a_value_is_never_read_as_sql(values: Table, place: int) -> None:
    text = HOSTILE[place]
    assert numbers(values, col("s") == text) == [place]
    assert numbers(values, ~(col("s") != text)) == [place]
    assert numbers(values, col("s").isin([text, "nobody"])) == [place]
    assert numbers(values, col("b") == text.encode()) == [place]
    assert place in numbers(values, col("select") == text[::-1])


CONDITIONS: dict[str, tuple[Condition, list[int]]] = {
    "and": ((col("n") > 3) & (col("n") <= 5), [4, 5]),
    "or, not": (~(col("n") >= 2) | (col("n") == 11), [0, 1, 11]),
    "between": (col("n").between(4, 6), [4, 5, 6]),
    "in nothing": (col("n").isin([]), []),
    "null": (col("s").is_null(), []),
    "not null": (col("n").is_not_null() & (col("n") < 1), [0]),
    "null-safe": (col("n").eq_null_safe(None), []),
    "like": (col("s").like("it%"), [0]),
    "like a quote": (col("s").like("%'%"), [0, 1, 3]),
    "column": ((col("n") < col("f")) | (col("n") == 7), [7]),
    "date": (col("d") == datetime.date(2020, 1, 3), [2]),
    "moment": (col("at") >= datetime.datetime(2020, 1, 12, tzinfo=datetime.UTC), [11]),
    "zone": (col("at") == datetime.datetime(2020, 1, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=5))), [0]),
    "decimal": (col("dec") == Decimal("0.25"), [1]),
    "float": (col("f") > 9.5, [10, 11]),
    "not a number": (col("f") == float("nan"), []),
    "large": (col("n") < 2**70, list(range(12))),
    "arrow scalar": (col("n") == pa.scalar(3), [3]),
    "field of a struct": (col("st", "from") == 2, [2]),
    "boolean": ((col("n") == 1).__and__(Condition(lakedex.col("n").isin([1]).node)), [1]),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_of_values(values: Table, name: str) -> None:
    condition, wanted = CONDITIONS[name]
    assert numbers(values, condition) == wanted
    assert numbers(values, str(condition)) == wanted
    assert sorted(values.scan().filter(condition).to_arrow()["n"].to_pylist()) == wanted


def test_conditions_are_taken_where_sql_text_is(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "it's", 1, 1), ("2", "b", 1, 2), ("3", "b", 1, 3), ("4", "c", 1, 4)))
    first = table.snapshot().instant
    assert table.update({"n": "n + 10"}, col("city") == "it's").updated == 1
    assert table.changes(first, where=col("n") == 11).count() == 1
    assert table.delete(where=col("id").isin(["2"])).deleted == 1
    assert table.erase(where=col("city") == "it's").is_verified
    assert own(table, "id") == [("3",), ("4",)]


MEANINGLESS: dict[str, tuple[Any, str]] = {
    "none": (lambda: col("n") == None, "is_null"),  # noqa: E711
    "object": (lambda: col("n") == object(), "cannot be compared"),
    "digits": (lambda: col("n") == Decimal("1e50"), "digits"),
    "NaN": (lambda: col("n") == Decimal("NaN"), "cannot be compared"),
    "truth": (lambda: bool(col("n") == 1), "no truth value"),
    "and": (lambda: (col("n") == 1) & True, "no condition"),
    "empty name": (lambda: col(""), "name of a column"),
    "no name": (col, "name of a column"),
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_conditions_that_mean_nothing(name: str) -> None:
    make_condition, why = MEANINGLESS[name]
    with pytest.raises(InvalidInputError, match=why):
        make_condition()


# --------------------------------------------------------------------------------------------------------- plan_files


@pytest.fixture
def parts(tmp_path: Path) -> Table:
    """Two partitions; the larger file has several row groups."""
    data = rows(*((f"{n:05}", "a" if n else "b", 1, n) for n in range(5000)))
    options = {**OWN_FILE, "hoodie.parquet.block.size": "20000"}
    return make(tmp_path / "t", data, partition_by="city", options=options)


def test_tasks_name_files_row_groups_and_the_residual(parts: Table) -> None:
    scan = parts.scan(col("n").between(100, 120), ["id", "n"])
    (task,) = scan.plan_files()
    file = pq.ParquetFile(task.path)
    assert task.row_groups is not None and len(task.row_groups) < file.num_row_groups
    read = file.read_row_groups(list(task.row_groups), ["n"])["n"].to_pylist()
    assert set(range(100, 121)) <= set(read)
    assert task.residual == "n >= 100 AND n <= 120"
    found = pickle.loads(pickle.dumps(task)).to_arrow()
    assert found.schema == scan.schema and found.equals(scan.to_arrow())


def test_an_import_loads_no_pandas() -> None:
    """Arrow loads it with the first array of Python's values, which is half of the time of an import."""
    code = "import sys; from lakedex import Table; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_a_table_that_was_read_goes_to_another_process(parts: Table) -> None:
    parts.indexes.create("bitmap", ["city"])
    assert parts.scan("city = 'b' and n = 0").count() == 1
    found = pickle.loads(pickle.dumps(parts))
    assert found.to_arrow().equals(parts.to_arrow())
    assert found.scan("city = 'b'").plan().files_kept == parts.scan("city = 'b'").plan().files_kept


def test_tasks_of_a_whole_table_and_of_nothing(parts: Table) -> None:
    tasks = parts.scan(columns=["n"]).plan_files()
    assert [(task.row_groups, task.residual, task.log_files) for task in tasks] == [(None, None, ())] * 2
    assert sorted(n for task in tasks for n in task.to_arrow()["n"].to_pylist()) == list(range(5000))
    assert parts.scan("n = -1").plan_files() == parts.scan("n = -1", use_indexes=False).plan_files()[:0] == ()


# ---------------------------------------------------------------------------------------------------- record batches


def test_closing_a_stream_stops_the_reading(parts: Table) -> None:
    before = threading.active_count()
    reader = parts.scan(columns=["n"]).to_batches()
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.names == ["n"]
    assert reader.read_next_batch().num_rows > 0
    reader.close()
    for thread in threading.enumerate():
        if thread.name.startswith("lakedex"):
            thread.join(10)
    assert threading.active_count() <= before
    with pytest.raises(pa.ArrowInvalid):
        reader.read_next_batch()
    del reader
    gc.collect()


def test_a_stream_is_planned_and_begun_at_once(parts: Table) -> None:
    with pytest.raises(UnsupportedFeatureError, match="soundex"):
        parts.scan("soundex(id) = 'a'").to_batches()
    with pytest.raises(InvalidInputError, match="nothing"):
        parts.scan("nothing = 1").to_batches()
    with parts.scan("n < 3").to_batches() as reader:
        assert reader.read_all().num_rows == 3


# ---------------------------------------------------------------------------------------- properties, engine, commits


def test_properties_and_inspection(tmp_path: Path) -> None:
    table = make(tmp_path / "t", rows(("1", "a", 1, 1), ("2", "b", 1, 2)), partition_by="city", ordering_by="ts")
    first = table.snapshot().instant
    assert table.properties["hoodie.table.name"] == "t"
    assert table.properties["hoodie.table.version"] == "8"
    kept = table.maintenance.savepoint()
    table.upsert(rows(("3", "a", 1, 1)), options=OWN_FILE)
    found = table.inspect.partitions()
    assert found.select(["partition", "file_slices", "slices_with_logs"]).to_pylist() == [
        {"partition": "city=a", "file_slices": 2, "slices_with_logs": 0},
        {"partition": "city=b", "file_slices": 1, "slices_with_logs": 0},
    ]
    assert sum(found["size"].to_pylist()) == sum(table.inspect.files()["size"].to_pylist())
    table.maintenance.delete_savepoint(kept)
    table.upsert(rows(("1", "a", 2, 9)))
    table.maintenance.clean(versions=1)
    states = {row["instant"]: row for row in table.inspect.snapshots().to_pylist()}
    assert [row["operation"] for row in states.values()] == ["UPSERT"] * 3
    assert not states[first]["is_readable"]
    assert [row["is_readable"] for row in states.values()][-1]
    for instant, row in states.items():
        try:
            table.to_arrow(as_of=instant)
            is_readable = True
        except InvalidInputError:
            is_readable = False
        assert row["is_readable"] == is_readable
    assert make(tmp_path / "e", schema=ROWS).inspect.partitions().num_rows == 0


def test_rows_as_frames_of_other_libraries(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1), ("2", "b", 1, 2)))
    first = table.snapshot().instant
    table.delete(["1"])
    assert (table.to_arrow().num_rows, len(table.to_pandas()), table.to_polars().height) == (1, 1, 1)
    assert len(table.to_pandas(as_of=first)) == 2
    with pytest.raises(MissingEngineError, match="to_arrow"):
        table.to_df()


def test_a_condition_is_not_taken_for_keys(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    for call in (table.delete, table.erase):
        with pytest.raises(InvalidInputError, match="give a condition as where="):
            call("id = '1'")
        with pytest.raises(InvalidInputError, match="one of the two"):
            call()


COMMITS: dict[str, Any] = {
    "update": lambda t, txn: t.update({"n": "n + 1"}, txn=txn),
    "delete": lambda t, txn: t.delete(where="n = 1", txn=txn),
    "erase": lambda t, txn: t.erase(where="n = 1", txn=txn),
    "delete_partition": lambda t, txn: t.delete_partition("city=a", txn=txn),
    "add_columns": lambda t, txn: t.add_columns(pa.schema([("more", pa.string())]), txn=txn),
    "drop_columns": lambda t, txn: t.drop_columns("n", txn=txn),
    "rename_column": lambda t, txn: t.rename_column("n", "m", txn=txn),
    "widen_column": lambda t, txn: t.widen_column("n", pa.int64(), txn=txn),
    "set_comment": lambda t, txn: t.set_comment("a number", "n", txn=txn),
}


@pytest.mark.parametrize("name", COMMITS)
def test_a_batch_is_committed_once(tmp_path: Path, name: str) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1), ("2", "b", 1, 2)), partition_by="city")
    first = COMMITS[name](table, ("app", 1))
    assert first.instant is not None
    again = COMMITS[name](table, ("app", 1))
    assert again.instant is None
    assert any("nothing was done" in note for note in again.notes)
    assert table.inspect.history().num_rows == 2
