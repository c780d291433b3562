"""What an audit says in words: a headline, what each method did, how sure that is, what would help.

Plain functions of an audit; every output takes its sentences from here.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable
from itertools import dropwhile
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from .._common.markup import text_table
from ..errors import printable
from .bootstrap import Estimate, number
from .design import FEW, TOO_FEW
from .metrics import METRICS, Metric
from .words import READERS, label, listed, reader_summary

if TYPE_CHECKING:
    from .result import Audit

# Characters of a printed table, and the columns that come first in it.
LINE = 110
FIRST = ("S", "A_f", "RMSEP_f", "T_f", "M")
# What users' heads would notice, in the order in which it is told.
HEADS = ("A_f", "RMSEP_f", "bias_f", "T_f", "T_r", "RMSEP_r")
# More units than this many times the present number are not worth asking for.
MOST_MORE = 50
OPERATORS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
#: What became of a metric, in words.
OUTCOMES = {"improved": "better", "kept": "kept", "suffered": "worse", "unclear": "not clearly different"}


def task_metric(audit: Audit) -> Metric | None:
    """Return the metric that says whether a method kept the task; None without labels."""
    return next((METRICS[m] for m in ("T_f", "RMSEP_f") if m in audit.metrics), None)


def smallest_cell(audit: Audit) -> tuple[str, int]:
    """Return the cell with the fewest of the participants by which sources are compared, and how many."""
    design, people = audit.design, audit["identity"].participants
    if design is None:
        return "", len(people)
    return design.smallest_cell([who for who in people if design.travelled(who) == design.within])


def too_few(audit: Audit) -> bool:
    """Return whether a cell has too few participants to conclude anything."""
    return smallest_cell(audit)[1] < TOO_FEW


def ranking(audit: Audit) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    """Return the methods, the best first, and the leaders: source-blind ones, then source-aware ones.

    Leaders lowered S (or improved ``settings["outcome"]``, where a study names another metric) and kept the
    task. One leader is better than the others by its interval; several are tied. Methods that harmed the
    task come last. Source-aware methods are told more and compete among themselves. With too few participants
    there are no leaders.
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


def named(audit: Audit, column: str) -> str:
    """Return what the user's table calls the source or the participant, without "_id"."""
    unit = audit.design.unit if audit.design and column == "participant" else column
    name = str(audit.settings.get("names", {}).get(column, unit))
    return name.replace("_", " ").removesuffix(" id") or column


def units(audit: Audit, n: int | None = None) -> str:
    """Return a number of participants, called as the user's column is."""
    n, name = audit.n_people if n is None else n, named(audit, "participant")
    return f"{n} {name}{'s' * (n != 1)}"


def _uncorrected(audit: Audit) -> str:
    identity, source = audit["identity"], named(audit, "source")
    values = f"S {number(identity.S)}; chance reaches {number(identity.chance.high)}"
    if identity.chance.excluded:
        return f"Your embeddings reveal the {source} ({values})."
    return f"Your embeddings do not reveal the {source} beyond chance ({values})."


def led_by(audit: Audit) -> list[str]:
    """Return a sentence for leading source-blind methods, and one for leading source-aware ones."""
    names, leaders = ranking(audit)
    if not names:
        return ["Only uncorrected embeddings were audited; there is nothing to compare."]
    return [_leader(audit, group) for group in leaders] or [_no_leader(audit, names)]


def _leader(audit: Audit, group: tuple[str, ...]) -> str:
    """Return what a leader did, or that several are tied and what tells them apart."""
    metric = audit.settings.get("outcome", "S")
    values = listed(number(audit[name].estimate(metric).value) for name in group)
    who = listed(map(label, group))
    who += "" if audit[group[0]].source_blind else ", told the source of every row,"
    task = _task_words(audit, group)
    if len(group) == 1:
        first = _hides(audit, group[0]) if metric == "S" else f"is best on {metric} ({values})"
        return f"{who} {_clauses([first, *task])}."
    did = [f"{'lower' if _some_readable(audit, group) else 'hide'} it"] if metric == "S" else []
    sentence = f"{who} are tied on {metric} ({values})"
    sentence += f": {'both' if len(group) == 2 else 'all'} {_clauses([*did, *task])}" if did or task else ""
    moved = {name: audit[name].estimate("M").value for name in group}
    calmest, *others = sorted(group, key=moved.__getitem__)
    if all(moved[other] - moved[calmest] > 0.01 and _beats(audit, calmest, other, "M") for other in others):
        sentence += f"; {label(calmest)} moves rows less"
    return f"{sentence}."


def _hides(audit: Audit, name: str) -> str:
    S = number(audit[name].S)
    return f"lowers it to {S}" if audit[name].chance.excluded else f"hides it ({S})"


