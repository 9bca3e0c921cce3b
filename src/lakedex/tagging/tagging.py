"""Tagging: the file of each incoming key, in three levels (RFC-37, ``HoodieBloomIndex``, ``HoodieGlobalBloomIndex``).

1. Key ranges of the base files, from ``column_stats`` of ``_hoodie_record_key`` (``tagging/candidates.py``).
2. Bloom filters of the files whose range holds a key, from ``bloom_filters``.
3. The key column of the files that are left.

Candidates are all base files of the touched partitions, or of the table; a level removes only what it can prove. A file
without stats or filter stays. Where the metadata lacks a partition, or is not to be used, footers are read instead and
the report says so: that is Hudi's classic bloom index.

Where the filters are read (``driver_filter_bytes``, F = filters of all candidates):

====================  ==========================================================================================
F within the cap      each task of the keys reads those that its keys need, in batches; for more than
                      ``gather_rows`` rows the driver reads all of them once and hands them to the tasks
F above it            files are put into buckets of half the cap, keys go to the buckets whose files' ranges hold
                      them, and the tasks of a bucket read its filters: each filter once, whatever the keys' tasks
====================  ==========================================================================================
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.engine import Engine, Frame
from lakedex.index.protocol import KeyFilters
from lakedex.index.registry import INDEXES
from lakedex.io.liveness import ProcessIdentity
from lakedex.layout.file_slice import FileSlice
from lakedex.options import TaggingOptions
from lakedex.reports import TaggingReport
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.snapshot import Limits, Snapshot
from lakedex.tagging.candidates import CandidateFile, KeyRanges
from lakedex.tagging.keyed_rows import FILE, KEY, PARTITION
from lakedex.tagging.tasks import (
    BUCKET,
    ChooseFile,
    Counts,
    DropCounts,
    MatchKeys,
    ProbeBuckets,
    ProbeKeys,
    Reports,
    SpreadKeys,
)
from lakedex.types import IoCount, TableType

__all__ = ["TaggedKeys", "tag"]


FOOTER_FILTER_BYTES = 512 * 1024
"""The assumed size of a filter in a footer, unless its file is smaller: Java makes them for 60,000 keys."""


@dataclass(slots=True)
class TaggedKeys:
    """Where keys are.

    Attributes:
        frame: (file number, partition, key), one row per file that holds the key; the row's ordering value after them
            if it was asked for.
        files: the candidates.
        report: what finding them took.
        cached: rows that the engine caches for ``frame``; the caller releases them.
        matched: keys found, by partition.
        holding: numbers of the files that hold a key.
        deleted_in: numbers of the files whose log files have deleted a key that the file still has. Such keys have the
            file's number plus that of all candidates.
    """

    frame: Frame
    files: Sequence[CandidateFile]
    report: TaggingReport
    cached: Frame
    matched: dict[str, int] = field(default_factory=dict)
    holding: set[int] = field(default_factory=set)
    deleted_in: set[int] = field(default_factory=set)


def tag(
    engine: Engine,
    keyed: Frame,
    snapshot: Snapshot,
    files: Sequence[CandidateFile],
    options: TaggingOptions,
    report: TaggingReport,
    limits: Limits,
    *,
    any_partition: bool = False,
    ordering: pa.Field | None = None,
    rows: int = 0,
    with_deleted: bool = False,
) -> TaggedKeys:
    """Find the files of the keys of ``keyed``. A key that log files have deleted is in no file.

    Args:
        engine: runs the stages.
        keyed: prepared rows (key, partition path, …).
        snapshot: the table.
        files: candidates, from ``find_key_ranges``.
        options: which levels to use.
        report: is filled in.
        limits: the table's.
        any_partition: a key is looked for in all partitions, whatever its partition path.
        ordering: column whose stored value comes with each tag.
        rows: how many rows ``keyed`` has, if the caller knows.
        with_deleted: deleted keys come too, those that live nowhere else in their partition once. A new row has to go
            back to the file that still has its key, or Hudi would find two.
    """
    before = snapshot.files.storage.counted.copy()
    offered = (index.key_filters(snapshot) for index in INDEXES) if options.use_metadata else iter(())
    filters = next((found for found in offered if found is not None), None)
    if files and options.use_metadata and filters is None:
        report.notes.append("the table's metadata has no bloom_filters: filters were read from footers")
    probe = _probe(snapshot, files, filters, options, any_partition)
    bases, merging = tuple(file.base for file in files), _merging(snapshot, files)
    match = MatchKeys(snapshot.files, bases, ordering, merging, with_deleted)
    tasks = max(1, min(len(files), 8 * engine.parallelism))
    costs = _filter_bytes(probe, files)
    candidates = engine.exchange(_candidates(engine, keyed, probe, costs, rows, limits), FILE, tasks)
    found = engine.keep(engine.map(candidates, match))
    reports = engine.collect(engine.map(found, Reports()))
    parts: list[Counts] = [pickle.loads(raw) for raw in reports.column(0).to_pylist()]  # noqa: S301 - our own figures
    tags = TaggedKeys(engine.map(found, DropCounts(match.schema)), files, report, found)
    _add_up(tags, parts, snapshot.files.storage.counted - before)
    if tags.deleted_in:
        by_key = engine.exchange(tags.frame, KEY, tasks, (PARTITION, FILE))
        tags.frame = engine.map(by_key, ChooseFile(tags.frame.schema, len(files)))
    return tags


def _merging(
    snapshot: Snapshot, files: Sequence[CandidateFile]
) -> tuple[Mapping[int, FileSlice], MergeSettings] | None:
    """Slices of candidates with log files, by number, and how they are merged."""
    if snapshot.config.table_type != TableType.MERGE_ON_READ or not files:
        return None
    found = snapshot.slices({file.base.partition for file in files})
    with_logs = {(item.partition, item.base_file.name): item for item in found if item.log_files and item.base_file}
    by_number = {
        file.number: with_logs[place] for file in files if (place := (file.base.partition, file.base.name)) in with_logs
    }
    if not by_number:
        return None
    return by_number, MergeSettings.of(snapshot)


def _add_up(tags: TaggedKeys, parts: Sequence[Counts], here: IoCount) -> None:
    """Fill in the report. What tasks of this very process read is in ``here``, which several threads add to."""
    report, process = tags.report, ProcessIdentity.current()
    unfiltered = set().union(*(part.unfiltered for part in parts))
    report.requests += here.requests
    report.bytes_read += here.bytes_read
    for part in parts:
        report.keys_probed += part.keys
        report.pairs_probed += part.pairs
        report.candidates += part.candidates
        report.matches += part.matches
        if not part.opened & unfiltered:
            report.probed_matches += part.matches
            report.probed_in_vain += part.candidates - part.matches
        if part.process != process:
            report.requests += part.requests
            report.bytes_read += part.bytes_read
        if part.matches:
            tags.holding |= part.opened
        tags.deleted_in |= part.deleted_in
        for path, count in part.matched.items():
            tags.matched[path] = tags.matched.get(path, 0) + count
        for level, seconds in part.seconds.items():
            report.seconds[level] = report.seconds.get(level, 0.0) + seconds
    report.files_after_ranges = len(set().union(*(part.after_ranges for part in parts)))
    report.files_after_blooms = len(set().union(*(part.after_blooms for part in parts)))
    report.files_opened = len(set().union(*(part.opened for part in parts)))


# ---------------------------------------------------------------------------------------------- where filters are read
def _probe(
    snapshot: Snapshot,
    files: Sequence[CandidateFile],
    filters: KeyFilters | None,
    options: TaggingOptions,
    any_partition: bool,
) -> ProbeKeys:
    paths = tuple(dict.fromkeys(file.base.partition for file in files))
    number = {path: place for place, path in enumerate(paths)}
    codes = [0 if any_partition else number[file.base.partition] for file in files]
    ranges = KeyRanges(
        np.array(codes, np.int32),
        pa.array([file.low for file in files], pa.string()),
        pa.array([file.high for file in files], pa.string()),
    )
    return ProbeKeys(
        files=snapshot.files,
        partitions=pa.array([file.base.partition for file in files], pa.string()),
        names=pa.array([file.base.name for file in files], pa.string()),
        ranges=ranges if options.prune_by_ranges else ranges.without_bounds(),
        paths=None if any_partition else paths,
        filters=filters,
    )


def _candidates(
    engine: Engine, keyed: Frame, probe: ProbeKeys, costs: npt.NDArray[np.int64], rows: int, limits: Limits
) -> Frame:
    """Pairs of file and key that ranges and filters let through."""
    many = rows > limits.gather_rows
    if costs.sum() <= limits.driver_filter_bytes:
        if many and probe.filters is not None:
            probe = probe.holding(dict(probe.filters.read(probe.located(np.arange(len(probe.ranges))))))
        return engine.map(keyed, probe)
    buckets = _buckets(probe.ranges, costs, max(limits.driver_filter_bytes // 2, 1))
    count = int(buckets.max()) + 1
    # The keys of a bucket are shared out where there are many keys and few buckets.
    splits = max(1, -(-2 * engine.parallelism // count)) if many else 1
    spread = engine.map(keyed, SpreadKeys(probe.ranges, probe.paths, buckets, splits))
    tasks = max(1, min(count * splits, 8 * engine.parallelism))
    return engine.map(engine.exchange(spread, BUCKET, tasks), ProbeBuckets(probe, buckets, splits))


def _filter_bytes(probe: ProbeKeys, files: Sequence[CandidateFile]) -> npt.NDArray[np.int64]:
    """About how many bytes each candidate's filter is, without reading one."""
    if probe.filters is None:
        return np.array([min(file.base.size, FOOTER_FILTER_BYTES) for file in files], np.int64)
    return np.array(probe.filters.costs([(file.base.partition, file.base.name) for file in files]), np.int64)


def _buckets(ranges: KeyRanges, costs: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int32]:
    """A bucket for each file: runs of neighbours in key order whose filters take ``limit`` bytes together."""
    table = pa.table({"code": ranges.codes, "low": ranges.lows})
    order = pc.sort_indices(table, sort_keys=[("code", "ascending"), ("low", "ascending")]).to_numpy()
    buckets = np.empty(len(costs), np.int32)
    buckets[order] = (np.cumsum(costs[order]) - 1) // limit
    return np.unique(buckets, return_inverse=True)[1].astype(np.int32)
