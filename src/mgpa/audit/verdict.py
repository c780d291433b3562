"""The audit in words: headline, effect of each method, certainty, next steps.

What was found is data (:class:`Finding`); every kind of finding has one template, and every output takes its
sentences from here.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from .._common.markup import text_table
from ..errors import first_few, printable
from ..tables.columns import spoken
from .bootstrap import Estimate, caution, number
from .design import FEW, TOO_FEW
from .diagnostics import UNASSOCIATED, cramers_v
from .metrics import METRICS, SKEWED_LOSSES, Metric
from .words import label, listed, reader_name, reader_summary

if TYPE_CHECKING:
    from .result import Audit

# Characters of a printed table, and the columns that come first in it.
LINE = 110
FIRST = ("S", "home", "away", "RMSEP_home", "RMSEP_away", "T_f", "M")
# What users' heads would notice, in the order in which it is told.
HEADS = (
    "home",
    "away",
    "RMSEP_home",
    "RMSEP_away",
    "bias_f",
    "T_f",
    "T_r",
    "RMSEP_r",
    "A_u",
    "RMSEP_u",
    "shift_f",
    "flips",
)
#: A fall at home by more than this is what the verdict begins with: accuracy, and a share of the error.
HOME_LOSS = 0.01
# Directions of transfer that are listed one by one.
MOST_DIRECTIONS = 6
# Classes that are listed one by one, where a method changes them by more than this apart.
MOST_CLASSES, UNEVEN = 6, 0.03
# More units than this many times the present number are not worth asking for.
MOST_MORE = 100
PLANNED = (1.96 + 0.84) ** 2 / 1.96**2  # times as many participants give 80 % power instead of 50 %
OPERATORS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
#: What became of a metric, in words.
OUTCOMES = {"improved": "better", "kept": "kept", "suffered": "worse", "unclear": "not clearly different"}

#: The sentence of every kind of finding.
TEMPLATES = {
    "doubtful_pairs": "{what}",
    "revealed": "Your embeddings reveal the {source} (S {S}; chance reaches {chance}).",
    "revealed_between": "Your embeddings reveal the {source}, or how the {units} of one {source} differ "
    "from those of another (S {S}, between {units}; chance reaches {chance}).",
    "hidden": "Your embeddings do not reveal the {source} beyond chance (S {S}; chance reaches {chance}).",
    "home_falls": "At home, existing heads lose with {method}: {metric} {before} → {after} ({change}). "
    "MGPA(reference={reference!r}) leaves the rows of {reference} where they are, as far as they can be "
    "recognised, and with them a decoder that was trained on {reference}.",
    "nothing_compared": "Only uncorrected embeddings were audited; there is nothing to compare.",
    "one_leader": "{who} {deeds}{heads}{but}.",
    "tied": "{who} are tied on {metric} ({values}){deeds}{but}.",
    "lower_but": "{who} has a lower {metric} ({value}), but {reason}.",
    "too_few_cell": "No method is called best: every source and label needs at least {needed}.",
    "too_few": "No method is called best with {now}; at least {needed} are needed.",
    "nothing_to_remove": "These readers find nothing to remove.",
    "not_moved": "No method moved the embeddings.",
    "idle": "{who} did nothing in {n} of {of} fits{why}.",
    "none_clear": "No method clearly lowered it. The lowest S is {value} ({who}).",
    "not_counted": "{who} {deed}, but {reason}.",
    "range": "Over {n} deals of the {units} to folds, S of {ranges}{lead}.",
    "unseen": "On a {source} that was not in the fit, heads refitted on the others reach {values}.",
}


@dataclass(frozen=True)
class Finding:
    """One thing that an audit found: its kind, the methods it is about, and what its template names."""

    kind: str
    methods: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = {name: number(v) if isinstance(v, float) else v for name, v in self.facts.items()}
        return TEMPLATES[self.kind].format(**words)


def task_metric(audit: Audit) -> Metric | None:
    """Return the metric that says whether a method kept the task; None without labels."""
    return next((METRICS[m] for m in ("T_f", "RMSEP_away") if m in audit.metrics), None)


def smallest_cell(audit: Audit) -> tuple[str, int]:
    """Return the smallest cell and its number of participants."""
    design, people = audit.design, audit["identity"].participants
    return design.smallest_cell([who for who in people if (who in design.travellers) == design.within])


def too_few(audit: Audit) -> bool:
    """Return whether a cell has too few participants to conclude anything."""
    return smallest_cell(audit)[1] < TOO_FEW


def ranking(audit: Audit) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    """Return the methods, the best first, and the leaders: source-blind ones, then source-aware ones.

    Leaders lowered S (or improved ``settings.outcome``, where a study names another metric) and kept the
    task. One leader is better than the others by its interval; several are tied. Methods that harmed the
    task come last. Source-aware methods use more information and compete among themselves. Too few
    participants give no leaders.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}
    task, metric = task_metric(audit), METRICS[audit.settings.outcome]

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
    """Return three sentences: what the embeddings reveal, what the best methods did, how sure that is.

    What is doubtful about the pairs comes before them.
    """
    return [*map(str, _doubts(audit)), str(_uncorrected(audit)), " ".join(led_by(audit)), certainty(audit)]


