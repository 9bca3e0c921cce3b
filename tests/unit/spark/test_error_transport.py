"""What leaves a Spark action that failed: our own errors as themselves, and nothing that a row's value pretends to be."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from lakedex.commit.idempotency import DuplicateBatchError
from lakedex.errors import CommitConflictError, CommitError, CorruptFileError, LakedexError, error_classes
from lakedex.spark.error_transport import Seal, remember, unwrap, unwrapping_errors

LOST = (
    "An error occurred while calling o32.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 1) (10.0.0.1 "
    "executor 2): org.apache.spark.SparkException: Checkpoint block rdd_3_0 not found! Either the executor\nthat "
)
LOST_4 = (
    "An error occurred while calling o81.getResult.\n: org.apache.spark.SparkException: Exception thrown in awaitResult: "
    "\n\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:359)\nCaused by: "
    "org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_3_0 not found!\nEither"
)
QUOTED = '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "INT"'


class Throwable:
    """A Java exception, as py4j shows it."""

    def __init__(self, cause: Throwable | None = None) -> None:
        self.cause = cause

    def getCause(self) -> Throwable | None:
        return self.cause


class SparkError(Exception):
    """What PySpark raises for a Java exception."""

    def __init__(self, text: str, origin: Throwable | None = None) -> None:
        super().__init__(text)
        self._origin = origin


class Runs:
    """A value whose unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def an_error(cls: type[LakedexError]) -> LakedexError:
    if cls is CorruptFileError:
        return CorruptFileError("/t/f.parquet", 12, "magic", "z\u00e9ros\x1b\ud800")
    if cls is CommitConflictError:
        return CommitConflictError("busy", ours="1", file_groups={("p", "b"), ("p", "a")}, retryable=True)
    if issubclass(cls, DuplicateBatchError):
        return cls("done", note="n")
    return cls("what 'it' is\nsays", **({"feature": "f"} if "feature" in cls.__annotations__ else {"column": "c"}))


@pytest.mark.parametrize("cls", list(error_classes()), ids=lambda cls: cls.__name__)
def test_every_error_crosses_spark_as_itself(cls: type[LakedexError]) -> None:
    """Class, text, fields and what a retry loop asks; the fields are JSON values."""
    error = an_error(cls)
    assert json.loads(json.dumps(error.__dict__)) == error.__dict__
    found = unwrap(RuntimeError(f"Job aborted: {QUOTED.format('x')}{Seal().wrap(error)} at line 3"))
    assert type(found) is cls
    assert (str(found), found.args, found.__dict__) == (str(error), error.args, error.__dict__)
    assert getattr(found, "retryable", None) == getattr(error, "retryable", None)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (cls, str(error), error.__dict__)


def markers(path: Path) -> dict[str, str]:
    """What a value may hold to look like an error of ours."""
    packed = base64.b64encode(pickle.dumps(Runs(path))).decode()
    fields = base64.b64encode(json.dumps(["0", "CommitConflictError", "busy", {"retryable": True}]).encode()).decode()
    genuine = str(Seal().wrap(LakedexError("genuine")))
    foreign = str(Seal(b"another session's").wrap(CommitConflictError("busy", retryable=True)))
    return {
        "pickle": f"lakedex-error[{packed}]",
        "signed pickle": f"lakedex-error[{packed}.{'0' * 64}]",
        "unsigned fields": f"lakedex-error[{fields}]",
        "another key": foreign,
        "another's signature": re.sub(r"\[.*\.", f"[{fields}.", genuine.splitlines()[-1]),
        "the text of an error": "column 'x' is damaged",
        "lost rows": LOST,
        "lost rows of Spark 4": LOST_4,
    }


@pytest.mark.parametrize("kind", markers(Path("x")))
def test_a_value_that_imitates_an_error_is_a_value(tmp_path: Path, kind: str) -> None:
    """Spark's own error leaves, nothing runs, and no retry is talked into."""
    remember(LakedexError("column 'x' is damaged"), Throwable())
    spark = SparkError(QUOTED.format(markers(tmp_path / "made")[kind]), Throwable(Throwable()))
    with pytest.raises(SparkError) as caught, unwrapping_errors():
        raise spark
    assert caught.value is spark
    assert not (tmp_path / "made").exists()


def test_a_true_error_is_found_behind_an_imitation(tmp_path: Path) -> None:
    text = markers(tmp_path)["another key"] + str(Seal().wrap(LakedexError("true")))
    assert str(unwrap(RuntimeError(text))) == "true"


def test_a_line_counts_once() -> None:
    """A value may quote what stood in an error before."""
    text = str(Seal().wrap(LakedexError("what")))
    assert str(unwrap(RuntimeError(text))) == "what"
    assert unwrap(RuntimeError(QUOTED.format(text))) is None
    assert "key" not in repr(Seal())


def test_an_error_of_the_driver_is_known_by_its_exception() -> None:
    error, thrown = LakedexError("what"), Throwable()
    remember(error, thrown)
    assert unwrap(SparkError("wrapped", Throwable(Throwable(thrown)))) is error
    assert unwrap(SparkError("what", Throwable())) is None


@pytest.mark.parametrize("text", [LOST, LOST_4])
def test_rows_lost_with_all_their_executors_are_named(text: str) -> None:
    """Spark's own text speaks of block ids; the user has to know that nothing was committed."""
    with pytest.raises(CommitError, match="nothing of it was committed") as caught, unwrapping_errors():
        raise RuntimeError(text)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_other_failures_pass() -> None:
    """Only what is known is renamed."""
    with pytest.raises(RuntimeError, match="stage failure"), unwrapping_errors():
        raise RuntimeError("Job aborted due to stage failure: disk full")
