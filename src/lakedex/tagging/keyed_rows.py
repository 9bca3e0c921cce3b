"""Keyed rows: record key, partition path and position of incoming rows, and the policy by which they meet stored rows.

Rows are prepared inside the engine's tasks, over the input exactly once: brought to the table's types, given key and
partition path, and numbered (task, row in the task) before any shuffle, so that "the last of two equal keys" has a
meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.table_paths import is_partition_path
from lakedex.engine import Engine, Frame, SelectColumns, current_task
from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.layout.keys import KeyGenerator, StoredKeys
from lakedex.lossless_cast import StoreAssignment, child_parts
from lakedex.types import MISFIT, RECORD_KEY

__all__ = [
    "ACTION",
    "DELETED_HERE",
    "FILE",
    "GROUP",
    "KEY",
    "KEY_COLUMNS",
    "LOCATED",
    "MOVE",
    "PARTITION",
    "POSITION",
    "SOFT_DELETE",
    "STAYS_HERE",
    "TASK_BITS",
    "Duplicates",
    "Effects",
    "GenerateKeys",
    "MergePolicy",
    "PrepareKeys",
    "PrepareRows",
    "RowAction",
    "SummarizeKeys",
    "assigned",
    "bool_column",
    "check_keys",
    "check_paths",
    "delete_mask",
    "moved_rows",
    "ordering_values",
    "refuse_misfits",
    "require_distinct_keys",
    "require_values",
    "requires_values",
    "rows_of_action",
]


KEY = "__lakedex_key"


PARTITION = "__lakedex_partition"


POSITION = "__lakedex_position"


FILE = "__lakedex_file"


GROUP = "__lakedex_group"


ACTION = "__lakedex_action"


LOCATED = "__lakedex_base_file"


TASK_BITS = 40
"""A position is the number of a task, then this many bits of its row's."""


KEY_COLUMNS = ((KEY, pa.string()), (PARTITION, pa.string()), (POSITION, pa.int64()))


SAMPLE_KEYS = 64
"""Keys that each task samples of each partition, to cut a bulk load into files."""


@dataclass(frozen=True, slots=True)
class PrepareRows:
    """Keyed rows in the table's schema: key (null if invalid), partition path, position, then the table's columns."""

    assignment: StoreAssignment
    keys: KeyGenerator | StoredKeys

    @property
    def schema(self) -> pa.Schema:
        """Key columns, then the table's."""
        return pa.schema([*KEY_COLUMNS, *self.assignment.target])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Prepare one task's rows."""
        for batch, numbers, rows in assigned(self.assignment, batches):
            refuse_misfits(batch, self.assignment.table)
            # Rows that were read from the table carry their keys along; others get them from the table's own types.
            named = batch if isinstance(self.keys, StoredKeys) else rows
            keys, paths = self.keys.keys(named), self.keys.partition_paths(named)
            require_values(rows, self.keys.record_key, self.assignment.table, keys)
            yield pa.RecordBatch.from_arrays([keys, paths, numbers, *rows.columns], schema=self.schema)


@dataclass(frozen=True, slots=True)
class PrepareKeys:
    """Keys alone, for deletes: ``assignment`` has the key fields, and the partition fields if they count.

    Without partition fields the partition path is null: the key is looked for in all partitions.
    """

    assignment: StoreAssignment
    keys: KeyGenerator | StoredKeys
    with_partitions: bool

    @property
    def schema(self) -> pa.Schema:
        """Key columns only."""
        return pa.schema(KEY_COLUMNS)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Prepare one task's rows."""
        for batch, numbers, rows in assigned(self.assignment, batches):
            named = batch if isinstance(self.keys, StoredKeys) else rows
            paths = self.keys.partition_paths(named) if self.with_partitions else pa.nulls(len(numbers), pa.string())
            yield pa.RecordBatch.from_arrays([self.keys.keys(named), paths, numbers], schema=self.schema)


def assigned(
    assignment: StoreAssignment, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.RecordBatch]]:
    """Each batch of a task as it comes, the positions of its rows, and the rows in the types of the table."""
    task = current_task()
    first, where = (0, f" of task {task.partition}") if task.first_row is None else (task.first_row, "")
    seen = 0
    for batch in batches:
        start = (task.partition << TASK_BITS) + seen
        numbers = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
        yield batch, numbers, assignment(batch, first + seen, where)
        seen += batch.num_rows