def headline(audit: Audit) -> str:
    """Return what the embeddings reveal, and what the best source-blind methods did."""
    return " ".join(
        [*map(str, _doubts(audit)), str(_uncorrected(audit)), *(led_by(audit)[: 1 + len(home_falls(audit))])]
    )


def conclusions(audit: Audit) -> list[Finding]:
    """Return what the verdict rests on, as data: one finding for every sentence."""
    return [*_doubts(audit), _uncorrected(audit), *_of_methods(audit), *_repeated(audit)]


def _doubts(audit: Audit) -> list[Finding]:
    """Return what is doubtful about the pairs that methods were fitted on."""
    what = "" if audit.pairs is None else audit.pairs.doubt
    return [Finding("doubtful_pairs", facts={"what": what})] if what else []


def units(audit: Audit, n: int | None = None) -> str:
    """Return a number of participants, with the user's word for them."""
    n = audit.n_people if n is None else n
    return f"{n} {audit.design.unit if n == 1 else audit.design.plural}"


def _uncorrected(audit: Audit) -> Finding:
    identity = audit["identity"]
    facts = {"source": spoken(audit.settings.source_name), "units": audit.design.plural,
             "S": identity.S, "chance": identity.chance.high}  # fmt: skip
    if not identity.chance.excluded:
        return Finding("hidden", facts=facts)
    return Finding("revealed" if audit.design.within else "revealed_between", facts=facts)


def led_by(audit: Audit) -> list[str]:
    """Return what happens at home, and a sentence for leading source-blind and for source-aware methods.

    A method with a lower S than the leaders is named too, with what speaks against it.
    """
    return [str(finding) for finding in _of_methods(audit)]


def _of_methods(audit: Audit) -> list[Finding]:
    names, leaders = ranking(audit)
    if not names:
        return [Finding("nothing_compared")]
    led = [_leader(audit, group, i > 0) for i, group in enumerate(leaders)] or [_no_leader(audit, names)]
    idle = [finding for name in names for finding in _idle(audit, name)]
    return [*home_falls(audit), *led, *_passed_over(audit, names, leaders), *idle, *_unseen(audit)]


def _idle(audit: Audit, name: str) -> list[Finding]:
    """Return in how many folds a method that moved rows in others left them as they are."""
    result, why = audit[name], ""
    n, of = sum(not cell["movement"].any() for cell in result.cells), len(result.cells)
    if not 0 < n < of:
        return []
    few = audit.settings.pair_participants
    if few and any(info.n_contrasts for info in result.provenance):
        why = f": pairs of {' to '.join(map(str, few))} {audit.design.plural} each"
    return [Finding("idle", (name,), {"who": label(name), "n": n, "of": of, "why": why})]


def home_falls(audit: Audit) -> list[Finding]:
    """Return for which methods existing heads clearly lose on rows of the source they were trained on.

    Of the leaders or, without any, of all methods that hold for new participants.
    """
    names, leaders = ranking(audit)
    metric = next((m for m in ("home", "RMSEP_home") if m in audit.metrics), None)
    found = []
    for name in [name for group in leaders for name in group] or names if metric else ():
        assert metric is not None
        # Of a map that aims at a source, this is the home of that source's heads.
        served = audit.served(name, metric)
        change, before = audit.contrast(name, metric=metric), audit["identity"].estimate(served).value
        lost = change.high < -HOME_LOSS if metric == "home" else change.low > HOME_LOSS * before
        if not lost or audit[name].fitted_on:
            continue
        sign = 1 if metric == "home" else -1
        falls = {
            home: sign * audit.contrast(name, metric=f"{metric} {home}").value
            for home in audit["identity"].homes
            if audit["identity"].has(f"{metric} {home}")
        }
        reference = min(falls, key=lambda home: falls[home], default=audit.settings.sources[0])
        after = audit[name].estimate(served).value
        found.append(Finding("home_falls", (name,), {
            "method": label(name), "metric": "balanced accuracy" if metric == "home" else "RMSEP",
            "before": before, "after": after, "change": f"{change:+.3f}", "reference": reference,
        }))  # fmt: skip
    return found[:1]


