"""Java objects that Python answers: the interfaces of Spark's catalogs without a jar.

py4j makes a Java proxy of a Python object. Two things it does not do: a proxy has none of its interfaces' default
methods, and what Python raises arrives as a ``Py4JException`` around a traceback, where Spark waits for its own
``NoSuchTableException``. Both are done by a small invocation handler before the proxy. It is compiled when the first
catalog is registered, by Janino, with which Spark compiles its queries, and lives on the driver only.
"""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import re
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakedex.errors import LakedexError, UnsupportedFeatureError
from lakedex.spark.failures import remember

__all__ = ["Answer", "JavaError", "JavaSide"]

_CLASS = "LakedexBridge"
_SOURCE = """
import java.lang.invoke.MethodHandles;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Function;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.types.StructType;

public final class LakedexBridge {

  public Object wrap(Object python, String interfaces, String answered, Function thrown) throws Exception {
    Class[] types = classes(interfaces);
    Set names = new HashSet(Arrays.asList((Object[]) answered.split(" ")));
    InvocationHandler handler = new Handler(Proxy.getInvocationHandler(python), names, thrown);
    return Proxy.newProxyInstance(types[0].getClassLoader(), types, handler);
  }

  public String abstractMethods(String interfaces) throws Exception {
    StringBuilder found = new StringBuilder();
    Class[] types = classes(interfaces);
    for (int i = 0; i < types.length; i++) {
      Method[] methods = types[i].getMethods();
      for (int k = 0; k < methods.length; k++) {
        if (Modifier.isAbstract(methods[k].getModifiers())) found.append(methods[k].getName()).append(' ');
      }
    }
    return found.toString();
  }

  public Object relation(SQLContext context, StructType schema, RDD rows, String description) {
    return new Rows(context, schema, rows, description);
  }

  public Object statuses(byte[] encoded, int count) throws Exception {
    java.io.DataInputStream stream = new java.io.DataInputStream(new java.io.ByteArrayInputStream(encoded));
    FileStatus[] read = new FileStatus[count];
    for (int i = 0; i < count; i++) {
      read[i] = new FileStatus();
      read[i].readFields(stream);
    }
    return read;
  }

  private static Class[] classes(String names) throws Exception {
    String[] split = names.split(" ");
    Class[] found = new Class[split.length];
    for (int i = 0; i < split.length; i++) {
      found[i] = Class.forName(split[i], true, LakedexBridge.class.getClassLoader());
    }
    return found;
  }

  public static final class Handler implements InvocationHandler {
    private final InvocationHandler python;
    private final Set answered;
    private final Function thrown;

    Handler(InvocationHandler python, Set answered, Function thrown) {
      this.python = python;
      this.answered = answered;
      this.thrown = thrown;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (method.isDefault() && !answers(method)) {
        Class type = method.getDeclaringClass();
        return MethodHandles.privateLookupIn(type, MethodHandles.lookup())
            .unreflectSpecial(method, type)
            .bindTo(proxy)
            .invokeWithArguments(arguments == null ? new Object[0] : arguments);
      }
      try {
        return python.invoke(proxy, method, arguments);
      } catch (Throwable failure) {
        throw (Throwable) thrown.apply(failure);
      }
    }

    private boolean answers(Method method) {
      String name = method.getName();
      return answered.contains(name + "/" + method.getParameterTypes().length) || answered.contains(name + "/*");
    }
  }

  // Rows of another plan reach a scan through a class, not an interface.
  public static final class Rows extends BaseRelation implements TableScan {
    private final SQLContext context;
    private final StructType schema;
    private final RDD rows;
    private final String description;

    Rows(SQLContext context, StructType schema, RDD rows, String description) {
      this.context = context;
      this.schema = schema;
      this.rows = rows;
      this.description = description;
    }

    public SQLContext sqlContext() { return context; }
    public StructType schema() { return schema; }
    public boolean needConversion() { return false; }
    public RDD buildScan() { return rows; }
    public String toString() { return description; }
  }
}
"""
# Spark 3.5 hands Catalyst's filters to a FileScanBuilder only, which is a class; Spark 4 to whoever asks for them.
_SOURCE_3 = """
  public Object scanBuilder(Object python, org.apache.spark.sql.SparkSession session,
      org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex index, StructType schema) {
    return new Builder(python, session, index, schema);
  }

  public static final class Builder extends org.apache.spark.sql.execution.datasources.v2.FileScanBuilder
      implements org.apache.spark.sql.connector.read.SupportsPushDownLimit,
      org.apache.spark.sql.connector.read.SupportsPushDownTopN {
    private final Object python;

    Builder(Object python, org.apache.spark.sql.SparkSession session,
        org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex index, StructType schema) {
      super(session, index, schema);
      this.python = python;
    }

    private org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters filters() {
      return (org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters) python;
    }

    public scala.collection.Seq pushFilters(scala.collection.Seq filters) { return filters().pushFilters(filters); }
    public org.apache.spark.sql.connector.expressions.filter.Predicate[] pushedFilters() {
      return filters().pushedFilters();
    }
    public void pruneColumns(StructType columns) {
      ((org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns) python).pruneColumns(columns);
    }
    public boolean pushLimit(int limit) {
      return ((org.apache.spark.sql.connector.read.SupportsPushDownLimit) python).pushLimit(limit);
    }
    public boolean pushTopN(org.apache.spark.sql.connector.expressions.SortOrder[] orders, int limit) {
      return ((org.apache.spark.sql.connector.read.SupportsPushDownTopN) python).pushTopN(orders, limit);
    }
    public boolean isPartiallyPushed() { return true; }
    public org.apache.spark.sql.connector.read.Scan build() {
      return ((org.apache.spark.sql.connector.read.ScanBuilder) python).build();
    }
  }
}
"""
_TOKEN = re.compile(r"lakedex-thrown\[(\d+)\]")


