"""The style of a card. It brings its own colours, light or dark as the reader's machine prefers, to any page.

Notebooks have styles for tables, which ``!important`` overrides.
"""

from __future__ import annotations

import re

__all__ = ["KINDS", "PAGE_STYLE", "STYLE", "kind_class"]


KINDS = {
    **dict.fromkeys(("upsert", "merge", "update"), "k0"),
    **dict.fromkeys(("insert", "bulk_insert", "bootstrap"), "k1"),
    **dict.fromkeys(("delete", "delete_partition"), "k2"),
    **dict.fromkeys(("insert_overwrite", "insert_overwrite_table"), "k3"),
    **dict.fromkeys(("cluster", "compact", "log_compact"), "k4"),
}
"""Colours of a strip's marks."""


def kind_class(kind: str) -> str:
    """The class that gives a mark its colour; operations without one are grey."""
    return KINDS.get(kind.lower(), "k5")


_READABLE = """
.lakedex {
    --bg: #fff; --fg: #1c2430; --dim: #5d6b7a; --line: #e0e5eb; --track: #edf1f5; --code: #f4f6f8;
    --bar: #2f6fae; --good: #1a7f4b; --warn: #9a6700; --bad: #b42318;
    box-sizing: border-box; max-width: 1080px; margin: 6px 0; padding: 14px 18px;
    border: 1px solid var(--line); border-radius: 8px; background: var(--bg); color: var(--fg);
    font: 13px/1.5 system-ui, sans-serif; text-align: left; overflow-wrap: anywhere; container-type: inline-size;
}
@media (prefers-color-scheme: dark) {
    .lakedex {
        --bg: #14181e; --fg: #e3e8ee; --dim: #98a5b3; --line: #2b333d; --track: #222a33; --code: #1c222a;
        --bar: #5a9bd8; --good: #4cc38a; --warn: #dfae4a; --bad: #ff7b6b;
    }
}
.lakedex * { box-sizing: border-box; }
.lakedex span, .lakedex p, .lakedex code { unicode-bidi: isolate; }
.lakedex .t { font-size: 15px; font-weight: 600; }
.lakedex .s { margin: 14px 0 4px; color: var(--dim); font-size: 12px; font-weight: 600; }
.lakedex .d, .lakedex .m { color: var(--dim); }
.lakedex .m { font-size: 12px; }
.lakedex .good { color: var(--good); }
.lakedex .warn { color: var(--warn); }
.lakedex .bad { color: var(--bad); }
.lakedex table { width: auto; max-width: 100%; margin: 4px 0; border: 0; border-collapse: collapse; font-size: 12.5px; }
.lakedex tr { border: 0; background: none !important; }
.lakedex th, .lakedex td {
    max-width: none; padding: 3px 14px 3px 0; border: 0; border-bottom: 1px solid var(--line); color: var(--fg);
    text-align: left !important; vertical-align: top; white-space: normal;
}
.lakedex tr:last-child td { border: 0; }
.lakedex th { color: var(--dim); font-weight: 500; overflow-wrap: normal; }
.lakedex .n { text-align: right !important; font-variant-numeric: tabular-nums; }
.lakedex .f, .lakedex .b { display: grid; margin: 8px 0 2px; gap: 2px 18px; }
.lakedex .f { grid-template-columns: minmax(90px, max-content) 1fr; }
.lakedex .b {
    max-width: 680px; align-items: center;
    grid-template-columns: minmax(90px, max-content) minmax(60px, 1fr) max-content;
}
.lakedex .f > :nth-child(odd), .lakedex .b > :nth-child(3n + 1) { color: var(--dim); }
.lakedex i { display: block; height: 9px; border-radius: 3px; background: var(--track); overflow: hidden; }
.lakedex td i { width: 90px; height: 6px; margin: 2px 0 0; }
.lakedex td.n i { margin-left: auto; }
.lakedex i > i, .lakedex td i > i, .lakedex td.n i > i {
    height: 100%; min-width: 2px; margin: 0; background: var(--bar);
}
.lakedex .x { display: flex; align-items: flex-end; gap: 2px; height: 34px; margin: 4px 0; }
.lakedex .x b { flex: 1 1 0; min-width: 2px; max-width: 16px; border-radius: 2px; }
.lakedex .l span { display: inline-block; margin-right: 14px; }
.lakedex .l b { display: inline-block; width: 9px; height: 9px; margin-right: 5px; border-radius: 2px; }
.lakedex .k0 { background: #3b7fc4; }
.lakedex .k1 { background: #2a9d6f; }
.lakedex .k2 { background: #d0583f; }
.lakedex .k3 { background: #8f63c7; }
.lakedex .k4 { background: #b8862b; }
.lakedex .k5 { background: #7f8b97; }
.lakedex p { margin: 3px 0; color: var(--fg); }
.lakedex p > b { font-weight: 600; }
.lakedex p > b::after { content: ": "; }
.lakedex code, .lakedex pre {
    padding: 1px 5px; border: 0; border-radius: 4px; background: var(--code); color: var(--fg);
    font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
}
.lakedex pre { margin: 3px 0; padding: 7px 10px; }
@container (min-width: 1040px) { .lakedex .q td:not(.w) { white-space: nowrap; } }
@container (max-width: 620px) {
    .lakedex table { width: 100%; }
    .lakedex tr { display: block; padding: 5px 0; border-bottom: 1px solid var(--line); }
    .lakedex tr:last-child { border: 0; }
    .lakedex tr:first-child, .lakedex td:empty { display: none; }
    .lakedex td, .lakedex td.n {
        display: grid; grid-template-columns: 110px 1fr; gap: 10px; padding: 1px 0; border: 0;
        text-align: left !important;
    }
    .lakedex td::before { content: attr(data-h); color: var(--dim); }
    .lakedex td:first-child { display: block; font-weight: 600; }
    .lakedex td:first-child::before { content: none; }
    .lakedex td.n i { margin-left: 0; }
    .lakedex .b { grid-template-columns: minmax(70px, 120px) minmax(30px, 1fr) max-content; gap: 2px 10px; }
}
"""
_PAGE = """
body { margin: 0; padding: 18px; background: #f2f4f7; }
.lakedex { margin: 0 auto 14px; }
@media (prefers-color-scheme: dark) { body { background: #0c0f13; } }
@media (max-width: 600px) { body { padding: 8px; } }
"""


def _small(style: str) -> str:
    """Without the blanks that are only for readers."""
    return re.sub(r" ?([{};,>]) ?|(:) ", r"\1\2", re.sub(r"\s+", " ", style)).replace(";}", "}").strip()


STYLE = _small(_READABLE)
PAGE_STYLE = _small(_PAGE)
