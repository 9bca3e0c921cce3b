"""Real bytes to damage: files and vectors that Hudi's Java classes wrote, and what they hold."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.log_block import LogBlock, decode_log_blocks

GOLDEN = Path(__file__).parent.parent / "golden"

HFILES = (
    *("single_none", "small_gz", "multi_block_gz_1k", "unicode_none", "key125_none", "key126_none"),
    *("long_first_keys_none", "empty", "hudi_1_0_hbase_2_4_9_no_entry", "v8_mdt_files_compacted"),
    *("hudi_1_0_hbase_2_4_9_16KB_GZ_200_20_non_unique",),
)
DEEP_HFILE = "hudi_1_0_hbase_2_4_13_1KB_GZ_10000_large_keys_deep_index"


def golden(name: str) -> bytes:
    """One of the checked-in files."""
    path = GOLDEN / name
    return gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()


@cache
def vectors(name: str) -> Any:
    """A file of ``golden/vectors``."""
    return json.loads(golden(f"vectors/{name}.json"))


@cache
def hfiles() -> tuple[bytes, ...]:
    """Small HFiles: Hudi's and HBase's, packed and not, of the metadata table, and a run of bitmaps."""
    return (*(golden(f"hfile/{name}.hfile") for name in HFILES), golden("bitmap/run.hfile"))


@cache
def logs() -> tuple[bytes, ...]:
    """Log files with blocks of each type."""
    return tuple(
        path.read_bytes() for path in sorted((GOLDEN / "log").iterdir()) if path.is_file() and path.suffix != ".py"
    )


@cache
def blocks() -> tuple[LogBlock, ...]:
    """Their blocks."""
    return tuple(block for log in logs() for block in decode_log_blocks(log))


@cache
def containers() -> tuple[bytes, ...]:
    """Bodies of the timeline: Avro containers."""
    folder = GOLDEN / "timeline"
    return tuple(path.read_bytes() for path in sorted(folder.glob("*.avro")))


@cache
def json_bodies() -> tuple[bytes, ...]:
    """Bodies of the timeline of version 6."""
    return golden("timeline/v6_commit.json"), golden("timeline/v6_replacecommit.json")


@cache
def properties() -> tuple[bytes, ...]:
    """Properties of tables, and single entries that Java stored."""
    entries = [bytes.fromhex(entry["stored_hex"]) for entry in vectors("properties")["data"]["store"]]
    return (*(path.read_bytes() for path in sorted((GOLDEN / "timeline").glob("*.properties"))), *entries)


@cache
def metadata_values() -> tuple[tuple[str, tuple[bytes, ...]], ...]:
    """Schemas of metadata files with some values of each; the vectors have records of every type."""
    contents = [bytes(block.content) for block in blocks() if block.block_type == "HFILE_DATA"]
    found: dict[str, list[bytes]] = {}
    for content in (golden("hfile/v8_mdt_files_compacted.hfile"), *contents):
        reader = HFileReader.from_bytes(content)
        found.setdefault(reader.info["schema"].decode(), []).extend(value for _, value in reader.scan() if value)
    data = vectors("metadata_records")["data"]
    made = [
        bytes.fromhex(text)
        for case in data["records"]
        for key, text in case.items()
        if key == "avro_with_meta_fields_key_blanked_hex"
    ]
    found.setdefault(json.dumps(data["schema_with_meta_fields"]), []).extend(made)
    return tuple((schema, tuple(values)) for schema, values in found.items())


@cache
def bitmap_values() -> tuple[str, tuple[tuple[bytes, bytes], ...]]:
    """Schema and cells of a run of bitmaps."""
    reader = HFileReader.from_bytes(golden("bitmap/run.hfile"))
    return reader.info["schema"].decode(), tuple(reader.scan())


@cache
def blooms() -> tuple[tuple[str, str], ...]:
    """Types and texts of bloom filters."""
    entries = [*vectors("bloom_simple")["data"], *vectors("bloom_dynamic")["data"]]
    return tuple(
        (entry["type"], entry["serialized"]) for entry in entries if 0 < len(entry.get("serialized") or "") < 8000
    )


@cache
def bitmaps() -> tuple[bytes, ...]:
    """Roaring bitmaps of all container kinds."""
    texts = json.loads(golden("bitmap/roaring.json")).values()
    return tuple(bytes.fromhex(text) for text in texts if isinstance(text, str) and len(text) < 40_000)


@cache
def schemas() -> tuple[str, ...]:
    """Avro schemas of tables as commits carry them, and of log blocks."""
    found = {block.header["SCHEMA"] for block in blocks() if "SCHEMA" in block.header}
    for entry in vectors("avro_schemas")["data"]:
        found |= {
            json.dumps(value) for key, value in entry.items() if key.startswith("avro") and isinstance(value, dict)
        }
        found |= {
            value
            for key, value in entry.items()
            if key.startswith("avro") and isinstance(value, str) and value[:1] == "{"
        }
    return tuple(sorted(found))


def decoded(text: str) -> bytes:
    """Bytes under base64."""
    return base64.b64decode(text)
