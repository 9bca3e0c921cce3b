"""A proxy before an S3 server that counts requests by class and lets chosen ones go wrong.

============  ==========================================  ============
kind          what the client sees                        took effect
============  ==========================================  ============
``lost``      the connection closes without an answer     yes
``lost500``   500 ``InternalError``                       yes
``reset``     the connection closes without an answer     no
``500``       500 ``InternalError``                       no
``503``       503 ``SlowDown``                            no
``409``       409 ``ConditionalRequestConflict``          no
``412``       412 ``PreconditionFailed``                  no
``404``       404 ``NoSuchKey``                           no
``403``       403 ``AccessDenied``                        no
``501``       501 ``NotImplemented``                      no
``short``     half of the body, then the connection ends  read
============  ==========================================  ============

409, 412 and 501 happen to conditional requests only. Path, headers and host go on unchanged, so signatures stay valid.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from lakedex.testing import FaultSchedule, StoreRequest

__all__ = ["FaultProxy", "Rule", "Seen"]

ANSWERS = {
    "500": (500, "InternalError"),
    "lost500": (500, "InternalError"),
    "503": (503, "SlowDown"),
    "409": (409, "ConditionalRequestConflict"),
    "412": (412, "PreconditionFailed"),
    "404": (404, "NoSuchKey"),
    "403": (403, "AccessDenied"),
    "501": (501, "NotImplemented"),
}
CONDITIONAL = ("409", "412", "501")
OF_ONE_HOP = ("connection", "transfer-encoding", "expect", "content-length", "keep-alive")


@dataclass
class Seen:
    """A request that went by.

    Attributes:
        kind: its class: GET, GET-range, HEAD, LIST, PUT, PUT-if-none, PUT-if-match, DELETE, MULTIPART.
        line: method, path and query, and the keys of a delete of many.
        agent: the client's name for itself.
        fault: what was done to it; empty for nothing.
    """

    kind: str
    line: str
    agent: str
    fault: str = ""


@dataclass
class Rule:
    """Let requests whose line matches go wrong: ``times`` of them, after ``skip`` others."""

    match: str
    kind: str
    times: int = 1
    skip: int = 0

    def strikes(self, seen: Seen) -> bool:
        """Whether this request goes wrong; counts it."""
        if not re.search(self.match, seen.line) or not _fits(self.kind, seen):
            return False
        if self.skip or not self.times:
            self.skip = max(0, self.skip - 1)
            return False
        self.times -= 1
        return True


def _fits(kind: str, seen: Seen) -> bool:
    if kind == "short":
        return seen.kind in ("GET", "GET-range", "LIST")
    return kind not in CONDITIONAL or seen.kind.startswith("PUT-if")


def _class_of(method: str, path: str, headers: Any) -> str:
    query = parse_qs(urlsplit(path).query, keep_blank_values=True)
    if "uploads" in query or "uploadId" in query:
        return "MULTIPART"
    if method == "GET":
        return "LIST" if "list-type" in query or "prefix" in query else "GET-range" if headers["Range"] else "GET"
    if method == "PUT":
        return "PUT-if-none" if headers["If-None-Match"] else "PUT-if-match" if headers["If-Match"] else "PUT"
    return "DELETE" if "delete" in query else method


class FaultProxy:
    """The proxy, in threads of this process, for the length of a ``with`` block; ``url`` is its address.

    Args:
        upstream: address of the server.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.removeprefix("http://")
        self.seen: list[Seen] = []
        self.rules: list[Rule] = []
        self.chance: FaultSchedule | None = None
        self.guard = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="fault-proxy", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def clear(self) -> None:
        """Forget rules and seed, and what was seen."""
        with self.guard:
            self.rules, self.chance, self.seen = [], None, []

    def seeded(self, seed: int, every: tuple[int, int] = (10, 50), burst: tuple[int, int] = (1, 3)) -> None:
        """Let requests go wrong by a seed; the same sequence of requests meets the same faults."""
        with self.guard:
            self.chance = FaultSchedule(seed=seed, every=every, burst=burst)

    def counts(self, agent: str = "") -> Counter[str]:
        """How many requests of each class were seen, of one client if its name is given."""
        with self.guard:
            return Counter(seen.kind for seen in self.seen if agent in seen.agent)

    def note(self, seen: Seen) -> None:
        """Count a request and choose what happens to it."""
        with self.guard:
            self.seen.append(seen)
            rule = next((rule for rule in self.rules if rule.strikes(seen)), None)
            request = StoreRequest(seen.kind, seen.line)
            seen.fault = rule.kind if rule else self.chance.choose(request) if self.chance else ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: FaultProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients of this proxy hang up all the time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: _Server
    link: http.client.HTTPConnection | None = None

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        if self.link is not None:
            self.link.close()

    def answer(self) -> None:
        body = self.body()
        kind = _class_of(self.command, self.path, self.headers)
        line = f"{self.command} {unquote(self.path)}"
        if kind == "DELETE":
            line += "".join(f" {key.decode()}" for key in re.findall(rb"<Key>(.*?)</Key>", body))
        agent = f"{self.headers['User-Agent'] or ''} {self.headers['x-amz-user-agent'] or ''}"
        seen = Seen(kind, line, agent)
        self.server.proxy.note(seen)
        if seen.fault in ANSWERS and seen.fault != "lost500":
            self.refuse(seen.fault)
        elif seen.fault == "reset":
            self.hang_up()
        else:
            status, headers, data = self.ask(body)
            if seen.fault == "lost":
                self.hang_up()
            elif seen.fault == "lost500":
                self.refuse(seen.fault)
            else:
                self.give(status, headers, data, is_short=seen.fault == "short")

    def body(self) -> bytes:
        """The request's body, of a known length or in chunks."""
        if "chunked" not in (self.headers["Transfer-Encoding"] or ""):
            return self.rfile.read(int(self.headers["Content-Length"] or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

    def ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's answer; a connection that it has closed meanwhile is opened again."""
        for is_last in (False, True):
            try:
                if self.link is None:
                    self.link = http.client.HTTPConnection(self.server.proxy.upstream, timeout=60)
                    self.link.connect()
                    self.link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.link.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in OF_ONE_HOP:
                        self.link.putheader(name, value)
                if self.command in ("PUT", "POST"):
                    self.link.putheader("Content-Length", str(len(body)))
                self.link.endheaders(body or None)
                found = self.link.getresponse()
                return found.status, found.getheaders(), found.read()
            except (http.client.HTTPException, OSError):
                self.link = None
                if is_last:
                    raise
        raise AssertionError

    def give(self, status: int, headers: list[tuple[str, str]], data: bytes, *, is_short: bool = False) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        for name, value in headers:
            if name.lower() not in OF_ONE_HOP or (is_head and name.lower() == "content-length"):
                self.send_header(name, value)
        if not is_head and status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not is_head:
            self.wfile.write(data[: len(data) // 2] if is_short else data)
        self.wfile.flush()
        if is_short:
            self.hang_up()

    def refuse(self, fault: str) -> None:
        status, code = ANSWERS[fault]
        text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>so asked</Message></Error>'
        self.give(status, [("Content-Type", "application/xml")], text.encode())

    def hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
