"""Read the metadata table: base HFiles and valid log files of each file group, merged by key.

Valid instants (``HoodieTableMetadataUtil.getValidInstantTimestamps``) are completed on the metadata timeline, or
archived there, and not pending on the data timeline. A data commit completes the metadata first, so a metadata commit
of a pending data instant does not count yet. Timeline layout 2 applies this to files, layout 1 to each block of a log
file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from lakedex.codec.hashing import file_group_index_many
from lakedex.codec.hfile.blocks import Budget
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.table_paths import check_partition
from lakedex.errors import CorruptFileError
from lakedex.io.storage import FileInfo, Storage, TableFiles
from lakedex.layout.contained_files import inner_folders, list_folder
from lakedex.layout.names import PARTITION_METAFILE, parse_log_file_name
from lakedex.metadata.file_groups import (
    MetadataFileGroup,
    commits_of,
    groups_by_completion,
    groups_by_name,
    missing_file,
    still_there,
)
from lakedex.metadata.files import (
    Layer,
    MetadataBlock,
    MetadataFileCache,
    MetadataFiles,
    MetadataLogFile,
    decode_cell,
    key_text,
    record_schema,
)
from lakedex.metadata.records import ALL_PARTITIONS, BLOOM_FILTERS, FILES, MERGE_RULES, PAYLOADS, Record, live_files
from lakedex.parallel import run_threads
from lakedex.timeline.active import Timeline
from lakedex.timeline.commit_metadata import decode_body
from lakedex.timeline.instant import Instant

__all__ = ["DeltaCommit", "LatestValues", "MetadataListing", "MetadataStore"]


MetadataListing = Mapping[str, Sequence[FileInfo]]
"""Entries of the metadata table's folders, by path below it."""


_READS_AT_ONCE = 16
"""Number of threads for storage with latency."""


_SECONDS_WORTH_THREADS = 0.004
"""A listing that takes longer has latency. On a local disk starting threads takes longer than reading."""


_NO_RECORD_BYTES = 80
"""Log files of layout 2 up to this size are empty and need not be read: a block takes 46 bytes besides header and
content, the instant in its header 22, and a list of one deleted key 14. Every file group starts with an empty one."""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """A completed delta commit of the metadata table.

    Attributes:
        instant: The completed instant.
        body: Content of its file.
        files: Partition and listing entry of each log file.
    """

    instant: Instant
    body: bytes
    files: Sequence[tuple[str, FileInfo]] = ()


@dataclass(frozen=True, slots=True)
class LatestValues:
    """Latest values of numbered keys.

    Attributes:
        values: Values by number; empty if there is none.
        sources: Position in ``layers`` by number; -1 without a value.
        layers: Files of the values.
        again: Numbers of keys with several values, whose records may have to be merged.
    """

    values: list[bytes]
    sources: list[int]
    layers: list[HFileReader]
    again: list[int]

    @classmethod
    def none(cls, count: int) -> LatestValues:
        """No values yet."""
        return cls([b""] * count, [-1] * count, [], [])

    def take(self, layer: HFileReader, places: Mapping[bytes, int], cells: Iterable[tuple[bytes, bytes]]) -> None:
        """Add the cells of a later file."""
        values, sources, number, find = self.values, self.sources, len(self.layers), places.get
        self.layers.append(layer)
        for key, value in cells:
            place = find(key)
            if place is not None:
                if sources[place] >= 0:
                    self.again.append(place)
                values[place] = value
                sources[place] = number if value else -1

    def forget(self, places: Iterable[int]) -> None:
        """Remove values."""
        for place in places:
            self.values[place], self.sources[place] = b"", -1

    def by_layer(self) -> Iterator[tuple[HFileReader, npt.NDArray[np.int64], list[bytes]]]:
        """Numbers and values of keys by file."""
        sources = np.array(self.sources, np.int64)
        for number, layer in enumerate(self.layers):
            rows = np.flatnonzero(sources == number)
            if len(rows):
                yield layer, rows, [self.values[row] for row in rows.tolist()]


