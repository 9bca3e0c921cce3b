"""Answers to Spark's optimizer: an aggregate over a table of the catalog, as rows that an index knows.

The rule (``rules_source.py``) asks while Spark optimizes; whatever is not understood exactly leaves the plan as it is,
and so does an error. Memory: the answer, at most ``MOST_ROWS`` rows.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr import depends_on_zone, parse_filter_or_unknown, unknown_texts
from lakedex.expr.nodes import Predicate, all_of
from lakedex.scan.planner import read_columns
from lakedex.spark.catalog.answers import AggregateRequest, answer, may_answer
from lakedex.spark.catalog.java import JavaSide
from lakedex.spark.catalog.scan import Target
from lakedex.spark.filters import filter_texts
from lakedex.spark.schema import arrow_to_spark

__all__ = ["MOST_ROWS", "answer_question"]

_log = logging.getLogger(__name__)
MOST_ROWS = 100_000
"""Rows of an answer: they lie in the plan, on the driver."""


def answer_question(side: JavaSide, target: Target, question: Any) -> bytes | None:
    """The encoded answer to the rule's question; None leaves the plan as it is."""
    try:
        if not may_answer(target.snapshot):
            return None
        asked = json.loads(question.asked())
        request = _request(side, target, question, asked)
        rows = None if request is None else answer(target.snapshot, request)
        if request is None or rows is None or rows.num_rows > MOST_ROWS:
            return None
        return _encoded(target, request, rows, asked["types"])
    except Exception as error:  # Spark reads the rows itself, and tells what is wrong with them
        _log.debug("table %s: an aggregate is not answered by an index: %s", target.name, error, exc_info=True)
        return None


def _request(side: JavaSide, target: Target, question: Any, asked: dict[str, Any]) -> AggregateRequest | None:
    """The question in our words, if all of it has some."""
    group_by = [_dotted(path) for path in asked["group_by"]]
    aggregates = [(kind, None if path is None else _dotted(path)) for kind, path in asked["aggregates"]]
    conditions = question.conditions()
    texts = filter_texts(side.view, (conditions,))
    if len(texts) != conditions.size():
        return None
    where = all_of(tuple(_condition(target, text) for text in texts))
    if where is not None and (unknown_texts(where) or depends_on_zone(where)):
        return None
    return AggregateRequest(where=where, group_by=tuple(group_by), aggregates=tuple(aggregates))


def _dotted(path: Sequence[str]) -> str:
    if any("." in part for part in path):
        raise ValueError(f"a name with a dot: {path}")
    return ".".join(path)


def _condition(target: Target, text: str) -> Predicate:
    # The names come from the scan, in the table's own spelling.
    schema = read_columns(target.snapshot.schema)
    return parse_filter_or_unknown(text, schema, case_sensitive=True, timezone="UTC")


# ------------------------------------------------------------------------------------------------------- the rows


def _encoded(target: Target, request: AggregateRequest, rows: pa.Table, types: Sequence[str]) -> bytes | None:
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
