"""What an audit says in words: a headline, what each method did, how sure that is, and how many more units
would settle what is open. Plain functions of an audit; every output takes its sentences from here."""

from __future__ import annotations

import math
from itertools import dropwhile
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from .._common.markup import text_table
from ..errors import printable
from .design import FEW, TOO_FEW
from .metrics import METRICS, Metric
from .words import label, listed, number

if TYPE_CHECKING:
    from .result import Audit

# Share of contrast energy in a gate that is proposed where a narrower one leaves the source readable.
WIDE = 0.99
# Characters of a printed table, and the columns that come first in it.
LINE = 100
FIRST = ("S", "A_f", "T_f", "M")
ALONE = "Only uncorrected embeddings were audited; there is nothing to compare."
# More units than this many times the present number are not worth asking for.
MOST_MORE = 50


# ------------------------------------------------------------------------------------------ what is best


def task_metric(audit: Audit) -> Metric | None:
    """Return the metric that says whether a method kept the task; None without labels."""
    return next((METRICS[m] for m in audit.metrics if METRICS[m].kept is not None), None)


def ranking(audit: Audit) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    """Return the methods, the best first, and the leaders: source-blind ones, then source-aware ones.

    Leaders lowered S and kept (or improved) the task. One leader means that its S is below the others' by
    its interval; several are tied. Methods that harmed the task come last, however low their S. Source-aware
    methods are told more and compete among themselves. With too few participants there are no leaders.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}
    task = task_metric(audit)

    def place(name: str) -> tuple[int, bool, float]:
        fell = audit.outcome(name, "S") == "improved"
        # Numbers of a map that was fitted on its EVAL participants do not count.
        last = 3 if audit[name].fitted_on else places[audit.outcome(name, task.name) if task else None]
        return last, not fell, audit[name].S

    names = sorted(audit.methods[1:], key=place)
    good = [name for name in names if place(name)[:2] == (0, False) and audit.n_people >= TOO_FEW]
    groups = ([name for name in good if audit[name].source_blind == blind] for blind in (True, False))
    return names, tuple(
        tuple(name for name in group if name == group[0] or not _is_lower(audit, group[0], name))
        for group in groups
        if group
    )


def _is_lower(audit: Audit, a: str, b: str, metric: str = "S") -> bool:
    """Return whether a metric of a is below that of b by its interval."""
    try:
        return audit.contrast(a, b, metric).high < 0
    except ValueError:  # different numbers of fits have no paired difference
        return audit[a].estimate(metric).high < audit[b].estimate(metric).low


# -------------------------------------------------------------------------------------------- the verdict


def verdict(audit: Audit) -> list[str]:
    """Return three sentences: what the embeddings reveal, what the best methods did, how sure that is."""
    return [_uncorrected(audit), _led_by(audit), certainty(audit)]


def headline(audit: Audit) -> str:
    """Return the verdict without how sure it is."""
    return f"{_uncorrected(audit)} {_led_by(audit)}"


def named(audit: Audit, column: str) -> str:
    """Return what the user's table calls the source or the participant, without "_id"."""
    name = str(audit.settings.get("names", {}).get(column, column))
    return name.replace("_", " ").removesuffix(" id") or column


def units(audit: Audit, n: int | None = None) -> str:
    """Return so many participants, called as the user's column is."""
    n, name = audit.n_people if n is None else n, named(audit, "participant")
    return f"{n} {name}{'s' * (n != 1)}"


def _uncorrected(audit: Audit) -> str:
    identity = audit["identity"]
    reaches = f"S {number(identity.S)}; chance reaches {number(identity.chance.high)}"
    if identity.chance.excluded:
        return f"Your embeddings reveal the {named(audit, 'source')} ({reaches})."
    return f"Your embeddings do not reveal the {named(audit, 'source')} beyond chance ({reaches})."


def _led_by(audit: Audit) -> str:
    names, leaders = ranking(audit)
    if not names:
        return ALONE
    return " ".join(_leader(audit, group) for group in leaders) or _no_leader(audit, names)