#: What a method did, of one and of several.
DEEDS = {
    "hides": ("hides it", "hide it"),
    "lowers": ("lowers it", "lower it"),
    "keeps": ("keeps the task", "keep the task"),
}


def _leader(audit: Audit, group: tuple[str, ...], told: bool = False) -> Finding:
    """Return what a leader did, or that several are tied, and which models are of no use on its rows."""
    metric, aware = audit.settings.outcome, not audit[group[0]].source_blind
    who = listed(map(label, group)) + (", told the source of every row," if aware else "")
    worthless = worse_than_mean(audit, group) or unread_task(audit)
    but = f", but {worthless}" if worthless else ""
    keeping = [name for name in group if task_metric(audit) and not _below_zero(audit, name, "R2_f")]
    keeping = [] if unread_task(audit) else keeping
    if len(group) > 1:
        values = listed(number(audit[name].estimate(metric).value) for name in group)
        readable = [name for name in group if metric == "S" and audit[name].chance.excluded]
        hidden = [name for name in group if metric == "S" and name not in readable]
        deeds = _together(group, {"hides": hidden, "lowers": readable, "keeps": keeping})
        facts = {"who": who, "metric": metric, "values": values, "deeds": f": {deeds}" if deeds else "",
                 "but": but}  # fmt: skip
        return Finding("tied", group, facts)
    [name] = group
    best = "is the best of those told the source" if aware and told else "is best"
    did = [_hides(audit, name) if metric == "S" else f"{best} on {metric} ({_value(audit, name, metric)})"]
    did += ["keeps the task"] if keeping else []
    facts = {"who": who, "deeds": listed(did), "heads": _own_heads(audit, name), "but": but}
    return Finding("one_leader", group, facts)


def _own_heads(audit: Audit, name: str) -> str:
    """Return what a method does to existing heads, if that is clear."""
    before, after = (
        {m: _value(audit, who, audit.served(name, m)) for m in HEADS if m in audit.metrics}
        for who in ("identity", name)
    )
    verb = {"improved": "gains", "suffered": "loses"}.get(str(audit.outcome(name, "away")))
    if verb:
        points = f"{abs(100 * audit.contrast(name, metric='away').value):.0f}"
        return f"; your decoder {verb} {points} point{'' if points == '1' else 's'} of accuracy"
    if audit.outcome(name, "RMSEP_away") in ("improved", "suffered"):
        return f"; your model errs by {after['RMSEP_away']} instead of {before['RMSEP_away']} (RMSEP)"
    return ""


def _together(group: tuple[str, ...], deeds: dict[str, list[str]]) -> str:
    """Return who of several did what: "both hide it", or "A hides it; B lowers it; both keep the task"."""
    shared = [deed for deed, who in deeds.items() if len(who) == len(group)]
    clauses = []
    for deed, who in deeds.items():
        one, several = DEEDS[deed]
        if deed in shared[:1]:
            both = "both" if len(group) == 2 else "all"
            clauses.append(f"{both} {listed(DEEDS[d][1] for d in shared)}")
        elif who and deed not in shared:
            clauses.append(f"{listed(map(label, who))} {several if len(who) > 1 else one}")
    return "; ".join(clauses)


def _passed_over(audit: Audit, names: list[str], leaders: tuple[tuple[str, ...], ...]) -> list[Finding]:
    """Return the source-blind method that has a lower S than the leaders, and why it does not lead."""
    metric = METRICS[audit.settings.outcome]
    sign = 1 if metric.better == "lower" else -1
    leading = [name for group in leaders for name in group if audit[name].source_blind]
    if not leading:
        return []

    def size(name: str) -> float:
        return sign * audit[name].estimate(metric.name).value

    rest = [name for name in names if audit[name].source_blind and name not in leading]
    lower = [name for name in rest if size(name) < min(map(size, leading)) and reason_against(audit, name)]
    if not lower:
        return []
    name = min(lower, key=size)
    facts = {"who": label(name), "metric": metric.name, "value": audit[name].estimate(metric.name).value,
             "reason": reason_against(audit, name)}  # fmt: skip
    return [Finding("lower_but", (name,), facts)]


