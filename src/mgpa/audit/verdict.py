"""The audit in words: headline, effect of each method, certainty, next steps.

Plain functions of an audit; every output takes its sentences from here.
"""

from __future__ import annotations

import math
import operator
import re
from itertools import dropwhile
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from .._common.markup import text_table
from ..errors import printable
from ..tables.columns import spoken
from .bootstrap import Estimate, number
from .design import FEW, TOO_FEW
from .diagnostics import UNASSOCIATED, cramers_v
from .metrics import METRICS, Metric
from .words import label, listed, reader_name, reader_summary

if TYPE_CHECKING:
    from .result import Audit

# Characters of a printed table, and the columns that come first in it.
LINE = 110
FIRST = ("S", "A_f", "RMSEP_f", "T_f", "M")
# What users' heads would notice, in the order in which it is told.
HEADS = ("A_f", "RMSEP_f", "bias_f", "T_f", "T_r", "RMSEP_r")
# More units than this many times the present number are not worth asking for.
MOST_MORE = 100
PLANNED = (1.96 + 0.84) ** 2 / 1.96**2  # times as many participants give 80 % power instead of 50 %
OPERATORS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
#: What became of a metric, in words.
OUTCOMES = {"improved": "better", "kept": "kept", "suffered": "worse", "unclear": "not clearly different"}


def task_metric(audit: Audit) -> Metric | None:
    """Return the metric that says whether a method kept the task; None without labels."""
    return next((METRICS[m] for m in ("T_f", "RMSEP_f") if m in audit.metrics), None)


def smallest_cell(audit: Audit) -> tuple[str, int]:
    """Return the smallest cell and its number of participants."""
    design, people = audit.design, audit["identity"].participants
    return design.smallest_cell([who for who in people if design.travelled(who) == design.within])


def too_few(audit: Audit) -> bool:
    """Return whether a cell has too few participants to conclude anything."""
    return smallest_cell(audit)[1] < TOO_FEW


def ranking(audit: Audit) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    """Return the methods, the best first, and the leaders: source-blind ones, then source-aware ones.

    Leaders lowered S (or improved ``settings["outcome"]``, where a study names another metric) and kept the
    task. One leader is better than the others by its interval; several are tied. Methods that harmed the
    task come last. Source-aware methods use more information and compete among themselves. Too few
    participants give no leaders.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}
    task, metric = task_metric(audit), METRICS[audit.settings.get("outcome", "S")]

    def place(name: str) -> tuple[int, bool, float]:
        improved = audit.outcome(name, metric.name) == "improved"
        # Numbers of a map that was fitted on its EVAL participants do not count.
        last = 3 if audit[name].fitted_on else places[audit.outcome(name, task.name) if task else None]
        value = audit[name].estimate(metric.name).value
        return last, not improved, value if metric.better == "lower" else -value

    names = sorted(audit.methods[1:], key=place)
    good = [name for name in names if place(name)[:2] == (0, False) and not too_few(audit)]
    groups = ([name for name in good if audit[name].source_blind == blind] for blind in (True, False))
    return names, tuple(
        tuple(name for name in group if name == group[0] or not _beats(audit, group[0], name, metric.name))
        for group in groups
        if group
    )


def _beats(audit: Audit, a: str, b: str, metric: str) -> bool:
    """Return whether a is better than b by its interval; of movement, whether it moves less."""
    sign = -1 if METRICS[metric].better == "higher" else 1
    try:
        change = audit.contrast(a, b, metric)
        return max(sign * change.low, sign * change.high) < 0
    except ValueError:  # different numbers of fits have no paired difference
        ends = [sorted((sign * e.low, sign * e.high)) for e in (audit[m].estimate(metric) for m in (a, b))]
        return ends[0][1] < ends[1][0]


def verdict(audit: Audit) -> list[str]:
    """Return three sentences: what the embeddings reveal, what the best methods did, how sure that is."""
    return [_uncorrected(audit), " ".join(led_by(audit)), certainty(audit)]


def headline(audit: Audit) -> str:
    """Return what the embeddings reveal, and what the best source-blind methods did."""
    return f"{_uncorrected(audit)} {led_by(audit)[0]}"


def units(audit: Audit, n: int | None = None) -> str:
    """Return a number of participants, with the user's word for them."""
    n = audit.n_people if n is None else n
    return f"{n} {audit.design.unit if n == 1 else audit.design.plural}"


