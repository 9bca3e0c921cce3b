"""Take blocks of a delta commit back in log files that hold blocks of others too, as in tables of version 6.

There a log file is named after the base file of its slice. A command block in the next log file of the slice says that
the blocks of an instant before it do not count (``RollbackHelperV1``, ``HoodieCommandBlock``).

Memory: names of the slices' log files, and the headers of one log file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from lakedex.codec.log_block import LogBlock, RollbackCommand, encode_rollback_block, read_block_headers
from lakedex.io.storage import TableFiles
from lakedex.layout.contained_files import delete_files, list_folder
from lakedex.layout.names import LogFileName, parse_log_file_name
from lakedex.parallel import run_threads

__all__ = ["log_files_with", "take_back"]


_THREADS = 8


Sizes = dict[str, dict[str, int]]
"""Partition path → file name → size in bytes."""


def log_files_with(files: TableFiles, listing: Mapping[str, Mapping[str, int]], instant: str) -> set[tuple[str, str]]:
    """(partition, name) of the log files that hold a block of an instant; all their headers are read.

    Raises:
        CorruptFileError: a log file is damaged in a way that an interrupted writer does not explain.
    """
    logs = [
        (partition, entry.name, entry.size)
        for partition in listing
        for entry in list_folder(files, partition)
        if parse_log_file_name(entry.name) is not None
    ]
    found = run_threads(partial(_has_block, files, instant), logs, _THREADS)
    return {(partition, name) for (partition, name, _), has in zip(logs, found, strict=True) if has}


def _has_block(files: TableFiles, instant: str, log: tuple[str, str, int]) -> bool:
    return any(
        block.block_type != "COMMAND" and block.header.get("INSTANT_TIME") == instant for block in _headers(files, *log)
    )


def _headers(files: TableFiles, partition: str, name: str, size: int) -> list[LogBlock]:
    path = files.path(partition, name)
    return read_block_headers(partial(files.storage.read_ranges, path), size, path, skip_torn=True)


def take_back(files: TableFiles, logs: Iterable[tuple[str, str]], undone: str, rollback: str) -> tuple[Sizes, Sizes]:
    """Append a command block to each slice of some log files. Call under the table lock; may be repeated.

    Args:
        files: the table's files.
        logs: (partition, name) of log files with blocks of ``undone``; those that are not there are left out, and
            empty ones deleted, since their writer died before the first block.
        undone: the instant whose blocks no longer count.
        rollback: the instant of the rollback.

    Returns:
        The log files that were added, and those whose blocks they take back.

    Raises:
        CorruptFileError: a log file is damaged in a way that an interrupted writer does not explain.
    """
    commands: Sizes = {}
    failed: Sizes = {}
    slices: dict[tuple[str, str, str], set[str]] = {}
    for partition, name in sorted(logs):
        if (log := parse_log_file_name(name)) is not None:
            slices.setdefault((partition, log.file_id, log.instant), set()).add(name)
    for (partition, file_id, instant), names in slices.items():
        present = {}
        for entry in list_folder(files, partition):
            log = parse_log_file_name(entry.name)
            if log is not None and (log.file_id, log.instant, log.cdc) == (file_id, instant, False):
                present[entry.name] = (log, entry.size)
        own = {name: present[name][1] for name in names if name in present}
        delete_files(files, [(partition, name) for name, size in own.items() if not size])
        own = {name: size for name, size in own.items() if size}
        if own:
            failed.setdefault(partition, {}).update(own)
            after = max(present[name][0].version for name in own)
            made = _command_file(files, partition, present, after, RollbackCommand(rollback, undone))
            commands.setdefault(partition, {}).update(made)
    return commands, failed


def _command_file(
    files: TableFiles,
    partition: str,
    present: Mapping[str, tuple[LogFileName, int]],
    after: int,
    command: RollbackCommand,
) -> dict[str, int]:
    """The log file of a slice with the command, after all others; one that a rollback left before it died is taken."""
    for name, (log, size) in present.items():
        if log.version > after and any(
            block.block_type == "COMMAND"
            and (block.header.get("INSTANT_TIME"), block.header.get("TARGET_INSTANT_TIME"))
            == (command.instant, command.target_instant)
            for block in _headers(files, partition, name, size)
        ):
            return {name: size}
    last, _ = max(present.values(), key=lambda found: found[0].order)
    name = str(LogFileName(last.file_id, last.instant, last.version + 1, last.token))
    body = encode_rollback_block(command)
    files.storage.create(files.path(partition, name), body)
    return {name: len(body)}
