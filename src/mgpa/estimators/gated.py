"""What the two MGPA constructions share: a gate made of contrasts, and nothing moved without evidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .._common.scatter import Scatter
from ..errors import Mention, MissingEvidence, MissingEvidenceWarning
from ..gate import MeasurementGate, fit_gate
from ..moments import Standardizer
from ..pairs import Contrasts
from .base import CorrectionEstimator, Floats, MethodTags


class GatedEstimator(CorrectionEstimator):
    """Base of the two MGPA constructions: contrasts make a gate, and without evidence nothing moves."""

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_pairs=True)

    gate: Any
    gate_: Any
    on_missing: str

    def _fit_gate(
        self,
        gate: Any,
        contrasts: Contrasts,
        rows: Callable[[], Floats],
        standardizer: Standardizer,
        spread: Callable[[], Scatter] | None = None,
    ) -> Any:
        """Fit a clone of ``gate`` on standardised contrasts (or rows, for the control gates).

        ``spread`` is the scatter of the standardised rows about their sources' means; without it, about the
        mean of all of them.
        """

        def known() -> dict[str, Any]:
            if spread is not None:
                scatter = spread()
            else:
                H = np.asarray(rows(), dtype=np.float64)
                scatter = Scatter.of_rows(H - H.mean(axis=0))
            kind = np.column_stack([contrasts.first, contrasts.second])
            return {"kind": kind, "groups": contrasts.people, "rows": scatter}

        gate = MeasurementGate() if gate is None else clone(gate)
        fitted = fit_gate(gate, contrasts.values / standardizer.scale, rows, standardizer.varies, known)
        if fitted.rank_ == 0 and getattr(gate, "rank", None) == "auto" and fitted.n_contrasts_:
            raise MissingEvidence(
                f"The {len(contrasts)} pairs show no common difference: neither a mean nor a direction that "
                "some of them differ along is found in the others. Check that ids join views of the same "
                "event, and add pairs; ",
                Mention("rank", 1, python="MeasurementGate(rank=1)"),
                " takes a direction unchecked.",
            )
        if fitted.rank_ == 0 and gate.fitted_on == "contrasts" and not fitted.n_contrasts_:
            raise MissingEvidence(
                f"All {len(contrasts)} contrasts are zero: the paired views are identical, so they show no "
                "measurement effect. Check that the second view really is the other condition."
            )
        return fitted

    def _tolerate(self, reason: MissingEvidence) -> None:
        """Raise, or warn that the identity is returned, as ``on_missing`` says."""
        if self.on_missing == "raise":
            raise reason
        said = MissingEvidenceWarning(
            *reason.parts, " Returning the identity map (", Mention("on_missing", "warn"), ")."
        )
        warnings.warn(said, stacklevel=3)

    def coverage(self, pairs: Any) -> float:
        """Return the share of directional energy that these pairs have inside the fitted gate.

        Use pairs that were not fitted on: near 1, the gate covers their measurement change too.

        Parameters
        ----------
        pairs : tuple (A, B) of (m, d) arrays
            In the input's units.
        """
        check_is_fitted(self)
        contrasts = Contrasts.from_pairs(pairs, self.n_features_in_).values / self.map_.scale
        # A feature that never varied has no scale: its differences would drown the others.
        return float(self.gate_.coverage(contrasts * self.map_.varies))
