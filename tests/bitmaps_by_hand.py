"""Bitmap indexes put on a table by hand: some files covered, some not, some columns past their cap."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakedex import Table
from lakedex.index.bitmap.builder import BitmapsOfFile
from lakedex.index.bitmap.definitions import BitmapDefinition, write_bitmap_definitions
from lakedex.index.bitmap.run_files import Run, encode_run, write_run
from lakedex.io.locations import open_storage
from lakedex.io.storage import TableFiles


def put_bitmaps(
    table: Table,
    *columns: str,
    uncovered: Collection[int] = (),
    limits: Mapping[int, int] | None = None,
) -> None:
    """An index on ``columns``, a run a file.

    Args:
        table: the table.
        columns: names or dotted paths.
        uncovered: numbers of base files, in the order of the snapshot, that get none.
        limits: by number of a base file the cap of distinct values in it.
    """
    snapshot = table.snapshot()
    files = open_storage(table.path)
    definition = BitmapDefinition(name="by_hand", columns=columns)
    write_bitmap_definitions(TableFiles(files.storage, table.path), {definition.name: definition})
    for number, base in enumerate(snapshot.base_files()):
        if number in uncovered:
            continue
        cap = (limits or {}).get(number, definition.max_distinct)
        task = BitmapsOfFile(
            files=TableFiles(files.storage, table.path), columns=dict.fromkeys(columns, cap), schema=snapshot.schema
        )
        write_run(TableFiles(files.storage, table.path), Run(f"{number:017d}", "build", 0), encode_run([task(base)]))
