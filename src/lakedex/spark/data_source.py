"""``spark.read.format("lakedex").load(path)``: a table as a Python Data Source, on classic sessions and Spark Connect.

PySpark 4.0 and later register it by themselves (``pyspark_lakedex``). Rows pass through Python workers, and Spark hands
over no column selection: that is the option ``columns``. So this way needs no set-up, and is not the fastest.

A condition that prunes files is the option ``where``. Spark 4.1 and later can hand over a query's filters
(``spark.sql.python.filterPushdown.enabled``), but for all scans of a frame they use the partitions of the scan planned
last (``PythonDataSourceV2.setReadInfo``): ``df.where(a).union(df.where(b))`` reads the files of ``b`` twice. So filters
are accepted only if the user promises, by the option ``singleQuery``, that one query reads the frame once.

Memory: a task holds one batch; planning holds the file list.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructField, StructType

from lakedex.arrow_types import conform
from lakedex.errors import InvalidInputError, LakedexError, OptionError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.expr.literals import session_zone
from lakedex.expr.nodes import Predicate, all_of
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate, depends_on_zone, to_sql, unknown_texts
from lakedex.expr.types import NotPrunableError
from lakedex.io.locations import open_storage
from lakedex.scan.incremental import EARLIEST, incremental_snapshot
from lakedex.scan.plan import plan_scan
from lakedex.scan.slice_reader import SliceReader, iter_slice_rows, packed
from lakedex.scan.time_travel import snapshot_at
from lakedex.snapshot.file_system_view import TableCache
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.data_source_filters import PushedFilter, column_at, pushed_predicate
from lakedex.spark.data_source_writer import StagedWriter
from lakedex.spark.option_names import is_sparks_own, matched, split_storage, switch
from lakedex.spark.schema import arrow_to_spark, nullable, spark_to_arrow
from lakedex.spark.session import short_errors
from lakedex.spark.staged_write import SETTINGS, NewTable
from lakedex.types import SessionRules

__all__ = ["QUERY_TYPE", "LakedexDataSource", "ReadOptions", "asked_columns", "parse_read_options"]


QUERY_TYPE = "hoodie.datasource.query.type"


BEGIN = "hoodie.datasource.read.begin.instanttime"


END = "hoodie.datasource.read.end.instanttime"


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
    BEGIN: "since",
    END: "until",
    "hoodie.datasource.query.incremental.format": "changes_format",
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "fallback",
    "location": "location",
}
"""Name of an option → what it sets. Several may set one thing, to one value."""


_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,\s][^`,]*?))\s*(?:,|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Parsed options.

    Attributes:
        path: the table's folder.
        storage_options: how its store is reached, by options ``storage.…``; None takes the environment.
        columns: columns of the frame; None for all.
        where: a Spark SQL condition; None for all rows.
        as_of: an instant or time; None for the newest commit.
        skipping: False reads all files.
        timezone: the zone in which ``where`` writes timestamps; None where it was not said.
        case_sensitive: whether names in ``where`` match by their case.
        read_optimized: leave out the log files of a merge-on-read table.
        single_query: the user's word that one query reads the frame, and once; see :mod:`lakedex.spark.data_source`.
        since: commits after it, for an incremental query; None for a query of all rows.
        until: last commit of an incremental query; None for the newest.
        changes_format: ``latest_state``, which is all that an incremental query does.
        fallback: read the newest files where an incremental query needs older ones that were cleaned.
        settings: what a table of Spark's session catalog says of itself; the table has to agree.
    """

    path: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    columns: tuple[str, ...] | None = None
    where: str | None = None
    as_of: str | None = None
    skipping: bool = True
    timezone: str | None = None
    case_sensitive: bool = False
    read_optimized: bool = False
    single_query: bool = False
    since: str | None = None
    until: str | None = None
    changes_format: str = "latest_state"
    fallback: bool = False
    settings: NewTable = field(default_factory=NewTable)

    def condition(self, schema: pa.Schema) -> Predicate | None:
        """The predicate that ``where`` means on columns of ``schema``.

        Raises:
            InvalidInputError: text that is no condition, or a column that does not exist.
            OptionError: its meaning depends on the session's time zone, which a Python worker does not know.
            UnsupportedFeatureError: a condition that only Spark evaluates.
        """
        if self.where is None:
            return None

        def parsed(where: str, zone: str) -> Predicate:
            return parse_predicate(where, schema, SessionRules(self.case_sensitive, zone))

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
    storage_options, options = split_storage(options)
    found, _ = matched(options, {**_FIELDS, **SETTINGS}, names=tuple(_FIELDS))
    # Spark's session catalog names the path of a table so.
    found.setdefault("path", found.get("location", ("path", "")))
    if not found["path"][1]:
        raise OptionError("format('lakedex') needs the table's path: .load(path)", option="path")
    texts = {field: value for field, (_, value) in found.items()}
    zone = texts.get("timezone")
    query_type = _query_type(found)
    return ReadOptions(
        path=texts["path"],
        storage_options=storage_options,
        columns=None if "columns" not in texts else _names(texts["columns"]),
        where=texts.get("where"),
        as_of=texts.get("as_of"),
        skipping=switch(*found.get("skipping", ("skipping", "true"))),
        timezone=None if zone is None else _zone(zone),
        case_sensitive=switch(*found.get("case_sensitive", ("caseSensitive", "false"))),
        read_optimized=query_type == "read_optimized",
        single_query=switch(*found.get("single_query", ("singleQuery", "false"))),
        since=_since(texts["since"]) if query_type == "incremental" else None,
        until=texts.get("until"),
        changes_format=texts.get("changes_format", "latest_state").strip().lower(),
        fallback=switch(*found.get("fallback", ("fallback", "false"))),
        settings=NewTable.of(found),
    )


