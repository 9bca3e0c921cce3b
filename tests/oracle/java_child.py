"""The judge's own process: Spark 3.5 with Hudi's bundle behind JSON lines. Run by ``java_judge.py``, never imported."""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any, TextIO

_OPENS = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of java.base that Spark and Hudi open by reflection; Java 17 keeps them shut by default."""

_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Tiny tables never repay the optimizing compiler and a concurrent collector, which took half of the JVM's time."""


def _bundle(settings: dict[str, Any]) -> dict[str, str]:
    """Hudi's bundle in front of the class path once it is here, else where Spark's resolver puts it.

    What the resolver finds is copied twice, and each of its classes is looked for in Spark's 250 jars before: a tenth of
    the judge's time.
    """
    group, artifact, version = settings["bundle"].split(":")
    jar = os.path.join(settings["ivy"], "jars", f"{group}_{artifact}-{version}.jar")
    if os.path.isfile(jar):
        return {"spark.driver.extraClassPath": jar}
    return {"spark.jars.packages": settings["bundle"], "spark.jars.ivy": settings["ivy"]}


def _session(settings: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    directory = settings["directory"]
    opens = (f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS)
    java = " ".join([*opens, *_QUICK, "-Duser.timezone=UTC"])
    options = {
        **_bundle(settings),
        "spark.driver.memory": settings["memory"],
        "spark.driver.extraJavaOptions": java,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": os.path.join(directory, "spark"),
        "spark.sql.warehouse.dir": os.path.join(directory, "warehouse"),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        # Java code that is made for each plan and compiled, to run over a dozen rows.
        "spark.sql.codegen.wholeStage": "false",
        # The executed plan is asked for the files of its scan; an adaptive plan hides them.
        "spark.sql.adaptive.enabled": "false",
    }
    builder = SparkSession.builder.master(f"local[{settings['cores']}]").appName("hudi-judge")
    for name, value in {**options, **settings["conf"]}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


class Judge:
    """One method per request; each returns the answer's fields."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.spark = _session(settings)

    def hello(self, _: dict[str, Any]) -> dict[str, Any]:
        jvm = self.spark._jvm
        return {"spark": self.spark.version, "java": jvm.System.getProperty("java.version")}

    def fresh(self, _: dict[str, Any]) -> dict[str, Any]:
        self.spark = self.spark.newSession()
        return {}

    def read(self, request: dict[str, Any]) -> dict[str, Any]:
        self._save(self._frame(request), request["out"])
        return {}

    def matches(self, request: dict[str, Any]) -> dict[str, Any]:
        from pyspark.sql.functions import lit

        parts = [
            # Each with a relation of its own, so that no filter profits from what another one loaded.
            self._frame({**request, "where": where, "columns": request["columns"]}).withColumn("filter", lit(number))
            for number, where in enumerate(request["wheres"])
        ]
        self._save(functools.reduce(lambda a, b: a.unionAll(b), parts), request["out"])
        return {}

    def files(self, request: dict[str, Any]) -> dict[str, Any]:
        frame = self._frame(request)
        found: set[str] = set()
        leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
        for i in range(leaves.size()):
            leaf = leaves.apply(i)
            if leaf.nodeName().startswith("Scan"):
                found.update(_scan_files(leaf))
        base = request["path"].rstrip("/") + "/"
        return {"files": sorted(_relative(path, base) for path in found)}

    def write(self, request: dict[str, Any]) -> dict[str, Any]:
        frame = self.spark.read.parquet(request["rows"]).coalesce(request["tasks"])
        frame.write.format("hudi").options(**request["options"]).mode(request["mode"]).save(request["path"])
        return {}

    def sql(self, request: dict[str, Any]) -> dict[str, Any]:
        for name, value in request["settings"].items():
            self.spark.conf.set(name, value)
        frame = self.spark.sql(request["text"])
        if frame.columns:  # A command has none, and Parquet no file without.
            self._save(frame, request["out"])
        return {}

    def _frame(self, request: dict[str, Any]) -> Any:
        frame = self.spark.read.format("hudi").options(**request["options"]).load(request["path"])
        if request["where"] is not None:
            frame = frame.where(request["where"])
        if request["columns"] is not None:
            frame = frame.selectExpr(*request["columns"])
        return frame.drop(*request["drop"])

    def _save(self, frame: Any, path: str) -> None:
        # Set for this one write: Spark's default, INT96, has no meaning for other readers.
        name = "spark.sql.parquet.outputTimestampType"
        self.spark.conf.set(name, "TIMESTAMP_MICROS")
        try:
            frame.coalesce(1).write.parquet(path)
        finally:
            self.spark.conf.unset(name)


def _scan_files(leaf: Any) -> set[str]:
    """Files of a FileSourceScanExec after Hudi's file index has applied partition and data filters.

    One per file slice: its base file, or the first log file of a slice without one.
    """
    found: set[str] = set()
    for directory in leaf.selectedPartitions():
        found.update(file.getPath().toString() for file in _scala(directory.files()))
    return found


def _scala(sequence: Any) -> Any:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _relative(path: str, base: str) -> str:
    plain = path.removeprefix("file://").removeprefix("file:")
    return plain.removeprefix(base)


def _describe(error: BaseException) -> dict[str, Any]:
    """The whole Java cause chain of a Py4J or Spark error, and the innermost frames."""
    throwable = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    causes: list[str] = []
    frames: list[str] = []
    while throwable is not None and len(causes) < 40:
        causes.append(throwable.toString())
        frames = [f"    at {frame.toString()}" for frame in list(throwable.getStackTrace())[:12]]
        throwable = throwable.getCause()
    return {"message": f"{type(error).__name__}: {message}", "causes": causes, "stack": "\n".join(frames)}


def _serve(answers: TextIO) -> None:
    judge: Judge | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            if judge is None:
                judge = Judge(json.loads(sys.argv[1]))
            answer.update(getattr(judge, request["op"])(request))
        except Exception as error:
            answer["error"] = _describe(error)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Java, Spark and Ivy print to standard output too: only the answers may go to the parent's pipe.
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _serve(private)
