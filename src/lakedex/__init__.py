"""Apache Hudi tables from PySpark, without a jar."""

from __future__ import annotations

from lakedex._version import __version__

__all__ = ["__version__"]
