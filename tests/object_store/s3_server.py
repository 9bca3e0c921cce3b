"""A real S3 server for tests: versitygw over a folder, on a free port of this machine.

The program is ``$VERSITYGW``, or ``versitygw`` on the PATH, or the one that ``python tests/object_store/s3_server.py
build`` makes, once and in minutes, in ``.cache/s3``. Without it moto's server stands in if it is installed: in
memory, without signatures, with right conditional writes. ``LAKEDEX_S3_REQUIRED=1`` takes only versitygw.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

__all__ = ["ACCESS_KEY", "REGION", "SECRET_KEY", "S3Server", "build", "program"]

ACCESS_KEY, SECRET_KEY, REGION = "AKIALAKEDEX", "a-secret-of-the-tests", "eu-central-1"
RELEASE = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{RELEASE}"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "s3"


def program() -> str | None:
    """Path of versitygw; None where there is none."""
    for path in (os.environ.get("VERSITYGW"), shutil.which("versitygw"), str(CACHE / "bin" / "versitygw")):
        if path and os.access(path, os.X_OK):
            return path
    return None


def is_required() -> bool:
    """Whether tests must fail without versitygw."""
    return os.environ.get("LAKEDEX_S3_REQUIRED") == "1"


def build() -> str:
    """Build versitygw where it is missing; a second process waits for the first.

    Raises:
        RuntimeError: there is no Go, or its build failed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "build.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if found := program():
            return found
        go = shutil.which("go")
        if go is None:
            raise RuntimeError("versitygw needs Go (https://go.dev/dl); or set VERSITYGW to the program")
        folders = {"GOBIN": CACHE / "new", "GOPATH": CACHE / "gopath", "GOCACHE": CACHE / "gocache"}
        variables = {name: str(folder) for name, folder in folders.items()}
        environment = {**os.environ, **variables, "GOFLAGS": "-buildvcs=false -modcacherw"}
        done = subprocess.run([go, "install", MODULE], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"versitygw {RELEASE} cannot be built: {done.stderr.strip()[-400:]}")
        (CACHE / "bin").mkdir(exist_ok=True)
        (CACHE / "new" / "versitygw").replace(CACHE / "bin" / "versitygw")
        return str(CACHE / "bin" / "versitygw")


class S3Server:
    """A server with one bucket, ``lake``, for the length of a ``with`` block.

    Args:
        folder: where its objects and its log go.
    """

    bucket = "lake"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> S3Server:
        data, sidecar = self.folder / "objects", self.folder / "sidecar"
        for path in (data, sidecar):
            path.mkdir(parents=True)
        versitygw = program()
        for _ in range(5):  # Another process may take the port first.
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            if versitygw is None:
                command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            else:
                command = [versitygw, "--port", f"127.0.0.1:{port}", "--region", REGION]
                # Beside the objects, as folders in memory keep no extended attributes.
                command += [
                    "--access",
                    ACCESS_KEY,
                    "--secret",
                    SECRET_KEY,
                    "posix",
                    "--sidecar",
                    str(sidecar),
                    str(data),
                ]
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.url = f"http://127.0.0.1:{port}"
            if self._answers(port):
                status, body = self._signed("PUT", f"/{self.bucket}")
                assert status == 200, body
                return self
            self.stop()
        raise RuntimeError(f"no S3 server: {(self.folder / 'log').read_text(errors='replace')[-500:]}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _answers(self, port: int) -> bool:
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process is not None and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return self._process.poll() is None
        return False

    def stop(self) -> None:
        """End the server's process."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _signed(self, method: str, path: str) -> tuple[int, bytes]:
        """Send a request without body, signed by Signature Version 4."""
        host = self.url.removeprefix("http://")
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        nothing = hashlib.sha256(b"").hexdigest()
        headers = {"host": host, "x-amz-content-sha256": nothing, "x-amz-date": now}
        names = ";".join(headers)
        lines = [method, path, "", *(f"{name}:{value}" for name, value in headers.items()), "", names, nothing]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        scope = [now[:8], REGION, "s3", "aws4_request"]
        key = f"AWS4{SECRET_KEY}".encode()
        for part in scope:
            key = hmac.digest(key, part.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", now, "/".join(scope), digest])
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        credential = f"{ACCESS_KEY}/{'/'.join(scope)}"
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        )
        link = http.client.HTTPConnection(host, timeout=30)
        try:
            link.request(method, path, headers=headers)
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """Storage options for this server, or for a proxy before it."""
        return {
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": REGION,
            "aws_endpoint_url": endpoint or self.url,
        }


def available() -> bool:
    """Whether a server can be started."""
    return program() is not None or (find_spec("moto") is not None and not is_required())


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("usage: python tests/object_store/s3_server.py build")
    print(build())
