"""Rows inserted or updated by a range of commits: Hudi's incremental query in its ``latest_state`` format.

Rules of Hudi (``IncrementalQueryAnalyzer``, ``IncrementalRelationV1`` and ``V2``):

* a commit is in the range ``(since, until]`` by its completion time, in tables before version 8 by its requested time;
* of each file group the newest file of the commits in the range is read, none of a group that one of them replaced;
* of those files the rows count whose ``_hoodie_commit_time`` is one of these commits.

So clustering in the range shows the rows that it moved, but only those of other commits in the range. ``earliest``
reads the whole state as of ``until``, which needs no older commit: of each file group the newest file of a commit that
had completed by then, although one that was requested earlier and completed later wrote the group again. One thing is
wider here: the instant of a commit stands for that commit, so that ``r.instant`` of a write is "after it" as ``since``
and "with it" as ``until``.

On merge-on-read tables the slices of these file groups are merged as of ``until``. So a row that came too late, and
never replaced the stored one, is no change; Hudi, which merges the range's own files alone, returns it.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lakedex.codec.table_paths import check_instant
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.names import join_path, parse_base_file_name
from lakedex.parquet.base_file_reader import read_base_file
from lakedex.scan.time_travel import missing_versions, require_settled, require_versions
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.archived import archived_files, archived_writes
from lakedex.timeline.instant import parse_as_of, plus_millis
from lakedex.types import COMMIT_TIME, TableType

__all__ = [
    "EARLIEST",
    "Commit",
    "IncrementalRange",
    "active_commits",
    "archived_commits",
    "incremental_snapshot",
    "moment_of",
    "require_commits_in_rows",
    "state_of",
    "written_files",
]


EARLIEST = "earliest"


DAY_MS = 24 * 60 * 60 * 1000


Bound = str | datetime.date | None


@dataclass(frozen=True, slots=True)
class Commit:
    """A completed commit.

    Attributes:
        requested: its instant.
        time: what ranges go by.
    """

    requested: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalRange:
    """The slices of a range of commits.

    Attributes:
        snapshot: the table with the slices of the range.
        instants: commits whose rows count; None for all.
    """

    snapshot: Snapshot
    instants: tuple[str, ...] | None = None

    def condition(self, where: str | None) -> str | None:
        """``where`` and the condition on the rows' commits, as SQL."""
        # A comment at its end must not swallow the bracket.
        parts = [] if where is None else [f"({where}\n)"]
        if self.instants:
            quoted = ", ".join(f"'{instant}'" for instant in self.instants)
            parts.append(f"{COMMIT_TIME} IN ({quoted})")
        return " AND ".join(parts) or None


def incremental_snapshot(
    newest: Snapshot,
    since: Bound,
    until: Bound = None,
    *,
    format: str = "latest_state",
    fallback: Literal["full"] | None = None,
) -> IncrementalRange:
    """Find the files and commits of a range; see :meth:`lakedex.Table.changes`.

    Raises:
        InvalidInputError: no range, one that is not all there any more, or in a table before version 8 one with a
            write that is still pending.
        UnsupportedFeatureError: change data capture; a table without meta columns.
    """
    if format == "cdc":
        raise UnsupportedFeatureError(
            f"{newest.files}: change data capture (before and after images, deletes) is not read by lakedex; "
            "format='latest_state' gives the newest state of changed rows",
            feature="cdc",
        )
    if format != "latest_state":
        raise InvalidInputError(f"format is 'latest_state', not {format!r}")
    if fallback not in (None, "full"):
        raise InvalidInputError(f"fallback is 'full' or None, not {fallback!r}")
    require_commits_in_rows(newest)
    commits = active_commits(newest)
    end = None if until is None else moment_of(newest, until, commits, "until")
    if commits and not newest.goes_by_completion:
        # A commit that completes out of turn would lie before where the next range begins.
        require_settled(newest, end or commits[-1].requested, f"for the changes since {since}")
    if isinstance(since, str) and since.strip().lower() == EARLIEST:
        return _from_the_beginning(newest, commits, end)
    if since is None:
        raise InvalidInputError("since is an instant, a time or 'earliest', not None")
    start = moment_of(newest, since, commits, "since")
    if end is not None and start > end:
        raise InvalidInputError(f"since ({since}) is after until ({until})")
    inside = _between(commits, start, end)
    old = _between(archived_commits(newest, start), start, end)
    if old and fallback is None:
        earliest = max(commit.time for commit in old)
        raise InvalidInputError(
            f"{newest.files}: {len(old)} commits after {since} are archived, the last of them {old[-1].requested}; "
            f"what each of them wrote is not known any more. The earliest since is {earliest!r}, 'earliest' reads all "
            "rows, fallback='full' the newest files"
        )
    if old:
        return _full(newest, [*old, *inside])
    found, missing = state_of(newest, inside, end)
    if missing and fallback is None:
        raise _cleaned(newest, commits, start, end, missing)
    if missing:
        return _full(newest, inside)
    return IncrementalRange(snapshot=found, instants=tuple(commit.requested for commit in inside))


