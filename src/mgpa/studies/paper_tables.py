"""Which numbers and words stand where in the paper's tables, by study, method and metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTROLLED, N170, RECORDED, REUSE = "controlled-ssvep", "temporal-n170", "recorded-ssvep", "p300-reuse"
BLIND, AWARE = "Source-blind correction", "Source-aware alignment"
TASKS = ("P300", "N170", "MMN")


@dataclass(frozen=True)
class Column:
    """A column of numbers; ``over`` is a heading above several of them."""

    head: str
    study: str = ""
    metric: str = ""
    task: str = ""
    over: str = ""
    digits: int = 3
    percent: bool = False
    interval: bool = False


@dataclass(frozen=True)
class Line:
    """A row: its labels, then the numbers of a method, or of its difference from another; or words."""

    labels: tuple[str, ...]
    method: str = ""
    against: str = ""
    task: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table of the paper; of one in two parts, names are "8A" and "8B"."""

    name: str
    title: str
    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def studies(self) -> set[str]:
        """The studies that its numbers come from."""
        return {column.study for column in self.columns if column.study}


def _outcomes(
    study: str, over: str = "", digits: int = 3, heads: str = "S ↓,T_f ↑,T_r ↑,M"
) -> tuple[Column, ...]:
    metrics = ("S", "T_f", "T_r", "M")
    return tuple(
        Column(head, study, metric, over=over, digits=digits)
        for head, metric in zip(heads.split(","), metrics, strict=True)
    )


def _lines(*methods: str, of_two: bool = True) -> tuple[Line, ...]:
    """Return a line for each method; of "Shown=name", the first is printed."""
    lines = []
    for method in methods:
        shown, _, name = method.partition("=")
        kind = AWARE if shown.startswith(("CORAL", "FEATMAP")) else BLIND
        lines.append(Line((kind, shown) if of_two else (shown,), name or shown))
    return tuple(lines)


_REFERENCES = ("CORAL → ref. 0", "CORAL → ref. 1", "FEATMAP → ref. 0", "FEATMAP → ref. 1")
_REUSED = ("Identity=identity", "LEACE", "MGPA-CF", "MGPA-Iter", "CORAL", "FEATMAP")
_INTERFACE = ("Interface", "Method")

#: The paper's tables of numbers; :func:`word_tables` has 4 to 6.
TABLES: tuple[Table, ...] = (
    Table(
        "1", "Selective correction on controlled SSVEP", _INTERFACE,
        _outcomes(CONTROLLED, heads="Source ↓,Frozen ↑,Refitted ↑,Movement"),
        _lines("Identity=identity", "LEACE", "MGPA-CF", *_REFERENCES),
    ),
    Table(
        "2", "Source attenuation and task utility on recorded EEG", _INTERFACE,
        (*_outcomes(N170, "A. Temporal N170"), *_outcomes(RECORDED, "B. Recorded SSVEP")),
        _lines("Identity=identity", "LEACE", "MGPA-CF", "MGPA-Iter", "Linear-only ablation=Linear-only",
               "IGBP", *_REFERENCES),
    ),
    Table(
        "3", "One P300-selected correction, three frozen task heads", _INTERFACE,
        tuple(
            Column(task, REUSE, metric, task, over)
            for metric, over in (("worst", "Worst-association AUROC ↑"), ("control", "Control-head AUROC ↑"))
            for task in TASKS
        ),
        _lines(*_REUSED),
    ),
    Table(
        "7", "Conditional versus constant targets", ("Target",), _outcomes(CONTROLLED, digits=4),
        _lines("Conditional mean=Conditional target", "Unconditional mean (FIT)=Mean target",
               "Zero score=Zero target", of_two=False),
    ),
    Table(
        "8A", "Nonlinear critics on N170: native source accessibility", ("Correction",),
        (Column("L ↓", N170, "L"), Column("S ↓", N170, "S")),
        _lines("Identity=identity", "MGPA-Iter", "Linear-only", of_two=False),
    ),
    Table(
        "8B", "Nonlinear critics on N170: MGPA-Iter minus Linear-only, in percentage points", ("Contrast",),
        tuple(
            Column(f"Δ{head} [95 % CI]", N170, metric, digits=2, percent=True, interval=True)
            for head, metric in (("S ↓", "S"), ("T_f ↑", "T_f"), ("T_r ↑", "T_r"))
        ),
        (Line(("Paired difference",), "MGPA-Iter", "Linear-only"),),
    ),
    Table(
        "9", "N170: MGPA versus IGBP at matched VAL budgets", ("VAL budget", "Method"),
        _outcomes(N170, digits=4),
        tuple(
            Line((budget, method), f"{method} at {budget}")
            for budget in (".10", ".25")
            for method in ("MGPA-Iter", "IGBP")
        ),
    ),
    Table(
        "10", "Absolute reuse outcomes: aligned (A), independent (I) and reversed (R) association",
        ("Method",),
        tuple(
            Column(metric[0].upper(), REUSE, metric, task, over=task)
            for task in TASKS
            for metric in ("aligned", "independent", "reversed")
        ),
        _lines(*_REUSED, of_two=False),
    ),
    Table(
        "11", "Paired reuse gains", ("Task", "Method", "Reference"),
        (
            Column("Δ worst [95 % CI]", REUSE, "worst", interval=True),
            Column("Δ control head [95 % CI]", REUSE, "control", digits=4, interval=True),
        ),
        tuple(
            Line((task, method, against.replace("identity", "Identity")), method, against, task)
            for task in TASKS
            for method in ("MGPA-CF", "MGPA-Iter")
            for against in ("identity", "LEACE")
        ),
    ),
)  # fmt: skip

