"""A verdict in words: what became of source and task after a method, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .design import FEW, TOO_FEW
from .metrics import METRICS

if TYPE_CHECKING:
    from .result import Audit

# Share of contrast energy in a gate that is proposed where a narrower one leaves the source readable.
WIDE = 0.99


def findings(audit: Audit, method: str) -> list[str]:
    """Return what became of source and task, and how far rows moved."""
    left = (*_floor_sentence(audit, method), *_left_sentence(audit, method), *_advice(audit, method))
    few = (
        [f"TOO FEW PEOPLE ({audit.n_people}) for what follows to be more than a hint."]
        if audit.too_few
        else []
    )
    lines = [*_evidence_sentence(audit, method), *few, _source_sentence(audit, method), *left]
    if method == "identity":
        return lines
    for name in audit.metrics:
        metric = METRICS[name]
        if metric.kept is None:
            continue
        outcome = str(audit.outcome(method, name))
        text = {
            "improved": f"The task improved for {metric.subject}",
            "kept": f"The task was kept for {metric.subject}",
            "suffered": f"The task suffered for {metric.subject}",
        }.get(outcome, f"It is not clear whether the task was kept for {metric.subject}")
        text += f": {audit.contrast(method, metric=name):+.4f}"
        lines.append(text + (f", a loss above {metric.kept} is excluded." if outcome == "kept" else "."))
    if "worst" in audit.metrics:
        change = audit.contrast(method, metric="worst")
        ways = " or ".join(audit.settings["directions"])
        lines.append(f"A head that learned that {ways}, at its worst association: {change:+.3f}.")
    M = audit.estimates[method]["M"]
    lines.append(f"Embeddings moved by {100 * M.value:.1f} % of their size.")
    held_out = _held_out_sentence(audit, method)
    return held_out + lines if audit[method].fitted_on else lines + held_out


def limits(audit: Audit, method: str) -> list[str]:
    """Return those of the findings that no number shows.

    Whether it had evidence to act on, whether it was held out, what its gate keeps, who still reads the
    source, and what may be tried.
    """
    return [
        *_evidence_sentence(audit, method),
        *_held_out_sentence(audit, method),
        *_floor_sentence(audit, method),
        *_left_sentence(audit, method),
        *_advice(audit, method),
    ]


def _evidence_sentence(audit: Audit, method: str) -> list[str]:
    facts = audit[method].facts
    missing = [str(fit["missing_evidence"]) for fit in facts if "missing_evidence" in fit]
    if not missing:
        return []
    fits = f" in {len(missing)} of {len(facts)} fits" if len(facts) > 1 else ""
    return [f"NOTHING TO ACT ON: it left rows as they are{fits}. {missing[0]}"]


def _held_out_sentence(audit: Audit, method: str) -> list[str]:
    result = audit[method]
    if result.fitted_on:
        named = ", ".join(result.fitted_on[:5]) + (", …" if len(result.fitted_on) > 5 else "")
        return [
            f"NOT HELD OUT: it was fitted on {len(result.fitted_on)} of the people it is judged by "
            f"({named}), known by their names or their rows; these numbers flatter it. "
            "Fit it on FIT participants only."
        ]
    if result.fitted_elsewhere and result.fitted_on is None:
        return ["It was fitted elsewhere: whether on these participants is not known here."]
    return []


def _floor_sentence(audit: Audit, method: str) -> list[str]:
    if not audit[method].has("floor"):
        return []
    floor = audit.estimates[method]["floor"]
    if audit[method].floor_explains:
        return [
            f"That is what the gate preserves: from it alone readers reach {floor:.3f} (the floor), "
            "and no correction inside this gate, nor more participants, would lower S."
        ]
    return [
        f"What the gate preserves lets readers reach {floor:.3f} by itself; no correction inside "
        "this gate removes that."
    ]


def _left_sentence(audit: Audit, method: str) -> list[str]:
    """Return who still reads the source after a correction: linear readers, others, or both."""
    result = audit[method]
    if method == "identity" or not result.chance.excluded or not result.has("L"):
        return []
    said = f"Linear readers reach {result.estimate('L'):.3f}"
    if not result.linear_chance.excluded:
        said += ", no more than chance"
    if result.beyond_linear:
        said += f"; what is left beyond that is in spread and shape (best reader: {result.best_reader()})"
    return [f"{said}."]


def _advice(audit: Audit, method: str) -> list[str]:
    """Return what may be tried where a map with a gate has left the source readable."""
    result = audit[method]
    if method == "identity" or not result.chance.excluded or audit.too_few or not result.provenance:
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
            f"a wider gate, rank {WIDE} where this one has {info.gate_rank} (--rank {WIDE}; in Python "
            f"gate=mgpa.MeasurementGate(rank={WIDE}))"
        )
    if not tries:
        return []
    return [f"May be tried: {'; with it '.join(tries)}. See what that costs the task."]


def _source_sentence(audit: Audit, method: str) -> str:
    """Return whether the source can be read, told from what the best reader reaches by chance."""
    S, before = audit.estimates[method]["S"], audit.estimates["identity"]["S"]
    chance = audit[method].chance
    by_chance = f"by chance the best reader reaches up to {_short(chance.high)}"
    if method == "identity":
        if chance.excluded:
            return f"Uncorrected, the source is readable: AUROC {S:.3f}; {by_chance}."
        return f"Uncorrected, the source is indistinguishable from chance: AUROC {S:.3f}; {by_chance}."
    change, outcome = audit.contrast(method, metric="S"), audit.outcome(method, "S")
    numbers = f"AUROC {before:.3f} before, {S:.3f} after ({change:+.3f}); {by_chance}."
    if S.high < 0.5:
        return (
            f"The source became harder to read: {numbers} That is BELOW chance: readers learned a rule "
            "that reverses on new people, as happens when a map was fitted on people it is judged by, or "
            "overshoots."
        )
    if outcome == "suffered":
        return f"The source became EASIER to read: {numbers}"
    if outcome == "improved":
        now = "is still readable" if chance.excluded else "is now indistinguishable from chance"
        return f"The source became harder to read{' but' if chance.excluded else ' and'} {now}: {numbers}"
    if chance.excluded:
        return f"No clear change, the source is still readable: {numbers}"
    if audit["identity"].chance.excluded:
        return f"The source is indistinguishable from chance, but the change is not clear: {numbers}"
    return f"The source is indistinguishable from chance, as it was before any correction: {numbers}"


def _short(auroc: float) -> str:
    """Return three digits, as intervals have them."""
    return f"{auroc:.3f}".removeprefix("0")


def too_few(audit: Audit) -> str:
    """Return that there are too few people for a verdict; nothing, if there are enough."""
    if audit.n_people >= TOO_FEW:
        return ""
    return (
        f"TOO FEW PEOPLE: {audit.n_people} EVAL participants are a hint at most. A verdict needs {TOO_FEW} "
        f"or more, intervals that hold {FEW} or more{audit.advice_on_folds}."
    )


def still_readable(audit: Audit) -> str:
    """Return after which methods the source is still readable, and whether by linear readers."""
    named = []
    for name in audit.methods[1:]:
        result = audit[name]
        if result.chance.excluded and result.has("L"):
            named.append(
                f"{name} (S {_short(result.S)}, linear readers {_short(result.estimate('L').value)})"
            )
    if not named:
        return ""
    advised = any(_advice(audit, name) for name in audit.methods[1:])
    more = "; the verdict says what may be tried" if advised else ""
    return f"The source is still readable after {', '.join(named)}{more}."


def corrected_before(audit: Audit) -> str:
    """Return that rows came corrected, and by what; nothing, if they did not."""
    by = audit.settings.get("corrected_by")
    if not by:
        return ""
    return (
        f"CORRECTED BEFORE: the rows came corrected (by map {by}). Uncorrected means as they came, and that "
        "map may have been fitted on people who judge here. Audit the table it was applied to, and pass the "
        "map as a method."
    )


def caveats(audit: Audit, method: str) -> list[str]:
    """Return how sure the findings are; the same for every method."""
    n = len(audit[method].participants)
    lines = [*audit.warnings]
    nested = audit.settings["nested_readers"]
    if nested:
        lines.append(
            f"{nested} of {audit.settings['participants']['HEAD']} HEAD participants were seen by one "
            "source only: readers may have learned who they are instead of how they were measured, so S "
            "may be too low."
        )
    if "folds" in audit.settings:
        lines.append(
            f"Everybody judged once, in {audit.settings['folds']} folds: by maps, readers and heads of "
            "other people, which differ from fold to fold."
        )
    lines.append(
        f"Intervals are over {n} participants, for these fitted maps and readers; a stronger reader may "
        "find more. Chance is from labels swapped within participants."
    )
    if TOO_FEW <= n < FEW:
        lines.append(f"{n} participants are few: intervals from so few tend to be too narrow.")
    return lines
