"""How a table shows itself: a card of its facts."""

from __future__ import annotations

from html import escape

from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.metadata.snapshot import Snapshot
from lakedex.printing import printed
from lakedex.types import size_text

__all__ = ["table_card", "table_html"]


def _facts(snapshot: Snapshot, engine: str) -> list[tuple[str, str]]:
    config = snapshot.config
    bases = snapshot.base_files()
    return [
        ("table", config.name),
        ("path", snapshot.base_path),
        ("type", f"{config.table_type}, version {config.version}"),
        ("record key", ", ".join(config.record_key_fields) or "–"),
        ("partition by", ", ".join(config.partition_fields) or "–"),
        ("ordering by", ", ".join(config.ordering_fields) or "–"),
        ("indexes", ", ".join([*sorted(config.metadata_partitions - {"files"}), *_bitmaps(snapshot)]) or "none"),
        ("commits", f"{len(snapshot.timeline.completed())}, newest {snapshot.instant or '–'}"),
        ("files", f"{len(bases)}, {size_text(sum(base.size for base in bases))}"),
        (
            "columns",
            f"{len(snapshot.schema)}: {', '.join(snapshot.schema.names[:8])}{' …' if len(snapshot.schema) > 8 else ''}",
        ),
        ("engine", engine),
    ]


def _bitmaps(snapshot: Snapshot) -> list[str]:
    try:
        found = read_bitmap_definitions(snapshot.storage, snapshot.base_path)
    except CorruptFileError:
        return ["bitmap indexes (damaged definitions)"]
    return [f"{name} (bitmap: {', '.join(index.columns)})" for name, index in sorted(found.items())]


def table_card(snapshot: Snapshot, engine: str) -> str:
    """The facts as aligned text."""
    return printed(f"{name:<13} {value}" for name, value in _facts(snapshot, engine))


def table_html(snapshot: Snapshot, engine: str) -> str:
    """The facts as an HTML table."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in _facts(snapshot, engine)
    )
    return f"<table>{rows}</table>"
