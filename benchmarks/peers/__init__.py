"""The engines beside us, by name. A module is imported when its peer is started, in the peer's own process."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.protocol import Peer

__all__ = ["COPIES", "LIMITS", "LOCAL", "MERGE_ON_READ", "PEERS", "QUICK", "SESSIONS", "peer_class"]

PEERS = {
    "lakedex": "lakedex:LakedexSpark",
    "lakedex-plain": "lakedex:LakedexPlain",
    "lakedex-arrow": "lakedex:LakedexLocal",
    "spark-parquet": "spark:SparkParquet",
    "pyarrow": "arrow:ArrowParquet",
    "deltalake": "delta:DeltaRust",
    "delta-spark": "delta:DeltaSpark",
    "lance": "lance:Lance",
    "pyiceberg": "iceberg:Iceberg",
    "hudi": "hudi:HudiBloom",
    "hudi-footers": "hudi:HudiFooterBloom",
    "hudi-records": "hudi:HudiRecordIndex",
}
"""Name → module and class."""

MERGE_ON_READ = {
    "lakedex-mor-arrow": "lakedex:LakedexLocalMor",
    "lakedex-arrow": "lakedex:LakedexLocal",
    "deltalake": "delta:DeltaRust",
    "lance": "lance:Lance",
    "lakedex-mor": "lakedex:LakedexMor",
    "lakedex": "lakedex:LakedexSpark",
    "hudi-mor": "hudi:HudiMor",
    "delta-vectors": "delta:DeltaVectors",
}
"""Those of ``./dev bench merge_on_read``: which write changes apart from the rows, and copy-on-write beside them."""

SESSIONS = (
    ("lakedex", "lakedex-plain", "spark-parquet", "lakedex-mor"),
    ("hudi", "hudi-footers", "hudi-records"),
)
"""Peers that share a process, and so a warm JVM: idle heaps are memory that the one at work would miss. A peer that is
not named has a process of its own."""

COPIES = {"hudi-footers": "hudi"}
"""Peer → whose loaded table it takes over, since it would load the same."""

LIMITS = ("spark-parquet", "pyarrow")
"""What no table format can beat: they keep no keys, no index and no history."""

QUICK = tuple(name for name in PEERS if not name.startswith(("hudi", "delta-spark")))
"""Those that need no jar of their own: a session that loads one takes longer to begin than a quick look in all."""

LOCAL = ("lakedex-arrow", "pyarrow")
"""Those that need neither a JVM nor a package beside ours."""


def peer_class(name: str) -> type[Peer]:
    """The class of a peer."""
    module, _, noun = (PEERS | MERGE_ON_READ)[name].partition(":")
    found: type[Peer] = getattr(import_module(f"benchmarks.peers.{module}"), noun)
    return found
