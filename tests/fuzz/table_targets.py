"""Targets over whole tables: one file of a small table is damaged, then the table is opened, planned and read.

*Right* targets: what comes back without an error must be exactly the rows that were written, whatever was damaged:

* ``table.metadata``: files of the metadata table, HFiles in their log blocks or on their own. Their blocks are gzip
  streams with checksums, and every other number in them is checked against its neighbours.
* ``table.bitmap``: runs of the bitmap index, likewise; and the manifest's and the definitions' JSON (``table.index``):
  what an index says only ever takes away what it proves, and what it does not know is read.

*Safe* targets, where the format cannot tell damage from another truth. Only the kind of error, time and memory count:

* ``table.properties``: the checksum in ``hoodie.properties`` is over the names of database and table alone, so a changed
  ``hoodie.timeline.path`` is another table, without commits.
* ``table.timeline``: bodies of commits are Avro without checksum; a changed schema text renames a column. A file whose
  *name* is damaged is no instant any more, so its commit did not happen.
* ``table.parquet``: neither Hudi nor Arrow writes checksums of pages, so a changed value is one. Footers are left as they
  are but for their length and magic: Arrow ends the process over some damaged ones, since its Python accessors
  (``RowGroupMetaData.column``, ``ColumnChunkMetaData.statistics``) do not catch what its C++ throws there.
* ``table.inside``: metadata whose blocks were packed again around changed values, as no disk does it: their checksums
  are right, and Hudi has no other.
* ``table.log``: data log files have no checksum either, and a block whose two sizes differ is what a dead writer left,
  which every reader skips.

Left out of *right* targets besides: a metadata log cut to no bytes at all. That is what a writer leaves that died before
its first byte, and only the metadata table's own commits tell that it once had more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from fuzz.held import HeldStorage, held_files
from fuzz.hfile_parts import damaged_inside
from fuzz.mutations import Mutator
from fuzz.running import Case, Target
from golden_tables import unpack
from lakedex import Table
from lakedex.codec.log_block import decode_log_blocks, encode_log_block
from lakedex.io.storage import TableFiles
from lakedex.local.session import LocalSession
from lakedex.snapshot.snapshot import TableContext
from lakedex.timeline import table_config

__all__ = ["TABLE_TARGETS"]

BASE = "/t/damaged"
QUERIES = ("n >= 25", "id = 'k7'", "city = 'rome' AND n < 10", "color = 'red'", "color = 'blue' AND n > 3 OR n IS NULL")
MULTIPLE = 400
"""Of the damaged file: reading a table takes its other files too, which the floor is for."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A table's files, and what its queries give."""

    files: Mapping[str, bytes]
    answers: Mapping[str, Any] = field(default_factory=dict)


@cache
def written() -> Sound:
    """A table of ours: two partitions, three commits and a delete among them, all indexes.

    Columns ``id`` (the key, k0 to k39 without k5 and k6), ``city`` (the partition), ``color`` (with bitmaps), ``ts``
    and ``n``. Checked in, since instants and file names are others each time that one is made.
    """
    files = _unpacked("ours_v8_all_indexes")
    return Sound(files, _answers(files, QUESTIONS))


