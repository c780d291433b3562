"""How a report is laid out in a browser: headless Chromium alone, without a driver."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

# What leaves its container and cannot be scrolled to: boxes, and words in drawings.
OVERFLOWING = """
const found = [], scrolls = e => ["auto", "scroll", "hidden"].includes(view.getComputedStyle(e).overflowX);
const said = e => `${e.tagName}.${e.getAttribute("class")}: ${e.textContent.slice(0, 40)}`;
for (const e of page.querySelectorAll("body *")) {
  const box = e.getBoundingClientRect(), style = view.getComputedStyle(e);
  if (!box.width || style.position === "absolute" || e.closest(".quiet, #tip")) continue;
  let inside = false;
  for (let up = e.parentElement; up; up = up.parentElement) inside ||= scrolls(up);
  if (inside) continue;
  const container = e.closest("svg") && e.tagName !== "svg" ? e.closest(".card") : e.parentElement;
  const edge = container.getBoundingClientRect();
  if (box.right > edge.right + 1 || box.left < edge.left - 1) found.push(said(e));
}
for (const e of page.querySelectorAll(".big, td"))
  if (e.scrollWidth > e.clientWidth + 1) found.push(said(e));
const wide = page.documentElement.scrollWidth;
if (wide > view.innerWidth) found.push(`the page: ${wide}`);
return found;
"""

# Words in drawings that lie over one another.
COLLIDING = """
const found = [];
for (const svg of page.querySelectorAll(".chart svg")) {
  const words = [...svg.querySelectorAll("text")].map(e => [e.textContent, e.getBoundingClientRect()]);
  words.forEach(([a, p], i) => words.slice(i + 1).forEach(([b, q]) => {
    const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (across > 2 && down > 4) found.push(`${svg.parentElement.id}: ${a} | ${b}`);
  }));
}
return found;
"""


def measure(frames: list[tuple[Path, int]], folder: Path, *scripts: str) -> list[list[Any]]:
    """Return what each script, given ``view`` and ``page``, finds in each report shown at a width.

    The report's policy lets no script of strangers run, so it is shown in a frame and looked at from outside;
    one browser shows all frames.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    look = ", ".join(f"(() => {{{script}}})()" for script in scripts)
    shown = "".join(
        f'<iframe style="border: 0; width: {width}px; height: 900px" onload="look(this, {i})" '
        f'srcdoc="{escape(report.read_text(encoding="utf-8"))}"></iframe>'
        for i, (report, width) in enumerate(frames)
    )
    outside = folder / "outside.html"
    outside.write_text(
        '<!doctype html><meta charset="utf-8"><pre id="found"></pre><script>const all = {};'
        "function look(frame, i) {const view = frame.contentWindow, page = frame.contentDocument;"
        f'all[i] = [{look}]; document.getElementById("found").textContent = JSON.stringify(all);}}</script>'
        + shown,
        encoding="utf-8",
    )
    command = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--window-size=1600,1000", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=3000",
        f"--user-data-dir={folder / 'profile'}", "--dump-dom", outside.as_uri(),
    ]  # fmt: skip
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="found">(.*?)</pre>', dumped, re.DOTALL)
    assert found, "the page did not load"
    by_frame = json.loads(unescape(found[1]))
    return [by_frame[str(i)] for i in range(len(frames))]
