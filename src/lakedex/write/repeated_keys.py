"""Keys that come several times in one frame, for ``hoodie.datasource.insert.dup.policy=fail``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.engine import Engine, Frame
from lakedex.errors import InvalidInputError
from lakedex.write.prepare import KEY, PARTITION

__all__ = ["require_distinct_keys"]

_KEYS = pa.schema([(KEY, pa.string()), (PARTITION, pa.string())])


def require_distinct_keys(
    engine: Engine, frame: Frame, table: str, record_key: Sequence[str], *, in_table: bool
) -> None:
    """Refuse a frame in which a key comes twice, in one partition or (``in_table``) anywhere.

    Raises:
        InvalidInputError: names one of the keys, and how many rows are too many.
    """
    by_key = engine.exchange(engine.map(frame, _Keys()), KEY, 4 * engine.parallelism, (PARTITION,))
    found = engine.collect(engine.map(by_key, _Repeats(in_table)))
    if found.num_rows:
        count, key = pc.sum(found.column("rows")).as_py(), found.column(KEY)[0].as_py()
        raise InvalidInputError(
            f"table {table}: {count} rows of the frame repeat a record key, for example {key!r}; leave one row of "
            "each key in it, use upsert, or hoodie.datasource.insert.dup.policy=drop",
            column=", ".join(record_key),
            count=count,
        )


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of prepared rows."""

    schema: pa.Schema = field(default=_KEYS)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select([KEY, PARTITION])


@dataclass(frozen=True, slots=True)
class _Repeats:
    """Of rows sorted by key and partition those that repeat the one before, counted once a task. Memory: one batch."""

    in_table: bool
    schema: pa.Schema = field(default=pa.schema([(KEY, pa.string()), ("rows", pa.int64())]))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last, key, rows = None, None, 0
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch if last is None else pa.concat_batches([last, batch])])
            last = batch.slice(batch.num_rows - 1)
            names = [KEY] if self.in_table else [KEY, PARTITION]
            pairs = [(table.column(name).slice(1), table.column(name).slice(0, table.num_rows - 1)) for name in names]
            same = pc.equal(*pairs[0])
            for after, before in pairs[1:]:
                same = pc.and_(same, pc.equal(after, before))
            repeated = pairs[0][0].filter(same)
            rows += len(repeated)
            key = repeated[0].as_py() if key is None and len(repeated) else key
        if rows:
            yield pa.RecordBatch.from_arrays([pa.array([key]), pa.array([rows], pa.int64())], schema=self.schema)