def reason_against(audit: Audit, name: str) -> str:
    """Return why a method does not lead, whatever its S; nothing if it might."""
    task, metric = task_metric(audit), audit.settings.outcome
    if audit[name].fitted_on:
        if audit.settings.duplicates:
            return "the same rows have two roles"
        return f"it was fitted on {audit.design.plural} it is scored on"
    outcome = audit.outcome(name, task.name) if task else None
    if task is None or outcome not in ("suffered", "unclear"):
        clear = audit.outcome(name, metric) == "improved"
        return (
            "" if clear else f"its change is not clear ({metric} {audit.contrast(name, metric=metric):+.3f})"
        )
    change = audit.contrast(name, metric=task.name)
    words = "it harms the task" if outcome == "suffered" else "whether it keeps the task is not clear"
    return f"{words} ({task.name} {change:+.3f})"


def _unseen(audit: Audit) -> list[Finding]:
    """Return what heads reach on a source that was not in the fit, uncorrected and with each method."""
    metric = next((m for m in ("A_u", "RMSEP_u") if audit["identity"].has(m)), None)
    names = [name for name in audit.methods if metric and audit[name].has(metric)]
    if metric is None or len(names) < 2:
        return []
    parts = [f"{_value(audit, 'identity', metric)} uncorrected"]
    parts += [f"{_value(audit, name, metric)} with {label(name)}" for name in names[1:]]
    what = "balanced accuracy" if metric == "A_u" else "RMSEP"
    facts = {"source": spoken(audit.settings.source_name), "values": f"{listed(parts)} ({what})"}
    return [Finding("unseen", tuple(names), facts)]


def _repeated(audit: Audit) -> list[Finding]:
    """Return how far S of the methods depends on who was in which fold."""
    n, names = audit.settings.repeats, audit.methods[1:] or audit.methods
    if n < 2:
        return []
    metric = METRICS[audit.settings.outcome]
    each = {name: audit[name].of_each_repeat(metric.name) for name in names}
    best = [min(names, key=lambda m: each[m][r] * (1 if metric.better == "lower" else -1)) for r in range(n)]
    lead = ""
    if len(names) > 1:
        counts = [f"{label(name)} in {best.count(name)}" for name in dict.fromkeys(best)]
        lead = f"; the lowest was {listed(counts)}"
    ranges = listed(
        f"{label(name)} went from {number(min(v))} to {number(max(v))}" for name, v in each.items()
    )
    facts = {"n": n, "units": audit.design.plural, "ranges": ranges, "lead": lead}
    return [Finding("range", tuple(names), facts)]


def _below_zero(audit: Audit, name: str, metric: str) -> bool:
    metric = audit.served(name, metric)
    return audit[name].has(metric) and audit[name].estimate(metric).value < 0


def unread_task(audit: Audit) -> str:
    """Return a warning if heads may not read the task even without correction; otherwise nothing."""
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
    instead = ". Or map rows to the source that the models know: MGPA(reference=), FEATMAP, PDS, SST"
    return text + (instead if all(audit[m].source_blind for m in poor) else "")


def _value(audit: Audit, name: str, metric: str) -> str:
    return number(audit[name].estimate(metric).value)


def _hides(audit: Audit, name: str) -> str:
    S = _value(audit, name, "S")
    return f"lowers it to {S}" if audit[name].chance.excluded else f"hides it ({S})"


def _no_leader(audit: Audit, names: list[str]) -> Finding:
    """Return why no method is best."""
    if too_few(audit):
        needed = units(audit, TOO_FEW)
        if audit.n_people >= TOO_FEW:
            return Finding("too_few_cell", facts={"needed": needed})
        return Finding("too_few", facts={"now": units(audit), "needed": str(TOO_FEW)})
    if not audit["identity"].chance.excluded:
        return Finding("nothing_to_remove")
    for name in sorted(names, key=lambda name: bool(audit[name].fitted_on)):
        reason = reason_against(audit, name)
        if audit.outcome(name, "S") == "improved" and reason:
            facts = {"who": label(name), "deed": _hides(audit, name), "reason": reason}
            return Finding("not_counted", (name,), facts)
    if not any(audit[name].movement.any() for name in names):
        return Finding("not_moved")
    lowest = min(names, key=lambda name: audit[name].S)
    return Finding("none_clear", (lowest,), {"value": audit[lowest].S, "who": label(lowest)})


