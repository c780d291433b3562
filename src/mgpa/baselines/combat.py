"""ComBat: empirical-Bayes location and scale of each feature in each source (Johnson et al. 2007)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Constraint, flag, nothing, source_label
from ..estimators.streamed import Evidence
from ..maps import RoutedMap
from ._base import Floats, SourceAware, Transport, reference_index, require_variance, routed_map

MAX_ITERATIONS = 1000
TOLERANCE = 1e-10  # in standard deviations


def shrink_to_prior(location: Floats, variance: Floats, n: float) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of one source's features, with priors pooled across features.

    ``location`` and ``variance`` (ddof 1), (d,) each, are of n rows of standardised features.
    """
    center, spread = location.mean(), location.var(ddof=1)
    m, s2 = variance.mean(), variance.var(ddof=1)
    if not (spread > 0 and s2 > 0):  # features that agree exactly have nothing to shrink
        return location, variance
    a, b = (2 * s2 + m**2) / s2, (m * s2 + m**3) / s2
    new_location, new_variance = location, variance
    for _ in range(MAX_ITERATIONS):
        old_location, old_variance = new_location, new_variance
        new_location = (n * spread * location + old_variance * center) / (n * spread + old_variance)
        # Σ(z - γ)² over the source's rows, from their mean and variance.
        squares = (n - 1) * variance + n * (location - new_location) ** 2
        new_variance = (b + 0.5 * squares) / (n / 2 + a - 1)
        moved = np.abs([new_location - old_location, new_variance - old_variance]).max()
        if moved < TOLERANCE:
            return new_location, new_variance
    raise ValueError(f"ComBat's priors did not converge in {MAX_ITERATIONS} rounds; try eb=False.")


class ComBat(SourceAware):
    """Give every feature, one by one, the same mean and variance in all sources, shrunk across features.

    References: Johnson, Li, Rabinovic, Biostatistics 2007; Fortin et al., NeuroImage 2018. Fitted from
    moments; equal to ``neuroCombat`` 0.2.12 up to the 1e-4 at which that stops iterating. No covariates: they
    would be needed again at application, and the task as a covariate hands the label to every later
    classifier.

    Needs source labels, also at application. No pairs, no task.

    What it cannot do: correct a row of an unknown or unseen source. It acts on each feature alone, so
    correlations between features still show the source; and it takes population differences for device
    effects.

    Parameters
    ----------
    eb : bool
        Shrink location and scale toward a prior shared by the features.
    mean_only : bool
        Leave variances as they are.
    reference : label, int or None
        A source to leave unchanged and align the others to; None aligns to the pooled mean and variance.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "eb": flag, "mean_only": flag, "reference": source_label | nothing,
    }  # fmt: skip

    def __init__(self, *, eb: bool = True, mean_only: bool = False, reference: Any = None) -> None:
        self.eb = eb
        self.mean_only = mean_only
        self.reference = reference

    def _solve(self, data: Evidence) -> RoutedMap:
        K = data.require_sources()
        moments, standardizer = data.moments, data.standardizer(True)
        weights = moments.weights
        require_variance(moments)
        target = None if self.reference is None else reference_index(self.reference, data.sources)
        # Features that never vary have no scale to adjust and no place in the priors.
        varying = np.flatnonzero(standardizer.varies)
        means = ((moments.means - standardizer.center) / standardizer.scale)[:, varying]
        scatters = np.stack([part.spread.diagonal for part in moments.parts.values()])
        scatters = (scatters / standardizer.scale**2)[:, varying]
        if target is None:
            grand = weights @ means / weights.sum()
            pooled = scatters.sum(axis=0) / weights.sum()
        else:
            grand, pooled = means[target], scatters[target] / weights[target]
        if not (pooled > 0).all():
            names = "the reference" if target is not None else "each source"
            raise ValueError(f"{int((pooled <= 0).sum())} feature(s) are constant within {names}.")
        sigma = np.sqrt(pooled)
        transports: list[Transport] = []
        for s in range(K):
            if s == target:
                transports.append(None)
                continue
            location = (means[s] - grand) / sigma
            variance = scatters[s] / (weights[s] - 1) / pooled
            if self.eb and len(varying) > 1:
                location, variance = self._shrink(location, variance, float(weights[s]))
            gain = np.ones(len(standardizer.scale))
            start, end = np.zeros_like(gain), np.zeros_like(gain)
            if not self.mean_only:
                if not (variance > 0).all():
                    raise ValueError(
                        f"{int((variance <= 0).sum())} feature(s) are constant in source "
                        f"{data.sources[s].item()!r}; use {'' if self.eb else 'eb=True or '}mean_only=True."
                    )
                gain[varying] = 1 / np.sqrt(variance)
            start[varying], end[varying] = grand + sigma * location, grand
            transports.append((gain, start, end))
        return routed_map(standardizer, transports, self._evidence_info(data))

    def _shrink(self, location: Floats, variance: Floats, n: float) -> tuple[Floats, Floats]:
        if not self.mean_only:
            return shrink_to_prior(location, variance, n)
        # As the reference implementations have it: with variances left alone, one observation, not n.
        spread = location.var(ddof=1)
        shrunk = (spread * location + location.mean()) / (spread + 1.0)
        return shrunk, np.ones_like(variance)
