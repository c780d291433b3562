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
from .bootstrap import Estimate, Statistic
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
        "AUROC", for which .5 is guessing, "balanced accuracy", "units of the label", or nothing: a share.
    better : "lower", "higher" or "neither"
        Which way is good.
    kept : float or None
        A change counts as kept if its interval excludes a loss of more than this.
    statistic : "mean", "max", "worst" or function
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
    unit: Literal["AUROC", "balanced accuracy", "units of the label", ""] = "AUROC"
    better: Literal["lower", "higher", "neither"] = "higher"
    kept: float | None = None
    statistic: Statistic = "mean"
    values: Values
    missing: str
    part_of: str = ""

    @property
    def compares(self) -> str:
        """What values compare: "sources" or "labels"; nothing, if each is of a unit alone."""
        return "sources" if self.statistic == "max" else "labels" if self.kept is not None else ""

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

    return _primary(values)


def _paper_readers(result: MethodResult) -> Floats | None:
    """Return the AUROC of the paper's readers, if there are others besides."""
    further = [reader.rpartition(" ")[2] in FURTHER for reader in result.readers]
    return result.source_auroc[..., ~np.array(further)] if any(further) else None


def _transfer(heads: str, direction: str | None = None) -> Values:
    """Return what heads do to units in one direction of transfer, or on average over all that they have."""

    def values(result: MethodResult) -> Floats | None:
        measured = result.heads.get(heads)
        if measured is None or direction is None:
            return None if measured is None else nan_mean(measured)
        at = [i for i, name in enumerate(result.directions) if name == direction]
        return measured[..., at[0]] if at else None

    return values


def nan_mean(values: Floats) -> Floats:
    """Return the mean over the last axis of what there is; NaN where there is nothing."""
    present = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(present, values, 0.0).sum(axis=-1) / present.sum(axis=-1))


def _each_direction(heads: str) -> Values:
    """Return values of every direction whose means over units are those of the units that have it."""

    def values(result: MethodResult) -> Floats | None:
        measured = result.heads.get(heads)
        if measured is None:
            return None
        present = ~np.isnan(measured[0])
        weight = result.resampling.weights(measured.shape[1])
        return np.asarray(np.where(present, measured, 0.0) / (weight @ present))

    return values


def _column(values: Values) -> Values:
    def column(result: MethodResult) -> Floats | None:
        found = values(result)
        return None if found is None else found[..., None]

    return column


def _root_mean(means: Floats) -> Floats:
    return np.sqrt(means[..., 0])


def _explained(means: Floats) -> Floats:
    return 1.0 - means[..., 0]


def _mean_size(means: Floats) -> Floats:
    return np.asarray(np.abs(means).mean(axis=-1))


def _group(travelled: bool, values: Values) -> Values:
    """Return values of units that travelled, or that did not; NaN for the others, None if all are alike."""

    def chosen(result: MethodResult) -> Floats | None:
        found, went = values(result), result.travelled
        if found is None or went.all() or not went.any() or (went == travelled).sum() < 2:
            return None
        mask = (went == travelled).reshape(1, -1, *[1] * (found.ndim - 2))
        return np.where(mask, found, np.nan)

    return chosen


def _primary(values: Values) -> Values:
    """Return values of the larger group of a mixed design; of any other, all."""

    def chosen(result: MethodResult) -> Floats | None:
        grouped = _group(bool(result.travelled.mean() > 0.5), values)(result)
        return values(result) if grouped is None else grouped

    return chosen


def _association(head: str, xi: float) -> Values:
    """Return the AUROC of the shortcut or the control head at one association."""

    def values(result: MethodResult) -> Floats | None:
        found: Floats | None = getattr(result, head)
        return None if found is None else found[..., ASSOCIATIONS.index(xi)]

    return values


#: What linear readers are called.
LINEAR = r"(.* )?(whitened_)?linear(_raw|_standardized)?"
_NO_LABELS = "the table has no classes as labels, or no two sources have all of them."
_NO_NUMBERS = "the labels of the table are not numbers."
_NOT_MIXED = "the design is not mixed, or this is the larger group."
_NO_READERS = "its bank has no such readers."
_PAPER_BANK = "all its readers are the paper's, so S itself is that number."
_NO_SHIFT = (
    "association shift needs paired events of two sources and two classes in HEAD and in EVAL, and two HEAD "
    "participants or more."
)
_NO_GATE = "only methods with a gate preserve something by design, and floor=False leaves it out."
# The paper's selection rule: a task is kept if a loss of more than this is excluded.
_KEPT = 0.01
# Which of a MethodResult's ``heads`` a task metric is of.
_HEADS = {
    f"{metric}_{letter}": f"{heads}{what}"
    for letter, heads in (("f", "frozen"), ("r", "refitted"))
    for metric, what in (("T", ""), ("A", "_accuracy"), ("RMSEP", "_square"), ("bias", "_bias"))
}


