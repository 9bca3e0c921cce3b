"""Java classes by name, each looked up once in a JVM.

py4j asks the JVM for every part of ``view.org.apache.spark…``, again at every use, and for each part Spark's class
loader searches all jars for a class of that name. A query that Python plans says some hundred such names.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass, JavaPackage

__all__ = ["JavaNames", "java_names"]


class JavaNames:
    """A package, or py4j's view of all of them; it remembers what was found in it."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _remembering(getattr(self._source, name))
        self.__dict__[name] = found
        return found


class _KnownClass(JavaClass):  # type: ignore[misc]
    """A class that remembers its static methods, inner classes and constants (the ``MODULE$`` of a Scala object)."""

    def __getattr__(self, name: str) -> Any:
        found = _remembering(super().__getattr__(name))
        self.__dict__[name] = found
        return found


def _remembering(found: Any) -> Any:
    if isinstance(found, JavaPackage):
        return JavaNames(found)
    if isinstance(found, JavaClass):
        return _KnownClass(found._fqn, found._gateway_client)
    return found


_known: WeakKeyDictionary[Any, JavaNames] = WeakKeyDictionary()
_lock = threading.Lock()


def java_names(gateway: Any) -> Any:
    """What ``gateway.jvm`` gives. For classes of fixed names only: nothing is ever looked up again."""
    with _lock:
        if gateway not in _known:
            _known[gateway] = JavaNames(gateway.jvm)
        return _known[gateway]
