"""Columns that a base file does not hold: nulls only, known without an entry.

A column that was added is in no older file, and in no entry of one. The schema of the commit that wrote the file tells
so; that of lakedex's own commits is the files' schema to the letter. Those of others are not taken as proof, nor is
anything said of files whose commit was archived: both stay unknown, and are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakedex.index.column_stats import ColumnStat
from lakedex.index.file_bounds import stats_of_files
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.snapshot import Snapshot
from lakedex.types import RECORD_KEY

__all__ = ["nulls_of_absent_columns"]

OWN_MARK = "lakedex.version"


def nulls_of_absent_columns(
    snapshot: Snapshot, files: Sequence[BaseFile | None], found: Mapping[str, Sequence[ColumnStat | None]]
) -> dict[str, list[ColumnStat | None]]:
    """Stats with those of absent columns filled in.

    Args:
        snapshot: the table.
        files: what the stats are of; None where it is no base file.
        found: stats by column, None where nothing is known. Dotted names lie in structs.
    """
    filled = {name: list(stats) for name, stats in found.items()}
    holes = [(name, place) for name, stats in filled.items() for place, stat in enumerate(stats) if stat is None]
    schemas: dict[str, pa.Schema | None] = {}
    absent: list[tuple[str, int, BaseFile]] = []
    for name, place in holes:
        base = files[place]
        if base is None:
            continue
        if base.instant not in schemas:
            schemas[base.instant] = _written_schema(snapshot, base.instant)
        schema = schemas[base.instant]
        if schema is not None and not _holds(list(schema), name.split(".")):
            absent.append((name, place, base))
    rows = _row_counts(snapshot, {base for _, _, base in absent})
    for name, place, base in absent:
        if base in rows:
            count = rows[base]
            filled[name][place] = ColumnStat(
                column=name, minimum=None, maximum=None, value_count=count, null_count=count
            )
    return filled


def _written_schema(snapshot: Snapshot, instant: str) -> pa.Schema | None:
    """Columns of the files of a commit; None where they are not known for sure."""
    if not snapshot.timeline.is_completed(instant):
        return None
    commit = snapshot.timeline.commit_notes(instant)
    if commit.schema is None or OWN_MARK not in commit.extra:
        return None
    return snapshot.parse_schema(commit.schema, instant)


def _holds(fields: Sequence[pa.Field], path: Sequence[str]) -> bool:
    """Whether there is a column, or a field inside of one, of this name in any case of letters."""
    for field in fields:
        if field.name.lower() == path[0].lower():
            inner = field.type
            return len(path) == 1 or not pa.types.is_struct(inner) or _holds(list(inner), path[1:])
    return path[0].startswith("_hoodie_")


def _row_counts(snapshot: Snapshot, files: set[BaseFile]) -> dict[BaseFile, int]:
    """Rows of files, by what is stored of their keys: every file has those."""
    wanted = sorted(files, key=lambda base: (base.partition, base.name))
    if not wanted:
        return {}
    places = [(base.partition, base.name) for base in wanted]
    keys = stats_of_files(snapshot.metadata, places, {RECORD_KEY: pa.string()})[RECORD_KEY]
    return {base: stat.value_count for base, stat in zip(wanted, keys, strict=True) if stat is not None}
