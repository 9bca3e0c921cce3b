"""Which files a clean may take (``CleanPlanner``, ``CleanerUtils.getEarliestCommitToRetain``).

Of each file group the newest version stays, and so does every version that was current at any time since the earliest
commit to retain: a query that runs, and time travel to a retained commit, find their files. Never taken are files that
a savepoint names, and those that were current when the oldest pending write began. A replaced file group goes as a
whole once the commit that replaced it is older than the earliest one to retain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakedex.errors import InvalidInputError
from lakedex.layout.file_slice import BaseFile, base_versions
from lakedex.layout.names import PARTITION_METAFILE
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.timeline.instant import Instant, epoch_ms_to_instant
from lakedex.timeline.service_metadata import SAVEPOINTED, CleanMetadata, CleanPlan
from lakedex.timeline.timeline import WRITE_ACTIONS, Timeline

__all__ = [
    "CleanRule",
    "PlannedClean",
    "clean_rule",
    "last_clean",
    "plan_clean",
    "savepoint_times",
    "savepointed_files",
]

COMMITS, HOURS, VERSIONS = "KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"
_DEFAULTS = {COMMITS: 10, HOURS: 24, VERSIONS: 3}
_PENDING_WRITES = frozenset({*WRITE_ACTIONS, "clustering", "compaction", "logcompaction"})


@dataclass(frozen=True, slots=True)
class CleanRule:
    """A policy of Hudi's, and how many commits, hours or file versions it keeps."""

    policy: str
    keep: int

    def __str__(self) -> str:
        what = {COMMITS: "commits", HOURS: "hours", VERSIONS: "file versions"}[self.policy]
        return f"the last {self.keep} {what} kept"


@dataclass(frozen=True, slots=True)
class PlannedClean:
    """A plan with the files behind it."""

    plan: CleanPlan
    files: Mapping[str, Sequence[BaseFile]]


def clean_rule(
    options: WriteOptions, commits: int | None = None, hours: int | None = None, versions: int | None = None
) -> CleanRule:
    """The rule that arguments give, or else options; as in Hudi one number without a policy implies it.

    Raises:
        InvalidInputError: several arguments, or one below 1.
    """
    given = {policy: n for policy, n in ((COMMITS, commits), (HOURS, hours), (VERSIONS, versions)) if n is not None}
    if len(given) > 1:
        raise InvalidInputError("clean takes one of commits, hours and versions")
    for policy, keep in given.items():
        if type(keep) is not int or keep < 1:
            raise InvalidInputError(f"clean keeps whole numbers from 1 on, not {keep!r}")
        return CleanRule(policy, keep)
    set_up = {COMMITS: options.clean_commits, HOURS: options.clean_hours, VERSIONS: options.clean_versions}
    numbers = {name: number for name, number in set_up.items() if number is not None}
    implied = next(iter(numbers)) if len(numbers) == 1 else COMMITS
    policy = implied if options.clean_policy is None else options.clean_policy
    return CleanRule(policy, numbers.get(policy, _DEFAULTS[policy]))


def plan_clean(snapshot: Snapshot, rule: CleanRule, now_ms: int, *, only_changed: bool) -> PlannedClean | None:
    """What to delete now; None for nothing.

    Args:
        snapshot: the newest state of the table.
        rule: what to keep.
        now_ms: the time, epoch milliseconds.
        only_changed: look only at partitions that commits touched since the last clean
            (``hoodie.clean.incremental.enabled``).
    """
    timeline = snapshot.timeline
    earliest = _earliest(timeline, rule, now_ms)
    if earliest is None and rule.policy != VERSIONS:
        return None
    wanted = _changed_partitions(timeline, earliest) if only_changed and earliest is not None else None
    if wanted is not None and not wanted:
        return None
    kept = savepointed_files(timeline)
    replaced = timeline.replaced_file_groups()
    pending = timeline.pending(_PENDING_WRITES)
    limits = _Limits(
        rule=rule,
        earliest=earliest.requested if earliest is not None else None,
        oldest_pending=min((instant.requested for instant in pending), default=None),
    )
    files: dict[str, list[BaseFile]] = {}
    gone: list[str] = []
    for partition, listed in snapshot.listing(wanted).items():
        versions = base_versions(partition, listed, timeline.is_committed)
        names = kept.get(partition, frozenset())
        found = [
            base
            for file_id, group in versions.items()
            for base in limits.removable(group, replaced.get((partition, file_id)))
            if base.name not in names
        ]
        if not found:
            continue
        files[partition] = found
        left = {name for name in listed if not name.startswith(PARTITION_METAFILE)} - {base.name for base in found}
        if partition and not left and not pending:
            gone.append(partition)
    if not files:
        return None
    return PlannedClean(_plan(snapshot, rule, earliest, files, gone), files)


