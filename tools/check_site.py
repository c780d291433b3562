"""Check a built site: every internal link leads somewhere, no picture is empty, nothing is from a network.

python tools/check_site.py docs/_build/html
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REMOTE = re.compile(r"^(https?:)?//")
LOADING = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """What a page offers as anchors, and what it points to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[tuple[str, str, str]] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag's anchors and links."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            if name in ("href", "src"):
                self.links.add((tag, name, value))


def problems(site: Path) -> list[str]:
    """Return what is wrong with a site, a line each."""
    # Themes keep templates among their files, which are not pages.
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts]
    pages = {path.resolve(): Page(path) for path in paths}
    found = []
    for path, page in pages.items():
        for tag, name, link in sorted(page.links):
            where = f"{path.relative_to(site.resolve())}: {link}"
            if REMOTE.match(link):
                if (tag, name) in LOADING:
                    found.append(f"{where} is loaded from a network")
                continue
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{where} leads nowhere")
            elif tag == "img" and not target.stat().st_size:
                found.append(f"{where} is an empty file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{where} names no anchor there")
    for path in sorted(site.rglob("*.css")):
        for link in re.findall(
            r"(?:@import\s+|url\()['\"]?((?:https?:)?//[^'\")\s]+)", path.read_text("utf-8")
        ):
            found.append(f"{path.relative_to(site)}: {link} is loaded from a network")
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    wrong = problems(folder)
    print("\n".join(wrong) or f"every link inside {folder} leads somewhere; nothing is loaded from a network")
    sys.exit(bool(wrong) or not any(folder.glob("*.html")))
