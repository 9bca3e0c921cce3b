"""Where things are. All that ``./dev`` makes lies in two ignored folders of the project."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CACHE", "ROOT", "VENVS"]

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venv"
CACHE = ROOT / ".cache"
