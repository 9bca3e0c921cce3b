"""The legs of ``./dev test``: which tests run where, and in which tier.

===========  =====================================================================================
tier         tests
===========  =====================================================================================
``first``    marked ``core``: all that need no JVM and are not ``heavy``, and few of those that do
``rest``     not marked ``core``; and those marked ``seeded``, now with all their cases
``all``      all, with all their cases
``quick``    marked ``core``, of the rooms that need no JVM and are done soon
===========  =====================================================================================

``tests/conftest.py`` sets the marks that follow from the folder of a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from environments import SPARK35, SPARK40, SPARK41, SPARK43, Environment
from paths import ROOT

__all__ = ["JUDGE", "JUDGES", "SHORT_LIVED", "TIERS", "Leg", "is_path"]

JUDGE = "judge"
"""The name of Hudi's bundles in ``./dev setup``."""
CORE = "core"
REST = "not core or seeded"

# The JVMs of tests run each thing once or twice: what their second compiler does is half of their work and never earned
# back. Without it Java's code cache is small, and Spark with Hudi overfills it. Nor are the classes of released jars
# verified again, and Hudi does not ask a second JVM, attached as a debugger, how large objects are. Hadoop starts a
# chmod for each file that it makes; by vfork that is half as dear.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:NewSize=300m -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -Djol.skipHotspotSAAttach=true"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)


@dataclass(frozen=True, eq=False)
class Leg:
    """One run of pytest: some folders on one environment."""

    title: str
    environment: Environment
    folders: tuple[str, ...]
    seconds: int
    """About as long as it takes on two idle cores."""
    marks: str = ""
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    judge: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of what it needs in ``./dev setup``."""
        return (self.environment.name, JUDGE) if self.judge else (self.environment.name,)

    @property
    def label(self) -> str:
        """Its name in the output."""
        return f"{self.title} ({self.environment.name})"

    def targets(self, paths: Sequence[str] = ()) -> list[str]:
        """Its folders that hold tests; of paths given by the user, those that lie in them or around them."""
        folders = [ROOT / folder for folder in self.folders]
        if not paths:
            return [str(folder.relative_to(ROOT)) for folder in folders if _holds_tests(folder)]
        found = []
        for text in paths:
            path = (ROOT / text.partition("::")[0]).resolve()
            if any(path.is_relative_to(folder) for folder in folders):
                found.append(text)
            else:
                inside = [folder for folder in folders if folder.is_relative_to(path) and _holds_tests(folder)]
                found += [str(folder.relative_to(ROOT)) for folder in inside]
        return found


def is_path(argument: str) -> bool:
    """True if an argument for pytest names a file or a folder of the project, or a test in one."""
    return not argument.startswith("-") and (ROOT / argument.partition("::")[0]).exists()


def _holds_tests(path: Path) -> bool:
    return path.is_file() or any(path.rglob("test_*.py"))


# Without a judge, its tests fail.
JUDGED = {"LAKEDEX_JUDGES_REQUIRED": "1"}
FEW_SEEDS = {"LAKEDEX_HYPOTHESIS_PROFILE": "small"}
# A file's tests share what they set up.
TWO_JVMS = ("-n", "2", "--dist", "loadfile")
TOP = tuple(sorted(f"tests/{path.name}" for path in (ROOT / "tests").glob("test_*.py")))
LONG = ("maintenance", "write")
"""Rooms of tests/unit that take longer than all others together."""
ROOMS = sorted(
    path for path in (ROOT / "tests" / "unit").glob("[a-z]*") if path.is_dir() or path.name.startswith("test_")
)
OF_THE_TOOLS = ("tests/test_house.py", "tests/test_legs.py")
SOON = (
    *(path for path in TOP if path not in OF_THE_TOOLS),
    *(f"tests/unit/{path.name}" for path in ROOMS if path.name not in LONG),
    "tests/unit/write/test_operations.py",
    "tests/golden",
)
PLAIN = Leg(
    "without a JVM",
    SPARK43,
    (*TOP, *(f"tests/{name}" for name in ("unit", "golden", "fuzz", "properties", "pruning", "crash"))),
    620,
    options=("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"),
    variables=JUDGED,
)
ON_SPARK35 = Leg("Spark 3.5.9", SPARK35, ("tests/spark",), 690, options=TWO_JVMS)
ON_SPARK43 = Leg("Spark 4.3.0", SPARK43, ("tests/spark",), 560, options=TWO_JVMS)
SMOKE = (
    # With pandas 3, which users without Spark have.
    Leg("smoke on Spark 4.1.4", SPARK41, ("tests/spark", "tests/unit/test_frame_input.py"), 380, "smoke"),
    Leg("smoke on Spark 4.0.5", SPARK40, ("tests/spark",), 340, "smoke"),
)
OBJECT_STORES = Leg("object stores: a real S3 server", SPARK43, ("tests/object_store",), 140)
# A process that has had a classic session gives no Connect session, so these are a run of their own.
CONNECT = Leg("Spark Connect 4.3.0", SPARK43, ("tests/connect",), 90)
JUDGES = Leg(
    "judges: Hudi 1.1.1 in Java, hudi-rs",
    SPARK35,
    ("tests/oracle",),
    1050,
    # A test has its table to itself, and some take a minute: they are handed out one by one, the longest first.
    options=("-n", "2", "--dist", "loadgroup"),
    variables=JUDGED,
    judge=True,
)


def _core(leg: Leg, seconds: int) -> Leg:
    """The part of a leg that the first tier runs."""
    return replace(
        leg, title=f"{leg.title}, core", marks=CORE, seconds=seconds, variables={**FEW_SEEDS, **leg.variables}
    )


def _rest(leg: Leg, seconds: int) -> Leg:
    """The part of a leg that the first tier left out."""
    return replace(leg, title=f"{leg.title}, rest", marks=REST, seconds=seconds)


# Legs of a round run side by side. Those of one JVM are so short that a second one each would mostly start.
_ELSEWHERE = ((ON_SPARK35,), (*SMOKE, CONNECT))
TIERS: Mapping[str, Sequence[Sequence[Leg]]] = {
    "first": ((_core(PLAIN, 330),), (_core(ON_SPARK43, 200), _core(OBJECT_STORES, 40)), (_core(JUDGES, 200),)),
    "rest": (
        (_rest(PLAIN, 420),),
        (_rest(ON_SPARK43, 350), _rest(OBJECT_STORES, 100)),
        *_ELSEWHERE,
        (_rest(JUDGES, 900),),
    ),
    "all": ((PLAIN,), (ON_SPARK43, OBJECT_STORES), *_ELSEWHERE, (JUDGES,)),
    "quick": ((replace(_core(PLAIN, 100), title="quick, without a JVM", folders=SOON),),),
}
"""Rounds of legs, by the name of the tier."""
