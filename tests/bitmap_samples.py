"""Bitmap indexes put on a table by hand: what the tests of the bitmap core share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.index.bitmap.builder import BitmapsBuilder, BitmapsOfFile, FileBitmaps, RowGroup
from lakedex.index.bitmap.compaction import shards
from lakedex.index.bitmap.definitions import (
    BitmapDefinition,
    has_column,
    indexed_limits,
    read_bitmap_definitions,
    write_bitmap_definitions,
)
from lakedex.index.bitmap.run_files import Manifest, Run, encode_run, list_runs, publish_manifest, write_run
from lakedex.layout.file_slice import BaseFile

__all__ = ["ByHand", "built", "file_bitmaps", "positions_in_files", "row_groups_of", "run"]


@contextmanager
def row_groups_of(rows: int) -> Iterator[None]:
    """Base files have row groups of this many rows."""
    write = pq.ParquetWriter.write_table

    def in_groups(self: Any, table: pa.Table, row_group_size: int | None = None, **more: Any) -> None:
        write(self, table, row_group_size=rows, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", in_groups)
        yield


def run(number: int, origin: str = "commit", part: int = 0) -> Run:
    """A run of a made-up instant."""
    return Run(f"{number:017d}", origin, part)


def built(
    columns: Mapping[str, int], data: pa.Table, *, groups: Sequence[int] | None = None, batch: int | None = None
) -> tuple[Any, ...]:
    """What the builder finds in rows that come in batches of some size."""
    builder = BitmapsBuilder(columns, data.schema)
    for one in data.combine_chunks().to_batches(max_chunksize=batch):
        builder.add(one)
    rows = [data.num_rows] if groups is None else groups
    return builder.finish([RowGroup(count, 100 * at, 100) for at, count in enumerate(rows)])


def file_bitmaps(
    name: str, columns: Mapping[str, int], data: pa.Table, *, partition: str = "p", groups: Sequence[int] | None = None
) -> FileBitmaps:
    """What a run says of a made-up base file ``<file id>_<anything>.parquet``."""
    rows = [data.num_rows] if groups is None else groups
    return FileBitmaps(
        partition=partition,
        file_id=name.split("_")[0],
        base_file=name,
        rows=data.num_rows,
        row_groups=tuple(RowGroup(count, 100 * at, 100) for at, count in enumerate(rows)),
        columns=built(columns, data, groups=groups),
    )


def positions_in_files(files: Sequence[str]) -> list[int]:
    """Per row its ordinal in its file, for rows in the order of files and rows."""
    seen: dict[str, int] = {}
    found = []
    for name in files:
        found.append(seen.get(name, 0))
        seen[name] = found[-1] + 1
    return found


class ByHand:
    """Keeps a bitmap index on a table, a step at a time; what is not asked for stays uncovered."""

    def __init__(self, table: Table, limits: Mapping[str, int]) -> None:
        """Define an index for each cap."""
        self.path = str(table.path)
        caps = sorted(set(limits.values()))
        self.definitions = {
            f"cap{cap}": BitmapDefinition(
                name=f"cap{cap}", columns=tuple(c for c, own in limits.items() if own == cap), max_distinct=cap
            )
            for cap in caps
        }
        self.number = 0
        self.known: set[str] = set()
        self.files = table.scan().snapshot.files
        write_bitmap_definitions(self.files, self.definitions)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Writers meanwhile do not know the index, as those of other engines do not."""
        write_bitmap_definitions(self.files, {})
        yield
        write_bitmap_definitions(self.files, self.definitions)

    def look(self) -> None:
        """Take over what a writer did to the definitions: columns were renamed or dropped."""
        self.definitions = read_bitmap_definitions(self.files)

    def base_files(self) -> list[BaseFile]:
        """Base files of the table's slices now."""
        return list(Table.open(self.path).scan().snapshot.base_files())

    def cover(self, files: Iterable[BaseFile] | None = None, *, origin: str = "build", split: int = 1) -> list[Run]:
        """Cover base files, those that are new if none are given, by so many runs."""
        wanted = [base for base in self.base_files() if base.name not in self.known] if files is None else list(files)
        schema = Table.open(self.path).scan().snapshot.schema
        limits = {name: cap for name, cap in indexed_limits(self.definitions).items() if has_column(schema, name)}
        task = BitmapsOfFile(files=self.files, columns=limits, schema=schema)
        runs = []
        for part in range(split):
            own = [task(base) for base in wanted[part::split]]
            if own:
                self.number += 1
                runs.append(write_run(self.files, run(self.number, origin), encode_run(own)))
        self.known |= {base.name for base in wanted}
        return runs

    def fold(self, take: Callable[[Run], bool] = lambda one: True, *, delete: bool = False) -> list[Run]:
        """Fold runs, and publish that; ``delete`` also removes what nobody needs any more."""
        folder = list_runs(self.files)
        taken = [one for one in folder.runs if take(one)]
        self.number += 1
        live = {base.name for base in self.base_files()}
        tasks = shards(self.files, taken, live, indexed_limits(self.definitions))
        outputs = [task(run(self.number, "fold", at)) for at, task in enumerate(tasks)]
        outputs = [one for one in outputs if one.size]
        left = [name for name in folder.manifest.runs if name not in {one.name for one in taken}]
        manifest = Manifest(
            number=folder.manifest.number + 1,
            runs=(*left, *(one.name for one in outputs)),
            folded=tuple(one.name for one in taken),
        )
        assert publish_manifest(self.files, manifest)
        if delete:
            for name in list_runs(self.files).idle:
                self.files.storage.delete(f"{self.path}/.hoodie/metadata/bitmap_index/{name}")
        return outputs


def with_positions(table: pa.Table) -> pa.Table:
    """Rows of a scan with their ordinals in their files as ``#``."""
    files = table.column("_hoodie_file_name").to_pylist()
    return table.append_column("#", pa.array(positions_in_files(files), pa.int64()))


def sorted_rows(table: pa.Table) -> pa.Table:
    """Rows in the order of their keys."""
    order = pc.sort_indices(table, [("_hoodie_partition_path", "ascending"), ("_hoodie_record_key", "ascending")])
    return table.take(order)


def ungated(scan: Any) -> Any:
    """The scan with bitmaps read whatever they cost."""
    return replace(scan, cost_gate=False)