def _query_type(found: Mapping[str, tuple[str, str]]) -> str:
    """Which query is meant; the options of an incremental one go with it only, and it needs to know where to begin."""
    kind = found.get("query_type", (QUERY_TYPE, "snapshot"))[1].strip().lower()
    if kind not in ("snapshot", "read_optimized", "incremental"):
        raise OptionError(
            f"option {QUERY_TYPE}={kind!r}: give 'snapshot', 'read_optimized' or 'incremental'", option=QUERY_TYPE
        )
    if kind == "incremental" and "since" not in found:
        raise OptionError(
            f"{QUERY_TYPE}=incremental needs {BEGIN}: the instant after which commits are read, or 'earliest'",
            option=BEGIN,
        )
    for own in ("as_of",) if kind == "incremental" else ("since", "until", "changes_format", "fallback"):
        if own in found:
            name = found[own][0]
            raise OptionError(f"option {name} does not go with {QUERY_TYPE}={kind}", option=name)
    return kind


def _since(text: str) -> str:
    """Where changes begin. Hudi's users write zeros for the first commit."""
    return EARLIEST if not text.strip().strip("0") else text


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


def _zone(name: str) -> str:
    try:
        session_zone(name)
    except InvalidInputError as error:
        raise OptionError(f"option timeZone={name!r}: {error}", option="timeZone") from error
    return name


_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class LakedexDataSource(DataSource):
    """A table of Hudi's format, read at one commit: that of ``load()``, or the one asked for."""

    pinned: str | None = None

    @classmethod
    def name(cls) -> str:
        """``lakedex``."""
        return "lakedex"

    def schema(self) -> StructType:
        """Hudi's meta columns and the table's, or those of the option ``columns``. Pins the commit."""
        with short_errors():
            options = parse_read_options(self.options)
            snapshot = _snapshot(options, None)
            # Spark sends this object to whatever plans a query of the frame.
            self.pinned = snapshot.instant
            snapshot, options = _changed(snapshot, options, None)
            options.condition(read_columns(snapshot.schema))
            found = cast("StructType", nullable(arrow_to_spark(_selected(snapshot, options))))
            return _remembering(found, self.options) if "location" in self.options else found

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a query."""
        with short_errors():
            options = parse_read_options(remembered(self.options, schema))
            # A reader that takes filters fails where Spark does not hand any over: in every worker but this one.
            made = _PushingReader if options.single_query and _PUSHDOWN_WORKER in sys.modules else _Reader
            snapshot = _snapshot(options, None if options.since else self.pinned)
            return made(*_changed(snapshot, options, self.pinned), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of one job; see :mod:`lakedex.spark.data_source_writer`."""
        with short_errors():
            return StagedWriter(self.options, schema, overwrite=overwrite)


_OPTIONS = "lakedex.options"


