"""The cases of ``tests/pruning/evolution.steps``: right rows and no file too many, whatever became of the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolution_kit import CASES, questions
from lakedex import Table
from lakedex.errors import InvalidInputError


def refused(table: Table, where: str) -> None:
    with pytest.raises(InvalidInputError):
        Table.open(table.path).scan(where).to_arrow()


@pytest.mark.parametrize("name", CASES)
def test_stats_of_every_generation(name: str, tmp_path: Path) -> None:
    """R37.e, R67-R73, R76, R77, R80-R84: what an index knows of a file is used, and is of the column that is meant."""
    wrong = []
    for question in questions(CASES[name], tmp_path / "t", refused):
        table = Table.open(tmp_path / "t")
        found = table.scan(question.where, ["id"], as_of=question.as_of).to_arrow().column("id").to_pylist()
        everything = table.scan(question.where, ["id"], as_of=question.as_of, use_indexes=False).to_arrow()
        assert sorted(everything.column("id").to_pylist()) == list(question.ids), question.where
        assert sorted(found) == list(question.ids), question.where
        if question.kept != question.files:
            wrong.append(f"{question.where}: read {sorted(question.kept)}, not {sorted(question.files)}")
    assert not wrong, "\n".join(wrong)
