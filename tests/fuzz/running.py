"""Running mutations: what may come of one, and how time and memory are watched."""

from __future__ import annotations

import resource
import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from fuzz.mutations import Mutator
from lakedex.errors import CorruptFileError, LakedexError

__all__ = ["FILE", "Case", "Outcome", "Target", "named", "run_target"]

FILE = "/t/damaged"
"""The file that errors must name."""

SECONDS = 2.0
"""Processor time that one input may take."""
FLOOR = 8 << 20
"""Bytes that any input may take: buffers, caches, modules that are loaded late."""
MULTIPLE = 200
"""Besides, an input may take so many times its own size: a Python object for a byte of Avro is about a hundred."""
MARK_STEP = 192 << 20
"""An input may raise the process's high-water mark by this: what C libraries take is seen there only."""


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged input: its size, what is done with it, and which limits are not the usual ones.

    ``run`` returns or raises; an ``AssertionError`` says that it returned something wrong.
    """

    size: int
    run: Callable[[], object]
    multiple: int = MULTIPLE
    names_file: bool = True
    seconds: float = SECONDS


Target = Callable[[Mutator], Case]


@dataclass(slots=True)
class Outcome:
    """What came of a target's mutations."""

    target: str
    read: int = 0
    refused: int = 0
    slowest: float = 0.0
    hungriest: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Take in what came of others."""
        self.read += other.read
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.hungriest = max(self.hungriest, other.hungriest)
        self.faults += other.faults

    @property
    def mutations(self) -> int:
        return self.read + self.refused + len(self.faults)


def run_target(
    name: str,
    target: Target,
    indexes: Iterable[int],
    *,
    traced: bool = True,
    before: Callable[[int], None] = lambda index: None,
    most_faults: int = 20,
) -> Outcome:
    """Try mutations of a target.

    Args:
        name: seeds the mutations, with their index.
        target: makes a case.
        indexes: which mutations.
        traced: measure every Python allocation; without it only the high-water mark of the process.
        before: told the index before each, for the case that the process dies.
        most_faults: stop after so many.
    """
    outcome = Outcome(name)
    own = traced and not tracemalloc.is_tracing()
    if own:
        tracemalloc.start()
    try:
        for index in indexes:
            before(index)
            case = target(Mutator(name, index))
            fault = _tried(case, outcome)
            if fault is not None:
                outcome.faults.append(f"{name}:{index}: {fault}")
                if len(outcome.faults) >= most_faults:
                    break
    finally:
        if own:
            tracemalloc.stop()
    return outcome


def _tried(case: Case, outcome: Outcome) -> str | None:
    held = 0
    if tracemalloc.is_tracing():
        tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0]
    mark, pool, started = _mark(), pa.total_allocated_bytes(), time.process_time()
    refused = False
    try:
        case.run()
    except CorruptFileError as error:
        refused = True
        if case.names_file and FILE not in error.path:
            return f"an error that does not name the file: {error}\n{_where(error)}"
        if not isinstance(error.offset, int):
            return f"an error without offset: {error!r}"
    except LakedexError:
        refused = True
    except BaseException as error:
        return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:300]}\n{_where(error)}"
    took = time.process_time() - started
    grown = _mark() - mark
    peak = tracemalloc.get_traced_memory()[1] - held if tracemalloc.is_tracing() else 0
    outcome.slowest, outcome.hungriest = max(outcome.slowest, took), max(outcome.hungriest, peak, grown)
    if took > case.seconds:
        return f"{took:.1f} s for {case.size} bytes"
    if peak > FLOOR + case.multiple * case.size:
        return f"{peak} bytes were allocated for {case.size}"
    if grown > MARK_STEP + case.multiple * case.size:
        return f"the process grew by {grown} bytes for {case.size}"
    if pa.total_allocated_bytes() - pool > FLOOR + case.multiple * case.size:
        return f"Arrow holds {pa.total_allocated_bytes() - pool} bytes more after {case.size}"
    outcome.refused += refused
    outcome.read += not refused
    return None


def named(error: CorruptFileError) -> CorruptFileError:
    """The error, which must name the file."""
    assert FILE in error.path, f"an error that does not name the file: {error}"
    return error


def _mark() -> int:
    """Most memory that the process ever had, in bytes."""
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found * 1024


def _where(error: BaseException) -> str:
    lines = traceback.extract_tb(error.__traceback__)
    own = [
        f"  {line.filename.rpartition('/src/')[2]}:{line.lineno} {line.name}"
        for line in lines
        if "/fuzz/running" not in line.filename
    ]
    return "\n".join(own[-7:])