def certainty(audit: Audit, *, warn: bool = True) -> str:
    """Return one line on certainty: warnings, number of participants, how many more would help."""
    lines = [*warnings(audit).values()] if warn else []
    if not too_few(audit):
        lines.append(f"Intervals are over {units(audit)}.")
        lines += map(str, _repeated(audit))
        # Which of several methods that hide the source has the lower S is of no use.
        leaders = ranking(audit)[1]
        readable = {name for group in leaders for name in group if audit[name].chance.excluded}
        lines += [
            e["sentence"] for e in participants_needed(audit) if readable & {*e["methods"]} or not leaders
        ][:1]
    return " ".join(lines)


def warnings(audit: Audit) -> dict[str, str]:
    """Return the warnings that every output shows: a sentence by a short badge."""
    s, marks = audit.settings, {}
    if s.preliminary:
        few = missing_networks(audit) or "few, briefly trained readers"
        marks["Preliminary"] = f"Preliminary: {few}, so S may be too low."
    if too_few(audit):
        cell, n = smallest_cell(audit)
        marks["Exploratory"] = f"Only {units(audit, n)}{f' in the cell {cell}' * bool(cell)}: exploratory."
    if s.corrected_by:
        marks["Corrected before"] = (
            f"The rows were already corrected (by map {s.corrected_by}), perhaps by a map fitted on these "
            f"{audit.design.plural}. Audit the table it was applied to, and pass the map as a method."
        )
    # Rows in two roles look as if every method had seen EVAL participants; the cause is said below.
    leaked = [label(name) for name, result in audit.results.items() if result.fitted_on]
    if leaked and not (s.duplicates and len(leaked) == len(audit.methods)):
        was = "were" if len(leaked) > 1 else "was"
        marks["Not held out"] = f"{listed(leaked)} {was} fitted on EVAL participants, which flatters it."
    if s.duplicates:
        copies = "; ".join(f"{count} {what}" for what, count in s.duplicates.items())
        who = first_few(list(s.copied), 4)
        marks["Duplicate rows"] = (
            f"The same rows have two roles ({copies}), which flatters every method. Registered twice: {who}. "
            f"Give each {audit.design.unit} one name."
        )
    return marks


def missing_networks(audit: Audit) -> str:
    """Return a note if no networks were among the readers, and why; else nothing."""
    why = " (torch is not installed)" if audit.settings.no_networks else ""
    networks = any("gelu" in reader for reader in audit["identity"].readers)
    return "" if networks else f"no networks among the readers{why}"


def caveats(audit: Audit) -> list[str]:
    """Return the caveats that hold for every method."""
    s, design = audit.settings, audit.design
    lines = [*warnings(audit).values(), design.sentence, *design.notes]
    nested = [f"{n} {role}" for role, n in s.one_source.items() if n]
    if nested and design.kind == "crossed":
        lines.append(
            f"{listed(nested)} {design.plural} have one source only: methods and readers may learn the "
            f"{design.plural} instead of the source, so S may be too low."
        )
    if s.folds > 1:
        how_often = "once" if s.repeats == 1 else f"in each of {s.repeats} deals"
        lines.append(
            f"Each {design.unit} was scored {how_often}, by models trained on others, in {s.folds} folds."
        )
        lines += map(str, _repeated(audit))
    if s.always_fit:
        lines.append(
            f"{units(audit, s.always_fit)} {'was' if s.always_fit == 1 else 'were'} fitted on in every fold "
            "and never scored: they have the pairs, or a map was fitted on them."
        )
    if s.folds > 1 and design.kind == "crossed" and audit.counts:  # every row is scored in some fold
        v = cramers_v(audit.counts)
        if v >= UNASSOCIATED:
            lines.append(
                f"Source and label are associated in the scored rows (Cramér's V {v:.2f}): a reader of the "
                "label reads some of the source, so S may stay above .5 without any effect of the source."
            )
    if s.pair_participants and min(s.pair_participants) < TOO_FEW:
        counts = " to ".join(map(str, s.pair_participants))
        each = "In each fold, m" if s.folds > 1 else "M"
        lines.append(f"{each}ethods were fitted on pairs of only {counts} {design.plural}.")
    if s.deployed and not s.head_source:
        lines.append(
            "The source that the head was trained on was not stated, so its scores are means over all "
            "sources. head_source= tells home from away."
        )
    few = " Intervals over so few tend to be too narrow." if audit.n_people < FEW and not s.widen else ""
    lines.append(
        f"Intervals are over {units(audit)}, for these fitted maps and readers; a stronger reader may find "
        f"more. Chance comes from permuted source labels.{few}"
    )
    lines += [entry["sentence"] for entry in participants_needed(audit) if not too_few(audit)]
    if len(audit.methods) > 2 and any(len(group) == 1 for group in ranking(audit)[1]):
        lines.append(f"The best method was chosen on these {design.plural}; confirm it on new ones.")
    return lines


