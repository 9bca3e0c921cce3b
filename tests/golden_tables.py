"""Tables that real Hudi wrote, unpacked for a test.

They are from the test data of apache/hudi-rs (Apache License 2.0), but for ``java_0_15``: Hudi 0.15.0 made that one for
these tests, with all of its indexes and two compactions of its metadata table; and ``mor_v9_wide``, of 302 columns, by
Hudi 1.2.0.
"""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

TABLES = Path(__file__).parent / "golden" / "tables"
VERSION_6 = sorted(path.stem for path in TABLES.glob("v6_*.zip"))
VERSION_8 = sorted(path.stem for path in TABLES.glob("v8_*.zip"))
VERSION_9 = sorted(path.stem for path in TABLES.glob("v9_*.zip"))
INDEXED_6 = "java_0_15"
ALL = sorted(path.stem for path in TABLES.glob("*.zip"))
MERGE_ON_READ = sorted(path.stem for path in TABLES.glob("mor_*.zip"))


def unpack(name: str, target: Path) -> Path:
    """The table's folder."""
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        archive.extractall(target)
    (found,) = (path for path in target.iterdir() if not path.name.startswith("__"))
    return found


def unpack_java_1_2(name: str, target: Path) -> Path:
    """The folder of a table that Hudi 1.2.0 made for these tests; what Java read in it lies beside it as JSON."""
    with tarfile.open(TABLES.parent / "hudi_1_2" / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / "table"


def read_by_java(table: Path) -> list[dict[str, Any]]:
    """Rows of a table of :func:`unpack_java_1_2`, as Hudi 1.2.0 read them."""
    rows: list[dict[str, Any]] = json.loads((table.parent / "expected.json").read_text())
    return rows
