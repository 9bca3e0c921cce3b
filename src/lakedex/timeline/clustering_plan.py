"""Encode and decode clustering plans: HoodieRequestedReplaceMetadata with a HoodieClusteringPlan, in both layouts.

Java 1.1 names files by full URIs, later releases log files by their names. Of a path only the name counts here, below
the partition that the plan gives, so a plan survives that its table moves and never leaves the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lakedex.codec.avro import write_container
from lakedex.codec.table_paths import check_part, check_partition, file_path, last_part
from lakedex.errors import CorruptFileError
from lakedex.timeline.commit_metadata import fields_of

__all__ = [
    "EXECUTION_STRATEGY",
    "LAYOUT_STRATEGY",
    "SORT_COLUMNS",
    "TARGET_FILE_BYTES",
    "ClusteringGroup",
    "ClusteringPlan",
    "ClusteringSlice",
    "clustering_plan_of_record",
    "encode_clustering_plan",
]


EXECUTION_STRATEGY: Final = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
"""Hudi's class that runs a plan, its default."""


SORT_COLUMNS: Final = "hoodie.clustering.plan.strategy.sort.columns"


LAYOUT_STRATEGY: Final = "hoodie.layout.optimize.strategy"


TARGET_FILE_BYTES: Final = "hoodie.clustering.plan.strategy.target.file.max.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringSlice:
    """One file slice of a plan. File names have no folder; ``base`` is None if there is no base file yet."""

    partition: str
    file_id: str
    base: str | None
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringGroup:
    """Slices of one partition that are rewritten together, into ``outputs`` new file groups."""

    slices: tuple[ClusteringSlice, ...]
    outputs: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan:
    """A plan.

    Attributes:
        groups: the slices to rewrite.
        params: parameters of the strategy: the sort columns, and those that only lakedex reads.
        strategy: Hudi's class that would run it.
    """

    groups: tuple[ClusteringGroup, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    strategy: str = EXECUTION_STRATEGY

    @property
    def slices(self) -> tuple[ClusteringSlice, ...]:
        """The slices of all groups."""
        return tuple(item for group in self.groups for item in group.slices)

    @property
    def file_groups(self) -> frozenset[tuple[str, str]]:
        """Partition and file id of all slices."""
        return frozenset((item.partition, item.file_id) for item in self.slices)


def clustering_plan_of_record(record: Mapping[str, Any], path: str = "") -> ClusteringPlan:
    """Convert the requested body of a clustering.

    Raises:
        CorruptFileError: there is no plan, a field has the wrong type, or a name leaves the table.
    """
    with fields_of("fields of a clustering plan", path):
        plan = record.get("clusteringPlan")
        if plan is None:
            raise CorruptFileError(path, 0, "a clustering plan", "a replace commit without one")
        strategy = plan.get("strategy") or {}
        groups = tuple(_group(entry, path) for entry in plan.get("inputGroups") or ())
        _require_distinct(groups, path)
        return ClusteringPlan(
            groups=groups,
            params={str(key): str(value) for key, value in (strategy.get("strategyParams") or {}).items()},
            strategy=str(strategy.get("strategyClassName") or EXECUTION_STRATEGY),
        )


def _require_distinct(groups: Sequence[ClusteringGroup], path: str) -> None:
    """A file group that came twice would double its rows; one partition's rows belong into no other."""
    slices = [(item.partition, item.file_id) for group in groups for item in group.slices]
    if len(set(slices)) < len(slices):
        raise CorruptFileError(path, 0, "each file group once in a clustering plan", "one that comes twice")
    if any(len({item.partition for item in group.slices}) != 1 for group in groups):
        raise CorruptFileError(path, 0, "groups of slices of one partition in a clustering plan", "another group")


def _group(entry: Mapping[str, Any], path: str) -> ClusteringGroup:
    return ClusteringGroup(
        slices=tuple(_slice(item, path) for item in entry.get("slices") or ()),
        outputs=max(1, int(entry.get("numOutputFileGroups") or 1)),
        metrics=entry.get("metrics") or {},
    )


def _slice(entry: Mapping[str, Any], path: str) -> ClusteringSlice:
    if not entry.get("fileId"):
        raise CorruptFileError(path, 0, "a file id in each slice of a clustering plan", "none")
    if entry.get("bootstrapFilePath"):
        raise CorruptFileError(path, 0, "slices without bootstrap files", str(entry["bootstrapFilePath"])[:80])
    base = entry.get("dataFilePath") or None
    found = ClusteringSlice(
        partition=check_partition(entry.get("partitionPath") or "", path),
        file_id=check_part(entry["fileId"], path),
        base=None if base is None else last_part(base),
        logs=tuple(last_part(name) for name in entry.get("deltaFilePaths") or ()),
    )
    for name in (*found.logs, *(() if found.base is None else (found.base,))):
        file_path(found.partition, name, path)
    return found


def encode_clustering_plan(plan: ClusteringPlan, base_path: str) -> bytes:
    """Encode the requested body of a clustering.

    Base files are named relative to the table, which Java resolves. Log files have absolute paths: Hudi 1.1 looks for
    others in the table's folder (``ClusteringExecutionStrategy``), later releases in that of the partition. Without
    scheme and bucket, which Java takes from the table, since it may know it by ``s3a:``.

    Args:
        plan: The plan.
        base_path: The table's folder.
    """
    folder = re.sub(r"^[A-Za-z][\w+.-]*://[^/]*", "", base_path)
    record = {
        "operationType": "CLUSTER",
        "clusteringPlan": {
            "inputGroups": [
                {
                    "slices": [
                        {
                            "dataFilePath": "" if item.base is None else file_path(item.partition, item.base, ""),
                            "deltaFilePaths": [f"{folder}/{file_path(item.partition, name, '')}" for name in item.logs],
                            "fileId": item.file_id,
                            "partitionPath": item.partition,
                            "bootstrapFilePath": "",
                            "version": 1,
                        }
                        for item in group.slices
                    ],
                    "metrics": dict(group.metrics),
                    "numOutputFileGroups": group.outputs,
                    "extraMetadata": None,
                    "version": 1,
                }
                for group in plan.groups
            ],
            "strategy": {
                "strategyClassName": plan.strategy,
                "strategyParams": dict(plan.params),
                "version": 1,
            },
            "extraMetadata": {},
            "version": 1,
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        },
        "extraMetadata": {},
        "version": 1,
    }
    return write_container("HoodieRequestedReplaceMetadata", record)
