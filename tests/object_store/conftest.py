"""One S3 server for all tests of this folder, and a proxy before it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from fault_proxy import FaultProxy
from s3_server import S3Server, available, is_required

NO_SERVER = (
    "no S3 server: install Go and run `python tests/object_store/s3_server.py build`, or pip install moto[server]"
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if not available():
        if is_required():
            pytest.fail(NO_SERVER)
        pytest.skip(NO_SERVER)
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="session")
def running_proxy(server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as running:
        yield running


@pytest.fixture
def proxy(running_proxy: FaultProxy) -> Iterator[FaultProxy]:
    running_proxy.clear()
    yield running_proxy
    running_proxy.clear()


@pytest.fixture
def options(server: S3Server, proxy: FaultProxy) -> dict[str, str]:
    """Storage options that lead through the proxy."""
    return server.options(proxy.url)


@pytest.fixture
def root() -> str:
    """A folder of its own in the bucket."""
    return f"s3://lake/{uuid.uuid4().hex}"
