"""Pruning by bitmaps: files by numbers of rows, then, where that pays, by the rows themselves.

Coverage says how many rows of a file have each value, so most files are decided without a bitmap. Where a file is left
over because several conditions might meet in it, its bitmaps are read if the forecast says that this saves more bytes
of data than it costs: the file may turn out empty, or row groups of it. Columns are taken as independent for that, and
nothing but coverage is asked.

Memory: bitmaps of one batch of files, and the selected rows of the files that are left: up to ``MAX_FETCH`` together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lakedex.errors import CorruptFileError
from lakedex.expr.pruner import evaluate_bounds
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.builder import RowGroup
from lakedex.index.bitmap.condition import (
    FALSE,
    TRUE,
    UNDECIDED,
    BoundsEvaluator,
    Condition,
    CountEvaluator,
    Counts,
    RowSets,
    Term,
    all_rows,
    exact_rows,
    needs_data,
    row_sets,
    terms_in,
    to_bitmap_expr,
)
from lakedex.index.bitmap.definitions import indexed_limits, known_bitmap_definitions
from lakedex.index.bitmap.loaded_index import NULL, Coverage, LoadedBitmapIndex, load_runs
from lakedex.index.bitmap.log_coverage import SliceLogs, joined
from lakedex.index.bitmap.slice_files import slice_files
from lakedex.index.column_stats.pruning import slice_bounds
from lakedex.index.protocol import PruneResult, RowSelection, UnusedIndex
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import BoolArray, IntArray, size_text

__all__ = ["Bitmaps", "bitmap_cost", "bitmaps_cost", "bounds_of", "fetch_rows"]


MAX_FETCH = 64 * 1024 * 1024
"""Bytes of bitmaps that one plan reads at most."""


RECORD_COST = 8192
"""Bytes of data that could be read in the time that one bitmap takes to look up and decode …"""


EVALUATED_BYTES = 2
"""… that a value takes to be compared …"""


DECODED_BYTES = 1
"""… and decoded for that. ``benchmarks/bench_gate.py`` measures all three; these are the least favourable figures."""


BATCH_FILES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitmaps:
    """Prunes file slices, and with ``select`` also their rows.

    Attributes:
        select: whether who reads the files can leave out row groups and rows.
        cost_gate: False reads all bitmaps that could tell something, whatever that costs.
        result: top-level columns that are read in any case. Of others, which only the condition names, nothing is read
            where bitmaps answer it whole. None for a reader that looks at the condition all the same.
    """

    select: bool = False
    cost_gate: bool = True
    result: frozenset[str] | None = None

    name: ClassVar[str] = "bitmap"

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Evaluate the slices by the values of their indexed columns."""
        try:
            definitions = known_bitmap_definitions(snapshot)
            if not definitions:
                return PruneResult()
            columns = frozenset(indexed_limits(definitions))
            condition = to_bitmap_expr(predicate, columns)
            if not terms_in(condition):
                return self._without_terms(predicate, columns)
            loaded = load_runs(snapshot, definitions)
        except CorruptFileError as error:
            detail = f"{error}; indexes.validate with repair=True repairs it"
            return PruneResult(unused=(UnusedIndex(index=self.name, reason="damaged", detail=detail),))
        with loaded.coverage.lock:
            return _Plan(self, snapshot, loaded, condition, rows).verdict()

    def _without_terms(self, predicate: BoundPredicate, columns: frozenset[str]) -> PruneResult:
        names = sorted({column.name for column in predicate.columns})
        detail = f"no condition on {', '.join(sorted(columns))}" + (f" alone ({', '.join(names)})" if names else "")
        return PruneResult(unused=(UnusedIndex(index=self.name, reason="no term", detail=detail),))

    def prune_by(
        self, loaded: LoadedBitmapIndex, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray
    ) -> PruneResult:
        """:meth:`prune` by an index that was looked up already."""
        condition = to_bitmap_expr(predicate, loaded.columns)
        if not terms_in(condition):
            return self._without_terms(predicate, loaded.columns)
        with loaded.coverage.lock:
            return _Plan(self, snapshot, loaded, condition, rows).verdict()


