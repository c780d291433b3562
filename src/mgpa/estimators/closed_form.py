"""The closed form (section 4.1): one affine map, from moments and pairs (:mod:`mgpa.position`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Constraint, flag, gate, nothing, number, one_of, source_name
from ..gate import no_gate
from ..labels import reference_code, source_names
from ..maps import AffineMap, MapInfo
from ..pair_checks import require_right_pairs, usable_pairs
from ..position import Effect, Position, solve_position
from ..statistics import Statistics
from .base import Fitted, GatedEstimator, MomentEstimator

Floats = NDArray[np.float64]


class GatedMomentEstimator(GatedEstimator, MomentEstimator):
    """Base of the estimators that solve moments and pairs for a map inside a gate."""

    def _identity(self) -> Fitted:
        d = self.n_features_in_
        return Fitted(AffineMap.identity(d, info=self._info(gate_rank=0)), no_gate(d))

    def _pairs_info(self, data: Statistics, n_pairs: int, gate: Any, evidence: str, **facts: Any) -> MapInfo:
        """Return a map's provenance: rows, pairs, gate, and the evidence in words."""
        facts = {"n_contrasts": n_pairs, "gate_rank": gate.rank_, "gate_energy": gate.retained_energy} | facts
        return self._evidence_info(data, evidence=evidence, **facts)

    @property
    def gate_(self) -> Any:
        """The fitted gate: where rows move."""
        return self._fitted.gate

    @property
    def _position(self) -> Position | None:
        return self._fitted.position

    @property
    def effect_(self) -> Effect | None:
        """How much of the mean contrast the rows show."""
        return None if self._position is None else self._position.effect


class ClosedFormMGPA(GatedMomentEstimator):
    """Correct embeddings in one affine map fitted from source labels and paired measurements.

    Parameters
    ----------
    gate : int, float, gate estimator or None
        Where the correction may act. An int is the rank of a :class:`~mgpa.MeasurementGate`,
        a float the share of directional energy to retain; with None, held-out pairs decide.
    anchor : {"within", "pooled"}
        What gate coordinates aim for: their regression on the preserved ones within sources, which does not
        learn an association of source and task, or over the rows of all sources, as published. Row weights
        are relative for "within"; for "pooled", a weight of 2 repeats the row.
    reference : source label or None
        The source to whose mean rows are moved; None is the mean of the sources' means. Preserved
        coordinates and differences between corrected rows are the same for all.
    strength : float
        α. 1 is the full step; values above 1 overshoot; any α ≠ 1 is invertible given Q.
    ridge : float or "auto"
        Penalty of the regression of gate coordinates on preserved ones, on the sum-of-squares scale; "auto"
        is generalised cross-validation for anchors within sources, and the published 10 for anchors over all
        rows.
    shrinkage : float
        Shrinkage of the residual covariance toward its mean diagonal.
    do_no_harm : bool
        With ``anchor="within"``: return the identity unless pairs agree on a shift and the rows show it more
        clearly than chance does in one of twenty fits, over participants where ``groups`` are known.
    standardize : bool
        Work in features scaled to zero mean and unit variance on the fitting rows. Output is in the input's
        units either way.
    on_missing : {"raise", "warn"}
        Without source labels or pairs there is nothing to fit: raise, or warn and return the identity map.

    Attributes
    ----------
    gate_ : fitted gate
        With ``basis_`` (d, r), ``rank_``, ``cumulative_energy_`` and ``mean_contrast_``.
    map_ : AffineMap
        The stored correction, along the K - 1 directions of the mean contrasts.
    sources_ : array
        Source labels seen.
    direction_ : (K - 1, r) array
        Δ: mean projected contrast of each further source against the first.
    covariance_ : (r, r) array
        Residual covariance C, after shrinkage.
    effect_ : Effect or None
        How much of the mean contrast the rows show, with its standard error; None with ``anchor="pooled"``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 100)
    >>> shift = np.array([2.0, 0, 0, 0, 0])
    >>> X = rng.normal(size=(200, 5)) + (source == "wet")[:, None] * shift
    >>> A = rng.normal(size=(30, 5)); B = A + shift + 0.1 * rng.normal(size=(30, 5))
    >>> model = ClosedFormMGPA().fit(X, source=source, pairs=(A, B))
    >>> model.transform(X).shape, model.to_map(), bool(0.9 < model.effect_.size < 1.1)
    ((200, 5), <AffineMap: affine, 1 direction, 5 features>, True)
    >>> ClosedFormMGPA.paper().fit(X, source=source, pairs=(A, B)).to_map()
    <AffineMap: affine, 1 direction, 5 features>
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "gate": gate,
        "anchor": one_of("within", "pooled"),
        "reference": source_name | nothing,
        "strength": number(0),
        "ridge": number(0) | one_of("auto"),
        "shrinkage": number(0, 1),
        "do_no_harm": flag,
        "standardize": flag,
        "on_missing": one_of("raise", "warn"),
    }

    def __init__(
        self,
        gate: Any = None,
        *,
        anchor: str = "within",
        reference: Any = None,
        strength: float = 1.0,
        ridge: float | str = "auto",
        shrinkage: float = 0.01,
        do_no_harm: bool = True,
        standardize: bool = True,
        on_missing: str = "raise",
    ) -> None:
        self.gate = gate
        self.anchor = anchor
        self.reference = reference
        self.strength = strength
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.do_no_harm = do_no_harm
        self.standardize = standardize
        self.on_missing = on_missing

    @classmethod
    def paper(cls, gate: Any = None, **changes: Any) -> Self:
        """Return the published settings: a pooled anchor with ridge 10, no test of evidence.

        ``gate`` replaces .9, the share of contrast energy of controlled SSVEP and N170 (recorded
        SSVEP has .99, reuse rank 8); ``changes`` override parameters.
        """
        gate = 0.9 if gate is None else gate
        settings: dict[str, Any] = {"anchor": "pooled", "ridge": 10.0, "do_no_harm": False}
        return cls(gate, **(settings | changes))

    def _solve(self, data: Statistics) -> Fitted:
        data.require_sources()
        left_out = ""
        if self.do_no_harm:
            data, pairs, doubt, left_out = usable_pairs(data)
        else:
            pairs = data.pairs()
            doubt = require_right_pairs(pairs)
        settings = self.get_params(deep=False)
        del settings["on_missing"]
        code = settings["reference"] = reference_code(self.reference, data.sources)
        position = solve_position(data, pairs, **settings)
        facts = {} if code is None else {"reference": source_names(data.sources)[code]}
        evidence = "; ".join(filter(None, (position.map.info.evidence, left_out)))
        if position.effect is not None:
            doubt = " ".join(filter(None, (doubt, position.effect.doubt)))
        info = self._pairs_info(data, len(pairs), position.gate, evidence, doubt=doubt, **facts)
        return Fitted(replace(position.map, info=info), position.gate, position)

    @property
    def direction_(self) -> Floats:
        """Δ in gate coordinates, one row per source after the first."""
        return np.zeros((0, 0)) if self._position is None else self._position.direction

    @property
    def covariance_(self) -> Floats:
        """Residual covariance C, after shrinkage."""
        return np.zeros((0, 0)) if self._position is None else self._position.covariance
