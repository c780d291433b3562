"""Figures, tables and the HTML report of an audit: complete, escaped, offline, and usable in a browser."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from layout import COLLIDING, OVERFLOWING, measure
from mgpa import ClosedFormMGPA, audit
from mgpa.audit.details import participant_values
from mgpa.audit.looks import COLORS, DARK_COLORS, DARK_SOURCE_COLORS, SOURCE_COLORS
from mgpa.audit.report import (
    chart_data,
    contrast_csv,
    csv_table,
    html_report,
    ranking,
    snippet,
    verdict_text,
)
from mgpa.audit.report.settings import confounding_section
from mgpa.baselines import CORAL, LEACE
from mgpa.tables import Table, assign_roles

HOSTILE = "<script>alert(1)</script>"
CLOSING = "</script><img src=x onerror=alert(2)>"
FIGURE_NAMES = {
    "tradeoff",
    "readers",
    "association",
    "movement",
    "pairs",
    "gate",
    "participants_source",
    "participants_task",
    "embedding",
    "variance",
}


def paired_table(sources=("dry", "wet"), people=30, prefix="p") -> Table:
    rng = np.random.default_rng(0)
    person, d = np.repeat(np.arange(people), 12), 6
    y = np.tile([0, 1], len(person) // 2)
    content = rng.normal(size=(len(person), d)) + 0.4 * rng.normal(size=(people, d))[person]
    content[:, 1] += 1.5 * (2 * y - 1)
    event = np.repeat(np.arange(len(person)), 2)
    second = np.tile([0, 1], len(person))
    X = (
        content[event]
        + second[:, None] * np.array([2.0, 0.5, 0, 0, 0, 0])
        + 0.1 * rng.normal(size=(len(event), d))
    )
    return Table(
        X,
        source=np.array(sources)[second],
        participant=[f"{prefix}{p:02d}" for p in person[event]],
        label=np.array(["left", "right"])[y[event]],
        pair_id=event,
        role=assign_roles(person)[event],
    )


def three_sources() -> Table:
    rng = np.random.default_rng(1)
    person, source = np.repeat(np.arange(16), 12), np.tile([0, 1, 2], 64)
    X = rng.normal(size=(len(person), 4)) + 3 * np.eye(4)[source]
    names = np.array(["A", "B", "C"])[source]
    return Table(X, source=names, participant=person, role=assign_roles(person))


@pytest.fixture(scope="module")
def full():
    methods: dict[str, Any] = {"leace": "leace", "closed_form_mgpa": "closed_form_mgpa", "coral": CORAL()}
    pytest.importorskip("torch")
    from mgpa import IterativeMGPA

    methods["iterative_mgpa"] = [
        IterativeMGPA(n_stages=4, critics=("linear",), random_state=s) for s in (1, 2)
    ]
    return audit.run(
        paired_table(),
        methods,
        readers={"restarts": 1, "checkpoints": (2, 4)},
        verbose=False,
        device="cpu",
        folds=1,
    )


@pytest.fixture(scope="module")
def partial():
    """No labels, three sources, no gate."""
    return audit.run(three_sources(), {"leace": LEACE()}, readers={"restarts": 0}, verbose=False, folds=1)


@pytest.fixture(scope="module")
def hostile():
    table = paired_table(sources=("<b>dry</b>", "wet\"'&{{data}}"), prefix=CLOSING)
    methods = {HOSTILE: ClosedFormMGPA(), CLOSING: LEACE(), "$a_b$ & {{title}} 50%": LEACE()}
    return audit.run(table, methods, readers={"restarts": 0}, verbose=False, folds=1)


# --------------------------------------------------------------------------------------------- figures


def test_all_figures_are_written_in_all_formats(full, tmp_path):
    pytest.importorskip("matplotlib")
    paths = full.figures(tmp_path / "figures")
    assert {p.stem for p in paths} == FIGURE_NAMES
    assert len(paths) == 3 * len(FIGURE_NAMES)
    starts = {".pdf": b"%PDF", ".png": b"\x89PNG", ".svg": b"<?xml"}
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(starts[path.suffix])
        assert len(content) > 3000


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such limit there")
def test_a_figure_that_does_not_fit_on_the_disk_leaves_the_old_one(full, tmp_path):
    pytest.importorskip("matplotlib")
    import resource

    figure, path = full.plot_tradeoff(), tmp_path / "a.png"
    path.write_bytes(b"old")
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        with pytest.raises(OSError, match="nothing was replaced"):
            figure.savefig(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("a.png", b"old")]


def test_participants_are_drawn_once_for_every_method_but_the_identity(full):
    pytest.importorskip("matplotlib")
    figure = full.plot_participants()
    titles = [ax.get_title() for ax in figure.axes if ax.get_visible() and ax.get_title()]
    assert len(titles) == len(full.methods) - 1
    assert not any("Identity" in title for title in titles)


def test_participants_of_four_methods_stand_in_one_row_of_a_page_and_in_two_of_a_column(full):
    pytest.importorskip("matplotlib")

    def rows(figure):
        figure.draw_without_rendering()
        return len({round(ax.get_position().y0, 2) for ax in figure.axes if ax.get_title()})

    assert [rows(full.plot_participants()), rows(full.plot_participants(width=3.4))] == [1, 2]


def test_movement_of_methods_without_stages_is_drawn_by_participants_alone(full, partial):
    pytest.importorskip("matplotlib")
    assert [len(found.plot_movement().axes) for found in (full, partial)] == [2, 1]
    (ax,) = partial.plot_movement().axes
    assert ax.get_xlabel().endswith("EVAL")
    assert ax.get_xlim()[0] == 0


def test_the_numbers_of_every_participant_are_there_without_a_script(full):
    (table,) = re.findall(
        r"<table[^>]*>(?:(?!</table>).)*>Participant<.*?</table>", html_report(full), re.DOTALL
    )
    for person in full["leace"].participants:
        assert f">{person}<" in table


def test_a_report_has_its_colours_in_both_themes(full):
    page = html_report(full)
    for color in (COLORS[1], DARK_COLORS[1], SOURCE_COLORS[0], DARK_SOURCE_COLORS[0]):
        assert f": {color};" in page


def test_vector_figures_keep_text_as_text(full, tmp_path):
    pytest.importorskip("matplotlib")
    full.plot_tradeoff().savefig(tmp_path / "a.svg")
    full.plot_tradeoff().savefig(tmp_path / "a.pdf")
    assert "Closed-form MGPA" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    # Type 3 fonts, matplotlib's default, are refused by many journals.
    assert b"/Subtype /Type3" not in (tmp_path / "a.pdf").read_bytes()


def test_figures_are_the_same_every_time(partial, tmp_path):
    pytest.importorskip("matplotlib")
    first, second = (partial.figures(tmp_path / k, formats=("svg", "pdf")) for k in ("a", "b"))
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_figures_that_do_not_apply_are_left_out(partial, tmp_path):
    pytest.importorskip("matplotlib")
    found = {p.stem for p in partial.figures(tmp_path, formats=("png",))}
    assert found == FIGURE_NAMES - {"association", "pairs", "gate", "participants_task"}
    with pytest.raises(ValueError, match="gate"):
        partial.plot_gate()
    with pytest.raises(ValueError, match="no pairs"):
        partial.plot_pairs()
    with pytest.raises(ValueError, match="paired events"):
        partial.plot_association()


def test_figures_draw_into_given_axes(full):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax = figure.subplots()
    assert full.plot_tradeoff(ax) is figure
    assert ax.get_xlabel()
    with pytest.raises(ValueError, match="needs 4 axes; got 1"):
        full.plot_readers(ax)


def test_figures_take_names_with_signs_as_they_are(hostile, tmp_path):
    pytest.importorskip("matplotlib")
    paths = hostile.figures(tmp_path, formats=("svg",))
    text = next(p for p in paths if p.stem == "readers").read_text(encoding="utf-8")
    assert "$a_b$ &amp; {{title}} 50%" in text


def test_lines_keep_their_colours_over_panels_and_repetitions_are_averaged():
    from mgpa.audit import plots

    x, several = [1, 2, 3], np.array([[0.9, 0.7], [0.8, 0.6], [0.5, 0.5]])
    panels = {
        "Headset": {"Identity": (x, [1, 1, 1]), "LEACE": (x, several)},
        "Edit": {"LEACE": (x, [3, 2, 1]), "MGPA": (x, [1, 2, 3])},
    }
    figure = plots.plot_lines(panels, chance=["Headset"], before={"Edit": 2.0}, mark=2)
    headset, edit = ({line.get_label(): line for line in ax.lines} for ax in figure.axes)
    np.testing.assert_allclose(headset["LEACE"].get_ydata(), [0.8, 0.7, 0.5])
    assert headset["LEACE"].get_color() == edit["LEACE"].get_color() != edit["MGPA"].get_color()
    assert [line.get_ydata() for line in figure.axes[0].lines if list(line.get_ydata()) == [0.5, 0.5]]
    assert list(edit["without correction"].get_ydata()) == [2.0, 2.0]


def test_participant_values_average_to_the_metric(full):
    for name in full:
        for metric in full.metrics:
            values = participant_values(full[name], metric)
            assert values.mean() == pytest.approx(full[name].estimate(metric).value)


# ----------------------------------------------------------------------------------------------- tables


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


def test_names_that_are_formulas_or_escapes_stay_text():
    methods = {"=cmd|'/C calc'!A0": LEACE(), "a\x1b[2J": LEACE()}
    found = audit.run(paired_table(), methods, readers={"restarts": 0}, verbose=False)
    for text in (csv_table(found), contrast_csv(found, "identity")):
        names = {row[0] for row in csv.reader(text.splitlines())}
        assert "'=cmd|'/C calc'!A0" in names
    assert "\x1b" not in str(found)
    assert r"a\x1b[2J" in str(found)


def test_latex_groups_methods_and_escapes_names(full, hostile, partial, tmp_path):
    text = full.to_latex(tmp_path / "a.tex")
    assert (tmp_path / "a.tex").read_text(encoding="utf-8") == text
    blind, aware = text.split(r"\emph{Source-aware alignment}")
    assert "Closed-form MGPA" in blind
    assert "CORAL" in aware
    value, interval = f"{full.estimates['leace']['S']:.3f}".split(" ", 1)
    assert rf"LEACE & {value} {{\scriptsize {interval}}}" in text
    assert {line.count("&") for line in text.splitlines() if line.startswith(("LEACE", "CORAL"))} == {7}
    assert r"\$a\_b\$ \& \{\{title\}\} 50\%" in hostile.to_latex()
    assert "T_f" not in partial.to_latex()


# ------------------------------------------------------------------------------------------------- HTML


class Page(HTMLParser):
    """Collects the tags, and the text outside of scripts and styles; fails on tags left open."""

    VOID = frozenset({"meta", "br", "img", "hr", "link", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
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
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\N{NO-BREAK SPACE}", " ").split())


def test_report_says_the_verdict_and_every_estimate_without_a_script(full, tmp_path):
    path = full.report(tmp_path / "report.html", title="My audit")
    page = Page(path.read_text(encoding="utf-8"))
    assert "My audit" in page.text
    for name in full.methods[1:]:
        for line in full.verdict(name):
            assert line.replace(" -", " −").replace("(-", "(−").replace("[-", "[−") in page.text
        e = full.estimates[name]["S"]
        assert f"{e:.3f}" in page.text
    for sentence in full.confounding.sentences():
        assert sentence in page.text
    assert not list(tmp_path.glob(".*"))


def test_cards_fold_what_their_numbers_say_and_nothing_else(full):
    leaked = replace(full["leace"], fitted_on=("s1", "s2"))
    result = replace(full, results=full.results | {"leace": leaked})
    html = html_report(result)
    verdict = html[html.index('<section id="verdict"') : html.index('<section id="numbers"')]
    open_text = Page(re.sub(r"<details>.*?</details>", "", verdict, flags=re.DOTALL)).text
    folded = " ".join(Page(part).text for part in re.findall(r"<details>.*?</details>", verdict, re.DOTALL))
    assert "NOT HELD OUT" in open_text
    assert "What the gate preserves" in open_text or "That is what the gate preserves" in open_text
    for name in result.methods[1:]:
        for line in result.findings(name):
            there, absent = (open_text, folded) if line in result.limits(name) else (folded, open_text)
            words = re.sub(r"(?<![\w.])-(?=[.\d])", "−", line)
            assert words in there
            assert words not in absent


def test_readers_have_names_in_words(full):
    assert chart_data(full)["folds"] == 1
    names = {name for _, name in chart_data(full)["readers"]}
    assert {"logistic", "logistic, whitened", "network 1, 4 epochs"} <= names
    assert not [name for name in names if re.search(r"\br\d|\be\d|_", name)]


def test_report_loads_nothing(full, hostile):
    for html in (html_report(full), html_report(hostile)):
        assert "http://" not in html
        assert "https://" not in html
        for tag, attrs in Page(html).tags:
            assert tag not in ("link", "img", "iframe", "object", "embed")
            assert "src" not in attrs
            assert attrs.get("href", "#").startswith("#")
            assert not [name for name in attrs if name.startswith("on")]


def test_report_escapes_names_of_strangers(hostile):
    html = html_report(hostile, title=HOSTILE)
    page = Page(html)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "b" not in {tag for tag, _ in page.tags}
    assert HOSTILE in page.text
    assert "{{title}}" in page.text
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert "<" not in data
    found = json.loads(data)
    assert [m["label"] for m in found["methods"]][1:3] == [HOSTILE, CLOSING]
    assert found["sources"] == ["<b>dry</b>", "wet\"'&{{data}}"]


def test_only_the_script_of_the_report_may_run(hostile):
    html = html_report(hostile)
    script = html[html.rindex("<script>") + 8 : html.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html


def test_report_copes_with_missing_parts(partial):
    page = Page(html_report(partial))
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert {"chart-tradeoff", "chart-readers", "chart-influence"} <= ids
    assert not {"chart-association", "chart-gate", "chart-calibration"} & ids
    assert "Source against movement" in page.text
    assert "has no labels" in page.text


def test_report_of_the_identity_alone(tmp_path):
    alone = audit.run(three_sources(), [], readers={"restarts": 0}, verbose=False, folds=1)
    assert "nothing to compare" in Page(html_report(alone)).text
    said = verdict_text(alone)
    assert all(line in said for line in (*alone.findings("identity"), *alone.caveats("identity")))


def test_what_was_fitted_on_the_people_who_judge_it_comes_after_what_harmed_the_task(full, monkeypatch):
    leaked = replace(
        full["leace"], fitted_on=("s1", "s2"), source_auroc=np.full_like(full["leace"].source_auroc, 0.5)
    )
    found = replace(full, results=full.results | {"leace": leaked})
    outcome = type(full).outcome
    monkeypatch.setattr(
        type(full),
        "outcome",
        lambda self, name, metric: "suffered" if metric == "T_f" else outcome(self, name, metric),
    )
    assert ranking(found)[0][-1] == "leace"


def test_a_label_that_a_source_never_had_is_counted_as_none(full):
    one_sided = replace(full.confounding, counts={"dry": {"a": 7, "b": 3}, "wet": {"a": 5}})
    assert "wet 5 0" in Page(confounding_section(replace(full, confounding=one_sided))).text


def test_report_says_what_the_pairs_show_and_from_what(full, partial):
    check, page = full.check_pairs(), Page(html_report(full))
    assert check.shows_something
    for words in (check.verdict, *check.facts.values()):
        assert words in page.text
    drawn = chart_data(full)["pairs"]
    assert drawn["coverage"] == check.coverage[:24].tolist()
    assert drawn["shuffled"][1] == np.median(check.shuffled, axis=0)[:24].tolist()
    assert chart_data(partial)["pairs"] is None
    assert "Do the pairs show anything?" not in Page(html_report(partial)).text


def test_best_method_kept_the_task(full):
    few = replace(
        full, results={n: replace(r, participants=r.participants[:4]) for n, r in full.results.items()}
    )
    assert ranking(few)[1] == ()
    names, (best, *_) = ranking(full)
    assert best in names
    assert full.contrast(best, metric="T_f").low >= -0.01
    assert full.contrast(best, metric="S").high < 0


def test_a_method_that_harmed_the_task_is_not_best_however_low_its_source(full):
    harmed = replace(
        full["leace"],
        source_auroc=np.full_like(full["leace"].source_auroc, 0.5),
        frozen=full["leace"].frozen - 0.2,
    )
    result = audit.Audit(
        full.results | {"leace": harmed}, full.confounding, full.settings, full.picture_source
    )
    names, best = ranking(result)
    assert names[-1] == "leace"
    assert best
    assert "leace" not in best
    assert "LEACE has a lower S (.500), but it harmed the task." in Page(html_report(result)).text


def test_snippet_is_python_and_names_the_data(full, hostile):
    for result in (full, hostile):
        compile(snippet(result), "snippet", "exec")
        assert result.settings["data"] in snippet(result)
    other = replace(full, settings=full.settings | {"standardize": False})
    assert "standardize=False," in snippet(other)
    assert "standardize" not in snippet(full)
    assert f"{HOSTILE!r}: ...,  # your estimator or map" in snippet(hostile)
    named = audit.run(
        paired_table(), {"leace": "leace", "mine": LEACE()}, readers={"restarts": 0}, verbose=False, folds=1
    )
    assert "'leace': 'leace',\n" in snippet(named)


def plainly(text: str) -> str:
    """Return text with one kind of minus sign and single spaces."""
    return " ".join(text.replace("\N{MINUS SIGN}", "-").split())


@pytest.mark.parametrize("which", ["full", "partial"])
def test_a_terminal_is_told_the_sentences_of_the_report(which, request):
    result = request.getfixturevalue(which)
    said, page = verdict_text(result), plainly(Page(html_report(result)).text)
    for name in result.methods[1:]:
        assert all(f"  {line}\n" in said + "\n" for line in result.verdict(name))
    # The line about uncorrected rows is the terminal's; headings join what cards have in two places.
    sentences = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert len(sentences) > 5
    for sentence in sentences:
        assert plainly(sentence) in page


def test_words_stand_above_the_symbols_of_the_printed_table(full):
    lines = str(full).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("method "))
    words, symbols = lines[at - 1], lines[at]
    for subject, symbol in (("source readable", "S (want .5)"), ("existing heads", "T_f (want high)")):
        assert words.index(subject) == symbols.index(symbol)
    assert lines[at + 1].index(f"{full.estimates['identity']['S']:.3f}") == symbols.index("S (want .5)")


def test_the_printed_table_fits_a_terminal_and_has_every_number(full):
    table = str(full).partition("\nPRELIMINARY")[0]
    assert max(map(len, table.splitlines())) <= 100
    blocks = table.split("\n\n")
    assert len(blocks) > 1
    for block in blocks:
        assert [line.split()[0] for line in block.splitlines()[-len(full.methods) :]] == list(full.methods)
    printed = [f"{e:.3f}" for found in full.estimates.values() for e in found.values()]
    assert all(table.count(number) >= printed.count(number) for number in printed)


def test_a_notebook_shows_the_verdict_and_the_table(full, partial):
    for result in (full, partial):
        page = Page(result._repr_html_())
        assert "source readable: S (want .5)" in page.text
        for name in result.methods:
            assert f"{result.estimates[name]['S']:.3f}" in page.text
        for line in result.caveats("identity"):
            assert line in page.text
        assert "script" not in {tag for tag, _ in page.tags}
    _, (best, *_) = ranking(full)
    assert full._repr_html_().index("Best here") < full._repr_html_().index("<table>")
    assert best in full.methods


def test_a_notebook_shows_names_of_strangers_as_text(hostile):
    page = Page(hostile._repr_html_())
    assert not {"script", "img", "b"} & {tag for tag, _ in page.tags}
    assert HOSTILE in page.text
    frame = hostile.show(height=500)._repr_html_()
    [(tag, attrs)] = Page(frame).tags
    assert tag == "iframe"
    assert attrs["srcdoc"] == html_report(hostile)
    assert (attrs["sandbox"], attrs["height"]) == ("allow-scripts", "500")


def test_report_holds_the_methods_paragraph_and_a_button_that_copies_it(full, hostile):
    for result in (full, hostile):
        page = Page(html_report(result))
        assert " ".join(result.methods_text().split()) in page.text
        [button] = [attrs for tag, attrs in page.tags if tag == "button" and attrs.get("class") == "copy"]
        assert button["data-copy"] in {attrs.get("id") for _, attrs in page.tags}


def test_chart_data_is_finite_json(full, partial):
    for result in (full, partial):
        data = chart_data(result)
        assert json.loads(json.dumps(data, allow_nan=False)).keys() == data.keys()


# ---------------------------------------------------------------------------------------------- browser


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("which", ["full", "partial", "hostile"])
def test_nothing_leaves_its_container_and_no_words_collide(which, width, request, tmp_path):
    path = request.getfixturevalue(which).report(tmp_path / "report.html")
    words = "return page.querySelectorAll('.chart svg text').length"
    drawn, overflowing, colliding = measure(path, width, tmp_path, words, OVERFLOWING, COLLIDING)
    assert drawn > 30
    assert overflowing == []
    assert colliding == []


def test_what_leaves_its_container_is_noticed(partial, tmp_path):
    path = partial.report(tmp_path / "report.html")
    wide = path.read_text(encoding="utf-8").replace("</style>", ".chip { min-width: 500px; }</style>")
    path.write_text(wide, encoding="utf-8")
    [overflowing] = measure(path, 400, tmp_path, OVERFLOWING)
    assert any("chip" in found for found in overflowing)


def test_cards_fill_their_rows(full, tmp_path):
    right_edges = """
    const cards = page.querySelector(".cards"), rows = {};
    for (const card of cards.children) {
      const box = card.getBoundingClientRect();
      rows[box.top] = Math.max(rows[box.top] || 0, box.right);
    }
    return Object.values(rows).map(right => cards.getBoundingClientRect().right - right);
    """
    path = full.report(tmp_path / "report.html")
    for width in (400, 900, 1400):
        [gaps] = measure(path, width, tmp_path, right_edges)
        assert gaps
        assert max(map(abs, gaps)) < 1.5


class Browser:
    """A headless Chromium, driven by the WebDriver protocol; it cannot resolve any host."""

    def __init__(self, chromium: str, driver: str, profile: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.base = f"http://127.0.0.1:{port}"
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--window-size=1280,900", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
        ]  # fmt: skip
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        for _ in range(100):
            try:
                self.base += (
                    "/session/" + self.call("/session", capabilities={"alwaysMatch": wanted})["sessionId"]
                )
                break
            except ConnectionError:
                time.sleep(0.1)

    def call(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(self.base + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None
        except urllib.error.URLError as error:
            raise ConnectionError(str(error)) from None

    def run(self, script: str) -> Any:
        return self.call("/execute/sync", script=script, args=[])

    def click(self, selector: str) -> None:
        self.run(
            f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
        )
        found = self.call("/element", using="css selector", value=selector)
        self.call(f"/element/{next(iter(found.values()))}/click")

    def press(self, *keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def logs(self, kind: str) -> list[dict[str, Any]]:
        return list(self.call("/se/log", type=kind))

    def stop(self) -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(self.base, method="DELETE"), timeout=10).close()
        finally:
            self.process.terminate()
            self.process.wait(timeout=10)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium and chromedriver on this machine")
    started = Browser(chromium, driver, tmp_path_factory.mktemp("profile"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def show(browser, full, partial, hostile, tmp_path_factory):
    """Return a function that opens a report, written once, in the browser."""
    folder = tmp_path_factory.mktemp("reports")
    results = {"full": full, "partial": partial, "hostile": hostile}
    paths = {name: result.report(folder / f"{name}.html") for name, result in results.items()}

    def opened(which: str) -> Browser:
        browser.logs("browser")
        browser.logs("performance")
        browser.call("/url", url=paths[which].as_uri())
        return browser

    return opened


def requests_made(browser: Browser) -> set[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.logs("performance")]
    sent = (m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent")
    return {url.partition(":")[0] for url in sent}


@pytest.mark.parametrize("which", ["full", "partial", "hostile"])
def test_browser_draws_every_chart_without_errors_or_requests(which, show):
    page = show(which)
    drawn = page.run(
        "return [...document.querySelectorAll('.chart')].map(c => [c.id, c.querySelectorAll('svg *').length,"
        " c.innerHTML.includes('NaN')])"
    )
    assert len(drawn) >= 7
    assert all(marks > 10 and not broken for _, marks, broken in drawn), drawn
    assert page.logs("browser") == []
    assert not {"http", "https", "ws", "wss", "ftp"} & requests_made(page)
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_browser_sorts_tables_by_mouse_and_keyboard(show):
    page = show("full")
    column = (
        "return [...document.querySelector('#numbers table').tBodies[0].rows]"
        ".map(row => Number(row.cells[1].dataset.value))"
    )
    page.click("#numbers thead th:nth-child(2) button")
    values = page.run(column)
    assert values == sorted(values)
    page.press("\ue007")  # Enter, on the button that has the focus
    values = page.run(column)
    assert values == sorted(values, reverse=True)
    assert page.run("return document.querySelector('#numbers th:nth-child(2)').ariaSort") == "descending"


def test_browser_toggles_methods_participants_and_theme(full, show):
    page = show("full")
    labels = "return document.querySelector('#chart-tradeoff').textContent"
    assert "LEACE" in page.run(labels)
    page.click("[data-method='1']")
    assert "LEACE" not in page.run(labels)
    page.click("[data-method='1']")
    assert "LEACE" in page.run(labels)
    rings = "return document.querySelectorAll('#chart-participants .ring').length"
    assert page.run(rings) == 0
    page.run(
        "const s = document.querySelector('#person'); s.value = '0'; s.dispatchEvent(new Event('change'))"
    )
    assert page.run(rings) == 2 * (len(full.methods) - 1)
    background = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(background)
    page.click("button.theme")
    assert page.run(background) != light
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    assert page.logs("browser") == []


def test_browser_steps_through_values_with_the_keyboard(show):
    page = show("full")
    page.run("document.querySelector('#chart-tradeoff svg').focus()")
    page.press("\ue014")  # right arrow
    tip = page.run("return document.querySelector('#tip').textContent")
    assert tip.startswith("Identity")
    assert page.run("return document.querySelector('#live').textContent").startswith("Identity.")
    page.press("\ue00c")  # Escape
    assert page.run("return document.querySelector('#tip').hidden")


def test_browser_fits_a_phone(show):
    page = show("full")
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.call("/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=size)
    try:
        assert page.run("return [document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    finally:
        page.call("/goog/cdp/execute", cmd="Emulation.clearDeviceMetricsOverride", params={})


def test_browser_copies_the_methods_paragraph_from_a_local_file(full, show):
    page = show("full")
    page.run(
        "document.execCommand = () => { window.copied = String(getSelection()); return true; };"
        "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    page.click("button.copy")
    assert page.run("return window.copied") == full.methods_text()
    assert page.run("return document.querySelector('button.copy').textContent") == "Copied"
    assert page.logs("browser") == []
