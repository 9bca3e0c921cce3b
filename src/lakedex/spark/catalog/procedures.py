"""``CALL lake.system.<name>(table => 'trips', …)``: Hudi's procedures, answered by ``Table`` on the driver (Spark 4).

Names, arguments and first columns are those of Hudi's procedures, as far as they have a meaning here. Spark hands over
the arguments as a row, and takes the result as a local scan, so nothing of lakedex runs on executors for a ``CALL``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakedex.arrow_types import as_table, conform, normal_schema
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.catalog.local_rows import LocalRows
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import arrow_to_spark

__all__ = ["PROCEDURE_CATALOG", "Procedures"]


_CATALOG = "org.apache.spark.sql.connector.catalog."


PROCEDURE_CATALOG = f"{_CATALOG}ProcedureCatalog"
"""The interface of a catalog with procedures; Spark 3.5 lacks it."""


_NAMESPACE = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Argument:
    """An argument: its SQL type, and the SQL text that stands for it when it is left out; None requires it."""

    name: str
    kind: str = "STRING"
    default: str | None = "NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Procedure:
    """A procedure: what it does with a table and the arguments that are not null."""

    about: str
    run: Callable[[Any, Mapping[str, Any]], pa.Table]
    more: tuple[_Argument, ...] = ()


def _row(**values: tuple[Any, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array([value], kind) for name, (value, kind) in values.items()})


def _done(name: str, **values: tuple[Any, pa.DataType]) -> pa.Table:
    """Hudi's answer, a column ``name`` that is true, and what else is known."""
    return _row(**{name: (True, pa.bool_()), **values})


def _show_commits(table: Any, given: Mapping[str, Any]) -> pa.Table:
    return table.inspect.history(given["limit"], archived=given["show_archived"])


def _show_timeline(table: Any, given: Mapping[str, Any]) -> pa.Table:
    rows = table.inspect.timeline()[::-1][: given["limit"]]
    return rows.select(["requested", "action", "state", "completed"]).rename_columns(
        ["instant_time", "action", "state", "completed_time"]
    )


def _show_savepoints(table: Any, given: Mapping[str, Any]) -> pa.Table:
    names = {
        "instant": "savepoint_time",
        "user": "savepointed_by",
        "made_at": "savepointed_at",
        "comment": "comments",
        "files": "files",
        "partitions": "partitions",
    }
    found = table.maintenance.savepoints().select(list(names)).rename_columns(list(names.values()))
    return found[::-1][: given["limit"]]


def _create_savepoint(table: Any, given: Mapping[str, Any]) -> pa.Table:
    made = table.maintenance.savepoint(
        given.get("commit_time"), comment=given.get("comments", ""), user=given.get("user", "")
    )
    return _done("create_savepoint_result", commit_time=(made, pa.string()))


def _delete_savepoint(table: Any, given: Mapping[str, Any]) -> pa.Table:
    table.maintenance.delete_savepoint(given["instant_time"])
    return _done("delete_savepoint_result")


def _rollback_to_savepoint(table: Any, given: Mapping[str, Any]) -> pa.Table:
    done = table.maintenance.restore(given["instant_time"])
    undone = (list(done.undone), pa.list_(pa.string()))
    return _done("rollback_savepoint_result", instant=(done.instant, pa.string()), undone=undone)


def _rollback_to_instant(table: Any, given: Mapping[str, Any]) -> pa.Table:
    done = table.maintenance.rollback(given["instant_time"])
    return _done("rollback_result", instant=(done.instant, pa.string()), latest=(done.latest, pa.string()))


_POLICIES = {
    "KEEP_LATEST_COMMITS": "commits",
    "KEEP_LATEST_BY_HOURS": "hours",
    "KEEP_LATEST_FILE_VERSIONS": "versions",
}


def _run_clean(table: Any, given: Mapping[str, Any]) -> pa.Table:
    numbers = {"commits": "retain_commits", "hours": "hours_retained", "versions": "file_versions_retained"}
    kept = {argument: given[name] for argument, name in numbers.items() if name in given}
    policy = given.get("clean_policy")
    options = {} if policy is None else {"hoodie.clean.policy": str(policy).upper()}
    if policy is not None and kept and _POLICIES.get(str(policy).upper()) not in kept:
        raise InvalidInputError(f"run_clean: clean_policy {policy} does not go with {', '.join(kept)}")
    done = table.maintenance.clean(dry_run=given["dry_run"], options={} if kept else options, **kept)
    return _row(
        start_clean_time=(done.instant, pa.string()),
        time_taken_in_millis=(int(done.seconds * 1000), pa.int64()),
        total_files_deleted=(done.files, pa.int32()),
        earliest_commit_to_retain=(done.earliest_retained, pa.string()),
        bytes_freed=(done.bytes_freed, pa.int64()),
        dry_run=(done.dry_run, pa.bool_()),
    )


