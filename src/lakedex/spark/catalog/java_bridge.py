"""Python objects that Java calls: Spark's catalog interfaces without a jar.

py4j makes a Java proxy of a Python object, with two gaps: a proxy lacks the default methods of its interfaces, and what
Python raises arrives as a ``Py4JException`` around a traceback, where Spark expects its own ``NoSuchTableException``. A
small invocation handler before the proxy closes both. Janino, the compiler of Spark's queries, compiles it when the
first catalog is registered; it exists on the driver only.

``spark.newSession()`` and the session in which a stream runs its batches have catalogs of their own, which they make of
the class in ``spark.sql.catalog.<name>`` when SQL first says the name. So one more class is compiled, whose objects ask
Python to open the catalog for the session at hand, and pass every call on to it.
"""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from importlib.resources import files
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakedex.codec.hashing import java_hash
from lakedex.errors import UnsupportedFeatureError
from lakedex.spark.jvm import JavaObject, Jvm

__all__ = ["JavaBridge", "JavaError", "JavaProxy", "show_to_sessions"]


_TOKEN = re.compile(r"lakedex-thrown\[(\d+)\]")


def _arities(method: object) -> list[str]:
    """Numbers of arguments that a method takes; other overloads run their default body in Java."""
    if not callable(method):
        return []
    parameters = list(inspect.signature(method).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return ["*"]
    least = sum(parameter.default is parameter.empty for parameter in parameters)
    return [str(count) for count in range(least, len(parameters) + 1)]


class JavaError(Exception):
    """Raised by a method of a :class:`JavaProxy`: the Java object ``exception`` is thrown to Spark as it is."""

    def __init__(self, exception: JavaObject) -> None:
        super().__init__("a Java exception")
        self.exception = exception


class JavaProxy:
    """A Python object that Java calls. Subclasses name the interfaces and have a method for each abstract one.

    Methods, and overloads by number of arguments, that are not there run their default body. Names are Java's.
    """

    interfaces: ClassVar[tuple[str, ...]]

    def __init__(self, bridge: JavaBridge, identity: str | None = None) -> None:
        self._bridge = bridge
        self._identity = identity or f"{type(self).__name__}@{id(self):x}"
        self._java: JavaObject = None

    @property
    def java(self) -> JavaObject:
        """The Java object; always the same one."""
        if self._java is None:
            self._java = self._bridge.wrap(self)
        return self._java

    def toString(self) -> str:
        """The identity: two objects with the same identity are equal."""
        return self._identity

    def equals(self, other: JavaObject) -> bool:
        """Whether ``other``, any Java object, is this one."""
        return other is not None and other.toString() == self._identity

    def hashCode(self) -> int:
        """Of the identity."""
        return java_hash(self._identity)


class _Callback:
    """The object that py4j calls for a proxy: it has the proxy's methods, each through :meth:`JavaBridge.call`."""

    def __init__(self, bridge: JavaBridge, target: JavaProxy, methods: Collection[str]) -> None:
        self._bridge = bridge
        self._target = target
        self._methods = methods
        self.Java = type("Java", (), {"implements": list(target.interfaces)})

    def __getattr__(self, name: str) -> Callable[..., JavaObject]:
        if name not in self._methods:
            raise AttributeError(name)
        return lambda *arguments: self._bridge.call(self._target, name, arguments)


class _Thrown:
    """Gives the handler the exception that a proxy's method wants to throw."""

    def __init__(self, bridge: JavaBridge) -> None:
        self._bridge = bridge
        self._kept = threading.local()

    def apply(self, failure: JavaObject) -> JavaObject:
        self._kept.value = self._bridge.thrown(failure)
        return self._kept.value

    class Java:
        """py4j reads the interface here."""

        implements = ("java.util.function.Function",)


class _CarriedError(Exception):
    """Tells the handler which exception waits."""


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Whether a log record of py4j is more than an exception on its way to Spark."""
    return not (record.exc_info and isinstance(record.exc_info[1], _CarriedError))


for _name in ("py4j.clientserver", "py4j.java_gateway"):
    logging.getLogger(_name).addFilter(_is_unexpected)


class JavaBridge(Jvm):
    """A session's JVM, as the catalog uses it. One for each session; many threads call it."""

    _compiling = threading.Lock()
    _compiled: ClassVar[WeakKeyDictionary[JavaObject, dict[str, JavaObject]]] = WeakKeyDictionary()

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.is_spark_3 = spark.version.startswith("3.")
        # The newer way to be handed filters came with Spark 4.1.
        self.needs_builder = self.is_spark_3 or spark.version.startswith("4.0.")
        self._numbers = itertools.count()
        self._waiting: dict[int, JavaObject] = {}
        # An object returned to the JVM must outlive the reply: py4j drops it there once Python lets go of it.
        self._kept = threading.local()
        self._methods: dict[type[JavaProxy], dict[str, list[str]]] = {}
        self._constants: dict[Hashable, JavaObject] = {}
        self._thrown = _Thrown(self)
        try:
            self.java: JavaObject = self.compiled("LakedexBridge")
            self.scan_builder: JavaObject = self.compiled("LakedexScanBuilder") if self.needs_builder else None
        except Py4JJavaError as error:
            raise UnsupportedFeatureError(
                f"a catalog needs Java 11 or later and the compiler that comes with Spark: {error.java_exception}",
                feature="catalog on this Java",
            ) from error

    def has(self, name: str) -> bool:
        """Whether this Spark has a class."""
        try:
            self.java_class(name)
        except Py4JJavaError:
            return False
        return True

    def compiled(self, name: str, **placeholders: str) -> JavaObject:
        """An object of the class in ``<name>.java`` of this package, compiled by Janino once for each JVM.

        Args:
            name: The class.
            placeholders: Word of the text → its replacement; ``SEQ`` and ``INDEXED`` are always replaced.

        Raises:
            Py4JJavaError: The text does not fit this Spark.
        """
        with self._compiling:
            known = self._compiled.setdefault(self.gateway, {})
            if name not in known:
                known[name] = self._compile(name, placeholders)
            return known[name]

    @staticmethod
    def source(name: str) -> str:
        """The text of ``<name>.java`` of this package."""
        return (files("lakedex.spark.catalog") / f"{name}.java").read_text(encoding="utf-8")

    def _compile(self, name: str, placeholders: Mapping[str, str]) -> JavaObject:
        source = self.source(name)
        for word, text in {"SEQ": self._seq, "INDEXED": self._indexed, **placeholders}.items():
            source = source.replace(word, text)
        # py4j remembers methods by the name of their class, so no two classes may share one.
        unique = f"{name}{uuid.uuid4().hex}"
        return self._cooked(source.replace(name, unique)).getClassLoader().loadClass(unique).newInstance()

    def _cooked(self, source: str) -> JavaObject:
        """The compiler, once it has done its work."""
        compiler = self.view.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self.java_class("org.apache.spark.sql.sources.BaseRelation").getClassLoader())
        compiler.cook(source)
        return compiler

    def named_class(self, name: str, neighbour: str, source: Callable[[], str]) -> JavaObject:
        """An object of a class that Spark finds by its name, in every session.

        Args:
            name: The class, in a package of Spark's.
            neighbour: A class of that package.
            source: Gives the text; it is compiled once for each JVM.
        """
        with self._compiling:
            known = self._compiled.setdefault(self.gateway, {})
            if name not in known:
                code = self._cooked(source()).getBytecodes().get(name)
                known[name] = self.java.define(self.java_class(neighbour), code).newInstance()
            return known[name]

    @property
    def _seq(self) -> str:
        """The type that Scala's ``Seq`` is to this Spark."""
        return str(self._node_method("children").getReturnType().getName())

    @property
    def _indexed(self) -> str:
        """The type in which this Spark gives a node's copy its children."""
        return str(self._node_method("withNewChildrenInternal").getParameterTypes()[0].getName())

    def _node_method(self, name: str) -> JavaObject:
        methods = self.java_class("org.apache.spark.sql.catalyst.trees.TreeNode").getMethods()
        return next(method for method in methods if str(method.getName()) == name)

    # --------------------------------------------------------------------------------------------------- proxies

    def wrap(self, target: JavaProxy) -> JavaObject:
        """The Java object of a proxy."""
        kind = type(target)
        if kind not in self._methods:
            self._methods[kind] = self._checked_methods(kind)
        methods = self._methods[kind]
        answered = " ".join(f"{name}/{count}" for name, counts in methods.items() for count in counts)
        return self.java.wrap(_Callback(self, target, methods), " ".join(kind.interfaces), answered, self._thrown)

    def _checked_methods(self, kind: type[JavaProxy]) -> dict[str, list[str]]:
        """Methods that Java may call, and with how many arguments."""
        has = {name for name in dir(kind) if not name.startswith("_")}
        missing = set(str(self.java.abstractMethods(" ".join(kind.interfaces))).split()) - has
        if missing:
            raise UnsupportedFeatureError(
                f"Spark {self.spark.version} wants {', '.join(sorted(missing))} of {', '.join(kind.interfaces)}, which "
                "this lakedex does not know; use Table.open(path, spark=spark)",
                feature=f"catalog on Spark {self.spark.version}",
            )
        found = {name: _arities(getattr(kind, name)) for name in sorted(has)}
        return {name: counts for name, counts in found.items() if counts}

    def call(self, target: JavaProxy, name: str, arguments: tuple[JavaObject, ...]) -> JavaObject:
        """Call a method for Java; what it raises waits for the handler."""
        try:
            value = getattr(target, name)(*arguments)
        except Exception as error:
            number = next(self._numbers)
            self._waiting[number] = error.exception if isinstance(error, JavaError) else self.exception(error)
            raise _CarriedError(f"lakedex-thrown[{number}]") from None
        self._kept.value = value
        return value

    def thrown(self, failure: JavaObject) -> JavaObject:
        """The exception that waits behind ``failure``, or that itself."""
        found = _TOKEN.search(str(failure.getMessage()))
        return failure if found is None else self._waiting.pop(int(found.group(1)), failure)

    # ---------------------------------------------------------------------------------------------------- values

    def map(self, values: Mapping[str, str]) -> JavaObject:
        """``java.util.Map``."""
        return self.view.java.util.HashMap(dict(values))

    def set(self, values: Iterable[JavaObject]) -> JavaObject:
        """``java.util.Set``."""
        made = self.view.java.util.HashSet()
        for value in values:
            made.add(value)
        return made

    def constant(self, name: Hashable, make: Callable[[], JavaObject]) -> JavaObject:
        """A Java object that nobody changes, made once for this session."""
        if name not in self._constants:
            self._constants[name] = make()
        return self._constants[name]

    def options(self, values: Mapping[str, str]) -> JavaObject:
        """``CaseInsensitiveStringMap``."""
        return self.view.org.apache.spark.sql.util.CaseInsensitiveStringMap(dict(values))

    @staticmethod
    def schema(struct: JavaObject) -> StructType:
        """A Java ``StructType`` as PySpark's."""
        from_json: Any = StructType.fromJson
        return from_json(json.loads(struct.json()))  # type: ignore[no-any-return]


