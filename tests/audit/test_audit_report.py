"""Figures, tables and the HTML report of an audit: complete, escaped, offline, and usable in a browser."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from layout import COLLIDING, OVERFLOWING, measure
from mgpa import ClosedFormMGPA, audit
from mgpa.audit import plots
from mgpa.audit.metrics import METRICS
from mgpa.audit.plots.palette import COLORS, DARK_COLORS, DARK_SOURCE_COLORS, SOURCE_COLORS
from mgpa.audit.report import captions, html_report
from mgpa.audit.report.drawings import svg
from mgpa.audit.tidy import csv_table
from mgpa.audit.verdict import OUTCOMES, caveats, certainty, confounding, findings, headline, text
from mgpa.baselines import CORAL, LEACE
from mgpa.tables import Table, assign_roles
from simulated import simulated_table

pytest.importorskip("matplotlib")

CAPTIONS = captions()
HOSTILE = "<script>alert(1)</script>"
CLOSING = "</script><img src=x onerror=alert(2)>"
FORMULA = "=cmd|'/C calc'!A0"
WHICH = ["full", "partial", "hostile"]


def paired_table(sources=("dry", "wet"), prefix="p") -> Table:
    table = simulated_table(n_people=30, events=12, association=0.9)
    return table.with_columns(
        source=np.where(table.source == "dry", *sources),
        participant=[f"{prefix}{who}" for who in table.participant],
    )


def three_sources() -> Table:
    rng = np.random.default_rng(1)
    person, source = np.repeat(np.arange(16), 12), np.tile([0, 1, 2], 64)
    X = rng.normal(size=(len(person), 4)) + 3 * np.eye(4)[source]
    return Table(X, source=np.array(list("ABC"))[source], participant=person, role=assign_roles(person))


@pytest.fixture(scope="module")
def full():
    pytest.importorskip("torch")
    methods: dict[str, Any] = {"leace": "leace", "closed_form_mgpa": "closed_form_mgpa", "coral": CORAL()}
    readers = {"restarts": 1, "checkpoints": (2, 4)}
    return audit.run(paired_table(), methods, readers=readers, verbose=False, device="cpu", folds=1)


@pytest.fixture(scope="module")
def partial():
    """No labels, three sources, no gate."""
    return audit.run(three_sources(), {"leace": LEACE()}, readers={"restarts": 0}, verbose=False, folds=1)


@pytest.fixture(scope="module")
def hostile():
    table = paired_table(sources=("<b>dry</b>", "wet\"'&{{data}}"), prefix=CLOSING)
    methods = {name: LEACE() for name in (CLOSING, "$a_b$ & {{title}} 50%", FORMULA, "a\x1b[2J")}
    methods[HOSTILE] = ClosedFormMGPA()
    return audit.run(table, methods, readers={"restarts": 0}, verbose=False, folds=1)


@pytest.fixture(scope="module")
def reports(full, partial, hostile, tmp_path_factory):
    """The report of each audit, written once."""
    folder = tmp_path_factory.mktemp("reports")
    results = dict(zip(WHICH, (full, partial, hostile), strict=True))
    return {name: result.report(folder / f"{name}.html", "My audit") for name, result in results.items()}


@pytest.fixture(scope="module")
def pages(reports):
    return {name: Page(path.read_text(encoding="utf-8")) for name, path in reports.items()}


class Page(HTMLParser):
    """Collects the tags, and the text outside of scripts and styles; fails on tags left open."""

    VOID = frozenset({"meta", "br", "img", "hr", "link", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.words, self.titles, self.open, self.html = [], [], [], [], html
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "title" and "svg" in self.open:
            self.titles.append(data)
        elif not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\N{NO-BREAK SPACE}", " ").split())


def test_figures_that_apply_are_written_in_all_formats_and_drawn_once(full, partial, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "CHARTS", {
        name: (lambda a, *o, _n=name, _d=draw, **k: drawn.append(_n) or _d(a, *o, **k))
        for name, draw in plots.CHARTS.items()
    })  # fmt: skip
    paths = full.figures(tmp_path / "figures", formats=("pdf", "svg"))
    # Features have no names, so no gate is drawn.
    assert {p.stem for p in paths} == {*plots.CHARTS, "participants_task"} - {"gate"}
    assert len(paths) == 2 * len(CAPTIONS) - 2 == 2 * len(drawn)
    starts = {".pdf": b"%PDF", ".svg": b"<?xml"}
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(starts[path.suffix])
        assert len(content) > 3000
        # Type 3 fonts, matplotlib's default, are refused by many journals.
        assert b"/Subtype /Type3" not in content
    assert "Closed-form MGPA" in (tmp_path / "figures" / "tradeoff.svg").read_text(encoding="utf-8")
    first, second = (partial.figures(tmp_path / k, formats=["svg"]) for k in ("a", "b"))
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert {p.stem for p in first} == set(CAPTIONS) - {"association", "pairs", "gate", "participants_task"}
    assert partial.plot()._repr_png_().startswith(b"\x89PNG")
    for chart, why in (("gate", "gate"), ("pairs", "no pairs"), ("association", "paired events")):
        with pytest.raises(ValueError, match=why):
            partial.plot(chart)


@pytest.mark.parametrize(
    ("names", "titles"),
    [
        (
            [f"{c} {band}" for band in ("theta", "alpha") for c in ("Fz", "Cz", "Pz", "Oz")],
            ["theta", "alpha", ""],  # and a bar of colours
        ),
        ([f"{1100 + 2 * i}" for i in range(8)], [""]),
        ([f"feature_{i}" for i in range(8)], [""]),
    ],
    ids=["channels and bands", "wavelengths", "names"],
)
def test_the_gate_is_drawn_in_the_units_of_named_features(full, names, titles):
    if len(titles) > 1:
        pytest.importorskip("mne")
    result = full["closed_form_mgpa"]
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 1)))[0]
    info = replace(result.provenance[0], feature_names=tuple(names))
    result = replace(result, facts=[result.facts[0] | {"gate_basis": basis}], provenance=(info,))
    named = replace(full, results={"identity": full["identity"], "closed_form_mgpa": result})
    figure = named.plot("gate")
    panels = figure.axes
    assert [panel.get_title() for panel in panels] == titles
    if len(titles) > 1:  # colours end at the electrodes, and nothing is drawn over
        figure.draw_without_rendering()
        assert not panels[0].get_tightbbox().overlaps(panels[1].get_tightbbox())
        assert panels[0].images[0].get_clip_path() is not None
    free = np.square(basis).sum(axis=1)
    if names[0].isdigit():
        (line,) = panels[0].lines
        np.testing.assert_allclose(line.get_ydata(), free)
        np.testing.assert_allclose(line.get_xdata(), [float(name) for name in names])
    elif len(titles) == 1:
        assert panels[0].get_yticklabels()[0].get_text() == names[int(free.argmax())]


def test_of_many_bands_the_freest_are_drawn_and_a_gate_of_everything_is_said_to_be_one(full):
    pytest.importorskip("mne")
    names = [f"{channel} bin{i}" for i in range(8) for channel in ("Fz", "Cz", "Pz", "Oz")]
    result = full["closed_form_mgpa"]
    info = replace(result.provenance[0], feature_names=tuple(names))

    def drawn(basis):
        changed = replace(result, facts=[result.facts[0] | {"gate_basis": basis}], provenance=(info,))
        named = replace(full, results={"identity": full["identity"], "closed_form_mgpa": changed})
        figure = named.plot("gate")
        return [panel.get_title() for panel in figure.axes[:6]], figure.get_suptitle()

    titles, heading = drawn(np.eye(32)[:, 8:32])  # bins 0 and 1 may not change
    assert titles == [f"bin{i}" for i in range(2, 8)]
    assert heading.endswith("gate of rank 24; the freest 6 of 8 bands")
    assert drawn(np.eye(32))[1].endswith("all features may change equally")


def test_participant_values_average_to_the_metric(full):
    for name in full:
        for metric in full.metrics:
            values = full[name].by_participant(metric)
            assert values.mean() == pytest.approx(full[name].estimate(metric).value)


def test_csv_has_every_estimate_and_its_difference(full, tmp_path):
    with open(full.to_csv(tmp_path / "a.csv"), newline="", encoding="utf-8") as stream:
        rows = {(row["method"], row["metric"]): row for row in csv.DictReader(stream)}
    for name in full:
        for metric, e in full.estimates[name].items():
            assert float(rows[name, metric]["value"]) == e.value
    change = full.contrast("leace", metric="S")
    assert float(rows["leace", "S"]["difference_high"]) == change.high
    assert rows["identity", "S"]["difference_value"] == ""
    assert rows["coral", "S"]["source_blind"] == "False"


def test_names_that_are_formulas_or_escapes_stay_text(hostile):
    assert f"'{FORMULA}" in {row[0] for row in csv.reader(csv_table(hostile).splitlines())}
    assert "\x1b" not in text(hostile, verbose=True)
    assert r"a\x1b[2J" in str(hostile)


def test_the_printed_table_fits_a_terminal_and_all_columns_are_there_if_asked_for(full):
    lines = str(full).splitlines()
    assert len(lines) <= 14
    assert str(full).count("Preliminary") == 1
    assert "away (chance .500)" in str(full)
    assert any("; chance .500: " in line for line in findings(full, "leace"))
    at = next(i for i, line in enumerate(lines) if line.startswith("method "))
    for subject, symbol in (("source readable", "S (want .5)"), ("accuracy at home", "home (chance .500)")):
        assert lines[at - 1].rindex(subject) == lines[at].rindex(symbol)
    assert lines[at + 1].index(f"{full.estimates['identity']['S']:.3f}") == lines[at].index("S (want .5)")
    assert [line.split()[0] for line in lines[at + 1 :]] == list(full.methods)
    assert max(map(len, lines[at - 1 :])) <= 110
    everything = text(full, verbose=True)
    printed = [f"{e:.3f}" for found in full.estimates.values() for e in found.values()]
    assert all(everything.count(number) >= printed.count(number) for number in printed)


def plainly(words: str) -> str:
    """Return text with one kind of minus sign, single spaces and no subscripts."""
    spaced = " ".join(words.replace("\N{MINUS SIGN}", "-").split())
    return re.sub(r"\b([AIT]|shift)[ _]([fprQR])\b ?", r"\1_\2", spaced)


@pytest.mark.parametrize("which", ["full", "partial"])
def test_report_says_what_the_terminal_says_and_every_estimate_without_a_script(
    which, pages, reports, request
):
    result = request.getfixturevalue(which)
    page = plainly(pages[which].text).replace("( ", "(").replace(" )", ")")
    assert "My audit" in page
    assert plainly(headline(result)) in page
    for name in result.methods[1:]:
        for line in (*findings(result, name), *caveats(result)):
            assert plainly(line) in page
        assert plainly(f"{result.estimates[name]['S']:.3f}") in page
    assert plainly(confounding(result)) in page
    assert ("chance .500" in page) == (which == "full")  # of classes, beside accuracy
    assert not list(reports[which].parent.glob(".*"))


def test_charts_are_svg_with_tooltips_whose_they_are_and_colours_of_the_theme(full, pages):
    page = pages["full"]
    assert page.html.count("<svg") == len(CAPTIONS) - 1
    people = {attrs["data-person"] for _, attrs in page.tags if "data-person" in attrs}
    assert people == {str(i) for i in range(full.n_people)}
    assert {attrs["data-method"] for _, attrs in page.tags if "data-method" in attrs} == set(full.methods)
    for who in full["leace"].participants:
        assert any(title.startswith(f"{who}, LEACE: ") for title in page.titles)
    for color in (COLORS[1], DARK_COLORS[1], SOURCE_COLORS[0], DARK_SOURCE_COLORS[0]):
        assert f": {color};" in page.html
    charts = page.html[page.html.index("<svg") : page.html.rindex("</svg>")]
    assert "var(--m1)" in charts
    left = set(re.findall(r"#[0-9a-f]{6}\b", charts))
    assert left == set()
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", charts)) <= set(ids)
    assert len(page.html) < 1_500_000


@pytest.mark.parametrize("which", WHICH)
def test_report_loads_nothing_and_only_its_own_script_may_run(which, pages):
    html = pages[which].html
    assert "http://" not in html
    assert "https://" not in html
    for tag, attrs in pages[which].tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "image")
        assert "src" not in attrs
        assert (attrs.get("href") or "#").startswith("#")
        assert not [name for name in attrs if name.startswith("on")]
    script = html[html.rindex("<script>") + 8 : html.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert script.count("\n") <= 150


def test_names_of_strangers_are_text_everywhere(hostile, pages):
    page = pages["hostile"]
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "b" not in {tag for tag, _ in page.tags}
    assert HOSTILE in page.text
    assert " ".join(hostile.methods_text().split()) in page.text
    assert any(title.startswith(CLOSING) for title in page.titles)
    assert "$a_b$ & {{title}} 50%" in page.text
    inline = Page(hostile._repr_html_())
    assert not {"script", "img", "b"} & {tag for tag, _ in inline.tags}
    assert HOSTILE in inline.text


def test_report_copes_with_missing_parts(partial, pages):
    ids = {attrs.get("id") for _, attrs in pages["partial"].tags}
    assert {"figure-tradeoff", "figure-readers", "figure-embedding"} <= ids
    assert not {"figure-association", "figure-gate", "figure-pairs"} & ids
    assert "Source against movement" in pages["partial"].text
    assert "The table has no labels" in pages["partial"].text
    counts = {"A": {"a": 7, "b": 3}, "B": {"a": 5, "b": 0}}
    alone = replace(partial, results={"identity": partial["identity"]}, counts=counts)
    page = Page(html_report(alone)).text
    assert "nothing to compare" in page
    assert "B 5 0" in page
    assert "nothing to compare" in str(alone)


def test_folds_show_who_has_which_role_and_what_every_folds_gate_did():
    methods = {"leace": LEACE(), "closed_form_mgpa": ClosedFormMGPA()}
    table = replace(paired_table(), role=None)
    result = audit.run(table, methods, readers={"restarts": 0}, verbose=False, folds=5)
    fits = result["closed_form_mgpa"]
    fits.facts[2].pop("gate_basis")  # as where the pairs of a fold show no effect
    html = html_report(result)
    bars = re.findall(r"<dt>Fold \d</dt><dd>(.*?)</dd>", html)
    assert len(bars) == 5
    counts = [dict(re.findall(r'title="(EVAL|HEAD): (\d+)"', bar)) for bar in bars]
    assert sum(int(count["EVAL"]) for count in counts) == result.n_people == 30
    assert all(int(count["HEAD"]) > 0 for count in counts)
    for i, (facts, cell) in enumerate(zip(fits.facts, fits.cells, strict=True)):
        row = re.search(rf"Closed-form MGPA, fold {i + 1}</th>(.*?)</tr>", html)[1]
        rank = 0 if i == 2 else facts["gate_basis"].shape[1]
        assert f"<td>{rank}</td>" in row
        assert row.endswith(f"<td>{100 * cell['movement'].mean():.1f} %</td>")
    assert "LEACE, fold 1" not in html  # has no gate


def test_the_report_has_every_metric_of_single_sources(full, pages):
    assert {"home dry", "away dry → wet", "T_f wet → dry"} <= set(full.details)
    for metric in full.details:
        row = re.search(rf'<th scope="row">{metric}</th>(.*?)</tr>', pages["full"].html)[1]
        shown = [str(full[name].estimate(metric)).replace("-", "−") for name in full.methods]
        assert re.findall(r"<td>(.*?)</td>", row) == shown


def test_one_split_is_one_bar_and_the_report_is_dated(pages):
    assert pages["full"].html.count('class="EVAL"') == 1
    assert re.search(r"Written on \d{4}-\d\d-\d\d by mgpa", pages["full"].text)


def test_report_says_what_the_pairs_show_and_from_what(full, pages):
    check = full.check_pairs()
    assert check.shows_something
    for words in (check.verdict, *check.facts.values()):
        assert words in pages["full"].text
    assert any(title.startswith("1 directions: ") for title in pages["full"].titles)


def test_a_notebook_shows_the_verdict_and_the_table(full, partial):
    for result in (full, partial):
        page = Page(result._repr_html_())
        shown = plainly(page.text)
        assert plainly(headline(result)) in shown
        assert plainly(certainty(result)) in shown
        assert "S source readable, lower is better" in shown
        for name in result.methods:
            assert f"{result.estimates[name]['S']:.3f}" in page.text
        # What is not clearly different is not folded away.
        visible = page.html[: page.html.index("<details>")]
        assert {
            OUTCOMES[result.outcome("leace", m)] for m in result.metrics if METRICS[m].better != "neither"
        } <= {words for words in OUTCOMES.values() if words in visible}
        assert "script" not in {tag for tag, _ in page.tags}


def test_nothing_leaves_its_container_and_no_words_collide(reports, tmp_path):
    wide = tmp_path / "wide.html"
    page = reports["partial"].read_text(encoding="utf-8")
    wide.write_text(page.replace("</style>", ".tile { min-width: 500px; }</style>"), encoding="utf-8")
    frames = [(path, width) for path in reports.values() for width in (400, 1000, 1400)]
    words = "return page.querySelectorAll('.chart svg text').length"
    *shown, spoilt = measure([*frames, (wide, 400)], tmp_path, words, OVERFLOWING, COLLIDING)
    for frame, (drawn, overflowing, colliding) in zip(frames, shown, strict=True):
        assert drawn > 30, frame
        assert (overflowing, colliding) == ([], []), frame
    assert any("tile" in overflowing for overflowing in spoilt[1])  # it would have been noticed


SORTED = """
const rows = page.querySelector("#numbers table").tBodies[0].rows;
const column = () => [...rows].map(row => Number(row.cells[1].dataset.value));
const button = page.querySelector("#numbers thead th:nth-child(2) button");
button.click(); const up = column(); button.click();
return [up, column(), button.parentElement.ariaSort];
"""
HIGHLIGHTED = """
const dim = kind => new Set([...page.querySelectorAll(`.chart .dim-${kind}`)].map(e => e.dataset[kind])).size;
page.querySelector("[data-choose='leace']").click();
const method = dim("method"), charts = page.querySelectorAll(".chart:has(.dim-method)").length;
page.dispatchEvent(new view.KeyboardEvent("keydown", {key: "Escape"}));
const after = dim("method"), point = page.querySelector("#figure-participants use[data-person='2']");
point.dispatchEvent(new view.MouseEvent("click", {bubbles: true}));
const followed = page.querySelectorAll("#figure-participants_task .followed").length;
return [method, charts, after, dim("person"), page.querySelector("#person").value, followed];
"""
THEMED = """
const background = () => view.getComputedStyle(page.body).backgroundColor, light = background();
page.querySelector("button.theme").click();
return [light !== background(), page.documentElement.dataset.theme];
"""
COPIED = """
let copied = ""; page.execCommand = () => { copied = String(view.getSelection()); return true; };
Object.defineProperty(view.navigator, "clipboard", {value: {get writeText() { throw new Error("no"); }}});
page.querySelector("button.copy").click();
return copied;
"""


def test_a_browser_sorts_highlights_changes_the_theme_and_copies(full, reports, tmp_path):
    [found] = measure([(reports["full"], 1280)], tmp_path, SORTED, HIGHLIGHTED, THEMED, COPIED)
    (up, down, order), (methods, charts, after, people, chosen, followed), theme, copied = found
    assert up == sorted(up) == down[::-1]
    assert order == "descending"
    assert (methods, after) == (len(full.methods) - 1, 0)
    assert charts >= 5
    assert (people, chosen) == (full.n_people - 1, "2")
    assert followed > 0
    assert theme == [True, "dark"]
    assert copied == full.methods_text()


def test_a_figure_is_the_same_bytes_wherever_its_parts_lie_in_memory():
    from matplotlib.figure import Figure
    from matplotlib.path import Path

    def drawn(i):
        figure = Figure()
        axes = figure.add_axes((0.1, 0.1 + i * 1e-16, 0.8, 0.8))  # as the layout's rounding may differ
        (line,) = axes.plot([0, 1], [0, 1])
        line.set_clip_path(Path([[0, 0], [1, 0], [1, 1], [0, 0]]), axes.transData)
        with plots.style():
            return svg(figure, "one", "A line"), plots.drawing.figure_bytes(figure)

    kept = [drawn(i) for i in range(20)]  # whose figures lie in different places
    assert len(set(kept)) == 1
    in_page, file = kept[0]
    assert 'clip-path="url(#one-clip' in in_page
    assert b'clip-path="url(#clip' in file
