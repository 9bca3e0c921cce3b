"""Ask a real Spark what predicates mean, and keep its answers as JSON.

Run with PySpark installed: ``python generate.py oracle`` (Spark 3.5) writes ``oracle.json``;
``python generate.py catalyst`` writes ``catalyst_<major.minor>.json`` for the Spark that runs it.

``oracle.json``: groups of (type, time zone, values); per predicate one letter per value in non-ANSI mode and one
in ANSI mode: T, F or N; a mode in which Spark refuses the predicate is null.
``catalyst_*.json``: the text of ``Expression.sql()`` of optimised filters, with the letters of the condition that it
came from (the optimiser may turn N into F, never into or out of T).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

HERE = Path(__file__).parent
COMPARE = ["=", "<>", "<", "<=", ">", ">=", "<=>"]


def compare(values: list[str], ops: list[str] = COMPARE) -> list[str]:
    return [f"c {op} {value}" for value in values for op in ops]


COMMON = ["c IS NULL", "c IS NOT NULL", "c = NULL", "c <=> NULL", "NOT (c <=> NULL)", "c IN (NULL)", "isnull(c)",
          "isnotnull(c)", "c IS NULL OR c IS NOT NULL", "c = c", "c <=> c", "c <> c", "NOT (c = NULL)", "NULL", "TRUE",
          "FALSE", "NOT NULL", "c IS NULL AND NULL", "c IS NOT NULL OR NULL"]
INTS = [*compare(["1", "0", "-3", "1.5", "1.0", "2L", "1.5D", "'1'", "1.00BD"]),
        "c IN (1, 2)", "c NOT IN (1, 2)", "c IN (1, NULL)", "c NOT IN (1, NULL)", "NOT (c IN (1, NULL))",
        "c BETWEEN 0 AND 2", "c NOT BETWEEN 0 AND 2", "c BETWEEN 0.5 AND 1.5", "c BETWEEN NULL AND 1",
        "c BETWEEN 2 AND 0", "c IN (1.0, 2.5)", "c IN ('1', '2')", "c = '1.5'", "c > 'x'", "c > 3000000000",
        "c < 3000000000", "c = 3000000000", "c <> 3000000000", "c IN (1, 3000000000)", "c > 1e30", "c < 1e-3D",
        "(c > 1) = true", "(c > 1) <=> true", "(c > 1) IS NULL", "(c > 1) IS TRUE", "(c > 1) IS NOT TRUE",
        "(c > 1) IS FALSE", "(c > 1) IS NOT FALSE", "(c > 1) IS UNKNOWN", "NOT (c > 1 AND c < 5)",
        "NOT (c > 1 OR c IS NULL)", "c IS DISTINCT FROM 1", "c IS NOT DISTINCT FROM 1", "c == 1", "c != 1", "!(c = 1)",
        "NOT c = 1", "NOT c = 1 AND c < 5", "c = 1 OR c = 2 AND c > 5", "c + 1 > 2", "c * 2 = 2", "-c > 0",
        "c - 1 <= 0", "c % 2 = 1", "c % 2 = -1", "c / 2 = 0.5", "c / 2 > 0", "coalesce(c, 0) = 0",
        "CASE WHEN c > 1 THEN 'big' ELSE 'small' END = 'big'", "CASE WHEN c > 1 THEN true END",
        "CASE c WHEN 1 THEN 10 WHEN 2 THEN 20 END > 10", "CAST(c AS BIGINT) = 1", "CAST(c AS DOUBLE) = 1",
        "CAST(c AS STRING) = '1'", "CAST(c AS DECIMAL(25,2)) = 1.00", "c = CAST('1' AS INT)", "c = CAST(1.5 AS INT)",
        "c = CAST(NULL AS INT)", "c > CAST('NaN' AS DOUBLE)", "c < CAST('NaN' AS DOUBLE)", "if(c > 1, true, false)",
        "nvl(c, 7) = 7", "c > -2147483648", "c >= -9223372036854775808", "c < 9223372036854775807",
        "1 < c", "2 >= c", "1.5 > c", "(c) = (1)", "c + 1.5 > 2", "c * 1.5 = 1.5", "c BETWEEN 1 AND 1 AND c = 1"]
FLOATS = [*compare(["0", "0.0D", "-0.0D", "1.5", "1.5D", "1.1", "1.1D", "CAST('NaN' AS DOUBLE)",
                    "CAST('NaN' AS FLOAT)", "CAST('Infinity' AS DOUBLE)", "1", "16777217", "'1.5'",
                    "CAST(1.1 AS FLOAT)", "1.5F"]),
          "c IN (0, 1.5)", "c IN (CAST('NaN' AS DOUBLE), 1.5D)", "c NOT IN (CAST('NaN' AS DOUBLE), 1.5D)",
          "c IN (-0.0D)", "c IN (1.1)", "c IN (1.1D, NULL)", "c NOT IN (1.5D, NULL)", "c BETWEEN -1 AND 2", "isnan(c)",
          "NOT (c > 1.5)", "NOT (c <= 1.5)", "c > 1e400", "c < 1e39D", "CAST(c AS DOUBLE) = 1.1D", "c * 2 > 3",
          "c + 1 = 2.5", "-c = 0", "c = -c", "c / 2 = 0.75", "c > 9007199254740993", "c = 9007199254740993"]
DECIMALS = [*compare(["1", "1.5", "1.50", "9.995", "-1.5", "9.99", "1.5D", "10L", "1.500000BD"]),
            "c IN (1.5, 9.990)", "c IN (1, 10)", "c NOT IN (1.5, NULL)", "c BETWEEN 1 AND 9.99", "c = '1.5'",
            "c > 99999999999999999999", "c < 99999999999999999999", "CAST(c AS DECIMAL(30,6)) = 1.5",
            "CAST(c AS DOUBLE) = 1.5D", "c = CAST('1.50' AS DECIMAL(10,2))", "c = CAST(1.499 AS DECIMAL(10,2))",
            "c = 0.1D", "c = 1e0", "c + 1 = 2.5", "c * 2 = 3", "c - 0.25 = 1.25", "-c = 1.5", "c IN (1.5D, 10)",
            "c < 1.4999999999999999999999999999", "c > 1.4999999999999999999999999999"]
STRINGS = [*compare(["'abc'", "''", "'\\u00e9'", "'zzz'", "'a\\tb'", "\"abc\"", "'😀'", "'Ａ'"]),
           *[f"c {neg}LIKE {p}" for neg in ("", "NOT ") for p in
             ["'abc%'", "'%bc'", "'%b%'", "'a_c'", "'abc'", "'%'", "'_'", "''", "'a\\\\_c'", "'a\\_c'", "'a\\\\%%'",
              "'a\\%%'", "'a/%%' ESCAPE '/'", "'a__'", "'%%'", "'abc%%'", "'abc_%'", "'a%c'", "NULL", "'_%'", "'.*'",
              "'a.c'", "'(abc)'", "'😀%'", "'a%\\nb'", "'%\\\\\\\\%'", "'a//%' ESCAPE '/'"]],
           "c IN ('abc', 'zzz')", "c NOT IN ('abc')", "c IN ('abc', NULL)", "c NOT IN ('abc', NULL)", "c = 1",
           "c > 5", "c IN (1, 2)", "startswith(c, 'ab')", "endswith(c, 'bc')", "contains(c, 'b')", "startswith(c, '')",
           "startswith(c, 'a%')", "NOT startswith(c, 'ab')", "c LIKE 'abc%' OR c IS NULL", "upper(c) = 'ABC'",
           "lower(c) = 'abc'", "c || 'x' = 'abcx'", "concat(c, 'x', c) = 'abcxabc'", "c BETWEEN 'a' AND 'b'",
           "c ILIKE 'ABC'", "c RLIKE '^a'", "length(c) = 3", "CAST(c AS STRING) = 'abc'", "c > r'a\\b'",
           "c = 'a\\\\b'", "c = 'a\\'b'", "c = 'a\\nb'", "c LIKE ANY ('abc%', 'z%')", "c = DATE '2024-01-01'",
           "c LIKE 'a\\\\bc'", "c = 'a' 'bc'", "c = '\\101bc'", "c = TRUE", "c < X'62'", "ucase(c) = 'É'"]
BOOLEANS = [*compare(["true", "false", "'true'", "1"]), "c", "NOT c", "c AND c", "c OR true", "c AND NULL", "c OR NULL",
            "c IN (true)", "c IN (true, NULL)", "c NOT IN (false, NULL)", "c IS TRUE", "c IS NOT TRUE", "c IS FALSE",
            "c IS NOT FALSE", "c IS UNKNOWN", "c IS NOT UNKNOWN", "!c", "coalesce(c, false)", "c = 'x'",
            "CASE WHEN c THEN 1 ELSE 0 END = 1", "c = NOT c" , "c IN ('true')", "if(c, c, NOT c)"]
DATES = [*compare(["DATE '2024-03-10'", "'2024-03-10'", "TIMESTAMP '2024-03-10 00:00:00'",
                   "TIMESTAMP '2024-03-10 12:00:00'", "TIMESTAMP_NTZ '2024-03-10 00:00:00'", "'2024-3-9'"]),
         "c IN (DATE '2024-03-10', NULL)", "c IN ('2024-03-10')", "c IN ('2024-3-10')", "c NOT IN (DATE '2024-03-10')",
         "c BETWEEN '2024-01-01' AND '2024-12-31'", "c = 'x'", "c > '2024'", "c = '2024-03-10 12:00:00'",
         "c = CAST('2024-03-10' AS DATE)", "year(c) = 2024", "CAST(c AS TIMESTAMP) = TIMESTAMP '2024-03-10 00:00:00'",
         "CAST(c AS STRING) = '2024-03-10'", "c < DATE '0001-01-01'", "c > DATE '1500-06-01'", "c = 20240310",
         "c = date'2024-03-10'", "CAST(c AS DATE) = DATE '2024-03-10'", "c = CAST(TIMESTAMP '2024-03-10 23:30:00' AS DATE)"]
TIMESTAMPS = [*compare(["TIMESTAMP '2024-03-10 09:30:00'", "'2024-03-10 09:30:00'", "DATE '2024-03-10'", "'2024-03-10'",
                        "TIMESTAMP '2024-03-10 00:30:00Z'", "TIMESTAMP '2024-03-10 00:30:00+00:00'",
                        "TIMESTAMP '2024-03-10T09:30:00.000001'", "TIMESTAMP '2024-11-03 01:30:00'",
                        "TIMESTAMP '2024-03-10 02:30:00'", "TIMESTAMP_NTZ '2024-03-10 09:30:00'",
                        "TIMESTAMP_LTZ '2024-03-10 09:30:00'"]),
              "c IN (TIMESTAMP '2024-03-10 09:30:00', NULL)", "c BETWEEN '2024-03-10' AND '2024-03-11'",
              "c IN (DATE '2024-03-10')", "CAST(c AS DATE) = DATE '2024-03-10'", "CAST(c AS DATE) < DATE '2024-03-10'",
              "c = 'x'", "c > '2024'", "c = CAST('2024-03-10 09:30:00' AS TIMESTAMP)", "c > '2024-03-10 09:30'",
              "c = '2024-03-10T09:30:00Z'", "c = CAST(DATE '2024-03-10' AS TIMESTAMP)", "hour(c) = 9",
              "c > TIMESTAMP '1850-01-01 00:00:00'", "c = TIMESTAMP '1850-01-01 00:00:00'",
              "c = 1710030600", "CAST(c AS TIMESTAMP) > TIMESTAMP '2024-03-10'", "c > '2024-03-10 09:30:00 Asia/Seoul'"]
BINARIES = [*compare(["X'00FF'", "X''", "X'61'", "'a'", "x'ff'"]), "c IN (X'61', X'00')", "c NOT IN (X'61', NULL)",
            "c BETWEEN X'00' AND X'7F'", "CAST(c AS STRING) = 'a'", "c = CAST('a' AS BINARY)"]

INT_VALUES = ["NULL", "1", "0", "-3", "2", "7", "100"]
FLOAT_VALUES = ["NULL", "0.0", "-0.0D", "1.5", "1.1D", "1.1F", "-2.25", "'NaN'", "'Infinity'", "'-Infinity'", "16777216",
                "9007199254740992D", "1e30"]
STRING_VALUES = ["NULL", "''", "'abc'", "'abcd'", "'ab'", "'a_c'", "'a%c'", "'aXc'", "'zzz'", "'é'", "'😀'", "'Ａ'",
                 "'a\\nb'", "'a\\\\b'", "'ABC'", "'1'", "'a\\'b'", "'xabc'", "'a\\tb'", "'😀x'", "'%'", "'a/'", "'(abc)'",
                 "'.*'", "'a.c'"]
TS_VALUES = ["NULL", *[f"TIMESTAMP '{t}'" for t in (
    "2024-03-10 00:30:00Z", "2024-03-10 00:30:00.000001Z", "2024-03-09 15:00:00Z", "2024-03-10 05:00:00Z",
    "2024-11-03 05:30:00Z", "2024-11-03 06:30:00Z", "2024-03-10 07:30:00Z", "1850-01-01 00:00:00Z",
    "1849-12-31 15:32:08Z", "2023-12-31 23:59:59.999999Z", "2024-03-10 09:30:00Z", "2024-03-10 13:30:00Z",
    "1969-12-31 23:59:59.999999Z")]]
DATE_VALUES = ["NULL", *[f"DATE '{d}'" for d in ("2024-03-10", "2024-03-09", "2024-03-11", "0001-01-01", "9999-12-31",
                                                  "1970-01-01", "1500-02-28", "2024-11-03")]]
NTZ_VALUES = ["NULL", *[f"TIMESTAMP_NTZ '{t}'" for t in ("2024-03-10 09:30:00", "2024-03-10 00:00:00",
                                                         "2024-03-10 02:30:00", "1850-01-01 00:00:00",
                                                         "2024-03-10 09:30:00.000001")]]
GROUPS: list[tuple[str, str, list[str], list[str]]] = [
    ("int", "UTC", [*INT_VALUES, "2147483647", "-2147483648"], COMMON + INTS),
    ("bigint", "UTC", [*INT_VALUES, "9223372036854775807L", "-9223372036854775808L", "9007199254740993L", "3000000000L"],
     [*COMMON, *[p for p in INTS if p not in ("c + 1 > 2", "c * 2 = 2", "-c > 0", "c - 1 <= 0")],
      "c = 9007199254740992D", "c > 9007199254740992D", "c = 9223372036854775807D"]),
    ("smallint", "UTC", INT_VALUES, INTS), ("tinyint", "UTC", INT_VALUES, INTS),
    ("double", "UTC", FLOAT_VALUES, COMMON + FLOATS), ("float", "UTC", FLOAT_VALUES, COMMON + FLOATS),
    ("decimal(10,2)", "UTC", ["NULL", "1.5", "1", "-1.5", "9.99", "10", "0", "99999999.99"], COMMON + DECIMALS),
    ("decimal(38,18)", "UTC", ["NULL", "1.5", "1", "-1.5", "9.995", "99999999999999999999.999999999999999999"], DECIMALS),
    ("decimal(20,0)", "UTC", ["NULL", "1", "2", "-1", "10", "99999999999999999999"], DECIMALS),
    ("string", "UTC", STRING_VALUES, COMMON + STRINGS), ("boolean", "UTC", ["NULL", "true", "false"], COMMON + BOOLEANS),
    ("date", "Asia/Seoul", DATE_VALUES, COMMON + DATES), ("date", "America/New_York", DATE_VALUES, DATES),
    ("timestamp", "Asia/Seoul", TS_VALUES, COMMON + TIMESTAMPS), ("timestamp", "America/New_York", TS_VALUES, TIMESTAMPS),
    ("timestamp", "UTC", TS_VALUES, TIMESTAMPS), ("timestamp", "+05:30", TS_VALUES, TIMESTAMPS),
    ("timestamp_ntz", "Asia/Seoul", NTZ_VALUES, COMMON + TIMESTAMPS),
    ("binary", "UTC", ["NULL", "X''", "X'61'", "X'00'", "X'00FF'", "X'FF'", "X'7F'", "X'80'"], COMMON + BINARIES),
]


def plain(kind: str) -> str:
    """The select expression that brings ``c`` to JSON without loss."""
    return {"timestamp": "unix_micros(c)", "date": "unix_date(c)", "binary": "hex(c)",
            "timestamp_ntz": "unix_micros(to_utc_timestamp(CAST(c AS TIMESTAMP), 'UTC'))"}.get(kind, "CAST(c AS STRING)")


def frame(spark: SparkSession, kind: str, values: list[str]) -> DataFrame:
    rows = ", ".join(f"({i}, CAST({v} AS {kind}))" for i, v in enumerate(values))
    return spark.sql(f"SELECT * FROM VALUES {rows} AS t(i, c)")


def letters(df: DataFrame, predicate: str) -> str | None:
    try:
        rows = df.selectExpr("i", f"CAST(({predicate}) AS BOOLEAN) AS r").orderBy("i").collect()
    except Exception:
        return None
    return "".join("N" if r.r is None else "T" if r.r else "F" for r in rows)


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    builder = builder.config("spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED")
    spark = builder.config("spark.sql.ansi.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def json_values(spark: SparkSession, df: DataFrame, kind: str) -> list[Any]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    values = [r.v for r in df.selectExpr("i", f"{plain(kind)} AS v").orderBy("i").collect()]
    spark.conf.set("spark.sql.session.timeZone", zone)
    return values


def oracle(spark: SparkSession) -> None:
    groups = []
    for kind, zone, values, predicates in GROUPS:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.ansi.enabled", "false")
        df = frame(spark, kind, values).cache()
        df.count()
        cases = []
        for predicate in predicates:
            answers = []
            for ansi in ("false", "true"):
                spark.conf.set("spark.sql.ansi.enabled", ansi)
                answers.append(letters(df, predicate))
            cases.append([predicate, *answers])
        groups.append({"type": kind, "timezone": zone, "values": json_values(spark, df, kind), "cases": cases})
        print(kind, zone, len(cases), flush=True)
    write("oracle.json", {"spark": pyspark.__version__, "groups": groups})


def write(name: str, document: dict[str, Any]) -> None:
    head = {k: v for k, v in document.items() if k != "groups"}
    lines = []
    for group in document["groups"]:
        outer = {k: v for k, v in group.items() if k != "cases"}
        cases = ",\n".join("  " + json.dumps(c, ensure_ascii=True) for c in group["cases"])
        lines.append(json.dumps(outer, ensure_ascii=True)[:-1] + ', "cases": [\n' + cases + "\n]}")
    (HERE / name).write_text(json.dumps(head)[:-1] + ', "groups": [\n' + ",\n".join(lines) + "\n]}\n")


def filters(df: DataFrame) -> list[str]:
    """The conjuncts that Spark would hand to a file index, as ``Expression.sql()`` text."""
    plan = df._jdf.queryExecution().optimizedPlan()
    texts = []
    while True:
        if plan.getClass().getSimpleName() == "Filter":
            texts.append(plan.condition().sql())
        children = plan.children()
        if children.size() == 0:
            return texts
        plan = children.apply(0)


def catalyst(spark: SparkSession) -> None:
    import tempfile

    groups = []
    for kind, zone, values, predicates in GROUPS:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.ansi.enabled", "false")
        spark.conf.set("spark.sql.optimizer.inSetConversionThreshold", "3")
        with tempfile.TemporaryDirectory() as folder:
            frame(spark, kind, values).withColumn("s", F.struct(F.col("c").alias("a.b"))).write.parquet(folder + "/x")
            df = spark.read.parquet(folder + "/x")
            small = frame(spark, kind, values).cache()
            small.count()
            cases: dict[str, str] = {}
            extra = ["s.`a.b` IS NOT NULL", "s.`a.b` <=> NULL", "c = TIMESTAMP '2024-11-03 06:30:00Z'"]
            for predicate in [*predicates, *extra]:
                try:
                    for text in filters(df.alias("t").filter(predicate)):
                        cases.setdefault(text, predicate)
                except Exception:
                    continue
            out = [[text, letters(small, predicate)] for text, predicate in cases.items()]
            groups.append({"type": kind, "timezone": zone, "values": json_values(spark, small, kind), "cases": out})
            print(kind, zone, len(out), flush=True)
    version = ".".join(pyspark.__version__.split(".")[:2])
    write(f"catalyst_{version}.json", {"spark": pyspark.__version__, "groups": groups})


if __name__ == "__main__":
    {"oracle": oracle, "catalyst": catalyst}[sys.argv[1]](session())
