"""The page: every part filled into the template, in one file that asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import webbrowser
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._common.files import write_atomically
from .. import verdict as words
from ..metrics import METRICS
from ..plots import draw_all
from ..plots.drawing import COLORS, DARK_COLORS, DARK_SOURCE_COLORS, SOURCE_COLORS
from ..words import label
from . import pieces
from .pieces import bullets, method, plain_table, printed, sentence
from .svg import svg
from .tables import html_table

if TYPE_CHECKING:
    from ..result import Audit

# Charts of one fit, which is the first fold's where there are folds.
ONE_FIT = ("gate", "embedding")


def report(
    audit: Audit,
    path: Any,
    title: str = "Correction audit",
    *,
    sections: Sequence[tuple[str, str, str]] = (),
    figures: Mapping[str, Any] | None = None,
    browser: bool = False,
) -> Path:
    """Write everything as one HTML file that opens offline, and return its path.

    ``sections`` are yours: for each an id, a heading, and HTML that is put in as it is. ``figures``, what
    :func:`mgpa.audit.plots.draw_all` returned, are drawn unless passed. ``browser`` opens the file.
    """
    written = write_atomically(Path(path), html_report(audit, title, sections, figures).encode())
    if browser:
        webbrowser.open(written.resolve().as_uri())
    return written


def html_report(
    audit: Audit,
    title: str = "Correction audit",
    sections: Sequence[tuple[str, str, str]] = (),
    figures: Mapping[str, Any] | None = None,
) -> str:
    """Return the whole report as one HTML document."""
    s = audit.settings
    figures = draw_all(audit) if figures is None else figures
    drawn = {name: _figure(audit, name, figures[name]) for name in captions() if name in figures}
    script = f"\n{_read('script.js')}"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _fill(
        "template.html",
        {
            "title": escape(title),
            "style": _style_sheet(),
            "digest": digest,
            "script": script,
            "badges": "".join(
                f'<span class="badge" title="{escape(text)}">{escape(badge)}</span>'
                for badge, text in words.warnings(audit).items()
            ),
            "headline": sentence(words.headline(audit)),
            "certainty": sentence(" ".join([*words.led_by(audit)[1:], words.certainty(audit, warn=False)])),
            "tiles": _tiles(audit),
            "hero": drawn.pop("tradeoff", ""),
            "links": "".join(
                f'<li><a href="#{escape(i)}">{escape(head)}</a></li>' for i, head, _ in sections
            ),
            "tables": "\n".join(
                html_table(audit, differences) for differences in (False, True)[: len(audit.methods)]
            ),
            "methods": _methods(audit),
            "caveats": bullets(words.caveats(audit)),
            "sections": "\n".join(_section(*section) for section in sections),
            "bar": _bar(audit),
            "charts": "\n".join(drawn.values()),
            "confounding": _confounding(audit),
            "settings": _settings(audit),
            "methods_text": escape(audit.methods_text()),
            "measured": escape(
                f"{words.units(audit)} with role EVAL, sources {', '.join(s['sources'])}, data {s['data']}"
            ),
            "version": escape(s["version"]),
        },
    )


def inline_verdict(audit: Audit) -> str:
    """Return the verdict and the table of estimates for a notebook, the rest folded away; no script."""
    columns = ["Method", *(f"{METRICS[m].subject}: {METRICS[m].wanted}" for m in audit.columns)]
    space = "\N{NO-BREAK SPACE}"  # an interval stays in one line
    rows = [
        [
            label(name),
            *(pieces.with_interval(e[m]).replace(" ", space) if m in e else "–" for m in audit.columns),
        ]
        for name, e in audit.estimates.items()
    ]
    parts = [f"<p><strong>{sentence(line)}</strong></p>" for line in words.verdict(audit)[:-1]]
    parts += [
        f"<p>{sentence(words.certainty(audit))}</p>",
        plain_table(columns, rows, "Means with 95 % intervals"),
    ]
    parts += [f"<details><summary>Method by method</summary>{_methods(audit)}</details>"]
    return f'<div class="mgpa">{"".join(parts)}</div>'


def _tiles(audit: Audit) -> str:
    """Return at most four numbers of the first leader, or of the method with the lowest S."""
    names, leaders = words.ranking(audit)
    if not names:
        return ""
    name, task = leaders[0][0] if leaders else names[0], words.task_metric(audit)
    shown = ["S", *(m for m in ("A_f", task.name if task else "", "T_r") if m in audit.metrics), "M"]
    tiles = "".join(_tile(audit, name, metric) for metric in [*[*dict.fromkeys(shown[:-1])][:3], "M"])
    return f'<p class="eyebrow">{escape(label(name))}</p><div class="tiles">{tiles}</div>'


def _tile(audit: Audit, name: str, metric: str) -> str:
    """Return one metric before and after or, of movement, how much there was."""
    before, after = audit["identity"].estimate(metric), audit[name].estimate(metric)
    if metric == "M":
        big, small = f"{100 * after.value:.1f} %", "of the rows' size"
    else:
        big = f"{printed(before.value)} → {printed(after.value)}"
        small = f"change {pieces.brackets(audit.changes[name][metric], 3, True)}"
    small = small.replace(", ", ",\N{NO-BREAK SPACE}")
    return (
        f'<div class="tile"><div class="what">{pieces.subscript(METRICS[metric].subject)}</div>'
        f'<div class="big">{escape(big)}</div><div class="ci">{escape(small)}</div></div>'
    )


def _methods(audit: Audit) -> str:
    """Return what each method did, the best first."""
    return "".join(
        f'<article class="card"><h3>{method(audit, m)}</h3>{bullets(words.findings(audit, m))}</article>'
        for m in words.ranking(audit)[0]
    )


def _bar(audit: Audit) -> str:
    """Return buttons that highlight a method, and a list of participants."""
    buttons = "".join(
        f'<button type="button" data-choose="{escape(name)}" aria-pressed="false">{method(audit, name)}'
        "</button>"
        for name in audit.methods
    )
    people = "".join(
        f'<option value="{i}">{escape(who)}</option>' for i, who in enumerate(audit["identity"].participants)
    )
    choice = f'<select id="person"><option value="">nobody</option>{people}</select>'
    return f"{buttons}<label>Follow participant {choice}</label>"


def _figure(audit: Audit, name: str, figure: Any) -> str:
    """Return a chart with its caption."""
    title, how = captions()[name]
    if name == "tradeoff" and words.task_metric(audit) is None:
        title = "Source against movement"
        how = (
            "Further left, the source is harder to read; further down, rows moved less. There are no labels."
        )
    how += " This is the first fold's." if name in ONE_FIT and audit.settings.get("splits", 1) > 1 else ""
    more, check = "", audit.check_pairs() if name == "pairs" else None
    if check is not None:
        facts = pieces.facts_list(check.facts.items())
        more = (
            f"<p>{escape(check.verdict)}</p><details><summary>What this rests on</summary>{facts}</details>"
        )
    kind = "card narrow" if figure.get_figwidth() < 4 else "card"
    return (
        f'<figure class="{kind}" id="figure-{name}"><figcaption><h3>{escape(title)}</h3>{more}'
        f'<p class="how">{escape(how)}</p></figcaption>'
        f'<div class="chart">{svg(figure, name, f"{title}. {how}")}</div></figure>'
    )


def _confounding(audit: Audit) -> str:
    """Return how source, task and participants are associated in the fitting rows."""
    c = audit.confounding
    if c.source_label is None:
        lines = [*c.sentences(), "The table has no labels, so source and task cannot be compared."]
        return bullets(lines)
    labels = list(dict.fromkeys(label for row in c.counts.values() for label in row))
    rows = [[source, *(row.get(label, 0) for label in labels)] for source, row in c.counts.items()]
    return bullets(c.sentences()) + plain_table(["Source", *labels], rows, "Fitting rows")


def _settings(audit: Audit) -> str:
    """Return the roles, the settings that are not defaults, and the fitted maps."""
    s = audit.settings
    roles = [[what, *s[what].values()] for what in ("rows", "participants")]
    caption = f"Roles; rows over all {s['splits']} folds" if "splits" in s else "Roles"
    bank = "a small bank" if s["preliminary"] else f"the {s['bank']} bank"
    bank = "a bank without networks, for lack of torch" if s.get("no_networks") else bank
    facts = {
        "Data": f"checksum {s['data']}",
        "Features": " tokens × ".join(map(str, s["features"])),
        "Readers": f"{len(audit['identity'].readers)}, {bank}",
        "Seeds": ", ".join(map(str, s["seeds"])),
        "Coordinates": s["coordinates"] or "",
        "Movement budget": "" if s["budget"] is None else f"{s['budget']} on validation rows",
        "Task head": s["head"],
        "Device": s["device"] if s["device"] != "cpu" else "",
    }
    maps = "".join(
        f"<details><summary>{escape(label(name))}</summary><pre>{escape(result.summary)}</pre></details>"
        for name, result in audit.results.items()
    )
    stated = pieces.facts_list((name, text) for name, text in facts.items() if text)
    return f"{plain_table(['', *s['rows']], roles, caption)}{stated}<h3>The fitted maps</h3>{maps}"


def _section(name: str, heading: str, content: str) -> str:
    name, heading = escape(name), escape(heading)
    return f'<section id="{name}"><h2>{heading}</h2>\n{content}\n</section>'


def _style_sheet() -> str:
    light, dark = (
        " ".join(f"--{kind}{i}: {c};" for kind, colors in pairs for i, c in enumerate(colors))
        for pairs in ((("m", COLORS), ("s", SOURCE_COLORS)), (("m", DARK_COLORS), ("s", DARK_SOURCE_COLORS)))
    )
    classes = "\n".join(f".m{i} {{ --c: var(--m{i}); }}" for i in range(len(COLORS)))
    return _fill("style.css", {"light": light, "dark": dark, "classes": classes})


def captions() -> dict[str, tuple[str, str]]:
    """Return the charts' titles, and how to read them, in the order of the page."""
    return json.loads(_read("captions.json"))  # type: ignore[no-any-return]


def _fill(template: str, filled: Mapping[str, str]) -> str:
    """Return a template with every placeholder replaced, in one pass: text that looks like one stays text."""
    return re.sub(r"\{\{(\w+)\}\}", lambda hole: filled[hole[1]], _read(template))


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
