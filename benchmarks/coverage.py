"""Coverage of many files and columns by the bitmap index: its bytes, and the seconds to take it in cold.

The table is metadata only (``synthetic.py``). Each column has twenty values, each file six to twelve of them in four
row groups. Bitmaps themselves are not made: no question here comes to them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic import ROWS, file_name, make_table, partition_of
from lakedex import Table
from lakedex.codec.metadata_record import BitmapRecord
from lakedex.index.bitmap.builder import INDEXED, ColumnBitmaps, FileBitmaps, RowGroup
from lakedex.index.bitmap.definitions import BitmapDefinition, write_bitmap_definitions
from lakedex.index.bitmap.keys import coverage_key, files_key
from lakedex.index.bitmap.loaded_index import load_bitmap_index
from lakedex.index.bitmap.run_files import (
    FILES_PER_BLOCK,
    Run,
    column_block,
    encode_block,
    encode_cells,
    files_block,
    record_cells,
    write_run,
)
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles

__all__ = ["add_coverage", "commits_of", "coverage"]

VALUES, VARIANTS, GROUPS = 20, 32, 4


def _variants(name: str, kind: str, rng: np.random.Generator) -> list[ColumnBitmaps]:
    made = []
    for _ in range(VARIANTS):
        values = np.sort(rng.choice(VALUES, rng.integers(6, 13), replace=False)).tolist()
        cuts = np.sort(rng.choice(np.arange(1, ROWS), len(values) - 1, replace=False))
        made.append(
            ColumnBitmaps(
                column=name,
                state=INDEXED,
                kind=kind,
                texts=tuple(sorted(str(value) if kind == "int" else f"v{value:02d}" for value in values)),
                cardinalities=tuple(np.diff([0, *cuts, ROWS]).tolist()),
                groups=tuple(rng.integers(1, GROUPS + 1, len(values)).tolist()),
                bitmaps=tuple(b"" for _ in values),
            )
        )
    return made


def commits_of(path: Path) -> list[str]:
    """Instants of a table's commits, the oldest first."""
    return [str(instant) for instant in Table.open(path).inspect.history().column("commit_time").to_pylist()][::-1]


def add_coverage(
    path: Path,
    instants: Sequence[str],
    files: range,
    names: Sequence[str],
    kind: str = "string",
    per_partition: int = 100,
) -> int:
    """Write a run for the files of each commit; the bytes of all."""
    rng = np.random.default_rng(3)
    variants = {name: _variants(name, kind, rng) for name in names}
    table = TableFiles(LocalStorage(), str(path))
    groups = tuple(RowGroup(ROWS // GROUPS, 4 + place * 1000, 1000) for place in range(GROUPS))
    total, share = 0, -(-len(files) // len(instants))
    for place, instant in enumerate(instants):
        items = []
        own = files[place * share : (place + 1) * share]
        for block, start in enumerate(range(0, len(own), FILES_PER_BLOCK)):
            part = own[start : start + FILES_PER_BLOCK]
            picks = rng.integers(0, VARIANTS, (len(names), len(part)))
            of_file = [
                FileBitmaps(
                    partition=partition_of(number, per_partition),
                    file_id=file_name(number, instant).partition("_")[0],
                    base_file=file_name(number, instant),
                    rows=ROWS,
                    row_groups=groups,
                    columns=tuple(variants[name][picks[at, row]] for at, name in enumerate(names)),
                )
                for row, number in enumerate(part)
            ]
            items.append((files_key(block), BitmapRecord(coverage=encode_block(files_block(of_file)))))
            items += [
                (coverage_key(name, block), BitmapRecord(coverage=encode_block(column_block(name, of_file))))
                for name in names
            ]
        total += write_run(table, Run(instant, "commit", place), encode_cells(record_cells(items))).size
    write_bitmap_definitions(table, {"all": BitmapDefinition(name="all", columns=tuple(names))})
    return total


def coverage(files: int = 100_000, columns: int = 50, folder: str | None = None) -> list[dict[str, Any]]:
    """One row: bytes, and seconds to take in one column and all of them, cold."""
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=folder) as made:
        path = Path(made) / "synthetic"
        make_table(path, files)
        names = [f"k{place:02d}" for place in range(columns)]
        size = add_coverage(path, commits_of(path), range(files), names)
        seconds = []
        for taken in (1, columns):
            snapshot = Table.open(path).snapshot()
            started = time.perf_counter()
            held = load_bitmap_index(snapshot)
            if held is None:
                raise SystemExit("no index was found")
            with held.coverage.lock:
                covered = [len(held.coverage.entries(name)) for name in names[:taken]]
            seconds.append(time.perf_counter() - started)
            if set(covered) != {files}:
                raise SystemExit(f"{covered} files covered instead of {files}: {held.coverage.unread}")
        one, everything = seconds
        row = {"files": files, "columns": columns, "bytes": size, "one_column_seconds": one}
        return [{**row, "all_columns_seconds": everything}]


if __name__ == "__main__":
    sizes = [int(text) for text in sys.argv[1:]] or [100_000, 50]
    print(coverage(sizes[0], sizes[1]))
