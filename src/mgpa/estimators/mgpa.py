"""MGPA, the default: gate, position, then spread, each as far as pairs and rows show it.

Position is the closed form along the mean contrast (:mod:`mgpa.position`). Where held-out pairs show that
sources also differ in how embeddings vary, and that correcting it brings views closer, the source is read
from the row and used (:mod:`mgpa.spread`). Where nothing is shown, nothing moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Constraint, flag, gate, number, one_of
from ..errors import MissingEvidence
from ..gate import FixedGate, no_gate
from ..maps import AffineMap, SpreadMap
from ..position import Position, solve_position
from ..spread import SpreadEvidence, fit_spread, read_views, spread_map, unpaired_scatters
from ..statistics import Statistics
from .base import Fitted
from .closed_form import GatedMomentEstimator

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

    def _solve(self, data: Statistics) -> Fitted:
        data.require_sources()
        pairs = data.pairs()
        n_pairs, moments = len(pairs), data.moments
        standardizer = data.standardizer(self.standardize)
        center, scale = standardizer.center, standardizer.scale
        try:
            position = solve_position(data, pairs, gate=self.gate, standardize=self.standardize)
        except MissingEvidence:
            if not pairs.contrasts.any():
                raise
            identity = AffineMap.identity(len(scale), center=center, scale=scale)
            position = Position(no_gate(len(scale)), identity)
        gate, moved, effect = position.gate, position.map, position.effect
        words = "pairs show no common shift"
        if effect is not None:
            words = f"{effect}: {'correction applied' if moved.rank else 'not corrected'}"
        evidence: SpreadEvidence | None = None
        stored: AffineMap | SpreadMap = moved
        if self.spread != "never":
            divisor = standardizer.divisor
            views = read_views(pairs, moments.within_scaled(divisor), moments.count, standardizer, moved)
            mean_contrast = pairs.contrasts.mean(axis=0) / divisor
            del pairs  # which are as large
            rows = unpaired_scatters(moments, data.paired_moments(among_rows=True), views.axes, divisor)
            evidence, scores, edits = fit_spread(views, rows, always=self.spread == "always")
            words = f"{words}; {evidence}"
            if scores is not None:
                shift = effect is not None and effect.matches_pairs and effect.error < PRECISE
                matches = evidence.matches_rows or shift
                words += f"; {evidence.outcome() if matches else 'rows do not show it: not corrected'}"
                if self.spread == "always" or (evidence.helps and matches):
                    stored = spread_map(views, scores, edits, moved, standardizer)
                    span = np.eye(len(scale)) if stored.direction is None else stored.direction.T
                    gate = FixedGate(span).fit(span.T)
                    gate.mean_contrast_ = mean_contrast
        info = self._pairs_info(data, n_pairs, gate, words)
        stored = replace(stored, strength=float(self.strength), info=info)
        return Fitted(stored, gate, position, evidence)

    @property
    def spread_(self) -> SpreadEvidence | None:
        """What held-out pairs say about spread."""
        evidence: SpreadEvidence | None = self._fitted.spread
        return evidence
