"""Many Avro datums of one schema at once, column by column: each step reads one field of all records with numpy.

Every record has a cursor, and all cursors move together, so a field costs a handful of array operations however many
records there are. Lists, maps and unions of several types would need a step for each element and are not read here;
:mod:`lakedex.codec.avro_columns` leaves schemas that have them to fastavro.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["DatumError", "Datums", "FlatType", "flat_type", "read_columns"]

Ints = npt.NDArray[np.int64]

_MAX_VARINT = 10
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class DatumError(ValueError):
    """Bytes that do not fit the schema; internal, :mod:`lakedex.codec.avro_columns` names the file."""


@dataclass(frozen=True, slots=True)
class FlatType:
    """A type that this module reads.

    ``kind`` is Avro's name of it; ``null`` is the place of null in a union around it, None where there is none.
    """

    kind: str
    names: tuple[str, ...] = ()
    children: tuple[FlatType, ...] = ()
    size: int = 0
    null: int | None = None
    symbols: tuple[str, ...] = field(default=())


def flat_type(node: Any, known: dict[str, FlatType] | None = None, namespace: str = "") -> FlatType | None:
    """What a schema is made of, or None for one that this module does not read."""
    known = {} if known is None else known
    if isinstance(node, list):
        return _flat_union(node, known, namespace)
    if isinstance(node, str):
        if node in _PRIMITIVES:
            return FlatType(node)
        return known.get(node) or known.get(f"{namespace}.{node}")
    kind = node["type"]
    if isinstance(kind, (dict, list)):
        return flat_type(kind, known, namespace)
    if kind in _PRIMITIVES:
        return FlatType(kind)
    if kind not in ("record", "fixed", "enum"):
        return known.get(kind) or known.get(f"{namespace}.{kind}")
    name = str(node["name"])
    inner = name.rpartition(".")[0] if "." in name else str(node.get("namespace", namespace))
    full = name if "." in name or not inner else f"{inner}.{name}"
    if kind == "record":
        children = [flat_type(entry["type"], known, inner) for entry in node["fields"]]
        found = [child for child in children if child is not None]
        if len(found) != len(children) or not found:
            return None
        made = FlatType("record", tuple(entry["name"] for entry in node["fields"]), tuple(found))
    else:
        made = FlatType(kind, size=int(node.get("size", 0)), symbols=tuple(node.get("symbols", ())))
    known[full] = made
    return made


def _flat_union(branches: list[Any], known: dict[str, FlatType], namespace: str) -> FlatType | None:
    others = [place for place, branch in enumerate(branches) if branch != "null"]
    if len(others) != 1 or len(branches) > 2:
        return None
    child = flat_type(branches[others[0]], known, namespace)
    if child is None or child.kind == "null":
        return None
    null = 1 - others[0] if len(branches) == 2 else None
    return FlatType("union", children=(child,), null=null)


@dataclass(frozen=True, slots=True)
class Datums:
    """Records in Avro's binary form: where each begins and ends in some bytes."""

    data: bytes | memoryview
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Datums:
        """Datums that come one by one."""
        sizes = np.fromiter((len(part) for part in parts), np.int64, len(parts))
        ends = np.cumsum(sizes)
        return cls(b"".join(parts), ends - sizes, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def slice(self, start: int, rows: int) -> Datums:
        """Some of them."""
        return Datums(self.data, self.starts[start : start + rows], self.ends[start : start + rows])

    def parts(self) -> list[memoryview]:
        """The bytes of each."""
        view = memoryview(self.data)
        return [view[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]


def read_columns(
    datums: Datums, record: FlatType, types: Mapping[str, pa.DataType], wanted: Collection[str]
) -> dict[str, Any]:
    """Some top-level columns of all datums.

    Args:
        datums: Each fills its bytes exactly.
        record: Of the records.
        types: Arrow type of each top-level column, as fastavro would give its values.
        wanted: Names of the columns.

    Raises:
        DatumError: Bytes that do not fit the schema.
    """
    reader = _Reader(datums)
    rows = np.arange(len(datums))
    columns = {}
    for name, child in zip(record.names, record.children, strict=True):
        column = reader.read(child, rows, types[name] if name in wanted else None)
        if name in wanted:
            columns[name] = column
    if (reader.position != reader.end).any():
        raise DatumError("a datum is longer than its schema says")
    return columns


class _Reader:
    """Cursors over all datums. Every ``read`` gives one value for each of ``rows``; without a type it only steps on."""

    def __init__(self, datums: Datums) -> None:
        self.data = np.frombuffer(datums.data, np.uint8)
        self.position = datums.starts.copy()
        self.end = datums.ends

    def read(self, kind: FlatType, rows: Ints, arrow: pa.DataType | None) -> Any:
        if kind.kind == "union":
            return self._union(kind, rows, arrow)
        if kind.kind == "record":
            return self._record(kind, rows, arrow)
        if kind.kind == "null":
            return None if arrow is None else pa.nulls(len(rows), arrow)
        if kind.kind in ("int", "long"):
            return self._integer(rows, arrow)
        if kind.kind in ("bytes", "string"):
            return self._text(rows, arrow)
        if kind.kind == "enum":
            return self._enum(kind, rows, arrow)
        size = {"boolean": 1, "float": 4, "double": 8}.get(kind.kind, kind.size)
        return self._fixed(kind.kind, size, rows, arrow)

    def _union(self, kind: FlatType, rows: Ints, arrow: pa.DataType | None) -> Any:
        branch = self._varint(rows)
        if kind.null is None:
            if branch.any():
                raise DatumError("a branch that its union does not have")
            return self.read(kind.children[0], rows, arrow)
        if ((branch != 0) & (branch != 1)).any():
            raise DatumError("a branch that its union does not have")
        there = branch != kind.null
        if there.all():
            return self.read(kind.children[0], rows, arrow)
        values = self.read(kind.children[0], rows[there], arrow)
        if values is None:
            return None
        return values.take(pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there))

    def _record(self, kind: FlatType, rows: Ints, arrow: pa.DataType | None) -> Any:
        fields = [None] * len(kind.children) if arrow is None else list(arrow)
        children = [
            self.read(child, rows, None if part is None else part.type)
            for child, part in zip(kind.children, fields, strict=True)
        ]
        return None if arrow is None else pa.StructArray.from_arrays(children, fields=fields)

    def _integer(self, rows: Ints, arrow: pa.DataType | None) -> Any:
        values = self._varint(rows)
        if arrow is None:
            return None
        if arrow == pa.int32() and len(values) and (values.min() < -(2**31) or values.max() >= 2**31):
            raise DatumError("an int past 32 bits")
        return pa.array(values.astype(arrow.to_pandas_dtype(), copy=False), arrow)

    def _text(self, rows: Ints, arrow: pa.DataType | None) -> Any:
        lengths = self._varint(rows)
        begin = self._take(rows, lengths)
        if arrow is None:
            return None
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(begin - offsets[:-1], lengths) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self.data[places])]
        array = pa.Array.from_buffers(arrow, len(rows), buffers)
        array.validate(full=True)
        return array

    def _enum(self, kind: FlatType, rows: Ints, arrow: pa.DataType | None) -> Any:
        places = self._varint(rows)
        if len(places) and not (places.min() >= 0 and places.max() < len(kind.symbols)):
            raise DatumError("a symbol that its enum does not have")
        return None if arrow is None else pa.array(kind.symbols, arrow).take(pa.array(places))

    def _fixed(self, kind: str, size: int, rows: Ints, arrow: pa.DataType | None) -> Any:
        begin = self._take(rows, np.full(len(rows), size, np.int64))
        if arrow is None:
            return None
        found = self.data[begin[:, None] + np.arange(size)]
        if kind == "boolean":
            if (found > 1).any():
                raise DatumError("a boolean that is neither 0 nor 1")
            return pa.array(found[:, 0] == 1)
        if kind in ("float", "double"):
            return pa.array(found.view("<f4" if kind == "float" else "<f8")[:, 0], arrow)
        flat = pa.py_buffer(found)
        if pa.types.is_fixed_size_binary(arrow):
            return pa.Array.from_buffers(arrow, len(rows), [None, flat])
        offsets = pa.py_buffer(np.arange(len(rows) + 1, dtype=np.int32) * np.int32(size))
        return pa.Array.from_buffers(arrow, len(rows), [None, offsets, flat])

    def _take(self, rows: Ints, lengths: Ints) -> Ints:
        """Step over so many bytes; gives where they begin."""
        begin = self.position[rows]
        if (lengths < 0).any() or (lengths > self.end[rows] - begin).any():
            raise DatumError("a value that runs past the end of its datum")
        self.position[rows] = begin + lengths
        return begin

    def _varint(self, rows: Ints) -> Ints:
        """Zigzag numbers of up to ten bytes."""
        position, end = self.position[rows], self.end[rows]
        value = np.zeros(len(rows), np.uint64)
        left = np.arange(len(rows))
        for place in range(_MAX_VARINT):
            at = position[left]
            if (at >= end[left]).any():
                raise DatumError("a number that runs past the end of its datum")
            byte = self.data[at]
            value[left] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
            position[left] = at + 1
            left = left[byte >= 0x80]
            if not len(left):
                break
        else:
            raise DatumError("a number of more than ten bytes")
        self.position[rows] = position
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
