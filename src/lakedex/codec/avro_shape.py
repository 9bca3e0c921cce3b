"""What an Avro schema may be before anything is read by it.

Schemas come with the bytes: in containers, in HFiles, in log blocks. fastavro follows them in C, without a limit of its
own, so a damaged one could take all memory, all time, or the process:

* a record that holds itself ends the process, since its reader calls itself once a level;
* lists and maps of values that take no bytes (``null``, a record of nulls, a ``fixed`` of size 0) say how many there
  are and then hold nothing, so that their count is not bounded by the bytes that are there;
* types that are used by name, each of them in the next one several times, make few words mean millions of values.

The second and third are bounded by what the schema spells out, so that a table may have any number of columns: a
nullable column is a union, whose null takes the byte that says so. Nothing that Hudi or Spark writes is near them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["check_shape", "full_name"]

MAX_DEPTH = 100
MAX_TYPES = 1 << 16
"""Types in a schema once each name stands for all of its type; more only if it spells out its share of them."""
MAX_TYPES_PER_NODE = 4
MAX_WITHOUT_BYTES = 256
"""Of these, types whose values take no bytes: a datum of few bytes may have so many values beside them."""

_FIXED_BYTES = {"null": 0, "float": 4, "double": 8}


class _Shape(NamedTuple):
    """Fewest bytes of a value, types within, those of them without bytes, and levels."""

    size: int
    types: int
    empty: int
    depth: int


def check_shape(schema: Any) -> int:
    """Refuse a schema that costs more than the bytes that are read by it.

    What is no schema at all is left for those who parse it.

    Returns:
        Fewest bytes that a value takes. A value of a type for which that is none never takes any.

    Raises:
        ValueError: It does; the message says how.
    """
    return _Walk({}).shape(schema, "", 0).size


class _Walk:
    """One schema, and the types that it has named so far; None for a record that is not yet at its end."""

    __slots__ = ("named", "nodes")

    def __init__(self, named: dict[str, _Shape | None]) -> None:
        self.named = named
        self.nodes = 0

    def shape(self, node: Any, namespace: str, level: int) -> _Shape:
        self.nodes += 1
        if level > MAX_DEPTH:
            raise ValueError(f"a schema of more than {MAX_DEPTH} levels")
        found = self._shape(node, namespace, level)
        if found.depth > MAX_DEPTH:
            raise ValueError(f"a schema of more than {MAX_DEPTH} levels")
        if found.types > max(MAX_TYPES, MAX_TYPES_PER_NODE * self.nodes):
            raise ValueError(f"a schema of {self.nodes} nodes that stands for {found.types} types")
        if found.empty > MAX_WITHOUT_BYTES:
            raise ValueError(f"a schema with more than {MAX_WITHOUT_BYTES} types whose values take no bytes")
        return found

    def _shape(self, node: Any, namespace: str, level: int) -> _Shape:
        if isinstance(node, list):
            branches = [self.shape(branch, namespace, level + 1) for branch in node]
            found = _around(branches, 1 + min((branch.size for branch in branches), default=0), 0)
            # The place of the branch takes a byte, and only one branch is there.
            return found._replace(empty=max((branch.empty for branch in branches if branch.types > 1), default=0))
        if isinstance(node, str):
            return self._by_name(node, namespace)
        if not isinstance(node, dict):
            return _leaf(1)
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.shape(kind, namespace, level + 1)
        if kind in ("array", "map"):
            element = self.shape(node.get("items" if kind == "array" else "values"), namespace, level + 1)
            if kind == "array" and not element.size:
                raise ValueError("a list of values without bytes")
            if kind == "map" and not element.size:
                raise ValueError("a map of values without bytes")
            return _around([element], 1, 0)
        if kind in ("record", "error", "fixed"):
            return self._named_type(node, kind, namespace, level)
        found = _leaf(1) if kind == "enum" else self._by_name(kind, namespace)
        if kind == "enum":
            self.named[full_name(node, namespace)] = found
        return found

    def _named_type(self, node: dict[str, Any], kind: str, namespace: str, level: int) -> _Shape:
        name = full_name(node, namespace)
        if kind == "fixed":
            size = node.get("size")
            found = _leaf(min(size, 1 << 40) if isinstance(size, int) and size > 0 else 0)
        else:
            self.named[name] = None
            inner = name.rpartition(".")[0]
            fields = node.get("fields")
            own = [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
            parts = [self.shape(part, inner, level + 1) for part in own]
            size = min(sum(part.size for part in parts), 1 << 40)
            found = _around(parts, size, 0 if parts else 1)
        self.named[name] = found
        return found

    def _by_name(self, name: Any, namespace: str) -> _Shape:
        if not isinstance(name, str):
            return _leaf(1)
        for full in (name, f"{namespace}.{name}"):
            if full in self.named:
                found = self.named[full]
                if found is None:
                    raise ValueError(f"the record {full!r} holds itself")
                return found
        return _leaf(_FIXED_BYTES.get(name, 1))


def _leaf(size: int) -> _Shape:
    return _Shape(size, 1, int(size == 0), 1)


def _around(parts: list[_Shape], size: int, empty: int) -> _Shape:
    return _Shape(
        size,
        1 + sum(part.types for part in parts),
        empty + sum(part.empty for part in parts),
        1 + max((part.depth for part in parts), default=0),
    )


def full_name(node: dict[str, Any], namespace: str) -> str:
    """The full name of a named type: with a dot it is one already, else its namespace or the enclosing one."""
    name = str(node.get("name"))
    if "." in name:
        return name
    own = node.get("namespace", namespace)
    return f"{own}.{name}" if own else name