def _uncorrected(audit: Audit) -> str:
    identity, source = audit["identity"], spoken(audit.settings["names"]["source"])
    not_, beyond = ("", "") if identity.chance.excluded else ("do not ", " beyond chance")
    values = f"S {number(identity.S)}; chance reaches {number(identity.chance.high)}"
    return f"Your embeddings {not_}reveal the {source}{beyond} ({values})."


def led_by(audit: Audit) -> list[str]:
    """Return a sentence for leading source-blind methods, and one for leading source-aware ones."""
    names, leaders = ranking(audit)
    if not names:
        return ["Only uncorrected embeddings were audited; there is nothing to compare."]
    return [_leader(audit, group) for group in leaders] or [_no_leader(audit, names)]


def _leader(audit: Audit, group: tuple[str, ...]) -> str:
    """Return what a leader did, or that several are tied, and which models are of no use on its rows."""
    metric, several = audit.settings.get("outcome", "S"), len(group) > 1
    who = listed(map(label, group))
    who += "" if audit[group[0]].source_blind else ", told the source of every row,"
    worthless = worse_than_mean(audit, group) or unread_task(audit)
    but = f", but {worthless}" if worthless else ""
    keeping = [name for name in group if task_metric(audit) and not _below_zero(audit, name, "R2_f")]
    keeping = [] if unread_task(audit) else keeping
    if several:
        values = listed(number(audit[name].estimate(metric).value) for name in group)
        readable = [name for name in group if metric == "S" and audit[name].chance.excluded]
        hidden = [name for name in group if metric == "S" and name not in readable]
        deeds = _together(group, {"hide it": hidden, "lower it": readable, "keep the task": keeping})
        return f"{who} are tied on {metric} ({values}){f': {deeds}' if deeds else ''}{but}."
    [name] = group
    did = [_hides(audit, name) if metric == "S" else f"is best on {metric} ({_value(audit, name, metric)})"]
    did += ["keeps the task"] if keeping else []
    gains, yours = {"improved": "gains", "suffered": "loses"}, ""
    if verb := gains.get(str(audit.outcome(name, "A_f"))):
        points = f"{abs(100 * audit.contrast(name, metric='A_f').value):.0f}"
        yours = f"; your decoder {verb} {points} point{'' if points == '1' else 's'} of accuracy"
    if str(audit.outcome(name, "RMSEP_f")) in gains:
        before, after = (_value(audit, m, "RMSEP_f") for m in ("identity", name))
        yours = f"; your model errs by {after} instead of {before} (RMSEP)"
    return f"{who} {listed(did)}{yours}{but}."


def _together(group: tuple[str, ...], deeds: dict[str, list[str]]) -> str:
    """Return who of several did what: "both hide it", or "A hides it; B lowers it; both keep the task"."""
    shared, clauses = [deed for deed, who in deeds.items() if len(who) == len(group)], []
    for deed, who in deeds.items():
        if deed in shared[:1]:
            clauses.append(f"{'both' if len(group) == 2 else 'all'} {listed(shared)}")
        elif who and deed not in shared:
            clauses.append(
                f"{listed(map(label, who))} {deed if len(who) > 1 else deed.replace(' ', 's ', 1)}"
            )
    return "; ".join(clauses)


def _below_zero(audit: Audit, name: str, metric: str) -> bool:
    return audit[name].has(metric) and audit[name].estimate(metric).value < 0


def unread_task(audit: Audit) -> str:
    """Return that heads may not read the task without correction either; nothing if they clearly do."""
    heads = audit["identity"].estimate("T_f") if "T_f" in audit.metrics else None
    if heads is None or heads.low > 0.5:
        return ""
    return f"what the task loses cannot be told: heads hardly read it without correction (T_f {heads})"


def worse_than_mean(audit: Audit, methods: tuple[str, ...]) -> str:
    """Return a warning if existing regression models are worse than the mean; else nothing."""
    poor = [m for m in methods if _below_zero(audit, m, "R2_f")]
    if not poor:
        return ""

    def explained(metric: str) -> str:
        return f"R² {listed(number(audit[m].estimate(metric).value, '.2f') for m in poor)}"

    before = number(audit["identity"].estimate("R2_f").value, ".2f")
    on = "" if len(poor) == len(methods) else f" on rows of {listed(map(label, poor))}"
    text = f"existing models{on} are worse than guessing the mean ({explained('R2_f')}; {before} uncorrected)"
    ways = (way for way in audit[poor[0]].directions if all(audit[m].has(f"R2_f {way}") for m in poor))
    good = [way for way in ways if not any(_below_zero(audit, m, f"R2_f {way}") for m in poor)]
    served = [f"{way} ({explained('R2_f ' + way)})" for way in good]  # by a map to the source they know
    text += f", except {listed(served)}" if served else ""
    text += f"; refitted models reach {explained('R2_r')}" if "R2_r" in audit.metrics else ""
    instead = ". Or map rows to the source that the models know (FEATMAP, PDS, SST)"
    return text + (instead if all(audit[m].source_blind for m in poor) else "")


