"""Nothing that a value holds reaches a terminal but as letters."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import CorruptFileError, LakedexError, error_classes
from lakedex.printing import printable, printed

NASTY = "a\x1b[2Jb\x07c\rd\ne\x9bf\u202eg\u2028h\x7f\ud800"
SHOWN = r"a\x1b[2Jb\x07c\rd\ne\x9bf\u202eg\u2028h\x7f\ud800"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800]")


def test_what_is_escaped() -> None:
    assert printable(NASTY) == SHOWN
    assert printable("Žluťoučký 北京 \\n 🙂 100 %") == "Žluťoučký 北京 \\n 🙂 100 %"
    assert printed(["x", NASTY]) == f"x\n{SHOWN}"


@pytest.mark.parametrize("cls", list(error_classes()), ids=lambda cls: cls.__name__)
def test_errors(cls: type[LakedexError]) -> None:
    """What the field holds stays as it is; what is printed does not."""
    error = CorruptFileError(NASTY, 1, NASTY, NASTY) if cls is CorruptFileError else cls(NASTY)
    for shown in (error, pickle.loads(pickle.dumps(error))):
        assert SHOWN in str(shown)
        assert not CONTROL.search(str(shown)) and "\n" not in str(shown)
    assert NASTY in str(error.args[0])


def test_reports(tmp_path: Path) -> None:
    """A key and a partition of such letters, in everything that is printed of a table."""
    value = NASTY.rstrip("\ud800")
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string())])
    table = Table.create(tmp_path / "t", schema, record_key="id", partition_by="p", ordering_by="ts")
    results: list[object] = [table, table.upsert(pa.table([[value, "k"], [1, 1], [value, "b"]], schema=schema))]
    where = f"id = '{value}'"
    results += [table.scan(where), table.scan(where).explain(analyze=True), table.indexes.advise(queries=[where])]
    for base in tmp_path.rglob("*.parquet"):
        base.write_bytes(base.read_bytes()[:-9])
    results.append(table.maintenance.validate())
    for call in (table.scan().to_arrow, table.scan("`\x1b[2J` = 1").to_arrow):
        with pytest.raises(LakedexError) as caught:
            call()
        results.append(caught.value)
    for shown in results:
        for text in (str(shown), repr(shown)):
            assert not CONTROL.search(text), ascii(text)