@dataclass(slots=True)
class _Plan:
    """One condition over some slices."""

    index: Bitmaps
    snapshot: Snapshot
    loaded: LoadedBitmapIndex
    condition: Condition
    rows: IntArray
    files: IntArray = field(init=False)
    logs: Mapping[int, SliceLogs] = field(init=False)
    from_logs: IntArray = field(init=False)
    evaluator: CountEvaluator = field(init=False)
    saved: npt.NDArray[np.float64] = field(init=False)
    cost: npt.NDArray[np.float64] = field(init=False)

    def verdict(self) -> PruneResult:
        coverage = self.loaded.coverage
        known = slice_files(coverage, self.snapshot, self.rows)
        self.files, self.logs = known.files, known.logs
        self.evaluator = CountEvaluator(coverage, self.files, _groups(coverage, self.files), self._bounds)
        counts = self.evaluator.evaluate(self.condition)
        self.from_logs = self._rows_from_logs()
        most = counts.true[1].copy()
        for place, logs in self.logs.items():
            # Of the base file's rows the touched ones are not as they are there, if no log record loses against one.
            touched = len(logs.touched) if logs.is_ordered else 0
            most[place] = min(int(most[place]), int(self.evaluator.rows[place]) - touched)
        keep: BoolArray = most + self.from_logs > 0
        dropped = len(keep) - int(keep.sum())
        fetch, left = self._worth_it(counts, keep)
        selections: dict[int, RowSelection] = {}
        for start in range(0, len(fetch), BATCH_FILES):
            part = fetch[start : start + BATCH_FILES]
            for place, selection in self._selected(part).items():
                keep[place] = selection is not None
                if selection is not None and self.index.select:
                    selections[int(self.rows[place])] = selection
        terms = [term for term, found in self.evaluator.terms.items() if found.known.any()]
        notes = [f"{dropped} by counts"] if dropped and len(fetch) else []
        notes += self._note(fetch, left, selections)
        return PruneResult(
            keep=keep,
            terms=tuple(dict.fromkeys(term.predicate.text for term in terms)),
            note=", ".join(notes),
            unused=self._unused(),
            selections=selections,
        )

    def _bounds(self, predicate: BoundPredicate) -> tuple[BoolArray, BoolArray, BoolArray] | None:
        """Truth of a condition on other columns, as far as column stats prove it."""
        columns = {column.name: column.type for column in predicate.columns}
        found = slice_bounds(self.snapshot, columns, self.rows) if columns else None
        return (
            None
            if found is None
            else evaluate_bounds(predicate.predicate, lambda column: found.get(column.name), len(self.rows))
        )

    def _rows_from_logs(self) -> IntArray:
        """At most how many rows of each slice match that are the latest record of a log file.

        A merged row is the record that beats the others of its key, or has the columns which that one lacks from them.
        """
        most = np.zeros(len(self.files), np.int64)
        if not self.logs:
            return most
        numbers, owners = joined(self.logs)
        of_logs = CountEvaluator(
            self.loaded.coverage, numbers, np.ones(len(numbers), np.int64), bounds_of(self._bounds, owners)
        )
        np.add.at(most, owners, of_logs.evaluate(self.condition).true[1])
        return most

    # ------------------------------------------------------------------------------------------------ what it costs

    def _worth_it(self, counts: Counts, keep: BoolArray) -> tuple[IntArray, IntArray]:
        """Places whose bitmaps are read, the most useful first; and those that are left because that does not pay."""
        groups = _groups(self.loaded.coverage, self.files).astype(np.float64)
        known = np.zeros(len(self.files), np.bool_)
        cost = np.zeros(len(self.files))
        for term, found in self.evaluator.terms.items():
            known |= found.known
            cost += np.where(found.known, bitmap_cost(self.evaluator, term), 0.0)
        decided = exact_rows(counts) & (len(self.evaluator.terms) > 1)
        all_rows_match = counts.true[0] == self.evaluator.rows
        open_to_doubt = keep & known & ~all_rows_match & ~(decided & ~self.index.select)
        if len(terms_in(self.condition)) == 1 and not self.index.select:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        size = self.snapshot.view().table.sizes[self.rows].astype(np.float64)
        expected = counts.share * self.evaluator.rows
        empty = np.where(counts.true[0] > 0, 0.0, np.exp(-expected))
        for place, logs in self.logs.items():
            # Rows that are read in any case, and that may match whatever the base file says.
            expected[place] += len(logs.touched)
            empty[place] = 0.0 if self.from_logs[place] else empty[place]
        left = np.minimum(counts.groups, groups * -np.expm1(-expected / np.maximum(groups, 1)))
        saved = size * (np.maximum(empty, 1 - left / groups) if self.index.select else empty)
        saved += self._spared()
        pays = saved > cost if self.index.cost_gate else np.ones(len(size), np.bool_)
        chosen = np.flatnonzero(open_to_doubt & pays)
        chosen = chosen[np.argsort(cost[chosen] - saved[chosen], kind="stable")]
        chosen = chosen[np.cumsum(cost[chosen]) <= MAX_FETCH]
        self.saved, self.cost = saved, cost
        return chosen, np.setdiff1d(np.flatnonzero(open_to_doubt), chosen)

    def _forecast(self, places: IntArray) -> str:
        saved, cost = (size_text(round(float(bytes_[places].sum()))) for bytes_ in (self.saved, self.cost))
        return f"forecast: {saved} of data saved by {cost} of bitmaps"

    def _spared(self) -> npt.NDArray[np.float64]:
        """About the bytes that could be read in the time that judging takes, since bitmaps answer the condition."""
        nothing = np.zeros(len(self.files))
        if not self.index.select or self.index.result is None or needs_data(self.condition):
            return nothing
        names = {term.column.path[0] for term in self.evaluator.terms}
        row = EVALUATED_BYTES * len(names) + DECODED_BYTES * len(names - self.index.result)
        whole = np.logical_and.reduce([found.known for found in self.evaluator.terms.values()])
        return np.where(whole, float(row) * self.evaluator.rows, nothing)

    # -------------------------------------------------------------------------------------------------- rows

    def _selected(self, places: IntArray) -> dict[int, RowSelection | None]:
        """The rows of some files, those whose bitmaps could be read; None where no row matches."""
        coverage = self.loaded.coverage
        terms = list(self.evaluator.terms.items())
        found = {
            term: fetch_rows(coverage, term, counted.of_value, self.files[places[counted.known[places]]])
            for term, counted in terms
            if counted.of_value is not None
        }
        selections: dict[int, RowSelection | None] = {}
        for place in places.tolist():
            number = int(self.files[place])
            own = {term: rows[number] for term, rows in found.items() if number in rows}
            if not own:
                continue
            item = coverage.files[number]
            sets = row_sets(self.condition, item.rows, own)
            groups = [RowGroup(*group) for group in item.groups]
            logs = self.logs.get(place)
            if logs is None:
                selections[place] = RowSelection.of(sets.true, groups, is_exact=sets.is_exact) if sets.true else None
                continue
            left = sets.true - logs.touched if logs.is_ordered else sets.true
            may_match = bool(left) or self.from_logs[place] > 0
            rows = sets.true | logs.touched
            selections[place] = RowSelection.of(rows, groups, is_exact=False, logs=logs.names) if may_match else None
        return selections

    # -------------------------------------------------------------------------------------------------- words

    def _note(self, fetch: IntArray, left: IntArray, selections: Mapping[int, RowSelection]) -> list[str]:
        notes = []
        if len(fetch):
            notes.append(f"bitmaps of {len(fetch)} files read ({self._forecast(fetch)})")
        if selections:
            rows = sum(selection.count for selection in selections.values())
            groups = sum(len(selection.groups) for selection in selections.values())
            kept = sum(len(selection.kept_groups()) for selection in selections.values())
            notes.append(f"{rows:,} row positions, {kept} of {groups} row groups in {len(selections)} files")
        if len(left):
            notes.append(f"bitmaps of {len(left)} files not worth reading ({self._forecast(left)})")
        if self.logs:
            notes.append(f"log files of {len(self.logs)} slices known")
        uncovered = int((self.files < 0).sum())
        if uncovered:
            notes.append(f"not known for {uncovered} files")
        return notes

    def _unused(self) -> tuple[UnusedIndex, ...]:
        """Columns that are not indexed in some files."""
        unused = []
        for term, found in self.evaluator.terms.items():
            missing = int(((self.files >= 0) & ~found.known).sum())
            if missing:
                detail = f"{term.column.name} is not indexed, or not known, in {missing} covered files"
                unused.append(
                    UnusedIndex(index=self.index.name, reason="no entry", detail=detail, column=term.column.name)
                )
        return tuple(unused)