def _value(audit: Audit, name: str, metric: str) -> str:
    return number(audit[name].estimate(metric).value)


def _hides(audit: Audit, name: str) -> str:
    S = _value(audit, name, "S")
    return f"lowers it to {S}" if audit[name].chance.excluded else f"hides it ({S})"


def _no_leader(audit: Audit, names: list[str]) -> str:
    """Return why no method is best."""
    if too_few(audit):
        if audit.n_people >= TOO_FEW:
            return f"No method is called best: every source and label needs at least {units(audit, TOO_FEW)}."
        return f"No method is called best with {units(audit)}; at least {TOO_FEW} are needed."
    if not audit["identity"].chance.excluded:
        return "These readers find nothing to remove."
    lowered = [name for name in names if audit.outcome(name, "S") == "improved" and not audit[name].fitted_on]
    if lowered and (task := task_metric(audit)):
        name, harmed = lowered[0], audit.outcome(lowered[0], task.name) == "suffered"
        but = "it harms the task" if harmed else "whether it keeps the task is not clear"
        change = audit.contrast(name, metric=task.name)
        return f"{label(name)} {_hides(audit, name)}, but {but} ({task.name} {change:+.3f})."
    if not any(audit[name].movement.any() for name in names):
        return "No method moved the embeddings."
    lowest = min(names, key=lambda name: audit[name].S)
    return f"No method clearly lowered it. The lowest S is {_value(audit, lowest, 'S')} ({label(lowest)})."


def certainty(audit: Audit, *, warn: bool = True) -> str:
    """Return one line on certainty: warnings, number of participants, how many more would help."""
    lines = [*warnings(audit).values()] if warn else []
    if not too_few(audit):
        lines.append(f"Intervals are over {units(audit)}.")
        # Which of several methods that hide the source has the lower S is of no use.
        leaders = ranking(audit)[1]
        readable = {name for group in leaders for name in group if audit[name].chance.excluded}
        lines += [e["sentence"] for e in plan(audit) if readable & {*e["methods"]} or not leaders][:1]
    return " ".join(lines)


def warnings(audit: Audit) -> dict[str, str]:
    """Return the warnings that every output shows: a sentence by a short badge."""
    s, marks = audit.settings, {}
    if s["preliminary"]:
        few = missing_networks(audit) or "few, briefly trained readers"
        marks["Preliminary"] = f"Preliminary: {few}, so S may be too low."
    if too_few(audit):
        cell, n = smallest_cell(audit)
        marks["Exploratory"] = f"Only {units(audit, n)}{f' in the cell {cell}' * bool(cell)}: exploratory."
    if s.get("corrected_by"):
        marks["Corrected before"] = (
            f"The rows were already corrected (by map {s['corrected_by']}), perhaps by a map fitted on these "
            f"{audit.design.plural}. Audit the table it was applied to, and pass the map as a method."
        )
    if leaked := [label(name) for name, result in audit.results.items() if result.fitted_on]:
        was = "were" if len(leaked) > 1 else "was"
        marks["Not held out"] = f"{listed(leaked)} {was} fitted on EVAL participants, which flatters it."
    if s["duplicates"]:
        copies = "; ".join(f"{count} {what}" for what, count in s["duplicates"].items())
        marks["Duplicate rows"] = f"The same rows have two roles ({copies}), which flatters every method."
    return marks


def missing_networks(audit: Audit) -> str:
    """Return a note if no networks were among the readers, and why; else nothing."""
    why = " (torch is not installed)" if audit.settings.get("no_networks") else ""
    networks = any("gelu" in reader for reader in audit["identity"].readers)
    return "" if networks else f"no networks among the readers{why}"


