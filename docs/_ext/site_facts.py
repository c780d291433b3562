"""What the site takes from the repository's own files: metrics, how to cite, where the source is."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]


def repository() -> str:
    """Return the public address of the repository, from pyproject.toml or CITATION.cff; empty without."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    urls = {name.lower(): url for name, url in project.get("urls", {}).items()}
    given = re.search(
        r"^repository(?:-code)?: *\"?([^\"\s]+)", (ROOT / "CITATION.cff").read_text("utf-8"), re.M
    )
    return urls.get("repository") or urls.get("source") or (given[1] if given else "")


def bibtex() -> str:
    """Return the entries to cite, made of CITATION.cff: the paper's, and the software's."""
    import yaml

    import mgpa

    facts = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    paper = facts["preferred-citation"]
    authors = " and ".join(f"{a['family-names']}, {a['given-names']}" for a in paper["authors"])
    key = f"{paper['authors'][0]['family-names'].lower()}{paper['year']}mgpa"
    name = " and ".join(f"{{{a['name']}}}" for a in facts["authors"])
    entries = (
        ("article", key, {
            "title": f"{{{paper['title']}}}", "author": authors, "year": paper["year"],
            "note": paper["notes"],
        }),
        ("software", "mgpa", {
            "title": f"{{{facts['title']}}}", "author": name, "version": mgpa.__version__,
            "license": facts["license"],
        } | ({"url": repository()} if repository() else {})),
    )  # fmt: skip
    return "\n\n".join(
        "\n".join(
            [f"@{kind}{{{key},", *(f"  {field:<8}= {{{value}}}," for field, value in fields.items()), "}"]
        )
        for kind, key, fields in entries
    )


def metric_texts() -> dict[str, dict[str, str]]:
    """Return the metrics by group, with a sentence on each: what the report shows on hover."""
    return json.loads(files("mgpa.audit.report").joinpath("metrics.json").read_text("utf-8"))  # type: ignore[no-any-return]


def metric_page() -> str:
    """Return a table for each group of metrics, in Markdown."""
    from mgpa.audit import METRICS

    parts = []
    for group, texts in metric_texts().items():
        rows = []
        for name, text in texts.items():
            metric = METRICS[name]
            better = {"lower": "↓", "higher": "↑", "neither": ""}[metric.better]
            anchor = f'<span id="metric-{name}"></span>'
            rows.append(f"| {anchor}`{name}` | {better} | {metric.unit or '–'} | {text} |")
        head = "| metric | better | unit | what it says |\n|---|---|---|---|"
        parts.append(f"## {group}\n\n{head}\n" + "\n".join(rows))
    return "\n\n".join(parts)


class Generated(SphinxDirective):
    """Put generated Markdown on the page."""

    required_arguments = 1
    makers: dict[str, Any] = {  # noqa: RUF012
        "metrics": metric_page,
        "bibtex": lambda: f"```bibtex\n{bibtex()}\n```",
        "repository": lambda: (
            f"The repository: <{repository()}>"
            if repository()
            else "The repository has no public address yet: mgpa comes as a checkout or as a wheel."
        ),
    }

    def run(self) -> list[nodes.Node]:
        """Return the parsed Markdown."""
        lines = self.makers[self.arguments[0]]().splitlines()
        return self.parse_content_to_nodes() if not lines else self._parsed(lines)

    def _parsed(self, lines: list[str]) -> list[nodes.Node]:
        self.content = StringList(lines, source=self.env.docname)
        return self.parse_content_to_nodes(allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
