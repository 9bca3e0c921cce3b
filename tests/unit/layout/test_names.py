import json
from pathlib import Path

import pytest

from lakedex.layout.names import (
    BaseFileName,
    LogFileName,
    join_path,
    marker_name,
    new_file_id,
    parse_base_file_name,
    parse_log_file_name,
    parse_marker_name,
)

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors" / "paths.json").read_text("utf-8"))["data"]


@pytest.mark.parametrize("case", VECTORS["file_names"], ids=lambda case: case["name"])
def test_names_are_taken_apart_as_hudi_does(case: dict[str, object]) -> None:
    base, log = parse_base_file_name(str(case["name"])), parse_log_file_name(str(case["name"]))
    if case["isBaseFile"]:
        assert base is not None
        assert (base.file_id, base.instant) == (case["fileId"], case["commitTime"])
        assert str(base) == case["name"]
    elif base is not None:
        assert base.extension not in (".parquet", ".hfile", ".orc")
    if case["isLogFile"] and "_b-0" not in str(case["name"]):
        assert log is not None
        found = (log.file_id, log.instant, log.version, log.token or None, ".cdc" if log.cdc else "")
        assert found == tuple(case[k] for k in ("fileId", "deltaCommitTime", "logVersion", "writeToken", "suffix"))
        if log.token:
            assert str(log) == case["name"]
    elif not case["isLogFile"]:
        assert log is None


def test_log_files_of_a_slice_have_an_order() -> None:
    newest = LogFileName("f-0", "002", 1, "0-0-0")
    names = [newest, LogFileName("f-0", "001", 10, "0-0-0"), LogFileName("f-0", "001", 2, "1-0-0")]
    ordered = sorted(names, key=lambda name: name.order)
    assert [name.version for name in ordered] == [2, 10, 1]


def test_markers() -> None:
    name = str(BaseFileName("f-0", "0-1-2", "001"))
    assert marker_name(name, "MERGE") == f"{name}.marker.MERGE"
    assert parse_marker_name(f"{name}.marker.CREATE") == (name, "CREATE")
    assert parse_marker_name(name) is None
    assert parse_marker_name(f"{name}.marker.OTHER") is None


def test_new_file_ids_are_new_and_parse() -> None:
    ids = {new_file_id() for _ in range(20)}
    assert len(ids) == 20
    for file_id in ids:
        parsed = parse_base_file_name(str(BaseFileName(file_id, "0-1-2", "001")))
        assert parsed is not None
        assert parsed.file_id == file_id


def test_join_path() -> None:
    assert join_path("", "a") == "a"
    assert join_path("a", "", "b") == "a/b"
    assert join_path() == ""


@pytest.mark.parametrize("tail", ["\n", "\r\n", " "])
def test_names_end_where_they_end(tail: str) -> None:
    assert parse_base_file_name("a-0_0-1-2_20250101000000000.parquet" + tail) is None
    assert parse_log_file_name(".a-0_20250101000000000.log.1_0-1-2" + tail) is None


def test_a_version_that_no_file_name_holds_is_none() -> None:
    assert parse_log_file_name(".a_1.log." + "9" * 5000) is None
