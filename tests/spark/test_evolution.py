"""Schemas that change, read by Spark: the cases of ``tests/pruning/evolution.steps`` on every PySpark."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from evolution_kit import CASES, Question, questions
from lakedex import Table
from lakedex.errors import InvalidInputError


def refused(table: Table, where: str) -> None:
    with pytest.raises(InvalidInputError):
        table.scan(where).to_arrow()


@pytest.mark.smoke
@pytest.mark.parametrize("name", CASES)
def test_rows_of_every_generation(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """R67 to R73, R76, R81: Spark's own conditions, pruned by what the indexes know of files of any schema.

    Frames are pinned to the state that they were made of, so one job answers for the whole life of a table.
    """
    asked: list[Question] = []
    frames: list[DataFrame] = []
    for question in questions(CASES[name], tmp_path / "t", refused):
        found = Table.open(tmp_path / "t", spark=spark).to_df(as_of=question.as_of).where(question.where)
        frames.append(found.select(F.lit(len(asked)).alias("number"), "id"))
        asked.append(question)
    rows = reduce(DataFrame.union, frames).collect()
    for number, question in enumerate(asked):
        assert tuple(sorted(row.id for row in rows if row.number == number)) == question.ids, question.where
