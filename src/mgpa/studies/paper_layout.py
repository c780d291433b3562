"""The paper's tables as it prints them: which numbers stand where, by study, method and metric.

Nothing is computed here. :mod:`mgpa.studies.paper` fills the cells with what studies found, beside what the
paper prints.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTROLLED, N170, RECORDED, REUSE = "controlled-ssvep", "temporal-n170", "recorded-ssvep", "p300-reuse"
BLIND, AWARE = "Source-blind correction", "Source-aware alignment"
TASKS = ("P300", "N170", "MMN")


@dataclass(frozen=True)
class Value:
    """One number: of a method, or of a difference between two.

    Parameters
    ----------
    study, method, metric : str
    task, against : str
        Empty where a study has one task, and where the number is no difference.
    digits : int
        After the point.
    percent : bool
        In percentage points.
    interval : bool
        With its 95 % interval.
    """

    study: str
    method: str
    metric: str
    task: str = ""
    against: str = ""
    digits: int = 3
    percent: bool = False
    interval: bool = False


@dataclass(frozen=True)
class Line:
    """A row of a table: its labels, then numbers or words; ``rule`` draws a line above it."""

    labels: tuple[str, ...]
    cells: tuple[Value | str, ...]
    rule: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Parameters
    ----------
    name : str
        "1" to "11"; of a table in two parts "8A" and "8B".
    title : str
    labels, columns : tuple of str
        Headings.
    lines : tuple of Line
    spans : tuple of (str, int)
        Headings above several columns, and how many; none if empty.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    spans: tuple[tuple[str, int], ...] = ()

    @property
    def studies(self) -> set[str]:
        """The studies that its numbers come from."""
        return {cell.study for line in self.lines for cell in line.cells if isinstance(cell, Value)}


OUTCOMES = ("S", "T_f", "T_r", "M")


def _outcomes(study: str, method: str, digits: int = 3) -> tuple[Value, ...]:
    return tuple(Value(study, method, metric, digits=digits) for metric in OUTCOMES)


def _controlled() -> PaperTable:
    blind = [("Identity", "identity"), ("LEACE", "LEACE"), ("MGPA-CF", "MGPA-CF")]
    aware = [(name, name) for name in (
        "CORAL → ref. 0", "CORAL → ref. 1", "FEATMAP → ref. 0", "FEATMAP → ref. 1")]  # fmt: skip
    lines = [Line((BLIND, shown), _outcomes(CONTROLLED, name)) for shown, name in blind]
    lines += [
        Line((AWARE, shown), _outcomes(CONTROLLED, name), rule=not i) for i, (shown, name) in enumerate(aware)
    ]
    return PaperTable(
        "1",
        "Selective correction on controlled SSVEP",
        ("Interface", "Method"),
        ("Source ↓", "Frozen ↑", "Refitted ↑", "Movement"),
        tuple(lines),
    )


def _recorded() -> PaperTable:
    blind = (
        ("Identity", "identity"), ("LEACE", "LEACE"), ("MGPA-CF", "MGPA-CF"), ("MGPA-Iter", "MGPA-Iter"),
        ("Linear-only ablation", "Linear-only"), ("IGBP", "IGBP"),
    )  # fmt: skip
    lines = [Line((BLIND, shown), _outcomes(N170, name) + _outcomes(RECORDED, name)) for shown, name in blind]
    for i, name in enumerate(("CORAL → ref. 0", "CORAL → ref. 1", "FEATMAP → ref. 0", "FEATMAP → ref. 1")):
        # FEATMAP needs paired trials, which dry and wet sessions have not.
        second = _outcomes(RECORDED, name) if name.startswith("CORAL") else ("N/A",) * 4
        lines.append(Line((AWARE, name), (*_outcomes(N170, name), *second), rule=not i))
    return PaperTable(
        "2",
        "Source attenuation and task utility on recorded EEG",
        ("Interface", "Method"),
        ("S ↓", "T_f ↑", "T_r ↑", "M") * 2,
        tuple(lines),
        (("A. Temporal N170", 4), ("B. Recorded SSVEP", 4)),
    )


_REUSED = (
    ("Identity", "identity"), ("LEACE", "LEACE"), ("MGPA-CF", "MGPA-CF"), ("MGPA-Iter", "MGPA-Iter"),
    ("CORAL", "CORAL"), ("FEATMAP", "FEATMAP"),
)  # fmt: skip


def _reuse() -> PaperTable:
    lines = tuple(
        Line(
            (AWARE if name in ("CORAL", "FEATMAP") else BLIND, shown),
            tuple(Value(REUSE, name, metric, task) for metric in ("worst", "control") for task in TASKS),
            rule=name == "CORAL",
        )
        for shown, name in _REUSED
    )
    return PaperTable(
        "3",
        "One P300-selected correction, three frozen task heads",
        ("Interface", "Method"),
        TASKS * 2,
        lines,
        (("Worst-association AUROC ↑", 3), ("Control-head AUROC ↑", 3)),
    )


def _targets() -> PaperTable:
    targets = (
        ("Conditional mean", "Conditional target"),
        ("Unconditional mean (FIT)", "Mean target"),
        ("Zero score", "Zero target"),
    )
    return PaperTable(
        "7",
        "Conditional versus constant targets",
        ("Target",),
        ("S ↓", "T_f ↑", "T_r ↑", "M"),
        tuple(Line((shown,), _outcomes(CONTROLLED, name, 4)) for shown, name in targets),
    )


def _critics() -> tuple[PaperTable, PaperTable]:
    corrections = (("Identity", "identity"), ("MGPA-Iter", "MGPA-Iter"), ("Linear-only", "Linear-only"))
    differences = tuple(
        Value(N170, "MGPA-Iter", metric, against="Linear-only", digits=2, percent=True, interval=True)
        for metric in ("S", "T_f", "T_r")
    )
    return (
        PaperTable(
            "8A",
            "Nonlinear critics on N170: native source accessibility",
            ("Correction",),
            ("L ↓", "S ↓"),
            tuple(
                Line((shown,), (Value(N170, name, "L"), Value(N170, name, "S")))
                for shown, name in corrections
            ),
        ),
        PaperTable(
            "8B",
            "Nonlinear critics on N170: MGPA-Iter minus Linear-only, in percentage points",
            ("Contrast",),
            ("ΔS ↓ [95 % CI]", "ΔT_f ↑ [95 % CI]", "ΔT_r ↑ [95 % CI]"),
            (Line(("Paired difference",), differences),),
        ),
    )


def _budgets() -> PaperTable:
    return PaperTable(
        "9",
        "N170: MGPA versus IGBP at matched VAL budgets",
        ("VAL budget", "Method"),
        ("S ↓", "T_f ↑", "T_r ↑", "M"),
        tuple(
            Line(
                (budget, method), _outcomes(N170, f"{method} at {budget}", 4), rule=budget == ".25" and not i
            )
            for budget in (".10", ".25")
            for i, method in enumerate(("MGPA-Iter", "IGBP"))
        ),
    )


def _absolute() -> PaperTable:
    return PaperTable(
        "10",
        "Absolute reuse outcomes: aligned, independent and reversed association",
        ("Method",),
        ("A", "I", "R") * 3,
        tuple(
            Line(
                (shown,),
                tuple(
                    Value(REUSE, name, metric, task)
                    for task in TASKS
                    for metric in ("aligned", "independent", "reversed")
                ),
            )
            for shown, name in _REUSED
        ),
        tuple((task, 3) for task in TASKS),
    )


def _paired() -> PaperTable:
    return PaperTable(
        "11",
        "Paired reuse gains",
        ("Task", "Method", "Reference"),
        ("Δ worst [95 % CI]", "Δ control head [95 % CI]"),
        tuple(
            Line(
                (task, method, "Identity" if against == "identity" else against),
                (
                    Value(REUSE, method, "worst", task, against, interval=True),
                    Value(REUSE, method, "control", task, against, digits=4, interval=True),
                ),
                rule=method == "MGPA-CF" and against == "identity" and task != TASKS[0],
            )
            for task in TASKS
            for method in ("MGPA-CF", "MGPA-Iter")
            for against in ("identity", "LEACE")
        ),
    )


#: The paper's tables of numbers. Tables 4 to 6 are of words; :mod:`mgpa.studies.paper` writes those.
NUMBERS: tuple[PaperTable, ...] = (
    _controlled(),
    _recorded(),
    _reuse(),
    _targets(),
    *_critics(),
    _budgets(),
    _absolute(),
    _paired(),
)
