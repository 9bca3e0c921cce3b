"""Common to all subcommands: options, the table, progress, the answer as text or JSON, plan and consent."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

import lakedex
from lakedex.errors import InvalidInputError
from lakedex.printing import printable

__all__ = [
    "CHANGE",
    "FINDINGS",
    "INDEX",
    "KEEP",
    "LOOK",
    "TRY",
    "AsOf",
    "Call",
    "Columns",
    "DefaultGroup",
    "Limit",
    "Meter",
    "Output",
    "Where",
    "add_command",
    "names",
    "sized",
]


FINDINGS = 1


LOOK, CHANGE, KEEP, INDEX, TRY = "Look", "Change rows", "Keep in order", "Indexes", "Try and examine"
"""Groups of subcommands, as the help shows them."""


TablePath = Annotated[str, typer.Argument(metavar="TABLE", help="Folder of the table: a path or a storage URL.")]
Where = Annotated[str | None, typer.Option("--where", metavar="SQL", help="Condition on the rows, in Spark SQL.")]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Columns of the result; all of the table by default.")
]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="Instant, date or time; the newest commit by default.")
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="Rows at most.")]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the rows to this .parquet, .csv, .json or .arrow file."),
]


def _option(kind: Any, *names: str, **settings: Any) -> Any:
    return Annotated[kind, typer.Option(*names, **settings)]


_ANSWER: Mapping[str, tuple[Any, Any]] = {
    "json": (_option(bool, "--json", help="Answer with one JSON document."), False),
    "debug": (_option(bool, "--debug", help="Show the traceback of an error."), False),
}
_STORAGE: Mapping[str, tuple[Any, Any]] = {
    "storage_option": (
        _option(
            list[str] | None,
            "--storage-option",
            metavar="KEY=VALUE",
            help="How an object store is reached, as aws_region=eu-west-1; may be repeated. None: by the environment.",
        ),
        None,
    ),
}
_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "option": (
        _option(list[str] | None, "--option", metavar="KEY=VALUE", help="A hoodie.* option; may be repeated."),
        None,
    ),
}
_CONSENT: Mapping[str, tuple[Any, Any]] = {
    "dry_run": (_option(bool, "--dry-run", help="Show the plan and change nothing."), False),
    "yes": (_option(bool, "--yes", "-y", help="Do it without asking."), False),
}


PATIENCE = 1.0
"""Seconds until it shows."""

_steps = logging.getLogger("lakedex.progress")


class Meter(logging.Handler):
    """A bar on stderr, and the ``progress`` argument of calls. Shows nothing where stderr is no terminal.

    Args:
        patience: seconds until it shows.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        super().__init__(logging.INFO)
        self._patience = patience
        self._title = ""
        self._state = (0, 0)
        self._bar: Any = None
        self._running = False
        self._guard = threading.RLock()

    def __call__(self, done: int, total: int) -> None:
        """Take the number of steps done, and of all."""
        self._state = (done, total)
        self._update()

    def emit(self, record: logging.LogRecord) -> None:
        """Take the name of a step that the library reports."""
        self._title = printable(record.getMessage())
        self._update()

    @contextmanager
    def running(self, title: str) -> Iterator[Meter]:
        """Show ``title`` and the progress while the block runs, from the second second on."""
        if not sys.stderr.isatty():
            yield self
            return
        self._title, self._running = printable(title), True
        timer = threading.Timer(self._patience, self._start)
        timer.daemon = True
        timer.start()
        level = _steps.level
        _steps.addHandler(self)
        _steps.setLevel(logging.INFO)
        try:
            yield self
        finally:
            timer.cancel()
            _steps.removeHandler(self)
            _steps.setLevel(level)
            with self._guard:
                self._running = False
                if self._bar is not None:
                    self._bar.stop()
                    self._bar = None

    def _start(self) -> None:
        rich = import_module("rich.progress")
        columns = (rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False))
        bar = rich.Progress(
            *columns,
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            console=import_module("rich.console").Console(stderr=True),
            transient=True,
        )
        with self._guard:
            if not self._running:
                return
            self._bar = bar
            bar.add_task(self._title, total=None)
            bar.start()
        self._update()

    def _update(self) -> None:
        with self._guard:
            if self._bar is not None:
                done, total = self._state
                self._bar.update(self._bar.task_ids[0], description=self._title, completed=done, total=total or None)


