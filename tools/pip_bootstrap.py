"""A pip for a Python that comes without one.

Debian takes ``ensurepip`` out of its Python. So, in this order: ``ensurepip``; a pip that the interpreter can import;
pip's wheel from the package index that the user configured for pip, else from pip's default one. No address is written
here: pip itself knows it, and where there is no pip, ``apt-get download`` brings Debian's package of pip's wheel into
the project's folder to ask it (no root needed, nothing is installed).
"""

from __future__ import annotations

import configparser
import hashlib
import importlib.util
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paths import CACHE, ROOT
from process import DevError, logged, say

__all__ = ["install_pip"]

_WHEEL_NAME = re.compile(r"pip-(\d+(?:\.\d+)*)-py3-none-any\.whl")


def install_pip(python: Path, env: Mapping[str, str], log: Path) -> None:
    """Put pip into the environment whose interpreter is ``python``."""
    if importlib.util.find_spec("ensurepip") is not None:
        ensure = [str(python), "-m", "ensurepip", "--default-pip"]
        if subprocess.run(ensure, env=dict(env), capture_output=True, check=False).returncode == 0:
            return
    if importlib.util.find_spec("pip") is not None:
        install: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "pip"]
        logged("installing pip with the system's pip", install, cwd=ROOT, env=env, log=log)
        return
    wheel = _find_wheel(env, log)
    install = [python, wheel / "pip", "install", "--no-index", wheel]
    logged(f"installing {wheel.name}", install, cwd=ROOT, env=env, log=log)


def _find_wheel(env: Mapping[str, str], log: Path) -> Path:
    folder = CACHE / "pip-wheel"
    folder.mkdir(parents=True, exist_ok=True)
    fetched = sorted(folder.glob("pip-*.whl"))
    if fetched:
        return fetched[-1]
    debian = shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None
    index = _configured_index(env) or (_default_index_of_debians_pip(folder, env, log) if debian else None)
    if index is None:
        raise DevError(
            "This Python has neither pip nor ensurepip, and no package index is configured to fetch pip from.\n"
            "Install Python's venv package (on Debian: apt-get install python3-venv), or set PIP_INDEX_URL."
        )
    roots = env.get("SSL_CERT_FILE") or env.get("PIP_CERT")
    if not roots and debian and not _machine_has_roots():
        roots = str(_roots_of_debian(folder, env, log))
    return _from_index(index, folder, ssl.create_default_context(cafile=roots))


def _configured_index(env: Mapping[str, str]) -> str | None:
    """``PIP_INDEX_URL``, else ``index-url`` of pip's configuration files, the user's before the site's."""
    if env.get("PIP_INDEX_URL"):
        return env["PIP_INDEX_URL"]
    parser = configparser.RawConfigParser()
    parser.read(_config_files(env), encoding="utf-8")
    for section in ("install", "global"):
        if parser.has_option(section, "index-url"):
            return parser.get(section, "index-url")
    return None


def _config_files(env: Mapping[str, str]) -> Iterator[Path]:
    if env.get("PIP_CONFIG_FILE") == os.devnull:
        return
    yield from (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
    home = Path.home()
    yield home / ".pip" / "pip.conf"
    yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    if env.get("PIP_CONFIG_FILE"):
        yield Path(env["PIP_CONFIG_FILE"])


def _from_index(index: str, folder: Path, tls: ssl.SSLContext) -> Path:
    """The newest pip of a simple index, in its JSON form (PEP 691), checked against the index's hash."""
    say("  fetching pip from the package index …")
    page = urllib.parse.urljoin(index.rstrip("/") + "/", "pip/")
    try:
        files = json.loads(_get(page, tls))["files"]
        best = max((f for f in files if _usable(f)), key=lambda f: _version(f["filename"]))
        content = _get(urllib.parse.urljoin(page, best["url"]), tls)
    except (OSError, ValueError, KeyError) as error:
        raise DevError(f"The package index gave no pip: {error}") from error
    expected = best.get("hashes", {}).get("sha256")
    if expected and hashlib.sha256(content).hexdigest() != expected:
        raise DevError(f"{best['filename']}: its SHA-256 is not the one that the package index names")
    partial = folder / "partial"
    partial.write_bytes(content)
    return partial.rename(folder / str(best["filename"]))


def _get(address: str, tls: ssl.SSLContext) -> bytes:
    if not address.startswith(("https://", "http://")):
        raise DevError("the package index must have an http or https address")
    request = urllib.request.Request(address, headers={"Accept": "application/vnd.pypi.simple.v1+json, */*;q=0.1"})
    with urllib.request.urlopen(request, timeout=60, context=tls) as answer:
        content: bytes = answer.read()
    return content


def _usable(entry: Mapping[str, Any]) -> bool:
    """A final release that runs here; pip's own ``requires-python`` is always of the form ``>=3.x``."""
    if entry.get("yanked") or not _WHEEL_NAME.fullmatch(entry["filename"]):
        return False
    minimum = re.search(r">=\s*3\.(\d+)", entry.get("requires-python") or "")
    return minimum is None or int(minimum[1]) <= sys.version_info.minor


def _version(name: str) -> tuple[int, ...]:
    match = _WHEEL_NAME.fullmatch(name)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _default_index_of_debians_pip(folder: Path, env: Mapping[str, str], log: Path) -> str:
    """Ask the pip in Debian's ``python3-pip-whl``, unpacked.

    That pip itself does not run on a bare machine: it is patched to need the root certificates of another package.
    """
    _apt_unpack("python3-pip-whl", folder, env, log)
    wheels = sorted(folder.glob("usr/share/python-wheels/pip-*.whl"))
    if not wheels:
        raise DevError(f"Debian's package python3-pip-whl holds no wheel of pip; see {log}")
    script = f"import sys; sys.path.insert(0, {str(wheels[-1])!r})\n"
    script += "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def _machine_has_roots() -> bool:
    known = ssl.get_default_verify_paths()
    return bool(known.cafile) or (bool(known.capath) and any(Path(known.capath).glob("*")))


def _roots_of_debian(folder: Path, env: Mapping[str, str], log: Path) -> Path:
    """Root certificates of Debian's ``ca-certificates``, unpacked, for a machine that has none."""
    _apt_unpack("ca-certificates", folder, env, log)
    bundle = folder / "roots.pem"
    roots = sorted(folder.glob("usr/share/ca-certificates/**/*.crt"))
    bundle.write_text("".join(path.read_text(encoding="ascii") for path in roots), encoding="ascii")
    return bundle


def _apt_unpack(package: str, folder: Path, env: Mapping[str, str], log: Path) -> None:
    """Fetch and unpack a package with lists and archives in the project's folder, whoever the user is."""
    state, cache = folder / "apt" / "state", folder / "apt" / "cache"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State={state}", "-o", f"Dir::Cache={cache}", "-o", "Debug::NoLocking=1"]
    options += ["-o", "Dir::State::status=/var/lib/dpkg/status", "-o", "APT::Sandbox::User="]
    if not any(state.glob("lists/*Packages*")):
        logged("reading Debian's package lists", ["apt-get", *options, "update"], cwd=folder, env=env, log=log)
    command = ["apt-get", *options, "download", package]
    logged(f"fetching Debian's {package}", command, cwd=folder, env=env, log=log)
    archive = max(folder.glob(f"{package}_*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
