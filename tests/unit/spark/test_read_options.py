"""Options of ``spark.read.format("lakedex")``: what they mean, and that none is passed over."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.expr.terms import to_sql
from lakedex.spark.data_source import ReadOptions, parse_read_options

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC"))])


def parsed(**options: Any) -> ReadOptions:
    return parse_read_options({"path": "/t", **options})


def test_only_the_path_is_needed() -> None:
    assert parsed() == ReadOptions(path="/t")
    with pytest.raises(OptionError, match="path"):
        parse_read_options({})


@pytest.mark.parametrize("name", ["asOf", "as_of", "AS_OF", "as.of.instant"])
def test_an_instant_by_any_of_its_names(name: str) -> None:
    assert parse_read_options({"path": "/t", name: "2026-01-01"}).as_of == "2026-01-01"


def test_two_names_of_one_thing_must_agree() -> None:
    assert parse_read_options({"path": "/t", "asOf": "1", "as.of.instant": "1"}).as_of == "1"
    with pytest.raises(OptionError, match=r"asOf.*as\.of\.instant"):
        parse_read_options({"path": "/t", "asOf": "1", "as.of.instant": "2"})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("id", ("id",)),
        ("id, n", ("id", "n")),
        (" id ,n ", ("id", "n")),
        ("`a,b`,c d", ("a,b", "c d")),
        ("`a``b`", ("a`b",)),
        ("st.a", ("st.a",)),
    ],
)
def test_columns(text: str, names: tuple[str, ...]) -> None:
    assert parsed(columns=text).columns == names


@pytest.mark.parametrize("text", ["", " ", ",", "a,,b", "a,a", "`a", "`a`b"])
def test_columns_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match="columns"):
        parsed(columns=text)


def test_unknown_options_name_the_nearest() -> None:
    with pytest.raises(OptionError, match="'colums'.*did you mean 'columns'") as caught:
        parsed(colums="id")
    assert caught.value.option == "colums"
    with pytest.raises(OptionError, match=r"as\.of\.instant"):
        parse_read_options({"path": "/t", "as.of.instnt": "1"})
    with pytest.raises(OptionError, match="there are: path, columns"):
        parsed(zzzzzz="1")


def test_hudis_own_options() -> None:
    assert parse_read_options({"path": "/t", "hoodie.datasource.query.type": "read_optimized"}).read_optimized
    assert not parse_read_options({"path": "/t", "hoodie.enable.data.skipping": "false"}).skipping
    with pytest.raises(OptionError, match=r"needs hoodie\.datasource\.read\.begin\.instanttime"):
        parse_read_options({"path": "/t", "hoodie.datasource.query.type": "incremental"})
    with pytest.raises(
        OptionError, match=r"begin\.instanttime does not go with hoodie\.datasource\.query\.type=snapshot"
    ):
        parse_read_options({"path": "/t", "hoodie.datasource.read.begin.instanttime": "1"})
    with pytest.raises(OptionError, match=r"query\.type"):
        parse_read_options({"path": "/t", "hoodie.datasource.query.type": "fast"})


@pytest.mark.parametrize("options", [{"skipping": "yes"}, {"timeZone": "Mars/Olympus"}, {"singleQuery": "1"}])
def test_bad_values(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        parsed(**options)


def test_conditions_are_sql() -> None:
    assert parsed().condition(SCHEMA) is None
    found = parsed(where="N > 5 and id like 'a%'").condition(SCHEMA)
    assert found is not None
    assert to_sql(found) == "n > 5 AND id LIKE 'a%'"
    with pytest.raises(InvalidInputError, match="no column 'N'"):
        parsed(where="N > 5", caseSensitive="true").condition(SCHEMA)
    with pytest.raises(UnsupportedFeatureError, match=r"bitcount.*\.where"):
        parsed(where="n > 5 and bitcount(n) = 0").condition(SCHEMA)


@pytest.mark.parametrize("where", ["t > '2024-01-01 00:00:00'", "t = d", "cast(t as date) = d", "t < date'2024-01-01'"])
def test_conditions_that_depend_on_a_time_zone_need_one(where: str) -> None:
    with pytest.raises(OptionError, match="timeZone"):
        parsed(where=where).condition(SCHEMA)
    assert parsed(where=where, timeZone="Asia/Seoul").condition(SCHEMA) is not None


@pytest.mark.parametrize("where", ["t > timestamp'2024-01-01 00:00:00Z'", "d > '2024-01-01'", "t is null", "n > 2L"])
def test_conditions_that_do_not_depend_on_it_need_none(where: str) -> None:
    assert parsed(where=where).condition(SCHEMA) is not None


def test_a_zone_changes_the_meaning() -> None:
    where = "t > '2024-01-01 00:00:00'"
    seoul, utc = (parsed(where=where, timeZone=zone).condition(SCHEMA) for zone in ("Asia/Seoul", "UTC"))
    assert seoul != utc


def test_a_table_of_sparks_session_catalog() -> None:
    """What Spark adds by itself is known, and what the table says of itself is compared."""
    sparks = {"location": "file:/t", "owner": "me", "serialization.format": "1", "provider": "lakedex", "comment": "c"}
    found = parse_read_options({**sparks, "primaryKey": "id, n", "type": "cow"})
    assert (found.path, found.settings.record_key, found.settings.table_type) == ("file:/t", ("id", "n"), "cow")
    assert parse_read_options({**sparks, "path": "/t"}).path == "/t"
    with pytest.raises(OptionError, match="'foo' of format"):
        parse_read_options({**sparks, "foo": "bar"})
