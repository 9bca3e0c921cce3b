"""Modules of ``tools/`` for the tests of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).resolve().parent.parent / "tools"


def loaded(name: str) -> ModuleType:
    """A module of ``tools/``, which is no package: its modules import each other by plain names."""
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(TOOLS))
