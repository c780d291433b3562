"""Audits of many designs: every sentence says what the numbers say, whatever the design and the methods."""

import re
from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from mgpa import MGPA, audit
from mgpa.audit import METRICS
from mgpa.audit.verdict import TEMPLATES, card, caveats, conclusions, confounding, headline, ranking, text
from mgpa.audit.verdict.decisions import has_pairs, home_metric, loses_at_home, of_decoder, task_metric
from mgpa.baselines import LEACE, Identity
from mgpa.tables import Table, assign_roles, fit_table

THREE = ("A", "B", "C")


def crossed(n=12, rows=12, sources=("dry", "wet"), shift=3.0, gain=1.0, seed=0, labels=True):
    """Return events of n participants, each seen through every source; classes take turns."""
    rng, k = np.random.default_rng(seed), len(sources)
    person, event = np.repeat(np.arange(n), rows * k), np.repeat(np.arange(n * rows), k)
    code, y = np.tile(np.arange(k), n * rows), np.repeat(np.arange(n * rows) % 2, k)
    X = rng.normal(size=(n * rows, 6))[event] + 0.1 * rng.normal(size=(len(event), 6))
    X[:, 3] *= np.where(code > 0, gain, 1.0)
    X[:, 0] += shift * code
    X[:, 1:3] += 2.0 * np.eye(2)[y]
    names = [f"p{i:03d}" for i in person]
    return Table(
        X, source=np.array(sources)[code], participant=names, pair_id=event, label=y if labels else None
    )


def some_paired():
    """Only three of sixteen participants have pairs."""
    table = crossed(16, 8)
    few = np.isin(table.participant, ["p000", "p001", "p002"])
    return table.with_columns(pair_id=np.where(few, table.pair_id, -1))


def clinic(n=24, sources="AB", travelled=0, shift=2.0):
    """Patients of one scanner each, with one label each; the first of them travelled."""
    rng, k = np.random.default_rng(1), len(sources)
    unit = np.repeat(np.arange(n), 6)
    site, label = (np.arange(n) % k)[unit], (np.arange(n) // k % 2)[unit]
    X = rng.normal(size=(len(unit), 6)) + 2 * np.eye(6)[label] + 0.3 * rng.normal(size=(n, 6))[unit]
    X[:, 4] += shift * site
    pair = np.where(unit < travelled, np.arange(len(unit)), -1)
    again = np.flatnonzero(unit < travelled)
    there = X[again] + 0.05 * rng.normal(size=(len(again), 6))
    there[:, 4] += shift * ((site[again] + 1) % k - site[again])
    site = np.concatenate([site, (site[again] + 1) % k])
    unit, label, pair = (np.concatenate([v, v[again]]) for v in (unit, label, pair))
    return Table(
        np.concatenate([X, there]), source=np.array(list(sources))[site], label=label,
        participant=[f"c{u:02d}" for u in unit], info={"unit": "patient_id"},
        **({"pair_id": pair} if travelled else {}),
    )  # fmt: skip


def samples(gap):
    """Return samples on two instruments, with a number as the label."""
    rng = np.random.default_rng(0)
    moisture = rng.normal(10, 2, 40)
    spectra = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 12)) + moisture[:, None] * np.eye(12)[3]
    X = np.concatenate([spectra, spectra + np.eye(12)[3] + gap * np.eye(12)[7]])
    return Table(
        X + 0.05 * rng.normal(size=X.shape), source=np.repeat(["m5", "mp6"], 40), label=np.tile(moisture, 2),
        participant=np.tile([f"s{i}" for i in range(40)], 2), pair_id=np.tile(np.arange(40), 2),
        info={"unit": "sample_id"},
    )  # fmt: skip


def noisy():
    """The second device adds noise that no correction removes, and a shift that misleads its decoder."""
    table = crossed(gain=1.0)
    wet, rng = table.source == np.unique(table.source)[1], np.random.default_rng(3)
    table.X[wet] += 0.8 * rng.normal(size=table.X[wet].shape) + 4.0 * np.eye(6)[1]
    return table


def with_roles():
    table = crossed(24, 8)
    return table.with_columns(role=assign_roles(table.participant))


