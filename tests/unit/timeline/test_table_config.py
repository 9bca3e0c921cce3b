import os
import threading
from pathlib import Path

import pytest

from lakedex.codec.properties import decode_properties, encode_properties
from lakedex.errors import CommitError, CorruptFileError, FormatError, InvalidInputError, TableNotFoundError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.timeline.table_config import (
    TableConfig,
    create_table_config,
    new_table_properties,
    read_table_config,
    recover_table_config,
    update_table_config,
)

STORE = LocalStorage()


def main(base: Path) -> Path:
    return base / ".hoodie" / "hoodie.properties"


def backup(base: Path) -> Path:
    return base / ".hoodie" / "hoodie.properties.backup"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    create_table_config(
        TableFiles(STORE, str(tmp_path)), {**new_table_properties("t", ["k"]), "unknown.key": "stays: \u00e9\u20ac"}
    )
    return tmp_path


def read(base: Path) -> TableConfig:
    return read_table_config(TableFiles(STORE, str(base)), retries=2, delay_s=0)


def test_create_and_read(base: Path) -> None:
    config = read(base)
    assert (config.name, config.version, config.table_type, config.timezone) == ("t", 8, "COPY_ON_WRITE", "UTC")
    assert config.raw["unknown.key"] == "stays: \u00e9\u20ac"
    assert main(base).read_text().rstrip().splitlines()[-1].startswith("hoodie.table.checksum=")
    with pytest.raises(FileExistsError):
        create_table_config(TableFiles(STORE, str(base)), new_table_properties("other", ["k"]))


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError) as caught:
        read(tmp_path)
    assert caught.value.path == str(tmp_path)
    (tmp_path / ".hoodie").mkdir()
    with pytest.raises(TableNotFoundError):
        read(tmp_path)


def test_update_keeps_the_rest_and_removes_side_files(base: Path) -> None:
    (base / ".hoodie" / ".hoodie.properties.crc").write_bytes(b"crc")
    before = dict(read(base).raw)
    config = update_table_config(
        TableFiles(STORE, str(base)), {"hoodie.table.metadata.partitions": "files", "hoodie.table.cdc.enabled": None}
    )
    assert config.metadata_partitions == {"files"}
    after = dict(read(base).raw)
    assert config.raw == after
    assert "hoodie.table.cdc.enabled" not in after
    before.pop("hoodie.table.cdc.enabled")
    assert after == {**before, "hoodie.table.metadata.partitions": "files"}
    assert list(after)[-1] == "hoodie.table.checksum"
    assert os.listdir(base / ".hoodie") == ["hoodie.properties"]


def test_checksum_follows_the_name(base: Path) -> None:
    config = update_table_config(TableFiles(STORE, str(base)), {"hoodie.table.name": "t1"})
    assert config.raw["hoodie.table.checksum"] == "3609136688"
    with pytest.raises(InvalidInputError, match="computed"):
        update_table_config(TableFiles(STORE, str(base)), {"hoodie.table.checksum": "1"})


def test_a_file_without_checksum_is_read_and_gets_one(base: Path) -> None:
    properties = dict(read(base).raw)
    del properties["hoodie.table.checksum"]
    main(base).write_bytes(encode_properties(properties, "by hand"))
    assert read(base).name == "t"
    update_table_config(TableFiles(STORE, str(base)), {})
    assert "hoodie.table.checksum" in read(base).raw


@pytest.mark.parametrize(
    "damage", [None, b"", b"hoodie.table.type=COPY_ON_WRITE\n", b"hoodie.table.name=t\nhoodie.tab"]
)
def test_readers_in_the_middle_of_an_update_use_the_backup(base: Path, damage: bytes | None) -> None:
    backup(base).write_bytes(main(base).read_bytes())
    main(base).unlink()
    if damage is not None:
        main(base).write_bytes(damage)
    assert read(base).version == 8
    recover_table_config(TableFiles(STORE, str(base)))
    assert not backup(base).exists()
    assert decode_properties(main(base).read_bytes())["hoodie.table.version"] == "8"


def test_a_wrong_checksum(base: Path) -> None:
    good = main(base).read_bytes()
    main(base).write_bytes(good.replace(b"hoodie.table.checksum=", b"hoodie.table.checksum=9"))
    with pytest.raises(CorruptFileError, match="checksum"):
        read(base)
    backup(base).write_bytes(good)
    assert read(base).name == "t"
    update_table_config(TableFiles(STORE, str(base)), {"a": "b"})
    assert read(base).raw["a"] == "b" and not backup(base).exists()


