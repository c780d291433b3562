"""A study's numbers, row by row: every estimate and every contrast, beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..audit import Audit, Estimate
from ..audit.metrics import METRICS
from .run import StudyResult


@dataclass(frozen=True)
class Row:
    """One number of a study: of a method, or of a difference between two; ``fit_…`` are single fits' ends."""

    task: str
    method: str
    against: str
    metric: str
    value: float
    low: float
    high: float
    paper: float | None = None
    paper_low: float | None = None
    paper_high: float | None = None
    fit_low: float | None = None
    fit_high: float | None = None

    @property
    def difference(self) -> float | None:
        """This run's value minus the paper's."""
        return None if self.paper is None else self.value - self.paper

    @property
    def estimate(self) -> Estimate:
        """The value with its interval."""
        return Estimate(self.value, self.low, self.high)


def estimates(result: StudyResult) -> Iterator[Row]:
    """Yield every metric of every method, beside the paper's where it has one."""
    # What lies behind the worst association, where that is the outcome; which readers set S.
    wholes = ("worst", "S") if result.study.reuse is not None else ("S",)
    parts = [name for whole in wholes for name, metric in METRICS.items() if metric.part_of == whole]
    for task, audit in result.audits.items():
        directions = [f"{t} {way}" for t in ("T_f", "T_r") for way in audit["identity"].directions]
        for name, values in audit.estimates.items():
            more = {m: audit[name].estimate(m) for m in (*parts, *directions) if audit[name].has(m)}
            for metric, e in (values | more).items():
                paper = result.study.paper.get(name, {}).get(f"{task} {metric}".strip())
                ends = fit_range(audit, name, metric)
                yield Row(task, name, "", metric, e.value, e.low, e.high, paper, None, None, *ends)


def contrasts(result: StudyResult) -> Iterator[Row]:
    """Yield every difference that the study declares, beside the paper's where it has one."""
    for task, audit in result.audits.items():
        for plan in result.study.contrasts:
            if not {plan.a, plan.b} <= set(audit.methods):  # one of them was left out
                continue
            for metric in plan.metrics:
                if audit[plan.a].has(metric) and audit[plan.b].has(metric):
                    e = audit.contrast(plan.a, plan.b, metric)
                    paper = plan.paper.get(f"{task} {metric}".strip(), (None, None, None))
                    yield Row(task, plan.a, plan.b, metric, e.value, e.low, e.high, *paper)


def fit_range(audit: Audit, name: str, metric: str) -> tuple[float | None, float | None]:
    """Return a metric's smallest and largest value among a method's fits; none if it has one fit."""
    from ..audit.bootstrap import estimate

    statistic, values = audit[name].values(metric)
    if len(values) < 2:
        return None, None
    single = [estimate(values[i : i + 1], statistic).value for i in range(len(values))]
    return float(np.min(single)), float(np.max(single))


def slug(task: str) -> str:
    """Return a task's name as it stands in names of files."""
    return "".join(c if c.isalnum() else "-" for c in task)