_COMPACTIONS = pa.schema([("timestamp", pa.string()), ("operation_size", pa.int32()), ("state", pa.string())])


def _run_compaction(table: Any, given: Mapping[str, Any]) -> pa.Table:
    services, op = table.maintenance, str(given["op"]).lower()
    if op not in ("schedule", "run", "execute", "scheduleandexecute"):
        raise InvalidInputError(
            f"run_compaction: op is schedule, run, execute or scheduleandexecute, not {given['op']!r}"
        )
    if op in ("schedule", "scheduleandexecute"):
        runs = [services.compact(plan_only=op == "schedule")]
    elif "timestamp" in given:
        runs = [services.compact(instant=given["timestamp"])]
    else:
        runs = [services.compact(instant=instant) for instant in _pending_compactions(table)]
    state = "REQUESTED" if op == "schedule" else "COMPLETED"
    done = [(", ".join(run.instants), run.file_groups, state) for run in runs if run.instants]
    return pa.Table.from_pylist([dict(zip(_COMPACTIONS.names, row, strict=True)) for row in done], _COMPACTIONS)


def _pending_compactions(table: Any) -> dict[str, str]:
    """Instants and their states, oldest first."""
    found = table.inspect.timeline().to_pylist()
    return {i["requested"]: i["state"] for i in found if i["action"] == "compaction" and i["state"] != "COMPLETED"}


def _show_compaction(table: Any, given: Mapping[str, Any]) -> pa.Table:
    rows = [
        {
            "timestamp": instant,
            "operation_size": table.maintenance.compact(instant=instant, dry_run=True).file_groups,
            "state": state,
        }
        for instant, state in _pending_compactions(table).items()
    ]
    return pa.Table.from_pylist(rows[::-1][: given["limit"]], _COMPACTIONS)


def _refuse(name: str, instead: str) -> Callable[[Any, Mapping[str, Any]], pa.Table]:
    def run(table: Any, given: Mapping[str, Any]) -> pa.Table:
        raise UnsupportedFeatureError(f"table {table.path}: {name} is not supported yet; {instead}", feature=name)

    return run


def _rebuild_metadata(table: Any, given: Mapping[str, Any]) -> pa.Table:
    done = table.maintenance.rebuild_metadata()
    indexes = ([index.name for index in done.indexes], pa.list_(pa.string()))
    return _row(partitions=(done.partitions, pa.int64()), files=(done.files, pa.int64()), indexes=indexes)


def _refresh_index(table: Any, given: Mapping[str, Any]) -> pa.Table:
    done = table.indexes.refresh(given["index_name"])
    return _row(
        index_name=(done.name, pa.string()),
        files=(done.files, pa.int64()),
        bytes_written=(done.bytes_written, pa.int64()),
    )


def _advise(table: Any, given: Mapping[str, Any]) -> pa.Table:
    columns = [name.strip() for name in given["columns"].split(",")] if "columns" in given else None
    queries = [line.strip() for line in given["queries"].split(";") if line.strip()] if "queries" in given else None
    return table.indexes.advise(columns, queries).to_arrow()


def _explain(table: Any, given: Mapping[str, Any]) -> pa.Table:
    plan = table.scan(given.get("where")).explain(analyze=given["analyze"])
    return pa.table({"plan": pa.array(str(plan).splitlines(), pa.string())})


def _changes(table: Any, given: Mapping[str, Any]) -> pa.Table:
    most = given["limit"]
    scan = table.changes(given["since"], given.get("until"), where=given.get("where"))
    rows = scan.to_spark().limit(most + 1).toArrow()
    if rows.num_rows > most:
        raise InvalidInputError(
            f"table {table.path}: changes has more than {most:,} rows, which all go through the driver; give limit => "
            "…, where => …, or read Table.changes(…).to_spark()"
        )
    return rows


