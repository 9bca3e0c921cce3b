"""Each subcommand as people type it: exit code, text, and keys of the JSON document."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import unpack_java_1_2
from lakedex import Table
from lakedex.cli import main
from table_kit import own, picture
from tool_modules import loaded

GOLDEN = Path(__file__).parents[2] / "golden"
HFILE = str(GOLDEN / "hfile" / "small_gz.hfile")
LOG = str(next((GOLDEN / "log").glob("6d3d1d6e-*.log.1_0-26-85")))
WRITTEN = {"instant", "operation", "inserted", "updated", "deleted", "files_written", "bytes_written", "seconds"}
PLAN = {"dry_run", "plan"}
TRIPS = pa.table(
    {
        "id": ["t1", "t2", "t3"],
        "city": ["sf", "oslo", "sf"],
        "rider": ["ana", "bo", "\x1b[31mcy"],
        "fare": [17.5, 9.0, 24.0],
        "ts": [1, 1, 1],
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of three commits, the second of which has a savepoint, and files to load."""
    folder = tmp_path_factory.mktemp("cli")
    table = Table.create(folder / "trips", TRIPS.schema, record_key="id", partition_by="city", ordering_by="ts")
    table.upsert(TRIPS)
    table.upsert(TRIPS.slice(0, 1).set_column(4, "ts", pa.array([2])))
    table.maintenance.savepoint(comment="before")
    table.indexes.create("bitmap", ["rider"], name="by_rider")
    table.upsert(TRIPS.slice(1, 1).set_column(4, "ts", pa.array([3])))
    pq.write_table(TRIPS.slice(0, 2).set_column(4, "ts", pa.array([5, 5])), folder / "more.parquet")
    (folder / "empty.csv").write_text("")
    (folder / "semicolons.csv").write_text("id;city\nt9;rome\n")
    (folder / "latin.csv").write_bytes(b"id,city\nt9,M\xfcnchen\n")
    (folder / "array.json").write_text('[{"id": "t9"}]')
    (folder / "more.csv").write_text("id,city,rider,fare,ts\nt9,rome,dee,1.5,9\n")
    unpack_java_1_2("mor_v6", folder / "unpacked").rename(folder / "mor")
    (folder / "log.sql").write_text(
        "-- a day\nrider = 'ana';\n\nfare > 12\nSELECT * FROM lake.trips t WHERE t.city = 'sf';\n"
    )
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working directory."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


def words(arguments: str, folder: Path) -> list[str]:
    """The arguments, split at spaces (``+`` stands for one inside), with instants and files put in."""
    table = Table.open(folder / "trips")
    commits = table.inspect.history()["commit_time"].to_pylist()
    base = min(folder.glob("trips/city=sf/*.parquet"))
    known = {
        "LAST": commits[0],
        "SAVED": commits[1],
        "FIRST": commits[-1],
        "BASE": str(base),
        "HFILE": HFILE,
        "LOG": LOG,
    }
    return [known.get(word, word.replace("+", " ")) for word in arguments.split()]


