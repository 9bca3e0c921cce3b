"""Which files an executed query read: the tests of effect ask this."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

_WRAPPERS = {"AdaptiveSparkPlanExec": "executedPlan", "ReusedSubqueryExec": "child"}
_REUSED = {"ReusedExchangeExec", "InMemoryTableScanExec"}


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _nodes(plan: Any) -> list[Any]:
    name = plan.getClass().getSimpleName()
    if name in _REUSED:
        return [plan]
    if name in _WRAPPERS:
        return _nodes(getattr(plan, _WRAPPERS[name])())
    if name.endswith("QueryStageExec"):
        return _nodes(plan.plan())
    inner = [node for child in _items(plan.children()) for node in _nodes(child)]
    return [plan, *inner, *(node for sub in _items(plan.subqueries()) for node in _nodes(sub))]


def nodes(df: DataFrame, name: str) -> list[Any]:
    """Nodes of the executed plan of one class; run the frame with ``collect`` before."""
    plan = df._jdf.queryExecution().executedPlan()
    return [node for node in _nodes(plan) if node.getClass().getSimpleName() == name]


def folder_of(path: str) -> str:
    """The two last folders of a path, without field names."""
    return "/".join(part.partition("=")[2] or part for part in path.split("/")[-3:-1])


def files_read(df: DataFrame) -> list[set[str]]:
    """Folders of the files that each scan of the frame read."""
    found = []
    for scan in nodes(df, "FileSourceScanExec"):
        partitions = _items(scan.inputRDD().filePartitions())
        paths = [str(file.filePath()) for partition in partitions for file in partition.files()]
        found.append({folder_of(path) for path in paths})
    return found
