"""Targets below tables: plans, bodies, manifests, definitions and signs of life with hostile or damaged content.

What is decoded names nothing outside of the table: a partition path has no ``..``, no ``.hoodie``, no NUL and is not
absolute, a file has a name and no path, an instant has digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial

from fuzz.held import HeldStorage
from fuzz.hostile import Facts, hostile_body, hostile_json, hostile_properties
from fuzz.hostile_seeds import seed_files, seed_names
from fuzz.mutations import Mutator
from fuzz.running import FILE, Case, Target
from lakedex.index.bitmap.definitions import BITMAP_DEFINITIONS, read_bitmap_definitions
from lakedex.index.bitmap.run_files import BITMAP_FOLDER, list_runs
from lakedex.index.definitions import DEFINITIONS, read_definitions, source_fields
from lakedex.io.liveness import is_expired, is_ours
from lakedex.io.storage import TableFiles
from lakedex.timeline.archived import archived_completion_times, archived_files, read_archive_log, read_history
from lakedex.timeline.commit_metadata import (
    decode_body,
    decode_commit_metadata,
    decode_commit_notes,
    decode_rollback_metadata,
    decode_rollback_plan,
)
from lakedex.timeline.service_metadata import (
    decode_clean_metadata,
    decode_clean_plan,
    decode_compaction_plan,
    decode_restore_metadata,
    decode_restore_plan,
    decode_savepoint_metadata,
)
from lakedex.timeline.table_config import read_table_config

__all__ = ["PLAN_TARGETS"]

FACTS = Facts(
    base="/lake/table",
    outside="/lake",
    names=(
        *("20250116040000343", "20250116040000343.commit", "2a7e49ce-1a48-48a6-b35f-556fc06d7439-0"),
        *("2a7e49ce-1a48-48a6-b35f-556fc06d7439-0_1-157-0_20250116040000343.parquet", "hoodie.properties"),
    ),
    folders=("", "city=oslo", "city=rome", ".hoodie", ".hoodie/metadata/files", ".hoodie/timeline"),
)


@cache
def _seeds(*endings: str) -> tuple[bytes, ...]:
    """Contents of files of the seeds' tables whose names end so, each once."""
    found = {
        content
        for name in seed_names()
        for path, content in seed_files(name).items()
        if path.endswith(endings) and content
    }
    return tuple(sorted(found))


def _inside(partition: str) -> None:
    parts = partition.split("/")
    bad = {"..", ".", ".hoodie"} & set(parts) or "\0" in partition or ("" in parts and partition)
    assert not bad, f"a partition outside of the table: {partition[:100]!r}"


def _files_inside(files: Iterable[tuple[str, str]], *, paths: bool = False) -> None:
    for partition, name in files:
        _inside(partition)
        leaf = name.rpartition("/")[2] if paths else name
        assert leaf and leaf not in (".", "..") and not {"/", "\0"} & set(leaf), f"no name of a file: {name[:100]!r}"


