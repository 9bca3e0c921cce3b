"""The program as a process: what it imports, consent on a terminal; and what its calls do."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.cli import main
from lakedex.cli.output import aligned, json_text, plain_rows
from table_kit import make, own, picture, rows

SOURCE = Path(__file__).parents[3] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}


def process(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=timeout, check=False
    )


@pytest.mark.parametrize(
    "arguments, never",
    [
        (["--version"], {"pyarrow", "numpy", "pandas", "pyspark"}),
        (["--help"], {"pyarrow", "numpy", "pandas", "pyspark"}),
        (["count", "t"], {"pyspark", "py4j"}),
    ],
)
def test_it_imports_little(arguments: list[str], never: set[str], tmp_path: Path) -> None:
    """What makes it quick to start; the seconds are a figure of ``benchmarks/command.py``."""
    make(tmp_path / "t", rows(("a", "x", 1, 1)))
    script = "import sys; from lakedex.cli import main; main(sys.argv[1:]); print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = process("-c", script, *[str(tmp_path / "t") if one == "t" else one for one in arguments])
    imported = set(json.loads(done.stdout.splitlines()[-1].replace("'", '"')))
    assert "typer" in imported and not imported & never


def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    assert main(["show", "x"]) == 2
    assert capsys.readouterr().err == 'lakedex: the command line needs typer: pip install "lakedex[cli]"\n'


def everything(keyboard: int) -> str:
    """What a terminal has shown when its last process has left."""
    shown = b""
    with contextlib.suppress(OSError):
        while part := os.read(keyboard, 4096):
            shown += part
    os.close(keyboard)
    return shown.decode()


BUSY = """
import logging, threading
from lakedex.cli.command import Meter
with Meter(patience=0).running("first step") as meter:
    next(thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)).join()
    meter(3, 8)
    logging.getLogger("lakedex.progress").info("second step")
