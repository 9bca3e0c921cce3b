"""The partitions of a scan that reads parts of files: Spark's ``FilePartition``, with byte ranges that are chosen here.

Tasks read with the factory of Spark's ``ParquetScan``, so rows stay columnar. Memory: 16 bytes for each range, and
Spark's own ``PartitionedFile`` for each part of a file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from lakedex.spark.catalog.java import Answer, JavaSide
from lakedex.spark.catalog.row_groups import FileRanges
from lakedex.spark.reader import qualified

__all__ = ["PartsBatch"]


class PartsBatch(Answer):
    """A batch whose partitions are those of another one, narrowed to parts of its files."""

    interfaces = ("org.apache.spark.sql.connector.read.Batch",)

    def __init__(self, side: JavaSide, identity: str, batch: Any, parts: Mapping[str, FileRanges]) -> None:
        super().__init__(side, identity)
        self._batch = batch
        self._parts = parts

    def planInputPartitions(self) -> Any:
        """Parts of files, split and packed by Spark's settings as whole files are."""
        return self._side.bridge.parts(self._side.session, self._batch, encode_parts(self._parts))

    def createReaderFactory(self) -> Any:
        """Spark's."""
        return self._batch.createReaderFactory()


def encode_parts(parts: Mapping[str, FileRanges]) -> bytes:
    """The parts as a ``DataInputStream`` reads them: number of files; per file its path and its ranges."""
    encoded = [struct.pack(">i", len(parts))]
    for path, part in parts.items():
        name = qualified(path).encode()
        numbers = [number for pair in part.ranges for number in pair]
        encoded += [struct.pack(">i", len(name)), name, struct.pack(f">i{len(numbers)}q", len(numbers), *numbers)]
    return b"".join(encoded)
