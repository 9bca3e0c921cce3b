"""What runs by itself after a write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.maintenance import schedule as after_write
from lakedex.options import parse_options
from lakedex.snapshot.snapshot import TableContext


def test_one_look_tells_all_services_what_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small write does not pay for four snapshots; after a service that did something the next one looks again."""
    table = Table.create(tmp_path / "t", record_key="key")
    table.upsert(pa.table({"key": ["a"]}))
    looks: list[str] = []
    snapshot = TableContext.snapshot

    def seen(self: TableContext, *args: object, **names: object) -> object:
        looks.append("look")
        return snapshot(self, *args, **names)  # type: ignore[arg-type]

    monkeypatch.setattr(TableContext, "snapshot", seen)
    assert after_write.run_services(table.context, parse_options({})) == []
    assert looks == ["look"]
    looks.clear()
    services = list(after_write.SERVICES)
    services.insert(1, ("a service", lambda handle, options, now: ["did it"]))
    monkeypatch.setattr(after_write, "SERVICES", tuple(services))
    assert after_write.run_services(table.context, parse_options({})) == ["did it"]
    assert looks == ["look", "look"]