def caveats(audit: Audit) -> list[str]:
    """Return the caveats that hold for every method."""
    s, design = audit.settings, audit.design
    lines = [*warnings(audit).values(), design.sentence, *design.notes]
    nested = [f"{n} {role}" for role, n in s["one_source"].items() if n]
    if nested and design.kind == "crossed":
        lines.append(
            f"{listed(nested)} {design.plural} have one source only: methods and readers may learn the "
            f"{design.plural} instead of the source, so S may be too low."
        )
    if "folds" in s:
        lines.append(
            f"Each {design.unit} was scored once, by models trained on others, in {s['folds']} folds."
        )
    few = " Intervals over so few tend to be too narrow." if audit.n_people < FEW else ""
    lines.append(
        f"Intervals are over {units(audit)}, for these fitted maps and readers; a stronger reader may find "
        f"more. Chance comes from permuted source labels.{few}"
    )
    lines += [entry["sentence"] for entry in plan(audit) if not too_few(audit)]
    if len(audit.methods) > 2 and any(len(group) == 1 for group in ranking(audit)[1]):
        lines.append(f"The best method was chosen on these {design.plural}; confirm it on new ones.")
    return lines


def confounding(audit: Audit) -> str:
    """Return how far source and label are associated in the fitting rows."""
    if not audit.counts:
        return "The labels are not classes, so their association with the source was not measured."
    v = cramers_v(audit.counts)
    strength = "no" if v < UNASSOCIATED else "some" if v < 0.4 else "strong"
    harm = ": methods that erase whatever predicts the source remove task with it" * (v >= UNASSOCIATED)
    return f"Source and label show {strength} association in the fitting rows (Cramér's V {v:.2f}){harm}."


def class_chance(audit: Audit, metric: str) -> str:
    """Return the balanced accuracy of guessing, in words; nothing for other metrics."""
    guess = number(1 / len(audit.design.classes))
    return f"chance {guess}" if METRICS[metric].unit == "balanced accuracy" else ""


def readers_note(audit: Audit) -> str:
    """Return which readers were used, and S of the paper's readers alone."""
    readers = audit["identity"].readers
    note = f"S: the best of {len(readers)} readers ({reader_summary(readers)})."
    note += f" There were {missing}." if (missing := missing_networks(audit)) else ""
    if audit.settings["bank"] == "paper":
        return f"{note} All are the paper's readers."
    alone = (f"{printable(name)} {number(r.estimate('S_paper').value)}" for name, r in audit.results.items())
    return f"{note} By the paper's readers alone (S_paper): {', '.join(alone)}."


def shortcut_note(audit: Audit) -> str:
    """Return which shortcut the heads behind ``worst`` learned."""
    ways, origin = audit.settings["directions"], audit.settings["directions_of"]
    if not ways:
        return f"worst and control were not measured: {origin}." if origin else ""
    if len(ways) > 1:
        return "worst: the mean over heads that learned each possible shortcut."
    how = "as stated" if origin == "stated" else f"as in the {origin} rows"
    return f"worst: heads learned that {ways[0]} ({how})."


def plan(audit: Audit) -> list[dict[str, Any]]:
    """Return how many participants would settle open questions with 80 % power, from the width of intervals.

    With a half-width of the interval as large as what is looked for, every second audit would miss it: the
    number is (1.96 + .84)² / 1.96² times as large.

    Each entry has ``question`` ("separate" or "kept"), ``methods``, ``metric``, participants ``now`` and
    ``needed`` (None: more will hardly help), and a ``sentence``.
    """
    names, leaders = ranking(audit)
    task, metric, entries = task_metric(audit), audit.settings.get("outcome", "S"), []

    def ask(question: str, methods: tuple[str, ...], measured: str, margin: float, spread: float) -> None:
        now, more, who = audit.n_people, audit.design.plural, listed(map(label, methods))
        needed = now * PLANNED * (spread / margin) ** 2 if margin > 0 else math.inf
        enough = max(math.ceil(needed), now + 1) if needed <= MOST_MORE * now else None
        goal = f"tell {who} apart on {measured}"
        if question == "kept":
            goal = f"show that {who} keeps the task within {number(METRICS[measured].kept or 0, '.2f')}"
        sentence = f"More {more} will hardly {goal}."
        if enough:
            sentence = f"About {enough} {more} would {goal}, in four of five audits (80 % power)."
        entries.append({"question": question, "methods": methods, "metric": measured, "now": now,
                        "needed": enough, "sentence": sentence})  # fmt: skip

    for best, other in ((group[0], name) for group in leaders for name in group[1:]):
        change = audit.contrast(best, other, metric)
        ask("separate", (best, other), metric, abs(change.value), (change.high - change.low) / 2)
    for name in names:
        if task is not None and task.kept and audit.outcome(name, task.name) == "unclear":
            loss = _loss(audit, name)
            ask("kept", (name,), task.name, task.kept - loss.value, loss.high - loss.value)
    return entries


