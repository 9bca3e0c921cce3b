"""File slices with log files, made by hand: what Java's writers leave, block by block."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastavro import parse_schema, schemaless_writer

from lakedex.codec.avro_schema import arrow_to_avro, with_meta_fields
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.log_block import RollbackCommand, encode_delete_block, encode_log_block, encode_rollback_block
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice, LogFile
from lakedex.parquet.base_file_reader import iter_base_file
from lakedex.parquet.conform import conform_stored
from lakedex.snapshot.merge_on_read import MergeCounts, MergeInPlace, MergeSettings, iter_merged_slice
from lakedex.snapshot.schema import read_columns
from lakedex.types import FILE_NAME, META_COLUMNS, RECORD_KEY

COMMIT_TIME, EVENT_TIME = "COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"
OWN = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("value", pa.int32())])
SOFT = OWN.append(pa.field("_hoodie_is_deleted", pa.bool_()))
"""As Java's writers have it where rows say of themselves that they are deleted."""


def long_value(number: int) -> tuple[str, dict[str, int]]:
    """An ordering value of a delete."""
    return ("org.apache.hudi.avro.model.LongWrapper", {"value": number})


NO_VALUE = ("org.apache.hudi.avro.model.IntWrapper", {"value": 0})
"""What Java writes for a delete that has no ordering value."""


def merging(mode: str = EVENT_TIME, own: pa.Schema = OWN, **more: Any) -> MergeSettings:
    """Settings of a table whose instants 001 to 008 are done and 009 is not."""
    done = frozenset(f"{n:03d}" for n in range(1, 9))
    values: dict[str, Any] = {
        "table": "t",
        "mode": mode,
        "ordering_fields": ("ts",) if mode == EVENT_TIME else (),
        "schema": read_columns(own),
        "completed": done,
        "known": done | {"009"},
        "first_active": "001",
    }
    return MergeSettings(**{**values, **more})


def with_meta(own: pa.Table, instant: str) -> pa.Table:
    """Rows with meta columns; the record key is column ``key``."""
    meta = {name: pa.array([instant] * own.num_rows, pa.string()) for name in META_COLUMNS}
    meta[RECORD_KEY] = own.column("key")
    return pa.table({**meta, **{name: own.column(name) for name in own.schema.names}})


def avro_schema(own: pa.Schema) -> str:
    """Schema of a block's records."""
    return json.dumps(with_meta_fields(arrow_to_avro(own, "t")))


def datums(rows: pa.Table, text: str) -> list[bytes]:
    """Rows in Avro's binary form."""
    parsed = parse_schema(json.loads(text))
    out = []
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        stream = io.BytesIO()
        schemaless_writer(stream, parsed, row)
        out.append(stream.getvalue())
    return out


def avro_content(found: Sequence[bytes]) -> bytes:
    """Content of an AVRO_DATA block."""
    framed = b"".join(struct.pack(">i", len(datum)) + datum for datum in found)
    return struct.pack(">ii", 3, len(found)) + framed


def data_block(own: pa.Table, instant: str, kind: str = "AVRO_DATA", **header: str) -> bytes:
    """A data block of rows without meta columns."""
    rows, text = with_meta(own, instant), avro_schema(own.schema)
    if kind == "AVRO_DATA":
        content = avro_content(datums(rows, text))
    elif kind == "HFILE_DATA":
        # Java blanks a column of the name "key" in the values, since the cells have it.
        blank = rows.set_column(rows.schema.get_field_index("key"), "key", pa.array([""] * rows.num_rows))
        cells = zip((str(key).encode() for key in own.column("key").to_pylist()), datums(blank, text), strict=True)
        content = write_hfile(sorted(cells), info={"schema": text.encode()})
    else:
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        content = sink.getvalue()
    return encode_log_block(kind, {"INSTANT_TIME": instant, "SCHEMA": text, **header}, content)


def delete_block(records: Iterable[tuple[str, Any]], instant: str) -> bytes:
    """A delete block of keys with ordering values."""
    content = encode_delete_block([{"recordKey": k, "partitionPath": "", "orderingVal": v} for k, v in records])
    return encode_log_block("DELETE", {"INSTANT_TIME": instant, "SCHEMA": avro_schema(OWN)}, content)


def rollback_block(target: str, instant: str = "008") -> bytes:
    """A command that takes an instant's blocks back."""
    return encode_rollback_block(RollbackCommand(instant, target))


def rows(*values: tuple[Any, ...], own: pa.Schema = OWN) -> pa.Table:
    """Rows of ``own`` given as tuples."""
    columns = zip(*values, strict=True) if values else [[] for _ in own]
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, own, strict=True)], schema=own)


def slice_of(path: Path, base: pa.Table | None, *logs: bytes | Sequence[bytes]) -> FileSlice:
    """A slice of a table without partitions, its files written below ``path``."""
    base_file = None
    if base is not None:
        name = "f-0_0-0-0_001.parquet"
        pq.write_table(with_meta(base, "001"), path / name)
        base_file = BaseFile("", name, (path / name).stat().st_size, "f-0", "001")
    files = []
    for number, blocks in enumerate(logs, 1):
        name = f".f-0_{number + 1:03d}.log.1_0-0-0"
        (path / name).write_bytes(blocks if isinstance(blocks, bytes) else b"".join(blocks))
        files.append(LogFile("", name, (path / name).stat().st_size, f"{number + 1:03d}"))
    return FileSlice("", "f-0", "001", base_file, tuple(files))


def merged(path: Path, item: FileSlice, merge: MergeSettings, needed: pa.Schema | None = None) -> pa.Table:
    """The slice's rows; in the order of the base file they are the same."""
    wanted = merge.schema if needed is None else needed
    files = TableFiles(LocalStorage(), str(path))
    batches = list(iter_merged_slice(files, item, wanted, merge))
    assert all(batch.schema.equals(wanted) for batch in batches)
    found = pa.Table.from_batches(batches, wanted)
    compacted, _ = in_place(files, item, merge)
    names = [name for name in wanted.names if name != FILE_NAME]
    assert not names or values(compacted, *names) == values(found, *names)
    if item.base_file is not None:
        stored = pq.read_table(path / item.base_file.name, columns=[RECORD_KEY])[RECORD_KEY].to_pylist()
        keys = compacted[RECORD_KEY].to_pylist()
        old = [key for key in keys if key in set(stored)]
        left = iter(stored)
        assert keys[: len(old)] == old and all(key in left for key in old)
    return found


def in_place(files: TableFiles, item: FileSlice, merge: MergeSettings) -> tuple[pa.Table, MergeCounts]:
    """The rows of the slice's next base file, as a compaction writes them, and what was counted."""
    merged, batches = MergeInPlace(files, item, merge, "new"), []
    if item.base_file is not None:
        path = files.path(item.base_file.relative_path)
        for stored in iter_base_file(files.storage, path):
            changed = merged.changed(stored)
            was = conform_stored(stored, merge.schema)
            assert changed.is_whole == (changed.rows.num_rows == stored.num_rows)
            assert all(changed.rows[name].equals(was[name]) for name in changed.unchanged if changed.is_whole)
            batches.append(changed.rows)
    rows = pa.Table.from_batches([*batches, *merged.left()], merged.schema)
    return rows.cast(merge.schema), merged.counts


def values(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """Some columns (key, ts, value), sorted."""
    found = [table.column(name).to_pylist() for name in names or OWN.names]
    return sorted(zip(*found, strict=True), key=repr)
