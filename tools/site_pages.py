"""Pages that ``mkdocs.yml`` adds to ``docs/``: one per public name, errors, testing, and the root's papers."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import lakedex  # noqa: E402
from lakedex import testing  # noqa: E402

PAPERS = {
    "README.md": "index.md",
    **{
        f"{name}.md": f"project/{name.lower()}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")
    },
}
"""File in the root → its page."""
REACHED = {
    "Indexes": "lakedex.table.indexes.Indexes",
    "Inspect": "lakedex.table.inspect.Inspect",
    "Maintenance": "lakedex.table.maintenance.Maintenance",
    "MergeBuilder": "lakedex.table.merge_builder.MergeBuilder",
    "Scan": "lakedex.scan.scan.Scan",
    "ScanPlan": "lakedex.scan.plan.ScanPlan",
    "reports": "lakedex.reports",
}
"""What methods of ``Table`` return, and results of calls."""
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """List the generated pages under *Reference*."""
    pages = [f"reference/{name}.md" for name in (*_names(), "errors", "testing")]
    reference = ["reference/index.md", "options.md", *pages]
    config.nav = [{"Reference": reference} if "Reference" in item else item for item in config.nav or []]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the generated pages."""
    for path, content in _pages():
        files.append(File.generated(config, path, content=content))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to files of the root to their pages. Links to other files outside of ``docs/`` become their text."""
    here = Path(page.file.src_uri).parent
    written_in = ROOT if page.file.src_uri in PAPERS.values() else ROOT / "docs" / here

    def led(match: re.Match[str]) -> str:
        text, target, anchor = match[1], (written_in / match[2]).resolve(), match[3] or ""
        if target.parent == ROOT and target.name in PAPERS:
            return f"[{text}]({'../' * len(here.parts)}{PAPERS[target.name]}{anchor})"
        if not target.is_relative_to(ROOT / "docs"):
            return match[0] if str(here) == "reference" else text
        return f"[{text}]({'../' * len(here.parts)}{target.relative_to(ROOT / 'docs')}{anchor})"

    return _LINK.sub(led, markdown)


def _names() -> dict[str, str]:
    """Names of the reference and where they are: what ``from lakedex import …`` gives, and what ``Table`` leads to."""
    exported = {name: f"lakedex.{name}" for name in lakedex.__all__ if not name.startswith("_")}
    named = {**REACHED, **exported}
    return {name: named[name] for name in sorted(named, key=str.lower) if not name.endswith("Error")}


def _pages() -> Iterator[tuple[str, str]]:
    for source, page in PAPERS.items():
        yield page, (ROOT / source).read_text(encoding="utf-8")
    listed = "\n".join(f"* [`{name}`]({name}.md)" for name in _names())
    yield (
        "reference/index.md",
        (
            "# Reference\n\nEverything that `from lakedex import …` gives and what its methods return,"
            " made from the docstrings.\n\n"
            f"{listed}\n* [Errors](errors.md)\n* [Options](../options.md): every `hoodie.*` option\n"
            "* [Testing](testing.md): `lakedex.testing`\n"
        ),
    )
    for name, where in _names().items():
        yield f"reference/{name}.md", f"::: {where}\n"
    yield (
        "reference/errors.md",
        "::: lakedex.errors\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n",
    )
    named = "\n".join(f"::: lakedex.testing.{name}\n    options:\n      heading_level: 2\n" for name in testing.__all__)
    yield "reference/testing.md", f"# Testing\n\n{inspect.getdoc(testing)}\n\n{named}"
