"""Targets over whole tables on disk whose metadata is hostile: what it says is not damaged but meant to do harm.

Each input is a table in some state (:mod:`fuzz.hostile_seeds`), a part of it made hostile, then some operations one after
another, with all that they do before (undoing what died) and after. Each ends well or in a ``LakedexError``. After each,
nothing beside the table is changed, and nothing of what lies there has come back: not in rows, not in an error's text.

What operations do *within* the table is not looked at: who may write its metadata may remove its rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from fuzz.hostile import Facts, hostile_body, hostile_json, hostile_properties, hostile_text, recoded
from fuzz.hostile_seeds import rows, seed_files, seed_names
from fuzz.mutations import Mutator
from fuzz.running import Case, Target
from fuzz.watched import SECRET, Content, Fifo, Link, Watched, watched
from lakedex import Table
from lakedex.codec import avro
from lakedex.errors import CorruptFileError, LakedexError
from lakedex.timeline import table_config

__all__ = ["HOSTILE_TARGETS"]

Changes = Mapping[str, Content | None]
OPTIONS = {
    "hoodie.write.lock.wait_time_ms": "50",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.automatic": "false",
}
UPKEEP = {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "2",
          "hoodie.keep.max.commits": "3"}  # fmt: skip
MULTIPLE = 20_000
"""Of the hostile part: a table's other files are read as well, and rows written."""
SECONDS = 8.0
"""Processor time of all operations of an input."""


# --------------------------------------------------------------------------------------------------- operations


def _read(table: Table) -> Any:
    return table.scan().to_arrow()


def _query(table: Table) -> Any:
    plan = table.scan("color = 'red' AND n > 3 OR id = 'k4'")
    return plan.to_arrow(), plan.count(), str(plan.explain())