def _clauses(parts: list[str]) -> str:
    """Return clauses as one list: "hides it, keeps the task, and your decoder gains 9 points"."""
    *first, last = parts
    return f"{', '.join(first)}{',' * (len(first) > 1)} and {last}" if first else last


def _task_words(audit: Audit, group: tuple[str, ...]) -> list[str]:
    """Return what became of the task and of the user's head, where all of a group agree."""

    def agreed(metric: str) -> str | None:
        outcomes = {audit.outcome(name, metric) for name in group}
        return outcomes.pop() if len(outcomes) == 1 else "kept" if outcomes == {"kept", "improved"} else None

    words, s = [], "" if len(group) > 1 else "s"
    outcome = agreed(task.name) if (task := task_metric(audit)) else None
    if outcome in ("kept", "improved"):
        words.append(f"{'keep' if outcome == 'kept' else 'improve'}{s} the task")
    if (outcome := agreed("A_f")) in ("improved", "suffered"):
        points = _range(f"{abs(100 * audit.contrast(name, metric='A_f').value):.0f}" for name in group)
        plural = "" if points == "1" else "s"
        words.append(f"your decoder {'gains' if outcome == 'improved' else 'loses'} {points} point{plural}")
    if agreed("RMSEP_f") in ("improved", "suffered"):
        before, *after = (number(audit[name].estimate("RMSEP_f").value) for name in ("identity", *group))
        words.append(f"your model errs by {_range(after)} instead of {before} (RMSEP)")
    return words


def _range(values: Iterable[str]) -> str:
    """Return equal values once, different ones from the first to the last."""
    different = sorted(set(values), key=float)
    return different[0] if len(different) == 1 else f"{different[0]} to {different[-1]}"


def _no_leader(audit: Audit, names: list[str]) -> str:
    """Return why no method is best, and what would help."""
    if too_few(audit):
        fitted = "folds" in audit.settings or any(r.fitted_elsewhere for r in audit.results.values())
        help_ = "" if fitted else ", or folds, which score every participant once"
        cell = "" if audit.n_people < TOO_FEW else " for every source and label"
        return f"No method is called best with {units(audit)}; at least {TOO_FEW} are needed{cell}{help_}."
    if not audit["identity"].chance.excluded:
        return "There is nothing to remove that these readers find."
    lowered = [name for name in names if audit.outcome(name, "S") == "improved" and not audit[name].fitted_on]
    if lowered and (task := task_metric(audit)):
        name, harmed = lowered[0], audit.outcome(lowered[0], task.name) == "suffered"
        but = "it harms the task" if harmed else "whether it keeps the task is not clear"
        change = audit.contrast(name, metric=task.name)
        return f"{label(name)} {_hides(audit, name)}, but {but} ({task.name} {change:+.3f})."
    floors = [label(name) for name in names if audit[name].floor_explains]
    if floors:
        return (
            f"No method clearly lowered it. What the gate of {listed(floors)} preserves is as readable as "
            "the result: a wider gate may help, more data will not."
        )
    lowest = min(names, key=lambda name: audit[name].S)
    return f"No method clearly lowered it. The lowest S is {number(audit[lowest].S)} ({label(lowest)})."


def certainty(audit: Audit, *, warn: bool = True) -> str:
    """Return in one line how much to believe: warnings, participants, how many more would help."""
    lines = [sentence for sentence in warnings(audit).values() if warn]
    if not too_few(audit):
        lines.append(f"Intervals are over {units(audit)}.")
        # Which of several methods that hide the source has the lower S is of no use.
        asked = [e for e in plan(audit) if e["question"] == "kept" or _some_readable(audit, e["methods"])]
        lines += [entry["sentence"] for entry in asked[:1]]
    return " ".join(lines)


def _some_readable(audit: Audit, methods: Iterable[str]) -> bool:
    return any(audit[name].chance.excluded for name in methods)


def warnings(audit: Audit) -> dict[str, str]:
    """Return what every output says before its numbers are believed: a sentence by a short badge."""
    s, marks = audit.settings, {}
    if s["preliminary"]:
        few = "few, briefly trained readers" if has_networks(audit) else missing_networks(audit)
        marks["Preliminary"] = f"Preliminary: {few}, so S may be too low."
    if too_few(audit):
        cell, n = smallest_cell(audit)
        marks["Exploratory"] = f"Only {units(audit, n)}{f' in the cell {cell}' * bool(cell)}: exploratory."
    if s.get("corrected_by"):
        marks["Corrected before"] = (
            f"The rows came corrected (by map {s['corrected_by']}), perhaps by a map fitted on these "
            "participants. Audit the table it was applied to, and pass the map as a method."
        )
    if s["duplicates"]:
        copies = "; ".join(f"{count} {what}" for what, count in s["duplicates"].items())
        marks["Duplicate rows"] = f"The same rows have two roles ({copies}), which flatters every method."
    return marks


