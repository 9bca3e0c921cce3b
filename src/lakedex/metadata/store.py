"""Reading the metadata table: base HFiles and valid log files of each file group, merged by key.

What counts (``HoodieTableMetadataUtil.getValidInstantTimestamps``): what instants wrote that are completed on the
metadata timeline, or archived there, and not pending on the data timeline. A data commit completes the metadata first,
so a metadata commit whose data instant is still pending is not there yet. In timeline layout 2 that is asked of files,
in layout 1 of each block of a log file.
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
from lakedex.io.storage import FileInfo, Storage
from lakedex.layout.names import PARTITION_METAFILE, parse_log_file_name
from lakedex.layout.table_files import inner_folders, list_folder
from lakedex.metadata.file_groups import MetadataFileGroup, groups_by_completion, groups_by_name, missing_file
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

__all__ = ["LatestValues", "MetadataStore", "metadata_path"]


def metadata_path(base_path: str) -> str:
    """Folder of a table's metadata table."""
    return f"{base_path}/.hoodie/metadata"


_READS_AT_ONCE = 16
"""Threads that wait for a storage that lets one wait."""


_SECONDS_WORTH_THREADS = 0.004
"""A listing that takes longer comes from afar. On a local disk starting threads takes longer than reading."""


_NO_RECORD_BYTES = 80
"""A log file of layout 2 up to this size holds no record, so it need not be read: a block takes 46 bytes besides its
header and content, the instant in its header 22, and a list of one deleted key 14. Every file group begins with one."""


