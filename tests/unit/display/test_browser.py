"""Cards in headless Chromium: no sideways scrolling, and no script of a value runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.display.html import page_html
from report_samples import HOSTILE, filled, report_classes, result_table

WIDTHS = (1200, 480)
MEASURE = """
<!doctype html><meta charset=utf-8>{frames}<script>
onload = () => {{
    const found = [...document.querySelectorAll('iframe')].map(frame => {{
        const page = frame.contentDocument.documentElement;
        const card = frame.contentDocument.querySelector('.lakedex');
        return [frame.name, frame.clientWidth, page.scrollWidth, card ? card.clientHeight : 0,
                frame.contentWindow.hit || top.hit || ''];
    }});
    document.body.innerHTML = '<pre id=found></pre>';
    document.getElementById('found').textContent = JSON.stringify(found);
}};
</script>
"""
ATTACK = "<img src=x onerror='top.hit=1'><script>top.hit=1</script>"


def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium on this machine (on Debian: apt-get install chromium)")
    return found


@pytest.mark.browser
def test_nothing_scrolls_sideways_and_nothing_runs(tmp_path: Path) -> None:
    texts = (ATTACK, *HOSTILE[2:8])
    rows = pa.table({"id": [*"abc"], "city": ["a", "b", ATTACK], "n": [1, 2, 3]})
    table = Table.create(tmp_path / "t", rows.schema, record_key="id", partition_by="city", comment=ATTACK)
    table.upsert(rows)
    path = table.report(tmp_path / "t.html", ["city = 'a'"])
    pages = {"report": Path(path).read_text("utf-8"), "table": card_page(table._repr_html_())}
    for number, text in enumerate(texts):
        pages[f"rows {number}"] = card_page(result_table(text)._repr_html_())
        pages[f"page {number}"] = page_html(text, [filled(cls, text).card() for cls in report_classes()])
    frames = "".join(
        f'<iframe name="{name} at {width}" width={width} height=600 srcdoc="{escape(page)}"></iframe>'
        for name, page in pages.items()
        for width in WIDTHS
    )
    (tmp_path / "all.html").write_text(MEASURE.format(frames=frames), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [chromium(), *options, "--virtual-time-budget=20000", "--dump-dom", (tmp_path / "all.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    match = re.search('<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stdout[-500:] + done.stderr[-500:]
    found = json.loads(unescape(match[1]))
    assert len(found) == len(pages) * len(WIDTHS)
    assert [one for one in found if one[2] > one[1] or not one[3] or one[4]] == []


def card_page(html: str) -> str:
    """A card as a notebook shows it."""
    return f"<!doctype html><meta charset=utf-8><body style='margin:8px'>{html}"
