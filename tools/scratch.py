"""Where the files of tests lie while they run."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paths import CACHE, ROOT
from process import say

__all__ = ["scratch"]

MEMORY = Path("/dev/shm")  # noqa: S108 - the folders in it are mkdtemp's
"""Linux's file system in memory: a test that writes tables makes a thousand small files and takes them away."""
FILES = 3 << 30
"""Bytes that must be free there, several times what the tests of one leg hold at once."""
PROCESSES = 6 << 30
"""Bytes of memory that must be left beside them: two JVMs, two Python workers."""


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A folder for one run of tests, in memory where there is room.

    It is gone afterwards; what tests that failed left in it is moved to the project's ``.cache/tmp/<name>``.
    """
    kept = CACHE / "tmp" / name
    shutil.rmtree(kept, ignore_errors=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="lakedex-", dir=MEMORY if _has_room() else kept.parent))
    try:
        yield folder
        if any(folder.glob("pytest-of-*/pytest-[0-9]*")):
            shutil.move(folder, kept)
            say(f"files of tests that failed: {kept.relative_to(ROOT)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    """Whether memory can hold the files. A container's ``/dev/shm`` has 64 MB unless it is told otherwise."""
    with contextlib.suppress(OSError, ValueError):
        files = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        # Some tests start programs that they write.
        usable = os.access(MEMORY, os.W_OK | os.X_OK) and not files.f_flag & os.ST_NOEXEC
        return usable and files.f_bavail * files.f_frsize >= FILES and available >= FILES + PROCESSES
    return False
