import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex.layout.keys import DEFAULT_PARTITION, escape, partition_depth, partition_paths, partition_values, unescape

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors" / "paths.json").read_text("utf-8"))["data"]


@pytest.mark.parametrize("case", VECTORS["escape"], ids=lambda case: ascii(case["value"]))
def test_escaped_like_java(case: dict[str, str]) -> None:
    assert escape(case["value"]) == case["escapePathName"]
    assert unescape(escape(case["value"])) == case["unescape(escape)"]


@pytest.mark.parametrize("text, plain", VECTORS["unescape"])
def test_unescaped_like_java(text: str, plain: str) -> None:
    assert unescape(text) == plain


@given(st.text(min_size=1))
def test_escaping_keeps_the_value_and_is_one_folder(value: str) -> None:
    escaped = escape(value)
    assert unescape(escaped) == value
    assert "/" not in escaped


def test_depth() -> None:
    assert [partition_depth(path) for path in ("", "a", "a/b", "x=1/y=2/z=3")] == [0, 1, 2, 3]


def paths(columns: list[pa.Array], fields: list[str], hive_style: bool = True, url_encode: bool = True) -> list[str]:
    made = partition_paths(columns, fields, hive_style=hive_style, url_encode=url_encode)
    assert made.type == pa.string()
    assert made.null_count == 0
    return made.to_pylist()


def test_one_field() -> None:
    values = pa.array(["a b", "x/y", None, "", "a b", "é=%"])
    assert paths([values], ["p"]) == [
        "p=a b", "p=x%2Fy", f"p={DEFAULT_PARTITION}", f"p={DEFAULT_PARTITION}", "p=a b", "p=é%3D%25",
    ]  # fmt: skip
    assert paths([values], ["p"], hive_style=False, url_encode=False) == [
        "a b", "x/y", DEFAULT_PARTITION, DEFAULT_PARTITION, "a b", "é=%",
    ]  # fmt: skip


def test_several_fields_and_slices() -> None:
    years = pa.array([0, 2024, 2025, None], pa.int32()).slice(1)
    days = pa.array([dt.date(1970, 1, 1), dt.date(2024, 5, 6), None, dt.date(2025, 1, 1)]).slice(1)
    assert paths([years, days], ["y", "d"]) == [
        "y=2024/d=2024-05-06", f"y=2025/d={DEFAULT_PARTITION}", f"y={DEFAULT_PARTITION}/d=2025-01-01",
    ]  # fmt: skip


TYPED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", "x/y", "%", "=", "é", "😀", " "]),
    (pa.int32(), [0, -5, 2**31 - 1]),
    (pa.int64(), [0, -(2**63)]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [dt.date(1970, 1, 1), dt.date(1899, 12, 31), dt.date(2999, 1, 2)]),
    (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 1, 2, 3, 4, 5, 678901, dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    ),
    (pa.timestamp("us"), [dt.datetime(2024, 1, 2, 3, 4, 5, 678901)]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")]),
    (pa.float64(), [1.5, -2e10, 1e-5, float("inf"), 0.1]),
    (pa.float32(), [1.5, 0.10000000149011612]),
]


@pytest.mark.parametrize("kind, values", TYPED, ids=[str(kind) for kind, _ in TYPED])
@pytest.mark.parametrize("hive_style", [True, False])
def test_values_come_back_from_paths(kind: pa.DataType, values: list[Any], hive_style: bool) -> None:
    column = pa.array(values, kind)
    made = paths([column], ["p"], hive_style=hive_style)
    (found,), (known,) = partition_values(made, ["p"], [kind], hive_style=hive_style)
    assert found.type == kind
    for expected, value, is_known in zip(values, found.to_pylist(), known, strict=True):
        # Not known is allowed, wrong is not; the common types are known.
        assert not is_known or value == expected
        if not pa.types.is_floating(kind):
            assert is_known


def test_what_is_no_value_is_unknown() -> None:
    odd = ["p=007", "p=x", "q=1", "p=1/q=2", "", "p=+1", "p=1.0"]
    (_,), (known,) = partition_values(odd, ["p"], [pa.int32()])
    assert known.tolist() == [False] * len(odd)
    (_,), (known,) = partition_values(
        ["p=2024-5-6", "p=2018/09/23", "p=19415"], ["p"], [pa.date32()], hive_style=True, url_encode=True
    )
    assert not known.any()


def test_null_and_empty_string_are_unknown() -> None:
    made = paths([pa.array([None, "", DEFAULT_PARTITION])], ["p"])
    (_,), (known,) = partition_values(made, ["p"], [pa.string()], hive_style=True, url_encode=True)
    assert not known.any()


def test_null_is_known_where_there_is_no_empty_value() -> None:
    made = paths([pa.array([None, 7], pa.int32())], ["p"])
    (found,), (known,) = partition_values(made, ["p"], [pa.int32()])
    assert (found.to_pylist(), known.tolist()) == ([None, 7], [True, True])


def test_a_float_that_became_a_double_is_unknown() -> None:
    made = paths([pa.array([0.1, 0.5], pa.float32())], ["p"])
    (found,), (known,) = partition_values(made, ["p"], [pa.float64()])
    assert (found.to_pylist()[1], known.tolist()) == (0.5, [False, True])


def test_folders_of_other_settings_are_unknown() -> None:
    for path, settings in [
        ("p=a", {"hive_style": False}),
        ("a", {}),
        ("p=a%2Fb", {"url_encode": False}),
        ("p=a:b", {}),
    ]:
        (_,), (known,) = partition_values([path], ["p"], [pa.string()], **settings)
        assert not known.any(), path


@given(st.lists(st.text() | st.sampled_from(["p=a", "a%2Fb", "%41", "p="]), min_size=1), st.booleans(), st.booleans())
def test_text_that_is_known_is_right(values: list[str], hive_style: bool, url_encode: bool) -> None:
    made = paths([pa.array(values, pa.string())], ["p"], hive_style, url_encode)
    (found,), (known,) = partition_values(made, ["p"], [pa.string()], hive_style=hive_style, url_encode=url_encode)
    for expected, value, is_known in zip(values, found.to_pylist(), known, strict=True):
        # Without escapes a slash makes two folders of one value, and the path is nobody's.
        assert not is_known or value == expected
