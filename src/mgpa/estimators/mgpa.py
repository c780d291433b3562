"""MGPA, the default: recognise the source of a row, then correct the row.

If held-out views show that the source can be read from a row, rows move as with a correction that is given
the source (:mod:`mgpa.reading`): to the view of one device, or to the mean of all views. If it cannot be
read, the direction in which sources differ is collapsed, as in the closed form (:mod:`mgpa.position`). If
pairs and rows show no effect, rows do not move.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Constraint, flag, gate, nothing, number, one_of, source_name
from ..errors import MissingEvidence
from ..gate import FixedGate, Gate, no_gate
from ..labels import reference_code, source_names
from ..maps import AffineMap, PosteriorMap
from ..moments import Standardizer
from ..pair_checks import usable_pairs
from ..pairs import Pairs
from ..position import Position, PositionSettings, solve_position
from ..reading.edits import Action, Fit, Reading, ReadingSettings, decide, posterior_map, read_sources
from ..reading.posterior import Posterior, fit_posterior
from ..reading.spread import SpreadEvidence, show_spread
from ..reading.unseen import with_unseen
from ..reading.views import Floats, Views, read_views, unpaired_scatters
from ..statistics import Statistics
from .closed_form import Fitted, GatedMomentEstimator

PRECISE = 0.1  # largest standard error of an effect that shows the common scale of rows and pairs
NOT_ASKED = SpreadEvidence(1.0, 0, "")


class MGPA(GatedMomentEstimator):
    """Correct embeddings for effects of the recording device: shifts, gains and rotations that pairs show.

    Parameters
    ----------
    gate : int, float, gate estimator or None
        The directions in which mean differences between sources may be corrected. An int is the rank of a
        :class:`~mgpa.MeasurementGate`, a float the share of directional energy to retain; with None, held-out
        pairs decide.
    reference : source label or None
        The device on which your decoder or calibration was trained. Rows recognised as this device do not
        move, and rows of other devices are moved to its view. None: all rows are moved to the mean of all
        views.
    spread : {"auto", "always", "never"}
        Whether differences in spread are corrected: if held-out pairs show that this helps, always, or never.
    collapse : {"auto", "always", "never"}
        Whether the direction in which sources differ is collapsed. This works even if the source of a row
        cannot be recognised, but it also removes task information in this direction. "auto": collapse if the
        source is recognised too unreliably; "always": collapse whenever there is a shift.
    strength : float
        1 is the full correction; values between 0 and 1 move rows by this share.
    standardize : bool
        Whether to standardise features on the fitting rows. The output has the units of the input in both
        cases.
    on_missing : {"raise", "warn"}
        Without source labels or pairs, raise an error, or warn and return the identity map.

    Attributes
    ----------
    gate_ : fitted gate
        The directions in which rows move: the span of the contrasts if spread is corrected; rank 0 without
        evidence.
    map_ : PosteriorMap or AffineMap
        The stored correction: edits that depend on the recognised source, one edit for all rows, or the
        identity.
    action_ : str
        What was done: "nothing", "collapse", "read", or "collapse, then read".
    reading_ : Reading or None
        The accuracy with which the source of held-out views is read.
    effect_ : Effect or None
        The share of the mean contrast that rows show; None if pairs show no common shift.
    spread_ : SpreadEvidence or None
        The evidence of held-out pairs for a difference in spread.
    sources_ : array
        Source labels seen.

    See Also
    --------
    ClosedFormMGPA : The paper's one affine step.
    IterativeMGPA : The paper's bounded steps, guided by source critics.
    mgpa.audit.run : Measure the effects of a correction on held-out participants.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 200)
    >>> gain = np.array([2.0, 1, 1, 1])
    >>> X = rng.normal(size=(400, 4)) * np.where(source == "wet", gain[:, None], 1).T
    >>> A = rng.normal(size=(60, 4)); B = A * gain + 0.1 * rng.normal(size=(60, 4))
    >>> model = MGPA().fit(X, source=source, pairs=(A, B))
    >>> model.to_map()
    <PosteriorMap: edits of 2 sources read from the row, in 2 directions, 4 features>

    Keep a decoder of "dry": its rows do not move, as long as the source can be read from them.

    >>> keep = MGPA(reference="dry").fit(X, source=source, pairs=(A, B))
    >>> keep.to_map().info.reference
    'dry'
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "gate": gate,
        "reference": source_name | nothing,
        "spread": one_of("auto", "always", "never"),
        "collapse": one_of("auto", "always", "never"),
        "strength": number(0),
        "standardize": flag,
        "on_missing": one_of("raise", "warn"),
    }

    def __init__(
        self,
        gate: Any = None,
        *,
        reference: Any = None,
        spread: str = "auto",
        collapse: str = "auto",
        strength: float = 1.0,
        standardize: bool = True,
        on_missing: str = "raise",
    ) -> None:
        self.gate = gate
        self.reference = reference
        self.spread = spread
        self.collapse = collapse
        self.strength = strength
        self.standardize = standardize
        self.on_missing = on_missing

    def _solve(self, data: Statistics) -> Fitted:
        data, pairs, doubt, left_out = usable_pairs(data)
        standardizer = data.standardizer(self.standardize)
        target = reference_code(self.reference, data.sources)
        effects = pairs.source_effects(len(data.sources))
        position = self._position_of(data, pairs, effects, standardizer, target)
        within = data.moments.within_scaled(standardizer.divisor)
        views = read_views(pairs, effects, within, data.moments.count, standardizer)
        collapsed = views.after(position.map, pairs, standardizer)
        n_pairs, apart = len(pairs), pairs.b.mean(axis=0) - pairs.a.mean(axis=0)
        del pairs  # they use as much memory as the views
        result = self._edits(data, views, collapsed, standardizer, position, target)
        if self.spread == "never":
            result = replace(result, spread=None)
        facts: dict[str, Any] = {}
        if result.gate is not position.gate:
            result.gate.mean_contrast_ = apart / standardizer.divisor
            facts["gate_energy"] = float(result.gate.cumulative_energy_[0])
        name = "" if target is None else source_names(data.sources)[target]
        words = [_evidence_in_words(result, name), result.unseen, left_out]
        effect = position.effect
        if effect is not None and (effect.lies_with or result.action is not Action.NOTHING):
            doubt = " ".join(filter(None, (doubt, effect.doubt)))
        evidence = "; ".join(filter(None, words))
        info = self._evidence_info(
            data,
            gate=result.gate,
            n_contrasts=n_pairs,
            evidence=evidence,
            reference=name,
            doubt=doubt,
            **facts,
        )
        return replace(result, map=replace(result.map, strength=float(self.strength), info=info))

    def _position_of(
        self,
        data: Statistics,
        pairs: Pairs,
        effects: Floats,
        standardizer: Standardizer,
        target: int | None,
    ) -> Position:
        """Return the closed form, or the identity if pairs show no common shift."""
        try:
            settings = PositionSettings(reference=target)
            return solve_position(
                data, pairs, effects, gate=self.gate, standardize=self.standardize, settings=settings
            )
        except MissingEvidence:
            if np.array_equal(pairs.a, pairs.b):
                raise
            d = len(standardizer.center)
            identity = AffineMap.identity(d, center=standardizer.center, scale=standardizer.scale)
            return Position(no_gate(d), identity)

    def _edits(
        self,
        data: Statistics,
        views: Views,
        collapsed: Views,
        standardizer: Standardizer,
        position: Position,
        target: int | None,
    ) -> Fitted:
        """Return edits that depend on the recognised source, or the closed form, or the identity."""
        effect, has_position = position.effect, position.map.rank > 0
        spread = show_spread(views) if self.spread != "never" else NOT_ASKED
        has_spread = self.spread == "always" or spread.is_shown
        if not (has_position or has_spread) or not views.folds:
            action = Action.COLLAPSE if has_position else Action.NOTHING
            return Fitted(position.map, position.gate, position, spread, action)
        paired = data.paired_moments(among_rows=True)
        rows = unpaired_scatters(data.moments, paired, views.axes, standardizer.divisor)
        posterior = fit_posterior(views, rows)
        same_scale = effect is not None and effect.matches_pairs
        settings = ReadingSettings(
            target,
            self.spread,
            is_precise=effect is not None and same_scale and effect.error < PRECISE,
            is_absent=effect is not None and effect.is_absent,
        )
        fit = read_sources(views, rows, posterior, spread, settings)
        reading = fit.reading
        action = decide(fit, has_position=has_position, same_scale=same_scale, collapse=self.collapse)
        if action is Action.COLLAPSE and has_spread:
            fit = read_sources(collapsed, rows, posterior, show_spread(collapsed), settings)
            action = Action.COLLAPSE_AND_READ if fit.slopes else action
        if action in (Action.NOTHING, Action.COLLAPSE):
            return Fitted(position.map, position.gate, position, fit.spread, action, reading)
        stored, gate = _edit_map(fit, posterior, position, standardizer, target)
        stored, unseen = with_unseen(stored, views, data.moments.count)
        return Fitted(stored, gate, position, fit.spread, action, reading, unseen)

    @property
    def spread_(self) -> SpreadEvidence | None:
        """The evidence of held-out pairs for a difference in spread."""
        return self._fitted.spread

    @property
    def action_(self) -> str:
        """What was done: "nothing", "collapse", "read", or "collapse, then read"."""
        return self._fitted.action.value if self._fitted.action else Action.NOTHING.value

    @property
    def reading_(self) -> Reading | None:
        """The accuracy with which the source of held-out views is read; None if it was not needed."""
        return self._fitted.reading


def _evidence_in_words(result: Fitted, reference: str) -> str:
    """Return the evidence of pairs and rows, and the chosen correction, in words."""
    effect = None if result.position is None else result.position.effect
    parts = ["pairs show no common shift" if effect is None else str(effect)]
    if result.spread is not None:
        parts.append(str(result.spread))
    action = result.action or Action.NOTHING
    if result.reading is not None and action is not Action.NOTHING:
        parts.append(str(result.reading))
    return "; ".join([*parts, action.in_words(reference)])


def _edit_map(
    fit: Fit, posterior: Posterior, position: Position, standardizer: Standardizer, target: int | None
) -> tuple[PosteriorMap, Gate]:
    """Return the edits as a stored map, and the gate that contains them.

    Mean differences act inside the gate of the closed form; slopes act in the span of the differences.
    """
    inside = None if fit.slopes else position.gate.basis_
    stored = posterior_map(fit, posterior, position.map, standardizer, target=target, gate=inside)
    if inside is not None:
        return stored, position.gate
    span = np.eye(stored.n_features) if stored.direction is None else stored.direction.T
    gate = FixedGate(span).fit(span.T)
    gate.cumulative_energy_ *= fit.views.coverage(span)
    return stored, gate