def _help(table: Any, given: Mapping[str, Any]) -> pa.Table:
    wanted = given.get("cmd")
    shown = {name: one for name, one in _PROCEDURES.items() if wanted in (None, name)}
    if not shown:
        raise InvalidInputError(f"there is no procedure {wanted!r}; known are {', '.join(_PROCEDURES)}")
    texts = [", ".join(map(_signature, _arguments(name, one))) for name, one in shown.items()]
    return pa.table(
        {"name": list(shown), "arguments": texts, "about": [one.about for one in shown.values()]},
        pa.schema([("name", pa.string()), ("arguments", pa.string()), ("about", pa.string())]),
    )


def _signature(argument: _Argument) -> str:
    left_out = "" if argument.default is None else f" = {argument.default}"
    return f"{argument.name} {argument.kind}{left_out}"


_INSTANT = _Argument(name="instant_time", default=None)


_LIMIT = _Argument(name="limit", kind="INT", default="20")


_PROCEDURES: Mapping[str, _Procedure] = {
    "show_commits": _Procedure(
        about="completed commits, newest first",
        run=_show_commits,
        more=(_LIMIT, _Argument(name="show_archived", kind="BOOLEAN", default="false")),
    ),
    "show_timeline": _Procedure(about="instants of the active timeline", run=_show_timeline, more=(_LIMIT,)),
    "show_savepoints": _Procedure(about="savepoints, newest first", run=_show_savepoints, more=(_LIMIT,)),
    "create_savepoint": _Procedure(
        about="keep a commit readable, by default the last one",
        run=_create_savepoint,
        more=(_Argument(name="commit_time"), _Argument(name="user"), _Argument(name="comments")),
    ),
    "delete_savepoint": _Procedure(
        about="let cleaning delete the files of a savepoint", run=_delete_savepoint, more=(_INSTANT,)
    ),
    "rollback_to_savepoint": _Procedure(
        about="undo all commits after a savepoint", run=_rollback_to_savepoint, more=(_INSTANT,)
    ),
    "rollback_to_instant": _Procedure(about="undo the last commit", run=_rollback_to_instant, more=(_INSTANT,)),
    "run_clean": _Procedure(
        about="delete files that only old commits need",
        run=_run_clean,
        more=(
            _Argument(name="clean_policy"),
            _Argument(name="retain_commits", kind="INT"),
            _Argument(name="hours_retained", kind="INT"),
            _Argument(name="file_versions_retained", kind="INT"),
            _Argument(name="dry_run", kind="BOOLEAN", default="false"),
        ),
    ),
    "run_compaction": _Procedure(
        about="merge log files; op is schedule, run (pending plans, or that of timestamp) or scheduleandexecute",
        run=_run_compaction,
        more=(_Argument(name="op", default=None), _Argument(name="timestamp")),
    ),
    "show_compaction": _Procedure(about="pending compactions, newest first", run=_show_compaction, more=(_LIMIT,)),
    "run_clustering": _Procedure(
        about="not supported yet",
        run=_refuse("run_clustering", "inserts fill small files, and insert_overwrite sorts a partition again"),
    ),
    "validate": _Procedure(
        about="differences between the metadata and the files; no rows if there are none",
        run=lambda table, given: table.maintenance.validate(given.get("files")).to_arrow(),
        more=(_Argument(name="files", kind="INT"),),
    ),
    "rebuild_metadata": _Procedure(about="rebuild the metadata table and its indexes", run=_rebuild_metadata),
    "show_indexes": _Procedure(about="indexes of the table", run=lambda table, given: table.indexes.list()),
    "refresh_index": _Procedure(
        about="cover the files that a bitmap index does not cover",
        run=_refresh_index,
        more=(_Argument(name="index_name", default=None),),
    ),
    "advise": _Procedure(
        about="columns that deserve a bitmap index; columns by commas, queries (WHERE conditions) by semicolons",
        run=_advise,
        more=(_Argument(name="columns"), _Argument(name="queries")),
    ),
    "explain": _Procedure(
        about="files that each index leaves out for a condition",
        run=_explain,
        more=(_Argument(name="where"), _Argument(name="analyze", kind="BOOLEAN", default="false")),
    ),
    "changes": _Procedure(
        about="rows that commits after since, up to until, inserted or updated",
        run=_changes,
        more=(
            _Argument(name="since", default="'earliest'"),
            _Argument(name="until"),
            _Argument(name="where"),
            _Argument(name="limit", kind="INT", default="10000"),
        ),
    ),
    "help": _Procedure(about="the procedures, or one of them", run=_help, more=(_Argument(name="cmd"),)),
}


