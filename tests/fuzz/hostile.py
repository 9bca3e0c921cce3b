"""Sound metadata with hostile values in it: paths that lead outside, names of other things, numbers without bound.

Avro bodies, JSON documents and properties are taken apart, changed and put together again, so that the damage is in what
they say and not in how they are stored.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from avro_parts import avro_bytes, avro_long, container
from fuzz.mutations import Mutator
from lakedex.codec import avro
from lakedex.codec.properties import decode_properties, encode_properties

__all__ = ["Facts", "hostile_body", "hostile_json", "hostile_properties", "hostile_text", "recoded"]

NUMBERS = (0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63))
_ODD = (
    *(
        "",
        " ",
        ".",
        "..",
        "/",
        "//",
        "\\",
        "..\\neighbour",
        "\0",
        "x\0y",
        "\n",
        "\x1b[2J\x1b[31mred",
        "\u202e",
        "\ufeff",
    ),
    *(
        "%2e%2e%2fneighbour",
        "..%2fneighbour",
        "~",
        "$HOME",
        "*",
        "?",
        "[",
        "-rf",
        "con",
        "NaN",
        "null",
        "__HIVE_DEFAULT",
    ),
    *(".hoodie", ".hoodie/metadata", ".hoodie/hoodie.properties", ".hoodie/timeline", "hoodie.properties", "lock"),
    *("x" * 256, "x" * 5000, "é" * 200, "a/" * 3000, "../" * 2000, "9" * 17, "9" * 18, "0" * 17, "20250101000000000"),
)
_OUTSIDE = (
    *(
        "../neighbour",
        "../folder",
        "../secret.txt",
        "../folder/kept.txt",
        "../../secret.txt",
        "../table",
        "./../neighbour",
    ),
    *("../neighbour/.hoodie/hoodie.properties", "../neighbour/.hoodie", "../neighbour/.hoodie/timeline"),
    *(
        "x/../../neighbour",
        "x/../../../neighbour",
        "x/../../../../folder",
        ".hoodie/../../folder",
        "../../../../folder",
    ),
    *("../../../folder", "../../folder", "../../../neighbour", "../../../../neighbour", "../../neighbour"),
)
_REMOTE = ("memory://lake/folder", "file:../folder", "s3://bucket/x", "hdfs:///x", "http://127.0.0.1:9/x")


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to name.

    Attributes:
        base: the table's folder.
        outside: folder that the table and its neighbours lie in.
        names: names of files, folders and instants of the table and of its neighbour.
        folders: partition paths of both.
    """

    base: str
    outside: str
    names: Sequence[str]
    folders: Sequence[str]


def hostile_text(mutator: Mutator, facts: Facts, old: str = "") -> str:
    """A text in the place of another one."""
    kind = mutator.choice(
        ("out", "out", "out", "file", "file", "absolute", "joined", "odd", "odd", "other", "remote", "bit")
    )
    outside: str = mutator.choice(_OUTSIDE)
    if kind == "out":
        return outside
    if kind == "file":
        up = mutator.choice(
            ("../neighbour", "../neighbour", "../../neighbour", "x/../../neighbour", facts.outside + "/neighbour")
        )
        return f"{up}/{mutator.choice(facts.folders)}/{mutator.choice(facts.names)}"
    if kind == "absolute":
        start = mutator.choice(
            (facts.outside, f"file:{facts.outside}", f"file://{facts.outside}", f"file://host{facts.outside}")
        )
        return f"{start}/{mutator.choice(('neighbour', 'folder', 'secret.txt', 'table/../folder', 'table'))}"
    if kind == "joined":
        head, _, tail = old.rpartition("/")
        middle = mutator.choice((outside, "..", ".hoodie", "\0", "../" * 12, facts.outside[1:]))
        return mutator.choice((f"{old}/{outside}", f"{outside}/{tail}", f"{head}/{middle}/{tail}", f"{middle}/{old}"))
    if kind == "other":
        return str(mutator.choice(facts.names if mutator.chance(0.6) else facts.folders))
    if kind == "remote":
        return str(mutator.choice(_REMOTE))
    return str(mutator.choice(_ODD)) if kind == "odd" else mutator.text(old)


