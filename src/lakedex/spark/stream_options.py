"""Options of ``readStream``, and the name of a query that writes. Without PySpark's data sources."""

from __future__ import annotations

from collections.abc import Mapping

from lakedex.errors import OptionError
from lakedex.scan.stream import LATEST, Limits, Start
from lakedex.spark.option_names import matched

__all__ = [
    "HUDI_BEGIN",
    "HUDI_OFFSET",
    "STARTING",
    "STREAM_OPTIONS",
    "application_of",
    "file_limit",
    "parse_stream_options",
]


STARTING = "startingInstant"


HUDI_BEGIN = "hoodie.datasource.read.begin.instanttime"


HUDI_OFFSET = "hoodie.datasource.streaming.startOffset"


STREAM_OPTIONS = {
    STARTING: "at",
    HUDI_BEGIN: "begin",
    HUDI_OFFSET: "offset",
    "maxCommitsPerTrigger": "commits",
    "maxFilesPerTrigger": "files",
}
"""Name of an option → what it sets."""


def application_of(query_id: str) -> str:
    """The application in ``txn=`` of a streaming query: the same by format and by the table's name."""
    return f"spark-stream-{query_id}"


def parse_stream_options(options: Mapping[str, str]) -> tuple[Start, Limits]:
    """Check and convert options; their names match in any case.

    Raises:
        OptionError: an unknown option, a bad value, or two starts.
    """
    found, _ = matched(options, STREAM_OPTIONS)
    starts = [field for field in ("at", "begin", "offset") if field in found]
    if len(starts) > 1:
        names = " and ".join(found[field][0] for field in starts)
        raise OptionError(f"{names}: give one start of the stream", option=found[starts[1]][0])
    limits = Limits(**{field: _count(*found[field]) for field in ("commits", "files") if field in found})
    return (_start(starts[0], found[starts[0]][1].strip()) if starts else Start()), limits


def file_limit(limits: Limits) -> int | None:
    """The most files of a batch, for Spark; None for all. For a limit of commits Spark has no class."""
    return None if limits == Limits() else limits.files or 2**31 - 1


def _start(field: str, text: str) -> Start:
    lower = text.lower()
    if field == "begin":
        # Hudi's users write zeros for the first commit.
        return Start() if lower == "earliest" or not lower.strip("0") else Start(after=text)
    if lower == LATEST:
        return Start(at=LATEST)
    if lower == "earliest":
        return Start()
    return Start(at=text) if field == "at" else Start(after=text)


def _count(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"option {name}={text!r}: give a whole number from 1 on", option=name)
    return int(text)
