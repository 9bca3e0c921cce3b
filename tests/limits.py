"""Limits of the library at which a few rows behave as many do."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


class Limits:
    """``limits(tagging, GATHER_ROWS=0)`` sets public constants of a module until the test ends.

    A module may be given by its name, where the limit is none of its public names.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, module: ModuleType | str, **values: float) -> None:
        place = importlib.import_module(module) if isinstance(module, str) else module
        for name, value in values.items():
            assert name.isupper() and isinstance(getattr(place, name), int | float), f"{name} is no limit"
            self._monkeypatch.setattr(place, name, value)
