"""The storage on a real S3 server."""

from __future__ import annotations

import pytest

from lakedex.io.locations import open_storage
from lakedex.io.storage import Storage
from lakedex.testing import StorageTests


class TestS3(StorageTests):
    @pytest.fixture
    def storage(self, root: str, options: dict[str, str]) -> Storage:
        return open_storage(root, options).storage

    @pytest.fixture
    def root(self, root: str) -> str:
        return root
