"""Which log files are read with which base file, in both ways of naming them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.errors import CorruptFileError
from lakedex.io.local import LocalStorage
from lakedex.layout.file_slice import FileSlice, SliceRules, find_slices
from lakedex.timeline.archived import archived_completion_times

DONE = {"001": "002", "003": "004", "005": "014", "010": "011", "012": "013", "020": "021"}


def base(instant: str) -> str:
    return f"f-0_0-0-0_{instant}.parquet"


def log(instant: str, version: int = 1, token: str = "0-0-0") -> str:
    return f".f-0_{instant}.log.{version}_{token}"


def found(*files: str, completed: Mapping[str, str] = DONE, **rules: object) -> FileSlice | None:
    given = {"is_committed": lambda i: i in DONE, "completion_time": completed.get, **rules}
    slices = find_slices({"p": dict.fromkeys(files, 1)}, SliceRules(**given))  # type: ignore[arg-type]
    return slices[0] if slices else None


def names(item: FileSlice | None) -> tuple[str | None, list[str]]:
    assert item is not None
    return None if item.base_file is None else item.base_file.name, [entry.name for entry in item.log_files]


# --------------------------------------------------------------------------------------------- versions 8 and 9
def test_a_log_file_belongs_to_the_base_file_before_its_completion() -> None:
    # 005 was requested before the compaction of 010 and completed after it: it is not in that base file.
    files = (base("001"), log("003"), log("005"), base("010"), log("012"))
    assert names(found(*files)) == (base("010"), [log("005"), log("012")])
    assert names(found(*files, as_of="010")) == (base("010"), [log("005")])
    assert names(found(*files, as_of="005")) == (base("001"), [log("003")])


def test_an_archived_log_file_needs_its_completion_time() -> None:
    files = (base("001"), log("005"), base("010"))
    assert names(found(*files, completed={})) == (base("010"), [])
    assert names(found(*files, completed={"005": "014"})) == (base("010"), [log("005")])


def test_log_files_before_the_first_base_file_are_a_slice() -> None:
    files = (log("001"), log("003"), base("010"), log("012"))
    assert names(found(*files)) == (base("010"), [log("012")])
    assert names(found(*files, as_of="003")) == (None, [log("001"), log("003")])
    assert names(found(*files, as_of="001")) == (None, [log("001")])
    assert found(*files, as_of="000") is None
    assert found(*files, as_of="003", base_files_only=True) is None


def test_read_optimized_is_the_last_base_file() -> None:
    files = (base("001"), log("003"), base("010"), log("012"))
    assert names(found(*files, base_files_only=True)) == (base("010"), [])
    assert names(found(*files, base_files_only=True, as_of="005")) == (base("001"), [])


def test_roll_overs_and_attempts_in_hudis_order() -> None:
    files = (log("003", 10), log("003", 2), log("003", 2, "1-0-0"), log("001"), f"{log('003')}.cdc")
    assert names(found(*files))[1] == [log("001"), log("003", 2), log("003", 2, "1-0-0"), log("003", 10)]


# ---------------------------------------------------------------------------------------------------- version 6
def test_by_version_6_a_log_file_names_its_base_file() -> None:
    files = (base("001"), log("001"), log("001", 2), base("010"), log("010"), log("010", 2))
    assert names(found(*files, logs_name_base=True)) == (base("010"), [log("010"), log("010", 2)])
    assert names(found(*files, logs_name_base=True, as_of="005")) == (base("001"), [log("001"), log("001", 2)])
    assert names(found(log("003"), logs_name_base=True)) == (None, [log("003")])


def test_by_version_6_a_pending_compaction_is_read_with_what_is_before_it() -> None:
    files = (base("001"), log("001"), log("015"), log("015", 2))
    pending = frozenset({"015"})
    assert names(found(*files, logs_name_base=True)) == (base("001"), [log("001")])
    both = (base("001"), [log("001"), log("015"), log("015", 2)])
    assert names(found(*files, logs_name_base=True, pending_compactions=pending)) == both
    assert names(found(*files, logs_name_base=True, pending_compactions=pending, as_of="014"))[1] == [log("001")]
    alone = found(log("015"), logs_name_base=True, pending_compactions=pending)
    assert names(alone) == (None, [log("015")])


# ----------------------------------------------------------------------------------------------- archived instants
def history(folder: Path, *files: Mapping[str, str], version: str | None = None) -> None:
    for number, times in enumerate(files):
        table = pa.table(
            {"instantTime": list(times), "completionTime": list(times.values()), "action": ["x"] * len(times)}
        )
        pq.write_table(table, folder / f"1_2_{number}.parquet")
        listed = [{"fileName": f"1_2_{n}.parquet", "fileLen": 1} for n in range(number + 1)]
        (folder / f"manifest_{number + 1}").write_text(json.dumps({"files": listed}))
    if version is not None:
        (folder / "_version_").write_text(version)


@pytest.mark.parametrize("version", [None, "", "3", "7"])
def test_completion_times_of_archived_instants(tmp_path: Path, version: str | None) -> None:
    history(tmp_path, {"001": "002"}, {"003": "009"}, {"005": "006"}, version=version)
    assert archived_completion_times(LocalStorage(), str(tmp_path)) == {"001": "002", "003": "009", "005": "006"}


def test_only_the_manifest_in_force_counts(tmp_path: Path) -> None:
    history(tmp_path, {"001": "002"}, {"003": "009"}, version="1")
    assert archived_completion_times(LocalStorage(), str(tmp_path)) == {"001": "002"}
    assert archived_completion_times(LocalStorage(), str(tmp_path / "none")) == {}


def test_a_damaged_history(tmp_path: Path) -> None:
    history(tmp_path, {"001": "002"})
    (tmp_path / "1_2_0.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptFileError, match=r"1_2_0\.parquet"):
        archived_completion_times(LocalStorage(), str(tmp_path))
    (tmp_path / "manifest_1").write_text("{}")
    with pytest.raises(CorruptFileError, match="manifest_1"):
        archived_completion_times(LocalStorage(), str(tmp_path))
