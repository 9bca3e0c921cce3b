"""A write is tried again after a conflict with another writer, on the table as it is then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from lakedex.commit.idempotency import DuplicateBatchError, require_new, result_of
from lakedex.commit.transaction import Transaction
from lakedex.errors import CommitConflictError
from lakedex.maintenance.schedule import run_services
from lakedex.options import WriteOptions
from lakedex.reports import WriteResult
from lakedex.snapshot.snapshot import TableContext
from lakedex.types import Operation

__all__ = ["run_with_retries"]


def run_with_retries(
    handle: TableContext,
    options: WriteOptions,
    operation: Operation,
    attempt: Callable[[Transaction], WriteResult],
    started: float,
) -> WriteResult:
    """Run ``attempt`` in a transaction, again after a conflict (``hoodie.write.num.retries.on.conflict.failures``)."""
    notes = list(options.notes)
    for number in range(options.conflict_retries + 1):
        transaction = Transaction(handle, options, operation)
        try:
            transaction.begin()
        except CommitConflictError as error:  # It has taken back what it announced.
            if not error.retryable or number == options.conflict_retries:
                raise
            notes.append("the table lock was lost: began again")
            continue
        if transaction.undone:
            notes.append(f"rolled back the failed write {', '.join(transaction.undone)}")
        try:
            if options.txn is not None:
                require_new(transaction.snapshot, options.txn)
            result = attempt(transaction)
        except DuplicateBatchError as done:
            transaction.abort(done)
            return result_of(done, replace(options, notes=tuple(notes)), operation)
        except Exception as error:
            conflict = transaction.abort(error)
            if conflict is None:
                raise
            if not conflict.retryable or number == options.conflict_retries:
                raise conflict from (None if conflict is error else error)
            notes.append(f"conflict with {conflict.theirs or 'another writer'}: tagged and wrote again")
            continue
        except BaseException as error:
            transaction.abort(error)
            raise
        if result.instant is not None:
            transaction.upkeep()
            transaction.notes += run_services(handle, replace(options, txn=None))
        bitmap_bytes, bitmap_seconds = transaction.index_costs.get("bitmap", (0, 0.0))
        return replace(
            result,
            bitmap_bytes=bitmap_bytes,
            bitmap_seconds=bitmap_seconds,
            notes=(*notes, *result.notes, *transaction.notes),
            seconds=time.perf_counter() - started,
        )
    raise AssertionError("unreachable")