"""


def on_terminal(arguments: list[str], typed: str = "") -> tuple[int, str, str]:
    """Exit code, standard output, and the screen of a terminal that is standard input and error."""
    keyboard, terminal = pty.openpty()
    os.write(keyboard, typed.encode())
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env={**ENVIRONMENT, "COLUMNS": "120"},
    )
    os.close(terminal)
    with ThreadPoolExecutor() as threads:
        screen = threads.submit(everything, keyboard)
        out, _ = child.communicate(timeout=60)
        return child.returncode, out, screen.result()


def test_progress_shows_on_a_terminal_and_nowhere_else() -> None:
    code, _, screen = on_terminal(["-c", BUSY])
    assert code == 0
    assert "first step" in screen and "second step" in screen and "3/8" in screen
    done = process("-c", BUSY.replace("    next(", "    0 and next("))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("answer, code, left", [("n", 0, ["a", "b"]), ("y", 0, ["a"])])
def test_on_a_terminal_it_asks(answer: str, code: int, left: list[str], tmp_path: Path) -> None:
    table = make(tmp_path / "t", rows(("a", "x", 1, 1), ("b", "x", 1, 2)))
    arguments = ["-m", "lakedex", "delete", str(tmp_path / "t"), "--where", "n = 2"]
    found, out, shown = on_terminal(arguments, f"{answer}\n")
    assert found == code
    assert "would delete 1 row of the table t, in 1 file at most. Do it? [y/N]" in shown
    assert ("1 row deleted" in out) == (answer == "y")
    assert [row[0] for row in own(table, "id")] == left


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    make(tmp_path / "t", rows(*((f"k{n:05d}", "x", 1, n) for n in range(20_000))))
    command = f"set -o pipefail; {sys.executable} -m lakedex query {tmp_path / 't'} --limit 20000 | head -2"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 2, "")


def test_debug_shows_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path), "--debug"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback") and lines[-1].startswith("lakedex: ")


# --------------------------------------------------------------------------------------------------- repair, validate


def test_findings_are_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A data file that storage lost is beyond repair; a metadata table that lists too much is not."""
    path = tmp_path / "t"
    table = make(path, rows(("a", "x", 1, 1), ("b", "y", 1, 2)), partition_by="city")
    table.indexes.create("bitmap", ["n"], name="by_n")
    kept = table.inspect.files()
    table.upsert(rows(("a", "x", 2, 7)))
    old = path / kept["partition"][0].as_py() / kept["file_name"][0].as_py()
    old.unlink()
    assert main(["validate", str(path)]) == 1
    out = capsys.readouterr().out
    assert "file gone " in out and "1 finding; " in out and f"fix: lakedex repair {path}" in out
    before = picture(path)
    assert main(["repair", str(path), "--dry-run"]) == 1
    assert capsys.readouterr().out == "would rebuild the metadata table\n"
    assert picture(path) == before
    assert main(["repair", str(path), "--yes", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["steps"], done["left"], done["dry_run"]) == (["rebuild the metadata table"], [], False)
    assert main(["validate", str(path)]) == 0


def test_a_stale_index_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    table = make(path, rows(("a", "x", 1, 1), ("b", "y", 1, 2)), partition_by="city")
    table.indexes.create("bitmap", ["n"], name="by_n", partitions=["city=x"])
    assert main(["validate", str(path)]) == 1
    out = capsys.readouterr().out
    assert "index stale     by_n: 1 of 2 files not covered" in out
    assert f"fix: lakedex index refresh {path} by_n" in out
    assert main(["repair", str(path), "--yes"]) == 0
    assert "refresh the index by_n" in capsys.readouterr().out
    assert main(["validate", str(path)]) == 0


# ---------------------------------------------------------------------------------------------------- files in and out


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "arrow"])
def test_rows_go_out_and_come_back(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text has no types of its own: it takes those of the table."""
    schema = pa.schema(
        [("id", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2))]
    )
    data = pa.table(
        {
            "id": ["007", "008"],
            "day": [datetime.date(2024, 2, 29), None],
            "at": [datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None],
            "price": [Decimal("1.50"), None],
        },
        schema,
    )
    make(tmp_path / "t", data)
    file = str(tmp_path / f"rows.{suffix}")
    assert main(["query", str(tmp_path / "t"), "-o", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": file, "rows": 2, "size": os.path.getsize(file)}
    copy = Table.create(tmp_path / "copy", schema, record_key="id")
    assert main(["load", str(tmp_path / "copy"), file, "--yes"]) == 0, capsys.readouterr().err
    assert own(copy) == own(Table.open(tmp_path / "t"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", f"rows.{suffix}", "t"]


@pytest.mark.parametrize("line", ["id,d\na,{}\n", '{{"id": "a", "d": "{}"}}\n'])
def test_decimals_of_text_files_are_exact(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arrow wraps what does not fit after scaling."""
    table = Table.create(
        tmp_path / "t", pa.schema([("id", pa.string()), ("d", pa.decimal128(38, 15))]), record_key="id"
    )
    file = tmp_path / ("rows.csv" if line.startswith("id") else "rows.json")
    file.write_text(line.format("12345678901234567890123.123456789012345"))
    assert main(["load", str(tmp_path / "t"), str(file), "--yes"]) == 0, capsys.readouterr().err
    assert own(table, "d") == [(Decimal("12345678901234567890123.123456789012345"),)]
    for text in ("123456789012345678901234567890123.12345", "1.0000000000000001", "x"):
        file.write_text(line.format(text))
        assert main(["load", str(tmp_path / "t"), str(file), "--yes"]) == 2
        assert file.name in capsys.readouterr().err


def test_files_of_one_load_are_put_together(tmp_path: Path) -> None:
    """A column that one file lacks is null there; none is left out."""
    pq.write_table(pa.table({"id": ["a"], "n": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": ["b"], "m": ["x"]}), tmp_path / "2.parquet")
    files = [str(tmp_path / name) for name in ("1.parquet", "2.parquet")]
    assert main(["load", str(tmp_path / "t"), *files, "--create", "--key", "id", "--yes"]) == 0
    assert own(Table.open(tmp_path / "t"), "id", "n", "m") == [("a", 1, None), ("b", None, "x")]


def test_a_load_that_fails_names_the_file_and_the_new_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows are checked when the table is there already."""
    (tmp_path / "rows.csv").write_text("id,n\na,1\n,2\n")
    (tmp_path / "odd.csv").write_text("id,n\na,1\nb,two\n")
    path = str(tmp_path / "t")
    assert main(["load", path, str(tmp_path / "rows.csv"), "--create", "--key", "id", "--yes"]) == 2
    err = capsys.readouterr().err
    assert "null or empty record key" in err and "t is empty: load without --create" in err and err.count("\n") == 1
    assert main(["load", path, str(tmp_path / "odd.csv"), "--yes"]) == 2
    assert "odd.csv: " in capsys.readouterr().err
    assert Table.open(path).scan().count() == 0


def test_an_export_that_fails_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "t", pa.table({"id": ["a"], "tags": [["x"]]}))
    assert main(["query", str(tmp_path / "t"), "-o", str(tmp_path / "rows.csv")]) == 2
    assert "lakedex: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_report_is_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "t", rows(("a", "x", 1, 1)))
    page = tmp_path / "r.html"
    (tmp_path / "log.sql").write_text("n > 0\n")
    assert main(["report", str(tmp_path / "t"), "-o", str(page), "--queries", str(tmp_path / "log.sql")]) == 0
    assert "n &gt; 0" in page.read_text("utf-8")
    assert str(page) in capsys.readouterr().out
    assert main(["report", str(tmp_path / "t"), "-o", str(tmp_path / "nosuch" / "r.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_storage_url_is_taken_as_a_path_is(capsys: pytest.CaptureFixture[str]) -> None:
    path = "memory://cli/trips"
    assert main(["demo", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["table"] == path
    assert main(["delete", path, "--where", "city = 'Lyon'", "--yes"]) == 0
    assert main(["validate", path]) == 0
    capsys.readouterr()
    assert main(["count", path, "--json"]) == 0
    left = json.loads(capsys.readouterr().out)["rows"]
    assert 0 < left < 20_000
    assert left == Table.open(path).scan().count()


def test_the_demo_prints_a_line_a_week(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "trips")
    assert main(["demo", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:5]] == [f"week {n}" for n in range(1, 6)]
    assert lines[lines.index("try next") + 1] == f"  lakedex show {path}"
    assert Table.open(path).scan().count() == 20_000


# ---------------------------------------------------------------------------------------------------------------- text


ODD = pa.table(
    {
        "text": ["a\x1b[31m\nb", "\u202eевро", None],
        "bytes": [b"\x00\xff", b"", None],
        "float": [1.5, float("nan"), float("-inf")],
        "at": pa.array([316_516_000_000, 0, None], pa.timestamp("s")),
        "nested": [{"d": datetime.date(2024, 1, 2), "l": [Decimal("1.5")]}, None, None],
        "map": pa.array([[("k", datetime.datetime(2024, 1, 2))], [], None], pa.map_(pa.string(), pa.timestamp("us"))),
    }
)


def test_json_is_ascii_and_has_every_value() -> None:
    text = json_text(ODD)
    assert text.isascii() and "\x1b" not in text
    first, second, third = json.loads(text)
    assert (first["text"], first["bytes"], second["float"], third["float"]) == ("a\x1b[31m\nb", "AP8=", "nan", "-inf")
    assert first["nested"] == {"d": "2024-01-02", "l": ["1.5"]}
    assert first["map"] == [["k", "2024-01-02 00:00:00.000000"]]
    assert third["text"] is None and third["map"] is None
    assert first["at"].startswith("11999-")
    assert plain_rows(ODD.slice(0, 0)) == []


def test_text_is_one_line_a_row() -> None:
    lines = aligned(ODD.select(["text", "float"])).splitlines()
    assert len(lines) == 4
    assert "\\x1b[31m\\nb" in lines[1] and "\\u202e" in lines[2]
    assert lines[3].split() == ["–", "-inf"]
