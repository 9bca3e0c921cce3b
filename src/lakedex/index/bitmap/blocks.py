"""Coverage of many files as Arrow streams: what a run says without its bitmaps.

A *files* block lists base files, once for all columns. A column's block has an entry for each file of the files block
of the same number, in its order:

    ============  ====================  ============================================================
    files block   type                  content
    ============  ====================  ============================================================
    partition     dictionary of string  partition path
    file_id       string                file group
    base_file     string                the base file that this run speaks of
    rows          int64                 its rows
    group_rows    list of int64         rows of each row group
    group_start   list of int64         byte in the file where the row group begins
    group_size    list of int64         bytes of the row group
    ============  ====================  ============================================================

    ============  ====================  ============================================================
    column block  type                  content
    ============  ====================  ============================================================
    state         int8                  0 no entry, 1 indexed, from 2 on not indexed: why
    kind          dictionary of string  type of the texts
    nulls         int64                 rows with null
    texts         list of dictionary    distinct values
    counts        list of int64         rows of each value
    groups        list of int64         row groups that hold each value
    null_groups   int64                 row groups that hold null
    ============  ====================  ============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.arrow_stream import unpacked_size
from lakedex.codec.hfile import Budget
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.builder import INDEXED, NOT_INDEXED, ColumnBitmaps, FileBitmaps

__all__ = [
    "COLUMN_SCHEMA",
    "FILES_SCHEMA",
    "IS_INDEXED",
    "NO_ENTRY",
    "column_block",
    "decode_block",
    "encode_block",
    "files_block",
    "state_text",
]

_NAME = pa.dictionary(pa.int32(), pa.string())
FILES_SCHEMA = pa.schema(
    [
        ("partition", _NAME),
        ("file_id", pa.string()),
        ("base_file", pa.string()),
        ("rows", pa.int64()),
        ("group_rows", pa.list_(pa.int64())),
        ("group_start", pa.list_(pa.int64())),
        ("group_size", pa.list_(pa.int64())),
    ]
)
COLUMN_SCHEMA = pa.schema(
    [
        ("state", pa.int8()),
        ("kind", _NAME),
        ("nulls", pa.int64()),
        ("texts", pa.list_(_NAME)),
        ("counts", pa.list_(pa.int64())),
        ("groups", pa.list_(pa.int64())),
        ("null_groups", pa.int64()),
    ]
)
NO_ENTRY, IS_INDEXED = 0, 1
_STATES = (INDEXED, *NOT_INDEXED)


def state_text(state: int) -> str:
    """Why a column is not indexed in a file, from a block's state."""
    return _STATES[state - 1] if 0 < state <= len(_STATES) else "no entry"


def files_block(files: Sequence[FileBitmaps]) -> pa.Table:
    """The files block of some files."""
    return pa.table(
        [
            pa.array([item.partition for item in files], pa.string()).dictionary_encode().cast(_NAME),
            pa.array([item.file_id for item in files], pa.string()),
            pa.array([item.base_file for item in files], pa.string()),
            pa.array([item.rows for item in files], pa.int64()),
            pa.array([[group.rows for group in item.row_groups] for item in files], pa.list_(pa.int64())),
            pa.array([[group.start for group in item.row_groups] for item in files], pa.list_(pa.int64())),
            pa.array([[group.size for group in item.row_groups] for item in files], pa.list_(pa.int64())),
        ],
        schema=FILES_SCHEMA,
    )


def column_block(name: str, files: Sequence[FileBitmaps]) -> pa.Table:
    """A column's block over some files."""
    found = [next((column for column in item.columns if column.column == name), None) for item in files]
    texts = [[] if column is None else column.texts for column in found]
    flat = pa.array([text for own in texts for text in own], pa.string()).dictionary_encode()
    offsets = pa.array([0, *_ends(texts)], pa.int32())
    return pa.table(
        [
            pa.array([_state(column) for column in found], pa.int8()),
            pa.array(["" if column is None else column.kind for column in found], pa.string()).dictionary_encode(),
            pa.array([0 if column is None else column.nulls for column in found], pa.int64()),
            pa.ListArray.from_arrays(offsets, flat),
            pa.array([[] if column is None else column.cardinalities for column in found], pa.list_(pa.int64())),
            pa.array([[] if column is None else column.groups for column in found], pa.list_(pa.int64())),
            pa.array([0 if column is None else column.null_groups for column in found], pa.int64()),
        ],
        schema=COLUMN_SCHEMA,
    )


def _state(column: ColumnBitmaps | None) -> int:
    return NO_ENTRY if column is None else _STATES.index(column.state) + 1


def _ends(lists: Sequence[Sequence[Any]]) -> list[int]:
    ends, total = [], 0
    for own in lists:
        total += len(own)
        ends.append(total)
    return ends


def encode_block(block: pa.Table) -> bytes:
    """An Arrow stream, its buffers packed with zstd."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", metadata_version=pa.ipc.MetadataVersion.V5, use_threads=False)
    with pa.ipc.new_stream(sink, block.schema, options=options) as writer:
        writer.write_table(block.combine_chunks())
    return bytes(sink.getvalue())


def decode_block(data: bytes, schema: pa.Schema, path: str) -> pa.Table:
    """A block from its stream.

    Raises:
        CorruptFileError: damaged bytes, columns of another block, or more than a block ever unpacks to.
    """
    try:
        Budget().spend(len(data), unpacked_size(data), path, 0)
        with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            # Before any name or row is looked at: damaged ones are not even text.
            fits = reader.schema.equals(schema)
            table = reader.read_all() if fits else None
        if table is not None:
            table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CorruptFileError(path, 0, "a coverage block", _first_line(error)) from error
    if table is None:
        raise CorruptFileError(path, 0, f"a coverage block with {', '.join(schema.names)}", "another schema")
    whole = table.combine_chunks()
    lists = [name for name in schema.names if pa.types.is_list(schema.field(name).type)]
    lengths = [pc.list_value_length(whole.column(name)) for name in lists]
    if any(column.null_count for column in whole.columns) or any(not own.equals(lengths[0]) for own in lengths[1:]):
        raise CorruptFileError(path, 0, f"{', '.join(lists)} of the same lengths, and no nulls", "others")
    return whole


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
