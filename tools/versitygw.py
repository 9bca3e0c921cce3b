"""versitygw, the S3 server of ``tests/object_store``: a Go program, built once into ``.cache/s3``."""

from __future__ import annotations

import fcntl
import os
import shutil

from paths import CACHE, ROOT
from process import DevError, logged

__all__ = ["find_server", "prepare_server"]

RELEASE = "v1.8.0"
FOLDER = CACHE / "s3"


def find_server() -> str | None:
    """The program: ``$VERSITYGW``, one on the PATH, or the one built here; None where there is none."""
    for path in (os.environ.get("VERSITYGW"), shutil.which("versitygw"), str(FOLDER / "bin" / "versitygw")):
        if path and os.access(path, os.X_OK):
            return path
    return None


def prepare_server() -> None:
    """Build the program where there is none; a second process waits for the first.

    Raises:
        DevError: there is no Go, or the build failed.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find_server() is not None:
            return
        go = shutil.which("go")
        if go is None:
            raise DevError("the S3 server of the tests is built by Go (https://go.dev/dl); or name one: VERSITYGW=…")
        own = {"GOBIN": FOLDER / "new", "GOPATH": FOLDER / "gopath", "GOCACHE": FOLDER / "gocache"}
        env = {
            **os.environ,
            **{name: str(path) for name, path in own.items()},
            "GOFLAGS": "-buildvcs=false -modcacherw",
        }
        log = CACHE / "logs" / "setup-s3.log"
        command = [go, "install", f"github.com/versity/versitygw/cmd/versitygw@{RELEASE}"]
        logged("building versitygw (minutes, 0.8 GB)", command, cwd=ROOT, env=env, log=log)
        (FOLDER / "bin").mkdir(exist_ok=True)
        (FOLDER / "new" / "versitygw").replace(FOLDER / "bin" / "versitygw")
