"""Properties of users, and texts that may be the default of a column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError, OptionError
from lakedex.timeline.free_properties import check_default, column_defaults, free_properties

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
LITERALS = (
    "1", "-1", "+.5", "1.", "1e-3", "3L", "1.5BD", "'x'", "'it''s'", r"'a\'b'", "''", "true", "NULL", "X'00ff'",
    "date'2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00'", "cast('1' as decimal(10, 2))", "CAST(NULL AS INT)",
    "current_date", "current_timestamp()", " now() ", "'a -- b'", "'ü'",
    "'${env:HOME}'", r"'\' || f() -- '", r"'\\\n'", "'$'",
)  # fmt: skip
BYTES = {
    text: f"cast(X'{value.encode().hex()}' as string)"
    for text, value in (
        ("'it''s'", "it's"), (r"'a\'b'", "a'b"), ("'${env:HOME}'", "${env:HOME}"), (r"'\' || f() -- '", "' || f() -- "),
        (r"'\\\n'", "\\\n"), ("'$'", "$"),
    )
}  # fmt: skip
"""Strings that Spark's settings could read in another way."""
CODE = (
    "", "1 + 1", "rand()", "uuid()", "java_method('java.lang.System', 'exit', 1)", "'a' || 'b'", "(select 1)", "x",
    "'a", "'a' 'b'", "cast(x as int)", "cast('1' as array<int>)", "current_date() - 1", "1; drop table t", "now(1)",
    "date'${x}'", r"X'\'", r"'\u0041'", "timestamp'2024'' || x'",
)  # fmt: skip


@pytest.mark.parametrize("text", LITERALS)
def test_literals_are_defaults(text: str) -> None:
    assert check_default(text, "c", "t") == text
    found = column_defaults({"lakedex.default.c": text, "hoodie.table.name": "t"})
    assert found == {"c": BYTES.get(text, text)}


@pytest.mark.parametrize("text", CODE)
def test_code_is_no_default(text: str) -> None:
    with pytest.raises(InvalidInputError, match="column 'c'"):
        check_default(text, "c", "t")
    assert column_defaults({"lakedex.default.c": text}) == {}


def test_properties_of_a_table(tmp_path: Path) -> None:
    given = {"team": "ü = 'x'\n", "lakedex.default.n": "7"}
    table = Table.create(tmp_path / "t", SCHEMA, record_key="id", properties=given)
    assert {name: table.properties[name] for name in given} == given
    table.maintenance.set_properties({"team": None, "b": "", "lakedex.default.n": None})
    assert free_properties(table.properties) == {"b": ""} and "lakedex.default.n" not in table.properties
    rows = table.inspect.properties().to_pylist()
    assert {"key": "b", "value": ""} in rows and rows == sorted(rows, key=lambda row: row["key"])
    for changes, error in (
        ({"hoodie.table.name": "x"}, OptionError),
        ({"lakedex.comment": "x"}, OptionError),
        ({"": "x"}, InvalidInputError),
        ({"a": 1}, InvalidInputError),
        ({"a": "\ud800"}, InvalidInputError),
        ({"lakedex.default.m": "1"}, InvalidInputError),
        ({"lakedex.default.n": "rand()"}, InvalidInputError),
    ):
        before = table.properties
        with pytest.raises(error):
            table.maintenance.set_properties(changes)  # type: ignore[arg-type]
        with pytest.raises(error):
            Table.create(tmp_path / "no", SCHEMA, record_key="id", properties=changes)  # type: ignore[arg-type]
        assert table.properties == before and not (tmp_path / "no").exists()


def test_a_default_goes_with_its_column(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("n", pa.int64()), ("m", pa.int64())])
    given = {"lakedex.default.n": "1", "lakedex.default.m": "2"}
    table = Table.create(tmp_path / "t", schema, record_key="id", properties=given)
    table.rename_column("n", "k")
    table.drop_columns("M")
    assert column_defaults(table.properties) == {"k": "1"}
    with (tmp_path / "t" / ".hoodie" / "hoodie.properties").open("a") as file:
        file.write("lakedex.default.new=3\n")
    table.add_columns(pa.schema([("new", pa.int64())]))
    assert column_defaults(table.properties) == {"k": "1"}


def test_a_column_may_become_null(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, record_key="id")
    assert not table.schema.field("n").nullable
    assert table.widen_column("n").instant is not None
    assert table.schema.field("n").nullable
    assert table.widen_column("n").instant is None
    with pytest.raises(InvalidInputError, match="record key"):
        table.widen_column("id")