def _loss(audit: Audit, method: str) -> Estimate:
    """Return what a method costs the task."""
    task = task_metric(audit)
    if task is None:
        raise ValueError("The table has no labels, so the loss of the task was not measured.")
    change = audit.contrast(method, metric=task.name)
    return change if task.better == "lower" else Estimate(-change.value, -change.high, -change.low)


def findings(audit: Audit, method: str) -> list[str]:
    """Return what a method did: to heads, to the source, to the rows; and what to try next."""
    if method == "identity":
        return [_uncorrected(audit)]
    result, lines = audit[method], _caution(audit, method)
    for m in dict.fromkeys([*HEADS, *(m for m in audit.metrics if METRICS[m].kept is not None)]):
        if m not in audit.metrics:
            continue
        outcome, subject = str(audit.outcome(method, m)), METRICS[m].subject
        words, most = OUTCOMES[outcome], number(METRICS[m].kept or 0, ".2f")
        if METRICS[m].kept and outcome in ("kept", "unclear"):
            words += f"; {'any loss is below' if outcome == 'kept' else 'the loss may exceed'} {most} (95 %)"
        if chance := class_chance(audit, m):
            words = f"{chance}: {words}"
        change = f"{_change(audit, method, m)}{'; ' if chance else ': '}{words}"
        lines.append(f"{subject[0].upper()}{subject[1:]} ({m}): {change}.")
    lines.append(_source_sentence(audit, method))
    for part in ("S_travelled", "S_stayed"):
        if result.has(part) and audit["identity"].has(part):
            lines.append(
                f"{audit.design.plural.capitalize()} that {part[2:]}: S {_change(audit, method, part)}."
            )
    if result.has("floor"):
        explains = ": more data would not lower S; a gate of higher rank may" * result.floor_explains
        ranks = sorted({fact["gate_basis"].shape[1] for fact in result.facts if "gate_basis" in fact})
        if explains and "folds" in audit.settings and ranks:  # each fold has some of the pairs
            span = f"{ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else ranks[0]
            explains = (
                f": a gate of higher rank may lower S. Folds, fitted on some of the pairs, have rank {span}"
            )
        lines.append(f"Floor: readers of what the gate preserves reach {result.estimate('floor')}{explains}.")
    if result.chance.excluded and result.has("L"):
        linear = f"Linear readers reach {result.estimate('L')}"
        linear += "" if result.linear_chance.excluded else ", no more than chance"
        shape = f"; the rest is in spread and shape (best reader: {reader_name(result.best_reader())})"
        shape += "" if any(info.method == "MGPA" for info in result.provenance) else ". Try mgpa.MGPA"
        lines.append(f"{linear}{shape if result.beyond_linear else ''}.")
    if "worst" in audit.metrics:
        change = _change(audit, method, "worst")
        lines.append(f"Worst-case AUROC of a head trained on the shortcut: {change}.")
    lines.append(f"Rows moved by {100 * result.estimate('M').value:.1f} % of their size.")
    return lines


def _change(audit: Audit, method: str, metric: str) -> str:
    before, after = (_value(audit, name, metric) for name in ("identity", method))
    return f"{before} → {after} ({audit.contrast(method, metric=metric):+.3f})"


def _source_sentence(audit: Audit, method: str) -> str:
    """Return whether the source can be read, compared with what the best reader reaches by chance."""
    chance = audit[method].chance
    kinds = {"improved": "harder to read, but still readable", "suffered": "easier to read"}
    now = kinds.get(str(audit.outcome(method, "S")), "still readable, not clearly different")
    if not chance.excluded:
        was = audit["identity"].chance.excluded
        now = "hidden (indistinguishable from chance)" if was else "indistinguishable from chance, as before"
    if audit[method].estimate("S").high < 0.5:
        now += f". S is below chance: readers learned a rule that reverses on new {audit.design.plural}"
    return f"Source (S): {_change(audit, method, 'S')}; chance reaches {number(chance.high)}: {now}."


