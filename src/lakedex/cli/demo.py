"""``lakedex demo``: five weeks of bike trips, a line each; without Spark, in two seconds."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.table.table import Table
from lakedex.types import size_text

__all__ = ["Demo", "line_of"]


WEEKS, TRIPS, CORRECTED = 5, 4_000, 200
"""Trips a week, and how many of the week before are corrected with them."""


CITIES = ("Bergen", "Lyon", "Porto")


@dataclass(frozen=True)
class Demo:
    """A table of trips that is written week by week.

    Attributes:
        path: where it is.
    """

    path: str

    @classmethod
    def at(cls, folder: str | None) -> Demo:
        """In a folder; None takes a temporary one, which stays."""
        return cls(folder or os.path.join(tempfile.mkdtemp(prefix="lakedex-demo-"), "trips"))

    def weeks(self) -> Iterator[dict[str, Any]]:
        """Write the weeks one by one, and give the figures of each."""
        small = {"hoodie.parquet.max.file.size": "60000", "hoodie.parquet.small.file.limit": "40000"}
        first = _trips(0)
        table = Table.create(
            self.path, first.schema, record_key="id", partition_by="city", ordering_by="ts", options=small
        )
        for week in range(WEEKS):
            rows = first if week == 0 else pa.concat_tables([_trips(week), _corrections(week - 1)])
            done = table.bulk_insert(rows) if week == 0 else table.upsert(rows)
            yield {
                "week": week + 1,
                "instant": done.instant,
                "inserted": done.inserted,
                "updated": done.updated,
                "files_written": done.files_written,
                "bytes_written": done.bytes_written,
                "seconds": done.seconds,
            }
        table.indexes.create("bitmap", ["rider"], name="by_rider")

    def questions(self) -> Iterator[tuple[str, str]]:
        """Conditions, and how much had to be read for the answer."""
        table = Table.open(self.path)
        for where in ("id = 't012345'", "started >= '2025-01-29'", "rider = 'r377'"):
            plan = table.scan(where).plan()
            yield where, f"{table.scan(where).count():,} rows, in {plan.summary}"

    def next_steps(self) -> list[str]:
        """Commands to try next."""
        path = shlex.quote(self.path)
        return [
            f"lakedex show {path}",
            f"lakedex history {path}",
            f"lakedex query {path} --where \"rider = 'r377'\" --limit 5",
            f"lakedex explain {path} --where \"rider = 'r377'\"",
            f"lakedex delete {path} --where \"city = 'Lyon'\"",
            f"lakedex validate {path}",
        ]


def line_of(week: dict[str, Any]) -> str:
    """A week's figures."""
    return (
        f"week {week['week']}  {week['inserted']:>6,} trips inserted, {week['updated']:>4,} corrected; "
        f"{week['files_written']:>2} files, {size_text(week['bytes_written'])}, {week['seconds']:.1f} s"
    )


def _trips(week: int) -> pa.Table:
    """The trips of a week; the same ones at every run."""
    chance = np.random.default_rng(week)
    numbers = np.arange(week * TRIPS, (week + 1) * TRIPS)
    riders = (400 * chance.random(TRIPS) ** 6).astype(np.int64)  # some ride daily, most of them seldom
    moments = (np.sort(chance.integers(0, 7 * 86_400, TRIPS)) + week * 7 * 86_400 + 1_735_689_600) * 1_000_000
    return pa.table(
        {
            "id": pa.array([f"t{number:06d}" for number in numbers.tolist()]),
            "city": pa.array(CITIES).take(pa.array(chance.integers(0, len(CITIES), TRIPS))),
            "rider": pa.array([f"r{rider:03d}" for rider in riders.tolist()]),
            "started": pa.array(moments, pa.timestamp("us", "UTC")),
            "fare": pa.array(np.round(chance.gamma(4.0, 3.0, TRIPS) + 2, 2)),
            "ts": pa.array(np.full(TRIPS, week)),
        }
    )


def _corrections(week: int) -> pa.Table:
    """Trips of a week with another fare, as they come a week later."""
    trips = _trips(week)
    some = trips.take(pa.array(np.random.default_rng(100 + week).choice(TRIPS, CORRECTED, replace=False)))
    fares = pa.array(np.round(some["fare"].to_numpy() * 0.9, 2))
    return some.set_column(4, "fare", fares).set_column(5, "ts", pa.array(np.full(CORRECTED, week + 1)))