def _head_metrics(letter: str) -> tuple[Metric, ...]:
    """Return the measures of existing ("f") or refitted ("r") heads besides AUROC."""
    heads, subject = {"f": ("frozen", "existing heads"), "r": ("refitted", "refitted heads")}[letter]
    return (
        Metric(
            name=f"A_{letter}", title=f"Balanced accuracy of {subject} $A_{letter}$",
            subject=f"accuracy, {subject}", symbol=f"A_{letter}", unit="balanced accuracy",
            values=_transfer(f"{heads}_accuracy"), missing=_NO_LABELS,
        ),
        Metric(
            name=f"RMSEP_{letter}", title=f"Root mean squared error of {subject}",
            subject=f"error, {subject}", symbol=rf"\mathrm{{RMSEP}}_{letter}", unit="units of the label",
            better="lower", statistic=_root_mean, values=_column(_transfer(f"{heads}_square")),
            missing=_NO_NUMBERS,
        ),
        Metric(
            name=f"bias_{letter}", title=f"Size of the bias of {subject}", subject=f"bias, {subject}",
            symbol=rf"|\mathrm{{bias}}|_{letter}", unit="units of the label", better="lower",
            statistic=_mean_size, values=_each_direction(f"{heads}_bias"), missing=_NO_NUMBERS,
        ),
        Metric(
            name=f"R2_{letter}", title=f"$R^2$ of {subject}", subject=f"explained, {subject}",
            symbol=f"R^2_{letter}", unit="", statistic=_explained,
            values=_column(_transfer(f"{heads}_relative")), missing=_NO_NUMBERS,
        ),
    )  # fmt: skip


def _group_metrics(word: str) -> tuple[Metric, ...]:
    """Return source and task of the units that travelled, or stayed, in a mixed design."""
    travelled = word == "travelled"
    return (
        Metric(
            name=f"S_{word}", title=f"Source accessibility $S$, units that {word}", subject=f"source, {word}",
            symbol=rf"S_{{\mathrm{{{word}}}}}", better="lower", statistic="max",
            part_of="S", missing=_NOT_MIXED, values=_group(travelled, lambda result: result.source_auroc),
        ),
        *(
            Metric(
                name=f"T_{letter}_{word}", title=f"Task $T_{letter}$, units that {word}",
                subject=f"{subject}, {word}", symbol=rf"T_{{{letter},\mathrm{{{word}}}}}", kept=_KEPT,
                part_of=f"T_{letter}", missing=_NOT_MIXED,
                values=_group(travelled, _transfer(_HEADS[f"T_{letter}"])),
            )
            for letter, subject in (("f", "existing heads"), ("r", "refitted heads"))
        ),
    )  # fmt: skip


#: Every metric by its name; find_metric() also knows single directions of transfer.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="S", title="Source accessibility $S$", subject="source readable", symbol="S", better="lower",
            statistic="max", values=_primary(lambda result: result.source_auroc), missing="",
        ),
        Metric(
            name="T_f", title="Frozen-head task $T_f$", subject="existing heads", symbol="T_f", kept=_KEPT,
            values=_primary(_transfer(_HEADS["T_f"])), missing=_NO_LABELS,
        ),
        Metric(
            name="T_r", title="Refitted-head task $T_r$", subject="refitted heads", symbol="T_r", kept=_KEPT,
            values=_primary(_transfer(_HEADS["T_r"])), missing=_NO_LABELS,
        ),
        *(metric for letter in "fr" for metric in _head_metrics(letter)),
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
            values=_primary(lambda result: result.floor_auroc), missing=_NO_GATE,
        ),
        *(metric for word in ("travelled", "stayed") for metric in _group_metrics(word)),
        Metric(
            name="S_paper", title="Source accessibility $S$, the paper's readers",
            subject="source, the paper's readers", symbol=r"S_{\mathrm{paper}}", better="lower",
            statistic="max", part_of="S", missing=_PAPER_BANK, values=_primary(_paper_readers),
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
        Metric(
            name="S_direct", title="Source accessibility of all tokens", subject="source, all tokens",
            symbol=r"S_{\mathrm{direct}}", better="lower", statistic="max", part_of="S", missing=_NO_READERS,
            values=_readers(r"tokens .*"),
        ),
        Metric(
            name="S_residual", title="Source accessibility of token differences",
            subject="source, token differences", symbol=r"S_{\mathrm{residual}}", better="lower",
            statistic="max", part_of="S", missing=_NO_READERS, values=_readers(r"residual .*"),
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
        values, statistic = _transfer(_HEADS[task], direction), whole.statistic
        if task.startswith("RMSEP"):  # functions take a column
            values, statistic = _column(values), _root_mean
        return replace(
            whole,
            name=name,
            title=f"{whole.title}, {direction}",
            subject=f"{whole.subject}, {direction}",
            statistic="mean" if task.startswith("bias") else statistic,
            better="neither" if task.startswith("bias") else whole.better,
            values=values,
            missing="the table has no labels, or no heads go that way.",
            part_of=task,
        )
    raise ValueError(
        f"There is no metric {name!r}; known: {', '.join(METRICS)}, and directions, as 'T_f dry → wet'."
    )
