"""py4j's callback server: Java calls Python objects by it, and whoever else knows an object's name could.

It listens on 127.0.0.1, where every user of the machine can connect, and asks for no token. It could not: PySpark tells
Java the port once the server has one, and Java's client then forgets the token that it had (``PythonClient.copyWith``).
An object's name is all that a caller needs, and py4j calls them p0, p1, … So names go on from a random number of 120
bits before an object of lakedex gets one; they are never printed, and go to Spark's JVM alone, on connections that it
and Python opened to each other (Java's own server, in the other direction, asks for PySpark's token).

What a stranger can still do: connect, which costs a thread of the driver each, and call objects that other code gave
away under small numbers before lakedex came (a function of ``foreachBatch``). Who may read the driver's memory or the
traffic of its loopback device (root, or its own user) knows the names.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from lakedex.errors import UnsupportedFeatureError

__all__ = ["callback_gateway"]

_BITS = 120
_starting = threading.Lock()


def callback_gateway(spark: SparkSession) -> Any:
    """The session's py4j gateway, ready to hand Python objects to Java under names that nobody guesses.

    Raises:
        UnsupportedFeatureError: the callback server listens on the network.
    """
    gateway: Any = spark.sparkContext._gateway
    with _starting:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        address = str(gateway.get_callback_server().get_listening_address())
        if not ipaddress.ip_address(address).is_loopback:
            raise UnsupportedFeatureError(
                f"py4j's callback server listens on {address}, where other machines read what Java asks Python; let it "
                "listen on 127.0.0.1",
                feature="callback server on the network",
            )
        pool = gateway.gateway_property.pool
        with pool.lock:
            if pool.next_id < 1 << (_BITS // 2):
                pool.next_id = secrets.randbits(_BITS) | 1 << _BITS
    return gateway