def require_commits_in_rows(newest: Snapshot) -> None:
    """Refuse a table of which the rows of one commit cannot be read.

    Raises:
        UnsupportedFeatureError: it has no meta columns.
    """
    if not newest.config.populate_meta_fields:
        raise UnsupportedFeatureError(
            f"{newest.files}: it has no meta columns (hoodie.populate.meta.fields=false), so no row says which "
            "commit wrote it",
            feature="changes without meta columns",
        )


# ------------------------------------------------------------------------------------------------------ the timeline


def active_commits(snapshot: Snapshot) -> list[Commit]:
    """Completed commits of the active timeline, by requested time."""
    return [Commit(i.requested, snapshot.time_of(i)) for i in snapshot.timeline.completed(WRITE_ACTIONS)]


def archived_commits(snapshot: Snapshot, start: str) -> list[Commit]:
    """Archived commits that may have completed after ``start``, by requested time.

    Like Hudi (``CompletionTimeQueryViewV2``) this takes no write to last longer than a day.
    """
    first = snapshot.timeline.first_active
    if first is None:
        return []
    active = {instant.requested for instant in snapshot.timeline.instants}
    if not snapshot.goes_by_completion:
        # Layout 1 archives in the order of the instants.
        writes = archived_writes(snapshot.files.storage, snapshot.history_path) if start < first.requested else ()
        return [Commit(one, one) for one in sorted({i.requested for i, _ in writes} - active) if start < one]
    floor = plus_millis(start, -DAY_MS) if start else ""
    commits = []
    for path in archived_files(snapshot.files.storage, snapshot.history_path):
        name = path.rsplit("/", 1)[1].split("_")
        if len(name) > 1 and name[1] < floor:
            continue
        rows = read_base_file(snapshot.files.storage, path, ["instantTime", "completionTime", "action"]).to_pylist()
        commits += [
            Commit(check_instant(row["instantTime"], path), row["completionTime"] or row["instantTime"])
            for row in rows
            # Archival that was interrupted leaves instants on both timelines.
            if row["action"] in WRITE_ACTIONS and row["instantTime"] not in active
        ]
    return sorted(commits, key=lambda commit: commit.requested)


def _between(commits: Iterable[Commit], start: str, end: str | None) -> list[Commit]:
    return [commit for commit in commits if start < commit.time and (end is None or commit.time <= end)]


def moment_of(snapshot: Snapshot, value: str | datetime.date, commits: Sequence[Commit], name: str) -> str:
    """The time that a bound stands for: that of the commit whose instant it is, else the time itself.

    Unlike ``as_of`` a time to the second is its first millisecond, for both bounds, so that ranges join.
    """
    zone = snapshot.config.timezone
    if isinstance(value, str):
        text = value.strip()
        first = snapshot.timeline.first_active
        is_old = first is not None and len(text) == 17 and text.isdigit() and text < first.requested
        old: Sequence[Commit] = archived_commits(snapshot, text) if is_old else ()
        for commit in (*commits, *old):
            if commit.requested == text:
                return commit.time
        if not text.isdigit():
            with contextlib.suppress(ValueError):
                value = datetime.datetime.fromisoformat(text)
    try:
        moment: str = parse_as_of(value, zone)
        return moment.ljust(17, "0")
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("as_of", name, 1)) from None


# --------------------------------------------------------------------------------------------------------- the files


def written_files(snapshot: Snapshot, commits: Sequence[Commit]) -> dict[tuple[str, str], str]:
    """File group → name of the newest file that commits wrote, without groups that one of them replaced."""
    newest: dict[tuple[str, str], str] = {}
    replaced: set[tuple[str, str]] = set()
    for commit in commits:
        metadata = snapshot.timeline.commit_metadata(commit.requested)
        for partition, stats in metadata.write_stats.items():
            newest.update({(partition, stat.file_id): stat.file_name for stat in stats if stat.file_name})
        replaced |= {(partition, name) for partition, names in (metadata.replaced or {}).items() for name in names}
    return {group: name for group, name in newest.items() if group not in replaced}