def _groups(coverage: Coverage, files: IntArray) -> IntArray:
    """Row groups of each file; 1 where they are not known."""
    if not len(coverage.groups):
        return np.ones(len(files), np.int64)
    return np.where(files >= 0, np.maximum(coverage.groups[np.maximum(files, 0)], 1), 1)


def bounds_of(bounds: BoundsEvaluator, owners: IntArray) -> BoundsEvaluator:
    """The same for log files, given by the place of the slice of each: what is true of all its rows is of theirs."""

    def of_logs(predicate: BoundPredicate) -> tuple[BoolArray, BoolArray, BoolArray] | None:
        found = bounds(predicate)
        return None if found is None else (found[0][owners], found[1][owners], found[2][owners])

    return of_logs


def bitmap_cost(evaluator: CountEvaluator, term: Term) -> npt.NDArray[np.float64]:
    """About the bytes of a term's bitmaps in each file."""
    found = evaluator.terms[term]
    smaller = found.counts.sum(axis=0) - found.counts.max(axis=0)
    return bitmaps_cost(evaluator.rows, found.records, smaller)


def bitmaps_cost(rows: IntArray, records: IntArray, positions: IntArray) -> npt.NDArray[np.float64]:
    """About the bytes of bitmaps of files: base64 of at most 2 bytes a position or a bit a row, and the records' own.

    Args:
        rows: of each file.
        records: bitmaps of it.
        positions: that they have together.
    """
    size = np.minimum(2.0 * positions, records * rows / 8.0) * 4 / 3
    return np.asarray(size + RECORD_COST * records, np.float64)