def _caution(audit: Audit, method: str) -> list[str]:
    """Return that a method had no evidence, or was not held out."""
    result = audit[method]
    missing = [str(fit["missing_evidence"]) for fit in result.facts if "missing_evidence" in fit]
    fits = f" in {len(missing)} of {len(result.facts)} fits" if len(result.facts) > 1 else ""
    lines = [f"No evidence to act on: rows are left as they are{fits}. {missing[0]}"] if missing else []
    if result.fitted_on:
        who = ", ".join(result.fitted_on[:5]) + (", …" if len(result.fitted_on) > 5 else "")
        people, n = audit.design.plural, len(result.fitted_on)
        lines.append(
            f"Not held out: it was fitted on {n} of the {people} it is scored on ({who}), which flatters it. "
            f"Fit it on FIT {people} only."
        )
    elif result.fitted_elsewhere and result.fitted_on is None:
        lines.append(f"It was fitted elsewhere, perhaps on these {audit.design.plural}.")
    return lines


def read_requirement(text: str) -> list[tuple[str, str, str, float]]:
    """Return the clauses of a requirement: name, part ("value", "low" or "high"), comparison and bound.

    Examples
    --------
    >>> read_requirement("S<=.6 and loss.high<=.01")
    [('S', 'value', '<=', 0.6), ('loss', 'high', '<=', 0.01)]
    """
    clauses = []
    for clause in re.split(r"\band\b", text):
        match = re.fullmatch(r"\s*(\w+)(?:\.(low|high))?\s*(<=|>=|<|>)\s*(-?\d*\.?\d+)\s*", clause)
        if match is None or match[1] not in {*METRICS, "loss"}:
            names = f"loss, {', '.join(METRICS)}"
            raise ValueError(
                f"Cannot read {clause.strip()!r}. Write comparisons joined by 'and', such as "
                f"'S<=.6 and loss.high<=.01' (.high is the interval's end). Names: {names}."
            )
        clauses.append((match[1], match[2] or "value", match[3], float(match[4])))
    return clauses


def unmet(audit: Audit, requirement: str) -> list[str]:
    """Return in sentences which methods do not meet a requirement; empty if every method meets it."""
    lines = []
    for metric, part, sign, bound in read_requirement(requirement):
        for name in audit.methods[1:]:
            e = _loss(audit, name) if metric == "loss" else audit[name].estimate(metric)
            value = round(getattr(e, part), 9)
            if not OPERATORS[sign](value, bound):
                of = metric if part == "value" else f"{metric}.{part}"
                lines.append(f"{label(name)}: {of} is {number(value)}, required {sign} {number(bound)}.")
    return lines


def text(audit: Audit, *, verbose: bool = False) -> str:
    """Return three lines of verdict and one table; with ``verbose``, every column and every sentence."""
    lines = [*verdict(audit), "", *table_lines(audit, everything=verbose)]
    if verbose:
        for name in ranking(audit)[0]:
            lines += ["", label(name), *(f"  {sentence}" for sentence in findings(audit, name))]
        notes = (*caveats(audit), readers_note(audit), shortcut_note(audit))
        lines += ["", "How sure is this?", *(f"  {note}" for note in notes if note)]
    return printable("\n".join(lines), lines=True)


def table_lines(audit: Audit, *, everything: bool = False) -> list[str]:
    """Return the table of estimates; only the columns that fit a line, unless ``everything``."""
    columns: list[tuple[str, ...]] = []
    for m in dict.fromkeys([*(m for m in FIRST if m in audit.columns), *audit.columns]):
        estimates = (audit.estimates[name].get(m) for name in audit.methods)
        wanted = f"{m} ({chance})" if (chance := class_chance(audit, m)) else METRICS[m].wanted
        cells = (wanted, *("" if e is None else str(e) for e in estimates))
        words = wrap(METRICS[m].subject, max(map(len, cells)))[:2]
        columns.append((*[""] * (2 - len(words)), *words, *cells))
        if m == "S":
            columns.append(("", "chance", "up to", *(number(r.chance.high) for r in audit.results.values())))
    first = ("", "", "method", *map(printable, audit.methods))
    blocks: list[list[tuple[str, ...]]] = [[]]
    for column in columns:
        used = max(map(len, first)) + sum(2 + max(map(len, c)) for c in blocks[-1])
        if blocks[-1] and used + 2 + max(map(len, column)) > LINE:
            blocks.append([])
        blocks[-1].append(column)
    lines: list[str] = []
    for block in blocks if everything else blocks[:1]:
        lines += ["", *dropwhile(lambda line: not line, text_table(zip(first, *block, strict=True)))]
    return lines[1:]
