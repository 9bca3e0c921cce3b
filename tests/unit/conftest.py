"""Unit tests begin with copies of a table that is made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakedex import Table


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], Table], Path], Table]:
    """``once(make, path)``: the table that ``make`` makes, at ``path``. A module's tests begin with copies of one."""
    made: dict[Callable[[Path], Table], Table] = {}

    def copied(make: Callable[[Path], Table], path: Path) -> Table:
        if make not in made:
            made[make] = make(tmp_path_factory.mktemp("once") / path.name)
        shutil.copytree(made[make].path, path, dirs_exist_ok=True)
        return Table.open(path, options=made[make].context.options)

    return copied
