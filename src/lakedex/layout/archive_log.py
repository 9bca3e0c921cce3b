"""The archive of timeline layout 1: log files ``archived/.commits_.archive.<N>_<token>`` (``TimelineArchiverV1``).

Each file holds Avro data blocks whose header is the schema alone, and a ``HoodieArchivedMetaEntry`` for each state of
each archived instant: a requested, an inflight and a completed one.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lakedex.codec.avro import decode_datum, encode_datum, parse_json, parsed, schema
from lakedex.codec.avro_columns import split_avro_block
from lakedex.codec.log_block import decode_log_blocks, encode_log_block
from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage
from lakedex.timeline.commit_metadata import CommitMetadata, commit_of_record, decode_body
from lakedex.timeline.instant import Instant, State
from lakedex.timeline.timeline import WRITE_ACTIONS

__all__ = ["append_archive_log", "archived_writes", "read_archive_log"]

_NAME = re.compile(r"\.commits_\.archive\.([0-9]{1,18})(?:_.*)?")
_WRITER = "1-0-1"
_ENTRY = "HoodieArchivedMetaEntry"
_BLOCK_VERSION = 3
_ENTRIES_OF_A_BLOCK = 10
"""``hoodie.commits.archival.batch``."""

_COMMIT_BODIES = {
    "commit": "hoodieCommitMetadata",
    "deltacommit": "hoodieCommitMetadata",
    "compaction": "hoodieCommitMetadata",
    "logcompaction": "hoodieCommitMetadata",
}
_COMPLETED_BODIES = {
    **_COMMIT_BODIES,
    "replacecommit": "hoodieReplaceCommitMetadata",
    "clean": "hoodieCleanMetadata",
    "rollback": "hoodieRollbackMetadata",
    "savepoint": "hoodieSavePointMetadata",
}
_INFLIGHT_BODIES = {
    "commit": "hoodieCommitMetadata",
    "deltacommit": "hoodieCommitMetadata",
    "replacecommit": "HoodieInflightReplaceMetadata",
    "clean": "hoodieCleanerPlan",
}
_REQUESTED_BODIES = {
    "replacecommit": "hoodieRequestedReplaceMetadata",
    "clean": "hoodieCleanerPlan",
    "compaction": "hoodieCompactionPlan",
    "logcompaction": "hoodieCompactionPlan",
}
_BODIES = {State.REQUESTED: _REQUESTED_BODIES, State.INFLIGHT: _INFLIGHT_BODIES, State.COMPLETED: _COMPLETED_BODIES}


def append_archive_log(
    storage: Storage, folder: str, states: Iterable[tuple[Instant, bytes]], timeline: str = ""
) -> str | None:
    """Archive states of instants with the bodies of their files, as one more log file. Call under the table lock.

    Memory: the bytes of the new file.

    Args:
        storage: where.
        folder: the archive's.
        states: each instant in each state.
        timeline: the folder that the states were read from; named in errors.

    Returns:
        Path of the file; None where there was nothing to write.
    """
    blocks: list[bytes] = []
    held: list[bytes] = []
    for instant, body in states:
        held.append(encode_datum(parsed(_ENTRY), _entry(instant, body, f"{timeline}/{instant.file_name}")))
        if len(held) == _ENTRIES_OF_A_BLOCK:
            blocks.append(_block(held))
            held = []
    if held:
        blocks.append(_block(held))
    if not blocks:
        return None
    numbers = [int(found.group(1)) for entry in storage.list(folder) if (found := _NAME.fullmatch(entry.name))]
    path = f"{folder}/.commits_.archive.{max(numbers, default=0) + 1}_{_WRITER}"
    storage.create(path, b"".join(blocks))
    return path


def _block(datums: Sequence[bytes]) -> bytes:
    content = struct.pack(">ii", _BLOCK_VERSION, len(datums))
    content += b"".join(struct.pack(">i", len(datum)) + datum for datum in datums)
    return encode_log_block("AVRO_DATA", {"SCHEMA": json.dumps(schema(_ENTRY), separators=(",", ":"))}, content)


def _entry(instant: Instant, body: bytes, path: str) -> dict[str, Any]:
    """``MetadataConversionUtils.createMetaWrapper``: the body in the field of its kind, where it is not empty."""
    entry: dict[str, Any] = {
        "commitTime": instant.requested,
        "actionType": instant.action,
        "actionState": instant.state.name,
        "stateTransitionTime": instant.completed,
    }
    name = _BODIES[instant.state].get(instant.action)
    if name is not None and body:
        entry[name] = decode_body(body, path)
    return entry


def read_archive_log(storage: Storage, folder: str) -> Iterator[dict[str, Any]]:
    """Entries of an archive, file by file in the order of their numbers.

    Raises:
        CorruptFileError: a damaged file.
    """
    found = ((_NAME.fullmatch(entry.name), entry) for entry in storage.list(folder))
    for _, entry in sorted((int(match.group(1)), entry.name) for match, entry in found if match is not None):
        path = f"{folder}/{entry}"
        for block in decode_log_blocks(storage.read(path), path):
            if block.block_type != "AVRO_DATA":
                continue
            text = block.header.get("SCHEMA")
            if text is None:
                raise CorruptFileError(path, block.offset, "a schema in the header of an archive's block", "none")
            datums = split_avro_block(block.content, path, block.content_offset)
            for datum in datums.parts():
                yield decode_datum(parse_json(text, path, block.offset), datum, path, block.content_offset)


def archived_writes(storage: Storage, folder: str) -> Iterator[tuple[Instant, CommitMetadata]]:
    """Completed commits, delta commits and replace commits of an archive, in the order in which they were archived.

    Raises:
        CorruptFileError: a damaged file.
    """
    for entry in read_archive_log(storage, folder):
        action = str(entry.get("actionType"))
        if entry.get("actionState") != State.COMPLETED.name or action not in WRITE_ACTIONS:
            continue
        requested, done = str(entry.get("commitTime")), entry.get("stateTransitionTime")
        instant = Instant(requested, action, State.COMPLETED, None if done is None else str(done), "")
        body = entry.get(_COMPLETED_BODIES[action])
        path = f"{folder} ({requested})"
        yield instant, CommitMetadata(operation=None) if body is None else commit_of_record(body, path)