def _leader(audit: Audit, group: tuple[str, ...]) -> str:
    """Return what a leader did, or that several are tied and what tells them apart."""
    told = "" if audit[group[0]].source_blind else ", told the source of every row,"
    if len(group) == 1:
        (name,) = group
        did = "lowers it to" if audit[name].chance.excluded else "hides it"
        S = number(audit[name].S)
        source = f"{did} {S if did != 'hides it' else f'({S})'}"
        return f"{label(name)}{told} {listed([source, *_task_words(audit, name)])}."
    values = listed(number(audit[name].S) for name in group)
    said = f"{listed(map(label, group))}{told} are tied on S ({values})"
    words = {listed(_task_words(audit, name)) for name in group} if task_metric(audit) else set()
    said += f"; each of them {words.pop()}" if len(words) == 1 else ""
    moved = {name: audit[name].estimate("M").value for name in group}
    calmest, *others = sorted(group, key=moved.__getitem__)
    if all(
        moved[other] - moved[calmest] > 0.01 and _is_lower(audit, calmest, other, "M") for other in others
    ):
        said += f"; {label(calmest)} moves rows less"
    return f"{said}."


def _task_words(audit: Audit, name: str) -> list[str]:
    """Return what became of the task after a method, as ends of a sentence."""
    task = task_metric(audit)
    if task is None:
        return []
    words = {"kept": "keeps the task", "improved": "improves the task"}
    said = [words[outcome]] if (outcome := audit.outcome(name, task.name)) in words else []
    head = "A_f" if "A_f" in audit.metrics else None
    if head and audit.outcome(name, head) == "improved":
        points = 100 * audit.contrast(name, metric=head).value
        said.append(f"existing heads gain {points:.0f} points of accuracy")
    return said


def _no_leader(audit: Audit, names: list[str]) -> str:
    """Return why no method is best, and what would help."""
    floors = [name for name in names if audit[name].floor_explains]
    if audit.n_people < TOO_FEW:
        needed = f"at least {TOO_FEW} are needed{_folds_help(audit)}"
        return f"No method is called best with {units(audit)}; {needed}."
    if not audit["identity"].chance.excluded:
        return "There is nothing to remove that these readers find."
    task = " while clearly keeping the task" if task_metric(audit) else ""
    said = f"No method clearly lowered it{task}."
    if floors:
        return (
            f"{said} What the gate of {listed(map(label, floors))} preserves is as readable as the result: "
            "a wider gate may help, more data will not."
        )
    lowest = min(names, key=lambda name: audit[name].S)
    return f"{said} The lowest S is {number(audit[lowest].S)} ({label(lowest)})."


def _folds_help(audit: Audit) -> str:
    fitted = any(result.fitted_elsewhere for result in audit.results.values())
    return "" if fitted or "folds" in audit.settings else ", or folds, which score every participant once"


def certainty(audit: Audit, *, warn: bool = True) -> str:
    """Return in one line how much to believe: the number of participants, and how many more would help.

    Warnings come first, unless they stand elsewhere.
    """
    marks = {"Preliminary": "Preliminary: few, briefly trained readers, so S may be too low."}
    said = [marks.get(badge, sentence) for badge, sentence in warnings(audit).items() if warn]
    if audit.n_people >= TOO_FEW:
        said.append(f"Intervals are over {units(audit)}.")
    said += [entry["sentence"] for entry in plan(audit)[:1]]
    return " ".join(said)


def warnings(audit: Audit) -> dict[str, str]:
    """Return what every output says before its numbers are believed: a sentence by a short badge."""
    s, said = audit.settings, {}
    if s["preliminary"]:
        said["Preliminary"] = (
            "Preliminary: fewer or shorter-trained source readers than in a full audit, so S may be too low. "
            "Audit with the full bank before believing a number."
        )
    if audit.n_people < TOO_FEW:
        said["Exploratory"] = f"Only {units(audit)}: exploratory."
    if s.get("corrected_by"):
        said["Corrected before"] = (
            f"The rows came corrected (by map {s['corrected_by']}), perhaps by a map fitted on these "
            "participants. Audit the table it was applied to, and pass the map as a method."
        )
    if s["duplicates"]:
        copies = "; ".join(f"{count} {what}" for what, count in s["duplicates"].items())
        said["Duplicate rows"] = f"The same rows stand in two roles ({copies}), which flatters every method."
    return said