def my_head():
    table = crossed(seed=5)
    return LogisticRegression().fit(table.X, table.label)


def seen_everybody():
    """A map that was fitted on all participants."""
    table = with_roles()
    everyone = table.with_columns(role=np.full(len(table), "FIT"))
    return {"mine": fit_table(LEACE(), everyone).to_map()}


DESIGNS = {
    "crossed": lambda: (crossed(), ["leace", "mgpa", "coral"], {}),
    "reference": lambda: (crossed(), {"mgpa": MGPA(reference="dry"), "featmap": "featmap"}, {}),
    "three sources": lambda: (crossed(12, 8, THREE), ["leace", "mgpa"], {}),
    "three, reference": lambda: (crossed(12, 8, THREE), {"mgpa": MGPA(reference="B"), "leace": "leace"}, {}),
    "noise": lambda: (noisy(), {"mgpa": MGPA(reference="dry"), "leace": "leace"}, {}),
    "gain": lambda: (crossed(gain=3.0), ["leace", "mgpa"], {}),
    "nothing to remove": lambda: (crossed(shift=0.0), ["leace", "mgpa"], {}),
    "no movement": lambda: (crossed(), {"stays": Identity()}, {}),
    "ties": lambda: (crossed(labels=False), {"leace": "leace", "again": "leace", "third": "leace"}, {}),
    "nothing compared": lambda: (crossed(), [], {}),
    "no labels": lambda: (crossed(labels=False), ["leace"], {}),
    "few people": lambda: (crossed(4), ["leace"], {}),
    "repeats": lambda: (crossed(8), ["leace", "mgpa"], {"repeats": 2}),
    "unpaired participants": lambda: (some_paired(), ["mgpa", "leace"], {}),
    "nested": lambda: (clinic(), ["leace", "combat"], {}),
    "five sources, nested": lambda: (clinic(60, "ABCDE"), ["leace"], {}),
    "mixed": lambda: (clinic(24, travelled=14), ["leace", "mgpa"], {}),
    "numbers": lambda: (samples(4.0), ["closed_form_mgpa", "sst"], {}),
    "numbers, far": lambda: (samples(40.0), ["closed_form_mgpa", "leace"], {}),
    "numbers, reference": lambda: (samples(4.0), {"mgpa": MGPA(reference="m5"), "leace": "leace"}, {}),
    "own head": lambda: (crossed(), ["leace"], {"head": my_head()}),
    "fitted elsewhere": lambda: (with_roles(), seen_everybody(), {"folds": 1}),
    "budget": lambda: (with_roles(), ["leace"], {"folds": 1, "budget": 0.2}),
}  # fmt: skip


#: Designs that all readers read, not the linear ones alone.
FULL_BANK = ("gain", "noise", "nothing to remove", "mixed")


@cache
def made(name):
    table, methods, options = DESIGNS[name]()
    bank = "full" if name in FULL_BANK else "paper"
    return audit.run(table, methods, readers={"bank": bank, "restarts": 0}, verbose=False, **options)


every_design = pytest.mark.parametrize("name", DESIGNS)


def about_leaders(result, kind, methods, facts):
    """A leader is clearly better, kept the task, and is called hiding only where nobody reads the source."""
    task = task_metric(result)
    for name in methods:
        assert result.outcome(name, "S") == "improved"
        assert not result[name].fitted_on
        assert task is None or result.outcome(name, task.name) in ("improved", "kept")
        assert result[name].source_blind != kind.endswith("_aware")
    if kind.startswith("leads"):
        readable = result[methods[0]].chance.excluded
        assert ("to chance level" in facts["did"]) == (result["identity"].chance.excluded and not readable)
        if task is not None and "keeps" not in facts["did"]:
            assert "T_f" in result.metrics or result[methods[0]].estimate("R2_f").value < 0


def about_home(result, kind, methods, facts):
    [name] = methods
    served, _ = of_decoder(result, name, home_metric(result))
    change = result.contrast(name, metric=served)
    assert change.high < -0.01 if served.startswith("home") else change.low > 0
    assert facts["after"] == result.tabled[name][home_metric(result)].value  # as the table shows it
    if kind == "home_falls_advice":
        assert has_pairs(result)
        assert result["identity"].chance.excluded
        assert not any(result[m].reference for m in result.methods)