def _pairs(files: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    return ((partition, name) for partition, names in files.items() for name in names)


def _body(endings: tuple[str, ...], decode: Callable[[bytes], object]) -> Target:
    """A body of the timeline, hostile or damaged."""

    def target(mutator: Mutator) -> Case:
        seed = mutator.choice(_seeds(*endings))
        damaged = hostile_body(mutator, seed, FACTS) if mutator.chance(0.7) else mutator.bytes(seed, _seeds(*endings))
        return Case(len(damaged), partial(decode, damaged))

    return target


def _rollback_plan(data: bytes) -> None:
    found = decode_rollback_plan(data, FILE)
    assert not found.instant or (found.instant.isascii() and found.instant.isdigit()), f"instant {found.instant[:50]!r}"
    _files_inside(((one.partition_path, path) for one in found.requests for path in one.files), paths=True)


def _clean_plan(data: bytes) -> None:
    found = decode_clean_plan(data, FILE)
    _files_inside(_pairs(found.files), paths=True)
    for partition in found.gone:
        _inside(partition)


def _restore_plan(data: bytes) -> None:
    for instant, _ in decode_restore_plan(data, FILE).instants:
        assert instant.isascii() and instant.isdigit(), f"instant {instant[:50]!r}"


def _compaction_plan(data: bytes) -> None:
    for one in decode_compaction_plan(data, FILE):
        _files_inside((one.partition, name) for name in (one.base, *one.logs) if name is not None)


def _commit(data: bytes) -> None:
    found = decode_commit_metadata(data, FILE)
    _files_inside(
        (
            (partition, stat.file_name)
            for partition, written in found.write_stats.items()
            for stat in written
            if stat.path
        ),
        paths=True,
    )
    for partition in found.replaced or {}:
        _inside(partition)
    assert decode_commit_notes(data, FILE).operation == found.notes.operation


def _clean(data: bytes) -> None:
    for partition in decode_clean_metadata(data, FILE).files:
        _inside(partition)


def _savepoint(data: bytes) -> None:
    _files_inside(_pairs(decode_savepoint_metadata(data, FILE).files))


def _restore(data: bytes) -> None:
    for instant, _ in decode_restore_metadata(data, FILE).instants:
        assert instant.isascii() and instant.isdigit(), f"instant {instant[:50]!r}"


def _replace(data: bytes) -> None:
    decode_body(data, FILE).get("clusteringPlan")


# -------------------------------------------------------------------------------------------- files beside the timeline


def _held(mutator: Mutator, endings: tuple[str, ...], path: str, read: Callable[[HeldStorage], object]) -> Case:
    seed = mutator.choice(_seeds(*endings))
    damaged = hostile_json(mutator, seed, FACTS) if seed[:1] == b"{" else mutator.bytes(seed)
    return Case(len(damaged), partial(read, HeldStorage({path: damaged})), multiple=2000)


def _definitions(mutator: Mutator) -> Case:
    return _held(
        mutator,
        ("index.json",),
        f"{FILE}/{DEFINITIONS}",
        lambda held: source_fields(read_definitions(TableFiles(held, FILE))),
    )


def _bitmap_definitions(mutator: Mutator) -> Case:
    path = f"{FILE}/{BITMAP_DEFINITIONS}"
    return _held(mutator, ("bitmap_index.json",), path, lambda held: read_bitmap_definitions(TableFiles(held, FILE)))


def _bitmap_manifest(mutator: Mutator) -> Case:
    folder = f"{FILE}/{BITMAP_FOLDER}"
    number = mutator.choice(("0000000001", "9999999999", "0000000000"))

    def run(held: HeldStorage) -> None:
        for name in list_runs(TableFiles(held, FILE)).manifest.runs:
            assert "/" not in name

    return _held(mutator, ("manifest_0000000001.json",), f"{folder}/manifest_{number}.json", run)


def _history_manifest(mutator: Mutator) -> Case:
    data = hostile_json(mutator, mutator.choice(_seeds("/manifest_1")), FACTS)
    version = mutator.choice((b"1", b"1", b"", b"2", b"\xb2", "²".encode(), b"9" * 5000, b"-1", b"../1"))
    name = mutator.choice(("manifest_1", "manifest_1", "manifest_1", "manifest_" + "9" * 200, "manifest_001"))
    held = HeldStorage({f"{FILE}/{name}": data, f"{FILE}/_version_": version})

    def run() -> None:
        _files_inside(("", path.removeprefix(f"{FILE}/")) for path in archived_files(held, FILE))

    return Case(len(data) + len(version), run, multiple=2000)


def _history_file(mutator: Mutator) -> Case:
    """Rows of archived instants; Parquet has no checksums, and its footer is left as it is (see table_targets)."""
    name = "20250116040000000_20250116050000000_0.parquet"
    data = mutator.choice([found for found in _seeds("_0.parquet") if b"completionTime" in found[-4000:]])
    cut = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    damaged = mutator.bytes(data[:cut]) + data[cut:]
    manifest = b'{"files": [{"fileName": "%s", "fileLen": %d}]}' % (name.encode(), len(damaged))
    held = HeldStorage({f"{FILE}/{name}": damaged, f"{FILE}/manifest_1": manifest, f"{FILE}/_version_": b"1"})

    def run() -> None:
        archived_completion_times(held, FILE)
        for item in read_history(held, FILE):
            if item.metadata and item.action == "commit":
                _commit(item.metadata)

    return Case(len(damaged), run, multiple=2000)


def _archive_log(mutator: Mutator) -> Case:
    seed = mutator.choice(_seeds(".commits_.archive.1_1-0-1"))
    damaged = mutator.bytes(seed)
    held = HeldStorage({f"{FILE}/.commits_.archive.1_1-0-1": damaged})
    return Case(len(damaged), lambda: list(read_archive_log(held, FILE)), multiple=2000)


def _table_properties(mutator: Mutator) -> Case:
    damaged = hostile_properties(mutator, mutator.choice(_seeds("hoodie.properties")), FACTS)
    held = HeldStorage({f"{FILE}/.hoodie/hoodie.properties": damaged})
    return Case(len(damaged), lambda: _checked_config(held), multiple=2000, seconds=20.0)


def _checked_config(held: HeldStorage) -> None:
    config = read_table_config(TableFiles(held, FILE), retries=1)
    for folder in (config.timeline_path, config.archive_folder):
        parts = folder.split("/")
        assert parts[0] == ".hoodie" and not {"..", ""} & set(parts) and folder.isprintable(), (
            f"folder {folder[:100]!r}"
        )


def _heartbeat(mutator: Mutator) -> Case:
    seed = mutator.choice((*_seeds("x"), b'{"host": "h", "machine": "m", "pid": 7, "process_start": "1"}', b"{}"))
    damaged = mutator.bytes(seed) if mutator.chance(0.4) else mutator.json(seed).encode("utf-8", "surrogatepass")
    held = HeldStorage({f"{FILE}/.hoodie/.heartbeat/1": damaged})

    def run() -> None:
        is_ours(TableFiles(held, FILE), "1")
        assert is_expired(TableFiles(held, FILE), "1", 1_800_000_000_000)

    return Case(len(damaged), run)


PLAN_TARGETS: dict[str, Target] = {
    "plan.rollback": _body((".rollback.requested",), _rollback_plan),
    "plan.clean": _body((".clean.requested",), _clean_plan),
    "plan.restore": _body((".restore.requested",), _restore_plan),
    "plan.compaction": _body((".compaction.requested",), _compaction_plan),
    "plan.replace": _body((".replacecommit.requested",), _replace),
    "done.commit": _body((".commit", ".deltacommit", ".replacecommit"), _commit),
    "done.clean": _body((".clean",), _clean),
    "done.rollback": _body((".rollback",), lambda data: decode_rollback_metadata(data, FILE)),
    "done.restore": _body((".restore",), _restore),
    "done.savepoint": _body((".savepoint",), _savepoint),
    "history.manifest": _history_manifest,
    "history.file": _history_file,
    "history.log": _archive_log,
    "index.definitions": _definitions,
    "index.bitmaps": _bitmap_definitions,
    "index.manifest": _bitmap_manifest,
    "table.settings": _table_properties,
    "write.heartbeat": _heartbeat,
}
"""By name."""
