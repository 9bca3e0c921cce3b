"""The matrices of ``docs/compatibility.md``: ``python tools/compatibility_page.py`` writes them there.

They follow from the marks of tests: ``pytest.mark.proves(row)`` for a test with Spark, whose columns are the PySparks
that the legs of ``./dev test`` run it on, from ``since`` on; ``pytest.mark.proves(row, engine, *verbs)`` for a table
that another engine reads, writes or made. Each cell names its tests by their number in the list below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legs import TIERS
from paths import ROOT

__all__ = ["ENGINES", "OPERATIONS", "TABLES", "Proof", "matrices", "page_with_matrices", "proofs"]

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- matrices: written by tools/compatibility_page.py -->\n", "<!-- end of matrices -->\n"
OPERATIONS = (
    "create, write and read by `Table`",
    "`Table.merge`",
    "all types",
    "columns that come later",
    "filters of DataFrames skip files",
    "everyday jobs in SQL and DataFrames",
    "`MERGE`, `UPDATE`, `DELETE` in SQL",
    "merge-on-read tables in SQL and DataFrames",
    "partitions in SQL",
    "procedures: `CALL`",
    "bitmap index in SQL",
    "streams",
    "`format(\"lakedex\")`: read",
    "`format(\"lakedex\")`: write",
)  # fmt: skip
TABLES = tuple(f"version {version}, {kind}" for kind in ("copy-on-write", "merge-on-read") for version in (6, 8, 9))
ENGINES = ("Hudi 0.15.0", "Hudi 1.0", "Hudi 1.1.1", "Hudi 1.2.0", "hudi-rs")
VERBS = ("reads", "writes", "made")
CONNECT = "tests/connect"
PYSPARKS = ("3.5", "4.0", "4.1", "4.3", "4.3 Connect")


@dataclass(frozen=True)
class Proof:
    """A mark of a test.

    Attributes:
        test: file and function.
        row: of a matrix.
        columns: PySparks, or what an engine does.
    """

    test: str
    row: str
    columns: tuple[tuple[str, str], ...]


def proofs() -> list[Proof]:
    """The marks of all tests, in the order of their names."""
    return [proof for path in sorted((ROOT / "tests").rglob("test_*.py")) for proof in _of_file(path)]


def _of_file(path: Path) -> Iterator[Proof]:
    name = str(path.relative_to(ROOT))
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        marks = [ast.unparse(mark).removeprefix("pytest.mark.") for mark in node.decorator_list]
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves":
                row, *rest = [ast.literal_eval(argument) for argument in mark.args]
                since = {keyword.arg: ast.literal_eval(keyword.value) for keyword in mark.keywords}.get("since", 3.5)
                columns = [(rest[0], verb) for verb in rest[1:]] or _pysparks(name, "smoke" in marks, since)
                yield Proof(f"{name}::{node.name}", row, tuple(columns))


def _pysparks(name: str, is_smoke: bool, since: float) -> list[tuple[str, str]]:
    """The PySparks on which a test runs."""
    found = []
    for leg in (leg for round_ in TIERS["all"] for leg in round_):
        folder = next((folder for folder in leg.folders if name.startswith(f"{folder}/")), None)
        version = leg.environment.name.removeprefix("spark")
        version = f"{version[0]}.{version[1:]}"
        if folder is not None and float(version) >= since and (is_smoke or not leg.marks):
            found.append((f"{version} Connect" if folder == CONNECT else version, ""))
    return found


def matrices() -> str:
    """Both matrices and the list of tests."""
    every = proofs()
    numbers = {test: number for number, test in enumerate(dict.fromkeys(proof.test for proof in every), 1)}
    pysparks = [(version, [(version, "")]) for version in PYSPARKS]
    engines = [(engine, [(engine, verb) for verb in VERBS]) for engine in ENGINES]
    spark = _table("operation \\ PySpark", OPERATIONS, pysparks, every, numbers)
    tables = _table("table", TABLES, engines, every, numbers)
    tests = "\n".join(f"| {number} | `{test}` |" for test, number in numbers.items())
    return (
        f"### Operations on each PySpark\n\n{spark}\n\n"
        "### Engines on each table\n\n*reads* and *writes*: what lakedex wrote, in turns with it; *made*: lakedex "
        f"reads what the engine made.\n\n{tables}\n\n### Tests of the matrices\n\n| | test |\n| --- | --- |\n{tests}\n"
    )


def _table(
    corner: str,
    rows: tuple[str, ...],
    columns: list[tuple[str, list[tuple[str, str]]]],
    every: list[Proof],
    numbers: dict[str, int],
) -> str:
    def cell(row: str, keys: list[tuple[str, str]]) -> str:
        parts = []
        for key in keys:
            found = [str(numbers[proof.test]) for proof in every if proof.row == row and key in proof.columns]
            if found:
                parts.append(f"{key[1] or '✓'} {', '.join(found)}")
        return "; ".join(parts) or "–"

    head = f"| {corner} | {' | '.join(name for name, _ in columns)} |\n|{' --- |' * (len(columns) + 1)}"
    return "\n".join([head, *(f"| {row} | {' | '.join(cell(row, keys) for _, keys in columns)} |" for row in rows)])


def page_with_matrices(text: str) -> str:
    """The page with its matrices as the tests have them now."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{matrices()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page_with_matrices(PAGE.read_text("utf-8")), "utf-8")
