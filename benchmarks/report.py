"""Results as tables: ratios first, then seconds, then goals. The same text goes to the terminal and to the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.goals import verdicts
from benchmarks.peers.protocol import STEPS
from benchmarks.results import Results

__all__ = [
    "BEGIN",
    "END",
    "facts_text",
    "goals_table",
    "page_text",
    "ratio_table",
    "seconds_table",
    "table",
    "text",
    "write_page",
]

BEGIN, END = "<!-- figures: made by ./dev bench page -->", "<!-- end of figures -->"
STEP_TEXTS = {
    "load": "bulk load",
    "upsert": "upsert of 1 %",
    "small": "upsert of 10 rows",
    "by_key": "row by key",
    "both": "two predicates",
    "count": "filtered count",
}
GROUPS = (
    ("lakedex", ("lakedex-plain", "spark-parquet", "delta-spark", "hudi", "hudi-footers", "hudi-records")),
    ("lakedex-arrow", ("pyarrow", "deltalake", "lance", "pyiceberg", "lakedex")),
)
"""Ours, and whom it is compared with: those on Spark, those without."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also stand in line on a terminal."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(lines)


def _seconds(value: float) -> str:
    if value < 0.1:
        return f"{value * 1000:.1f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


def _times(value: float) -> str:
    return f"{value:.0f} ×" if value >= 10 else f"{value:.1f} ×" if value >= 1 else f"{value:.2f} ×"


def ratio_table(results: Results, work: str, ours: str, peers: Sequence[str], of: str = "warm") -> str:
    """How many times as long as ours each peer takes, by the clock or (``cpu``) in processor time."""
    present = [peer for peer in peers if peer in results.peers(work)]
    if not present or ours not in results.peers(work):
        return ""
    rows = []
    for step in STEPS:
        own = results.figure(ours, work, step)
        if own is None:
            continue
        cells = []
        for peer in present:
            ratio = results.ratio(work, step, peer, ours, of)
            why = results.error(peer, work, step)
            cold = " cold" if _only_cold(results, work, step, ours, peer) else ""
            cells.append(_times(ratio) + cold if ratio is not None else "not done" if why else "–")
        rows.append([STEP_TEXTS[step], _seconds(own.cpu if of == "cpu" else own.warm), *cells])
    return table(["processor time" if of == "cpu" else "work", ours, *(f"{peer} ÷" for peer in present)], rows)


def _only_cold(results: Results, work: str, step: str, *peers: str) -> bool:
    """Whether one of them was not repeated though there were rounds for it."""
    return any(not any(item.round for item in results.of(peer, work, step)) for peer in peers)


def seconds_table(results: Results, work: str) -> str:
    """Medians, spread, cold, processor time."""
    rows = []
    for step in STEPS:
        for peer in results.peers(work):
            found = results.figure(peer, work, step)
            if found is not None:
                spread = f"{_seconds(found.low)} – {_seconds(found.high)}"
                times = [_seconds(found.warm), spread, _seconds(found.cold), _seconds(found.cpu)]
                rows.append([STEP_TEXTS[step], peer, *times, str(found.calls)])
            elif why := results.error(peer, work, step):
                rows.append([STEP_TEXTS[step], peer, "not done", why[:60].replace("|", "/"), "–", "–", "–"])
    return table(["work", "engine", "warm", "fastest – slowest", "cold", "processor", "calls"], rows)


def goals_table(results: Results, work: str) -> str:
    """Goals and what came of them."""
    found = verdicts(results, work)
    rows = [[one.goal.work, one.asked, one.text, one.word] for one in found if one.is_met is not None]
    left = sum(one.is_met is None for one in found)
    made = table(["work", "goal", "measured", ""], rows)
    return f"{made}\n\nNot measured in this run: {left} of {len(found)} goals." if left else made


