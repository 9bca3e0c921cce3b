"""From a predicate to the files that may hold matching rows: partition values, column stats, bloom filters.

Candidates are all base files of the snapshot; each stage removes only what it can prove empty of matching rows.
Absent, partial or untrusted entries keep the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.stats_value import stats_supported
from lakedex.expr import ColumnBounds, columns_of, equality_values, prune, terms_used, to_sql
from lakedex.expr.nodes import Column, Predicate
from lakedex.index.bloom_filters import load_filters
from lakedex.index.column_stats import bounds_of_files
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.partition_path import partition_values
from lakedex.layout.value_text import value_text
from lakedex.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import PruneStage, ScanPlan
from lakedex.types import META_COLUMNS, PARTITION_PATH, RECORD_KEY

__all__ = ["plan_scan", "read_columns"]

Mask = npt.NDArray[np.bool_]

_TYPED_PATHS = frozenset({"SIMPLE", "COMPLEX", "SIMPLE_AVRO", "COMPLEX_AVRO"})
"""Key generators whose partition folders hold the column's own value; others format it."""


def read_columns(schema: pa.Schema) -> pa.Schema:
    """Columns that reading a table gives: Hudi's meta columns, then the table's."""
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])


def plan_scan(snapshot: Snapshot, predicate: Predicate | None, *, skipping: bool = True) -> ScanPlan:
    """Choose the files of a scan.

    Args:
        snapshot: the table, pinned to an instant.
        predicate: from :func:`lakedex.expr.parse_predicate`; None for all rows.
        skipping: False keeps all files.
    """
    started = time.perf_counter()
    slices = snapshot.slices()
    # What a base file's index entries say, its slice's log files may change.
    bases = [item.base_file for item in slices if item.base_file is not None and not item.log_files]
    pruner = _Pruner(snapshot, bases)
    if predicate is not None and skipping:
        pruner.by_partition(predicate)
        pruner.by_column_stats(predicate)
        pruner.by_bloom_filters(predicate)
    elif predicate is not None:
        pruner.unused.append("all indexes: skipping is off")
    kept = set(pruner.files)
    return ScanPlan(
        table=snapshot.config.name,
        instant=snapshot.instant,
        where=None if predicate is None else to_sql(predicate),
        files_total=len(slices),
        bytes_total=sum(item.size for item in slices),
        slices=tuple(item for item in slices if item.log_files or item.base_file in kept),
        stages=tuple(pruner.stages),
        unused=tuple(pruner.unused),
        seconds=time.perf_counter() - started,
    )


