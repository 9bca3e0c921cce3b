"""Test storages and tables: checks of a storage, storages that count, wait and fail, strategies, and a model test.

``from lakedex.testing import StorageTests``. Names are loaded when they are first used: the storages need no other
package, the rest needs ``pip install 'lakedex[testing]'``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakedex.errors import MissingDependencyError

if TYPE_CHECKING:
    from lakedex.testing.storage_tests import StorageTests
    from lakedex.testing.storages import (
        CountingStorage,
        Faults,
        FaultyStorage,
        LatencyStorage,
        StorageWrapper,
        create_table,
        open_table,
    )
    from lakedex.testing.store_model import FaultSchedule, ModelClock, StoreModel, StoreRequest
    from lakedex.testing.strategies import frames, predicates, schemas
    from lakedex.testing.table_machine import TableMachine

__all__ = [
    "CountingStorage",
    "FaultSchedule",
    "Faults",
    "FaultyStorage",
    "LatencyStorage",
    "ModelClock",
    "StorageTests",
    "StorageWrapper",
    "StoreModel",
    "StoreRequest",
    "TableMachine",
    "create_table",
    "frames",
    "open_table",
    "predicates",
    "schemas",
]

_EXPORTS = {
    "storage_tests": ("StorageTests",),
    "storages": (
        "CountingStorage",
        "Faults",
        "FaultyStorage",
        "LatencyStorage",
        "StorageWrapper",
        "create_table",
        "open_table",
    ),
    "store_model": ("FaultSchedule", "ModelClock", "StoreModel", "StoreRequest"),
    "strategies": ("frames", "predicates", "schemas"),
    "table_machine": ("TableMachine",),
}

_HOMES = {name: f"{__name__}.{module}" for module, names in _EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(_loaded(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("hypothesis", "pytest"):
            raise
        raise MissingDependencyError(
            f"{__name__}.{name} needs {error.name}: pip install 'lakedex[testing]'", extra="testing"
        ) from error


def _loaded(module: str) -> Any:
    pytest = sys.modules.get("pytest")
    if pytest is not None and module not in sys.modules:
        # Failed assertions then show their values, as those of the caller's own tests do.
        pytest.register_assert_rewrite(module)
    return import_module(module)


def __dir__() -> list[str]:
    return sorted(__all__)