def _remembering(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema, with a table's options in Spark's session catalog: Spark keeps these, and hands readers none."""
    own = json.dumps({name: value for name, value in split_storage(options)[1].items() if not is_sparks_own(name)})
    return StructType(
        [StructField(f.name, f.dataType, f.nullable, {**(f.metadata or {}), _OPTIONS: own}) for f in schema.fields]
    )


def remembered(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of a read, and those of the table of Spark's session catalog that it is of."""
    own = next((f.metadata[_OPTIONS] for f in schema.fields if f.metadata and _OPTIONS in f.metadata), "{}")
    return {**json.loads(own), **options}


class _Reader(DataSourceReader):
    """Reads a snapshot. Only what :meth:`read` needs goes to the executors."""

    def __init__(self, snapshot: Snapshot, options: ReadOptions, schema: StructType) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._skipping = options.skipping
        self._target = spark_to_arrow(schema)
        self._chosen = asked_columns(snapshot, self._target)
        self._where = options.condition(read_columns(snapshot.schema))
        self._known = self._where
        self._task = self._make_task()

    def _make_task(self) -> SliceReader:
        snapshot = self._planned_on()
        return SliceReader(
            files=snapshot.files,
            table_columns=read_columns(snapshot.schema),
            names=tuple(self._chosen.names),
            predicate=BoundPredicate.of(self._known),
            use_indexes=self._skipping,
            merge=MergeSettings.of(snapshot) if snapshot.view().table.has_logs.any() else None,
        )

    def _planned_on(self) -> Snapshot:
        if self._snapshot is None:
            raise InvalidInputError("a reader that was sent to an executor cannot plan")
        return self._snapshot

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader before it asks for partitions, and again for nothing else.
        return {**self.__dict__, "_snapshot": None, "_where": None, "_known": None}

    def partitions(self) -> Sequence[InputPartition]:
        """Kept files, small ones together. Never empty, so that a task without files is known from a lost one."""
        try:
            plan = plan_scan(self._planned_on(), BoundPredicate.of(self._where), use_indexes=self._skipping)
            return [InputPartition(slices) for slices in packed(plan.slices)] or [InputPartition(())]
        except LakedexError as error:
            # PySpark takes a NotImplementedError for a reader without partitions, and would read nothing.
            raise RuntimeError(str(error)) from error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Rows of some files as Arrow batches of exactly the schema that Spark expects."""
        for item in partition.value:
            for batch in iter_slice_rows(self._task, item):
                yield _renamed(batch, self._target)


class _PushingReader(_Reader):
    """Also takes the filters that Spark hands over. All of them are given back: Spark applies them again."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Prune files by the filters, and rows by those that can be evaluated here."""
        schema = read_columns(self._planned_on().schema)
        pushed = [pushed_predicate(_plain(item), schema) for item in filters]
        self._known = _all([self._known, *(one for one in pushed if not unknown_texts(one))])
        self._where = _all([self._where, *pushed])
        self._task = self._make_task()
        return filters


def _snapshot(options: ReadOptions, pinned: str | None) -> Snapshot:
    files = open_storage(options.path, options.storage_options)
    cache = TableCache()
    load = partial(Snapshot.load, files, cache, read_optimized=options.read_optimized)
    found = snapshot_at(load, options.as_of, pinned=pinned)
    options.settings.require_same(found.config, str(found.files))
    return found


def _changed(newest: Snapshot, options: ReadOptions, pinned: str | None) -> tuple[Snapshot, ReadOptions]:
    """For an incremental query the files that its commits changed, and the condition on their rows."""
    if options.since is None:
        return newest, options
    found = incremental_snapshot(
        newest,
        options.since,
        options.until or pinned,
        format=options.changes_format,
        fallback="full" if options.fallback else None,
    )
    return found.snapshot, replace(options, where=found.condition(options.where))


def _selected(snapshot: Snapshot, options: ReadOptions) -> pa.Schema:
    """Columns that the option ``columns`` names, in its order."""
    whole = read_columns(snapshot.schema)
    if options.columns is None:
        return whole
    return pa.schema([whole.field(_find(name, whole, snapshot)) for name in options.columns])


def _find(name: str, schema: pa.Schema, snapshot: Snapshot) -> str:
    try:
        return column_at((name,), schema).name
    except NotPrunableError:
        raise InvalidInputError(
            f"table {snapshot.config.name} has no column {name!r}: {', '.join(schema.names)}", column=name
        ) from None


def asked_columns(snapshot: Snapshot, target: pa.Schema) -> pa.Schema:
    """The table's columns behind a schema that Spark asks for, which may be the user's own."""
    whole = read_columns(snapshot.schema)
    found = []
    for wanted in target:
        column = whole.field(_find(wanted.name, whole, snapshot))
        stored, asked = (nullable(arrow_to_spark(pa.schema([pa.field("c", f.type)]))) for f in (column, wanted))
        if stored != asked or not wanted.nullable:
            raise SchemaMismatchError(
                f"column {wanted.name!r} of table {snapshot.config.name} is {column.type}, nullable; read it as that"
                " and cast it afterwards",
                column=wanted.name,
                expected=str(column.type),
                found=f"{wanted.type}{'' if wanted.nullable else ' not null'}",
            )
        found.append(column)
    return pa.schema(found)


def _all(predicates: Sequence[Predicate | None]) -> Predicate | None:
    return all_of([one for one in predicates if one is not None])


def _plain(pushed: Any) -> PushedFilter:
    """A filter object as plain values."""
    name = type(pushed).__name__
    if name == "Not":
        return name, (), _plain(pushed.child)
    path = tuple(str(part) for part in getattr(pushed, "attribute", ()))
    return name, path, getattr(pushed, "value", None)


def _renamed(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch under the names that Spark asked for, which may differ in case."""
    return conform(batch.rename_columns(target.names), target)
