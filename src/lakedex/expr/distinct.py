"""Apply a Python function to Arrow columns, once for each distinct combination of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["per_distinct"]


def _physical(values: Any) -> Any:
    """Convert dates and timestamps to integers; return other values unchanged."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def per_distinct(function: Callable[..., Any], result: pa.DataType, first: Any, *others: Any) -> Any:
    """Compute ``function(first, *others)`` per row.

    Args:
        function: Takes Python values, never null; returns None for null.
        result: Type of the results.
        first: First arguments.
        others: Arrays of the same length, or Arrow scalars for all rows.

    Returns:
        Array that is null wherever an argument is null.
    """
    if any(isinstance(other, pa.Scalar) and not other.is_valid for other in others):
        return pa.nulls(len(first), result)
    constant = [other.as_py() if isinstance(other, pa.Scalar) else None for other in others]
    columns = [first, *(other for other in others if not isinstance(other, pa.Scalar))]
    coded = [pc.dictionary_encode(_physical(column)) for column in columns]
    if len(coded) == 1:
        answers = pa.array([function(value, *constant) for value in coded[0].dictionary.to_pylist()], result)
        return answers.take(coded[0].indices)
    known = np.ones(len(first), np.bool_)
    key = np.zeros(len(first), np.int64)
    for column in coded:
        known &= column.indices.is_valid().to_numpy(zero_copy_only=False)
        codes = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        # Renumber after every column, as the product of all dictionary sizes may overflow.
        key = np.unique(key * max(1, len(column.dictionary)) + codes, return_inverse=True)[1].astype(np.int64)
    rows = np.flatnonzero(known)
    _, firsts, where = np.unique(key[rows], return_index=True, return_inverse=True)
    places = pa.array(rows[firsts])
    picked = [column.dictionary.take(column.indices.take(places)).to_pylist() for column in coded]
    arguments = iter(picked[1:])
    lists = [
        [value] * len(places) if isinstance(other, pa.Scalar) else next(arguments)
        for other, value in zip(others, constant, strict=True)
    ]
    answers = pa.array([function(*row) for row in zip(picked[0], *lists, strict=True)], result)
    indices = np.zeros(len(first), np.int64)
    indices[rows] = where
    return answers.take(pa.array(indices, mask=~known))
