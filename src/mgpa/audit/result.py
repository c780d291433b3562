"""What an audit found: estimates with intervals and contrasts between methods.

An :class:`Audit` is data. Sentences (:mod:`~mgpa.audit.verdict`), figures (:mod:`~mgpa.audit.plots`) and
reports (:mod:`~mgpa.audit.report`) are functions of it; its methods of those names only call them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import missing
from .._common.files import write_atomically
from ..errors import MissingEvidence
from ..tables.table import Table
from .bootstrap import Estimate, contrast
from .design import Design
from .diagnostics import PairCheck, check_pairs
from .method_result import MethodResult
from .metrics import METRICS


@dataclass(frozen=True)
class Audit:
    """The result of :func:`mgpa.audit.run`; ``audit["leace"]`` is the result of one method.

    Attributes
    ----------
    results : dict of name to MethodResult
    counts : dict of dict
        Fitting rows of each source (keys) and label (inner keys); empty unless labels are classes.
    settings : dict
        What was run on what.
    picture_source : array
        Sources of the rows in the before/after picture.
    design : Design
        What was compared with what: crossed, nested or mixed, and what a unit is called.
    paired_rows : Table or None
        The fitting rows, if the pairs among them are the pairs that methods were fitted with.
    """

    results: dict[str, MethodResult]
    counts: dict[str, dict[str, int]]
    settings: dict[str, Any]
    picture_source: NDArray[Any]
    design: Design
    paired_rows: Table | None = None
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def pool(cls, audits: Sequence[Audit]) -> Audit:
        """Pool audits of the same methods on different participants, such as those of rotated roles.

        Estimates are then over all participants. What is shown of single fits (pairs, gates, the picture of
        the rows) is the first audit's.
        """
        # A method that one audit omits would be measured on fewer participants than the others.
        omitted: dict[str, str] = {}
        for audit in audits:
            omitted |= audit.settings.get("omitted", {})
        audits = [
            replace(audit, results={name: r for name, r in audit.results.items() if name not in omitted})
            for audit in audits
        ]
        first = audits[0]
        if any(audit.methods != first.methods for audit in audits):
            raise ValueError(f"The audits have other methods than {', '.join(first.methods)}; pool the same.")
        if len(audits) == 1:
            return first
        every = [audit.settings for audit in audits]
        results = {
            name: MethodResult.pool([audit.results[name] for audit in audits]) for name in first.methods
        }
        missed = [s.get("unattained", {}) for s in every]
        budgeted = dict.fromkeys(name for counts in missed for name in counts)
        settings = every[0] | {
            "rows": {role: sum(s["rows"][role] for s in every) for role in every[0]["rows"]},
            "participants": every[0]["participants"] | {"EVAL": len(results["identity"].participants)},
            "data": hashlib.sha256(" ".join(s["data"] for s in every).encode()).hexdigest()[:16],
            "duplicates": dict(sum((Counter(s["duplicates"]) for s in every), Counter())),
            "directions": list(dict.fromkeys(way for s in every for way in s["directions"])),
            "splits": len(audits),
            "omitted": omitted,
            # How many fits missed their budget, and of how many.
            "unattained": {
                name: [sum(counts.get(name, (0, 0))[k] for counts in missed) for k in (0, 1)]
                for name in budgeted
            },
        }
        design = results["identity"].design or first.design
        return replace(first, results=results, settings=settings, design=design)

    def __getitem__(self, method: str) -> MethodResult:
        if method not in self.results:
            raise KeyError(f"No method {method!r}. Methods: {', '.join(self.results)}.")
        return self.results[method]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, the identity first."""
        return tuple(self.results)

    @property
    def n_people(self) -> int:
        """Number of EVAL participants."""
        return len(self["identity"].participants)

    @property
    def columns(self) -> tuple[str, ...]:
        """Metrics that at least one method has, except parts of another metric."""
        whole = (name for name, metric in METRICS.items() if not metric.part_of)
        return tuple(m for m in whole if any(result.has(m) for result in self.results.values()))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that every method has, except parts of another metric."""
        return tuple(m for m in self.columns if all(result.has(m) for result in self.results.values()))

    @cached_property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Every metric of every method."""
        return {
            name: {m: result.estimate(m) for m in self.columns if result.has(m)}
            for name, result in self.results.items()
        }

    @cached_property
    def changes(self) -> dict[str, dict[str, Estimate]]:
        """Every metric of every other method minus the identity's."""
        return {name: {m: self.contrast(name, metric=m) for m in self.metrics} for name in self.methods[1:]}

    def contrast(self, a: str, b: str = "identity", metric: str = "S") -> Estimate:
        """Return method a minus method b, paired over participants and draws."""
        key = f"contrast {a!r} {b!r} {metric}"
        if key not in self._cache:
            statistic, first, sampling = self[a].sample(metric)
            _, second, _ = self[b].sample(metric)
            few, many = sorted((len(first), len(second)))
            if many % few:
                raise ValueError(
                    f"{a} has {len(first)} fits and {b} {len(second)}; one must have as many as the other, "
                    "or several times as many."
                )
            # Several variants with the same seeds each, such as random gates: fit i corresponds to fit i.
            first, second = (v.reshape(-1, few, *v.shape[1:]) if few > 1 else v for v in (first, second))
            self._cache[key] = contrast(first, second, statistic, **sampling)
        return self._cache[key]  # type: ignore[no-any-return]

    def outcome(self, method: str, metric: str) -> str | None:
        """Return the outcome of a metric: "improved", "kept", "suffered", "unclear"; None if not measured."""
        if metric not in self.metrics:
            return None
        return METRICS[metric].outcome(self.contrast(method, metric=metric))

    def participants(self) -> Any:
        """Return a pandas frame with one row per method, participant and metric, averaged over fits.

        Where participants are compared with each other, none has an AUROC of their own: "S contribution" is
        what each adds to S, and so for other metrics.
        """
        try:
            import pandas
        except ImportError:
            raise missing("A table of results", "pandas") from None
        rows: list[tuple[str, str, str, float]] = []
        for name, result in self.results.items():
            for metric in self.estimates[name]:
                values = result.by_participant(metric)
                between = result.compares_units(metric, np.isfinite(values))
                what = f"{metric} contribution" if between else metric
                rows += [(name, who, what, v) for who, v in zip(result.participants, values, strict=True)]
        return pandas.DataFrame(rows, columns=["method", "participant", "metric", "value"])

    def check_pairs(self) -> PairCheck | None:
        """Return what the pairs in the fitting rows show; None without pairs, or with too few."""
        if "pairs" not in self._cache:
            self._cache["pairs"] = None
            if self.paired_rows is not None:
                with suppress(MissingEvidence):
                    self._cache["pairs"] = check_pairs(self.paired_rows)
        return self._cache["pairs"]  # type: ignore[no-any-return]

    def verdict(self, method: str | None = None) -> list[str]:
        """Return the verdict in three sentences; for one method, its effect and how certain that is."""
        from . import verdict

        if method is None:
            return verdict.verdict(self)
        return verdict.findings(self, method) + verdict.caveats(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that every output shows, such as too few participants."""
        from .verdict import warnings

        return tuple(warnings(self).values())

    def plan(self) -> list[dict[str, Any]]:
        """Return how many participants would settle open questions (:func:`mgpa.audit.verdict.plan`)."""
        from .verdict import plan

        return plan(self)

    def __str__(self) -> str:
        from .verdict import text

        return text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .report import inline_verdict

        return inline_verdict(self)

    def plot(self, chart: str = "tradeoff", *arguments: Any) -> Any:
        """Draw a chart of :mod:`mgpa.audit.plots` by its name: ``plot("gate")`` is ``plot_gate(audit)``."""
        from .plots import plot

        return plot(self, chart, *arguments)

    def figures(self, folder: Any, formats: Sequence[str] = ("pdf", "svg", "png")) -> list[Path]:
        """Write every chart that applies to a folder, in every format, and return the paths."""
        from .plots import draw_all, save_figures

        return save_figures(draw_all(self), folder, formats)

    def report(self, path: Any, title: str = "Correction audit", **options: Any) -> Path:
        """Write everything as one HTML file that opens offline (:func:`mgpa.audit.report.html_report`)."""
        from .report import html_report

        return write_atomically(Path(path), html_report(self, title, **options).encode())

    def to_csv(self, path: Any) -> Path:
        """Write one row for every method and metric: value, interval and difference from the identity."""
        from .report import csv_table

        return write_atomically(Path(path), csv_table(self).encode())

    def methods_text(self) -> str:
        """Return a paragraph for a paper's methods, from the settings and results of this audit."""
        from .methods_text import methods_text

        return methods_text(self)
