"""Apache Hudi tables from PySpark, without a jar.

``from lakedex import Table, configure_spark``. Names are loaded when they are first used, so ``import lakedex`` is
quick and needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakedex._version import __version__

if TYPE_CHECKING:
    from lakedex.table.catalogs import configure_spark, register_catalog
    from lakedex.table.table import Table

__all__ = ["Table", "__version__", "configure_spark", "register_catalog"]

_HOMES = {
    "Table": "lakedex.table.table",
    "configure_spark": "lakedex.table.catalogs",
    "register_catalog": "lakedex.table.catalogs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lakedex' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
