"""All metrics of an audit, with their names, desired directions, and functions that compute their values.

Tables, verdicts, figures, the report and study files use this list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from . import values as of
from .bootstrap import Statistic
from .estimates import Estimate, caution

#: Smaller changes of a share are printed as .000.
SMALLEST = 0.0005
# Skewness of participants assumed for claims. Gains: the skewness if one in ten participants has no gain.
# Losses: that of a lognormal variable (σ = 1), because overlooked harm is the worse error; see
# how_often_wrong.md.
SKEWED_GAINS, SKEWED_LOSSES = 8 / 3, 6.2


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of an audit.

    Attributes
    ----------
    name, title, subject : str
        The name in code, the title on axes, and the subject in sentences.
    unit : str
        "AUROC" (chance .5), "balanced accuracy", "units of the label", "bits", "share", or empty.
    better : "lower", "higher" or "neither"
        The better direction.
    kept : float or None
        A metric is called kept if the interval of its change excludes a loss of more than this.
    statistic, values : "mean", "max", "worst" or function, function of a MethodResult
        The statistic of every draw (:mod:`mgpa.audit.bootstrap`), and its values: fits first, then units.
        None if the metric was not measured, NaN for units without values.
    missing : str
        The possible reason if the metric was not measured.
    part_of : str
        The metric of which this is a part; parts have no separate column.
    """

    name: str
    title: str
    subject: str
    unit: Literal["AUROC", "balanced accuracy", "units of the label", "bits", "share", ""] = "AUROC"
    better: Literal["lower", "higher", "neither"] = "higher"
    kept: float | None = None
    statistic: Statistic = "mean"
    values: of.Values
    missing: str = ""
    part_of: str = ""

    @property
    def compares(self) -> str:
        """The quantity that this metric compares between units: "sources", "labels", or "" for none."""
        if self.statistic == "max":
            return "sources"
        return "labels" if self.unit == "AUROC" and self.kept is not None else ""

    @property
    def axis(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def hint(self) -> str:
        """The subject and the better direction."""
        return self.subject if self.better == "neither" else f"{self.subject}, {self.better} is better"

    @property
    def wanted(self) -> str:
        """The name and the desired value, for a narrow column: "S (want .5)", "T_f (want high)", "M"."""
        low = ".5" if self.unit == "AUROC" else "low"
        return self.name + {"lower": f" (want {low})", "higher": " (want high)", "neither": ""}[self.better]

    def outcome(self, change: Estimate) -> Literal["improved", "kept", "suffered", "unclear"]:
        """Return the outcome of a change; changes that print as .000 count as none.

        A metric improved if the interval of the change excludes zero, and is kept if the interval excludes a
        loss of ``kept``. Intervals are lengthened first, because the values of participants may be skewed
        (:func:`~mgpa.audit.estimates.caution`).
        """
        gain = (-change.high, -change.low) if self.better == "lower" else (change.low, change.high)
        value = -change.value if self.better == "lower" else change.value
        visible = self.unit not in ("AUROC", "balanced accuracy", "share") or abs(change.value) >= SMALLEST
        n, below = change.participants, value - gain[0]
        if value > caution(n, SKEWED_GAINS) * below and gain[0] > 0 and visible:
            return "improved"
        if self.kept is not None and value - caution(n, SKEWED_LOSSES) * below >= -self.kept:
            return "kept"
        return "suffered" if gain[1] < 0 and visible else "unclear"


#: Name pattern of linear readers.
LINEAR = r"(.* )?(whitened_)?linear(_raw|_standardized)?"
_NO_LABELS = "the labels are not classes, or fewer than two sources have all classes."
_NO_NUMBERS = "the labels of the table are not numbers."
_NOT_MIXED = "the design is not mixed."
_NO_READERS = "the audit has no such readers."
_PAPER_BANK = "all readers are the paper's, so S_paper equals S."
_NO_SHIFT = (
    "association shift needs paired events of two sources and two classes in HEAD and in EVAL, and two HEAD "
    "participants or more."
)
_NO_BITS = "it needs a gate, floor=True, and two EVAL participants or more."
_NO_GATE = "it needs floor=True and a method with a gate that does not span all directions."
_NO_HOME = "a fitted head= needs head_source=, the source it was trained on."
_NOT_POOLED = "the labels are not classes or numbers, or the readers are the paper's."
_NOT_UNSEEN = (
    "it needs three sources or more, and a source-blind method that the audit fits on pairs of the table."
)
_NO_AGREEMENT = "no EVAL unit has several sources, or the heads give no such output."
# The paper's selection rule: a task is kept if larger losses are excluded.
_KEPT = 0.01
_HEADS = {"f": ("frozen", "existing heads"), "r": ("refitted", "refitted heads")}


def _source_metric(name: str, title: str, subject: str, values: of.Values, missing: str = "") -> Metric:
    """Return a metric of source readers; all such metrics except S are parts of S."""
    part_of = "" if name == "S" else "S"
    return Metric(name=name, title=title, subject=subject, better="lower", statistic="max",
                  values=values, missing=missing, part_of=part_of)  # fmt: skip


def _task_metrics(letter: str, accurate: Metric, wrong: Metric) -> tuple[Metric, ...]:
    """Return the metrics of existing ("f") or refitted ("r") heads on sources other than their own.

    For existing heads, accuracy and error away from home also have names without a subscript.
    """
    heads, subject = _HEADS[letter]
    task = Metric(
        name=f"T_{letter}", title=f"Task of {subject} $T_{letter}$", subject=f"task, {subject}",
        kept=_KEPT, values=of.primary(of.transfer(heads)), missing=_NO_LABELS,
    )  # fmt: skip
    short = {f"A_{letter}": accurate, f"RMSEP_{letter}": wrong}
    return (
        accurate, task, wrong,
        *(replace(m, name=name, part_of=m.name) for name, m in short.items() if name != m.name),
        Metric(
            name=f"bias_{letter}", title=f"Size of the bias of {subject}", subject=f"bias, {subject}",
            unit="units of the label", better="lower", missing=_NO_NUMBERS,
            statistic=of.mean_size, values=of.each_direction(f"{heads}_bias"),
        ),
        Metric(
            name=f"R2_{letter}", title=f"$R^2$ of {subject}", subject=f"explained, {subject}",
            unit="", statistic=lambda means: 1.0 - means[..., 0],
            values=of.transfer(f"{heads}_relative"), missing=_NO_NUMBERS,
        ),
        *(
            replace(task, name=f"T_{letter}_{word}", title=f"{task.title}, units that {word}",
                    subject=f"task, {subject}, {word}", part_of=f"T_{letter}", missing=_NOT_MIXED,
                    values=of.group(word == "travelled", of.transfer(heads)))
            for word in ("travelled", "stayed")
        ),
    )  # fmt: skip


def _error_metric(name: str, title: str, subject: str, heads: str, missing: str) -> Metric:
    """Return the root mean squared error of heads."""
    return Metric(
        name=name, title=f"Root mean squared error of {title}", subject=subject, unit="units of the label",
        better="lower", statistic=lambda means: np.sqrt(means[..., 0]), values=of.transfer(f"{heads}_square"),
        missing=missing,
    )  # fmt: skip


def _accuracy_metric(name: str, title: str, subject: str, heads: str, missing: str) -> Metric:
    """Return the balanced accuracy of heads at their own threshold."""
    return Metric(
        name=name, title=f"Balanced accuracy of {title}", subject=subject, unit="balanced accuracy",
        values=of.transfer(f"{heads}_accuracy"), missing=missing,
    )  # fmt: skip


#: All metrics by name; find_metric() also accepts single directions of transfer.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _source_metric("S", "Source accessibility $S$", "source readable", of.readers(".*")),
        replace(_accuracy_metric("home", "existing heads at home", "accuracy at home", "home",
                                 _NO_HOME), kept=_KEPT),
        _error_metric("RMSEP_home", "existing heads at home", "error at home", "home",
                      _NO_HOME),
        *_task_metrics(
            "f",
            _accuracy_metric("away", "existing heads away from home", "accuracy away", "frozen", _NO_LABELS),
            _error_metric("RMSEP_away", "existing heads away from home", "error away", "frozen", _NO_NUMBERS),
        ),
        Metric(
            name="shift_f", title="Threshold shift of existing heads", unit="share", better="lower",
            subject="threshold shift", missing="the labels are not two classes.",
            statistic=of.mean_size, values=of.each_direction("frozen_shift"),
        ),
        *_task_metrics(
            "r",
            _accuracy_metric("A_r", "refitted heads", "accuracy, refitted heads", "refitted", _NO_LABELS),
            _error_metric("RMSEP_r", "refitted heads", "error, refitted heads", "refitted", _NO_NUMBERS),
        ),
        Metric(
            name="T_p", title="Pooled-head task $T_p$", subject="task, heads refitted on all sources",
            values=of.primary(of.transfer("pooled")), missing=_NOT_POOLED, kept=_KEPT,
        ),
        _accuracy_metric("A_p", "heads refitted on all sources", "accuracy, heads refitted on all sources",
                         "pooled", _NOT_POOLED),
        _error_metric("RMSEP_p", "heads refitted on all sources", "error, heads refitted on all sources",
                      "pooled", _NOT_POOLED),
        Metric(
            name="T_u", title="Task on an unseen source $T_u$", subject="task, unseen source",
            values=of.primary(of.transfer("unseen")), missing=_NOT_UNSEEN,
        ),
        _accuracy_metric("A_u", "heads on an unseen source", "accuracy, unseen source", "unseen",
                         _NOT_UNSEEN),
        _error_metric("RMSEP_u", "heads on an unseen source", "error, unseen source", "unseen",
                      _NOT_UNSEEN),
        Metric(
            name="recall", title="Balanced accuracy away, worst class", unit="balanced accuracy",
            subject="accuracy away, worst class", missing=_NO_LABELS, part_of="away",
            statistic=lambda means: means.min(axis=-1), values=of.each_direction("recall"),
        ),
        Metric(
            name="flips", title="Predictions that differ between sources", unit="share", better="lower",
            subject="predictions that differ", values=lambda result: result.flips, missing=_NO_AGREEMENT,
        ),
        Metric(
            name="output_change", title="Difference of existing heads' outputs between sources", unit="",
            subject="output change between sources", better="lower",
            values=lambda result: result.output_change, missing=_NO_AGREEMENT,
        ),
        Metric(
            name="M", title="Relative movement $M$", subject="relative movement", unit="",
            better="neither", values=lambda result: result.movement,
        ),
        Metric(
            name="worst", title="Shortcut head, worst association", subject="shortcut head",
            statistic="worst", values=lambda result: result.shortcut,
            missing=_NO_SHIFT,
        ),
        Metric(
            name="control", title="Control head", subject="head without the shortcut",
            values=of.association("control", 0.0), missing=_NO_SHIFT,
        ),
        Metric(
            name="floor", title="Source floor", subject="source in the preserved part",
            better="neither", statistic="max",
            values=of.primary(lambda result: result.floor_auroc, "sources"), missing=_NO_GATE,
        ),
        *(
            _source_metric(f"S_{word}", f"Source accessibility $S$, units that {word}", f"source, {word}",
                           of.group(word == "travelled", lambda result: result.source_auroc), _NOT_MIXED)
            for word in ("travelled", "stayed")
        ),
        _source_metric("S_paper", "Source accessibility $S$, the paper's readers",
                       "source, the paper's readers", of.primary(of.paper_readers, "sources"), _PAPER_BANK),
        Metric(
            name="twin", title="Twin accuracy", subject="source of both views of an event", unit="share",
            better="lower", statistic="max", values=of.measured("twin"),
            missing="EVAL has no events that two sources recorded (pair_id).",
        ),
        Metric(
            name="I_Q", title="Source information outside the gate, $I(U; Q)$",
            subject="bits outside the gate", unit="bits", better="neither",
            values=of.measured("information_q"), missing=_NO_BITS,
        ),
        Metric(
            name="I_R", title=r"Source information left in the gate, $I(U; R \mid Q)$",
            subject="bits left in the gate", unit="bits", better="lower",
            values=of.measured("information_r"), missing=_NO_BITS,
        ),
        Metric(
            name="identity", title="Recognition of participants", subject="recognition of participants",
            better="neither", values=of.measured("identity"),
            missing="EVAL has no two participants with four rows or more.",
        ),
        _source_metric("L", "Linear source accessibility $L$", "source, linear readers", of.readers(LINEAR),
                       _NO_READERS),
        _source_metric("S_mean", "Source accessibility of token means", "source, token means",
                       of.readers(r"mean .*"), _NO_READERS),
        _source_metric("S_direct", "Source accessibility of all tokens", "source, all tokens",
                       of.readers(r"tokens .*"), _NO_READERS),
        _source_metric("S_residual", "Source accessibility of token differences",
                       "source, token differences", of.readers(r"residual .*"), _NO_READERS),
        *(
            Metric(
                name=name, title=f"Shortcut head, {name} association", subject=f"shortcut head, {name}",
                part_of="worst", missing=_NO_SHIFT,
                values=of.association("shortcut", xi),
            )
            for name, xi in (("aligned", 1.0), ("independent", 0.0), ("reversed", -1.0))
        ),
    )
}  # fmt: skip


