"""What the judges' tests ask of a table over and over: everybody sees the same rows, under every filter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from compare import assert_same_rows
from java_judge import READ_PLAIN, READ_SKIPPING, JavaJudge
from rust_judge import RustJudge

from lakedex import Table

OWN_FILE = {"hoodie.parquet.small.file.limit": "0"}
"""Every insert opens a new file group, on both sides."""

ONE_FIELD_COMPLEX = {"hoodie.write.complex.keygen.validation.enable": "false"}
"""Java 1.1.1 refuses COMPLEX tables with one key field, its own too, until it is told that the keys are known."""


def create(path: Path, schema: pa.Schema, **arguments: Any) -> Table:
    """A table called ``t`` as :meth:`JavaJudge.write` calls it: key ``key``, ordering ``ts``, a file for every insert."""
    arguments = {"record_key": "key", "ordering_by": "ts", "options": OWN_FILE, **arguments}
    return Table.create(path, schema, name="t", **arguments)


def own_rows(table: Table | Path) -> pa.Table:
    """All rows as lakedex reads them, without meta columns; the table is opened anew."""
    path = table if isinstance(table, Path) else table.path
    return Table.open(path).to_arrow()


def assert_all_see(
    path: Path,
    java: JavaJudge,
    rust: RustJudge | None = None,
    expected: pa.Table | None = None,
    key: str | Sequence[str] = "key",
) -> pa.Table:
    """lakedex, Java with and without the metadata table, and hudi-rs read the same rows: those ``expected``, if given."""
    ours = own_rows(path)
    if expected is not None:
        assert_same_rows(ours, expected, key)
    assert_same_rows(java.read(path, options=READ_PLAIN), ours, key)
    assert_same_rows(java.read(path, options=READ_SKIPPING), ours, key)
    if rust is not None:
        assert_same_rows(rust.read(path), ours, key)
    return ours


def assert_same_answers(path: Path, java: JavaJudge, filters: Sequence[str], key: str = "key") -> None:
    """Under each filter Java with data skipping and lakedex find what Java finds that reads everything."""
    flags = [f"coalesce({where}, false) as f{number}" for number, where in enumerate(filters)]
    everything = java.read(path, columns=[key, *flags], options=READ_PLAIN)
    skipping = java.matches(path, filters, key, READ_SKIPPING)
    table = Table.open(path)
    wrong: list[str] = []
    for number, where in enumerate(filters):
        right = sorted(everything.filter(everything.column(f"f{number}")).column(key).to_pylist())
        ours = sorted(table.scan(where, [key]).to_arrow().column(key).to_pylist())
        answers = {"Java with data skipping": skipping[number], "lakedex": ours}
        wrong += [
            f"{where}: {who} finds {found} instead of {right}" for who, found in answers.items() if found != right
        ]
    assert not wrong, "\n".join(wrong)


def files_kept(path: Path, where: str) -> int:
    """How many files lakedex would open."""
    return len(Table.open(path).scan(where).plan().files)


def definitions(path: Path) -> dict[str, Any]:
    """The ``column_stats`` entry of ``index.json``."""
    document = json.loads((path / ".hoodie" / ".index_defs" / "index.json").read_text())
    entry: dict[str, Any] = document["indexDefinitions"]["column_stats"]
    return entry


def properties(path: Path) -> dict[str, str]:
    """``hoodie.properties`` as they are."""
    lines = (path / ".hoodie" / "hoodie.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def keyed(keys: Iterable[str], ts: int = 1, value: int = 0, part: str = "a") -> pa.Table:
    """Rows of the schema of most tables here: key ``key``, ordering ``ts``, partition ``part``, and a ``value``."""
    names = list(keys)
    count = len(names)
    return pa.table(
        {
            "key": pa.array(names, pa.string()),
            "ts": pa.array([ts] * count, pa.int64()),
            "part": pa.array([part] * count, pa.string()),
            "value": pa.array([value] * count, pa.int32()),
        }
    )
