"""Lives of tables in which writers are killed and others commit."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from faults import run_child
from lakedex import Table
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.bloom import BloomBuilder
from lakedex.index.bitmap.run_files import list_runs
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.metadata.records import ALL_PARTITIONS, all_partitions_record, files_key, files_record
from lakedex.metadata.writer import write_delta_commit
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.testing.table_machine import BATCHES, EXTRA, PARTITIONS, Row, Rows, TableMachine, fields_of, rows_of
from lakedex.timeline.active import complete, create_inflight, create_requested
from lakedex.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import update_table_config
from lakedex.types import META_COLUMNS

__all__ = ["FoldingLife", "Life", "MovingLife"]


class Life(TableMachine):
    """A life with crashes and commits of other writers."""

    @rule(batch=BATCHES, at=st.integers(1, 40), when=st.sampled_from(["before", "after", "during"]))
    def crash(self, batch: Rows, at: int, when: str) -> None:
        """A writer without Spark is killed at a change; its rows are there as a whole or not at all."""
        self.count("crash")
        before, batch = self.model.now(), self.model.batch(batch)
        frame = pa.Table.from_pylist(
            [{"id": k, "p": p, "ts": ts, "n": n, EXTRA: x} for (p, k), (ts, n, x) in batch.items()],
            fields_of(self.model.has_extra),
        )
        storage = FaultyStorage(Faults(at, when))
        with open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet):
            run_child(lambda: open_table(self.path, storage, options=self.options).upsert(frame))
        self.table = self.reopened()
        if rows_of(self.table) != before.rows:
            self.model.upsert(batch)
        instants = self.active_commits()
        known = {name for name, _ in self.model.commits}
        new = [name for name in instants if name not in known and name > max(known, default="")]
        self.model.done(new[0] if new else None)
        self.model.cleaned = True

    @precondition(lambda self: self.version == 8)
    @rule(key=st.uuids(), partition=st.sampled_from(PARTITIONS), n=st.integers(-3, 9))
    def foreign_commit(self, key: uuid.UUID, partition: str, n: int) -> None:
        """A writer that knows of ``files`` alone drops the other indexes, as Java does, and adds a file."""
        self.count("foreign_commit")
        # It shares our lock, so what died is undone before it starts: here by a write of ours that finds nothing to do.
        self.table.delete(self.frame({("a", "nobody"): (0, 0, None)}, ("id", "p")))
        row = (5, n, None)
        instant = plain_commit(self.path, partition, f"f{key.hex[:6]}", row, fields_of(self.model.has_extra))
        self.model.rows[(partition, f"f{key.hex[:6]}")] = row
        self.model.done(instant)


def plain_commit(path: Path, partition: str, key: str, row: Row, schema: pa.Schema) -> str:
    """One commit of a writer that keeps ``files`` up and nothing else; written without lakedex's write path."""
    storage, folder = LocalStorage(), f"p={partition}"
    table = Table.open(path)
    snapshot = table.snapshot()
    clock = InstantClock(snapshot.config.timezone)
    instant = clock.next(max(snapshot.timeline.last_time, snapshot.metadata.timeline.last_time))
    dropped = snapshot.config.metadata_partitions - {"files"}
    if dropped and snapshot.uses_metadata:
        update_table_config(TableFiles(storage, str(path)), {"hoodie.table.metadata.partitions": "files"})
        for name in dropped:
            storage.delete_tree(f"{path}/.hoodie/metadata/{name}")
        snapshot = Table.open(path).snapshot()
    line = snapshot.timeline
    inflight = create_inflight(line, create_requested(line, instant, "commit"))
    file_id = f"{uuid.uuid4()}-0"
    name = f"{file_id}_0-0-0_{instant}.parquet"
    size = _plain_file(path / folder, name, folder, instant, {"id": key, "p": partition, "row": row}, schema)
    if snapshot.uses_metadata:
        updates = {
            "files": [
                (files_key(folder), files_record({name: size})),
                (ALL_PARTITIONS, all_partitions_record([folder])),
            ]
        }
        floor = snapshot.metadata.timeline.last_time
        write_delta_commit(
            snapshot.metadata,
            instant,
            updates,
            lambda: clock.next(max(floor, instant)),
            lambda fn, items: [fn(i) for i in items],
        )
    stat = WriteStat(
        file_id=file_id, path=f"{folder}/{name}", partition_path=folder, file_size=size, num_writes=1, num_inserts=1
    )
    import json

    avro = json.dumps(arrow_to_avro(schema, snapshot.config.name))
    body = CommitMetadata(operation="INSERT", write_stats={folder: (stat,)}, extra={"schema": avro})
    complete(line, inflight, clock.next(max(line.last_time, instant)), encode_commit_metadata(body, line.layout))
    return instant


def _plain_file(
    folder: Path, name: str, partition: str, instant: str, values: Mapping[str, Any], schema: pa.Schema
) -> int:
    key, row = values["id"], values["row"]
    folder.mkdir(exist_ok=True)
    if not (folder / ".hoodie_partition_metadata").exists():
        (folder / ".hoodie_partition_metadata").write_text(f"commitTime={instant}\npartitionDepth=1\n")
    meta = dict(zip(META_COLUMNS, [instant, f"{instant}_0_0", key, partition, name], strict=True))
    full = pa.schema([*((column, pa.string()) for column in META_COLUMNS), *schema])
    own = {"id": key, "p": values["p"], "ts": row[0], "n": row[1], EXTRA: row[2]}
    bloom = BloomBuilder(num_entries=10, fpp=1e-9, type_code="SIMPLE", max_entries=10)
    bloom.add(pa.array([key]))
    with pq.ParquetWriter(folder / name, full) as writer:
        writer.write_table(pa.Table.from_pylist([{**meta, **own}], full))
        writer.add_key_value_metadata(
            {
                "org.apache.hudi.bloomfilter": bloom.finish().encode().decode(),
                "hoodie_bloom_filter_type_code": "SIMPLE",
                "hoodie_min_record_key": key,
                "hoodie_max_record_key": key,
            }
        )
    return (folder / name).stat().st_size


class MovingLife(Life):
    """A life of a table whose keys are unique over all partitions."""

    global_index = True

    @rule(batch=BATCHES)
    def archive(self, batch: Rows) -> None:
        """Short lives take this step often, and rows have to move in them."""
        self.upsert(batch)
        self.count("archive")
        self.table.maintenance.archive()


class FoldingLife(Life):
    """A life of a table with a bitmap index, most steps of which change what was folded."""

    def create_table(self) -> Table:
        table = super().create_table()
        table.indexes.create("bitmap", ["n", "p"], name="by_n")
        return table

    @rule(batch=BATCHES)
    def index(self, batch: Rows) -> None:
        """The index stays, and short lives undo commits often."""
        self.upsert(batch)
        self.rollback()

    @invariant()
    def manifest_lists_what_is_there(self) -> None:
        if hasattr(self, "table"):
            found = list_runs(TableFiles(LocalStorage(), str(self.path)))
            assert set(found.manifest.runs) <= {run.name for run in found.runs}
