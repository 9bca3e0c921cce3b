"""Bitmaps between lakedex and Java's RoaringBitmap, in the version that Spark ships: R90, R91, R100, R101.

The bytes in ``tests/golden/bitmap/roaring.json`` are made by Java here: ``LAKEDEX_GOLDEN=write`` writes them anew.
"""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from lakedex.codec.roaring import bitmap_of, decode_bitmap, encode_bitmap
from roaring_cases import GOLDEN, cases, golden


class Java:
    """Java's bitmaps."""

    def __init__(self, spark: SparkSession) -> None:
        self.gateway: Any = spark.sparkContext._gateway
        self.jvm: Any = self.gateway.jvm

    def write(self, positions: Any) -> bytes:
        """What Java writes for positions."""
        ints = self.gateway.new_array(self.jvm.int, len(positions))
        self.jvm.java.nio.ByteBuffer.wrap(bytearray(positions.astype(">u4").tobytes())).asIntBuffer().get(ints)
        bitmap = self.jvm.org.roaringbitmap.RoaringBitmap.bitmapOf(ints)
        bitmap.runOptimize()
        out = self.jvm.java.io.ByteArrayOutputStream()
        bitmap.serialize(self.jvm.java.io.DataOutputStream(out))
        return bytes(out.toByteArray())

    def read(self, text: str) -> Any:
        """The bitmap of a record, as a Java reader would take it from the field."""
        data = self.jvm.java.util.Base64.getDecoder().decode(text)
        bitmap = self.jvm.org.roaringbitmap.RoaringBitmap()
        bitmap.deserialize(self.jvm.java.io.DataInputStream(self.jvm.java.io.ByteArrayInputStream(data)))
        return bitmap

    def positions(self, bitmap: Any) -> Any:
        """All positions of a bitmap."""
        ints = bitmap.toArray()
        buffer = self.jvm.java.nio.ByteBuffer.allocate(4 * len(ints))
        buffer.asIntBuffer().put(ints)
        return np.frombuffer(bytes(buffer.array()), ">u4").astype(np.uint32)


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Java:
    return Java(spark)


def test_java_writes_the_golden_bytes(java: Java) -> None:
    """R101: the bytes are those of the library that Hudi's final RFC names."""
    made = {name: java.write(positions) for name, positions in cases().items()}
    if os.environ.get("LAKEDEX_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps({name: data.hex() for name, data in made.items()}, indent=1) + "\n")
    assert made == golden()


@pytest.mark.parametrize("name", cases())
def test_java_reads_what_we_write(java: Java, name: str) -> None:
    """R100: the string of the field is enough for a Java reader."""
    positions = cases()[name]
    found = java.read(encode_bitmap(bitmap_of(positions)))
    assert found.getLongCardinality() == len(positions)
    assert np.array_equal(java.positions(found), positions)


def test_java_answers_by_bitwise_operations(java: Java) -> None:
    """R91, R93: AND and OR of our bitmaps in Java give what they give here."""
    sets = [bitmap_of(positions) for positions in cases().values()]
    for one, other in zip(sets, sets[1:], strict=False):
        for method, wanted in (("and", one & other), ("or", one | other), ("andNot", one - other)):
            mine = java.read(encode_bitmap(one))
            getattr(mine, method)(java.read(encode_bitmap(other)))
            assert np.array_equal(java.positions(mine), np.array(wanted, np.uint32))


def test_bitmaps_are_compact_as_java_has_them(java: Java) -> None:
    """R90: what we write is no larger than what Java writes."""
    for positions in cases().values():
        assert len(base64.b64decode(encode_bitmap(bitmap_of(positions)))) == len(java.write(positions))


def test_we_read_what_java_writes(java: Java) -> None:
    for positions in cases().values():
        text = base64.b64encode(java.write(positions)).decode()
        assert np.array_equal(np.array(decode_bitmap(text), np.uint32), positions)
