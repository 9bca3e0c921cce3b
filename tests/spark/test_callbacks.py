"""Between Java and Python: nobody else calls the objects that Java calls, and the Java texts of the package compile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakedex import Table, register_catalog
from lakedex.errors import UnsupportedFeatureError
from lakedex.spark import catalog
from lakedex.spark.catalog.catalog import register_rules
from lakedex.spark.catalog.java_bridge import JavaBridge
from lakedex.spark.jvm import callback_gateway


class _Foreign:
    """An object that somebody gave to Java before lakedex came."""

    def apply(self, value: Any) -> Any:
        return value

    class Java:
        implements = ("java.util.function.Function",)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    """A warehouse whose catalog and DataFrame have given objects to Java."""
    table = Table.create(tmp_path / "db" / "t", pa.schema([("id", pa.string())]), record_key="id")
    table.insert(pa.table({"id": ["a", "b"]}))
    register_catalog(spark, "strange", str(tmp_path))
    assert spark.sql("select count(*) from strange.db.t where id = 'a'").head()[0] == 1  # type: ignore[index]
    assert Table.open(tmp_path / "db" / "t", spark=spark).to_df().count() == 2
    return tmp_path


@pytest.fixture
def ask(spark: SparkSession) -> Iterator[Any]:
    """Sends a command of py4j's as a stranger does, and returns the answer."""
    address, port = spark.sparkContext._gateway._callback_server.server_socket.getsockname()[:2]  # type: ignore[union-attr]
    assert address == "127.0.0.1"
    with socket.create_connection((address, port), timeout=10) as connection:
        stream = connection.makefile("rb")

        def send(*lines: str) -> bytes:
            connection.sendall("".join(f"{line}\n" for line in lines).encode())
            return bytes(stream.readline())

        yield send
        stream.close()


def test_names_of_objects_cannot_be_guessed(spark: SparkSession, lake: Path) -> None:
    pool = spark.sparkContext._gateway.gateway_property.pool  # type: ignore[union-attr]
    ours = [name for name, held in pool.dict.items() if type(held).__module__.startswith("lakedex.")]
    assert ours and all(int(name.removeprefix("p")) >= 1 << 120 for name in ours)
    first = pool.next_id
    callback_gateway(spark)
    assert pool.next_id == first, "names go on, once they are secret"


def test_a_stranger_calls_nothing(lake: Path, ask: Any) -> None:
    for number in [*range(300), "", "x", 1 << 120]:
        # The call's second half waits: of a known object py4j would read on, and of an unknown one take it for commands.
        assert ask("c", f"p{number}").startswith(b"!xsObject ID unknown")
    assert ask("c", "t", "dropNamespace", "sdb", "btrue", "e").startswith(b"!xs")
    assert (lake / "db" / "t" / ".hoodie").exists()


def test_a_stranger_takes_no_object_away(spark: SparkSession, lake: Path, ask: Any) -> None:
    for number in range(300):
        ask("g", f"p{number}", "e")
    assert spark.sql("select count(*) from strange.db.t").head()[0] == 2  # type: ignore[index]


def test_an_object_answers_its_interfaces_only(spark: SparkSession, lake: Path) -> None:
    pool = spark.sparkContext._gateway.gateway_property.pool  # type: ignore[union-attr]
    proxies = [one for one in list(pool.dict.values()) if type(one).__name__ == "_Callback"]
    catalogs = [proxy for proxy in proxies if hasattr(proxy, "dropNamespace")]
    assert catalogs
    for name in ("_warehouse", "_opened", "java", "interfaces", "eval", "__class_getitem__"):
        assert not hasattr(catalogs[0], name)


def test_a_server_that_listens_to_the_network_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    server = callback_gateway(spark).get_callback_server()
    monkeypatch.setattr(server, "_listening_address", "0.0.0.0")
    with pytest.raises(UnsupportedFeatureError, match=r"listens on 0\.0\.0\.0"):
        callback_gateway(spark)


def test_a_server_that_others_started_gets_secret_names_too(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = callback_gateway(spark)
    pool = gateway.gateway_property.pool
    monkeypatch.setattr(pool, "next_id", 0)
    gateway.jvm.java.util.Optional.of("x").map(_Foreign())
    assert "p0" in pool
    callback_gateway(spark)
    assert pool.next_id >= 1 << 120
    pool.dict.pop("p0", None)


@pytest.mark.smoke
def test_the_packages_java_texts_compile(spark: SparkSession) -> None:
    side = JavaBridge(spark)
    texts = {item.name.removesuffix(".java") for item in files(catalog).iterdir() if item.name.endswith(".java")}
    assert texts > {"LakedexBridge", "LakedexRules", "LakedexScanBuilder", "LakedexStreamProvider"}
    for name in texts - {"LakedexRules", "LakedexStreamProvider"}:  # Their texts have parts of their own.
        assert str(side.compiled(name).getClass().getName()).startswith(name)
    assert register_rules(side), "the rules' text is filled for this Spark and compiled"
