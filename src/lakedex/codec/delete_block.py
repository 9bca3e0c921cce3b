"""Content of DELETE log blocks: the keys of deleted records.

    ======  ====================================================================
    bytes   content (big-endian)
    ======  ====================================================================
    4       version of the content: 3
    4       size of the datum
    n       Avro datum ``HoodieDeleteRecordList``
    ======  ====================================================================

In Hudi: ``HoodieDeleteBlock`` (1.1.1). Its versions 1 and 2 are objects serialized by Java and Kryo; tables of the
versions that lakedex reads do not hold them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from lakedex.codec.avro import decode_datum, encode_datum, parsed
from lakedex.errors import CorruptFileError

__all__ = ["decode_delete_block", "encode_delete_block"]

_VERSION = 3
_START = struct.Struct(">ii")
_SCHEMA = "HoodieDeleteRecordList"
_LIST = "deleteRecordList"


def decode_delete_block(content: bytes | memoryview, path: str = "", offset: int = 0) -> list[dict[str, Any]]:
    """Read the deleted records.

    Args:
        content: Content of the block.
        path: Named in the error.
        offset: Offset of the content in the file, for the error.

    Returns:
        A dict per record: ``recordKey``, ``partitionPath`` and ``orderingVal``, which is None or a pair of the full
        name of a wrapper record and that record.

    Raises:
        CorruptFileError: Damaged bytes, or another version.
    """
    if len(content) < _START.size:
        raise CorruptFileError(path, offset, f"a delete block of at least {_START.size} bytes", f"{len(content)}")
    version, size = _START.unpack_from(content)
    if version != _VERSION:
        raise CorruptFileError(path, offset, f"delete block version {_VERSION}", str(version))
    if size != len(content) - _START.size:
        raise CorruptFileError(path, offset + 4, f"a datum of {len(content) - _START.size} bytes", str(size))
    record = decode_datum(parsed(_SCHEMA), content[_START.size :], path, offset + _START.size)
    records: list[dict[str, Any]] = record[_LIST]
    return records


def encode_delete_block(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Write the content of a delete block; records as :func:`decode_delete_block` gives them.

    Raises:
        InvalidInputError: A record that does not fit ``HoodieDeleteRecordList``.
    """
    datum = encode_datum(parsed(_SCHEMA), {_LIST: list(records)})
    return _START.pack(_VERSION, len(datum)) + datum
