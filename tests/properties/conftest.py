"""Property tests write thousands of small tables; none of them pulls the plug."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _no_fsync() -> Iterator[None]:
    """What is durable cannot be seen from here, and waiting for the disk takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
