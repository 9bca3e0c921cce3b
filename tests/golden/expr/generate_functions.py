"""Ask Spark 4.3 what expressions are worth over rows of all types, and keep its answers.

Run with PySpark 4.3: ``python generate_functions.py`` writes ``functions_4.3.json.zst``; ``python
generate_functions.py SEED COUNT FILE`` writes only random expressions, of another seed, to another file.

A group is a set of rows in a session time zone. A case is an expression, its type and a value per row, or the error
class that Spark raises over these rows (ANSI mode, Spark 4's default). Values are in JSON's own form where that has
no loss: a date is its days, a timestamp its microseconds, a decimal or a double its text, binary its hexadecimal.
"""

from __future__ import annotations

import json
import random
import re
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

HERE = Path(__file__).parent
SEED, RANDOM_CASES = 20261129, 1500

TYPES = {
    "b": "boolean", "t": "tinyint", "h": "smallint", "i": "int", "l": "bigint", "f": "float", "d": "double",
    "m": "decimal(10,2)", "p": "decimal(38,18)", "s": "string", "u": "string", "n": "string", "e": "string",
    "dt": "date", "ts": "timestamp", "w": "timestamp_ntz", "x": "binary", "a": "array<int>", "g": "array<string>",
    "k": "map<string,int>", "j": "map<int,string>", "r": "struct<x:int,y:string,z:array<int>>",
}  # fmt: skip


def day(text: str) -> int:
    return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()


def micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


PLAIN = {
    "b": [True, False, None, True, False, True, None, False],
    "t": [1, -3, 7, None, 0, 100, 5, 2],
    "h": [10, None, -20, 300, 0, 7, 1, 12],
    "i": [1, 2, None, -5, 0, 12, 2024, 3],
    "l": [10, None, -7, 3000000000, 0, 1, 86400, 4],
    "f": ["1.5", "-2.25", None, "0.0", "10.1", "3.0", "0.1", "7.5"],
    "d": ["1.5", None, "-2.5", "0.1", "100.0", "2.675", "0.0", "9.99"],
    "m": ["1.50", "-2.25", None, "0.00", "99.99", "10.00", "2.50", "0.01"],
    "p": ["1.500000000000000000", None, "-0.333333333333333333", "0E-18", "12345.678900000000000000",
          "1.000000000000000000", "7.000000000000000000", "0.010000000000000000"],
    "s": ["apple", "Banana split", None, "", " padded ", "a,b,c", "x", "hello world"],
    "u": ["app", "an", "x", None, " ", ",", "a", "o"],
    "n": ["1", "25", None, "-3", " 7 ", "0", "100", "12"],
    "e": ["2024-03-10", "2023-12-31", None, "1999-02-28", "2024-02-29", "2000-01-01", "2024-11-03", "1970-01-01"],
    "dt": [day(v) if v else None for v in
           ("2024-03-10", "2023-12-31", None, "1999-02-28", "2024-02-29", "2000-01-01", "2024-11-03", "1970-01-01")],
    "ts": [micros(v) if v else None for v in
           ("2024-03-10T06:30:00", "2023-12-31T23:59:59.999999", None, "1999-02-28T12:00:00.5", "2024-02-29T00:00:00",
            "2000-01-01T05:06:07.000008", "2024-11-03T05:30:00", "1969-12-31T23:59:59")],
    "w": [micros(v) if v else None for v in
          ("2024-03-10T02:30:00", None, "2023-12-31T23:59:59.999999", "1999-02-28T12:00:00.5", "2024-02-29T00:00:00",
           "2000-01-01T05:06:07.000008", "2024-11-03T01:30:00", "1969-12-31T23:59:59")],
    "x": ["61", "", None, "00FF", "616263", "7F", "C3A9", "31"],
    "a": [[1, 2, 3], [], None, [None], [5, None, 7], [0], [3, 3], [12]],
    "g": [["a", "b"], ["x"], [], None, ["", None], ["apple"], ["c", "d", "e"], ["o"]],
    "k": [[["a", 1], ["b", 2]], [], None, [["a", None]], [["x", 9]], [["", 0]], [["a", 7]], [["k", 1]]],
    "j": [[[1, "one"]], [[2, None]], [[0, "zero"], [12, "dozen"]], None, [], [[1, ""]], [[3, "x"]], [[1, "a"]]],
    "r": [{"x": 1, "y": "a", "z": [1]}, None, {"x": None, "y": "b", "z": None}, {"x": 3, "y": None, "z": []},
          {"x": 4, "y": "", "z": [None]}, {"x": 5, "y": "e", "z": [9, 8]}, {"x": 0, "y": "f", "z": [1]},
          {"x": 7, "y": "g", "z": [2]}],
}  # fmt: skip
EDGE = {
    "b": [None, True, False, None, True, False, True, False],
    "t": [127, -128, 0, None, 1, -1, 2, 3],
    "h": [32767, -32768, 0, None, 1, -1, 2, 3],
    "i": [2147483647, -2147483648, 0, None, 1, -1, 400, 31],
    "l": [9223372036854775807, -9223372036854775808, 0, None, 9007199254740993, -1, 2, 100],
    "f": ["NaN", "Infinity", "-Infinity", None, "-0.0", "3.4028235E38", "1.4E-45", "16777216.0"],
    "d": ["NaN", "Infinity", "-Infinity", None, "-0.0", "1.7976931348623157E308", "4.9E-324", "9.007199254740993E15"],
    "m": ["99999999.99", "-99999999.99", "0.00", None, "0.01", "-0.01", "0.05", "2.50"],
    "p": ["99999999999999999999.999999999999999999", "-99999999999999999999.999999999999999999", "0E-18", None,
          "1E-18", "-1E-18", "0.500000000000000000", "2.500000000000000000"],
    "s": ["😀a😀", "e\u0301", "İstanbul", None, "ıI", "ΑΣ", "straße ǆ", "a\nb\tc\0"],
    "u": ["😀", "\u0301", "i", None, "I", "Σ", "ß", "\n"],
    "n": ["1.5", "NaN", "", None, "1e3", "9223372036854775808", "+5", "-0"],
    "e": ["2024-1-5", "0001-01-01", "9999-12-31", None, "2024", "2024-06", "2024-06-15 10:30:45.123", "x"],
    "dt": [day(v) if v else None for v in
           ("0001-01-01", "9999-12-31", "1969-12-31", None, "1900-02-28", "2000-02-29", "1582-10-15", "2040-07-04")],
    "ts": [micros(v) if v else None for v in
           ("0001-01-03T00:00:00", "9999-12-30T23:59:59.999999", "1969-12-31T23:59:59.999999", None,
            "2024-03-10T07:00:00", "2024-11-03T06:30:00", "1883-11-18T16:59:59.5", "2040-07-04T12:00:00")],
    "w": [micros(v) if v else None for v in
          ("0001-01-03T00:00:00", "9999-12-30T23:59:59.999999", "1969-12-31T23:59:59.999999", None,
           "2024-03-10T02:30:00", "2024-11-03T01:30:00", "1883-11-18T12:00:00.5", "2040-07-04T12:00:00")],
    "x": ["FF", "00", "C328", None, "F09F9880", "", "0A", "30"],
    "a": [[2147483647], [-2147483648, 0], [None, None], None, [], [1, 1, 1], [31], [400, None]],
    "g": [["😀"], ["e\u0301", "é"], [None], None, [], ["ıI"], ["ß"], ["\n", ""]],
    "k": [[["😀", 1]], [["\u0301", 2147483647]], [], None, [["", -1]], [["ß", None]], [["a", 0]], [["i", 3]]],
    "j": [[[2147483647, "max"]], [[-2147483648, "min"]], [], None, [[0, None]], [[-1, "m"]], [[400, "x"]], [[31, ""]]],
    "r": [{"x": 2147483647, "y": "😀", "z": []}, {"x": -2147483648, "y": "", "z": None}, None, None,
          {"x": 0, "y": "e\u0301", "z": [1]}, {"x": -1, "y": "İ", "z": [None]}, {"x": 400, "y": "ß", "z": [2]},
          {"x": 31, "y": "\n", "z": [3]}],
}  # fmt: skip
GROUPS = [("plain", PLAIN, "UTC"), ("plain", PLAIN, "America/New_York"), ("edge", EDGE, "UTC"),
          ("edge", EDGE, "America/New_York"), ("edge", EDGE, "Asia/Kathmandu")]  # fmt: skip