@dataclass(slots=True)
class MetadataStore:
    """Keyed reads of a table's metadata at one state of both timelines.

    Attributes:
        partitions: Complete metadata partitions (``hoodie.table.metadata.partitions``).
        threads: Number of reads at once; more than one after a listing that showed latency.
        listing: All of its folders, where one request lists them; ``None`` lists each folder that is needed.
    """

    files: TableFiles
    data_timeline: Timeline
    timeline: Timeline
    partitions: frozenset[str]
    cache: MetadataFileCache = field(default_factory=MetadataFileCache)
    threads: int = 1
    listing: MetadataListing | None = field(default=None, repr=False)
    _groups: dict[str, list[MetadataFileGroup]] = field(default_factory=dict)
    _entries: dict[str, list[FileInfo]] = field(default_factory=dict)
    _pending: frozenset[str] = field(init=False)
    _planned: dict[tuple[str, str], str] | None = field(default=None)

    def __post_init__(self) -> None:
        # A pending savepoint has the requested time of a completed commit.
        pending = (instant.requested for instant in self.data_timeline.pending())
        if self.listing is not None:
            self.threads = _READS_AT_ONCE
        self._pending = frozenset(requested for requested in pending if not self.data_timeline.is_completed(requested))

    @property
    def table_version(self) -> int:
        """Version of written records: 6 in timeline layout 1, else 8."""
        return 6 if self.timeline.layout == 1 else 8

    def has(self, partition: str) -> bool:
        """Whether the partition can be used: listed as complete, and without missing files.

        Without ``files`` no partition can (``isMetadataTableAvailable``).
        """
        return {partition, FILES.name} <= self.partitions and not (
            self.damage_of(FILES.name) or self.damage_of(partition)
        )

    def damage_of(self, partition: str) -> str:
        """Damage to the files of a metadata partition; empty if it is complete, or not listed.

        Computed once per state of the metadata timeline (:mod:`lakedex.metadata.file_groups`).
        """
        if partition not in self.partitions:
            return ""
        instants = self.timeline.instants
        known = self.cache.completeness.get(partition)
        if known is None or known[0] != instants:
            known = (instants, self._damage(partition))
            self.cache.completeness[partition] = known
        return known[1]

    def _damage(self, partition: str) -> str:
        try:
            present = {entry.name: entry.size for entry in self._folder(partition)}
        except CorruptFileError as error:
            return str(error)
        return missing_file(partition, present, self.timeline, partial(self._begun, partition), self.threads)

    def recheck(self) -> None:
        """Drop cached listings and completeness, as files may have been deleted."""
        self.listing = None
        self._entries.clear()
        self._groups.clear()
        self.cache.recheck()

    def with_completed(self, data_timeline: Timeline, delta: DeltaCommit | None) -> MetadataStore:
        """Store after a commit of this process, in which complete partitions stay complete.

        Args:
            data_timeline: Timeline of the table with the commit.
            delta: Delta commit of the commit; None if there was none.
        """
        timeline = self.timeline if delta is None else self._with_delta(delta)
        for partition, (instants, damage) in tuple(self.cache.completeness.items()):
            if instants == self.timeline.instants and not damage:
                self.cache.completeness[partition] = (timeline.instants, "")
        listing = self._listing_with(() if delta is None else delta.files)
        return MetadataStore(self.files, data_timeline, timeline, self.partitions, self.cache, listing=listing)

    def _listing_with(self, added: Sequence[tuple[str, FileInfo]]) -> MetadataListing | None:
        if self.listing is None:
            return None
        listing = {folder: list(entries) for folder, entries in self.listing.items()}
        for folder, entry in added:
            listing.setdefault(folder, []).append(entry)
        return {folder: sorted(entries, key=lambda entry: entry.name) for folder, entries in listing.items()}

    def _with_delta(self, delta: DeltaCommit) -> Timeline:
        return self.timeline.with_completed(delta.instant, None if self.listing is None else delta.body)

    def mark_unusable(self, partition: str, reason: str) -> None:
        """Stop using the partition in this state, as reading it failed."""
        self.cache.completeness[partition] = (self.timeline.instants, reason)

    def entries(self, partition: str) -> Sequence[FileInfo]:
        """Entries of the folder of a metadata partition: listed with the table's state, or now."""
        listing = self.listing
        return list_folder(self.files.metadata, partition) if listing is None else listing.get(partition, ())

    def _folder(self, partition: str) -> list[FileInfo]:
        """Base and log files of a metadata partition, cached."""
        if partition not in self._entries:
            started = time.perf_counter()
            entries = self.entries(partition)
            files = [entry for entry in entries if not entry.is_dir and not entry.name.startswith(PARTITION_METAFILE)]
            self._entries[partition] = files
            if time.perf_counter() - started > _SECONDS_WORTH_THREADS:
                self.threads = _READS_AT_ONCE
        return self._entries[partition]

    def list_folders(self, partitions: Iterable[str]) -> None:
        """List the folders of these metadata partitions in parallel, except for known ones.

        Where they are listed already, their files are opened.
        """
        if self.listing is not None and self.timeline.layout != 1:
            self._open_partitions([name for name in partitions if name in self.partitions])
            return
        seen = {name for name, (instants, _) in self.cache.completeness.items() if instants == self.timeline.instants}
        names = [name for name in partitions if name in self.partitions and name not in self._entries.keys() | seen]
        for name in names[:1]:
            self._folder(name)  # Shows whether the others are worth threads.
        run_threads(self._folder, names[1:], self.threads)

    def _open_partitions(self, names: Sequence[str]) -> None:
        """Open the files of partitions at once, and the commits that say which there must be."""
        new = [name for name in names if name not in self._groups]
        self._groups |= {name: self._find_groups(name) for name in new}
        commits: dict[Instant, None] = {}
        for name in names:
            if self.cache.completeness.get(name, ((), ""))[0] != self.timeline.instants:
                present = {entry.name: entry.size for entry in self._folder(name)}
                commits |= dict.fromkeys(commits_of(name, present, self.timeline))
        calls = self._unopened([group for name in new for group in self._groups[name]])
        calls += [partial(still_there, self.timeline, one) for one in commits if not self.timeline.has_read(one)]
        run_threads(lambda call: call(), calls, self.threads)

    def _begun(self, partition: str) -> str:
        """First commit in the current folder; ``files`` is never created again alone."""
        if partition == FILES.name:
            return ""
        try:
            text = self.files.storage.read(self.files.metadata.path(partition, PARTITION_METAFILE))
        except FileNotFoundError:
            return ""
        found = re.search(rb"^commitTime=(\d+)", text, re.MULTILINE)
        return found[1].decode() if found else ""

    def folders(self) -> list[str]:
        """All metadata partitions that are on disk, complete or not: Java recognizes one by its metafile."""
        own, listing = self.files.metadata, self.listing
        if listing is not None:
            names = inner_folders(own.base_path, listing.get("", ()))
            return [name for name in names if any(entry.name == PARTITION_METAFILE for entry in listing[name])]
        names = inner_folders(own.base_path, own.storage.list(own.base_path))
        return [name for name in names if own.storage.exists(own.path(name, PARTITION_METAFILE))]

    def file_groups(self, partition: str) -> list[MetadataFileGroup]:
        """File groups of a metadata partition, by file id: the order of the key hash."""
        if partition not in self._groups:
            self._groups[partition] = self._find_groups(partition)
        return self._groups[partition]

    def _opened_groups(self, partition: str) -> list[MetadataFileGroup]:
        """The same, with open files."""
        groups = self.file_groups(partition)
        self._open_files(groups)
        return groups

    def _open_files(self, groups: Sequence[MetadataFileGroup]) -> None:
        """Open the files of groups in parallel to overlap the latency of storage."""
        if self.timeline.layout == 1:
            return  # There the content of some files determines which others are read.
        new = self._unopened(groups)
        if len(new) > 1 and self.threads > 1:
            run_threads(lambda warm: warm(), new, self.threads)

    def _unopened(self, groups: Sequence[MetadataFileGroup]) -> list[Callable[[], object]]:
        """Calls that open files of groups, one for each that is not open."""
        storage, cache = self.files.storage, self.cache
        bases = [group.base for group in groups if group.base is not None]
        logs = [log for group in groups for log in group.logs if log[1] > _NO_RECORD_BYTES]
        found: list[Callable[[], object]] = []
        for files, open_file in ((bases, cache.hfile), (logs, cache.log)):
            found += [partial(_warm, open_file, storage, *file) for file in files if not cache.is_open(*file)]
        return found

    def files_of(self, partition: str) -> MetadataFiles:
        """Files from which records of a metadata partition are currently read."""
        return {
            group.file_id: ("" if group.base is None else group.base[0], frozenset(self._logs_of(group)))
            for group in self.file_groups(partition)
        }

    def _logs_of(self, group: MetadataFileGroup) -> Iterable[tuple[str, int, tuple[str, ...]]]:
        for path, size in group.logs:
            # In layout 1 a log file may be there before its blocks count, and its name and size say little.
            blocks = tuple(block.instant for block in self._blocks(path, size)) if self.timeline.layout == 1 else ()
            if blocks or self.timeline.layout != 1:
                yield path, size, blocks

    def added_since(self, partition: str, before: MetadataFiles) -> list[HFileReader] | None:
        """Data added to a metadata partition after its files were ``before``.

        Returns:
            Added data blocks; None if files were replaced, or records rolled back or deleted, so that earlier reads are
            outdated.
        """
        now = self.files_of(partition)
        if now.keys() != before.keys():
            return None
        added: list[HFileReader] = []
        for file_id, (base, logs) in now.items():
            old_base, old_logs = before[file_id]
            if base != old_base or not old_logs <= logs:
                return None
            for path, size, _ in sorted(logs - old_logs):
                layers = [block.layer for block in self._blocks(path, size)]
                readers = [layer for layer in layers if isinstance(layer, HFileReader)]
                if len(readers) != len(layers):
                    return None
                added += readers
        return added

    def is_valid(self, instant: str) -> bool:
        """Whether an instant's files in the metadata table count."""
        return instant not in self._pending and self.timeline.is_committed(instant)

    def _find_groups(self, partition: str) -> list[MetadataFileGroup]:
        folder = self.files.metadata.path(partition)
        entries = self._folder(partition)
        if self.timeline.layout == 1:
            self.cache.saw(folder, entries)
            planned = partial(self._compacting, partition)
            return groups_by_name(folder, entries, self.is_valid, self.timeline, planned)
        return groups_by_completion(folder, entries, self.is_valid, self.timeline)

    def _compacting(self, partition: str, file_id: str) -> str:
        """Pending compaction of a file group, on top of which new log files are written; empty if there is none."""
        if self._planned is None:
            self._planned = {}
            for instant in self.timeline.pending({"compaction"}):
                name = f"{instant.requested}.compaction.requested"
                plan = decode_body(self.timeline.read(name), f"{self.timeline.path}/{name}")
                for entry in plan.get("operations") or ():
                    self._planned[str(entry["partitionPath"]), str(entry["fileId"])] = instant.requested
        return self._planned.get((partition, file_id), "")

    def log_file(self, path: str, size: int) -> MetadataLogFile:
        """Open a log file.

        In layout 1 files of dead writers are listed beside valid ones, so an unfinished block at the end is skipped,
        unless a valid delta commit names the file.

        Raises:
            CorruptFileError: The file is damaged.
        """
        try:
            return self.cache.log(self.files.storage, path, size)
        except CorruptFileError:
            if self.timeline.layout != 1 or self._is_named(path):
                raise
            return self.cache.log(self.files.storage, path, size, skip_torn=True)

    def wrote(self, instant: str, path: str, size: int) -> bool:
        """Whether a file is a log file written by this delta commit alone."""
        name = parse_log_file_name(path.rpartition("/")[2])
        if name is None:
            return False
        if name.instant == instant:
            return True
        if self.timeline.layout != 1 or size == 0:
            return False
        return {block.instant for block in self.log_file(path, size).blocks} == {instant}

    def _is_named(self, path: str) -> bool:
        relative = path.removeprefix(f"{self.files.metadata.base_path}/")
        commits = (i for i in self.timeline.completed({"deltacommit"}) if self.is_valid(i.requested))
        return any(stat.path == relative for i in commits for stat in self.timeline.commit_metadata(i).all_stats())

    def _blocks(self, path: str, size: int) -> list[MetadataBlock]:
        """Blocks of a log file that count, including command blocks."""
        # The writer of an empty log died before the first byte.
        if size == 0 or (size <= _NO_RECORD_BYTES and self.timeline.layout != 1):
            return []
        blocks = self.log_file(path, size).blocks
        if self.timeline.layout != 1:
            return blocks
        return [block for block in blocks if block.takes_back or self.is_valid(block.instant)]

    def layers(self, group: MetadataFileGroup) -> list[Layer]:
        """Sources of a file group's records, oldest first: HFiles and sets of deleted keys."""
        layers: list[tuple[str, Layer]] = []
        if group.base is not None:
            layers.append(("", self.cache.hfile(self.files.storage, *group.base)))
        for path, size in group.logs:
            name = parse_log_file_name(path.rsplit("/", 1)[1])
            for block in self._blocks(path, size):
                if block.layer is None:
                    layers = [layer for layer in layers if layer[0] != block.takes_back]
                else:
                    layers.append((block.instant or (name.instant if name else ""), block.layer))
        return [layer for _, layer in layers]

    def get_many(self, partition: str, keys: Sequence[str]) -> dict[str, Record]:
        """Merged records of existing ``keys``. Reads only blocks that may contain them."""
        groups = self.file_groups(partition)
        if not groups or not keys:
            return {}
        found: dict[str, Record] = {}
        budget = _budget(partition)
        by_group = self._by_group(partition, keys)
        self._open_files([groups[index] for index, _ in by_group])
        for index, wanted in by_group:
            self._merge(partition, groups[index], found, partial(_get_items, wanted, budget), wanted)
        return found

    def in_read_order(self, partition: str, keys: Iterable[str]) -> list[str]:
        """Distinct keys by file group and then in byte order."""
        return [key.decode() for _, wanted in self._by_group(partition, keys) for key in wanted]

    def read_costs(self, partition: str, keys: Sequence[str]) -> list[int]:
        """Share of each key, in read order, of the bytes that :meth:`get_many` would decompress; reads no data."""
        groups = self.file_groups(partition)
        costs: list[int] = []
        by_group = self._by_group(partition, keys)
        self._open_files([groups[index] for index, _ in by_group] if groups else [])
        for index, wanted in by_group:
            own = [0] * len(wanted)
            for layer in self.layers(groups[index]) if groups else ():
                if isinstance(layer, HFileReader):
                    own = [cost + more for cost, more in zip(own, layer.read_costs(wanted), strict=True)]
            costs += own
        return costs

    def _by_group(self, partition: str, keys: Iterable[str]) -> list[tuple[int, list[bytes]]]:
        """Distinct keys by file group, in byte order."""
        distinct, groups = list(set(keys)), len(self.file_groups(partition))
        if not distinct:
            return []
        wanted: dict[int, list[bytes]] = {}
        for index, key in zip(file_group_index_many(distinct, max(groups, 1)).tolist(), distinct, strict=True):
            wanted.setdefault(index, []).append(key.encode())
        return [(index, sorted(wanted[index])) for index in sorted(wanted)]

    def scan(self, partition: str, prefixes: Sequence[str] = ("",)) -> dict[str, Record]:
        """Merged records of all keys that begin with one of ``prefixes``. A prefix may occur in every file group."""
        found: dict[str, Record] = {}
        wanted, budget = sorted(prefix.encode() for prefix in set(prefixes)), _budget(partition)
        for group in self._opened_groups(partition):
            self._merge(partition, group, found, lambda layer: layer.scan_prefixes(wanted, budget), None)
        return found

    def newest_values(self, partition: str, places: Mapping[bytes, int], prefixes: Sequence[str]) -> LatestValues:
        """Latest value of each key, not decoded, for callers that decode many at once.

        Args:
            partition: Metadata partition.
            places: Keys, numbered from 0.
            prefixes: Prefixes that cover all of the keys.
        """
        found = LatestValues.none(len(places))
        wanted, budget = [prefix.encode() for prefix in set(prefixes)], _budget(partition)
        for group in self._opened_groups(partition):
            for layer in self.layers(group):
                if isinstance(layer, frozenset):
                    found.forget(places[gone] for gone in layer & places.keys())
                else:
                    found.take(layer, places, layer.scan_prefixes(wanted, budget))
        return found

    def newest_of(self, partition: str, keys: Sequence[str]) -> LatestValues:
        """Latest value of each key, as for :meth:`newest_values`. Reads only blocks that may contain one.

        Args:
            partition: Metadata partition.
            keys: Distinct keys; their positions are the numbers.
        """
        groups = self.file_groups(partition)
        found = LatestValues.none(len(keys))
        if not groups or not keys:
            return found
        places = {key.encode(): place for place, key in enumerate(keys)}
        by_group = self._by_group(partition, keys)
        self._open_files([groups[index] for index, _ in by_group])
        read = run_threads(lambda one: self._cells_of(groups[one[0]], one[1]), by_group, self.threads)
        for (_, wanted), layers in zip(by_group, read, strict=True):
            for layer, cells in layers:
                if isinstance(layer, frozenset):
                    found.forget(places[gone] for gone in layer.intersection(wanted))
                else:
                    found.take(layer, places, cells)
        return found

    def _cells_of(
        self, group: MetadataFileGroup, wanted: Sequence[bytes]
    ) -> list[tuple[Layer, Iterable[tuple[bytes, bytes]]]]:
        """Cells of the keys in each layer of a file group."""
        return [
            (layer, () if isinstance(layer, frozenset) else layer.get_many(wanted).items())
            for layer in self.layers(group)
        ]

    def _merge(
        self,
        partition: str,
        group: MetadataFileGroup,
        found: dict[str, Record],
        read: Callable[[HFileReader], Iterable[tuple[bytes, bytes]]],
        wanted: Sequence[bytes] | None,
    ) -> None:
        merge = MERGE_RULES[partition]
        for layer in self.layers(group):
            if isinstance(layer, frozenset):
                for gone in layer if wanted is None else layer.intersection(wanted):
                    found.pop(gone.decode(), None)
                continue
            schema_json = record_schema(layer)
            for raw_key, value in read(layer):
                key = key_text(raw_key, layer)
                if not value:
                    found.pop(key, None)
                    continue
                record = decode_cell(value, schema_json, layer, PAYLOADS.get(partition))
                older = found.get(key)
                found[key] = record if older is None else merge(older, record)

    def partition_paths(self) -> list[str]:
        """Data partitions, from ``__all_partitions__``."""
        record = self.get_many(FILES.name, [ALL_PARTITIONS]).get(ALL_PARTITIONS)
        source = self.files.metadata.path(FILES.name)
        return sorted("" if name == "." else check_partition(name, source) for name in live_files(record))

    def file_listing(self, partitions: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Sizes in bytes by partition path and file name; None lists all partitions."""
        paths = self.partition_paths() if partitions is None else sorted(set(partitions))
        keys = {path or ".": path for path in paths}
        records: Mapping[str, Record]
        # For more than a few partitions one pass over the single file group is cheaper than lookups.
        records = self.get_many(FILES.name, list(keys)) if len(keys) <= 64 else self.scan(FILES.name)
        return {path: live_files(records.get(key)) for key, path in keys.items()}


def _warm(open_file: Callable[..., HFileReader | MetadataLogFile], storage: Storage, path: str, size: int) -> None:
    open_file(storage, path, size).warm()


def _get_items(keys: Sequence[bytes], budget: Budget, layer: HFileReader) -> Iterable[tuple[bytes, bytes]]:
    return layer.get_many(keys, budget).items()


def _budget(partition: str) -> Budget:
    return Budget(limited=partition != BLOOM_FILTERS.name)
