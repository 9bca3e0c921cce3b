"""Both ways to pack and unpack: with ISA-L, and with zlib where it is not there."""

from __future__ import annotations

import importlib.util
import random
import sys
import zlib
from types import ModuleType

import pytest

from lakedex.codec import deflate as installed

PAYLOADS = [b"", b"x", bytes(100_000), random.Random(3).randbytes(70_000), b"the same again " * 9000]


def without_isal(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where ``isal`` cannot be imported."""
    monkeypatch.setitem(sys.modules, "isal", None)
    spec = importlib.util.spec_from_file_location("deflate_without_isal", installed.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["installed", "without isal"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return installed if request.param == "installed" else without_isal(monkeypatch)


def test_isal_is_optional_and_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("isal")
    assert installed.InflateError is not zlib.error
    plain = without_isal(monkeypatch)
    assert (plain.InflateError, plain.deflate, plain.crc32) == (zlib.error, plain.deflate_as_java, zlib.crc32)


@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_zlib_reads_what_was_written(module: ModuleType, payload: bytes) -> None:
    assert zlib.decompress(module.deflate(payload), -15) == payload
    assert zlib.decompress(module.deflate_as_java(payload), -15) == payload
    assert module.crc32(payload) == zlib.crc32(payload)


@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_what_zlib_wrote_is_read_to_its_end(module: ModuleType, payload: bytes) -> None:
    packed = zlib.compress(payload, 6, 31)
    stream = module.gzip_inflater()
    assert stream.decompress(memoryview(packed + b"tail"), len(payload) + 1) == payload
    assert (stream.eof, stream.unused_data) == (True, b"tail")
    stream = module.gzip_inflater()
    assert stream.decompress(packed[:-1], len(payload) + 1) == payload
    assert not stream.eof


def test_no_more_comes_out_than_is_asked_for(module: ModuleType) -> None:
    assert len(module.gzip_inflater().decompress(zlib.compress(bytes(1 << 20), 9, 31), 100)) == 100


@pytest.mark.parametrize("at", [0, 2, 12, *range(-8, -1)])
def test_damage_is_an_error(module: ModuleType, at: int) -> None:
    packed = bytearray(zlib.compress(b"payload" * 20, 6, 31))
    packed[at] ^= 0x55
    with pytest.raises(module.InflateError):
        module.gzip_inflater().decompress(bytes(packed), 1000)
