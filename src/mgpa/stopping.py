"""The stopping rule of iterative corrections: stop if no source effect remains to be removed.

On held-out rows, the residual e = s(h) - a(q) is the part of a critic's score beyond the expectation given
the preserved coordinates. If it no longer ranks the sources (Mann-Whitney against chance), another stage
would fit noise: it would cost movement and task information and remove nothing.

If source and task are associated, rows of different sources differ in content, and a critic that reads
content also ranks them. Two views of the same events do not differ in content. If paired views show the
effect at the scale of the rows, the residual is tested on these views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t
from sklearn.model_selection import StratifiedGroupKFold

from ._common.arrays import double
from .errors import UsageError
from .evidence import LEVEL, jackknife
from .labels import Codes, Labels, is_paired, to_numpy
from .stages import Recipe, Rows, Stage, Trajectory

Floats = NDArray[np.float64]

# With fewer rows, one held-out fifth is not enough, and five cross-fitted runs decide together.
FEW_ROWS = 2000
N_FOLDS = 5
# With more units, units are combined into groups.
MOST_UNITS = 64
# Minimum number of events with two views for a test on views.
FEW_EVENTS = 20
# The first stage needs evidence of a source effect (at :data:`~mgpa.evidence.LEVEL`, over all scores). After
# this, stages stop when no score exceeds chance by one standard error in two consecutive stages, because a
# single such stage is often a random dip.
CONTINUE_Z = 1.0
REVERSED_Z = 2.5
PATIENCE = 2
# Cross-fitted runs share most of their rows, so they are not independent: without any effect z had this
# standard deviation over 1100 simulated fits.
CROSS_FIT_SPREAD = 1.35


def paired_rows(rows: Rows, pair_id: Labels) -> Rows:
    """Return the rows whose pair id occurs at least twice."""
    _, position, counts = np.unique(pair_id, return_inverse=True, return_counts=True)
    chosen = np.flatnonzero(is_paired(pair_id) & (counts[position] > 1))
    views = rows.take(chosen)
    views.event = pair_id[chosen]
    return views


def events_of_rows(pairs: tuple[Any, Any], X: NDArray[Any]) -> Codes | None:
    """Return the event number of each row among pairs passed as arrays (-1: none), or None without any.

    A row belongs to an event if it equals one of its views; critics may have been fitted on it.
    """
    views = double(np.concatenate(pairs))
    event_of = {view.tobytes(): i % len(pairs[0]) for i, view in enumerate(views)}
    ids = np.array([event_of.get(double(row).tobytes(), -1) for row in X])
    return ids if (ids >= 0).any() else None


class StoppingRule:
    """The rule that tests the held-out residuals of each stage and decides which stage is the last."""

    def __init__(
        self,
        sources: Labels,
        held: list[Rows],
        witnesses: Sequence[Trajectory] = (),
        units: list[Codes] | None = None,
        evidence: str = "rows",
    ) -> None:
        absent = np.delete(sources, np.unique(np.concatenate([rows.codes for rows in held])))
        if len(absent):
            raise UsageError(
                f"No held-out rows of source {absent.tolist()}: do_no_harm compares sources on held-out "
                "rows. Add such rows to X_val, or pass do_no_harm=False."
            )
        self.held, self.witnesses, self.n_sources, self.evidence = held, witnesses, len(sources), evidence
        self.units = units or [np.arange(len(rows.codes)) for rows in held]
        self.started, self.quiet = False, 0

    def weigh(self, stage: Stage) -> dict[str, Any]:
        """Return AUROC and z of each score's held-out residual, and whether the run's stage is kept."""
        witnessed = [witness.fit_stage() for witness in self.witnesses]
        by_run = zip(witnessed or [stage], self.held, strict=True)
        residuals = [to_numpy(fitted.residuals(rows.H, rows.original)) for fitted, rows in by_run]
        auroc, z = [], []
        for j in range(residuals[0].shape[1]):
            source = 1 if self.n_sources == 2 else j % self.n_sources  # the source with the highest scores
            runs = zip(residuals, self.held, self.units, strict=True)
            area, excess = rank_evidence([(e[:, j], rows.codes == source, units) for e, rows, units in runs])
            auroc.append(area)
            z.append(excess)
        goes_on = self._goes_on(z)
        if goes_on:
            for witness, fitted in zip(self.witnesses, witnessed, strict=True):
                witness.advance(fitted)
        return {"evidence": self.evidence, "auroc": auroc, "z": z, "kept": goes_on}

    def _goes_on(self, z: list[float]) -> bool:
        if not self.started:
            spread = CROSS_FIT_SPREAD if len(self.held) > 1 else 1.0
            self.started = max(z) > spread * float(norm.isf(LEVEL / len(z)))
            return self.started
        # After too large a step, critics rank new rows in reverse, and the source can still be read. Because
        # cross-fitting causes small negative z, reversed ranks need strong evidence.
        self.quiet = 0 if max(z) > CONTINUE_Z or min(z) < -REVERSED_Z else self.quiet + 1
        return self.quiet < PATIENCE


def judged_run(
    recipe: Recipe,
    rows: Rows,
    held: Rows | None,
    *,
    groups: Codes | None = None,
    pair_id: Labels | None = None,
    views: Rows | None = None,
) -> tuple[Trajectory, StoppingRule]:
    """Return the run of stages for the map, and the stopping rule.

    Held-out rows are ``held`` if given. Otherwise, a fifth of the rows is held out if there are many. With
    few rows, the run uses all of them, and five cross-fitted runs (each fitted on four fifths and tested on
    the rest) decide together.

    If ``views`` is given (with the events in ``pair_id``), these paired views are tested instead of rows:
    views of held-out events, or all views if no event is among the rows.
    """
    if held is not None:
        return Trajectory(recipe, rows, held), StoppingRule(recipe.sources, [held])
    if views is not None and pair_id is None:
        units = np.unique(views.event, return_inverse=True)[1]
        return Trajectory(recipe, rows, views), StoppingRule(
            recipe.sources, [views], units=[units], evidence="pairs"
        )
    folds, units = held_out_folds(rows.codes, groups, pair_id, 0, ", or do_no_harm=False")
    tests, test_units = [rows.take(test) for _, test in folds], [units[test] for _, test in folds]
    evidence = "rows"
    if views is not None and pair_id is not None:
        paired = [test[is_paired(pair_id[test])] for _, test in folds]
        chosen = [np.flatnonzero(np.isin(views.event, pair_id[test])) for test in paired]
        codes = views.codes[np.concatenate(chosen)]
        if np.bincount(codes, minlength=len(recipe.sources)).min() >= FEW_EVENTS:
            evidence, tests, test_units = "pairs", [views.take(some) for some in chosen], []
            for test, some in zip(paired, chosen, strict=True):
                events, first = np.unique(pair_id[test], return_index=True)
                test_units.append(units[test[first[np.searchsorted(events, views.event[some])]]])
    runs = [Trajectory(recipe, rows.take(train), held) for (train, _), held in zip(folds, tests, strict=True)]
    if len(runs) == 1:
        return runs[0], StoppingRule(recipe.sources, tests, units=test_units, evidence=evidence)
    return Trajectory(recipe, rows), StoppingRule(recipe.sources, tests, runs, test_units, evidence)


def rank_evidence(
    runs: list[tuple[Floats, NDArray[np.bool_], Codes]],
) -> tuple[float, float]:
    """Return the AUROC of scores (scores, is_positive, unit), pooled over runs, and z of its excess over 1/2.

    The standard error is the larger of two: that of independent rows without any difference, and a jackknife
    over units. z is the normal quantile of the t statistic. Both positives and negatives are needed.
    """
    wins = [win for run in runs for win in _wins(*run)]
    variance = 0.0
    for _, positive, _ in runs:
        n1, n0 = int(positive.sum()), int((~positive).sum())
        variance += n1 * n0 * (n1 + n0 + 1) / 12.0
    if not wins:
        return 0.5, 0.0
    winners, losers, *counts = zip(*wins, strict=True)
    units, codes = np.unique([winners, losers], return_inverse=True)
    first, second = codes.reshape(2, -1)
    won, compared = np.array(counts, dtype=np.float64)
    area = float(won.sum() / compared.sum())
    without = [(first != u) & (second != u) for u in range(len(units))]
    left_out = [won[rest].sum() / compared[rest].sum() if rest.any() else np.nan for rest in without]
    crossed = set(first.tolist()) == set(second.tolist())
    over_units, df = jackknife(area, left_out, 2, crossed)
    error = max(float(np.sqrt(variance)) / float(compared.sum()), over_units)
    if df < 1 or not np.isfinite(error):
        return area, 0.0
    return area, float(norm.isf(t.sf((area - 0.5) / error, df)))


def _wins(scores: Floats, positive: NDArray[np.bool_], unit: Codes) -> list[tuple[Any, Any, float, int]]:
    """Return each two units with the number of wins of the positives and the number of comparisons."""
    wins = []
    many = len(np.unique(unit)) > MOST_UNITS  # with many units, units are combined into groups
    groups = unit % MOST_UNITS if many else unit
    negatives = {v: np.sort(scores[~positive & (groups == v)]) for v in np.unique(groups[~positive])}
    for u in np.unique(groups[positive]):
        above = scores[positive & (groups == u)]
        for v, below in negatives.items():
            won = np.searchsorted(below, above) + np.searchsorted(below, above, side="right")
            wins.append((u, v, float(won.sum()) / 2, len(above) * len(below)))
    return wins


def held_out_folds(
    codes: Codes,
    groups: Codes | None,
    pair_id: Labels | None,
    seed: int,
    otherwise: str = "",
) -> tuple[list[tuple[NDArray[np.intp], NDArray[np.intp]]], Codes]:
    """Return (train, test) rows (one split for many rows, five folds for few), and the unit of each row.

    Units are not split: groups (participants) or, without them, views of one event. If there are too few, the
    error ends with the advice ``otherwise``.
    """
    n = len(codes)
    if groups is not None:
        units = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    elif pair_id is not None:
        # Each unpaired row is a separate unit.
        ids = np.unique(pair_id, return_inverse=True)[1]
        units = np.where(is_paired(pair_id), ids, n + np.arange(n))
    else:
        units = np.arange(n)
    n_folds = min(N_FOLDS, len(np.unique(units)), int(np.bincount(codes).min()))
    if n_folds < 2:
        raise UsageError(
            "There are too few rows to hold some out: at least two groups and two rows of each source are "
            f"needed. Pass X_val and source_val{otherwise}."
        )
    splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed % 2**31)
    folds = list(splitter.split(np.zeros((n, 1)), codes, units))
    folds = folds[:1] if n >= FEW_ROWS else folds
    n_sources = len(np.unique(codes))
    if any(len(np.unique(codes[train])) < n_sources for train, _ in folds):
        raise UsageError(
            "A source occurs in too few groups: with one group held out, no rows of this source remain for "
            f"fitting. Pass X_val and source_val{otherwise}."
        )
    return folds, units