def confounding(audit: Audit) -> str:
    """Return how far source and label are associated in the fitting rows."""
    if not audit.counts and audit.settings.task == "classification":
        return (
            "The maps came fitted, on other rows: how source and label are associated in those is not known "
            "here."
        )
    if not audit.counts:
        return "The labels are not classes, so their association with the source was not measured."
    v = cramers_v(audit.counts)
    strength = "no" if v < UNASSOCIATED else "some" if v < 0.4 else "strong"
    harm = ": methods that erase whatever predicts the source remove task with it" * (v >= UNASSOCIATED)
    return f"Source and label show {strength} association in the fitting rows (Cramér's V {v:.2f}){harm}."


def class_chance(audit: Audit, metric: str) -> str:
    """Return the balanced accuracy of guessing, in words; nothing for other metrics."""
    guess = number(1 / len(audit.design.classes))
    return f"chance {guess}" if METRICS[metric].unit == "balanced accuracy" and audit.design.classes else ""


def readers_note(audit: Audit) -> str:
    """Return which readers were used, and S of the paper's readers alone."""
    readers = audit["identity"].readers
    note = f"S: the best of {len(readers)} readers ({reader_summary(readers)})."
    note += f" There were {missing}." if (missing := missing_networks(audit)) else ""
    if audit.settings.bank == "paper":
        return f"{note} All are the paper's readers."
    paper = {name: number(result.estimate("S_paper").value) for name, result in audit.results.items()}
    alone = (f"{printable(label(name))} {value}" for name, value in paper.items())
    return f"{note} By the paper's readers alone (S_paper): {', '.join(alone)}."


def shortcut_note(audit: Audit) -> str:
    """Return which shortcut the heads behind ``worst`` learned."""
    ways, origin = audit.settings.directions, audit.settings.directions_of
    if not ways:
        return f"worst and control were not measured: {origin}." if origin else ""
    if len(ways) > 1:
        return "worst: the mean over heads that learned each possible shortcut."
    how = "as set" if origin == "stated" else f"as in the {origin} rows"
    return f"worst: heads learned that {ways[0]} ({how})."


def participants_needed(audit: Audit) -> list[dict[str, Any]]:
    """Return how many participants would settle open questions with 80 % power, from the width of intervals.

    With a half-width of the interval as large as what is looked for, every second audit would miss it: the
    number is (1.96 + .84)² / 1.96² times as large.

    Each entry has ``question`` ("separate" or "kept"), ``methods``, ``metric``, participants ``now`` and
    ``needed`` (None: more will hardly help), and a ``sentence``.
    """
    names, leaders = ranking(audit)
    task, metric, entries = task_metric(audit), audit.settings.outcome, []

    def ask(question: str, methods: tuple[str, ...], measured: str, margin: float, spread: float) -> None:
        now, more, who = audit.n_people, audit.design.plural, listed(map(label, methods))
        needed = now * PLANNED * (spread / margin) ** 2 if margin > 0 else math.inf
        if (
            question == "kept" and margin > 0
        ):  # a claim, which allows for less the more participants there are
            plans = range(now + 1, MOST_MORE * now + 1)
            needed = next((n for n in plans if needed * caution(n, SKEWED_LOSSES) ** 2 <= n), math.inf)
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
    return (
        change
        if task.better == "lower"
        else replace(change, value=-change.value, low=-change.high, high=-change.low)
    )


def unseen_share(n: int) -> float:
    """Return the largest share of all participants that n may leave out altogether, once in twenty times.

    A few who lose much are in no interval if none of them is among the n.

    Examples
    --------
    >>> round(unseen_share(12), 2)
    0.22
    """
    return float(1.0 - 0.05 ** (1.0 / n))


def findings(audit: Audit, method: str) -> list[str]:
    """Return what a method did: to heads, to the source, to the rows; and what to try next."""
    if method == "identity":
        return [str(_uncorrected(audit))]
    judged = [m for m in audit.metrics if METRICS[m].kept is not None]
    lines = [
        *_caution(audit, method),
        *(_of_heads(audit, method, m) for m in dict.fromkeys([*HEADS, *judged]) if m in audit.metrics),
        _source_sentence(audit, method),
        *_by_direction(audit, method),
        *_by_class(audit, method),
        *_beside_source(audit, method),
        *_with_the_fit(audit, method),
        *_of_readers(audit, method),
    ]
    if "worst" in audit.metrics:
        change = _change(audit, method, "worst")
        lines.append(f"Worst-case AUROC of a head trained on the shortcut: {change}.")
    lines.append(f"Rows moved by {100 * audit[method].estimate('M').value:.1f} % of their size.")
    return lines


