"""How much of the library one call enters: modules and calls are counted, time is not."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import lakedex
from lakedex import Table
from table_kit import OWN_FILE, make, rows

ROOT = f"{Path(lakedex.__file__).parent}/"


class CallCounter:
    """Counts calls of the library's own functions while it is entered, in this thread and in those that begin then."""

    def __init__(self) -> None:
        self._calls: Counter[CodeType] = Counter()

    def __enter__(self) -> CallCounter:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT) and frame.f_code.co_name != "<module>":
            self._calls[frame.f_code] += 1

    @property
    def modules(self) -> set[str]:
        """Modules entered, ``codec/`` left out."""
        found = {code.co_filename.removeprefix(ROOT).removesuffix(".py").replace("/", ".") for code in self._calls}
        return {name for name in found if not name.startswith("codec.")}

    def calls(self, name: str) -> int:
        """Calls of the functions and methods of a qualified name."""
        return sum(count for code, count in self._calls.items() if code.co_qualname == name)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three commits with its default indexes."""
    folder: Path = tmp_path_factory.mktemp("paths") / "t"
    table = make(folder, partition_by="city", ordering_by="ts", options=OWN_FILE)
    for commit in range(3):
        ids = range(300 * commit, 300 * commit + 300)
        table.upsert(rows(*((f"{i:04}", "ab"[i % 2], i, i % 7) for i in ids)))
    return folder


WHERE = "ts < 100 AND n = 3"


def test_a_scan(path: Path) -> None:
    """Of two terms: with nothing cached but what opening reads, and once more."""
    Table.open(path).scan("n = 1").to_arrow()
    table = Table.open(path)
    for modules, columns_of in ((53, 2), (45, 0)):
        with CallCounter() as seen:
            assert table.scan(WHERE).to_arrow().num_rows == 14
        assert len(seen.modules) <= modules, "\n".join(sorted(seen.modules))
        assert seen.calls("columns_of") <= columns_of


def test_an_upsert(tmp_path: Path) -> None:
    """Of two rows: a look at what is known of the table and under each lock, and no service that is not due."""
    table = make(tmp_path / "t", partition_by="city", ordering_by="ts")
    for ids in (range(1000), range(2), range(2)):
        table.upsert(rows(*((f"{i:04}", "ab"[i % 2], i, i % 7) for i in ids)))
    with CallCounter() as seen:
        assert table.upsert(rows(("0005", "b", 9, 1), ("0006", "a", 9, 1))).updated == 2
    assert seen.calls("Snapshot.load") == 0
    assert seen.calls("Snapshot.refreshed") == 2
    assert seen.calls("Timeline.load") + seen.calls("Timeline.reload") == 5, "the table's, and both twice"
    assert seen.calls("LocalStorage.list") <= 26
    assert sum(seen.calls(f"LocalStorage.{name}") for name in ("read", "read_ranges", "open_input")) <= 34
    assert len(seen.modules) <= 81, "\n".join(sorted(seen.modules))
