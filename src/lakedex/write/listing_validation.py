"""The listing in ``files`` and the timelines of a table, against what lies in storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakedex.index.table_report import TableDifference
from lakedex.layout.names import parse_base_file_name
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.partitions import FILES
from lakedex.metadata.snapshot import Snapshot
from lakedex.timeline.timeline import WRITE_ACTIONS
from lakedex.write.metadata_files import counted_by, instant_of, list_storage, without_empty_strays

__all__ = ["Pictures", "compare_listing", "compare_timelines", "take_pictures", "timeline_notes"]

ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """A table and its folders as of one moment.

    Attributes:
        storage: partition path → data file → bytes.
        listed: the same by ``files``; None where that cannot be used.
        steady: whether nobody wrote while they were taken.
    """

    snapshot: Snapshot
    storage: Mapping[str, Mapping[str, int]]
    listed: Mapping[str, Mapping[str, int]] | None
    steady: bool


def take_pictures(handle: TableHandle) -> Pictures:
    """List storage and the metadata, again where somebody writes meanwhile."""
    for _ in range(ATTEMPTS):
        snapshot = handle.snapshot()
        snapshot.read_partitions()
        listed = snapshot.metadata.file_listing() if snapshot.uses_metadata else None
        storage = list_storage(handle)
        steady = snapshot.timeline.reload().instants == snapshot.timeline.instants
        if steady:
            break
    return Pictures(snapshot=snapshot, storage=storage, listed=listed, steady=steady)


def _differs(kind: str, partition: str, file: str, stored: str, found: str) -> TableDifference:
    return TableDifference(index=FILES.name, kind=kind, partition=partition, file=file, stored=stored, found=found)


def compare_listing(pictures: Pictures) -> Iterator[TableDifference]:
    """Files that only one of the two knows, or with another size."""
    snapshot, storage, listed = pictures.snapshot, pictures.storage, pictures.listed
    is_counted = counted_by(snapshot)
    pending = {instant.requested for instant in snapshot.timeline.pending()}
    lost, cleaned = _lost_files(snapshot, storage), snapshot.timeline.files_being_cleaned()
    for partition, name in sorted(lost):
        yield _differs(
            "lost file",
            partition=partition,
            file=name,
            stored="the newest file of its group",
            found="no such file in storage",
        )
    for partition, files in sorted(storage.items()):
        known = {} if listed is None else listed.get(partition, {})
        counted = without_empty_strays(
            snapshot, {name: size for name, size in files.items() if is_counted(partition, name)}
        )
        if listed is not None and partition not in listed and counted:
            yield _differs(
                "missing partition",
                partition=partition,
                file="",
                stored="no such partition",
                found=f"{len(counted)} files in storage",
            )
        for name, size in sorted(files.items()):
            if name not in counted and name not in known and instant_of(name) not in pending:
                yield _differs(
                    "stray file",
                    partition=partition,
                    file=name,
                    stored="no commit has it",
                    found=f"{size} bytes in storage",
                )
            elif name in counted and name not in known and listed is not None:
                yield _differs(
                    "missing file",
                    partition=partition,
                    file=name,
                    stored="no such file",
                    found=f"{size} bytes in storage",
                )
    for partition, known in sorted((listed or {}).items()):
        for name, size in sorted(known.items()):
            half_cleaned = (partition, name) in cleaned and name not in storage.get(partition, {})
            if (partition, name) not in lost and not half_cleaned:
                yield from _listed_file(storage, partition, name, size, is_counted(partition, name))
        if not known and partition not in storage:
            yield _differs(
                "partition gone",
                partition=partition,
                file="",
                stored="a partition without files",
                found="no such folder",
            )


def _listed_file(
    storage: Mapping[str, Mapping[str, int]], partition: str, name: str, size: int, counted: bool
) -> Iterator[TableDifference]:
    found = storage.get(partition, {}).get(name)
    if found is None:
        yield _differs(
            "file gone", partition=partition, file=name, stored=f"{size} bytes", found="no such file in storage"
        )
    elif found != size:
        yield _differs(
            "wrong size", partition=partition, file=name, stored=f"{size} bytes", found=f"{found} bytes in storage"
        )
    if not counted and found is not None:
        yield _differs(
            "uncommitted file",
            partition=partition,
            file=name,
            stored=f"{size} bytes",
            found="no completed commit has it",
        )


def _lost_files(snapshot: Snapshot, storage: Mapping[str, Mapping[str, int]]) -> set[tuple[str, str]]:
    """Newest base files of groups, by the active timeline, that storage lacks: no cleaner takes those."""
    newest: dict[tuple[str, str], str] = {}
    for instant in snapshot.timeline.completed(WRITE_ACTIONS):
        for partition, stats in snapshot.timeline.commit_metadata(instant).write_stats.items():
            for stat in stats:
                if parse_base_file_name(stat.file_name) is not None:
                    newest[(partition, stat.file_id)] = stat.file_name
    replaced = snapshot.timeline.replaced_file_groups()
    wanted = {(partition, name) for (partition, group), name in newest.items() if (partition, group) not in replaced}
    return {(partition, name) for partition, name in wanted if name not in storage.get(partition, {})}


def compare_timelines(snapshot: Snapshot) -> Iterator[TableDifference]:
    """Commits whose metadata nobody sees: it is begun and not completed although they are."""
    if not snapshot.uses_metadata:
        return
    for instant in snapshot.metadata.timeline.pending({"deltacommit"}):
        if snapshot.timeline.is_completed(instant.requested):
            yield TableDifference(
                index="timeline",
                kind="unfinished metadata commit",
                stored=f"{instant}",
                found=f"{instant.requested} is completed on the data timeline",
            )


def timeline_notes(pictures: Pictures) -> Iterator[str]:
    """What on the timelines is legal and worth knowing."""
    snapshot = pictures.snapshot
    data, own = snapshot.timeline, snapshot.metadata.timeline
    if not pictures.steady:
        yield "somebody wrote all the while: differences may be theirs"
    for instant in data.pending():
        yield f"{instant.action} {instant.requested} is under way, or its writer died: its files were left out"
    if not snapshot.uses_metadata:
        yield "there is no usable metadata table: readers list storage"
        return
    first = next((instant.requested for instant in own.instants), "")
    alone = [i for i in own.completed() if not data.contains(i.requested)]
    if alone:
        yield f"{len(alone)} commits of the metadata table are its own: index builds, upkeep, archived commits"
    without = [i for i in data.completed(WRITE_ACTIONS) if i.requested > first and not own.contains(i.requested)]
    if without:
        some = ", ".join(instant.requested for instant in without[:3])
        yield f"{len(without)} commits have no commit in the metadata table, for example {some}"