LOOKS: list[tuple[str, int, str, set[str]]] = [
    ("show trips", 0, "record key    id", {"name", "path", "record_key", "indexes", "newest_instant", "size"}),
    ("schema trips", 0, "id      string  true      record key", {"column", "type", "nullable", "role", "comment"}),
    ("properties trips", 0, "hoodie.table.name ", {"hoodie.table.name", "hoodie.table.version"}),
    ("partitions trips", 0, "city=oslo ", {"partition", "file_slices", "slices_with_logs", "size"}),
    ("files trips", 0, "city=oslo ", {"partition", "file_name", "file_id", "instant", "size"}),
    ("files trips --where city='sf'", 0, "city=sf ", {"file_name"}),
    ("history trips", 0, "upsert ", {"commit_time", "operation", "total_records_deleted"}),
    ("history trips -n 1 --archived", 0, "when ", {"commit_time", "total_insert_records_written"}),
    ("timeline trips", 0, "savepoint", {"requested", "action", "state", "completed"}),
    ("stats trips --column fare", 0, "17.5", {"column_name", "min_value", "max_value", "null_count"}),
    ("indexes trips", 0, "by_rider ", {"name", "using", "columns", "state", "maintained"}),
    ("query trips", 0, "3 rows", {"id", "city", "rider", "fare", "ts"}),
    ("query trips --columns id,fare --where fare>12 --limit 1", 0, "1 row", {"id", "fare"}),
    ("query trips --meta-columns", 0, "_hoodie_record_key", {"_hoodie_record_key", "id"}),
    ("query trips --as-of FIRST", 0, "3 rows", {"id"}),
    ("count trips --where city='sf'", 0, "2", {"rows"}),
    ("explain trips --where fare>12", 0, "partition_stats", {"files_total", "files_kept", "stages"}),
    ("explain trips --where fare>12 --analyze", 0, "rows: 2 read", {"rows_read", "row_groups"}),
    ("changes trips --since FIRST", 0, "t1 ", {"id", "ts"}),
    ("changes trips --since earliest --until FIRST --columns id --limit 2", 0, "2 rows", {"id"}),
    ("validate trips", 0, "no findings", {"ok", "findings", "differences", "stale_indexes"}),
    ("validate trips --files 1 --no-footers", 0, "no findings", {"ok"}),
    ("advise trips --columns rider,city", 0, "verdict", {"columns", "files_sampled"}),
    ("advise trips --queries log.sql", 0, "rider ", {"columns"}),
    ("savepoint list trips", 0, "before", {"instant", "user", "comment", "files"}),
    ("index stats trips by_rider", 0, "entries", {"name", "entries", "files_covered", "files_uncovered"}),
    ("index validate trips by_rider", 0, "agrees with the data", {"ok", "differences"}),
    ("doctor", 0, "pyarrow ", {"versions", "java", "stores", "folder", "findings", "ok"}),
    ("doctor .", 0, "put-if-absent works, table lock works", {"folder"}),
    ("doctor nosuch", 1, "there is no such folder", {"findings"}),
    ("debug hfile HFILE --entries 1", 0, "key-000000", {"entries", "first_entries", "info"}),
    ("debug log LOG", 0, "DELETE", {"offset", "type", "bytes", "header"}),
    ("debug bloom BASE --key t1", 0, "may_hold_key", {"bits", "hashes", "key", "may_hold_key"}),
    ("debug footer BASE", 0, "_hoodie_record_key", {"rows", "row_groups", "columns", "min_key"}),
]

WRONG: list[tuple[str, str]] = [
    ("nosuch", "No such command 'nosuch'; see lakedex --help"),
    ("show", "Missing argument 'TABLE'; see lakedex show --help"),
    ("show trips --nosuch", "No such option: --nosuch"),
    ("show nosuch", "is no Hudi table"),
    ("query trips --columns farre", "table trips has no column 'farre'; did you mean 'fare'?"),
    ("query trips --where farre>12", "lakedex: table trips has no column 'farre'; did you mean 'fare'?\n"),
    ("count trips --where fare+>", "lakedex: table trips: "),
    ("query trips --as-of 1999-01-01", "no commit at or before 1999-01-01"),
    ("query trips -o rows.xlsx", "give a file that ends with .parquet"),
    ("query trips --limit -1", "Invalid value for '--limit'"),
    ("stats trips --column farre", "did you mean 'fare'?"),
    ("explain trips --html --json", "give one of them"),
    ("show trips --option hoodie.cleen.automatic=true", "did you mean 'hoodie.clean.automatic'?"),
    ("show trips --option x", "--option takes KEY=VALUE"),
    ("changes trips", "Missing option '--since'"),
    ("load trips nosuch.csv --yes", "nosuch.csv: there is no such file"),
    ("load trips trips --yes", "unknown kind of file"),
    ("load trips more.csv --key id --yes", "give --create with it"),
    ("load new more.csv --create --yes", "--create needs --key"),
    ("load trips more.csv --create --key id --yes", "holds a table already"),
    ("load new more.csv --create --key idd --yes", "did you mean 'id'"),
    ("rollback trips FIRST --yes", "commits came after"),
    ("restore trips FIRST --yes", "has no savepoint"),
    ("savepoint delete trips FIRST --yes", "has no savepoint"),
    ("index drop trips nosuch --yes", "has no index 'nosuch'; it has"),
    ("index create trips nosuch --yes", "nosuch"),
    ("clean trips --keep 0 --yes", "from 1 on"),
    ("cluster trips --order-by city --zorder rider --dry-run", "one of the two"),
    ("load new semicolons.csv --create --key id --yes", "semicolons.csv: the columns seem to be separated by ';'"),
    ("load new latin.csv --create --key id --yes", "latin.csv: column 'city' is no text in UTF-8"),
    ("load trips array.json --yes", "array.json: is a JSON array; load takes an object a line"),
    ("load trips empty.csv --yes", "empty.csv: cannot be read as csv: CSV parse error: Empty CSV"),
    ("compact trips --plan-only --yes", "are for log files of merge-on-read tables"),
    ("compact mor --instant 20200101000000000 --yes", "no pending compaction 20200101000000000"),
    ("debug hfile more.csv", "expected an HFile"),
    ("debug footer more.csv", "a readable Parquet file"),
    ("debug bloom more.parquet", "no bloom filter"),
    ("debug log nosuch.log", "there is no such file"),
    ("demo trips", "is a Hudi table already"),
]

