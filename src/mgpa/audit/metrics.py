"""What an audit measures: every metric once, with its words, its direction, and where its values come from.

Tables, verdicts, figures, the report and study files read this list; there is no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from .association import ASSOCIATIONS
from .bootstrap import Estimate
from .further_readers import FURTHER

if TYPE_CHECKING:
    from .method_result import MethodResult

Floats = NDArray[np.float64]
Values = Callable[["MethodResult"], Floats | None]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One thing that is measured.

    Attributes
    ----------
    name : str
        How it is asked for.
    title : str
        What it is, for an axis; math as matplotlib and LaTeX write it.
    subject : str
        What it is about, in a word or two: for menus, heads of columns, and sentences.
    symbol : str
        In LaTeX's math mode.
    unit : str
        "AUROC", for which .5 is guessing, or nothing: a share.
    better : "lower", "higher" or "neither"
        Which way is good.
    kept : float or None
        A change counts as kept if its interval excludes a loss of more than this.
    statistic : "mean", "max" or "worst"
        What is computed of the values, in every draw of :mod:`mgpa.audit.bootstrap`.
    values : function of a MethodResult
        The values: fits first, then participants; None if they were not measured.
    missing : str
        Why they may not have been measured.
    part_of : str
        The metric it is a part of; parts have no column of their own.
    """

    name: str
    title: str
    subject: str
    symbol: str
    unit: Literal["AUROC", ""] = "AUROC"
    better: Literal["lower", "higher", "neither"] = "higher"
    kept: float | None = None
    statistic: str = "mean"
    values: Values
    missing: str
    part_of: str = ""

    @property
    def axis(self) -> str:
        """The title with its unit."""
        return self._with_unit(self.title)

    @property
    def short(self) -> str:
        """Name, subject and unit, for menus."""
        return self._with_unit(f"{self.name}, {self.subject}")

    @property
    def hint(self) -> str:
        """What a column is about, and which way is good."""
        return self.subject if self.better == "neither" else f"{self.subject}, {self.better} is better"

    @property
    def wanted(self) -> str:
        """The name and what one wants of it, for a narrow column.

        Examples
        --------
        >>> METRICS["S"].wanted, METRICS["T_f"].wanted, METRICS["M"].wanted
        ('S (want .5)', 'T_f (want high)', 'M')
        """
        want = {"lower": ".5" if self.unit == "AUROC" else "low", "higher": "high", "neither": ""}[
            self.better
        ]
        return f"{self.name} (want {want})" if want else self.name

    @property
    def latex(self) -> str:
        """The symbol with the paper's arrow."""
        arrow = {"lower": r"\downarrow", "higher": r"\uparrow", "neither": ""}[self.better]
        return f"${self.symbol}{arrow}$"

    def _with_unit(self, text: str) -> str:
        return f"{text} ({self.unit})" if self.unit else text

    def outcome(self, change: Estimate) -> Literal["improved", "kept", "suffered", "unclear"]:
        """Return what a change of this metric amounts to.

        Examples
        --------
        >>> METRICS["T_f"].outcome(Estimate(-0.002, -0.009, 0.004))
        'kept'
        >>> METRICS["S"].outcome(Estimate(-0.2, -0.3, -0.1))
        'improved'
        """
        gain = (-change.high, -change.low) if self.better == "lower" else (change.low, change.high)
        if gain[0] > 0:
            return "improved"
        if self.kept is not None and gain[0] >= -self.kept:
            return "kept"
        return "suffered" if gain[1] < 0 else "unclear"


def _readers(pattern: str) -> Values:
    """Return the AUROC of the readers that have such names."""

    def values(result: MethodResult) -> Floats | None:
        chosen = [i for i, reader in enumerate(result.readers) if re.fullmatch(pattern, reader)]
        return result.source_auroc[..., chosen] if chosen else None

    return values


def _paper_readers(result: MethodResult) -> Floats | None:
    """Return the AUROC of the paper's readers, if there are others besides."""
    further = [reader.rpartition(" ")[2] in FURTHER for reader in result.readers]
    return result.source_auroc[..., ~np.array(further)] if any(further) else None


def _transfer(heads: str, direction: str | None = None) -> Values:
    """Return the task AUROC of heads in one direction of transfer, or on average over all."""

    def values(result: MethodResult) -> Floats | None:
        found: Floats | None = getattr(result, heads)
        if found is None or direction is None:
            return None if found is None else found.mean(axis=2)
        at = [i for i, name in enumerate(result.directions) if name == direction]
        return found[..., at[0]] if at else None

    return values