_PAPER, _RELEASE = "paper's text", "public release"
#: Facts that a reproduction has exactly, by study and key of ``results.json``'s protocol: value and source.
FACTS: dict[tuple[str, str], tuple[str, str]] = {
    (CONTROLLED, "ranks"): ("3, 3, 3, 2", _PAPER),
    (CONTROLLED, "participants"): ("41/20/20/21, 42/20/20/20, 41/21/20/20, 40/21/21/20", _PAPER),
    (CONTROLLED, "evaluated"): ("81", _PAPER),
    (CONTROLLED, "unattained Random gates at .10"): ("17 of 60", _PAPER),
    (N170, "ranks"): ("56", _PAPER),
    (N170, "participants"): ("4/2/4/10", _PAPER),
    (N170, "events"): ("622/288/716/1381", _PAPER),
    (N170, "features"): ("240", _PAPER),
    (RECORDED, "ranks"): ("328", _PAPER),
    (RECORDED, "participants"): ("41/20/20/21", _PAPER),
    (RECORDED, "rows"): ("9840/4800/4800/5040", _PAPER),
    (REUSE, "ranks"): ("8", _PAPER),
    (REUSE, "participants"): ("4/2/4/8", _PAPER),
    (REUSE, "selected MGPA-CF"): ("1.1", _PAPER),
    (REUSE, "selected MGPA-Iter"): ("13, 11, 19", _RELEASE),
    (REUSE, "selected LEACE"): ("0.98", _RELEASE),
    **{(study, "reader seed"): ("98", _RELEASE) for study in (CONTROLLED, N170, RECORDED)},
}
_PROTOCOL = {
    CONTROLLED: (
        "Controlled SSVEP",
        "Pooled EEGPT512; full same-trial CAR/Oz contrasts; 90 % directional energy, ranks 3, 3, 3, 2. Four "
        "role rotations, 81 distinct EVAL participants; native correction/target, .05 VAL budget for "
        "permission.",
    ),
    N170: (
        "Temporal N170",
        "240 temporal features; simultaneous Neuroscan/Flex pairs; 90 % energy, rank 56. 4/2/4/10; native "
        "maps and matched-budget IGBP comparison.",
    ),
    RECORDED: (
        "Recorded SSVEP",
        "Mean512 correction, 15 × 512 readouts; six virtual FIT-local contrasts; 99 % energy, rank 328. "
        "41/20/20/21; native maps.",
    ),
    REUSE: (
        "P300-selected reuse",
        "EEGPT/PCA256, P300 FIT reference coordinates; 400 simultaneous CAL pairs, rank 8. 4/2/4/8; P300 "
        "DEV-selected map, unchanged on N170/MMN.",
    ),
}
_SETTINGS = (
    ("Iterative fits / horizon", "seeds 17, 29, 43; at most 48 stages"),
    ("Source critics", "balanced logistic (C = 1); GELU MLP, hidden width 128"),
    ("Conditional-mean anchor", "ridge with intercept and penalty 10 (both constructions)"),
    ("Neural-critic optimizer", "AdamW, batch 256, weight decay .001"),
    ("Gradient stabilizer / damping", ".1 / .001"),
    (
        "Critic training and radius",
        "12 epochs, LR .001, radius .05 √d; reuse: at most 100 epochs, LR .0003, source-VAL patience 10, "
        "radius .025 √d",
    ),
    ("Closed-form residual covariance", ".01 shrinkage toward mean-diagonal identity"),
    ("Participant uncertainty", "20,000 percentile bootstrap resamples, seed 1101"),
)
_READERS = (
    (
        "Common representation (11)",
        "ordinary and covariance-whitened logistic (C = 1, shrinkage .01); GELU MLP of width 128, AdamW, LR "
        ".001, batch 256, weight decay .001; three restarts at 12/50/200 epochs; seed 17 in the text, 98 in "
        "the public release",
    ),
    (
        "Direct full tokens (20)",
        "raw logistic (C = 1), HEAD-standardized logistic (C = .01); flat GELU; token network, LR .0005, "
        "batch 128, weight decay .001, gradient clipping 5",
    ),
    ("Centered token residuals (10)", "standardized logistic and the same token network"),
)


def word_tables(results: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Return tables 4 to 6: the paper's words, and what the runs did."""
    protocol = tuple(
        Line((title,), words=(paper, results[study]["words"]["protocol"] if study in results else "not run"))
        for study, (title, paper) in _PROTOCOL.items()
    )
    return [
        _words("4", "Protocol map", "Study", protocol),
        _words("5", "Shared MGPA settings", "Component", _lines_of(_SETTINGS, "settings", results)),
        _words("6", "Independent source-reader bank", "Input", _lines_of(_READERS, "readers", results)),
    ]


def _words(name: str, title: str, label: str, lines: tuple[Line, ...]) -> Table:
    return Table(name, title, (label,), (Column("Paper"), Column("What ran")), lines)


def _lines_of(
    paper: tuple[tuple[str, str], ...], key: str, results: Mapping[str, Mapping[str, Any]]
) -> tuple[Line, ...]:
    """Return a line for each component; runs that agree are told together."""
    lines = []
    for i, (name, text) in enumerate(paper):
        ran: dict[str, list[str]] = {}
        for study, run in results.items():
            if run["words"][key][i]:
                ran.setdefault(run["words"][key][i], []).append(study)
        same = len(ran) == 1
        told = "; ".join(words if same else f"{', '.join(s)}: {words}" for words, s in ran.items())
        lines.append(Line((name,), words=(text, told or "not run")))
    return tuple(lines)
