"""Bitmaps on their way from the task that made them to the run that holds them.

Those of one file come back with the task's result, unless they are large: then they lie as an Arrow stream in the temp
folder of the instant, and only its path and SHA-256 come back. Runs are written from both, in bunches of up to
``RUN_BYTES``; where that is one bunch of small ones the driver does it, else one engine task a bunch.

Memory: the driver holds up to ``RUN_BYTES`` of bitmaps, whatever the number of files; a task one bunch and its run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakedex.index.bitmap.builder import INDEXED, ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.runs import Run, encode_run, write_run
from lakedex.io.spilled import Spilled
from lakedex.io.storage import Storage

__all__ = ["RUN_BYTES", "HeldBitmaps", "RunTasks", "hold_bitmaps", "inline_limit", "write_runs"]

INLINE_BYTES = 256 * 1024
"""Bitmaps of one file up to this size come back with the task's result."""
RUN_BYTES = 64 * 1024 * 1024
_SPILLED = pa.schema(
    [
        ("column", pa.string()),
        ("state", pa.string()),
        ("kind", pa.string()),
        ("texts", pa.list_(pa.string())),
        ("cardinalities", pa.list_(pa.int64())),
        ("groups", pa.list_(pa.int64())),
        ("bitmaps", pa.list_(pa.large_binary())),
        ("nulls", pa.int64()),
        ("null_groups", pa.int64()),
        ("null_bitmap", pa.binary()),
    ]
)
"""The fields of :class:`ColumnBitmaps`."""
RunTasks = Callable[[Callable[["_Bunch"], Run], Sequence["_Bunch"], str], list[Run]]
"""An engine's ``run``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBitmaps:
    """The bitmaps of one file, or where they lie.

    Attributes:
        size: about the bytes that they take.
        entries: bitmaps.
        not_indexed: columns that are not indexed in the file, and why.
        bitmaps: themselves; without columns if those are in a file.
        spilled: the columns, None if they are in ``bitmaps``.
        seconds: what making them took.
    """

    size: int
    entries: int
    not_indexed: tuple[tuple[str, str], ...]
    bitmaps: FileBitmaps
    spilled: Spilled | None
    seconds: float

    def load(self, storage: Storage) -> FileBitmaps:
        """The bitmaps.

        Raises:
            CorruptFileError: Somebody changed what the task had written.
        """
        if self.spilled is None:
            return self.bitmaps
        return replace(self.bitmaps, columns=_decoded(self.spilled.read(storage)))


def inline_limit(files: int, most: int = INLINE_BYTES) -> int:
    """Size up to which bitmaps of one of so many files come back with the result."""
    return min(most, RUN_BYTES // max(files, 1))


def hold_bitmaps(storage: Storage, found: FileBitmaps, path: str, limit: int, seconds: float = 0.0) -> HeldBitmaps:
    """Bitmaps as a task's result; larger ones than ``limit`` are written to ``path``."""
    size = found.size
    spilled = Spilled.write(storage, path, _encoded(found.columns)) if size > limit else None
    return HeldBitmaps(
        size=size,
        entries=sum(len(column.texts) + bool(column.nulls) for column in found.columns),
        not_indexed=tuple((column.column, column.state) for column in found.columns if column.state != INDEXED),
        bitmaps=found if spilled is None else replace(found, columns=()),
        spilled=spilled,
        seconds=seconds,
    )


def _encoded(columns: Sequence[ColumnBitmaps]) -> bytes:
    table = pa.table([[getattr(own, name) for own in columns] for name in _SPILLED.names], schema=_SPILLED)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _decoded(content: bytes) -> tuple[ColumnBitmaps, ...]:
    rows: list[dict[str, Any]] = pa.ipc.open_stream(content).read_all().to_pylist()
    for row in rows:
        row.update([(name, tuple(own)) for name, own in row.items() if isinstance(own, list)])
    return tuple(ColumnBitmaps(**row) for row in rows)


@dataclass(frozen=True, slots=True)
class _Bunch:
    """What one run is written from."""

    storage: Storage
    base_path: str
    run: Run
    held: tuple[HeldBitmaps, ...]


def _write_bunch(bunch: _Bunch) -> Run:
    content = encode_run([item.load(bunch.storage) for item in bunch.held])
    return write_run(bunch.storage, bunch.base_path, bunch.run, content)


def write_runs(
    storage: Storage, base_path: str, first: Run, held: Sequence[HeldBitmaps], run: RunTasks, label: str = ""
) -> list[Run]:
    """Write the bitmaps of some files as runs.

    Args:
        storage: where the table lies.
        base_path: the table's folder.
        first: instant, origin and number of the first run; the others count on from it.
        held: the bitmaps.
        run: an engine's ``run``.
        label: what the engine calls the work.
    """
    bunches = [
        _Bunch(storage, base_path, Run(first.instant, first.origin, first.number + number), tuple(part))
        for number, part in enumerate(_bunched(held))
    ]
    small = len(bunches) <= 1 and all(item.spilled is None for item in held)
    return [_write_bunch(bunch) for bunch in bunches] if small else run(_write_bunch, bunches, label)


def _bunched(held: Sequence[HeldBitmaps]) -> Iterator[list[HeldBitmaps]]:
    part: list[HeldBitmaps] = []
    size = 0
    for item in held:
        if part and size + item.size > RUN_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part
