"""An audit as one HTML file that opens offline, in a notebook, as a LaTeX table and as CSV.

The HTML has the verdict, every number and every chart in it without a script; the script highlights, sorts
and changes the theme. Names of methods, sources and participants are other people's text, and are escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import webbrowser
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ..._common.files import write_atomically
from .. import verdict as words
from ..bootstrap import number
from ..metrics import METRICS
from ..plots import draw_all
from ..plots import drawing as draw
from ..plots.drawing import COLORS, SOURCE_COLORS
from ..words import label, reader_summary
from .tables import bullets, contrast_csv, csv_table, html_table, latex_table, minus, plain_table, sentence
from .tables import method as method_html

if TYPE_CHECKING:
    from ..result import Audit

__all__ = ["contrast_csv", "csv_table", "html_report", "inline_verdict", "latex_table", "report"]

# Charts of one fit, which is the first fold's where there are folds.
ONE_FIT = ("gate", "embedding")
# Colours of figures, by the names they have in the style sheet.
VARIABLES = {
    **{color: f"m{i}" for i, color in enumerate(COLORS)},
    **{color: f"s{i}" for i, color in enumerate(SOURCE_COLORS)},
    draw.INK: "ink", draw.MUTED: "muted", draw.FAINT: "line", draw.GRID: "grid", "#ffffff": "card",
    "#000000": "ink",
}  # fmt: skip


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
    badges = "".join(
        f'<span class="badge" title="{escape(text)}">{escape(badge)}</span>'
        for badge, text in words.warnings(audit).items()
    )
    added = [(escape(name), escape(heading), content) for name, heading, content in sections]
    return _fill(
        "template.html",
        {
            "title": escape(title),
            "style": _style_sheet(),
            "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            "script": script,
            "badges": badges,
            "headline": sentence(words.headline(audit)),
            "certainty": sentence(" ".join([*words.led_by(audit)[1:], words.certainty(audit, warn=False)])),
            "tiles": _tiles(audit),
            "hero": drawn.pop("tradeoff", ""),
            "links": "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in added),
            "tables": html_table(audit) + (html_table(audit, differences=True) if audit.changes else ""),
            "methods": _methods(audit),
            "caveats": bullets(words.caveats(audit)),
            "sections": "\n".join(
                f'<section id="{name}"><h2>{heading}</h2>\n{content}\n</section>'
                for name, heading, content in added
            ),
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
    """Return the verdict and the table of estimates for a notebook, the rest folded away; no script.

    The last column says of every metric whether it is better, worse or not clearly different.
    """
    columns = ["Method", *(f"{METRICS[m].subject}: {METRICS[m].wanted}" for m in audit.columns)]
    space = "\N{NO-BREAK SPACE}"  # an interval stays in one line
    judged = [m for m in audit.metrics if METRICS[m].better != "neither"]
    rows = []
    for name, e in audit.estimates.items():
        cells = (minus(str(e[m])).replace(" ", space) if m in e else "–" for m in audit.columns)
        changes = "; ".join(f"{m} {words.OUTCOMES[str(audit.outcome(name, m))]}" for m in judged)
        rows.append([label(name), *cells, "" if name == "identity" else changes])
    caption = "Means with 95 % intervals"
    parts = [f"<p><strong>{sentence(line)}</strong></p>" for line in words.verdict(audit)[:-1]]
    parts += [f"<p>{sentence(words.certainty(audit))}</p>"]
    parts += [plain_table([*columns, "against no correction"], rows, caption)]
    parts += [f"<details><summary>Method by method</summary>{_methods(audit)}</details>"]
    return f'<div class="mgpa">{"".join(parts)}</div>'


def _tiles(audit: Audit) -> str:
    """Return at most four numbers of the first leader, or of the method with the lowest S."""
    names, leaders = words.ranking(audit)
    if not names:
        return ""
    name, task = leaders[0][0] if leaders else names[0], words.task_metric(audit)
    shown = dict.fromkeys(["S", "A_f", task.name if task else "", "T_r"])
    tiles = []
    for metric in [*[m for m in shown if m in audit.metrics][:3], "M"]:
        before, after = audit["identity"].estimate(metric), audit[name].estimate(metric)
        if metric == "M":
            big, small = f"{100 * after.value:.1f} %", "of the rows' size"
        else:
            big = f"{number(before.value)} → {number(after.value)}"
            small = minus(f"change {audit.changes[name][metric]:+.3f}".replace(", ", ",\N{NO-BREAK SPACE}"))
        tiles.append(
            f'<div class="tile"><div class="what">{sentence(METRICS[metric].subject)}</div>'
            f'<div class="big">{big}</div><div class="ci">{small}</div></div>'
        )
    return f'<p class="eyebrow">{escape(label(name))}</p><div class="tiles">{"".join(tiles)}</div>'


def _methods(audit: Audit) -> str:
    """Return what each method did, the best first."""
    return "".join(
        f'<article class="card"><h3>{method_html(audit, m)}</h3>{bullets(words.findings(audit, m))}</article>'
        for m in words.ranking(audit)[0]
    )


def _bar(audit: Audit) -> str:
    """Return buttons that highlight a method, and a list of participants."""
    buttons = "".join(
        f'<button type="button" data-choose="{escape(name)}" aria-pressed="false">{method_html(audit, name)}'
        "</button>"
        for name in audit.methods
    )
    people = "".join(
        f'<option value="{i}">{escape(who)}</option>' for i, who in enumerate(audit["identity"].participants)
    )
    unit = escape(words.named(audit, "participant"))
    choice = f'<select id="person"><option value="">none</option>{people}</select>'
    return f"{buttons}<label>Follow {unit} {choice}</label>"


def _figure(audit: Audit, name: str, figure: Any) -> str:
    """Return a chart with its caption."""
    title, how = captions()[name]
    if name == "tradeoff" and words.task_metric(audit) is None:
        title, how = "Source against movement", "Left: the source is harder to read. Down: rows moved less."
    how += " This is the first fold's." if name in ONE_FIT and audit.settings.get("splits", 1) > 1 else ""
    more, check = "", audit.check_pairs() if name == "pairs" else None
    if check is not None:
        facts = f"<details><summary>What this rests on</summary>{_facts(check.facts)}</details>"
        more = f"<p>{escape(check.verdict)}</p>{facts}"
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
        return bullets([*c.sentences(), "The table has no labels, so source and task cannot be compared."])
    labels = list(dict.fromkeys(label for row in c.counts.values() for label in row))
    rows = [[source, *(row.get(label, 0) for label in labels)] for source, row in c.counts.items()]
    return bullets(c.sentences()) + plain_table(["Source", *labels], rows, "Fitting rows")


def _settings(audit: Audit) -> str:
    """Return the roles, the settings that are not defaults, and the fitted maps."""
    s, readers = audit.settings, audit["identity"].readers
    roles = [[what, *s[what].values()] for what in ("rows", "participants")]
    caption = f"Roles; rows over all {s['splits']} folds" if "splits" in s else "Roles"
    bank = f"{len(readers)}: {reader_summary(readers)}"
    bank += "" if words.has_networks(audit) else f"; {words.missing_networks(audit)}"
    facts = {
        "Data": f"checksum {s['data']}",
        "Features": " tokens × ".join(map(str, s["features"])),
        "Readers": bank,
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
    return f"{plain_table(['', *s['rows']], roles, caption)}{_facts(facts)}<h3>The fitted maps</h3>{maps}"


def _facts(facts: Mapping[str, str]) -> str:
    """Return named facts as a list, without empty ones."""
    entries = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    return f"<dl>{''.join(entries)}</dl>"


def _style_sheet() -> str:
    light, dark = (
        " ".join(f"--{kind}{i}: {c};" for kind, colors in pairs for i, c in enumerate(colors))
        for pairs in (
            (("m", COLORS), ("s", SOURCE_COLORS)),
            (("m", draw.DARK_COLORS), ("s", draw.DARK_SOURCE_COLORS)),
        )
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


def svg(figure: Any, name: str, title: str) -> str:
    """Return a figure as an SVG element: colours of the theme, tooltips, and marks that can be highlighted.

    Its ids begin with ``name``; ``title`` is for screen readers.
    """
    stream = BytesIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(stream.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")) or child.get("id") == "stamp":
                parent.remove(child)
    marks = vars(figure).get("mgpa_marks", {})
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
        gid = element.get("id", "")
        attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        element.attrib.clear()
        for key, value in attributes.items():
            # Nothing refers to other ids than those of paths.
            if key != "id" or element.tag in ("path", "clipPath", "image"):
                element.set(key, _rewritten(key, value, name))
        if gid in marks:
            _tell(element, *marks[gid])
    width = float(root.get("width", "0").removesuffix("pt"))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("style", f"--inches: {width / 72:.1f}")
    return ElementTree.tostring(root, encoding="unicode")


def _rewritten(key: str, value: str, name: str) -> str:
    """Return an attribute with ids of this figure, colours of the theme, and two digits."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value[1:]}" if value.startswith("#") else value
    if key in ("d", "x", "y"):
        return re.sub(r"(\.\d\d)\d+", r"\1", value)
    value = value.replace("url(#", f"url(#{name}-")
    return re.sub(
        r"#[0-9a-f]{6}", lambda c: f"var(--{VARIABLES[c[0]]})" if c[0] in VARIABLES else c[0], value
    )


def _tell(element: ElementTree.Element, titles: Sequence[str], method: str, people: Sequence[int]) -> None:
    """Put tooltips into a mark's points, and say whose they are."""
    if method:
        element.set("data-method", method)
    uses = [child for child in element.iter() if child.tag.endswith("use")]
    each = len(uses) == max(len(titles), len(people)) > 1
    for i, target in enumerate(uses if each else [element]):
        if i < len(people):
            target.set("data-person", str(people[i]))
        if i < len(titles) and titles[i]:
            title = ElementTree.Element("title")
            title.text = titles[i]
            target.insert(0, title)