def about_accuracy(result, kind, methods, facts):
    for name in methods:
        served, _ = of_decoder(result, name, "away" if "away" in result.metrics else "RMSEP_away")
        change = result.contrast(name, metric=served)
        assert (change.low > 0) == (kind == "accuracy_improved") or kind == "model_error"
        assert change.low > 0 or change.high < 0


def about_serving(result, kind, methods, facts):
    """Heads do clearly better on other sources, lose nothing at home, and with no method better than this."""
    away = "away" if "away" in result.metrics else "RMSEP_away"
    sign = 1 if away == "away" else -1
    best = sign * result.tabled[methods[0]][away].value
    for name in methods:
        assert result.outcome(name, away) == "improved"
        assert not loses_at_home(result, name)
    for other in set(result.methods[1:]) - {*methods}:
        able = result[other].source_blind and not result[other].fitted_on and not loses_at_home(result, other)
        if able and result.outcome(other, away) == "improved":
            assert sign * result.tabled[other][away].value <= best


def about_what_is_left(result, kind, methods, facts):
    ranks = [info.gate_rank for info in result[methods[0]].provenance]
    assert (min(ranks) == facts["features"]) == (kind == "left_full")  # else more pairs can widen the gate


def about_unmoved(result, kind, methods, facts):
    assert not result[methods[0]].movement.any()


def about_metric(result, kind, methods, facts):
    [name], metric = methods, facts["metric"]
    change = result.contrast(name, metric=metric)
    sign = -1 if METRICS[metric].better == "lower" else 1
    low, high = sorted((sign * change.low, sign * change.high))
    assert facts["outcome"] != "better" or low > 0
    assert facts["outcome"] != "worse" or high < 0
    assert kind != "metric_kept" or low > -METRICS[metric].kept
    assert facts["change"].difference == change


def about_source(result, kind, methods, facts):
    [name], said = methods, facts["outcome"]
    readable, before = result[name].chance.excluded, result["identity"].chance.excluded
    assert ("hidden" in said or "indistinguishable" in said) == (not readable)
    assert "still" not in said or (readable and before)
    assert "now" not in said or (readable and not before)
    assert "harder" not in said or result.contrast(name).high < 0


def about_advice(result, kind, methods, facts):
    assert has_pairs(result)
    assert not any(info.method == "MGPA" for m in result.methods for info in result[m].provenance)


def about_classes(result, kind, methods, facts):
    """Recalls are those of heads of all sources; other sentences are about the reference's heads."""
    assert not result.decoder
    assert not result[methods[0]].reference


def about_unseen(result, kind, methods, facts):
    assert len(result.settings.sources) > 2
    for reference in {result[name].reference for name in methods} - {""}:  # it cannot be left out of its fit
        assert not result[methods[0]].has(f"A_u {reference}") or not result["identity"].has(
            f"A_u {reference}"
        )
        ways = facts["values"].partition("mean of ")[2]
        assert ways
        assert reference not in ways


def about_uncorrected(result, kind, methods, facts):
    assert result["identity"].chance.excluded == (kind != "hidden")
    assert (kind == "revealed_between") <= (result.design.kind != "crossed")


#: What must be so where a sentence of a kind is said.
TRUE = {
    **dict.fromkeys(("revealed", "revealed_between", "hidden"), about_uncorrected),
    **dict.fromkeys(("leads", "leads_aware", "tied", "tied_aware"), about_leaders),
    **dict.fromkeys(("home_falls", "home_falls_advice"), about_home),
    **dict.fromkeys(("accuracy_improved", "accuracy_suffered", "model_error"), about_accuracy),
    **dict.fromkeys(("metric", "metric_unsure", "metric_kept"), about_metric),
    **dict.fromkeys(("source", "source_reverses"), about_source),
    **dict.fromkeys(("serves", "serve_alike"), about_serving),
    **dict.fromkeys(("left", "left_full"), about_what_is_left),
    "by_class": about_classes, "unmoved": about_unmoved, "unseen": about_unseen,
    "beyond_linear_advice": about_advice,
}  # fmt: skip


