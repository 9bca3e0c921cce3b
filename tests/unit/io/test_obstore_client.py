"""Answers of a store to requests of obstore: which of them mean that an object is not there, and which are errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import StorageError
from lakedex.io.locations import open_storage

SCHEMA = pa.schema([("id", pa.string())])


class Refusing(ThreadingHTTPServer):
    """Answers each request with 404 and a code, which an answer to HEAD has no room for."""

    code = "NoSuchKey"

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def options(self) -> dict[str, str]:
        """Storage options that lead here; each server has a port and so a client of its own."""
        keys = {"aws_access_key_id": "nobody", "aws_secret_access_key": "secret", "aws_region": "eu-central-1"}
        return {**keys, "aws_endpoint_url": f"http://127.0.0.1:{self.server_port}"}


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def refuse(self) -> None:
        assert isinstance(self.server, Refusing)
        self.server.asked.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        code = self.server.code
        body = f"<Error><Code>{code}</Code></Error>".encode() if code and self.command != "HEAD" else b""
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = refuse

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Refusing]:
    with Refusing() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("NoSuchBucket", r"the bucket lake does not exist \(404 NoSuchBucket\); check its name"),
        ("XAdminUserNotFound", r"refuses the request \(404 XAdminUserNotFound\); check credentials"),
        ("InvalidAccessKeyId", r"refuses the request \(404 InvalidAccessKeyId\); check credentials"),
    ],
)
def test_only_a_missing_object_is_absent(server: Refusing, code: str, says: str) -> None:
    server.code, url = code, "s3://lake/t"
    storage = open_storage(url, server.options).storage
    for call in (
        lambda: Table.is_table(url, storage_options=server.options),
        lambda: Table.create(url, SCHEMA, record_key="id", storage_options=server.options),
        lambda: Table.open(url, storage_options=server.options),
        lambda: storage.read(f"{url}/f"),
        lambda: storage.exists(f"{url}/f.x"),
        lambda: storage.write(f"{url}/f", b"x"),
        lambda: storage.create(f"{url}/f", b"x"),
        lambda: storage.delete(f"{url}/f"),
    ):
        with pytest.raises(StorageError, match=says) as caught:
            call()
        assert not isinstance(caught.value, FileNotFoundError) and "aws_allow_http" not in str(caught.value)


@pytest.mark.parametrize("code", ["NoSuchKey", ""])
def test_a_missing_object_is_asked_for_again_until_the_store_is_known(server: Refusing, code: str) -> None:
    server.code = code
    assert not Table.is_table("s3://lake/t", storage_options=server.options)
    first = len(server.asked)
    assert not Table.is_table("s3://lake/t", storage_options=server.options)
    heads = server.asked.count("HEAD") // 2
    assert (first, len(server.asked) - first) == ((heads + 1, heads) if code else (2 * heads, 2 * heads))
