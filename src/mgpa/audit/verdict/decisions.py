"""Decide from intervals which methods lead, which are tied, and why others do not lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..design import TOO_FEW
from ..method_result import once
from ..metrics import METRICS, Metric

if TYPE_CHECKING:
    from ..result import Audit

#: Reasons against a method, independent of its S.
Reason = Literal["duplicates", "fitted_on", "harms", "unclear_task", "unclear_change", ""]


def task_metric(audit: Audit) -> Metric | None:
    """Return the metric that measures whether a method kept the task, or None without labels."""
    return next((METRICS[m] for m in ("T_f", "RMSEP_away") if m in audit.metrics), None)


def smallest_cell(audit: Audit) -> tuple[str, int]:
    """Return the smallest cell and its number of participants."""
    design, participants = audit.design, audit["identity"].participants
    return design.smallest_cell([p for p in participants if (p in design.travellers) == design.within])


@once
def too_few(audit: Audit) -> bool:
    """Return whether a cell has too few participants for a conclusion."""
    return smallest_cell(audit)[1] < TOO_FEW


@once
def ranking(audit: Audit) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    """Return the methods, the best first, and the leaders in two groups: source-blind and source-aware.

    Leaders lowered S by .01 or more (or improved ``settings.outcome``, if a study sets another metric) and
    kept the task. A single leader is better than all other methods by its interval; several leaders are tied.
    Methods that harmed the task come last. Source-aware methods use more information, so they are compared
    only with each other. With too few participants, no method leads.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}
    task, metric = task_metric(audit), METRICS[audit.settings.outcome]

    def place(name: str) -> tuple[int, bool, float]:
        # Maps fitted on their EVAL participants do not count.
        last = 3 if audit[name].fitted_on else places[audit.outcome(name, task.name) if task else None]
        return last, not improves(audit, name), badness(audit, name)

    place_of = {name: place(name) for name in audit.methods[1:]}
    names = sorted(place_of, key=lambda name: place_of[name])
    good = [name for name in names if place_of[name][:2] == (0, False) and not too_few(audit)]
    groups = ([name for name in good if audit[name].source_blind == blind] for blind in (True, False))
    return names, tuple(
        tuple(name for name in group if name == group[0] or not beats(audit, group[0], name, metric.name))
        for group in groups
        if group
    )


#: Smaller decreases of S are of no practical use, even if significant.
HARDLY = 0.01


def improves(audit: Audit, name: str) -> bool:
    """Return whether a method clearly improves the deciding metric (S by .01 or more)."""
    metric = audit.settings.outcome
    improved = audit.outcome(name, metric) == "improved"
    return improved and (metric != "S" or audit.contrast(name).value <= -HARDLY)


def badness(audit: Audit, name: str) -> float:
    """Return the deciding metric with its sign chosen so that lower is better."""
    metric = METRICS[audit.settings.outcome]
    value = audit[name].estimate(metric.name).value
    return -value if metric.better == "higher" else value


def beats(audit: Audit, a: str, b: str, metric: str) -> bool:
    """Return whether the interval shows that a is better than b (for movement: moves less)."""
    sign = -1 if METRICS[metric.partition(" ")[0]].better == "higher" else 1
    try:
        change = audit.contrast(a, b, metric)
        return max(sign * change.low, sign * change.high) < 0
    except ValueError:  # methods with different numbers of fits have no paired difference
        ends = [sorted((sign * e.low, sign * e.high)) for e in (audit[m].estimate(metric) for m in (a, b))]
        return ends[0][1] < ends[1][0]


def passed_over(audit: Audit) -> str:
    """Return the best source-blind method with a better value than the source-blind leaders.

    Empty if no such method, or no source-blind leader, exists.
    """
    names, leaders = ranking(audit)
    leading = [name for group in leaders for name in group if audit[name].source_blind]
    rest = [name for name in names if audit[name].source_blind and name not in leading]
    best = min((badness(audit, name) for name in leading), default=float("-inf"))
    better = [name for name in rest if badness(audit, name) < best and reason_against(audit, name)]
    return min(better, key=lambda name: badness(audit, name), default="")