def said_of(result):
    return [*conclusions(result), *(finding for name in result.methods for finding in card(result, name))]


@every_design
def test_every_finding_is_true_of_its_audit(name):
    result = made(name)
    for finding in said_of(result):
        TRUE.get(finding.kind, lambda *_: None)(result, finding.kind, finding.methods, finding.facts)


CHANGE = re.compile(r"(-?[\d.]+) → (-?[\d.]+) \(([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]")


@every_design
def test_numbers_in_sentences_agree_with_one_another_and_words_are_whole(name):
    result = made(name)
    lines = [*map(str, said_of(result)), *caveats(result), confounding(result), headline(result)]
    for line in [*lines, result.methods_text()]:
        assert line.endswith("."), line
        assert not re.search(r"[{}]|\bNone\b|\bnan\b|  | ,|\(\)|\.\.|: :", line), line
        assert line[0].isupper() or line.startswith(tuple(result.methods)), line
        for before, after, change, low, high in CHANGE.findall(line):
            assert float(change) == pytest.approx(float(after) - float(before), abs=0.0016), line
            assert float(low) <= float(change) <= float(high), line
    everything = text(result, verbose=True)
    assert all(line in everything for line in lines[: len(conclusions(result))])


@every_design
def test_every_value_is_in_its_interval(name):
    result = made(name)
    of_methods = [e for row in result.tabled.values() for e in row.values()]
    for e in [*of_methods, *(e for row in result.changes.values() for e in row.values())]:
        assert e.low - 1e-9 <= e.value <= e.high + 1e-9, e
    for row in result.tabled.values():
        for metric, e in row.items():
            if METRICS[metric].unit in ("AUROC", "balanced accuracy", "share"):
                assert 0.0 <= e.low <= e.high <= 1.0, (metric, e)
    assert "twin" not in result.metrics or METRICS["twin"].unit == "share"
    for one in result.results.values():  # a bias or shift in one direction has a sign
        ways = (
            f"{m} {way}" for m in ("T_f", "A_f", "shift_f", "bias_f", "RMSEP_f") for way in one.directions
        )
        for e in (one.estimate(m) for m in ways if one.has(m)):
            assert e.low - 1e-9 <= e.value <= e.high + 1e-9, e
    for wider in (result.simultaneous, result.refitted):  # for more than one method, or with the fit
        for method, changes in wider.items():
            for metric, e in changes.items():
                alone = result.changes[method][metric]
                assert e.low <= alone.low + 1e-9, (method, metric)
                assert e.high >= alone.high - 1e-9, (method, metric)


@every_design
def test_what_is_said_of_who_was_trained_on_whom_holds(name):
    result = made(name)
    lines = " ".join([*caveats(result), result.methods_text()])
    if "maps, readers" in lines:
        assert all(result[m].fitted_on == () for m in result.methods[1:])
    if re.search(r"readers and heads trained on others|readers, and heads trained", lines):
        assert not result.settings.deployed
    assert ("EVAL once" in lines) == (result.settings.folds > 1)
    assert "Task heads" not in lines or result.settings.task
    assert ("networks on " in lines) == any("gelu" in reader for reader in result["identity"].readers)
    assert ("fitted on EVAL" in lines) == any(result[m].fitted_on for m in result.methods)


@every_design
def test_the_methods_paragraph_has_the_numbers_of_the_table(name):
    """A method that takes rows to one source is scored by that source's heads, in both."""
    result = made(name)
    paragraph = result.methods_text()
    shown = [m for m in ("S", "home", "away", "T_f", "RMSEP_home", "RMSEP_away") if m in result.metrics]
    for method in result.methods[1:]:
        for metric in shown:
            assert f"{result.tabled[method][metric]} with " in paragraph


def test_designs_say_most_of_what_can_be_said():
    kinds = {finding.kind for name in DESIGNS for finding in said_of(made(name))}
    assert kinds <= TEMPLATES.keys()
    assert len(kinds) > 25, sorted(TEMPLATES.keys() - kinds)
    leaders = {name: ranking(made(name))[1] for name in ("ties", "few people", "no movement")}
    assert leaders == {"ties": (("leace", "again", "third"),), "few people": (), "no movement": ()}