# Templates: {X} is an expression of a class. Classes: B boolean, I int, L bigint, H smallint, F float, D double,
# M decimal, S text, N text of numbers, E text of dates, T date, Z timestamp, W timestamp without zone, X binary,
# A array<int>, G array<string>, K map<string,int>, J map<int,string>, R struct; lower case: literals of the class.
LEAVES = {
    "B": ["b", "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)", "b"], "I": ["i", "i", "h", "t", "r.x"], "L": ["l"],
    "H": ["h"], "F": ["f"], "D": ["d", "d", "1.5D"], "M": ["m", "m", "p"], "S": ["s", "s", "u", "r.y"],
    "N": ["n", "n", "CAST(i AS STRING)"], "E": ["e"], "Z": ["ts", "ts"], "W": ["w", "w"],
    "X": ["x"], "A": ["a", "a", "r.z"], "G": ["g"], "K": ["k"], "J": ["j"], "R": ["r"],
    "i": ["0", "1", "2", "-1", "3", "-2", "10", "NULL", "400", "12"],
    "l": ["1L", "-1L", "3000000000", "0L"], "d": ["0D", "1.5D", "-0.0D", "1e3", "CAST('NaN' AS DOUBLE)"],
    "m": ["1.5", "0.01", "-2.50", "100.0", "3", "0.333333"],
    "s": ["'a'", "''", "' '", "'x'", "'an'", "'😀'", "NULL", "'apple'", "'\\u0301'", "'İ'", "','", "'I'"],
    "n": ["'1'", "'25'", "'-3'", "' 7 '", "'0'", "'1.5'", "'x'", "'1e2'"],
    "e": ["'2024-03-10'", "'2000-01-01'", "'2024-2-29'", "'1970-01-01'", "'2024'", "'0001-01-01'"],
    "T": ["dt", "dt", "DATE '2024-03-10'", "CAST(NULL AS DATE)"],
    "z": ["TIMESTAMP '2024-03-10 02:30:00'", "TIMESTAMP '2000-01-01 05:06:07.000008'", "TIMESTAMP '2024-11-03'",
          "TIMESTAMP '2024-11-03 01:30:00'", "TIMESTAMP '1969-12-31 23:59:59Z'"],
    "w": ["TIMESTAMP_NTZ '2024-03-10 02:30:00'", "TIMESTAMP_NTZ '2000-01-01 05:06:07.000008'"],
    "t": ["DATE '2024-03-10'", "DATE '2000-01-01'", "DATE '0001-01-01'", "DATE '2024-02-29'"],
    "c": ["=", "<>", "<", "<=", ">", ">=", "<=>"],
    "o": ["+", "-", "*"],
    "v": ["INTERVAL 1 DAY", "INTERVAL '2' HOUR", "INTERVAL 1 MONTH", "INTERVAL 1 YEAR", "INTERVAL 30 MINUTES",
          "INTERVAL '1 2:03:04.5' DAY TO SECOND", "INTERVAL 1 WEEK", "INTERVAL '10' SECOND", "INTERVAL -3 DAYS"],
    "q": ["'yyyy-MM-dd'", "'yyyy-M-d'", "'dd/MM/yyyy'", "'yyyyMMdd'", "'yyyy-MM-dd HH:mm:ss'", "'yyyy'", "'yyyy-MM'"],
    "y": ["'a.*'", "'^[a-c]+$'", "'\\\\d+'", "'(?i)APPLE'", "'b|x'", "''", "'.'", "'^.$'", "'[^a-z]'", "'a\\\\sb'",
          "'\\\\w+ \\\\w+'", "'o{1,2}'", "'^$'", "'(a)(b)?'"],
}  # fmt: skip
PARTS = ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DOW", "DAYOFWEEK_ISO", "DOY", "HOUR", "MINUTE",
         "SECOND", "YEAROFWEEK"]  # fmt: skip