def _past(table: Table) -> Any:
    found = table.inspect.history()["commit_time"].to_pylist()
    return table.scan(as_of=found[len(found) // 2]).to_arrow() if found else None


def _changes(table: Table) -> Any:
    return table.changes("earliest", fallback="full").to_arrow(), table.inspect.history(archived=True)


def _upsert(table: Table) -> Any:
    return str(table.upsert(rows(3, 9, 20), options=UPKEEP))


def _rollback(table: Table) -> Any:
    found = table.inspect.history(1)["commit_time"].to_pylist()
    return str(table.maintenance.rollback(str(found[0]))) if found else None


def _restore(table: Table) -> Any:
    found = table.maintenance.savepoints()
    return found, str(table.maintenance.restore(str(found["instant"][0]))) if len(found) else None


def _inspect(table: Table) -> Any:
    seen = table.inspect
    return seen.files(), seen.timeline(), seen.column_stats(), seen.bitmaps(), table.indexes.list(), table._repr_html_()


OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "read": _read,
    "query": _query,
    "past": _past,
    "changes": _changes,
    "inspect": _inspect,
    "upsert": _upsert,
    "insert": lambda table: str(table.insert(rows(30, 32, 20))),
    "delete": lambda table: str(table.delete(where="n < 805")),
    "overwrite": lambda table: str(table.insert_overwrite(rows(0, 3, 21))),
    "erase": lambda table: str(table.erase(["k4"])),
    "add_columns": lambda table: str(table.add_columns(pa.schema([("more", pa.int32())]))),
    "clean": lambda table: str(table.maintenance.clean(versions=1)),
    "rollback": _rollback,
    "restore": _restore,
    "savepoint": lambda table: (table.maintenance.savepoint(), table.maintenance.savepoints()),
    "drop_index": lambda table: str(table.indexes.drop("column_stats")),
    "drop_bitmaps": lambda table: str(table.indexes.drop("colors")),
    "refresh_index": lambda table: str(table.indexes.refresh("colors")),
    "validate": lambda table: str(table.maintenance.validate()),
    "rebuild": lambda table: str(table.maintenance.rebuild_metadata()),
    "archive": lambda table: str(
        table.maintenance.archive(options={**UPKEEP, "hoodie.archive.merge.files.batch.size": "2"})
    ),
    "compact": lambda table: str(table.maintenance.compact_metadata()),
}
READS = ("read", "query", "past", "changes", "inspect", "validate")
WRITES = tuple(name for name in OPERATIONS if name not in READS)


def _chosen(mutator: Mutator) -> tuple[str, ...]:
    """A reading, a writing and another operation; in half of the cases the one that most people run first."""
    first = "upsert" if mutator.chance(0.4) else mutator.choice(WRITES)
    chosen = [mutator.choice(READS), first, mutator.choice(tuple(OPERATIONS))]
    return tuple(chosen if mutator.chance(0.5) else (chosen[1], chosen[0], chosen[2]))


def _run(place: Watched, files: Mapping[str, Content], operations: tuple[str, ...]) -> None:
    """Do the operations; the last refusal is the outcome, if there was one."""
    place.lay(files)
    refused: LakedexError | None = None
    with _quick():
        for name in operations:
            shown, unnamed = "", False
            try:
                shown = _shown(OPERATIONS[name](Table.open(place.table, options=OPTIONS)))
            except LakedexError as error:
                refused, shown = error, str(error)
                unnamed = isinstance(error, CorruptFileError) and str(place.table) not in error.path
            except BaseException as error:
                error.add_note(f"in {name}")
                raise
            assert not unnamed, f"{name}: no file of the table is named: {shown[:300]}"
            changed = place.changes()
            assert not changed, f"{name} changed what lies beside the table: {changed[:5]}"
            assert SECRET not in shown, f"{name} shows what lies beside the table: {shown[:300]}"
    if refused is not None:
        raise _Refused(str(refused)) from refused


class _Refused(LakedexError):
    """A refusal that has been looked at."""


def _shown(found: Any) -> str:
    if isinstance(found, pa.Table):
        return str(found.to_pydict())
    return " ".join(map(_shown, found)) if isinstance(found, tuple) else str(found)


@contextlib.contextmanager
def _quick() -> Any:
    """Nothing waits for the disk, nor for a writer that may be at work on the properties."""
    with (
        patch("os.fsync", lambda _: None),
        patch.object(table_config, "time", SimpleNamespace(sleep=lambda seconds: None)),
    ):
        yield


# ------------------------------------------------------------------------------------------------------- inputs


@cache
def _facts() -> Facts:
    place = watched()
    paths = [path for name in seed_names()[::8] for path in seed_files(name) if not path.startswith(".hoodie/metadata")]
    names = {path.rpartition("/")[2] for path in paths}
    folders = {path.rpartition("/")[0] for path in paths} | {"city=paris", ".hoodie/metadata/files"}
    instants = {name[:17] for name in names if name[:17].isdigit()}
    return Facts(str(place.table), str(place.table.parent), sorted(names | instants), sorted(folders))


@cache
def _located(name: str) -> Mapping[str, bytes]:
    """A seed's files, as if they had been written where they will lie: plans hold absolute paths."""
    found = {}
    for path, data in seed_files(name).items():
        plan = data[:4] == avro.MAGIC and path.endswith((".requested", ".rollback", ".restore")) and b"/table/" in data
        found[path] = recoded(data, _moved) if plan else data
    return found


def _moved(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _moved(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_moved(value) for value in node]
    if isinstance(node, str) and "/table/" in node:
        return f"{_facts().base}/{node.partition('/table/')[2]}"
    return node


def _case(
    mutator: Mutator, name: str, changes: Changes, *, first: tuple[str, ...] = (), seconds: float = SECONDS
) -> Case:
    changed = {**_located(name), **changes}
    files = {path: content for path, content in changed.items() if content is not None}
    size = sum(len(content) for content in changes.values() if isinstance(content, bytes)) + 200 * len(changes)
    operations = (*first, *_chosen(mutator))[:3]
    return Case(size, partial(_run, watched(), files, operations), multiple=MULTIPLE, names_file=False, seconds=seconds)


def _seed(mutator: Mutator, *states: str) -> str:
    return str(mutator.choice([name for name in seed_names() if not states or name.rpartition("/")[2] in states]))


def _some(mutator: Mutator, name: str, *parts: str) -> str | None:
    """A file of a seed whose path has all of the parts."""
    found = [path for path in seed_files(name) if all(part in path for part in parts)]
    return str(mutator.choice(found)) if found else None


def _in_timeline(mutator: Mutator, name: str, *kinds: str) -> list[str]:
    """Files of the data timeline whose names end so."""
    return [
        path
        for path in seed_files(name)
        if path.startswith(".hoodie/") and "/metadata/" not in path and "/." not in path and path.endswith(kinds)
    ]


def _bodies(mutator: Mutator, name: str, kinds: tuple[str, ...], *, most: int = 2) -> dict[str, Content | None]:
    found = _in_timeline(mutator, name, *kinds)
    chosen = mutator.random.sample(found, min(len(found), mutator.choice(range(1, most + 1))))
    return {path: hostile_body(mutator, _located(name)[path], _facts()) for path in chosen}


def _plans(mutator: Mutator) -> Case:
    """What was planned and is carried out by the next writer."""
    state = mutator.choice(("clean_planned", "clean_begun", "rollback_planned", "rollback_begun", "restore_begun"))
    name = _seed(mutator, state)
    kind = state.partition("_")[0]
    return _case(mutator, name, _bodies(mutator, name, (f".{kind}.requested",), most=1))


def _commits(mutator: Mutator) -> Case:
    name = _seed(mutator)
    kinds = (".commit", ".replacecommit", ".replacecommit.requested", ".inflight", ".commit.requested")
    return _case(mutator, name, _bodies(mutator, name, kinds))


def _services(mutator: Mutator) -> Case:
    """What services did, and savepoints."""
    name = _seed(mutator)
    return _case(mutator, name, _bodies(mutator, name, (".clean", ".rollback", ".restore", ".savepoint")))


def _metadata_timeline(mutator: Mutator) -> Case:
    """Bodies of the metadata table's timeline, its plans of compactions among them."""
    name = _seed(mutator, *mutator.choice((("compaction_planned",), ())))
    found = [path for path in seed_files(name) if path.startswith(".hoodie/metadata/.hoodie/")]
    plans = [path for path in found if path.endswith(".compaction.requested")]
    path = mutator.choice(plans if plans and mutator.chance(0.6) else found)
    data = _located(name)[path]
    damaged = (
        hostile_properties(mutator, data, _facts())
        if path.endswith(".properties")
        else hostile_body(mutator, data, _facts())
    )
    return _case(mutator, name, {path: damaged}, first=("compact",) if mutator.chance(0.4) else ())


def _pending(mutator: Mutator) -> Case:
    """Instants of any action and state, or bodies under another's name."""
    name = _seed(mutator)
    found = _in_timeline(mutator, name, ".requested", ".inflight", ".commit", ".clean", ".rollback", ".savepoint")
    path = mutator.choice(found)
    folder, _, own = path.rpartition("/")
    digits = mutator.choice(
        ("20250301000000000", own[:17], "99991231235959999", "0" * 17, "1", "20250301", "2025030100000000x")
    )
    action = mutator.choice(
        ("commit", "deltacommit", "clean", "rollback", "restore", "savepoint", "replacecommit", "compaction",
         "logcompaction", "clustering", "indexing", "schemacommit", "x", "..", "")
    )  # fmt: skip
    state = mutator.choice((".requested", ".inflight", "", f"_{digits}"))
    new = f"{folder}/{digits}.{action}{state}" if "_" not in state else f"{folder}/{digits}{state}.{action}"
    content: Content = _located(name)[path]
    if mutator.chance(0.3):
        content = mutator.choice((b"", b"{}", hostile_body(mutator, _located(name)[path], _facts())))
    moved: dict[str, Content | None] = {path: None} if mutator.chance(0.5) else {}
    return _case(mutator, name, {**moved, new: content})


def _markers(mutator: Mutator) -> Case:
    name = _seed(mutator, "written")
    marker = _some(mutator, name, ".hoodie/.temp/") or ""
    root = "/".join(marker.split("/")[:3])
    facts = _facts()
    if mutator.chance(0.5):
        lines = [
            mutator.choice((hostile_text(mutator, facts, marker), f"{hostile_text(mutator, facts)}.marker.CREATE"))
            for _ in range(mutator.choice((1, 3, 3, 2000)))
        ]
        text = mutator.choice(("\n", "\r\n", "\0", "\n\n")).join(lines).encode("utf-8", "surrogatepass")
        kind = mutator.choice((b"TIMELINE_SERVER_BASED", b"DIRECT", b"x", b""))
        return _case(mutator, name, {f"{root}/MARKERS0": text, f"{root}/MARKERS.type": kind})
    folder = mutator.choice(("city=oslo", "a/b/c", "x/" * 300, ".hoodie", ".hoodie/metadata/files", "city=paris"))
    file = mutator.choice((*facts.names, mutator.text(marker.rpartition("/")[2]))).replace("/", "_")
    kind = mutator.choice((".marker.CREATE", ".marker.MERGE", ".marker.APPEND", ".marker.x", ""))
    return _case(mutator, name, {f"{root}/{folder}/{file}{kind}": b"", marker: None})


def _temp(mutator: Mutator) -> Case:
    """Folders of writes and heartbeats, of names that are no instants or another's."""
    name = _seed(mutator)
    facts = _facts()
    changes: dict[str, Content | None] = {}
    for _ in range(mutator.choice((1, 3, 50))):
        instant = mutator.choice((*facts.names, mutator.text("20250301000000000"), "...", "..x", " ", "-rf", "x" * 255))
        instant = instant.replace("/", "_") or "x"
        beat = mutator.choice(
            (b"", b"{}", b"[" * 5000, b'{"host": 1}', b"\xff", b'{"host": "x", "machine": "", "pid": 1e400}')
        )
        changes[f".hoodie/.heartbeat/{instant}"] = mutator.bytes(beat) if mutator.chance(0.3) else beat
        changes[f".hoodie/.temp/{instant}/{mutator.choice(('x', '.blooms/x', 'city=oslo/x.marker.CREATE'))}"] = b"x"
    return _case(mutator, name, changes)


def _history(mutator: Mutator) -> Case:
    """Manifests of archived instants, which version in force, files under names of their own; archives of version 6."""
    name = _seed(mutator)
    found = [path for path in seed_files(name) if "/history/" in path or "/archived/" in path]
    path = mutator.choice(found)
    data = _located(name)[path]
    leaf = path.rpartition("/")[2]
    if leaf.startswith("manifest"):
        damaged = hostile_json(mutator, data, _facts())
    elif leaf == "_version_":
        damaged = mutator.choice((b"", b"0", b"-1", b"9" * 5000, b"../1", b"\xb2", "²".encode(), b"1\0", b"99"))
    elif leaf.endswith(".parquet"):
        cut = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        damaged = mutator.bytes(data[:cut]) + data[cut:]
    else:
        damaged = mutator.bytes(data)
    changes: dict[str, Content | None] = {path: damaged}
    if mutator.chance(0.3):
        number = mutator.choice(("2", "7", "99999999999999999999", "9" * 200, "-1", "x"))
        changes[f"{path.rpartition('/')[0]}/manifest_{number}"] = damaged
    return _case(mutator, name, changes, first=mutator.choice((("archive",), ("changes",), ())))


def _indexes(mutator: Mutator) -> Case:
    """Definitions and manifests of indexes."""
    name = _seed(mutator)
    path = (
        _some(mutator, name, ".index_defs/") if mutator.chance(0.6) else _some(mutator, name, "bitmap_index/manifest")
    )
    assert path is not None
    damaged = hostile_json(mutator, _located(name)[path], _facts())
    first = mutator.choice(((), ("drop_bitmaps",), ("refresh_index",), ("drop_index",), ("validate",), ("query",)))
    return _case(mutator, name, {path: damaged}, first=first)


def _properties(mutator: Mutator) -> Case:
    name = _seed(mutator)
    path = ".hoodie/hoodie.properties"
    damaged = hostile_properties(mutator, _located(name)[path], _facts())
    changes: dict[str, Content | None] = {path: damaged}
    if mutator.chance(0.15):
        backup = hostile_properties(mutator, _located(name)[path], _facts())
        changes = {f"{path}.backup": backup, path: mutator.choice((None, damaged, b""))}
    # Each look at the table reads them, and they may be eight megabytes.
    return _case(mutator, name, changes, seconds=20.0)


def _partitions(mutator: Mutator) -> Case:
    """``.hoodie_partition_metadata``, and folders that look like partitions; without a metadata table in half of them."""
    name = _seed(mutator)
    facts = _facts()
    path = _some(mutator, name, ".hoodie_partition_metadata") or ""
    lines = mutator.choice(
        (
            "partitionDepth=" + mutator.choice(("0", "-1", "2147483648", "9" * 5000, "x", "1000000", "١")),
            f"commitTime={hostile_text(mutator, facts)}\npartitionDepth=1",
            hostile_text(mutator, facts),
        )
    )
    changes: dict[str, Content | None] = {path: lines.encode("utf-8", "surrogatepass")}
    if mutator.chance(0.5):
        folder = mutator.choice(
            ("city=..", "city=%2e%2e", "city=%00", "a/b/c/d", "x/" * 200, "city=\x1b[2J", "city=é\n")
        )
        file = mutator.choice([leaf for leaf in facts.names if leaf.endswith(".parquet")])
        changes[f"{folder}/.hoodie_partition_metadata"] = b"partitionDepth=1\ncommitTime=20250301000000000\n"
        changes[f"{folder}/{file}"] = mutator.choice((b"", b"PAR1", b"x"))
    if mutator.chance(0.4):
        changes |= dict.fromkeys((path for path in seed_files(name) if path.startswith(".hoodie/metadata/")), None)
    return _case(mutator, name, changes, first=mutator.choice(((), ("rebuild",), ("validate",))))


def _links(mutator: Mutator) -> Case:
    """Links in the place of files and folders: outside, in circles, to nowhere, to devices; and pipes."""
    name = _seed(mutator)
    path = mutator.choice(tuple(seed_files(name)))
    parts = path.split("/")
    spot = "/".join(parts[: mutator.choice(range(1, len(parts) + 1))])
    outside = _facts().outside
    target = mutator.choice(
        (
            f"{outside}/neighbour/{spot}", f"{outside}/neighbour/{spot}", f"{outside}/neighbour", f"{outside}/folder",
            f"{outside}/secret.txt", "../neighbour", ".", "..", "/", "/nowhere", "/dev/null", "/dev/zero",
            spot.rpartition("/")[2], f"{_facts().base}/.hoodie", f"{outside}/neighbour/city=oslo",
        )
    )  # fmt: skip
    if mutator.chance(0.3):
        spot = mutator.choice(
            (".hoodie/.temp/20250301000000000", ".hoodie/.heartbeat", "city=paris", ".hoodie/.temp", "x")
        )
    content: Content = Fifo() if mutator.chance(0.08) else Link(target)
    return _case(mutator, name, {spot: content})


def _many(mutator: Mutator) -> Case:
    """Very many small files, or folders one in another."""
    name = _seed(mutator)
    timeline = ".hoodie" if name.startswith("6/") else ".hoodie/timeline"
    body = mutator.choice((b"", b"", b"{}"))
    marker = _some(mutator, name, ".hoodie/.temp/") or ".hoodie/.temp/20250301000000000/x"
    # Each of the first is an action that the next writer undoes or finishes, and that takes a look at all others.
    actions = (
        f"{timeline}/%d.commit.requested", f"{timeline}/%d.inflight", f"{timeline}/%d.clean.requested",
        f"{timeline}/%d.restore.requested", f"{timeline}/%d.savepoint.inflight",
        f"{timeline}/%d.replacecommit.requested",
    )  # fmt: skip
    shape = mutator.choice(
        (
            *actions, f"{timeline}/%d.rollback.requested", f"{timeline}/%d.rollback.inflight", f"{timeline}/%d_%d.commit",
            f"{timeline}/%d_%d.clean", f"{timeline}/%d.indexing.requested", f"{timeline}/%d_%d.savepoint",
            f"{timeline}/%d_%d.restore", f"{timeline}/%d.x", ".hoodie/.heartbeat/%d", ".hoodie/.temp/%d/x",
            f"{marker.rpartition('/')[0]}/%d.marker.CREATE", "city=oslo/%d",
            "city=oslo/x%d_0-0-0_20250301000000000.parquet", ".hoodie/metadata/files/%d",
            ".hoodie/metadata/.hoodie/timeline/%d.deltacommit.requested",
            ".hoodie/metadata/.hoodie/%d.deltacommit.inflight", ".hoodie/metadata/bitmap_index/%d",
            ".hoodie/metadata/bitmap_index/manifest_%010d.json", f"{timeline}/history/manifest_%d", "p%d/x",
            ".hoodie/.index_defs/%d",
        )
    )  # fmt: skip
    count = 50 if shape in actions else mutator.choice((2_000, 20_000))
    paths = [shape % ((20250301000000000 + number,) * shape.count("%")) for number in range(count)]
    return _case(mutator, name, dict.fromkeys(paths, body), first=("upsert",), seconds=20.0)


HOSTILE_TARGETS: dict[str, Target] = {
    "hostile.plans": _plans,
    "hostile.commits": _commits,
    "hostile.services": _services,
    "hostile.pending": _pending,
    "hostile.markers": _markers,
    "hostile.temp": _temp,
    "hostile.history": _history,
    "hostile.indexes": _indexes,
    "hostile.properties": _properties,
    "hostile.partitions": _partitions,
    "hostile.metadata": _metadata_timeline,
    "hostile.links": _links,
    "hostile.many": _many,
}
"""By name; the module says what each may do."""
