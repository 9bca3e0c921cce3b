"""Apache Hudi's own Java writer and reader as a judge of tables, in a process of its own.

:class:`JavaJudge` starts one child Python (``java_child.py``) that owns a local Spark with Hudi's bundle. Requests and
answers are JSON lines over the child's standard input and output; rows cross as Parquet files, so that every type
arrives exactly. Nothing of the library under test is imported on the other side.

Environment:

* ``LAKEDEX_IVY``: where Spark keeps the jars that it resolves (default ``<project>/.cache/ivy``).
* ``LAKEDEX_JUDGE_MEMORY``: heap of the driver (default ``2g``).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HUDI_BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12"
HUDI_RELEASE = "1.1.1"
PROJECT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("java_child.py")
META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)

READ_PLAIN: Mapping[str, str] = {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}
"""A reader that lists storage and reads every file: what the table holds, whatever its metadata table says."""

READ_SKIPPING: Mapping[str, str] = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
"""A reader that trusts the metadata table: file listing, column stats and partition stats."""

WRITE_V8: Mapping[str, str] = {
    # A 1.1.1 writer upgrades a version 8 table to 9 on its first write unless it is told not to.
    "hoodie.write.table.version": "8",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
    "hoodie.delete.shuffle.parallelism": "1",
    "hoodie.bloom.index.parallelism": "1",
    # By default a filter has room for 60,000 keys, 140 kB, whose encoding takes longer than the writing of a few rows.
    "hoodie.index.bloom.num_entries": "1000",
}
"""Version 8 and no surprises; the base of every writer mode here."""

WRITE_INDEXED: Mapping[str, str] = {
    **WRITE_V8,
    # A Java writer deletes each metadata partition that its own options do not enable
    # (HoodieTable.deleteMetadataIndexIfNecessary), so every mode names all three.
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
}
"""Keeps column stats, partition stats and bloom filters in the metadata table; tags with the default index."""

WRITE_BLOOM: Mapping[str, str] = {
    **WRITE_INDEXED,
    "hoodie.index.type": "BLOOM",
    "hoodie.bloom.index.use.metadata": "true",
}
"""Tags by key ranges and bloom filters read from the metadata table."""

WRITE_BLOOM_FOOTERS: Mapping[str, str] = {
    **WRITE_INDEXED,
    "hoodie.index.type": "BLOOM",
    "hoodie.bloom.index.use.metadata": "false",
}
"""Tags by the key range and bloom filter in each base file's footer."""

JAVA_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "read_plain": READ_PLAIN,
    "read_skipping": READ_SKIPPING,
    "write_v8": WRITE_V8,
    "write_indexed": WRITE_INDEXED,
    "write_bloom": WRITE_BLOOM,
    "write_bloom_footers": WRITE_BLOOM_FOOTERS,
}


def metadata_compaction(every: int) -> dict[str, str]:
    """Options that make a writer compact the metadata table after ``every`` delta commits."""
    return {"hoodie.metadata.compact.max.delta.commits": str(every)}


class JudgeUnavailableError(RuntimeError):
    """The judge could not be started on this machine; the message says why."""


class JudgeTimeoutError(RuntimeError):
    """The judge did not answer in time and was ended; the next request starts a new one."""


class JavaError(RuntimeError):
    """Java refused a request. ``causes`` is the whole chain, outermost first; ``stack`` the innermost frames."""

    def __init__(self, message: str, causes: Sequence[str], stack: str, log_tail: str) -> None:
        self.causes = list(causes)
        self.stack = stack
        self.log_tail = log_tail
        lines = [message, *(f"  caused by: {cause}" for cause in self.causes)]
        if stack:
            lines += ["innermost frames:", stack]
        if log_tail:
            lines += ["end of the judge's log:", log_tail]
        super().__init__("\n".join(lines))