CHANGES: list[tuple[str, str, set[str]]] = [
    ("load trips more.parquet", "would upsert 2 rows of 1 file", WRITTEN),
    ("load trips more.csv --mode insert", "would insert 1 row of 1 file", WRITTEN),
    ("load trips more.csv --mode bulk_insert", "would bulk_insert 1 row", WRITTEN),
    ("load trips more.csv --mode overwrite", "would overwrite 1 row", WRITTEN),
    ("load new more.parquet more.csv --create --key id --partition-by city --ordering-by ts",
     "would upsert 3 rows of 2 files, ", WRITTEN),
    ("delete trips --where fare>20", "would delete 1 row of the table trips, in 1 file", WRITTEN),
    ("erase trips --where fare>20", "would erase 1 row", {"rows", "proof", "retained_in"}),
    ("clean trips --keep 1", "would delete 1 file", {"instant", "partitions", "earliest_retained"}),
    ("cluster trips --order-by city", "would rewrite 2 files (", {"instant", "files_after"}),
    ("compact trips", "would merge ", {"instants", "log_files"}),
    ("compact mor", "would merge 2 log files of 2 file groups", {"instants", "log_files", "rows", "bytes_written"}),
    ("compact mor --plan-only", "would plan to merge 2 log files of 2 file groups", {"instants", "planned_only"}),
    ("compact mor --metadata", "of the metadata table of mor_v6", {"instants", "log_files"}),
    ("archive trips --option hoodie.keep.min.commits=2 --option hoodie.keep.max.commits=3", "archive", set()),
    ("rollback trips LAST", "would undo", {"undone", "instant", "latest", "files_deleted"}),
    ("restore trips SAVED", "would undo 1 commit", {"savepoint", "undone"}),
    ("savepoint trips --comment why", "would keep the files of commit", {"instant"}),
    ("savepoint create trips LAST", "would keep the files of commit", {"instant"}),
    ("savepoint delete trips SAVED", "would delete the savepoint", {"deleted"}),
    ("index create trips bitmap --columns city", "would build the index bitmap of city over 2 files", {"name", "files"}),
    ("index drop trips by_rider", "would drop the index by_rider", {"name"}),
    ("index refresh trips by_rider", "would read 0 files", {"name", "files"}),
    ("index validate trips by_rider --repair", "would compare", {"ok"}),
    ("repair trips", "nothing to repair", {"steps", "left", "ok"}),
]  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def keys(document: Any) -> set[str]:
    """Names of a JSON document: of its first object, if it is an array."""
    return set(document[0] if isinstance(document, list) else document)