def _association(head: str, xi: float) -> Values:
    """Return the AUROC of the shortcut or the control head at one association."""

    def values(result: MethodResult) -> Floats | None:
        found: Floats | None = getattr(result, head)
        return None if found is None else found[..., ASSOCIATIONS.index(xi)]

    return values


#: What linear readers are called.
LINEAR = r"(.* )?(whitened_)?linear(_raw|_standardized)?"
_NO_LABELS = "the table has no labels."
_NO_READERS = "its bank has no such readers."
_PAPER_BANK = "all its readers are the paper's, so S itself is that number."
_NO_SHIFT = (
    "association shift needs paired events of two sources and two classes in HEAD and in EVAL, and two HEAD "
    "participants or more."
)
_NO_GATE = "only methods with a gate preserve something by design, and floor=False leaves it out."
# The paper's selection rule: a task is kept if a loss of more than this is excluded.
_KEPT = 0.01
# Which heads of a MethodResult a task metric is of.
_HEADS = {"T_f": "frozen", "T_r": "refitted"}

#: Every metric by its name; find_metric() also knows single directions of transfer.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="S", title="Source accessibility $S$", subject="source readable", symbol="S", better="lower",
            statistic="max", values=lambda result: result.source_auroc, missing="",
        ),
        Metric(
            name="T_f", title="Frozen-head task $T_f$", subject="existing heads", symbol="T_f", kept=_KEPT,
            values=_transfer(_HEADS["T_f"]), missing=_NO_LABELS,
        ),
        Metric(
            name="T_r", title="Refitted-head task $T_r$", subject="refitted heads", symbol="T_r", kept=_KEPT,
            values=_transfer(_HEADS["T_r"]), missing=_NO_LABELS,
        ),
        Metric(
            name="M", title="Relative movement $M$", subject="relative movement", symbol="M", unit="",
            better="neither", values=lambda result: result.movement, missing="",
        ),
        Metric(
            name="worst", title="Shortcut head, worst association", subject="shortcut head",
            symbol=r"\mathrm{Worst}", statistic="worst", values=lambda result: result.shortcut,
            missing=_NO_SHIFT,
        ),
        Metric(
            name="control", title="Control head", subject="head without the shortcut",
            symbol=r"\mathrm{Control}", values=_association("control", 0.0), missing=_NO_SHIFT,
        ),
        Metric(
            name="floor", title="Source floor", subject="source in what the gate keeps",
            symbol=r"\mathrm{Floor}", better="neither", statistic="max",
            values=lambda result: result.floor_auroc, missing=_NO_GATE,
        ),
        Metric(
            name="S_paper", title="Source accessibility $S$, the paper's readers",
            subject="source, the paper's readers", symbol=r"S_{\mathrm{paper}}", better="lower",
            statistic="max", part_of="S", missing=_PAPER_BANK, values=_paper_readers,
        ),
        Metric(
            name="L", title="Linear source accessibility $L$", subject="source, linear readers", symbol="L",
            better="lower", statistic="max", part_of="S", missing=_NO_READERS,
            values=_readers(LINEAR),
        ),
        Metric(
            name="S_mean", title="Source accessibility of token means", subject="source, token means",
            symbol=r"S_{\mathrm{mean}}", better="lower", statistic="max", part_of="S", missing=_NO_READERS,
            values=_readers(r"mean .*"),
        ),
        *(
            Metric(
                name=name, title=f"Shortcut head, {name} association", subject=f"shortcut head, {name}",
                symbol=rf"\mathrm{{{name.capitalize()}}}", part_of="worst", missing=_NO_SHIFT,
                values=_association("shortcut", xi),
            )
            for name, xi in (("aligned", 1.0), ("independent", 0.0), ("reversed", -1.0))
        ),
    )
}  # fmt: skip


def find_metric(name: str) -> Metric:
    """Return a metric by its name: one of ``METRICS``, or one direction of transfer.

    Examples
    --------
    >>> find_metric("T_f dry → wet").axis
    'Frozen-head task $T_f$, dry → wet (AUROC)'
    """
    if name in METRICS:
        return METRICS[name]
    task, _, direction = name.partition(" ")
    if task in _HEADS and " → " in direction:
        whole = METRICS[task]
        return replace(
            whole,
            name=name,
            title=f"{whole.title}, {direction}",
            subject=f"{whole.subject}, {direction}",
            values=_transfer(_HEADS[task], direction),
            missing="the table has no labels, or no heads go that way.",
            part_of=task,
        )
    raise ValueError(
        f"There is no metric {name!r}; known: {', '.join(METRICS)}, and directions, as 'T_f dry → wet'."
    )