class JavaJudge:
    """One child process with Spark and Hudi; started by the first request.

    Args:
        directory: Where exchange files and the log go; a temporary folder by default, removed by :meth:`cleanup`.
        start_timeout: Seconds for the start, which on a clean machine downloads the bundle (about 110 MB).
        timeout: Seconds for one request.
        cores: Width of ``local[n]``.
        conf: Further Spark configuration, e.g. ``spark.hadoop.*``, which no option of a read or write can set.
        release: Hudi's release; all of those asked for here have a bundle for Spark 3.5.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        start_timeout: float = 600.0,
        timeout: float = 300.0,
        cores: int = 1,
        conf: Mapping[str, str] | None = None,
        release: str = HUDI_RELEASE,
    ) -> None:
        self._owned = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="java-judge-") if directory is None else directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log_path = self.directory / "judge.log"
        self.start_timeout = start_timeout
        self.timeout = timeout
        self.cores = cores
        self.conf = dict(conf or {})
        self.release = release
        self._process: subprocess.Popen[str] | None = None
        self._pump: threading.Thread | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        atexit.register(self.cleanup)

    # ------------------------------------------------------------------ requests
    def start(self) -> dict[str, Any]:
        """Starts the child if need be and returns its versions; :class:`JudgeUnavailableError` says what is missing."""
        return self._request("hello", {}, self.start_timeout)

    def read(
        self,
        path: str | os.PathLike[str],
        where: str | None = None,
        columns: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        *,
        meta: bool = False,
    ) -> pa.Table:
        """Rows of a table.

        Args:
            path: The table's base path.
            where: A Spark SQL predicate.
            columns: Names, or SQL expressions, to select; all by default.
            options: Options of the reader, e.g. :data:`READ_SKIPPING` or ``{"as.of.instant": ...}``.
            meta: Keep the five ``_hoodie_*`` columns when ``columns`` is not given.
        """
        exchange = self._exchange("read")
        self._request("read", {**_read_arguments(path, where, columns, options, meta), "out": str(exchange)})
        return _take(exchange)

    def matches(
        self,
        path: str | os.PathLike[str],
        wheres: Sequence[str],
        key: str = "key",
        options: Mapping[str, str] | None = None,
    ) -> list[list[Any]]:
        """The keys under each of several predicates, sorted: what as many calls of :meth:`read` give, in one job."""
        exchange = self._exchange("matches")
        request = {**_read_arguments(path, None, [key], options, True), "wheres": list(wheres), "out": str(exchange)}
        self._request("matches", request)
        rows = _take(exchange).to_pylist()
        return [sorted(row[key] for row in rows if row["filter"] == number) for number in range(len(wheres))]

    def files_read(
        self,
        path: str | os.PathLike[str],
        where: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Paths, relative to the table, of the files that Java would open for ``where``, sorted.

        One per file slice: the base file, or the first log file of a slice that has none.
        """
        answer = self._request("files", _read_arguments(path, where, None, options, True))
        return sorted(answer["files"])

    def write(
        self,
        path: str | os.PathLike[str],
        rows: pa.Table,
        operation: str = "upsert",
        *,
        name: str = "t",
        key: str | Sequence[str] = "key",
        partition: str | Sequence[str] | None = None,
        ordering: str | None = None,
        options: Mapping[str, str] | None = None,
        mode: str = "append",
        tasks: int = 1,
    ) -> None:
        """Writes rows through Hudi's Spark data source.

        Args:
            path: The table's base path.
            rows: The batch; its Arrow types become Spark's exactly.
            operation: ``hoodie.datasource.write.operation``: insert, upsert, bulk_insert, delete, ...
            name: ``hoodie.table.name``.
            key: Record key field or fields.
            partition: Partition path field or fields; none for a non-partitioned table.
            ordering: Ordering (precombine) field.
            options: Further options, e.g. :data:`WRITE_BLOOM`; they win over the ones made from arguments.
            mode: Spark's save mode.
            tasks: Number of Spark partitions of the batch.
        """
        exchange = self._exchange("write") / "rows.parquet"
        exchange.parent.mkdir()
        write_exchange(rows, exchange)
        fields = {
            "hoodie.table.name": name,
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": _comma(key),
            "hoodie.datasource.write.partitionpath.field": _comma(partition),
        }
        if ordering:
            fields["hoodie.table.ordering.fields"] = ordering
        request = {
            "path": os.fspath(path),
            "rows": str(exchange),
            "options": {**fields, **WRITE_V8, **(options or {})},
            "mode": mode,
            "tasks": tasks,
        }
        try:
            self._request("write", request)
        finally:
            shutil.rmtree(exchange.parent, ignore_errors=True)

    def fresh(self) -> None:
        """Starts a new session in the same JVM: Hudi's readers change settings of the one that they run in."""
        self._request("fresh", {})

    def sql(self, text: str, settings: Mapping[str, str] | None = None) -> pa.Table:
        """Runs one Spark SQL statement and returns its rows; none of a command.

        Args:
            text: The statement.
            settings: What ``SET name=value`` before it would set, in one request; it stays for the session.
        """
        exchange = self._exchange("sql")
        self._request("sql", {"text": text, "settings": dict(settings or {}), "out": str(exchange)})
        return _take(exchange)

    def log_tail(self, lines: int = 40, start: int = 0) -> str:
        """The last lines, from byte ``start`` on, of the log of the child and its JVM; without most stack frames."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(start)
            text = log.read().decode(errors="replace")
            kept = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
            return "\n".join(kept[-lines:])
        return ""

    # ------------------------------------------------------------------ life of the child
    def cleanup(self) -> None:
        """Ends the child with its JVM and removes the temporary folder; safe to call twice."""
        atexit.unregister(self.cleanup)
        self._stop()
        if self._owned:
            shutil.rmtree(self.directory, ignore_errors=True)

    close = cleanup

    def __enter__(self) -> JavaJudge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.cleanup()

    def _start_child(self) -> None:
        reason = missing_reason()
        if reason:
            raise JudgeUnavailableError(reason)
        ivy = Path(os.environ.get("LAKEDEX_IVY") or PROJECT / ".cache" / "ivy")
        ivy.mkdir(parents=True, exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if k not in _SPARK_VARIABLES}
        environment.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", TZ="UTC")
        settings = {
            "bundle": f"{HUDI_BUNDLE}:{self.release}",
            "ivy": str(ivy.resolve()),
            "cores": self.cores,
            "memory": os.environ.get("LAKEDEX_JUDGE_MEMORY", "2g"),
            "directory": str(self.directory.resolve()),
            "conf": self.conf,
        }
        with self.log_path.open("ab") as log:
            # -I: no PYTHONPATH and no script folder on sys.path, so the library under test is out of reach. The child
            # leads a process group so that its JVM can be ended with it.
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(CHILD), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                env=environment,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        self._answers = queue.Queue()
        self._pump = threading.Thread(target=_pump, args=(self._process, self._answers), daemon=True)
        self._pump.start()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._pump is not None:
            self._pump.join(5)
        if process.stdout is not None:
            process.stdout.close()
        # Spark's copy of the bundle and its shuffle files, which an ended JVM leaves behind.
        shutil.rmtree(self.directory / "spark", ignore_errors=True)

    def _request(self, operation: str, arguments: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._stop()
                self._start_child()
                if operation != "hello":
                    self._exchange_line("hello", {}, self.start_timeout)
            return self._exchange_line(operation, arguments, timeout or self.timeout)

    def _exchange_line(self, operation: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        logged = self.log_path.stat().st_size
        number = next(self._numbers)
        line: str | None = None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"id": number, "op": operation, **arguments}) + "\n")
            process.stdin.flush()
            try:
                line = self._answers.get(timeout=timeout)
            except queue.Empty:
                tail = self.log_tail()
                self._kill()
                message = f"the Java judge gave no answer to {operation!r} within {timeout:.0f} s"
                raise JudgeTimeoutError(f"{message}; end of its log:\n{tail}") from None
        if line is None:
            self._stop()
            message = f"the Java judge ended during {operation!r}"
            raise JudgeUnavailableError(f"{message}; end of its log:\n{self.log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        if answer["id"] != number:
            self._kill()
            raise RuntimeError(f"the Java judge answered request {answer['id']} instead of {number}")
        if "error" in answer:
            error = answer["error"]
            raise JavaError(error["message"], error["causes"], error["stack"], self.log_tail(25, logged))
        return answer

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._stop()

    def _exchange(self, kind: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.directory)) / "x"


_SPARK_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH")


def missing_reason() -> str | None:
    """Why no Java judge can run in this environment, or None."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return "pyspark is not installed (the judge needs pyspark 3.5)"
    if not version.startswith("3.5."):
        return f"pyspark {version} is installed; Hudi's bundle for the judge is built for pyspark 3.5"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        return "no java on PATH and none under JAVA_HOME (the judge needs Java 17)"
    return None