def _slices_of(snapshot: Snapshot, commits: Sequence[Commit]) -> tuple[list[FileSlice], list[str]]:
    """The newest files that commits wrote, and the paths of those that are gone."""
    wanted = written_files(snapshot, commits)
    listing = snapshot.listing(sorted({partition for partition, _ in wanted})) if wanted else {}
    slices, missing = [], []
    for (partition, file_id), name in sorted(wanted.items()):
        size, parsed = listing.get(partition, {}).get(name), parse_base_file_name(name)
        if parsed is None:
            raise UnsupportedFeatureError(
                f"{snapshot.files}: {name} is no Parquet base file", feature="other base files"
            )
        if size is None:
            missing.append(f"{partition}/{name}" if partition else name)
            continue
        base = BaseFile(partition, name, size, parsed.file_id, parsed.instant)
        slices.append(FileSlice(partition, file_id, parsed.instant, base))
    return slices, missing


def state_of(newest: Snapshot, commits: Sequence[Commit], end: str | None) -> tuple[Snapshot, list[str]]:
    """The table with the slices of a range, and what is gone of them: files; file groups of a merge-on-read table.

    Args:
        newest: the table now.
        commits: those of the range.
        end: its end, as of which slices of a merge-on-read table are; None for as they are now.
    """
    if newest.config.table_type != TableType.MERGE_ON_READ:
        slices, missing = _slices_of(newest, commits)
        return newest.with_slices(slices), missing
    state = newest if end is None else newest.completed_by(end)
    groups = set(written_files(newest, commits))
    partitions = {partition for partition, _ in groups}
    there = {(item.partition, item.file_id): item for item in state.slices(partitions)}
    lost = (groups - there.keys()) | (groups & set(missing_versions(state, newest, partitions)))
    slices = [there[group] for group in sorted(groups - lost)]
    return state.with_slices(slices), [join_path(*group) for group in sorted(lost)]


def _from_the_beginning(newest: Snapshot, commits: Sequence[Commit], end: str | None) -> IncrementalRange:
    """All rows as of ``end``: archived commits need not be known one by one."""
    if end is None:
        return IncrementalRange(snapshot=newest)
    inside = any(commit.time <= end for commit in commits)
    # What an archived commit overwrote before it completed is not known any more.
    archived = _between(archived_commits(newest, end), end, None) if inside else archived_commits(newest, "")
    if archived and commits:
        earliest = max(commit.time for commit in archived) if inside else commits[0].requested
        raise InvalidInputError(
            f"{newest.files}: the state as of {end} is archived; the earliest until is {earliest!r}"
        )
    if not inside:
        return IncrementalRange(snapshot=newest.with_slices([]))
    state = require_versions(newest.completed_by(end), newest)
    # The log files of version 6 hold later blocks too, which the state leaves out.
    of_range = state if newest.config.table_type == TableType.MERGE_ON_READ else newest
    return IncrementalRange(snapshot=of_range.with_slices(state.slices()))


def _full(newest: Snapshot, commits: Sequence[Commit]) -> IncrementalRange:
    return IncrementalRange(snapshot=newest, instants=tuple(commit.requested for commit in commits))


def _cleaned(
    newest: Snapshot, commits: Sequence[Commit], start: str, end: str | None, missing: Sequence[str]
) -> InvalidInputError:
    """The error for files that the cleaner took, with the bounds nearest to the wanted ones that still work."""

    def whole(low: str, high: str | None) -> bool:
        return not state_of(newest, _between(commits, low, high), high)[1]

    starts = [commit.time for commit in _between(commits, start, end)]
    ends = [commit.time for commit in commits if end is not None and commit.time > end]
    earliest = next((low for low in sorted(starts) if whole(low, end)), None)
    until = next((high for high in sorted(ends) if whole(start, high)), None)
    offers = [f"the earliest since with this until is {earliest!r}"] if earliest is not None else []
    offers += [f"the earliest until with this since is {until!r}"] if until is not None else []
    return InvalidInputError(
        f"{newest.files}: the cleaner took {len(missing)} files that this range needs, among them {missing[0]}; "
        f"{', '.join([*offers, 'without until the range can be read'])}; fallback='full' reads the newest files"
    )
