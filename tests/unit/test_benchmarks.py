"""The benchmarks' own logic: data, rounds, ratios, goals, the guard, the page. Peers that need no JVM run for real."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.data import Generated, Workload, generate, rows_of
from benchmarks.goals import verdicts
from benchmarks.growth import Curve, Point, slope
from benchmarks.guard import Baseline, broken, taken
from benchmarks.peers import LOCAL, PEERS, peer_class
from benchmarks.peers.protocol import QUESTIONS, STEPS, Settings
from benchmarks.report import BEGIN, END, ratio_table, text, write_page
from benchmarks.results import Measured, Results
from benchmarks.rounds import Rounds
from benchmarks.run import arguments
from benchmarks.sessions import PeerError, Sessions

SPEC = Generated(rows=4_000, partitions=4)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return generate(tmp_path_factory.mktemp("data"), SPEC)


# ----------------------------------------------------------------------------------------------------------- the data
@pytest.mark.parametrize(
    "spec",
    [SPEC, replace(SPEC, keys="time"), replace(SPEC, columns=50), replace(SPEC, partitions=1000, rows=20_000)],
    ids=["random", "time", "wide", "partitions"],
)
def test_rows_depend_on_the_seed_alone(spec: Generated, tmp_path: Path) -> None:
    one, two = (generate(tmp_path / name, spec) for name in ("one", "two"))
    load = pq.read_table(one.load)
    assert load.equals(pq.read_table(two.load))
    assert load.num_rows == spec.rows == pc.count_distinct(load.column("key")).as_py()
    assert load.num_columns == spec.columns
    assert pc.count_distinct(load.column("city")).as_py() == spec.partitions
    assert not load.equals(rows_of(replace(spec, seed=8), np.arange(spec.rows)))


def test_an_upsert_changes_one_row_in_a_hundred_in_all_partitions(work: Workload) -> None:
    load, upsert = pq.read_table(work.load), pq.read_table(work.upsert)
    assert upsert.num_rows == work.updates == SPEC.rows // 100
    assert pc.all(pc.is_in(upsert.column("key"), value_set=load.column("key").combine_chunks())).as_py()
    assert set(upsert.column("city").to_pylist()) == set(load.column("city").to_pylist())
    for small in work.small:
        rows = pq.read_table(small)
        assert rows.num_rows == 10
        assert len(rows.column("city").unique()) == 1


def test_a_workload_crosses_processes_as_json(work: Workload) -> None:
    assert Workload.of(json.loads(json.dumps(work.to_dict()))) == work


# ---------------------------------------------------------------------------------------------------- peers and rounds
def test_peers_hold_the_same_rows_and_give_the_same_answers(work: Workload, tmp_path: Path) -> None:
    answers: dict[str, list[Any]] = {}
    for name in LOCAL:
        peer, path = peer_class(name)(Settings(scratch=str(tmp_path))), str(tmp_path / name)
        peer.start()
        peer.load(work, path)
        peer.upsert(work, path, work.upsert)
        for small in work.small:
            peer.upsert(work, path, small)
        peer.open(work, path)
        rows, total = peer.checksum(work, path)
        answers[name] = [rows, round(total, 3), *(peer.ask(work, path, question) for question in QUESTIONS)]
        if name == "lakedex-arrow":
            assert peer.examined(work, path, "count") == {"files_read": 0}
            assert peer.told["rows_written"] == 10
        peer.stop()
    ours, theirs = answers.values()
    assert ours == theirs
    assert ours[0] == SPEC.rows
    assert all(ours[2:])


class Scripted:
    """Sessions whose peers answer as told."""

    def __init__(self, seconds: Mapping[str, float], broken: tuple[str, str] | None = None, total: float = 1.0) -> None:
        self.seconds, self.broken, self.total = seconds, broken, total
        self.asked: list[tuple[str, str]] = []

    def start(self, peer: str) -> dict[str, Any]:
        return {"versions": {}, "steps": list(STEPS), "title": peer}

    def ask(self, peer: str, operation: str, timeout: float, **asked: Any) -> dict[str, Any]:
        if operation == "checksum":
            return {"value": [1, self.total if peer == "hudi" else 1.0]}
        if (peer, asked["step"]) == self.broken:
            raise PeerError("no answer within 1 s")
        self.asked.append((peer, asked["step"]))
        Path(asked["path"]).mkdir(exist_ok=True)
        spent = [self.seconds[peer]] * asked["repeat"]
        return {"seconds": spent, "cpu": spent, "counts": {"requests": 3}, "value": 1}


def ran(work: Workload, folder: Path, sessions: Scripted, rounds: int = 2) -> tuple[Results, str]:
    results, said = Results(), []
    made = Rounds(sessions=sessions, results=results, folder=folder, say=said.append)  # type: ignore[arg-type]
    made.run(work, list(sessions.seconds), rounds)
    return results, "".join(said)


def test_peers_take_turns_and_ratios_are_of_warm_rounds(work: Workload, tmp_path: Path) -> None:
    sessions = Scripted({"lakedex": 2.0, "hudi": 30.0, "hudi-footers": 10.0})
    results, said = ran(work, tmp_path, sessions)
    loads = [peer for peer, step in sessions.asked if step == "load"]
    assert loads == ["lakedex", "hudi", "hudi", "lakedex", "lakedex", "hudi"]  # hudi-footers takes over hudi's table
    assert results.ratio(work.name, "load", "hudi", "lakedex") == 15
    assert {item.round for item in results.of("lakedex", work.name, "upsert")} == {0, 1, 2}
    assert "2 of 2" in said
    assert not any(tmp_path.glob("*/*"))  # tables are gone


def test_a_peer_that_fails_or_is_slow_is_done_with_that_step_only(work: Workload, tmp_path: Path) -> None:
    sessions = Scripted({"lakedex": 1.0, "pyiceberg": 121.0}, broken=("lakedex", "upsert"))
    results, _ = ran(work, tmp_path, sessions)
    assert results.error("lakedex", work.name, "upsert") == "no answer within 1 s"
    assert len(results.of("lakedex", work.name, "by_key")) == 3
    assert len(results.of("pyiceberg", work.name, "load")) == 1
    assert "not done" in text(results)
    assert "121 × cold" in ratio_table(results, work.name, "lakedex", ("pyiceberg",))


def test_different_rows_stop_the_run(work: Workload, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="hudi holds 1 rows, sum 2"):
        ran(work, tmp_path, Scripted({"lakedex": 1.0, "hudi": 1.0}, total=2.0))


def test_a_worker_measures_and_says_what_failed(work: Workload, tmp_path: Path) -> None:
    with Sessions(Settings(scratch=str(tmp_path))) as sessions:
        path = str(tmp_path / "table")
        asked = {"work": work.to_dict(), "path": path, "rows": "", "repeat": 1}
        answer = sessions.ask("pyarrow", "measure", 60, step="load", **asked)
        assert answer["seconds"][0] > 0
        with pytest.raises(PeerError, match="FileNotFoundError"):
            sessions.ask("pyarrow", "measure", 60, step="upsert", **{**asked, "rows": "/nowhere.parquet"})
        assert sessions.ask("pyarrow", "checksum", 60, work=work.to_dict(), path=path)["value"][0] == SPEC.rows


# ------------------------------------------------------------------------------------------------- figures and goals
def measured(peer: str, step: str, seconds: float, number: int = 1, **counts: float) -> Measured:
    return Measured(peer=peer, work="w", step=step, round=number, seconds=(seconds,), cpu=(seconds,), counts=counts)


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    results = Results()
    for number, (ours, theirs) in enumerate([(9.0, 1.0), (1.0, 10.0), (5.0, 60.0), (2.0, 16.0)]):
        results.add(measured("lakedex", "load", ours, number))
        results.add(measured("hudi", "load", theirs, number))
    assert results.ratio("w", "load", "hudi", "lakedex") == 10  # of 10, 12 and 8; the cold round is left out
    assert Results.from_json(results.to_json()).measured == results.measured


def test_goals_are_met_missed_or_not_measured() -> None:
    results = Results()
    results.add(measured("lakedex", "small", 0.4))
    results.add(measured("hudi", "small", 2.0))
    results.tables["planning"] = [{"files": 1_000, "question": "range of n", "state": "warm", "milliseconds": 4.0}]
    found = {(one.goal.work, one.goal.asked): one.word for one in verdicts(results, "w")}
    assert found["upsert of 10 rows in one file, warm", "lakedex on Spark"] == "met"
    assert found["upsert of 10 rows in one file, warm", "Hudi Java ÷ lakedex"] == "missed"
    assert found["planning warm, 1,000 files", "a range"] == "met"
    assert found["planning warm, 100,000 files", "a range"] == "not measured"


# -------------------------------------------------------------------------------------------------------- the guard
def guarded(requests: float = 7, size: float = 10_000_000, files: float = 20, seconds: float = 1.0) -> Baseline:
    results = Results()
    results.add(
        measured(
            "lakedex-arrow",
            "upsert",
            seconds,
            requests=requests,
            bytes_read=size,
            files_written=files,
            result_seconds=seconds,
        )
    )
    results.add(measured("pyarrow", "upsert", 0.5))
    return taken(results, {"rows": 1})


def test_the_guard_is_content_with_the_same(tmp_path: Path) -> None:
    guarded().write(tmp_path / "baseline.json")
    before = Baseline.read(tmp_path / "baseline.json")
    assert broken(guarded(), before) == []
    assert broken(guarded(requests=9, size=10_100_000, seconds=1.4), before) == []  # names differ, machines are noisy


@pytest.mark.parametrize(
    ("now", "complaint"),
    [
        (guarded(files=21), "21 files_written, more than the baseline's 20"),
        (guarded(requests=12), "12 requests, more than the baseline's 7"),
        (guarded(requests=2), "2 requests, fewer than the baseline's 7"),
        (guarded(size=11_000_000), "11,000,000 bytes_read, more than"),
        (
            guarded(seconds=1.6),
            "lakedex-arrow takes 3.20 × pyarrow's processor time, more than 1.5 × the baseline's 2.00",
        ),
        (Baseline(), "not measured; the baseline has it"),
    ],
)
def test_the_guard_complains(now: Baseline, complaint: str) -> None:
    assert any(complaint in line for line in broken(now, guarded()))


# ------------------------------------------------------------------------------------------------- growth and pages
def test_slopes() -> None:
    assert slope([(10, 5), (100, 50), (1000, 500)]) == pytest.approx(1)
    assert slope([(10, 5), (100, 5)]) == pytest.approx(0)
    points = [Point(x=x, seconds=0, cpu=x**0.5) for x in (10, 1000)]
    curve = Curve(axis="commits", work="upsert", formula="a", expected=0, points=points)
    assert not curve.is_met
    assert Curve.of(json.loads(json.dumps(curve.to_dict()))) == curve


def test_figures_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="no lines"):
        write_page(page, "new")


def test_arguments_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments(["--quick"]).rows == 20_000
    with pytest.raises(SystemExit):
        arguments(["--peers", "lakedex,hoodie"])
    assert f"no hoodie; there are {', '.join(PEERS)}" in capsys.readouterr().err