# ----------------------------------------------------------------------------------------- method by method


def findings(audit: Audit, method: str) -> list[str]:
    """Return what a method did: to heads, to the source, to the rows; and what to try next."""
    if method == "identity":
        return [_uncorrected(audit)]
    lines = [*_evidence(audit, method), *_held_out(audit, method)]
    for name in audit.metrics:
        if (metric := METRICS[name]).kept is not None:
            lines.append(_head_sentence(audit, method, metric))
    lines += [_source_sentence(audit, method), *_floor(audit, method), *_left(audit, method)]
    if "worst" in audit.metrics:
        lines.append(
            f"Worst-case AUROC of a head trained on the shortcut: {_change(audit, method, 'worst')}."
        )
    lines.append(f"Rows moved by {100 * audit[method].estimate('M').value:.1f} % of their size.")
    return lines + _advice(audit, method)


def _change(audit: Audit, method: str, metric: str) -> str:
    before, after = (number(audit[name].estimate(metric).value) for name in ("identity", method))
    return f"{before} → {after} ({audit.contrast(method, metric=metric):+.3f})"


def _head_sentence(audit: Audit, method: str, metric: Metric) -> str:
    subject = f"{metric.subject[0].upper()}{metric.subject[1:]} ({metric.name})"
    outcome = {
        "improved": "the task improved",
        "kept": f"the task was kept, any loss is below {number(metric.kept or 0, 2)} (95 %)",
        "suffered": "the task suffered",
        "unclear": f"not clear; a loss of more than {number(metric.kept or 0, 2)} cannot be excluded",
    }[str(audit.outcome(method, metric.name))]
    return f"{subject}: {_change(audit, method, metric.name)}; {outcome}."


def _source_sentence(audit: Audit, method: str) -> str:
    """Return whether the source can be read, compared with what the best reader reaches by chance."""
    readable, outcome = audit[method].chance.excluded, audit.outcome(method, "S")
    now = {
        ("improved", True): "harder to read, but still readable",
        ("improved", False): "hidden (indistinguishable from chance)",
        ("suffered", True): "easier to read",
        ("suffered", False): "easier to read, but indistinguishable from chance",
        ("unclear", True): "still readable, no clear change",
        ("unclear", False): "indistinguishable from chance, but the change is not clear",
    }[str(outcome), readable]
    if not readable and not audit["identity"].chance.excluded:
        now = "indistinguishable from chance, as before the correction"
    reaches = f"chance reaches {number(audit[method].chance.high)}"
    said = f"Source (S): {_change(audit, method, 'S')}; {reaches}: {now}."
    if audit[method].estimate("S").high < 0.5:
        said += (
            " S is below chance: readers learned a rule that reverses on new participants, as happens when a "
            "map was fitted on its EVAL participants, or overshoots."
        )
    return said


def _evidence(audit: Audit, method: str) -> list[str]:
    facts = audit[method].facts
    missing = [str(fit["missing_evidence"]) for fit in facts if "missing_evidence" in fit]
    fits = f" in {len(missing)} of {len(facts)} fits" if len(facts) > 1 else ""
    return [f"No evidence to act on: rows are left as they are{fits}. {missing[0]}"] if missing else []


def _held_out(audit: Audit, method: str) -> list[str]:
    result = audit[method]
    if result.fitted_on:
        who = ", ".join(result.fitted_on[:5]) + (", …" if len(result.fitted_on) > 5 else "")
        return [
            f"Not held out: it was fitted on {len(result.fitted_on)} of the participants it is scored on "
            f"({who}), which flatters it. Fit it on FIT participants only."
        ]
    if result.fitted_elsewhere and result.fitted_on is None:
        return ["It was fitted elsewhere, perhaps on these participants."]
    return []


def _floor(audit: Audit, method: str) -> list[str]:
    if not audit[method].has("floor"):
        return []
    floor = audit[method].estimate("floor")
    said = f"From what the gate preserves, readers reach {floor:.3f} (the floor)"
    if audit[method].floor_explains:
        return [f"{said}: neither another correction inside this gate nor more data would lower S."]
    return [f"{said}; no correction inside this gate removes that."]


