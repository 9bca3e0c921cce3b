"""Options of ``spark.read.format("lakedex")``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.expr import depends_on_zone, parse_predicate, to_sql, unknown_texts
from lakedex.expr.literals import session_zone
from lakedex.expr.nodes import Predicate

__all__ = ["ReadOptions", "parse_read_options"]

QUERY_TYPE = "hoodie.datasource.query.type"

_FIELDS = {
    "path": "path",
    "columns": "columns",
    "where": "where",
    "asOf": "as_of",
    "as_of": "as_of",
    "as.of.instant": "as_of",
    "skipping": "skipping",
    "hoodie.enable.data.skipping": "skipping",
    "timeZone": "timezone",
    "caseSensitive": "case_sensitive",
    "singleQuery": "single_query",
    QUERY_TYPE: "query_type",
}
"""Name of an option → what it sets. Several may set one thing, to one value."""

_BY_LOWER = {name.lower(): (name, field) for name, field in _FIELDS.items()}
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,\s][^`,]*?))\s*(?:,|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Parsed options.

    Attributes:
        path: the table's folder.
        columns: columns of the frame; None for all.
        where: a Spark SQL condition; None for all rows.
        as_of: an instant or time; None for the newest commit.
        skipping: False reads all files.
        timezone: the zone in which ``where`` writes timestamps; None where it was not said.
        case_sensitive: whether names in ``where`` match by their case.
        read_optimized: leave out the log files of a merge-on-read table.
        single_query: the user's word that one query reads the frame, and once; see :mod:`lakedex.spark.data_source`.
    """

    path: str
    columns: tuple[str, ...] | None = None
    where: str | None = None
    as_of: str | None = None
    skipping: bool = True
    timezone: str | None = None
    case_sensitive: bool = False
    read_optimized: bool = False
    single_query: bool = False

    def condition(self, schema: pa.Schema) -> Predicate | None:
        """The predicate that ``where`` means on columns of ``schema``.

        Raises:
            InvalidInputError: text that is no condition, or a column that does not exist.
            OptionError: its meaning depends on the session's time zone, which a Python worker is not told.
            UnsupportedFeatureError: a condition that only Spark evaluates.
        """
        if self.where is None:
            return None

        def parsed(where: str, zone: str) -> Predicate:
            return parse_predicate(where, schema, case_sensitive=self.case_sensitive, timezone=zone)

        predicate = parsed(self.where, self.timezone or "UTC")
        unknown = unknown_texts(predicate)
        if unknown:
            raise UnsupportedFeatureError(
                f"option where: {unknown[0]!r} is for Spark to evaluate; put it on the frame: .where(…)",
                feature=unknown[0],
            )
        if self.timezone is None:
            elsewhere = parsed(self.where, "+01:00")
            if to_sql(elsewhere) != to_sql(predicate) or depends_on_zone(predicate):
                raise OptionError(
                    f"option where: {self.where!r} depends on the time zone; give the option timeZone, or write the"
                    " timestamps with their offset",
                    option="timeZone",
                )
        return predicate


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check and convert options; their names match in any case.

    Raises:
        OptionError: an unknown option, a bad value, or two that contradict each other.
        UnsupportedFeatureError: a kind of query that ``format("lakedex")`` does not do.
    """
    found: dict[str, tuple[str, str]] = {}
    for given, value in options.items():
        known = _BY_LOWER.get(given.lower())
        if known is None:
            raise OptionError(_unknown(given), option=given)
        name, field = known
        before = found.setdefault(field, (name, value))
        if before[1] != value:
            raise OptionError(f"options {before[0]}={before[1]!r} and {name}={value!r}: give one of them", option=name)
    if "path" not in found:
        raise OptionError("format('lakedex') needs the table's path: .load(path)", option="path")
    texts = {field: value for field, (_, value) in found.items()}
    zone = texts.get("timezone")
    return ReadOptions(
        path=texts["path"],
        columns=None if "columns" not in texts else _names(texts["columns"]),
        where=texts.get("where"),
        as_of=texts.get("as_of"),
        skipping=_switch(*found.get("skipping", ("skipping", "true"))),
        timezone=None if zone is None else _zone(zone),
        case_sensitive=_switch(*found.get("case_sensitive", ("caseSensitive", "false"))),
        read_optimized=_is_read_optimized(texts.get("query_type", "snapshot")),
        single_query=_switch(*found.get("single_query", ("singleQuery", "false"))),
    )


def _unknown(given: str) -> str:
    near = difflib.get_close_matches(given.lower(), list(_BY_LOWER), n=1, cutoff=0.6)
    hint = f"did you mean {_BY_LOWER[near[0]][0]!r}?" if near else f"there are: {', '.join(_FIELDS)}"
    return f"unknown option {given!r} of format('lakedex'); {hint}"


def _is_read_optimized(value: str) -> bool:
    if value.lower() == "incremental":
        raise UnsupportedFeatureError(
            "format('lakedex') does no incremental queries; use Table.for_path(spark, path).changes(since).to_spark()",
            feature=f"{QUERY_TYPE}={value}",
        )
    if value.lower() not in ("snapshot", "read_optimized"):
        raise OptionError(f"option {QUERY_TYPE}={value!r}: give 'snapshot' or 'read_optimized'", option=QUERY_TYPE)
    return value.lower() == "read_optimized"


def _names(text: str) -> tuple[str, ...]:
    """Names between commas; one that has a comma itself stands in backquotes."""
    names = []
    position = 0
    while position < len(text):
        match = _NAME.match(text, position)
        if match is None:
            raise OptionError(f"option columns={text!r}: give names with commas between them", option="columns")
        names.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        position = match.end()
    if not names or len(set(names)) < len(names):
        raise OptionError(f"option columns={text!r}: give each column once, and at least one", option="columns")
    return tuple(names)


def _switch(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"option {name}={value!r}: give 'true' or 'false'", option=name)
    return value.lower() == "true"


def _zone(name: str) -> str:
    try:
        session_zone(name)
    except InvalidInputError as error:
        raise OptionError(f"option timeZone={name!r}: {error}", option="timeZone") from error
    return name
