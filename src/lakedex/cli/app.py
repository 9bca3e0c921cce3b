"""The program: its subcommands, and errors as one line and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import lakedex
from lakedex.cli import change, look
from lakedex.errors import LakedexError
from lakedex.printing import printable, printed

__all__ = ["app", "run"]


FAILED, INTERRUPTED = 2, 130


app = typer.Typer(
    name="lakedex",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)
look.add_to(app)
change.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lakedex {lakedex.__version__}")
        raise typer.Exit


@app.callback()
def lakedex_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Apache Hudi tables from the command line: no Spark, no Java, no jar."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; an error is one line on stderr.

    Args:
        arguments: those after the program's name.

    Returns:
        The exit code.
    """
    try:
        code = typer.main.get_command(app).main(list(arguments), prog_name="lakedex", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            print("\nlakedex: interrupted; a write that had begun is rolled back by the next one", file=sys.stderr)
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, SystemExit) as error:
        # typer leaves so when the reader, as head, has enough, and to complete words for a shell.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # What is left in the buffer must not fail at exit.
        sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: SIM115
        return 0
    except typer.Abort:
        print("\nlakedex: nothing was changed", file=sys.stderr)
        return FAILED
    except typer.TyperException as error:
        # Without a message the help has been shown.
        return _failed(_usage(error), arguments) if error.format_message() else FAILED
    except Exception as error:
        return _failed(str(error) if isinstance(error, LakedexError) else _foreign(error), arguments)


def _failed(message: str, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        print(printed(traceback.format_exc().rstrip().split("\n")), file=sys.stderr)
    print(f"lakedex: {printable(message)}", file=sys.stderr)
    return FAILED


def _usage(error: Any) -> str:
    """The fault of the arguments, and the help that says how they are."""
    context = getattr(error, "ctx", None)
    text = str(error.format_message()).strip().rstrip(".")
    command = context.command_path if context is not None else "lakedex"
    return f"{text}; see {command} --help"


def _foreign(error: Exception) -> str:
    """An error of Python's or of another package."""
    first = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {first}; --debug shows where"