@dataclass(frozen=True, slots=True)
class LatestValues:
    """Values of numbered keys.

    Attributes:
        values: by number; empty where there is none (any more).
        sources: by number the place of the file among ``layers``; -1 where there is no value.
        layers: files that values were taken from.
        again: numbers of keys that were written more than once, whose records may have to be merged.
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
        """Take the cells of a later file."""
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
        """Take values away."""
        for place in places:
            self.values[place], self.sources[place] = b"", -1

    def by_layer(self) -> Iterator[tuple[HFileReader, npt.NDArray[np.int64], list[bytes]]]:
        """For each file the numbers of the keys whose values it has, and these."""
        sources = np.array(self.sources, np.int64)
        for number, layer in enumerate(self.layers):
            rows = np.flatnonzero(sources == number)
            if len(rows):
                yield layer, rows, [self.values[row] for row in rows.tolist()]


@dataclass(slots=True)
class MetadataStore:
    """Keyed reads of a table's metadata, as of one moment of both timelines.

    Attributes:
        partitions: complete metadata partitions (``hoodie.table.metadata.partitions``).
    """

    storage: Storage
    base_path: str
    data_timeline: Timeline
    timeline: Timeline
    partitions: frozenset[str]
    cache: MetadataFileCache = field(default_factory=MetadataFileCache)
    _groups: dict[str, list[MetadataFileGroup]] = field(default_factory=dict)
    _entries: dict[str, list[FileInfo]] = field(default_factory=dict)
    _pending: frozenset[str] = field(init=False)
    _planned: dict[tuple[str, str], str] | None = field(default=None)
    _threads: int = 1

    def __post_init__(self) -> None:
        # A savepoint that is being made has the requested time of a commit that is complete.
        pending = (instant.requested for instant in self.data_timeline.pending())
        self._pending = frozenset(requested for requested in pending if not self.data_timeline.is_completed(requested))

    @property
    def table_version(self) -> int:
        """Version by which records are written: 6 in timeline layout 1, else 8."""
        return 6 if self.timeline.layout == 1 else 8

    def has(self, partition: str) -> bool:
        """Whether the partition can be used: listed as complete, and whole.

        Without ``files`` none can (``isMetadataTableAvailable``).
        """
        return {partition, FILES.name} <= self.partitions and not (
            self.why_lost(FILES.name) or self.why_lost(partition)
        )

    def why_lost(self, partition: str) -> str:
        """The damage of the files of a metadata partition; empty if nothing is, or if it is not listed.

        Looked up once for each state of the metadata timeline (:mod:`lakedex.metadata.file_groups`).
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
        return missing_file(partition, present, self.timeline, partial(self._begun, partition), self._threads)

    def recheck(self) -> None:
        """List folders again when they are next needed: files may have been deleted from them."""
        self._entries.clear()
        self._groups.clear()
        self.cache.completeness.clear()

    def with_completed(self, data_timeline: Timeline, delta: Instant | None) -> MetadataStore:
        """The store once a commit with its delta commit is complete: partitions that were complete still are.

        Args:
            data_timeline: the table's, with the commit.
            delta: the delta commit, written by this process; None if there was none.
        """
        timeline = self.timeline if delta is None else self.timeline.with_completed(delta)
        for partition, (instants, damage) in tuple(self.cache.completeness.items()):
            if instants == self.timeline.instants and not damage:
                self.cache.completeness[partition] = (timeline.instants, "")
        return MetadataStore(self.storage, self.base_path, data_timeline, timeline, self.partitions, self.cache)

    def give_up(self, partition: str, reason: str) -> None:
        """Use the partition no more in this state: reading it failed."""
        self.cache.completeness[partition] = (self.timeline.instants, reason)

    def _folder(self, partition: str) -> list[FileInfo]:
        """Base and log files of a metadata partition, listed once."""
        if partition not in self._entries:
            started = time.perf_counter()
            entries = list_folder(self.storage, metadata_path(self.base_path), partition)
            kept = [entry for entry in entries if not entry.is_dir and not entry.name.startswith(PARTITION_METAFILE)]
            self._entries[partition] = kept
            if time.perf_counter() - started > _SECONDS_WORTH_THREADS:
                self._threads = _READS_AT_ONCE
        return self._entries[partition]

    def list_folders(self, partitions: Iterable[str]) -> None:
        """List folders of metadata partitions that will be asked for, all at once; those seen before are not."""
        seen = {name for name, (instants, _) in self.cache.completeness.items() if instants == self.timeline.instants}
        names = [name for name in partitions if name in self.partitions and name not in self._entries.keys() | seen]
        for name in names[:1]:
            self._folder(name)  # Tells whether the others are worth threads.
        run_threads(self._folder, names[1:], self._threads)

    def _begun(self, partition: str) -> str:
        """The first commit that wrote to the folder as it is now; ``files`` is never rebuilt alone."""
        if partition == FILES.name:
            return ""
        try:
            text = self.storage.read(f"{metadata_path(self.base_path)}/{partition}/{PARTITION_METAFILE}")
        except FileNotFoundError:
            return ""
        found = re.search(rb"^commitTime=(\d+)", text, re.MULTILINE)
        return found[1].decode() if found else ""

    def folders(self) -> list[str]:
        """All metadata partitions that are on disk, complete or not: what Java takes for one has a metafile."""
        root = metadata_path(self.base_path)
        names = inner_folders(root, self.storage.list(root))
        return [name for name in names if self.storage.exists(f"{root}/{name}/{PARTITION_METAFILE}")]

    def file_groups(self, partition: str) -> list[MetadataFileGroup]:
        """File groups of a metadata partition, by file id: the order that the key hash counts in."""
        if partition not in self._groups:
            self._groups[partition] = self._find_groups(partition)
            self._open_files(self._groups[partition])
        return self._groups[partition]

    def _open_files(self, groups: Sequence[MetadataFileGroup]) -> None:
        """Open the files of groups at the same time, so that their requests wait for storage together."""
        if self.timeline.layout == 1:
            return  # The content of other files decides which are read there.
        bases = [group.base for group in groups if group.base is not None]
        logs = [log for group in groups for log in group.logs if log[1] > _NO_RECORD_BYTES]
        new = [file for file in (*bases, *logs) if not self.cache.is_open(*file)]
        if len(new) > 1 and self._threads > 1:
            opened = set(bases)
            run_threads(
                lambda file: (self.cache.hfile if file in opened else self.cache.log)(self.storage, *file).warm(),
                new,
                self._threads,
            )

    def files_of(self, partition: str) -> MetadataFiles:
        """Files that records of a metadata partition are read from now."""
        return {
            group.file_id: ("" if group.base is None else group.base[0], frozenset(self._logs_of(group)))
            for group in self.file_groups(partition)
        }

    def _logs_of(self, group: MetadataFileGroup) -> Iterable[tuple[str, int, int]]:
        for path, size in group.logs:
            # In layout 1 a log file may be there before its blocks count.
            blocks = len(self._blocks(path, size)) if self.timeline.layout == 1 else 1
            if blocks:
                yield path, size, blocks

    def added_since(self, partition: str, before: MetadataFiles) -> list[HFileReader] | None:
        """Files that were written to a metadata partition after its files were ``before``.

        Returns:
            The added data blocks; None where files were replaced, or records taken back or deleted by key, so that what
            was read before has to be read again.
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
        """Whether what an instant wrote into the metadata table counts."""
        return instant not in self._pending and self.timeline.is_committed(instant)

    def _find_groups(self, partition: str) -> list[MetadataFileGroup]:
        folder = f"{metadata_path(self.base_path)}/{partition}"
        entries = self._folder(partition)
        if self.timeline.layout == 1:
            planned = partial(self._compacting, partition)
            return groups_by_name(folder, entries, self.is_valid, self.timeline, planned)
        return groups_by_completion(folder, entries, self.is_valid, self.timeline)

    def _compacting(self, partition: str, file_id: str) -> str:
        """The pending compaction that has a file group in its plan: what is written meanwhile goes on top of it."""
        if self._planned is None:
            self._planned = {}
            for instant in self.timeline.pending({"compaction"}):
                name = f"{instant.requested}.compaction.requested"
                plan = decode_body(self.timeline.read(name), f"{self.timeline.path}/{name}")
                for entry in plan.get("operations") or ():
                    self._planned[str(entry["partitionPath"]), str(entry["fileId"])] = instant.requested
        return self._planned.get((partition, file_id), "")

    def log_file(self, path: str, size: int) -> MetadataLogFile:
        """A log file, opened.

        In layout 1 a file that a dead writer did not finish lies beside those that count, so an unfinished block at its
        end is left out; unless a delta commit that counts says that it wrote the file.

        Raises:
            CorruptFileError: it is damaged.
        """
        try:
            return self.cache.log(self.storage, path, size)
        except CorruptFileError:
            if self.timeline.layout != 1 or self._is_named(path):
                raise
            return self.cache.log(self.storage, path, size, skip_torn=True)

    def wrote(self, instant: str, path: str, size: int) -> bool:
        """Whether a file is a log file that this delta commit wrote, and nobody else wrote into."""
        name = parse_log_file_name(path.rpartition("/")[2])
        if name is None:
            return False
        if name.instant == instant:
            return True
        if self.timeline.layout != 1 or size == 0:
            return False
        return {block.instant for block in self.log_file(path, size).blocks} == {instant}

    def _is_named(self, path: str) -> bool:
        relative = path.removeprefix(f"{metadata_path(self.base_path)}/")
        commits = (i for i in self.timeline.completed({"deltacommit"}) if self.is_valid(i.requested))
        return any(stat.path == relative for i in commits for stat in self.timeline.commit_metadata(i).all_stats())

    def _blocks(self, path: str, size: int) -> list[MetadataBlock]:
        """Blocks of a log file that count, command blocks among them."""
        # A stray empty log: its writer died before the first byte.
        if size == 0 or (size <= _NO_RECORD_BYTES and self.timeline.layout != 1):
            return []
        blocks = self.log_file(path, size).blocks
        if self.timeline.layout != 1:
            return blocks
        return [block for block in blocks if block.takes_back or self.is_valid(block.instant)]

    def layers(self, group: MetadataFileGroup) -> list[Layer]:
        """Sources of a file group's records, oldest first: HFiles, and sets of keys that are deleted there."""
        layers: list[tuple[str, Layer]] = []
        if group.base is not None:
            layers.append(("", self.cache.hfile(self.storage, *group.base)))
        for path, size in group.logs:
            name = parse_log_file_name(path.rsplit("/", 1)[1])
            for block in self._blocks(path, size):
                if block.layer is None:
                    layers = [layer for layer in layers if layer[0] != block.takes_back]
                else:
                    layers.append((block.instant or (name.instant if name else ""), block.layer))
        return [layer for _, layer in layers]

    def get_many(self, partition: str, keys: Sequence[str]) -> dict[str, Record]:
        """Merged records of ``keys``, those that exist. Reads only the blocks that may hold them."""
        groups = self.file_groups(partition)
        if not groups or not keys:
            return {}
        found: dict[str, Record] = {}
        budget = _budget(partition)
        for index, wanted in self._by_group(partition, keys):
            self._merge(partition, groups[index], found, partial(_get_items, wanted, budget), wanted)
        return found

    def in_read_order(self, partition: str, keys: Iterable[str]) -> list[str]:
        """Distinct keys as they lie: file group by file group, there in byte order."""
        return [key.decode() for _, wanted in self._by_group(partition, keys) for key in wanted]

    def read_costs(self, partition: str, keys: Sequence[str]) -> list[int]:
        """For each of the keys, in read order, its share of what :meth:`get_many` would unpack; reads no data."""
        groups = self.file_groups(partition)
        costs: list[int] = []
        for index, wanted in self._by_group(partition, keys):
            own = [0] * len(wanted)
            for layer in self.layers(groups[index]) if groups else ():
                if isinstance(layer, HFileReader):
                    own = [cost + more for cost, more in zip(own, layer.read_costs(wanted), strict=True)]
            costs += own
        return costs

    def _by_group(self, partition: str, keys: Iterable[str]) -> list[tuple[int, list[bytes]]]:
        """Distinct keys by the file group that they belong to, in byte order."""
        distinct, groups = list(set(keys)), len(self.file_groups(partition))
        if not distinct:
            return []
        wanted: dict[int, list[bytes]] = {}
        for index, key in zip(file_group_index_many(distinct, max(groups, 1)).tolist(), distinct, strict=True):
            wanted.setdefault(index, []).append(key.encode())
        return [(index, sorted(wanted[index])) for index in sorted(wanted)]

    def scan(self, partition: str, prefixes: Sequence[str] = ("",)) -> dict[str, Record]:
        """Merged records of all keys that begin with one of ``prefixes``. A prefix may live in every file group."""
        found: dict[str, Record] = {}
        wanted, budget = sorted(prefix.encode() for prefix in set(prefixes)), _budget(partition)
        for group in self.file_groups(partition):
            self._merge(partition, group, found, lambda layer: layer.scan_prefixes(wanted, budget), None)
        return found

    def newest_values(self, partition: str, places: Mapping[bytes, int], prefixes: Sequence[str]) -> LatestValues:
        """The value of each key that was written last, not decoded: for those who decode many at once.

        Args:
            partition: the metadata partition.
            places: keys, numbered from 0.
            prefixes: each of the keys begins with one of them.
        """
        found = LatestValues.none(len(places))
        wanted, budget = [prefix.encode() for prefix in set(prefixes)], _budget(partition)
        for group in self.file_groups(partition):
            for layer in self.layers(group):
                if isinstance(layer, frozenset):
                    found.forget(places[gone] for gone in layer & places.keys())
                else:
                    found.take(layer, places, layer.scan_prefixes(wanted, budget))
        return found

    def newest_of(self, partition: str, keys: Sequence[str]) -> LatestValues:
        """The value of each key that was written last, as of :meth:`newest_values`. Reads the blocks that may hold one.

        Args:
            partition: the metadata partition.
            keys: distinct keys; their places are the numbers.
        """
        groups = self.file_groups(partition)
        found = LatestValues.none(len(keys))
        if not groups or not keys:
            return found
        places = {key.encode(): place for place, key in enumerate(keys)}
        by_group = self._by_group(partition, keys)
        read = run_threads(lambda one: self._cells_of(groups[one[0]], one[1]), by_group, self._threads)
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
        source = f"{metadata_path(self.base_path)}/{FILES.name}"
        return sorted("" if name == "." else check_partition(name, source) for name in live_files(record))

    def file_listing(self, partitions: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Partition path → file name → size in bytes, of the partitions given or of all."""
        paths = self.partition_paths() if partitions is None else sorted(set(partitions))
        keys = {path or ".": path for path in paths}
        records: Mapping[str, Record]
        # Past a handful of partitions one pass over the whole (single) file group is cheaper than points.
        records = self.get_many(FILES.name, list(keys)) if len(keys) <= 64 else self.scan(FILES.name)
        return {path: live_files(records.get(key)) for key, path in keys.items()}


def _get_items(keys: Sequence[bytes], budget: Budget, layer: HFileReader) -> Iterable[tuple[bytes, bytes]]:
    return layer.get_many(keys, budget).items()


def _budget(partition: str) -> Budget:
    return Budget(limited=partition != BLOOM_FILTERS.name)
