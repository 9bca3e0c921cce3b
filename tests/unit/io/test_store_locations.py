"""URLs of object stores: which are refused before any request, and in which form they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError
from lakedex.io.locations import is_object_store, open_storage


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("s3://lake/a/b", "s3://lake/a/b"),
        ("s3://lake/a/", "s3://lake/a"),
        ("s3://lake/", "s3://lake"),
        ("S3://lake/A", "s3://lake/A"),
        ("S3A://lake/a.b/..c", "s3a://lake/a.b/..c"),
        ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net/t"),
    ],
)
def test_urls(url: str, kept: str) -> None:
    files = open_storage(url, {})
    assert is_object_store(url) and files.base_path == kept
    assert files.storage == open_storage(kept, {}).storage


@pytest.mark.parametrize(
    ("url", "segment"),
    [
        ("s3://lake//d", "an empty segment"),
        ("s3://lake/a//b", "an empty segment"),
        ("s3://lake/a//", "an empty segment"),
        ("s3://lake/z/../t", "the segment '..'"),
        ("S3://lake/./t", "the segment '.'"),
        ("gs://lake/t/..", "the segment '..'"),
    ],
)
def test_segments_that_are_refused(url: str, segment: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot have; leave it out") as caught:
        Table.is_table(url)
    assert f"{url!r} has {segment}" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["s3://KEY:SECRET@lake/x", "s3://KEY:SEC/RET@lake/x", "gs://SECRET@lake/x", "abfss://KEY:SECRET@a.dfs.y.net/x"],
)
def test_keys_in_a_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidInputError, match="no user name, key or port.*storage_options") as caught:
        Table.open(url)
    text = f"{caught.value} {caught.value!r} {caught.value.__dict__}"
    assert not any(part in text for part in ("KEY", "SEC", "RET"))


@pytest.mark.parametrize("url", ["s3:///t", "s3://"])
def test_a_url_without_a_bucket(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"names no bucket: write s3://bucket/path"):
        open_storage(url)


@pytest.mark.parametrize("options", ["a=b", "", [("a", "b")], 7])
def test_options_that_are_no_mapping(options: Any) -> None:
    for path in ("s3://lake/t", "/tmp/t"):
        with pytest.raises(InvalidInputError, match=f"storage_options is a mapping.*not {type(options).__name__}"):
            Table.is_table(path, storage_options=options)
