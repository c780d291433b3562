"""Check requirements on methods, and compute how many participants would settle open questions."""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..estimates import Estimate, caution, number
from ..metrics import METRICS, SKEWED_LOSSES
from ..words import label
from .decisions import ranking, task_metric
from .finding import Finding

if TYPE_CHECKING:
    from ..result import Audit

# Largest useful multiple of the present number of participants.
MOST_MORE = 100
PLANNED = (1.96 + 0.84) ** 2 / 1.96**2  # factor on the number of participants for 80 % instead of 50 % power
OPERATORS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def read_requirement(text: str) -> list[tuple[str, str, str, float]]:
    """Return the clauses of a requirement: name, part ("value", "low" or "high"), comparison, bound.

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
    """Return one sentence for each method that misses a requirement; empty if all methods meet it."""
    lines = []
    for metric, part, sign, bound in read_requirement(requirement):
        for name in audit.methods[1:]:
            e = loss_of(audit, name) if metric == "loss" else audit[name].estimate(metric)
            value = round(getattr(e, part), 9)
            if not OPERATORS[sign](value, bound):
                of = metric if part == "value" else f"{metric}.{part}"
                show = number if round(bound, 3) == bound else "{:g}".format
                told = [show(x) for x in (value, bound)]
                told = [f"{x:g}" for x in (value, bound)] if told[0] == told[1] else told
                lines.append(f"{label(name)}: {of} is {told[0]}, required {sign} {told[1]}.")
    return lines


def loss_of(audit: Audit, method: str) -> Estimate:
    """Return the loss of task performance with a method."""
    task = task_metric(audit)
    if task is None:
        raise ValueError("The table has no labels, so the loss of the task was not measured.")
    change = audit.contrast(method, metric=task.name)
    if task.better == "lower":
        return change
    return replace(change, value=-change.value, low=-change.high, high=-change.low)


def participants_needed(audit: Audit) -> list[dict[str, Any]]:
    """Return the numbers of participants that settle open questions with 80 % power.

    The numbers are computed from the widths of intervals. If the half-width equals the effect, the power is
    50 %; 80 % power needs (1.96 + .84)² / 1.96² times as many participants.

    Each entry has ``question`` ("separate" or "kept"), ``methods``, ``metric``, participants ``now`` and
    ``needed`` (None: more will hardly help), and a ``sentence``.
    """
    names, leaders = ranking(audit)
    task, metric, entries = task_metric(audit), audit.settings.outcome, []
    for best, other in ((group[0], name) for group in leaders for name in group[1:]):
        change = audit.contrast(best, other, metric)
        half = (change.high - change.low) / 2
        entries.append(_needed(audit, "separate", (best, other), metric, abs(change.value), half))
    for name in names:
        if task is not None and task.kept and audit.outcome(name, task.name) == "unclear":
            loss = loss_of(audit, name)
            margin, spread = task.kept - loss.value, loss.high - loss.value
            entries.append(_needed(audit, "kept", (name,), task.name, margin, spread))
    return entries


def _needed(
    audit: Audit, question: str, methods: tuple[str, ...], metric: str, margin: float, spread: float
) -> dict[str, Any]:
    """Return the number of participants needed to answer one question, as data and as a sentence."""
    now = audit.n_people
    needed = now * PLANNED * (spread / margin) ** 2 if margin > 0 else math.inf
    if question == "kept" and margin > 0:  # allowance for skewed losses shrinks with more participants
        plans, symmetric = range(now + 1, MOST_MORE * now + 1), needed

        def settles(n: int) -> bool:
            return symmetric * caution(n, SKEWED_LOSSES) ** 2 <= n

        first = bisect_left(plans, True, key=settles)
        needed = plans[first] if first < len(plans) else math.inf
    enough = max(math.ceil(needed), now + 1) if needed <= MOST_MORE * now else None
    facts = {"units": audit.design.plural, "metric": metric, "needed": str(enough),
             "margin": number(METRICS[metric].kept or 0, ".2f")}  # fmt: skip
    sentence = str(Finding(f"{'never' if enough is None else 'enough'}_{question}", methods, facts))
    return {"question": question, "methods": methods, "metric": metric, "now": now, "needed": enough,
            "sentence": sentence}  # fmt: skip
