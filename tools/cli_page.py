"""The subcommands of ``lakedex`` as the tables of ``docs/cli.md``: ``python tools/cli_page.py`` writes them there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from paths import ROOT

__all__ = ["commands", "page_with_tables", "tables"]

PAGE = ROOT / "docs" / "cli.md"
BEGIN, END = "<!-- subcommands: written by tools/cli_page.py -->\n", "<!-- end of subcommands -->\n"
COMMON = frozenset({"--json", "--debug", "--option", "--storage-option", "--yes", "--dry-run", "--help"})
"""Options that the page explains once."""


def commands() -> dict[str, Any]:
    """All subcommands by their words, as in ``index create``."""
    sys.path.insert(0, str(ROOT / "src"))
    import typer

    from lakedex.cli.app import app

    return dict(_leaves(typer.main.get_command(app), ""))


def _leaves(command: Any, words: str, group: str = "") -> Iterator[tuple[str, Any]]:
    panel = getattr(command, "rich_help_panel", None)
    group = group or (panel if isinstance(panel, str) else "")
    if not hasattr(command, "commands"):
        command.rich_help_panel = group
        yield words, command
        return
    for name, own in command.commands.items():
        yield from _leaves(own, f"{words} {name}".strip(), group)


def tables() -> str:
    """A table for each group of subcommands."""
    groups: dict[str, list[str]] = {}
    for words, command in commands().items():
        arguments = [one.metavar or one.name.upper() for one in command.params if one.param_type_name == "argument"]
        options = [_option(one) for one in command.params if one.param_type_name == "option"]
        shown = " ".join(f"`{text}`" for text in options if text)
        row = f"| `lakedex {' '.join([words, *arguments])}` | {(command.help or '').strip()} | {shown} |"
        groups.setdefault(command.rich_help_panel, []).append(row)
    head = "| command | does | options |\n| --- | --- | --- |"
    return "\n\n".join("\n".join([f"### {group}\n", head, *rows]) for group, rows in groups.items()) + "\n"


def _option(option: Any) -> str:
    if COMMON & set(option.opts):
        return ""
    names = "/".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar}"


def page_with_tables(text: str) -> str:
    """The page with its tables as the program has them now."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text("utf-8")), "utf-8")