def _left(audit: Audit, method: str) -> list[str]:
    """Return which readers still read the source: linear ones, others, or both."""
    result = audit[method]
    if not result.chance.excluded or not result.has("L"):
        return []
    said = f"Linear readers reach {result.estimate('L'):.3f}"
    said += "" if result.linear_chance.excluded else ", no more than chance"
    if result.beyond_linear:
        said += f"; the rest is in spread and shape (best reader: {result.best_reader()})"
    return [f"{said}."]


def _advice(audit: Audit, method: str) -> list[str]:
    """Return what to try where a map with a gate has left the source readable."""
    result = audit[method]
    if not result.chance.excluded or audit.n_people < TOO_FEW or not result.provenance:
        return []
    info, tries = result.provenance[0], []
    if not info.gate_rank:
        return []
    inside = not result.floor_explains  # a correction inside the gate may help
    if inside and audit.settings["budget"] is not None:
        tries.append("a larger budget, or none")
    if inside and info.method == "ClosedFormMGPA" and result.has("L") and result.beyond_linear:
        tries.append("iterative_mgpa (mgpa.IterativeMGPA), which is not one affine map for all rows")
    if info.gate_energy is not None and info.gate_energy < WIDE:
        tries.append(
            f"a gate of rank {WIDE} instead of {info.gate_rank} (--rank {WIDE}; in Python "
            f"gate=mgpa.MeasurementGate(rank={WIDE}))"
        )
    return [f"Next: {'; with it '.join(tries)}. Check T_f afterwards."] if tries else []


def caveats(audit: Audit) -> list[str]:
    """Return how sure the findings are; the same for every method."""
    s, n = audit.settings, audit.n_people
    lines = [*warnings(audit).values()]
    if s["nested_readers"]:
        lines.append(
            f"{s['nested_readers']} of {s['participants']['HEAD']} HEAD participants have one source only: "
            "readers may have learned who they are instead of how they were measured, so S may be too low."
        )
    if "folds" in s:
        lines.append(
            f"Each participant was scored once, by models trained on others, in {s['folds']} folds; models "
            "differ from fold to fold."
        )
    lines.append(
        f"Intervals are over {units(audit)}, for these fitted maps and readers; a stronger reader may find "
        "more. Chance comes from source labels permuted within participants."
    )
    if TOO_FEW <= n < FEW:
        lines.append(f"{n} is few: such intervals tend to be too narrow.")
    lines += [entry["sentence"] for entry in plan(audit)]
    if len(audit.methods) > 2 and any(len(group) == 1 for group in ranking(audit)[1]):
        lines.append(
            "The best method was chosen on the participants it is reported on, which flatters it a little; "
            "confirm it on new ones."
        )
    return lines


def readers_note(audit: Audit) -> str:
    """Return who read the source, and what the paper's readers alone make of it, if there were others."""
    n, s = len(audit["identity"].readers), audit.settings
    if s["bank"] == "paper":
        return f"S: the best of {n} readers, all of them the paper's."
    alone = ", ".join(
        f"{printable(name)} {number(r.estimate('S_paper').value)}" for name, r in audit.results.items()
    )
    size = "a small bank" if s["preliminary"] else "the full bank"
    return f"S: the best of {n} readers ({size}). By the paper's alone (S_paper): {alone}."


def shortcut_note(audit: Audit) -> str:
    """Return which shortcut the heads behind ``worst`` learned."""
    ways, origin = audit.settings["directions"], audit.settings["directions_of"]
    if not ways:
        return f"worst and control were not measured: {origin}." if origin else ""
    if len(ways) == 1:
        how = "as stated" if origin == "stated" else f"as in the {origin} rows"
        return f"worst: heads learned the shortcut that {ways[0]} ({how})."
    return (
        f"worst: source and task are not clearly associated in the {origin} rows, so heads learned each of "
        f"the {len(ways)} possible shortcuts, and their curves are averaged."
    )


# ------------------------------------------------------------------------------------------- how many more


