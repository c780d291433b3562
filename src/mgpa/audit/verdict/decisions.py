"""Which methods lead, which are tied, and why a method does not: decisions from intervals, without words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Literal, TypeVar

from ..design import TOO_FEW
from ..metrics import METRICS, Metric

if TYPE_CHECKING:
    from ..result import Audit

T = TypeVar("T")

#: Why a method does not lead, whatever its S.
Reason = Literal["duplicates", "fitted_on", "harms", "unclear_task", "unclear_change", ""]


def once(decide: Callable[[Audit], T]) -> Callable[[Audit], T]:
    """Return a decision that is taken once for every audit: all outputs rest on it."""

    @wraps(decide)
    def decided(audit: Audit) -> T:
        return audit.once(decide.__qualname__, partial(decide, audit))

    return decided


def task_metric(audit: Audit) -> Metric | None:
    """Return the metric that says whether a method kept the task; None without labels."""
    return next((METRICS[m] for m in ("T_f", "RMSEP_away") if m in audit.metrics), None)


def smallest_cell(audit: Audit) -> tuple[str, int]:
    """Return the smallest cell and its number of participants."""
    design, participants = audit.design, audit["identity"].participants
    return design.smallest_cell([p for p in participants if (p in design.travellers) == design.within])


@once
def too_few(audit: Audit) -> bool:
    """Return whether a cell has too few participants to conclude anything."""
    return smallest_cell(audit)[1] < TOO_FEW


@once
def ranking(audit: Audit) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    """Return the methods, the best first, and the leaders: source-blind ones, then source-aware ones.

    Leaders lowered S by .01 or more (or improved ``settings.outcome``, where a study names another metric)
    and kept the task. One leader is better than the others by its interval; several are tied. Methods that
    harmed the task come last. Source-aware methods use more information and compete among themselves. Too
    few participants give no leaders.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}
    task, metric = task_metric(audit), METRICS[audit.settings.outcome]

    def place(name: str) -> tuple[int, bool, float]:
        # Numbers of a map that was fitted on its EVAL participants do not count.
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


#: A smaller fall of S is of no use, however clear it is.
HARDLY = 0.01


def improves(audit: Audit, name: str) -> bool:
    """Return whether a method clearly improves the metric that methods compete for; S by .01 or more."""
    metric = audit.settings.outcome
    improved = audit.outcome(name, metric) == "improved"
    return improved and (metric != "S" or audit.contrast(name).value <= -HARDLY)


def badness(audit: Audit, name: str) -> float:
    """Return the metric that methods compete for, so that less is better."""
    metric = METRICS[audit.settings.outcome]
    value = audit[name].estimate(metric.name).value
    return -value if metric.better == "higher" else value


def beats(audit: Audit, a: str, b: str, metric: str) -> bool:
    """Return whether a is better than b by its interval; of movement, whether it moves less."""
    sign = -1 if METRICS[metric.partition(" ")[0]].better == "higher" else 1
    try:
        change = audit.contrast(a, b, metric)
        return max(sign * change.low, sign * change.high) < 0
    except ValueError:  # different numbers of fits have no paired difference
        ends = [sorted((sign * e.low, sign * e.high)) for e in (audit[m].estimate(metric) for m in (a, b))]
        return ends[0][1] < ends[1][0]


def passed_over(audit: Audit) -> str:
    """Return the best source-blind method whose value is better than the leaders'; empty if there is none.

    Without source-blind leaders there is none.
    """
    names, leaders = ranking(audit)
    leading = [name for group in leaders for name in group if audit[name].source_blind]
    rest = [name for name in names if audit[name].source_blind and name not in leading]
    best = min((badness(audit, name) for name in leading), default=float("-inf"))
    better = [name for name in rest if badness(audit, name) < best and reason_against(audit, name)]
    return min(better, key=lambda name: badness(audit, name), default="")


def reason_against(audit: Audit, name: str) -> Reason:
    """Return why a method does not lead, whatever its S; empty if it might."""
    if audit[name].fitted_on:
        return "duplicates" if audit.settings.duplicates else "fitted_on"
    task = task_metric(audit)
    outcome = audit.outcome(name, task.name) if task else None
    if outcome in ("suffered", "unclear"):
        return "harms" if outcome == "suffered" else "unclear_task"
    return "" if improves(audit, name) else "unclear_change"


def of_decoder(audit: Audit, name: str, metric: str) -> tuple[str, str]:
    """Return a metric of existing heads as tables show it, and whose heads it is of; empty for a mean."""
    served = audit.served(name, metric)
    return served, "" if served == metric else audit[name].reference or audit.decoder


def serving(audit: Audit) -> tuple[str, ...]:
    """Return the source-blind methods that serve existing heads best: the best one, then those tied with it.

    With them heads do clearly better on other sources, and do not clearly lose at home. Empty if there is
    none, or too few participants.
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
    """Return whether existing heads clearly lose on the source they were trained on, with a method."""
    metric = home_metric(audit)
    if not metric:
        return False
    served = audit.served(name, metric)
    change, before = audit.contrast(name, metric=served), audit["identity"].estimate(served).value
    return change.high < -HOME_LOSS if metric == "home" else change.low > HOME_LOSS * before


def home_loss(audit: Audit) -> str:
    """Return the first method, of the leaders or else of all, with which existing heads clearly lose at home.

    Empty if there is none; methods that were fitted on EVAL participants do not count.
    """
    names, leaders = ranking(audit)
    compared = [name for group in leaders for name in group] or names
    return next((n for n in compared if not audit[n].fitted_on and loses_at_home(audit, n)), "")


#: A fall at home by more than this is what the verdict begins with: accuracy, and a share of the error.
HOME_LOSS = 0.01


def away_metric(audit: Audit) -> str:
    """Return the metric of existing heads on other sources, at their own threshold; empty if not measured."""
    return next((m for m in ("away", "RMSEP_away") if m in audit.metrics), "")


def home_metric(audit: Audit) -> str:
    """Return the metric of existing heads on the source they were trained on; empty if not measured."""
    return next((m for m in ("home", "RMSEP_home") if m in audit.metrics), "")


def most_harmed_home(audit: Audit, name: str) -> str:
    """Return the source whose own heads lose most with a method."""
    metric, identity = home_metric(audit), audit["identity"]
    sign = 1 if metric == "home" else -1
    falls = {
        home: sign * audit.contrast(name, metric=f"{metric} {home}").value
        for home in identity.homes
        if identity.has(f"{metric} {home}")
    }
    return min(falls, key=lambda home: falls[home], default=audit.settings.sources[0])


def below_mean(audit: Audit, name: str, metric: str = "R2_f") -> bool:
    """Return whether existing regression models are worse on a method's rows than guessing the mean."""
    metric = audit.served(name, metric)
    return audit[name].has(metric) and audit[name].estimate(metric).value < 0


def task_is_read(audit: Audit) -> bool:
    """Return whether heads clearly read the task without correction, or it is not one of classes."""
    return "T_f" not in audit.metrics or audit["identity"].estimate("T_f").low > 0.5


def has_pairs(audit: Audit) -> bool:
    """Return whether there are pairs that MGPA could be fitted on."""
    return audit.pairs is not None or audit.paired_rows is not None