def fetch_rows(coverage: Coverage, term: Term, of_value: npt.NDArray[np.int8], files: IntArray) -> dict[int, RowSets]:
    """The rows of a term in some files, by file number; a file whose bitmaps are not all there is left out.

    Two of the three sets are read, those of the fewest values; the third is what is left of the file's rows.
    """
    column = coverage.column(term.column.name)
    wanted: dict[int, list[int]] = {}
    classes: dict[int, dict[int, list[int]]] = {}
    for number in files.tolist():
        entry = int(column.entry_of[number])
        span = column.span(entry)
        codes = column.codes[span]
        truth = of_value[codes]
        values = np.bincount(truth, minlength=3)
        weights = np.bincount(truth, weights=column.counts[span], minlength=3)
        nulls = int(column.nulls[entry])
        values[of_value[-1]] += nulls > 0
        weights[of_value[-1]] += nulls
        largest = max((FALSE, TRUE, UNDECIDED), key=lambda answer: (values[answer], weights[answer]))
        own = {answer: codes[truth == answer].tolist() for answer in (FALSE, TRUE, UNDECIDED) if answer != largest}
        if nulls and of_value[-1] != largest:
            own[int(of_value[-1])].append(NULL)
        classes[number] = own
        wanted[number] = [code for codes in own.values() for code in codes]
    bitmaps = coverage.bitmaps(term.column.name, wanted)
    found = {}
    for number, own in classes.items():
        if all((number, code) in bitmaps for code in wanted[number]):
            found[number] = _sets(coverage.files[number].rows, number, own, bitmaps)
    return found


def _sets(rows: int, number: int, own: dict[int, list[int]], bitmaps: Mapping[tuple[int, int], BitMap]) -> RowSets:
    sets = {
        answer: BitMap.union(*(bitmaps[number, code] for code in codes)) if codes else BitMap()
        for answer, codes in own.items()
    }
    rest = all_rows(rows)
    for known in sets.values():
        rest -= known
    (missing,) = {FALSE, TRUE, UNDECIDED} - own.keys()
    sets[missing] = rest
    return RowSets(sets[TRUE], sets[FALSE], sets[UNDECIDED])