@dataclass(slots=True)
class _Pruner:
    """The files left, and what each stage did."""

    snapshot: Snapshot
    files: list[BaseFile]
    stages: list[PruneStage] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def _apply(self, name: str, decide: Callable[[], tuple[Mask, tuple[str, ...], str]]) -> None:
        counted, started = self.snapshot.storage.counted, time.perf_counter()
        before = counted.copy()
        keep, terms, note = decide()
        kept = [base for base, wanted in zip(self.files, keep, strict=True) if wanted]
        read = counted - before
        self.stages.append(
            PruneStage(
                name=name,
                before=len(self.files),
                after=len(kept),
                bytes_before=sum(base.size for base in self.files),
                bytes_after=sum(base.size for base in kept),
                requests=read.requests,
                bytes_read=read.bytes_read,
                seconds=time.perf_counter() - started,
                terms=terms,
                note=note,
            )
        )
        self.files = kept

    def by_partition(self, predicate: Predicate) -> None:
        """Prune by the values in the partition paths, compared as values of the column's type."""
        config = self.snapshot.config
        fields = {*config.partition_fields, PARTITION_PATH}
        used = _terms_on(predicate, lambda column: column.name in fields)
        if not used or not self.files or not config.partition_fields:
            return
        if config.key_generator.upper() not in _TYPED_PATHS:
            self.unused.append(f"partition: folders of the key generator {config.key_generator} are formatted text")
            return
        self._apply("partition", lambda: (self._partition_mask(predicate), used, ""))

    def _partition_mask(self, predicate: Predicate) -> Mask:
        config, schema = self.snapshot.config, self.snapshot.schema
        fields = [name for name in config.partition_fields if name in schema.names]
        paths = sorted({base.partition for base in self.files})
        if len(fields) != len(config.partition_fields):
            fields = []
        values, known = partition_values(paths, fields, [schema.field(name).type for name in fields])
        columns = {name: (array, mask) for name, array, mask in zip(fields, values, known, strict=True)}
        columns[PARTITION_PATH] = (pa.array(paths, pa.string()), np.ones(len(paths), bool))

        def bounds(column: Column) -> ColumnBounds | None:
            found = columns.get(column.name)
            if found is None:
                return None
            array, mask = found
            counts = np.where(mask, 0, -1).astype(np.int64)
            return ColumnBounds(array, array, counts, np.full(len(paths), -1, np.int64))

        kept = {path for path, keep in zip(paths, prune(predicate, bounds, len(paths)), strict=True) if keep}
        return np.array([base.partition in kept for base in self.files], dtype=bool)

    def by_column_stats(self, predicate: Predicate) -> None:
        """Prune by bounds and null counts of each column."""
        store = self.snapshot.metadata
        asked = columns_of(predicate)
        if not asked or not self.files:
            return
        if not store.has(COLUMN_STATS.name):
            self.unused.append("column_stats: not in the table's metadata")
            return
        columns = [column for column in asked if column.name in {*self.snapshot.schema.names, *META_COLUMNS}]
        self.unused += [
            f"column_stats({column.name}): nested columns are not indexed" for column in asked if column not in columns
        ]
        schema = read_columns(self.snapshot.schema)
        supported = [column.name for column in columns if stats_supported(schema.field(column.name).type)]
        self.unused += [
            f"column_stats({column.name}): type {schema.field(column.name).type} is not indexed"
            for column in columns
            if column.name not in supported
        ]
        if supported:
            self._apply("column_stats", lambda: self._stats_mask(predicate, supported))

    def _stats_mask(self, predicate: Predicate, indexed: Sequence[str]) -> tuple[Mask, tuple[str, ...], str]:
        schema = read_columns(self.snapshot.schema)
        found = bounds_of_files(self.snapshot.metadata, self.files, {name: schema.field(name).type for name in indexed})
        columns = {}
        for name, bounds in found.items():
            if (bounds.row_count < 0).all():
                self.unused.append(f"column_stats({name}): no entry that can be trusted")
            else:
                columns[name] = ColumnBounds(bounds.minimum, bounds.maximum, bounds.null_count, bounds.row_count)
        used = _terms_on(predicate, lambda column: column.name in columns)
        if not columns:
            return np.ones(len(self.files), bool), (), "no entries"
        keep = prune(predicate, lambda column: columns.get(column.name), len(self.files))
        unknown = int(np.logical_or.reduce([found[name].row_count < 0 for name in columns]).sum())
        return keep, used, f"not known for {unknown} files" if unknown else ""

    def by_bloom_filters(self, predicate: Predicate) -> None:
        """Prune by the filters of the record key, where the predicate ties the key to some values."""
        keys = self._key_values(predicate)
        if keys is None or not self.files:
            return
        store = self.snapshot.metadata
        if not store.has(BLOOM_FILTERS.name):
            self.unused.append("bloom_filters: not in the table's metadata")
            return
        column, values = keys
        term = f"{column} = {values[0].as_py()!r}" if len(values) == 1 else f"{column} IN ({len(values)} values)"
        self._apply("bloom_filters", lambda: self._bloom_mask(values, term))

    def _key_values(self, predicate: Predicate) -> tuple[str, pa.Array] | None:
        """The record-key texts that a matching row can have."""
        config, schema = self.snapshot.config, self.snapshot.schema
        candidates = [RECORD_KEY]
        single = len(config.record_key_fields) == 1 and not config.key_generator.startswith("COMPLEX")
        if single and config.record_key_fields[0] in schema.names:
            candidates.append(config.record_key_fields[0])
        for name in candidates:
            values = equality_values(predicate, name)
            if values is None:
                continue
            kind = pa.string() if name == RECORD_KEY else schema.field(name).type
            # Equal floats have several texts (0.0 and -0.0, a float that became a double).
            if pa.types.is_floating(kind):
                continue
            physical = pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
            texts = value_text(pa.array(values, physical).cast(kind))
            return name, texts.filter(pc.not_equal(texts, ""))
        return None

    def _bloom_mask(self, keys: pa.Array, term: str) -> tuple[Mask, tuple[str, ...], str]:
        keep = np.ones(len(self.files), bool)
        places = {(base.partition, base.name): place for place, base in enumerate(self.files)}
        by_partition: dict[str, list[str]] = {}
        for base in self.files:
            by_partition.setdefault(base.partition, []).append(base.name)
        missing = len(self.files)
        for partition, names in by_partition.items():
            for name, bloom in load_filters(self.snapshot.metadata, partition, names):
                missing -= 1
                keep[places[(partition, name)]] = bool(bloom.probe(keys).any()) if len(keys) else False
        return keep, (term,), f"no filter for {missing} files, kept" if missing else ""


def _terms_on(predicate: Predicate, wanted: Callable[[Column], bool]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(text for column, texts in terms_used(predicate).items() if wanted(column) for text in texts)
    )