def has_networks(audit: Audit) -> bool:
    """Return whether networks were among the source readers."""
    return any("gelu" in reader for reader in audit["identity"].readers)


def missing_networks(audit: Audit) -> str:
    """Return that no networks were among the readers, and why."""
    why = " (torch is not installed)" if audit.settings.get("no_networks") else ""
    return f"no networks among the readers{why}"


def caveats(audit: Audit) -> list[str]:
    """Return how sure the findings are; the same for every method."""
    s, lines, design = audit.settings, [*warnings(audit).values()], audit.design
    lines += [] if design is None else [design.sentence, *design.notes]
    if s["nested_readers"] and (design is None or design.kind == "crossed"):
        lines.append(
            f"{s['nested_readers']} of {s['participants']['HEAD']} HEAD participants have one source only: "
            "readers may have learned who they are instead of how they were measured, so S may be too low."
        )
    if "folds" in s:
        unit = named(audit, "participant")
        lines.append(f"Each {unit} was scored once, by models trained on others, in {s['folds']} folds.")
    few = " Intervals over so few tend to be too narrow." if audit.n_people < FEW else ""
    lines.append(
        f"Intervals are over {units(audit)}, for these fitted maps and readers; a stronger reader may find "
        f"more. Chance comes from permuted source labels.{few}"
    )
    lines += [entry["sentence"] for entry in plan(audit) if not too_few(audit)]
    if len(audit.methods) > 2 and any(len(group) == 1 for group in ranking(audit)[1]):
        lines.append(
            "The best method was chosen on the participants it is scored on; confirm it on new ones."
        )
    return lines


def readers_note(audit: Audit) -> str:
    """Return who read the source, and what the paper's readers alone reach, if there were others."""
    readers, s = audit["identity"].readers, audit.settings
    note = f"S: the best of {len(readers)} readers ({reader_summary(readers)})."
    note += "" if has_networks(audit) else f" There were {missing_networks(audit)}."
    if sample := s.get("reader_sample"):
        who = listed(READERS[name] for name in sample["readers"])
        note += f" Of {sample['of']:,} HEAD rows, {who} were trained on a sample of {sample['rows']:,}."
    if s["bank"] == "paper":
        return f"{note} All of them are the paper's."
    alone = (f"{printable(name)} {number(r.estimate('S_paper').value)}" for name, r in audit.results.items())
    return f"{note} By the paper's readers alone (S_paper): {', '.join(alone)}."


def shortcut_note(audit: Audit) -> str:
    """Return which shortcut the heads behind ``worst`` learned."""
    ways, origin = audit.settings["directions"], audit.settings["directions_of"]
    if not ways:
        return f"worst and control were not measured: {origin}." if origin else ""
    how = "as stated" if origin == "stated" else f"as in the {origin} rows"
    if len(ways) > 1:
        return "worst: the mean over heads that learned each possible shortcut."
    return f"worst: heads learned the shortcut that {ways[0]} ({how})."


def plan(audit: Audit) -> list[dict[str, Any]]:
    """Return how many participants in all would settle what intervals leave open, from their spread.

    Each entry has ``question`` ("separate" or "kept"), ``methods``, ``metric``, participants ``now`` and
    ``needed`` (None: more will hardly help), and a ``sentence``.
    """
    names, leaders = ranking(audit)
    task, metric = task_metric(audit), audit.settings.get("outcome", "S")
    now, unit, entries = audit.n_people, named(audit, "participant"), []

    def ask(question: str, methods: tuple[str, ...], measured: str, margin: float, spread: float) -> None:
        needed = now * (spread / margin) ** 2 if margin > 0 else math.inf
        enough = max(math.ceil(needed), now + 1) if needed <= MOST_MORE * now else None
        who, most = listed(map(label, methods)), number(METRICS[measured].kept or 0, ".2f")
        separate = question == "separate"
        goal = (
            f"tell {who} apart on {measured}" if separate else f"show that {who} keeps the task within {most}"
        )
        sentence = f"About {enough} {unit}s would {goal}." if enough else f"More {unit}s will hardly {goal}."
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
        raise ValueError("There are no labels, so the loss of the task was not measured.")
    change = audit.contrast(method, metric=task.name)
    return change if task.better == "lower" else Estimate(-change.value, -change.high, -change.low)


