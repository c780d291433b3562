"""Report an audit as one HTML file that opens offline, or in a notebook.

The HTML shows the verdict, all numbers and all charts without a script; the script only highlights, sorts and
changes the theme. Names of methods, sources and participants come from users and are escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .. import verdict as words
from ..estimates import Estimate, number
from ..metrics import METRICS
from ..plots import draw_all
from ..plots import drawing as draw
from ..plots.palette import COLORS, DARK_COLORS, DARK_SOURCE_COLORS, SOURCE_COLORS
from ..verdict.decisions import of_decoder
from ..words import label, reader_summary
from .drawings import svg
from .drawings import themed as themed

if TYPE_CHECKING:
    from ..method_result import MethodResult
    from ..result import Audit

# Charts that show one fit (with folds, the fit of the first fold).
ONE_FIT = ("gate", "embedding")
# Colours of outcomes in the table of differences.
JUDGED = {"improved": "good", "kept": "good", "suffered": "bad", "unclear": "warn"}


def html_report(
    audit: Audit,
    title: str = "Correction audit",
    sections: Sequence[tuple[str, str, str]] = (),
    figures: Mapping[str, Any] | None = None,
) -> str:
    """Return the report as one HTML document.

    ``sections`` adds your own sections: (id, heading, HTML), inserted unchanged. ``figures`` is the result of
    :func:`mgpa.audit.plots.draw_all`, which is called by default.
    """
    s = audit.settings
    figures = draw_all(audit) if figures is None else figures
    charts = {name: _figure(audit, name, figures[name]) for name in captions() if name in figures}
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
            "certainty": sentence(words.below_headline(audit)),
            "tiles": _tiles(audit),
            "hero": charts.pop("tradeoff", ""),
            "links": "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in added),
            "tables": _tables(audit) + _by_source(audit),
            "methods": _methods(audit),
            "caveats": bullets(words.caveats(audit)),
            "sections": "\n".join(
                f'<section id="{name}"><h2>{heading}</h2>\n{content}\n</section>'
                for name, heading, content in added
            ),
            "bar": _bar(audit),
            "charts": "\n".join(charts.values()),
            "confounding": _confounding(audit),
            "settings": _settings(audit),
            "methods_text": escape(audit.methods_text()),
            "glossary": _glossary(audit),
            "measured": escape(
                f"{words.units(audit)} with role EVAL, sources {', '.join(s.sources)}, data {s.data}"
            ),
            "version": escape(s.version),
            "date": date.today().isoformat(),
        },
    )


def inline_verdict(audit: Audit) -> str:
    """Return the verdict and tables as HTML for a notebook, without a script; details are collapsed."""
    *before, second, third = map(sentence, words.verdict(audit))
    first = " ".join(before)
    return (
        f'<div class="mgpa"><p><strong>{first}</strong></p><p><strong>{second}</strong></p><p>{third}</p>'
        f"{_tables(audit)}<details><summary>Method by method</summary>{_methods(audit)}</details></div>"
    )


def _tiles(audit: Audit) -> str:
    """Return up to four key numbers of the leading method or, without leaders, of the first in the tables."""
    names, leaders = words.ranking(audit)
    if not names:
        return ""
    name, task, tiles = leaders[0][0] if leaders else names[0], words.task_metric(audit), []
    metrics = dict.fromkeys(
        ["S", "home", "away", "RMSEP_home", "RMSEP_away", task.name if task else "", "T_r"]
    )
    for metric in [*[m for m in metrics if m in audit.metrics][:3], "M"]:
        served, heads = of_decoder(audit, name, metric)
        before, after = (audit[m].estimate(served).value for m in ("identity", name))
        whose = f", heads of {heads}" if heads else ""
        big, small = f"{100 * after:.1f} %", "of the rows' size"
        if metric != "M":
            big = f"{number(before)} → {number(after)}"
            small = minus(f"change {audit.changes[name][metric]:+.3f}".replace(", ", ",\N{NO-BREAK SPACE}"))
        tiles.append(
            f'<div class="tile"><div class="what">{sentence(METRICS[metric].subject + whose)}</div>'
            f'<div class="big">{big}</div><div class="ci">{small}</div></div>'
        )
    told = "" if audit[name].source_blind else ", needs the source"
    whose = escape(label(name) + told + ("" if leaders else "; not called best"))
    return f'<p class="eyebrow">{whose}</p><div class="tiles">{"".join(tiles)}</div>'


def _methods(audit: Audit) -> str:
    """Return the findings on each method, the best first."""
    return "".join(
        f'<article class="card"><h3>{method_html(audit, m)}</h3>{bullets(words.findings(audit, m))}</article>'
        for m in words.ranking(audit)[0]
    )


def _bar(audit: Audit) -> str:
    """Return buttons that highlight methods, and a list of participants."""
    buttons = "".join(
        f'<button type="button" data-choose="{escape(name)}" aria-pressed="false">{method_html(audit, name)}'
        "</button>"
        for name in audit.methods
    )
    people = "".join(
        f'<option value="{i}">{escape(who)}</option>' for i, who in enumerate(audit["identity"].participants)
    )
    unit = escape(audit.design.unit)
    choice = f'<select id="person"><option value="">none</option>{people}</select>'
    return f"{buttons}<label>Follow {unit} {choice}</label>"


def _figure(audit: Audit, name: str, figure: Any) -> str:
    """Return a chart with its caption."""
    unit, text = audit.design.unit, captions()[name]
    title, how = (t.replace("participant", unit).replace("Participant", unit.capitalize()) for t in text)
    if name == "tradeoff" and words.task_metric(audit) is None:
        title, how = "Source against movement", "Left: the source is harder to read. Down: rows moved less."
    how += " Only the first fold is shown." if name in ONE_FIT and audit.settings.splits > 1 else ""
    more, check = "", audit.pairs if name == "pairs" else None
    if check is not None:
        facts = f"<details><summary>Basis of these numbers</summary>{_facts(check.facts)}</details>"
        more = f"<p>{escape(check.verdict)}</p>{facts}"
    kind = "card narrow" if figure.get_figwidth() < 4 else "card"
    return (
        f'<figure class="{kind}" id="figure-{name}"><figcaption><h3>{escape(title)}</h3>{more}'
        f'<p class="how">{escape(how)}</p></figcaption>'
        f'<div class="chart">{svg(figure, name, f"{title}. {how}")}</div></figure>'
    )


def _confounding(audit: Audit) -> str:
    """Return the association of source and label in the fitting rows, and the parts of differences."""
    labels = list(dict.fromkeys(label for row in audit.counts.values() for label in row))
    rows = [[source, *(row.get(label, 0) for label in labels)] for source, row in audit.counts.items()]
    table = plain_table(["Source", *labels], rows, "Fitting rows") if rows else ""
    parts, split = ("total", "measurement", "sampling"), audit.source_split() or ()
    differences = [
        [
            row.source,
            *(f"{number(getattr(row, part))} ± {number(getattr(row, f'{part}_se'))}" for part in parts),
        ]
        for row in split
    ]
    caption = "Difference from the mean of all sources, in standard deviations of a feature"
    note = "Measurement: estimated from pairs. Sampling: the rest, such as other participants or labels."
    more = bullets([note]) + plain_table(["Source", *parts], differences, caption) if differences else ""
    return bullets([words.confounding(audit)]) + table + more


def _settings(audit: Audit) -> str:
    """Return the roles, the settings that differ from defaults, and the fitted maps."""
    s, readers = audit.settings, audit["identity"].readers
    bank = [f"{len(readers)}: {reader_summary(readers)}", words.missing_networks(audit)]
    facts = {
        "Data": f"checksum {s.data}",
        "Features": " tokens × ".join(map(str, s.features)),
        "Encoder": str(s.encoder.get("name", "")),
        "Readers": "; ".join(part for part in bank if part),
        "Seeds": ", ".join(map(str, s.seeds)),
        "Coordinates": s.coordinates or "",
        "Movement budget": "" if s.budget is None else f"{s.budget} on validation rows",
        "Task head": s.head,
        "Device": s.device if s.device != "cpu" else "",
    }
    maps = "".join(
        f"<details><summary>{escape(label(name))}</summary><pre>{escape(result.summary)}</pre></details>"
        for name, result in audit.results.items()
    )
    return f"{_roles(audit)}{_facts(facts)}<h3>The fitted maps</h3>{_fits(audit)}{maps}"


def _roles(audit: Audit) -> str:
    """Return the number of participants in each role, as numbers and as one bar per fold."""
    s = audit.settings
    turns = s.turns or {(role,): n for role, n in s.participants.items() if s.splits == 1}
    groups = sorted(turns.items(), key=lambda group: ([role != "EVAL" for role in group[0]], group[0]))
    bars = []
    for fold in range(len(groups[0][0]) if groups else 0):
        runs = groupby(groups, key=lambda group: group[0][fold])
        sizes = [(role, sum(n for _, n in run)) for role, run in runs]
        parts = "".join(
            f'<span class="{role}" style="flex: {n}" title="{role}: {n}">{role} {n}</span>'
            for role, n in sizes
            if n
        )
        who = f"Fold {fold + 1}" if s.turns else f"{audit.design.plural.capitalize()}"
        bars.append(f"<dt>{escape(who)}</dt><dd>{parts}</dd>")
    bar = f'<dl class="roles">{"".join(bars)}</dl>'
    if s.splits == 1:
        numbers = [[w, *getattr(s, w).values()] for w in ("rows", "participants")]
        return bar + plain_table(["", *s.rows], numbers, "Roles")
    turn = f"{s.folds} folds" if s.folds > 1 else f"{s.splits} splits"
    turn += f", divided {s.repeats} times (first division shown)" if s.repeats > 1 else ""
    once = f"{s.rows['EVAL']} rows of {words.units(audit)}, each EVAL once, in {turn}"
    return bullets([f"{once}; other roles rotate."]) + bar


def _fits(audit: Audit) -> str:
    """Return the gate and the movement of each fit, for methods that were fitted several times."""
    rows = []
    for name, result in audit.results.items():
        gates = [facts.get("gate_basis") for facts in result.facts]
        if len(gates) == 1 or all(gate is None for gate in gates):
            continue
        for place, gate, facts, cell in zip(
            _places(audit, result), gates, result.facts, result.cells, strict=True
        ):
            shares = facts.get("contrast_coverage"), facts.get("gate_coverage"), cell["movement"].mean()
            rank = 0 if gate is None else gate.shape[1]
            rows.append([f"{label(name)}, {place}", rank, *map(_percent, shares)])
    head = ["Fit", "Gate rank", "Contrast energy in gate, FIT", "Contrast energy in gate, VAL", "Movement"]
    return plain_table(head, rows, "Gate and movement of rows in each fit") if rows else ""


def _places(audit: Audit, result: MethodResult) -> Iterator[str]:
    """Yield the name of each fit of a method: its fold and number, if there are several."""
    folds, seen = audit.settings.splits, Counter[int]()
    for fit in result.cell_fits:
        seen[fit] += 1
        fold = f"fold {seen[fit]}" if folds > 1 else ""
        yield ", ".join(filter(None, (fold, f"fit {fit + 1}" if result.n_fits > 1 else "")))


def _percent(share: Any) -> str:
    """Return a share in percent, or a dash if it is unknown."""
    return "–" if share is None else f"{100 * float(share):.1f} %"


def _facts(facts: Mapping[str, str]) -> str:
    """Return named facts as an HTML list, without empty facts."""
    entries = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    return f"<dl>{''.join(entries)}</dl>"


def _tables(audit: Audit) -> str:
    """Return the tables of estimates and of differences from the identity."""
    return _table(audit) + (_table(audit, differences=True) if audit.changes else "")


def _by_source(audit: Audit) -> str:
    """Return a collapsed table of metrics by source and direction of transfer, one column per method."""
    rows = [[m, *(minus(str(audit[name].estimate(m))) for name in audit.methods)] for m in audit.details]
    table = plain_table(["", *map(label, audit.methods)], rows, "Means with 95 % intervals")
    return f"<details><summary>Source by source</summary>{table}</details>" if rows else ""


def _table(audit: Audit, differences: bool = False) -> str:
    """Return a sortable table of the estimates, or of their differences from the identity."""
    estimates = audit.changes if differences else audit.tabled
    metrics = audit.metrics if differences else audit.columns
    leaders = {name for group in words.ranking(audit)[1] for name in group}
    cell = _difference if differences else _estimate
    rows = []
    for name, row in estimates.items():
        blind = "source-blind" if audit[name].source_blind else "source-aware"
        cells = [cell(audit, name, m, row[m]) if m in row else "<td>–</td>" for m in metrics]
        best = ' class="is-best"' if name in leaders else ""
        rows.append(
            f'<tr{best}><th scope="row" data-value="{escape(label(name))}">{method_html(audit, name)} '
            f'<span class="group">{blind}</span></th>{"".join(cells)}</tr>'
        )
    meanings = explained()
    head = "".join(
        f'<th scope="col" title="{escape(meanings.get(m, ""))}">{subscript(m)} '
        f'<span class="hint">{METRICS[m].hint}</span></th>'
        for m in metrics
    )
    caption = _caption(audit, differences)
    table = (
        f'<table class="sortable"><caption><span>{escape(caption)}</span></caption>'
        f'<thead><tr><th scope="col">Method</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
    return _scrolling(caption, table)


def _caption(audit: Audit, differences: bool) -> str:
    """Return the caption of a table: its content and how it was measured."""
    if not differences:
        notes = (words.readers_note(audit), words.shortcut_note(audit), words.decoder_note(audit))
        return " ".join(["Means with 95 % intervals.", *filter(None, notes)])
    caption = f"Differences from the identity, paired over {audit.design.plural}, with 95 % intervals"
    together = "; for S, brackets give intervals that hold for all methods jointly" * (len(audit.methods) > 2)
    return f"{caption}{together}."


def _estimate(audit: Audit, name: str, metric: str, e: Estimate) -> str:
    """Return the table cell of a value, its interval and the upper limit of chance."""
    chance = words.class_chance(audit, metric)
    if metric == "S" and name in audit.results:
        chance = f"chance level up to {number(audit[name].chance.high)}"
    return _cell(e, str(e), "", chance)


def _difference(audit: Audit, name: str, metric: str, e: Estimate) -> str:
    """Return the table cell of a difference, its interval and the outcome of the metric."""
    together = audit.simultaneous.get(name, {}).get(metric) if metric == "S" else None
    below = [] if together is None else [f"({f'{together:+.3f}'.partition(' ')[2]})"]
    outcome = str(audit.outcome(name, metric)) if METRICS[metric].better != "neither" else ""
    return _cell(e, f"{e:+.3f}", JUDGED.get(outcome, ""), *below, words.OUTCOMES.get(outcome, ""))


def _cell(e: Estimate, shown: str, kind: str, *below: str) -> str:
    """Return a table cell: the value, its interval, and further lines."""
    value, _, interval = minus(shown).partition(" ")
    lines = [unbroken(text) for text in (interval, *map(minus, below)) if text]
    return (
        f'<td data-value="{e.value:.6g}"><span class="{kind}">{value}</span> '
        f'<span class="ci">{"<br>".join(lines)}</span></td>'
    )


def explained() -> dict[str, str]:
    """Return one or two sentences on the meaning of each metric."""
    groups = json.loads(_read("metrics.json")).values()
    return {name: text for group in groups for name, text in group.items()}


def _glossary(audit: Audit) -> str:
    """Return the metrics of this audit and their meanings."""
    entries = ((m, text) for m, text in explained().items() if m in audit.columns)
    return "".join(f"<dt>{subscript(m)}</dt><dd>{subscript(text)}</dd>" for m, text in entries)


def plain_table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a plain HTML table; the first cell of each row is a row header."""
    body = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    columns = "".join(f'<th scope="col">{escape(c)}</th>' for c in head)
    title = f"<caption><span>{escape(caption)}</span></caption>" if caption else ""
    table = f"<table>{title}<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
    return _scrolling(caption or head[0], table)