def _unpacked(name: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return held_files(unpack(name, Path(folder)), BASE)


@cache
def merged() -> Sound:
    """A merge-on-read table that Hudi wrote, with data log files."""
    return Sound(_unpacked("mor_v9_txns_nonpart_nometa"))


QUESTIONS: dict[str, Callable[[Table], Any]] = {
    "": lambda table: _rows(table.scan().to_arrow()),
    **{where: lambda table, where=where: _rows(table.scan(where).to_arrow()) for where in QUERIES},
    "count": lambda table: table.scan("color = 'red'").count(),
    "by": lambda table: sorted(tuple(row.values()) for row in table.scan().count_by("color").to_pylist()),
}


def _answers(files: Mapping[str, bytes], questions: Iterable[str]) -> dict[str, Any]:
    session = LocalSession()
    # Damaged properties are read again for half a second, since another writer may be at work.
    with patch.object(table_config, "time", SimpleNamespace(sleep=lambda seconds: None)):
        table = Table(TableContext(TableFiles(HeldStorage(files), BASE), session.engine), session)
        return {question: QUESTIONS[question](table) for question in questions}


def _rows(table: pa.Table) -> list[Any]:
    return sorted((tuple(row.items()) for row in table.to_pylist()), key=repr)


def _read(sound: Sound, changes: Mapping[str, bytes | None], questions: Sequence[str], *, right: bool) -> None:
    files = {path: data for path, data in {**sound.files, **changes}.items() if data is not None}
    found = _answers(files, questions)
    if right:
        assert found == {question: sound.answers[question] for question in questions}, "other rows than were written"


def _case(mutator: Mutator, sound: Sound, path: str, damaged: bytes, *, right: bool) -> Case:
    questions = mutator.random.sample(tuple(sound.answers), 2) if sound.answers else [""]
    return Case(len(damaged), partial(_read, sound, {path: damaged}, questions, right=right), multiple=MULTIPLE)


def _pick(mutator: Mutator, sound: Sound, *parts: str) -> str:
    found = [path for path in sound.files if any(part in path for part in parts)]
    path: str = mutator.choice(found)
    return path


def _metadata(mutator: Mutator) -> Case:
    path = _pick(
        mutator,
        written(),
        "/metadata/files/",
        "/metadata/column_stats/",
        "/metadata/bloom",
        "/metadata/partition_stats/",
    )
    return _case(mutator, written(), path, mutator.bytes(written().files[path]) or b"#", right=True)


def _bitmap(mutator: Mutator) -> Case:
    path = _pick(mutator, written(), "/bitmap_index/run_")
    return _case(mutator, written(), path, mutator.bytes(written().files[path]), right=True)


def _index(mutator: Mutator) -> Case:
    path = _pick(mutator, written(), ".index_defs/")
    data = written().files[path]
    damaged = mutator.bytes(data) if mutator.chance(0.5) else mutator.json(data).encode("utf-8", "surrogatepass")
    return _case(mutator, written(), path, damaged, right=True)


def _inside(mutator: Mutator) -> Case:
    path = _pick(
        mutator, written(), "/metadata/files/", "/metadata/column_stats/", "/metadata/bloom", "/bitmap_index/run_"
    )
    data = written().files[path]
    if path.endswith(".hfile"):
        return _case(mutator, written(), path, damaged_inside(data, mutator), right=False)
    blocks = decode_log_blocks(data) if b"#HUDI#" in data else []
    out = []
    for block in blocks:
        content = bytes(block.content)
        change = partial(damaged_inside, mutator=mutator) if block.block_type == "HFILE_DATA" else mutator.bytes
        out.append(encode_log_block(block.block_type, block.header, change(content)))
    return _case(mutator, written(), path, b"".join(out) or mutator.bytes(data), right=False)


def _properties(mutator: Mutator) -> Case:
    path = _pick(mutator, written(), ".hoodie/hoodie.properties")
    return _case(mutator, written(), path, mutator.bytes(written().files[path]), right=False)


def _timeline(mutator: Mutator) -> Case:
    path = _pick(mutator, written(), "/timeline/")
    data = written().files[path]
    if mutator.chance(0.3):
        name = mutator.text(path.rpartition("/")[2]).replace("/", "")
        moved = {path: None, f"{path.rpartition('/')[0]}/{name}": data}
        return Case(len(data), partial(_read, written(), moved, [""], right=False), multiple=MULTIPLE)
    return _case(mutator, written(), path, mutator.bytes(data), right=False)


def _parquet(mutator: Mutator) -> Case:
    path = _pick(mutator, written(), ".parquet")
    data = written().files[path]
    cut = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tail = mutator.bytes(data[-8:]) if mutator.chance(0.1) else data[-8:]
    return _case(mutator, written(), path, mutator.bytes(data[:cut]) + data[cut:-8] + tail, right=False)


def _log(mutator: Mutator) -> Case:
    path = _pick(mutator, merged(), ".log.")
    data = merged().files[path]
    if mutator.chance(0.4):
        return _case(mutator, merged(), path, mutator.bytes(data), right=False)
    block = mutator.choice(decode_log_blocks(data))
    damaged = encode_log_block(block.block_type, block.header, mutator.bytes(bytes(block.content)))
    return _case(mutator, merged(), path, damaged, right=False)


TABLE_TARGETS: dict[str, Target] = {
    "table.metadata": _metadata,
    "table.bitmap": _bitmap,
    "table.index": _index,
    "table.inside": _inside,
    "table.properties": _properties,
    "table.timeline": _timeline,
    "table.parquet": _parquet,
    "table.log": _log,
}
"""By name; the module says which of them are *right*."""
