"""Findings of the verdict: source information in the embeddings, effects of the best methods, caveats."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...tables.columns import spoken
from ..design import TOO_FEW
from ..estimates import number
from ..metrics import METRICS
from ..words import label, listed
from . import decisions as decide
from .decisions import ranking, task_metric
from .finding import Finding

if TYPE_CHECKING:
    from ..result import Audit

#: Effects of methods, as verbs in singular and plural.
DEEDS = {
    "hides": ("lowers S to chance level", "lower S to chance level"),
    "lowers": ("lowers S", "lower S"),
    "keeps": ("keeps the task", "keep the task"),
}
#: If a larger share of the above-chance S remains, the verdict explains why.
MUCH = 0.5


class Conclusions(NamedTuple):
    """The verdict in three parts: before any method, the headline on methods, and the rest."""

    before: list[Finding]
    main: list[Finding]
    rest: list[Finding]


def conclude(audit: Audit) -> Conclusions:
    """Return the findings behind the verdict, one for each sentence."""
    before = [*_doubts(audit), uncorrected(audit)]
    names, leaders = ranking(audit)
    if not names:
        return Conclusions(before, [Finding("nothing_compared")], [])
    first, *others = [_leader(audit, group) for group in leaders] or [_no_leader(audit, names)]
    serving = decide.serving(audit)
    about = [name for group in leaders or (first.methods,) for name in group if name not in serving]
    main = [*_served(audit, serving), first, *_existing_heads(audit, about), *_of_no_use(audit, leaders)]
    at_home = _home_falls(audit)
    # A loss with a leading method comes first; that of another method is only a warning.
    warns = first.kind == "nothing_to_remove" or (serving and not leaders)
    main = [*main, *at_home] if warns else [*at_home, *main]
    idle = [finding for name in names for finding in _idle(audit, name)]
    rest = [*others, *_passed_over(audit), *_left(audit, names), *idle]
    return Conclusions(before, main, [*rest, *_unseen(audit)])


def units(audit: Audit, n: int | None = None) -> str:
    """Return a number of participants with the user's word for them, such as "12 patients"."""
    n = audit.n_people if n is None else n
    return f"{n} {audit.design.unit if n == 1 else audit.design.plural}"


def span(numbers: list[int]) -> str:
    """Return the range of numbers as text: "4 to 6", or "4" if they are equal."""
    return " to ".join(map(str, dict.fromkeys([min(numbers), max(numbers)])))


def value(audit: Audit, name: str, metric: str) -> str:
    """Return a metric of a method as printed."""
    return number(audit[name].estimate(metric).value)


def uncorrected(audit: Audit) -> Finding:
    """Return whether the uncorrected embeddings reveal the source."""
    identity = audit["identity"]
    facts = {"source": spoken(audit.settings.source_name), "units": audit.design.plural,
             "S": identity.S, "chance": identity.chance.high}  # fmt: skip
    if not identity.chance.excluded:
        return Finding("hidden", facts=facts)
    return Finding("revealed" if audit.design.within else "revealed_between", facts=facts)


def _doubts(audit: Audit) -> list[Finding]:
    """Return doubts about the pairs on which methods were fitted."""
    what = "" if audit.pairs is None else audit.pairs.doubt
    return [Finding("doubtful_pairs", facts={"what": what})] if what else []


def _home_falls(audit: Audit) -> list[Finding]:
    """Return a finding if existing heads lose on the source they were trained on, with advice."""
    name = decide.home_loss(audit)
    if not name:
        return []
    metric = decide.home_metric(audit)
    served, heads = decide.of_decoder(audit, name, metric)
    facts = {
        "metric": "balanced accuracy" if metric == "home" else "RMSEP",
        "heads": f" of {heads}" if heads else "",
        "before": audit["identity"].estimate(served).value,
        "after": audit[name].estimate(served).value,
        "change": f"{audit.contrast(name, metric=served):+.3f}",
        "reference": decide.most_harmed_home(audit, name),
    }
    # No advice if a reference is already set or there is no effect to remove.
    advice = audit["identity"].chance.excluded and not any(audit[m].reference for m in audit.methods)
    advice = advice and decide.has_pairs(audit)
    return [Finding("home_falls_advice" if advice else "home_falls", (name,), facts)]


