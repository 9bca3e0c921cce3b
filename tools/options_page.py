"""Make ``docs/options.md``, the list of every ``hoodie.*`` option, from those that the code knows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from lakedex import options  # noqa: E402

PAGE = ROOT / "docs" / "options.md"


def options_page() -> str:
    """The page, in Markdown."""
    taken = [
        f"| `{name}` | {_default(name, default)} | {_values(parse, default)} | {_acts_on(target)} |"
        for name, (target, parse) in sorted(options.DONE.items())
        for default in [attrgetter(target)(options.DEFAULTS)]
    ]
    return "\n".join(
        [
            "# Options\n",
            "Options are Hudi's, spelled as Hudi spells them. Give them to `Table.create` and `Table.open` for all"
            " calls, or to one call as `options=`, which counts first. An option that is not on this page is refused,"
            " with the nearest known name.\n",
            "## Taken\n\n| option | default | values | acts on |\n| --- | --- | --- | --- |",
            *taken,
            "\n## One value only\n\nAny other value is refused.\n\n| option | value |\n| --- | --- |",
            *(f"| `{name}` | `{value}` |" for name, value in sorted(options.FIXED.items())),
            "\n## Refused\n\n| option | instead |\n| --- | --- |",
            *(f"| `{name}` | {instead} |" for name, instead in sorted(options.REFUSED.items())),
            "\n## Accepted without effect\n\nThey tune how Hudi's Java code works and do not change the table. The"
            " result of a write lists them in `notes`. A name that ends in a dot stands for all options that begin with"
            " it.\n",
            *(f"* `{name}`" for name in sorted(options.HARMLESS)),
            "",
        ]
    )


def _default(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float) and name.endswith(("_ms", "_ms_between_retry")):
        value = int(value * 1000)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(parse: Callable[[str], Any], default: Any) -> str:
    """The values that a parser takes: it names choices itself when it meets another value."""
    try:
        parse("\0")
    except (ValueError, KeyError) as error:
        if "one of " in str(error):
            return ", ".join(
                f"`{choice}`" for choice in str(error).partition("one of ")[2].partition(";")[0].split(", ")
            )
        if isinstance(error, KeyError):
            return "`true`, `false`"
        return "a number" if isinstance(default, float) else "a whole number"
    return "names of columns, with commas" if "column" in getattr(parse, "__name__", "") else "text"


def _acts_on(target: str) -> str:
    return ", ".join(f"`{call}`" for call in sorted(options.ACTS_ON.get(target, ()))) or "every write"


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8")
