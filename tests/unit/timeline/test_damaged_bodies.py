"""Bodies and settings whose fields are of other kinds than their names have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakedex.codec.properties import table_checksum
from lakedex.errors import CorruptFileError, FormatError
from lakedex.snapshot.schema import moved_names
from lakedex.timeline.commit_metadata import decode_commit_metadata, decode_rollback_metadata, decode_rollback_plan
from lakedex.timeline.table_config import TableConfig


@pytest.mark.parametrize(
    "record",
    [
        '{"partitionToWriteStats":{"":[{"numWrites":1e999}]}}',
        *(
            json.dumps(record)
            for record in (
                {"partitionToWriteStats": {"": [{"path": 5}]}},
                {"partitionToWriteStats": {"": [{"fileId": ["f"]}]}},
                {"partitionToWriteStats": {"": [{"logFiles": "abc"}]}},
                {"partitionToWriteStats": {"": [{"logVersion": "1"}]}},
                {"partitionToWriteStats": {"": 5}},
                {"partitionToWriteStats": []},
                {"partitionToReplaceFileIds": {"": "abc"}},
                {"partitionToReplaceFileIds": {"": [1]}},
                {"extraMetadata": "x"},
                {"operationType": 3},
            )
        ),
    ],
)
def test_a_commit_of_other_fields_is_damage(record: str) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode_commit_metadata(record.encode(), "p")
    assert caught.value.path == "p"


@pytest.mark.parametrize(
    ("decode", "record"),
    [
        (decode_rollback_plan, {"instantToRollback": "x"}),
        (decode_rollback_plan, {"instantToRollback": {"commitTime": 5}}),
        (decode_rollback_plan, {"RollbackRequests": [3]}),
        (decode_rollback_plan, {"RollbackRequests": [{"filesToBeDeleted": "abc"}]}),
        (decode_rollback_metadata, {"timeTakenInMillis": "x"}),
        (decode_rollback_metadata, {"instantsRollback": [5]}),
        (decode_rollback_metadata, {"commitsRollback": 5}),
        (decode_rollback_metadata, {"partitionMetadata": {"": 1}}),
        (decode_rollback_metadata, {"partitionMetadata": {"": {"successDeleteFiles": "abc"}}}),
    ],
)
def test_a_rollback_of_other_fields_is_damage(decode: Any, record: dict[str, Any]) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode(json.dumps(record).encode(), "p")
    assert caught.value.path == "p"


def test_an_internal_schema_with_an_endless_id_is_none() -> None:
    with pytest.raises(ValueError, match="no internal schema"):
        moved_names('{"fields":[{"id":1e999,"name":"a","type":"int"}]}')


@pytest.mark.parametrize("zone", ["Europe/Rome", "../../etc", "UT\0C"])
def test_zones_that_hudi_does_not_have_are_refused(zone: str) -> None:
    """Hudi knows two; another one would be looked for in the machine's files."""
    with pytest.raises(FormatError, match="timezone"):
        TableConfig.from_properties({"hoodie.table.name": "t", "hoodie.table.timeline.timezone": zone})


@pytest.mark.parametrize("path", ["time\0line", "\ud800"])
def test_a_timeline_path_that_no_file_system_has_is_refused(path: str) -> None:
    with pytest.raises(FormatError, match="not a folder"):
        TableConfig.from_properties({"hoodie.table.name": "t", "hoodie.timeline.path": path})


def test_the_checksum_of_half_a_character_is_that_of_a_question_mark() -> None:
    assert table_checksum("", "a\ud800") == table_checksum("", "a?")
