"""Names of Java classes are asked for once."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JavaPackage

from lakedex.spark.jvm import java_names


class Client:
    """Answers py4j's questions: what begins with a capital is a class, the rest are packages."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.converters: list[Any] = []
        self.gateway_property = type("Property", (), {"pool": None})()

    def send_command(self, command: str) -> str:
        kind, name, *more = command.split("\n")[1:4]
        self.asked.append(name)
        if kind == "m":
            return "ym" if more[0].islower() else "yc"
        return f"yc{name}" if name.rpartition(".")[2][0].isupper() else "yp"


class Gateway:
    def __init__(self) -> None:
        self.client = Client()
        self.jvm = type("View", (), {"org": JavaPackage("org", self.client, "rj")})()


def test_each_name_is_asked_for_once() -> None:
    gateway = Gateway()
    for _ in range(3):
        made = java_names(gateway).org.apache.Thing
        assert (made._fqn, made.of.command_header, made.Inner._fqn) == (
            "org.apache.Thing", "z:org.apache.Thing\nof\n", "org.apache.Thing$Inner",
        )  # fmt: skip
    assert gateway.client.asked == ["org.apache", "org.apache.Thing", "org.apache.Thing", "org.apache.Thing"]
    assert java_names(gateway) is java_names(gateway) and java_names(Gateway()) is not java_names(gateway)


def test_python_own_names_are_not_java() -> None:
    names = java_names(Gateway())
    with pytest.raises(AttributeError):
        names.org.__deepcopy__  # noqa: B018
