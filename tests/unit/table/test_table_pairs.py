"""The cases of ``tests/pruning`` that name a table: what each index drops of real files, through ``scan(where).plan()``."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pytest

from bitmap_samples import ByHand
from lakedex import Table
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.index.registry import INDEXES
from lakedex.scan.plan import plan_scan
from lakedex.snapshot.schema import read_columns
from lakedex.types import SessionRules
from pairs import FOLDER, Case, load
from table_kit import OWN_FILE, properties, set_properties
from tests.unit.expr.test_oracle import TYPES

CASES = [case for path in sorted(FOLDER.glob("*.pairs")) for case in load(path) if "table" in case.heads]
OPTIONS = {
    "hive_style": "hoodie.datasource.write.hive_style_partitioning",
    "url_encode": "hoodie.datasource.write.partitionpath.urlencode",
    "column_stats": "hoodie.metadata.index.column.stats.enable",
    "bloom_filters": "hoodie.metadata.index.bloom.filter.enable",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@lru_cache
def build(folder: Path, settings: str, columns: str, files: tuple[str, ...]) -> tuple[Table, dict[str, str]]:
    """The table with a file for each line, and the line's name of each base file."""
    given = dict(setting.split("=") for setting in settings.split())
    kinds = {name: TYPES[kind] for name, kind in (column.split(" ") for column in re.split(r", (?=\w+ )", columns))}
    path = folder / f"t{build.cache_info().misses}"
    options = {**OWN_FILE, **{OPTIONS[name]: value for name, value in given.items() if name in OPTIONS}}
    partition_by = given["partition_by"].split(",") if "partition_by" in given else ()
    Table.create(path, pa.schema(kinds), record_key="id", partition_by=partition_by, options=options)
    listed = properties(path)["hoodie.table.metadata.partitions"].split(",")
    index = None
    if "bitmap" in given:
        cap = int(given.get("cap", "10000"))
        index = ByHand(Table.open(path), dict.fromkeys(given["bitmap"].split(","), cap))
    names: dict[str, str] = {}
    for line in files:
        name, *parts = line.split(" | ")
        unseen = next((part.removeprefix("unseen=") for part in parts if part.startswith("unseen=")), "").split(",")
        # A writer that does not know some indexes: their records do not have its file.
        seen = [index for index in listed if index not in unseen]
        set_properties(path, {"hoodie.table.metadata.partitions": ",".join(seen)})
        rows = {
            part.split(" ", 1)[0]: json.loads(part.split(" ", 1)[1]) for part in parts if not part.startswith("unseen=")
        }
        with nullcontext() if index is None else index.hidden():
            Table.open(path, options=options).insert(pa.table({c: typed(v, kinds[c]) for c, v in rows.items()}))
        set_properties(path, {"hoodie.table.metadata.partitions": ",".join(listed)})
        (new,) = set(Table.open(path).scan().plan().files_kept) - names.keys()
        names[new] = name
        if index is not None and "bitmap" not in unseen:
            index.cover([base for base in index.base_files() if base.name == new])
    return Table.open(path), names


def typed(values: list[object], kind: pa.DataType) -> pa.Array:
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string()).cast(kind)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.where)
def test_files_dropped_by_each_index(case: Case, folder: Path) -> None:
    table, names = build(folder, case.heads["table"], case.heads["columns"], case.files)
    scan = replace(table.scan(case.sql), rules=SessionRules(timezone=case.heads.get("timezone", "UTC")))
    index = case.heads["index"]
    plan = scan.plan()
    if index != "all":
        predicate = parse_predicate(case.sql, read_columns(table.schema), scan.rules)
        plan = plan_scan(
            scan.snapshot, BoundPredicate(predicate), indexes=[one for one in INDEXES if one.name == index]
        )
    by_stage: dict[str, set[str]] = {}
    for item, stage in plan.dropped:
        by_stage.setdefault(stage, set()).add(names[item.name])
    kept, *drops = [part.split() for part in case.expected.split(" / ")]
    wanted = {stage: set(dropped) for stage, *dropped in drops}
    if index != "all" and (rest := set(names.values()) - set(kept)):
        wanted = {index: rest}
    assert {names[name] for name in plan.files_kept} == set(kept) - {"-"}
    assert by_stage == wanted
    if not BoundPredicate(parse_predicate(case.sql, read_columns(table.schema), scan.rules)).unevaluable:
        assert scan.count() == replace(scan, use_indexes=False).count()


def test_each_index_has_cases_and_so_have_all_together() -> None:
    tables = {case.heads["index"] for case in CASES}
    assert tables == {"partition", "partition_stats", "column_stats", "bloom_filters", "bitmap", "all"}