UNITS = ["YEAR", "quarter", "MONTH", "mon", "mm", "WEEK", "DAY", "dd", "HOUR", "minute", "SECOND", "MILLISECOND",
         "MICROSECOND", "yyyy", "yy", "bad"]  # fmt: skip
CAST_TARGETS = {
    "B": ["INT", "STRING", "DOUBLE", "BIGINT", "DECIMAL(10,2)", "TINYINT"],
    "I": ["STRING", "BIGINT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)", "DECIMAL(3,0)", "BOOLEAN",
          "TIMESTAMP"],
    "L": ["STRING", "INT", "DOUBLE", "FLOAT", "DECIMAL(20,0)", "BOOLEAN", "TIMESTAMP", "SMALLINT"],
    "F": ["STRING", "INT", "DOUBLE", "DECIMAL(10,2)", "BOOLEAN", "BIGINT"],
    "D": ["STRING", "INT", "BIGINT", "FLOAT", "DECIMAL(10,2)", "DECIMAL(38,10)", "BOOLEAN", "TIMESTAMP"],
    "M": ["STRING", "INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(5,1)", "DECIMAL(38,18)", "BOOLEAN", "TIMESTAMP"],
    "S": ["STRING", "INT", "BINARY", "DATE"],
    "N": ["INT", "BIGINT", "TINYINT", "SMALLINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)", "DECIMAL(4,3)", "BOOLEAN"],
    "E": ["DATE", "TIMESTAMP", "TIMESTAMP_NTZ"], "T": ["STRING", "TIMESTAMP", "TIMESTAMP_NTZ"],
    "Z": ["STRING", "DATE", "TIMESTAMP_NTZ", "BIGINT", "DOUBLE", "DECIMAL(20,6)", "INT"],
    "W": ["STRING", "DATE", "TIMESTAMP"], "X": ["STRING"],
}  # fmt: skip
TEMPLATES: dict[str, list[str]] = {
    "I": [
        "length({S})", "char_length({S})", "character_length({S})", "len({S})", "length({X})", "instr({S}, {S})",
        "locate({s}, {S})", "locate({S}, {S}, {i})", "position({s} IN {S})", "position({s}, {S})",
        *(f"{name}({{{kind}}})" for kind in "TZWE" for name in
          ("year", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "quarter", "weekofyear")),
        *(f"{name}({{{kind}}})" for kind in "ZWTE" for name in ("hour", "minute", "second")),
        *(f"extract({part} FROM {{{kind}}})" for kind in "TZW" for part in PARTS if kind != "T" or part[1:] not in
          ("OUR", "INUTE", "ECOND")),
        *(f"date_part('{part}', {{{kind}}})" for kind in "TZ" for part in ("YEAR", "MONTH", "D", "y", "doy", "mon")),
        "datediff({T}, {T})", "datediff({Z}, {T})", "datediff({e}, {T})", "date_diff({T}, {W})",
        "size({A})", "size({G})", "size({K})", "cardinality({A})", "cardinality({J})", "size(NULL)",
        "{A}[{i}]", "{A}[0]", "element_at({A}, {i})", "element_at({A}, 1)", "element_at({A}, -1)",
        "try_element_at({A}, {i})", "try_element_at({A}, {I})", "{K}['a']", "{K}[{s}]", "{K}[{S}]",
        "element_at({K}, {s})", "try_element_at({K}, {S})", "element_at({K}, {S})", "{R}.x", "r.z[0]",
        "{I} {o} {i}", "{I} {o} {I}", "-{I}", "abs({I})", "{I} % {i}", "mod({I}, {i})", "pmod({I}, {i})",
        "{I} % {I}", "pmod({I}, {I})", "nullif({I}, {i})", "coalesce({I}, {i})", "nvl({I}, {I})", "ifnull({I}, 0)",
        "nvl2({B}, {I}, {i})", "nvl2({S}, {I}, {I})", "if({B}, {I}, {i})",
        "CASE WHEN {B} THEN {I} WHEN {B} THEN {i} END", "CASE {I} WHEN 1 THEN {I} ELSE {i} END",
        "CASE WHEN {B} THEN {I} ELSE {I} END", "greatest({I}, {I})", "least({I}, {i}, {I})", "round({I}, {i})",
        "round({I})", "try_cast({N} AS INT)", "try_cast({S} AS INT)", "CAST({N} AS INT)", "try_add({I}, {i})",
        "try_subtract({I}, {I})", "try_multiply({I}, {i})", "{I} DIV {i}", "ascii({S})", "month(add_months({T}, {i}))",
        "try_cast({D} AS INT)", "try_cast({L} AS INT)", "positive({I})", "negative({I})", "{I} & {i}", "{I} | {I}",
        "{I} ^ {i}", "~{I}", "array_position({A}, {i})", "bit_length({S})", "octet_length({S})", "signum({I})",
        "find_in_set({s}, {S})", "levenshtein({S}, {s})",
    ],
    "L": [
        "{L} {o} {l}", "{L} + {I}", "{I} * {l}", "-{L}", "abs({L})", "ceil({D})", "floor({D})", "ceiling({F})",
        "floor({I})", "ceil({L})", "floor({F})", "{L} % {l}", "pmod({L}, {I})", "{L} DIV {i}", "CAST({N} AS BIGINT)",
        "try_cast({N} AS BIGINT)", "greatest({L}, {I})", "coalesce({L}, {I})", "unix_date({T})", "unix_micros({Z})",
        "unix_seconds({Z})", "unix_millis({Z})", "unix_timestamp({Z})", "unix_timestamp({T})", "unix_timestamp({E})",
        "unix_timestamp({W})", "to_unix_timestamp({Z})", "try_add({L}, {l})", "{L} - {I}", "round({L}, {i})",
        "if({B}, {L}, {I})", "nullif({L}, {I})", "CASE WHEN {B} THEN {L} ELSE {I} END", "least({I}, {L})",
    ],
    "D": [
        "{D} {o} {d}", "{D} {o} {I}", "{D} / {I}", "{I} / {i}", "{I} / {I}", "{F} {o} {I}", "{F} {o} {F}",
        "{F} * {D}", "-{D}", "abs({D})", "sign({D})", "sign({I})", "sign({M})", "signum({F})", "round({D}, {i})",
        "round({D})", "round({F}, 1)", "round({D}, 2)", "round({F})", "bround({D}, 1)", "bround({D})", "{D} % {d}",
        "pmod({D}, {d})", "mod({D}, {I})", "{F} % {i}", "try_divide({I}, {i})", "try_divide({D}, {d})", "nanvl({D}, {d})",
        "CAST({N} AS DOUBLE)", "try_cast({N} AS DOUBLE)", "try_cast({S} AS DOUBLE)", "greatest({D}, {d})",
        "least({D}, {I})", "greatest({F}, {D})", "coalesce({D}, {I})", "coalesce({F}, {d})", "nullif({D}, {d})",
        "sqrt({D})", "{N} + {I}", "{N} * {d}", "{D} - {n}", "{N} / {i}", "if({B}, {D}, {F})", "if({B}, {D}, {M})",
        "{D} + {M}", "{F} + {M}", "{M} * {d}", "{F} + {L}", "{H} * {F}", "nvl({F}, {I})", "exp({i})", "ln({D})",
        "log10({D})", "log2({D})", "power({I}, {i})", "pow({D}, 2)", "cbrt({D})",
    ],
    "M": [
        "{M} {o} {m}", "{M} {o} {M}", "{M} {o} {I}", "{M} {o} {L}", "{M} / {m}", "{M} / {I}", "{M} / {M}", "{I} / {m}",
        "{M} % {m}", "{M} % {I}", "pmod({M}, {m})", "mod({M}, 3)", "-{M}", "abs({M})", "round({M}, 1)", "round({M})",
        "round({M}, {i})", "bround({M}, 1)", "ceil({M})", "floor({M})", "greatest({M}, {m})", "least({M}, {I})",
        "coalesce({M}, {m})", "coalesce({M}, {I})", "nullif({M}, {m})", "CAST({N} AS DECIMAL(10,2))",
        "try_cast({N} AS DECIMAL(6,3))", "if({B}, {M}, {I})", "CASE WHEN {B} THEN {m} ELSE {M} END",
        "try_divide({M}, {m})", "try_add({M}, {m})", "try_cast({M} AS DECIMAL(4,1))", "try_cast({D} AS DECIMAL(5,2))",
        "nvl({M}, 0)", "{M} + 1", "{M} * 1.1", "{m} - {M}", "ceil({M}, 1)", "floor({D}, 1)", "floor({M}, 1)", "{M} DIV {i}",
    ],
    "S": [
        "upper({S})", "lower({S})", "ucase({S})", "lcase({S})", "trim({S})", "ltrim({S})", "rtrim({S})", "btrim({S})",
        "btrim({S}, {s})", "trim(BOTH {s} FROM {S})", "trim(LEADING {s} FROM {S})", "trim(TRAILING {s} FROM {S})",
        "trim({s} FROM {S})", "ltrim({s}, {S})", "rtrim({s}, {S})", "substring({S}, {i})", "substring({S}, {i}, {i})",
        "substr({S}, {i}, {I})", "substr({S}, 2)", "substring({S} FROM {i})", "substring({S} FROM {i} FOR {i})",
        "substring({S}, {I}, {I})", "left({S}, {i})", "right({S}, {i})", "left({S}, {I})", "right({S}, {I})",
        "concat({S}, {S})", "concat({S}, {s}, {S})", "{S} || {s}", "{S} || {I}", "concat({I}, {S})", "concat({S})",
        "concat({T}, {S})", "concat()", "replace({S}, {s}, {s})", "replace({S}, {s})", "replace({S}, {S}, {s})",
        "lpad({S}, 7, {s})", "rpad({S}, 7, {s})", "lpad({S}, {i})", "rpad({S}, {I}, '*')", "lpad({S}, 3, '-')",
        "rpad({S}, 12)", "repeat({S}, {i})", "reverse({S})", "split_part({S}, {s}, {i})", "split_part({S}, ',', 2)",
        "split_part({S}, ' ', -1)", "concat_ws({s}, {S}, {S})", "concat_ws('-', {S}, {s}, {I})", "concat_ws(',')",
        "concat_ws(',', {G})", "initcap({S})", "nullif({S}, {s})", "coalesce({S}, {s})", "nvl({S}, {S})",
        "nvl2({I}, {S}, {s})", "if({B}, {S}, {s})", "CASE WHEN {B} THEN {S} ELSE {s} END", "greatest({S}, {S})",
        "least({S}, {s})", "CAST({S} AS STRING)", "{G}[{i}]", "element_at({G}, {i})", "try_element_at({G}, {I})",
        "{J}[{i}]", "element_at({J}, {I})", "{R}.y", "date_format({T}, 'yyyy-MM')", "date_format({Z}, 'yyyy-MM-dd HH:mm:ss')",
        "date_format({W}, 'dd/MM/yyyy')", "date_format({Z}, 'HH:mm:ss.SSS')", "translate({S}, 'abp', 'x')",
        "regexp_extract({S}, '([a-z]+)', 1)", "regexp_replace({S}, '[a-c]', '#')", "substring_index({S}, ' ', 1)",
        "overlay({S} PLACING 'zz' FROM 2)", "chr({I})", "hex({I})", "space({i})", "soundex({S})", "md5({S})",
        "array_join({G}, ',')", "upper(left({S}, 1)) || lower(substring({S}, 2))", "string({I})", "upper({I})",
        "reverse({I})", "lower({N})", "trim({E})", "substring({E}, 1, 4)", "left({E}, 7)", "upper({T})", "length({D}) || ''",
    ],
    "N": ["CAST({I} AS STRING)", "CAST({L} AS STRING)", "trim({N})", "concat({N}, '0')", "substring({N}, 1, 2)",
          "coalesce({N}, {n})", "replace({N}, '.', '')"],
    "E": ["CAST({T} AS STRING)", "coalesce({E}, {e})", "left({E}, 10)", "concat({E}, '')", "CAST({Z} AS STRING)"],
    "T": [
        "to_date({E})", "to_date({Z})", "to_date({T})", "to_date({W})", "to_date({e}, 'yyyy-MM-dd')",
        "to_date({E}, {q})", "to_date({S}, {q})", "try_to_date({E}, {q})", "CAST({E} AS DATE)", "CAST({Z} AS DATE)",
        "try_cast({E} AS DATE)", "try_cast({S} AS DATE)", "date({Z})", "date({E})", "date_add({T}, {i})",
        "date_sub({T}, {i})", "date_add({T}, {I})", "dateadd({T}, 1)", "date_add({E}, 1)", "date_add({Z}, {i})",
        "add_months({T}, {i})", "add_months({T}, {I})", "add_months({Z}, 1)", "last_day({T})", "last_day({Z})",
        "last_day({E})", *(f"trunc({{T}}, '{unit}')" for unit in UNITS), "trunc({Z}, 'MONTH')", "trunc({E}, 'yy')",
        "next_day({T}, 'MON')", "make_date({I}, {i}, 1)", "{T} + {i}", "{T} - {i}", "{T} + {v}", "{T} - {v}",
        "nullif({T}, {t})", "coalesce({T}, {t})", "greatest({T}, {t})", "least({T}, {T})", "if({B}, {T}, {t})",
        "CASE WHEN {B} THEN {T} END", "date_from_unix_date({I})", "coalesce({T}, {e})", "date_trunc('DAY', {Z})::DATE",
    ],
    "Z": [
        "to_timestamp({E})", "to_timestamp({Z})", "to_timestamp({T})", "to_timestamp({E}, 'yyyy-MM-dd')",
        "to_timestamp({E}, {q})", "try_to_timestamp({E})", "try_to_timestamp({E}, 'yyyy-MM-dd')",
        "CAST({E} AS TIMESTAMP)", "CAST({T} AS TIMESTAMP)", "CAST({W} AS TIMESTAMP)", "try_cast({E} AS TIMESTAMP)",
        "CAST({L} AS TIMESTAMP)", "CAST({I} AS TIMESTAMP)", *(f"date_trunc('{unit}', {{Z}})" for unit in UNITS),
        *(f"date_trunc('{unit}', {{W}})" for unit in UNITS[::3]), "date_trunc('DAY', {T})", "date_trunc('MONTH', {E})",
        "{Z} + {v}", "{Z} - {v}", "nullif({Z}, {z})", "coalesce({Z}, {z})", "greatest({Z}, {z})", "least({Z}, {z})",
        "if({B}, {Z}, {z})", "CASE WHEN {B} THEN {Z} ELSE {T} END", "timestamp({E})", "timestamp_seconds({I})",
        "timestamp_millis({L})", "timestamp_micros({L})", "from_utc_timestamp({Z}, 'Asia/Seoul')", "coalesce({Z}, {W})",
    ],
    "W": ["to_timestamp_ntz({E})", "CAST({E} AS TIMESTAMP_NTZ)", "CAST({Z} AS TIMESTAMP_NTZ)",
          "CAST({T} AS TIMESTAMP_NTZ)", "try_cast({E} AS TIMESTAMP_NTZ)", "{W} + {v}", "{W} - {v}",
          "coalesce({W}, {w})", "greatest({W}, {w})", "if({B}, {W}, {w})", "date_trunc('HOUR', {W})"],
    "X": ["CAST({S} AS BINARY)", "coalesce({X}, X'00')", "{X} || X'61'", "substring({X}, 1, 1)", "nullif({X}, X'61')"],
    "B": [
        *(f"{{{one}}} {{c}} {{{other}}}" for one, other in (
            ["Ii", "Ll", "Dd", "Mm", "Ss", "Nn", "Tt", "Te", "Zz", "Ze", "Zt", "Ww", "We", "Wt", "Wz", "Zw", "II", "LI", "DI", "FI", "MI", "MD", "ML", "FD", "SS", "NI", "IN", "Nl", "Nd", "Nm", "DN", "MN", "TE", "ZE", "WE", "ET", "EZ", "TZ", "ZT", "TW", "WT", "ZW", "Bn", "bN", "XX", "XS", "Sx", "In", "Ld", "Dm", "Im", "Lm", "Fd", "Fm", "Tz", "Tw", "Ft", "bb", "Id", "Mi", "Hi", "Fi", "Fl", "Ds"])
          if one != "b" and other not in ("b", "x")),
        "{B} {c} TRUE", "b {c} {B}", "b = 'true'", "b = 'yes'", "b = n", "x = X'61'", "x = 'a'", "x > s",
        "startswith({S}, {s})", "endswith({S}, {S})", "contains({S}, {s})", "contains({S}, {S})", "startswith({S}, {S})",
        "{S} LIKE 'a%'", "{S} LIKE '%a%'", "{S} LIKE '_'", "{S} LIKE {S}", "{S} NOT LIKE '%b_'", "{S} LIKE 'a/%%' ESCAPE '/'",
        "{S} ILIKE 'A%'", "{S} ILIKE '%I%'", "{S} NOT ILIKE {s}", "{S} RLIKE {y}", "{S} RLIKE {y}", "regexp_like({S}, {y})",
        "regexp({S}, {y})", "rlike({S}, 'a')", "{S} REGEXP {y}", "{S} NOT RLIKE {y}", "like({S}, 'a%')", "ilike({S}, '%A%')",
        "array_contains({A}, {i})", "array_contains({A}, {I})", "array_contains({G}, {s})", "array_contains({G}, {S})",
        "map_contains_key({K}, 'a')", "map_contains_key({K}, {S})", "{B} AND {B}", "{B} OR {B}", "NOT {B}", "({B}) = ({B})",
        "{B} IS NULL", "{I} IS NULL", "{S} IS NOT NULL", "{A} IS NULL", "{K} IS NOT NULL", "{K}['a'] IS NULL",
        "{A}[0] IS NOT NULL", "{B} IS TRUE", "{B} IS NOT FALSE", "isnull({T})", "isnotnull({D})", "isnan({D})",
        "isnan({F})", "{I} IN ({i}, {i})", "{I} IN ({I}, {I})", "{S} IN ({s}, {s})", "{I} IN ('1', '2')", "{N} IN (1, 25)",
        "{T} IN ('2024-03-10', {t})", "{Z} IN ('2024-03-10 02:30:00', {z})", "{W} IN ('2024-03-10 02:30:00')",
        "{D} IN ({d}, 1)", "{M} IN ({m}, 1, 2.5)", "{I} NOT IN ({i}, 3)", "{S} NOT IN ({S}, 'x')", "{T} IN ({e}, {e})",
        "{I} BETWEEN {i} AND {i}", "{D} BETWEEN -1 AND {I}", "{T} BETWEEN {e} AND '2024-12-31'", "{S} BETWEEN 'a' AND {s}",
        "{Z} BETWEEN '2024-01-01' AND {z}", "{W} BETWEEN {w} AND {z}", "{N} BETWEEN 0 AND 10", "{M} NOT BETWEEN 0 AND {D}",
        "{Z} > {z} - {v}", "{W} > {w} + {v}", "{T} >= {t} - {v}", "{Z} - {v} < {Z}", "try_cast({N} AS INT) IS NULL",
        "try_cast({E} AS DATE) IS NOT NULL", "year({T}) = 2024", "to_date({Z}) = {t}", "{K}['a'] > {i}", "size({A}) > {i}",
        "coalesce({B}, FALSE)", "nvl({B}, {B})", "if({B}, {B}, {B})", "CASE WHEN {B} THEN {B} ELSE {B} END",
        "CASE WHEN {I} <> 0 THEN 10 / {I} > 1 END", "{I} <> 0 AND 10 / {I} > 2", "{I} = 0 OR 10 % {I} = 1",
        "equal_null({I}, {i})", "exists({A}, v -> v > 1)", "{S} LIKE ANY ('a%', '%x')", "{S} LIKE ALL ('a%', '%e')",
        "{I} == {i}", "{I} != {I}", "!{B}", "{D} IN (0D)", "({I}, 1) = (1, 1)", "current_date() > {T}",
        "current_timestamp() >= {Z}", "now() > ts", "{r} IS NULL", "{R} IS NOT NULL",
        "CAST({N} AS BOOLEAN)", "try_cast({S} AS BOOLEAN)", "bool_x({I})" , "lenght({S}) > 1",
    ],
}  # fmt: skip
for _kind, _targets in CAST_TARGETS.items():
    for _target in _targets:
        for _form in ("CAST", "try_cast"):
            _name = _target.split("(")[0]
            _class = {"STRING": "S", "INT": "I", "BIGINT": "L", "DOUBLE": "D", "FLOAT": "F", "DECIMAL": "M",
                      "BOOLEAN": "B", "TIMESTAMP": "Z", "DATE": "T", "TIMESTAMP_NTZ": "W", "BINARY": "X",
                      "SMALLINT": "I", "TINYINT": "I"}[_name]  # fmt: skip
            TEMPLATES.setdefault(_class, []).append(f"{_form}({{{_kind}}} AS {_target})")
