"""``lakedex debug``: what single files of a table hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from lakedex.codec.bloom import decode_bloom
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.log_block import read_block_headers
from lakedex.errors import InvalidInputError
from lakedex.io.locations import open_storage
from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import read_footer
from lakedex.parquet.plain_files import footer_facts

__all__ = ["bloom", "footer", "hfile", "log"]


def hfile(path: str, entries: int) -> tuple[dict[str, Any], pa.Table]:
    """Trailer, file info, blocks and first entries of an HFile."""
    storage, file = _file(path)
    reader = HFileReader(partial(storage.read_ranges, file), storage.size(file), file)
    trailer = reader.trailer
    rows = [{"key": _readable(key), "bytes": len(value)} for key, value in islice(reader.scan(), entries)]
    facts = {
        "file": file,
        "size": reader.size,
        "entries": reader.entry_count,
        "data_blocks": len(reader.entries),
        "index_levels": trailer.data_index_levels,
        "codec": trailer.codec,
        "comparator": trailer.comparator,
        "meta_blocks": reader.meta_names,
        "info": {name: _readable(value) for name, value in reader.info.items()},
    }
    return facts, pa.Table.from_pylist(rows, pa.schema([("key", pa.string()), ("bytes", pa.int64())]))


def log(path: str) -> pa.Table:
    """A row per block of a log file: offset, type, bytes of content, header."""
    storage, file = _file(path)
    blocks = read_block_headers(partial(storage.read_ranges, file), storage.size(file), file)
    rows = [
        {
            "offset": block.offset,
            "type": block.block_type,
            "bytes": block.content_length,
            "header": "; ".join(_header(block.header)),
        }
        for block in blocks
    ]
    kinds = [("offset", pa.int64()), ("type", pa.string()), ("bytes", pa.int64()), ("header", pa.string())]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def bloom(path: str, key: str | None) -> dict[str, Any]:
    """The bloom filter in the footer of a base file, and whether it may hold a key."""
    storage, file = _file(path)
    found = read_footer(storage, file)
    if found.bloom is None:
        raise InvalidInputError(f"{file}: the footer has no bloom filter")
    decoded = decode_bloom(found.bloom, found.bloom_type, file)
    facts = {
        "file": file,
        "type": decoded.type_code,
        "hashes": decoded.num_hashes,
        "bits": decoded.bits,
        "rows": len(decoded.rows),
        "bytes": len(found.bloom),
        "min_key": found.min_key,
        "max_key": found.max_key,
    }
    if key is not None:
        facts |= {"key": key, "may_hold_key": bool(decoded.probe(pa.array([key]))[0])}
    return facts


def footer(path: str) -> tuple[dict[str, Any], pa.Table]:
    """Facts of the footer of a Parquet file, and a row per column."""
    storage, file = _file(path)
    found = read_footer(storage, file)
    facts, columns = footer_facts(storage, file)
    return {"file": file, **facts, "min_key": found.min_key, "max_key": found.max_key}, columns


def _file(path: str) -> tuple[Storage, str]:
    found = open_storage(path)
    if not found.storage.exists(found.base_path):
        raise InvalidInputError(f"{found}: there is no such file")
    return found.storage, found.base_path


def _header(header: dict[str, str]) -> Iterator[str]:
    """Names and values; a schema is long and says little."""
    for name, value in header.items():
        yield f"{name}: {value if len(value) <= 80 else f'{value[:77]}…'}"


def _readable(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.hex()