def _of_heads(audit: Audit, method: str, metric: str) -> str:
    """Return what became of a metric of heads, and how sure that is."""
    outcome, subject = str(audit.outcome(method, metric)), METRICS[metric].subject
    words, most = OUTCOMES[outcome], number(METRICS[metric].kept or 0, ".2f")
    if METRICS[metric].kept and outcome == "unclear":
        words += f"; the loss may exceed {most} (95 %)"
    elif METRICS[metric].kept and outcome == "kept":
        words += (
            f"; the mean loss is below {most} (95 %); losses of fewer than "
            f"{unseen_share(audit.n_people):.0%} of {audit.design.plural} may stay unseen"
        )
    chance, change = class_chance(audit, metric), _change(audit, method, metric)
    told = f"{change}; {chance}: {words}" if chance else f"{change}: {words}"
    return f"{subject[0].upper()}{subject[1:]} ({metric}): {told}."


def _with_the_fit(audit: Audit, method: str) -> list[str]:
    """Return the intervals that contain the fit, if there were refits."""
    again, plural = audit.refitted.get(method), audit.design.plural
    if not again:
        return []
    told = [m for m in ("S", *HEADS) if m in again][:4]
    changes = ", ".join(f"{m} {again[m]:+.3f}" for m in told)
    return [
        f"Fitted {audit.settings.refits} times on half of the FIT {plural}, intervals that contain the fit: "
        f"{changes}."
    ]


def _of_readers(audit: Audit, method: str) -> list[str]:
    """Return what limits S: the gate, and what only some readers find."""
    result, plural, lines = audit[method], audit.design.plural, []
    for part in ("S_travelled", "S_stayed"):
        if result.has(part) and audit["identity"].has(part):
            lines.append(f"{plural.capitalize()} that {part[2:]}: S {_change(audit, method, part)}.")
    if result.has("floor"):
        lines.append(
            f"Floor: readers of what the gate preserves reach {result.estimate('floor')}"
            f"{_floor_explains(audit, method)}."
        )
    if result.chance.excluded and result.has("L"):
        linear = f"Linear readers reach {result.estimate('L')}"
        linear += "" if result.linear_chance.excluded else ", no more than chance"
        shape = f"; the rest is in spread and shape (best reader: {reader_name(result.best_reader())})"
        tried = any(info.method == "MGPA" for other in audit.results.values() for info in other.provenance)
        lines.append(f"{linear}{(shape + '. Try mgpa.MGPA' * (not tried)) if result.beyond_linear else ''}.")
    return lines


def _floor_explains(audit: Audit, method: str) -> str:
    """Return that the gate sets S, and the ranks of the folds' gates; nothing if it does not."""
    result = audit[method]
    if not result.floor_explains:
        return ""
    text = (
        f": S is as low as this gate allows. Pairs of more {audit.design.plural} can show more directions, "
        "and may lower it"
    )
    ranks = sorted({fact["gate_basis"].shape[1] for fact in result.facts if "gate_basis" in fact})
    if audit.settings.folds > 1 and ranks:  # each fold has some of the pairs
        text += f"; the folds' gates have rank {' to '.join(map(str, dict.fromkeys([ranks[0], ranks[-1]])))}"
    return text


def _by_direction(audit: Audit, method: str) -> list[str]:
    """Return what existing heads do in every direction, where labels are numbers: a mean hides signs."""
    if "RMSEP_away" not in audit.metrics or len(audit["identity"].directions) > MOST_DIRECTIONS:
        return []
    parts = []
    for way in audit["identity"].directions:
        if all(audit[name].has(f"RMSEP_f {way}") for name in ("identity", method)):
            error, bias = _change(audit, method, f"RMSEP_f {way}"), _change(audit, method, f"bias_f {way}")
            parts.append(f"{way} RMSEP {error}, bias {bias}")
    return [f"Existing heads by direction: {'; '.join(parts)}."] if parts else []