TEMPLATES["B"] = [t for t in TEMPLATES["B"] if "{r}" not in t and "{x}" not in t]
HOLE = re.compile(r"\{(\w)\}")


def fill(template: str, depth: int, dice: random.Random) -> str:
    """The template with its holes filled, calls in them down to a depth."""

    def one(match: re.Match[str]) -> str:
        kind = match[1]
        if depth and kind in TEMPLATES and dice.random() < 0.7:
            inner = fill(dice.choice(TEMPLATES[kind]), depth - 1, dice)
            return inner if re.fullmatch(r"\w+(\([^()]*\))?", inner) else f"({inner})"
        if kind not in LEAVES:
            return fill(dice.choice(TEMPLATES[kind]), 0, dice)
        return dice.choice(LEAVES[kind])

    return HOLE.sub(one, template)


def listed(dice: random.Random) -> list[tuple[str, int]]:
    """Each template over each set of rows or over some, with plain operands."""
    cases: dict[tuple[str, int], None] = {}
    for templates in TEMPLATES.values():
        for template in templates:
            for group in (dice.choice((0, 1)), dice.choice((2, 3, 4))):
                cases[fill(template, 0, dice), group] = None
    return list(cases)


def composed(dice: random.Random, count: int) -> list[tuple[str, int]]:
    """Random compositions."""
    cases: dict[tuple[str, int], None] = {}
    kinds = ["B"] * 6 + ["I", "L", "D", "M", "S", "S", "T", "Z", "W"]
    while len(cases) < count:
        kind = dice.choice(kinds)
        group = dice.choice((0, 0, 1, 1, 2, 3, 4))
        cases[fill(dice.choice(TEMPLATES[kind]), dice.choice((1, 1, 2)), dice), group] = None
    return list(cases)


