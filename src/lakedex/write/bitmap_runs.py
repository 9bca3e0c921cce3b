"""Bitmaps on their way from the task that made them to the run that holds them.

Those of one file come back with the task's result, unless they are large: then they lie in the temp folder of the
instant and only their path comes back. Runs are written from both, in bunches of up to ``RUN_BYTES``; where that is one
bunch of small ones the driver does it, else one engine task a bunch.

Memory: the driver holds up to ``RUN_BYTES`` of bitmaps, whatever the number of files; a task one bunch and its run.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lakedex.index.bitmap.builder import INDEXED, FileBitmaps
from lakedex.index.bitmap.runs import Run, encode_run, write_run
from lakedex.io.storage import Storage

__all__ = ["RUN_BYTES", "HeldBitmaps", "RunTasks", "hold_bitmaps", "inline_limit", "write_runs"]

INLINE_BYTES = 256 * 1024
"""Bitmaps of one file up to this size come back with the task's result."""
RUN_BYTES = 64 * 1024 * 1024
RunTasks = Callable[[Callable[["_Bunch"], Run], Sequence["_Bunch"], str], list[Run]]
"""An engine's ``run``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBitmaps:
    """The bitmaps of one file, or where they lie.

    Attributes:
        size: about the bytes that they take.
        entries: bitmaps.
        not_indexed: columns that are not indexed in the file, and why.
        bitmaps: themselves; None where they lie at ``path``.
        seconds: what making them took.
    """

    size: int
    entries: int
    not_indexed: tuple[tuple[str, str], ...]
    bitmaps: FileBitmaps | None
    path: str | None
    seconds: float

    def load(self, storage: Storage) -> FileBitmaps:
        """The bitmaps."""
        if self.bitmaps is not None:
            return self.bitmaps
        found: FileBitmaps = pickle.loads(storage.read(str(self.path)))  # noqa: S301 - our own tasks' results
        return found


def inline_limit(files: int, most: int = INLINE_BYTES) -> int:
    """Size up to which bitmaps of one of so many files come back with the result."""
    return min(most, RUN_BYTES // max(files, 1))


def hold_bitmaps(storage: Storage, found: FileBitmaps, path: str, limit: int, seconds: float = 0.0) -> HeldBitmaps:
    """Bitmaps as a task's result; larger ones than ``limit`` are written to ``path``."""
    size = found.size
    if size > limit:
        storage.write(path, pickle.dumps(found))
    return HeldBitmaps(
        size=size,
        entries=sum(len(column.texts) + bool(column.nulls) for column in found.columns),
        not_indexed=tuple((column.column, column.state) for column in found.columns if column.state != INDEXED),
        bitmaps=None if size > limit else found,
        path=path if size > limit else None,
        seconds=seconds,
    )


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
    small = len(bunches) <= 1 and all(item.bitmaps is not None for item in held)
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
