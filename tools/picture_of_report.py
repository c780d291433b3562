"""Take the numbered picture of a report's first screen that docs/report.md explains; needs Chromium.

mgpa simulate --people 40 --out rows.parquet
mgpa audit rows.parquet --out my-audit --methods leace mgpa coral --quick
python tools/picture_of_report.py my-audit/report.html docs/_static/report_page.png
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE = "1180,1120"
# Where each number of the list on the page stands.
PLACES = ("h1", "#verdict .lede", "#verdict .eyebrow", ".hero figcaption h3", "#numbers h2")
BADGE = (
    "display: inline-block; width: 1.7em; margin-right: .5em; border-radius: 50%; background: #a3005c; "
    "color: #fff; font: 700 16px/1.7 Arial, sans-serif; letter-spacing: 0; text-align: center;"
)


def numbered(html: str) -> str:
    """Return a report with a number before each of the places."""
    rules = (f'{place}::before {{ content: "{i}"; {BADGE} }}' for i, place in enumerate(PLACES, start=1))
    return html.replace("</style>", "\n".join(rules) + "</style>", 1)


def main(report: Path, out: Path) -> None:
    """Write the picture."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Chromium is not on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(numbered(report.read_text("utf-8")), "utf-8")
        subprocess.run([
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--hide-scrollbars", f"--user-data-dir={folder}/profile", f"--window-size={SIZE}",
            f"--screenshot={out.resolve()}", page.as_uri(),
        ], check=True, capture_output=True, timeout=120)  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