COUNTS = (
    "add_months(dt, {})", "bround(d, {})", "ceil(m, {})", "date_add(dt, {})", "date_from_unix_date({})",
    "date_sub(dt, {})", "floor(d, {})", "get(a, {})", "a[{}]", "element_at(a, {})", "isnan({})", "left(s, {})",
    "locate('a', s, {})", "lpad(s, {}, 'x')", "nanvl({}, d)", "pmod({}, 2)", "repeat(s, {})", "right(s, {})",
    "round(m, {})", "rpad(s, {}, 'x')", "sign({})", "space({})", "split_part(s, ',', {})", "sqrt({})",
    "substring(s, {})", "substring(s, 2, {})", "substring_index(s, ',', {})", "timestamp_micros({})",
    "timestamp_millis({})", "timestamp_seconds({})", "try_add({}, 1)", "try_divide({}, 2)", "try_mod({}, 2)",
)  # fmt: skip
"""Calls that take a number, mostly a whole one."""


def numbers() -> list[tuple[str, int]]:
    """Each of them with numbers of other types: Spark cuts them, takes them as they are, or refuses."""
    arguments = ("t", "d", "f", "m", "p", "n", "s", "1.5", "-2.5D", "'2'", "NULL", "1.0000005", "CAST('NaN' AS DOUBLE)")
    return [(call.format(argument), group) for call in COUNTS for argument in arguments for group in (0, 2)]