def findings(audit: Audit, method: str) -> list[str]:
    """Return what a method did: to heads, to the source, to the rows; and what to try next."""
    if method == "identity":
        return [_uncorrected(audit)]
    measured = dict.fromkeys([*HEADS, *(m for m in audit.metrics if METRICS[m].kept is not None)])
    heads = [_head_sentence(audit, method, METRICS[m]) for m in measured if m in audit.metrics]
    lines = [*_caution(audit, method), *heads, _source_sentence(audit, method), *_left(audit, method)]
    if "worst" in audit.metrics:
        change = _change(audit, method, "worst")
        lines.append(f"Worst-case AUROC of a head trained on the shortcut: {change}.")
    lines.append(f"Rows moved by {100 * audit[method].estimate('M').value:.1f} % of their size.")
    return lines


def _change(audit: Audit, method: str, metric: str) -> str:
    before, after = (number(audit[name].estimate(metric).value) for name in ("identity", method))
    return f"{before} → {after} ({audit.contrast(method, metric=metric):+.3f})"


def _head_sentence(audit: Audit, method: str, metric: Metric) -> str:
    outcome, most = str(audit.outcome(method, metric.name)), number(metric.kept or 0, ".2f")
    words = OUTCOMES[outcome]
    if metric.kept and outcome in ("kept", "unclear"):
        words += f"; {'any loss is below' if outcome == 'kept' else 'the loss may exceed'} {most} (95 %)"
    subject = f"{metric.subject[0].upper()}{metric.subject[1:]} ({metric.name})"
    return f"{subject}: {_change(audit, method, metric.name)}: {words}."


def _source_sentence(audit: Audit, method: str) -> str:
    """Return whether the source can be read, compared with what the best reader reaches by chance."""
    outcome, chance = str(audit.outcome(method, "S")), audit[method].chance
    kinds = {"improved": "harder to read, but still readable", "suffered": "easier to read"}
    now = kinds.get(outcome, "still readable, not clearly different")
    if not chance.excluded:
        was = audit["identity"].chance.excluded
        now = "hidden (indistinguishable from chance)" if was else "indistinguishable from chance, as before"
    below = (
        " S is below chance: readers learned a rule that reverses on new participants. This happens when a "
        "map was fitted on its EVAL participants, or overshoots."
    ) * (audit[method].estimate("S").high < 0.5)
    reaches = number(chance.high)
    return f"Source (S): {_change(audit, method, 'S')}; chance reaches {reaches}: {now}.{below}"


def _caution(audit: Audit, method: str) -> list[str]:
    """Return that a method had no evidence, or was not held out."""
    result = audit[method]
    missing = [str(fit["missing_evidence"]) for fit in result.facts if "missing_evidence" in fit]
    fits = f" in {len(missing)} of {len(result.facts)} fits" if len(result.facts) > 1 else ""
    lines = [f"No evidence to act on: rows are left as they are{fits}. {missing[0]}"] if missing else []
    if result.fitted_on:
        who = ", ".join(result.fitted_on[:5]) + (", …" if len(result.fitted_on) > 5 else "")
        lines.append(
            f"Not held out: it was fitted on {len(result.fitted_on)} of the participants it is scored on "
            f"({who}), which flatters it. Fit it on FIT participants only."
        )
    elif result.fitted_elsewhere and result.fitted_on is None:
        lines.append("It was fitted elsewhere, perhaps on these participants.")
    return lines


def _left(audit: Audit, method: str) -> list[str]:
    """Return what the gate preserves, and which readers still read the source."""
    result, lines = audit[method], []
    for part in ("S_travelled", "S_stayed"):
        if result.has(part) and audit["identity"].has(part):
            who = units(audit).partition(" ")[2].capitalize()
            lines.append(f"{who} that {part[2:]}: S {_change(audit, method, part)}.")
    if result.has("floor"):
        explains = ": more data would not lower S; a gate of higher rank may" * result.floor_explains
        lines.append(f"Floor: readers of what the gate preserves reach {result.estimate('floor')}{explains}.")
    if result.chance.excluded and result.has("L"):
        linear = f"Linear readers reach {result.estimate('L')}"
        linear += "" if result.linear_chance.excluded else ", no more than chance"
        if result.beyond_linear:
            linear += (
                f"; the rest is in spread and shape (best reader: {result.best_reader()}). Try mgpa.MGPA"
            )
        lines.append(f"{linear}.")
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
            raise ValueError(
                f"Cannot read {clause.strip()!r}. Write comparisons joined by 'and', such as "
                "'S<=.6 and loss<=.01' or 'loss.high<=.01' (the interval's end). Names: loss, "
                f"{', '.join(METRICS)}."
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
        cells = (METRICS[m].wanted, *("" if e is None else str(e) for e in estimates))
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