@cache
def find_metric(name: str) -> Metric:
    """Return a metric by name: one of ``METRICS``, or a single direction of transfer (with signed biases).

    Examples
    --------
    >>> find_metric("T_f dry → wet").axis
    'Task of existing heads $T_f$, dry → wet (AUROC)'
    """
    if name in METRICS:
        return METRICS[name]
    task, _, direction = name.partition(" ")
    if not direction or task not in DIRECTED or task not in METRICS:
        names = f"{', '.join(METRICS)}, and directions, as 'T_f dry → wet' and 'home dry'"
        raise ValueError(f"No metric {name!r}. Metrics: {names}.")
    return _one_direction(METRICS[task], direction)


def _one_direction(whole: Metric, direction: str) -> Metric:
    """Return a metric in one direction of transfer."""
    heads, what = DIRECTED[whole.name]
    one = replace(whole, name=f"{whole.name} {direction}", title=f"{whole.title}, {direction}",
                  part_of=whole.name, subject=f"{whole.subject}, {direction}",
                  values=of.transfer(f"{heads}{what}", direction),
                  missing="the table has no labels, or no head for this direction.")  # fmt: skip
    return replace(one, statistic="mean", better="neither") if what in ("_bias", "_shift") else one


#: Metrics of heads that exist for each direction, source or class: the heads, and the measurement.
DIRECTED = {
    "home": ("home", "_accuracy"), "RMSEP_home": ("home", "_square"), "away": ("frozen", "_accuracy"),
    "RMSEP_away": ("frozen", "_square"), "A_p": ("pooled", "_accuracy"), "RMSEP_p": ("pooled", "_square"),
    "T_p": ("pooled", ""), "T_u": ("unseen", ""), "A_u": ("unseen", "_accuracy"),
    "RMSEP_u": ("unseen", "_square"), "recall": ("recall", ""),
} | {
    f"{short}_{letter}": (heads, what)
    for letter, (heads, _) in _HEADS.items()
    for short, what in (("T", ""), ("shift", "_shift"), ("A", "_accuracy"), ("RMSEP", "_square"),
                        ("bias", "_bias"), ("R2", "_relative"))
}  # fmt: skip
#: Metrics of existing heads that may refer to one source, if a method has a reference.
SERVED = {name: DIRECTED[name][0] for name in ("home", "RMSEP_home", "away", "RMSEP_away", "T_f", "R2_f")}