def text(value: str) -> str:
    return "'" + "".join(c if " " <= c < "\x7f" and c not in "'\\" else f"\\U{ord(c):08x}" for c in value) + "'"


def literal(value: Any, kind: str) -> str:
    """SQL of a value in a column of a type."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if kind.startswith("array"):
        inner = kind[6:-1]
        return f"CAST(array({', '.join(literal(v, inner) for v in value)}) AS {kind})"
    if kind.startswith("map"):
        key, item = kind[4:-1].split(",")
        pairs = ", ".join(f"{literal(k, key)}, {literal(v, item)}" for k, v in value)
        return f"CAST(map({pairs}) AS {kind})"
    if kind.startswith("struct"):
        fields = {"x": "int", "y": "string", "z": "array<int>"}
        return "named_struct(" + ", ".join(f"'{n}', {literal(value[n], k)}" for n, k in fields.items()) + ")"
    if kind == "string":
        return text(value)
    if kind == "binary":
        return f"X'{value}'"
    if kind == "date":
        return f"date_from_unix_date({value})"
    if kind == "timestamp":
        return f"timestamp_micros({value}L)"
    if kind == "timestamp_ntz":
        moment = datetime(1970, 1, 1) + timedelta(microseconds=value)
        return f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ')}'"
    return f"CAST('{value}' AS {kind})"


def rows_sql(values: dict[str, list[Any]]) -> str:
    size = len(values["i"])
    rows = [", ".join(literal(values[n][row], k) for n, k in TYPES.items()) for row in range(size)]
    names = ", ".join(TYPES)
    lines = ", ".join(f"({number}, {row})" for number, row in enumerate(rows))
    return f"SELECT * FROM VALUES {lines} AS t(row, {names})"


def plain(name: str, kind: str) -> str:
    """SQL that brings a value to JSON without loss."""
    return {"timestamp": f"unix_micros({name})", "date": f"unix_date({name})", "binary": f"hex({name})"}.get(
        kind,
        name if kind in ("boolean", "tinyint", "smallint", "int", "bigint", "string") else f"CAST({name} AS STRING)",
    )


def _json(value: Any, kind: str) -> Any:
    if kind != "timestamp_ntz" or value is None:
        return value
    return int(np.datetime64(value.lstrip("+").replace(" ", "T"), "us").astype(np.int64))  # any year


SCALARS = re.compile(r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|date|timestamp|"
                     r"timestamp_ntz|binary")  # fmt: skip


def ask(frame: Any, cases: list[str]) -> dict[str, list[Any]]:
    """Type and values, or ``!`` and an error class, of each expression; together where none of them fails."""
    from pyspark.errors import PySparkException

    try:
        answers = frame.selectExpr("row", *(f"({sql}) AS e{n}" for n, sql in enumerate(cases)))
        kinds = [f.dataType.simpleString() for f in answers.schema.fields[1:]]
        known = [n for n, kind in enumerate(kinds) if SCALARS.fullmatch(kind)]
        rows = answers.selectExpr(*(f"{plain(f'e{n}', kinds[n])} AS e{n}" for n in known)).collect() if known else []
        found = {cases[n]: [kinds[n], [_json(row[f"e{n}"], kinds[n]) for row in rows]] for n in known}
        return found | {cases[n]: ["?", kinds[n]] for n in range(len(cases)) if n not in known}
    except PySparkException as error:
        if len(cases) == 1:
            return {cases[0]: ["!", error.getCondition() or "PARSE_SYNTAX_ERROR"]}
    except Exception as error:  # what Java throws and PySpark has no name for
        if len(cases) == 1:
            return {cases[0]: ["!", re.sub(r"\W.*", "", str(error).splitlines()[0])[:60]]}
    half = len(cases) // 2
    return ask(frame, cases[:half]) | ask(frame, cases[half:])


def main(seed: int, count: int, target: Path, *, lists: bool) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config(
        "spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false"
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    dice = random.Random(seed)
    cases = [*(listed(dice) if lists else []), *composed(dice, count), *(numbers() if lists else [])]
    document: dict[str, Any] = {"spark": spark.version, "seed": seed, "types": TYPES, "groups": []}
    for number, (name, values, zone) in enumerate(GROUPS):
        spark.conf.set("spark.sql.session.timeZone", zone)
        frame = spark.sql(rows_sql(values))
        own = list(dict.fromkeys(sql for sql, group in cases if group == number))
        answers: dict[str, list[Any]] = {}
        for start in range(0, len(own), 16):
            answers |= ask(frame, own[start : start + 16])
        kept = [[sql, *answers[sql]] for sql in own if answers[sql][0] != "?"]
        document["groups"].append({"rows": name, "zone": zone, "values": values, "cases": kept})
        print(name, zone, len(kept), sum(c[1] == "!" for c in kept), flush=True)
    raw = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    target.write_bytes(pa.Codec("zstd", compression_level=19).compress(raw, asbytes=True))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), lists=False)
    else:
        main(SEED, RANDOM_CASES, HERE / "functions_4.3.json.zst", lists=True)
