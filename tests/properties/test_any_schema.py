"""Any table that can be made: rows come back as they were, and no index changes an answer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.testing import frames, predicates, schemas
from lakedex.testing.values import leaves
from skipping_kit import FOR_SPARK

# No shrinking: each example writes a table.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
EXAMPLES = settings(
    max_examples=max(settings.default.max_examples // 10, 10),
    deadline=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)


def shown(rows: pa.Table) -> dict[str, str]:
    """Columns in order of the keys, as text: NaN is not equal to itself, and days may lie beyond those of Python."""
    rows, found = rows.sort_by("id"), {}
    for name, kind in leaves(rows.schema):
        head, *path = name.split(".")
        column = rows.column(head).combine_chunks()
        column = pc.struct_field(column, path) if path else column
        column = column.is_null() if pa.types.is_struct(kind) else column
        found[name] = column.to_string(window=99, container_window=99)
    return found


@EXAMPLES
@given(st.data())
def test_any_schema(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    first = data.draw(frames(schema))
    second = data.draw(frames(schema, keys=12))
    with tempfile.TemporaryDirectory() as folder:
        table = Table.create(Path(folder) / "t", schema, record_key="id")
        table.insert(first, options={"hoodie.parquet.small.file.limit": "0"})
        assert shown(table.scan(columns=schema.names).to_arrow()) == shown(first)
        assert table.upsert(second).inserted + table.scan().count() >= len(second)
        for sql in [data.draw(predicates(schema, first)), data.draw(predicates(schema))]:
            try:
                right = table.scan(sql, use_indexes=False).to_arrow()
            except (InvalidInputError, UnsupportedFeatureError) as error:
                assert FOR_SPARK.search(str(error)), f"{sql}: {error}"  # noqa: PT017
                continue
            assert shown(table.scan(sql).to_arrow()) == shown(right), sql