def _leader(audit: Audit, group: tuple[str, ...]) -> Finding:
    """Return the finding on the leaders of a group."""
    metric, aware = audit.settings.outcome, "" if audit[group[0]].source_blind else "_aware"
    read = task_metric(audit) is not None and decide.task_is_read(audit)
    keeping = [name for name in group if read and not decide.below_mean(audit, name)]
    if len(group) == 1:
        did = [_deed(audit, group[0], metric), *["keeps the task"] * bool(keeping)]
        return Finding(f"leads{aware}", group, {"did": listed(did)})
    revealed = metric == "S" and audit["identity"].chance.excluded
    readable = [name for name in group if revealed and audit[name].chance.excluded]
    hidden = [name for name in group if revealed and name not in readable]
    together = _together(group, {"hides": hidden, "lowers": readable, "keeps": keeping})
    values = listed(value(audit, name, metric) for name in group)
    return Finding(
        f"tied{aware}", group, {"metric": metric, "values": values, "did": together and f": {together}"}
    )


def _deed(audit: Audit, name: str, metric: str) -> str:
    """Return the effect of a method on the deciding metric, in words."""
    after = value(audit, name, metric)
    if metric != "S":
        return f"is best on {metric} ({after})"
    if not audit["identity"].chance.excluded:
        return f"lowers S to {after}"
    if not audit[name].chance.excluded:
        return f"lowers S to chance level ({after})"
    return f"lowers S to {after}"


def _together(group: tuple[str, ...], deeds: dict[str, list[str]]) -> str:
    """Return the effects of tied methods, such as "both lower S", "A lowers S …; both keep the task"."""
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


def _served(audit: Audit, names: tuple[str, ...]) -> list[Finding]:
    """Return a finding on the best methods for existing heads: effects on other sources and at home."""
    if not names:
        return []
    away, home = decide.away_metric(audit), decide.home_metric(audit)
    _, heads = decide.of_decoder(audit, names[0], away)

    def change(metric: str) -> str:
        served = audit.served(names[0], metric)
        return f"{value(audit, 'identity', served)} → {listed(value(audit, m, served) for m in names)}"

    facts = {"metric": "accuracy" if away == "away" else "RMSEP", "heads": f" of {heads}" if heads else "",
             "away": change(away), "home": f", {change(home)} at home" if home else ""}  # fmt: skip
    return [Finding("serves" if len(names) == 1 else "serve_alike", names, facts)]


def _existing_heads(audit: Audit, leaders: list[str]) -> list[Finding]:
    """Return clear gains or losses of existing heads on other sources with the leading methods."""
    metric = decide.away_metric(audit)
    changed: dict[tuple[str, str, str], list[str]] = {}
    for name in leaders if metric else []:
        served, heads = decide.of_decoder(audit, name, metric)
        outcome = METRICS[metric].outcome(audit.contrast(name, metric=served))
        if outcome in ("improved", "suffered"):
            changed.setdefault((outcome, served, heads), []).append(name)
    found = []
    for (became, served, heads), names in changed.items():
        facts = {"heads": f" of {heads}" if heads else ""}
        if metric == "away":
            points = [abs(100 * audit.contrast(name, metric=served).value) for name in names]
            each = [
                f"{p:.0f} points" if p >= 1.5 else "1 point" if p >= 0.5 else "less than a point"
                for p in points
            ]
        else:
            each = [value(audit, name, served) for name in names]
            facts["before"] = value(audit, "identity", served)
        facts["each"] = listed(f"{e} with {label(name)}" for e, name in zip(each, names, strict=True))
        kind = "model_error" if metric != "away" else f"accuracy_{became}"
        found.append(Finding(kind, tuple(names), facts))
    return found