_CATALOG_CLASS = "org.apache.spark.sql.connector.catalog.LakedexCatalog"
"""In a package of Spark's, since a class can be added to one that is there."""


_NEIGHBOUR = "org.apache.spark.sql.connector.catalog.CatalogPlugin"


Open = Callable[[JavaBridge], JavaObject]
"""Makes a session's catalog."""


def show_to_sessions(bridge: JavaBridge, name: str, interfaces: Iterable[str], open_catalog: Open) -> None:
    """Let other sessions of the application find a catalog: those to come, and the copies of this one.

    Args:
        bridge: of the session that registers it.
        name: the catalog's.
        interfaces: that a catalog has.
        open_catalog: called once for each session that says the name.
    """
    number = uuid.uuid4().hex
    listed = " ".join(interfaces)
    shown = bridge.named_class(_CATALOG_CLASS, _NEIGHBOUR, lambda: str(bridge.java.passingOn(_CATALOG_CLASS, listed)))
    shown.add(number, _Opener(bridge, open_catalog).java)
    settings = {f"spark.sql.catalog.{name}": _CATALOG_CLASS, f"spark.sql.catalog.{name}.lakedex": number}
    # A copy has the session's settings, a new session those of the application.
    everywhere = bridge.session.sparkContext().conf()
    for key, value in settings.items():
        bridge.spark.conf.set(key, value)
        everywhere.set(key, value)


class _Opener(JavaProxy):
    """Opens the catalog for a session."""

    interfaces = ("java.util.function.Function",)

    def __init__(self, bridge: JavaBridge, open_catalog: Open) -> None:
        super().__init__(bridge)
        self._open = open_catalog

    def apply(self, session: JavaObject) -> JavaObject:
        """Called by Spark's ``Catalogs.load``, in whatever thread analyses a statement of ``session``."""
        return self._open(JavaBridge(SparkSession(self._bridge.spark.sparkContext, session)))
