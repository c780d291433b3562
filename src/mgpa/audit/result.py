"""The result of an audit: estimates with intervals, and contrasts between methods.

An :class:`Audit` contains data. Sentences (:mod:`~mgpa.audit.verdict`), figures (:mod:`~mgpa.audit.plots`)
and reports (:mod:`~mgpa.audit.report`) are functions of it; its methods with these names only call them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .._common.files import write_atomically
from ..errors import MissingEvidence
from ..estimators.tokens import token_mean
from ..tables.table import Table
from .bootstrap import contrast, simultaneous
from .design import Design
from .diagnostics import PairCheck, check_pairs
from .estimates import Estimate, with_spread
from .method_result import Kept, MethodResult, once
from .metrics import DIRECTED, METRICS, SERVED
from .pooling import pool, repeat
from .settings import Settings, pooled_settings

#: Metrics of sources that were not in the fit: a method has none of a source that it needs.
UNSEEN = ("T_u", "A_u", "RMSEP_u")
#: Metrics that outputs show for single directions of transfer, sources or classes besides.
DETAILED = ("home", "RMSEP_home", "away", "RMSEP_away", "T_f", "bias_f", "shift_f", "RMSEP_r", "bias_r",
            "A_u", "RMSEP_u", "recall")  # fmt: skip


@dataclass(frozen=True)
class Audit(Kept):
    """The result of :func:`mgpa.audit.run`; ``audit["leace"]`` is the result of one method.

    Attributes
    ----------
    results : dict of name to MethodResult
    counts : dict of dict
        Fitting rows of each source (keys) and label (inner keys); empty unless labels are classes.
    settings : Settings
        The settings of the audit, and a description of the table.
    picture_source : array
        Sources of the rows in the before/after picture.
    design : Design
        The design (crossed, nested or mixed), and the user's word for a unit.
    pairs : PairCheck or None
        The check of the pairs in the fits.
    paired_rows : Table or None
        The rows with these pairs, if they are rows of the table.
    decoders : dict of name to MethodResult
        End-to-end comparators, which have only task scores.
    refits : tuple of dict of dict
        Differences from the identity, by method and metric, of each refit on half of the FIT participants.
    """

    results: dict[str, MethodResult]
    counts: dict[str, dict[str, int]]
    settings: Settings
    picture_source: NDArray[Any]
    design: Design
    pairs: PairCheck | None = None
    paired_rows: Table | None = None
    decoders: dict[str, MethodResult] = field(default_factory=dict)
    refits: tuple[dict[str, dict[str, float]], ...] = ()

    @classmethod
    def pool(cls, audits: Sequence[Audit]) -> Audit:
        """Pool audits of the same methods on different participants, such as those of rotated roles.

        Estimates are then over all participants. Pairs, gates and the picture of the rows are those of the
        first audit.
        """
        # A method that one audit omits would be measured on fewer participants than the others.
        omitted = {name: why for audit in audits for name, why in audit.settings.omitted.items()}
        audits = [
            replace(audit, results={name: r for name, r in audit.results.items() if name not in omitted})
            for audit in audits
        ]
        first = audits[0]
        if any(audit.methods != first.methods for audit in audits):
            raise ValueError(f"All audits must have the methods of the first: {', '.join(first.methods)}.")
        if len(audits) == 1:
            return first
        results = {name: pool([audit.results[name] for audit in audits]) for name in first.methods}
        decoders = {n: pool([audit.decoders[n] for audit in audits]) for n in first.decoders}
        settings = pooled_settings([audit.settings for audit in audits])
        scored = settings.participants | {"EVAL": len(results["identity"].participants)}
        settings = replace(settings, participants=scored, splits=len(audits), omitted=omitted)
        design = results["identity"].design or first.design
        return replace(first, results=results, settings=settings, design=design, decoders=decoders)

    @classmethod
    def repeat(cls, deals: Sequence[Audit]) -> Audit:
        """Return the mean of audits of the same participants with different divisions into folds."""
        first = deals[0]
        if len(deals) == 1:
            return first
        omitted = {name: why for deal in deals for name, why in deal.settings.omitted.items()}
        names = [name for name in first.methods if name not in omitted]
        results = {name: repeat([deal.results[name] for deal in deals]) for name in names}
        settings = pooled_settings([deal.settings for deal in deals])
        settings = replace(settings, rows=first.settings.rows, participants=first.settings.participants,
                           duplicates=first.settings.duplicates, omitted=omitted)  # fmt: skip
        decoders = {n: repeat([deal.decoders[n] for deal in deals]) for n in first.decoders}
        return replace(first, results=results, settings=settings, decoders=decoders)

    def __getitem__(self, method: str) -> MethodResult:
        every = self.results | self.decoders
        if method not in every:
            raise KeyError(f"No method {method!r}. Methods: {', '.join(every)}.")
        return every[method]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, the identity first."""
        return tuple(self.results)

    @property
    def n_people(self) -> int:
        """Number of EVAL participants."""
        return len(self["identity"].participants)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Metrics that at least one method has, except parts of another metric."""
        whole = (name for name, metric in METRICS.items() if not metric.part_of)
        return tuple(m for m in whole if any(result.has(m) for result in self.results.values()))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that every method has for the same sources, except parts of another metric."""
        return tuple(m for m in self.columns if all(self._has(name, m) for name in self.results))

    def _has(self, name: str, metric: str) -> bool:
        """Return whether a method has a metric, for the same unseen sources as the identity."""
        result, identity = self[name], self["identity"]
        ways = identity.directions_of("unseen") if metric in UNSEEN else ()
        missing = any(identity.has(f"{metric} {way}") and not result.has(f"{metric} {way}") for way in ways)
        return result.has(metric) and not missing

    @cached_property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Every metric of every method, then those of end-to-end comparators."""
        return {
            name: {m: result.estimate(m) for m in self.columns if result.has(m)}
            for name, result in (self.results | self.decoders).items()
        }

    @cached_property
    def changes(self) -> dict[str, dict[str, Estimate]]:
        """Every metric of every other method minus that of the identity."""
        return {name: {m: self.contrast(name, metric=m) for m in self.metrics} for name in self.methods[1:]}

    def served(self, method: str, metric: str) -> str:
        """Return a metric of existing heads for the source of a method's reference; others unchanged.

        A method that maps rows to one source is scored by the heads of that source, and so are the other
        methods in the table (:attr:`mgpa.audit.Audit.decoder`): ``"home phone"`` or ``"T_f phone → *"``.
        """
        source = self[method].reference or self.decoder
        if not source or metric not in SERVED or source not in self["identity"].homes:
            return metric
        one = self.served_by(source, metric)
        return one if self["identity"].has(one) and self[method].has(one) else metric

    @staticmethod
    def served_by(source: str, metric: str) -> str:
        """Return a metric of existing heads for the heads of one source, such as ``"T_f phone → *"``."""
        return f"{metric} {source}" + " → *" * (SERVED[metric] == "frozen")

    @cached_property
    def decoder(self) -> str:
        """The common reference of all source-blind methods, if any; tables then show heads of this source."""
        named = {self[name].reference for name in self.methods if self[name].source_blind} - {""}
        return named.pop() if len(named) == 1 else ""

    @cached_property
    def tabled(self) -> dict[str, dict[str, Estimate]]:
        """All estimates for tables: existing heads are those of :attr:`decoder`, if there is one."""
        shown = {name: dict(row) for name, row in self.estimates.items()}
        for name in self.methods if self.decoder in self["identity"].homes else ():
            for metric in shown[name].keys() & SERVED.keys():
                one = self.served_by(self.decoder, metric)
                if self[name].has(one) and self["identity"].has(one):
                    shown[name][metric] = self[name].estimate(one)
        return shown

    def contrast(self, a: str, b: str = "identity", metric: str = "S") -> Estimate:
        """Return method a minus method b, paired over participants and draws.

        Differences from the identity use the heads of the source that a method maps to.
        """
        return self._contrast(a, b, metric)

    @once
    def _contrast(self, a: str, b: str, metric: str) -> Estimate:
        metric = self.served(a, metric) if b == "identity" else metric
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
        return contrast(first, second, statistic, **sampling)

    @cached_property
    def simultaneous(self) -> dict[str, dict[str, Estimate]]:
        """All changes with intervals that hold jointly for all methods (max-t over shared draws).

        These intervals contain those of :attr:`changes`, which may be longer where participants are skewed.
        """
        names = self.methods[1:]
        changes: dict[str, dict[str, Estimate]] = {name: {} for name in names}
        for metric in self.metrics if len(names) > 1 else ():
            # Methods that serve different sources are compared for different heads.
            groups: dict[str, list[str]] = {}
            for name in names:
                groups.setdefault(self.served(name, metric), []).append(name)
            for served, alike in groups.items():
                if len(alike) > 1:
                    statistic, before, sampling = self["identity"].sample(served)
                    sides = [(self[name].sample(served)[1], before) for name in alike]
                    for name, e in zip(alike, simultaneous(sides, statistic, **sampling), strict=True):
                        alone = self.contrast(name, metric=metric)
                        low, high = min(e.low, alone.low), max(e.high, alone.high)
                        changes[name][metric] = replace(e, low=low, high=high)
        return changes

    def difference(self, method: str, metric: str) -> float:
        """Return a metric of a method minus the identity's, without an interval."""
        metric = self.served(method, metric)
        statistic, values, how = self[method].sample(metric)
        before = self["identity"].sample(metric)[1]
        return contrast(values, before, statistic, n_draws=2, **how).value

    @cached_property
    def refitted(self) -> dict[str, dict[str, Estimate]]:
        """All changes with intervals over EVAL and FIT participants; empty without refits.

        The variance of fits on half of the FIT participants estimates the variance of complete fits with
        other participants (delete-half jackknife). It is added to the variance over EVAL participants.
        """
        found: dict[str, dict[str, Estimate]] = {}
        for name, changes in self.changes.items() if self.refits else ():
            for metric, e in changes.items():
                values = [refit[name][metric] for refit in self.refits if metric in refit.get(name, {})]
                if len(values) > 1:
                    found.setdefault(name, {})[metric] = with_spread(e, values)
        return found

    def outcome(self, method: str, metric: str) -> str | None:
        """Return the outcome of a metric: "improved", "kept", "suffered", "unclear"; None if not measured."""
        if metric not in self.metrics:
            return None
        return METRICS[metric].outcome(self.contrast(method, metric=metric))

    @cached_property
    def details(self) -> tuple[str, ...]:
        """Metrics of single directions of transfer, and of single sources, that every method has."""
        one, names = self["identity"], []
        for metric in DETAILED:
            if one.has(metric):
                kind = DIRECTED[metric][0]
                names += [f"{metric} {way}" for way in one.directions_of(kind)]
        return tuple(m for m in names if all(result.has(m) for result in self.results.values()))

    def to_frame(self) -> Any:
        """Return every number of the audit in one tidy pandas frame.

        Columns: method; against (for differences: "identity", with the kind of interval, which holds for this
        method, jointly for all methods, or also for other FIT participants); metric; participant and repeat
        (empty for the mean); value, low and high (95 % interval; empty for a single participant or repeat).
        """
        from .tidy import TIDY, frame, tidy_rows

        return frame(tidy_rows(self), TIDY)

    def participants(self) -> Any:
        """Return a pandas frame with one row per method, participant and metric, averaged over fits.

        If an AUROC compares participants with each other, participants have no separate AUROC. "S
        contribution" is then the contribution of each participant to S, and likewise for other metrics.
        """
        from .tidy import BY_PARTICIPANT, frame, participant_rows

        return frame(participant_rows(self), BY_PARTICIPANT)

    def check_pairs(self) -> PairCheck | None:
        """Return the check of the pairs in the fitting rows; None without pairs or with too few.

        If methods were fitted on the pairs, the stored check is returned; otherwise it is computed now.
        """
        if self.pairs is not None or self.paired_rows is None:
            return self.pairs
        return self._checked_pairs()

    @once
    def _checked_pairs(self) -> PairCheck | None:
        with suppress(MissingEvidence):
            return check_pairs(self.paired_rows, hidden=False)
        return None

    def source_split(self) -> Any:
        """Return the measurement and sampling parts of the difference between sources; None without pairs.

        The result is a :class:`mgpa.baselines.SourceSplit` of the fitting rows. Pairs show the effect of the
        measurement, and the rest is due to the sampled participants.
        """
        rows = self.paired_rows
        if rows is None:
            return None
        from ..baselines import split_source_difference

        with suppress(MissingEvidence):
            X = token_mean(rows.X) if rows.X.ndim == 3 else rows.X
            return split_source_difference(X, rows.source, pair_id=rows.pair_id, groups=rows.participant)
        return None

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

    def participants_needed(self) -> list[dict[str, Any]]:
        """Return how many participants would settle each open question, as a list of dicts."""
        from .verdict import participants_needed

        return participants_needed(self)

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
        """Write the complete report as one offline HTML file (:func:`mgpa.audit.report.html_report`)."""
        from .report import html_report

        return write_atomically(Path(path), html_report(self, title, **options).encode())

    def to_csv(self, path: Any) -> Path:
        """Write one row for every method and metric: value, interval and difference from the identity."""
        from .tidy import csv_table

        return write_atomically(Path(path), csv_table(self).encode())

    def methods_text(self) -> str:
        """Return a paragraph for a paper's methods, from the settings and results of this audit."""
        from .methods_text import methods_text

        return methods_text(self)