@pytest.mark.parametrize("arguments, code, text, names", LOOKS, ids=[case[0] for case in LOOKS])
def test_looks(
    arguments: str, code: int, text: str, names: set[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, before = words(arguments, place), picture(place)
    found, out, err = run(capsys, given)
    assert (found, err) == (code, "")
    assert text in out
    assert "\x1b" not in out
    found, out, err = run(capsys, [*given, "--json"])
    assert (found, err) == (code, "")
    assert names <= keys(json.loads(out))
    assert "\x1b" not in out
    assert picture(place) == before


@pytest.mark.parametrize("arguments, message", WRONG, ids=[case[0] for case in WRONG])
def test_wrong_use_is_one_line(arguments: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, before = words(arguments, place), picture(place)
    code, out, err = run(capsys, given)
    assert (code, out) == (2, "")
    assert err.startswith("lakedex: ") and err.count("\n") == 1
    assert message in err
    assert picture(place) == before


@pytest.mark.parametrize("arguments, plan, names", CHANGES, ids=[case[0] for case in CHANGES])
def test_changes_are_planned_then_done(
    arguments: str, plan: str, names: set[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, before = words(arguments, place), picture(place)
    code, out, err = run(capsys, [*given, "--dry-run"])
    assert (code, err) == (0, "") and plan in out
    code, out, err = run(capsys, [*given, "--dry-run", "--json", "--yes"])
    assert (code, err) == (0, "")
    if plan.startswith("would"):
        assert keys(json.loads(out)) >= PLAN and plan in json.loads(out)["plan"]
        code, out, err = run(capsys, given)
        assert (code, out) == (2, "") and plan in err and "give --yes" in err and err.count("\n") == 1
    assert picture(place) == before
    code, out, err = run(capsys, [*given, "--yes", "--json"])
    assert (code, err) == (0, "")
    assert names <= keys(json.loads(out))


VALUES = pa.table(
    {
        "id": ["1", "2", "3"],
        "f": pa.array([1.5, float("nan"), None]),
        "s": [None, "", "NA"],
        "n": pa.array([1, None, 3], pa.int32()),
        "b": pa.array([b"ab", None, b""]),
        "none": pa.array([None] * 3, pa.string()),
    }
)


def test_csv_keeps_values(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Table.create(tmp_path / name, VALUES.schema, record_key="id")
    Table.open(tmp_path / "a").upsert(VALUES)
    assert run(capsys, ["query", "a", "-o", "rows.csv"])[0] == 0
    assert run(capsys, ["load", "b", "rows.csv", "--yes"])[0] == 0
    assert str(own(Table.open(tmp_path / "b"))) == str(own(VALUES))
    (tmp_path / "others.csv").write_text("id,n,empty\n4,NA,\n5,6,\n")
    assert "'NA'" in run(capsys, ["load", "b", "others.csv", "--yes"])[2]
    created = ["load", "c", "others.csv", "--create", "--key", "id", "--table-type", "mor", "--null", "NA", "--yes"]
    assert run(capsys, created)[0] == 0
    table = Table.open(tmp_path / "c")
    assert own(table) == [(4, None, None), (5, 6, None)]
    assert (table.snapshot().config.table_type, table.schema.field("empty").type) == ("MERGE_ON_READ", pa.string())
    table.upsert([{"id": 4, "n": None, "empty": "x"}])
    Table.open(tmp_path / "a").upsert([{**VALUES.to_pylist()[0], "b": b"\xff"}])
    code, _, err = run(capsys, ["query", "a", "-o", "bytes.csv"])
    assert (code, (tmp_path / "bytes.csv").exists()) == (2, False)
    assert "bytes.csv: cannot hold the rows: Invalid UTF8 payload; write .parquet or .arrow" in err


def test_a_plan_as_html(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, ["explain", "trips", "--where", "rider <> '<b>'", "--html"])
    assert (code, err) == (0, "")
    assert out.startswith("<") and "<b>'" not in out and "&lt;b&gt;" in out


def test_no_name_commands_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of tables and values come from everywhere."""
    path = tmp_path / "t\x1b[2J"
    table = Table.create(path, pa.schema([("id", pa.string()), ("c", pa.string())]), record_key="id")
    table.upsert(pa.table({"id": ["a"], "c": ["\x9b2J"]}))
    for command in (["show"], ["schema"], ["query"], ["stats"], ["validate"], ["explain", "--analyze"], ["properties"]):
        for more in ([], ["--json"]):
            run_code, out, err = run(capsys, [command[0], str(path), *command[1:], *more])
            assert run_code == 0, err
            assert "\x1b" not in out + err and "\x9b" not in out + err
    code, out, err = run(capsys, ["query", str(path), "--columns", "x\x1b", "--debug"])
    assert code == 2 and "\x1b" not in out + err


def test_every_subcommand_is_tried() -> None:
    known = loaded("cli_page").commands()
    tried = {
        " ".join(case[0].replace("savepoint trips", "savepoint create trips").split()) for case in (*LOOKS, *CHANGES)
    }
    missing = [name for name in known if not any(f"{case} ".startswith(f"{name} ") for case in tried)]
    assert missing == ["report", "demo"]
    changing = [name for name, command in known.items() if any("--dry-run" in one.opts for one in command.params)]
    planned = [" ".join(case[0].split()).replace("savepoint trips", "savepoint create trips") for case in CHANGES]
    assert [name for name in changing if not any(case.startswith(f"{name} ") for case in planned)] == []


def test_the_page_shows_the_help_as_it_is() -> None:
    page = loaded("cli_page")
    text = page.PAGE.read_text("utf-8")
    assert text == page.page_with_tables(text), "run tools/cli_page.py"