def refuse_misfits(batch: pa.RecordBatch, table: str) -> None:
    """Refuse rows with a computed value that its column cannot hold.

    Raises:
        SchemaMismatchError: names table, column, type, value and the key of the first such row.
    """
    place = batch.schema.get_field_index(MISFIT)
    if place < 0 or batch.column(place).null_count == batch.num_rows:
        return
    row = pc.index(batch.column(place).is_valid(), True).as_py()
    found = json.loads(batch.column(place)[row].as_py())
    key = batch.column(batch.schema.get_field_index(RECORD_KEY))[row].as_py()
    raise SchemaMismatchError(
        f"table {table}: column {found['column']!r} is {found['expected']}, which cannot hold {found['value']!r}, the "
        f"new value of the row with key {key!r}; cast the expression to a value that fits",
        column=found["column"],
        expected=found["expected"],
        found=found["value"],
    )


def require_values(rows: pa.RecordBatch, record_key: Sequence[str], table: str, keys: pa.Array) -> None:
    """Refuse nulls where the table has none; null keys are counted over all tasks and refused afterwards.

    Raises:
        InvalidInputError: names table, column and the key of a row.
    """
    for declared, column in zip(rows.schema, rows.columns, strict=True):
        found = _null_where_required(column, declared, declared.name, may_lack=declared.name in record_key)
        if found is not None:
            path, row, count = found
            raise InvalidInputError(
                f"table {table}: column {path!r} has {count} nulls in one batch but the table requires values; the "
                f"first is in the row with key {keys[row].as_py()!r}. Fill the column, or filter such rows out",
                column=path,
                count=count,
            )


def _null_where_required(
    column: pa.Array, field: pa.Field[Any], path: str, *, may_lack: bool = False
) -> tuple[str, int, int] | None:
    """A column or field that is null though it is required: its path, the first such row, how many."""
    if not field.nullable and column.null_count and not may_lack:
        return path, pc.index(column.is_null(), True).as_py(), column.null_count
    if not requires_values(field.type):
        return None
    for child, values, row_of in child_parts(column):
        found = _null_where_required(values, child, f"{path}.{child.name}")
        if found is not None:
            return found[0], row_of(found[1]), found[2]
    return None


def requires_values(kind: pa.DataType) -> bool:
    """Whether a field, element or value inside of a type is never null."""
    if pa.types.is_struct(kind):
        return any(not field.nullable or requires_values(field.type) for field in kind)
    if pa.types.is_list(kind):
        return not kind.value_field.nullable or requires_values(kind.value_type)
    return pa.types.is_map(kind) and (not kind.item_field.nullable or requires_values(kind.item_type))


@dataclass(frozen=True, slots=True)
class GenerateKeys:
    """Batch map: rows of a keyless table that have no key yet get ``<instant>_<task>_<row>`` from their position.

    In Hudi: ``AutoRecordGenWrapperKeyGenerator``. Rows are numbered once, when they are staged, so that a task that
    runs again gives the same keys; no two writes have one instant. Stored rows keep their keys.
    """

    instant: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        key, number = self.schema.get_field_index(KEY), self.schema.get_field_index(POSITION)
        for batch in batches:
            position = batch.column(number).to_numpy()
            task, row = (pa.array(part).cast(pa.string()) for part in divmod(position, 1 << TASK_BITS))
            made = pc.binary_join_element_wise(pa.scalar(self.instant), task, row, "_")
            yield batch.set_column(key, self.schema.field(key), pc.coalesce(batch.column(key), made))


@dataclass(frozen=True, slots=True)
class SummarizeKeys:
    """Per task and partition path: rows, rows without a valid key, and some keys; and a key that two rows may have.

    Attributes:
        separators: what begins each part of a composite key but the first.
    """

    separators: tuple[str, ...] = ()
    reads: ClassVar[tuple[str, ...]] = (KEY, PARTITION)

    @property
    def schema(self) -> pa.Schema:
        """One row a partition path."""
        return pa.schema(
            [
                (PARTITION, pa.string()),
                ("rows", pa.int64()),
                ("bad_keys", pa.int64()),
                ("keys", pa.list_(pa.string())),
                ("unclear", pa.string()),
            ]
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Summarise one task's rows."""
        unclear: str | None = None
        rows: dict[str | None, int] = {}
        bad: dict[str | None, int] = {}
        sample: dict[str | None, list[str]] = {}
        for batch in batches:
            keys = batch.column(0)
            for separator in self.separators if unclear is None else ():
                twice = keys.filter(pc.greater(pc.count_substring(keys, separator), 1))
                unclear = twice[0].as_py() if len(twice) else unclear
            found = list(_by_path(batch.column(1)))
            for (path, places), texts in zip(found, _samples(keys, [places for _, places in found]), strict=True):
                rows[path] = rows.get(path, 0) + len(places)
                lacking = keys.take(pa.array(places)).null_count if keys.null_count else 0
                bad[path] = bad.get(path, 0) + lacking
                sample[path] = (sample.get(path, []) + texts)[-4 * SAMPLE_KEYS :]
        paths_seen = list(rows)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(paths_seen, pa.string()),
                pa.array([rows[path] for path in paths_seen], pa.int64()),
                pa.array([bad[path] for path in paths_seen], pa.int64()),
                pa.array([sample[path] for path in paths_seen], pa.list_(pa.string())),
                pa.array([unclear] * len(paths_seen), pa.string()),
            ],
            schema=self.schema,
        )


