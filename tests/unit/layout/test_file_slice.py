from collections.abc import Mapping

from lakedex.layout.file_slice import BaseFile, FileSlice, SliceRules, find_slices

DONE = {"001": "002", "003": "004", "005": "006", "020": "030"}


def slices(files: Mapping[str, int], partition: str = "p", **more: object) -> list[FileSlice]:
    rules = SliceRules(is_committed=lambda i: i in DONE, completion_time=DONE.get, **more)  # type: ignore[arg-type]
    return find_slices({partition: files}, rules)


def base(file_id: str, instant: str, token: str = "0-0-0") -> str:
    return f"{file_id}_{token}_{instant}.parquet"


def log(file_id: str, instant: str, version: int = 1) -> str:
    return f".{file_id}_{instant}.log.{version}_0-0-0"


def test_the_newest_committed_base_file_counts() -> None:
    (found,) = slices({base("f-0", "001"): 5, base("f-0", "003"): 7, base("f-0", "004"): 9})
    assert found.base_file == BaseFile("p", base("f-0", "003"), 7, "f-0", "003")
    assert (found.base_instant, found.log_files) == ("003", ())
    assert found.base_file.relative_path == f"p/{base('f-0', '003')}"


def test_a_table_without_partitions_has_no_folder() -> None:
    (found,) = slices({base("f-0", "001"): 5}, partition="")
    assert found.base_file is not None
    assert found.base_file.relative_path == base("f-0", "001")


def test_nothing_of_a_pending_write() -> None:
    assert slices({base("f-0", "007"): 1, log("g-0", "007"): 1}) == []


def test_as_of_hides_what_came_later() -> None:
    files = {base("f-0", "001"): 5, base("f-0", "003"): 7, base("g-0", "005"): 7, log("f-0", "005"): 1}
    (found,) = slices(files, as_of="001")
    assert found.base_instant == "001"
    (found,) = slices(files, as_of="003")
    assert (found.base_instant, found.log_files) == ("003", ())


def test_replaced_groups_are_gone() -> None:
    files = {base("f-0", "001"): 5, base("g-0", "001"): 5}
    assert [s.file_id for s in slices(files, replaced=frozenset({("p", "f-0")}))] == ["g-0"]
    assert [s.file_id for s in slices(files, replaced=frozenset({("q", "f-0")}))] == ["f-0", "g-0"]


def test_of_two_attempts_the_later_token() -> None:
    (found,) = slices({base("f-0", "001", "0-1-1"): 2, base("f-0", "001", "0-1-0"): 1})
    assert found.base_file is not None
    assert found.base_file.name == base("f-0", "001", "0-1-1")


def test_log_files_belong_to_the_slice_that_was_there_when_they_completed() -> None:
    # Requested at 020 but completed at 030: on top of a base file of 025 there is none, it began before.
    files = {base("f-0", "003"): 1, log("f-0", "001"): 1, log("f-0", "005", 2): 1, log("f-0", "005", 1): 1}
    (found,) = slices(files)
    assert [item.name for item in found.log_files] == [log("f-0", "005", 1), log("f-0", "005", 2)]
    (found,) = slices({base("f-0", "005"): 1, log("f-0", "020"): 1, log("f-0", "003"): 1})
    assert [item.name for item in found.log_files] == [log("f-0", "020")]


def test_log_files_alone_make_a_slice() -> None:
    (found,) = slices({log("f-0", "003"): 1, log("f-0", "001"): 1})
    assert found.base_file is None
    assert found.base_instant == "001"
    assert [item.name for item in found.log_files] == [log("f-0", "001"), log("f-0", "003")]


def test_other_files_are_no_files_of_the_table() -> None:
    names = [".hoodie_partition_metadata", "_SUCCESS", "x.parquet", f"{log('f-0', '001')}.cdc", ".f-0_001.log.1_x"]
    assert slices(dict.fromkeys(names, 1)) == []


def test_ordered_by_partition_and_file_id() -> None:
    listing = {"q": {base("b-0", "001"): 1, base("a-0", "001"): 1}, "": {base("z-0", "001"): 1}, "p": {}}
    found = find_slices(listing, SliceRules(is_committed=lambda _: True, completion_time=lambda _: None))
    assert [(s.partition, s.file_id) for s in found] == [("", "z-0"), ("q", "a-0"), ("q", "b-0")]
