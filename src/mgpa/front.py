"""MGPA, the default: gate, position, then spread, each as far as pairs and rows show it.

Position is the closed form along the mean contrast (:mod:`mgpa.closed_form`). Where held-out pairs show that
sources also differ in how embeddings vary, and that correcting it brings views closer, the source is read
from the row and used (:mod:`mgpa.spread`). Where nothing is shown, nothing moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ._common.parameters import Constraint, flag, gate, number, one_of
from .closed_form import GatedMomentEstimator, Solution, solve
from .errors import MissingEvidence
from .estimators.streamed import Evidence
from .gate import FixedGate, no_gate
from .maps import AffineMap
from .spread import SpreadEvidence, fit_spread, read_views, spread_map, unpaired_scatters

PRECISE = 0.1  # an effect known this well says that rows are at the pairs' scale


class MGPA(GatedMomentEstimator):
    """Correct embeddings for how they were measured: shifts, gains and rotations, as far as pairs show them.

    Parameters
    ----------
    gate : gate estimator or None
        Where the correction of position may act; None is ``MeasurementGate()``.
    spread : {"auto", "always", "never"}
        Whether differences in spread are corrected: where held-out pairs show that it helps, whatever they
        show, or not at all. The map then is not affine; it reads the source from each row.
    strength : float
        1 is the full correction; values between 0 and 1 move rows less far.
    standardize : bool
        Work in features scaled to zero mean and unit variance on the fitting rows. Output is in the input's
        units either way.
    on_missing : {"raise", "warn"}
        Without source labels or pairs there is nothing to fit: raise, or warn and return the identity map.

    Attributes
    ----------
    gate_ : fitted gate
        Where rows move: with spread, the span of the contrasts; rank 0 where nothing is shown.
    map_ : SpreadMap or AffineMap
        The stored correction: with spread, along the mean contrast alone, or the identity.
    effect_ : Effect or None
        How much of the mean contrast the rows show; None where pairs show no common shift.
    spread_ : SpreadEvidence or None
        What held-out pairs say about spread.
    sources_ : array
        Source labels seen.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 200)
    >>> gain = np.array([2.0, 1, 1, 1])
    >>> X = rng.normal(size=(400, 4)) * np.where(source == "wet", gain[:, None], 1).T
    >>> A = rng.normal(size=(60, 4))
    >>> model = MGPA().fit(X, source=source, pairs=(A, A * gain))
    >>> model.to_map()
    <SpreadMap: edits of 2 sources read from the row, in 4 directions, 4 features>
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "gate": gate,
        "spread": one_of("auto", "always", "never"),
        "strength": number(0),
        "standardize": flag,
        "on_missing": one_of("raise", "warn"),
    }

    def __init__(
        self,
        gate: Any = None,
        *,
        spread: str = "auto",
        strength: float = 1.0,
        standardize: bool = True,
        on_missing: str = "raise",
    ) -> None:
        self.gate = gate
        self.spread = spread
        self.strength = strength
        self.standardize = standardize
        self.on_missing = on_missing

    def _solve(self, data: Evidence) -> Solution:
        data.require_sources()
        contrasts = data.contrasts()
        n_contrasts = len(contrasts)
        standardizer, moments = data.standardizer(self.standardize), data.moments
        center, scale = standardizer.center, standardizer.scale
        try:
            options = {"gate": self.gate, "standardize": self.standardize}
            solution = solve(data, contrasts, anchor="within", ridge="auto", **options)
        except MissingEvidence:
            if not contrasts.values.any():
                raise
            identity = AffineMap.identity(len(scale), center=center, scale=scale)
            solution = Solution(no_gate(len(scale)), identity)
        gate, position, effect = solution.gate, solution.map, solution.effect
        words = "pairs show no common shift"
        if effect is not None:
            words = f"{effect}: {'correction applied' if position.rank else 'not corrected'}"
        evidence, stored = None, position
        if self.spread != "never":
            divided = np.where(standardizer.varies, scale, np.inf)  # what never varied takes no part
            within = moments.within.scaled(divided * np.sqrt(moments.weights.sum() / moments.count))
            views = read_views(contrasts, within, moments.count, standardizer, position)
            mean_contrast = contrasts.values.mean(axis=0) / divided
            del contrasts  # which are as large
            paired = replace(data, pairs=(), calibration=()).paired_moments()  # of views among the rows
            rows = unpaired_scatters(moments, paired, views.axes, divided)
            evidence, scores, edits = fit_spread(views, rows, always=self.spread == "always")
            words = f"{words}; {evidence}"
            if scores is not None:
                shift = effect is not None and effect.matches_pairs and effect.error < PRECISE
                matches = evidence.matches_rows or shift
                words += f"; {evidence.outcome() if matches else 'rows do not show it: not corrected'}"
                if self.spread == "always" or (evidence.helps and matches):
                    stored = spread_map(views, scores, edits, position, standardizer)
                    span = np.eye(len(scale)) if stored.direction is None else stored.direction.T
                    gate = FixedGate(span).fit(span.T)
                    gate.mean_contrast_ = mean_contrast
        stored = replace(stored, strength=float(self.strength))
        correction = Solution(gate, stored, effect=effect, spread=evidence)
        return self._described(correction, data, n_contrasts, words)

    @property
    def spread_(self) -> SpreadEvidence | None:
        """What held-out pairs say about spread."""
        evidence: SpreadEvidence | None = self._solution().spread
        return evidence
