"""Names that live files still hold although the table's schema dropped them.

Every Parquet reader matches columns by name. A dropped name that comes back would show the old values again, so it is
refused until the files that hold it are rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakedex.errors import SchemaMismatchError
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.snapshot import Snapshot

__all__ = ["added_paths", "files_holding", "require_unheld", "type_at"]


def type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Type of a column, or of a field inside of structs (``a.b``), whatever the case of its name; None if absent."""
    fields: Sequence[pa.Field] = list(schema)
    found: pa.DataType | None = None
    for name in path.split("."):
        match = next((field for field in fields if field.name.lower() == name.lower()), None)
        if match is None:
            return None
        found = match.type
        fields = list(found) if pa.types.is_struct(found) else []
    return found


def added_paths(before: pa.Schema, after: pa.Schema) -> list[str]:
    """Columns, and fields of structs, that ``after`` has and ``before`` has not. Inside of lists and maps too."""
    return list(_added(list(before), list(after), ""))


def _added(before: Sequence[pa.Field], after: Sequence[pa.Field], prefix: str) -> Iterable[str]:
    known = {field.name: field.type for field in before}
    for field in after:
        path = f"{prefix}{field.name}"
        if field.name not in known:
            yield path
        elif pa.types.is_struct(field.type) and pa.types.is_struct(known[field.name]):
            yield from _added(list(known[field.name]), list(field.type), f"{path}.")


def files_holding(snapshot: Snapshot, path: str) -> list[BaseFile]:
    """Live base files that hold a column, as far as the commits that wrote them say; one look per commit."""
    by_instant: dict[str, bool] = {}
    holding = []
    for base in snapshot.base_files():
        if base.instant not in by_instant:
            by_instant[base.instant] = type_at(snapshot.stored_schema(base), path) is not None
        if by_instant[base.instant]:
            holding.append(base)
    return holding


def require_unheld(snapshot: Snapshot, after: pa.Schema) -> None:
    """Refuse a schema that brings back a name which a live file still holds.

    Raises:
        SchemaMismatchError: names the column, a file and the call that helps.
    """
    if not snapshot.schema.names:
        return
    for path in added_paths(snapshot.schema, after):
        holding = files_holding(snapshot, path)
        if holding:
            raise SchemaMismatchError(
                f"{snapshot.base_path}: column {path!r} was dropped or renamed, and {len(holding)} files still hold it "
                f"(for example {holding[0].relative_path}), so its old values would come back; run "
                "table.rewrite_files() first, or take another name",
                column=path,
                expected="a new name",
                found=f"{path} in {holding[0].name}",
            )
