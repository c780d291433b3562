"""The closed form as the first stage of an iterative correction.

What the pairs show needs no critics. In the standardised coordinates of an iterative fit and inside its gate,
the closed form within sources (:mod:`mgpa.within`) says how much of the pairs' mean contrast the rows show,
and is where the stages start from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ._common.arrays import cast
from .closed_form import ClosedFormMGPA
from .estimators.base import FitData
from .estimators.streamed import Evidence
from .maps import MapInfo, PathMap
from .moments import Means, Moments, Standardizer
from .pairs import Contrasts
from .stages import Start, Trajectory
from .within import Effect, Setting, Solution, solve_within


@dataclass(frozen=True)
class FirstStage:
    """The closed form within sources, in the standardised coordinates and the gate of a fit.

    Attributes
    ----------
    contrasts : Contrasts
        Standardised.
    pairs : tuple of (A, B)
        Both views of pairs that are no rows, standardised.
    people : Means
        Of the standardised rows by source and participant, where those are known.
    gate : fitted gate
    delta : (K - 1, r)
        Mean contrasts of the sources with the first, in the gate.
    varies : (d,) bool
        Features that varied in the fit.
    ridge : float or "auto"
        As in :class:`~mgpa.IterativeMGPA`.
    """

    contrasts: Contrasts
    pairs: tuple[Any, ...]
    people: Means
    gate: Any
    delta: NDArray[np.float64]
    varies: NDArray[np.bool_]
    ridge: float | str

    @classmethod
    def of(
        cls, data: FitData, contrasts: Contrasts, standardizer: Standardizer, gate: Any, ridge: float | str
    ) -> Self | None:
        """Return the closed form of a fit; None if pairs show no mean contrast between all sources."""
        try:
            delta = contrasts.source_effects(len(data.sources)) / standardizer.scale @ gate.basis_
        except ValueError:  # the pairs do not lead from every source to every other
            return None
        typical = np.linalg.norm(contrasts.values / standardizer.scale @ gate.basis_, axis=1).mean()
        if not np.linalg.norm(delta) > 1e-12 * typical:
            return None
        midpoints = contrasts.midpoints
        standardised = replace(
            contrasts,
            values=contrasts.values / standardizer.scale,
            midpoints=None if midpoints is None else (midpoints - standardizer.center) / standardizer.scale,
        )
        people = Means({})
        if data.groups is not None:
            rows = standardizer.apply(data.X)
            people = Means.from_rows(rows, data.codes, data.groups, sample_weight=data.sample_weight)
        views = () if data.pairs is None else (tuple(map(standardizer.apply, data.pairs)),)
        return cls(standardised, views, people, gate, delta, standardizer.varies, ridge)

    def effect(self, moments: Moments) -> Effect | None:
        """Return how much of the mean contrast rows with these moments show."""
        return self._solve(moments).effect

    def start(self, run: Trajectory) -> Start:
        """Return the closed form of a run's rows as a first stage."""
        path, like = self._solve(run.moments).map, run.recipe.basis
        assert isinstance(path, PathMap)
        along = path.direction @ self.gate.basis_  # (k, r)
        return Start(cast(-path.readout.T @ along, like), cast(-path.offset @ along, like))

    def _solve(self, moments: Moments) -> Solution:
        d = len(self.varies)
        here = Standardizer(np.zeros(d), np.ones(d), self.varies)
        by_code = Moments(dict(enumerate(moments.parts.values())))  # as pairs and people are
        evidence = Evidence(by_code, pairs=self.pairs, people=self.people)
        setting = Setting(evidence, self.contrasts, here, self.gate, self.delta, MapInfo())
        return solve_within(ClosedFormMGPA(anchor="within", ridge=self.ridge, do_no_harm=False), setting)
