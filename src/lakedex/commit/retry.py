"""Retry a write after a commit conflict, against the table's new state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakedex.commit.context import WriteContext
from lakedex.commit.idempotency import DuplicateBatchError, require_new, result_of
from lakedex.commit.transaction import Transaction
from lakedex.errors import CommitConflictError
from lakedex.maintenance.schedule import run_services
from lakedex.options import WriteOptions
from lakedex.reports import WriteResult
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.types import Operation

__all__ = ["run_with_retries"]


def run_with_retries(
    handle: TableContext,
    options: WriteOptions,
    operation: Operation,
    attempt: Callable[[Transaction], WriteResult],
    ctx: WriteContext,
    base: Snapshot,
) -> WriteResult:
    """Run ``attempt`` in a transaction, again after a conflict (``hoodie.write.num.retries.on.conflict.failures``).

    Args:
        handle: the table.
        options: of the write.
        operation: Hudi's name of the action.
        attempt: does the work and commits it.
        ctx: the write's context; ``attempt`` gives its own notes in its result.
        base: the table as the write has seen it so far.
    """
    ctx.phases["prepare rows"] = ctx.seconds
    for number in range(options.retries + 1):
        transaction = Transaction(handle, options, operation, ctx, base)
        try:
            with ctx.phase("begin"):
                transaction.begin()
        except CommitConflictError as error:  # It has taken back what it announced.
            if not error.retryable or number == options.retries:
                raise
            ctx.notes.append("the table lock was lost: began again")
            continue
        base = transaction.snapshot
        try:
            if options.txn is not None:
                require_new(base, options.txn)
            result = attempt(transaction)
        except DuplicateBatchError as done:
            transaction.abort(done)
            return result_of(done, ctx.notes, operation)
        except Exception as error:
            conflict = transaction.abort(error)
            if conflict is None:
                raise
            if not conflict.retryable or number == options.retries:
                raise conflict from (None if conflict is error else error)
            ctx.notes.append(f"conflict with {conflict.theirs or 'another writer'}: tagged and wrote again")
            continue
        except BaseException as error:
            transaction.abort(error)
            raise
        ctx.notes += result.notes
        if transaction.committed is not None:
            with ctx.phase("services"):
                transaction.upkeep()
                ctx.notes += run_services(handle, replace(options, txn=None), transaction.committed)
        bitmap_bytes, bitmap_seconds = transaction.index_costs.get("bitmap", (0, 0.0))
        return replace(
            result,
            bitmap_bytes=bitmap_bytes,
            bitmap_seconds=bitmap_seconds,
            notes=tuple(ctx.notes),
            phases=dict(ctx.phases),
            seconds=ctx.seconds,
        )
    raise AssertionError("unreachable")