def _places(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        node = todo.pop()
        if isinstance(node, dict | list):
            for key, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
                found.append((node, key))
                todo.append(child)
    return found


def hostile_document(mutator: Mutator, document: Any, facts: Facts) -> Any:
    """A copy with some texts, keys and numbers that are hostile; its shape stays as its schema wants it."""
    changed = copy.deepcopy(document)
    for _ in range(mutator.choice((1, 1, 1, 2, 3))):
        places = _places(changed)
        texts = [(node, key) for node, key in places if isinstance(node[key], str)]
        kind = mutator.choice(("text", "text", "text", "text", "key", "key", "number", "many", "empty", "other", "add"))
        if not places:
            break
        node, key = mutator.choice(texts if texts and kind in ("text", "other") else places)
        if kind == "text" and isinstance(node[key], str):
            node[key] = hostile_text(mutator, facts, node[key])
        elif kind == "other" and texts:
            other, at = mutator.choice(texts)
            node[key] = other[at]
        elif kind == "number" and isinstance(node[key], int):
            node[key] = mutator.choice(NUMBERS)
        elif kind == "many" and isinstance(node[key], list) and node[key]:
            node[key] = node[key] * mutator.choice((2, 1000))
        elif kind == "empty" and isinstance(node[key], dict | list):
            node[key].clear()
        elif kind == "key" and isinstance(node, dict) and _is_map(node):
            node[hostile_text(mutator, facts, key)] = node.pop(key)
        elif kind == "add" and isinstance(node, dict) and _is_map(node):
            node[hostile_text(mutator, facts, key)] = copy.deepcopy(node[key])
        elif isinstance(node[key], str):
            node[key] = hostile_text(mutator, facts, node[key])
    return changed


def _is_map(node: Mapping[str, Any]) -> bool:
    """Whether a dictionary is a map and no record, as far as its keys tell: fields are words in Hudi's schemas."""
    return any(not key.isidentifier() for key in node) or mostly_alike(node)


def mostly_alike(node: Mapping[str, Any]) -> bool:
    """Whether all values of a dictionary are of one type."""
    return len({type(value) for value in node.values()}) == 1


def recoded(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """An Avro container of one record whose record is another; as it was where that does not fit its schema."""
    written, (record,) = avro.read_container(data)
    try:
        datum = avro.encode_datum(avro.parse(written), change(record))
    except Exception:
        return data
    text = json.dumps(written, separators=(",", ":")).encode()
    return container({b"avro.schema": text}, avro_long(1) + avro_bytes(datum))


def hostile_body(mutator: Mutator, data: bytes, facts: Facts) -> bytes:
    """A timeline body, Avro or JSON, with hostile values, with other types than it says, or damaged."""
    if not data or mutator.chance(0.04):
        return mutator.choice((b"", b"{}", b"null", b"[]", b"{", b"[" * 100_000, b'{"a":' * 50_000, bytes(100)))
    if data[:4] == avro.MAGIC:
        if mutator.chance(0.1):
            return mutator.bytes(data)
        if mutator.chance(0.1):
            # A schema of its own: fields that are missing, or have other types.
            return _as_json(mutator, data)
        return recoded(data, lambda record: hostile_document(mutator, record, facts))
    return hostile_json(mutator, data, facts) if data[:1] in (b"{", b"[") else mutator.bytes(data)


def _as_json(mutator: Mutator, data: bytes) -> bytes:
    _, (record,) = avro.read_container(data)
    text = json.dumps(record, default=lambda value: value.decode("latin-1"))
    return mutator.json(text).encode("utf-8", "surrogatepass")


def hostile_json(mutator: Mutator, data: bytes, facts: Facts) -> bytes:
    """A JSON document with hostile values."""
    if mutator.chance(0.25):
        return mutator.json(data).encode("utf-8", "surrogatepass")
    if mutator.chance(0.05):
        return mutator.choice((b"", b"null", b"[" * 100_000, b'{"a":' * 50_000, b'{"a":' + b"9" * 10_000 + b"}"))
    return json.dumps(hostile_document(mutator, json.loads(data), facts)).encode("utf-8", "surrogatepass")


_SETTINGS = (
    *("hoodie.timeline.path", "hoodie.timeline.history.path", "hoodie.archivelog.folder", "hoodie.table.name"),
    *("hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight", "hoodie.table.partition.fields"),
    *("hoodie.table.recordkey.fields", "hoodie.table.type", "hoodie.table.version", "hoodie.timeline.layout.version"),
    *("hoodie.table.base.file.format", "hoodie.table.create.schema", "hoodie.table.index.defs.path"),
    *("hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class", "hoodie.record.merge.mode"),
    *("hoodie.table.timeline.timezone", "hoodie.table.ordering.fields", "hoodie.table.precombine.field"),
    *("hoodie.table.checksum", "hoodie.database.name", "hoodie.bootstrap.base.path", "hoodie.compaction.payload.class"),
    *("hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode"),
)


def hostile_properties(mutator: Mutator, data: bytes, facts: Facts) -> bytes:
    """Properties of which some have hostile values, or are damaged; sometimes very many of them."""
    kind = mutator.choice((*["value"] * 8, "bytes", "bytes", "many", "empty"))
    if kind == "bytes":
        return mutator.bytes(data)
    if kind == "empty":
        return mutator.choice((b"", b"\0" * 100, b"=" * 1000, b"\\" * 10_000, b"\\u" * 1000))
    if kind == "many":
        line = mutator.choice((b"a\n", b"k=v\n", b"\\\n", b"#\n", b"x" * 70_000, b"\xff\n", b"a=\\u0041\n"))
        return data + line * min(mutator.choice((10, 10, 1000, 1000, 20_000)), (12 << 20) // len(line))
    entries = dict(decode_properties(data))
    for _ in range(mutator.choice((1, 1, 2))):
        # Settings that name places are in half of them.
        key = mutator.choice(_SETTINGS if mutator.chance(0.7) else tuple(entries))
        old = entries.get(key, "")
        value = hostile_text(mutator, facts, old)
        if mutator.chance(0.3):
            value = mutator.choice(
                (f"{old},{value}", f"{value},{old}", str(mutator.choice(NUMBERS)), "true", "NONE", "COMPLEX")
            )
        entries[key] = value
    try:
        return encode_properties(entries)
    except Exception:
        return mutator.bytes(data)
