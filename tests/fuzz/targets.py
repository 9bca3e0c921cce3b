"""All targets, and how many mutations each gets of a number."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.codec_targets import CODEC_TARGETS
from fuzz.hostile_targets import HOSTILE_TARGETS
from fuzz.plan_targets import PLAN_TARGETS
from fuzz.running import Target
from fuzz.table_targets import TABLE_TARGETS

__all__ = ["TARGETS", "WHOLE", "shares"]

TARGETS: dict[str, Target] = {**CODEC_TARGETS, **PLAN_TARGETS, **TABLE_TARGETS, **HOSTILE_TARGETS}
WHOLE = frozenset(TABLE_TARGETS) | frozenset(HOSTILE_TARGETS)
"""Names of targets over whole tables."""
TABLE_SHARE = 0.012
"""Reading a table takes some fifty times as long as a file."""
HOSTILE_SHARE = 0.1
"""Operations on a table on disk take some hundred times as long, and find most."""
_SHARE = {
    "hfile.deep": 0.1,
    "hfile.inside": 0.2,
    "hfile.raw": 0.5,
    "hfile.spliced": 0.5,
    "log.torn": 0.2,
    "avro.container.inside": 0.4,
    "avro.metadata": 0.6,
    "avro.bitmap": 0.7,
    "avro.schema": 0.7,
    **dict.fromkeys(TABLE_TARGETS, TABLE_SHARE),
    **dict.fromkeys(HOSTILE_TARGETS, HOSTILE_SHARE),
    "hostile.many": 0.01,
}


def shares(names: Sequence[str], mutations: int) -> dict[str, int]:
    """Mutations by target; slow targets get fewer."""
    weights = {name: _SHARE.get(name, 1.0) for name in names}
    total = sum(weights.values())
    return {name: max(1, round(mutations * weight / total)) for name, weight in weights.items()}