def test_both_damaged(base: Path) -> None:
    main(base).write_bytes(b"")
    backup(base).write_bytes(b"x")
    with pytest.raises(CorruptFileError):
        read(base)
    with pytest.raises(CorruptFileError):
        recover_table_config(TableFiles(STORE, str(base)))
    assert main(base).read_bytes() == b"" and backup(base).read_bytes() == b"x"


def test_a_valid_file_wins_over_a_left_backup(base: Path) -> None:
    backup(base).write_bytes(b"old rubbish")
    update_table_config(TableFiles(STORE, str(base)), {"a": "1"})
    assert read(base).raw["a"] == "1"
    assert not backup(base).exists()


def test_readers_retry(base: Path) -> None:
    content = main(base).read_bytes()
    main(base).unlink()
    timer = threading.Timer(0.05, lambda: main(base).write_bytes(content))
    timer.start()
    assert read_table_config(TableFiles(STORE, str(base)), retries=200, delay_s=0.01).name == "t"
    timer.join()


def test_readers_never_miss_the_table_during_updates(base: Path) -> None:
    stop, failures = threading.Event(), []

    def watch() -> None:
        while not stop.is_set():
            try:
                assert main(base).stat().st_size > 0
                read_table_config(TableFiles(STORE, str(base)), retries=1)
            except Exception as error:
                failures.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(20):
        update_table_config(TableFiles(STORE, str(base)), {"n": str(number)})
    stop.set()
    watcher.join()
    assert failures == []


class Forgetful(LocalStorage):
    """Stores something else than it is given."""

    __slots__ = ()

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data[: len(data) // 2])


def test_a_write_that_does_not_arrive(base: Path) -> None:
    with pytest.raises(CommitError, match="not stored as written"):
        update_table_config(TableFiles(Forgetful(), str(base)), {"a": "1"})
    config = read(base)
    assert "a" not in config.raw and config.version == 8
    update_table_config(TableFiles(STORE, str(base)), {"a": "2"})
    assert read(base).raw["a"] == "2"


def test_mandatory_and_numeric_properties() -> None:
    with pytest.raises(FormatError, match=r"hoodie\.table\.name"):
        TableConfig.from_properties({})
    with pytest.raises(FormatError, match="not a number"):
        TableConfig.from_properties({"hoodie.table.name": "t", "hoodie.table.version": "eight"})


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"hoodie.table.keygenerator.type": "SIMPLE_AVRO"}, "SIMPLE"),
        ({"hoodie.table.keygenerator.type": "custom"}, "CUSTOM"),
        ({"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.ComplexAvroKeyGenerator"}, "COMPLEX"),
        ({"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator"}, "TIMESTAMP"),
        ({"hoodie.table.keygenerator.class": "com.example.Mine"}, "USER_PROVIDED"),
        ({}, "NON_PARTITION"),
        ({"hoodie.table.partition.fields": "p"}, "SIMPLE"),
        ({"hoodie.table.partition.fields": "p,q"}, "COMPLEX"),
    ],
)
def test_key_generators(properties: dict[str, str], expected: str) -> None:
    assert TableConfig.from_properties({"hoodie.table.name": "t", **properties}).key_generator == expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "COMMIT_TIME_ORDERING"),
        ({"hoodie.table.precombine.field": "ts"}, "EVENT_TIME_ORDERING"),
        ({"hoodie.compaction.payload.class": "o.a.OverwriteWithLatestAvroPayload"}, "COMMIT_TIME_ORDERING"),
        ({"hoodie.compaction.payload.class": "o.a.DefaultHoodieRecordPayload"}, "EVENT_TIME_ORDERING"),
        ({"hoodie.compaction.payload.class": "com.example.Mine"}, "CUSTOM"),
        ({"hoodie.record.merge.mode": "CUSTOM", "hoodie.table.precombine.field": "ts"}, "CUSTOM"),
    ],
)
def test_merge_modes(properties: dict[str, str], expected: str) -> None:
    assert TableConfig.from_properties({"hoodie.table.name": "t", **properties}).merge_mode == expected


def test_lists_and_defaults() -> None:
    config = TableConfig.from_properties(
        {
            "hoodie.table.name": "t",
            "hoodie.table.partition.fields": "a:SIMPLE, b:TIMESTAMP",
            "hoodie.table.ordering.fields": "x,y",
            "hoodie.table.precombine.field": "z",
            "hoodie.table.metadata.partitions": "",
            "hoodie.timeline.path": "tl",
        }
    )
    assert config.partition_fields == ("a", "b")
    assert config.ordering_fields == ("x", "y")
    assert config.metadata_partitions == frozenset()
    assert config.timeline_path == ".hoodie/tl"
    assert (config.timezone, config.base_file_format, config.version) == ("LOCAL", "PARQUET", 0)
    assert not config.hive_style and not config.url_encode and config.populate_meta_fields