def further_tables(results: Results) -> list[str]:
    """Tagging, planning, coverage, memory."""
    found = []
    if rows := results.tables.get("tagging"):
        head = ["files", "question", "by", "listed", "in range", "opened", "requests", "MiB", "s", "s at 20 ms"]
        cells = [
            [
                f"{row['files']:,}",
                row["question"],
                row["mode"],
                *(f"{row[name]:,}" for name in ("listed", "after_ranges", "opened", "requests")),
                f"{row['bytes'] / 2**20:.1f}",
                f"{row['seconds']:.2f}",
                f"{row['slow_seconds']:.2f}",
            ]
            for row in rows
        ]
        found.append(f"### Tagging 10,000 keys\n\n{table(head, cells)}")
    if rows := results.tables.get("planning"):
        head = ["files", "question", "state", "ms", "kept", "requests", "KiB"]
        cells = [
            [
                f"{row['files']:,}",
                row["question"],
                row["state"],
                f"{row['milliseconds']:.1f}",
                f"{row['kept']:,}",
                f"{row['requests']:,}",
                f"{row['bytes'] / 1024:,.0f}",
            ]
            for row in rows
        ]
        found.append(f"### Planning\n\n{table(head, cells)}")
    if rows := results.tables.get("coverage"):
        head = ["files", "columns", "MiB", "one column, cold s", "all columns, cold s"]
        cells = [
            [
                f"{row['files']:,}",
                str(row["columns"]),
                f"{row['bytes'] / 2**20:.1f}",
                f"{row['one_column_seconds']:.2f}",
                f"{row['all_columns_seconds']:.2f}",
            ]
            for row in rows
        ]
        found.append(f"### Coverage of the bitmap index\n\n{table(head, cells)}")
    if rows := results.tables.get("memory"):
        head = ["task", "base file", "before the merge", "peak", "s"]
        cells = [
            [
                row.get("engine", "without Spark"),
                f"{row['file_bytes'] / 2**20:,.0f} MiB",
                f"{row['before'] / 2**20:,.0f} MiB",
                f"{row['peak'] / 2**20:,.0f} MiB",
                f"{row['seconds']:.1f}",
            ]
            for row in rows
        ]
        found.append(f"### Memory of a merge of ten rows\n\n{table(head, cells)}")
    return found


def facts_text(results: Results) -> str:
    """When, at which commit and on what it was measured."""
    facts = results.facts
    versions = ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items())
    return (
        f"{facts.get('date', '')}, commit {facts.get('commit', '')}: {facts.get('cores')} cores "
        f"({facts.get('processor') or 'unknown'}), {facts.get('memory_gib')} GiB; {versions}. "
        f"Spark's sessions have `local[{facts.get('spark_cores', 2)}]` and a heap of {facts.get('spark_memory', '')}; "
        f"{facts.get('rounds', 0)} warm rounds; load average {facts.get('load', 'unknown')}."
    )


def text(results: Results) -> str:
    """All of it, for the terminal."""
    parts = [facts_text(results)]
    for work in results.works():
        parts.append(f"### {work}: how many times as long as lakedex")
        parts += _ratio_tables(results, work, ("warm", "cpu"))
        parts += [f"### {work}: seconds", seconds_table(results, work)]
    works = results.works()
    return "\n\n".join([*parts, *further_tables(results), "### Goals", goals_table(results, works[0] if works else "")])


def page_text(results: Results, pictures: Mapping[str, str], *, goals: bool) -> str:
    """The part for the page: ratios of warm calls, pictures of the seconds, further tables, the goals if asked."""
    parts = [facts_text(results)]
    for work in results.works():
        parts += [f"### {work}", *_ratio_tables(results, work, ("warm",))]
        if work in pictures:
            parts.append(f"![seconds of each engine, {work}]({pictures[work]})")
    parts += further_tables(results)
    if goals:
        parts += ["### Goals", goals_table(results, results.works()[0])]
    return "\n\n".join(parts)


def _ratio_tables(results: Results, work: str, measures: Sequence[str]) -> list[str]:
    """Of both groups of peers, those that took part."""
    tables = [ratio_table(results, work, ours, peers, of) for ours, peers in GROUPS for of in measures]
    return [found for found in tables if found]


def write_page(page: Path, body: str) -> None:
    """Put figures between the page's marks; what stands around them is written by hand."""
    whole = page.read_text(encoding="utf-8")
    head, begin, rest = whole.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no lines {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}", encoding="utf-8")
