"""Rows of one write in Arrow files of a staging folder: Spark's tasks write them, the commit writes the table once.

For writes that Spark hands to a Python data source, in batch and in a stream. Nothing here needs a SparkSession: a
data source's commit runs in a Python worker beside the driver, which has none. ::

    area = StagingArea.of(files)                      # where the job is planned; makes nothing, and pickles
    file = area.write(batches)                        # in a task; the StagedFile is its commit message, or part of it
    rows = area.read([file, ...], schema)             # at the commit: the files of the attempts that Spark committed
    TableWrite(...).commit(rows, txn=("app", 7))      # one write of the table; lakedex.spark.staged_write
    area.remove()                                     # after the commit and after an abort

An attempt that failed, or that Spark ran twice, leaves a file that no committed message names: it is not read, and goes
with the folder. Folders of jobs that died before they could remove theirs go with :meth:`StagingArea.remove_abandoned`.

Memory: a task holds one batch. The commit maps files of a local disk into memory, so that their pages can be dropped
again; those of a store are read whole.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakedex.errors import CommitError
from lakedex.io.storage import TableFiles
from lakedex.layout.contained_files import require_folders

__all__ = ["StagedFile", "StagingArea"]


_INSIDE = ".hoodie/.temp"


_PREFIX = "lakedex-staged-"


_ABANDONED_MS = 7 * 24 * 60 * 60 * 1000
"""Age of the newest file of a folder whose job is certainly over."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Rows of one task attempt.

    Attributes:
        name: in the staging folder; None where the task had no rows, and wrote no file.
        rows: number of rows.
    """

    name: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class StagingArea:
    """The staging folder of one write; it pickles.

    Attributes:
        files: the table's.
        folder: of the staged files, inside the table's.
    """

    files: TableFiles
    folder: str

    @classmethod
    def of(cls, files: TableFiles) -> StagingArea:
        """A folder of its own for a new write: among the table's temporary files, or where a table is to be made.

        Raises:
            CorruptFileError: the table's folder of temporary files is a link.
        """
        name = f"{_PREFIX}{uuid.uuid4().hex}"
        if not files.storage.exists(files.path(".hoodie")):
            return cls(files, files.path(f".{name}"))
        require_folders(files, [_INSIDE])
        return cls(files, files.path(_INSIDE, name))

    def write(self, batches: Iterable[pa.RecordBatch]) -> StagedFile:
        """Write the rows of a task attempt into a file of their own."""
        rest = (batch for batch in batches if batch.num_rows)
        first = next(rest, None)
        if first is None:
            return StagedFile(None, 0)
        name, rows = f"{uuid.uuid4().hex}.arrow", first.num_rows
        # Uncompressed files of a local disk need no memory of their own when they are read.
        options = pa.ipc.IpcWriteOptions(compression=None if self.files.storage.scheme == "file" else "lz4")
        with (
            self.files.storage.batched(self.folder).open_output(f"{self.folder}/{name}") as sink,
            pa.ipc.new_file(sink, first.schema, options=options) as writer,
        ):
            writer.write_batch(first)
            for batch in rest:
                writer.write_batch(batch)
                rows += batch.num_rows
        return StagedFile(name, rows)

    def read(self, files: Sequence[StagedFile], schema: pa.Schema) -> pa.Table:
        """The rows of some files, in their order; an empty table of ``schema`` where there is none.

        Raises:
            CommitError: a file does not hold what its task wrote.
        """
        tables = [self._read(file.name, file.rows) for file in files if file.name is not None]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def _read(self, name: str, rows: int) -> pa.Table:
        path = f"{self.folder}/{name}"
        try:
            source = pa.memory_map(path) if self.files.storage.scheme == "file" else self.files.storage.open_input(path)
            with source:
                table = pa.ipc.open_file(source).read_all()
        except (pa.ArrowException, OSError) as error:
            raise CommitError(
                f"{path}: staged rows cannot be read ({error}); nothing was written, write again"
            ) from None
        if table.num_rows != rows:
            raise CommitError(
                f"{path}: {table.num_rows} staged rows instead of {rows}; nothing was written, write again"
            )
        return table

    def remove(self) -> None:
        """Remove the folder, and the table's own folder where no table came to be and nothing else is in it."""
        self.files.storage.delete_tree(self.folder)
        if self.folder.startswith(f"{self.files.base_path}/.{_PREFIX}"):
            self.files.storage.remove_empty(self.files.base_path)

    def remove_abandoned(self, now_ms: int | None = None) -> None:
        """Remove folders of jobs that ended without a commit or an abort a week ago or earlier."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        parent = self.folder.rpartition("/")[0]
        for entry in self.files.storage.list(parent):
            folder = f"{parent}/{entry.name}"
            if not entry.is_dir or entry.is_link or not entry.name.lstrip(".").startswith(_PREFIX):
                continue
            files = [file.modified for file in self.files.storage.list(folder)]
            if now - max(files, default=entry.modified) > _ABANDONED_MS:
                self.files.storage.delete_tree(folder)
