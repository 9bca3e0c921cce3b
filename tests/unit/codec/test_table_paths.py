"""Names that a table's own files hold: those of real tables are taken, those that lead elsewhere are not."""

from __future__ import annotations

import pytest

from lakedex.codec.table_paths import check_instant, check_part, check_partition, check_setting, file_path, last_part
from lakedex.errors import CorruptFileError, FormatError

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e-0"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "2016/03/15",
        "city=new york/day=2024-01-02",
        "time=12:30:00",
        "city=S%C3%A3o%20Paulo",
        "city=東京",
        "city=__HIVE_DEFAULT_PARTITION__",
        "a=b=c",
        "...",
        "a..b",
        ".hidden",
        "hoodie",
        ".hoodies",
        "C:",
        "a\\b",
        "tab\there",
        "asia/india/chennai",
        "column_stats",
    ],
)
def test_partition_paths_of_real_tables(path: str) -> None:
    assert check_partition(path, "f") == path


@pytest.mark.parametrize(
    "path",
    [
        "..",
        ".",
        "../x",
        "a/../b",
        "a/..",
        "a/./b",
        "/a",
        "a/",
        "a//b",
        "/",
        "a\0b",
        "\udcff",
        ".hoodie",
        "a/.hoodie",
        ".Hoodie/metadata",
        ".hoodie_partition_metadata",
        "..\\x",
        "a\\..\\b",
        "a\\.hoodie",
        "s3://bucket/x",
    ],
)
def test_partition_paths_that_lead_elsewhere(path: str) -> None:
    with pytest.raises(CorruptFileError, match="partition below") as caught:
        check_partition(path, "the/plan")
    assert caught.value.path == "the/plan"


@pytest.mark.parametrize(
    "name",
    [
        f"{UUID}_1-0-1_20260101000000000.parquet",
        f"{UUID}_1-0-1_20260101000000.orc",
        "files-0000-0_0-5-3_20260101000000000001.hfile",
        f".{UUID}_20260101000000000.log.1_0-14-15",
        f".{UUID}_20260101000000000.log.2",
        f".{UUID}_20260101000000000.log.1_0-14-15.cdc",
        ".files-0000-0_00000000000000010.log.1_0-0-0",
        ".secondary-index-city-0000-0_00000000000000.log.1_0-0-0",
    ],
)
def test_data_files_of_real_tables(name: str) -> None:
    assert file_path("a/b", name, "f") == f"a/b/{name}"
    assert file_path("", name, "f") == name
    assert last_part(f"file:/x/a/b/{name}") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "hoodie.properties",
        ".hoodie_partition_metadata",
        "x.parquet",
        f"{UUID}_1-0-1_2026.parquet/..",
        f"../{UUID}_1-0-1_2026.parquet",
        f"{UUID}_1-0-1_2026.parquet\n",
        f"{UUID}_1-0-1_2026.parquet\0",
        ".a/b_2026.log.1_0-0-0",
        ".a\\b_2026.log.1_0-0-0",
        f".{UUID}_x.log.1_0-0-0",
        f".{UUID}_2026.log.99999999999999999999",
        "20260101000000000.commit",
    ],
)
def test_what_is_no_data_file(name: str) -> None:
    with pytest.raises(CorruptFileError, match="base or log file"):
        file_path("a", name, "f")


@pytest.mark.parametrize(
    "instant", ["20260101000000000", "20260101000000", "00000000000000010", "20260101000000000001"]
)
def test_instants_of_real_tables(instant: str) -> None:
    assert check_instant(instant, "f") == instant


@pytest.mark.parametrize("instant", ["", "2026/..", "-1", "x", "2026 ", "2026\n", "٢٠٢٦", "1" * 200])
def test_what_is_no_instant(instant: str) -> None:
    with pytest.raises(CorruptFileError, match="instant"):
        check_instant(instant, "f")


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "..", ".", ".hoodie", "a\0"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(CorruptFileError, match="name of a file"):
        check_part(name, "f")


@pytest.mark.parametrize(
    "path", ["", "..", "../x", "/x", "a/../../x", "a\tb", "a\0", "\ud800", "file:///x", "a/.hoodie"]
)
def test_a_setting_that_leads_elsewhere(path: str) -> None:
    with pytest.raises(FormatError, match=r"hoodie\.timeline\.path"):
        check_setting("hoodie.timeline.path", path)