def _of_no_use(audit: Audit, leaders: tuple[tuple[str, ...], ...]) -> list[Finding]:
    """Return findings if heads cannot decode the task, or if models predict worse than the mean."""
    if leaders and not decide.task_is_read(audit):
        return [Finding("unread_task", facts={"T_f": audit["identity"].estimate("T_f")})]
    return [finding for group in leaders for finding in _worse_than_mean(audit, group)]


def _worse_than_mean(audit: Audit, group: tuple[str, ...]) -> list[Finding]:
    """Return a finding if existing regression models predict worse than the mean after correction."""
    poor = tuple(name for name in group if decide.below_mean(audit, name))
    if not poor:
        return []

    def explained(metric: str) -> str:
        shares = (audit[m].estimate(audit.served(m, metric)).value for m in poor)
        return f"R² {listed(number(share, '.2f') for share in shares)}"

    ways = [way for way in audit[poor[0]].directions if all(audit[m].has(f"R2_f {way}") for m in poor)]
    good = [way for way in ways if not any(decide.below_mean(audit, m, f"R2_f {way}") for m in poor)]
    served = listed(f"{way} ({explained(f'R2_f {way}')})" for way in good) if good else ""
    refitted = f" Refitted models reach {explained('R2_r')}." if "R2_r" in audit.metrics else ""
    before = number(audit["identity"].estimate(audit.served(poor[0], "R2_f")).value, ".2f")
    facts = {"explained": explained("R2_f"), "before": before, "refitted": refitted,
             "served": served and f", except {served}"}  # fmt: skip
    advice = all(audit[m].source_blind and not audit[m].reference for m in poor)
    return [Finding("worse_than_mean_advice" if advice else "worse_than_mean", poor, facts)]


def _passed_over(audit: Audit) -> list[Finding]:
    """Return a finding on a source-blind method with a better value than the leaders, with the reason."""
    name, metric = decide.passed_over(audit), METRICS[audit.settings.outcome]
    if not name:
        return []
    facts = {"metric": metric.name, "value": audit[name].estimate(metric.name).value,
             "reason": _reason(audit, name)}  # fmt: skip
    return [Finding("lower_but" if metric.better == "lower" else "better_but", (name,), facts)]


def _reason(audit: Audit, name: str) -> str:
    """Return the reason why a method does not lead, in words."""
    task, metric = task_metric(audit), audit.settings.outcome

    def change(metric: str) -> str:
        return f"({metric} {audit.contrast(name, metric=metric):+.3f})"

    return {
        "duplicates": "the same rows have two roles",
        "fitted_on": f"it was fitted on {audit.design.plural} it is scored on",
        "harms": f"it harms the task {change(task.name) if task else ''}",
        "unclear_task": f"it is not clear whether it keeps the task {change(task.name) if task else ''}",
        "unclear_change": f"its change is not clear {change(metric)}",
        "": "",
    }[decide.reason_against(audit, name)]


def _no_leader(audit: Audit, names: list[str]) -> Finding:
    """Return a finding that explains why no method is best."""
    if decide.too_few(audit):
        if audit.n_people >= TOO_FEW:
            return Finding("too_few_cell", facts={"needed": units(audit, TOO_FEW)})
        return Finding("too_few", facts={"now": units(audit), "needed": TOO_FEW})
    if not audit["identity"].chance.excluded:
        return Finding("nothing_to_remove")
    for name in sorted(names, key=lambda name: bool(audit[name].fitted_on)):
        if (
            audit.settings.outcome == "S"
            and decide.improves(audit, name)
            and decide.reason_against(audit, name)
        ):
            did = _deed(audit, name, "S")
            return Finding("not_counted", (name,), {"did": did, "reason": _reason(audit, name)})
    if not any(audit[name].movement.any() for name in names):
        return Finding("not_moved")
    best = min(names, key=lambda name: decide.badness(audit, name))
    metric = audit.settings.outcome
    facts = {"metric": metric, "value": audit[best].estimate(metric).value}
    return Finding("none_clear" if metric == "S" else "none_better", (best,), facts)


