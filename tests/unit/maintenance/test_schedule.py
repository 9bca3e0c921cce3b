"""What runs by itself after a write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from lakedex import Table
from lakedex.maintenance.schedule import run_services
from lakedex.options import WriteOptions, parse_options
from lakedex.snapshot.snapshot import Snapshot, TableContext


def test_services_share_a_snapshot_until_one_does_something(tmp_path: Path) -> None:
    """The write's own snapshot tells all services what is due; after one that did something they see the table anew."""
    table = Table.create(tmp_path / "t", record_key="key")
    table.upsert(pa.table({"key": ["a"]}))
    seen: list[Snapshot] = []

    def service(does: Callable[[], list[str] | None]) -> Callable[..., list[str] | None]:
        def run(context: TableContext, options: WriteOptions, now: Snapshot) -> list[str] | None:
            seen.append(now)
            return does()

        return run

    def write() -> list[str]:
        table.upsert(pa.table({"key": ["b"]}))
        return ["did it"]

    def fail() -> None:
        raise OSError("no disk")

    before = table.context.snapshot()
    steps: list[Callable[[], list[str] | None]] = [lambda: None, write, lambda: None, fail, lambda: None]
    services = [(f"service {number}", service(step)) for number, step in enumerate(steps)]
    notes = run_services(table.context, parse_options({}), before, services)
    assert notes == ["did it", "service 3 after the write failed, the next write tries again (no disk)"]
    assert seen[0] is seen[1] is before
    assert len(seen[2].timeline.completed()) == len(before.timeline.completed()) + 1
    assert seen[2] is seen[3] is seen[4], "nothing moved"


def test_nothing_is_due_after_a_small_write(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="key")
    table.upsert(pa.table({"key": ["a"]}))
    assert run_services(table.context, parse_options({}), table.context.snapshot()) == []