def _pairs(texts: Sequence[str] | None, name: str, example: str) -> dict[str, str]:
    """Options given as KEY=VALUE."""
    pairs = [text.partition("=") for text in texts or ()]
    if wrong := [key for key, sign, _ in pairs if not (sign and key.strip())]:
        raise InvalidInputError(f"{name} takes KEY=VALUE, as in {example}; not {wrong[0]!r}")
    return {key.strip(): value for key, _, value in pairs}


@dataclass
class Call:
    """One run of a subcommand."""

    path: str = ""
    json: bool = False
    debug: bool = False
    option: list[str] | None = None
    storage_option: list[str] | None = field(default=None, repr=False)
    dry_run: bool = False
    yes: bool = False
    meter: Meter = field(default_factory=Meter)

    @cached_property
    def table(self) -> lakedex.Table:
        """The table at the path."""
        return lakedex.Table.open(self.path, storage_options=self.storage_options, options=self.options)

    @cached_property
    def options(self) -> dict[str, str]:
        """The options given by ``--option``."""
        return _pairs(self.option, "--option", "hoodie.clean.automatic=false")

    @cached_property
    def storage_options(self) -> dict[str, str] | None:
        """The options given by ``--storage-option``; None takes the environment's."""
        return _pairs(self.storage_option, "--storage-option", "aws_region=eu-west-1") or None

    def busy(self, title: str) -> AbstractContextManager[Meter]:
        """Show ``title`` and the progress on a terminal once a second has passed."""
        return self.meter.running(title)

    def answer(self, document: Any, text: Any = None, *, note: str = "", figures: bool = True) -> None:
        """Print the result.

        Args:
            document: an Arrow table, a report, or plain values: the JSON document.
            text: the same for people, as text or Arrow table; None takes ``document``.
            note: a line below, which JSON leaves out.
            figures: whole numbers of a table are counts and sizes, to be printed as such.
        """
        output = import_module("lakedex.cli.output")
        if self.json:
            print(output.json_text(document))
            return
        print(output.text_of(document if text is None else text, figures=figures))
        if note:
            print(printable(note))

    def may(self, plan: str, document: Mapping[str, Any] | None = None) -> bool:
        """Show the plan of a change and ask for consent.

        Args:
            plan: what would be done, as a sentence that begins with ``would``.
            document: the plan's figures, for ``--dry-run --json``.

        Returns:
            Whether to do it.

        Raises:
            InvalidInputError: nobody can be asked, and ``--yes`` was not given.
        """
        if self.dry_run:
            self.answer({"dry_run": True, "plan": plan, **(document or {})}, printable(plan))
            return False
        if self.yes:
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidInputError(f"{plan}; nothing was changed: give --yes to do it, --dry-run to see the plan only")
        if typer.confirm(f"{printable(plan)}. Do it?", err=True):
            return True
        print("nothing was changed", file=sys.stderr)
        return False


class DefaultGroup(TyperGroup):
    """Subcommands of which ``create`` need not be written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``create`` before arguments that begin with none of the subcommands."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["create", *args]
        return super().parse_args(ctx, args)


def sized(count: int) -> str:
    """A number of bytes, as in ``1.8 MiB``."""
    text: str = import_module("lakedex.types").size_text(count)
    return text


def names(columns: str | None) -> list[str] | None:
    """Names of columns that commas separate."""
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


F = TypeVar("F", bound=Callable[..., None])


def add_command(
    app: typer.Typer, name: str, group: str, *, table: bool = True, changes: bool = False, storage: bool = False
) -> Callable[[F], F]:
    """Add a function ``(call, …)`` as a subcommand with the common options.

    Args:
        app: where to add it.
        name: its name.
        group: heading in the help.
        table: its first argument is a table.
        changes: it changes a table, so it has ``--dry-run`` and ``--yes``.
        storage: it has ``--storage-option`` without a table.
    """
    shared = {
        **_ANSWER,
        **(_OPTIONS if table else {}),
        **(_STORAGE if table or storage else {}),
        **(_CONSENT if changes else {}),
    }

    def add(function: F) -> F:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        kind = inspect.Parameter.KEYWORD_ONLY
        common = [inspect.Parameter(key, kind, default=value, annotation=at) for key, (at, value) in shared.items()]
        path = [inspect.Parameter("path", kind, annotation=TablePath)] if table else []
        parameters = [*path, *(parameter.replace(kind=kind) for parameter in own), *common]

        def run(**given: Any) -> None:
            call = Call(**{one.name: given.pop(one.name) for one in [*path, *common]})
            function(call, **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__doc__ = function.__doc__
        app.command(name, rich_help_panel=group)(run)
        return function

    return add
