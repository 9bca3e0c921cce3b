"""Registers the rule that lets a table answer an aggregate: ``SELECT count(*) … WHERE …`` without a job.

Spark asks for aggregates (``SupportsPushDownAggregates``) only where no filter is left to apply, and a scan here leaves
all of them. So a rule among a session's own (``spark.experimental.extraOptimizations``) looks for an aggregate over a
table of a catalog here, asks the table, and puts the rows in its place. A strategy gives the physical plan the name of
where they came from.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

from lakedex.spark.catalog.java import JavaSide
from lakedex.spark.catalog.rules_source import RULES, rules_source

__all__ = ["register_rules"]

_log = logging.getLogger(__name__)
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical.LocalRelation"
_PHYSICAL = "org.apache.spark.sql.execution.LocalTableScanExec"


class _Compiled:
    """The rule of each gateway; None where this Spark has other classes than the rule knows."""

    lock = threading.Lock()
    by_gateway: ClassVar[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()


def register_rules(side: JavaSide) -> bool:
    """Add the rule to the session, once; others stay. False where this Spark has no place for it."""
    try:
        with _Compiled.lock:
            if side.gateway not in _Compiled.by_gateway:
                _Compiled.by_gateway[side.gateway] = _compiled(side)
        _Compiled.by_gateway[side.gateway].register(side.session.experimental())
    except (Py4JError, KeyError) as error:
        _log.debug("aggregates are not answered by indexes on Spark %s: %s", side.spark.version, error)
        return False
    return True


def _compiled(side: JavaSide) -> Any:
    relation, scan = (_constructor(side, name) for name in (_LOGICAL, _PHYSICAL))
    return side.compiled(RULES, rules_source(side.seq, relation, scan))


def _constructor(side: JavaSide, name: str) -> list[str]:
    """Types that a case class takes."""
    return [str(kind.getName()) for kind in side.type(name).getConstructors()[0].getParameterTypes()]