def _plan(
    snapshot: Snapshot,
    rule: CleanRule,
    earliest: Instant | None,
    files: Mapping[str, Sequence[BaseFile]],
    gone: Sequence[str],
) -> CleanPlan:
    last = snapshot.timeline.last_completed
    saved = sorted(savepoint_times(snapshot.timeline))
    return CleanPlan(
        policy=rule.policy,
        files={
            partition: tuple(f"{snapshot.base_path}/{base.relative_path}" for base in found)
            for partition, found in files.items()
        },
        earliest=None if earliest is None else (earliest.requested, earliest.action),
        last_completed="" if last is None else last.requested,
        gone=tuple(gone),
        extra={SAVEPOINTED: ",".join(saved)} if saved else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What decides over the versions of a file group."""

    rule: CleanRule
    earliest: str | None
    oldest_pending: str | None

    def removable(self, versions: Sequence[BaseFile], replaced_at: str | None) -> Iterator[BaseFile]:
        """Versions, newest first, that may go."""
        if replaced_at is not None:
            bounds = [bound for bound in (self.earliest, self.oldest_pending) if bound is not None]
            if all(replaced_at < bound for bound in bounds):
                yield from versions
            return
        needed = 1 if self.earliest is not None else self.rule.keep
        for bound in (self.earliest, self.oldest_pending):
            if bound is not None:
                needed = max(needed, self._current_since(versions, bound))
        yield from versions[needed:]

    @staticmethod
    def _current_since(versions: Sequence[BaseFile], bound: str) -> int:
        """How many versions were the current one at some time since ``bound``: those from it on, and one before."""
        return sum(base.instant >= bound for base in versions) + 1


def _earliest(timeline: Timeline, rule: CleanRule, now_ms: int) -> Instant | None:
    """The earliest commit to retain; never later than the oldest pending write."""
    completed = timeline.completed(WRITE_ACTIONS)
    found: Instant | None = None
    if rule.policy == COMMITS and len(completed) > rule.keep:
        found = completed[len(completed) - rule.keep]
    elif rule.policy == HOURS:
        since = epoch_ms_to_instant(now_ms - rule.keep * 3_600_000, timeline.zone)
        found = next((instant for instant in completed if instant.requested >= since), None)
    pending = timeline.pending(_PENDING_WRITES)
    if found is not None and pending and found.requested > pending[0].requested:
        before = [instant for instant in completed if instant.requested < pending[0].requested]
        return before[-1] if before else None
    return found


def savepoint_times(timeline: Timeline) -> set[str]:
    """Commits that have a savepoint."""
    return {instant.requested for instant in timeline.completed({"savepoint"})}


def savepointed_files(timeline: Timeline) -> dict[str, frozenset[str]]:
    """Names of the files of all savepoints, by partition."""
    found: dict[str, set[str]] = {}
    for instant in timeline.completed({"savepoint"}):
        for partition, names in timeline.savepoint_metadata(instant).files.items():
            found.setdefault(partition, set()).update(names)
    return {partition: frozenset(names) for partition, names in found.items()}


def last_clean(timeline: Timeline) -> CleanMetadata | None:
    """What the last completed clean did."""
    cleans = timeline.completed({"clean"})
    return timeline.clean_metadata(cleans[-1]) if cleans else None


def _changed_partitions(timeline: Timeline, earliest: Instant) -> list[str] | None:
    """Partitions of commits that the last clean held on to and this one does not; None for all.

    All are looked at without an earlier clean, after one that counted versions, when commits since it were archived,
    and when a savepoint went that held files back.
    """
    last = last_clean(timeline)
    if last is None or not last.earliest or not timeline.is_completed(last.earliest):
        return None
    saved = set(filter(None, last.extra.get(SAVEPOINTED, "").split(",")))
    if saved - savepoint_times(timeline):
        return None
    commits = [i for i in timeline.completed(WRITE_ACTIONS) if last.earliest <= i.requested < earliest.requested]
    return sorted(set(_touched(timeline, commits)))


def _touched(timeline: Timeline, commits: Iterable[Instant]) -> Iterator[str]:
    for instant in commits:
        commit = timeline.commit_metadata(instant)
        yield from commit.write_stats
        yield from commit.replaced or {}