def _arguments(name: str, procedure: _Procedure) -> tuple[_Argument, ...]:
    return procedure.more if name == "help" else (_Argument(name="table", default=None), *procedure.more)


class Procedures(JavaProxy):
    """The methods of ``ProcedureCatalog``, for the catalog."""

    _bridge: JavaBridge

    def loadProcedure(self, ident: JavaObject) -> JavaObject:
        """``CALL``."""
        namespace = [str(part).lower() for part in ident.namespace()]
        name = str(ident.name()).lower()
        if namespace != [_NAMESPACE] or name not in _PROCEDURES:
            known = ", ".join(_PROCEDURES)
            raise InvalidInputError(f"there is no procedure {'.'.join([*namespace, name])}; {_NAMESPACE} has {known}")
        return _Call(self._bridge, name, _PROCEDURES[name], self.table_of_call).java

    def listProcedures(self, namespace: JavaObject) -> JavaObject:
        """``SHOW PROCEDURES`` of Spark 4.1."""
        make = self._bridge.view.org.apache.spark.sql.connector.catalog.Identifier
        space = [str(part).lower() for part in namespace]
        names = list(_PROCEDURES) if space in ([], [_NAMESPACE]) else []
        found = [make.of(self._bridge.strings([_NAMESPACE]), name) for name in names]
        return self._bridge.array(f"{_CATALOG}Identifier", found)

    def table_of_call(self, name: str) -> Any:
        """The table that an argument names, with or without the catalog, or by its path."""
        raise NotImplementedError


class _Call(JavaProxy):
    """A procedure that is bound to any arguments: Spark casts them to the types of its parameters."""

    interfaces = (f"{_CATALOG}procedures.UnboundProcedure", f"{_CATALOG}procedures.BoundProcedure")

    def __init__(self, bridge: JavaBridge, name: str, procedure: _Procedure, open_table: Callable[[str], Any]) -> None:
        super().__init__(bridge)
        self._name = name
        self._procedure = procedure
        self._given = _arguments(name, procedure)
        self._open_table = open_table

    def name(self) -> str:
        """The procedure's."""
        return self._name

    def description(self) -> str:
        """Shown by ``DESCRIBE PROCEDURE``."""
        return f"{self._name}({', '.join(_signature(argument) for argument in self._given)}): {self._procedure.about}"

    def bind(self, types: JavaObject) -> JavaObject:
        """The procedure itself."""
        return self.java

    def parameters(self) -> JavaObject:
        """The arguments that ``CALL`` may name."""
        bridge = self._bridge
        make = bridge.view.org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
        found = []
        for argument in self._given:
            builder = getattr(make, "in")(argument.name, bridge.session.parseDataType(f'"{_JSON[argument.kind]}"'))
            found.append((builder if argument.default is None else builder.defaultValue(argument.default)).build())
        return bridge.array(f"{_CATALOG}procedures.ProcedureParameter", found)

    def isDeterministic(self) -> bool:
        """No: most of them change or show what changes."""
        return False

    def call(self, row: JavaObject) -> JavaObject:
        """Run it now."""
        readers = {"INT": row.getInt, "BOOLEAN": row.getBoolean, "STRING": row.getString}
        given = {
            argument.name: readers[argument.kind](position)
            for position, argument in enumerate(self._given)
            if not row.isNullAt(position)
        }
        missing = [one.name for one in self._given if one.default != "NULL" and one.name not in given]
        if missing:
            raise InvalidInputError(f"{self._name}: argument {missing[0]} is null; give a value")
        table = self._open_table(given.pop("table")) if "table" in given else None
        rows = as_table(self._procedure.run(table, given))
        rows = conform(rows, normal_schema(rows.schema))
        scan = LocalRows(self._bridge, arrow_to_spark(rows.schema), rows, f"{_NAMESPACE}.{self._name}")
        return self._bridge.view.java.util.Collections.singletonList(scan.java).iterator()


_JSON = {"STRING": "string", "INT": "integer", "BOOLEAN": "boolean"}