def _scrolling(caption: str, table: str) -> str:
    """Return a table in a box that scrolls on narrow pages."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{table}</div>'


def method_html(audit: Audit, name: str) -> str:
    """Return the name of a method after a dot in its colour."""
    if name in audit.decoders:  # charts do not show these comparators
        return escape(label(name))
    look = draw.looks(audit)[name]
    kind = f"key m{COLORS.index(look.color)}{' hollow' if look.hollow else ''}"
    return f'<span class="{kind}" aria-hidden="true"></span>{escape(label(name))}'


def minus(numbers: str) -> str:
    """Return printed numbers with minus signs instead of hyphens."""
    return numbers.replace("-", "−")


def sentence(text: str) -> str:
    """Return escaped text with minus signs and without line breaks inside intervals."""
    text = re.sub(r"(?<![\w.])-(?=[.\d])", "−", text)
    text = re.sub(r"(?<=\bS) (?=[.\d])", "\N{NO-BREAK SPACE}", text)
    return subscript(unbroken(text))


def unbroken(text: str) -> str:
    """Return text without line breaks inside intervals."""
    return re.sub(r"\[[^\]]*\]", lambda interval: interval[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def subscript(text: str) -> str:
    """Return escaped text with subscripts in names such as T_f, A_r and I_Q."""
    return re.sub(r"\b(A|T|RMSEP|bias|shift|R2|I)_([frpuQR])\b", r"\1<sub>\2</sub>", escape(text))


def bullets(lines: Iterable[str]) -> str:
    """Return sentences as an HTML list."""
    return f"<ul>{''.join(f'<li>{sentence(line)}</li>' for line in lines)}</ul>"


def _style_sheet() -> str:
    def variables(methods: Sequence[str], sources: Sequence[str]) -> str:
        colors = (("m", methods), ("s", sources))
        return " ".join(f"--{kind}{i}: {c};" for kind, group in colors for i, c in enumerate(group))

    light, dark = variables(COLORS, SOURCE_COLORS), variables(DARK_COLORS, DARK_SOURCE_COLORS)
    classes = "\n".join(f".m{i} {{ --c: var(--m{i}); }}" for i in range(len(COLORS)))
    return _fill("style.css", {"light": light, "dark": dark, "classes": classes})


def captions() -> dict[str, tuple[str, str]]:
    """Return titles and captions of the charts in page order."""
    return json.loads(_read("captions.json"))  # type: ignore[no-any-return]


def _fill(template: str, filled: Mapping[str, str]) -> str:
    """Return a template with its placeholders filled in one pass; placeholders in values are not filled."""
    return re.sub(r"\{\{(\w+)\}\}", lambda hole: filled[hole[1]], _read(template))


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