def _by_class(audit: Audit, method: str) -> list[str]:
    """Return what existing heads get right of every class, where a method changes classes differently."""
    names = [m for m in audit.details if m.startswith("recall ")]
    changes = [audit.contrast(method, metric=m).value for m in names]
    if len(names) > MOST_CLASSES or not changes or max(changes) - min(changes) < UNEVEN:
        return []
    parts = (f"{m.removeprefix('recall ')} {_change(audit, method, m)}" for m in names)
    return [f"Existing heads away by class, share right: {'; '.join(parts)}."]


def _beside_source(audit: Audit, method: str) -> list[str]:
    """Return what is read besides the source of a row: of both views of an event, in bits, and who is who."""
    lines = []
    if "twin" in audit.metrics:
        lines.append(f"Which view of an event is which (twin): {_change(audit, method, 'twin')}.")
    if "I_R" in audit.metrics:
        kept = audit[method].estimate("I_Q")
        lines.append(
            f"Source information in the gate, I(U; R | Q): {_change(audit, method, 'I_R')} bits a row; in "
            f"what the gate keeps, I(U; Q): {kept}."
        )
    if "identity" in audit.metrics:
        lines.append(
            f"{audit.design.plural.capitalize()} told apart (identity): {_change(audit, method, 'identity')}."
        )
    return lines


def _change(audit: Audit, method: str, metric: str) -> str:
    served = audit.served(method, metric)
    before, after = (_value(audit, name, served) for name in ("identity", method))
    heads = "" if served == metric else f", heads of {audit[method].reference}"
    return f"{before} → {after} ({audit.contrast(method, metric=metric):+.3f}{heads})"


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
    lines += [] if verbose else decoder_lines(audit)
    if verbose:
        for name in ranking(audit)[0]:
            lines += ["", label(name), *(f"  {sentence}" for sentence in findings(audit, name))]
        notes = (*caveats(audit), readers_note(audit), shortcut_note(audit))
        lines += ["", "How sure is this?", *(f"  {note}" for note in notes if note)]
    return printable("\n".join(lines), lines=True)


def decoder_lines(audit: Audit) -> list[str]:
    """Return a line for each end-to-end comparator: its scores beside those of heads on uncorrected rows."""
    lines, uncorrected = [""] if audit.decoders else [], audit.estimates["identity"]
    for name in audit.decoders:
        scores = (
            f"{m} {e} (a head on uncorrected rows: {number(uncorrected[m].value)})"
            for m, e in audit.estimates[name].items()
            if m in ("T_r", "T_p", "RMSEP_r", "RMSEP_p") and m in uncorrected
        )
        lines.append(f"{label(name)} replaces the head: {', '.join(scores)}")
    return lines


def table_lines(audit: Audit, *, everything: bool = False) -> list[str]:
    """Return the table of estimates; only the columns that fit a line, unless ``everything``."""
    columns: list[tuple[str, ...]] = []
    outcome, names = audit.settings.outcome, audit.tabled if everything else audit.methods
    leading = (outcome, "control", *FIRST) if outcome == "worst" else FIRST
    for m in dict.fromkeys([*(m for m in leading if m in audit.columns), *audit.columns]):
        estimates = (audit.tabled[name].get(m) for name in names)
        wanted = f"{m} ({chance})" if (chance := class_chance(audit, m)) else METRICS[m].wanted
        cells = (wanted, *("–" if e is None else str(e) for e in estimates))
        words = wrap(METRICS[m].subject, max(map(len, cells)))[:2]
        columns.append((*[""] * (2 - len(words)), *words, *cells))
        if m == "S":
            reached = [number(r.chance.high) for r in audit.results.values()]
            columns.append(("", "chance", "up to", *reached, *["–"] * (len(names) - len(reached))))
    first = ("", "", "method", *map(printable, names))
    blocks: list[list[tuple[str, ...]]] = [[]]
    for column in columns:
        used = max(map(len, first)) + sum(2 + max(map(len, c)) for c in blocks[-1])
        if blocks[-1] and used + 2 + max(map(len, column)) > LINE:
            blocks.append([])
        blocks[-1].append(column)
    lines: list[str] = []
    for block in blocks if everything else blocks[:1]:
        lines += ["", *dropwhile(lambda line: not line, text_table(zip(first, *block, strict=True)))]
    return lines[1:] + ([note] if (note := decoder_note(audit)) else [])


def decoder_note(audit: Audit) -> str:
    """Return whose heads the tables show, where methods take rows to one source."""
    every, shown = audit.estimates["identity"], audit.tabled["identity"]
    names = [m for m in audit.columns if m in every and shown[m] is not every[m]]
    return f"Existing heads ({', '.join(names)}): those trained on {audit.decoder} alone." if names else ""