def write_exchange(rows: pa.Table, path: Path) -> None:
    """Writes rows so that Spark sees only values: no statistics and no dictionaries to mislead it about NaN or -0.0."""
    pq.write_table(rows, path, use_dictionary=False, write_statistics=False, coerce_timestamps="us", store_schema=False)


def _take(exchange: Path) -> pa.Table:
    """Reads the folder of Parquet files that Spark wrote, and removes it."""
    try:
        files = sorted(exchange.glob("*.parquet"))
        return pa.concat_tables([pq.ParquetFile(file).read() for file in files]) if files else pa.table({})
    finally:
        shutil.rmtree(exchange.parent, ignore_errors=True)


def _read_arguments(
    path: str | os.PathLike[str],
    where: str | None,
    columns: Sequence[str] | None,
    options: Mapping[str, str] | None,
    meta: bool,
) -> dict[str, Any]:
    return {
        "path": os.fspath(path),
        "where": where,
        "columns": None if columns is None else list(columns),
        "drop": [] if meta or columns is not None else list(META_COLUMNS),
        "options": dict(READ_PLAIN if options is None else options),
    }


def _comma(fields: str | Sequence[str] | None) -> str:
    if fields is None:
        return ""
    return fields if isinstance(fields, str) else ",".join(fields)


def _pump(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(ValueError, OSError):
        for line in process.stdout:
            answers.put(line)
    answers.put(None)