def reason_against(audit: Audit, name: str) -> Reason:
    """Return the reason against a method leading, independent of its S; empty if it may lead."""
    if audit[name].fitted_on:
        return "duplicates" if audit.settings.duplicates else "fitted_on"
    task = task_metric(audit)
    outcome = audit.outcome(name, task.name) if task else None
    if outcome in ("suffered", "unclear"):
        return "harms" if outcome == "suffered" else "unclear_task"
    return "" if improves(audit, name) else "unclear_change"


def of_decoder(audit: Audit, name: str, metric: str) -> tuple[str, str]:
    """Return the name of a head metric as used in tables, and the source of the heads ("" for a mean)."""
    served = audit.served(name, metric)
    return served, "" if served == metric else audit[name].reference or audit.decoder


def serving(audit: Audit) -> tuple[str, ...]:
    """Return the best source-blind method for existing heads, followed by methods tied with it.

    With these methods, heads clearly improve on other sources and do not clearly lose at home. Empty without
    such methods or with too few participants.
    """
    metric = away_metric(audit)
    if not metric or too_few(audit):
        return ()
    sign = 1 if METRICS[metric].better == "lower" else -1
    good = {
        name: sign * audit[name].estimate(audit.served(name, metric)).value
        for name in audit.methods[1:]
        if audit[name].source_blind
        and not audit[name].fitted_on
        and audit.outcome(name, metric) == "improved"
        and not loses_at_home(audit, name)
    }
    best = min(good, key=lambda name: good[name], default="")
    served = audit.served(best, metric) if best else ""
    alike = [name for name in good if audit.served(name, metric) == served]
    tied = [name for name in alike if name != best and not beats(audit, best, name, served)]
    return (best, *sorted(tied, key=lambda name: good[name])) if best else ()


def loses_at_home(audit: Audit, name: str) -> bool:
    """Return whether, with a method, existing heads clearly lose on the source they were trained on."""
    metric = home_metric(audit)
    if not metric:
        return False
    served = audit.served(name, metric)
    change, before = audit.contrast(name, metric=served), audit["identity"].estimate(served).value
    return change.high < -HOME_LOSS if metric == "home" else change.low > HOME_LOSS * before


def home_loss(audit: Audit) -> str:
    """Return the first method (of the leaders, else of all) with which existing heads clearly lose at home.

    Empty without such a method; methods fitted on EVAL participants do not count.
    """
    names, leaders = ranking(audit)
    compared = [name for group in leaders for name in group] or names
    return next((n for n in compared if not audit[n].fitted_on and loses_at_home(audit, n)), "")


#: Larger losses at home come first in the verdict: in accuracy, and as a share of the error.
HOME_LOSS = 0.01


def away_metric(audit: Audit) -> str:
    """Return the name of the metric for existing heads on other sources; empty if not measured."""
    return next((m for m in ("away", "RMSEP_away") if m in audit.metrics), "")


def home_metric(audit: Audit) -> str:
    """Return the name of the metric for existing heads on their own source; empty if not measured."""
    return next((m for m in ("home", "RMSEP_home") if m in audit.metrics), "")


def most_harmed_home(audit: Audit, name: str) -> str:
    """Return the source on which its own heads lose most with a method."""
    metric, identity = home_metric(audit), audit["identity"]
    sign = 1 if metric == "home" else -1
    falls = {
        home: sign * audit.contrast(name, metric=f"{metric} {home}").value
        for home in identity.homes
        if identity.has(f"{metric} {home}")
    }
    return min(falls, key=lambda home: falls[home], default=audit.settings.sources[0])


def below_mean(audit: Audit, name: str, metric: str = "R2_f") -> bool:
    """Return whether existing regression models predict worse than the mean after a correction."""
    metric = audit.served(name, metric)
    return audit[name].has(metric) and audit[name].estimate(metric).value < 0


def task_is_read(audit: Audit) -> bool:
    """Return whether heads clearly decode the classes without correction; True for other tasks."""
    return "T_f" not in audit.metrics or audit["identity"].estimate("T_f").low > 0.5


def has_pairs(audit: Audit) -> bool:
    """Return whether the audit has pairs for fitting MGPA."""
    return audit.pairs is not None or audit.paired_rows is not None