def plan(audit: Audit) -> list[dict[str, Any]]:
    """Return how many participants in all would settle what intervals leave open.

    From the spread over participants: an interval becomes narrower by the square root of their number.

    Returns
    -------
    list of dict
        ``question``, ``methods``, ``metric``; ``now`` and ``needed`` participants (None: more will hardly
        help); and a ``sentence``.
    """
    names, leaders = ranking(audit)
    entries, task = [], task_metric(audit)
    for group in leaders:
        for other in group[1:]:
            change = audit.contrast(group[0], other)
            entries.append(
                _needed(audit, "separate", (group[0], other), "S", -change.value, change.high - change.value)
            )
    for name in names:
        if task is None or task.kept is None or audit.outcome(name, task.name) != "unclear":
            continue
        change, sign = audit.contrast(name, metric=task.name), -1 if task.better == "lower" else 1
        spread = change.value - change.low if sign > 0 else change.high - change.value
        entries.append(_needed(audit, "kept", (name,), task.name, sign * change.value + task.kept, spread))
    return entries


def _needed(
    audit: Audit, question: str, methods: tuple[str, ...], metric: str, margin: float, spread: float
) -> dict[str, Any]:
    """Return how many participants bring a spread below a margin."""
    now, who = audit.n_people, listed(map(label, methods))
    needed = math.ceil(now * (spread / margin) ** 2) if margin > 0 else None
    if needed is not None and needed > MOST_MORE * now:
        needed = None
    goal = (
        f"tell {who} apart on {metric}"
        if question == "separate"
        else f"show that {who} keeps the task within {number(METRICS[metric].kept or 0, 2)}"
    )
    sentence = (
        f"More {named(audit, 'participant')}s will hardly {goal}."
        if needed is None
        else f"About {max(needed, now + 1)} {named(audit, 'participant')}s would {goal}."
    )
    return {
        "question": question, "methods": methods, "metric": metric, "now": now,
        "needed": None if needed is None else max(needed, now + 1), "sentence": sentence,
    }  # fmt: skip


# --------------------------------------------------------------------------------------------- as plain text


def text(audit: Audit, *, verbose: bool = False) -> str:
    """Return three lines of verdict and one table; with ``verbose``, every column and every sentence."""
    lines = [*verdict(audit), "", *table_lines(audit, everything=verbose)]
    if verbose:
        names, _ = ranking(audit)
        for name in names:
            lines += ["", label(name), *(f"  {sentence}" for sentence in findings(audit, name))]
        notes = (readers_note(audit), shortcut_note(audit))
        lines += ["", "How sure is this?", *(f"  {line}" for line in caveats(audit))]
        lines += [f"  {note}" for note in notes if note]
    return printable("\n".join(lines), lines=True)


def table_lines(audit: Audit, *, everything: bool = False) -> list[str]:
    """Return the table of estimates; only the columns that fit a line, unless ``everything``."""
    columns: list[tuple[str, ...]] = []
    for m in dict.fromkeys([*(m for m in FIRST if m in audit.columns), *audit.columns]):
        estimates = (audit.estimates[name].get(m) for name in audit.methods)
        cells = (METRICS[m].wanted, *("" if e is None else f"{e:.3f}" for e in estimates))
        words = wrap(METRICS[m].subject, max(map(len, cells)))
        columns.append((*[""] * (2 - len(words)), *words[:2], *cells))
        if m == "S":
            reached = (number(audit[name].chance.high) for name in audit.methods)
            columns.append(("", "chance", "up to", *reached))
    first = ("", "", "method", *map(printable, audit.methods))
    blocks: list[list[tuple[str, ...]]] = [[]]
    for column in columns:
        used = max(map(len, first)) + sum(2 + max(map(len, c)) for c in blocks[-1])
        if blocks[-1] and used + 2 + max(map(len, column)) > LINE:
            blocks.append([])
        blocks[-1].append(column)
    lines: list[str] = []
    for block in blocks if everything else blocks[:1]:
        table = text_table(zip(first, *block, strict=True))
        lines += ["", *dropwhile(lambda line: not line, table)]
    return lines[1:]