def _samples(keys: pa.Array, of: Sequence[npt.NDArray[np.int64]]) -> Iterator[list[str]]:
    """Some of the keys at each of several lists of places; all are taken at once, as there may be many lists."""
    picked = [places[:: max(len(places) // SAMPLE_KEYS, 1)] for places in of]
    if not picked:
        return
    texts = keys.take(pa.array(np.concatenate(picked))).to_pylist()
    start = 0
    for places in picked:
        end = start + len(places)
        yield [text for text in texts[start:end] if text is not None]
        start = end


def _by_path(paths: pa.Array) -> Iterator[tuple[str | None, npt.NDArray[np.int64]]]:
    """Each partition path with the places of its rows, ascending."""
    encoded = paths.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy()
    count = len(encoded.dictionary)
    # numpy sorts numbers of 16 bits by radix.
    places = np.argsort(codes.astype(np.uint16) if count <= 1 << 16 else codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=count))
    for path, start, end in zip(encoded.dictionary.to_pylist(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield path, places[start:end]


def check_keys(table_name: str, keys: KeyGenerator | StoredKeys, summary: pa.Table) -> None:
    """Refuse rows without a valid key, unless keys are generated, and keys whose text other values have too.

    Raises:
        InvalidInputError: names the key column and the number of rows, or the key.
    """
    if unclear := pc.min(summary.column("unclear")).as_py():
        raise InvalidInputError(
            f"table {table_name}: a record key would be {unclear!r}, in which a value of {', '.join(keys.record_key)} "
            "looks like two; Hudi could not tell it from the key of another row. Change the value",
            column=", ".join(keys.record_key),
        )
    bad = pc.sum(summary.column("bad_keys")).as_py() or 0
    if bad and keys.record_key:
        fields = ", ".join(keys.record_key)
        raise InvalidInputError(
            f"table {table_name}: {bad} of {pc.sum(summary.column('rows')).as_py()} rows have a null or empty record "
            f"key (column {fields}); filter them out or fill the column",
            column=fields,
            count=bad,
        )


def check_paths(table_name: str, keys: KeyGenerator | StoredKeys, summary: pa.Table) -> None:
    """Refuse rows whose folder no file system can have, or that would lie outside of the table or in its ``.hoodie``.

    Raises:
        InvalidInputError: names the partition columns and the path.
    """
    for path in summary.column(PARTITION).to_pylist():
        if path and not is_partition_path(path):
            fields = ", ".join(keys.partition_by)
            raise InvalidInputError(
                f"table {table_name}: a row's partition path would be {path!r} (partition column {fields}); change the "
                "value, or create the table with hoodie.datasource.write.hive_style_partitioning=true and "
                "hoodie.datasource.write.partitionpath.urlencode=true",
                column=fields,
            )


_KEYS = pa.schema([(KEY, pa.string()), (PARTITION, pa.string())])


def require_distinct_keys(
    engine: Engine, frame: Frame, table: str, record_key: Sequence[str], *, in_table: bool
) -> None:
    """Refuse a frame in which a key comes twice, in one partition or (``in_table``) anywhere.

    Raises:
        InvalidInputError: names one of the keys, and how many rows are too many.
    """
    by_key = engine.exchange(engine.map(frame, SelectColumns(_KEYS)), KEY, 4 * engine.parallelism, (PARTITION,))
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


SOFT_DELETE = "_hoodie_is_deleted"
"""A boolean column of the table whose true rows are deletes (``HoodieRecord.HOODIE_IS_DELETED_FIELD``)."""


MOVE = "__lakedex_move"
"""A column of routed rows under a global index, for those whose own partition is another than that of the file."""


DELETED_HERE = 1
"""The row goes to its own partition and is only deleted here."""


STAYS_HERE = 2
"""The row stays here, with the partition columns of the stored row."""


class RowAction(IntEnum):
    """The action of one row of a ``merge``; in the column ``ACTION`` of its rows."""

    UPDATE = 1
    DELETE = 2
    INSERT = 3
    REPLACE = 4
    """Update all columns: the row may have to move to another partition. Becomes one of the others, or two."""
    MOVE_OUT = 5
    MOVE_IN = 6

    @property
    def is_new(self) -> bool:
        """Whether no row of its key may be stored in its partition."""
        return self in (RowAction.INSERT, RowAction.MOVE_IN)

    @property
    def is_delete(self) -> bool:
        """Whether the stored row goes."""
        return self in (RowAction.DELETE, RowAction.MOVE_OUT)


class Effects(Enum):
    """The effects of the incoming rows of a write."""

    UPSERT = auto()
    """Update the stored row of the same key, or insert; a row marked as deleted (``SOFT_DELETE``) deletes it."""
    INSERT = auto()
    """Are added, whatever is stored."""
    UPDATE = auto()
    """Update the stored row of the same key; rows without one are left out."""
    DELETE = auto()
    """Delete the stored row of the same key."""
    BY_ACTION = auto()
    """Each row has a :class:`RowAction`."""
    NONE = auto()
    """There are no incoming rows."""

    @property
    def inserts(self) -> bool:
        """Whether rows without a stored partner may be inserted."""
        return self in (Effects.UPSERT, Effects.INSERT, Effects.BY_ACTION)

    @property
    def matches(self) -> bool:
        """Whether rows meet the stored rows of their keys."""
        return self not in (Effects.INSERT, Effects.NONE)


class Duplicates(Enum):
    """The fate of rows with one key in a batch, and of rows to insert whose key was looked up and is stored."""

    ALLOW = auto()
    DROP = auto()
    """The newest row of the batch counts; a row to insert whose key is stored is left out."""
    FAIL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """How incoming rows meet stored rows.

    Attributes:
        effects: what they do.
        duplicates: what becomes of several rows with one key. For ``BY_ACTION``, ``ALLOW`` lets several delete one row.
        ordering: the ordering fields, compared one after the other; without any the incoming row wins.
        partition_columns: columns that a row keeps when it stays in a partition that is not its own.
    """

    effects: Effects
    duplicates: Duplicates = Duplicates.DROP
    ordering: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()


def delete_mask(rows: pa.RecordBatch, effects: Effects) -> npt.NDArray[np.bool_]:
    """Which incoming rows are deletes."""
    if effects is Effects.DELETE:
        return np.ones(rows.num_rows, bool)
    position = rows.schema.get_field_index(SOFT_DELETE)
    if position >= 0 and pa.types.is_boolean(rows.schema.field(position).type):
        found = np.asarray(rows.column(position).fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
    else:
        found = np.zeros(rows.num_rows, bool)
    if effects is Effects.BY_ACTION:
        found = found | rows_of_action(rows, [action for action in RowAction if action.is_delete])
    return found


def rows_of_action(rows: pa.RecordBatch, actions: Sequence[RowAction]) -> npt.NDArray[np.bool_]:
    """A mask of the rows to which a merge gives one of some actions."""
    found = rows.column(rows.schema.get_field_index(ACTION)).to_numpy(zero_copy_only=False)
    return np.isin(found, [int(action) for action in actions])


def moved_rows(rows: pa.RecordBatch) -> npt.NDArray[np.int8]:
    """How a global index moves each row: 0 (not), ``DELETED_HERE`` or ``STAYS_HERE``."""
    position = rows.schema.get_field_index(MOVE)
    if position < 0:
        return np.zeros(rows.num_rows, np.int8)
    return np.asarray(rows.column(position).fill_null(0).to_numpy(), dtype=np.int8)


def comparable(column: pa.Array) -> pa.Array:
    """An ordering column whose plain comparison is Java's.

    ``Double.compareTo`` has -0.0 before 0.0 and NaN after infinity, so floats become the integers that sort alike.
    """
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    places = np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)
    return pa.array(places, mask=column.is_null().to_numpy(zero_copy_only=False))


def bool_column(array: pa.Array) -> npt.NDArray[np.bool_]:
    """A boolean column as a numpy mask; nulls are false."""
    return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def ordering_values(rows: pa.RecordBatch, ordering: Sequence[str]) -> list[pa.Array]:
    """The ordering columns; none where the rows lack them, as keys of deletes do."""
    places = [rows.schema.get_field_index(name) for name in ordering]
    return [] if min(places, default=-1) < 0 else [comparable(rows.column(place)) for place in places]


def precombine_rows(rows: pa.RecordBatch, ordering: Sequence[str]) -> pa.RecordBatch:
    """One row a key: the largest ordering values, then the last position. Rows stay in the order of their positions."""
    if rows.num_rows < 2:
        return rows
    keys = rows.column(rows.schema.get_field_index(KEY))
    codes = pc.dictionary_encode(keys).indices
    if pc.max(codes).as_py() + 1 == rows.num_rows:
        return rows
    columns = {"code": codes}
    for number, values in enumerate(ordering_values(rows, ordering)):
        # A null ordering value is older than any.
        columns |= {f"known{number}": values.is_valid(), f"ordering{number}": values}
    columns["position"] = rows.column(rows.schema.get_field_index(POSITION))
    places = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns]).to_numpy()
    sorted_codes = codes.to_numpy()[places]
    last = np.append(sorted_codes[1:] != sorted_codes[:-1], True)
    return rows.take(pa.array(np.sort(places[last])))
