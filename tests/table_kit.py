"""Small helpers of tests that write tables with the local engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakedex import Table
from lakedex.types import META_COLUMNS

ROWS = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("n", pa.int32())])
"""Schema of most tables here: key ``id``, partition ``city``, ordering ``ts``."""

OWN_FILE = {"hoodie.parquet.small.file.limit": "0"}
"""Every insert opens new file groups."""


def rows(*values: tuple[Any, ...], schema: pa.Schema = ROWS) -> pa.Table:
    """Rows given as tuples."""
    columns = zip(*values, strict=True) if values else [[] for _ in schema]
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def make(path: Path, data: pa.Table | None = None, **arguments: Any) -> Table:
    """A table keyed by ``id``, with ``data`` upserted into it."""
    table = Table.create(path, **{"record_key": "id", **arguments})
    if data is not None:
        table.upsert(data)
    return table


def own(table: Table | pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """Rows of a table without meta columns (or only some columns), sorted."""
    read = table.scan(meta_columns=True).to_arrow() if isinstance(table, Table) else table
    wanted = names or [name for name in read.schema.names if name not in META_COLUMNS]
    columns = [read.column(name).to_pylist() for name in wanted]
    return sorted(zip(*columns, strict=True), key=repr)


def picture(path: Path) -> dict[str, bytes | None]:
    """Every file of a folder with its bytes, and every subfolder."""
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}


def set_properties(path: Path, changes: Mapping[str, str]) -> None:
    """Change ``hoodie.properties`` behind the table's back."""
    file = path / ".hoodie" / "hoodie.properties"
    lines = [line for line in file.read_text().splitlines() if line.split("=")[0] not in changes]
    file.write_text("\n".join([*lines, *(f"{k}={v}" for k, v in changes.items())]) + "\n")


def properties(path: Path) -> dict[str, str]:
    """``hoodie.properties`` as they are."""
    text = (path / ".hoodie" / "hoodie.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def complete_later(path: Path, instant: str, moment: str) -> None:
    """Let a commit of a table of version 8 or 9 have completed at another moment, as one that took longer does."""
    (file,) = (path / ".hoodie" / "timeline").glob(f"{instant}_*")
    file.rename(file.with_name(f"{instant}_{moment}{file.suffix}"))


def base_files(path: Path) -> list[str]:
    """Paths of all base files below a table's folder, hidden folders left out."""
    found: Iterable[Path] = path.rglob("*.parquet")
    return sorted(str(p.relative_to(path)) for p in found if ".hoodie" not in p.parts)
