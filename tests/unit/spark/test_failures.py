"""What leaves a Spark action that failed."""

from __future__ import annotations

import pytest

from lakedex.errors import CommitError
from lakedex.spark.failures import surfacing


def test_rows_lost_with_all_their_executors_are_named() -> None:
    """Spark's own text speaks of block ids; the user has to know that nothing was committed."""
    spark = "Job aborted due to stage failure: Checkpoint block rdd_17_3 not found! Either the executor that ..."
    with pytest.raises(CommitError, match="nothing of it was committed") as caught, surfacing():
        raise RuntimeError(spark)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_other_failures_pass() -> None:
    """Only what is known is renamed."""
    with pytest.raises(RuntimeError, match="stage failure"), surfacing():
        raise RuntimeError("Job aborted due to stage failure: disk full")
