"""Tables with Hudi's bucket index, which lakedex reads and does not write.

Hudi looks for a key in the one file group that the key's hash names. A group of another name, or a key in another
group, doubles rows in its next write, or stops it. ``hoodie.properties`` does not tell such a table; these do:

* SIMPLE: file ids begin with the number of the bucket in eight digits (``BucketIdentifier.newBucketFileIdPrefix``).
* CONSISTENT_HASHING, and numbers of buckets by partition: files below ``.hoodie/.bucket_index``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from lakedex.errors import UnsupportedFeatureError
from lakedex.metadata.snapshot import Snapshot
from lakedex.timeline.timeline import WRITE_ACTIONS

__all__ = ["has_bucket_names", "require_no_buckets"]

_NUMBERED = re.compile(r"[0-9]{8}-")
_DIGITS = 8
_BY_CHANCE = (10 / 16) ** _DIGITS
"""How many random uuids begin with eight decimal digits."""
_UNLIKELY = math.log(1e-5)
_LOOKED_AT = 64
"""Partitions that a write looks at which needs no listing for itself."""


def require_no_buckets(snapshot: Snapshot, file_ids: Collection[str], partitions: Sequence[str] | None = None) -> None:
    """Refuse to write into a table whose file groups are buckets.

    Args:
        snapshot: the table.
        file_ids: those of its file groups that the write has listed.
        partitions: where it will write; None for anywhere. Some of them are listed if it has listed nothing.

    Raises:
        UnsupportedFeatureError: names the table and its index.
    """
    found = file_ids or [
        item.file_id for item in snapshot.slices(None if partitions is None else partitions[:_LOOKED_AT])
    ]
    if has_bucket_names(found or _last_written(snapshot)):
        kind = "SIMPLE"
    elif snapshot.storage.exists(f"{snapshot.base_path}/.hoodie/.bucket_index"):
        kind = "CONSISTENT_HASHING"
    else:
        return
    raise UnsupportedFeatureError(
        f"table '{snapshot.config.name}': its index is Hudi's bucket index ({kind}): the hash of a key says in which "
        "file group it is, and lakedex does not keep rows so. Reading works; write it with Hudi",
        feature="bucket index",
    )


def has_bucket_names(file_ids: Collection[str]) -> bool:
    """Whether more file ids begin with numbers of buckets than random ones would. One can be enough, if it is small."""
    numbers = [int(file_id[:_DIGITS]) for file_id in file_ids if _NUMBERED.match(file_id)]
    for digits in range(1, _DIGITS + 1):
        found = sum(number < 10**digits for number in numbers)
        expected = len(file_ids) * _BY_CHANCE / 10 ** (_DIGITS - digits)
        if found and found * math.log(expected) - math.lgamma(found + 1) < _UNLIKELY:
            return True
    return False


def _last_written(snapshot: Snapshot) -> list[str]:
    """File ids of the last commit that wrote any: a new partition gets the names that the others have."""
    timeline = snapshot.timeline
    for instant in reversed(timeline.completed(WRITE_ACTIONS)):
        commit = timeline.commit_metadata(instant)
        found = [stat.file_id for stats in commit.write_stats.values() for stat in stats]
        if found:
            return found
    return []
