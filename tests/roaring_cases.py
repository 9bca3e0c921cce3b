"""Sets of row positions that need each kind of container, by name; what Java writes for them is in ``tests/golden``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["GOLDEN", "cases", "golden"]

GOLDEN = Path(__file__).parent / "golden" / "bitmap" / "roaring.json"
"""Name → hex of what ``org.roaringbitmap.RoaringBitmap`` writes after ``runOptimize``; see test_roaring_java."""


def cases() -> dict[str, npt.NDArray[np.uint32]]:
    """The sets."""

    def span(start: int, end: int, step: int = 1) -> npt.NDArray[np.uint32]:
        return np.arange(start, end, step, dtype=np.uint64).astype(np.uint32)

    rng = np.random.default_rng(92)
    return {
        "empty": span(0, 0),
        "zero": span(0, 1),
        "largest": np.array([2**32 - 1], np.uint32),
        "both ends": np.array([0, 2**31 - 1, 2**31, 2**32 - 1], np.uint32),
        "issue 367 of RoaringBitmap": np.array([3, 4, 100], np.uint32),
        "array": span(0, 4000, 7),
        "largest array": span(0, 8192, 2),
        "bitset": span(0, 30_000, 3),
        "run": span(10, 50_000),
        "full container": span(0, 65_536),
        "run over containers": span(65_000, 200_000),
        "runs and arrays, three containers": np.concatenate([span(5, 900), span(70_000, 70_300, 5), span(140_000, 150_000)]),
        "all kinds, five containers": np.concatenate(
            [span(5, 900), span(65_536, 131_000, 3), span(131_072, 131_500, 9), span(262_144, 327_680), span(400_000, 400_001)]
        ),
        "no runs, twenty containers": span(0, 1_300_000, 1009),
        "random": np.sort(rng.choice(500_000, 20_000, replace=False)).astype(np.uint32),
    }  # fmt: skip


def golden() -> dict[str, bytes]:
    """What Java writes, by name."""
    return {name: bytes.fromhex(text) for name, text in json.loads(GOLDEN.read_text()).items()}
