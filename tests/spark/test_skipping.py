"""What skipping leaves is what plain Spark finds that reads every file, and lakedex's own filter finds the same rows.

``LAKEDEX_HYPOTHESIS_PROFILE=deep ./dev test tests/spark/test_skipping.py`` asks 20,000 predicates of 40 tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import settings as profile
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from lakedex.spark.schema import arrow_to_spark
from skipping_kit import KEYS, Judged, Maker

DEEP = profile.default.max_examples >= 5000
SEEDS, PREDICATES = (range(100, 140), 500) if DEEP else (range(100, 102), 90)

PLAIN = {
    # Thousands of conditions once each: compiling them would take most of the time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.ansi.enabled": "false",
}


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Spark settings for a while."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def plain_frame(spark: SparkSession, judged: Judged) -> DataFrame:
    """The rows of a table's base files in the table's types, read by Spark's own Parquet reader."""
    schema = arrow_to_spark(judged.schema)
    groups: dict[str, list[str]] = {}
    for item in judged.snapshot.view().table.slices:
        assert item.base_file is not None
        path = judged.snapshot.files.path(item.base_file.relative_path)
        groups.setdefault(str(pq.read_schema(path).remove_metadata()), []).append(path)
    frames = []
    for paths in groups.values():
        frame = spark.read.parquet(*paths)
        columns = [
            f"CAST(`{field.name}` AS {field.dataType.simpleString()}) AS `{field.name}`"
            if field.name in frame.columns
            else f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`"
            for field in schema
        ]
        frames.append(frame.selectExpr(*columns))
    return reduce(DataFrame.union, frames).coalesce(1)


def truths(frame: DataFrame, predicates: Sequence[str], judged: Judged) -> list[list[int] | None]:
    """Places of the rows for which each predicate is true; None for one that Spark refuses."""
    places = {key: place for place, key in enumerate(judged.keys)}
    try:
        found = frame.selectExpr(*KEYS, *(f"({sql}) AS c{i}" for i, sql in enumerate(predicates))).collect()
    except (AnalysisException, ParseException):
        if len(predicates) == 1:
            return [None]
        half = len(predicates) // 2
        return truths(frame, predicates[:half], judged) + truths(frame, predicates[half:], judged)
    rows = [places[(row[0], row[1])] for row in found]
    return [
        sorted(place for place, row in zip(rows, found, strict=True) if row[i + 2] is True)
        for i in range(len(predicates))
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_file_is_dropped_that_spark_finds_a_row_in(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = Maker(rng, tmp_path / "t").make()
    judged = Judged(made)
    asker = made.asker(rng)
    conditions = [asker.predicate().sql for _ in range(PREDICATES)]
    wrong = []
    with settings(spark, {**PLAIN, "spark.sql.session.timeZone": made.zone}):
        frame = plain_frame(spark, judged).cache()
        for start in range(0, len(conditions), 60):
            some = conditions[start : start + 60]
            answers = truths(frame, some, judged)
            for sql, truth in zip(some, answers, strict=True):
                if truth is None:
                    continue
                found = judged.check(sql, rows=False, truth=truth) or judged.differs(sql, truth)
                if found:
                    wrong.append(f"where {sql}\n{found}")
        frame.unpersist()
    assert not wrong, "\n\n".join([str(made), *wrong[:5]])
    assert judged.answered > 0.8 * PREDICATES
