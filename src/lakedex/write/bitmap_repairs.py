"""``validate_index`` of a bitmap index, and its repair.

A repair writes new runs for the base files that differ. They rank above all others, so what they say counts from then
on; runs that cannot be read are taken out, and what they covered is covered anew. All of it is put-if-absent or a new
name, so the lock is held for the name of the new runs only, and queries and writes go on.

Memory: the driver holds the bitmaps of the files that differ until they make a run of ``RUN_BYTES``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from lakedex.errors import CommitConflictError, InvalidInputError
from lakedex.index.bitmap.builder import FileBitmaps
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.bitmap.runs import (
    Manifest,
    Run,
    delete_runs,
    encode_run,
    list_runs,
    publish_manifest,
    publish_without,
    write_run,
)
from lakedex.index.bitmap.validation import BitmapValidation
from lakedex.index.validation import ValidationReport
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.timeline.instant import InstantClock
from lakedex.write.bitmap_builds import open_build
from lakedex.write.bitmap_runs import RUN_BYTES

__all__ = ["Files", "chosen_files", "validate_bitmap_index"]

Files = int | Sequence[str] | None
"""Which base files are compared: None for all, so many of them, or those of these names."""
PUBLISH_ATTEMPTS = 5


def chosen_files(snapshot: Snapshot, files: Files) -> list[BaseFile]:
    """Base files to compare; a sample is spread evenly over the table.

    Raises:
        InvalidInputError: a number below 1, or a name that no current base file has.
    """
    known = sorted(snapshot.base_files(), key=lambda base: (base.partition, base.name))
    if files is None:
        return known
    if isinstance(files, int):
        if files < 1:
            raise InvalidInputError(f"{snapshot.base_path}: files is a number of files from 1 on, not {files}")
        count = min(files, len(known))
        return [known[number * len(known) // count] for number in range(count)]
    names = {base.name for base in known}
    for name in files:
        if name not in names:
            raise InvalidInputError(
                f"{snapshot.base_path}: {name!r} is no current base file; t.inspect.files() has all"
            )
    wanted = set(files)
    return [base for base in known if base.name in wanted]


def validate_bitmap_index(
    handle: TableHandle,
    options: WriteOptions,
    name: str,
    *,
    files: Files = None,
    repair: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ValidationReport:
    """Compare a bitmap index with the data; see :meth:`lakedex.Table.validate_index`."""
    started = time.perf_counter()
    mending = None
    with ExitStack() as beating:
        if repair:
            with open_build(handle, options) as (_, build):
                snapshot = build.snapshot
                mending = _Repair(handle, build.instant)
            beating.enter_context(build.heartbeat)
        else:
            snapshot = handle.snapshot()
        definitions = read_bitmap_definitions(snapshot.storage, snapshot.base_path)
        chosen = chosen_files(snapshot, files)
        check = BitmapValidation(
            snapshot=snapshot,
            definition=definitions[name],
            definitions=definitions,
            run=handle.engine.run,
            progress=progress,
            keep=repair,
        )
        found = check.compare(chosen)
        if mending is None:
            for _ in found:
                continue
        else:
            mending.mend(check, found, snapshot.base_files())
    everything = snapshot.base_files()
    uncovered = sum(not check.covers(base, check.columns) for base in chosen)
    return ValidationReport(
        name=name,
        using="bitmap",
        instant=snapshot.instant,
        files_total=len(everything),
        files_checked=check.checked,
        files_uncovered=uncovered,
        entries_checked=check.entries,
        entries_stale=check.stale_entries(everything),
        differences=tuple(check.differences),
        damage=check.damage,
        files_repaired=0 if mending is None else len(mending.repaired),
        notes=tuple(check.notes),
        seconds=time.perf_counter() - started,
    )


@dataclass(slots=True)
class _Repair:
    """Writes what was found wrong anew."""

    handle: TableHandle
    instant: str
    repaired: set[tuple[str, str]] = field(default_factory=set)
    _runs: int = 0
    _held: list[FileBitmaps] = field(default_factory=list)
    _size: int = 0

    def mend(self, check: BitmapValidation, found: Iterable[FileBitmaps], files: Sequence[BaseFile]) -> None:
        """Cover what differs, then what damaged runs covered, then take these out."""
        self._name_after(check)
        for item in found:
            self._add(item)
        if check.lost_something:
            lost = [
                base
                for base in files
                if (base.partition, base.name) not in self.repaired
                and (check.uses_bad_run(base) or not check.covers(base, tuple(check.limits)))
            ]
            for item in check.make(lost):
                self._add(item)
        self._flush()
        if check.lost_something:
            self._take_out(check)

    def _name_after(self, check: BitmapValidation) -> None:
        """New runs have to sort after all that are there, also those of a machine whose clock is ahead."""
        newest = max((run.instant for run in check.folder.runs), default="")
        if newest >= self.instant:
            self.instant = InstantClock(check.snapshot.config.timezone).next(newest)

    def _add(self, item: FileBitmaps) -> None:
        self.repaired.add((item.partition, item.base_file))
        if self._held and self._size + item.size > RUN_BYTES:
            self._flush()
        self._held.append(item)
        self._size += item.size

    def _flush(self) -> None:
        if self._held:
            run = Run(self.instant, "build", self._runs)
            write_run(self.handle.storage, self.handle.base_path, run, encode_run(self._held))
            self._runs += 1
            self._held, self._size = [], 0

    def _take_out(self, check: BitmapValidation) -> None:
        """Publish which runs count without the damaged ones, and delete these.

        Raises:
            CommitConflictError: folds got in between again and again. What was mended counts all the same.
        """
        storage, base = self.handle.storage, self.handle.base_path
        gone = {*check.bad_runs, *check.missing_runs}
        if check.manifest_damage:
            gone |= {name for name in check.folder.idle if name.endswith(".hfile")}
            number, kept = check.folder.manifest.number, ()
            published = publish_manifest(
                storage, base, Manifest(number=number + 1, runs=kept, folded=tuple(sorted(gone)))
            )
        else:
            published = any(
                publish_without(storage, base, list_runs(storage, base), gone) for _ in range(PUBLISH_ATTEMPTS)
            )
        if not published:
            raise CommitConflictError(
                f"{base}: others changed the bitmap index meanwhile; run validate_index with repair=True again",
                ours=self.instant,
                theirs=None,
                file_groups=frozenset(),
                retryable=True,
            )
        delete_runs(storage, base, gone)
