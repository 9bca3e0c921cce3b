"""Targets below files: HFiles, log blocks, bloom and roaring texts, Avro, properties, names, timeline bodies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa

from avro_parts import avro_long, container, schema_and_datum
from fuzz import seeds
from fuzz.hfile_parts import bomb, damaged_inside
from fuzz.mutations import Mutator, packed, varint
from fuzz.running import FILE, Case, Target, named
from lakedex.codec import avro
from lakedex.codec.avro_schema import avro_to_arrow
from lakedex.codec.avro_vectorized import datum_schema, decode_datums, split_avro_block
from lakedex.codec.bloom import decode_bloom
from lakedex.codec.column_bounds import timestamp_unit, unwrap_stat
from lakedex.codec.hfile.blocks import CODEC_GZIP, CODEC_NONE, DATA, decode_block
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.log_block import (
    BLOCK_TYPES,
    LogBlock,
    decode_command_block,
    decode_delete_block,
    decode_log_blocks,
    encode_log_block,
    read_block_headers,
)
from lakedex.codec.log_records import decode_positions
from lakedex.codec.metadata_record import decode_bitmap_records, decode_many
from lakedex.codec.properties import decode_properties, encode_properties
from lakedex.codec.roaring import decode_bitmap, deserialize_bitmap, encode_bitmap, serialize_bitmap
from lakedex.codec.varint import decode_varint, decode_vlong, encode_varint, encode_vlong
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.log_coverage import LOGS_SCHEMA, CoveredLog, covered_logs, logs_block
from lakedex.index.bitmap.run_files import COLUMN_SCHEMA, FILES_SCHEMA, encode_block
from lakedex.index.bitmap.run_files import decode_block as decode_coverage
from lakedex.layout.names import parse_base_file_name, parse_log_file_name, parse_marker_name
from lakedex.snapshot.schema import moved_names
from lakedex.timeline.commit_metadata import (
    decode_commit_metadata,
    decode_rollback_metadata,
    decode_rollback_plan,
    encode_commit_metadata,
)
from lakedex.timeline.instant import parse_instant_name
from lakedex.timeline.table_config import TableConfig

__all__ = ["CODEC_TARGETS"]

UNPACKED = 12_000
"""Of packed bytes: a deflate stream grows by up to 1032, and a cell of 21 bytes takes two hundred as Python objects."""

# ------------------------------------------------------------------------------------------------ HFiles


@cache
def _cells(content: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return tuple(HFileReader.from_bytes(content).scan())


@cache
def _is_packed(content: bytes) -> bool:
    return HFileReader.from_bytes(content).trailer.codec == CODEC_GZIP


def _hfile_raw(mutator: Mutator) -> Case:
    """A packed file has a checksum in each stream: what is read from its blocks is right, or an error."""
    seed = mutator.choice(seeds.hfiles())
    # No splices here: a block of another file is sound, and nothing in an HFile says where it belongs.
    damaged = mutator.bytes(seed)
    return Case(len(damaged), partial(_read_hfile, damaged, seed, exact=_is_packed(seed)))


def _hfile_inside(mutator: Mutator) -> Case:
    seed = mutator.choice(seeds.hfiles())
    damaged = damaged_inside(seed, mutator)
    return Case(len(damaged), partial(_read_hfile, damaged, seed, exact=False), multiple=UNPACKED)


def _hfile_spliced(mutator: Mutator) -> Case:
    seed = mutator.choice(seeds.hfiles())
    damaged = mutator.bytes(seed, seeds.hfiles())
    return Case(len(damaged), partial(_read_hfile, damaged, seed, exact=False), multiple=UNPACKED)


def _hfile_deep(mutator: Mutator) -> Case:
    """Several index levels, of which a lookup reads one block each."""
    seed = seeds.golden(f"hfile/{seeds.DEEP_HFILE}.hfile")
    damaged = mutator.bytes(seed)
    key = mutator.choice(_cells(seed))[0]

    def run() -> None:
        found = HFileReader.from_bytes(damaged, FILE).get(key)
        assert found is None or found == dict(_cells(seed))[key]

    return Case(len(damaged), run)


def _read_hfile(damaged: bytes, seed: bytes, *, exact: bool) -> None:
    sound = _cells(seed)
    wanted = [sound[0][0], sound[-1][0], sound[len(sound) // 2][0], b"other"] if sound else [b"other"]
    outcomes: list[Any] = []
    reads: tuple[Callable[[HFileReader], Any], ...] = (
        lambda reader: [reader.meta(name) for name in reader.meta_names],
        lambda reader: reader.get_many(wanted),
        lambda reader: list(reader.scan_prefixes([wanted[0][:3], b"zz"])),
        lambda reader: list(reader.scan()),
    )
    last: CorruptFileError | None = None
    for read in reads:
        try:
            outcomes.append(read(HFileReader.from_bytes(damaged, FILE)))
        except CorruptFileError as error:
            last = named(error)
    if last is not None:
        raise last
    _, found, some, cells = outcomes
    if exact:
        assert cells == list(sound), "other cells than were written"
        assert found == {key: dict(reversed(sound))[key] for key in sorted(wanted) if key in dict(sound)}
        assert some == [cell for cell in sound if cell[0].startswith((wanted[0][:3], b"zz"))]
    else:
        assert all(key in wanted for key in found)


def _block(mutator: Mutator) -> Case:
    """One block, whose sizes and stream may be anything."""
    payload = mutator.choice((b"", b"x" * 40, bytes(5000), mutator.random.randbytes(300)))
    codec = mutator.choice((CODEC_GZIP, CODEC_GZIP, CODEC_NONE))
    stream = payload if codec == CODEC_NONE else bomb(mutator, payload)
    plain = mutator.choice((len(payload), 1032 * len(stream), 1 << 30, mutator.edge(32)))
    sizes = [len(stream), plain, -1, 0, 16384, 33 + len(stream)]
    if mutator.chance(0.4):
        sizes[mutator.choice((0, 1, 2, 3, 4, 5))] = mutator.edge(32)
    block = DATA + packed(">iiqBii", *sizes) + stream
    if mutator.chance(0.3):
        block = mutator.bytes(block)

    def run() -> None:
        found, size = decode_block(block, DATA, codec, offset=0, path=FILE)
        assert size <= len(block)
        assert codec == CODEC_NONE or len(found) <= 1032 * len(block)

    return Case(len(block), run, multiple=3 * 1032)


# ------------------------------------------------------------------------------------------------ log files


def _log_raw(mutator: Mutator) -> Case:
    damaged = mutator.bytes(mutator.choice(seeds.logs()), seeds.logs())
    return Case(len(damaged), partial(_read_log, damaged), multiple=UNPACKED if b"HUDI" in damaged else 200)


def _log_inside(mutator: Mutator) -> Case:
    """Sound frames around damaged contents and headers."""
    block = mutator.choice(seeds.blocks())
    header, content, kind = dict(block.header), bytes(block.content), block.block_type
    change = mutator.choice(("content", "content", "content", "header", "type", "schema"))
    if change == "content":
        content = damaged_inside(content, mutator) if kind == "HFILE_DATA" else mutator.bytes(content)
    elif change == "header" and header:
        name = mutator.choice(tuple(header))
        header[name] = mutator.choice(("", "0", "1", "20250101000000000", mutator.text(header[name])))
        if mutator.chance(0.3):
            del header[name]
    elif change == "type":
        kind = mutator.choice([name for name in BLOCK_TYPES if name != "CORRUPT"])
    elif "SCHEMA" in header:
        header["SCHEMA"] = mutator.json(header["SCHEMA"])
    damaged = encode_log_block(kind, header, content)
    return Case(len(damaged), partial(_read_log, damaged), multiple=UNPACKED)


def _log_torn(mutator: Mutator) -> Case:
    """What a writer leaves that dies, over and over: magic after magic."""
    piece = mutator.choice((b"#HUDI#", b"#HUDI#" + bytes(8), b"#HUDI#" + packed(">q", mutator.edge(64))))
    damaged = mutator.choice(seeds.logs()) + mutator.bytes(piece * mutator.choice((1, 3, 300, 1500)))
    return Case(len(damaged), partial(_read_log, damaged))


def _read_log(damaged: bytes) -> None:
    outcomes: list[Any] = []
    last: CorruptFileError | None = None

    def fetch(ranges: Any) -> list[bytes]:
        return [damaged[start:end] for start, end in ranges]

    for read in (
        lambda: decode_log_blocks(damaged, FILE),
        lambda: read_block_headers(fetch, len(damaged), FILE),
    ):
        try:
            found = read()
        except CorruptFileError as error:
            last = error
            outcomes.append((error.offset, error.expected, error.found))
        else:
            outcomes.append([(block.block_type, block.header, block.content_offset) for block in found])
    assert outcomes[0] == outcomes[1], "the whole file and its headers tell different things"
    skipped = read_block_headers(fetch, len(damaged), FILE, skip_torn=True)
    assert sum(block.content_length for block in skipped) <= len(damaged)
    for block in skipped:
        start = block.content_offset
        _read_content(block, damaged[start : start + block.content_length])
    if last is not None:
        raise last


def _read_content(block: LogBlock, content: bytes) -> None:
    text = block.header.get("SCHEMA", "")
    if block.block_type == "COMMAND":
        decode_command_block(block, FILE)
    elif block.block_type == "DELETE":
        decode_delete_block(content, FILE, block.content_offset)
    elif block.block_type == "HFILE_DATA":
        reader = HFileReader.from_bytes(content, FILE)
        values = [value for _, value in reader.scan() if value]
        decode_many(values[:20], reader.info.get("schema", b"{}").decode("utf-8", "replace"), path=FILE)
    elif block.block_type == "AVRO_DATA":
        datums = split_avro_block(content, FILE, block.content_offset)
        names = datum_schema(text, FILE).names
        rows = decode_datums(datums, text, names, FILE)
        rows.validate(full=True)
        assert rows.num_rows == len(datums) or not names
        one = decode_datums(datums, text, names[-1:], FILE)
        assert not names or one.column(names[-1]).equals(rows.column(names[-1])) or _has_nan(rows.column(names[-1]))


def _has_nan(column: Any) -> bool:
    return "float" in str(column.type) or "double" in str(column.type)


# ------------------------------------------------------------------------------------------------ Avro


def _container_raw(mutator: Mutator) -> Case:
    damaged = mutator.bytes(mutator.choice(seeds.containers()), seeds.containers())
    return Case(len(damaged), partial(_read_body, damaged))


def _container_inside(mutator: Mutator) -> Case:
    """Sound frames around a damaged schema, a damaged datum, or counts and sizes that are not theirs."""
    text, datum = schema_and_datum(mutator.choice(seeds.containers()))
    count, size = 1, -1
    change = mutator.choice(("datum", "datum", "schema", "schema", "schema and datum", "count", "size"))
    if "schema" in change:
        text = mutator.json(text)
    if "datum" in change:
        datum = mutator.bytes(datum)
    if change == "count":
        count = mutator.choice((-1, 0, 2, 1 << 40, mutator.edge(63)))
    if change == "size":
        size = mutator.choice((-1, 0, len(datum) - 1, len(datum) + 1, 1 << 40))
    size = len(datum) if size < 0 and change != "size" else size
    encoded = text.encode("utf-8", "surrogatepass")
    block = b"".join((avro_long(count), avro_long(size), datum))
    damaged = container({b"avro.schema": encoded}, block)
    return Case(len(damaged), partial(_read_body, damaged))


def _json_body(mutator: Mutator) -> Case:
    seed = mutator.choice(seeds.json_bodies())
    damaged = (
        mutator.bytes(seed, seeds.json_bodies())
        if mutator.chance(0.5)
        else mutator.json(seed).encode("utf-8", "surrogatepass")
    )
    return Case(len(damaged), partial(_read_body, damaged))


def _read_body(damaged: bytes) -> None:
    last: CorruptFileError | None = None
    for decode in (decode_rollback_plan, decode_rollback_metadata, _commit):
        try:
            decode(damaged, FILE)
        except CorruptFileError as error:
            last = named(error)
    if last is not None:
        raise last


def _commit(damaged: bytes, path: str) -> None:
    found = decode_commit_metadata(damaged, path)
    stats = found.all_stats()
    assert all(isinstance(text, str) for stat in stats for text in (stat.file_id, stat.path, stat.partition_path))
    assert all(isinstance(part, str) and isinstance(name, str) for part, name in found.touched_file_groups())
    assert found.operation is None or isinstance(found.operation, str)
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in found.extra.items())
    if all(abs(number) < 1 << 63 for stat in stats for number in (stat.file_size, stat.num_writes)):
        again = decode_commit_metadata(_encoded(found) or b"", path) if _encoded(found) else found
        assert again.touched_file_groups() == found.touched_file_groups()


def _encoded(found: Any) -> bytes | None:
    """The commit written again; None where its numbers or texts are such as Avro does not hold."""
    try:
        return encode_commit_metadata(found, 2)
    except ValueError:
        return None


def _metadata_record(mutator: Mutator) -> Case:
    text, values = mutator.choice(seeds.metadata_values())
    value = mutator.choice(values)
    change = mutator.choice(("value", "value", "value", "schema", "both"))
    damaged = value if change == "schema" else mutator.bytes(value, values)
    schema = text if change == "value" else mutator.json(text)

    def run() -> None:
        (record,) = decode_many([damaged], schema, keys=["k"], path=FILE)
        assert isinstance(record["key"], str)
        stats = record["ColumnStatsMetadata"]
        for entry in (record["filesystemMetadata"] or {}).values():
            assert isinstance(entry["size"], int) and isinstance(entry["isDeleted"], bool)
        if stats is not None:
            for wrapped in (stats["minValue"], stats["maxValue"]):
                unwrap_stat(wrapped, stats["valueType"])
                timestamp_unit(wrapped, stats["valueType"])
        bloom = record["BloomFilterMetadata"]
        if bloom is not None and bloom["bloomFilter"]:
            decode_bloom(bloom["bloomFilter"], bloom["type"], FILE)

    return Case(len(damaged) + (0 if schema is text else 20 * len(schema)), run)


def _bitmap_record(mutator: Mutator) -> Case:
    text, cells = seeds.bitmap_values()
    value = mutator.choice(cells)[1]
    change = mutator.choice(("value", "value", "value", "value", "schema"))
    damaged = value if change == "schema" else mutator.bytes(value, [other for _, other in cells])
    schema = mutator.json(text) if change == "schema" else text

    def run() -> None:
        (record,) = decode_bitmap_records([damaged], schema, FILE)
        if record.bitmap is not None:
            assert encode_bitmap(decode_bitmap(record.bitmap, path=FILE)) is not None
        if record.coverage is not None:
            _read_coverage(record.coverage)

    return Case(len(damaged) + (0 if schema is text else 20 * len(schema)), run)


@cache
def _coverage_blocks() -> tuple[bytes, ...]:
    text, cells = seeds.bitmap_values()
    records = decode_bitmap_records([value for _, value in cells], text)
    log = CoveredLog(base_file="f_0_1.parquet", instant="2", size=900, deletes=1, touched=seeds.bitmaps()[0])
    logs = logs_block([log, None, replace(log, instant="3", older=1)])
    assert logs is not None
    return (*(record.coverage for record in records if record.coverage is not None), encode_block(logs))


def _coverage(mutator: Mutator) -> Case:
    damaged = mutator.bytes(mutator.choice(_coverage_blocks()), _coverage_blocks())
    return Case(len(damaged), partial(_read_coverage, damaged))


def _read_coverage(data: bytes) -> None:
    last: CorruptFileError | None = None
    for schema in (FILES_SCHEMA, COLUMN_SCHEMA, LOGS_SCHEMA):
        try:
            block = decode_coverage(data, schema, FILE)
        except CorruptFileError as error:
            last = error
        else:
            block.validate(full=True)
            if schema is LOGS_SCHEMA:
                covered_logs(block)
            return
    if last is not None:
        raise last


def _schema_text(mutator: Mutator) -> Case:
    text = mutator.json(mutator.choice(seeds.schemas()))

    def run() -> None:
        last: Exception | None = None
        for read in (
            lambda: datum_schema(text, FILE),
            lambda: avro.parse_json(text, FILE),
            lambda: avro_to_arrow(_parsed(text), FILE),
        ):
            try:
                read()
            except CorruptFileError as error:
                last = error
        if last is not None:
            raise last

    return Case(len(text), run)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(FILE, 0, "JSON", str(error)) from error


def _delete_block(mutator: Mutator) -> Case:
    contents = [bytes(block.content) for block in seeds.blocks() if block.block_type == "DELETE"]
    content = mutator.choice(contents)
    if mutator.chance(0.6):
        datum = mutator.bytes(content[8:])
        damaged = packed(">ii", 3, len(datum)) + datum
    else:
        damaged = mutator.bytes(content, contents)
    return Case(len(damaged), lambda: decode_delete_block(damaged, FILE))


# ------------------------------------------------------------------------------------------------ texts


def _bloom(mutator: Mutator) -> Case:
    kind, text = mutator.choice(seeds.blooms())
    kind = mutator.text(kind) if mutator.chance(0.05) else mutator.choice(("SIMPLE", "DYNAMIC_V0", kind, kind))
    if mutator.chance(0.7):
        import base64

        damaged = base64.b64encode(
            mutator.bytes(seeds.decoded(text), [seeds.decoded(other) for _, other in seeds.blooms()[:5]])
        )
    else:
        damaged = mutator.bytes(text.encode())

    def run() -> None:
        found = decode_bloom(damaged, kind, FILE)
        assert found.encode() == damaged or damaged.rstrip(b"=")[:-1] == found.encode().rstrip(b"=")[:-1]
        found.probe(pa.array(["a", "k000"]))

    return Case(len(damaged), run, multiple=400)


def _roaring(mutator: Mutator) -> Case:
    damaged = mutator.bytes(mutator.choice(seeds.bitmaps()), seeds.bitmaps())

    def run() -> None:
        found = deserialize_bitmap(damaged, path=FILE)
        # Runs of four bytes stand for 65,536 positions each, so they are looked at one by one.
        positions = list(islice(found, 300_000))
        assert all(one < next for one, next in pairwise(positions)), "positions that do not rise"
        assert len(positions) == min(len(found), 300_000)
        serialize_bitmap(found)

    return Case(len(damaged), run)


def _positions(mutator: Mutator) -> Case:
    texts = [block.header["RECORD_POSITIONS"] for block in seeds.blocks() if "RECORD_POSITIONS" in block.header]
    text = mutator.text(mutator.choice(texts))
    return Case(len(text), lambda: serialize_bitmap(decode_positions(text, FILE)))


def _properties(mutator: Mutator) -> Case:
    damaged = mutator.bytes(mutator.choice(seeds.properties()), seeds.properties())

    def run() -> None:
        entries = decode_properties(damaged, FILE)
        assert decode_properties(encode_properties(entries)) == entries
        TableConfig.from_properties(entries)

    return Case(len(damaged), run)


NAMES = (
    *(
        "20250126040823628.commit.requested",
        "20250126040823628_20250126040824000.deltacommit",
        "20250126040823628.inflight",
    ),
    *("20230101000000.commit", "20250126040823628.rollback.inflight", "20250126040823628_20250126040824000.savepoint"),
    *(
        "ee2ace10-7667-40f5-9848-0a144b5ea064-0_0-188-387_20250113230302428.parquet",
        "files-0000-0_0-0-0_00000000000000000.hfile",
    ),
    *(
        ".col-stats-0000-0_20261127215354144.log.1_2-47-81",
        ".ff32ab89-5ad0_20250316025816068.log.1_0-54-122.cdc",
        ".a_1.log.1",
    ),
    *("ee2ace10-7667-40f5-9848-0a144b5ea064-0_0-188-387_20250113230302428.parquet.marker.CREATE",),
)


def _names(mutator: Mutator) -> Case:
    name = mutator.text(mutator.choice(NAMES))

    def run() -> None:
        instant = parse_instant_name(name, 1_700_000_000_000, "UTC")
        assert instant is None or instant.file_name == name
        base, log, marker = parse_base_file_name(name), parse_log_file_name(name), parse_marker_name(name)
        assert base is None or str(base) == name
        assert log is None or not log.token or log.order[1] >= 0
        assert marker is None or name.endswith(marker[1])

    return Case(len(name), run)


def _internal_schema(mutator: Mutator) -> Case:
    text = mutator.json(json.dumps(INTERNAL_SCHEMA))
    history = mutator.json(json.dumps({"schemas": [INTERNAL_SCHEMA]}))

    def run() -> None:
        try:
            moved_names(text, history)
        except ValueError as error:
            raise CorruptFileError(FILE, 0, "an internal schema", str(error)) from error

    return Case(len(text) + len(history), run)


INTERNAL_SCHEMA = {
    "max_column_id": 4,
    "version_id": 20250126040823628,
    "type": "record",
    "fields": [
        {"id": 0, "name": "a", "optional": True, "type": "string"},
        {
            "id": 1,
            "name": "l",
            "optional": True,
            "type": {"type": "array", "element_id": 2, "element_optional": True, "element": "int"},
        },
        {
            "id": 3,
            "name": "s",
            "optional": True,
            "type": {"type": "record", "fields": [{"id": 4, "name": "x", "optional": True, "type": "long"}]},
        },
        {
            "id": 5,
            "name": "m",
            "optional": True,
            "type": {
                "type": "map",
                "key_id": 6,
                "value_id": 7,
                "value_optional": True,
                "key": "string",
                "value": "long",
            },
        },
    ],
}


def _numbers(mutator: Mutator) -> Case:
    data = mutator.bytes(mutator.choice((encode_vlong(mutator.edge(63)), varint(mutator.edge(64)))))

    def run() -> None:
        value, end = decode_varint(data, 0, path=FILE)
        assert 0 < end <= 10 and decode_varint(encode_varint(value), 0)[0] == value
        value, end = decode_vlong(data, 0, path=FILE)
        assert 0 < end <= 9 and decode_vlong(encode_vlong(value), 0)[0] == value

    return Case(len(data), run)


CODEC_TARGETS: dict[str, Target] = {
    "hfile.raw": _hfile_raw,
    "hfile.inside": _hfile_inside,
    "hfile.spliced": _hfile_spliced,
    "hfile.deep": _hfile_deep,
    "hfile.block": _block,
    "log.raw": _log_raw,
    "log.inside": _log_inside,
    "log.torn": _log_torn,
    "log.delete": _delete_block,
    "avro.container.raw": _container_raw,
    "avro.container.inside": _container_inside,
    "avro.metadata": _metadata_record,
    "avro.bitmap": _bitmap_record,
    "avro.schema": _schema_text,
    "bitmap.coverage": _coverage,
    "bitmap.roaring": _roaring,
    "log.positions": _positions,
    "text.bloom": _bloom,
    "text.properties": _properties,
    "text.names": _names,
    "text.numbers": _numbers,
    "timeline.json": _json_body,
    "timeline.internal_schema": _internal_schema,
}
"""By name. What each calls wrong stands in its function."""
