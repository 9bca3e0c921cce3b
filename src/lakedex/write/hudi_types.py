"""Columns of types that Hudi has beside Spark's (VECTOR, BLOB, VARIANT): read as what they hold, and never written.

A commit of lakedex would say in its schema that a vector is a list of numbers, and Hudi's files hold bytes.
"""

from __future__ import annotations

from lakedex.errors import UnsupportedFeatureError
from lakedex.metadata.snapshot import Snapshot

__all__ = ["require_plain_types"]


def require_plain_types(snapshot: Snapshot) -> None:
    """Refuse to write a table with a column of such a type.

    Raises:
        UnsupportedFeatureError: names the table, the column and its type.
    """
    for column, kind in snapshot.hudi_types.items():
        raise UnsupportedFeatureError(
            f"table '{snapshot.config.name}': column {column!r} is a {kind} of Hudi's, which lakedex does not write; "
            "reading works; write the table with Hudi",
            feature=f"{kind} columns",
        )
