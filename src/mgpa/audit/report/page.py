"""The page: every part filled into the template, in one file that asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from ..looks import COLORS, DARK_COLORS, DARK_SOURCE_COLORS, SOURCE_COLORS
from ..result import Audit
from .charts import charts
from .data import chart_data, to_json
from .settings import confounding_section, settings
from .tables import html_table
from .verdict import verdict


def html_report(
    audit: Audit, title: str = "Correction audit", sections: Sequence[tuple[str, str, str]] = ()
) -> str:
    """Return the whole report as one HTML document.

    ``sections`` follow the verdict: for each an id, a heading, and HTML.
    """
    s, data, methods = audit.settings, chart_data(audit), len(audit.methods) - 1
    summary = (
        f"{methods} correction{'s' if methods != 1 else ''} measured on {len(data['people'])} participants "
        f"with the role EVAL, for the sources {', '.join(data['sources'])}. "
        f"Data {s['data']}, mgpa {s['version']}."
    )
    if audit.warnings:
        title = ": ".join([*(warning.partition(":")[0] for warning in audit.warnings), title])
        summary = " ".join([*audit.warnings, summary])
    code = "\n".join(map(_read, ("panels.js", "charts.js", "controls.js")))
    script = f'\n(() => {{\n"use strict";\n{code}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    filled = {
        "head": head(title, f"script-src 'sha256-{digest}'; "),
        "title": escape(title),
        "script": script,
        "summary": escape(summary),
        "verdict": verdict(audit),
        "tables": "\n".join([html_table(audit)] + ([html_table(audit, differences=True)] if methods else [])),
        "links": "".join(f'<li><a href="#{escape(i)}">{escape(head)}</a></li>' for i, head, _ in sections),
        "sections": "\n".join(_section(*section) for section in sections),
        "charts": charts(data),
        "confounding": confounding_section(audit),
        "methods": escape(audit.methods_text()),
        "settings": settings(audit),
        "version": escape(s["version"]),
        "data": to_json(data),
    }
    return fill("template.html", filled)


def head(title: str, scripts: str = "") -> str:
    """Return what all pages begin with; ``scripts`` is the rule for those that a page may run."""
    return fill("head.html", {"title": escape(title), "style": _styled(), "scripts": scripts})


def fill(template: str, filled: Mapping[str, str]) -> str:
    """Return a template with every placeholder replaced, in one pass: text that looks like one stays text."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], _read(template))


def _styled() -> str:
    """Return the style sheet of all pages."""
    classes = [f".c{i} {{ --c: var(--m{i}); }}" for i in range(len(COLORS))]
    classes += [f".k{i} {{ --c: var(--s{i}); }}" for i in range(len(SOURCE_COLORS))]
    return fill(
        "style.css",
        {
            "light_colors": _variables(COLORS, SOURCE_COLORS),
            "dark_colors": _variables(DARK_COLORS, DARK_SOURCE_COLORS),
            "color_classes": "\n".join(classes),
        },
    )


def _section(name: str, heading: str, content: str) -> str:
    name, heading = escape(name), escape(heading)
    head = f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{heading}</h2>'
    return f"{head}\n{content}\n</section>"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _variables(methods: Sequence[str], sources: Sequence[str]) -> str:
    named = {f"m{i}": c for i, c in enumerate(methods)} | {f"s{i}": c for i, c in enumerate(sources)}
    return " ".join(f"--{name}: {color};" for name, color in named.items())
