"""Compare an index with the data it is of, and repair it on request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from lakedex.errors import InvalidInputError
from lakedex.index.protocol import CommitPolicy, ValidationContext
from lakedex.index.registry import index_named, require_readable
from lakedex.layout.file_slice import BaseFile
from lakedex.maintenance.index_lifecycle import open_live, recompute_entries
from lakedex.options import WriteOptions
from lakedex.reports import ValidationReport
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.types import Progress

__all__ = ["Files", "chosen_files", "validate_index"]


Files = int | Sequence[str] | None
"""Base files to compare: None for all, a number for a sample, or their names."""


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
            raise InvalidInputError(f"{snapshot.files}: files is a number of files from 1 on, not {files}")
        count = min(files, len(known))
        return [known[number * len(known) // count] for number in range(count)]
    names = {base.name for base in known}
    for name in files:
        if name not in names:
            raise InvalidInputError(f"{snapshot.files}: {name!r} is no current base file; t.inspect.files() has all")
    wanted = set(files)
    return [base for base in known if base.name in wanted]


def validate_index(
    handle: TableContext,
    options: WriteOptions,
    name: str,
    *,
    files: Files = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> ValidationReport:
    """Compare an index with the data; see :meth:`lakedex.Indexes.validate`.

    A best-effort index repairs itself while it is compared; entries of others are computed and written again.
    """
    started = time.perf_counter()
    snapshot, instant = handle.snapshot(), ""
    index = index_named(snapshot, name)
    require_readable(snapshot, name)
    is_live = index.commit_policy is CommitPolicy.BEST_EFFORT
    with ExitStack() as beating:
        if repair and is_live:
            with open_live(handle, options, name) as (_, opened, heartbeat):
                snapshot, instant = opened.snapshot, opened.instant
            beating.enter_context(heartbeat)
        check = index.validate(ValidationContext(table=handle, snapshot=snapshot, name=name, instant=instant))
        chosen = chosen_files(snapshot, files)
        check.compare(chosen, progress)
    wrong = {(found.partition, found.file) for found in check.differences}
    repaired = recompute_entries(handle, options, index, wrong) if repair and wrong and not is_live else check.repaired
    everything = snapshot.base_files()
    return ValidationReport(
        name=name,
        using=index.name,
        instant=snapshot.instant,
        files_total=len(everything),
        files_checked=check.checked,
        files_uncovered=check.uncovered(chosen),
        entries_checked=check.entries,
        entries_stale=check.stale(everything),
        differences=tuple(check.differences),
        damage=check.damage,
        files_repaired=repaired,
        notes=tuple(check.notes),
        seconds=time.perf_counter() - started,
    )