def _java_hash(text: str) -> int:
    """``String.hashCode``."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _arities(method: Any) -> list[str]:
    """How many arguments a method takes: overloads that it does not are left to Java's own."""
    if not callable(method):
        return []
    parameters = list(inspect.signature(method).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return ["*"]
    least = sum(parameter.default is parameter.empty for parameter in parameters)
    return [str(count) for count in range(least, len(parameters) + 1)]


class JavaError(Exception):
    """Raised by an answer: ``exception``, a Java object, is thrown to Spark as it is."""

    def __init__(self, exception: Any) -> None:
        super().__init__("a Java exception")
        self.exception = exception


class Answer:
    """A Python object that Java calls. Subclasses name the interfaces and have a method for each abstract one.

    Methods, and overloads by number of arguments, that are not there run their default body. Names are Java's.
    """

    interfaces: ClassVar[tuple[str, ...]]

    def __init__(self, side: JavaSide, identity: str | None = None) -> None:
        self._side = side
        self._identity = identity or f"{type(self).__name__}@{id(self):x}"
        self._java: Any = None

    @property
    def java(self) -> Any:
        """The Java object; always the same one."""
        if self._java is None:
            self._java = self._side.wrap(self)
        return self._java

    def toString(self) -> str:
        """The identity: two objects that say the same are equal."""
        return self._identity

    def equals(self, other: Any) -> bool:
        """Whether ``other``, any Java object, is this one."""
        return other is not None and other.toString() == self._identity

    def hashCode(self) -> int:
        """Of the identity."""
        return _java_hash(self._identity)


class _Proxy:
    """What py4j holds of an answer: every call goes through :meth:`JavaSide.answer`."""

    def __init__(self, side: JavaSide, target: Answer) -> None:
        self._side = side
        self._target = target
        self.Java = type("Java", (), {"implements": list(target.interfaces)})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self._side.answer(self._target, name, arguments)


class _Thrown:
    """Gives the handler the exception that an answer wants to be thrown."""

    def __init__(self, side: JavaSide) -> None:
        self._side = side
        self._kept = threading.local()

    def apply(self, failure: Any) -> Any:
        self._kept.value = self._side.thrown(failure)
        return self._kept.value

    class Java:
        """py4j reads the interface here."""

        implements = ("java.util.function.Function",)


class _CarriedError(Exception):
    """Tells the handler which exception waits."""


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a log record of py4j is more than an exception on its way to Spark."""
    return not (record.exc_info and isinstance(record.exc_info[1], _CarriedError))


for _name in ("py4j.clientserver", "py4j.java_gateway"):
    logging.getLogger(_name).addFilter(_is_news)


class JavaSide:
    """A session's JVM, as the catalog uses it. One for each session; many threads call it."""

    _starting = threading.Lock()
    _bridges: ClassVar[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        self.gateway = gateway
        self.spark = spark
        self.view: Any = gateway.jvm
        self.session: Any = spark._jsparkSession
        self.is_spark_3 = spark.version.startswith("3.")
        self.utils: Any = self.view.org.apache.spark.api.python.PythonUtils
        self.none: Any = self.view.scala.Option.empty()
        self._numbers = itertools.count()
        self._waiting: dict[int, Any] = {}
        # An object returned to the JVM must outlive the reply: py4j drops it there once Python lets go of it.
        self._kept = threading.local()
        self._names: dict[type[Answer], str] = {}
        self._thrown = _Thrown(self)
        with self._starting:
            ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
            if gateway not in self._bridges:
                self._bridges[gateway] = self._compiled()
        self.bridge: Any = self._bridges[gateway]

    def _compiled(self) -> Any:
        # py4j remembers methods by the name of their class, so no two classes may share one.
        name = f"{_CLASS}{uuid.uuid4().hex}"
        source = _SOURCE.rstrip().removesuffix("}") + _SOURCE_3 if self.is_spark_3 else _SOURCE
        compiler = self.view.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self.type("org.apache.spark.sql.sources.BaseRelation").getClassLoader())
        try:
            compiler.cook(source.replace(_CLASS, name))
        except Py4JJavaError as error:
            raise UnsupportedFeatureError(
                f"a catalog needs Java 11 or later and the compiler that comes with Spark: {error.java_exception}",
                feature="catalog on this Java",
            ) from error
        return compiler.getClassLoader().loadClass(name).newInstance()

    # --------------------------------------------------------------------------------------------------- answers

    def wrap(self, target: Answer) -> Any:
        """The Java object of an answer."""
        kind = type(target)
        if kind not in self._names:
            self._names[kind] = self._checked_names(kind)
        return self.bridge.wrap(_Proxy(self, target), " ".join(kind.interfaces), self._names[kind], self._thrown)

    def _checked_names(self, kind: type[Answer]) -> str:
        has = {name for name in dir(kind) if not name.startswith("_")}
        missing = set(str(self.bridge.abstractMethods(" ".join(kind.interfaces))).split()) - has
        if missing:
            raise UnsupportedFeatureError(
                f"Spark {self.spark.version} wants {', '.join(sorted(missing))} of {', '.join(kind.interfaces)}, which "
                "this lakedex does not know; use Table.for_path(spark, path)",
                feature=f"catalog on Spark {self.spark.version}",
            )
        return " ".join(f"{name}/{count}" for name in sorted(has) for count in _arities(getattr(kind, name)))

    def answer(self, target: Answer, name: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method for Java; what it raises waits for the handler."""
        try:
            value = getattr(target, name)(*arguments)
        except Exception as error:
            number = next(self._numbers)
            self._waiting[number] = self._exception(error)
            raise _CarriedError(f"lakedex-thrown[{number}]") from None
        self._kept.value = value
        return value

    def thrown(self, failure: Any) -> Any:
        """The exception that waits behind ``failure``, or that itself."""
        found = _TOKEN.search(str(failure.getMessage()))
        return failure if found is None else self._waiting.pop(int(found.group(1)), failure)

    def _exception(self, error: Exception) -> Any:
        """``error`` as a Java exception, whose message PySpark shows alone."""
        if isinstance(error, JavaError):
            return error.exception
        original = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
        if original is not None:
            return original
        if isinstance(error, LakedexError):
            remember(error)
        text = str(error) if isinstance(error, LakedexError) else f"{type(error).__name__}: {error}"
        lang = self.view.java.lang
        kind = lang.UnsupportedOperationException if isinstance(error, NotImplementedError) else None
        return (kind or lang.IllegalArgumentException)(text)

    # ---------------------------------------------------------------------------------------------------- values

    def type(self, name: str) -> Any:
        """``java.lang.Class`` by name."""
        return self.view.java.lang.Class.forName(name)

    def array(self, kind: str, values: Sequence[Any]) -> Any:
        """An array; one call for each value, so for short ones."""
        made = self.gateway.new_array(getattr(self.view, kind), len(values))
        for position, value in enumerate(values):
            made[position] = value
        return made

    def strings(self, values: Sequence[str]) -> Any:
        """``String[]``."""
        return self.array("java.lang.String", values)

    def map(self, values: Mapping[str, str]) -> Any:
        """``java.util.Map``."""
        return self.view.java.util.HashMap(dict(values))

    def set(self, values: Iterable[Any]) -> Any:
        """``java.util.Set``."""
        made = self.view.java.util.HashSet()
        for value in values:
            made.add(value)
        return made

    def struct(self, schema: StructType) -> Any:
        """Spark's ``StructType``."""
        return self.session.parseDataType(schema.json())

    def options(self, values: Mapping[str, str]) -> Any:
        """``CaseInsensitiveStringMap``."""
        return self.view.org.apache.spark.sql.util.CaseInsensitiveStringMap(dict(values))

    @staticmethod
    def schema(struct: Any) -> StructType:
        """A Java ``StructType`` as PySpark's."""
        from_json: Any = StructType.fromJson
        return from_json(json.loads(struct.json()))  # type: ignore[no-any-return]
