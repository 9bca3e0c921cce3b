"""Which engine works on a table: Spark with a session, threads without.

The one place that imports an engine late, so that ``import lakedex`` needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lakedex.errors import InvalidInputError, MissingDependencyError
from lakedex.local.session import LocalSession
from lakedex.write.session import Session

__all__ = ["open_session"]


def open_session(spark: Any) -> Session:
    """The session for a Spark session, or the local one for None.

    Raises:
        MissingDependencyError: Spark is asked for and not installed.
    """
    if spark is None:
        return LocalSession()
    if not hasattr(spark, "createDataFrame"):
        raise InvalidInputError(
            f"spark= takes a SparkSession (None selects the local engine), not {type(spark).__name__}"
        )
    try:
        module = import_module("lakedex.spark.table_session")
    except ImportError as error:
        raise MissingDependencyError("Spark is needed: pip install 'lakedex[spark]'", extra="spark") from error
    session: Session = module.SparkTableSession(spark)
    return session