def _left(audit: Audit, names: list[str]) -> list[Finding]:
    """Return a finding on the pairs behind a gate that leaves the source clearly readable."""
    much = 0.5 + MUCH * (audit["identity"].S - 0.5)
    for name in names:
        result, fits = audit[name], [info for info in audit[name].provenance if info.gate_rank]
        contrasts = [info.n_contrasts for info in fits if info.n_contrasts]
        participants = audit.settings.pair_participants
        if result.chance.excluded and much < result.S and contrasts and participants:
            facts = {
                "S": result.S, "contrasts": span(contrasts), "n": len(audit.settings.sources),
                "participants": span(list(participants)), "units": audit.design.plural,
                "rank": span([info.gate_rank or 0 for info in fits]), "features": audit.settings.features[-1],
            }  # fmt: skip
            full = min(info.gate_rank or 0 for info in fits) == facts["features"]
            return [Finding("left_full" if full else "left", (name,), facts)]
    return []


def _idle(audit: Audit, name: str) -> list[Finding]:
    """Return a finding if a method changed no rows in some of its fits."""
    result, why = audit[name], ""
    n, of = sum(not cell["movement"].any() for cell in result.cells), len(result.cells)
    if not 0 < n < of:
        return []
    few = audit.settings.pair_participants
    if few and any(info.n_contrasts for info in result.provenance):
        why = f", each with pairs of {span(list(few))} {audit.design.plural}"
    return [Finding("idle", (name,), {"n": n, "of": of, "why": why})]


def _unseen(audit: Audit) -> list[Finding]:
    """Return a finding on heads applied to an unseen source, uncorrected and with each method."""
    identity = audit["identity"]
    metric = next((m for m in ("A_u", "RMSEP_u") if identity.has(m)), "")
    names = [name for name in audit.methods if metric and audit[name].has(metric)]
    if len(names) < 2:
        return []
    # Compare methods on common sources: a method cannot be fitted without its reference source.
    every = [way for way in identity.directions_of("unseen") if identity.has(f"{metric} {way}")]
    ways = [way for way in every if all(audit[name].has(f"{metric} {way}") for name in names)]

    def reached(name: str) -> str:
        if len(ways) == len(every):
            return value(audit, name, metric)
        parts = [audit[name].estimate(f"{metric} {way}").value for way in ways]
        return number(sum(parts) / len(parts))

    if not ways:
        return []
    parts = [f"{reached('identity')} uncorrected"]
    parts += [f"{reached(name)} with {label(name)}" for name in names[1:]]
    what = "balanced accuracy" if metric == "A_u" else "RMSEP"
    what += "" if len(ways) == len(every) else f"; mean of {listed(ways)}"
    facts = {"source": spoken(audit.settings.source_name), "values": f"{listed(parts)} ({what})"}
    return [Finding("unseen", tuple(names[1:]), facts)]


def repeated(audit: Audit) -> list[Finding]:
    """Return a finding on the variation of the deciding metric over random divisions into folds."""
    n, names = audit.settings.repeats, audit.methods[1:] or audit.methods
    if n < 2:
        return []
    metric = METRICS[audit.settings.outcome]
    sign = -1 if metric.better == "higher" else 1
    each = {name: [float(v) for v in audit[name].of_each_repeat(metric.name)] for name in names}
    ranges = listed(f"from {number(min(v))} to {number(max(v))} with {label(m)}" for m, v in each.items())
    facts = {"n": n, "units": audit.design.plural, "metric": metric.name, "ranges": ranges}
    if len(names) == 1:
        return [Finding("range", tuple(names), facts)]
    best = [min(sign * values[r] for values in each.values()) for r in range(n)]
    counts = {m: sum(sign * v[r] <= best[r] for r in range(n)) for m, v in each.items()}
    lead = listed(f"{label(m)} in {count}" for m, count in counts.items() if count)
    return [Finding("range_lead", tuple(names), facts | {"lead": lead})]
