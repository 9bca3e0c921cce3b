"""Apache Hudi tables from PySpark, without a jar.

``from lakedex import Table, configure_spark``. Names are loaded when they are first used, so ``import lakedex`` is
quick and needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakedex._version import __version__
from lakedex.errors import __all__ as _error_names

if TYPE_CHECKING:
    from lakedex.display.result_table import ResultTable
    from lakedex.errors import *
    from lakedex.expr.columns import ColumnExpression, Condition, col
    from lakedex.io.probe import FolderProbe, probe_folder
    from lakedex.maintenance.clean import CleanResult
    from lakedex.maintenance.recovery import RestoreResult
    from lakedex.maintenance.repair import RepairResult
    from lakedex.maintenance.rollback import RollbackResult
    from lakedex.maintenance.schedule import ArchivalResult, CompactionResult
    from lakedex.reports import (
        ColumnIndexStats,
        Difference,
        IndexResult,
        IndexStats,
        RebuildResult,
        Report,
        TableReport,
        TaggingReport,
        ValidationReport,
        WriteResult,
    )
    from lakedex.scan.aggregate_pushdown import AggregatePlan
    from lakedex.scan.analyze import AnalyzedPlan
    from lakedex.scan.index_advisor import Advice, ColumnAdvice
    from lakedex.scan.plan import PruneStage, ScanPlan
    from lakedex.scan.scan import FileScanTask, Scan
    from lakedex.table.catalogs import configure_spark, register_catalog
    from lakedex.table.indexes import Indexes
    from lakedex.table.inspect import Inspect
    from lakedex.table.maintenance import Maintenance
    from lakedex.table.merge_builder import MergeBuilder
    from lakedex.table.table import Table
    from lakedex.write.erase import EraseProof, EraseReport

__all__ = [
    "Advice",
    "AggregatePlan",
    "AnalyzedPlan",
    "ArchivalResult",
    "CleanResult",
    "ColumnAdvice",
    "ColumnExpression",
    "ColumnIndexStats",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "CompactionResult",
    "Condition",
    "CorruptFileError",
    "Difference",
    "EraseProof",
    "EraseReport",
    "FileGoneError",
    "FileScanTask",
    "FileTakenError",
    "FolderProbe",
    "FormatError",
    "IndexExistsError",
    "IndexInconsistentError",
    "IndexNotFoundError",
    "IndexResult",
    "IndexStats",
    "Indexes",
    "IndexingError",
    "Inspect",
    "InvalidInputError",
    "LakedexError",
    "LockTimeoutError",
    "Maintenance",
    "MergeBuilder",
    "MissingDependencyError",
    "MissingEngineError",
    "OptionError",
    "PruneStage",
    "RebuildResult",
    "RepairResult",
    "Report",
    "RestoreResult",
    "ResultTable",
    "RollbackResult",
    "Scan",
    "ScanPlan",
    "SchemaMismatchError",
    "StorageError",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "TableReport",
    "TaggingReport",
    "UnsupportedFeatureError",
    "ValidationReport",
    "WriteResult",
    "__version__",
    "col",
    "configure_spark",
    "probe_folder",
    "register_catalog",
]

_EXPORTS = {
    "display.result_table": ("ResultTable",),
    "expr.columns": ("ColumnExpression", "Condition", "col"),
    "io.probe": ("FolderProbe", "probe_folder"),
    "maintenance.clean": ("CleanResult",),
    "maintenance.recovery": ("RestoreResult",),
    "maintenance.repair": ("RepairResult",),
    "maintenance.rollback": ("RollbackResult",),
    "maintenance.schedule": ("ArchivalResult", "CompactionResult"),
    "reports": (
        "ColumnIndexStats",
        "Difference",
        "IndexResult",
        "IndexStats",
        "RebuildResult",
        "Report",
        "TableReport",
        "TaggingReport",
        "ValidationReport",
        "WriteResult",
    ),
    "scan.aggregate_pushdown": ("AggregatePlan",),
    "scan.analyze": ("AnalyzedPlan",),
    "scan.index_advisor": ("Advice", "ColumnAdvice"),
    "scan.plan": ("PruneStage", "ScanPlan"),
    "scan.scan": ("FileScanTask", "Scan"),
    "table.catalogs": ("configure_spark", "register_catalog"),
    "table.indexes": ("Indexes",),
    "table.inspect": ("Inspect",),
    "table.maintenance": ("Maintenance",),
    "table.merge_builder": ("MergeBuilder",),
    "table.table": ("Table",),
    "write.erase": ("EraseProof", "EraseReport"),
}

_HOMES = {name: f"lakedex.{module}" for module, names in _EXPORTS.items() for name in names}
_HOMES |= {name: "lakedex.errors" for name in _error_names if name.endswith("Error")}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lakedex' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
