"""Answer an aggregate over a catalog table from its indexes, for Spark's optimizer, without reading a file.

The rule (``LakedexRules.java``) asks while Spark optimizes; an aggregate that is not understood exactly, and an error,
leave the plan unchanged. Memory: the answer, at most ``MOST_ROWS`` rows.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr.nodes import Predicate
from lakedex.expr.parser import parse_filter_or_unknown
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.builder import column_of
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.scan.aggregate_pushdown import answer_aggregates
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog.java_bridge import JavaBridge
from lakedex.spark.catalog.scan import ScanTarget
from lakedex.spark.filters import filter_texts
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import arrow_to_spark
from lakedex.types import SessionRules

__all__ = ["MOST_ROWS", "AggregateRequest", "answer", "answer_query", "may_answer"]


_log = logging.getLogger(__name__)


MOST_ROWS = 100_000
"""Most rows of an answer, which the plan holds on the driver."""


AggregateKind = Literal["count_star", "count", "count_distinct", "min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRequest:
    """An aggregate over the rows under a condition.

    Attributes:
        where: the whole condition, without an unknown part; None for all rows.
        group_by: columns, or dotted paths of fields; rows whose values are null are a group of their own. Without any
            the answer is one row, of no rows too.
        aggregates: function and column each; ``count_star`` has no column.
    """

    where: BoundPredicate | None
    group_by: tuple[str, ...]
    aggregates: tuple[tuple[AggregateKind, str | None], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns whose values the answer has or counts."""
        return tuple(dict.fromkeys((*self.group_by, *(name for _, name in self.aggregates if name is not None))))


def may_answer(snapshot: Snapshot) -> bool:
    """Whether the table has an index that could answer; checked before the aggregate is translated."""
    return bool(read_bitmap_definitions(snapshot.files))


def answer(snapshot: Snapshot, request: AggregateRequest) -> pa.Table | None:
    """The exact rows: ``group_by``, then ``aggregates``, in this order and whatever the names; None if not known.

    Counts are ``int64``, other columns have the table's type. No file of rows is read, and no job runs.
    """
    schema = read_columns(snapshot.schema)
    if len(set(request.group_by)) < len(request.group_by) or any(
        "." in n and n in schema.names for n in request.columns
    ):
        return None
    columns = {name: column_of(name, schema) for name in request.columns}
    group_by = [columns[name] for name in request.group_by]
    aggregates = [(kind, None if name is None else columns[name]) for kind, name in request.aggregates]
    return answer_aggregates(snapshot, request.where, group_by, aggregates, index_only=True)


def answer_query(bridge: JavaBridge, target: ScanTarget, query: JavaObject) -> bytes | None:
    """The encoded rows of an aggregate that the rule asks for; None leaves the plan as it is."""
    try:
        if not may_answer(target.snapshot):
            return None
        described = json.loads(query.json())
        request = _request(bridge, target, query, described)
        rows = None if request is None else answer(target.snapshot, request)
        if request is None or rows is None or rows.num_rows > MOST_ROWS:
            return None
        return _encoded(target, request, rows, described["types"])
    except Exception as error:  # Spark reads the rows itself, and reports what is wrong with them
        _log.debug("table %s: an aggregate is not answered by an index: %s", target.name, error, exc_info=True)
        return None


def _request(
    bridge: JavaBridge, target: ScanTarget, query: JavaObject, described: dict[str, Any]
) -> AggregateRequest | None:
    """The aggregate as a request to the indexes; None if a part of it cannot be one."""
    group_by = [_dotted(path) for path in described["group_by"]]
    aggregates = [(kind, None if path is None else _dotted(path)) for kind, path in described["aggregates"]]
    conditions = query.conditions()
    texts = filter_texts(bridge.view, (conditions,))
    if len(texts) != conditions.size():
        return None
    where = BoundPredicate.of(*(_condition(target, text) for text in texts))
    if where is not None and (where.unevaluable or where.depends_on_zone):
        return None
    return AggregateRequest(where=where, group_by=tuple(group_by), aggregates=tuple(aggregates))


def _dotted(path: Sequence[str]) -> str:
    if any("." in part for part in path):
        raise ValueError(f"a name with a dot: {path}")
    return ".".join(path)


def _condition(target: ScanTarget, text: str) -> Predicate:
    # The names come from the scan, in the table's own spelling.
    schema = read_columns(target.snapshot.schema)
    return parse_filter_or_unknown(text, schema, SessionRules(case_sensitive=True, timezone="UTC"))


# ------------------------------------------------------------------------------------------------------- the rows


def _encoded(target: ScanTarget, request: AggregateRequest, rows: pa.Table, types: Sequence[str]) -> bytes | None:
    """The rows as ``LakedexRules.rows`` reads them, after where they came from."""
    if rows.num_columns != len(types) or (not request.group_by and rows.num_rows != 1):
        raise ValueError(f"an answer of {rows.num_rows} rows and {rows.num_columns} columns to {request}")
    text = f"lakedex {target.name} at {target.snapshot.instant or 'no commit'}: answered by the index, no file read"
    encoded = [_sized(text.encode()), struct.pack(">i", rows.num_rows)]
    for number, (column, kind) in enumerate(zip(rows.columns, types, strict=True)):
        values = column.combine_chunks()
        found = arrow_to_spark(pa.schema([("c", values.type)])).fields[0].dataType.simpleString()
        if found != kind:
            raise ValueError(f"column {number} of the answer is {found}, not {kind}")
        call = request.aggregates[number - len(request.group_by)][0] if number >= len(request.group_by) else None
        if call in ("min", "max") and kind in ("float", "double") and _has_zero(values):
            return None  # -0.0 and 0.0 are one value to an index, and two that Spark would show
        encoded.append(values.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
        encoded.append(_values(values))
    return b"".join(encoded)


def _sized(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _has_zero(values: pa.Array) -> bool:
    return bool(pc.any(pc.equal(values, pa.scalar(0, values.type))).as_py())


def _values(values: pa.Array) -> bytes:
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = values.fill_null(0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        # One NaN and one zero, as Spark has them in a key.
        return bytes((np.where(np.isnan(numbers), np.nan, numbers) + 0.0).astype(">f8").tobytes())
    if pa.types.is_decimal(kind):
        return _texts(values.cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(values)
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    return bytes(_integers(values.cast(pa.int64())).astype(">i8").tobytes())


def _integers(values: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _texts(values: pa.Array) -> bytes:
    plain = values.cast(pa.large_binary()).fill_null(b"")
    sizes = pc.binary_length(plain).to_numpy(zero_copy_only=False).astype(">i4")
    content: bytes = b"".join(plain.to_pylist())
    return bytes(sizes.tobytes()) + content
