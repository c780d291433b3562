"""Findings on one method: its effects on heads, source and rows, and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..estimates import number
from ..metrics import METRICS
from ..words import reader_name
from .caveats import class_chance
from .conclusions import span, uncorrected
from .decisions import has_pairs, of_decoder
from .finding import Change, Finding

if TYPE_CHECKING:
    from ..result import Audit

#: Metrics of heads, in the order of the sentences.
HEADS = ("home", "away", "RMSEP_home", "RMSEP_away", "bias_f", "T_f", "T_r", "RMSEP_r", "A_u", "RMSEP_u",
         "shift_f", "flips")  # fmt: skip
#: Outcomes of a metric, in words.
OUTCOMES = {"improved": "better", "kept": "kept", "suffered": "worse", "unclear": "not clearly different"}
#: Metrics that average over existing heads of all sources, even if tables show heads of one source.
OF_ALL = ("bias_f", "shift_f", "flips", "output_change")
# Maximum number of directions of transfer to list.
MOST_DIRECTIONS = 6
# Maximum number of classes to list, and the difference between their changes from which they are listed.
MOST_CLASSES, UNEVEN = 6, 0.03
# Maximum number of changes to list with intervals that include the variation of the fit.
MOST_REFITTED = 4


def card(audit: Audit, method: str) -> list[Finding]:
    """Return the findings on a method, one for each sentence."""
    if method == "identity":
        return [uncorrected(audit)]
    result = audit[method]
    if not result.movement.any():
        return [*_caution(audit, method), Finding("unmoved", (method,))]
    limited = [m for m in audit.metrics if METRICS[m].kept is not None]
    return [
        *_caution(audit, method),
        *(_of_heads(audit, method, m) for m in dict.fromkeys([*HEADS, *limited]) if m in audit.metrics),
        _source(audit, method),
        *_by_direction(audit, method),
        *_by_class(audit, method),
        *_beside_source(audit, method),
        *_with_the_fit(audit, method),
        *_parts_of_S(audit, method),
        *_floor(audit, method),
        *_linear_readers(audit, method),
        *_worst(audit, method),
        Finding("moved", (method,), {"percent": f"{100 * result.estimate('M').value:.1f}"}),
    ]


def change(audit: Audit, method: str, metric: str) -> Change:
    """Return a metric before and after correction; with a reference, for heads of the reference source."""
    served, heads = of_decoder(audit, method, metric)
    heads = "all sources" if audit.decoder and metric in OF_ALL else heads
    before, after = (audit[name].estimate(served).value for name in ("identity", method))
    return Change(before, after, audit.contrast(method, metric=metric), heads)


def _caution(audit: Audit, method: str) -> list[Finding]:
    """Return findings if a method found no evidence or was fitted on scored participants."""
    result, people = audit[method], audit.design.plural
    missing = [str(fit["missing_evidence"]) for fit in result.facts if "missing_evidence" in fit]
    fits = f" in {len(missing)} of {len(result.facts)} fits" if len(result.facts) > 1 else ""
    found = [Finding("no_evidence", (method,), {"fits": fits, "why": missing[0]})] if missing else []
    if result.fitted_on:
        names = ", ".join([*result.fitted_on[:5], *["…"] * (len(result.fitted_on) > 5)])
        facts: dict[str, object] = {"n": len(result.fitted_on), "units": people, "names": names}
        copies = audit.settings.duplicates and not result.fitted_elsewhere
        found.append(Finding("fitted_on_copies" if copies else "fitted_on", (method,), facts))
    elif result.fitted_elsewhere and result.fitted_on is None:
        found.append(Finding("fitted_elsewhere", (method,), {"units": people}))
    return found


def _of_heads(audit: Audit, method: str, metric: str) -> Finding:
    """Return the change of a head metric and its certainty."""
    outcome, known, chance = str(audit.outcome(method, metric)), METRICS[metric], class_chance(audit, metric)
    facts: dict[str, object] = {
        "subject": known.subject[0].upper() + known.subject[1:], "metric": metric,
        "change": change(audit, method, metric), "chance": chance and f"; {chance}",
        "outcome": OUTCOMES[outcome],
    }  # fmt: skip
    if not known.kept or outcome not in ("kept", "unclear"):
        return Finding("metric", (method,), facts)
    facts["margin"] = number(known.kept, ".2f")
    return Finding("metric_kept" if outcome == "kept" else "metric_unsure", (method,), facts)


def _source(audit: Audit, method: str) -> Finding:
    """Return whether readers recognise the source better than by chance."""
    chance, was = audit[method].chance, audit["identity"].chance.excluded
    outcome = str(audit.outcome(method, "S"))
    now = {
        (True, True): {
            "improved": "harder to read, but still readable",
            "suffered": "easier to read",
        }.get(outcome, "still readable, not clearly different"),
        (True, False): "indistinguishable from chance",
        (False, True): "readable now, but not before",
        (False, False): "indistinguishable from chance, as before",
    }[was, chance.excluded]
    reverses = audit[method].estimate("S").high < 0.5
    facts = {"change": change(audit, method, "S"), "chance": chance.high, "outcome": now,
             "units": audit.design.plural}  # fmt: skip
    return Finding("source_reverses" if reverses else "source", (method,), facts)


def _by_direction(audit: Audit, method: str) -> list[Finding]:
    """Return the errors of existing models by direction of transfer; a mean would hide opposite signs."""
    ways = audit["identity"].directions
    if "RMSEP_away" not in audit.metrics or len(ways) > MOST_DIRECTIONS:
        return []
    parts = []
    for way in ways:
        if all(audit[name].has(f"RMSEP_f {way}") for name in ("identity", method)):
            error, bias = (change(audit, method, f"{m} {way}") for m in ("RMSEP_f", "bias_f"))
            parts.append(f"{way} RMSEP {error}, bias {bias}")
    return [Finding("by_direction", (method,), {"changes": "; ".join(parts)})] if parts else []


def _by_class(audit: Audit, method: str) -> list[Finding]:
    """Return the accuracy of existing heads by class, if a method affects classes differently.

    These are heads of all sources; nothing is returned if other sentences are about heads of a reference.
    """
    if audit[method].reference or audit.decoder:
        return []
    names = [m for m in audit.details if m.startswith("recall ")]
    changes = [audit.contrast(method, metric=m).value for m in names]
    if len(names) > MOST_CLASSES or not changes or max(changes) - min(changes) < UNEVEN:
        return []
    parts = (f"class {m.removeprefix('recall ')}: {change(audit, method, m)}" for m in names)
    return [Finding("by_class", (method,), {"changes": "; ".join(parts)})]


def _beside_source(audit: Audit, method: str) -> list[Finding]:
    """Return findings on both views of an event, on bits of information, and on participant identity."""
    found = []
    if "twin" in audit.metrics:
        found.append(Finding("twin", (method,), {"change": change(audit, method, "twin")}))
    if "I_R" in audit.metrics:
        facts: dict[str, object] = {
            "change": change(audit, method, "I_R"),
            "preserved": audit[method].estimate("I_Q"),
        }
        found.append(Finding("bits", (method,), facts))
    if "identity" in audit.metrics:
        facts = {"change": change(audit, method, "identity"), "units": audit.design.plural.capitalize()}
        found.append(Finding("identity", (method,), facts))
    return found


def _with_the_fit(audit: Audit, method: str) -> list[Finding]:
    """Return changes with intervals that include the variation of the fit, if there were refits."""
    again = audit.refitted.get(method)
    if not again:
        return []
    first = [m for m in ("S", *HEADS) if m in again][:MOST_REFITTED]
    changes = ", ".join(f"{m} {again[m]:+.3f}" for m in first)
    facts = {"n": audit.settings.refits, "units": audit.design.plural, "changes": changes}
    return [Finding("refitted", (method,), facts)]


def _parts_of_S(audit: Audit, method: str) -> list[Finding]:
    """Return S of participants with several sources and with one source, in a mixed design."""
    parts = {"S_travelled": "with several sources", "S_stayed": "with one source each"}
    units = audit.design.plural.capitalize()
    return [
        Finding("part", (method,), {"units": units, "which": which, "change": change(audit, method, part)})
        for part, which in parts.items()
        if audit[method].has(part) and audit["identity"].has(part)
    ]


def _worst(audit: Audit, method: str) -> list[Finding]:
    """Return the AUROC of the shortcut head at its worst association."""
    if "worst" not in audit.metrics:
        return []
    return [Finding("worst", (method,), {"change": change(audit, method, "worst")})]


def _floor(audit: Audit, method: str) -> list[Finding]:
    """Return the AUROC of readers of the preserved part, and whether this limits S."""
    result = audit[method]
    if not result.has("floor"):
        return []
    facts: dict[str, object] = {"floor": result.estimate("floor"), "units": audit.design.plural, "ranks": ""}
    ranks = [fact["gate_basis"].shape[1] for fact in result.facts if "gate_basis" in fact]
    if audit.settings.folds > 1 and ranks:  # each fold has only some of the pairs
        facts["ranks"] = f"; the folds' gates have rank {span(ranks)}"
    return [Finding("floor_explains" if result.floor_explains else "floor", (method,), facts)]


def _linear_readers(audit: Audit, method: str) -> list[Finding]:
    """Return the AUROC of linear readers, and advice if other readers reach more."""
    result = audit[method]
    if not (result.chance.excluded and result.has("L")):
        return []
    chance = "" if result.linear_chance.excluded else ", no more than chance"
    facts: dict[str, object] = {"linear": result.estimate("L"), "chance": chance,
                              "reader": reader_name(result.best_reader())}  # fmt: skip
    if not result.beyond_linear:
        return [Finding("linear", (method,), facts)]
    tried = any(info.method == "MGPA" for other in audit.results.values() for info in other.provenance)
    advice = not tried and has_pairs(audit)
    return [Finding("beyond_linear_advice" if advice else "beyond_linear", (method,), facts)]
