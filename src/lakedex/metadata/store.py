"""Reading the metadata table: base HFiles and valid log files of each file group, merged by key.

Which files count (``HoodieTableMetadataUtil.getValidInstantTimestamps``, version 8): those of instants that are
completed on the metadata timeline, or archived there, and not pending on the data timeline. A data commit completes
the metadata first, so a metadata commit whose data instant is still pending is not there yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lakedex.codec.hashing import file_group_index
from lakedex.codec.hfile import HFileReader
from lakedex.codec.metadata_record import decode_metadata_record
from lakedex.io.storage import Storage
from lakedex.layout.names import parse_base_file_name, parse_log_file_name
from lakedex.metadata.cache import MetadataCache
from lakedex.metadata.file_view import MetadataFiles
from lakedex.metadata.partitions import ALL_PARTITIONS, FILES
from lakedex.metadata.records import MERGE_RULES, Record, live_files
from lakedex.timeline.timeline import Timeline

__all__ = ["MetadataFileGroup", "MetadataStore", "metadata_path"]

Layer = HFileReader | frozenset[bytes]


def metadata_path(base_path: str) -> str:
    """Folder of a table's metadata table."""
    return f"{base_path}/.hoodie/metadata"


@dataclass(frozen=True, slots=True)
class MetadataFileGroup:
    """The newest slice of a metadata file group: ``(path, size)`` of its files, logs oldest first."""

    file_id: str
    base: tuple[str, int] | None
    logs: tuple[tuple[str, int], ...]


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
    cache: MetadataCache = field(default_factory=MetadataCache)
    _groups: dict[str, list[MetadataFileGroup]] = field(default_factory=dict)
    _pending: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._pending = frozenset(instant.requested for instant in self.data_timeline.pending())

    def has(self, partition: str) -> bool:
        """Whether the partition is there and complete. Without ``files`` none is (``isMetadataTableAvailable``)."""
        return partition in self.partitions and FILES.name in self.partitions

    def file_groups(self, partition: str) -> list[MetadataFileGroup]:
        """File groups of a metadata partition, by file id: the order that the key hash counts in."""
        if partition not in self._groups:
            self._groups[partition] = self._find_groups(partition)
        return self._groups[partition]

    def files_of(self, partition: str) -> MetadataFiles:
        """Files that records of a metadata partition are read from now."""
        return {
            group.file_id: ("" if group.base is None else group.base[0], frozenset(group.logs))
            for group in self.file_groups(partition)
        }

    def added_since(self, partition: str, before: MetadataFiles) -> list[HFileReader] | None:
        """What was written to a metadata partition after its files were ``before``.

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
            for path, size in sorted(logs - old_logs):
                opened = self.cache.log(self.storage, path, size) if size else None
                layers = [] if opened is None else opened.layers
                if (opened is not None and opened.rolled_back) or any(isinstance(x, frozenset) for x in layers):
                    return None
                added += [layer for layer in layers if isinstance(layer, HFileReader)]
        return added

    def _is_valid(self, instant: str) -> bool:
        return instant not in self._pending and self.timeline.is_committed(instant)

    def _find_groups(self, partition: str) -> list[MetadataFileGroup]:
        folder = f"{metadata_path(self.base_path)}/{partition}"
        bases: dict[str, tuple[str, str, int]] = {}
        logs: dict[str, list[tuple[tuple[str, int, str, bool], str, int]]] = {}
        file_ids: set[str] = set()
        for entry in self.storage.list(folder):
            if (base := parse_base_file_name(entry.name)) is not None:
                file_ids.add(base.file_id)
                known = bases.get(base.file_id)
                if self._is_valid(base.instant) and (known is None or base.instant > known[0]):
                    bases[base.file_id] = (base.instant, entry.name, entry.size)
            elif (log := parse_log_file_name(entry.name)) is not None:
                file_ids.add(log.file_id)
                if self._is_valid(log.instant):
                    logs.setdefault(log.file_id, []).append((log.order, entry.name, entry.size))
        groups = []
        for file_id in sorted(file_ids):
            instant, name, size = bases.get(file_id, ("", "", 0))
            later = sorted(item for item in logs.get(file_id, []) if self._is_after(item[0][0], instant))
            groups.append(
                MetadataFileGroup(
                    file_id,
                    (f"{folder}/{name}", size) if name else None,
                    tuple((f"{folder}/{log_name}", log_size) for _, log_name, log_size in later),
                )
            )
        return groups

    def _is_after(self, log_instant: str, base_instant: str) -> bool:
        """Version 8: a log file belongs to the slice with the largest base instant not after its completion time."""
        return (self.timeline.completion_time(log_instant) or log_instant) >= base_instant

    def _layers(self, group: MetadataFileGroup) -> list[Layer]:
        """Sources of a file group, oldest first."""
        layers: list[tuple[str, Layer]] = []
        if group.base is not None:
            layers.append(("", self.cache.hfile(self.storage, *group.base)))
        for path, size in group.logs:
            if size == 0:  # A stray empty log: its writer died before the first byte.
                continue
            opened = self.cache.log(self.storage, path, size)
            if opened.rolled_back:
                layers = [layer for layer in layers if layer[0] not in opened.rolled_back]
            name = parse_log_file_name(path.rsplit("/", 1)[1])
            layers.extend((name.instant if name else "", layer) for layer in opened.layers)
        return [layer for _, layer in layers]

    def get_many(self, partition: str, keys: Sequence[str]) -> dict[str, Record]:
        """Merged records of ``keys``, those that exist. Reads only the blocks that may hold them."""
        groups = self.file_groups(partition)
        if not groups or not keys:
            return {}
        by_group: dict[int, list[bytes]] = {}
        for key in sorted(set(keys)):
            by_group.setdefault(file_group_index(key, len(groups)), []).append(key.encode())
        found: dict[str, Record] = {}
        for index, wanted in by_group.items():
            wanted.sort()
            self._merge(partition, groups[index], found, partial(_get_items, wanted), wanted)
        return found

    def scan(self, partition: str, prefixes: Sequence[str] = ("",)) -> dict[str, Record]:
        """Merged records of all keys that begin with one of ``prefixes``. A prefix may live in every file group."""
        found: dict[str, Record] = {}
        wanted = sorted(prefix.encode() for prefix in set(prefixes))
        for group in self.file_groups(partition):
            self._merge(partition, group, found, lambda layer: layer.scan_prefixes(wanted), None)
        return found

    def _merge(
        self,
        partition: str,
        group: MetadataFileGroup,
        found: dict[str, Record],
        read: Callable[[HFileReader], Iterable[tuple[bytes, bytes]]],
        wanted: Sequence[bytes] | None,
    ) -> None:
        merge = MERGE_RULES[partition]
        for layer in self._layers(group):
            if isinstance(layer, frozenset):
                for gone in layer if wanted is None else layer.intersection(wanted):
                    found.pop(gone.decode(), None)
                continue
            schema_json = layer.info["schema"].decode()
            for raw_key, value in read(layer):
                key = raw_key.decode()
                if not value:
                    found.pop(key, None)
                    continue
                record = decode_metadata_record(value, schema_json)
                older = found.get(key)
                found[key] = record if older is None else merge(older, record)

    def partition_paths(self) -> list[str]:
        """Data partitions, from ``__all_partitions__``."""
        record = self.get_many(FILES.name, [ALL_PARTITIONS]).get(ALL_PARTITIONS)
        return sorted("" if name == "." else name for name in live_files(record))

    def file_listing(self, partitions: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Partition path → file name → size in bytes, of the partitions given or of all."""
        paths = self.partition_paths() if partitions is None else sorted(set(partitions))
        keys = {path or ".": path for path in paths}
        records: Mapping[str, Record]
        # Past a handful of partitions one pass over the whole (single) file group is cheaper than points.
        records = self.get_many(FILES.name, list(keys)) if len(keys) <= 64 else self.scan(FILES.name)
        return {path: live_files(records.get(key)) for key, path in keys.items()}


def _get_items(keys: Sequence[bytes], layer: HFileReader) -> Iterable[tuple[bytes, bytes]]:
    return layer.get_many(keys).items()
